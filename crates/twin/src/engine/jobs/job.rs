//! One job: what is left of it, what it waits for, what it came to.

use ebb_policy::QosClass;
use ebb_policy::units::{Hertz, Nanos};
use ebb_trace::generate::{Job as Spec, JobIo};
use ebb_trace::{Op, Request};

use crate::engine::io::mix;
use crate::outcome::JobTotal;

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Not there yet, without a slot, or not admitted.
    Outside,
    /// Has work for a core.
    Ready,
    /// Waits for the drives.
    Waiting,
    /// Over.
    Ended,
}

#[derive(Debug)]
pub(super) struct Job {
    spec: Spec,
    pub(super) state: State,
    pub(super) slot: Option<u16>,
    /// The seat (core) it is on, once admitted.
    pub(super) seat: usize,
    /// CPU time of one request, of all the work without I/O; ns at the reference clock.
    burst: f64,
    /// What is left of the burst under way.
    left: f64,
    /// Requests sent, answered and worked on.
    sent: u64,
    answered: u64,
    worked: u64,
    sequential: u64,
    /// Slices it may run, not yet run: shares add up until there is a whole one.
    credit: f64,
    /// Whether it may run in this slice.
    pub(super) allowed: bool,
    /// Since when it runs, waits for the drives, or is held back though it could run.
    pub(super) running: Option<u64>,
    waiting: u64,
    held: Option<u64>,
    /// Of this control period.
    busy: u64,
    bytes: u64,
    pub(super) total: JobTotal,
}

/// How fast a core runs: its frequency now and at most.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) frequency: Hertz,
    pub(super) highest: Hertz,
}

impl Job {
    pub(super) fn new(spec: Spec) -> Self {
        let pieces = spec.io.as_ref().map_or(1, |io| io.requests.max(1));
        let total = JobTotal {
            name: spec.name.clone(),
            class: spec.class,
            arrived: spec.start,
            started: None,
            ended: None,
            cpu: Nanos::ZERO,
            disk_bytes: 0,
            disk_wait: Nanos::ZERO,
            throttled: Nanos::ZERO,
            objective: spec.objective,
            energy: None,
        };
        Self {
            state: State::Outside,
            slot: None,
            seat: usize::MAX,
            // No piece without any work: a nanosecond keeps time moving.
            burst: (spec.cpu.0 as f64 / pieces as f64).max(1.0),
            left: 0.0,
            sent: 0,
            answered: 0,
            worked: 0,
            sequential: 0,
            credit: 0.0,
            allowed: false,
            running: None,
            waiting: 0,
            held: None,
            busy: 0,
            bytes: 0,
            total,
            spec,
        }
    }

    pub(super) fn class(&self) -> QosClass {
        self.spec.class
    }
    pub(super) fn socket(&self) -> Option<u16> {
        self.spec.socket
    }
    pub(super) fn activity(&self) -> f64 {
        self.spec.activity
    }
    pub(super) fn io(&self) -> Option<&JobIo> {
        self.spec.io.as_ref()
    }

    /// Work done per time, relative to the reference clock: a part of the time waits for memory
    /// whatever the clock (EADC Eq. 2).
    fn speed(&self, frequency: Hertz) -> f64 {
        let clocked = (1.0 - self.spec.fixed) * (self.spec.clock / frequency);
        1.0 / (clocked + self.spec.fixed).max(1e-9)
    }

    /// Admitted: from now on it has work, or waits for its first data.
    pub(super) fn start(&mut self, now: u64) {
        self.total.started = Some(Nanos(now));
        if self.spec.io.is_some() {
            (self.state, self.waiting) = (State::Waiting, now);
        } else {
            (self.state, self.left) = (State::Ready, self.burst);
        }
    }

    /// A slice begins: shares add up to whole slices.
    pub(super) fn share(&mut self, share: f64, now: u64) {
        if let Some(since) = self.held.take() {
            self.total.throttled.0 += now - since;
        }
        self.credit += share;
        self.allowed = self.credit >= 1.0 - 1e-9;
        if self.allowed {
            self.credit -= 1.0;
        }
        self.hold(now);
    }

