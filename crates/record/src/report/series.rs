//! Long series on few points: buckets with their mean, least and largest value, so that no peak
//! is lost.

use serde::{Serialize, Serializer};

/// Rows up to which every one is shown.
pub const ALL_SHOWN: u64 = 2000;
/// Buckets of longer series.
const BUCKETS: u64 = 1000;

/// Rows of one bucket, for so many rows in all.
pub fn rows_per_bucket(rows: u64) -> u64 {
    if rows <= ALL_SHOWN { 1 } else { rows.div_ceil(BUCKETS) }
}

/// A number with five digits; absent ones are null.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Digits(pub f64);

impl Serialize for Digits {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if !self.0.is_finite() {
            return to.serialize_none();
        }
        let short = format!("{:.4e}", self.0).parse().unwrap_or(self.0);
        if short == 0.0 || short.fract() != 0.0 || short.abs() >= 1e15 {
            return to.serialize_f64(if short == 0.0 { 0.0 } else { short });
        }
        to.serialize_i64(short as i64)
    }
}

/// One series.
#[derive(Debug, Default, Serialize)]
pub struct Series {
    mean: Vec<Digits>,
    /// Only where buckets hold several rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    min: Vec<Digits>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    max: Vec<Digits>,
    #[serde(skip)]
    bucket: Bucket,
}

/// What came into the bucket so far.
#[derive(Debug)]
struct Bucket {
    sum: f64,
    weight: f64,
    min: f64,
    max: f64,
}

impl Default for Bucket {
    fn default() -> Self {
        Self { sum: 0.0, weight: 0.0, min: f64::INFINITY, max: f64::NEG_INFINITY }
    }
}

impl Series {
    /// Adds a row's value to the bucket; NaN is absent.
    pub fn push(&mut self, value: f64, weight: f64) {
        if value.is_nan() || weight <= 0.0 {
            return;
        }
        let bucket = &mut self.bucket;
        bucket.sum += value * weight;
        bucket.weight += weight;
        bucket.min = bucket.min.min(value);
        bucket.max = bucket.max.max(value);
    }

    /// Ends the bucket; `band` keeps its least and largest value.
    pub fn close(&mut self, band: bool) {
        let Bucket { sum, weight, min, max } = std::mem::take(&mut self.bucket);
        self.mean.push(Digits(if weight > 0.0 { sum / weight } else { f64::NAN }));
        if band {
            self.min.push(Digits(min));
            self.max.push(Digits(max));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_keep_peaks_and_absence() {
        let mut series = Series::default();
        for (value, weight) in [(1.0, 1.0), (100.0, 1.0), (f64::NAN, 1.0), (4.0, 2.0)] {
            series.push(value, weight);
        }
        series.close(true);
        series.push(f64::NAN, 1.0);
        series.close(true);
        let json = serde_json::to_string(&series).unwrap();
        assert_eq!(json, r#"{"mean":[27.25,null],"min":[1,null],"max":[100,null]}"#);
    }

    #[test]
    fn numbers_have_five_digits() {
        let numbers = [0.0, -0.0, 1.0, 123_456_789.0, 0.123_456_7, 1e-9, f64::NAN].map(Digits);
        let json = serde_json::to_string(&numbers).unwrap();
        assert_eq!(json, "[0.0,0.0,1,123460000,0.12346,1e-9,null]");
    }

    #[test]
    fn buckets_are_bounded() {
        for rows in [1_u64, 1999, 2000, 2001, 12_345, 10_000_000] {
            assert!(rows.div_ceil(rows_per_bucket(rows)) <= ALL_SHOWN, "{rows}");
        }
        assert_eq!(rows_per_bucket(2000), 1);
    }
}
