//! A scheduler whose polling cores run at a frequency that follows their load (ours). The scheduler
//! places threads and lets cores sleep as ever; this sets how fast what stays awake runs.
//!
//! Every coarse period, by what the threads now on a core kept it busy:
//!
//! ```text
//! load ≥ 50 %                        the highest frequency, at once
//! load < 30 % one step further down  one step down, to 60 % of the highest at the lowest
//! otherwise                          as it is
//! ```
//!
//! Siblings share a clock, so the busier decides for both; a physical core that nobody polls on is
//! at the highest, for it may have to wake for a burst. A burst, when the scheduler moves threads
//! between two periods or as many requests wait on a slowed core, brings all cores back at once,
//! and none is slowed in the ten seconds after it: the next one finds them as it would without.
//!
//! Two cores whose loads stay below 30 % fit one core, so slowing them never keeps a scheduler from
//! consolidating them: as many cores sleep as without. At 60 % the cubic part of a core's power is
//! all but gone, and the target's software takes two thirds longer at most.

use super::governor::down;
use super::sandman::SandmanParams;
use super::{Core, FULL_SPEED, Period, Placement, Queues, Reason, Scheduler, Shift, Speed, Wait};
use crate::units::Nanos;

/// Up to this load a core is slowed: half of what consolidation fills a core to.
const LIGHT: f64 = 0.30;
/// From this load on it is not.
const HEAVY: f64 = 0.50;
/// No core is slowed for so long after a burst.
const CALM: Nanos = Nanos::from_secs(10);
/// The lowest frequency.
const FLOOR: Speed = 600;

/// `inner`, with frequencies.
#[derive(Debug, Clone)]
pub struct Governed<S> {
    name: &'static str,
    inner: S,
    /// When the last burst came.
    burst: Option<Nanos>,
    /// Requests waiting that are a burst of a core.
    deep: f64,
    /// Requests waiting on each core at this fine step.
    waiting: Vec<u32>,
}

impl<S: Scheduler> Governed<S> {
    /// `inner`, which sets no frequency itself, on so many cores, under this name.
    #[must_use]
    pub fn new(name: &'static str, inner: S, cores: usize) -> Self {
        let deep = SandmanParams::default().burst_depth;
        Self { name, inner, burst: None, deep, waiting: vec![0; cores] }
    }

    /// Whether what waits on a slowed core is a burst.
    fn is_deep(&mut self, queues: &Queues<'_>, placement: &Placement) -> bool {
        let slowed = |core: usize| placement.speeds()[core] < FULL_SPEED;
        let all: u32 = queues.threads.iter().map(|queue| queue.depth).sum();
        if f64::from(all) < self.deep || !(0..self.waiting.len()).any(slowed) {
            return false;
        }
        self.waiting.fill(0);
        for (queue, core) in queues.threads.iter().zip(placement.core_of()) {
            self.waiting[usize::from(*core)] += queue.depth;
        }
        let deep =
            |(core, waiting): (usize, &u32)| slowed(core) && f64::from(*waiting) >= self.deep;
        self.waiting.iter().enumerate().any(deep)
    }
}

/// Sets the physical core of `core`.
fn set(placement: &mut Placement, core: Core, speed: Speed, reason: Reason) {
    let sibling = placement.machine().cores[usize::from(core)].sibling;
    for core in [Some(core), sibling].into_iter().flatten() {
        placement.set_speed(core, speed, reason);
    }
}

/// The load of `core` after this step, by what its threads did before it; none where it sleeps.
fn load(period: &Period<'_>, placement: &Placement, core: Core) -> Option<f64> {
    let polls = placement.waits()[usize::from(core)] == Wait::Poll;
    let busy = |thread| period.threads[usize::from(thread)].busy;
    let sum = || placement.threads_on(core).map(busy).fold(Nanos::ZERO, |sum, one| sum + one);
    polls.then(|| sum().0 as f64 / period.length.0.max(1) as f64)
}

