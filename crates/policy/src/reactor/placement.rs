//! Where threads run and how cores wait: what a scheduler changes.

use super::{Core, FULL_SPEED, Machine, Speed, Thread, Wait};

/// Why a thread moved or a core's way of waiting changed: machine-readable, `scheduler:why`.
pub type Reason = &'static str;

/// One change of a placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shift {
    /// `thread` moves to the core `to`.
    Move {
        /// The thread.
        thread: Thread,
        /// Where it was.
        from: Core,
        /// Where it goes.
        to: Core,
        /// Why.
        reason: Reason,
    },
    /// `core` waits another way from now on.
    Wait {
        /// The core.
        core: Core,
        /// How.
        wait: Wait,
        /// Why.
        reason: Reason,
    },
    /// `core` runs at another frequency from now on. A plant that cannot set frequencies passes
    /// over it; one that can takes the closest it has.
    Speed {
        /// The core.
        core: Core,
        /// Share of the highest frequency.
        speed: Speed,
        /// Why.
        reason: Reason,
    },
}

/// Where each thread runs, how each core waits and how fast it runs, with the changes of this
/// step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    machine: Machine,
    core_of: Vec<Core>,
    waits: Vec<Wait>,
    speeds: Vec<Speed>,
    shifts: Vec<Shift>,
}

impl Placement {
    /// Threads spread evenly, every core polling at the highest frequency.
    ///
    /// # Panics
    /// When the machine has no core.
    #[must_use]
    pub fn even(machine: Machine) -> Self {
        assert!(!machine.cores.is_empty(), "a machine has at least one core");
        let cores = machine.cores.len();
        let core_of: Vec<Core> =
            (0..usize::from(machine.threads)).map(|thread| (thread % cores) as Core).collect();
        let waits = vec![Wait::Poll; cores];
        // Each thread may move and each core change its way of waiting, or its speed, a few times
        // in one step.
        let shifts = Vec::with_capacity(4 * (core_of.len() + cores));
        let speeds = vec![FULL_SPEED; cores];
        Self { machine, core_of, waits, speeds, shifts }
    }

    /// What it runs on.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }
    /// The core of each thread.
    #[must_use]
    pub fn core_of(&self) -> &[Core] {
        &self.core_of
    }
    /// How each core waits.
    #[must_use]
    pub fn waits(&self) -> &[Wait] {
        &self.waits
    }
    /// How fast each core may run.
    #[must_use]
    pub fn speeds(&self) -> &[Speed] {
        &self.speeds
    }
    /// The threads on `core`.
    pub fn threads_on(&self, core: Core) -> impl Iterator<Item = Thread> + '_ {
        let on = move |(thread, at): (usize, &Core)| (*at == core).then_some(thread as Thread);
        self.core_of.iter().enumerate().filter_map(on)
    }
    /// The changes since [`Placement::begin`], in the order a plant must carry them out.
    #[must_use]
    pub fn shifts(&self) -> &[Shift] {
        &self.shifts
    }

    /// Starts a step: forgets the last one's changes.
    pub fn begin(&mut self) {
        self.shifts.clear();
    }
    /// Moves `thread` to the core `to`.
    pub fn move_thread(&mut self, thread: Thread, to: Core, reason: Reason) {
        let from = std::mem::replace(&mut self.core_of[usize::from(thread)], to);
        if from != to {
            self.note(Shift::Move { thread, from, to, reason });
        }
    }
    /// Lets `core` wait as `wait` says.
    pub fn set_wait(&mut self, core: Core, wait: Wait, reason: Reason) {
        if std::mem::replace(&mut self.waits[usize::from(core)], wait) != wait {
            self.note(Shift::Wait { core, wait, reason });
        }
    }
    /// Lets `core` run at `speed`.
    pub fn set_speed(&mut self, core: Core, speed: Speed, reason: Reason) {
        if std::mem::replace(&mut self.speeds[usize::from(core)], speed) != speed {
            self.note(Shift::Speed { core, speed, reason });
        }
    }

    /// A plant acts on shifts, so none may be lost: running out of room is a scheduler's bug.
    fn note(&mut self, shift: Shift) {
        assert!(self.shifts.len() < self.shifts.capacity(), "too many shifts in one step");
        self.shifts.push(shift);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reactor::CoreSpec;

    #[test]
    fn a_move_is_noted_once_and_only_when_it_changes_something() {
        let core = CoreSpec { sibling: None, node: 0 };
        let mut placement =
            Placement::even(Machine { cores: vec![core; 2], threads: 4, wake: None });
        assert_eq!(placement.core_of(), [0, 1, 0, 1]);
        placement.move_thread(1, 0, "test:move");
        placement.move_thread(1, 0, "test:move");
        placement.set_wait(1, Wait::Doze, "test:doze");
        placement.set_speed(1, FULL_SPEED, "test:speed");
        placement.set_speed(1, 500, "test:speed");
        assert_eq!(placement.shifts().len(), 3);
        assert_eq!(placement.threads_on(0).collect::<Vec<_>>(), [0, 1, 2]);
        placement.begin();
        assert!(placement.shifts().is_empty());
    }
}
