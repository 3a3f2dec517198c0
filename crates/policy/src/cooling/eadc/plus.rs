//! `eadc-plus` (ours): one choice in place of EADC's loops.
//!
//! Each second it asks of every setting (a fan duty and a ceiling of frequencies) where each
//! socket goes (`observer.rs`), what the server would draw, and how long each job would take: one
//! that uses the disks by the curve of Fig. 5 for the share of its time that it waits, any job by
//! the frequency for the rest. It takes the setting of the least
//!
//! ```text
//! ln P + sum_j w_j ln t_j        w_j = p_j + (1 - p_j) own_j
//! ```
//!
//! of those that keep every socket at the set point. A job's time costs the power of the whole
//! server if it is the one that lasts the longest, and only its own share of that power while
//! another keeps the server on. `p_j`, how likely it is the last, follows from its age: what has
//! run for long goes on for long (Lindy's rule: the expected rest is the age so far). Jobs of one
//! class are taken to end together, and users' I/O never to end: its time costs everything.
//!
//! By the same rule the load goes on for as long as it has so far. Until then a cool heat sink
//! takes up heat for which nothing has to blow yet, so that the set point counts within that
//! horizon, not in a steady state that may never come.
//!
//! A setting stays until it breaks the limit by a step of the reading, or another one is better by
//! more than the model is worth. Jobs are never paused: what full fans and the lowest frequency
//! cannot cool is left to the guard. A server that waits draws nearly as much as one that works.

use crate::cooling::eadc::admission::{Admission, late};
use crate::cooling::eadc::disks::{Disks, NEGLIGIBLE};
use crate::cooling::eadc::feed_forward::FeedForward;
use crate::cooling::eadc::observer::Observer;
use crate::cooling::eadc::throttle::running;
use crate::cooling::eadc::{Curve, EadcParams};
use crate::cooling::placement::Placement;
use crate::cooling::{Interval, duty, set_fans};
use crate::guard::SLOW_DOWN;
use crate::sense::estimate::Estimator;
use crate::sense::load::Load;
use crate::sense::plausible::is_power;
use crate::sense::thresholds::{SET_POINT, Thresholds};
use crate::sense::{LAG, QUANTUM, weight};
use crate::topology::Topology;
use crate::units::{Celsius, Hertz, Watts};
use crate::{JobSignals, Policy, PolicyError, QosClass, Request, Signals};

/// Fan duties that are looked at, from the least to full speed.
const DUTIES: usize = 33;
/// Share of leakage in a socket's power at the emergency threshold ("up-to 40%", §III-B), and its
/// growth per kelvin: twice within 25 K.
const LEAKS: f64 = 0.4;
const GROWTH: f64 = 0.028;
/// Time constant of the share of its time that a job waits for disks, in seconds.
const HISTORY: f64 = 30.0;
/// What a core at work draws where nobody measures it, W.
const CORE: f64 = 8.0;
/// A core's power by its frequency: `f V^2` is between the square and the cube.
const FALL: f64 = 2.5;
/// No socket gets hotter than this, °C.
const BURNT: f64 = 120.0;

/// What `eadc-plus` can be told.
#[derive(Debug, Clone, PartialEq)]
pub struct PlusParams {
    /// Temperature at which no socket is to end above, °C: the paper's set point (§VII-A).
    pub set_point: f64,
    /// Difference of the sockets' temperatures that is worth moving a job, K.
    pub hot_spot: f64,
    /// By how much another setting must be better, as a share of the energy.
    pub worth: f64,
}

impl Default for PlusParams {
    fn default() -> Self {
        let EadcParams { set_point, hot_spot, .. } = EadcParams::default();
        Self { set_point, hot_spot, worth: 0.01 }
    }
}

