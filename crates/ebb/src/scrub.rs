//! `ebb scrub`: whether the parity of an array fits its data.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use ebb_policy::units::Bytes;
use ebb_target::device::{Checked, Fault, Finding, Keeper, Raid5, Spec, open_kept};
use schemars::JsonSchema;
use serde::Serialize;

use ebb_cli::progress::Progress;
use ebb_cli::{Interrupted, interrupt, out, text, usage};

/// Options of `ebb scrub`.
///
/// Reads every stripe of a RAID-5 array that no server has open, and compares parity with data. One
/// parity tells that a stripe is wrong, not which of its chunks: restore what it holds from a copy.
/// A chunk that one member cannot read is known, and --repair writes it anew.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ebb scrub raid5:/srv/a.img,/srv/b.img,/srv/c.img --rate 100MiB
  ebb scrub raid5:/dev/sda,/dev/sdb,/dev/sdc --from 120000 --json

Exit code 1: something is wrong and was not repaired.")]
pub struct ScrubArgs {
    /// The array and all its members, as for `ebb serve --namespace`.
    #[arg(value_name = "raid5:PATH,PATH,PATH")]
    array: String,
    /// Bytes to read per second, of all members together [default: as fast as they are].
    #[arg(long, value_name = "SIZE")]
    rate: Option<Bytes>,
    /// Rewrite chunks that cannot be read, and make parity that does not fit follow the data as it
    /// is. Restore wrong data first: afterwards nothing shows where it was.
    #[arg(long)]
    repair: bool,
    /// Stripe to begin with: where an interrupted scrub says that it ended.
    #[arg(long, value_name = "STRIPE", default_value_t = 0)]
    from: u64,
    /// Print JSON (docs/json-schema/scrub-1.json).
    #[arg(long)]
    json: bool,
}

/// What was found, and how far the scrub came.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[schemars(title = "ebb scrub --json")]
struct Report {
    #[schemars(extend("const" = 1))]
    schema: u32,
    /// As it was given.
    array: String,
    /// By their place in the array.
    members: Vec<String>,
    /// Of the array.
    #[schemars(range(min = 1))]
    stripes: u64,
    /// The first stripe that was looked at.
    from: u64,
    /// The stripe after the last; less than stripes: it was interrupted.
    to: u64,
    /// Read, of all members.
    bytes: u64,
    /// Stripes with nothing to compare with: a member is missing or not rebuilt.
    incomplete: u64,
    wrong: Vec<Wrong>,
}

/// A stripe that is not as it should be.
#[derive(Debug, Serialize, JsonSchema)]
struct Wrong {
    stripe: u64,
    /// Of the array, in this stripe.
    first_byte: u64,
    /// The byte after the last.
    #[schemars(range(min = 1))]
    end_byte: u64,
    /// `mismatch` or `unreadable`.
    #[schemars(extend("enum" = ["mismatch", "unreadable"]))]
    fault: &'static str,
    /// Those that cannot read their chunk.
    members: Vec<String>,
    repaired: bool,
    text: String,
}

/// Scrubs and tells.
pub fn run(args: &ScrubArgs) -> Result<()> {
    let spec: Spec = args.array.parse().map_err(|error| usage(format!("{error}")))?;
    match &spec {
        Spec::Raid5 { options, .. } if options.create || options.rebuild => {
            return Err(usage("create and rebuild are for ebb serve; a scrub takes what there is"));
        }
        Spec::Raid5 { .. } => {}
        _ => return Err(usage(format!("{}: not an array; write raid5:…", args.array))),
    }
    if args.rate == Some(Bytes(0)) {
        return Err(usage("--rate 0: must be above 0"));
    }
    interrupt::watch()?;
    let (array, mut keeper) = open_kept(&spec)?;
    if args.from >= keeper.stripes() {
        keeper.stop();
        return Err(usage(format!("--from {}: the array has fewer stripes", args.from)));
    }
    let report = scrub(args, &array, &mut keeper);
    keeper.stop();
    if args.json {
        out::json(&report)?;
    } else {
        out::print(summary(&report))?;
    }
    if report.to < report.stripes {
        out::note(format_args!("stopped; go on with --from {}", report.to));
        return Err(Interrupted.into());
    }
    let open = report.wrong.iter().filter(|wrong| !wrong.repaired).count();
    match open {
        0 if report.incomplete == 0 => Ok(()),
        0 => bail!("{} stripes have no parity to compare with: rebuild first", report.incomplete),
        _ => bail!("{open} stripes are wrong"),
    }
}

