//! Core groups: run queues, service, parking, frequency, and the energy of each core.

mod govern;
mod heat;
mod limits;
mod recall;

use std::collections::VecDeque;

use ebb_policy::units::{Hertz, Watts};
use ebb_policy::{CoreRole, GroupSetting, GroupSignals};

use super::events::{Event, Events};
use super::idle::Idle;
use super::io::{Io, Ios, Kind, NONE, mix};
use super::prefetch::prefetch;
use super::quota::Quota;
use super::waiting::Waiting;
use crate::factors::{FACTORS, factors};
use crate::outcome::CoreTime;
use crate::profile::{Cpu, Profile, Stage, Wait};
pub(super) use limits::CoreLimits;

/// An I/O and the cycles that it takes in its stage.
#[derive(Debug, Clone, Copy)]
struct Work {
    cycles: f64,
    io: u32,
}

/// How many of them a cache line holds.
const WORKS_IN_LINE: usize = 64 / size_of::<Work>();

/// One core, in cache lines of its own.
#[derive(Debug, Clone)]
#[repr(align(64))]
struct Core {
    group: u32,
    running: u32,
    users: VecDeque<Work>,
    background: VecDeque<Work>,
    /// Queued and running.
    load: u32,
    /// Whether it takes new work.
    active: bool,
    /// When it can start work: after unparking or a frequency change.
    ready_at: u64,
    /// When what it runs ends; the end of time when it runs nothing, or a job.
    ends: u64,
    /// When it last ran out of work.
    idle_since: u64,
    /// Up to when its time and energy are booked.
    booked: u64,
    /// Useful time in this period, nanoseconds.
    busy: u64,
    /// Times that it ran out of work in this period.
    rests: u32,
}

impl Core {
    /// There is no more work.
    #[inline]
    fn rest(&mut self, now: u64) {
        (self.running, self.ends, self.idle_since) = (NONE, u64::MAX, now);
        self.rests += 1;
    }
}

/// One group: the cores of a stage.
#[derive(Debug)]
struct Group {
    stage: Stage,
    /// Cycles of each kind of request ([`Op`]), and for each KiB of it.
    costs: [(f64, f64); 4],
    first: usize,
    active: u16,
    /// Queued and running on all of its cores.
    load: u32,
    /// Load of each active core above which all are taken back, and the frequency to take then.
    recall: Option<(u32, GroupSetting)>,
    /// Active cores that take new work: those that wake from parking do so from `joined_at` on.
    taking: u16,
    joined_at: u64,
    frequency: Hertz,
    /// The highest that is asked for, and that the governor finds needed.
    asked: Hertz,
    needed: Hertz,
    ns_per_cycle: f64,
    busy_watts: f64,
    poll_watts: f64,
    idle: Idle,
    /// Factors on the cycles of a request, mean 1.
    variation: Vec<f32>,
    /// Energy since the last [`Cores::socket_watts`], in watt-nanoseconds.
    watt_ns: f64,
    /// Waits for work by polling; cores for jobs leave that to the operating system.
    polls: bool,
    /// Useful time of its cores since the start, ns, and up to the last report.
    busy: u64,
    told: u64,
    /// Works that wait for one of its cores.
    waiting: Waiting,
}

/// All cores.
#[derive(Debug)]
pub(super) struct Cores {
    cpu: Cpu,
    groups: Vec<Group>,
    cores: Vec<Core>,
    /// Cycles of a background task.
    task_cycles: f64,
    /// Share of the time at the highest frequency that does not stretch at lower ones (EADC Eq. 2).
    uncore_share: f64,
    /// Energy of the cores since the last [`Cores::take_joules`], in watt-nanoseconds.
    watt_ns: f64,
    time: CoreTime,
    quota: Quota,
    /// What is asked of both beyond the profile.
    limits: CoreLimits,
    /// The highest frequency at which all cores busy keep the power limit.
    ceiling: Hertz,
    /// How often it is looked whether cores are crowded; 0 is with every request.
    watch: u64,
    watching: bool,
    /// Energy outside the cores in this period, up to a change of frequency.
    uncore: (u64, f64),
}

/// Runs on a core in place of an I/O: a job.
const JOB: u32 = u32::MAX - 1;

