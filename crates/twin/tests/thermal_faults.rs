//! Heat under injected faults and random load: the red line is crossed only where no fan could
//! prevent it. The hardware throttles by itself, as real processors do.
//!
//! ```text
//! EBB_SEEDS=20000..20100 cargo test --release -p ebb-twin --test all fresh_seeds -- \
//!     --ignored --nocapture
//! ```

use crate::common::{Held, compute, curve, hot_requests, job};
use ebb_policy::registry::{Settings, make};
use ebb_policy::sense::SET_POINT;
use ebb_policy::units::{Celsius, Nanos, Watts};
use ebb_policy::{Limits, Policy, QosClass};
use ebb_trace::generate::Job;
use ebb_trace::{Closed, Op, Request, Workload};
use ebb_twin::fan::Fan;
use ebb_twin::faults::{Fault, FaultEvent, Faults, Place};
use ebb_twin::thermal::{Air, Heat, Network, leakage};
use ebb_twin::{Observer, Profile, Run, Sample, run, run_to_trip};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// °C: 5 K above where the hardware throttles, 10 K below the trip.
const RED_LINE: f64 = 95.0;
/// Fans at full duty for this long have done what they can.
const DONE: Nanos = Nanos::from_secs(20);
const LENGTH: Nanos = Nanos::from_secs(150);
/// Kelvin below the red line at which fans in a steady state are said to hold it.
const MARGIN: f64 = 8.0;

/// `thermal-1u` with requests, cores, leakage and an inlet that bring it to its limits.
fn server() -> Profile {
    server_of("14 W")
}

/// The same whose cores draw so much each.
fn server_of(core: &str) -> Profile {
    let leaks = ("power = \"8 W\"", "power = \"14 W\"");
    hot_requests(core, &[leaks, ("inlet = \"25 C\"", "inlet = \"32 C\"")])
}

/// The same with hardware that does not throttle.
fn bare(core: &str) -> Profile {
    let mut profile = server_of(core);
    let emergency = &mut profile.thermal.as_mut().unwrap().emergency;
    (emergency.at, emergency.release) = (Celsius(149.0), Celsius(149.0));
    emergency.trip = Celsius(150.0);
    profile
}

/// Clients of which a random share is active, anew every few seconds.
struct Phases {
    random: Pcg64Mcg,
    /// Share of the clients active in each phase, over and over.
    shares: Vec<f64>,
}

impl Phases {
    const LENGTH: Nanos = Nanos::from_secs(7);

    fn new(seed: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let shares = (0..16).map(|_| random.random_range(0.0..1.0)).collect();
        Self { random, shares }
    }
}

impl Closed for Phases {
    fn slots(&self) -> u32 {
        48
    }
    fn next(&mut self, slot: u32, now: Nanos) -> Option<Request> {
        let phase = now.0 / Self::LENGTH.0;
        let share = self.shares[phase as usize % self.shares.len()];
        let active = f64::from(slot) < share * 48.0;
        let at = if active { now } else { Nanos((phase + 1) * Self::LENGTH.0) };
        let offset = self.random.random_range(0..1u64 << 28) * 4096;
        let (op, recorded_latency) = (Op::Read, None);
        Some(Request { at, offset, bytes: 4096, device: 0, op, stream: slot, recorded_latency })
    }
}

/// A server, and jobs that heat it beside the requests.
pub struct Case {
    pub profile: Profile,
    pub jobs: usize,
    pub budget: Option<Watts>,
}

impl Case {
    /// `thermal-1u`, whose requests are hot; its drives have caps.
    fn requests(profile: Profile) -> Self {
        Self { profile, jobs: 0, budget: Some(Watts(100.0)) }
    }

    /// A server with hard disks, in hot air; the cores that run jobs draw `dynamic` each.
    fn disks(name: &str, dynamic: &str, jobs: usize) -> Self {
        let text = Profile::shipped_text(name).unwrap();
        let (before, after) = text.split_once("core_dynamic = ").unwrap();
        let after = after.split_once('\n').unwrap().1;
        let text = format!("{before}core_dynamic = \"{dynamic}\"\n{after}");
        let text = text.replace("inlet = \"25 C\"", "inlet = \"35 C\"");
        let text = text.replace("start = \"35 C\"", "start = \"40 C\"");
        Self { profile: Profile::parse(&text, name).unwrap(), jobs, budget: None }
    }

