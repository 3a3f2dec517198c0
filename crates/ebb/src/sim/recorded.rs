//! `ebb sim --recorded`: decides again what a run of `ebb run --record` has decided.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Result, anyhow};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches};
use ebb_cli::{out, text, usage};
use ebb_record::recording::{self, Again, Difference, Reader, RecordingError, Side};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::Serialize;

use super::SimArgs;

/// Options that mean something with a recording.
const OPTIONS: [&str; 5] = ["recorded", "policy", "profile", "json", "quiet"];

/// A recording of ebb run --record, decided again.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "ebb sim --recorded --json")]
struct Shown<'a> {
    #[schemars(extend("const" = 1))]
    schema: u32,
    /// Its folder.
    recording: String,
    #[schemars(range(min = 1))]
    files: usize,
    /// Versions of Ebb, with the commit where it is known.
    recorded_by: Vec<&'a str>,
    policies: Vec<&'a str>,
    /// Starts, and starts anew with other parts or after a pause.
    runs: u64,
    /// Time of day of the first cycle.
    from_unix_s: Option<f64>,
    /// Time of day of the last cycle.
    to_unix_s: Option<f64>,
    /// Recorded: same, other and unknown together.
    cycles: u64,
    /// Decided again alike, to the bit.
    same: u64,
    /// Decided otherwise.
    other: u64,
    /// Not decided again: they follow a gap.
    unknown: u64,
    gaps: u64,
    first_gaps: Vec<Gap>,
    /// Blocks that are cut or damaged.
    unreadable: u64,
    first_unreadable: Vec<Unreadable<'a>>,
    /// The first.
    difference: Option<Differs<'a>>,
}

#[derive(Serialize, JsonSchema)]
struct Gap {
    /// Time of day of the first cycle after it.
    unix_s: f64,
    /// How many are missing; null where the start is missing.
    cycles: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
struct Unreadable<'a> {
    file: &'a str,
    at_byte: usize,
    why: &'a str,
}

#[derive(Serialize, JsonSchema)]
struct Differs<'a> {
    unix_s: f64,
    /// Counted from the start of the run.
    cycle: u64,
    /// Null where it is whether policies are followed.
    control: Option<&'static str>,
    /// Of which part.
    of: Option<&'a str>,
    recorded: Decided<'a>,
    again: Decided<'a>,
}

#[derive(Serialize, JsonSchema)]
struct Decided<'a> {
    /// In the control's unit; null is released.
    asked: Option<f64>,
    given: Option<f64>,
    reason: &'a str,
}

impl<'a> From<&'a Side> for Decided<'a> {
    fn from(Side { asked, given, reason }: &'a Side) -> Self {
        Self { asked: *asked, given: *given, reason }
    }
}

/// Whether the options say one thing; `given` are the `options` of the command line.
///
/// # Errors
/// An option that a recording decides, or two policies.
pub fn check(args: &SimArgs, options: &clap::Command, given: &ArgMatches) -> Result<()> {
    let is_given =
        |arg: &Arg| given.value_source(arg.get_id().as_str()) == Some(ValueSource::CommandLine);
    let names = options.get_arguments().filter(|arg| is_given(arg)).filter_map(Arg::get_long);
    if let Some(other) = names.into_iter().find(|name| !OPTIONS.contains(name)) {
        return Err(usage(format!(
            "--recorded takes the load and all settings from the recording: leave --{other} out"
        )));
    }
    match (args.policies.len(), &args.profile) {
        (0, Some(_)) => Err(usage("--profile is for --policy: what else would have saved")),
        (0 | 1, _) => Ok(()),
        _ => Err(usage("--recorded takes one --policy at a time")),
    }
}

/// Decides `folder` again.
///
/// # Errors
/// Where something is decided otherwise, or nothing could be decided again.
pub fn run(folder: &Path, json: bool) -> Result<()> {
    let mut reader = Reader::open(folder).map_err(wrong)?;
    let again = recording::again(&mut reader).map_err(wrong)?;
    if json {
        out::json(&shown(folder, &reader, &again))?;
    } else {
        // Whatever stands in it is not for the terminal to act on.
        let text = in_words(folder, &reader, &again)?;
        out::print(text.lines().map(|line| text::printable(line) + "\n").collect::<String>())?;
    }
    match again {
        Again { same, other: other @ 1.., .. } => {
            let all = grouped(same + other);
            Err(anyhow!("{} of {all} cycles are decided otherwise", grouped(other)))
        }
        Again { same: 0, .. } => Err(anyhow!(
            "no cycle could be decided again: the start of the run is not in the recording"
        )),
        _ => Ok(()),
    }
}

