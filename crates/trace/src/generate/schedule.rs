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
        this.extend();
        Ok(this)
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
            let choices = u64::from(self.most - self.fewest) + 1;
            self.jobs = self.fewest + carve(&mut self.rng.next_u64(), choices) as u32;
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