impl<S: Scheduler> Scheduler for Governed<S> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn start(&mut self, placement: &mut Placement) {
        self.inner.start(placement);
    }

    fn coarse(&mut self, period: &Period<'_>, placement: &mut Placement) {
        self.inner.coarse(period, placement);
        let is_calm = self.burst.is_none_or(|at| period.now.saturating_sub(at) >= CALM);
        for core in 0..self.waiting.len() as Core {
            let sibling = placement.machine().cores[usize::from(core)].sibling;
            if sibling.is_some_and(|sibling| sibling < core) {
                continue;
            }
            let of = |core| load(period, placement, core);
            let loads = [of(core), sibling.and_then(of)].into_iter().flatten();
            let speed = placement.speeds()[usize::from(core)];
            let lower = down(speed).max(FLOOR);
            let (speed, reason) = match loads.reduce(f64::max) {
                None => (FULL_SPEED, "governor:sleep"),
                Some(load) if load >= HEAVY => (FULL_SPEED, "governor:heavy"),
                Some(load) if is_calm && load * f64::from(speed) < LIGHT * f64::from(lower) => {
                    (lower, "governor:light")
                }
                Some(_) => continue,
            };
            set(placement, core, speed, reason);
        }
    }

    fn fine_period(&self) -> Option<Nanos> {
        self.inner.fine_period()
    }

    fn fine(&mut self, queues: &Queues<'_>, placement: &mut Placement) {
        self.inner.fine(queues, placement);
        let moved = placement.shifts().iter().any(|shift| matches!(shift, Shift::Move { .. }));
        if moved || self.is_deep(queues, placement) {
            self.burst = Some(queues.now);
            for core in 0..self.waiting.len() as Core {
                placement.set_speed(core, FULL_SPEED, "governor:burst");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Shift;
    use super::super::tests::{Plant, machine, period};
    use super::*;

    /// One second in which each thread does what takes so much of a core at the highest frequency.
    fn second(plant: &mut Plant, loads: &[f64]) {
        let placement = &plant.placement;
        let speed = |core: &Core| f64::from(placement.speeds()[usize::from(*core)]);
        let slowed = placement.core_of().iter().zip(loads);
        let loads: Vec<f64> = slowed.map(|(core, load)| load * 1000.0 / speed(core)).collect();
        plant.later(Nanos::from_secs(1));
        plant.coarse(&loads);
    }

    /// The speeds of a machine of two cores without siblings, the main one and a worker that has
    /// all threads, after so many seconds of this load.
    fn after(seconds: usize, load: f64) -> Vec<Speed> {
        let mut machine = machine(1, 1);
        machine.cores.iter_mut().for_each(|core| core.sibling = None);
        let mut plant = Plant::new("sandman+governor", &machine);
        (0..seconds).for_each(|_| second(&mut plant, &[load]));
        plant.placement.speeds().to_vec()
    }

    #[test]
    fn steps_down_where_the_load_is_light_and_never_below_the_floor() {
        assert_eq!(after(1, 0.1), [960, 960]);
        assert_eq!(after(5, 0.1), [800, 800]);
        assert_eq!(after(30, 0.1), [FLOOR, FLOOR]);
        // 0.24 of a core is 0.3 of one at 80 %.
        assert_eq!(after(30, 0.24), [FLOOR, 840]);
        assert_eq!(after(30, 0.3), [FLOOR, FULL_SPEED]);
    }

    #[test]
    fn a_heavy_load_is_back_at_the_highest_within_one_step() {
        let mut plant = Plant::new("sandman+governor", &machine(4, 4));
        (0..20).for_each(|_| second(&mut plant, &[0.02; 4]));
        // The main core and its sibling, which works, share a clock. The others sleep.
        assert_eq!(plant.placement.speeds()[..3], [FLOOR, FLOOR, FULL_SPEED]);
        second(&mut plant, &[0.06; 4]);
        assert_eq!(plant.placement.speeds()[1], FLOOR, "0.4 of it: neither light nor heavy");
        second(&mut plant, &[0.08; 4]);
        assert_eq!(plant.placement.speeds()[..2], [FULL_SPEED; 2]);
    }

    #[test]
    fn a_burst_brings_all_cores_back_at_once_and_keeps_them_there() {
        for name in ["sandman+governor", "sandman-plus+governor"] {
            let mut plant = Plant::new(name, &machine(4, 8));
            (0..40).for_each(|_| second(&mut plant, &[0.01; 8]));
            assert!(plant.placement.speeds().contains(&FLOOR), "{name}");
            plant.fine(&[0, 1, 0, 1, 0, 1, 0, 1]);
            assert_eq!(plant.changed(), 0, "{name}: no burst");
            plant.fine(&[9; 8]);
            assert!(plant.placement.speeds().iter().all(|speed| *speed == FULL_SPEED), "{name}");
            // The burst is over at the first look at it.
            plant.later(Nanos::from_millis(10));
            plant.fine(&[0; 8]);
            for second_after in 1..30 {
                second(&mut plant, &[0.01; 8]);
                let slowed = plant.placement.speeds().iter().any(|speed| *speed < FULL_SPEED);
                assert_eq!(slowed, second_after >= 10, "{name}: {second_after} s after the burst");
            }
        }
    }

    fn parts() -> impl Strategy<Value = (usize, Vec<Vec<f64>>)> {
        let loads = prop::collection::vec(prop::collection::vec(0.0..0.5, 12), 1..30);
        (1_usize..6, loads)
    }

    proptest! {
        /// Whatever the loads: no core is slower than the floor, one that is heavy is at the
        /// highest after the step that shows it, and one that was slowed is light at its new speed.
        #[test]
        fn no_core_is_slower_than_its_load_allows((physical, seconds) in parts()) {
            for name in ["sandman+governor", "sandman-plus+governor"] {
                let mut plant = Plant::new(name, &machine(physical, 12));
                for loads in &seconds {
                    let before = plant.placement.speeds().to_vec();
                    let (_, threads) = period(&plant.placement, loads);
                    plant.coarse(loads);
                    let placement = &plant.placement;
                    for (core, before) in before.iter().enumerate() {
                        let on = placement.threads_on(core as Core).map(usize::from);
                        let load: f64 = on.map(|thread| threads[thread].busy.seconds()).sum();
                        let speed = placement.speeds()[core];
                        prop_assert!((FLOOR..=FULL_SPEED).contains(&speed));
                        prop_assert!(load < HEAVY || speed == FULL_SPEED, "{} {}", name, load);
                        if speed < *before {
                            let then = load * f64::from(*before) / f64::from(speed);
                            prop_assert!(then < LIGHT, "{} {}: {}", name, core, then);
                        }
                    }
                }
            }
        }

        /// It never moves a thread, nor has a core wait, otherwise than the scheduler alone would.
        #[test]
        fn places_threads_as_the_scheduler_does((physical, seconds) in parts()) {
            for (name, governed) in [
                ("sandman", "sandman+governor"),
                ("sandman-plus", "sandman-plus+governor"),
            ] {
                let machine = machine(physical, 12);
                let mut plants = [Plant::new(name, &machine), Plant::new(governed, &machine)];
                for loads in &seconds {
                    let depths: Vec<u32> = loads.iter().map(|load| (load * 20.0) as u32).collect();
                    for plant in &mut plants {
                        plant.coarse(loads);
                        plant.fine(&depths);
                    }
                    let [alone, governed] = &plants;
                    prop_assert_eq!(alone.placement.core_of(), governed.placement.core_of());
                    prop_assert_eq!(alone.placement.waits(), governed.placement.waits());
                }
            }
        }

        /// Under a constant load no speed changes after a while.
        #[test]
        fn speeds_come_to_rest(
            physical in 1_usize..6,
            loads in prop::collection::vec(0.0..0.2, 8),
        ) {
            // What all cores together can do at the sibling's cost, as for any scheduler.
            let most = 0.499 * 2.0 * physical as f64;
            let scale = (most / loads.iter().sum::<f64>()).min(1.0);
            let loads: Vec<f64> = loads.iter().map(|load| load * scale).collect();
            for name in ["sandman+governor", "sandman-plus+governor"] {
                let mut plant = Plant::new(name, &machine(physical, 8));
                (0..150).for_each(|_| second(&mut plant, &loads));
                for _ in 0..20 {
                    second(&mut plant, &loads);
                    let is_speed = |shift: &Shift| matches!(shift, Shift::Speed { .. });
                    prop_assert!(!plant.placement.shifts().iter().any(is_speed), "{}", name);
                }
            }
        }
    }
}
