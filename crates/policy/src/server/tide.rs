//! `tide`, ours: the watts of one budget go where they serve most, and are never more than it.
//!
//! ```text
//!          three readings agree with the model               more is allowed
//!   boot ───────────────────────────────────► shedding ◄──────────────────────► tracking
//!    ▲                                           │  ▲
//!    └── no budget          no meter, or stuck   ▼  │  it moves again
//!                                               blind
//!   three readings in a row 15 % of the budget from the model: safe, until three agree with it
//! ```
//! Nothing is limited where the most that the server can draw is within the budget. Before the
//! first reading, and a minute after it where readings never agree, the model alone counts.
//!
//! Each turn, every control period:
//! 1. The *model* says what the server draws now: packages as measured, traffic as counted, the
//!    rest as known. It is remembered, and compared with the meter as it was when the meter looked
//!    (`lag`, the age of the reading). Their difference is the *bias*, which does not learn for two
//!    lags after a move of ours.
//! 2. The watts that may be drawn, `allowed`, fall at once with the budget and rise by 3 % of it a
//!    turn.
//! 3. Of all points (cores, frequency, CPU time; [`cpu`]) that fit, the one that serves most is
//!    chosen: a point serves what its cores can do, what the watts that it leaves can move, and
//!    what clients ask for who wait that long for answers. Load that has not used up its limits
//!    needs its [`peak`] of the last minutes; of the points that serve that much, the one with the
//!    shortest latency is chosen, or one with room for twice the peak where that costs little.
//! 4. Work that nobody waits for (*best effort*) has what these leave, of watts and of cores; where
//!    another point serves more of it and takes hardly longer, that one is chosen. What it fills
//!    besides the budget it leaves a part of ([`rest`]).
//! 5. Where the peak is known and fits, drives have no limits. Else what the point leaves is shared
//!    among them as limits of their rates, so that no burst exceeds the budget before the next
//!    turn. CPU time below a whole is for large requests without
//!    a tail to keep, or where nothing else fits.

mod choose;
mod cpu;
mod peak;
mod rest;
mod share;

use choose::{Left, Offer};
use cpu::{BUSY, Cpu, Load, Point};
use peak::{Peak, came};
use rest::Rest;

use super::{lift, release, sensed};
use crate::topology::{LEAST_RATE, PowerModel, Topology};
use crate::units::{Nanos, Watts};
use crate::{BestEffortSignals, Policy, PolicyError, Request, Signal, Signals};

/// Largest rise in a turn, and least move after which the bias rests, as shares of the budget.
const RISE: f64 = 0.03;
const MOVE: f64 = 0.01;
/// Least margin below the budget, and what is added to it without a meter.
const MARGIN: f64 = 0.005;
const BLIND: f64 = 0.03;
/// Largest bias, as a share of the budget.
const MOST_BIAS: f64 = 0.15;
/// How far the model moves, as a share of the budget, before a meter that does not is stuck.
const STUCK: f64 = 0.02;
/// How much of a difference is learnt in a turn.
const LEARN: f64 = 0.25;
/// Readings that agree before anything is shared out, and turns after which none are waited for.
const READINGS: u32 = 3;
const BOOT: u32 = 120;
/// As many in a row are enough whose mean is known as well.
const MISSES: usize = 16;
/// Worth of another point, as a share, below which the present one stays.
const WORTH: f64 = 0.02;
/// What stops serve counts for that much less: they serve less than the model says, and what comes
/// in one waits for the rest of it.
const STOPS: f64 = 0.2;
/// Mean size from which bytes count more than each request's own latency.
const LARGE: f64 = 64.0 * 1024.0;
/// Part of the watts for traffic that is kept for drives that had none.
const NEWCOMERS: f64 = 0.02;
/// Traffic that has used less of its limits than this may grow by that factor until the next turn,
/// and has this share of the budget in any case.
const USED_UP: f64 = 0.9;
/// Traffic that has used more of its limit is held back by it.
const HELD: f64 = 0.97;
const GROWTH: f64 = 2.0;
const SPARE: f64 = 0.05;
/// Where that does not fit, this is enough.
const ENOUGH: f64 = 1.25;
/// How much longer requests may take for best effort, as a share of their mean latency.
const SHARED: f64 = 0.2;
/// What exceeds a limit by more than this factor is not bound by it.
const BURST: f64 = 1.05;
/// Limits of rates are whole steps of this factor.
const RATE_STEP: f64 = 1.02;
/// Model values that are remembered: more than the age at which a reading expires.
const PAST: usize = 16;