/// Takes the oldest that waits or, with probability `random_order`, any of them, whose place the
/// newest takes: whoever waits moves forward only.
fn next_user(waiting: &mut VecDeque<Work>, random_order: f64, key: u32) -> Option<Work> {
    if random_order > 0.0 && waiting.len() > 1 {
        let draw = mix(key, 0x300);
        if ((draw >> 32) as f64) < random_order * f64::from(u32::MAX) {
            let place = ((draw & 0xFFFF_FFFF) * waiting.len() as u64) >> 32;
            return waiting.swap_remove_back(place as usize);
        }
    }
    waiting.pop_front()
}

impl Cores {
    pub(super) fn new(profile: &Profile) -> Self {
        let mut cores = Vec::new();
        let mut groups = Vec::new();
        for (index, stage) in profile.stages_and_jobs().enumerate() {
            let count = usize::from(stage.cores);
            let (write, per_kib) = (stage.write_cycles, stage.cycles_per_kib);
            groups.push(Group {
                costs: [(stage.read_cycles, per_kib), (write, per_kib), (write, 0.0), (write, 0.0)],
                first: cores.len(),
                active: stage.cores,
                load: 0,
                recall: None,
                taking: stage.cores,
                joined_at: 0,
                frequency: Hertz(0.0),
                asked: Hertz(0.0),
                needed: Hertz(f64::INFINITY),
                ns_per_cycle: 0.0,
                busy_watts: 0.0,
                poll_watts: 0.0,
                idle: Idle::new(&profile.cpu),
                variation: factors(stage.variation),
                watt_ns: 0.0,
                polls: profile.cpu.wait == Wait::Poll && stage.role != CoreRole::Compute,
                busy: 0,
                told: 0,
                waiting: Waiting::default(),
                stage,
            });
            let core = Core {
                group: index as u32,
                running: NONE,
                users: VecDeque::new(),
                background: VecDeque::new(),
                load: 0,
                active: true,
                ready_at: 0,
                ends: u64::MAX,
                idle_since: 0,
                booked: 0,
                busy: 0,
                rests: 0,
            };
            cores.extend(std::iter::repeat_n(core, count));
        }
        let mut this = Self {
            cpu: profile.cpu.clone(),
            groups,
            cores,
            task_cycles: profile.background.as_ref().map_or(0.0, |b| b.task_cycles),
            uncore_share: profile.uncore_share(),
            watt_ns: 0.0,
            time: CoreTime::default(),
            quota: Quota::new(&profile.cpu),
            limits: CoreLimits::default(),
            ceiling: Hertz(f64::INFINITY),
            watch: 0,
            watching: false,
            uncore: (0, 0.0),
        };
        this.ceiling = this.within(this.cpu.power_limit);
        this.quota.share(this.sharers());
        let highest = this.highest_frequency();
        for group in 0..this.groups.len() {
            this.scale(group, highest);
        }
        this
    }

