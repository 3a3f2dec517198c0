//! `ebb sim --recorded DIR --policy NAME`: what another policy would have saved of a recorded load,
//! by the model with which `ebb run` watches (`run/estimate.rs`, with the range tested there).

use std::path::Path;

use anyhow::{Context, Result};
use ebb_cli::{out, usage};
use ebb_policy::registry;
use ebb_policy::units::{Joules, Nanos};
use ebb_policy::{Applied, Cycle, InForce, Limits, Plant, Signals, Steward};
use ebb_record::recording::{Begun, Entry, Frame, Item, Made, Reader};
use ebb_twin::Profile;
use schemars::JsonSchema;
use serde::Serialize;

use super::recorded::{clock, wrong};
use crate::run::estimate::{Core, Governed, Runs, Saved, imagine};
use crate::run::latency::Latency;

const JOULES_PER_KWH: f64 = 3.6e6;

/// What a policy would have saved of a recorded load.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "ebb sim --recorded --policy --json")]
struct Shown<'a> {
    #[schemars(extend("const" = 1))]
    schema: u32,
    #[schemars(extend("const" = true))]
    modelled: bool,
    /// Its folder.
    recording: String,
    policy: &'a str,
    /// Whose cores stand for the machine's.
    #[schemars(length(min = 1))]
    profiles: Vec<String>,
    /// Time of day of the first cycle that counts.
    from_unix_s: f64,
    /// Time of day of the last.
    to_unix_s: f64,
    /// Time that counts.
    #[schemars(range(min = 0))]
    hours: f64,
    /// Time in which the recorded policy steered the cores.
    #[schemars(range(min = 0))]
    left_out_hours: f64,
    saved_watts: [f64; 2],
    saved_kwh: [f64; 2],
}

/// What came of it so far.
#[derive(Default)]
struct Sum {
    energy: [Joules; 2],
    time: Nanos,
    /// Time in which a policy steered the cores.
    acted: Nanos,
    span: Option<[f64; 2]>,
    profiles: Vec<String>,
}

/// The machine as it was sensed without decisions.
struct Played<'a> {
    next: Option<Signals>,
    begun: &'a Begun,
    natively: Vec<Option<Runs>>,
}

impl Plant for Played<'_> {
    fn sense(&mut self, signals: &mut Signals) {
        let Some(sensed) = self.next.take() else { return };
        let in_force = std::mem::take(&mut signals.in_force);
        *signals = Signals { in_force, ..sensed };
        self.natively = imagine(signals, &self.begun.topology, |at| governed(self.begun, at));
    }

    fn apply(&mut self, _: &InForce, _: &mut Applied) {}
}

fn governed(begun: &Begun, group: usize) -> Option<Governed<'_>> {
    let of = begun.governed.get(group)?.as_ref()?;
    Some(Governed { governor: &of.governor, driver: &of.driver, lowest: of.lowest })
}

/// A run with the other policy.
struct Run {
    begun: Begun,
    core: Core,
    saved: Saved,
    nth: Option<u64>,
    cycle: Option<Cycle>,
    /// Whether the recorded policy steered the cores.
    acted: bool,
}

/// Says what `policy` would have saved of what is recorded in `folder`, with the cores of
/// `profile`, or of the one that the recording names.
///
/// # Errors
/// Where the recording does not show the load as it was without decisions.
pub fn run(folder: &Path, policy: &str, profile: Option<&str>, json: bool) -> Result<()> {
    let owned = registry::owned(policy).with_context(|| format!("--policy {policy}"))?;
    if owned.iter().any(|control| control.row().steward == Steward::Server) {
        return Err(usage(format!(
            "--policy {policy} shares a budget of the whole server: ebb sim plays it on a profile"
        )));
    }
    let mut reader = Reader::open(folder).map_err(wrong)?;
    let (mut sum, mut run) = (Sum::default(), None);
    while let Some(item) = reader.next() {
        if let Item::Entry(entry) = item.map_err(wrong)? {
            follow(entry, &mut run, &mut sum, (policy, profile))
                .with_context(|| reader.file().to_owned())?;
        }
    }
    let (Some(span), true) = (sum.span, sum.time > Nanos::ZERO) else {
        return Err(usage(match sum.acted > Nanos::ZERO {
            true => {
                "the recorded policy steered the cores, so that the load without it is not \
                     known: record while it only observes (ebb run without --apply)"
            }
            false => "the recording does not say how busy the cores were; ebb probe says why",
        }));
    };
    let shown = shown(folder, policy, span, sum);
    if json { out::json(&shown) } else { out::print(shown.in_words()) }
}

fn shown<'a>(folder: &Path, policy: &'a str, [from, to]: [f64; 2], sum: Sum) -> Shown<'a> {
    let hours = |time: Nanos| time.seconds() / 3600.0;
    Shown {
        schema: 1,
        modelled: true,
        recording: folder.display().to_string(),
        policy,
        profiles: sum.profiles,
        from_unix_s: from,
        to_unix_s: to,
        hours: hours(sum.time),
        left_out_hours: hours(sum.acted),
        saved_watts: sum.energy.map(|energy| (energy / sum.time).0),
        saved_kwh: sum.energy.map(|energy| energy.0 / JOULES_PER_KWH),
    }
}

