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
    /// Why no policy is followed at present; `None` where they are.
    pub native: Option<&'static str>,
}

impl<'a> Cycled<'a> {
    /// What was decided.
    pub fn decisions(&self) -> impl Iterator<Item = Decision> + 'a {
        self.in_force.decisions(&self.signals.in_force, self.signals.now)
    }
}

/// A controller and what it asked for so far.
struct Layer {
    policy: Box<dyn Policy>,
    wanted: Request,
}

/// Policy, coordinator, operator and guard, with what they asked for and gave last.
pub struct Cycle {
    topology: Topology,
    guard: Guard,
    signals: Signals,
    policy: Layer,
    coordinator: Option<Layer>,
    operator: Option<Request>,
    /// What all of them ask for together.
    request: Request,
    applied: Applied,
}

impl Cycle {
    /// A cycle for a plant with `topology`, in which nothing was asked for yet.
    #[must_use]
    pub fn new(topology: &Topology, policy: Box<dyn Policy>, limits: Limits) -> Self {
        Self {
            topology: topology.clone(),
            guard: Guard::new(topology, limits),
            signals: Signals::new(topology),
            policy: Layer { policy, wanted: Request::new(topology) },
            coordinator: None,
            operator: None,
            request: Request::new(topology),
            applied: Applied::new(topology),
        }
    }

    /// With a coordinator, whose requests combine with the policy's as the table says: it can cap
    /// what the policy asks for.
    ///
    /// # Errors
    /// A control that can have only one owner and has two.
    pub fn coordinated(mut self, policy: Box<dyn Policy>) -> Result<Self, Conflict> {
        self.coordinator = Some(Layer { policy, wanted: Request::new(&self.topology) });
        self.apart(self.policy.policy.as_ref())?;
        Ok(self)
    }

    /// With settings that the operator holds.
    ///
    /// # Errors
    /// A control that can have only one owner and has two.
    pub fn held(mut self, operator: Request) -> Result<Self, Conflict> {
        self.operator = Some(operator);
        self.apart(self.policy.policy.as_ref())?;
        Ok(self)
    }

    /// With the coordinator `caps`, if there is one.
    ///
    /// # Errors
    /// As of [`Self::coordinated`].
    pub fn capped(self, caps: Option<Box<dyn Policy>>) -> Result<Self, Conflict> {
        match caps {
            Some(caps) => self.coordinated(caps),
            None => Ok(self),
        }
    }

    /// Refuses two owners of a control that can have only one, if `policy` were the policy.
    fn apart(&self, policy: &dyn Policy) -> Result<(), Conflict> {
        let owns = |policy: &dyn Policy, control| policy.owns().contains(control);
        for control in Control::ALL {
            let coordinator = self.coordinator.as_ref();
            let owners = [
                (Owner::Policy, owns(policy, control)),
                (Owner::Coordinator, coordinator.is_some_and(|c| owns(c.policy.as_ref(), control))),
                (Owner::Operator, self.operator.as_ref().is_some_and(|o| o.asks(*control))),
            ];
            let mut owners = owners.iter().filter(|(_, owns)| *owns).map(|(owner, _)| *owner);
            if control.row().combine == Combine::Exclusive
                && let (Some(first), Some(second)) = (owners.next(), owners.next())
            {
                return Err(Conflict { first, second, control: *control });
            }
        }
        Ok(())
    }

    /// Goes on with another policy and budget, such as the same policy made for another tolerance.
    /// What is in force stays so until the next step, in which the new policy asks for its own.
    ///
    /// # Errors
    /// A control of the policy's that somebody else has; nothing is changed then.
    pub fn change(
        &mut self,
        policy: Box<dyn Policy>,
        ssd_budget: Option<Watts>,
    ) -> Result<(), Conflict> {
        self.apart(policy.as_ref())?;
        self.policy = Layer { policy, wanted: Request::new(&self.topology) };
        self.guard.set_ssd_budget(ssd_budget);
        Ok(())
    }

    /// Another budget of the whole server from now on; policies and coordinator go on with it.
    pub fn set_server_budget(&mut self, budget: Option<Watts>) {
        self.guard.set_server_budget(budget);
    }

    /// One cycle; nothing is allocated in it but by the plant.
    pub fn step(&mut self, plant: &mut impl Plant) -> Cycled<'_> {
        self.signals.in_force.clone_from(self.guard.in_force());
        self.signals.server_budget = self.guard.server_budget();
        plant.sense(&mut self.signals);
        self.signals.expire();
        self.policy.policy.step(&self.signals, &mut self.policy.wanted);
        self.request.clone_from(&self.policy.wanted);
        if let Some(Layer { policy, wanted }) = &mut self.coordinator {
            policy.step(&self.signals, wanted);
            self.request.combine(wanted);
        }
        if let Some(operator) = &self.operator {
            self.request.combine(operator);
        }
        self.guard.enforce(&self.request, &self.signals);
        let (in_force, native) = (self.guard.in_force(), self.guard.native());
        self.applied.begin();
        plant.apply(in_force, &mut self.applied);
        Cycled { signals: &self.signals, in_force, applied: &self.applied, native }
    }
}
