//! A sample of a long load: windows by pressure and by change of pressure, each after a lead that
//! is not counted, played one after the other in one run of each policy.

mod draw;
mod estimate;

pub use estimate::{Estimate, student};

use std::ops::Range;

use anyhow::Result;

use ebb_cli::usage;
use ebb_policy::Settling;
use ebb_policy::units::Nanos;
use ebb_record::sampled::{LEVEL, Sampled};
use ebb_trace::Source;
use ebb_trace::transform::{Load, excerpt};
use ebb_twin::windows::WINDOW;

use self::draw::{Stratum, Window, draw};
use super::args::SimArgs;

/// Windows are no shorter: six of the SLA's.
const SHORTEST: Nanos = Nanos(6 * WINDOW.0);
/// Fewer windows are not worth it.
const FEWEST: usize = 20;

/// What is simulated of a load.
pub struct Sample {
    /// By the numbers of the spells.
    pub strata: Vec<Stratum>,
    /// What is played, on the clock of the load.
    pieces: Vec<Range<Nanos>>,
    /// The windows drawn, on the clock of the run.
    pub spells: Vec<Range<Nanos>>,
    /// How long the load is, without the lead of its first window.
    pub counted: Nanos,
    /// What comes in that.
    pub all: Load,
    /// What is told of it.
    pub told: Sampled,
}

impl Sample {
    /// What is played of a load.
    pub fn of(&self, source: Box<dyn Source>) -> impl Source + use<> {
        excerpt(source, self.pieces.clone())
    }

    /// The same by its times.
    pub fn pieces(&self) -> &[Range<Nanos>] {
        &self.pieces
    }

    /// How long a run takes on its clock.
    pub fn played(&self) -> Nanos {
        Nanos(self.pieces.iter().map(|piece| (piece.end - piece.start).0).sum())
    }

    /// What is left out before each window.
    pub fn lead(&self) -> Nanos {
        Nanos::from_seconds(self.told.lead_seconds)
    }

    /// Draws about `share` of what comes in `slots` until `end`. Policies are `settling` in the
    /// lead of a window, which has whole periods of what they repeat: a lead may set the clock of
    /// that, and it would always be in shorter windows, or never.
    pub fn new(
        (slots, end): (&[Load], Nanos),
        settling: Settling,
        share: f64,
        seed: u64,
    ) -> Result<Self> {
        let before = whole(settling.after);
        let length = match settling.period {
            Nanos::ZERO => before.max(SHORTEST),
            period => Nanos(before.max(SHORTEST).0.next_multiple_of(whole(period).0)),
        };
        let frame = Frame { slots, end, lead: count(before), window: count(length) };
        let (all, number) = (sum(slots), frame.number());
        if number < FEWEST || all.requests == 0.0 {
            return Err(usage(format!(
                "--sampled draws windows of {length} after leads of {before}, and of a load of \
                 {end} there are {number}: simulate it whole, or give a longer --duration"
            )));
        }
        let mut strata = draw(&frame.windows(share >= 1.0), share, seed);
        let mut drawn: Vec<usize> = strata.iter().flat_map(|one| one.drawn.clone()).collect();
        drawn.sort_unstable();
        for window in strata.iter_mut().flat_map(|stratum| &mut stratum.drawn) {
            *window = drawn.binary_search(window).unwrap_or_default();
        }
        let (pieces, spells) = played(drawn.iter().map(|window| frame.times(*window)));
        let in_pieces =
            |slot: &usize| pieces.iter().any(|piece| piece.contains(&frame.time(*slot)));
        let (inside, outside): (Vec<usize>, Vec<usize>) = (0..slots.len()).partition(in_pieces);
        let busiest = |slots_of: &[usize]| {
            let rates = slots_of.iter().map(|slot| slots[*slot].requests / WINDOW.seconds());
            rates.reduce(f64::max)
        };
        let simulated: f64 = inside.iter().map(|slot| slots[*slot].requests).sum();
        let length_of = |piece: &Range<Nanos>| (piece.end - piece.start).seconds();
        let told = Sampled {
            share_asked: share,
            share: simulated / all.requests,
            windows: number as u64,
            drawn: drawn.len() as u64,
            strata: strata.len() as u64,
            window_seconds: length.seconds(),
            lead_seconds: before.seconds(),
            simulated_seconds: pieces.iter().map(length_of).sum(),
            level: LEVEL,
            highest_iops: busiest(&inside).unwrap_or_default(),
            highest_iops_not_simulated: busiest(&outside),
        };
        let counted = end - before;
        Ok(Self { strata, pieces, spells, counted, all: sum(frame.counted()), told })
    }
}

/// A load slot by slot, and how it is divided into windows.
struct Frame<'a> {
    slots: &'a [Load],
    end: Nanos,
    /// Slots of a lead; as many are left out at the start.
    lead: usize,
    /// Slots of a window.
    window: usize,
}