fn follow(
    entry: Entry,
    run: &mut Option<Run>,
    sum: &mut Sum,
    (policy, profile): (&str, Option<&str>),
) -> Result<()> {
    match (entry, &mut *run) {
        (Entry::Begun(begun), Some(run)) if run.begun == *begun => {}
        (Entry::Begun(begun), run) => *run = Some(Run::new(*begun, profile, sum)?),
        (Entry::Made(made), Some(run)) => run.made(&made, policy)?,
        (Entry::Frame(frame), Some(run)) => run.frame(&frame, sum)?,
        _ => {}
    }
    Ok(())
}

impl Run {
    fn new(begun: Begun, profile: Option<&str>, sum: &mut Sum) -> Result<Self> {
        if !begun.is_possible() {
            return Err(usage("parts that no machine has"));
        }
        let recorded = &*begun.profile;
        // A file of that name here may be any.
        let name = profile.or((!recorded.contains(['/', '.'])).then_some(recorded));
        let profile = name.and_then(|name| Some((name, Profile::load(name).ok()?)));
        let Some((name, profile)) = profile else {
            let name = name.unwrap_or(recorded);
            return Err(usage(format!(
                "profile '{name}' is not to be had: name this machine's with --profile FILE; ebb \
                 probe --profile FILE writes it there"
            )));
        };
        if !sum.profiles.iter().any(|known| known == name) {
            sum.profiles.push(name.to_owned());
        }
        let (core, saved) = (Core::new(&profile), Saved::default());
        Ok(Self { begun, core, saved, nth: None, cycle: None, acted: false })
    }

    /// As the recorded policy is made anew, so is the other.
    fn made(&mut self, made: &Made, policy: &str) -> Result<()> {
        if self.nth.replace(made.nth) == Some(made.nth) {
            return Ok(());
        }
        let steers = registry::owned(&made.policy)?;
        self.acted = !self.begun.would && steers.iter().any(|control| control.is_of_cores());
        let unseen = self.begun.unseen.clone();
        let latency = unseen.map_or(Latency::BlockAndCpu, Latency::Block);
        let topology = &self.begun.topology;
        let settings = made.settings().map_err(|error| usage(error.to_string()))?;
        let (policy, caps) = registry::both(&latency.policy(policy), topology, &settings)
            .with_context(|| format!("--policy {policy}"))?;
        match &mut self.cycle {
            Some(cycle) => {
                cycle.change(policy, made.ssd_budget)?;
                cycle.set_server_budget(made.server_budget);
            }
            None => {
                let Made { ssd_budget, server_budget, .. } = *made;
                let limits = Limits { ssd_budget, server_budget, ..Limits::default() };
                self.cycle = Some(Cycle::new(topology, policy, limits).capped(caps)?);
            }
        }
        Ok(())
    }

    fn frame(&mut self, frame: &Frame, sum: &mut Sum) -> Result<()> {
        let Self { begun, core, saved, cycle: Some(cycle), acted, .. } = self else {
            return Ok(());
        };
        let signals = frame.natively(&begun.topology);
        let signals = signals.ok_or_else(|| usage("signals that no such machine has"))?;
        if *acted {
            sum.acted += signals.period;
            return Ok(());
        }
        let mut played = Played { next: Some(signals), begun, natively: Vec::new() };
        let cycled = cycle.step(&mut played);
        let found = |group| governed(begun, group);
        saved.add(core, &begun.topology, &played.natively, found, cycled.signals);
        if let Some([least, most]) = saved.last(true) {
            sum.energy[0] += least;
            sum.energy[1] += most;
            sum.time += cycled.signals.period;
            sum.span = Some([sum.span.map_or(frame.unix_s, |span| span[0]), frame.unix_s]);
        }
        Ok(())
    }
}

impl Shown<'_> {
    fn in_words(&self) -> String {
        let Self { policy, profiles, hours, left_out_hours, saved_watts, saved_kwh, .. } = self;
        // None is printed as -0.0.
        let [least, most] = saved_watts.map(|watts| if watts.abs() < 0.05 { 0.0 } else { watts });
        let [fewest, highest] = saved_kwh.map(|kwh| if kwh.abs() < 5e-4 { 0.0 } else { kwh });
        let (from, to) = (clock(self.from_unix_s), clock(self.to_unix_s));
        let profiles = profiles.join(", ");
        let mut text = format!(
            "{policy} would have saved {least:.1} to {most:.1} W of the cores' power, {fewest:.3} \
             to {highest:.3} kWh in {hours:.1} h from {from} to {to}: modelled, not measured, by \
             the recorded load, with the cores of {profiles}, against the governor found.\n"
        );
        if *left_out_hours > 0.0 {
            text += &format!(
                "{left_out_hours:.1} h are left out: the recorded policy steered the cores, so \
                 that the load without it is not known.\n"
            );
        }
        text
    }
}

#[cfg(test)]
crate::schema::written!("what-if-1", Shown<'static>);
