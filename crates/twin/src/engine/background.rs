//! Background work: how much waits, and how many of its tasks may run.

use ebb_policy::BackgroundMode;
use ebb_trace::Op;

use super::Engine;
use super::io::{DriveCommand, Io, Kind, NONE, mix};
use crate::profile::{Background, Raid};

/// The backlog of one server.
#[derive(Debug)]
pub(super) struct Backlog {
    spec: Background,
    mode: BackgroundMode,
    /// Bytes waiting.
    pending: f64,
    /// Up to when steady work has been added.
    accrued: u64,
    /// Tasks running.
    running: u32,
    /// Bytes done.
    done: u64,
    /// Tasks started so far.
    started: u32,
}

impl Backlog {
    pub(super) fn new(spec: Background) -> Self {
        Self {
            spec,
            mode: BackgroundMode::Normal,
            pending: 0.0,
            accrued: 0,
            running: 0,
            done: 0,
            started: 0,
        }
    }

    /// Time between two looks at the steady work: the time in which one task of it accrues.
    pub(super) fn interval(&self) -> Option<u64> {
        let steady = self.spec.steady.0;
        (steady > 0).then(|| (self.spec.task.0 as f64 / steady as f64 * 1e9) as u64 + 1)
    }

    /// Adds the steady work up to `now`.
    pub(super) fn accrue(&mut self, now: u64) {
        let seconds = (now - self.accrued) as f64 * 1e-9;
        self.accrued = now;
        self.pending += self.spec.steady.0 as f64 * seconds;
    }
    /// Whether users' writes cause work.
    pub(super) fn follows_writes(&self) -> bool {
        self.spec.per_written_byte > 0.0
    }
    /// Adds the work that a user's write causes.
    pub(super) fn written(&mut self, bytes: u32) {
        self.pending += f64::from(bytes) * self.spec.per_written_byte;
    }
    pub(super) fn set_mode(&mut self, mode: BackgroundMode) {
        self.mode = mode;
    }

    /// Takes one task off the backlog if one waits and may run: its number and its bytes.
    pub(super) fn take(&mut self) -> Option<(u32, u32)> {
        let limit = match self.mode {
            BackgroundMode::Normal => self.spec.normal_tasks,
            BackgroundMode::Race => self.spec.race_tasks,
        };
        let task = self.spec.task.0;
        if self.running >= limit || self.pending < task as f64 {
            return None;
        }
        self.pending -= task as f64;
        self.running += 1;
        self.started = self.started.wrapping_add(1);
        Some((self.started, task as u32))
    }
    /// A task is done.
    pub(super) fn finish(&mut self) {
        self.running -= 1;
        self.done += self.spec.task.0;
    }

    /// Bytes waiting or being worked on.
    pub(super) fn pending(&self) -> u64 {
        self.pending as u64 + u64::from(self.running) * self.spec.task.0
    }
    /// Bytes done.
    pub(super) fn done(&self) -> u64 {
        self.done
    }
}

impl Engine<'_> {
    /// Starts as many background tasks as may run. A task is worked on by a core of the last
    /// stage, then reads its bytes from one drive and writes them to another.
    pub(super) fn start_tasks(&mut self) {
        while let Some((number, bytes)) = self.backlog.as_mut().and_then(|backlog| backlog.take()) {
            let key = mix(number, self.seed ^ 0x7A5C) as u32;
            let stage = (self.profile.stage.len() - 1) as u8;
            let task = self.part(NONE, DriveCommand { drive: 0, op: Op::Read, offset: 0, bytes });
            self.ios[task] = Io { kind: Kind::Task, key, stage, ..self.ios[task] };
            self.dispatch(task);
        }
    }
    pub(super) fn task_worked(&mut self, task: u32) {
        self.task_command(task, 0, Op::Read);
    }
    pub(super) fn task_write(&mut self, task: u32) {
        self.ios[task].old_read = true;
        self.task_command(task, 1, Op::Write);
    }
    fn task_command(&mut self, task: u32, purpose: u32, op: Op) {
        let Io { key, bytes, .. } = self.ios[task];
        let draw = mix(key, 0x200 + purpose);
        let drive = (((draw & 0xFFFF_FFFF) * self.array.drives() as u64) >> 32) as u16;
        let room = self.array.volume_bytes(Raid::None) / u64::from(bytes).max(1);
        let offset = (draw >> 32) % room.max(1) * u64::from(bytes);
        let end = self.send_part(task, DriveCommand { drive, op, offset, bytes });
        self.sent_parts(task, end);
    }
    pub(super) fn task_done(&mut self, task: u32) {
        self.ios.remove(task);
        if let Some(backlog) = &mut self.backlog {
            backlog.finish();
        }
        self.start_tasks();
    }
}
