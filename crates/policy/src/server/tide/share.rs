//! How what a point leaves is shared among the drives.

use super::choose::Left;
use super::{GROWTH, NEWCOMERS, RATE_STEP, Tide, USED_UP};
use crate::Request;
use crate::topology::LEAST_RATE;

/// Steps of the search for what fits.
const SEARCH: usize = 8;

impl Tide {
    /// Whether a limit holds this drive's traffic back.
    fn holds(&self, drive: usize) -> bool {
        self.held[drive].iter().any(|held| *held)
    }

    /// Whether a limit holds any drive's traffic back.
    pub(super) fn is_waited_for(&self) -> bool {
        (0..self.held.len()).any(|drive| self.holds(drive))
    }

    /// Shares what is left among the drives: each keeps what it had at its most and gets a part of
    /// what is left over. Where limits hold some back, they take what the others do not need.
    pub(super) fn share(
        &mut self,
        Left { room, rest, .. }: Left,
        request: &mut Request,
        reason: &'static str,
    ) {
        let mut limits = std::mem::take(&mut self.limits);
        // What best effort moved at its most is no demand.
        let drives = if self.rest.is_some() { &self.traffic } else { &self.peak.drives };
        let most = room * (1.0 - NEWCOMERS);
        let level = if self.is_waited_for() { self.level(drives, most) } else { f64::INFINITY };
        let kept = |drive: usize| {
            let parts = if self.holds(drive) { &self.usual[drive] } else { &drives[drive] };
            // What is next to nothing is not held back.
            let least = NEWCOMERS * parts.iter().sum::<f64>();
            let least = self.held[drive].map(|held| if held { least } else { 0.0 });
            let parts = [parts[0].max(least[0]), parts[1].max(least[1])];
            let sum: f64 = parts.iter().sum();
            let factor = self.need(drives, drive).min(level) / sum.max(1e-9);
            parts.map(|part| part * factor)
        };
        limits.iter_mut().enumerate().for_each(|(drive, limits)| *limits = kept(drive));
        let used: f64 = limits.iter().flatten().sum();
        let part = (most / used.max(1e-9)).min(1.0);
        // Half of what is left over is for more of the same, half for anything.
        // Best effort has a limit of its own: what it may move is no reason to hold users back.
        let rest = self.rest.map_or(0.0, |now| now.load.bytes.min(rest)) * self.joules();
        let spare = 0.5 * (room + rest.min(used) - used * part).max(0.0);
        let part = if used > 0.0 { part + spare / used } else { 1.0 };
        let spare = if used > 0.0 { spare } else { 2.0 * spare } / (2.0 * drives.len() as f64);
        let time = self.cpu.points[self.point].time;
        let rate = |watts: f64, joules: f64| {
            // While the cores run the drives make up for the stops.
            let rate = (watts * part + spare) / joules.max(1e-15) / time;
            RATE_STEP.powf(rate.max(LEAST_RATE).log(RATE_STEP).floor()).max(LEAST_RATE)
        };
        for (drive, limits) in limits.iter_mut().enumerate() {
            let [read, written] = *limits;
            *limits = [rate(read, self.model.read), rate(written, self.model.write)];
            request.read_rate.ask(drive, limits[0], reason);
            request.write_rate.ask(drive, limits[1], reason);
        }
        self.limits = limits;
        self.shared = room;
    }

    /// Watts that a drive needs: twice what it moves where it is held back, else the most of
    /// `drives`, and a little more than it moves, or it would be held back next.
    fn need(&self, drives: &[[f64; 2]], drive: usize) -> f64 {
        let sum = |ways: &[f64; 2]| ways.iter().sum::<f64>();
        let moved = sum(&self.traffic[drive]);
        if self.holds(drive) { GROWTH * moved } else { sum(&drives[drive]).max(moved / USED_UP) }
    }

    /// The watts that each drive may have so that all have `room`: who needs less keeps that.
    fn level(&self, drives: &[[f64; 2]], room: f64) -> f64 {
        let needs = || (0..drives.len()).map(|drive| self.need(drives, drive));
        if needs().sum::<f64>() <= room {
            return f64::INFINITY;
        }
        let mut level = room / drives.len().max(1) as f64;
        for _ in 0..SEARCH {
            let kept: f64 = needs().filter(|need| *need <= level).sum();
            let others = needs().filter(|need| *need > level).count();
            let before = level;
            level = level.max((room - kept) / others.max(1) as f64);
            if level == before {
                break;
            }
        }
        level
    }
}
