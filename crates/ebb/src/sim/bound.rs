//! Policies that know the future, from first passes over the same load.

use anyhow::Result;

use ebb_policy::Policy;
use ebb_policy::cpu::Native;
use ebb_twin::bound::cores::{Worked, search};
use ebb_twin::{Observer, Outcome, Run, Unobserved};

use super::plan::{CLAIRVOYANT_CORES as CORES, Plan};
use crate::exit::usage;
use crate::interrupt;

/// Makes the policy `name` for `plan`.
pub fn policy(plan: &Plan, name: &str) -> Result<Box<dyn Policy>> {
    if name != CORES {
        return plan.policy(name);
    }
    if !plan.changes.is_empty() {
        return Err(usage(format!("--policy {CORES}: leave --change out")));
    }
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
    let run = Run {
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
    };
    Ok(ebb_twin::run(run, observer)?)
}
