//! Time to move the heads: short seeks accelerate and brake (square root of the distance), long
//! ones coast (linear), after Ruemmler and Wilkes, IEEE Computer 27:3, 1994.

use ebb_policy::units::Nanos;
use serde::{Deserialize, Serialize};

/// The share of the full stroke up to which a seek is a short one. Ruemmler and Wilkes found 0.2
/// and 0.4 on two drives.
const SHORT: f64 = 0.3;

/// Movement of the heads.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seek {
    /// To the next cylinder, reading.
    pub track_to_track: Nanos,
    /// Mean over random reads.
    pub average: Nanos,
    /// From edge to edge, reading.
    pub full_stroke: Nanos,
    /// Further time before a write.
    pub write_settle: Nanos,
    /// To the next track while a stream goes on; tracks are skewed by it.
    pub switch: Nanos,
}

/// Nanoseconds by distance.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SeekCurve {
    least: f64,
    root: f64,
    knee: f64,
    slope: f64,
    per_cylinder: f64,
    switch: f64,
    write_settle: f64,
}

impl SeekCurve {
    /// The curve through the track-to-track and full-stroke times whose mean over random seeks
    /// is the average one; `None` where no rising curve does that.
    pub(super) fn new(seek: &Seek, cylinders: u64) -> Option<Self> {
        let ns = |time: ebb_policy::units::Nanos| time.0 as f64;
        let (least, mean, full) = (ns(seek.track_to_track), ns(seek.average), ns(seek.full_stroke));
        // f(x) = least + root sqrt(x) up to SHORT, then a line to f(1) = full. Random seeks have
        // the density 2 (1 - x); `a` and `b` are the means of sqrt(x) up to SHORT and of the
        // share of the line beyond it.
        let s = SHORT;
        let a = 2.0 * (s.powf(1.5) / 1.5 - s.powf(2.5) / 2.5);
        let beyond = (1.0 - s) * (1.0 - s);
        let b = beyond / 3.0;
        // mean = least + root a + root sqrt(s) beyond + (full - least - root sqrt(s)) b
        let root = (mean - least - (full - least) * b) / (a + s.sqrt() * (beyond - b));
        let knee = least + root * s.sqrt();
        let slope = (full - knee) / (1.0 - s);
        (root > 0.0 && slope > 0.0).then_some(Self {
            least,
            root,
            knee,
            slope,
            per_cylinder: 1.0 / cylinders as f64,
            switch: ns(seek.switch),
            write_settle: ns(seek.write_settle),
        })
    }

    /// Time from one track to another. Writes settle longer, except on the next track, where a
    /// stream goes on.
    #[inline]
    pub(super) fn time(&self, same_track: bool, cylinders: u64, write: bool) -> f64 {
        if same_track {
            return 0.0;
        }
        if cylinders <= 1 {
            return self.switch;
        }
        let settle = if write { self.write_settle } else { 0.0 };
        self.switch.max(self.over(cylinders as f64 * self.per_cylinder)) + settle
    }

    /// Time of a seek over a share of the full stroke.
    fn over(&self, share: f64) -> f64 {
        if share < SHORT {
            self.least + self.root * share.sqrt()
        } else {
            self.knee + self.slope * (share - SHORT)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DriveFile;
    use crate::hdd::HddProfile;

    #[test]
    fn published_seek_times_come_out() {
        for name in HddProfile::names() {
            let seek = HddProfile::builtin(name).unwrap().seek;
            let curve = SeekCurve::new(&seek, 300_000).unwrap();
            assert!((curve.over(0.0) - seek.track_to_track.0 as f64).abs() < 1.0);
            assert!((curve.over(1.0) - seek.full_stroke.0 as f64).abs() < 1.0);
            let steps = 100_000;
            let mean: f64 = (0..steps)
                .map(|step| (f64::from(step) + 0.5) / f64::from(steps))
                .map(|x| 2.0 * (1.0 - x) * curve.over(x) / f64::from(steps))
                .sum();
            let error = mean / seek.average.0 as f64 - 1.0;
            assert!(error.abs() < 1e-3, "{name}: {error}");
        }
    }

    #[test]
    fn farther_is_never_sooner() {
        let seek = HddProfile::builtin("exos-x18").unwrap().seek;
        let curve = SeekCurve::new(&seek, 400_000).unwrap();
        let times: Vec<_> = (1..400).map(|k| curve.time(false, k * 1000, false)).collect();
        assert!(times.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!(curve.time(true, 0, true), 0.0);
        assert!(curve.time(false, 5, true) > curve.time(false, 5, false));
    }

    #[test]
    fn times_that_no_curve_has_are_refused() {
        let mut seek = HddProfile::builtin("exos-x18").unwrap().seek;
        seek.average = ebb_policy::units::Nanos(seek.full_stroke.0 - 1);
        assert!(SeekCurve::new(&seek, 1000).is_none());
    }
}
