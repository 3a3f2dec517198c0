//! PACER, PACMAN and EADC on one server: together they are no worse than each alone.
//!
//! The server has everything that they own: cores that poll, cores for jobs on the same sockets,
//! drives with caps, fans, heat. Each load runs under each policy alone and under all their
//! combinations; whoever leaves the fans alone runs beside `dlb`, the default board, since without
//! it the fans would be compared and not the policies.
//!
//! Margins, and where they come from. Compared are sums over three seeds.
//!
//! * **Energy 1 %** over the best of the others, and over what the savings of each alone multiply
//!   to. Under the hot inlet the same policy differs by 1.2 % from seed to seed.
//! * **Latency 3 %** over `plf`, as in `policies/pacer.rs`: windows of 40 s against PACER's of 5 s.
//!   PACER promises a loss over the server without PACER, so the same policies without it are the
//!   reference: caps cost latency too, whoever steers the cores. Where the load jumps PACER alone
//!   loses more than `plf` (docs/policies/pacer.md); together it may lose no more than that.
//! * **Jobs 1 %** of their time more than under `eadc` alone, which deals it out: alone it differs
//!   by that much from seed to seed.
//! * The budget and the red line hold without a margin.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::common::{Chain, Poisson, changed, compute, curve, job, seeds, side_by_side};
use ebb_policy::registry::{ENTRIES, Settings, make};
use ebb_policy::units::{Celsius, Hertz, Nanos, Watts};
use ebb_policy::{Cycled, Decision, Limits, QosClass};
use ebb_trace::generate::Job;
use ebb_trace::{Source, Workload, transform};
use ebb_twin::{Observer, Outcome, Profile, Run, Sample, run};

const PLF: f64 = 0.2;
/// Of 8 drives with caps from 9 to 25 W.
const BUDGET: Watts = Watts(100.0);
const ENERGY_MARGIN: f64 = 0.01;
const LATENCY_MARGIN: f64 = 0.03;
const JOB_MARGIN: f64 = 0.01;
/// Time for PACER's first dozen steps, or for the heat sinks to get warm; end of what is counted.
const COOL: (u64, u64) = (60, 180);
const WARM: (u64, u64) = (480, 960);
const TURN: Nanos = Nanos::from_secs(20);
/// The cores are slowed down by this much, and get that much less to do: tests have no time for
/// the requests that would keep them busy.
const SLOWER: f64 = 8.0;

const SSD: &str = "pm1743";
const HDD: &str = "es3-4tb";
/// All combinations; the first ones are each alone.
const ALONE: [&str; 3] = ["pacer+dlb", "pacman+dlb", "eadc"];
const PAIRS: [&str; 3] = ["pacer+pacman+dlb", "pacer+eadc", "pacman+eadc"];
const TRIO: &str = "pacer+pacman+eadc";

fn server(inlet: &str, drives: &str) -> Profile {
    let changes = [
        ("model = \"pm1743\"", &*format!("model = \"{drives}\"")),
        // The drives start as warm as the air.
        ("start = \"35 C\"", "start = \"40 C\""),
        ("inlet = \"25 C\"", &format!("inlet = \"{inlet}\"")),
    ];
    let mut profile = changed("converged-1u", &changes);
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
        let (bytes, reads) = if turn.is_multiple_of(2) { (8 << 10, 0.7) } else { (256 << 10, 0.2) };
        let turned = requests(10e3, bytes, reads, seed * 1000 + turn);
        let turned = transform::cut(turned, Nanos::ZERO, TURN).unwrap();
        Box::new(transform::shift(turned, Nanos(TURN.0 * turn))) as Box<dyn Source>
    };
    Workload::Open(Box::new(Chain((0..WARM.1 / 20).map(turn).collect())))
}

/// Random reads for disks.
fn scattered(seed: u64) -> Workload {
    Workload::Open(Box::new(requests(250.0 * SLOWER, 64 << 10, 0.9, seed)))
}

/// Computing without end.
fn jobs(count: usize) -> Vec<Job> {
    let (class, clock) = (QosClass::Sensitive, Hertz(2.8e9));
    vec![Job { class, clock, fixed: 0.2, ..compute(3600) }; count]
}

/// Who decided what.
#[derive(Default)]
struct Owners {
    foreign: Vec<Decision>,
}

impl Owners {
    fn decided(&mut self, decision: Decision) {
        let by = decision.reason.split(':').next().unwrap();
        let owner = ENTRIES.iter().find(|entry| entry.name == by);
        let owns = owner.is_some_and(|entry| entry.owns.contains(&decision.control));
        if !owns && by != "guard" && by != "sspc" {
            self.foreign.push(decision);
        }
    }
}

impl Observer for Owners {
    fn opened(&mut self, cycled: &Cycled<'_>) {
        cycled.decisions().for_each(|decision| self.decided(decision));
    }
    fn sample(&mut self, sample: &Sample<'_>) {
        self.opened(&sample.cycled);
    }
}

struct Scene {
    name: &'static str,
    drives: &'static str,
    inlet: &'static str,
    load: fn(u64) -> Workload,
    jobs: usize,
    seconds: (u64, u64),
    /// Seeds in the check; `./campaign` has more.
    seeds: u64,
}

