//! One drive on its own, without a server around it.

use ebb_policy::PowerState;
use ebb_policy::units::{Nanos, Watts};
use ebb_trace::Op;
use ebb_twin::drive::{Drive, DriveProfile};

/// What one drive did: bytes per second and mean power.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    pub bytes_per_second: f64,
    pub power: Watts,
}

/// How a drive is loaded.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub op: Op,
    pub bytes: u32,
    pub random: bool,
    /// Requests outstanding when saturating.
    pub depth: usize,
    /// Bytes per second offered; saturating when `None`.
    pub rate: Option<f64>,
}

/// Runs `load` on a drive in state `ps` for `length`, after `settle`.
pub fn measure(
    profile: &DriveProfile,
    ps: PowerState,
    load: Load,
    settle: Nanos,
    length: Nanos,
) -> Measured {
    let mut drive = Drive::new(profile, 1);
    let start = drive.set_power_state(Nanos::ZERO, ps);
    let (from, to) = (start + settle, start + settle + length);
    let mut ends = std::collections::BinaryHeap::new();
    let mut at = start;
    let (mut count, mut counted, mut before) = (0u64, 0u64, None);
    let gap = load.rate.map(|rate| Nanos((f64::from(load.bytes) / rate * 1e9) as u64));
    while at < to {
        if at >= from && before.is_none() {
            before = Some(drive.energy(from));
        }
        let place =
            if load.random { count.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 24 } else { count };
        let slots = (profile.capacity.0 / u64::from(load.bytes)).max(1);
        let offset = place % slots * u64::from(load.bytes);
        let done = drive.submit(at, load.op, offset, load.bytes);
        count += 1;
        if at >= from {
            counted += u64::from(load.bytes);
        }
        ends.push(std::cmp::Reverse(done));
        at = match gap {
            Some(gap) => at + gap,
            None if ends.len() >= load.depth => ends.pop().map_or(at, |done| done.0.max(at)),
            None => at,
        };
    }
    let spent = drive.energy(to) - before.unwrap_or_default();
    Measured { bytes_per_second: counted as f64 / length.seconds(), power: spent / length }
}

/// What a first read takes longer after `idle` than on a drive that was not idle.
pub fn wake_latency(profile: &DriveProfile, idle: Nanos) -> Nanos {
    let read = |at| Drive::new(profile, 1).submit(at, Op::Read, 0, 4096) - at;
    read(idle) - read(Nanos::ZERO)
}

/// Power of an idle drive from `after` on.
pub fn idle_power(profile: &DriveProfile, after: Nanos, length: Nanos) -> Watts {
    let mut drive = Drive::new(profile, 1);
    let before = drive.energy(after);
    (drive.energy(after + length) - before) / length
}
