//! The host's senses in the twin: each row of the table `policy/contract/live.rs` as it is played.

use ebb_policy::live::{METER, PACE, SENSES, TICK};
use ebb_policy::registry::{Settings, make};
use ebb_policy::table::SIGNALS;
use ebb_policy::units::{Nanos, Watts};
use ebb_policy::{Limits, Origin, PERIOD, PowerState, Signal, Signals};
use ebb_trace::Workload;
use ebb_twin::profile::Governor;
use ebb_twin::{AsHost, Observer, Outcome, Profile, Run, Sample, run};

use crate::common::{Demand, Poisson, Shifting, job};

/// What was sensed in each period.
#[derive(Default)]
struct Seen(Vec<Signals>);

impl Observer for Seen {
    fn sample(&mut self, sample: &Sample<'_>) {
        self.0.push(sample.cycled.signals.clone());
    }
}

/// A server with temperatures and background work under a light load, sensed by `senses`.
fn seen(senses: Option<AsHost>) -> Vec<Signals> {
    let profile = Profile::load("thermal-1u").unwrap();
    let load = Poisson::new(40_000, 400_000.0, 8192, 0.7, 4);
    let native = Box::new(ebb_policy::cpu::Native);
    let load = Workload::Open(Box::new(load));
    let end = Some(Nanos::from_secs(15));
    let mut seen = Seen::default();
    run(Run { senses, ..job(&profile, native, load, end) }, &mut seen).unwrap();
    seen.0
}

/// Of each signal, what a host knows beside what is true, period by period: as the table says.
#[test]
fn every_signal_is_played_as_the_table_says() {
    let (truth, host) = (seen(None), seen(Some(AsHost::default())));
    assert_eq!(truth.len(), host.len());
    let near = |a: f64, b: f64, most: f64| (a - b).abs() <= most;
    for sense in SENSES {
        for signal in sense.signals {
            let read = SIGNALS[*signal as usize].read;
            for (truth, host) in truth.iter().zip(&host) {
                let (is, known) = (read(truth, 0), read(host, 0));
                let Some(known) = known else {
                    let may_lack = sense.from.is_none() || sense.played.starts_with("absent");
                    assert!(may_lack || is.is_none(), "{signal:?} at {}", host.now);
                    continue;
                };
                assert!(sense.from.is_some(), "{signal:?} is known nowhere");
                let is = is.unwrap();
                let as_played = match sense.played {
                    "as it is" | "its sensors, with lag and steps" => near(is, known, 0.0),
                    "rounded to 1 W" => known.fract() == 0.0 && near(is, known, 0.5),
                    "up to 0.2 % from what was set" => near(is, known, 0.002 * is),
                    of if of.starts_with("of the busiest core in ticks")
                        && *signal == Signal::CoresBusiest =>
                    {
                        near(is, known, 0.5 * TICK.seconds() / PERIOD.seconds() + 1e-12)
                    }
                    // Of these the next tests tell.
                    _ => true,
                };
                assert!(as_played, "{signal:?} at {}: {is}, sensed {known}", host.now);
            }
        }
    }
    // The commands of the drives are what a host takes for requests, and their time for latency.
    let sum = |of: &[Signals], read: fn(&Signals) -> Option<u64>| {
        of.iter().filter_map(read).sum::<u64>() as f64
    };
    let completed = |signals: &Signals| signals.io.completed;
    assert!(sum(&host, completed) >= sum(&truth, completed), "each request, and parity and logs");
    let waited = |signals: &Signals| Some(signals.io.mean_latency?.0 * signals.io.completed?);
    let (whole, block) = (sum(&truth, waited), sum(&host, waited));
    assert!(block > 0.0, "{whole} ns end to end, {block} at the drives");
    let mean = |sum: f64, of: &[Signals]| sum / self::completed(of);
    assert!(mean(block, &host) < mean(whole, &truth), "what comes before the drives is not seen");
}

fn completed(of: &[Signals]) -> f64 {
    of.iter().filter_map(|signals| signals.io.completed).sum::<u64>() as f64
}

/// With `ebb serve` telling, requests and latencies are its clients'.
#[test]
fn a_server_that_tells_is_believed() {
    let (truth, host) = (seen(None), seen(Some(AsHost { served: true, ..AsHost::default() })));
    assert!(truth.iter().zip(&host).all(|(truth, host)| truth.io == host.io));
}

/// Drives are asked at the table's paces, and modelled where they do not measure.
#[test]
fn drives_say_how_old_their_answers_are() {
    for (meters, origin) in [(false, Origin::Modelled), (true, Origin::Measured)] {
        let host = seen(Some(AsHost { meters, ..AsHost::default() }));
        for signals in &host {
            let of = |signal| signals.sources.of(signal, 0);
            assert!(of(Signal::DriveState).age <= PACE + PERIOD);
            assert_eq!(of(Signal::DrivePower).origin, origin, "at {}", signals.now);
            assert!(of(Signal::DrivePower).age <= METER);
        }
        let oldest = host.iter().map(|it| it.sources.of(Signal::DriveState, 0).age).max();
        assert!(oldest >= Some(PACE - PERIOD), "it is not asked in each cycle");
    }
}

