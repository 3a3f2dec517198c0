//! One control cycle, the same for every plant: sense, decide, enforce, apply, record.

use crate::contract::control::{Combine, Control};
use crate::contract::in_force::{Applied, Decision, InForce};
use crate::contract::policy::Policy;
use crate::contract::request::{Conflict, Owner, Request};
use crate::contract::signals::Signals;
use crate::contract::topology::Topology;
use crate::contract::units::{Nanos, Watts};
use crate::guard::{Guard, Limits};

/// The usual length of a cycle: PACER's burst window (§IV-B, 500 ms) and PACMAN's `m_interval`
/// (§VI-A). Policies and guard work with any.
pub const PERIOD: Nanos = Nanos::from_millis(500);

/// What a cycle runs on: a server, its twin, a test.
pub trait Plant {
    /// Fills in what can be sensed of the period that ends now; [`Signals::in_force`] is the
    /// cycle's.
    fn sense(&mut self, signals: &mut Signals);

    /// Puts `given` in force, in an order that exceeds no limit in between, and says of what it
    /// could not. `applied` says "done" of everything before.
    fn apply(&mut self, given: &InForce, applied: &mut Applied);
}

/// All that one cycle saw and did.
#[derive(Debug, Clone, Copy)]
pub struct Cycled<'a> {
    /// What was sensed, with what was in force meanwhile.
    pub signals: &'a Signals,
    /// What is in force from now on.
    pub in_force: &'a InForce,
    /// What the plant made of it.
    pub applied: &'a Applied,
}

impl<'a> Cycled<'a> {
    /// What was decided.
    pub fn decisions(&self) -> impl Iterator<Item = Decision> + 'a {
        self.in_force.decisions(&self.signals.in_force, self.signals.now)
    }
}

/// Policy and guard with what they asked for and gave last.
pub struct Cycle {
    topology: Topology,
    policy: Box<dyn Policy>,
    guard: Guard,
    signals: Signals,
    /// What the policy asks for, what the operator does, and both together.
    wanted: Request,
    operator: Option<Request>,
    request: Request,
    applied: Applied,
}

impl Cycle {
    /// A cycle for a plant with `topology`, in which nothing was asked for yet.
    #[must_use]
    pub fn new(topology: &Topology, policy: Box<dyn Policy>, limits: Limits) -> Self {
        Self {
            topology: topology.clone(),
            policy,
            guard: Guard::new(topology, limits),
            signals: Signals::new(topology),
            wanted: Request::new(topology),
            operator: None,
            request: Request::new(topology),
            applied: Applied::new(topology),
        }
    }

    /// With settings that the operator holds.
    ///
    /// # Errors
    /// A control of the policy's that can have only one owner.
    pub fn held(mut self, operator: Request) -> Result<Self, Conflict> {
        apart(self.policy.as_ref(), &operator)?;
        self.operator = Some(operator);
        Ok(self)
    }

    /// Goes on with another policy and budget, such as the same policy made for another tolerance.
    /// What is in force stays so until the next step, in which the new policy asks for its own.
    ///
    /// # Errors
    /// A control of the policy's that the operator holds; nothing is changed then.
    pub fn change(
        &mut self,
        policy: Box<dyn Policy>,
        ssd_budget: Option<Watts>,
    ) -> Result<(), Conflict> {
        if let Some(operator) = &self.operator {
            apart(policy.as_ref(), operator)?;
        }
        self.policy = policy;
        self.wanted = Request::new(&self.topology);
        self.guard.set_ssd_budget(ssd_budget);
        Ok(())
    }

    /// One cycle; nothing is allocated in it but by the plant.
    pub fn step(&mut self, plant: &mut impl Plant) -> Cycled<'_> {
        self.signals.in_force.clone_from(self.guard.in_force());
        plant.sense(&mut self.signals);
        self.signals.expire();
        self.policy.step(&self.signals, &mut self.wanted);
        let request = match &self.operator {
            None => &self.wanted,
            Some(operator) => {
                self.request.clone_from(&self.wanted);
                self.request.combine(operator);
                &self.request
            }
        };
        let in_force = self.guard.enforce(request, &self.signals);
        self.applied.begin();
        plant.apply(in_force, &mut self.applied);
        Cycled { signals: &self.signals, in_force, applied: &self.applied }
    }
}

/// Refuses a policy and an operator that set the same control where only one may.
fn apart(policy: &dyn Policy, operator: &Request) -> Result<(), Conflict> {
    let exclusive = |control: &&Control| control.row().combine == Combine::Exclusive;
    let mut owned = policy.owns().iter().filter(exclusive);
    match owned.find(|control| operator.asks(**control)) {
        Some(control) => {
            let (first, second) = (Owner::Policy, Owner::Operator);
            Err(Conflict { first, second, control: *control })
        }
        None => Ok(()),
    }
}
