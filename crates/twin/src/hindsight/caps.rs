//! The best known drive caps for a load that is known.

use ebb_policy::ssd::PowerDesc;
use ebb_policy::units::Watts;
use ebb_policy::{Policy, PowerState, Request, Signals, Topology};

use crate::outcome::{Observer, Sample};

/// Steps of a budget that are told apart: the finest that descriptors commonly state.
const STEP: Watts = Watts(0.1);

/// Bytes that each drive served in each control period of a run.
#[derive(Debug, Clone, Default)]
pub struct Served(Vec<Vec<u64>>);

impl Observer for Served {
    fn sample(&mut self, sample: &Sample<'_>) {
        let drives = sample.cycled.signals.drives.iter();
        let bytes =
            |read: Option<u64>, written: Option<u64>| read.unwrap_or(0) + written.unwrap_or(0);
        self.0.push(drives.map(|drive| bytes(drive.read_bytes, drive.written_bytes)).collect());
    }
}

/// In each control period the power states with which most bytes are served of all whose caps fit
/// the budget, as first passes over the same load and seed showed: one with all drives in state 0,
/// one with all in state 1, and so on.
///
/// What a drive keeps of earlier caps, queued requests and free flash, is left out, so another plan
/// can serve more, above all of loads that end with their work (`rocksdb`).
/// It looks at the sum alone: a drive whose bytes cost more watts than another's gets its lowest
/// cap.
#[derive(Debug, Clone)]
pub struct ClairvoyantCaps {
    /// States by period.
    plan: Vec<Vec<PowerState>>,
    period: usize,
}

impl ClairvoyantCaps {
    /// Drives within `budget`, `served` by the power state that all were in, the first being 0.
    #[must_use]
    pub fn new(topology: &Topology, budget: Watts, served: &[Served]) -> Self {
        let desc = PowerDesc::new(topology);
        let periods = served.iter().map(|pass| pass.0.len()).min().unwrap_or(0);
        let bytes = |period: usize, d: usize, ps: PowerState| served[usize::from(ps)].0[period][d];
        let plan = |period| best(&desc, budget, |d, ps| bytes(period, d, ps));
        Self { plan: (0..periods).map(plan).collect(), period: 0 }
    }

    /// All drives in the fastest state in which all fit `budget`.
    #[must_use]
    pub fn constant(topology: &Topology, budget: Watts) -> Self {
        let desc = PowerDesc::new(topology);
        let drives = desc.drives();
        let all = |ps: PowerState| (0..drives).map(|d| ps.min(desc.deepest(d))).collect::<Vec<_>>();
        let fits = |states: &Vec<PowerState>| {
            let caps = states.iter().enumerate().map(|(d, ps)| desc.cap(d, *ps).0);
            caps.sum::<f64>() <= budget.0
        };
        let deepest = (0..drives).map(|d| desc.deepest(d)).max().unwrap_or(0);
        let states = (0..deepest).map(all).find(fits).unwrap_or_else(|| all(deepest));
        Self { plan: vec![states], period: 0 }
    }

    /// How many first passes `topology` takes.
    #[must_use]
    pub fn passes(topology: &Topology) -> PowerState {
        let desc = PowerDesc::new(topology);
        (0..desc.drives()).map(|d| desc.deepest(d) + 1).max().unwrap_or(0)
    }
}

/// The states with which `bytes` add up to most, of all whose caps fit `budget`: a knapsack with
/// one choice for each drive, solved exactly in steps of the budget. Of equals the deepest.
fn best(
    desc: &PowerDesc,
    budget: Watts,
    bytes: impl Fn(usize, PowerState) -> u64,
) -> Vec<PowerState> {
    let steps = |watts: Watts| (watts.0 / STEP.0 - 1e-6).ceil() as usize;
    let room = (budget.0 / STEP.0 + 1e-6) as usize;
    // Most bytes of the drives so far within each part of the budget; `None` where they do not fit.
    let mut most = vec![Some(0); room + 1];
    let mut chosen = Vec::with_capacity(desc.drives());
    for d in 0..desc.drives() {
        let mut next = vec![None; room + 1];
        let mut choice = vec![0; room + 1];
        for ps in (0..=desc.deepest(d)).rev() {
            let (cap, bytes) = (steps(desc.cap(d, ps)), bytes(d, ps));
            for used in cap..=room {
                let sum = most[used - cap].map(|before: u64| before + bytes);
                if sum > next[used] {
                    (next[used], choice[used]) = (sum, ps);
                }
            }
        }
        most = next;
        chosen.push(choice);
    }
    let mut left = room;
    let mut states: Vec<PowerState> = chosen
        .iter()
        .enumerate()
        .rev()
        .map(|(d, choice)| {
            let ps = choice[left];
            left = left.saturating_sub(steps(desc.cap(d, ps)));
            ps
        })
        .collect();
    states.reverse();
    states
}

impl Policy for ClairvoyantCaps {
    fn name(&self) -> &'static str {
        "clairvoyant-caps"
    }

    fn step(&mut self, _signals: &Signals, request: &mut Request) {
        let Some(states) = self.plan.get(self.period).or(self.plan.last()) else { return };
        for (d, ps) in states.iter().enumerate() {
            request.power_state.ask(d, *ps, "clairvoyant-caps:most-bytes");
        }
        self.period += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Profile;

    fn desc(drives: u16) -> PowerDesc {
        let mut topology = Profile::load("asg-1115s").unwrap().topology();
        topology.drives.truncate(drives.into());
        PowerDesc::new(&topology)
    }

    /// Bytes of each drive by state, at random.
    fn any(seed: u64, drives: usize) -> Vec<[u64; 5]> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 54
        };
        let drive = |_| {
            let mut bytes = [0; 5].map(|_| next());
            bytes.sort_unstable_by(|a, b| b.cmp(a));
            bytes
        };
        (0..drives).map(drive).collect()
    }

    #[test]
    fn no_other_states_within_the_budget_serve_more() {
        let desc = desc(4);
        for seed in 1..40 {
            let bytes = any(seed, 4);
            let budget = Watts(36.0 + 1.7 * seed as f64);
            let sum = |states: &[PowerState]| {
                states.iter().zip(&bytes).map(|(ps, of)| of[usize::from(*ps)]).sum::<u64>()
            };
            let found = best(&desc, budget, |d, ps| bytes[d][usize::from(ps)]);
            assert!(desc.sum(&found) <= budget + Watts(1e-6));
            for all in 0..5_u32.pow(4) {
                let states: Vec<_> = (0..4).map(|d| (all / 5_u32.pow(d) % 5) as u8).collect();
                let fits = desc.sum(&states) <= budget;
                assert!(!fits || sum(&states) <= sum(&found), "{states:?} over {found:?}");
            }
        }
    }

    #[test]
    fn drives_that_are_asked_nothing_get_the_deepest_state() {
        assert_eq!(best(&desc(3), Watts(75.0), |d, _| u64::from(d == 1)), [4, 4, 4]);
        assert_eq!(best(&desc(3), Watts(43.0), |_, ps| 5 - u64::from(ps)), [0, 4, 4]);
    }
}
