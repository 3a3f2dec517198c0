//! PACER, PACMAN and EADC on one server: together they are no worse than each alone.
//!
//! The server has everything that they own: cores that poll, cores for jobs on the same sockets,
//! drives with caps, fans, heat. Each load runs under each policy alone and under all their
//! combinations; whoever leaves the fans alone runs beside `dlb`, the default board, since without
//! it the fans would be compared and not the policies.
//!
//! Margins, and where they come from:
//!
//! * **Energy 1 %** over the best of the others. A policy changes when and how often another one
//!   acts: PACER's steps are whole cores, taken by windows of 200 requests.
//! * **Latency 3 %** over `plf`, as in `policies/pacer.rs`: windows of 40 s against PACER's of 5 s.
//!   PACER promises a loss over the server without PACER, so the same policies without it are the
//!   reference: caps cost latency too, whoever steers the cores. Where the load jumps PACER alone
//!   loses more than `plf` (docs/policies/pacer.md); together it may lose no more than that.
//! * Budget, red line and the jobs' time are promises of one policy, which the others must not
//!   break: no margin, but 0.1 % of the jobs' time for what slices round.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;

use common::{Chain, Poisson, job};
use ebb_policy::registry::{ENTRIES, Owned, Settings, make};
use ebb_policy::units::{Celsius, Hertz, Nanos, Watts};
use ebb_policy::{ControlName, Decision, Limits, QosClass};
use ebb_trace::generate::Job;
use ebb_trace::{Source, Workload, transform};
use ebb_twin::{Observer, Outcome, Profile, Run, run};

const PLF: f64 = 0.2;
/// Of 8 drives with caps from 9 to 25 W.
const BUDGET: Watts = Watts(100.0);
const ENERGY_MARGIN: f64 = 0.01;
const LATENCY_MARGIN: f64 = 0.03;
const JOB_MARGIN: f64 = 0.001;
/// Time for the drives' and PACER's first dozen steps, and time that is counted.
const SETTLED: Nanos = Nanos::from_secs(60);
const END: Nanos = Nanos::from_secs(180);
const TURN: Nanos = Nanos::from_secs(20);
/// The cores are slowed down by this much, and get that much less to do: tests have no time for
/// the requests that would keep them busy.
const SLOWER: f64 = 8.0;

/// All combinations; the first ones are each alone.
const ALONE: [&str; 3] = ["pacer+dlb", "pacman+dlb", "eadc"];
const PAIRS: [&str; 3] = ["pacer+pacman+dlb", "pacer+eadc", "pacman+eadc"];
const TRIO: &str = "pacer+pacman+eadc";

fn server(inlet: &str) -> Profile {
    let text = Profile::shipped_text("converged-1u").unwrap();
    // The drives start as warm as the air.
    let text = text.replace("start = \"35 C\"", "start = \"40 C\"");
    let text = text.replace("inlet = \"25 C\"", &format!("inlet = \"{inlet}\""));
    let mut profile = Profile::parse(&text, "together").unwrap();
    for stage in &mut profile.stage {
        stage.read_cycles *= SLOWER;
        stage.write_cycles *= SLOWER;
        stage.cycles_per_kib *= SLOWER;
    }
    profile
}

/// Poisson requests of `bytes`, `iops` of the server before it was slowed down.
fn requests(iops: f64, bytes: u32, reads: f64, seed: u64) -> Poisson {
    Poisson::new(u64::MAX, 1e9 * SLOWER / iops, bytes, reads, 1).seeded(seed)
}

/// Small requests throughout: 15 % of what the cores can do.
fn steady(seed: u64) -> Workload {
    Workload::Open(Box::new(requests(15e3, 8 << 10, 0.7, seed)))
}

/// By turns 20 s of small requests and 20 s of as many large ones, mostly writes.
fn bursts(seed: u64) -> Workload {
    let turn = |turn: u64| {
        let (bytes, reads) = if turn % 2 == 0 { (8 << 10, 0.7) } else { (256 << 10, 0.2) };
        let turned = requests(10e3, bytes, reads, seed * 1000 + turn);
        let turned = transform::cut(turned, Nanos::ZERO, TURN).unwrap();
        Box::new(transform::shift(turned, Nanos(TURN.0 * turn))) as Box<dyn Source>
    };
    Workload::Open(Box::new(Chain((0..END.0 / TURN.0).map(turn).collect())))
}

/// Computing without end.
fn jobs(count: usize) -> Vec<Job> {
    let cpu = Nanos::from_secs(3600);
    let job = Job {
        name: "compute".to_owned(),
        class: QosClass::Sensitive,
        socket: None,
        start: Nanos::ZERO,
        cpu,
        clock: Hertz(2.8e9),
        fixed: 0.2,
        activity: 1.0,
        io: None,
        objective: None,
    };
    vec![job; count]
}

/// Who decided what.
#[derive(Default)]
struct Owners {
    foreign: Vec<Decision>,
}

fn owned(control: ControlName) -> Owned {
    match control {
        ControlName::ActiveCores(_) => Owned::ActiveCores,
        ControlName::Frequency(_) => Owned::Frequency,
        ControlName::PowerState(_) => Owned::PowerStates,
        ControlName::Background => Owned::Background,
        ControlName::FanDuty(_) => Owned::Fans,
        ControlName::FrequencyCap(_) => Owned::FrequencyCaps,
        ControlName::JobShare(_) => Owned::JobShares,
        ControlName::JobSocket(_) => Owned::JobSockets,
        ControlName::Admit(_) => Owned::Admission,
    }
}

