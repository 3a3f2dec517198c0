//! The fan-disk characterisation curve (EADC Fig. 5), "segmented into either temperature-driven
//! zones (Z1) or disk-performance-driven zones (Z2) according to the slope (m) of the curve"
//! (§VI-B).

/// Slope up to which the curve counts as flat, `m = 0`, in shares of throughput per unit of duty.
/// Ours: 1 % of throughput for a step of 10 % PWM, the repeatability to expect of such a sweep.
const FLAT: f64 = 0.1;
/// Least part of the duty that a slope is judged over: between closer points noise is a slope.
const SPAN: f64 = 0.1;
/// Throughput that one fan step of zone Z2 may cost: "fan settings are discretized based on the
/// disk sensitivity slope (m)" (§VI-B). Ours: half of what Fig. 5's legend can tell apart.
const STEP: f64 = 0.05;
/// Rise of the throughput from one duty to the next that is noise of the sweep, and not a mistake.
const NOISE: f64 = 0.02;

/// Why points are no characterisation curve.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CurveError {
    /// Fewer than two points.
    #[error("the fan-disk curve has {0} points; sweep at least two fan duties")]
    Short(usize),
    /// A number outside its range.
    #[error("point {point} of the fan-disk curve: {what} is {value}, not within 0 to 1")]
    Range {
        /// Its place, counted from 1.
        point: usize,
        /// Which number.
        what: &'static str,
        /// The number.
        value: f64,
    },
    /// Duties that do not rise.
    #[error(
        "point {point} of the fan-disk curve: duty {duty} is not above the one before, \
             {before}; order the points by duty, each once"
    )]
    Order {
        /// Its place, counted from 1.
        point: usize,
        /// Its duty.
        duty: f64,
        /// The duty of the point before.
        before: f64,
    },
    /// Throughput that rises with fan speed.
    #[error(
        "point {point} of the fan-disk curve: throughput {share} is above {before} at the \
             lower duty before; faster fans do not speed disks up: measure longer at each duty"
    )]
    Rising {
        /// Its place, counted from 1.
        point: usize,
        /// Its throughput.
        share: f64,
        /// The throughput of the point before.
        before: f64,
    },
}

/// Disk throughput by fan duty, as a share of the most that was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// As it was measured.
    measured: Vec<(f64, f64)>,
    /// (duty, share), by rising duty.
    points: Vec<(f64, f64)>,
    /// The most that the throughput rose with fan speed: noise of the sweep.
    noise: f64,
    knee: f64,
    levels: Vec<f64>,
}

impl Curve {
    /// The curve through `points` (fan duty, share of the disks' throughput), both 0 to 1. Where
    /// noise makes the disks of a faster fan faster, their mean counts for all of them.
    ///
    /// # Errors
    /// Points that are too few, out of range, out of order, or show a throughput that rises.
    pub fn new(mut points: Vec<(f64, f64)>) -> Result<Self, CurveError> {
        if points.len() < 2 {
            return Err(CurveError::Short(points.len()));
        }
        let (mut lowest, mut noise) = (f64::INFINITY, 0.0_f64);
        for index in 0..points.len() {
            let ((duty, share), point) = (points[index], index + 1);
            for (what, value) in [("duty", duty), ("throughput", share)] {
                if !(0.0..=1.0).contains(&value) {
                    return Err(CurveError::Range { point, what, value });
                }
            }
            let before = index.checked_sub(1).map(|i| points[i].0);
            if let Some(before) = before.filter(|before| duty <= *before) {
                return Err(CurveError::Order { point, duty, before });
            }
            if share > lowest + NOISE {
                return Err(CurveError::Rising { point, share, before: lowest });
            }
            noise = noise.max(share - lowest);
            lowest = lowest.min(share);
        }
        let measured = points.clone();
        level_out(&mut points);
        let mut curve = Self { measured, points, noise, knee: 1.0, levels: Vec::new() };
        curve.knee = curve.find_knee();
        curve.levels = curve.find_levels();
        Ok(curve)
    }

    /// The points that it was made of.
    #[must_use]
    pub fn measured(&self) -> &[(f64, f64)] {
        &self.measured
    }

    /// Share of the disks' throughput that is left at `duty`; level beyond the ends.
    #[must_use]
    pub fn throughput(&self, duty: f64) -> f64 {
        let after = self.points.partition_point(|(at, _)| *at < duty);
        let Some((x1, y1)) = self.points.get(after).copied() else {
            return self.points.last().map_or(1.0, |(_, share)| *share);
        };
        let Some((x0, y0)) = after.checked_sub(1).map(|i| self.points[i]) else { return y1 };
        y0 + (y1 - y0) * (duty - x0) / (x1 - x0)
    }

