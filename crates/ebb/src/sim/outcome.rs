//! What a run of the twin came to, in the terms of the record.

use std::collections::BTreeMap;

use ebb_policy::units::Nanos;
use ebb_record::RunSummary;
use ebb_record::latency::Latency;
use ebb_record::parts::{
    ClassSummary, DiskSummary, FaultLine, JobSummary, PartSummary, ThermalSummary, TripLine,
};
use ebb_trace::generate::PartDevices;
use ebb_twin::faults::FaultEvent;
use ebb_twin::windows::Windows;
use ebb_twin::{JobTotal, Outcome, ThermalTotals, Trip};

use super::run::RunResult;

/// What the SLA allows: the reference's latency times `factor`, in the mean and in each window.
#[derive(Debug, Clone, Copy)]
pub struct Sla<'a> {
    /// The reference's mean, µs.
    pub mean: f64,
    /// Window by window.
    pub windows: &'a Windows,
    /// 1 plus the tolerated loss.
    pub factor: f64,
}

impl Sla<'_> {
    /// Notes in `run` whether it kept it.
    pub fn judge(&self, run: &mut RunSummary, windows: &Windows) {
        let limit = self.mean * self.factor;
        let above = windows.above(self.windows, self.factor);
        run.sla_limit_us = Some(limit);
        run.sla_excess = run.latency_us.mean.map(|mean| mean / limit - 1.0);
        run.sla_kept = run.sla_excess.map(|excess| excess <= 0.0 && run.trip.is_none());
        run.sla_windows_above = above.map(|above| above.share);
        run.sla_worst_window = above.map(|above| above.worst);
    }
}

/// The numbers of a run. The twin counts each request and every joule itself, also between cycles.
pub fn summary(result: &RunResult, budgeted: bool, faults: bool) -> RunSummary {
    let outcome = &result.outcome;
    let total = outcome.energy.total().0;
    let seconds = outcome.span.seconds();
    // A run without any time has no rates, rather than infinite ones.
    let per = |amount: f64, of: f64| Some(if of > 0.0 { amount / of } else { 0.0 });
    let parts = outcome.energy.components().map(|(name, joules)| (name, joules.0));
    let cores = &outcome.cores;
    let jobs: Vec<_> = outcome.jobs.iter().map(|total| job(total, outcome.end)).collect();
    RunSummary {
        policy: result.recorded.policy.clone(),
        trip: outcome.trip.as_ref().map(trip),
        requests: Some(outcome.requests),
        reads: Some(outcome.reads),
        bytes: Some(outcome.bytes),
        seconds,
        energy_joules: [("total", total)].into_iter().chain(parts).collect(),
        mean_watts: per(total, seconds),
        startup_watts: result.startup,
        peak_watts: Some(outcome.peak.0),
        iops: per(outcome.requests as f64, seconds),
        iops_per_watt: per(outcome.requests as f64, total),
        bytes_per_joule: per(outcome.bytes as f64, total),
        latency_us: Latency::new(&outcome.latency, outcome.mean_latency()),
        seconds_over_budget: budgeted.then(|| outcome.over_budget.seconds()),
        most_capped_watts: Some(outcome.most_capped.0),
        core_seconds: BTreeMap::from([
            ("busy", cores.busy.seconds()),
            ("polling", cores.polling.seconds()),
            ("idle", cores.idle.seconds()),
            ("parked", cores.parked.seconds()),
        ]),
        background_bytes: BTreeMap::from([
            ("done", outcome.background_done),
            ("pending", outcome.background_pending),
        ]),
        decisions: result.recorded.log.count,
        thermal: outcome.thermal.as_ref().map(thermal),
        faults: faults.then(|| result.faults.iter().map(fault).collect()),
        classes: ClassSummary::of(&jobs),
        jobs,
        disks: disks(outcome),
        ..RunSummary::default()
    }
}

/// What the `parts` of a load came to; with their drives where these are `apart`.
pub fn parts((parts, apart): (Vec<PartDevices>, bool), outcome: &Outcome) -> Vec<PartSummary> {
    let one = |(at, part): (usize, PartDevices)| {
        let total = outcome.parts.get(at);
        let all = outcome.drives.iter().skip(part.first.into()).take(part.count.into());
        let drives = apart.then_some(all);
        let on_drives = drives.clone().map(|all| all.map(|drive| drive.bytes).sum());
        Some(PartSummary {
            name: part.name,
            requests: total.map(|total| total.requests),
            bytes: total.map(|total| total.bytes).or(on_drives)?,
            latency_us: total.map(|total| Latency::new(&total.latency, total.mean_latency())),
            drives: drives.is_some().then_some(part.count),
            drive_joules: drives.map(|all| all.map(|drive| drive.energy.0).sum()),
        })
    };
    parts.into_iter().enumerate().filter_map(one).collect()
}