impl Scene {
    fn run(&self, policy: &str, seed: u64) -> Outcome {
        let profile = server(self.inlet, self.drives);
        let curve = (self.drives == HDD).then(curve);
        let settings =
            Settings { plf: PLF, ssd_budget: Some(BUDGET), curve, ..Settings::default() };
        let policy = make(policy, &profile.topology(), &settings).unwrap();
        let job = Run {
            limits: Limits { ssd_budget: Some(BUDGET), ..Limits::default() },
            ssd_budget: Some(BUDGET),
            jobs: jobs(self.jobs),
            warmup: Nanos::from_secs(self.seconds.0),
            seed,
            ..job(&profile, policy, (self.load)(seed), Some(Nanos::from_secs(self.seconds.1)))
        };
        let mut owners = Owners::default();
        let outcome = run(job, &mut owners).unwrap();
        assert_eq!(owners.foreign, [], "{}", self.name);
        outcome
    }

    fn seeds(&self) -> Range<u64> {
        seeds(1..1 + self.seeds)
    }

    /// The sums over the seeds, by policy.
    fn sums(&self) -> BTreeMap<&'static str, Sum> {
        let names = ["dlb"].into_iter().chain(ALONE).chain(PAIRS).chain([TRIO]);
        let runs: Vec<_> =
            names.flat_map(|name| self.seeds().map(move |seed| (name, seed))).collect();
        let done = side_by_side(&runs, |(name, seed)| Sum::of(&self.run(name, *seed)));
        let mut sums = BTreeMap::new();
        for ((name, _), sum) in runs.into_iter().zip(done) {
            sums.entry(name).and_modify(|all: &mut Sum| *all = all.add(sum)).or_insert(sum);
        }
        println!("{}: {sums:#?}", self.name);
        sums
    }

    fn holds(&self) {
        let sums = self.sums();
        let (trio, dlb, name) = (sums[TRIO], sums["dlb"], self.name);
        for other in ALONE.iter().chain(&PAIRS) {
            let ratio = trio.joules / sums[other].joules;
            assert!(ratio <= 1.0 + ENERGY_MARGIN, "{name}: {ratio} of the energy of {other}");
        }
        // Nobody undoes another's saving: together they save what each saves alone.
        let alone: f64 = ALONE.iter().map(|one| sums[one].joules / dlb.joules).product();
        let fight = trio.joules / dlb.joules / alone;
        assert!(fight <= 1.0 + ENERGY_MARGIN, "{name}: {fight} of what each saves alone");
        let loss = |with, without| sums[with].latency / sums[without].latency - 1.0;
        let most = PLF.max(loss("pacer+dlb", "dlb")) + LATENCY_MARGIN;
        for (with, without) in [("pacer+eadc", "eadc"), (TRIO, "pacman+eadc")] {
            let loss = loss(with, without);
            assert!(loss <= most, "{name}: {with} loses {loss}, alone {most}");
        }
        assert!(trio.capped <= BUDGET, "{name}: {}", trio.capped);
        assert_eq!(trio.over_budget, Nanos::ZERO, "{name}");
        assert!(trio.hottest < Celsius(95.0), "{name}: {}", trio.hottest);
        let jobs = (self.seeds().count() * self.jobs) as f64 * self.seconds.1 as f64;
        let most = sums["eadc"].held_back + JOB_MARGIN * jobs;
        assert!(trio.held_back <= most, "{name}: jobs lose {} s, not {most} s", trio.held_back);
    }
}

/// What runs with several seeds came to.
#[derive(Debug, Clone, Copy)]
struct Sum {
    joules: f64,
    /// Sum of the mean latencies, in ns.
    latency: f64,
    hottest: Celsius,
    capped: Watts,
    over_budget: Nanos,
    /// Seconds that the jobs lost to shares and frequencies.
    held_back: f64,
}

impl Sum {
    fn of(run: &Outcome) -> Self {
        Self {
            joules: run.energy.total().0,
            latency: run.mean_latency(),
            hottest: run.thermal.unwrap().hottest_socket,
            capped: run.most_capped,
            over_budget: run.over_budget,
            held_back: run.jobs.iter().map(|job| job.throttled.seconds()).sum(),
        }
    }

    fn add(self, other: Self) -> Self {
        Self {
            joules: self.joules + other.joules,
            latency: self.latency + other.latency,
            hottest: self.hottest.max(other.hottest),
            capped: self.capped.max(other.capped),
            over_budget: self.over_budget + other.over_budget,
            held_back: self.held_back + other.held_back,
        }
    }
}

const STEADY: Scene = Scene {
    name: "steady",
    drives: SSD,
    inlet: "25 C",
    load: steady,
    jobs: 18,
    seconds: COOL,
    seeds: 3,
};
const BURSTS: Scene = Scene {
    name: "bursts",
    drives: SSD,
    inlet: "25 C",
    load: bursts,
    jobs: 18,
    seconds: COOL,
    seeds: 3,
};
/// So hot that fans by the sensors alone come too late: the hardware throttles under `dlb`.
const HOT: Scene = Scene {
    name: "hot inlet",
    drives: SSD,
    inlet: "40 C",
    load: bursts,
    jobs: 24,
    seconds: WARM,
    seeds: 1,
};
/// Hard disks, which fans shake, at about a third of what they can do.
const DISKS: Scene = Scene {
    name: "disks",
    drives: HDD,
    inlet: "32 C",
    load: scattered,
    jobs: 22,
    seconds: WARM,
    seeds: 1,
};

#[test]
fn under_a_steady_load() {
    STEADY.holds();
}

#[test]
fn under_bursts_of_writes() {
    BURSTS.holds();
}

#[test]
fn with_disks() {
    DISKS.holds();
}

#[test]
fn with_a_hot_inlet() {
    HOT.holds();
}
