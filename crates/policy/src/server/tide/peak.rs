//! The largest demand of the last minutes: what comes in bursts comes again.

use super::cpu::Load;
use super::{GROWTH, HELD};
use crate::Signals;

/// Seconds in which what is known of a demand that does not come again halves, and in which what
/// is kept for a drive does while another one waits for it.
const HALF: f64 = 180.0;
const WANTED: f64 = 10.0;
/// Turns after which a demand is known.
const KNOWN: u32 = 20;

/// What came in a period, as a share of what was served in it: the rest had waited, or waits now.
pub(super) fn came(signals: &Signals) -> f64 {
    let of = signals.io.arrived.zip(signals.io.completed).filter(|(_, served)| *served > 0);
    of.map_or(1.0, |(arrived, served)| (arrived as f64 / served as f64).min(GROWTH))
}

/// Of requests that somebody waits for, and of each drive.
#[derive(Debug, Clone)]
pub(super) struct Peak {
    requests: f64,
    bytes: f64,
    /// Requests that were under way at a time.
    pub(super) clients: f64,
    /// Watts of their traffic.
    pub(super) watts: f64,
    /// Watts of what was read from and written to each drive.
    pub(super) drives: Vec<[f64; 2]>,
    turns: u32,
}

impl Peak {
    pub(super) fn new(drives: usize) -> Self {
        let drives = vec![[0.0; 2]; drives];
        Self { requests: 0.0, bytes: 0.0, clients: 0.0, watts: 0.0, drives, turns: 0 }
    }

    /// Takes in the requests, bytes and watts of a turn of `span` seconds, in which there was
    /// `room` for so many watts. Of these only the share `came` has come in it: the rest has waited
    /// for it and is no demand, or more waits now; they took `mean` seconds. `waits` says whether
    /// any limit holds a drive back, and `most` what as many watts as that may become without.
    pub(super) fn learn(
        &mut self,
        (requests, bytes): (u64, u64),
        traffic: &[[f64; 2]],
        (watts, room): (f64, f64),
        (came, mean): (f64, f64),
        (waits, most): (bool, f64),
        span: f64,
    ) {
        let kept = |half: f64| 0.5_f64.powf(span / half);
        let kept_of = [kept(HALF), kept(if waits { WANTED } else { HALF })];
        let take = |peak: &mut f64, now: f64| *peak = (*peak * kept_of[0]).max(came * now);
        take(&mut self.requests, requests as f64 / span);
        take(&mut self.bytes, bytes as f64 / span);
        // Little's law.
        self.clients = (self.clients * kept_of[0]).max(requests as f64 / span * mean);
        // Nobody knows how much more it would have been.
        let is_held = self.is_known() && came * watts > HELD * room;
        let grown = (GROWTH * watts).min(most).max(watts);
        take(&mut self.watts, if is_held { grown } else { watts });
        for (peak, now) in self.drives.iter_mut().flatten().zip(traffic.iter().flatten()) {
            *peak = (*peak * kept_of[1]).max(came * now);
        }
        self.turns = self.turns.saturating_add(1);
    }

    /// The requests, or `size` where there were none.
    pub(super) fn load(&self, size: f64) -> Load {
        let size = if self.requests > 0.0 { self.bytes / self.requests } else { size };
        Load { size, requests: self.requests, ..Load::default() }
    }

    pub(super) const fn is_known(&self) -> bool {
        self.turns >= KNOWN
    }
}
