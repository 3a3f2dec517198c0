//! RocksDB and training jobs.

use std::collections::{HashMap, HashSet};

use ebb_policy::units::Bytes;
use proptest::prelude::*;

use super::*;
use crate::generate::Overrides;

fn sum<'a>(requests: impl Iterator<Item = &'a (u32, Request)>) -> u64 {
    requests.map(|(_, request)| u64::from(request.bytes)).sum()
}

const LOG: u32 = 0;
const FLUSH: u32 = 1;
const COMPACTION: u32 = 2;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the server's speed, the same bytes are logged, flushed and merged.
    #[test]
    fn rocksdb_moves_exactly_its_bytes(
        data in 1_u64..40_000_000_000,
        trigger in prop::sample::select(vec![8_u32, 64, 256]),
        merge in 0.0_f64..2.0,
        latency in 1_000_u64..20_000_000,
    ) {
        let mut spec = builtin("sst-256");
        spec.rocksdb[0].data = Bytes(data);
        spec.rocksdb[0].trigger = trigger;
        spec.rocksdb[0].merge = merge;
        let mut clients = closed(&spec, &SERVER);
        let sent = run(&mut *clients, Nanos(latency), usize::MAX);
        let of = |stream: u32| sent.iter().filter(move |(_, r)| r.stream == stream);
        let pages = data.next_multiple_of(4096);
        prop_assert_eq!(sum(of(LOG)), pages);
        prop_assert_eq!(sum(of(FLUSH)), pages);
        let files = pages / (64 << 20);
        let compactions = files / u64::from(trigger);
        let merged = u64::from(trigger) * (64 << 20);
        let level = ((merged as f64 * merge) as u64).next_multiple_of(1 << 20);
        let (reads, writes): (Vec<_>, Vec<_>) =
            of(COMPACTION).copied().partition(|(_, r)| r.op == Op::Read);
        prop_assert_eq!(sum(reads.iter()), compactions * (merged + level));
        prop_assert_eq!(sum(writes.iter()), compactions * (merged + level));
    }
}

#[test]
fn rocksdb_waits_for_compaction_on_a_slow_server_and_ends_sooner_on_a_fast_one() {
    let data = Overrides { data: Some(Bytes(40_000_000_000)), ..Overrides::default() };
    let spec = builtin("sst-256").with(&data).unwrap();
    let end = |latency| {
        let mut clients = closed(&spec, &SERVER);
        let sent = run(&mut *clients, latency, usize::MAX);
        sent.iter().map(|(_, request)| request.at.seconds()).fold(0.0, f64::max)
    };
    // 40 GB offered at 600 MB/s take 67 s when nothing holds them up.
    let fast = end(Nanos::from_millis(1));
    let slow = end(Nanos::from_millis(40));
    assert!((66.0..75.0).contains(&fast), "{fast}");
    assert!(slow > 100.0, "{slow}");
}

#[test]
fn compaction_reads_the_files_that_were_flushed() {
    let data = Overrides { data: Some(Bytes(20_000_000_000)), ..Overrides::default() };
    let mut clients = closed(&builtin("sst-256").with(&data).unwrap(), &SERVER);
    let sent = run(&mut *clients, Nanos::from_millis(1), usize::MAX);
    let mut flushed = HashSet::new();
    let mut merged = 0;
    for (_, request) in &sent {
        let place = (request.device, request.offset);
        if request.stream == FLUSH {
            flushed.insert(place);
        } else if request.op == Op::Read && flushed.remove(&place) {
            merged += 1;
        }
    }
    // Every block of the 256 files of the one compaction, once.
    assert_eq!(merged, 256 * 64);
}

#[test]
fn a_3d_unet_accelerator_reads_a_batch_per_compute_time() {
    let spec = builtin("3d-unet");
    let mut clients = closed(&spec, &SERVER);
    let sent = run(&mut *clients, Nanos::from_micros(500), 3_000_000);
    let last = sent[sent.len() - 1].1.at.seconds();
    let from = 20.0;
    let bytes = sum(sent.iter().filter(|(_, r)| r.at.seconds() >= from));
    let rate = bytes as f64 / (last - from);
    // 16 accelerators, 4 samples of 146.6 MB (clamping moves the mean by 1%) per 1.3604 s.
    let expected = 16.0 * 4.0 * 146_600_628.0 / 1.3604;
    assert!((rate / expected - 1.0).abs() < 0.05, "{rate} {expected}");
    assert!(sent.iter().all(|(_, r)| r.op == Op::Read && r.bytes <= 1 << 20));
}

#[test]
fn a_bert_accelerator_reads_little_and_in_order() {
    let mut clients = closed(&builtin("bert"), &SERVER);
    let sent = run(&mut *clients, Nanos::from_micros(500), 20_000);
    let last = sent[sent.len() - 1].1.at.seconds();
    let rate = sum(sent.iter()) as f64 / last;
    let expected = 16.0 * 48.0 * 2516.0 / 0.968;
    assert!((rate / expected - 1.0).abs() < 0.02, "{rate} {expected}");
    let mut ends: HashMap<u32, u64> = HashMap::new();
    for (_, request) in &sent {
        let end = request.offset + u64::from(request.bytes);
        let before = ends.insert(request.stream, end);
        assert!(before.is_none_or(|before| before == request.offset));
    }
}

#[test]
fn an_epoch_reads_every_file_once() {
    let mut spec = builtin("3d-unet");
    spec.readers[0].accelerators = 3;
    spec.readers[0].workers = 2;
    spec.readers[0].files = 60;
    let mut clients = closed(&spec, &SERVER);
    let sent = run(&mut *clients, Nanos::from_micros(10), 60_000);
    let mut reads_at_start = HashMap::new();
    for (_, request) in sent.iter().filter(|(_, r)| r.offset == 0 || r.device > 15) {
        *reads_at_start.entry(request.device).or_insert(0_u32) += 1;
    }
    // The first file of each of the 16 drives, the same number of epochs each, but for the last.
    let (least, most) = (reads_at_start.values().min(), reads_at_start.values().max());
    assert_eq!(reads_at_start.len(), 16);
    assert!(least.unwrap() + 1 >= *most.unwrap() && *least.unwrap() > 3, "{reads_at_start:?}");
}