    fn settings(&self) -> Settings {
        let curve = self.profile.model().filter(|_| self.jobs > 0).map(|_| curve());
        Settings { curve, ssd_budget: self.budget, ..Settings::default() }
    }

    fn policy(&self, name: &str) -> Box<dyn Policy> {
        make(name, &self.profile.topology(), &self.settings()).unwrap()
    }

    /// Random load and faults of `seed` under `policy`.
    fn run(&self, policy: Box<dyn Policy>, faults: Faults, seed: u64, limits: &Limits) -> Watch {
        let workload = Workload::Closed(Box::new(Phases::new(seed)));
        let limits = Limits { ssd_budget: self.budget, ..limits.clone() };
        let (jobs, ssd_budget, faults) = (self.jobs(seed), self.budget, Some(faults));
        let job = job(&self.profile, policy, workload, Some(LENGTH));
        watched(self, Run { faults, jobs, limits, ssd_budget, ..job })
    }

    /// Jobs that come and go at random.
    fn jobs(&self, seed: u64) -> Vec<Job> {
        let mut random = Pcg64Mcg::seed_from_u64(seed ^ 0x10B5);
        let job = |index| Job {
            class: QosClass::ALL[index % QosClass::ALL.len()],
            start: Nanos::from_millis(random.random_range(0..90_000)),
            ..compute(random.random_range(5..60))
        };
        (0..self.jobs).map(job).collect()
    }

    /// Whether so many fans at full speed would keep every die well below the red line for ever,
    /// every core busy at the frequency of the hardware's emergency.
    fn holds(&self, turning: usize) -> bool {
        let profile = &self.profile;
        let (thermal, fans) = (profile.thermal.as_ref().unwrap(), profile.fans.as_ref().unwrap());
        let all: Vec<_> = (0..usize::from(fans.count))
            .map(|fan| Fan::new(fans, if fan < turning { 1.0 } else { 0.0 }))
            .collect();
        let air = fans.airflow(&all);
        let air = Air::new(thermal.inlet.0, thermal.altitude_m, air, thermal.draught_m3_s);
        let (cpu, top) = (&profile.cpu, profile.cpu.frequencies.last().unwrap().0);
        let frequency = thermal.emergency.frequency.0 / top;
        let core = cpu.core_static.0 + cpu.core_dynamic.0 * frequency.powf(cpu.frequency_exponent);
        let cores = |socket: u16| -> u16 {
            let stages = profile.stage.iter().filter(|stage| stage.socket == Some(socket));
            let jobs = profile.jobs.iter().flat_map(|jobs| &jobs.cores);
            let jobs = jobs.filter(|group| group.socket == socket);
            stages.map(|s| s.cores).sum::<u16>() + jobs.map(|g| g.cores).sum::<u16>()
        };
        let uncore = cpu.uncore.0 / f64::from(profile.sockets());
        let voltage = leakage::voltage(frequency, cpu.frequency_exponent);
        let drives = vec![8.0; usize::from(profile.drives.count)];
        let blown = fans.spec().max_power.0 * turning as f64;
        let mut network = Network::new(thermal, drives.len());
        for _ in 0..400 {
            let sockets: Vec<_> = (0..profile.sockets())
                .zip(network.dies())
                .map(|(socket, die)| {
                    let leaks = thermal.leakage.power(die.min(150.0), voltage);
                    uncore + core * f64::from(cores(socket)) + leaks
                })
                .collect();
            network.settle(&air, &Heat { drives: &drives, fans: blown, sockets: &sockets });
        }
        network.dies().all(|die| die < RED_LINE - MARGIN)
    }
}

/// Watches die temperatures against what fans could do.
#[derive(Default)]
pub struct Watch {
    harmed: Vec<u16>,
    /// Whether the rest could hold the red line, by the number of harmed fans; of course, if empty.
    enough: Vec<bool>,
    /// When every unharmed fan last was below full duty, and when they last were too few.
    spared: Nanos,
    few: Option<Nanos>,
    pub violations: Vec<String>,
    /// The hottest die of those.
    crossed: f64,
    faults: Vec<(FaultEvent, bool)>,
    most_harmed: usize,
    hottest: f64,
    spent: Spent,
}

/// Seconds in which the guard had the red line, in which it did so with every die below the set
/// point, and in which the hardware throttled; energy of the fans, J.
#[derive(Debug, Default, Clone, Copy)]
struct Spent {
    red: f64,
    false_red: f64,
    throttled: f64,
    fans: f64,
}

