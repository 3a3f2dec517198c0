//! The estimate against the truth: servers of the twin run natively, with a host's senses; what
//! `ebb run` would say of a policy that it only watches, beside what that policy saves there.

use std::env;

use ebb_policy::registry::{Settings, make};
use ebb_policy::units::Nanos;
use ebb_policy::{Cycle, Limits};
use ebb_trace::generate::{Overrides, Rate, WorkloadSpec, load};
use ebb_twin::profile::Governor;
use ebb_twin::{AsHost, Observer, Outcome, Run, Sample};

use super::*;
use crate::server::Server;

/// Servers of unlike power: of three the cores poll, of one PACER has nothing to spare.
const SERVERS: [&str; 6] =
    ["generic-1u", "dorado-6000", "asg-1115s", "pass-10", "converged-1u", "silver-980pro"];
const LENGTH: Nanos = Nanos::from_secs(10);

/// A load, by its share of the most that the server does of it.
struct Load {
    name: String,
    spec: WorkloadSpec,
    pressure: f64,
}

/// Steady, bursty, small and large, light and heavy.
fn loads() -> Vec<Load> {
    let open = |name: String, access: &str, shape: &str, pressure: f64| {
        let text = format!(
            "name = \"{name}\"\n[[arrivals]]\nname = \"{name}\"\nrate = \"1000 IOPS\"\n\
             gaps = \"exponential\"\nstreams = 64\naccess = {{ {access} }}\n{shape}"
        );
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("load.toml");
        std::fs::write(&file, text).unwrap();
        Load { name, spec: load(file).unwrap(), pressure }
    };
    let small = "block = \"8 KiB\", read = 0.7";
    let steady = [0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7];
    let steady = steady.map(|p| open(format!("steady-{p}"), small, "", p));
    let bursts =
        [(3.0, 9.0, 0.1), (3.0, 9.0, 0.3), (3.0, 9.0, 0.6), (0.5, 1.5, 0.2), (0.5, 1.5, 0.5)];
    let bursts = bursts.map(|(on, off, p)| {
        let shape = format!(
            "[arrivals.shape.on-off]\non = \"{on} s\"\noff = \"{off} s\"\nfloor = \"10 %\"\n\
             spread = \"60 %\"\n"
        );
        open(format!("bursts-{on}-{off}-{p}"), small, &shape, p)
    });
    let writes = [0.05, 0.2, 0.5];
    let writes =
        writes.map(|p| open(format!("writes-{p}"), "block = \"4 KiB\", read = 0.0", "", p));
    let large = [0.1, 0.3];
    let large = large.map(|p| open(format!("large-{p}"), "block = \"128 KiB\", read = 0.9", "", p));
    let reads = [0.1, 0.4];
    let reads = reads.map(|p| open(format!("reads-{p}"), "block = \"4 KiB\", read = 1.0", "", p));
    steady.into_iter().chain(bursts).chain(writes).chain(large).chain(reads).collect()
}

/// What was sensed in each period.
#[derive(Default)]
struct Seen(Vec<Signals>);

impl Observer for Seen {
    fn sample(&mut self, sample: &Sample<'_>) {
        self.0.push(sample.cycled.signals.clone());
    }
}

fn run(server: &Server, spec: &WorkloadSpec, policy: &str, length: Nanos) -> (Seen, Outcome) {
    let settings = Settings { plf: 0.2, ..Settings::default() };
    let mut seen = Seen::default();
    let policy = make(policy, &server.topology, &settings).unwrap();
    let workload = spec.build(&server.context(spec, 1)).unwrap();
    let job = Run {
        duration: Some(length),
        senses: Some(AsHost::default()),
        ..Run::of(&server.profile, policy, workload, 1)
    };
    let outcome = ebb_twin::run(job, &mut seen).unwrap();
    (seen, outcome)
}

fn schedutil(topology: &Topology) -> Governed<'static> {
    let lowest = topology.frequencies[0];
    Governed { governor: "schedutil", driver: "acpi-cpufreq", lowest }
}

/// The machine of an observer: what was sensed natively, period by period.
struct Replayed<'a> {
    seen: std::slice::Iter<'a, Signals>,
    topology: &'a Topology,
    natively: Vec<Option<Runs>>,
}

