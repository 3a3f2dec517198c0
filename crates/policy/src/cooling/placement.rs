//! Which socket a job runs on. Three ways to even something out between two sockets, and one
//! rule for all: one move at a time, then a pause, so that the heat has time to show it.

use crate::cooling::estimate::{Estimator, inlet};
use crate::cooling::{LAG, MIN_JOB_SHARE};
use crate::{Controls, Signals};

/// Seconds between two moves: the lag, and about as long again for the heat sink as it takes to
/// show a few kelvin.
const PAUSE: f64 = 3.0 * LAG.0 as f64 * 1e-9;
/// Moves jobs between sockets.
#[derive(Debug, Clone)]
pub struct Placement {
    sockets: usize,
    /// Seconds until the next move.
    pause: f64,
}

/// A job may be moved when it runs; `None` for those that wait.
fn runs(signals: &Signals, job: usize) -> Option<(usize, f64)> {
    let job = signals.jobs.get(job).filter(|job| job.present && !job.waiting)?;
    Some((usize::from(job.socket), job.cpu))
}

impl Placement {
    /// For `sockets` sockets.
    pub fn new(sockets: u16) -> Self {
        Self { sockets: usize::from(sockets), pause: 0.0 }
    }

    /// Starts an interval of `dt` seconds; whether a move may be made.
    fn may_move(&mut self, dt: f64) -> bool {
        self.pause = (self.pause - dt).max(0.0);
        self.sockets > 1 && self.pause == 0.0
    }

    /// Extremes of `value` over the sockets: the index of the smallest and of the largest.
    fn extremes(&self, value: impl Fn(usize) -> f64) -> (usize, usize) {
        let sockets = 0..self.sockets;
        let least = sockets.clone().min_by(|a, b| value(*a).total_cmp(&value(*b))).unwrap_or(0);
        let most = sockets.min_by(|a, b| value(*b).total_cmp(&value(*a))).unwrap_or(0);
        (least, most)
    }

    /// Dynamic load balancing: evens out the number of threads, blind to temperature. No pause:
    /// the load balancer of an operating system has none.
    pub fn by_number(&mut self, signals: &Signals, controls: &mut Controls, reason: &'static str) {
        let on = |socket: usize| {
            (0..signals.jobs.len())
                .filter(move |j| runs(signals, *j).is_some_and(|(s, _)| s == socket))
        };
        let (least, most) = self.extremes(|socket| on(socket).count() as f64);
        if on(most).count() >= on(least).count() + 2
            && let Some(job) = on(most).next_back()
        {
            controls.set_job_socket(job, Some(least as u16), reason);
        }
    }

    /// Choi et al.: when a socket is `margin` kelvin hotter than another, its busiest job goes
    /// there.
    pub fn off_the_hottest(
        &mut self,
        (signals, heat, dt): (&Signals, &Estimator, f64),
        margin: f64,
        controls: &mut Controls,
        reason: &'static str,
    ) {
        let at = |socket: usize| heat.socket(socket).map_or(0.0, |t| t.now.0);
        let (coolest, hottest) = self.extremes(at);
        if !self.may_move(dt) || at(hottest) - at(coolest) < margin {
            return;
        }
        let jobs = (0..signals.jobs.len()).filter_map(|j| Some((j, runs(signals, j)?)));
        let busiest = jobs
            .filter(|(_, (socket, _))| *socket == hottest)
            .max_by(|(_, (_, a)), (_, (_, b))| a.total_cmp(b));
        if let Some((job, _)) = busiest {
            controls.set_job_socket(job, Some(coolest as u16), reason);
            self.pause = PAUSE;
        }
    }

    /// Ayoub et al.: when a socket is `margin` kelvin hotter than another, moves the job that
    /// brings their temperatures nearest to each other, if one does. A socket downstream in the
    /// air so ends with less work at the same heat.
    pub fn by_heat(
        &mut self,
        (signals, heat, dt): (&Signals, &Estimator, f64),
        margin: f64,
        controls: &mut Controls,
        reason: &'static str,
    ) {
        let at = |socket: usize| heat.socket(socket).map_or(0.0, |t| t.ahead.0);
        let (coolest, hottest) = self.extremes(at);
        let gap = at(hottest) - at(coolest);
        if !self.may_move(dt) || gap < margin {
            return;
        }
        let work = (0..signals.jobs.len()).filter_map(|j| runs(signals, j));
        let load = work.map(|(_, cpu)| cpu).sum::<f64>() / self.sockets as f64;
        // Moving `cpu` changes the difference of temperatures by twice what it heats.
        let rise = heat_per_core(signals, (at(hottest) + at(coolest)) / 2.0, load);
        let after = |cpu: f64| (gap - 2.0 * cpu * rise).abs();
        let best = (0..signals.jobs.len())
            .filter_map(|j| Some((j, runs(signals, j)?)))
            .filter(|(_, (socket, cpu))| *socket == hottest && *cpu > MIN_JOB_SHARE)
            .map(|(job, (_, cpu))| (job, after(cpu)))
            .min_by(|(_, a), (_, b)| a.total_cmp(b));
        if let Some((job, left)) = best
            && left < gap
        {
            controls.set_job_socket(job, Some(coolest as u16), reason);
            self.pause = PAUSE;
        }
    }
}

/// Kelvin per core's worth of work, from the mean rise of the sockets over the inlet and their
/// mean load. It counts the heat of idling as work's, so it errs towards leaving jobs alone.
fn heat_per_core(signals: &Signals, mean: f64, load: f64) -> f64 {
    (mean - inlet(signals)).max(0.0) / load.max(0.5)
}
