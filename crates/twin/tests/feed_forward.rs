//! A heavy write burst raises the airflow before the drives overheat, in a whole server.
//!
//! The processors have little to do, so that the fans of `dlb`, which sees the sockets alone, stay
//! where they are until the guard takes them. What the feed-forward adds to the rest of `eadc`
//! shows against the same policy that cannot see what the drives draw.

use crate::common::{changed, job};
use ebb_policy::registry::{Settings, make};
use ebb_policy::units::{Celsius, Nanos};
use ebb_policy::{Limits, Policy, Signals};
use ebb_trace::{Closed, Op, Request, Workload};
use ebb_twin::{Observer, Outcome, Profile, Run, Sample, run};

/// Calm until here; then all that the drives can write.
const BURST: Nanos = Nanos::from_secs(240);
const END: Nanos = Nanos::from_secs(900);
/// From where on they slow down (profile): their limit.
const THROTTLE: Celsius = Celsius(70.0);

/// `thermal-1u` in warm air, with two drives so that a test can fill them.
fn server() -> Profile {
    let changes = [
        ("inlet = \"25 C\"", "inlet = \"32 C\""),
        ("count = 8", "count = 2"),
        ("raid = \"raid5\"", "raid = \"none\""),
    ];
    changed("thermal-1u", &changes)
}

/// Four writers to each drive: now and then a block, then large ones without a pause.
struct Writers {
    sent: [u64; 8],
}

impl Closed for Writers {
    fn slots(&self) -> u32 {
        8
    }
    fn next(&mut self, slot: u32, now: Nanos) -> Option<Request> {
        let calm = now < BURST;
        let sent = &mut self.sent[slot as usize];
        *sent += 1;
        Some(Request {
            at: if calm { now + Nanos::from_millis(50) } else { now },
            offset: ((*sent * 8 + u64::from(slot)) % (1 << 18)) << 22,
            bytes: if calm { 64 << 10 } else { 4 << 20 },
            device: (slot % 2) as u16,
            op: Op::Write,
            stream: slot,
            recorded_latency: None,
        })
    }
}

/// The policy inside cannot see what the drives draw.
struct Blind(Box<dyn Policy>);

impl Policy for Blind {
    fn name(&self) -> &'static str {
        "blind"
    }
    fn step(&mut self, signals: &Signals, request: &mut ebb_policy::Request) {
        let mut signals = signals.clone();
        signals.drives.iter_mut().for_each(|drive| drive.power = None);
        self.0.step(&signals, request);
    }
}

/// Hottest drive and fan duty by period.
#[derive(Default)]
struct Seen(Vec<(Nanos, Celsius, f64)>);

impl Observer for Seen {
    fn sample(&mut self, sample: &Sample<'_>) {
        let drives = sample.cycled.signals.drives.iter().filter_map(|drive| drive.temperature);
        let duty = sample.cycled.signals.cooling.fans[0].duty.unwrap();
        self.0.push((sample.cycled.signals.now, drives.fold(Celsius(0.0), Celsius::max), duty));
    }
}

fn served(policy: Box<dyn Policy>, limits: Limits) -> (Outcome, Seen) {
    let (profile, mut seen) = (server(), Seen::default());
    let workload = Workload::Closed(Box::new(Writers { sent: [0; 8] }));
    let job = job(&profile, policy, workload, Some(END));
    (run(Run { limits, ..job }, &mut seen).unwrap(), seen)
}

fn named(name: &str) -> Box<dyn Policy> {
    make(name, &server().topology(), &Settings::default()).unwrap()
}

#[test]
fn a_write_burst_raises_the_airflow_before_the_drives_overheat() {
    let careless = Limits { drive: Some(Celsius(200.0)), ..Limits::default() };
    let (alone, _) = served(named("dlb"), careless);
    let (dlb, _) = served(named("dlb"), Limits::default());
    let (blind, _) = served(Box::new(Blind(named("eadc"))), Limits::default());
    let (eadc, seen) = served(named("eadc"), Limits::default());
    let rows = [("dlb, no guard", &alone), ("dlb", &dlb), ("blind", &blind), ("eadc", &eadc)];
    for (name, run) in rows {
        let heat = run.thermal.unwrap();
        println!(
            "{name}: {:.1} °C, {:.0} s throttled, {:.0} GB written, fans {:.1} kJ, all {:.1} kJ",
            heat.hottest_drive.0,
            heat.drive_throttled.seconds(),
            run.bytes as f64 / 1e9,
            run.energy.fans.0 / 1e3,
            run.energy.total().0 / 1e3,
        );
    }
    let heat = |run: &Outcome| run.thermal.unwrap();
    // With nothing that watches the drives they overheat and slow down.
    assert!(heat(&alone).hottest_drive > THROTTLE);
    assert!(heat(&alone).drive_throttled > Nanos::ZERO);
    for with in [&dlb, &blind, &eadc] {
        assert!(heat(with).hottest_drive <= THROTTLE, "{}", heat(with).hottest_drive);
        assert_eq!(heat(with).drive_throttled, Nanos::ZERO);
        assert!(with.bytes as f64 > 1.01 * alone.bytes as f64);
    }
    // Who sees it coming needs less air than who waits for the heat, and far less than the guard.
    let fans = |run: &Outcome| run.energy.fans.0;
    assert!(fans(&eadc) < 0.95 * fans(&blind) && fans(&eadc) < 0.7 * fans(&dlb));
    // The air comes before the heat, and not before the burst.
    let of = |at: Nanos| seen.0.iter().find(|(now, ..)| *now >= at).unwrap();
    let (_, calm, low) = *of(BURST - Nanos::from_secs(1));
    let (at, then, _) = *seen.0.iter().find(|(_, _, duty)| *duty > low + 0.1).unwrap();
    println!("duty {low:.2} and {calm} before the burst; more air {} later, at {then}", at - BURST);
    assert!(at > BURST && then < THROTTLE - Celsius(4.0), "at {at}, {then}");
}
