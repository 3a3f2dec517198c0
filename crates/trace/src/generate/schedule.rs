//! Busy and idle times, and how many jobs are active: a step function of time.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;

use super::error::{GenerateError, Place};
use super::random::{carve, unit};
use super::spec::PhaseSpec;

/// The number of active jobs over time, generated as far as it was asked for. It depends on its
/// seed alone, so that every policy meets the same phases.
pub(super) struct Schedule {
    rng: Pcg64Mcg,
    busy: f64,
    idle: f64,
    spread: f64,
    fewest: u32,
    most: u32,
    every: f64,
    /// Ends of the phase and of the number of jobs that hold at the horizon.
    phase_ends: u64,
    jobs_end: u64,
    is_busy: bool,
    jobs: u32,
    /// From when on how many jobs are active, up to the horizon.
    steps: Vec<(u64, u32)>,
    horizon: u64,
    /// The step looked at last.
    at: usize,
}

impl Schedule {
    pub(super) fn new(
        spec: &PhaseSpec,
        jobs: u32,
        rng: Pcg64Mcg,
        place: Place<'_>,
    ) -> Result<Self, GenerateError> {
        place.need(spec.busy.0 > 0, "phases.busy", "must be longer than zero")?;
        let (fewest, most, every) = spec
            .vary
            .map_or((jobs, jobs, f64::INFINITY), |vary| (vary.from, vary.to, vary.every.0 as f64));
        let reason = format!("give from <= to, to between 1 and the {jobs} threads");
        place.need(fewest <= most && (1..=jobs).contains(&most), "phases.vary", &reason)?;
        place.need(every > 0.0, "phases.vary.every", "must be longer than zero")?;
        let mut this = Self {
            rng,
            busy: spec.busy.0 as f64,
            idle: spec.idle.0 as f64,
            spread: spec.spread.0,
            fewest,
            most,
            every,
            phase_ends: 0,
            jobs_end: 0,
            is_busy: false,
            jobs: most,
            steps: Vec::new(),
            horizon: 0,
            at: 0,
        };
        this.begin();
        this.extend();
        Ok(this)
    }

    /// Time 0 is somewhere within a busy and an idle time: parts of a workload do not start alike.
    fn begin(&mut self) {
        let busy = self.length(self.busy);
        let idle = if self.idle > 0.0 { self.length(self.idle) } else { 0 };
        let at = carve(&mut self.rng.next_u64(), busy.saturating_add(idle));
        self.is_busy = at < busy;
        self.phase_ends = if self.is_busy { busy - at } else { idle - (at - busy) };
        self.draw_jobs();
        self.jobs_end = 1 + carve(&mut self.rng.next_u64(), self.length(self.every));
    }

    fn draw_jobs(&mut self) {
        let choices = u64::from(self.most - self.fewest) + 1;
        self.jobs = self.fewest + carve(&mut self.rng.next_u64(), choices) as u32;
    }

    /// The earliest time from `now` on when job number `job` is active.
    #[inline]
    pub(super) fn admit(&mut self, job: u32, now: u64) -> u64 {
        while self.horizon <= now {
            self.extend();
        }
        if self.steps[self.at].0 > now || self.end(self.at) <= now {
            self.at = self.steps.partition_point(|step| step.0 <= now) - 1;
        }
        if self.steps[self.at].1 > job { now } else { self.later(job) }
    }

    fn later(&mut self, job: u32) -> u64 {
        // Jobs beyond the most that are ever active never run: there are none (see `new`).
        let job = job.min(self.most - 1);
        let mut index = self.at + 1;
        loop {
            match self.steps.get(index) {
                Some(&(start, jobs)) if jobs > job => return start,
                Some(_) => index += 1,
                None => self.extend(),
            }
        }
    }

    fn end(&self, index: usize) -> u64 {
        self.steps.get(index + 1).map_or(self.horizon, |step| step.0)
    }

    fn length(&mut self, mean: f64) -> u64 {
        if mean.is_infinite() {
            return u64::MAX / 2;
        }
        let swing = self.spread * (2.0 * unit(self.rng.next_u64()) - 1.0);
        // At least a microsecond, so that time goes on.
        (mean * (1.0 + swing)).max(1e3) as u64
    }