/// What it does at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Boot,
    Tracking,
    Shedding,
    Blind,
    Safe,
}

impl State {
    const fn reason(self) -> &'static str {
        match self {
            Self::Boot => "tide:boot",
            Self::Tracking => "tide:track",
            Self::Shedding => "tide:shed",
            Self::Blind => "tide:blind",
            Self::Safe => "tide:safe",
        }
    }
}

/// The controller.
#[derive(Debug, Clone)]
pub struct Tide {
    topology: Topology,
    model: PowerModel,
    /// Whether a tail is to be kept: no stops then.
    tail: bool,
    cpu: Cpu,
    /// What each of its points offers in this turn.
    offers: Vec<Offer>,
    /// The point in force, of [`Cpu::points`].
    point: usize,
    state: State,
    /// Whether nothing has been limited since the start, whether no reading since then was beyond
    /// the budget, and turns spent in [`State::Boot`].
    free: bool,
    within: bool,
    boots: u32,
    /// Readings in a row beyond the budget.
    beyond: u32,
    allowed: f64,
    /// Watts at the wall by the meter beyond the model's, and the usual size of what it missed.
    bias: f64,
    spread: f64,
    /// Whether the last of that was drawn less than was thought.
    less: bool,
    /// Requests that somebody waits for.
    load: Load,
    peak: Peak,
    /// Those that nobody waits for, where they can be told and limited.
    rest: Option<Rest>,
    /// Bytes of all requests and of all drives in the mean of some turns: parity and caches make
    /// drives move more or less than is asked for.
    asked: f64,
    moved_bytes: f64,
    /// Mean latency of requests, where it is known, and of all what is spent elsewhere than at the
    /// cores where nothing is held back.
    mean: f64,
    elsewhere: Option<f64>,
    readings: u32,
    /// Readings in a row that model and bias cannot explain.
    lies: u32,
    /// Readings that have to be good before the meter is believed again.
    doubt: u32,
    /// What the meter told beyond the model in the last readings before that, the newest first, and
    /// how many there were.
    misses: [f64; MISSES],
    missed: usize,
    /// What was allowed when the last move was made, and when.
    moved: (f64, Nanos),
    /// The last reading, and the model's of that time when it came.
    last: Option<(Watts, f64)>,
    past: [(Nanos, f64); PAST],
    /// Watts of the traffic that was read from and written to each drive.
    traffic: Vec<[f64; 2]>,
    /// The same in the mean of some turns.
    usual: Vec<[f64; 2]>,
    /// The limits of that, in bytes a second, and whether it was beyond them in the last turn.
    limits: Vec<[f64; 2]>,
    /// Watts that all of them are shares of.
    shared: f64,
    over: Vec<[bool; 2]>,
    /// Which of the limits hold traffic back.
    held: Vec<[bool; 2]>,
    /// Whether any has used up its limit.
    limited: bool,
    /// Whether such limits can be relied on: not once traffic was beyond one for two turns.
    binds: bool,
    /// Whether traffic was beyond a limit in the last turn, and the server beyond what is allowed.
    exceeds: bool,
}