impl Observer for Owners {
    fn decision(&mut self, decision: &Decision) {
        let by = decision.reason.split(':').next().unwrap();
        let owner = ENTRIES.iter().find(|entry| entry.name == by);
        let owns = owner.is_some_and(|entry| entry.owns.contains(&owned(decision.control)));
        if !owns && by != "guard" && by != "sspc" {
            self.foreign.push(*decision);
        }
    }
}

struct Scene {
    name: &'static str,
    inlet: &'static str,
    load: fn(u64) -> Workload,
    jobs: usize,
}

impl Scene {
    fn run(&self, policy: &str, seed: u64) -> Outcome {
        let profile = server(self.inlet);
        let settings = Settings { plf: PLF, ssd_budget: Some(BUDGET), ..Settings::default() };
        let policy = make(policy, &profile.topology(), &settings).unwrap();
        let job = Run {
            limits: Limits { ssd_budget: Some(BUDGET), ..Limits::default() },
            ssd_budget: Some(BUDGET),
            jobs: jobs(self.jobs),
            warmup: SETTLED,
            seed,
            ..job(&profile, policy, (self.load)(seed), Some(END))
        };
        let mut owners = Owners::default();
        let outcome = run(job, &mut owners).unwrap();
        assert_eq!(owners.foreign, [], "{}", self.name);
        outcome
    }

    fn holds(&self, seed: u64) {
        let names = ["dlb"].iter().chain(&ALONE).chain(&PAIRS).chain([&TRIO]);
        let runs: BTreeMap<&str, Outcome> =
            names.map(|name| (*name, self.run(name, seed))).collect();
        for (name, run) in &runs {
            let heat = run.thermal.unwrap();
            println!(
                "{} {seed} {name}: {:.2} kJ, {:.0} us, {:.1} °C, {} capped, {} throttled",
                self.name,
                run.energy.total().0 / 1e3,
                run.mean_latency() / 1e3,
                heat.hottest_socket.0,
                run.most_capped,
                held_back(run),
            );
        }
        let trio = &runs[TRIO];
        for name in ALONE.iter().chain(&PAIRS) {
            let ratio = trio.energy.total().0 / runs[name].energy.total().0;
            assert!(ratio <= 1.0 + ENERGY_MARGIN, "{} {seed}: {ratio} of {name}", self.name);
        }
        let loss = |with, without| runs[with].mean_latency() / runs[without].mean_latency() - 1.0;
        let most = PLF.max(loss("pacer+dlb", "dlb")) + LATENCY_MARGIN;
        for (with, without) in [("pacer+eadc", "eadc"), (TRIO, "pacman+eadc")] {
            let loss = loss(with, without);
            assert!(loss <= most, "{} {seed}: {with} loses {loss}, alone {most}", self.name);
        }
        self.promises(seed, &runs);
    }

    /// What one policy keeps alone is kept by all together.
    fn promises(&self, seed: u64, runs: &BTreeMap<&str, Outcome>) {
        let (trio, name) = (&runs[TRIO], self.name);
        assert!(trio.most_capped <= BUDGET, "{name} {seed}: {}", trio.most_capped);
        assert_eq!(trio.over_budget, Nanos::ZERO, "{name} {seed}");
        let heat = |name: &str| runs[name].thermal.unwrap();
        assert!(heat(TRIO).hottest_socket < Celsius(95.0), "{name} {seed}");
        let emergency = |name: &&str| heat(name).socket_throttled;
        assert!(emergency(&TRIO) <= ALONE.iter().map(emergency).max().unwrap());
        let all = self.jobs as f64 * (END - SETTLED).seconds();
        let least = ALONE.iter().map(|name| held_back(&runs[name]).seconds());
        let most = least.fold(f64::INFINITY, f64::min) + JOB_MARGIN * all;
        let held = held_back(trio);
        assert!(held.seconds() <= most, "{name} {seed}: jobs held back for {held}, not {most} s");
    }
}

/// Time that the jobs lost to shares and frequencies.
fn held_back(run: &Outcome) -> Nanos {
    run.jobs.iter().fold(Nanos::ZERO, |sum, job| sum + job.throttled)
}

const STEADY: Scene = Scene { name: "steady", inlet: "25 C", load: steady, jobs: 18 };
const BURSTS: Scene = Scene { name: "bursts", inlet: "25 C", load: bursts, jobs: 18 };
/// Hot enough that not even full fans hold the set point with every job at work.
const HOT: Scene = Scene { name: "hot inlet", inlet: "40 C", load: bursts, jobs: 24 };

#[test]
fn under_a_steady_load() {
    [1, 2].into_iter().for_each(|seed| STEADY.holds(seed));
}

#[test]
fn under_bursts_of_writes() {
    [1, 2].into_iter().for_each(|seed| BURSTS.holds(seed));
}

#[test]
fn with_a_hot_inlet() {
    [1, 2].into_iter().for_each(|seed| HOT.holds(seed));
}
