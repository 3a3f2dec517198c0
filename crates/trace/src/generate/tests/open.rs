//! Requests by the clock.

use super::*;
use crate::generate::{Overrides, ShapeSpec, Share};

/// Requests per whole span of time.
fn counts(requests: &[Request], span: Nanos) -> Vec<u32> {
    let spans = requests.last().map_or(0, |request| request.at.0 / span.0 + 1);
    let mut counts = vec![0; spans as usize];
    for request in requests {
        counts[(request.at.0 / span.0) as usize] += 1;
    }
    counts.pop();
    counts
}

fn variance_over_mean(counts: &[u32]) -> f64 {
    let mean = counts.iter().map(|&n| f64::from(n)).sum::<f64>() / counts.len() as f64;
    let squares = counts.iter().map(|&n| (f64::from(n) - mean).powi(2)).sum::<f64>();
    squares / counts.len() as f64 / mean
}

#[test]
fn poisson_and_constant_arrivals_have_their_rate_and_their_variance() {
    for (name, dispersion) in [("poisson", 0.85..1.15), ("constant", 0.0..0.01)] {
        let spec = builtin(name).with_rate(100_000.0);
        let requests = take(&mut *open(&spec, &SERVER), 1_000_000);
        assert!(requests.is_sorted_by_key(|request| request.at));
        let seconds = requests[999_999].at.seconds();
        assert!((seconds - 10.0).abs() < 0.05, "{name}: {seconds}");
        let ratio = variance_over_mean(&counts(&requests, Nanos::from_millis(10)));
        assert!(dispersion.contains(&ratio), "{name}: {ratio}");
        assert!((share_of_reads(&requests) - 0.7).abs() < 0.002);
    }
}

/// `spec` at a rate that gives no request before its end, whatever the load does meanwhile.
fn quiet(mut spec: WorkloadSpec, shape: ShapeSpec) -> usize {
    spec.duration = Some(Nanos::from_millis(10));
    spec.arrivals[0].shape = shape;
    take(&mut *open(&spec.with_rate(1e-9), &SERVER), usize::MAX).len()
}

#[test]
fn rates_of_less_than_a_request_end_quietly() {
    let brief = Nanos::from_micros(1);
    let bursts = ShapeSpec::OnOff { on: brief, off: brief, floor: Share(0.0), spread: Share(0.0) };
    let low = ShapeSpec::Day { length: Nanos(1440), peaks: 1, height: 0.0, share: Share(1.0) };
    for shape in [ShapeSpec::Flat, bursts, ShapeSpec::Random { step: brief }, low] {
        assert_eq!(quiet(builtin("poisson"), shape.clone()), 0, "{shape:?}");
    }
}

#[test]
fn bursts_come_and_go() {
    let spec = builtin("on-off").with_rate(20_000.0);
    let duration = Overrides { duration: Some(Nanos::from_secs(500)), ..Overrides::default() };
    let spec = spec.with(&duration).unwrap();
    let requests = take(&mut *open(&spec, &SERVER), usize::MAX);
    let counts = counts(&requests, Nanos::from_millis(100));
    let busy = counts.iter().filter(|&&count| count > 1_800).count() as f64;
    let calm = counts.iter().filter(|&&count| count < 80).count() as f64;
    let all = counts.len() as f64;
    assert!((busy / all - 0.2).abs() < 0.06 && (calm / all - 0.8).abs() < 0.06, "{busy} {calm}");
    assert!(requests[requests.len() - 1].at < Nanos::from_secs(500));
}

#[test]
fn random_steps_have_exponential_levels_of_the_mean_that_is_stated() {
    let mut spec = builtin("poisson").with_rate(1_000.0);
    spec.arrivals[0].shape = ShapeSpec::Random { step: Nanos::from_secs(1) };
    let duration = Overrides { duration: Some(Nanos::from_secs(1_000)), ..Overrides::default() };
    let requests = take(&mut *open(&spec.with(&duration).unwrap(), &SERVER), usize::MAX);
    let counts = counts(&requests, Nanos::from_secs(1));
    let mean = requests.len() as f64 / 1_000.0;
    assert!((mean - 1_000.0).abs() < 100.0, "{mean}");
    // Of an exponential distribution e^-2 are above twice the mean, and the steps are constant.
    let high = counts.iter().filter(|&&count| count > 2_000).count() as f64 / 1_000.0;
    assert!((high - 0.135).abs() < 0.03, "{high}");
}

#[test]
fn a_day_is_low_with_six_peaks() {
    let mut spec = builtin("diurnal").with_rate(1_000.0);
    if let ShapeSpec::Day { length, .. } = &mut spec.arrivals[0].shape {
        *length = Nanos::from_secs(1_440);
    }
    let day = Overrides { duration: Some(Nanos::from_secs(1_440)), ..Overrides::default() };
    let requests = take(&mut *open(&spec.with(&day).unwrap(), &SERVER), usize::MAX);
    let high: Vec<bool> =
        counts(&requests, Nanos::from_secs(1)).iter().map(|&count| count > 4_000).collect();
    let share = high.iter().filter(|high| **high).count() as f64 / high.len() as f64;
    assert!((share - 0.05).abs() < 0.005, "{share}");
    assert_eq!(high.windows(2).filter(|pair| !pair[0] && pair[1]).count(), 6);
}

#[test]
fn parts_are_merged_in_time_order_and_keep_their_proportions() {
    let mut spec = builtin("poisson");
    let mut other = builtin("constant").arrivals.remove(0);
    other.access.read = Share(1.0);
    spec.arrivals.push(other);
    let spec = spec.with_rate(10_000.0);
    let requests = take(&mut *open(&spec, &SERVER), 100_000);
    assert!(requests.is_sorted_by_key(|request| request.at));
    let first = requests.iter().filter(|request| request.stream < 64).count() as f64;
    assert!((first / requests.len() as f64 - 0.5).abs() < 0.01);
}