fn scrub(args: &ScrubArgs, array: &Raid5, keeper: &mut Keeper) -> Report {
    let (names, stripes) = (array.names(), keeper.stripes());
    let mut report = Report {
        schema: 1,
        array: args.array.clone(),
        members: names.to_vec(),
        stripes,
        from: args.from,
        to: args.from,
        ..Report::default()
    };
    let bar = Progress::new(false).bar("scrub", Some(stripes - args.from));
    let cost = args.rate.map_or(Duration::ZERO, |Bytes(rate)| {
        Duration::from_secs_f64(keeper.bytes_per_check() as f64 / rate as f64)
    });
    let mut next = Instant::now();
    while report.to < stripes && !interrupt::asked() {
        match keeper.check(report.to, args.repair) {
            Checked::Later => {
                keeper.run_once();
                continue;
            }
            Checked::Right => {}
            Checked::Incomplete => report.incomplete += 1,
            Checked::Wrong(finding) => {
                let wrong = Wrong::of(&finding, names);
                if !args.json {
                    bar.suspend(|| out::note(&wrong.text));
                }
                report.wrong.push(wrong);
            }
        }
        report.bytes += keeper.bytes_per_check();
        report.to += 1;
        bar.inc(1);
        next = next.max(Instant::now()) + cost;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    bar.finish_and_clear();
    report
}

impl Wrong {
    fn of(finding: &Finding, names: &[String]) -> Self {
        let Finding { stripe, bytes, fault, mended } = finding;
        let place = format!("stripe {stripe} (bytes {} to {})", bytes.start, bytes.end - 1);
        let (fault, members, what) = match fault {
            Fault::Mismatch(rows) => {
                let rows = format!("bytes {} to {} of its chunks", rows.start, rows.end - 1);
                let what =
                    format!("parity does not fit in {rows}; which chunk is wrong is not known");
                ("mismatch", Vec::new(), what)
            }
            Fault::Unreadable(roles) => {
                let members: Vec<_> = roles.iter().map(|role| names[*role].clone()).collect();
                let what = format!("cannot be read from {}", members.join(" and "));
                ("unreadable", members, what)
            }
        };
        let after = match (mended, fault, members.len()) {
            (true, "mismatch", _) => "; the parity follows the data now",
            (true, ..) => "; written anew from the other members",
            (false, "unreadable", 2..) => "; lost: restore it from a copy",
            _ => "",
        };
        let text = format!("{place}: {what}{after}");
        let (first_byte, end_byte) = (bytes.start, bytes.end);
        Self { stripe: *stripe, first_byte, end_byte, fault, members, repaired: *mended, text }
    }
}

fn summary(report: &Report) -> String {
    let count = |fault| report.wrong.iter().filter(|wrong| wrong.fault == fault).count();
    let repaired = report.wrong.iter().filter(|wrong| wrong.repaired).count();
    format!(
        "{} of {} stripes looked at, {} read: {} with parity that does not fit, {} unreadable, \
         {repaired} of these repaired; {} incomplete\n",
        text::grouped((report.to - report.from) as f64),
        text::grouped(report.stripes as f64),
        text::bytes(report.bytes as f64),
        count("mismatch"),
        count("unreadable"),
        report.incomplete,
    )
}

#[cfg(test)]
crate::schema::written!("scrub-1", Report);
