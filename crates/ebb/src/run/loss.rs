//! How much longer requests would take, on average, under a policy that is only watched.

use ebb_policy::Signals;
use ebb_policy::units::Nanos;

/// What all requests so far took together.
#[derive(Debug, Default)]
pub struct Loss {
    natively: f64,
    would: f64,
}

impl Loss {
    /// Adds a period: requests took `natively` on average, and would have taken what `signals` say.
    pub fn add(&mut self, natively: Option<Nanos>, signals: &Signals) {
        let io = &signals.io;
        if let (Some(was), Some(is), Some(requests)) = (natively, io.mean_latency, io.completed) {
            self.natively += was.seconds() * requests as f64;
            self.would += is.seconds() * requests as f64;
        }
    }

    /// The rise of the mean as a share; nothing before there were requests.
    pub fn share(&self) -> Option<f64> {
        (self.natively > 0.0).then(|| self.would / self.natively - 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_counts_once() {
        let mut loss = Loss::default();
        let mut signals = Signals::default();
        loss.add(Some(Nanos::from_micros(100)), &signals);
        assert_eq!(loss.share(), None, "there were none");
        for (requests, was, is) in [(300, 100, 110), (100, 400, 400), (0, 7, 7000)] {
            signals.io.completed = Some(requests);
            signals.io.mean_latency = Some(Nanos::from_micros(is));
            loss.add(Some(Nanos::from_micros(was)), &signals);
        }
        // 70 ms in all, 73 ms it would have been.
        assert!((loss.share().unwrap() - 3.0 / 70.0).abs() < 1e-9, "{loss:?}");
    }
}
