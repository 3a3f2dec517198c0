//! Performance loss and its distance to what is tolerated (§IV-C).

/// `loss_cur = (l_cur − l_baseline) / l_baseline`.
pub(super) fn loss_cur(l_cur: f64, l_baseline: f64) -> f64 {
    if l_baseline > 0.0 { (l_cur - l_baseline) / l_baseline } else { 0.0 }
}

/// `loss_distance = (plf − loss_cur) / plf`: 1 with no loss, 0 at `plf`, negative beyond it.
///
/// At most 1: a latency below the baseline is chance or a baseline grown old, and earns no credit.
/// Where no loss is tolerated at all (`plf` = 0) there is never slack.
pub(super) fn loss_distance(plf: f64, loss_cur: f64) -> f64 {
    if plf > 0.0 {
        ((plf - loss_cur) / plf).min(1.0)
    } else if loss_cur > 0.0 {
        -1.0
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_s_formulas() {
        assert!((loss_cur(120.0, 100.0) - 0.2).abs() < 1e-12);
        assert!((loss_distance(0.2, 0.05) - 0.75).abs() < 1e-12);
        assert_eq!(loss_distance(0.2, 0.0), 1.0);
        assert!(loss_distance(0.2, 0.2).abs() < 1e-12);
        assert!((loss_distance(0.2, 0.4) + 1.0).abs() < 1e-12);
    }

    #[test]
    fn no_credit_for_a_latency_below_the_baseline_and_none_without_tolerance() {
        assert_eq!(loss_distance(0.2, -0.5), 1.0);
        assert_eq!(loss_distance(0.0, -0.5), 0.0);
        assert_eq!(loss_distance(0.0, 0.01), -1.0);
    }
}
