//! What a core without work falls through: awake, then one idle state after the other.

use crate::profile::Cpu;

/// A core idle for `after` or longer, until the next step.
#[derive(Debug, Clone, Copy)]
struct Step {
    after: u64,
    /// Time to wake.
    exit: u64,
    watts: f64,
    /// Energy up to `after`, in watt-nanoseconds.
    before: f64,
}

/// Power and wake-up of an idle core by how long it has been idle.
#[derive(Debug)]
pub(super) struct Idle {
    /// Awake, then the idle states.
    steps: Vec<Step>,
}

impl Idle {
    /// What a core draws awake is still to be set.
    pub(super) fn new(cpu: &Cpu) -> Self {
        let step = |after, exit, watts| Step { after, exit, watts, before: 0.0 };
        let states = cpu.idle_states.iter();
        let states = states.map(|state| step(state.after.0, state.exit.0, state.power.0));
        Self { steps: std::iter::once(step(0, 0, 0.0)).chain(states).collect() }
    }

    /// Sets what a core draws awake.
    pub(super) fn set_awake(&mut self, watts: f64) {
        self.steps[0].watts = watts;
        for index in 1..self.steps.len() {
            let last = self.steps[index - 1];
            let step = &mut self.steps[index];
            step.before = last.before + (step.after - last.after) as f64 * last.watts;
        }
    }

    /// Which step a core has come to: counted, for a branch would depend on chance.
    #[inline]
    fn step(&self, span: u64) -> &Step {
        let states = self.steps[1..].iter();
        &self.steps[states.map(|state| usize::from(state.after <= span)).sum::<usize>()]
    }

    /// Time to wake a core idle for `span`.
    #[inline]
    pub(super) fn wake_latency(&self, span: u64) -> u64 {
        self.step(span).exit
    }

    /// Energy of a core idle for `span`.
    #[inline]
    pub(super) fn watt_ns(&self, span: u64) -> f64 {
        let step = self.step(span);
        step.before + (span - step.after) as f64 * step.watts
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Profile;

    proptest! {
        #[test]
        fn energy_is_the_sum_over_the_states_passed(span in 0_u64..2_000_000, awake in 0.0..9.0) {
            let cpu = Profile::load("generic-1u").unwrap().cpu;
            let mut idle = Idle::new(&cpu);
            idle.set_awake(awake);
            let (mut sum, mut from, mut watts, mut exit) = (0.0, 0, awake, 0);
            for state in &cpu.idle_states {
                if state.after.0 > span {
                    break;
                }
                sum += (state.after.0 - from) as f64 * watts;
                (from, watts, exit) = (state.after.0, state.power.0, state.exit.0);
            }
            prop_assert_eq!(idle.watt_ns(span), sum + (span - from) as f64 * watts);
            prop_assert_eq!(idle.wake_latency(span), exit);
        }
    }
}
