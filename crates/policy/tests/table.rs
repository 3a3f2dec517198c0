//! The table of signals and controls, and the page that is made from it.

use std::path::Path;

use crate::common::{Weather, heated};
use ebb_policy::cpu::Native;
use ebb_policy::live::{ACTS, SENSES};
use ebb_policy::table::{SIGNALS, page};
use ebb_policy::units::{Celsius, Hertz, Nanos, Rpm, Watts};
use ebb_policy::{
    Applied, BestEffortSignals, Control, Cycle, Domain, InForce, Limits, Names, OpSignals, Origin,
    Owner, PERIOD, Percentiles, Plant, Policy, PressureSignals, Request, Signal, Signals, Source,
};

#[test]
fn the_page_is_the_table_s() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/signals-and-controls.md");
    if std::env::var_os("EBB_WRITE_DOCS").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == page(),
        "docs/signals-and-controls.md is not the table's: run EBB_WRITE_DOCS=1 cargo test -p \
         ebb-policy --test all table"
    );
}

#[test]
fn names_are_one_of_a_kind_and_say_their_unit() {
    let mut names: Vec<_> = SIGNALS.iter().map(|row| row.name).collect();
    names.extend(Control::ALL.iter().map(|control| control.row().name));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

/// Every row reads a server that has everything, and nothing of one of which nothing is sensed.
#[test]
fn every_signal_can_be_read() {
    let topology = heated(4);
    let (mut signals, nothing) = (Signals::new(&topology), Signals::new(&topology));
    Weather::new(&topology, 1, 0.0).sense(&mut signals);
    signals.io.completed = Some(1);
    signals.server_budget = Some(Watts(300.0));
    signals.io.mean_latency = Some(PERIOD);
    signals.io.max_latency = Some(PERIOD);
    signals.power.ssd = Some(Watts(80.0));
    let (cpu, io, memory) = (Some(0.1), Some(0.2), Some(0.0));
    signals.pressure = PressureSignals { cpu, io, memory };
    let percentiles = Some(Percentiles { p50: PERIOD, p99: PERIOD, p999: PERIOD });
    signals.io.percentiles = percentiles;
    let (completed, bytes, mean_latency) = (Some(1), Some(4096), Some(PERIOD));
    signals.io.reads = OpSignals { completed, bytes, mean_latency, percentiles };
    signals.io.writes = signals.io.reads;
    signals.best_effort = BestEffortSignals { requests: Some(1), bytes: Some(4096) };
    signals.jobs[0].present = true;
    signals.groups[0].wakes = Some(300.0);
    for drive in &mut signals.drives {
        (drive.temperature, drive.utilisation) = (Some(Celsius(40.0)), Some(0.5));
        drive.time = Some(PERIOD);
        (drive.read_bytes, drive.written_bytes) = (Some(4096), Some(4096));
        drive.standby = Some(true);
    }
    for fan in &mut signals.cooling.fans {
        (fan.duty, fan.speed) = (Some(0.5), Some(Rpm(4000.0)));
    }
    for row in SIGNALS {
        assert!((row.read)(&signals, 0).is_some(), "{} is not read", row.name);
        let made_up = (row.read)(&nothing, 0).is_some();
        assert!(!made_up, "{} is not absent", row.name);
    }
}

/// A plant of which every value that can be old has the age `age`.
struct Old(Weather, Nanos);

impl Plant for Old {
    fn sense(&mut self, signals: &mut Signals) {
        self.0.sense(signals);
        signals.power.total = Some(Watts(400.0));
        for (at, drive) in signals.drives.iter_mut().enumerate() {
            drive.power = Some(Watts(9.0));
            let age = if at == 0 { Nanos::ZERO } else { self.1 };
            let source = Source { age, origin: Origin::Modelled };
            signals.sources.set(Signal::DrivePower, at, source);
        }
        signals.sources.set(Signal::DrivePower, 99, Source { age: self.1, ..Source::default() });
    }
    fn apply(&mut self, _: &InForce, _: &mut Applied) {}
}

/// What is too old is absent, and so never taken for new; what is not is left, and everything says
/// where it comes from.
#[test]
fn an_old_value_is_taken_out_before_a_policy_sees_it() {
    let topology = heated(3);
    let row = |name| SIGNALS.iter().find(|row| row.name == name).unwrap();
    let until = row("drive_power").worth.unwrap().until;
    for (age, left) in [(until, true), (until + Nanos(1), false)] {
        let mut cycle = Cycle::new(&topology, Box::new(Native), Limits::default());
        let mut plant = Old(Weather::new(&topology, 1, 0.0), age);
        let signals = cycle.step(&mut plant).signals;
        let power = |at: usize| signals.drives[at].power.is_some();
        assert_eq!([power(0), power(1), power(2)], [true, left, left]);
        assert!(signals.power.total.is_some());
        assert_eq!(signals.sources.of(Signal::DrivePower, 1).origin, Origin::Modelled);
        assert_eq!(signals.sources.of(Signal::Power, 0), Source::default());
    }
}

/// A drive is called by what stays the same in another slot.
#[test]
fn drives_are_named_by_their_identity() {
    let mut topology = heated(2);
    topology.drives[1].id = Some("S64FNE0R200001-1".to_owned());
    let names = Names::new(&topology);
    let of = |domain, at| names.of(domain, at);
    assert_eq!(of(Domain::Drive, 0).as_deref(), Some("drive0"));
    assert_eq!(of(Domain::Drive, 1).as_deref(), Some("S64FNE0R200001-1"));
    assert_eq!(of(Domain::CoreGroup, 0).as_deref(), Some("front_end"));
    assert_eq!(of(Domain::Server, 0), None);
}

#[test]
fn requests_combine_as_the_table_says() {
    let topology = heated(4);
    let (mut policy, mut operator) = (Request::new(&topology), Request::new(&topology));
    policy.power_state.ask(0, 1, "a:deep");
    operator.power_state.ask(0, 3, "b:deeper");
    operator.power_state.ask(1, 2, "b:alone");
    policy.frequency_cap.ask(0, Hertz(2.0e9), "a:low");
    operator.frequency_cap.ask(0, Hertz(2.6e9), "b:high");
    policy.job_share.ask(0, f64::NAN, "a:nonsense");
    operator.job_share.ask(0, 0.5, "b:half");
    policy.combine(&operator);
    assert_eq!(policy.power_state.wish(0).map(|w| (w.value, w.reason)), Some((3, "b:deeper")));
    assert_eq!(policy.power_state.get(1), Some(2));
    assert_eq!(policy.power_state.get(2), None, "released by both");
    assert_eq!(policy.frequency_cap.wish(0).map(|w| w.reason), Some("a:low"));
    assert_eq!(policy.job_share.get(0), Some(0.5), "no number never wins");
}

#[test]
fn two_owners_of_an_exclusive_control_are_refused_at_the_start() {
    let topology = heated(4);
    let mut operator = Request::new(&topology);
    operator.fan_duty.ask(2, 0.5, "test:held");
    let cycle = |name: &str| {
        let settings = ebb_policy::registry::Settings::default();
        let policy = ebb_policy::registry::make(name, &topology, &settings).unwrap();
        Cycle::new(&topology, policy, Limits::default()).held(operator.clone()).map(|_| ())
    };
    let conflict = cycle("pacer+dlb").unwrap_err();
    assert_eq!(conflict.control, Control::FanDuty);
    assert_eq!((conflict.first, conflict.second), (Owner::Policy, Owner::Operator));
    assert!(conflict.to_string().contains("both the policy and the operator set fans"));
    assert_eq!(cycle("pacer"), Ok(()));
    // Nor may it be claimed later.
    let settings = ebb_policy::registry::Settings::default();
    let make = |name| ebb_policy::registry::make(name, &topology, &settings).unwrap();
    let cycle = Cycle::new(&topology, make("pacer"), Limits::default()).held(operator);
    let changed = cycle.unwrap().change(make("dlb"), None);
    assert_eq!(changed.unwrap_err().control, Control::FanDuty);
}

/// Asks for one frequency ceiling, and for one power state of the first drive.
struct Capper(f64, u8);

impl Policy for Capper {
    fn name(&self) -> &'static str {
        "capper"
    }
    fn owns(&self) -> &[Control] {
        &[Control::FrequencyCap, Control::PowerState]
    }
    fn step(&mut self, _: &Signals, request: &mut Request) {
        request.frequency_cap.ask(0, Hertz(self.0), "test:ceiling");
        request.power_state.ask(0, self.1, "test:state");
    }
}