    /// Where Z1 ends: the highest duty up to which no part of the curve is steeper than flat.
    /// While disks are busy this is the most that the fans get.
    #[must_use]
    pub fn knee(&self) -> f64 {
        self.knee
    }

    /// Fan settings from the knee to full speed. Each costs the disks at most 5 % more than
    /// the one before, so they lie closer where the slope is steeper.
    #[must_use]
    pub fn levels(&self) -> &[f64] {
        &self.levels
    }

    /// A loss counts that is more than flat parts have over [`SPAN`], and more than noise.
    fn find_knee(&self) -> f64 {
        let steep = |(x0, y0): (f64, f64), (x1, y1): (f64, f64)| {
            y0 - y1 > FLAT * (x1 - x0).max(SPAN) + self.noise
        };
        let ends = |j: &usize| self.points[..*j].iter().any(|from| steep(*from, self.points[*j]));
        let end = (1..self.points.len()).find(ends);
        end.map_or(1.0, |end| self.points[end - 1].0)
    }

    /// The settings are cut out of each part of the curve on its own; parts are as long as [`SPAN`]
    /// or cost a step.
    fn find_levels(&self) -> Vec<f64> {
        let mut levels = vec![self.knee];
        let mut from = (self.knee, self.throughput(self.knee));
        let last = self.points.last().map(|(duty, _)| *duty);
        for &to in self.points.iter().filter(|(duty, _)| *duty > self.knee) {
            // The sweep's duties are sums of steps.
            let long = to.0 - from.0 > SPAN - 1e-9 || from.1 - to.1 >= STEP || Some(to.0) == last;
            if long {
                let cuts = ((from.1 - to.1) / STEP).ceil().max(1.0) as u32;
                let step = (from.1 - to.1) / f64::from(cuts);
                levels.extend((1..cuts).map(|cut| self.duty_at(from.1 - step * f64::from(cut))));
                levels.push(to.0);
                from = to;
            }
        }
        if levels.last().is_some_and(|last| *last < 1.0) {
            levels.push(1.0);
        }
        levels
    }

    /// The highest duty that leaves `share` of the throughput.
    fn duty_at(&self, share: f64) -> f64 {
        let after = self.points.partition_point(|(_, left)| *left >= share);
        let Some((x1, y1)) = self.points.get(after).copied() else { return 1.0 };
        let Some((x0, y0)) = after.checked_sub(1).map(|i| self.points[i]) else { return x1 };
        x0 + (x1 - x0) * (y0 - share) / (y0 - y1)
    }
}

