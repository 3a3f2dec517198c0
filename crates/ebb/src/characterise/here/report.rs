//! What a sweep on this machine has found.

use std::fmt::Write;

use ebb_policy::cooling::Curve;
use schemars::JsonSchema;
use serde::Serialize;

use super::super::ending;
use super::disks::Disk;
use super::steps::{Measured, Steps};

/// Two means that are further apart than so many standard errors differ.
const ERRORS: f64 = 2.0;

/// One point of the curve.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct Point {
    /// PWM duty.
    #[schemars(range(max = 1))]
    duty: f64,
    /// Mean speed of the fans that have a tachometer.
    #[serde(skip_serializing_if = "Option::is_none")]
    rpm: Option<f64>,
    bytes_per_second: f64,
    /// Share of the most at any duty.
    #[schemars(range(max = 1))]
    throughput: f64,
    /// Standard error of throughput, from the half seconds of the measurement.
    spread: f64,
    /// Each disk's bytes per second.
    #[schemars(length(min = 1))]
    disk_bytes_per_second: Vec<f64>,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Named {
    name: String,
    model: String,
    /// What stays the same when its name changes.
    id: String,
}

impl Named {
    /// One.
    pub fn new(name: &str, model: &str, id: &str) -> Self {
        Self { name: name.to_owned(), model: model.to_owned(), id: id.to_owned() }
    }
}

/// How much full speed has changed from the first measurement to the last.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Drift {
    /// As a share of the first.
    share: f64,
    /// Two standard errors of that: up to so much may be noise.
    #[schemars(range(min = 0))]
    noise: f64,
}

/// What is printed as JSON.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Report<'a> {
    #[schemars(extend("const" = 1))]
    schema: u32,
    #[schemars(extend("const" = false))]
    simulated: bool,
    /// The disks that were read, in the order of disk_bytes_per_second.
    #[schemars(length(min = 1))]
    disks: Vec<Named>,
    #[schemars(length(min = 1))]
    fans: &'a [String],
    seed: u64,
    /// By rising fan duty.
    #[schemars(length(min = 2))]
    steps: Vec<Point>,
    /// Change from the first measurement at full speed to the last, as a share of the first.
    drift: Drift,
    /// Duty at which disks begin to feel the fans; 1 where they do not. Absent where there is no
    /// curve.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    knee: Option<f64>,
    /// Why no curve can be made of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    #[serde(skip)]
    curve: Option<Curve>,
}

impl<'a> Report<'a> {
    /// Of all measurements of a sweep, which has three at least.
    pub fn new(disks: &[Disk], steps: &'a Steps) -> Self {
        let named = |Disk { drive, id, .. }: &Disk| Named::new(&drive.name, &drive.model, id);
        Self::of(disks.iter().map(named).collect(), steps)
    }

    /// The same of disks by their names.
    pub fn of(disks: Vec<Named>, steps: &'a Steps) -> Self {
        let (points, drift) = points(steps.done());
        let curve = Curve::new(points.iter().map(|one| (one.duty, one.throughput)).collect());
        let (curve, refused) = match curve {
            Ok(curve) => (Some(curve), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Self {
            schema: 1,
            simulated: false,
            disks,
            fans: &steps.of().fans,
            seed: steps.of().seed,
            steps: points,
            drift,
            knee: curve.as_ref().map(Curve::knee),
            refused,
            curve,
        }
    }

    /// The curve's points.
    pub fn points(&self) -> Vec<(f64, f64)> {
        self.steps.iter().map(|point| (point.duty, point.throughput)).collect()
    }

    /// Where the curve comes from.
    pub fn source(&self) -> String {
        let disks = self.disks.iter().map(|disk| format!("{} {}", disk.model, disk.id));
        let disks: Vec<_> = disks.map(|disk| disk.trim().to_owned()).collect();
        format!("measured: ebb characterise --here: random reads of {}", disks.join(", "))
    }

    /// For people.
    pub fn text(&self) -> String {
        let disks: Vec<_> = self.disks.iter().map(|disk| disk.name.as_str()).collect();
        let (disks, fans) = (disks.join(", "), self.fans.join(", "));
        let mut text = format!("Measured here: random reads of {disks}\nFans: {fans}\n\n");
        text.push_str("fan duty      rpm       MB/s  of the most  spread\n");
        for point in &self.steps {
            let bar = "━".repeat((point.throughput * 40.0).round() as usize);
            let rpm = point.rpm.map_or("-".to_owned(), |rpm| format!("{rpm:.0}"));
            let (duty, megabytes) = (100.0 * point.duty, point.bytes_per_second * 1e-6);
            let (share, spread) = (100.0 * point.throughput, 100.0 * point.spread);
            let _ = writeln!(
                text,
                "{duty:6.0} % {rpm:>8} {megabytes:10.2} {share:10.1} % {spread:5.1} %  {bar}"
            );
        }
        if let Some(drift) = self.drift.told() {
            let _ = writeln!(text, "\n{drift}");
        }
        match (&self.curve, &self.refused) {
            (Some(curve), _) => text.push_str(&ending(curve)),
            (None, refused) => {
                let _ = writeln!(text, "\nNo curve: {}", refused.as_deref().unwrap_or_default());
            }
        }
        text
    }
}

impl Drift {
    fn told(self) -> Option<String> {
        (self.share.abs() > self.noise).then(|| {
            format!(
                "Drift: at full speed the disks did {:+.1} % at the end, more than the noise of \
                 {:.1} %. Something\nelse has changed meanwhile, such as temperature: measure \
                 again.",
                100.0 * self.share,
                100.0 * self.noise
            )
        })
    }
}

/// By rising duty in force; those of one duty, such as the first and the last, become one.
fn points(done: &[Measured]) -> (Vec<Point>, Drift) {
    let (first, last) = (&done[0], &done[done.len() - 1]);
    let noise = ERRORS * first.error.hypot(last.error);
    let base = first.rate().max(f64::MIN_POSITIVE);
    let drift = Drift { share: (last.rate() - first.rate()) / base, noise: noise / base };
    let mut all = done.to_vec();
    all.sort_by(|one, other| one.at().total_cmp(&other.at()));
    let alike = all.chunk_by(|one, other| one.at() == other.at());
    let all: Vec<_> = alike.filter_map(Measured::mean).collect();
    let most = all.iter().map(Measured::rate).fold(f64::MIN_POSITIVE, f64::max);
    let point = |step: &Measured| Point {
        duty: step.at(),
        rpm: step.rpm,
        bytes_per_second: step.rate(),
        throughput: step.rate() / most,
        spread: step.error / most,
        disk_bytes_per_second: step.disks.clone(),
    };
    (all.iter().map(point).collect(), drift)
}
