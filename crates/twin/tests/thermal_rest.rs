//! Rest and return of the whole server: at a steady load the fans come to rest, and when faults
//! end the server is back at what it is without them.

use crate::common::{Clients, curve, heaters, hot_requests, job, side_by_side, sway, swing};
use ebb_policy::registry::{Settings, make};
use ebb_policy::units::Nanos;
use ebb_trace::{Op, Workload};
use ebb_twin::faults::Faults;
use ebb_twin::{Observer, Profile, Run, Sample, run};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

/// Profiles, and how many jobs or, on the first one, hot requests at a time they have: a load that
/// needs fans between least and full. On the last, all cores and more: EADC has to throttle.
const SERVERS: [(&str, u16); 5] =
    [("thermal-1u", 40), ("eadc-e6", 14), ("eadc-e4", 12), ("backup-36", 22), ("backup-36", 26)];
const FIRST: &str = SERVERS[0].0;

/// `thermal-1u` has no cores for jobs: requests make its heat.
fn server(name: &str) -> Profile {
    if name == FIRST { hot_requests("10 W", &[]) } else { Profile::load(name).unwrap() }
}

/// What was seen of each period.
#[derive(Default)]
struct Watch {
    duties: Vec<f64>,
    requests: Vec<f64>,
    latency: Vec<f64>,
    /// Cores' worth of work of all jobs.
    work: Vec<f64>,
    /// The hottest that a drive was, °C.
    drives: f64,
    /// When the guard last changed something.
    guarded: Nanos,
}

impl Observer for Watch {
    fn sample(&mut self, sample: &Sample<'_>) {
        let signals = sample.cycled.signals;
        if sample.cycled.in_force.held().next().is_some() {
            self.guarded = signals.now;
        }
        let fans = &signals.cooling.fans;
        self.duties.push(fans.iter().map(|fan| fan.duty.unwrap()).sum::<f64>() / fans.len() as f64);
        self.requests.push(signals.io.completed.unwrap() as f64);
        self.latency.push(signals.io.mean_latency.map_or(0.0, |latency| latency.seconds()));
        let drives = sample.weather.unwrap().drives.iter().map(|drive| drive.0);
        self.drives = drives.fold(self.drives, f64::max);
        self.work.push(signals.jobs.iter().filter(|job| job.present).map(|job| job.cpu).sum());
    }
}

fn watched((name, load): (&str, u16), policy: &str, seconds: u64, faults: Option<Faults>) -> Watch {
    let profile = server(name);
    let settings = Settings { curve: Some(curve()), ..Settings::default() };
    let policy = make(policy, &profile.topology(), &settings).unwrap();
    let (clients, jobs) = if name == FIRST { (load, 0) } else { (1, load) };
    let (slots, random) = (clients.into(), Pcg64Mcg::seed_from_u64(1));
    let clients = Clients { slots, bytes: 4096, op: Op::Read, devices: 1, random };
    let workload = Workload::Closed(Box::new(clients));
    let mut watch = Watch::default();
    let end = Some(Nanos::from_secs(seconds));
    let job = Run { jobs: heaters(jobs), faults, ..job(&profile, policy, workload, end) };
    run(job, &mut watch).unwrap_or_else(|error| panic!("{name}: {error}"));
    watch
}

/// The last `seconds`.
fn last(values: &[f64], seconds: usize) -> &[f64] {
    &values[values.len() - 2 * seconds..]
}

/// The bounds of `docs/policies/eadc.md`: how far duties go to and fro, and turns in ten minutes.
const BOUNDS: [(&str, f64, usize); 5] = [
    ("dlb", 0.03, 15),
    ("dtm", 0.03, 15),
    ("jetc", 0.03, 15),
    ("eadc", 0.15, 30),
    ("eadc-plus", 0.15, 30),
];

/// How far they may creep in these ten minutes, one way: drives warm for most of an hour.
const CREEP: f64 = 0.45;

/// `check` of every server under every policy, with its bounds.
fn each<P: Copy + Sync, S: Copy + Sync>(
    servers: &[S],
    policies: &[P],
    check: impl Fn(S, P) + Sync,
) {
    let all = servers.iter().flat_map(|server| policies.iter().map(|policy| (*server, *policy)));
    side_by_side(&all.collect::<Vec<_>>(), |(server, policy)| check(*server, *policy));
}

#[test]
fn at_a_steady_load_the_fans_come_to_rest() {
    each(&SERVERS, &BOUNDS, |server, (policy, most, often)| {
        let watch = watched(server, policy, 2100, None);
        let duties = last(&watch.duties, 600);
        let ((range, turns), sway) = (swing(duties), sway(duties));
        let what = format!("{server:?} {policy}: {range}, to and fro {sway}, {turns} turns");
        assert!(range <= CREEP && sway <= most && turns <= often, "{what}");
        let duty = watch.duties.last().unwrap();
        assert!((0.21..0.99).contains(duty), "{what}: {duty} is a bound");
    });
}

/// Disks that need more air than the processors, warm after most of an hour. The fans then follow
/// their balance, or where a policy sees no drives the guard's step by step.
#[test]
fn warm_drives_do_not_make_the_fans_swing() {
    let servers = [("eadc-q", 10), ("eadc-e6", 2), ("eadc-e4", 6)];
    each(&servers, &BOUNDS, |server, (policy, most, often)| {
        let (most, often) = if policy.starts_with("eadc") { (most, often) } else { (0.25, 45) };
        let watch = watched(server, policy, 6000, None);
        let (swing, turns) = swing(last(&watch.duties, 600));
        let what = format!("{server:?} {policy}");
        assert!(swing <= most && turns <= often, "{what}: {swing}, {turns} turns");
        assert!(watch.drives > 55.0, "{what}: no warm drives, {} °C", watch.drives);
        // A policy that sees them has its air up before one is at its limit of 60 °C.
        assert!(!policy.starts_with("eadc") || watch.drives < 60.0, "{what}: {}", watch.drives);
    });
}

/// Within five minutes the guard is silent, and from then on work and latency are those of the same
/// run without faults; EADC's fans may still be on their way to its optimum.
#[test]
fn when_faults_end_the_server_is_as_if_there_had_been_none() {
    let until = Nanos::from_secs(240);
    each(&SERVERS, &["dlb", "jetc", "eadc", "eadc-plus", "native"], |server, policy| {
        let free = watched(server, policy, 660, None);
        for seed in 0..2 {
            let faults = Faults::seeded(seed).until(Some(until));
            let watch = watched(server, policy, 660, Some(faults));
            let what = format!("{server:?} {policy}, seed {seed}");
            let silent = watch.guarded;
            assert!(silent <= until + Nanos::from_secs(300), "{what}: guard at {silent}");
            let mean = |values: &[f64]| last(values, 120).iter().sum::<f64>() / 240.0;
            let (duty, usual) = (mean(&watch.duties), mean(&free.duties));
            assert!((duty - usual).abs() < 0.25, "{what}: duty {duty}, without {usual}");
            let off = |a: &[f64], b: &[f64]| (mean(a) - mean(b)).abs() / mean(b).max(1e-9);
            assert!(off(&watch.requests, &free.requests) <= 0.07, "{what}: requests");
            assert!(off(&watch.latency, &free.latency) <= 0.07, "{what}: latency");
            // Under a fan limit that it holds, near the set point any CPU cap will do.
            let most = if policy == "eadc" { 0.3 } else { 0.07 };
            assert!(off(&watch.work, &free.work) <= most, "{what}: work");
        }
    });
}
