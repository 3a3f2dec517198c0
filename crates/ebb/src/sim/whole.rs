//! What the runs of a sample say of the whole load.

use std::collections::BTreeMap;

use ebb_record::RunSummary;
use ebb_record::latency::Latency;
use ebb_record::sampled::{Difference, Interval, RunInterval};
use ebb_twin::windows::{Above, WINDOW};
use ebb_twin::{Outcome, Spell};

use super::outcome;
use super::plan::Plan;
use super::run::RunResult;
use super::sampled::{Estimate, Sample};

/// What every run of `plan`, which plays `sample`, says of the whole load; each is held against
/// the first where that is the reference.
pub fn runs(plan: &Plan, sample: &Sample, results: &[RunResult]) -> Vec<RunSummary> {
    let first = results.first().filter(|first| {
        plan.policies.first() == Some(&first.recorded.policy) && first.outcome.trip.is_none()
    });
    results
        .iter()
        .map(|result| {
            if result.outcome.trip.is_some() {
                return outcome::summary(result, false, false);
            }
            let mut run = sample.run(result);
            if let Some(first) = first {
                sample.judge(&mut run, (&result.outcome, &first.outcome), plan.settings.plf);
            }
            run.unsettled = plan.unsettled(&run.policy, run.iops.unwrap_or(0.0), sample.counted);
            run
        })
        .collect()
}

fn joules(spell: &Spell) -> f64 {
    spell.energy.total().0
}

fn wait(spell: &Spell) -> f64 {
    spell.latency_sum as f64
}

fn around((value, half): (f64, f64)) -> Interval {
    [value - half, value + half]
}

impl Sample {
    fn run(&self, result: &RunResult) -> RunSummary {
        let spells = &result.outcome.spells;
        let estimate = Estimate::new(&self.strata);
        let total = |of: &dyn Fn(&Spell) -> f64| estimate.total(|at| of(&spells[at]));
        let (seconds, all) = (self.counted.seconds(), self.all);
        let energy = total(&joules);
        let mut energy_joules = BTreeMap::from([("total", energy)]);
        for (index, (name, _)) in result.outcome.energy.components().iter().enumerate() {
            energy_joules.insert(name, total(&|spell| spell.energy.components()[index].1.0));
        }
        let requests = |at: usize| spells[at].requests as f64;
        let mean = estimate.ratio(|at| wait(&spells[at]) * 1e-3, requests);
        let reads = estimate.ratio(|at| spells[at].reads as f64, requests);
        let latencies: Vec<Vec<_>> = spells.iter().map(counts).collect();
        let quantile = |at| {
            let (value, [low, high]) = estimate.quantile(at, &latencies)?;
            Some((value * 1e-3, [low * 1e-3, high * 1e-3]))
        };
        let (p99, p99_9) = (quantile(0.99), quantile(0.999));
        let max = result.outcome.latency.max() as f64 * 1e-3;
        let own = |at: usize| joules(&spells[at]);
        let watts = (energy / seconds, estimate.half(own, own) / seconds);
        let cores = |of: &dyn Fn(&Spell) -> f64| total(of);
        RunSummary {
            policy: result.recorded.policy.clone(),
            requests: Some(all.requests.round() as u64),
            reads: reads.map(|(share, _)| (share * all.requests).round() as u64),
            bytes: Some(all.bytes.round() as u64),
            seconds,
            energy_joules,
            mean_watts: Some(watts.0),
            peak_watts: Some(result.outcome.peak.0),
            iops: Some(all.requests / seconds),
            iops_per_watt: Some(all.requests / energy),
            bytes_per_joule: Some(all.bytes / energy),
            latency_us: Latency {
                mean: mean.map(|mean| mean.0),
                p50: quantile(0.5).map(|found| found.0),
                p99: p99.map(|found| found.0),
                p99_9: p99_9.map(|found| found.0),
                max: mean.map(|_| max),
            },
            most_capped_watts: Some(result.outcome.most_capped.0),
            core_seconds: BTreeMap::from([
                ("busy", cores(&|spell| spell.cores.busy.seconds())),
                ("polling", cores(&|spell| spell.cores.polling.seconds())),
                ("idle", cores(&|spell| spell.cores.idle.seconds())),
                ("parked", cores(&|spell| spell.cores.parked.seconds())),
            ]),
            background_bytes: BTreeMap::from([
                ("done", result.outcome.background_done),
                ("pending", result.outcome.background_pending),
            ]),
            decisions: result.recorded.log.count,
            interval: Some(RunInterval {
                mean_watts: around(watts),
                latency_mean_us: mean.map(around),
                latency_p99_us: p99.map(|found| found.1),
                latency_p99_9_us: p99_9.map(|found| found.1),
                sla_windows_above: None,
            }),
            ..RunSummary::default()
        }
    }

    /// Notes in `run` whether it kept the tolerance, and how it differs from the first.
    fn judge(&self, run: &mut RunSummary, (own, first): (&Outcome, &Outcome), plf: f64) {
        let estimate = Estimate::new(&self.strata);
        let (spells, its) = (&own.spells, &first.spells);
        let saved = |at: usize| joules(&its[at]) - joules(&spells[at]);
        let saved = (estimate.total(saved), estimate.half(saved, |at| joules(&its[at])));
        let seconds = self.counted.seconds();
        let change = estimate.ratio(|at| wait(&spells[at]), |at| wait(&its[at]));
        run.difference = Some(Difference {
            saved_watts: around((saved.0 / seconds, saved.1 / seconds)),
            saved_kwh_per_year: None,
            latency_mean_change: change.map(|(change, half)| around((change - 1.0, half))),
        });
        let requests = |at: usize| its[at].requests as f64;
        let Some((mean, _)) = estimate.ratio(|at| wait(&its[at]) * 1e-3, requests) else { return };
        let limit = mean * (1.0 + plf);
        run.sla_limit_us = Some(limit);
        run.sla_excess = run.latency_us.mean.map(|mean| mean / limit - 1.0);
        run.sla_kept = run.sla_excess.map(|excess| excess <= 0.0);
        let above: Vec<Option<Above>> = self
            .spells
            .iter()
            .map(|span| {
                let slots =
                    (span.start.0 / WINDOW.0) as usize..span.end.0.div_ceil(WINDOW.0) as usize;
                let [own, first] = [own, first].map(|outcome| outcome.windows.part(slots.clone()));
                own.above(&first, 1.0 + plf)
            })
            .collect();
        let share = estimate.ratio(
            |at| above[at].map_or(0.0, |above| above.share),
            |at| f64::from(u8::from(above[at].is_some())),
        );
        run.sla_windows_above = share.map(|(share, _)| share);
        run.sla_worst_window = above.iter().flatten().map(|above| above.worst).reduce(f64::max);
        if let (Some(interval), Some(share)) = (&mut run.interval, share) {
            interval.sla_windows_above = Some(around(share).map(|share| share.clamp(0.0, 1.0)));
        }
    }
}

/// The latencies of a spell in ascending order, with how many there were of each.
fn counts(spell: &Spell) -> Vec<(u64, u64)> {
    let recorded = spell.latency.iter_recorded();
    recorded.map(|step| (step.value_iterated_to(), u64::from(step.count_at_value()))).collect()
}
