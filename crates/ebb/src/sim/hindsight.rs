//! Plans for a load that is known, from runs of it.

use anyhow::{Error, Result};

use ebb_cli::{interrupt, usage};
use ebb_policy::cpu::Native;
use ebb_policy::units::{Nanos, Watts};
use ebb_policy::{Limits, PERIOD, Policy, Request};
use ebb_record::verdict::ABOVE;
use ebb_twin::hindsight::budget;
use ebb_twin::hindsight::caps::{ClairvoyantCaps, Served};
use ebb_twin::hindsight::cores::{self, Promise, Worked};
use ebb_twin::hindsight::fans;
use ebb_twin::outcome::Sample;
use ebb_twin::{Observer, Outcome, Run, Unobserved};

use super::plan::{Plan, is_foretold};

/// A policy, and who caps what it asks for.
type Policies = (Box<dyn Policy>, Option<Box<dyn Policy>>);

/// Makes the policies of `name` for `plan`.
pub fn policies(plan: &Plan, name: &str) -> Result<Policies> {
    if !is_foretold(name) {
        return Ok((plan.policy(name)?, plan.coordinator(name)?));
    }
    if !plan.changes.is_empty() {
        return Err(usage("knows the future of one load only: leave --change out"));
    }
    Ok(match name {
        "clairvoyant-cores" => (for_cores(plan)?, None),
        "clairvoyant-caps" => (for_caps(plan)?, None),
        "clairvoyant-budget" => (Box::new(Native), Some(for_budget(plan)?)),
        _ => (for_fans(plan)?, None),
    })
}

fn for_cores(plan: &Plan) -> Result<Box<dyn Policy>> {
    let mut worked = Worked::default();
    let native = pass(plan, Box::new(Native), &mut worked)?;
    let topology = &plan.server.topology;
    let promise = Promise { plf: plan.settings.plf, above: ABOVE };
    let found = cores::search(topology, promise, (&native, &worked), |policy| {
        interrupt::leave_if_asked();
        pass(plan, Box::new(policy), &mut Unobserved)
    })?;
    Ok(Box::new(found))
}

/// The most that is drawn in a whole control period once warm-up is over: what is left of one at
/// the end may be the running part of a stop and go.
struct Peak {
    from: Nanos,
    watts: Watts,
}

impl Observer for Peak {
    fn sample(&mut self, sample: &Sample<'_>) {
        if sample.length >= PERIOD && sample.cycled.signals.now > self.from {
            self.watts = self.watts.max(sample.energy.total() / sample.length);
        }
    }
}

fn for_budget(plan: &Plan) -> Result<Box<dyn Policy>> {
    let Some(budget) = plan.settings.server_budget else {
        return Err(usage("has nothing to share out: give --server-budget"));
    };
    let unlimited = Limits { server_budget: None, ..plan.limits("clairvoyant") };
    let run = Run { limits: unlimited.clone(), ..whole(plan, Box::new(Native))? };
    let usual = ebb_twin::run(run, &mut Unobserved)?;
    let found = budget::search(&plan.server.topology, budget, &usual, |coordinator| {
        interrupt::leave_if_asked();
        let coordinator: Box<dyn Policy> = Box::new(coordinator);
        let native = whole(plan, Box::new(Native))?;
        let run = Run { coordinator: Some(coordinator), limits: unlimited.clone(), ..native };
        let mut peak = Peak { from: plan.warmup, watts: Watts(0.0) };
        let outcome = ebb_twin::run(run, &mut peak)?;
        Ok::<_, Error>(Outcome { peak: peak.watts, ..outcome })
    })?;
    Ok(Box::new(found))
}

fn for_fans(plan: &Plan) -> Result<Box<dyn Policy>> {
    let topology = &plan.server.topology;
    if topology.fans.is_empty() || topology.frequencies.is_empty() {
        return Err(usage(
            "has no fans to turn: choose a --profile with them, see 'ebb sim --list'",
        ));
    }
    let usual = pass(plan, plan.policy("dlb")?, &mut Unobserved)?;
    let found = fans::search(topology, plan.settings.plf, &usual, |policy| {
        interrupt::leave_if_asked();
        ebb_twin::run_to_trip(whole(plan, Box::new(policy))?, &mut Unobserved).map_err(Error::from)
    })?;
    Ok(Box::new(found))
}

/// One pass over the load.
fn pass(plan: &Plan, policy: Box<dyn Policy>, observer: &mut dyn Observer) -> Result<Outcome> {
    Ok(ebb_twin::run(whole(plan, policy)?, observer)?)
}

/// The run that `plan` means, under `policy`.
fn whole(plan: &Plan, policy: Box<dyn Policy>) -> Result<Run<'_>> {
    Ok(Run {
        limits: plan.limits("clairvoyant"),
        ssd_budget: plan.ssd_budget(),
        jobs: plan.jobs()?,
        duration: plan.duration,
        warmup: plan.warmup,
        faults: plan.faults.clone(),
        ..Run::of(&plan.server.profile, policy, plan.workload()?.0, plan.seed)
    })
}

/// Policies that share out the caps of drives.
const OF_CAPS: [&str; 3] = ["sspc", "pacman", "pacman-plus"];

/// The plan from a pass with all drives in each of their power states, or what serves more.
fn for_caps(plan: &Plan) -> Result<Box<dyn Policy>> {
    let Some(budget) = plan.ssd_budget() else {
        return Err(usage("has nothing to share out: give --ssd-budget"));
    };
    let topology = &plan.server.topology;
    let mut served = Vec::new();
    for ps in 0..ClairvoyantCaps::passes(topology) {
        interrupt::leave_if_asked();
        let mut hold = Request::new(topology);
        for (d, drive) in topology.drives.iter().enumerate() {
            let deepest = drive.operational().len().saturating_sub(1);
            hold.power_state.ask(d, ps.min(deepest as u8), "clairvoyant-caps:first-pass");
        }
        let mut pass = Served::default();
        let uncapped = Limits { ssd_budget: None, ..plan.limits("clairvoyant") };
        let run = Run { operator: Some(hold), limits: uncapped, ..whole(plan, Box::new(Native))? };
        ebb_twin::run(run, &mut pass)?;
        served.push(pass);
    }
    let followed = ClairvoyantCaps::new(topology, budget, &served);
    let constant = ClairvoyantCaps::constant(topology, budget);
    // What others serve is known as well: they may profit from what their caps left in queues.
    let candidate = |index| -> Result<Box<dyn Policy>> {
        Ok(match index {
            0 => Box::new(followed.clone()),
            1 => Box::new(constant.clone()),
            _ => plan.policy(OF_CAPS[index - 2])?,
        })
    };
    let mut best = (0, 0);
    for index in 0..OF_CAPS.len() + 2 {
        interrupt::leave_if_asked();
        let bytes = pass(plan, candidate(index)?, &mut Unobserved)?.bytes;
        if bytes > best.0 {
            best = (bytes, index);
        }
    }
    candidate(best.1)
}