impl Plant for Replayed<'_> {
    fn sense(&mut self, signals: &mut Signals) {
        let in_force = std::mem::replace(&mut signals.in_force, InForce::new(self.topology));
        *signals = Signals { in_force, ..self.seen.next().unwrap().clone() };
        self.natively = imagine(signals, self.topology, |_| Some(schedutil(self.topology)));
    }
    fn apply(&mut self, _: &InForce, _: &mut Applied) {}
}

/// What is printed of `policy` by who watches it and by who acts, and what it saves.
fn told_and_true(server: &Server, spec: &WorkloadSpec, policy: &str) -> ([[Watts; 2]; 2], Watts) {
    let (seen, native) = run(server, spec, "native", LENGTH);
    let settings = Settings { plf: 0.2, ..Settings::default() };
    let policy_watched = make(policy, &server.topology, &settings).unwrap();
    let mut cycle = Cycle::new(&server.topology, policy_watched, Limits::default());
    let mut plant =
        Replayed { seen: seen.0.iter(), topology: &server.topology, natively: Vec::new() };
    let core = Core::new(&server.profile);
    let found = |_| Some(schedutil(&server.topology));
    let (mut watched, mut acted) = (Saved::default(), Saved::default());
    for _ in &seen.0 {
        let cycled = cycle.step(&mut plant);
        watched.add(&core, &server.topology, &plant.natively, found, cycled.signals);
    }
    let (seen, acting) = run(server, spec, policy, LENGTH);
    for signals in &seen.0 {
        acted.add(&core, &server.topology, &[], found, signals);
    }
    let cpu = |outcome: &Outcome| outcome.energy.cpu / LENGTH;
    ([watched.range(true), acted.range(false)].map(Option::unwrap), cpu(&native) - cpu(&acting))
}

/// How often the truth was in the range, of how many, and how wide these are beside their middle.
#[derive(Default)]
struct Held {
    is: usize,
    of: usize,
    half_widths: Vec<f64>,
}

impl Held {
    /// As it is printed, to a tenth.
    fn add(&mut self, [least, most]: [Watts; 2], is: Watts) {
        let half = Watts(0.05);
        self.is += usize::from(least - half <= is && is <= most + half);
        self.of += 1;
        if (most + least).0 > 0.1 {
            self.half_widths.push((most - least) / (most + least));
        }
    }
}

#[test]
fn what_is_printed_holds() {
    // In the check a few loads of one server; with EBB_SHADOW all of them, or of the servers named.
    let named = env::var("EBB_SHADOW").ok();
    let (all, named) = (named.is_some(), named.unwrap_or_else(|| SERVERS[0].to_owned()));
    let servers = SERVERS.iter().filter(|name| named == "all" || named.contains(**name));
    assert!(servers.clone().count() > 0, "EBB_SHADOW={named} names none of {SERVERS:?}");
    let (mut wrong, mut half_widths) = (Vec::new(), [vec![], vec![]]);
    for name in servers {
        let mut server = Server::load(name).unwrap();
        server.profile.cpu.governor = Governor::Schedutil;
        let mut held = [Held::default(), Held::default()];
        let light = |load: &Load| all || load.pressure <= 0.02;
        for Load { name: of, spec, pressure } in loads().into_iter().filter(light) {
            let (_, full) = run(&server, &spec.clone().saturating(), "native", Nanos::from_secs(1));
            let rate = Some(Rate::Iops(full.iops() * pressure));
            let spec = spec.with(&Overrides { rate, ..Default::default() }).unwrap();
            let (told, is) = told_and_true(&server, &spec, "pacer");
            for (held, told) in held.iter_mut().zip(told) {
                held.add(told, is);
            }
            let [would, has] =
                told.map(|[least, most]| format!("{:.1} to {:.1} W", least.0, most.0));
            ebb_cli::out::note(format_args!(
                "{name:14} {of:20} would save {would}; saves {:.2} W; has saved {has}",
                is.0
            ));
        }
        for ((who, held), wide) in ["watches", "acts"].iter().zip(held).zip(&mut half_widths) {
            let Held { is, of, half_widths } = held;
            ebb_cli::out::note(format_args!("{name}: of a policy that {who}, {is} of {of} hold"));
            wide.extend(half_widths);
            if is * 20 < of * 17 {
                wrong.push((name, *who));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    let half_widths = half_widths.map(median);
    ebb_cli::out::note(format_args!("half-widths, in the median: {half_widths:.2?}"));
    assert!(named != "all" || half_widths.iter().all(|median| *median <= 0.3), "{half_widths:?}");
}

fn median(mut of: Vec<f64>) -> f64 {
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or_default()
}