/// Makes the throughput fall throughout: the falling curve next to all points (isotonic regression
/// by pooling adjacent violators; Ayer et al., 1955). A running minimum would collect the noise.
fn level_out(points: &mut [(f64, f64)]) {
    // Mean and length of each pool.
    let mut pools: Vec<(f64, usize)> = Vec::with_capacity(points.len());
    for (_, share) in points.iter() {
        let mut pool = (*share, 1);
        while let Some((mean, count)) = pools.pop_if(|(mean, _)| *mean < pool.0) {
            let sum = mean * count as f64 + pool.0 * pool.1 as f64;
            pool = (sum / (count + pool.1) as f64, count + pool.1);
        }
        pools.push(pool);
    }
    let shares = pools.iter().flat_map(|(mean, count)| std::iter::repeat_n(*mean, *count));
    for (point, share) in points.iter_mut().zip(shares) {
        point.1 = share;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A sweep of Fig. 5's shape in steps of 1 %, with `noise` as shares of the throughput.
    fn sweep(knee: f64, noise: &[f64]) -> Vec<(f64, f64)> {
        let shape = [(0.0, 1.0), (0.1, 0.97), (0.2, 0.86), (0.4, 0.62), (0.8, 0.40)];
        let points = shape.map(|(above, share)| (knee + above, share)).to_vec();
        let exact = Curve { measured: Vec::new(), points, noise: 0.0, knee, levels: Vec::new() };
        let duty = |step: usize| 0.2 + 0.01 * step as f64;
        let share = |step: usize| exact.throughput(duty(step)) * (1.0 + noise[step]);
        (0..=80).map(|step| (duty(step).min(1.0), share(step).min(1.0))).collect()
    }

    proptest! {
        #[test]
        fn a_fine_and_noisy_sweep_has_the_same_knee(
            knee in 0.3..0.6_f64,
            noise in prop::collection::vec(-0.005..0.005_f64, 81),
        ) {
            let noiseless = Curve::new(sweep(knee, &[0.0; 81])).unwrap();
            prop_assert!((noiseless.knee() - knee).abs() <= 0.05, "{}", noiseless.knee());
            let noisy = Curve::new(sweep(knee, &noise)).unwrap();
            prop_assert!((noisy.knee() - noiseless.knee()).abs() <= 0.1, "{}", noisy.knee());
            // As many settings as a coarse sweep has, none of which costs more.
            let levels = noisy.levels();
            prop_assert!(levels.is_sorted() && levels.len() <= 25, "{levels:?}");
            for pair in levels.windows(2) {
                let cost = noisy.throughput(pair[0]) - noisy.throughput(pair[1]);
                prop_assert!(cost <= STEP + 1e-9, "{pair:?} costs {cost}");
            }
        }
    }

    #[test]
    fn a_dip_between_neighbours_is_no_knee() {
        let mut points = sweep(0.5, &[0.0; 81]);
        points[3].1 -= 0.0011;
        let knee = Curve::new(points).unwrap().knee();
        assert!((knee - 0.5).abs() <= 0.05, "{knee}");
        // A loss at once is one, however close the points.
        let points = vec![(0.2, 1.0), (0.5, 1.0), (0.51, 0.9), (1.0, 0.85)];
        assert_eq!(Curve::new(points).unwrap().knee(), 0.5);
    }

    #[test]
    fn nonsense_is_refused_with_the_point_and_the_reason() {
        for (points, says) in [
            (vec![], "0 points"),
            (vec![(0.2, 1.0)], "1 points"),
            (vec![(0.2, 1.0), (0.2, 0.9)], "point 2 of the fan-disk curve: duty 0.2"),
            (vec![(0.4, 1.0), (0.2, 1.0)], "not above the one before, 0.4"),
            (vec![(0.2, 0.9), (0.4, 0.8), (0.6, 0.95)], "point 3"),
            (vec![(0.2, 0.9), (0.4, 0.95)], "throughput 0.95 is above 0.9"),
            (vec![(0.2, 1.0), (40.0, 0.9)], "duty is 40"),
            (vec![(0.2, f64::NAN), (0.4, 0.9)], "throughput is NaN"),
            (vec![(-0.1, 1.0), (0.4, 0.9)], "duty is -0.1"),
        ] {
            let error = Curve::new(points).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn noise_does_not_make_a_curve_rise() {
        let curve = Curve::new(vec![(0.2, 0.99), (0.4, 1.0), (1.0, 0.4)]).unwrap();
        assert_eq!((curve.throughput(0.2), curve.throughput(0.4)), (0.995, 0.995));
        assert_eq!(curve.throughput(1.0), 0.4);
    }

    #[test]
    fn zones_part_where_the_slope_begins() {
        let curve =
            Curve::new(vec![(0.0, 1.0), (0.3, 0.99), (0.5, 0.98), (0.6, 0.9), (1.0, 0.5)]).unwrap();
        assert_eq!(curve.knee(), 0.5);
        assert!((curve.throughput(0.8) - 0.7).abs() < 1e-12);
        assert_eq!((curve.throughput(-1.0), curve.throughput(2.0)), (1.0, 0.5));
        let flat = Curve::new(vec![(0.2, 1.0), (1.0, 0.95)]).unwrap();
        assert_eq!((flat.knee(), flat.levels()), (1.0, &[1.0][..]));
    }

    #[test]
    fn settings_lie_closer_where_the_slope_is_steeper() {
        let curve = Curve::new(vec![(0.4, 1.0), (0.6, 0.9), (0.8, 0.6)]).unwrap();
        let levels = curve.levels();
        assert_eq!((levels[0], levels[levels.len() - 1]), (0.4, 1.0));
        assert!(levels.is_sorted());
        for pair in levels.windows(2) {
            let cost = curve.throughput(pair[0]) - curve.throughput(pair[1]);
            assert!(cost <= STEP + 1e-9, "{pair:?} costs {cost}");
        }
        let upto = |high: f64| levels.iter().filter(|level| **level <= high).count();
        assert!(upto(0.8) - upto(0.6) > upto(0.6) - upto(0.4));
    }
}