    fn hold(&mut self, now: u64) {
        if self.state == State::Ready && !self.allowed {
            self.held = Some(now);
        }
    }

    /// When the burst under way would end at `pace`, if it runs from now on.
    pub(super) fn burst_end(&self, now: u64, pace: Pace) -> u64 {
        now + (self.left / self.speed(pace.frequency)).ceil() as u64
    }

    /// Books what it ran up to `now`; returns for how long.
    pub(super) fn progress(&mut self, now: u64, pace: Pace) -> u64 {
        let Some(since) = self.running.replace(now) else { return 0 };
        let span = now - since;
        let (speed, best) = (self.speed(pace.frequency), self.speed(pace.highest));
        self.left -= span as f64 * speed;
        self.busy += span;
        self.total.cpu.0 += span;
        self.total.throttled.0 += (span as f64 * (1.0 - speed / best).max(0.0)) as u64;
        span
    }

    /// Whether the burst under way is over, to the nanosecond.
    pub(super) fn is_burst_over(&self) -> bool {
        self.state == State::Ready && self.left <= 1.0
    }

    /// A burst is over: the next one, the next wait, or the end.
    pub(super) fn burst_done(&mut self, now: u64) {
        self.worked += 1;
        let pieces = self.spec.io.as_ref().map_or(1, |io| io.requests.max(1));
        if self.worked >= pieces {
            self.state = State::Ended;
            self.total.ended = Some(Nanos(now));
        } else if self.answered > self.worked {
            self.left += self.burst;
        } else {
            (self.state, self.waiting) = (State::Waiting, now);
        }
    }

    /// A request was answered.
    pub(super) fn answer(&mut self, now: u64, bytes: u64) {
        self.answered += 1;
        self.bytes += bytes;
        self.total.disk_bytes += bytes;
        if self.state == State::Waiting {
            self.total.disk_wait.0 += now - self.waiting;
            (self.state, self.left) = (State::Ready, self.burst);
            self.hold(now);
        }
    }

    /// How many requests it may send now: sent and not worked on are at most its depth.
    pub(super) fn may_send(&self) -> u64 {
        let Some(io) = &self.spec.io else { return 0 };
        let window = u64::from(io.depth).saturating_sub(self.sent - self.worked);
        window.min(io.requests - self.sent)
    }

    /// Its next request. Writes are spread evenly over all; random places follow from the
    /// job's number and the request's, so that they are the same under every policy.
    pub(super) fn next_request(&mut self, now: u64, number: u32) -> Option<Request> {
        let io = self.spec.io.as_ref()?;
        let index = self.sent;
        self.sent += 1;
        let is_write = (index + 1) * io.writes / io.requests > index * io.writes / io.requests;
        let draw = mix(index as u32, number ^ 0x10B5);
        let places = (io.span / u64::from(io.bytes)).max(1);
        let turn = self.sequential % u64::from(io.count);
        let random = (draw >> 40) as f64 / (1u64 << 24) as f64;
        let place = if random < io.random {
            (draw & 0xFF_FFFF_FFFF) % places
        } else {
            self.sequential += 1;
            (self.sequential - 1) / u64::from(io.count) % places
        };
        Some(Request {
            at: Nanos(now),
            offset: io.base + place * u64::from(io.bytes),
            bytes: io.bytes,
            device: io.first + turn as u16,
            op: if is_write { Op::Write } else { Op::Read },
            stream: number,
            recorded_latency: None,
        })
    }

    /// CPU time used and bytes moved since the last call.
    pub(super) fn take_period(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.busy), std::mem::take(&mut self.bytes))
    }

    /// Loses CPU time to a move.
    pub(super) fn delay(&mut self, lost: Nanos) {
        self.left += lost.0 as f64;
    }
}
