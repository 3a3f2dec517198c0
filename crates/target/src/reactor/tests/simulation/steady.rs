//! Steady loads: spare cores sleep, also where cores are now and then taken away.

use ebb_policy::units::Nanos;

use super::Plan;
use super::rest::{Outcome, requests, run_plan};

/// 390,000 requests a second, which keep 2.7 cores of 8 busy; each core is taken away so often.
fn run(scheduler: &'static str, stalls: Option<Nanos>) -> Outcome {
    let length = Nanos::from_secs(2);
    let plan = Plan {
        cores: 8,
        siblings: false,
        threads: 32,
        request: Nanos::from_micros(7),
        coarse: Nanos::from_millis(250),
        stalls,
        ..Plan::of(1, scheduler)
    };
    run_plan(plan, false, &requests(390e3, Nanos::ZERO, length), length)
}

#[test]
fn a_core_that_was_away_is_no_burst() {
    let stalls = Some(Nanos::from_millis(200));
    let (calm, stalled) = (run("sandman-plus", None), run("sandman-plus", stalls));
    let used = (calm.late, stalled.late);
    assert!(calm.late <= 5.5 && stalled.late <= 6.5, "{used:?} of 8 cores awake");
    let from = Nanos::from_secs(1);
    let (ours, polled) = (stalled.latency(from), run("static", stalls).latency(from));
    assert!(ours.0 <= 1.5 * polled.0, "mean {} ns, {} ns with all cores", ours.0, polled.0);
}