/// States of all drives after each period.
#[derive(Default)]
struct States(Vec<Vec<PowerState>>);

impl Observer for States {
    fn sample(&mut self, sample: &Sample<'_>) {
        let in_force = sample.cycled.in_force;
        self.0.push((0..in_force.power_state.len()).map(|at| in_force.state(at)).collect());
    }
}

/// 16 drives under a budget of 14 W each; halves of them are busy in turn.
fn halves(policy: &str, senses: Option<AsHost>) -> (Outcome, Vec<Vec<PowerState>>) {
    let profile = Profile::load("asg-1115s").unwrap();
    let drives = profile.drives.count;
    let half = |drive: u16| {
        let first = drive < drives / 2;
        [first, !first].map(|busy| if busy { Demand::All } else { Demand::Nothing }).to_vec()
    };
    let load = Shifting {
        phase: Nanos::from_secs(15),
        demand: (0..drives).map(half).collect(),
        depth: 32,
        ..Shifting::new(drives, 131_072, 0.0, 1)
    };
    let budget = Some(Watts(14.0 * f64::from(drives)));
    let settings = Settings { ssd_budget: budget, ..Settings::default() };
    let policy = make(policy, &profile.topology(), &settings).unwrap();
    let limits = Limits { ssd_budget: budget, ..Limits::default() };
    let load = Workload::Closed(Box::new(load));
    let job = job(&profile, policy, load, Some(Nanos::from_secs(60)));
    let mut states = States::default();
    let outcome = run(Run { ssd_budget: budget, limits, senses, ..job }, &mut states).unwrap();
    (outcome, states.0)
}

/// Up to version 0.9 a state counted only once the drive was asked again, and old answers as new:
/// after each lowering the guard took the drives for disobedient and all fell to the lowest cap.
#[test]
fn a_host_that_forgets_what_it_wrote_collapses() {
    let forgetful = AsHost { forgetful: true, ..AsHost::default() };
    let (_, states) = halves("sspc", Some(forgetful));
    let lowest = |states: &Vec<PowerState>| states.iter().all(|state| *state == 4);
    let at = states.iter().position(lowest);
    assert_eq!(at, Some(3), "all are at the lowest cap 2 s after they were first lowered");
    let (_, states) = halves("sspc", Some(AsHost::default()));
    assert!(states.iter().flatten().all(|state| *state == 3), "{states:?}");
}

/// Caps move to the drives that are busy as they do in the twin, whatever the drives tell: at most
/// a tenth of what that gains over one cap for all is lost. Only what drives measure costs
/// pacman-plus more: its mean over a second, asked each second, is late when drives change.
#[test]
fn pacman_gains_as_host_what_it_gains_in_the_twin() {
    let bytes = |policy: &str, senses| halves(policy, senses).0.bytes as f64;
    for policy in ["pacman", "pacman-plus"] {
        let uniform = bytes("sspc", None);
        let gain = bytes(policy, None) / uniform - 1.0;
        assert!(gain > 0.1, "{policy} gains {gain:.3}: there is nothing to lose");
        for (meters, idle_power) in [(false, false), (true, false), (false, true)] {
            let senses = AsHost { meters, idle_power, ..AsHost::default() };
            let own = bytes(policy, Some(senses)) / uniform - 1.0;
            println!("{policy}, {senses:?}: +{:.1} % of +{:.1} %", own * 100.0, gain * 100.0);
            let least = if meters && policy == "pacman-plus" { 0.8 } else { 0.9 };
            assert!(own >= least * gain, "{policy}, {senses:?}: {own:.3} of {gain:.3}");
        }
    }
}

/// Schedutil draws less than performance where there is little to do, as much where there is much,
/// and no more than it is allowed to.
#[test]
fn a_governor_follows_the_load() {
    let outcome = |governor, gap_ns: f64| {
        let mut profile = Profile::load("generic-1u").unwrap();
        profile.cpu.governor = governor;
        let load = Poisson::new((5e9 / gap_ns) as u64, gap_ns, 4096, 0.7, 1);
        let native = Box::new(ebb_policy::cpu::Native);
        let mut seen = Seen::default();
        let job = job(&profile, native, Workload::Open(Box::new(load)), None);
        let outcome = run(job, &mut seen).unwrap();
        let frequency = seen.0.last().unwrap().groups[0].frequency.unwrap();
        (
            outcome.energy.cpu.0 / outcome.span.seconds(),
            frequency / profile.topology().max_frequency(),
        )
    };
    let [(calm, low), (all, high)] =
        [Governor::Schedutil, Governor::Performance].map(|of| outcome(of, 100_000.0));
    assert!(low < 0.6 && high == 1.0, "at {low} and {high} of the highest frequency");
    assert!(calm < all, "{calm} W, {all} W with performance");
    let busy = outcome(Governor::Schedutil, 1_500.0);
    assert!(busy.1 > low, "{busy:?} under load");
}
