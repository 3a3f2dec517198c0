//! How a core waits for work, and what waking it takes.

use rand::RngExt;

use ebb_policy::reactor::{Machine, Wait};
use ebb_policy::units::Nanos;

use super::engine::{Engine, Event};
use super::hyper_thread::Run;
use super::power::State;

impl Engine<'_> {
    /// The core has nothing to do.
    pub fn go_idle(&mut self, core: usize, now: Nanos) {
        let state = &mut self.cores[core];
        (state.since, state.unbooked) = (now, now);
        match self.wait(core) {
            Wait::Poll => self.set(core, now, Run::Idle, State::Active),
            Wait::Doze => self.set(core, now, Run::Dozing, State::Doze),
            Wait::Halt => self.set(core, now, Run::Halted, State::C1),
            Wait::Block { spin: Nanos::ZERO } => self.block(core, now),
            Wait::Block { spin } => {
                self.set(core, now, Run::Idle, State::Active);
                if !std::mem::replace(&mut self.cores[core].spinning, true) {
                    self.push(now + spin, Event::Spun(core as u16));
                }
            }
            Wait::Nap { nap } => {
                let cycle = nap + self.profile.wake.nap;
                let share = nap.0 as f64 / cycle.0.max(1) as f64;
                self.set(core, now, Run::Napping, State::Nap(share));
            }
        }
    }

    fn set(&mut self, core: usize, now: Nanos, run: Run, state: State) {
        self.cores[core].run = run;
        self.meter.set_state(core, now, state);
    }

    fn block(&mut self, core: usize, now: Nanos) {
        self.cores[core].unbooked = now;
        // The kernel's governor: the deepest state that pays for the idle time it expects.
        let deep = self.cores[core].expected >= self.profile.wake.c6_residency.0 as f64;
        let state = if deep { State::C6 } else { State::C1 };
        self.cores[core].since = now;
        self.set(core, now, Run::Blocked, state);
    }

    /// A spinning core's time may be up; if it worked meanwhile, it has more.
    pub fn spun(&mut self, core: usize, now: Nanos) {
        self.cores[core].spinning = false;
        let Wait::Block { spin } = self.wait(core) else { return };
        if self.cores[core].run != Run::Idle {
            return;
        }
        let up = self.cores[core].since + spin;
        if up <= now {
            self.block(core, now);
        } else {
            self.cores[core].spinning = true;
            self.push(up, Event::Spun(core as u16));
        }
    }

    /// There is work for the core, or it shall wait another way; `after` is added to its waking.
    pub fn kick(&mut self, core: usize, now: Nanos, after: Nanos) {
        let wake = &self.profile.wake;
        let delay = match self.cores[core].run {
            Run::Busy => return,
            Run::Idle => {
                let cost = &self.profile.cost;
                let round =
                    cost.poll.0 + cost.poll_thread.0 * self.cores[core].threads.len() as u64;
                Nanos(self.rng.random_range(0..round.max(1)))
            }
            Run::Napping => {
                let Wait::Nap { nap } = self.napping(core) else { return };
                let cycle = (nap + wake.nap).0.max(1);
                let into = (now - self.cores[core].since).0 % cycle;
                Nanos(cycle - into)
            }
            Run::Blocked => {
                let idle = (now - self.cores[core].since).0 as f64;
                let expected = &mut self.cores[core].expected;
                *expected = (*expected + idle) / 2.0;
                let deep = self.meter.state(core) == State::C6;
                wake.block + wake.interrupt + if deep { wake.c6_exit } else { wake.c1_exit }
            }
            Run::Halted => wake.block + wake.interrupt + wake.c1_exit,
            Run::Dozing => wake.doze,
        };
        self.rested(core, now);
        if matches!(self.cores[core].run, Run::Blocked | Run::Halted | Run::Dozing | Run::Napping) {
            self.woken();
        }
        if core == usize::from(Machine::MAIN) && self.cores[core].run == Run::Blocked {
            self.resume_fine(now + delay);
        }
        self.cores[core].run = Run::Busy;
        // Waking is drawn at full power; a nap lasts to its end.
        if !matches!(self.meter.state(core), State::Nap(_)) {
            self.meter.set_state(core, now, State::Active);
        }
        self.push(now + delay + after, Event::Ready(core as u16));
    }

    /// The nap that the core is in, whatever it shall do from now on.
    fn napping(&self, core: usize) -> Wait {
        match (self.wait(core), self.meter.state(core)) {
            (Wait::Nap { nap }, _) => Wait::Nap { nap },
            (_, State::Nap(share)) => {
                let overhead = self.profile.wake.nap.0 as f64;
                Wait::Nap { nap: Nanos((overhead * share / (1.0 - share)) as u64) }
            }
            (wait, _) => wait,
        }
    }

    /// Books time asleep up to `now`.
    pub fn rested(&mut self, core: usize, now: Nanos) {
        let share = match (self.cores[core].run, self.meter.state(core)) {
            (Run::Napping, State::Nap(share)) => share,
            (Run::Blocked | Run::Halted | Run::Dozing, _) => 1.0,
            _ => 0.0,
        };
        let asleep = now.saturating_sub(self.cores[core].unbooked).0 as f64 * share;
        self.cores[core].unbooked = now;
        self.sleep_time(core, Nanos(asleep as u64));
    }

    /// The core shall wait as its placement says.
    pub fn rewait(&mut self, core: usize, now: Nanos) {
        match (self.cores[core].run, self.wait(core)) {
            (Run::Busy, _)
            | (Run::Idle, Wait::Poll)
            | (Run::Dozing, Wait::Doze)
            | (Run::Halted, Wait::Halt)
            | (Run::Blocked, Wait::Block { .. }) => {}
            (Run::Idle, _) => self.go_idle(core, now),
            _ => self.kick(core, now, Nanos::ZERO),
        }
    }

    /// The kernel's tick: a core that has been in C1 for long is in the wrong state.
    pub fn deepen(&mut self, now: Nanos) {
        for core in 0..self.cores.len() {
            let state = &self.cores[core];
            let long = now.saturating_sub(state.since) >= self.profile.wake.tick;
            if state.run == Run::Blocked && long && self.meter.state(core) == State::C1 {
                self.meter.set_state(core, now, State::C6);
            }
        }
    }
}
