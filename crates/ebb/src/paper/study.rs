//! One repetition of an evaluation: its parts, which of them to run, and for how long.

use anyhow::Result;

use ebb_cli::{Interrupted, interrupt, usage};
use ebb_policy::units::Nanos;

use super::lab::{Experiment, Lab, Steer};
use super::report::Report;

use ebb_trace::generate::WorkloadSpec;

/// The figures that one set of runs shows, and the runs.
pub struct Part<S = Study> {
    /// Names for `--figure`.
    pub figures: &'static [&'static str],
    /// Runs, and adds to the report.
    pub run: fn(&mut S) -> Result<()>,
}

/// What was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Figures by their names; all where none is named.
    pub figures: &'a [String],
    /// Also the parts that take longest, where no figure is named.
    pub full: bool,
}

/// The parts of `parts` that are wanted; those of `long` figures only where they are asked
/// for.
///
/// # Errors
/// A figure that no part shows.
pub fn choose<'a, S>(
    parts: &'a [Part<S>],
    long: &[&str],
    wanted: Wanted<'_>,
) -> Result<Vec<&'a Part<S>>> {
    let Wanted { figures, full } = wanted;
    let shows = |part: &Part<S>, name: &str| part.figures.contains(&name);
    for name in figures {
        if !parts.iter().any(|part| shows(part, name)) {
            let mut valid: Vec<_> = parts.iter().flat_map(|part| part.figures).copied().collect();
            valid.sort_by_key(|name| (name.parse().unwrap_or(u32::MAX), *name));
            valid.dedup();
            return Err(usage(format!(
                "--figure {name}: no such figure is repeated; choose from: {}",
                valid.join(", ")
            )));
        }
    }
    let wanted = |part: &&Part<S>| match figures {
        [] => full || !long.iter().any(|name| shows(part, name)),
        named => named.iter().any(|name| shows(part, name)),
    };
    Ok(parts.iter().filter(wanted).collect())
}

/// What a run without `--full` leaves out, for people; empty where that is nothing.
pub fn left_out(long: &[&str], wanted: Wanted<'_>) -> String {
    if long.is_empty() || wanted.full || !wanted.figures.is_empty() {
        return String::new();
    }
    format!("Not run, for they take longest: figures {}; --full runs them.\n", long.join(", "))
}

/// Runs `parts`; whether an interruption left out the rest.
///
/// # Errors
/// What else goes wrong.
pub fn run<S>(parts: &[&Part<S>], study: &mut S) -> Result<bool> {
    for part in parts {
        match interrupt::unless_left(|| (part.run)(study)) {
            Err(error) if error.is::<Interrupted>() => return Ok(true),
            done => done?,
        }
    }
    Ok(false)
}

/// A repetition under way.
pub struct Study {
    /// Where its experiments run.
    pub lab: Lab,
    /// Simulated time of every run, where the user states one.
    pub duration: Option<Nanos>,
    /// What came out so far.
    pub report: Report,
}

impl Study {
    /// Length of a run that usually takes `usual`.
    pub fn length(&self, usual: Nanos) -> Nanos {
        self.duration.unwrap_or(usual)
    }

    /// The same for a run that is steady after `usual`: longer shows nothing more.
    pub fn steady(&self, usual: Nanos) -> Nanos {
        self.length(usual).min(usual)
    }

    /// An experiment of `duration`, the first third of it not counted, without a budget.
    pub fn experiment(&self, steer: Steer, workload: WorkloadSpec, duration: Nanos) -> Experiment {
        let warmup = Nanos(duration.0 / 3);
        let (ssd_budget, curve, duration) = (None, None, Some(duration));
        Experiment { steer, plf: 0.2, ssd_budget, curve, workload, duration, warmup }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: &[Part] = &[
        Part { figures: &["table-1", "10"], run: |_| Ok(()) },
        Part { figures: &["9", "10"], run: |_| Ok(()) },
    ];

    fn chosen(figures: &[&str]) -> Result<Vec<&'static [&'static str]>> {
        let figures: Vec<_> = figures.iter().map(|name| (*name).to_owned()).collect();
        let wanted = Wanted { figures: &figures, full: true };
        Ok(choose(PARTS, &[], wanted)?.iter().map(|part| part.figures).collect())
    }

    #[test]
    fn long_parts_run_where_they_are_asked_for() {
        let count = |figures: &[String], full| {
            let wanted = Wanted { figures, full };
            let left_out = !left_out(&["9"], wanted).is_empty();
            (choose(PARTS, &["9"], wanted).unwrap().len(), left_out)
        };
        assert_eq!(count(&[], false), (1, true));
        assert_eq!(count(&[], true), (2, false));
        assert_eq!(count(&["9".to_owned()], false), (1, false));
    }

    #[test]
    fn a_figure_of_several_parts_runs_them_all_in_order_and_once() {
        assert_eq!(chosen(&[]).unwrap().len(), 2);
        assert_eq!(chosen(&["9"]).unwrap(), [["9", "10"]]);
        assert_eq!(chosen(&["9", "10", "table-1"]).unwrap().len(), 2);
    }

    #[test]
    fn an_unknown_figure_lists_each_valid_one_once() {
        let error = chosen(&["9", "12"]).unwrap_err().to_string();
        assert!(error.contains("--figure 12"), "{error}");
        assert!(error.ends_with("choose from: 9, 10, table-1"), "{error}");
    }
}