/// What cannot be read for reasons of the system's is no wrong input.
pub fn wrong(error: RecordingError) -> anyhow::Error {
    match error {
        RecordingError::Io { .. } => error.into(),
        error => usage(error.to_string()),
    }
}

fn shown<'a>(folder: &Path, reader: &Reader, again: &'a Again) -> Shown<'a> {
    let texts = |of: &'a std::collections::BTreeSet<String>| of.iter().map(|s| &**s).collect();
    let (gaps, cuts) = (&again.gaps, &again.cuts);
    let gap = |gap: &recording::Gap| Gap { unix_s: gap.unix_s, cycles: gap.cycles };
    let cut =
        |cut: &'a recording::Cut| Unreadable { file: &cut.file, at_byte: cut.at, why: &cut.why };
    let differs = |first: &'a Difference| Differs {
        unix_s: first.unix_s,
        cycle: first.number,
        control: first.control.map(|control| control.row().name),
        of: first.part.as_deref(),
        recorded: (&first.recorded).into(),
        again: (&first.again).into(),
    };
    Shown {
        schema: 1,
        recording: folder.display().to_string(),
        files: reader.files(),
        recorded_by: texts(&again.versions),
        policies: texts(&again.policies),
        runs: again.runs,
        from_unix_s: again.span.map(|span| span[0]),
        to_unix_s: again.span.map(|span| span[1]),
        cycles: again.cycles,
        same: again.same,
        other: again.other,
        unknown: again.unknown,
        gaps: gaps.1,
        first_gaps: gaps.0.iter().map(gap).collect(),
        unreadable: cuts.1,
        first_unreadable: cuts.0.iter().map(cut).collect(),
        difference: again.first.as_ref().map(differs),
    }
}

fn grouped(count: u64) -> String {
    text::grouped(count as f64)
}

/// A time of day here.
pub fn clock(unix_s: f64) -> String {
    let at = Timestamp::from_millisecond((unix_s * 1e3) as i64).unwrap_or_default();
    at.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S%.1f").to_string()
}

fn in_words(folder: &Path, reader: &Reader, again: &Again) -> Result<String, std::fmt::Error> {
    let mut to = String::new();
    let joined = |of: &std::collections::BTreeSet<String>| {
        of.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    };
    let Again { cycles, same, other, unknown, runs, .. } = again;
    writeln!(
        to,
        "{}: {} files, {} cycles of {runs} starts, with {}, by Ebb {}",
        folder.display(),
        reader.files(),
        grouped(*cycles),
        joined(&again.policies),
        joined(&again.versions),
    )?;
    if let Some([from, until]) = again.span {
        writeln!(to, "From {} to {}", clock(from), clock(until))?;
    }
    let (all, same) = (grouped(same + other), grouped(*same));
    writeln!(to, "Decided again: {same} of {all} cycles are the same, bit for bit.")?;
    if *unknown > 0 {
        writeln!(
            to,
            "{} cycles follow a gap. What the policy remembered is not known there, so they are \
             not decided again.",
            grouped(*unknown)
        )?;
    }
    for gap in &again.gaps.0 {
        match gap.cycles {
            Some(cycles) => writeln!(to, "Gap: {cycles} cycles before {}", clock(gap.unix_s))?,
            None => writeln!(to, "Gap: all before {}", clock(gap.unix_s))?,
        }
    }
    for recording::Cut { file, at, why } in &again.cuts.0 {
        writeln!(to, "Left out: {file} from byte {at}: {why}")?;
    }
    for (what, (told, count)) in [
        ("gaps", (again.gaps.0.len(), again.gaps.1)),
        ("parts that are left out", (again.cuts.0.len(), again.cuts.1)),
    ] {
        if count > told as u64 {
            writeln!(to, "There are {count} {what}; these are the first.")?;
        }
    }
    if let Some(first) = &again.first {
        let what = first.control.map_or("state", |control| control.row().title);
        let of = first.part.as_ref().map(|part| format!(" of {part}")).unwrap_or_default();
        let at = clock(first.unix_s);
        writeln!(to, "First difference: {at}, cycle {}: {what}{of}", first.number)?;
        for (which, side) in [("recorded", &first.recorded), ("again", &first.again)] {
            writeln!(to, "  {which:8}  {}", decided(side))?;
        }
        let own = env!("CARGO_PKG_VERSION");
        writeln!(to, "This is Ebb {own}; other versions may decide otherwise.")?;
    }
    Ok(to)
}

fn decided(Side { asked, given, reason }: &Side) -> String {
    let value = |of: Option<f64>| of.map_or("released".to_owned(), |value| value.to_string());
    match asked == given {
        true => format!("{} ({reason})", value(*given)),
        false => format!("{}, asked for {} ({reason})", value(*given), value(*asked)),
    }
}

#[cfg(test)]
crate::schema::written!("recorded-1", Shown<'static>);
