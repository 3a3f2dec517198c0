//! Policies that know the future, from first passes over the same load.

use anyhow::Result;

use ebb_policy::cpu::Native;
use ebb_policy::{Limits, Policy, Request};
use ebb_twin::bound::caps::{ClairvoyantCaps, Served};
use ebb_twin::bound::cores::{Worked, search};
use ebb_twin::{Observer, Outcome, Run, Unobserved};

use super::plan::{CLAIRVOYANT_CAPS as CAPS, CLAIRVOYANT_CORES as CORES, Plan};
use crate::exit::usage;
use crate::interrupt;

/// Makes the policy `name` for `plan`.
pub fn policy(plan: &Plan, name: &str) -> Result<Box<dyn Policy>> {
    if name != CORES && name != CAPS {
        return plan.policy(name);
    }
    if !plan.changes.is_empty() {
        return Err(usage(format!("--policy {name}: leave --change out")));
    }
    if name == CAPS { caps(plan) } else { cores(plan) }
}

fn cores(plan: &Plan) -> Result<Box<dyn Policy>> {
    let mut worked = Worked::default();
    let native = pass(plan, Box::new(Native), &mut worked)?;
    let topology = &plan.server.topology;
    let found = search(topology, plan.settings.plf, (&native, &worked), |policy| {
        interrupt::leave_if_asked();
        pass(plan, Box::new(policy), &mut Unobserved)
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
        profile: &plan.server.profile,
        policy,
        operator: None,
        limits: plan.limits(CORES),
        ssd_budget: plan.ssd_budget(),
        changes: Vec::new(),
        workload: plan.workload()?.0,
        jobs: plan.jobs()?,
        seed: plan.seed,
        duration: plan.duration,
        warmup: plan.warmup,
        faults: plan.faults.clone(),
    })
}

/// From a pass with all drives in each of their power states.
fn caps(plan: &Plan) -> Result<Box<dyn Policy>> {
    let Some(budget) = plan.ssd_budget() else {
        return Err(usage(format!("--policy {CAPS}: give an --ssd-budget")));
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
        let uncapped = Limits { ssd_budget: None, ..plan.limits(CAPS) };
        let run = Run { operator: Some(hold), limits: uncapped, ..whole(plan, Box::new(Native))? };
        ebb_twin::run(run, &mut pass)?;
        served.push(pass);
    }
    Ok(Box::new(ClairvoyantCaps::new(topology, budget, &served)))
}