    /// The highest frequency at which the packages keep their limit with all cores busy; between
    /// two steps they take turns. A limit below the lowest one's power is not kept.
    fn within(&self, limit: Option<Watts>) -> Hertz {
        let highest = self.highest_frequency();
        let Some(limit) = limit else { return highest };
        let limit = limit * self.cpu.limit_share;
        let power = |frequency| {
            let core = self.cpu.core_static + self.cpu.dynamic(frequency);
            self.cpu.uncore_at(frequency) + core * self.cores.len() as f64
        };
        let mut low = self.cpu.frequencies.first().unwrap_or(&highest).0;
        let mut high = highest.0;
        if power(highest) <= limit {
            return highest;
        }
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            *if power(Hertz(middle)) <= limit { &mut low } else { &mut high } = middle;
        }
        Hertz(low)
    }

    /// What `io` is to its stage.
    fn work(&self, io: &Io, index: u32) -> Work {
        let stage = usize::from(io.stage);
        let Group { costs, variation, .. } = &self.groups[stage];
        let (command, per_kib) = costs[io.op as usize];
        let moved = per_kib * f64::from(io.bytes) / 1024.0;
        let cycles = if io.kind == Kind::Task { self.task_cycles } else { command + moved };
        let factor = variation[mix(io.key, stage as u32) as usize % FACTORS];
        Work { cycles: cycles * f64::from(factor), io: index }
    }

    /// Queues `io` on a core of its stage: of two drawn at random, the less loaded one. Returns
    /// whether it runs at once.
    pub(super) fn dispatch(
        &mut self,
        ios: &Ios,
        events: &mut Events,
        now: u64,
        index: u32,
    ) -> bool {
        let io = &ios[index];
        let (stage, user) = (u32::from(io.stage), io.kind == Kind::User);
        let work = self.work(io, index);
        let group = &mut self.groups[stage as usize];
        if now >= group.joined_at {
            group.taking = group.active;
        }
        let draw = mix(io.key, 0x100 + stage);
        let pick = |half: u64| group.first + ((half * u64::from(group.taking)) >> 32) as usize;
        let (one, other) = (pick(draw >> 32), pick(draw & 0xFFFF_FFFF));
        let core = if self.cores[other].load < self.cores[one].load { other } else { one };
        let runs = self.enqueue(events, now, core, work, user);
        if self.is_crowded(stage as usize) {
            self.crowded(events, now);
        }
        runs
    }

    /// Gives work to a core, which runs it or has it wait; returns whether it runs.
    #[inline(always)]
    fn enqueue(
        &mut self,
        events: &mut Events,
        now: u64,
        index: usize,
        work: Work,
        user: bool,
    ) -> bool {
        let core = &mut self.cores[index];
        core.load += 1;
        self.groups[core.group as usize].load += 1;
        if core.running == NONE {
            let wake = self.wake_latency(index, now);
            self.book(index, now);
            self.run(events, now + wake, index, work);
            return true;
        }
        self.groups[core.group as usize].waiting.begins(now);
        if user {
            core.users.push_back(work)
        } else {
            core.background.push_back(work)
        }
        false
    }

    /// Runs work on a core whose state until now is booked.
    #[inline(always)] // Once per request and stage.
    fn run(&mut self, events: &mut Events, from: u64, index: usize, work: Work) {
        let core = &mut self.cores[index];
        let Group { stage, ns_per_cycle, active, .. } = &self.groups[core.group as usize];
        let contended = stage.contention.0 * u64::from(active.saturating_sub(1));
        let service = (work.cycles * ns_per_cycle) as u64 + contended;
        core.running = work.io;
        core.ends = self.quota.end(from.max(core.ready_at), service);
        events.push(core.ends, Event::CoreDone(index as u32));
    }

    /// The core finished: returns what it ran, and what it goes on with, users first.
    pub(super) fn done(
        &mut self,
        ios: &Ios,
        events: &mut Events,
        now: u64,
        index: u32,
    ) -> (u32, Option<u32>) {
        let index = index as usize;
        let core = &mut self.cores[index];
        let finished = core.running;
        assert!(finished != NONE, "core {index} finishes what it has begun");
        core.load -= 1;
        self.groups[core.group as usize].load -= 1;
        let next = next_user(&mut core.users, self.cpu.random_order, ios[finished].key);
        let next = next.or_else(|| core.background.pop_front());
        // Under overload what waits has long left the processor's caches.
        if let Some(after) = core.users.front() {
            prefetch(&ios[after.io]);
            if let Some(later) = core.users.get(WORKS_IN_LINE) {
                prefetch(later);
            }
        }
        // From work to work a core draws the same: that is booked when it rests.
        if let Some(next) = next {
            self.groups[core.group as usize].waiting.ends(now);
            self.run(events, now, index, next);
        } else {
            self.book(index, now);
            self.cores[index].rest(now);
        }
        (finished, next.map(|next| next.io))
    }

    /// Time to wake an idle core from the state it has fallen into.
    fn wake_latency(&self, index: usize, now: u64) -> u64 {
        if self.cpu.wait == Wait::Poll {
            return 0;
        }
        let core = &self.cores[index];
        self.groups[core.group as usize].idle.wake_latency(now - core.idle_since)
    }

    /// Books a core's time and energy up to `now`.
    fn book(&mut self, index: usize, now: u64) {
        let core = &mut self.cores[index];
        let mut span = now - core.booked;
        if span == 0 {
            return;
        }
        let since = std::mem::replace(&mut core.booked, now);
        let before = self.watt_ns;
        let index = core.group as usize;
        let group = &self.groups[index];
        if core.active && self.quota.limits() && group.stage.role != CoreRole::Compute {
            let stopped = span - self.quota.running(since, now);
            self.time.idle.0 += stopped;
            self.watt_ns += stopped as f64 * self.cpu.parked.0;
            span -= stopped;
        }
        if core.running != NONE {
            core.busy += span;
            self.groups[index].busy += span;
            self.time.busy.0 += span;
            self.watt_ns += span as f64 * self.groups[index].busy_watts;
        } else if !core.active {
            self.time.parked.0 += span;
            self.watt_ns += span as f64 * self.cpu.parked.0;
        } else if group.polls {
            self.time.polling.0 += span;
            self.watt_ns += span as f64 * group.poll_watts;
        } else {
            let idle_since = core.idle_since;
            self.time.idle.0 += span;
            self.watt_ns += group.idle.watt_ns(now - idle_since);
            if since > idle_since {
                self.watt_ns -= group.idle.watt_ns(since - idle_since);
            }
        }
        self.groups[index].watt_ns += self.watt_ns - before;
    }

    /// What a group runs at of what is asked for.
    fn allowed(&self, group: usize, asked: Hertz) -> Hertz {
        asked.min(self.ceiling).min(self.groups[group].needed)
    }

    /// Sets a group's frequency-dependent numbers.
    fn scale(&mut self, group: usize, asked: Hertz) {
        let frequency = self.allowed(group, asked);
        let highest = self.cpu.frequencies.last().map_or(frequency.0, |f| f.0);
        let dynamic = self.cpu.dynamic(frequency).0;
        let group = &mut self.groups[group];
        (group.frequency, group.asked) = (frequency, asked);
        let unstretched = self.uncore_share * (1e9 / highest);
        group.ns_per_cycle = (1.0 - self.uncore_share) * (1e9 / frequency.0) + unstretched;
        group.busy_watts = self.cpu.core_static.0 + dynamic;
        group.poll_watts = self.cpu.core_static.0 + dynamic * self.cpu.poll_share;
        group.idle.set_awake(group.poll_watts);
    }

    /// Carries out what is asked of a group. Parked cores finish their queues first; what waits
    /// when cores come back is shared with these.
    pub(super) fn apply(
        &mut self,
        events: &mut Events,
        now: u64,
        group: usize,
        control: GroupSetting,
    ) {
        let Group { first, active, frequency, stage, .. } = &self.groups[group];
        let (first, old, cores) = (*first, usize::from(*active), usize::from(stage.cores));
        let rescale = *frequency != self.allowed(group, control.frequency);
        let wanted = usize::from(control.active).clamp(1, cores);
        self.groups[group].asked = control.frequency;
        if !rescale && wanted == old {
            return;
        }
        for index in first..first + cores {
            self.book(index, now);
        }
        for core in &mut self.cores[first + wanted.min(old)..first + wanted.max(old)] {
            core.active = wanted > old;
            if core.active {
                core.ready_at = now + self.cpu.unpark_latency.0;
                core.idle_since = now;
            }
        }
        if rescale {
            self.book_uncore(now);
            self.scale(group, control.frequency);
            let ready = now + self.cpu.frequency_latency.0;
            for core in &mut self.cores[first..first + wanted] {
                core.ready_at = core.ready_at.max(ready);
            }
        }
        let group = &mut self.groups[group];
        if now >= group.joined_at {
            group.taking = old as u16;
        }
        group.taking = group.taking.min(wanted as u16);
        if wanted > old {
            group.joined_at = now + self.cpu.unpark_latency.0;
        }
        group.active = wanted as u16;
        if self.quota.limits() {
            self.retime(events, now, |_| {});
        }
        if wanted > old {
            self.share(events, now, first, (old, wanted));
        }
    }

    /// Moves users' requests that wait for one of the `old` cores from `first` on to those which
    /// have joined them, until none of `old` has more than an even part of all.
    fn share(&mut self, events: &mut Events, now: u64, first: usize, (old, all): (usize, usize)) {
        let load: u32 = self.cores[first..first + all].iter().map(|core| core.load).sum();
        let even = load.div_ceil(all as u32);
        let mut joined = first + old;
        for from in first..first + old {
            if self.cores[from].load <= even {
                continue;
            }
            let mut kept = self.cores[from].load.min(1);
            for work in std::mem::take(&mut self.cores[from].users) {
                while kept >= even && joined < first + all && self.cores[joined].load >= even {
                    joined += 1;
                }
                if kept < even || joined == first + all {
                    self.cores[from].users.push_back(work);
                    kept += 1;
                } else {
                    self.cores[from].load -= 1;
                    let group = &mut self.groups[self.cores[from].group as usize];
                    group.load -= 1;
                    group.waiting.ends(now);
                    self.enqueue(events, now, joined, work, true);
                }
            }
        }
    }

    /// Whether the core takes new work.
    pub(super) fn takes_work(&self, core: usize) -> bool {
        self.cores[core].active
    }
    /// A job begins to keep a core busy.
    pub(super) fn start_job(&mut self, core: usize, now: u64) {
        self.book(core, now);
        self.cores[core].running = JOB;
    }
    /// The job leaves the core.
    pub(super) fn stop_job(&mut self, core: usize, now: u64) {
        self.book(core, now);
        self.cores[core].rest(now);
    }
    pub(super) fn highest_frequency(&self) -> Hertz {
        *self.cpu.frequencies.last().unwrap_or(&Hertz(1e9))
    }
    /// Books all cores up to `now`; returns the energy since the last call.
    pub(super) fn take_joules(&mut self, now: u64) -> f64 {
        for index in 0..self.cores.len() {
            self.book(index, now);
        }
        std::mem::take(&mut self.watt_ns) * 1e-9
    }

    /// Power of the packages outside the cores at present.
    fn uncore_now(&self) -> Watts {
        let fastest = self.groups.iter().map(|group| group.frequency).fold(Hertz(0.0), Hertz::max);
        self.cpu.uncore_at(fastest)
    }
    /// Books it up to `now`.
    fn book_uncore(&mut self, now: u64) {
        let since = std::mem::replace(&mut self.uncore.0, now);
        self.uncore.1 += self.uncore_now().0 * (now - since) as f64;
    }

    /// Mean power of the packages outside the cores over a period of `length` ns.
    pub(super) fn uncore(&mut self, now: u64, length: u64) -> Watts {
        let (since, booked) = std::mem::replace(&mut self.uncore, (now, 0.0));
        let mut power = self.uncore_now();
        if length > 0 && since > now - length {
            power = Watts((booked + power.0 * (now - since) as f64) / length as f64);
        }
        if length == 0 || !self.quota.limits() {
            return power;
        }
        let stopped = length - self.quota.running(now - length, now);
        power - self.cpu.stopped_saving * (stopped as f64 / length as f64)
    }

    /// The frequency of a group.
    pub(super) fn frequency(&self, group: usize) -> Hertz {
        self.groups[group].frequency
    }

    /// The core time since the last call, booked by [`Cores::take_joules`].
    pub(super) fn take_time(&mut self) -> CoreTime {
        std::mem::take(&mut self.time)
    }

    /// Reports each group over a period of `length` ns and starts the next period.
    pub(super) fn sense(&mut self, length: u64, signals: &mut [GroupSignals]) {
        for (group, signal) in self.groups.iter().zip(signals) {
            let cores = &mut self.cores[group.first..group.first + usize::from(group.stage.cores)];
            let (mut sum, mut most, mut rests) = (0, 0, 0);
            let of = length * u64::from(group.active);
            for core in cores.iter_mut() {
                let busy = std::mem::take(&mut core.busy);
                rests += std::mem::take(&mut core.rests);
                sum += busy;
                most = most.max(busy);
            }
            let share = |busy: u64, of: u64| (of > 0).then(|| (busy as f64 / of as f64).min(1.0));
            *signal = GroupSignals {
                active: Some(group.active),
                utilisation: share(sum, of),
                busiest: share(most, length),
                wakes: (of > 0 && !group.polls).then(|| f64::from(rests) / of as f64 * 1e9),
                frequency: Some(group.frequency),
            };
        }
    }
}
