//! A heavy write burst raises the airflow before the drives overheat, in a whole server.
//!
//! The processors have little to do, so that the fans of `dlb`, which sees the sockets alone, stay
//! where they are until the guard takes them. What the feed-forward adds to the rest of `eadc`
//! shows against the same policy that cannot see what the drives draw.

use std::ops::Range;

use crate::common::{changed, job};
use ebb_policy::registry::{Settings, make};
use ebb_policy::units::{Celsius, Nanos};
use ebb_policy::{Limits, Policy, Signals};
use ebb_trace::{Closed, Op, Request, Workload};
use ebb_twin::faults::{Fault, FaultEvent, Faults};
use ebb_twin::{Observer, Outcome, Profile, Run, Sample, run};

/// Calm until here; then all that the drives can write.
const BURST: Nanos = Nanos::from_secs(240);
const END: Nanos = Nanos::from_secs(900);
/// From where on they slow down (profile): their limit.
const THROTTLE: Celsius = Celsius(70.0);

/// `thermal-1u` in warm air, with two drives so that a test can fill them.
fn server() -> Profile {
    server_in("32 C")
}

fn server_in(inlet: &str) -> Profile {
    let changes = [
        ("inlet = \"25 C\"", &*format!("inlet = \"{inlet}\"")),
        ("count = 8", "count = 2"),
        ("raid = \"raid5\"", "raid = \"none\""),
    ];
    changed("thermal-1u", &changes)
}

/// Four writers to each drive: now and then a block, and from [`BURST`] on, or in a span of time
/// before, large ones without a pause.
#[derive(Default)]
struct Writers {
    sent: [u64; 8],
    short: Range<Nanos>,
}

impl Closed for Writers {
    fn slots(&self) -> u32 {
        8
    }
    fn next(&mut self, slot: u32, now: Nanos) -> Option<Request> {
        let calm = now < BURST && !self.short.contains(&now);
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
    written(&server(), policy, limits, Writers::default(), Vec::new())
}

fn written(
    profile: &Profile,
    policy: Box<dyn Policy>,
    limits: Limits,
    writers: Writers,
    faults: Vec<FaultEvent>,
) -> (Outcome, Seen) {
    let mut seen = Seen::default();
    let job = job(profile, policy, Workload::Closed(Box::new(writers)), Some(END));
    let faults = Some(Faults::listed(faults));
    (run(Run { limits, faults, ..job }, &mut seen).unwrap(), seen)
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

/// Who sees it coming gives it no more air than who does not.
#[test]
fn what_a_short_burst_adds_the_drives_can_take() {
    let (from, to) = (Nanos::from_secs(180), Nanos::from_secs(190));
    let duties = |policy| {
        let writers = Writers { short: from..to, ..Writers::default() };
        let (_, seen) = written(&server(), policy, Limits::default(), writers, Vec::new());
        let after = seen.0.into_iter().filter(|(at, ..)| (from..BURST).contains(at));
        after.map(|(.., duty)| duty).collect::<Vec<_>>()
    };
    let (seeing, blind) = (duties(named("eadc")), duties(Box::new(Blind(named("eadc")))));
    for (seeing, blind) in seeing.iter().zip(&blind) {
        assert!((seeing - blind).abs() < 0.02, "{seeing}, blind {blind}");
    }
}

/// What was learnt of the drives' air stays true when it comes from fewer fans; the air is so cold
/// that they are enough.
#[test]
fn with_half_of_the_fans_dead_the_drives_have_their_air() {
    let dead = |fan| FaultEvent { from: BURST, until: Nanos(u64::MAX), fault: Fault::FanDead(fan) };
    let (faults, writers) = ((0..3).map(dead).collect(), Writers::default());
    let (run, seen) =
        written(&server_in("12 C"), named("eadc"), Limits::default(), writers, faults);
    let heat = run.thermal.unwrap();
    assert!(heat.hottest_drive <= THROTTLE, "{}", heat.hottest_drive);
    assert_eq!(heat.drive_throttled, Nanos::ZERO);
    let most = seen.0.iter().map(|(.., duty)| *duty).fold(0.0, f64::max);
    assert!(most < 0.9, "{most} at {}", heat.hottest_drive);
}