impl Tide {
    /// The controller for a server of which it is known what it draws; `tail` says that stops are
    /// no way to save.
    ///
    /// # Errors
    /// A server of which that is not known.
    pub fn new(topology: &Topology, tail: bool) -> Result<Self, PolicyError> {
        let valid = "only on servers of which it is known what they draw";
        let model = topology.power.clone().unwrap_or_default();
        PolicyError::unless(topology.power.is_some(), "tide", 0.0, valid)?;
        let cpu = Cpu::new(topology, &model);
        Ok(Self {
            topology: topology.clone(),
            model,
            tail,
            point: cpu.points.len() - 1,
            offers: Vec::with_capacity(cpu.points.len()),
            cpu,
            state: State::Boot,
            free: true,
            within: true,
            boots: 0,
            beyond: 0,
            allowed: 0.0,
            bias: 0.0,
            spread: 0.0,
            less: false,
            load: Load { size: 4096.0, ..Load::default() },
            peak: Peak::new(topology.drives.len()),
            rest: None,
            asked: 0.0,
            moved_bytes: 0.0,
            mean: 0.0,
            elsewhere: None,
            readings: 0,
            lies: 0,
            doubt: 0,
            misses: [0.0; MISSES],
            missed: 0,
            moved: (0.0, Nanos::ZERO),
            last: None,
            past: [(Nanos::ZERO, 0.0); PAST],
            traffic: vec![[0.0; 2]; topology.drives.len()],
            usual: vec![[0.0; 2]; topology.drives.len()],
            limits: vec![[f64::INFINITY; 2]; topology.drives.len()],
            shared: f64::INFINITY,
            over: vec![[false; 2]; topology.drives.len()],
            held: vec![[false; 2]; topology.drives.len()],
            limited: false,
            binds: topology.limitable.rates,
            exceeds: false,
        })
    }

    /// What the server draws now by the model, at the wall.
    fn sense(&mut self, signals: &Signals) -> f64 {
        let span = signals.period.seconds().max(1e-9);
        let (mut moved, joules) = ([0.0; 2], [self.model.read, self.model.write]);
        self.exceeds = false;
        // The limits hold while the cores run.
        let (time, mut limited) = (self.cpu.points[self.point].time, false);
        let came = came(signals);
        for (at, drive) in signals.drives.iter().enumerate() {
            for (way, bytes) in [drive.read_bytes, drive.written_bytes].into_iter().enumerate() {
                let rate = bytes.unwrap_or_default() as f64 / span;
                let over = rate > self.limits[at][way] * BURST;
                let most = self.limits[at][way] * time * HELD;
                // What had waited is no reason to allow more.
                limited |= came * rate > most;
                self.held[at][way] = rate > most;
                self.exceeds |= over;
                self.binds &= !(std::mem::replace(&mut self.over[at][way], over) && over);
                let watts = rate * joules[way];
                self.traffic[at][way] = watts;
                self.usual[at][way] += LEARN * (watts - self.usual[at][way]);
                moved[way] += rate;
            }
        }
        self.limited = limited;
        let [read, written] = moved;
        let asked = signals.io.bytes.unwrap_or_default() as f64 / span;
        self.asked += LEARN * (asked - self.asked);
        self.moved_bytes += LEARN * (read + written - self.moved_bytes);
        let BestEffortSignals { requests, bytes } = signals.best_effort;
        let io = |count: Option<u64>, rest: Option<u64>| {
            count.unwrap_or_default().saturating_sub(rest.unwrap_or_default())
        };
        let users = (io(signals.io.completed, requests), io(signals.io.bytes, bytes));
        let is_known = requests.is_some() || self.rest.is_none();
        if is_known {
            self.load.learn(users, span);
        }
        // What is not known for a while has not ended.
        if let Some(now) = requests.zip(bytes).filter(|_| self.topology.limitable.best_effort) {
            let lent = signals.in_force.best_effort_rate.at(0).given;
            self.rest.get_or_insert_default().learn(now, lent, span, signals.now);
        }
        // Of one kind alone, for best effort that is held back waits long.
        let kinds = [&signals.io.reads, &signals.io.writes].map(|kind| kind.mean_latency);
        let mean = kinds.into_iter().flatten().min().or(signals.io.mean_latency);
        self.mean = mean.map_or(0.0, Nanos::seconds);
        let takes = signals.io.mean_latency.map_or(0.0, Nanos::seconds);
        let rest = self.rest.unwrap_or_default().load;
        let own = self.traffic.iter().flatten().sum::<f64>() - rest.bytes * self.joules();
        let users = if is_known { users } else { (0, 0) };
        let own = (own.max(0.0), self.shared);
        let held = (self.is_waited_for(), self.most_asked());
        self.peak.learn(users, &self.traffic, own, (came, takes), held, span);
        let requests = self.load.requests + rest.requests;
        let bytes = self.load.requests * self.load.size + rest.requests * rest.size;
        let all = Load { size: bytes / requests.max(1.0), requests, ..Load::default() };
        self.cpu.learn(signals, self.point, all);
        let now = signals.io.completed.unwrap_or_default() as f64;
        let now = Load { size: asked * span / now.max(1.0), requests: now / span, bytes: asked };
        self.learn_elsewhere(now, takes);
        let by_model = self.cpu.in_force(signals, now);
        let packages = signals.power.cpu.unwrap_or(Watts(by_model));
        let now = self.model.wall(packages, read, written).0;
        self.past.rotate_right(1);
        self.past[0] = (signals.now, now);
        now
    }