impl PlusParams {
    /// Refuses what cannot work, naming the parameter.
    ///
    /// # Errors
    /// A parameter out of its range.
    pub fn validate(&self) -> Result<(), PolicyError> {
        let check = PolicyError::within;
        check("set_point", self.set_point, 40.0, SET_POINT.0, "40 to 85 °C")?;
        check("hot_spot", self.hot_spot, 0.0, 50.0, "0 to 50 K")?;
        check("worth", self.worth, 0.0, 0.5, "0 to 0.5")
    }
}

/// A socket as it is seen in this interval.
#[derive(Debug, Clone, Copy, Default)]
struct Socket {
    /// Power of its work at full speed, of what there is without any, and its leakage, W.
    work: f64,
    rest: f64,
    leaks: f64,
    /// The first over about a sensor lag: loads fluctuate faster than heat sinks follow.
    steady: f64,
    /// Its frequency, as a share of the highest, and the most that others let it have.
    pace: f64,
    held: f64,
    now: f64,
    /// How much hotter it is about to be than the set point, K: then the model is wrong.
    hotter: f64,
    /// Whether it is read: no work is held back for a sensor that is lost.
    read: bool,
}

impl Socket {
    /// Takes what it draws now for its work and besides, leakage in both.
    fn take(&mut self, (work, rest): (f64, f64), hottest: f64, dt: f64) {
        let leaks = LEAKS * (GROWTH * (self.now.min(hottest) - hottest)).exp();
        self.work = (1.0 - leaks) * work / self.pace.powf(FALL);
        (self.rest, self.leaks) = ((1.0 - leaks) * rest, leaks * (work + rest));
        self.steady += (self.work - self.steady) * weight(dt, LAG.seconds());
    }

    /// What it draws now.
    fn drawn(&self) -> f64 {
        self.work * self.pace.powf(FALL) + self.rest + self.leaks
    }

    /// The power, but for leakage, under the ceiling `share` of the highest frequency.
    fn power(&self, share: f64) -> f64 {
        self.rest + self.work * share.min(self.held).powf(FALL)
    }

    /// Its leakage at `t`, °C.
    fn leaks(&self, t: f64) -> f64 {
        self.leaks * (GROWTH * (t.min(BURNT) - self.now)).exp()
    }
}

/// A setting: fan duty, and the place of the most that frequencies may be.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Setting {
    duty: f64,
    top: usize,
}

/// What the server draws now, W, and its air as a duty.
#[derive(Debug, Clone, Copy)]
struct Drawn {
    total: f64,
    cpu: f64,
    fans: f64,
    air: f64,
}

/// A job, or the users: the share of its time that it waits for disks, and the share of the
/// server's power that its time costs.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    wait: f64,
    cost: f64,
}

/// The jobs of a class that run: the age of the oldest and of all together, in seconds, and their
/// work.
#[derive(Debug, Clone, Copy, Default)]
struct Class {
    oldest: f64,
    ages: f64,
    work: f64,
}

impl Class {
    fn of(signals: &Signals) -> [Self; QosClass::ALL.len()] {
        let mut classes = [Self::default(); QosClass::ALL.len()];
        for job in signals.jobs.iter().filter(|job| running(job)) {
            let class = &mut classes[job.class as usize];
            class.oldest = class.oldest.max(age(job));
            class.ages += age(job);
            class.work += job.cpu.clamp(0.0, 1.0);
        }
        classes
    }
}

/// In seconds.
fn age(job: &JobSignals) -> f64 {
    job.age.seconds().max(1.0)
}

/// What a socket comes to: the place of its frequency, K above the set point within the horizon,
/// and its mean temperature until then.
#[derive(Debug, Clone, Copy)]
struct End {
    place: usize,
    over: f64,
    mean: f64,
}

/// What a setting comes to.
#[derive(Debug, Clone, Copy)]
struct Comes {
    /// Of the hottest socket in the end, K above the set point.
    over: f64,
    /// Whether a frequency is lower than is ours to choose.
    below: bool,
    /// Of the whole server, W.
    power: f64,
    /// Time for the same work, against now: of work on the slowest socket, and of the disks.
    work: f64,
    disks: f64,
}

