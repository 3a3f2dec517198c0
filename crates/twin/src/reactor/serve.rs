//! What a core does while it works: batches of one thread after another.

use ebb_policy::reactor::{FULL_SPEED, Machine};
use ebb_policy::units::Nanos;

use super::engine::{Engine, Event, Flight};
use super::hyper_thread::Run;
use super::power::State;

impl Engine<'_> {
    /// The core is free: it serves the next of its threads that has work.
    pub fn ready(&mut self, core: usize, now: Nanos) {
        self.meter.set_state(core, now, State::Active);
        let Some(thread) = self.turn(core) else {
            self.go_idle(core, now);
            return;
        };
        self.cores[core].run = Run::Busy;
        let done = self.serve(core, usize::from(thread), now);
        self.cores[core].serves_until = done;
        self.push(done, Event::Ready(core as u16));
    }

    /// The next thread with work, round robin.
    fn turn(&mut self, core: usize) -> Option<u16> {
        let state = &mut self.cores[core];
        let count = state.threads.len();
        for step in 0..count {
            let at = (state.turn + step) % count;
            let thread = state.threads[at];
            let one = &self.threads[usize::from(thread)];
            if !one.finished.is_empty() || !one.arrived.is_empty() {
                state.turn = at + 1;
                return Some(thread);
            }
        }
        None
    }

    /// Nanoseconds a cycle of the target's own path takes on `core` now.
    fn cycle(&self, core: usize, now: Nanos) -> f64 {
        let cost = &self.profile.cost;
        let speed = f64::from(self.meter.speed(core)) / f64::from(FULL_SPEED);
        let beside = core ^ 1;
        let sibling = if self.cores[beside].serves_until > now {
            cost.sibling_busy
        } else if self.meter.state(beside) == State::Active {
            cost.sibling_polling
        } else {
            1.0
        };
        let watching = if core == usize::from(Machine::MAIN) { self.watching } else { 1.0 };
        1e9 / cost.frequency.0 / speed * sibling * watching * self.slower
    }

    /// One batch of a thread: what the drives finished first, then what arrived.
    fn serve(&mut self, core: usize, thread: usize, now: Nanos) -> Nanos {
        let cost = &self.profile.cost;
        let cycle = self.cycle(core, now);
        let mut at = now.0 as f64 + cost.poll_thread.0 as f64;
        self.threads[thread].polled = now;
        for _ in 0..cost.batch {
            let (id, cycles) = if let Some(id) = self.threads[thread].finished.pop_front() {
                if self.last_phase(self.flights[id as usize]) {
                    at += cost.reply_cycles * cycle;
                    self.answer(id, Nanos(at as u64));
                    continue;
                }
                self.flights[id as usize].phase += 1;
                (id, cost.parity_cycles)
            } else if let Some(id) = self.take(thread) {
                (id, cost.request_cycles)
            } else {
                break;
            };
            let (commands, write) = self.commands(self.flights[id as usize]);
            at += (cycles + cost.command_cycles * f64::from(commands)) * cycle;
            let drives = self.drive_time(commands, write);
            self.push(Nanos(at as u64) + drives, Event::Drives(id));
        }
        let done = Nanos(at as u64).max(now);
        self.queues[thread].worked = done;
        self.serve_time(thread, core, done - now);
        done
    }

    /// Drive commands of a request's phase, and whether they write. A partial-stripe write to
    /// RAID-5 reads old data and parity, or the rest of a narrow stripe, then writes both.
    fn commands(&self, flight: Flight) -> (u32, bool) {
        match (self.profile.raid.used && flight.write, flight.phase) {
            (false, _) => (1, flight.write),
            (true, 0) => (u32::from(self.profile.raid.drives - 2).min(2), false),
            (true, _) => (2, true),
        }
    }

    fn last_phase(&self, flight: Flight) -> bool {
        !(self.profile.raid.used && flight.write) || flight.phase == 1
    }

    fn answer(&mut self, id: u32, at: Nanos) {
        let Flight { at: arrived, thread, write, bytes, .. } = self.flights[id as usize];
        self.free.push(id);
        let load = &mut self.threads[usize::from(thread)].load;
        load.requests += 1;
        load.latency += at - arrived;
        self.queues[usize::from(thread)].requests += 1;
        // What is done counts as the energy does, in the time in which it is done.
        if at >= self.warmup {
            self.shown.answered += 1;
            self.shown.reads += u64::from(!write);
            self.shown.bytes += u64::from(bytes);
        }
        if arrived >= self.warmup {
            let latency = at - arrived + self.profile.drive.fabric;
            self.shown.latency.saturating_record(latency.0);
            self.shown.waited += latency;
            self.shown.windows.add((arrived - self.warmup).0, latency.0);
        }
    }
}
