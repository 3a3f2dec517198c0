//! The table of signals and controls, and the page that is made from it.

mod common;

use std::path::Path;

use common::{Weather, heated};
use ebb_policy::cpu::Native;
use ebb_policy::table::{SIGNALS, page};
use ebb_policy::units::{Celsius, Hertz, Rpm, Watts};
use ebb_policy::{Control, Cycle, InForce, Limits, Owner, PERIOD, Plant, Request, Signals};

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
         ebb-policy --test table"
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
    signals.io.mean_latency = Some(PERIOD);
    signals.io.max_latency = Some(PERIOD);
    signals.power.ssd = Some(Watts(80.0));
    signals.jobs[0].present = true;
    for drive in &mut signals.drives {
        (drive.temperature, drive.utilisation) = (Some(Celsius(40.0)), Some(0.5));
    }
    for fan in &mut signals.cooling.fans {
        (fan.duty, fan.speed) = (Some(0.5), Some(Rpm(4000.0)));
    }
    for row in SIGNALS {
        assert!((row.read)(&signals, 0).is_some(), "{} is not read", row.name);
        let made_up = (row.read)(&nothing, 0).is_some() && row.name != "cores_active";
        assert!(!made_up, "{} is not absent", row.name);
    }
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
