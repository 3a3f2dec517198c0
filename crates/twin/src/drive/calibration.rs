//! The profiles against the numbers they were calibrated to, tolerance beside each.

use super::tests::{closed_loop, profile};
use super::*;
use ebb_policy::units::Watts;

/// A drive from a shipped profile, with `filled` and `free` of its flash at the start.
fn drive(name: &str, filled: f64, free: f64) -> Drive {
    let mut profile = profile(name);
    profile.gc.filled = filled;
    profile.gc.free = free;
    Drive::new(&profile, 7)
}

/// Uniform over the first 2^bits units of `size` bytes, the same on every run.
fn scattered(count: u64, bits: u32, size: u32) -> u64 {
    let mixed = (count ^ 0x51ED).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed >> (64 - bits)) * u64::from(size)
}

fn sequential(op: Op, size: u32) -> impl FnMut(u64) -> (Op, u64, u32) {
    move |count| (op, count * u64::from(size) % (1 << 40), size)
}

fn random(op: Op, size: u32) -> impl FnMut(u64) -> (Op, u64, u32) {
    move |count| (op, scattered(count, 27, size), size)
}

/// Steady throughput in GB/s and power in power state `ps`.
fn steady(
    drive: &mut Drive,
    ps: u8,
    depth: usize,
    next: impl FnMut(u64) -> (Op, u64, u32),
) -> (f64, f64) {
    let from = drive.set_power_state(Nanos::ZERO, ps);
    let (rate, Watts(power)) = closed_loop(drive, depth, from, Nanos::from_millis(500), next);
    (rate / 1e9, power)
}

#[track_caller]
fn near(what: &str, got: f64, stated: f64, tolerance: f64) {
    let deviation = got / stated - 1.0;
    println!("{what}: stated {stated}, model {got:.3} ({:+.1} %)", 100.0 * deviation);
    assert!(deviation.abs() <= tolerance, "{what}: {got} is not {stated} within {tolerance}");
}

/// PACMAN Fig. 1: 7.3 GB/s at PS0 and 2.3 GB/s at PS3 (14 W).
#[test]
fn pm1743_sequential_writes_by_power_state() {
    let write = |ps| steady(&mut drive("pm1743", 1.0, 1.0), ps, 32, sequential(Op::Write, 131_072));
    let rates: Vec<_> = (0..5).map(write).collect();
    println!("PS0-PS4, GB/s and W: {rates:.2?}");
    near("PS0 GB/s", rates[0].0, 7.3, 0.01);
    near("PS3 GB/s", rates[3].0, 2.3, 0.02);
    near("PS3 W", rates[3].1, 14.0, 0.01);
    assert!(rates.windows(2).all(|pair| pair[0].0 > pair[1].0), "each state slower");
    assert!(rates[4].0 > 0.2 && rates[4].1 <= 9.0 + 1e-6, "9 W still serves I/O: {:?}", rates[4]);
}

/// Datasheet: 14 GB/s, 2.5 M IOPS, and the read latency at queue depth 1.
#[test]
fn pm1743_reads() {
    let fresh = || drive("pm1743", 1.0, 1.0);
    let (rate, power) = steady(&mut fresh(), 0, 64, sequential(Op::Read, 131_072));
    near("sequential read GB/s", rate, 14.0, 0.02);
    println!("at {power:.1} W");
    let (rate, power) = steady(&mut fresh(), 0, 512, random(Op::Read, 4096));
    near("random read M IOPS", rate * 1e3 / 4.096, 2.5e3, 0.05);
    println!("at {power:.1} W");
    let (rate, _) = steady(&mut fresh(), 0, 1, random(Op::Read, 4096));
    near("latency at QD1, us", 4.096 / rate, 45.0 + 7.5, 0.03);
}

/// PACMAN Fig. 3(b): 6.5 GB/s of random writes fall to 1 GB/s while power stays at 20-24 W.
#[test]
fn pm1743_collection_decouples_power_from_throughput() {
    let (fresh, fresh_power) =
        steady(&mut drive("pm1743", 1.0, 1.0), 0, 64, random(Op::Write, 4096));
    let (full, full_power) =
        steady(&mut drive("pm1743", 1.0, 0.02), 0, 64, random(Op::Write, 4096));
    near("random write GB/s, fresh", fresh, 6.5, 0.02);
    near("random write GB/s, collecting", full, 1.0, 0.2);
    println!("{fresh_power:.1} W and {full_power:.1} W");
    assert!((20.0..=24.0).contains(&fresh_power) && (20.0..=24.0).contains(&full_power));
}
