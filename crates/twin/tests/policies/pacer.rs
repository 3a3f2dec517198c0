//! PACER keeps `plf` once settled, saves energy for it, and gives everything back in a burst.

use ebb_policy::registry::{Settings, make};
use ebb_policy::units::Nanos;
use ebb_policy::{BackgroundMode, GroupSetting, InForce, PERIOD};
use ebb_trace::{Source, Workload, transform};
use ebb_twin::{Observer, Outcome, Profile, Run, Sample, Unobserved, run};

use crate::common::{Chain, Poisson, job};

/// What the Dorado 6000's cores can do of 8 KiB requests, 70 % reads (PACER §III-B1), and by how
/// much they are slowed here: tests have no time for a hundred seconds of the real one's load.
const FULL_IOPS: f64 = 600e3;
const SLOWER: f64 = 10.0;
/// A step of PACER takes 5.5 s; this is time for ten of them.
const SETTLED: Nanos = Nanos::from_secs(60);
const END: Nanos = Nanos::from_secs(100);
/// The latency in the window of 40 s against PACER's own windows of 5 s, and its steps there.
const LATENCY_NOISE: f64 = 0.03;
const ENERGY_NOISE: f64 = 0.005;

/// The Dorado 6000 with cores a tenth as fast: CPU time weighs more in the latency, so that
/// `plf` is harder to keep.
pub fn dorado() -> Profile {
    let mut profile = Profile::load("dorado-6000").unwrap();
    for stage in &mut profile.stage {
        stage.read_cycles *= SLOWER;
        stage.write_cycles *= SLOWER;
        stage.cycles_per_kib *= SLOWER;
    }
    profile
}

/// rand-rw of PACER's Table II by the clock, at a share of what the server can do.
pub fn rand_rw(pressure: f64) -> Poisson {
    let gap = 1e9 / (pressure * FULL_IOPS / SLOWER);
    Poisson::new(u64::MAX, gap, 8192, 0.7, 1)
}

fn measured(profile: &Profile, policy: &str, plf: f64, pressure: f64) -> Outcome {
    with_tail(profile, policy, (plf, None), pressure)
}

fn with_tail(
    profile: &Profile,
    policy: &str,
    (plf, tail): (f64, Option<f64>),
    pressure: f64,
) -> Outcome {
    let settings = Settings { plf, tail, ..Settings::default() };
    let policy = make(policy, &profile.topology(), &settings).unwrap();
    let workload = Workload::Open(Box::new(rand_rw(pressure)));
    let job = Run { warmup: SETTLED, ..job(profile, policy, workload, Some(END)) };
    run(job, &mut Unobserved).unwrap()
}

pub fn joules(outcome: &Outcome) -> f64 {
    outcome.energy.total().0
}

#[test]
fn plf_is_kept_after_settling_and_energy_saved() {
    let profile = dorado();
    for (pressure, plfs) in [(0.05, &[0.05, 0.2][..]), (0.1, &[0.1, 0.5]), (0.4, &[0.2])] {
        let native = measured(&profile, "native", 0.0, pressure);
        for plf in plfs {
            let pacer = measured(&profile, "pacer", *plf, pressure);
            let loss = pacer.mean_latency() / native.mean_latency() - 1.0;
            let energy = joules(&pacer) / joules(&native);
            println!("pressure {pressure}, plf {plf}: loss {loss:.4}, energy {energy:.4}");
            assert!(loss <= plf + LATENCY_NOISE, "pressure {pressure}, plf {plf}: loss {loss}");
            assert!(energy <= 1.0 + 1e-9, "pressure {pressure}, plf {plf}: energy {energy}");
            if pressure < 0.2 {
                assert!(energy < 0.99, "pressure {pressure}, plf {plf}: nothing saved, {energy}");
            }
        }
    }
}

#[test]
fn a_tail_that_is_stated_is_kept() {
    let profile = dorado();
    let p99 = |policy: &str, tail: Option<f64>| {
        let outcome = with_tail(&profile, policy, (1.0, tail), 0.1);
        outcome.latency.value_at_quantile(0.99) as f64
    };
    let native = p99("native", None);
    let (free, kept) = (p99("pacer", None) / native, p99("pacer", Some(0.2)) / native);
    println!("p99 {free:.3} of native, {kept:.3} with a tail of 20 %");
    assert!(free > 1.3, "{free}: nothing that would have to be kept");
    // The policy sees the 99th percentiles of single periods, in steps of an eighth.
    assert!(kept <= 1.2 + 0.05, "{kept}");
}

