//! `eadc-plus` (ours): one choice in place of EADC's loops.
//!
//! Each second it asks of every setting (a fan duty and a ceiling of frequencies) where each
//! socket would end (`observer.rs`), what the server would draw, and how long each job would take:
//! one that uses the disks by the curve of Fig. 5 for the share of its time that it waits, any job
//! by the frequency for the rest. Nobody knows which job will last the longest, and so decides for
//! how long the server draws anything; the setting is taken whose regret is least whichever it is:
//!
//! ```text
//! e_j = P t_j                    energy until job j is done
//! R   = max_j e_j / min e_j      the least over all settings
//! least over settings of  ln R(urgent jobs) + OTHERS ln R(other jobs)
//! ```
//!
//! of those settings that keep every socket at the set point. Urgent are the jobs of classes that
//! somebody waits for (Table I), and those that have used up half of their promise: the others have
//! slack. A setting stays until it breaks the limit by a step of the reading, or another one is
//! better by more than the model is worth.
//!
//! Frequencies come before pauses: a slower core saves its voltage, too. Only where full fans and
//! the lowest frequency do not suffice jobs give up time, those that use the disks least first.

use crate::cooling::eadc::admission::{Admission, late};
use crate::cooling::eadc::disks::{Disks, NEGLIGIBLE};
use crate::cooling::eadc::feed_forward::FeedForward;
use crate::cooling::eadc::observer::Observer;
use crate::cooling::eadc::throttle::{Throttle, running};
use crate::cooling::eadc::{Curve, EadcParams};
use crate::cooling::placement::Placement;
use crate::cooling::{Interval, duty, set_fans};
use crate::guard::{MIN_JOB_SHARE, SLOW_DOWN};
use crate::sense::estimate::Estimator;
use crate::sense::load::Load;
use crate::sense::plausible::is_power;
use crate::sense::thresholds::{SET_POINT, Thresholds};
use crate::sense::{QUANTUM, weight};
use crate::topology::Topology;
use crate::units::{Celsius, Hertz, Watts};
use crate::{JobSignals, Policy, PolicyError, QosClass, Request, Signals};

/// Fan duties that are looked at, from the least to full speed.
const DUTIES: usize = 33;
/// Kinds of jobs that are told apart.
const KINDS: usize = 8;
/// Share of leakage in a socket's power at the emergency threshold ("up-to 40%", §III-B), and its
/// growth per kelvin: twice within 25 K.
const LEAKS: f64 = 0.4;
const GROWTH: f64 = 0.028;
/// Time constant of the share of its time that a job waits for disks, in seconds.
const HISTORY: f64 = 30.0;
/// What a core at work draws where nobody measures it, W.
const CORE: f64 = 8.0;
/// Step of the jobs' share in the last resort.
const STEP: f64 = 0.05;

/// What `eadc-plus` can be told.
#[derive(Debug, Clone, PartialEq)]
pub struct PlusParams {
    /// Temperature at which no socket is to end above, °C: the paper's set point (§VII-A).
    pub set_point: f64,
    /// Difference of the sockets' temperatures that is worth moving a job, K.
    pub hot_spot: f64,
    /// What the regret of jobs with slack counts beside that of urgent ones.
    pub others: f64,
    /// By how much another setting must be better, as a share of the energy.
    pub worth: f64,
}

impl Default for PlusParams {
    fn default() -> Self {
        let EadcParams { set_point, hot_spot, .. } = EadcParams::default();
        Self { set_point, hot_spot, others: 0.5, worth: 0.01 }
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
        check("others", self.others, 0.0, 1.0, "0 to 1")?;
        check("worth", self.worth, 0.0, 0.5, "0 to 0.5")
    }
}

