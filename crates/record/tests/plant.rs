//! A server of numbers, and a policy that gives it something to do.

use ebb_policy::topology::{CoreRole, DriveSpec, GroupSpec, PowerStateSpec};
use ebb_policy::units::{Hertz, Nanos, Watts};
use ebb_policy::{
    Applied, Control, InForce, IoSignals, Outcome, Plant, Policy, Request, Signals, Topology,
};

/// What a cycle lasts.
pub const PERIOD: Nanos = Nanos::from_millis(250);

/// Two groups of cores, two drives with three power states.
pub fn topology() -> Topology {
    let group = |role| GroupSpec { role, cores: 4, min_cores: 1, socket: None };
    let state = |watts, operational| PowerStateSpec {
        max_power: Watts(watts),
        operational,
        entry: Nanos::ZERO,
        exit: Nanos::ZERO,
    };
    let states = vec![state(25.0, true), state(12.0, true), state(3.0, false)];
    let drive = |id| DriveSpec { id, states: states.clone(), ..DriveSpec::default() };
    Topology {
        groups: vec![group(CoreRole::FrontEnd), group(CoreRole::FrontEnd)],
        frequencies: vec![Hertz(1.2e9), Hertz(2.4e9)],
        // Of the first one nobody knows the serial number.
        drives: [None, Some("S64F1".to_owned())].map(drive).to_vec(),
        ..Topology::default()
    }
}

/// Caps the first drive in the second cycle, the other in the third.
pub struct Capping(u8);

impl Capping {
    pub fn new() -> Self {
        Self(0)
    }
}

impl Policy for Capping {
    fn name(&self) -> &'static str {
        "capping"
    }

    fn step(&mut self, _: &Signals, request: &mut Request) {
        self.0 += 1;
        for drive in 0..2 {
            if usize::from(self.0) > drive + 2 {
                request.power_state.ask(drive, 1, "capping:turn");
            }
        }
    }
}

/// The server. Its second drive does not take power states, until the sixth cycle; its meter at
/// the wall has no reading in the fourth.
#[derive(Default)]
pub struct Machine {
    cycles: u64,
    states: [u8; 2],
}

impl Plant for Machine {
    fn sense(&mut self, signals: &mut Signals) {
        let cycle = self.cycles;
        self.cycles += 1;
        (signals.now, signals.period) = (Nanos(PERIOD.0 * cycle), PERIOD);
        if cycle == 0 {
            signals.period = Nanos::ZERO;
            return;
        }
        signals.io = IoSignals {
            completed: Some(100 * cycle),
            bytes: Some(409_600 * cycle),
            mean_latency: Some(Nanos::from_micros(100 * cycle)),
            max_latency: Some(Nanos::from_micros(500)),
            ..IoSignals::default()
        };
        signals.power.cpu = Some(Watts(60.0));
        signals.power.total = (cycle != 4).then_some(Watts(200.0));
        for (drive, state) in signals.drives.iter_mut().zip(self.states) {
            drive.state = Some(state);
            drive.power = Some(Watts(8.0 - f64::from(state)));
        }
    }

    fn apply(&mut self, given: &InForce, applied: &mut Applied) {
        self.states[0] = given.state(0);
        if self.cycles > 5 {
            self.states[1] = given.state(1);
        } else if given.state(1) != self.states[1] {
            applied.set(Control::PowerState, 1, Outcome::Refused);
        }
    }
}