    /// Learns where requests that nothing holds back spend their time.
    fn learn_elsewhere(&mut self, now: Load, takes: f64) {
        let point = &self.cpu.points[self.point];
        let (service, busy) = self.cpu.alone(point, now);
        if self.limited || busy > BUSY || self.rest.is_some() || takes <= 0.0 {
            return;
        }
        // While the cores stand still nothing is sent either.
        let elsewhere = (takes * point.time - service).max(0.0);
        let known = self.elsewhere.get_or_insert(elsewhere);
        *known += LEARN * (elsewhere - *known);
    }

    /// The model's mean over the meter's window, or a period, that ended at `at`.
    fn remembered(&self, at: Nanos, period: Nanos) -> Option<f64> {
        let from = at.saturating_sub(self.model.meter_window.max(period));
        let (mut sum, mut span) = (0.0, 0.0);
        for pair in self.past.windows(2) {
            let ((end, watts), (start, _)) = (pair[0], pair[1]);
            let part = end.min(at).saturating_sub(start.max(from)).seconds();
            (sum, span) = (sum + watts * part, span + part);
        }
        (span > 0.0 && self.past[0].0 >= at).then(|| sum / span)
    }

    /// Learns of the meter; whether it can be believed.
    fn learn(&mut self, b: f64, signals: &Signals) -> bool {
        let lag = signals.sources.of(Signal::Power, 0).age;
        let cpu = signals.power.cpu.unwrap_or_default();
        let Some(total) = signals.power.total.filter(|total| *total >= cpu) else { return false };
        let at = signals.now.saturating_sub(lag);
        let Some(then) = self.remembered(at, signals.period) else { return false };
        let last = self.last.filter(|(reading, _)| *reading == total);
        let (_, before) = *self.last.insert(last.unwrap_or((total, then)));
        if (then - before).abs() > STUCK * b {
            return false;
        }
        let missed = total.0 - then - self.bias;
        if matches!(self.state, State::Boot | State::Safe) {
            let agrees = self.readings > 0 && missed.abs() <= STUCK * b;
            self.readings = if agrees { self.readings + 1 } else { 1 };
            self.bias += missed;
            self.misses.rotate_right(1);
            self.misses[0] = self.bias;
            self.missed += 1;
            if self.readings < READINGS && self.missed >= MISSES {
                self.agree_in_the_mean(b);
            }
            return true;
        }
        let plausible = self.explains(b, self.bias + missed);
        // What rested works now, or drives clean up: no reason to exceed the budget.
        if total.0 > b && missed > 0.0 && (self.bias < 0.0 || !plausible) {
            self.bias = (self.bias + missed).min(if plausible { 0.0 } else { f64::INFINITY });
            return true;
        }
        let rest = Nanos(2 * lag.0) + signals.period.max(self.model.meter_window);
        if signals.now.saturating_sub(self.moved.1) > rest {
            self.lies = if plausible { 0 } else { self.lies + 1 };
            if plausible {
                self.bias += LEARN * missed;
                // What goes on to be less than was thought is the bias's, and needs no margin.
                let goes_on = std::mem::replace(&mut self.less, missed < 0.0) && missed < 0.0;
                self.spread += 0.1 * (if goes_on { 0.0 } else { missed.abs() } - self.spread);
            }
        }
        plausible
    }

    /// Whether model and meter may differ by `bias`: fans that turn slower than they may and drives
    /// that rest draw less than the model says.
    fn explains(&self, b: f64, bias: f64) -> bool {
        let rests = (self.model.fans + self.model.resting).0 / self.model.efficiency;
        (-MOST_BIAS * b - rests..=MOST_BIAS * b).contains(&bias)
    }