/// A coordinator caps what the policy asks for, and is capped itself; the most restrictive wins,
/// whoever asks. A control that can have one owner has one.
#[test]
fn a_coordinator_caps_what_the_policy_asks_for() {
    let topology = heated(4);
    let cycle = |policy: Capper| Cycle::new(&topology, Box::new(policy), Limits::default());
    for (policy, coordinator, given) in [
        (Capper(2.6e9, 1), Capper(2.0e9, 0), (2.0e9, 1)),
        (Capper(1.5e9, 0), Capper(2.0e9, 2), (1.5e9, 2)),
    ] {
        let mut cycle = cycle(policy).coordinated(Box::new(coordinator)).unwrap();
        let in_force = cycle.step(&mut Weather::new(&topology, 1, 0.0)).in_force;
        assert_eq!(in_force.frequency_cap.value(0), Some(Hertz(given.0)));
        assert_eq!(in_force.power_state.value(0), Some(given.1));
    }
    let settings = ebb_policy::registry::Settings::default();
    let make = |name| ebb_policy::registry::make(name, &topology, &settings).unwrap();
    let cycle = Cycle::new(&topology, make("dlb"), Limits::default());
    let conflict = cycle.coordinated(make("pacer+jetc")).map(|_| ()).unwrap_err();
    assert_eq!((conflict.first, conflict.second), (Owner::Policy, Owner::Coordinator));
}

/// What nobody asks for is released, and a wish that ends is too.
#[test]
fn a_released_control_is_as_it_was_found() {
    let topology = heated(4);
    let mut cycle = Cycle::new(&topology, Box::new(Native), Limits::default());
    let mut weather = Weather::new(&topology, 1, 0.0);
    let cycled = cycle.step(&mut weather);
    assert_eq!(cycled.decisions().count(), 0);
    assert!(cycled.in_force.fan_duty.values().all(|duty| duty.is_none()));
    assert_eq!(cycled.in_force.group(0).active, topology.groups[0].cores);
    let mut request = Request::new(&topology);
    let mut in_force = InForce::new(&topology);
    request.fan_duty.ask(0, 0.5, "test:fast");
    in_force.follow(&request);
    let before = in_force.clone();
    request.fan_duty.release(0);
    in_force.follow(&request);
    let decisions: Vec<_> = in_force.decisions(&before, PERIOD).collect();
    let [decision] = decisions[..] else { panic!("{decisions:?}") };
    assert_eq!((decision.from, decision.to), (Some(0.5), None));
}

/// Where each signal and control is on a server is said once.
#[test]
fn every_row_has_its_place_on_a_server() {
    let signals: Vec<_> = SENSES.iter().flat_map(|sense| sense.signals).collect();
    assert!(Signal::ALL.iter().all(|signal| signals.iter().filter(|s| **s == signal).count() == 1));
    assert!(
        Control::ALL.iter().all(|of| ACTS.iter().filter(|act| act.control == *of).count() == 1)
    );
}
