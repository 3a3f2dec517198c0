//! What cannot be true gets into no model: when it is over, all is as before.

use super::*;
use crate::common::{hot_requests, seeds};
use ebb_policy::Reading;
use ebb_policy::sense::RED_LINE;
use ebb_policy::units::{Hertz, Rpm};
use ebb_trace::{Closed, Op};
use ebb_twin::faults::Place;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Every number that is sensed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Field {
    Utilisation,
    Busiest,
    Frequency,
    Job,
    FanDuty,
    FanSpeed,
    Inlet,
    Socket,
    Cpu,
    Fans,
    Ssd,
    Total,
    DrivePower,
    DriveTemperature,
}

const FIELDS: [Field; 14] = [
    Field::Utilisation,
    Field::Busiest,
    Field::Frequency,
    Field::Job,
    Field::FanDuty,
    Field::FanSpeed,
    Field::Inlet,
    Field::Socket,
    Field::Cpu,
    Field::Fans,
    Field::Ssd,
    Field::Total,
    Field::DrivePower,
    Field::DriveTemperature,
];

/// Says `value` everywhere in `field`.
fn poison(signals: &mut Signals, field: Field, value: f64) {
    let reading = Some(Reading { at: signals.now, temperature: Celsius(value) });
    for group in &mut signals.groups {
        match field {
            Field::Utilisation => group.utilisation = Some(value),
            Field::Busiest => group.busiest = Some(value),
            Field::Frequency => group.frequency = Some(Hertz(value)),
            _ => {}
        }
    }
    for fan in &mut signals.cooling.fans {
        match field {
            Field::FanDuty => fan.duty = Some(value),
            Field::FanSpeed => fan.speed = Some(Rpm(value)),
            _ => {}
        }
    }
    let power = &mut signals.power;
    match field {
        Field::Job => signals.jobs.iter_mut().for_each(|job| job.cpu = value),
        Field::Inlet => signals.cooling.inlet = reading,
        Field::Socket => signals.cooling.sockets.fill(reading),
        Field::Cpu => power.cpu = Some(Watts(value)),
        Field::Fans => power.fans = Some(Watts(value)),
        Field::Ssd => power.ssd = Some(Watts(value)),
        Field::Total => power.total = Some(Watts(value)),
        Field::DrivePower => signals.drives[0].power = Some(Watts(value)),
        Field::DriveTemperature => signals.drives[0].temperature = Some(Celsius(value)),
        _ => {}
    }
}

/// A number that nothing can have.
fn impossible(random: &mut Pcg64Mcg) -> f64 {
    let usual = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e30, -1e30, f64::MAX, -1e3];
    if random.random_bool(0.75) {
        usual[random.random_range(0..usual.len())]
    } else {
        10_f64.powf(random.random_range(13.0..300.0))
    }
}

fn possible(in_force: &InForce) -> bool {
    let shares = in_force.fan_duty.values().chain(in_force.job_share.values());
    let caps = in_force.frequency_cap.values();
    shares.flatten().all(|share| (0.0..=1.0).contains(&share))
        && caps.flatten().all(|cap| cap.0.is_finite() && cap.0 > 0.0)
}

/// When something lies, from here on for a while; when both temperatures stick; when all the work
/// comes; the end.
const LIES: u64 = 120;
const STICKS: u64 = 480;
const WORKS: u64 = STICKS + 5;
const END: u64 = WORKS + 300;

/// A lie: what about, what, from [`LIES`] on for how many seconds.
type Lie = (Field, f64, u64);

fn tell(lie: Option<Lie>) -> impl FnMut(&mut Signals) {
    move |signals| {
        let Some((field, value, seconds)) = lie else { return };
        if (LIES..LIES + seconds).contains(&(signals.now.seconds() as u64)) {
            poison(signals, field, value);
        }
    }
}

/// Both temperatures stick.
fn stuck() -> Vec<FaultEvent> {
    let stuck = |socket| fault(Fault::SensorStuck(Place::Socket(socket)), STICKS, 1_000_000);
    vec![stuck(0), stuck(1)]
}

/// The hottest silicon, and whether the fans went to full speed once the work had come.
fn found(name: &str, lie: Option<Lie>, seen: &Seen) -> (f64, bool) {
    for period in &seen.periods {
        assert!(possible(&period.in_force), "{name}, {lie:?}: {:?}", period.in_force);
    }
    (seen.peak(), seen.between(WORKS, END).iter().any(|period| period.duty() == 1.0))
}

/// A server with little to do, whose sensors lie for a while if at all; then it is well again, then
/// both temperatures stick and all the work comes.
fn sticks_later(name: &str, lie: Option<Lie>) -> (f64, bool) {
    let jobs = [vec![always(); 3], vec![busy(WORKS, 100_000); 12]].concat();
    let scene = Scene { profile: server(), curve: None, jobs, faults: stuck(), seconds: END };
    found(name, lie, &scene.lied_to(name, tell(lie)))
}

/// Clients whose requests are the work.
struct Clients;

impl Closed for Clients {
    fn slots(&self) -> u32 {
        40
    }
    fn next(&mut self, slot: u32, now: Nanos) -> Option<ebb_trace::Request> {
        let at = if slot < 8 { now } else { now.max(Nanos::from_secs(WORKS)) };
        let offset = now.0 % (1 << 28) * 4096;
        let (op, recorded_latency) = (Op::Read, None);
        Some(ebb_trace::Request {
            at,
            offset,
            bytes: 4096,
            device: 0,
            op,
            stream: slot,
            recorded_latency,
        })
    }
}

/// The same of one whose cores nobody knows by socket, under a policy that wants it hot: its work
/// is known by the processors' power only.
fn sticks_later_by_power(lie: Option<Lie>) -> (f64, bool) {
    let mut profile = hot_requests("10 W", &[]);
    profile.stage.iter_mut().for_each(|stage| stage.socket = None);
    let scene = Scene { profile, curve: None, jobs: vec![], faults: stuck(), seconds: END };
    let requests = Workload::Closed(Box::new(Clients));
    found("stoker", lie, &scene.beside(requests, "stoker", tell(lie)))
}

/// A lie for each seed, the fields by turns.
#[test]
fn a_stuck_sensor_is_found_after_any_value_that_cannot_be() {
    for seed in seeds(0..14) {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let field = FIELDS[seed as usize % FIELDS.len()];
        let lie = (field, impossible(&mut random), random.random_range(1..120));
        for name in POLICIES.into_iter().chain(["stoker"]) {
            let (peak, full) = sticks_later(name, Some(lie));
            assert!(full && peak < RED_LINE.0, "seed {seed}, {name}, {lie:?}: {peak}, {full}");
        }
    }
}

#[test]
fn without_any_lie_it_is_found_too() {
    for name in POLICIES.into_iter().chain(["stoker"]) {
        let (peak, full) = sticks_later(name, None);
        assert!(full && peak < RED_LINE.0, "{name}: {peak}, {full}");
    }
}

/// Power tells less than jobs do; a lie must not leave less than that.
#[test]
fn where_only_power_is_known_a_lie_changes_nothing_for_later() {
    let (honest, full) = sticks_later_by_power(None);
    assert!(full);
    for value in [f64::NAN, 1e30, f64::INFINITY, -1e30] {
        let (peak, full) = sticks_later_by_power(Some((Field::Cpu, value, 60)));
        assert!(full && peak < honest + 1.0, "{value}: {peak}, {honest} without");
    }
}