fn thermal(totals: &ThermalTotals) -> ThermalSummary {
    ThermalSummary {
        hottest_socket_celsius: totals.hottest_socket.0,
        mean_socket_celsius: totals.mean_socket().0,
        hottest_drive_celsius: totals.hottest_drive.0,
        leakage_joules: totals.leakage.0,
        mean_fan_duty: totals.mean_duty(),
        mean_vibration: totals.mean_vibration(),
        socket_throttled_seconds: totals.socket_throttled.seconds(),
        drive_throttled_seconds: totals.drive_throttled.seconds(),
    }
}

fn trip(trip: &Trip) -> TripLine {
    TripLine { at_s: trip.at.seconds(), socket: trip.socket, celsius: trip.temperature.0 }
}

/// An injected fault in words and numbers.
pub fn fault(event: &FaultEvent) -> FaultLine {
    FaultLine {
        from_s: event.from.seconds(),
        until_s: event.until.seconds(),
        of: event.fault.part(),
        reason: event.fault.reason(),
        what: event.fault.to_string(),
    }
}

fn job(job: &JobTotal, end: Nanos) -> JobSummary {
    JobSummary {
        name: job.name.clone(),
        class: job.class,
        admission_seconds: job.started.map(|started| (started - job.arrived).seconds()),
        delay_seconds: job.delay().map(Nanos::seconds),
        cpu_seconds: job.cpu.seconds(),
        disk_bytes: job.disk_bytes,
        disk_wait_seconds: job.disk_wait.seconds(),
        throttled_seconds: job.throttled.seconds(),
        objective_seconds: job.objective.map(Nanos::seconds),
        met: job.met(end),
        energy_joules: job.energy.map(|energy| energy.0),
    }
}

/// What wore the disks; `None` without any.
fn disks(outcome: &Outcome) -> Option<DiskSummary> {
    let wear = outcome.wear();
    let moved = wear.seeks + wear.retries + wear.loads + wear.spin_ups > 0;
    (moved || wear.busy > Nanos::ZERO).then(|| DiskSummary {
        seeks: wear.seeks,
        retries: wear.retries,
        busy_seconds: wear.busy.seconds(),
        vibration_loss: wear.loss(),
        head_loads: wear.loads,
        spin_ups: wear.spin_ups,
    })
}

#[cfg(test)]
mod tests {
    use ebb_record::RunSummary;
    use ebb_record::recorder::Keep;

    use crate::sim::args::SimArgs;
    use crate::sim::plan::Plan;
    use crate::sim::run::run_all;
    use ebb_cli::progress::Progress;

    #[test]
    fn what_the_cycles_add_up_to_is_what_the_twin_counts() {
        let mut args = SimArgs { plf: 0.2, seed: 1, ..SimArgs::default() };
        args.profile = Some("generic-1u".to_owned());
        args.workload.workload = Some("rand-rw".to_owned());
        args.workload.rate = "2000 IOPS".parse().ok();
        args.duration = "3 s".parse().ok();
        let plan = Plan::new(&args).unwrap();
        let results = run_all(&plan, &Progress::new(true), Some(1), Keep::default()).unwrap();
        let result = &results.done[0];
        let (cycles, twin) =
            (RunSummary::new(&result.recorded), super::summary(result, false, false));
        assert_eq!((cycles.requests, cycles.bytes), (twin.requests, twin.bytes));
        assert_eq!(cycles.latency_us.p99, twin.latency_us.p99);
        let close = |a: Option<f64>, b: Option<f64>| (a.unwrap() / b.unwrap() - 1.0).abs() < 1e-4;
        assert!(close(cycles.latency_us.mean, twin.latency_us.mean));
        assert!(close(cycles.mean_watts, twin.mean_watts));
        assert!(close(cycles.peak_watts, twin.peak_watts));
        for (name, joules) in &cycles.energy_joules {
            assert!(close(Some(*joules), twin.energy_joules.get(name).copied()), "{name}");
        }
        assert_eq!(cycles.energy_joules.len(), 4);
    }
}