    /// Where readings differ from one to the next, those of a while may be taken in the mean.
    fn agree_in_the_mean(&mut self, b: f64) {
        let count = MISSES as f64;
        let mean = self.misses.iter().sum::<f64>() / count;
        let off = |miss: &f64| miss - mean;
        let square: f64 = self.misses.iter().map(|miss| off(miss).powi(2)).sum();
        if (square / (count - 1.0) / count).sqrt() <= STUCK * b {
            self.spread = self.misses.iter().map(|miss| off(miss).abs()).sum::<f64>() / count;
            (self.bias, self.readings) = (mean, READINGS);
        }
    }

    /// What may be drawn from now on, and the state.
    fn allow(&mut self, b: f64, now: f64, believed: bool, signals: &Signals) {
        let margin = (MARGIN * b).max(2.0 * self.spread).min(0.05 * b);
        let most = b - margin - if believed { 0.0 } else { BLIND * b };
        let before = self.allowed;
        let drawn = now + self.bias;
        // Limits that do not hold a burst back, for now: the cores do.
        self.exceeds &= drawn > most;
        let settles = matches!(self.state, State::Boot | State::Safe);
        if settles {
            if self.readings < READINGS {
                self.boots = self.boots.saturating_add(1);
                return;
            }
            let free = self.free && self.state == State::Boot;
            self.allowed = if free { most } else { drawn.min(most) };
        }
        if settles && !self.explains(b, self.bias) || self.lies >= READINGS {
            (self.state, self.allowed) = (State::Safe, drawn.min(most));
            (self.readings, self.missed, self.lies) = (0, 0, 0);
        } else {
            self.allowed = (self.allowed + RISE * b).min(most);
            let shed = self.allowed < before || drawn > b;
            self.state = match (believed, shed) {
                (false, _) => State::Blind,
                (true, true) => State::Shedding,
                (true, false) => State::Tracking,
            };
        }
        if (self.allowed - self.moved.0).abs() > MOVE * b {
            self.moved = (self.allowed, signals.now);
        }
    }

    /// Whether all that the server can draw is within the budget, so that there is nothing to keep;
    /// only readings in a row that are beyond it prove the contrary.
    fn is_unbound(&self, b: f64) -> bool {
        let packages = self.cpu.points.last().map_or(0.0, |all| all.packages);
        let most = Watts(self.cpu.ratio.max(1.0) * packages) + self.model.most_traffic;
        let understood = matches!(self.state, State::Tracking | State::Shedding);
        let bias = if understood { self.bias.max(0.0) } else { 0.0 };
        let most = self.model.wall(most, 0.0, 0.0).0 + bias;
        most <= b * (1.0 - MARGIN) && self.beyond < READINGS
    }

    /// Begins again, but for what is known of meter, model and load.
    fn start(&mut self) {
        (self.state, self.allowed) = (State::Boot, 0.0);
        (self.boots, self.beyond, self.lies) = (0, 0, 0);
        (self.free, self.within) = (true, true);
        self.binds = self.topology.limitable.rates;
    }

    /// Takes back all limits.
    fn lift(&mut self, request: &mut Request) {
        self.point = self.cpu.points.len() - 1;
        self.unlimit();
        release(request);
    }

    /// Whether limits of rates can be relied on.
    const fn binds(&self) -> bool {
        self.binds && !self.exceeds
    }

    /// Watts of the traffic that there may be at a point: what the drives' limits leave of it, or,
    /// where none binds, all that its cores might serve instead of what they serve now.
    fn drawn(&self) -> impl Fn(&Point) -> f64 {
        let all = self.traffic.iter().flatten().sum::<f64>();
        let joules = self.joules();
        let rest = self.rest.map_or(0.0, |rest| rest.load.bytes) * joules;
        let used = (all - rest).max(0.0);
        let serves = |point: &Point| self.cpu.serves(point, self.load.size);
        let now = serves(&self.cpu.points[self.point]);
        move |point| {
            if self.binds() {
                return 0.0;
            }
            let rise = serves(point) / now;
            let peak = self.peak.watts.min(serves(point) * joules);
            (used * rise.max(1.0)).max(peak).min(self.model.most_traffic.0.max(used))
        }
    }

