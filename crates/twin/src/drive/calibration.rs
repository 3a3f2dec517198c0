//! The profiles against the numbers they were calibrated to, tolerance beside each.

use ebb_policy::units::Watts;

use super::tests::{closed_loop, profile};
use super::*;

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
    near("latency at QD1, us", 4.096 / rate, 40.0 + 25.0 / 2.0, 0.03);
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

/// Table I of PACER: power of one SSD at 0, 10, 50 and 100 % of its load, and its idle states.
/// 100 % is taken as the drive's most 8 KiB random reads per second, evenly paced.
#[test]
fn dorado_ssd_follows_table_i() {
    let at_load = |share: f64| {
        let mut drive = drive("dorado-ssd", 1.0, 1.0);
        let gap = 8192.0 / 3.2 / share;
        let count = (2e8 / gap) as u64;
        for i in 0..count {
            drive.submit(Nanos((i as f64 * gap) as u64), Op::Read, scattered(i, 27, 8192), 8192);
        }
        let end = Nanos((count as f64 * gap) as u64);
        (drive.energy(end) / end).0
    };
    near("10 % W", at_load(0.1), 10.5, 0.01);
    near("50 % W", at_load(0.5), 11.7, 0.01);
    near("100 % W", at_load(1.0), 13.3, 0.01);

    let mut idle = drive("dorado-ssd", 1.0, 1.0);
    let mut mean = |from: u64, to: u64| {
        let before = idle.energy(Nanos(from));
        ((idle.energy(Nanos(to)) - before) / Nanos(to - from)).0
    };
    near("0 % W", mean(0, 1_000), 8.5, 1e-6);
    near("Idle-0 W", mean(1_000, 200_000), 6.8, 1e-6);
    near("Idle-1 W", mean(200_000, 9_000_000), 5.9, 1e-6);

    let latency_after = |pause: u64| {
        let mut drive = drive("dorado-ssd", 1.0, 1.0);
        let first = drive.submit(Nanos::ZERO, Op::Read, 0, 8192);
        let again = Nanos(first.0 + pause);
        // The page is in the register: no spread hides the wake-up.
        drive.submit(again, Op::Read, 0, 8192).0 - again.0
    };
    let awake = latency_after(500);
    assert_eq!(latency_after(100_000) - awake, 1_000, "wake-up from Idle-0");
    assert_eq!(latency_after(1_000_000) - awake, 200_000, "wake-up from Idle-1");
}

/// PASS: 7 W above idle (5 W) at 7000 MiB/s reads, 10 W at 3600 MiB/s writes.
#[test]
fn pass_nvme_rates_and_power() {
    let fresh = || drive("pass-nvme", 1.0, 1.0);
    let (rate, power) = steady(&mut fresh(), 0, 64, sequential(Op::Read, 131_072));
    near("read MiB/s", rate * 1e9 / 1_048_576.0, 7000.0, 0.01);
    near("read W", power, 12.0, 0.02);
    let (rate, power) = steady(&mut fresh(), 0, 64, sequential(Op::Write, 131_072));
    near("write MiB/s", rate * 1e9 / 1_048_576.0, 3600.0, 0.01);
    near("write W", power, 15.0, 0.02);
}

/// Rows of a file of the shared data, or `None` with a message where it is absent.
fn rows(path: &str) -> Option<Vec<Vec<f64>>> {
    let base = std::env::var("EBB_DATA")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data").into());
    let Ok(text) = std::fs::read_to_string(format!("{base}/devices/{path}")) else {
        println!("skipped: {base}/devices/{path} is absent");
        return None;
    };
    let row = |line: &str| line.split(',').map(|cell| cell.parse().unwrap()).collect();
    Some(text.lines().skip(1).map(row).collect())
}