impl Spent {
    fn add(&mut self, sample: &Sample<'_>) {
        let (weather, seconds) = (sample.weather.unwrap(), sample.length.seconds());
        let count = |so: bool| if so { seconds } else { 0.0 };
        let red = sample.cycled.in_force.held().any(|(_, _, reason)| reason == "guard:red-line");
        let cool = weather.sockets.iter().all(|die| *die <= SET_POINT);
        self.red += count(red);
        self.false_red += count(red && cool);
        self.throttled += count(weather.throttled.contains(&true));
        self.fans += weather.fans.0;
    }
}

impl Watch {
    /// Whether fans could have prevented what is the case now.
    fn preventable(&self, now: Nanos) -> bool {
        now.saturating_sub(self.spared) < DONE
            && self.few.is_none_or(|few| now.saturating_sub(few) >= DONE)
    }

    fn note(&mut self, now: Nanos, die: Celsius) {
        self.hottest = self.hottest.max(die.0);
        if die.0 >= RED_LINE && self.preventable(now) {
            self.crossed = self.crossed.max(die.0);
            let spared = self.spared;
            self.violations.push(format!("{die:.1} at {now}, fans spared at {spared}"));
        }
    }
}

impl Observer for Watch {
    fn fault(&mut self, event: &FaultEvent, begins: bool) {
        self.faults.push((*event, begins));
        let Some(fan) = event.fault.fan() else { return };
        if begins {
            self.harmed.push(fan);
        } else {
            self.harmed.retain(|harmed| *harmed != fan);
        }
        self.most_harmed = self.most_harmed.max(self.harmed.len());
        if self.enough.get(self.harmed.len()) == Some(&false) {
            self.few = Some(event.from);
        }
    }
    fn sample(&mut self, sample: &Sample<'_>) {
        let now = sample.cycled.signals.now;
        let weather = sample.weather.unwrap();
        for (fan, signal) in sample.cycled.signals.cooling.fans.iter().enumerate() {
            if !self.harmed.contains(&(fan as u16)) && signal.duty.unwrap() < 0.99 {
                self.spared = now;
            }
        }
        if self.enough.get(self.harmed.len()) == Some(&false) {
            self.few = Some(now);
        }
        for die in &weather.sockets {
            self.note(now, *die);
        }
        self.spent.add(sample);
    }
}

/// Never steps in for heat.
fn blind() -> Limits {
    Limits { emergency: Celsius(1e3), red_line: Celsius(1e3), ..Limits::default() }
}

/// What a run on `case` that may end in a trip came to.
pub fn watched(case: &Case, run: Run<'_>) -> Watch {
    let fans = usize::from(case.profile.fans.as_ref().unwrap().count);
    let enough = (0..=fans).map(|harmed| case.holds(fans - harmed)).collect();
    let mut watch = Watch { enough, ..Watch::default() };
    let outcome = run_to_trip(run, &mut watch).unwrap();
    // Where fans could not help the server may go off.
    if let Some(trip) = outcome.trip {
        watch.note(trip.at, trip.temperature);
    }
    watch
}

/// Under every policy that steers fans or cores with heat, and native: the firmware's own control.
const POLICIES: [&str; 7] = ["native", "dlb", "dtm", "jetc", "eadc", "eadc-plus", TRIO];
const TRIO: &str = "pacer+pacman+eadc";

/// What a campaign came to.
#[derive(Debug, Default)]
struct Told {
    runs: usize,
    faults: usize,
    most_harmed: usize,
    hottest: f64,
    crossed: f64,
    violations: Vec<String>,
    spent: Spent,
}

/// Runs every policy on `case` under the faults of `seeds`.
fn campaign(
    case: &Case,
    policies: &[&str],
    seeds: std::ops::Range<u64>,
    faults: fn(u64) -> Faults,
    limits: &Limits,
) -> Told {
    let mut told = Told::default();
    for seed in seeds {
        for name in policies {
            let policy = case.policy(name);
            let watch = case.run(policy, faults(seed), seed, limits);
            let (all, spent) = (&mut told.spent, watch.spent);
            all.red += spent.red;
            all.false_red += spent.false_red;
            all.throttled += spent.throttled;
            all.fans += spent.fans;
            told.runs += 1;
            told.hottest = told.hottest.max(watch.hottest);
            told.crossed = told.crossed.max(watch.crossed);
            told.faults += watch.faults.len();
            told.most_harmed = told.most_harmed.max(watch.most_harmed);
            if let Some(first) = watch.violations.first() {
                told.violations.push(format!("{name}, seed {seed}: {first}"));
            }
        }
    }
    told
}

