//! The trial of a run: blocks at random in which everything is as it was found. What is measured
//! then, beside the blocks before and after, is what Ebb saves and costs.
//!
//! ```text
//!   a window of block / share, over and over; the block begins at random within it
//!   ──────────[ before ][ as found ][ after  ]─────────────
//!               ...counted ...counted ...counted         the first third of each block is not
//! ```

use ebb_cli::random::Random;
use ebb_policy::table::SIGNALS;
use ebb_policy::units::Nanos;
use ebb_policy::{Origin, Signal, Signals};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::share::{Written, ratio};
use crate::ledger::Pair;

/// Shares of the time as found, and lengths of blocks: more costs what it measures, shorter ones
/// tell the settling of policies.
const SHARES: std::ops::RangeInclusive<f64> = 0.005..=0.2;
const BLOCKS: std::ops::RangeInclusive<Nanos> = Nanos::from_secs(2)..=Nanos::from_secs(7200);

/// `[trial]`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Stated {
    /// Share of the time, 0.5% to 20%.
    #[serde(deserialize_with = "ratio")]
    #[schemars(with = "Written")]
    pub share: f64,
    /// Length of a block, 2 s to 2 h.
    #[schemars(with = "String", extend("examples" = ["15 min"]))]
    pub block: Nanos,
}

impl Default for Stated {
    fn default() -> Self {
        Self { share: 0.05, block: Nanos::from_secs(900) }
    }
}

impl Stated {
    /// What is wrong with it.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let Self { share, block } = self;
        if !SHARES.contains(share) {
            return Err(("trial.share", format!(" = {share}: write \"0.5%\" to \"20%\"")));
        }
        if !BLOCKS.contains(block) {
            let (shortest, longest) = (BLOCKS.start(), BLOCKS.end());
            return Err(("trial.block", format!(" = {block}: write {shortest} to {longest}")));
        }
        Ok(())
    }
}

/// What measures the server's power, else its processors', and what that says.
pub fn measured(signals: &Signals) -> Option<(&'static str, f64)> {
    [Signal::Power, Signal::CpuPower].into_iter().find_map(|signal| {
        let row = SIGNALS.iter().find(|row| row.signal == signal)?;
        let is = signals.sources.of(signal, 0).origin == Origin::Measured;
        (row.read)(signals, 0).filter(|_| is).map(|watts| (row.name, watts))
    })
}

/// Sums over the counted part of one block.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    seconds: f64,
    joules: f64,
    requests: f64,
    latency_s: f64,
}

impl Sums {
    fn add(&mut self, watts: f64, signals: &Signals) {
        let seconds = signals.period.seconds();
        self.seconds += seconds;
        self.joules += watts * seconds;
        if let (Some(count), Some(mean)) = (signals.io.completed, signals.io.mean_latency) {
            self.requests += count as f64;
            self.latency_s += count as f64 * mean.seconds();
        }
    }

    fn power(&self) -> f64 {
        self.joules / self.seconds
    }

    fn latency(&self) -> Option<f64> {
        (self.requests > 0.0).then(|| self.latency_s / self.requests)
    }
}

/// A trial.
#[derive(Debug)]
pub struct Trial {
    stated: Stated,
    random: Random,
    /// Where the window and the block as found in it begin.
    window: Nanos,
    found: Nanos,
    /// Before, as found, and after.
    blocks: [Sums; 3],
    /// What measures, once it is known.
    of: Option<&'static str>,
    /// Whether something else changed meanwhile: this window tells nothing.
    is_void: bool,
}

impl Trial {
    /// One that begins with its run; `seed` says when its blocks are.
    pub fn new(stated: Stated, seed: u64) -> Self {
        let mut this = Self {
            stated,
            random: Random::new(seed, 0x0074_7269_616c),
            window: Nanos::ZERO,
            found: Nanos::ZERO,
            blocks: [Sums::default(); 3],
            of: None,
            is_void: false,
        };
        this.begin(Nanos::ZERO);
        this
    }

    /// Begins another window, where what was seen of this one is of other settings.
    pub fn begin(&mut self, now: Nanos) {
        let free = self.length().saturating_sub(Nanos(3 * self.stated.block.0));
        self.window = now;
        self.found = now + self.stated.block + Nanos(self.random.below(free.0 + 1));
        (self.blocks, self.of, self.is_void) = ([Sums::default(); 3], None, false);
    }

    fn length(&self) -> Nanos {
        Nanos::from_seconds(self.stated.block.seconds() / self.stated.share)
    }

    /// Until when everything is to be as it was found, if that is so now.
    pub fn found_until(&self, now: Nanos) -> Option<Nanos> {
        let end = self.found + self.stated.block;
        ((self.found..end).contains(&now) && !self.is_void).then_some(end)
    }