/// The controller.
#[derive(Debug, Clone)]
pub struct EadcPlus {
    curve: Option<Curve>,
    frequencies: Vec<Hertz>,
    duties: [f64; DUTIES],
    /// Rated power of all fans, W.
    rated: f64,
    thresholds: Thresholds,
    params: PlusParams,
    interval: Interval,
    heat: Estimator,
    load: Load,
    observers: Vec<Observer>,
    sockets: Vec<Socket>,
    /// The job in each slot, and the users behind them.
    jobs: Vec<Share>,
    /// For how long the present load is expected to last, in seconds.
    horizon: f64,
    setting: Setting,
    /// Place of the least frequency that is ours to choose.
    lowest: usize,
    /// Duty that the drives need.
    floor: f64,
    disks: Disks,
    placement: Placement,
    admission: Admission,
    feed_forward: FeedForward,
}

impl EadcPlus {
    /// For `topology`, whose disks were characterised by `curve`.
    ///
    /// # Errors
    /// A parameter out of its range.
    pub fn new(
        topology: &Topology,
        curve: Option<Curve>,
        params: &PlusParams,
    ) -> Result<Self, PolicyError> {
        params.validate()?;
        let own = Thresholds::new(topology);
        let set_point = own.set_point.min(Celsius(params.set_point));
        let thresholds = Thresholds { set_point, ..own };
        let (low, load) = (topology.min_duty().min(1.0), Load::new(topology));
        let duty = |step: usize| low + (1.0 - low) * step as f64 / (DUTIES - 1) as f64;
        let sockets = 0..usize::from(topology.sockets);
        Ok(Self {
            curve,
            frequencies: topology.frequencies.clone(),
            duties: std::array::from_fn(duty),
            rated: topology.fans.iter().map(|fan| fan.max_power.0).sum(),
            thresholds,
            params: params.clone(),
            interval: Interval::default(),
            heat: Estimator::new(topology),
            observers: sockets.clone().map(|s| Observer::new(CORE * load.full(s))).collect(),
            sockets: vec![Socket::default(); sockets.len()],
            load,
            jobs: vec![Share::default(); usize::from(topology.jobs) + 1],
            horizon: f64::INFINITY,
            lowest: 0,
            setting: Setting { duty: low, top: topology.frequencies.len().saturating_sub(1) },
            floor: 0.0,
            disks: Disks::new(topology),
            placement: Placement::new(topology),
            admission: Admission::new(thresholds),
            feed_forward: FeedForward::new(topology),
        })
    }

    /// Looks at every socket after `dt` seconds.
    fn look(&mut self, signals: &Signals, dt: f64) {
        let air = (self.heat.inlet(), self.heat.air());
        let highest = self.frequencies.last().map_or(1.0, |f| f.0);
        let (load, count) = (&self.load, self.sockets.len());
        let all: f64 = (0..count).filter_map(|s| load.heat(signals, s)).sum();
        let cpu = signals.power.cpu.filter(|power| is_power(*power));
        let unit = cpu.map_or(CORE, |power| power.0 / all.max(0.1));
        for (s, socket) in self.sockets.iter_mut().enumerate() {
            let Some(estimate) = self.heat.socket(s) else { continue };
            (socket.now, socket.read) = (estimate.now.0, estimate.sound);
            socket.pace = self.load.pace(signals, s).clamp(0.05, 1.0);
            let parts = self.load.parts(signals, s).map(|(work, rest)| (unit * work, unit * rest));
            if let Some(parts) = parts {
                socket.take(parts, self.thresholds.emergency.0, dt);
            }
            let power = parts.map_or(socket.drawn(), |(work, rest)| work + rest);
            let ceiling = signals.in_force.ceiling(Some(s as u16)).0 / highest;
            // Below the ceiling it is somebody else's, who will not have it faster for ours.
            socket.held = if socket.pace < ceiling.min(1.0) - 0.01 { socket.pace } else { 1.0 };
            let ahead = (estimate.ahead - self.thresholds.set_point).0;
            socket.hotter = if ahead > QUANTUM { ahead } else { 0.0 };
            let observer = &mut self.observers[s];
            if estimate.sound {
                observer.update(socket.now, power, air, dt);
            } else {
                observer.lose();
            }
        }
    }