/// Measured random reads at QD1 by request size: watts and MiB/s.
#[test]
fn client_m2_follows_the_measured_read_curve() {
    let Some(rows) = rows("ssd_power_measured/ssd_randread_by_request_size.csv") else { return };
    let (mut rate_errors, mut power_errors) = (Vec::new(), Vec::new());
    for row in rows.iter().filter(|row| row[0] < 64.0 || row[0] % 64.0 == 63.0) {
        let size = row[0] as u32 * 1024;
        let mut drive = drive("client-m2", 1.0, 1.0);
        let next = move |count| (Op::Read, scattered(count, 17, size), size);
        let (rate, power) = steady(&mut drive, 0, 1, next);
        let rate = rate * 1e9 / 1_048_576.0;
        rate_errors.push(rate / row[2] - 1.0);
        power_errors.push(power / row[1] - 1.0);
        if row[0] < 20.0 || row[0] % 256.0 == 255.0 || row[0] == 63.0 || row[0] == 127.0 {
            println!(
                "at {size:>8} B: {:>7.1} MiB/s {rate:>7.1}; {:.3} W {power:.3}",
                row[2], row[1]
            );
        }
    }
    let mean = |e: &[f64]| e.iter().map(|e| e.abs()).sum::<f64>() / e.len() as f64;
    let worst = |e: &[f64]| e.iter().map(|e| e.abs()).fold(0.0, f64::max);
    println!("MiB/s: mean error {:.3}, worst {:.3}", mean(&rate_errors), worst(&rate_errors));
    println!("W: mean error {:.3}, worst {:.3}", mean(&power_errors), worst(&power_errors));
    assert!(mean(&rate_errors) < 0.06 && worst(&rate_errors) < 0.2);
    assert!(mean(&power_errors) < 0.02 && worst(&power_errors) < 0.05);
}

/// Measured 4 KiB random writes at QD1 on a full drive for 20 min: power and MiB/s before and
/// during collection, and when it starts.
#[test]
fn client_m2_follows_the_measured_collection() {
    let Some(rows) = rows("ssd_power_measured/ssd_randwrite4k_20min_1s.csv") else { return };
    let mean = |column: usize, from: f64, to: f64| {
        let part: Vec<_> = rows.iter().filter(|r| (from..to).contains(&r[0])).collect();
        part.iter().map(|row| row[column]).sum::<f64>() / part.len() as f64
    };
    let mut drive = drive("client-m2", 1.0, 1.0);
    let (mut now, mut second, mut count) = (Nanos::ZERO, 1, 0);
    let (mut written, mut before) = (0.0, Joules(0.0));
    let mut model = Vec::new();
    while second < 1200 {
        now = drive.submit(now, Op::Write, scattered(count, 27, 4096), 4096);
        count += 1;
        written += 4096.0 / 1_048_576.0;
        if now >= Nanos::from_secs(second) {
            let energy = drive.energy(now);
            model.push((second as f64, (energy - before).0, written));
            (before, written, second) = (energy, 0.0, second + 1);
        }
    }
    let modelled = |column: usize, from: f64, to: f64| {
        let part: Vec<_> = model.iter().filter(|r| (from..to).contains(&r.0)).collect();
        part.iter().map(|r| if column == 1 { r.1 } else { r.2 }).sum::<f64>() / part.len() as f64
    };
    near("before, MiB/s", modelled(2, 30.0, 260.0), mean(2, 30.0, 260.0), 0.02);
    near("before, W", modelled(1, 30.0, 260.0), mean(1, 30.0, 260.0), 0.02);
    near("collecting, MiB/s", modelled(2, 310.0, 1199.0), mean(2, 310.0, 1199.0), 0.03);
    near("collecting, W", modelled(1, 310.0, 1199.0), mean(1, 310.0, 1199.0), 0.03);
    let onset = |second: f64, rate: f64| (rate < 300.0).then_some(second);
    let measured = rows.iter().find_map(|row| onset(row[0], row[2])).unwrap();
    near("onset, s", model.iter().find_map(|r| onset(r.0, r.2)).unwrap(), measured, 0.03);
    let rms = rows.iter().zip(&model).map(|(row, r)| (r.2 - row[2]).powi(2)).sum::<f64>();
    println!("MiB/s, root mean square error by second: {:.1}", (rms / 1199.0).sqrt());
}

/// The data sheet that the storage-servers study's SSD is of.
#[test]
fn samsung_840_by_its_data_sheet() {
    let measure = |depth, next: &mut dyn FnMut(u64) -> (Op, u64, u32)| {
        steady(&mut drive("samsung-840", 0.1, 1.0), 0, depth, next)
    };
    let (read, reading) = measure(8, &mut sequential(Op::Read, 131_072));
    near("sequential reads, GB/s", read, 0.540, 0.01);
    near("sequential writes, GB/s", measure(8, &mut sequential(Op::Write, 131_072)).0, 0.330, 0.03);
    near(
        "random reads, GB/s",
        measure(32, &mut random(Op::Read, 4096)).0,
        98_000.0 * 4096e-9,
        0.05,
    );
    near("random writes, GB/s", measure(32, &mut random(Op::Write, 4096)).0, 0.18, 0.05);
    near("random reads one by one, GB/s", measure(1, &mut random(Op::Read, 4096)).0, 0.0324, 0.1);
    assert!((2.0..4.0).contains(&reading), "{reading} W: SATA SSDs draw 2 to 4 W when active");
}