    /// Watts that a point leaves for traffic, each byte of which costs so many joules.
    fn room(&self, point: &Point, joules: f64) -> f64 {
        // What a meter told before it was found to lie, or was understood, saves nothing.
        let blind = matches!(self.state, State::Blind | State::Boot);
        let bias = if blind { self.bias.max(0.0) } else { self.bias };
        let delivered = (self.allowed - bias) * self.model.efficiency;
        // Cores draw what traffic makes them busy, and no more than all of them busy.
        let busy = delivered - self.model.rest.0 - self.cpu.ratio * point.packages;
        let (saves, costs) = self.cpu.saves(point, self.load.size);
        ((busy + saves) * joules / (joules + costs)).max(busy)
    }

    /// Asks for the point, and for limits of rates unless the peak is known to fit without.
    fn ask(&mut self, left: Left, request: &mut Request) {
        let late = self.state == State::Boot && self.boots >= BOOT;
        let reason = if late { State::Blind.reason() } else { self.state.reason() };
        let point = &self.cpu.points[self.point];
        if self.rest.is_some() {
            request.best_effort_rate.ask(0, left.rest.max(LEAST_RATE), reason);
        } else {
            request.best_effort_rate.release(0);
        }
        for g in self.topology.io_groups() {
            if self.topology.limitable.cores {
                request.core_limit.ask(g, self.cpu.cores(g, point), reason);
            }
            if self.topology.limitable.frequencies {
                request.frequency_limit.ask(g, point.frequency, reason);
            }
        }
        if point.time < 1.0 {
            let groups = self.topology.io_groups();
            let cores: f64 = groups.map(|g| f64::from(self.cpu.cores(g, point))).sum();
            request.cpu_time.ask(0, point.time * cores, reason);
            let size = self.peak.load(self.load.size).size;
            // Beside best effort nobody knows what users would ask of cores that have more time.
            let bytes = if self.rest.is_some() { f64::INFINITY } else { left.bytes };
            request.cpu_period.ask(0, self.cpu.period(point, size, bytes), reason);
        } else {
            request.cpu_time.release(0);
            request.cpu_period.release(0);
        }
        if !self.topology.limitable.rates {
            return;
        }
        if left.is_enough {
            self.unlimit();
            return lift(request);
        }
        self.share(left, request, reason);
    }

    /// Whether drives need no limits where the peak fits.
    fn may_lift(&self) -> bool {
        let understood = matches!(self.state, State::Tracking | State::Shedding);
        understood && self.peak.is_known() && self.rest.is_none() && !self.limited
    }

    /// No drive has a limit.
    fn unlimit(&mut self) {
        self.limits.fill([f64::INFINITY; 2]);
        self.shared = f64::INFINITY;
    }
}

impl Policy for Tide {
    fn name(&self) -> &'static str {
        "tide"
    }

    fn step(&mut self, signals: &Signals, request: &mut Request) {
        let budget = sensed(signals).map(|(Watts(b), _)| b);
        if budget.is_none() {
            self.start();
        }
        if let Some(b) = budget.or(signals.power.total.map(|total| total.0))
            && signals.period > Nanos::ZERO
        {
            let now = self.sense(signals);
            // A meter that was not to be believed has to tell as many good readings as at first.
            self.doubt =
                if self.learn(b, signals) { self.doubt.saturating_sub(1) } else { READINGS };
            if budget.is_some() {
                self.allow(b, now, self.doubt == 0, signals);
            }
        }
        let Some(b) = budget else { return self.lift(request) };
        let reading = signals.power.total;
        self.beyond = match reading {
            Some(power) if power.0 > b => self.beyond.saturating_add(1),
            Some(_) => 0,
            None => self.beyond,
        };
        // What is within the budget may stay until it is understood; no reading proves nothing.
        let fits = reading.is_none_or(|power| power.0 <= b * (1.0 - MARGIN));
        self.within &= fits;
        if self.is_unbound(b) {
            return self.lift(request);
        }
        self.free &= self.state == State::Boot && fits && reading.is_some();
        if self.free {
            return self.lift(request);
        }
        let (point, left) = match self.state {
            State::Boot if fits && (self.within || self.boots >= BOOT) => {
                self.allowed = (1.0 - MOST_BIAS) * b;
                self.choose()
            }
            State::Boot | State::Safe => (0, Left::default()),
            _ => self.choose(),
        };
        self.point = point;
        self.ask(left, request);
    }
}

#[cfg(test)]
mod tests;