    /// What socket `s` comes to under `setting`: above the set point by no more than `slack`, if
    /// there is a frequency that low.
    fn end(&self, s: usize, setting: Setting, slack: f64) -> End {
        let (socket, observer) = (&self.sockets[s], &self.observers[s]);
        let (inlet, air) = (self.heat.inlet(), self.air(setting));
        let (then, mean) = observer.way(self.horizon, air);
        let at = |place: usize| {
            let share = self.frequencies[place] / self.frequencies[self.highest()];
            let power = Socket { work: socket.steady, ..*socket }.power(share);
            let end = |t| observer.end(power + socket.leaks(t), inlet, air);
            let end = end(end(end(socket.now)));
            let start = observer.start(power + socket.leaks, end);
            let on_the_way = |way: f64| start + (end - start) * way;
            let highest = end.min(on_the_way(then)) + socket.hotter;
            End { place, over: highest - self.thresholds.set_point.0, mean: on_the_way(mean) }
        };
        let mut end = at(if socket.read { setting.top } else { self.highest() });
        while socket.read && end.place > 0 && end.over > slack {
            end = at(end.place - 1);
        }
        end
    }

    /// Duty of the fans under `setting`, with what the drives need.
    fn air(&self, setting: Setting) -> f64 {
        setting.duty.max(self.floor).min(1.0)
    }

    fn highest(&self) -> usize {
        self.frequencies.len().saturating_sub(1)
    }

    /// What the server draws now.
    fn drawn(&self, signals: &Signals) -> Drawn {
        let power = |power: Option<Watts>| power.filter(|power| is_power(*power)).map(|p| p.0);
        let cpu = self.sockets.iter().map(|socket| socket.drawn()).sum();
        let air = self.heat.air();
        let fans = power(signals.power.fans).unwrap_or(self.rated * air.powi(3));
        let total = power(signals.power.total).unwrap_or(cpu + fans).max(cpu + fans);
        Drawn { total, cpu, fans, air }
    }

    /// What `setting` comes to.
    fn comes(&self, setting: Setting, drawn: Drawn, slack: f64) -> Comes {
        let Drawn { total, cpu, fans, air } = drawn;
        let blown = self.rated * (self.air(setting).powi(3) - air.powi(3));
        let power = total - cpu + blown.max(-fans);
        let mut comes =
            Comes { over: f64::NEG_INFINITY, below: false, power, work: 0.0, disks: 1.0 };
        for (s, socket) in self.sockets.iter().enumerate() {
            let End { place, over, mean } = self.end(s, setting, slack);
            let share = self.frequencies[place] / self.frequencies[self.highest()];
            comes.over = comes.over.max(over);
            comes.below |= place < self.lowest;
            if socket.read {
                comes.work = comes.work.max(socket.pace / share.min(socket.held));
            }
            comes.power += socket.power(share) + socket.leaks(mean);
        }
        if let Some(curve) = &self.curve {
            comes.disks = curve.throughput(air) / curve.throughput(self.air(setting)).max(0.01);
        }
        comes
    }