type Draw = fn(u64) -> Faults;
const EXTENTS: [Draw; 2] = [Faults::seeded, Faults::wide];

/// Hardware as it is.
fn servers() -> [(Case, &'static [&'static str], u64); 3] {
    [
        (Case::requests(server()), &POLICIES, 12),
        (Case::disks("eadc-e6", "9 W", 40), &POLICIES, 4),
        (Case::disks("backup-36", "6 W", 60), &["native", "eadc", "eadc-plus", TRIO], 1),
    ]
}

fn every_server(seeds: impl Fn(u64) -> std::ops::Range<u64>) -> Vec<Told> {
    let mut all = Vec::new();
    for (case, policies, share) in servers() {
        for faults in EXTENTS {
            let told = campaign(&case, policies, seeds(share), faults, &Limits::default());
            assert!(told.violations.is_empty(), "{}: {told:?}", case.profile.name);
            all.push(told);
        }
    }
    all
}

#[test]
fn the_red_line_holds_while_a_fan_can_hold_it() {
    let told = every_server(|share| 0..share);
    // The campaigns were ones: they came to the hardware's limit, and broke nearly all fans.
    assert!(told.iter().all(|told| told.faults > 10), "{told:?}");
    let hottest = told.iter().map(|told| told.hottest).fold(0.0, f64::max);
    let harmed = told.iter().map(|told| told.most_harmed).max();
    assert!(hottest > 89.0 && harmed >= Some(5), "{told:?}");
}

/// Prints one line for each policy: docs/models/thermal.md has them.
fn print(what: &str, name: &str, told: &Told) {
    let Told { runs, violations, hottest, crossed, spent, .. } = told;
    let mean = |all: f64| all / *runs as f64;
    println!(
        "{what:24} {name:18} {} of {runs} over ({crossed:.1} °C), hottest {hottest:.1} °C; in a \
         run: red {:.1} s, below the set point {:.1} s, hardware throttled {:.1} s, fans {:.2} kJ",
        violations.len(),
        mean(spent.red),
        mean(spent.false_red),
        mean(spent.throttled),
        mean(spent.fans) / 1e3,
    );
}

/// Seeds by which nothing was chosen, on hardware as it is, with the guard and with it blind; and
/// where the hardware does not throttle.
#[test]
#[ignore = "minutes"]
fn fresh_seeds() {
    let seeds = std::env::var("EBB_SEEDS").unwrap_or_else(|_| "20000..20010".to_owned());
    let (from, to) = seeds.split_once("..").unwrap();
    let (from, to): (u64, u64) = (from.parse().unwrap(), to.parse().unwrap());
    let mut over = 0;
    for (case, policies, share) in servers() {
        let seeds = from..from + ((to - from) * share).div_ceil(12);
        for name in policies {
            for (extent, faults) in ["usual", "wide"].into_iter().zip(EXTENTS) {
                let told = campaign(&case, &[name], seeds.clone(), faults, &Limits::default());
                print(&format!("{}, {extent}", case.profile.name), name, &told);
                over += told.violations.len();
            }
        }
    }
    for (what, case, limits) in [
        ("blind", Case::requests(server()), blind()),
        ("no throttling, 8 W", Case::requests(bare("8 W")), Limits::default()),
        ("no throttling, 14 W", Case::requests(bare("14 W")), Limits::default()),
        ("blind, no throttling", Case::requests(bare("14 W")), blind()),
    ] {
        for name in ["native", "dlb", "eadc"] {
            let told = campaign(&case, &[name], from..to, Faults::seeded, &limits);
            print(what, name, &told);
        }
    }
    assert_eq!(over, 0);
}

/// Under a policy that keeps the fans slow the hardware alone would hold it, by throttling; the
/// guard spares it most of that.
#[test]
fn the_guard_spares_the_hardware_its_throttling() {
    let case = Case::requests(server());
    let throttled = |limits: &Limits| {
        let run = |seed| {
            case.run(Box::new(Held(0.2)), Faults::seeded(seed), seed, limits).spent.throttled
        };
        (0..6).map(run).sum::<f64>()
    };
    let (guarded, alone) = (throttled(&Limits::default()), throttled(&blind()));
    assert!(guarded < 0.5 * alone, "{guarded} s of {alone}");
}

