//! Which socket a job runs on. Three ways to even something out between two sockets, and two rules
//! where it is heat: one move at a time, then a pause, so that the heat has time to show it; and
//! only to cores that have the time, for a job that shares a core takes twice as long.

use crate::guard::MIN_JOB_SHARE;
use crate::sense::LAG;
use crate::sense::estimate::Estimator;
use crate::topology::Topology;
use crate::{CoreRole, Request, Signals};

/// Seconds between two moves: the lag, and about as long again for the heat sink as it takes to
/// show a few kelvin.
const PAUSE: f64 = 3.0 * LAG.0 as f64 * 1e-9;

/// Moves jobs between sockets.
#[derive(Debug, Clone)]
pub struct Placement {
    /// Cores for jobs on each socket.
    cores: Vec<f64>,
    /// Seconds until the next move.
    pause: f64,
}

/// A job may be moved when it runs; `None` for those that wait.
fn runs(signals: &Signals, job: usize) -> Option<(usize, f64)> {
    let job = signals.jobs.get(job).filter(|job| job.present && !job.waiting)?;
    Some((usize::from(job.socket), job.cpu))
}

impl Placement {
    /// For the sockets of `topology`. Where it does not say which cores run jobs there is no limit.
    pub fn new(topology: &Topology) -> Self {
        let here = |socket: u16| {
            let groups = topology.groups.iter();
            let groups = groups.filter(|g| g.role == CoreRole::Compute && g.socket == Some(socket));
            groups.map(|group| f64::from(group.cores)).sum::<f64>()
        };
        let known = |cores: f64| if cores > 0.0 { cores } else { f64::from(u16::MAX) };
        Self { cores: (0..topology.sockets).map(|s| known(here(s))).collect(), pause: 0.0 }
    }

    /// Starts an interval of `dt` seconds; whether a move may be made.
    fn may_move(&mut self, dt: f64) -> bool {
        self.pause = (self.pause - dt).max(0.0);
        self.cores.len() > 1 && self.pause == 0.0
    }

    /// Extremes of `value` over the sockets: the index of the smallest and of the largest.
    fn extremes(&self, value: impl Fn(usize) -> f64) -> (usize, usize) {
        let sockets = 0..self.cores.len();
        let least = sockets.clone().min_by(|a, b| value(*a).total_cmp(&value(*b))).unwrap_or(0);
        let most = sockets.min_by(|a, b| value(*b).total_cmp(&value(*a))).unwrap_or(0);
        (least, most)
    }

    /// Whether `socket` has the time for `job` too, once nobody is held back.
    fn has_room(&self, signals: &Signals, request: &Request, socket: usize, job: usize) -> bool {
        let wants = |job: usize| {
            let (on, cpu) = runs(signals, job)?;
            let share = request.job_share.get(job).unwrap_or(signals.in_force.share(job));
            Some((on, cpu / share.max(MIN_JOB_SHARE)))
        };
        let jobs = (0..signals.jobs.len()).filter_map(wants);
        let busy: f64 = jobs.filter(|(on, _)| *on == socket).map(|(_, cpu)| cpu).sum();
        let more = wants(job).map_or(0.0, |(_, cpu)| cpu);
        self.cores.get(socket).is_some_and(|cores| busy + more <= *cores)
    }

    /// Dynamic load balancing: evens out the number of threads, blind to temperature. No pause:
    /// the load balancer of an operating system has none.
    pub fn by_number(&mut self, signals: &Signals, request: &mut Request, reason: &'static str) {
        let on = |socket: usize| {
            (0..signals.jobs.len())
                .filter(move |j| runs(signals, *j).is_some_and(|(s, _)| s == socket))
        };
        // Jobs for each core, with so many more. By halves, lest a job goes to and fro.
        let queue =
            |socket: usize, more: f64| (on(socket).count() as f64 + more) / self.cores[socket];
        let (least, most) = self.extremes(|socket| queue(socket, 0.0));
        if queue(most, -0.5) > queue(least, 0.5)
            && let Some(job) = on(most).next_back()
        {
            request.job_socket.ask(job, least as u16, reason);
        }
    }

    /// Choi et al.: when a socket is `margin` kelvin hotter than another, its busiest job goes
    /// there.
    pub fn off_the_hottest(
        &mut self,
        (signals, heat, dt): (&Signals, &Estimator, f64),
        margin: f64,
        request: &mut Request,
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
            .filter(|(job, _)| self.has_room(signals, request, coolest, *job))
            .max_by(|(_, (_, a)), (_, (_, b))| a.total_cmp(b));
        if let Some((job, _)) = busiest {
            request.job_socket.ask(job, coolest as u16, reason);
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
        request: &mut Request,
        reason: &'static str,
    ) {
        let at = |socket: usize| heat.socket(socket).map_or(0.0, |t| t.ahead.0);
        let (coolest, hottest) = self.extremes(at);
        let gap = at(hottest) - at(coolest);
        if !self.may_move(dt) || gap < margin {
            return;
        }
        let work = (0..signals.jobs.len()).filter_map(|j| runs(signals, j));
        let load = work.map(|(_, cpu)| cpu).sum::<f64>() / self.cores.len() as f64;
        // Moving `cpu` changes the difference of temperatures by twice what it heats.
        let rise = heat_per_core((at(hottest) + at(coolest)) / 2.0 - heat.inlet(), load);
        let after = |cpu: f64| (gap - 2.0 * cpu * rise).abs();
        let best = (0..signals.jobs.len())
            .filter_map(|j| Some((j, runs(signals, j)?)))
            .filter(|(_, (socket, cpu))| *socket == hottest && *cpu > MIN_JOB_SHARE)
            .filter(|(job, _)| self.has_room(signals, request, coolest, *job))
            .map(|(job, (_, cpu))| (job, after(cpu)))
            .min_by(|(_, a), (_, b)| a.total_cmp(b));
        if let Some((job, left)) = best
            && left < gap
        {
            request.job_socket.ask(job, coolest as u16, reason);
            self.pause = PAUSE;
        }
    }
}

/// Kelvin per core's worth of work, from the mean rise of the sockets over the inlet and their
/// mean load. It counts the heat of idling as work's, so it errs towards leaving jobs alone.
fn heat_per_core(rise: f64, load: f64) -> f64 {
    rise.max(0.0) / load.max(0.5)
}