    /// Looks at the jobs: which share of its time each waits for disks, and what its time costs.
    /// Users' I/O is one more where no job explains what the disks do, or there is none.
    fn look_at_jobs(&mut self, signals: &Signals, total: f64, dt: f64) {
        let mut waits = false;
        for (slot, (seen, job)) in self.jobs.iter_mut().zip(&signals.jobs).enumerate() {
            let uses = running(job) && self.disks.of_job(slot) > NEGLIGIBLE;
            let now = if uses { 1.0 - job.cpu.clamp(0.0, 1.0) } else { 0.0 };
            seen.wait += (now - seen.wait) * weight(dt, HISTORY);
            waits |= uses;
        }
        let classes = Class::of(signals);
        let rest: f64 = classes.iter().map(|class| class.oldest).sum();
        let work: f64 = classes.iter().map(|class| class.work).sum();
        let of = |socket: &Socket| socket.work * socket.pace.powf(FALL);
        let drawn: f64 = self.sockets.iter().map(of).sum();
        for (seen, job) in self.jobs.iter_mut().zip(&signals.jobs) {
            let class = classes[job.class as usize];
            let last = class.oldest / rest;
            let own = drawn / total.max(1.0) * class.work / work.max(0.1);
            // Half of its promise is used up: nothing else matters more.
            let cost = if late(job) { 1.0 } else { last + (1.0 - last) * own };
            seen.cost = if running(job) { cost * age(job) / class.ages } else { 0.0 };
        }
        let expected = |class: &Class| class.oldest * class.oldest / rest;
        let any = rest > 0.0;
        self.horizon = if any { classes.iter().map(expected).sum() } else { f64::INFINITY };
        let shaken = self.curve.is_some() && self.disks.at_work() && !waits;
        if let Some(users) = self.jobs.last_mut() {
            let cost = if shaken || !any { 1.0 } else { 0.0 };
            *users = Share { wait: if shaken { 1.0 } else { 0.0 }, cost };
        }
        // How fast users' I/O is computed is the matter of who has the frequencies.
        // While a sensor is silent no ceiling comes down.
        self.lowest = match self.sockets.iter().all(|socket| socket.read) {
            _ if !any => self.highest(),
            true => 0,
            false => self.setting.top,
        };
    }

    /// The logarithm of what the jobs' work costs.
    fn cost(&self, comes: &Comes) -> f64 {
        let longer = |job: &Share| job.wait * comes.disks + (1.0 - job.wait) * comes.work;
        let jobs = self.jobs.iter().filter(|job| job.cost > 0.0);
        comes.power.max(1.0).ln()
            + jobs.map(|job| job.cost * longer(job).max(1e-3).ln()).sum::<f64>()
    }

    /// The setting that costs the least.
    fn choose(&self, drawn: Drawn) -> Setting {
        let tops = self.lowest..=self.highest();
        let settings = tops.flat_map(|top| self.duties.map(|duty| Setting { duty, top }));
        let all = settings.map(|setting| (setting, self.comes(setting, drawn, 0.0)));
        let best = all.min_by(|(_, a), (_, b)| {
            let (hot, other) = (a.over.max(0.0), b.over.max(0.0));
            let cost = || self.cost(a).total_cmp(&self.cost(b));
            hot.total_cmp(&other).then(a.below.cmp(&b.below)).then_with(cost)
        });
        let now = self.comes(self.setting, drawn, QUANTUM);
        let stays = self.setting.top >= self.lowest;
        match best {
            Some((setting, comes))
                if !stays
                    || now.over > QUANTUM
                    || now.below
                    || self.cost(&comes) < self.cost(&now) - self.params.worth
                    || comes.over > 0.0 =>
            {
                setting
            }
            _ => self.setting,
        }
    }

    /// Puts the setting in force.
    fn ask(&self, (now, dt): (f64, f64), request: &mut Request) {
        let duty = self.air(self.setting);
        let hot = self.sockets.iter().any(|socket| socket.hotter > 0.0);
        let reason = if hot {
            "eadc:too-hot"
        } else if duty <= self.floor {
            "eadc:drive-load"
        } else {
            "eadc:least-energy"
        };
        set_fans(request, duty.max(now - SLOW_DOWN * dt), reason);
        for s in 0..self.sockets.len().min(request.frequency_cap.len()) {
            let place = self.end(s, self.setting, QUANTUM).place;
            let reason =
                if place < self.setting.top { "eadc:too-hot" } else { "eadc:least-energy" };
            request.frequency_cap.ask(s, self.frequencies[place], reason);
        }
    }
}

