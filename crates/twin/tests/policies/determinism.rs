//! The same run gives the same bytes, on whatever thread and beside whatever else.

use ebb_policy::registry::{ENTRIES, Settings, make};
use ebb_policy::units::{Nanos, Watts};
use ebb_policy::{Cycled, Decision};
use ebb_trace::Workload;
use ebb_twin::{Observer, Outcome, Profile, Run, Sample, run};

use crate::common::{Poisson, Shifting, job};

/// Everything that was decided.
#[derive(Default)]
struct Log(Vec<Decision>);

impl Observer for Log {
    fn opened(&mut self, cycled: &Cycled<'_>) {
        self.0.extend(cycled.decisions());
    }
    fn sample(&mut self, sample: &Sample<'_>) {
        self.0.extend(sample.cycled.decisions());
    }
}

/// One policy on one server; the drives' policies get something to move, PACER a stable load.
#[derive(Debug, Clone, Copy)]
struct Case {
    policy: &'static str,
    server: &'static str,
    seed: u64,
}

fn cases(seed: u64) -> Vec<Case> {
    let servers = ["asg-1115s", "dorado-6000"];
    let case = |policy| servers.map(|server| Case { policy, server, seed });
    let policies = ENTRIES.iter().map(|entry| entry.name).chain(["pacer+pacman"]);
    policies.flat_map(case).collect()
}

fn outcome(case: Case) -> (Outcome, Vec<Decision>) {
    let Case { policy, server, seed } = case;
    let profile = Profile::load(server).unwrap();
    let capped = server == "asg-1115s";
    let ssd_budget = capped.then_some(Watts(230.0));
    let settings = Settings { ssd_budget, ..Settings::default() };
    let policy = make(policy, &profile.topology(), &settings).unwrap();
    let workload = if capped {
        Workload::Closed(Box::new(Shifting { depth: 2, ..Shifting::new(16, 2 << 20, 0.3, seed) }))
    } else {
        Workload::Open(Box::new(Poisson::new(u64::MAX, 400_000.0, 8192, 0.7, 1)))
    };
    let end = Some(Nanos::from_millis(12_200));
    let job = Run { seed, ssd_budget, ..job(&profile, policy, workload, end) };
    let mut log = Log::default();
    (run(job, &mut log).unwrap(), log.0)
}

/// All that a run says, to the last bit.
fn digest(case: Case) -> String {
    // Debug prints floats with all the digits that tell them apart; the histogram's own form is
    // its counts.
    let (outcome, decisions) = outcome(case);
    let latencies: Vec<_> = outcome
        .latency
        .iter_recorded()
        .map(|step| (step.value_iterated_to(), step.count_at_value()))
        .collect();
    let Outcome { requests, reads, bytes, span, energy, peak, latency_sum, .. } = outcome;
    let Outcome { over_budget, cores, drives, background_done, background_pending, .. } = outcome;
    format!(
        "{requests} {reads} {bytes} {span:?} {energy:?} {peak:?} {latency_sum} {over_budget:?} \
         {cores:?} {drives:?} {background_done} {background_pending} {:?} {latencies:?} \
         {decisions:?}",
        outcome.most_capped
    )
}

#[test]
fn every_policy_gives_the_same_bytes_on_one_thread_and_on_many() {
    let cases = cases(7);
    let alone: Vec<_> = cases.iter().map(|case| digest(*case)).collect();
    let beside: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = cases.iter().map(|case| scope.spawn(|| digest(*case))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for ((case, alone), beside) in cases.iter().zip(&alone).zip(&beside) {
        assert!(alone == beside, "{case:?}");
    }
}

#[test]
fn another_seed_gives_another_run() {
    for (one, other) in cases(7).into_iter().zip(cases(8)).step_by(5) {
        assert_ne!(digest(one), digest(other), "{one:?}");
    }
}