/// A socket as it is seen in this interval.
#[derive(Debug, Clone, Copy, Default)]
struct Socket {
    /// Heat of its work now, and what there is without any, in cores' worth of work.
    work: f64,
    rest: f64,
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
    /// The heat under the ceiling `share` of the highest frequency.
    fn heat(&self, share: f64) -> f64 {
        self.rest + self.work * (share.min(self.held) / self.pace).powi(2)
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

/// Jobs that wait for disks for the same share of their time, and are urgent alike.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Kind {
    wait: f64,
    urgent: bool,
}

impl Kind {
    /// Energy until such a job is done, against its time now.
    fn energy(&self, comes: &Comes) -> f64 {
        comes.power * (self.wait * comes.disks + (1.0 - self.wait) * comes.work)
    }
}

/// What a setting comes to.
#[derive(Debug, Clone, Copy)]
struct Comes {
    /// Of the hottest socket in the end, K above the set point.
    over: f64,
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
    /// Share of its time that the job in each slot waits for disks.
    waits: Vec<f64>,
    kinds: Vec<Kind>,
    setting: Setting,
    /// Place of the least frequency that is ours to choose.
    lowest: usize,
    /// What is left of the jobs' time in the last resort.
    share: f64,
    /// Duty that the drives need.
    floor: f64,
    disks: Disks,
    throttle: Throttle,
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
            observers: sockets.clone().map(|s| Observer::new(load.full(s))).collect(),
            sockets: vec![Socket::default(); sockets.len()],
            load,
            waits: vec![0.0; usize::from(topology.jobs)],
            kinds: Vec::with_capacity(KINDS),
            lowest: 0,
            setting: Setting { duty: low, top: topology.frequencies.len().saturating_sub(1) },
            share: 1.0,
            floor: 0.0,
            disks: Disks::new(topology),
            throttle: Throttle::new(topology.jobs),
            placement: Placement::new(topology),
            admission: Admission::new(thresholds),
            feed_forward: FeedForward::new(topology),
        })
    }

    /// Looks at every socket and job after `dt` seconds.
    fn look(&mut self, signals: &Signals, dt: f64) {
        let air = (self.heat.inlet(), self.heat.air());
        let highest = self.frequencies.last().map_or(1.0, |f| f.0);
        for (s, socket) in self.sockets.iter_mut().enumerate() {
            let Some(estimate) = self.heat.socket(s) else { continue };
            if let Some((work, rest)) = self.load.parts(signals, s) {
                (socket.work, socket.rest) = (work / self.share, rest);
            }
            let ceiling = signals.in_force.ceiling(Some(s as u16)).0 / highest;
            socket.pace = self.load.pace(signals, s).clamp(0.05, 1.0);
            // Below the ceiling it is somebody else's, who will not have it faster for ours.
            socket.held = if socket.pace < ceiling.min(1.0) - 0.01 { socket.pace } else { 1.0 };
            (socket.now, socket.read) = (estimate.now.0, estimate.sound);
            let ahead = (estimate.ahead - self.thresholds.set_point).0;
            socket.hotter = if ahead > QUANTUM { ahead } else { 0.0 };
            let observer = &mut self.observers[s];
            if estimate.sound {
                observer.update(socket.now, socket.work * self.share + socket.rest, air, dt);
            } else {
                observer.lose();
            }
        }
        for (slot, (wait, job)) in self.waits.iter_mut().zip(&signals.jobs).enumerate() {
            let uses = running(job) && self.disks.of_job(slot) > NEGLIGIBLE;
            let now = if uses { 1.0 - job.cpu.clamp(0.0, 1.0) } else { 0.0 };
            *wait += (now - *wait) * weight(dt, HISTORY);
        }
    }

    /// The place of the frequency that `socket` has under `setting`, and where it ends, °C;
    /// above the set point by no more than `slack`, if there is one that low.
    fn end(&self, s: usize, setting: Setting, slack: f64) -> (usize, f64) {
        let (socket, observer) = (&self.sockets[s], &self.observers[s]);
        let at = |place: usize| {
            let heat = socket.heat(self.frequencies[place] / self.frequencies[self.highest()]);
            observer.end(heat, self.heat.inlet(), self.air(setting)) + socket.hotter
        };
        if !socket.read {
            return (self.highest(), at(self.highest()));
        }
        let mut place = setting.top;
        while place > 0 && at(place) > self.thresholds.set_point.0 + slack {
            place -= 1;
        }
        (place, at(place))
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
        let heat: f64 = self.sockets.iter().map(|socket| socket.work + socket.rest).sum();
        let air = self.heat.air();
        let cpu = power(signals.power.cpu).unwrap_or(CORE * heat);
        let fans = power(signals.power.fans).unwrap_or(self.rated * air.powi(3));
        let total = power(signals.power.total).unwrap_or(cpu + fans).max(cpu + fans);
        Drawn { total, cpu, fans, air }
    }

    /// What `setting` comes to.
    fn comes(&self, setting: Setting, drawn: Drawn, slack: f64) -> Comes {
        let Drawn { total, cpu, fans, air } = drawn;
        let Thresholds { set_point, emergency, .. } = self.thresholds;
        let count = self.sockets.len().max(1) as f64;
        let leaks = |t: f64| cpu / count * LEAKS * (GROWTH * (t - emergency.0)).exp();
        let mut comes = Comes { over: f64::NEG_INFINITY, power: 0.0, work: 0.0, disks: 1.0 };
        let (mut leakage, mut leaked, mut heat, mut heated) = (0.0, 0.0, 0.0, 0.0);
        for (s, socket) in self.sockets.iter().enumerate() {
            let (place, end) = self.end(s, setting, slack);
            let share = self.frequencies[place] / self.frequencies[self.highest()];
            comes.over = comes.over.max(end - set_point.0);
            if socket.read {
                comes.work = comes.work.max(socket.pace / share.min(socket.held));
            }
            (heat, heated) = (heat + socket.heat(share), heated + socket.work + socket.rest);
            (leakage, leaked) = (leakage + leaks(end), leaked + leaks(socket.now));
        }
        let per_heat = (cpu - leaked).max(0.0) / heated.max(1e-3);
        let blown = self.rated * (self.air(setting).powi(3) - air.powi(3));
        comes.power = total - cpu + per_heat * heat + leakage + blown.max(-fans);
        if let Some(curve) = &self.curve {
            comes.disks = curve.throughput(air) / curve.throughput(self.air(setting)).max(0.01);
        }
        comes
    }

    /// The kinds of jobs that run: which share of its time each waits, and whether it is urgent.
    /// Users' I/O is a kind of its own where no job explains what the disks do.
    fn look_at_jobs(&mut self, signals: &Signals) {
        self.kinds.clear();
        for (job, wait) in signals.jobs.iter().zip(&self.waits).filter(|(job, _)| running(job)) {
            let kind = Kind { wait: (wait * 50.0).round() / 50.0, urgent: urgent(job) };
            if !self.kinds.contains(&kind) && self.kinds.len() < KINDS {
                self.kinds.push(kind);
            }
        }
        // How fast users' I/O is computed is the matter of who has the frequencies.
        // While a sensor is silent no ceiling comes down.
        self.lowest = match self.sockets.iter().all(|socket| socket.read) {
            _ if self.kinds.is_empty() => self.highest(),
            true => 0,
            false => self.setting.top,
        };
        let shaken = self.curve.is_some() && self.disks.busy();
        let users = shaken && self.kinds.iter().all(|kind| kind.wait == 0.0);
        if (users || self.kinds.is_empty()) && self.kinds.len() < KINDS {
            let wait = if users { 1.0 } else { 0.0 };
            self.kinds.push(Kind { wait, urgent: true });
        }
    }

    /// The setting of the least regret, and what it comes to.
    fn choose(&mut self, drawn: Drawn) -> (Setting, Comes) {
        let kinds = &self.kinds;
        let settings = || {
            let tops = self.lowest..=self.highest();
            tops.flat_map(|top| self.duties.map(|duty| Setting { duty, top }))
        };
        let all = || settings().map(|setting| (setting, self.comes(setting, drawn, 0.0)));
        let mut least = [f64::INFINITY; KINDS];
        for (_, comes) in all().filter(|(_, comes)| comes.over <= 0.0) {
            for (least, kind) in least.iter_mut().zip(kinds) {
                *least = least.min(kind.energy(&comes));
            }
        }
        // Where every setting is too hot, all have the same to be measured by.
        let least = least.map(|least| if least.is_finite() { least } else { 1.0 });
        let score = |comes: &Comes| {
            let regret = |urgent: bool| {
                let of = kinds.iter().zip(&least).filter(move |(kind, _)| kind.urgent == urgent);
                of.map(|(kind, least)| kind.energy(comes) / least).fold(1.0, f64::max).ln()
            };
            let any = kinds.iter().any(|kind| kind.urgent);
            regret(true) + regret(false) * if any { self.params.others } else { 1.0 }
        };
        let best = all().min_by(|(_, a), (_, b)| {
            let (hot, other) = (a.over.max(0.0), b.over.max(0.0));
            hot.total_cmp(&other).then_with(|| score(a).total_cmp(&score(b)))
        });
        let now = self.comes(self.setting, drawn, QUANTUM);
        let stays = self.setting.top >= self.lowest;
        match best {
            Some((setting, comes))
                if !stays
                    || now.over > QUANTUM
                    || score(&comes) < score(&now) - self.params.worth
                    || comes.over > 0.0 =>
            {
                (setting, comes)
            }
            _ => (self.setting, now),
        }
    }

    /// What of their time jobs keep where no setting suffices.
    fn reduce(&mut self, comes: &Comes, dt: f64) {
        let back = (self.share + STEP * dt).min(1.0);
        if comes.over <= QUANTUM {
            self.share = if comes.over <= 0.0 { back } else { self.share };
            return;
        }
        let (inlet, lowest) =
            (self.heat.inlet(), self.frequencies[0] / self.frequencies[self.highest()]);
        let limit = self.thresholds.set_point.0;
        let read = self.sockets.iter().zip(&self.observers).filter(|(socket, _)| socket.read);
        let bearable = read.map(|(socket, observer)| {
            let heat = observer.bearable(limit - socket.hotter, inlet, self.air(self.setting));
            (heat - socket.rest) / (socket.heat(lowest) - socket.rest).max(1e-3)
        });
        let share = bearable.fold(1.0, f64::min);
        self.share = ((share / STEP).floor() * STEP).clamp(MIN_JOB_SHARE, back);
    }

    /// Puts the setting in force.
    fn ask(&mut self, signals: &Signals, (now, dt): (f64, f64), request: &mut Request) {
        let duty = self.air(self.setting);
        let hot = self.sockets.iter().any(|socket| socket.hotter > 0.0);
        let reason = if hot {
            "eadc:too-hot"
        } else if duty <= self.floor {
            "eadc:drive-load"
        } else {
            "eadc:least-regret"
        };
        set_fans(request, duty.max(now - SLOW_DOWN * dt), reason);
        for s in 0..self.sockets.len().min(request.frequency_cap.len()) {
            let (place, _) = self.end(s, self.setting, QUANTUM);
            let reason =
                if place < self.setting.top { "eadc:too-hot" } else { "eadc:least-regret" };
            request.frequency_cap.ask(s, self.frequencies[place], reason);
        }
        self.throttle.apply(self.share, &self.disks, signals, request);
    }
}

/// Whether somebody waits for the job: by its class, or since half of its promise is used up.
fn urgent(job: &JobSignals) -> bool {
    matches!(job.class, QosClass::Critical | QosClass::Vital) || late(job)
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
        self.look_at_jobs(signals);
        let (setting, comes) = self.choose(self.drawn(signals));
        self.setting = setting;
        self.reduce(&comes, dt);
        self.ask(signals, (now, dt), request);
        let seen = (signals, &self.heat, dt);
        self.placement.by_heat(seen, self.params.hot_spot, request, "eadc:hot-spot");
        let read = self.heat.hottest_read().map_or(self.thresholds.set_point, |t| t.now);
        let state = (read, self.share < 1.0);
        self.admission.decide((signals, &self.disks, dt), state, request);
    }
}