impl Policy for EadcPlus {
    fn name(&self) -> &'static str {
        "eadc-plus"
    }

    fn step(&mut self, signals: &Signals, request: &mut Request) {
        let now = duty(signals);
        self.heat.update(signals);
        self.disks.update(signals);
        self.floor = self.feed_forward.update(signals, now, self.heat.air()).0.max(self.duties[0]);
        let Some(dt) = self.interval.due(signals.period) else { return };
        if self.heat.hottest().is_none() || self.frequencies.is_empty() {
            return;
        }
        self.look(signals, dt);
        let drawn = self.drawn(signals);
        self.look_at_jobs(signals, drawn.total, dt);
        // Until a heat sink is known the fans stay as they were found.
        let is_known = self.observers.iter().any(Observer::is_known);
        if !is_known && self.sockets.iter().any(|socket| socket.read) {
            return;
        }
        self.setting = self.choose(drawn);
        self.ask((now, dt), request);
        let seen = (signals, &self.heat, dt);
        self.placement.by_heat(seen, self.params.hot_spot, request, "eadc:hot-spot");
        let read = self.heat.hottest_read().map_or(self.thresholds.set_point, |t| t.now);
        self.admission.decide((signals, &self.disks, dt), (read, false), request);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Nanos;

    fn job(class: QosClass, age: u64) -> JobSignals {
        let age = Nanos::from_secs(age);
        JobSignals { present: true, class, age, cpu: 1.0, ..JobSignals::default() }
    }

    /// A policy that has seen these jobs, which draw half of all the power.
    fn seen(jobs: &[JobSignals]) -> EadcPlus {
        let topology = Topology { jobs: 4, sockets: 1, ..Topology::default() };
        let mut policy = EadcPlus::new(&topology, None, &PlusParams::default()).unwrap();
        (policy.sockets[0].work, policy.sockets[0].pace) = (100.0, 1.0);
        let mut signals = Signals::new(&topology);
        signals.jobs[..jobs.len()].copy_from_slice(jobs);
        policy.look_at_jobs(&signals, 200.0, 1.0);
        policy
    }

    #[test]
    fn what_has_run_for_longer_is_expected_to_last_longer() {
        use QosClass::{Critical, Noncritical};
        let policy = seen(&[job(Critical, 100), job(Noncritical, 300), job(Noncritical, 300)]);
        // The last one with 1/4 and 3/4; of half of the power 1/3 and 2/3 are their own.
        let urgent = 0.25 + 0.75 * 0.5 / 3.0;
        let other = 0.75 + 0.25 * 0.5 * 2.0 / 3.0;
        let expected = [urgent, other / 2.0, other / 2.0, 0.0, 0.0];
        for (seen, expected) in policy.jobs.iter().zip(expected) {
            assert!((seen.cost - expected).abs() < 1e-9, "{:?}", policy.jobs);
        }
        assert!((policy.horizon - (0.25 * 100.0 + 0.75 * 300.0)).abs() < 1e-9);
    }

    #[test]
    fn the_time_of_a_job_that_is_late_costs_all_power() {
        let (young, old) = (job(QosClass::Critical, 20), job(QosClass::Noncritical, 3000));
        let promised = JobSignals { objective: Some(Nanos::from_secs(30)), ..young };
        assert!(seen(&[young, old]).jobs[0].cost < 0.5);
        assert_eq!(seen(&[promised, old]).jobs[0].cost, 1.0);
    }

    #[test]
    fn without_jobs_the_load_has_no_end_and_users_compute() {
        let policy = seen(&[]);
        assert_eq!(policy.horizon, f64::INFINITY);
        let (users, jobs) = policy.jobs.split_last().unwrap();
        assert!(jobs.iter().all(|seen| seen.cost == 0.0));
        assert_eq!((users.wait, users.cost), (0.0, 1.0));
    }
}
