//! Jobs: work on cores, with or without I/O to the drives, that starts and ends. A part of a
//! workload as data ([`BatchSpec`]), and the jobs it makes for a server ([`Job`]).

use ebb_policy::QosClass;
use ebb_policy::units::{Bytes, Hertz, Nanos};
use serde::{Deserialize, Serialize};

use super::error::{GenerateError, Place};
use super::target::{BuildContext, DriveShare};
use super::text::Share;

/// Jobs of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchSpec {
    /// Name in reports; several instances are numbered.
    pub name: String,
    /// How many.
    #[serde(default = "one")]
    pub instances: u16,
    /// How much they matter (EADC Table I).
    #[serde(default)]
    pub class: QosClass,
    /// Processor socket they start on; any when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<u16>,
    /// When they arrive.
    #[serde(default)]
    pub start: Nanos,
    /// CPU time of each on a core of frequency `clock`.
    #[serde(default)]
    pub cpu: Nanos,
    /// See `cpu`.
    #[serde(default = "clock")]
    pub clock: Hertz,
    /// Share of the CPU time that does not follow the clock: waiting for memory (EADC Eq. 2).
    #[serde(default = "none")]
    pub fixed: Share,
    /// Dynamic power of the core over that of a busy core of the profile.
    #[serde(default = "full")]
    pub activity: f64,
    /// I/O to the drives; the CPU time is spread evenly over its requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io: Option<BatchIo>,
    /// Time from arrival to end that was promised, if any was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objective: Option<Nanos>,
}

/// I/O of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchIo {
    /// Bytes read by each instance; rebuilt, for a rebuild.
    #[serde(default)]
    pub read: Bytes,
    /// Bytes written by each instance.
    #[serde(default)]
    pub write: Bytes,
    /// Bytes of one request.
    pub request: Bytes,
    /// Share of requests at random places; the others follow each other.
    #[serde(default = "none")]
    pub random: Share,
    /// Requests outstanding; with one the job computes or waits, never both.
    #[serde(default = "single")]
    pub depth: u32,
    /// Devices; requests go to them in turn.
    #[serde(default)]
    pub drives: DriveShare,
    /// Rebuilds the last drive of the array: each request reads its place on all other drives
    /// and writes it there.
    #[serde(default)]
    pub rebuild: bool,
}

const fn one() -> u16 {
    1
}
const fn single() -> u32 {
    1
}
const fn none() -> Share {
    Share(0.0)
}
const fn full() -> f64 {
    1.0
}
const fn clock() -> Hertz {
    Hertz(2.7e9)
}

/// One job, made for a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Name in reports.
    pub name: String,
    /// How much it matters.
    pub class: QosClass,
    /// Processor socket it starts on.
    pub socket: Option<u16>,
    /// When it arrives.
    pub start: Nanos,
    /// CPU time on a core of frequency `clock`.
    pub cpu: Nanos,
    /// See `cpu`.
    pub clock: Hertz,
    /// Share of the CPU time that does not follow the clock.
    pub fixed: f64,
    /// Dynamic power over that of a busy core.
    pub activity: f64,
    /// I/O.
    pub io: Option<JobIo>,
    /// Time from arrival to end that was promised.
    pub objective: Option<Nanos>,
}

/// I/O of one job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobIo {
    /// Requests in all.
    pub requests: u64,
    /// Of these, writes; spread evenly.
    pub writes: u64,
    /// Bytes of one request.
    pub bytes: u32,
    /// Share of requests at random places.
    pub random: f64,
    /// Requests outstanding.
    pub depth: u32,
    /// First device.
    pub first: u16,
    /// Number of devices.
    pub count: u16,
    /// First byte of the job's region on each device.
    pub base: u64,
    /// Bytes of that region.
    pub span: u64,
    /// Rebuilds the last drive.
    pub rebuild: bool,
}

impl BatchSpec {
    fn check(&self, place: Place<'_>) -> Result<(), GenerateError> {
        place.need(self.instances > 0, "instances", "must be one or more")?;
        let some = self.cpu > Nanos::ZERO || self.io.is_some();
        place.need(some, "cpu", "a job needs CPU time, I/O or both")?;
        place.need(self.clock.0 > 0.0, "clock", "must be above 0 Hz")?;
        let activity = (0.0..=2.0).contains(&self.activity);
        place.need(activity, "activity", "must lie in 0 to 2")?;
        let Some(io) = &self.io else { return Ok(()) };
        place.need(io.read.0 + io.write.0 > 0, "io", "needs bytes to read or to write")?;
        let size = io.request.0;
        let sound = size.is_multiple_of(512) && (512..=64 << 20).contains(&size);
        place.need(sound, "io.request", "must be a multiple of 512 B, up to 64 MiB")?;
        place.need((1..=1024).contains(&io.depth), "io.depth", "must lie in 1 to 1024")?;
        let pure = !io.rebuild || io.write.0 == 0;
        place.need(pure, "io.write", "is what a rebuild reads: leave it out")
    }
}

/// The jobs of `parts` of `workload`, in their order.
///
/// # Errors
/// When a field makes no sense, alone or on this server.
pub(super) fn jobs(
    workload: &str,
    parts: &[BatchSpec],
    context: &BuildContext,
) -> Result<Vec<Job>, GenerateError> {
    let all: u64 = parts.iter().map(|spec| u64::from(spec.instances)).sum();
    let mut jobs = Vec::new();
    for spec in parts {
        let place = Place { workload, part: &spec.name };
        spec.check(place)?;
        for instance in 1..=spec.instances {
            let number = jobs.len() as u64;
            let name = match spec.instances {
                1 => spec.name.clone(),
                _ => format!("{}-{instance}", spec.name),
            };
            let io = spec.io.as_ref().map(|io| region(io, context, number, all, place));
            jobs.push(Job {
                name,
                class: spec.class,
                socket: spec.socket,
                start: spec.start,
                cpu: spec.cpu,
                clock: spec.clock,
                fixed: spec.fixed.0,
                activity: spec.activity,
                io: io.transpose()?,
                objective: spec.objective,
            });
        }
    }
    Ok(jobs)
}

/// The I/O of job `number` of `all`: each has a region of its own on its devices.
fn region(
    io: &BatchIo,
    context: &BuildContext,
    number: u64,
    all: u64,
    place: Place<'_>,
) -> Result<JobIo, GenerateError> {
    let (first, count) = if io.rebuild { (0, 1) } else { io.drives.of(context.devices) };
    let reason = format!("holds none of the {} devices", context.devices);
    place.need(count > 0, "io.drives", &reason)?;
    let part = (context.capacity_bytes / all) >> 20 << 20;
    let fits = part >= io.request.0;
    place.need(fits, "io.request", "is larger than the job's part of a device")?;
    let (read, write) = (io.read.0.div_ceil(io.request.0), io.write.0.div_ceil(io.request.0));
    Ok(JobIo {
        requests: read + write,
        writes: write,
        bytes: io.request.0 as u32,
        random: io.random.0,
        depth: io.depth,
        first,
        count,
        base: if io.rebuild { 0 } else { number * part },
        span: if io.rebuild { context.capacity_bytes } else { part } / io.request.0 * io.request.0,
        rebuild: io.rebuild,
    })
}