impl Frame<'_> {
    /// What is in windows.
    fn counted(&self) -> &[Load] {
        self.slots.get(self.lead..).unwrap_or_default()
    }

    fn number(&self) -> usize {
        self.counted().len().div_ceil(self.window)
    }

    /// The slots of a window.
    fn range(&self, window: usize) -> Range<usize> {
        let from = self.lead + window * self.window;
        from..(from + self.window).min(self.slots.len())
    }

    fn time(&self, slot: usize) -> Nanos {
        Nanos(slot as u64 * WINDOW.0).min(self.end)
    }

    /// When the lead of a window begins, and its own times.
    fn times(&self, window: usize) -> (Nanos, Range<Nanos>) {
        let slots = self.range(window);
        (self.time(slots.start - self.lead), self.time(slots.start)..self.time(slots.end))
    }

    /// The windows, of which some are in any sample, or `all`.
    fn windows(&self, all: bool) -> Vec<Window> {
        let (loads, requests_of_all) = (self.counted(), sum(self.slots).requests);
        let share = 1.0 / self.number() as f64;
        let mean = Load { requests: sum(loads).requests * share, bytes: sum(loads).bytes * share };
        let window = |number| {
            let slots = self.range(number);
            let Load { requests, bytes } = sum(&self.slots[slots.clone()]);
            let requests = requests / mean.requests;
            let bytes = if mean.bytes > 0.0 { bytes / mean.bytes } else { requests };
            let simulated = sum(&self.slots[slots.start - self.lead..slots.end]).requests;
            let cost = simulated / requests_of_all;
            Window { load: (requests + bytes) / 2.0, cost, certain: all }
        };
        let mut windows: Vec<Window> = (0..self.number()).map(window).collect();
        // The last may be shorter.
        let last = windows.len() - 1;
        for certain in [last, highest(loads) / self.window, rise(loads) / self.window] {
            windows[certain].certain = true;
        }
        windows
    }
}

/// What is played for the windows `drawn`, each with the begin of its lead, and when they come in
/// that.
fn played(
    drawn: impl Iterator<Item = (Nanos, Range<Nanos>)>,
) -> (Vec<Range<Nanos>>, Vec<Range<Nanos>>) {
    let (mut pieces, mut spells) = (Vec::<Range<Nanos>>::new(), Vec::new());
    let mut clock = Nanos::ZERO;
    for (from, window) in drawn {
        let begin = pieces.last().map_or(from, |last| from.max(last.end));
        match pieces.last_mut() {
            // The lead may have been played already.
            Some(last) if last.end >= from => last.end = window.end,
            _ => pieces.push(from..window.end),
        }
        clock += window.end - begin;
        spells.push(clock - (window.end - window.start)..clock);
    }
    (pieces, spells)
}

fn whole(time: Nanos) -> Nanos {
    Nanos(time.0.div_ceil(WINDOW.0).max(1) * WINDOW.0)
}

fn count(time: Nanos) -> usize {
    (time.0 / WINDOW.0) as usize
}

/// What comes in all of `slots`.
pub fn sum(slots: &[Load]) -> Load {
    Load {
        requests: slots.iter().map(|load| load.requests).sum(),
        bytes: slots.iter().map(|load| load.bytes).sum(),
    }
}

/// The slot with the most requests.
fn highest(slots: &[Load]) -> usize {
    let most = slots.iter().enumerate().max_by(|a, b| a.1.requests.total_cmp(&b.1.requests));
    most.map_or(0, |(slot, _)| slot)
}

/// The slot with the most requests more than the one before.
fn rise(slots: &[Load]) -> usize {
    let rise = |pair: &[Load]| pair[1].requests - pair[0].requests;
    let most = slots.windows(2).enumerate().max_by(|a, b| rise(a.1).total_cmp(&rise(b.1)));
    most.map_or(0, |(slot, _)| slot + 1)
}

/// Refuses what contradicts a sample.
pub fn contradictions(args: &SimArgs) -> Result<()> {
    let output = &args.output;
    let given = [
        ("--warmup", args.warmup.is_some(), "each window has a lead of its own"),
        ("--change", !args.change.is_empty(), "its times are not those of the load"),
        ("--faults", args.faults.is_some(), "its times are not those of the load"),
        ("--timeseries", output.timeseries.is_some(), "its times are not those of the load"),
        ("--report", output.report.is_some(), "its times are not those of the load"),
        ("--decisions", output.decisions.is_some(), "its times are not those of the load"),
        (
            "--loop",
            args.trace.again && args.duration.is_none(),
            "a load without an end has no share: give --duration",
        ),
    ];
    if args.sampled.is_none() {
        return Ok(());
    }
    if let Some((option, _, why)) = given.into_iter().find(|(_, given, _)| *given) {
        return Err(usage(format!("{option} contradicts --sampled: {why}")));
    }
    if let Some(name) = args.policies.iter().find(|name| name.starts_with("clairvoyant")) {
        return Err(usage(format!("{name} knows the whole load: leave --sampled out")));
    }
    Ok(())
}