#[test]
fn a_larger_plf_never_costs_more_energy() {
    let profile = dorado();
    for policy in ["pacer", "pacer-cores", "pacer-freq"] {
        let mut before = f64::INFINITY;
        for plf in [0.05, 0.1, 0.2, 0.5, 1.0] {
            let energy = joules(&measured(&profile, policy, plf, 0.05));
            println!("{policy}, plf {plf}: {energy:.0} J");
            let most = before * (1.0 + ENERGY_NOISE);
            assert!(energy <= most, "{policy}, plf {plf}: {energy} J after {before} J");
            before = energy;
        }
    }
}

#[test]
fn ondemand_saves_energy_for_latency() {
    let profile = dorado();
    let native = measured(&profile, "native", 0.0, 0.05);
    let ondemand = measured(&profile, "ondemand", 0.0, 0.05);
    assert!(joules(&ondemand) < joules(&native));
    assert!(ondemand.mean_latency() > native.mean_latency());
    assert!(ondemand.requests.abs_diff(native.requests) <= 10);
}

/// When controls were not native, and when background work raced.
#[derive(Default)]
struct Watch {
    native: Vec<GroupSetting>,
    /// Per period: its end, whether all controls of cores were native after it, whether all
    /// cores were already at work during it, the background mode.
    periods: Vec<(Nanos, bool, bool, BackgroundMode)>,
}

impl Watch {
    fn new(profile: &Profile) -> Self {
        let native = InForce::new(&profile.topology()).groups().collect();
        Self { native, periods: Vec::new() }
    }
    /// The period that ends at or right after `at`.
    fn at(&self, at: Nanos) -> (Nanos, bool, bool, BackgroundMode) {
        *self.periods.iter().find(|period| period.0 >= at).unwrap()
    }
}

impl Observer for Watch {
    fn sample(&mut self, sample: &Sample<'_>) {
        let asked = sample.cycled.in_force.groups().eq(self.native.iter().copied());
        let there = sample.cycled.signals.groups.iter().zip(&self.native).all(|(group, full)| {
            group.active == Some(full.active) && group.frequency == Some(full.frequency)
        });
        let background = sample.cycled.in_force.background();
        self.periods.push((sample.cycled.signals.now, asked, there, background));
    }
}

/// Loads one after the other: pressure, and for how long.
pub fn stages(stages: &[(f64, Nanos)]) -> Workload {
    let mut start = Nanos::ZERO;
    let mut chain: Vec<Box<dyn Source>> = Vec::new();
    for (pressure, length) in stages {
        if *pressure > 0.0 {
            let part = transform::cut(rand_rw(*pressure), Nanos::ZERO, *length).unwrap();
            chain.push(Box::new(transform::shift(part, start)));
        }
        start += *length;
    }
    Workload::Open(Box::new(Chain(chain)))
}

fn watched(profile: &Profile, workload: Workload, duration: Nanos) -> Watch {
    let policy = make("pacer", &profile.topology(), &Settings::default()).unwrap();
    let mut watch = Watch::new(profile);
    run(job(profile, policy, workload, Some(duration)), &mut watch).unwrap();
    watch
}

#[test]
fn a_burst_has_everything_back_within_a_period_of_its_first_full_one() {
    let profile = dorado();
    for burst_at in [Nanos::from_millis(40_000), Nanos::from_millis(40_300)] {
        let load = [(0.03, burst_at), (0.9, Nanos::from_secs(3))];
        let watch = watched(&profile, stages(&load), burst_at + Nanos::from_secs(3));
        let (_, native_before, ..) = watch.at(burst_at - PERIOD);
        assert!(!native_before, "nothing was saved before the burst");
        let first_full = Nanos(burst_at.0.div_ceil(PERIOD.0) * PERIOD.0) + PERIOD;
        let (at, asked, ..) = watch.at(first_full + PERIOD);
        assert!(asked, "burst at {burst_at}: not everything is asked for at {at}");
        let (at, _, there, _) = watch.at(first_full + PERIOD + PERIOD);
        assert!(there, "burst at {burst_at}: not everything is on at {at}");
    }
}

#[test]
fn background_work_races_after_thirty_seconds_of_silence_until_a_request_comes() {
    let profile = dorado();
    let (quiet_from, back_at) = (Nanos::from_secs(10), Nanos::from_secs(52));
    let load = [(0.05, quiet_from), (0.0, back_at - quiet_from), (0.05, Nanos::from_secs(4))];
    let watch = watched(&profile, stages(&load), back_at + Nanos::from_secs(4));
    let races_at = quiet_from + Nanos::from_secs(30);
    for (at, .., mode) in &watch.periods {
        // Silence is counted in whole periods, the first of which starts after the last answer.
        let (from, to) = (races_at + PERIOD + PERIOD, back_at);
        if *at > from && *at <= to {
            assert_eq!(*mode, BackgroundMode::Race, "at {at}");
        } else if *at < races_at || *at > to + PERIOD {
            assert_eq!(*mode, BackgroundMode::Normal, "at {at}");
        }
    }
}