/// Where the hardware does nothing: load steps that warm the die by less than what lies between
/// set point and red line are the guard's to hold.
#[test]
fn the_guard_makes_up_for_fans_held_too_slow() {
    let case = Case::requests(bare("8 W"));
    let crossed = |limits: &Limits| {
        let held = |seed: &u64| {
            let faults = Faults::seeded(*seed);
            let watch = case.run(Box::new(Held(0.2)), faults, *seed, limits);
            !watch.violations.is_empty()
        };
        (0..6).filter(held).count()
    };
    assert_eq!(crossed(&Limits::default()), 0);
    assert!(crossed(&blind()) > 1);
}

#[test]
fn full_fans_hold_it_even_where_the_hardware_does_not_throttle() {
    let case = Case::requests(bare("14 W"));
    for seed in 0..16 {
        let (held, faults) = (Box::new(Held(1.0)), Faults::seeded(seed));
        let watch = case.run(held, faults, seed, &Limits::default());
        assert!(watch.hottest < RED_LINE, "seed {seed}: {}", watch.hottest);
    }
}

#[test]
fn what_is_called_enough_fans_grows_with_them() {
    for (case, ..) in servers() {
        let fans = usize::from(case.profile.fans.as_ref().unwrap().count);
        let holds: Vec<_> = (0..=fans).map(|turning| case.holds(turning)).collect();
        // Half of them are enough, which the usual faults leave; none is not.
        assert!(holds.is_sorted() && !holds[0] && holds[fans.div_ceil(2)], "{holds:?}");
    }
}

#[test]
fn every_policy_meets_the_same_faults() {
    let case = Case::requests(server());
    for faults in EXTENTS {
        let of =
            |policy: Box<dyn Policy>| case.run(policy, faults(11), 11, &Limits::default()).faults;
        let native = of(case.policy("native"));
        assert_eq!(native, of(Box::new(Held(1.0))));
        assert!(!native.is_empty());
    }
}

/// Checks that drives and inlet show what is wrong with them.
#[derive(Default)]
struct Shows {
    /// With the number of samples that each has lasted for.
    active: Vec<(Fault, u32)>,
    before: Vec<ebb_policy::DriveSignals>,
    seen: std::collections::BTreeSet<&'static str>,
}

impl Observer for Shows {
    fn fault(&mut self, event: &FaultEvent, begins: bool) {
        if begins {
            self.active.push((event.fault, 0));
        } else {
            self.active.retain(|(fault, _)| *fault != event.fault);
        }
    }
    fn sample(&mut self, sample: &Sample<'_>) {
        let (signals, weather) = (sample.cycled.signals, sample.weather.unwrap());
        let celsius = |drive: u16| signals.drives[usize::from(drive)].temperature;
        for (fault, lasted) in &mut self.active {
            *lasted += 1;
            match *fault {
                Fault::SensorLost(Place::Inlet) => assert!(signals.cooling.inlet.is_none()),
                Fault::SensorLost(Place::Drive(drive)) => assert!(celsius(drive).is_none()),
                Fault::SensorLying(Place::Drive(drive), off) => {
                    let lie = celsius(drive).unwrap() - weather.drives[usize::from(drive)];
                    assert!((lie.0 - off).abs() < 1.5, "{lie} against {off}");
                }
                Fault::SensorStuck(Place::Drive(drive)) if *lasted > 1 => {
                    assert_eq!(celsius(drive), self.before[usize::from(drive)].temperature);
                }
                // A write that was under way takes effect.
                Fault::StateRefusing(drive) if *lasted > 2 => {
                    let (drive, before) = (usize::from(drive), &self.before);
                    assert_eq!(signals.drives[drive].state, before[drive].state);
                }
                _ => continue,
            }
            self.seen.insert(fault.reason());
        }
        self.before.clone_from(&signals.drives);
    }
}

#[test]
fn drives_and_inlet_show_what_is_wrong_with_them() {
    let case = Case::requests(server());
    let mut shows = Shows::default();
    for seed in 0..4 {
        let workload = Workload::Closed(Box::new(Phases::new(seed)));
        let limits = Limits { ssd_budget: case.budget, ..Limits::default() };
        let job = job(&case.profile, case.policy("pacman+eadc"), workload, Some(LENGTH));
        let (faults, ssd_budget) = (Some(Faults::wide(seed)), case.budget);
        (shows.active, shows.before) = (Vec::new(), Vec::new());
        run(Run { faults, limits, ssd_budget, ..job }, &mut shows).unwrap();
    }
    assert_eq!(shows.seen.len(), 4, "{:?}", shows.seen);
}