    /// Generates one more step.
    fn extend(&mut self) {
        let start = self.horizon;
        if self.phase_ends == start {
            self.is_busy = !self.is_busy || self.idle == 0.0;
            let mean = if self.is_busy { self.busy } else { self.idle };
            self.phase_ends = start + self.length(mean);
        }
        if self.jobs_end == start {
            self.draw_jobs();
            self.jobs_end = start + self.length(self.every);
        }
        self.steps.push((start, if self.is_busy { self.jobs } else { 0 }));
        self.horizon = self.phase_ends.min(self.jobs_end);
    }
}

#[cfg(test)]
mod tests {
    use ebb_policy::units::Nanos;

    use super::*;
    use crate::generate::random::stream;
    use crate::generate::spec::VarySpec;
    use crate::generate::text::Share;

    const PLACE: Place<'_> = Place { workload: "test", part: "jobs" };

    fn vdi(seed: u64) -> Schedule {
        let vary = VarySpec { from: 1, to: 5, every: Nanos::from_secs(10) };
        let spec = PhaseSpec {
            busy: Nanos::from_secs(30),
            idle: Nanos::from_secs(10),
            spread: Share(0.5),
            vary: Some(vary),
        };
        Schedule::new(&spec, 5, stream(seed, 0, 0), PLACE).unwrap()
    }

    #[test]
    fn busy_and_idle_times_take_their_shares_and_all_numbers_of_jobs_occur() {
        let mut schedule = vdi(1);
        schedule.admit(0, 100_000_000_000_000);
        let total = schedule.horizon as f64;
        let share = |jobs: u32| {
            let steps = schedule.steps.iter().enumerate().filter(|(_, step)| step.1 == jobs);
            steps.map(|(index, step)| (schedule.end(index) - step.0) as f64).sum::<f64>() / total
        };
        assert!((share(0) - 0.25).abs() < 0.01, "{}", share(0));
        for jobs in 1..=5 {
            assert!((share(jobs) - 0.15).abs() < 0.02, "{jobs}: {}", share(jobs));
        }
    }

    #[test]
    fn time_begins_anywhere_in_a_cycle() {
        let of_first = |seed| {
            let schedule = vdi(seed);
            (schedule.is_busy, schedule.phase_ends as f64 / 1e9, schedule.jobs_end as f64 / 1e9)
        };
        let (busy, idle): (Vec<_>, Vec<_>) = (0..4_000).map(of_first).partition(|first| first.0);
        assert!((2_900..3_100).contains(&busy.len()), "30 s of 40 s: {}", busy.len());
        let mean = |of: &[(bool, f64, f64)], value: fn(&(bool, f64, f64)) -> f64| {
            of.iter().map(value).sum::<f64>() / of.len() as f64
        };
        // What is left of a time that is 15 to 45 s long, at a moment that longer ones hold more.
        assert!((mean(&busy, |first| first.1) - 16.0).abs() < 1.0);
        assert!((mean(&idle, |first| first.1) - 5.4).abs() < 0.5);
        assert!((mean(&busy, |first| first.2) - 5.0).abs() < 0.3, "the number of jobs, too");
    }

    #[test]
    fn the_order_of_questions_does_not_change_the_answers() {
        let times: Vec<u64> = (0..2_000).map(|step| step * 137_000_000).collect();
        let mut forward = vdi(3);
        let mut backward = vdi(3);
        let ask =
            |schedule: &mut Schedule, time: u64| [0, 2, 4].map(|job| schedule.admit(job, time));
        let first: Vec<_> = times.iter().map(|&time| ask(&mut forward, time)).collect();
        let mut second: Vec<_> = times.iter().rev().map(|&t| ask(&mut backward, t)).collect();
        second.reverse();
        assert_eq!(first, second);
        assert!(
            times.iter().zip(&first).all(|(time, admitted)| admitted.iter().all(|at| at >= time))
        );
        assert!(first.iter().any(|admitted| admitted[0] < admitted[2]));
    }
}