    /// Takes in the period that ends `now`, under a policy of this name; what a whole window says.
    pub fn see(
        &mut self,
        now: Nanos,
        policy: &str,
        unix_s: f64,
        signals: &Signals,
    ) -> Option<Pair> {
        let power = measured(signals);
        let (block, first) = (self.stated.block, self.found.saturating_sub(self.stated.block));
        let since = now.saturating_sub(first).0;
        let at = usize::try_from(since / block.0).unwrap_or(usize::MAX);
        match self.blocks.get_mut(at) {
            // Where nothing measures, nothing is tried.
            _ if now < first => {
                if power.is_none() {
                    self.begin(now);
                }
            }
            Some(sums) if since % block.0 >= block.0 / 3 => match power {
                Some((of, watts)) if *self.of.get_or_insert(of) == of => sums.add(watts, signals),
                // A gap, or another meter: of different things.
                _ => self.is_void = true,
            },
            Some(_) => {}
            None => {
                let pair = self.pair(policy, unix_s);
                if now >= self.window + self.length() {
                    self.begin(now);
                }
                return pair;
            }
        }
        None
    }

    /// What the three blocks say, once.
    fn pair(&mut self, policy: &str, unix_s: f64) -> Option<Pair> {
        let [before, found, after] = std::mem::take(&mut self.blocks);
        let of = self.of.take().filter(|_| !self.is_void)?;
        let least = self.stated.block.seconds() / 2.0;
        if [before, found, after].iter().any(|block| block.seconds < least) {
            return None;
        }
        let mean = |a: f64, b: f64| f64::midpoint(a, b);
        Some(Pair {
            unix_s,
            of: of.to_owned(),
            policy: policy.to_owned(),
            found_w: found.power(),
            ebb_w: mean(before.power(), after.power()),
            found_s: found.latency(),
            ebb_s: before.latency().zip(after.latency()).map(|(a, b)| mean(a, b)),
        })
    }
}

#[cfg(test)]
mod tests {
    use ebb_policy::Topology;
    use ebb_policy::units::Watts;

    use super::*;

    const SECOND: Nanos = Nanos::from_secs(1);

    /// So many hours of a server that draws 10 W more as found, and whose load rises by a watt an
    /// hour: what each pair says, and for which share of the time it was as found.
    fn hours(stated: Stated, hours: u64, of: impl Fn(u64, &mut Signals)) -> (Vec<Pair>, f64) {
        let mut signals = Signals::new(&Topology::default());
        signals.period = SECOND;
        let mut trial = Trial::new(stated, 7);
        let (mut pairs, mut as_found) = (Vec::new(), 0);
        for second in 1..=hours * 3600 {
            let is_found = trial.found_until(Nanos::from_secs(second - 1)).is_some();
            as_found += u64::from(is_found);
            let watts = if is_found { 110.0 } else { 100.0 } + second as f64 / 3600.0;
            signals.power.total = Some(Watts(watts));
            signals.io.completed = Some(if second % 2 == 0 { 10 } else { 30 });
            let latency = Nanos::from_micros(if is_found { 100 } else { 103 });
            signals.io.mean_latency = Some(latency);
            of(second, &mut signals);
            pairs.extend(trial.see(Nanos::from_secs(second), "pacer", second as f64, &signals));
        }
        (pairs, as_found as f64 / (hours * 3600) as f64)
    }

    #[test]
    fn blocks_at_random_tell_what_is_saved_though_the_load_drifts() {
        let stated = Stated { share: 0.1, block: Nanos::from_secs(300) };
        let (pairs, share) = hours(stated, 100, |_, _| {});
        assert!((0.095..0.105).contains(&share), "{share}");
        assert!((115..=120).contains(&pairs.len()), "{}", pairs.len());
        for pair in &pairs {
            let saved = pair.found_w - pair.ebb_w;
            assert!((saved - 10.0).abs() < 0.01, "{pair:?}");
            let [found, ebb] = [pair.found_s, pair.ebb_s].map(|latency| latency.unwrap() * 1e6);
            assert!((found - 100.0).abs() < 1e-6 && (ebb - 103.0).abs() < 1e-6, "{pair:?}");
        }
        let gaps: Vec<_> = pairs.windows(2).map(|two| two[1].unix_s - two[0].unix_s).collect();
        assert!(gaps.iter().any(|gap| (gap - gaps[0]).abs() > 300.0), "they begin at random");
    }

    #[test]
    fn without_a_meter_nothing_is_tried_and_a_gap_voids_a_window() {
        let stated = Stated { share: 0.1, block: Nanos::from_secs(300) };
        let none = |_, signals: &mut Signals| signals.power.total = None;
        assert_eq!(hours(stated, 10, none), (vec![], 0.0));
        // Every 20 minutes a reading is missing: most windows have one in their blocks.
        let gaps = |second: u64, signals: &mut Signals| {
            if second.is_multiple_of(1200) {
                signals.power.total = None;
            }
        };
        let (pairs, _) = hours(stated, 100, gaps);
        assert!(pairs.len() < 80, "{}", pairs.len());
        assert!(pairs.iter().all(|pair| (pair.found_w - pair.ebb_w - 10.0).abs() < 0.01));
    }
}
