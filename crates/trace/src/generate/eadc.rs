//! The workloads of the EADC study: compute jobs, database queries, backup and restore.
//!
//! The study names its jobs but says what they demand only in words: queries 1, 13 and 19 "have
//! intensive disk usage and relatively low CPU activity" (§V-C). What is assumed stands beside
//! each number; docs/models/jobs.md has the whole list.

use ebb_policy::QosClass;
use ebb_policy::units::{Bytes, Hertz, Nanos};

use super::batch::{BatchIo, BatchSpec};
use super::spec::{AccessSpec, JobSpec, WorkloadSpec};
use super::target::DriveShare;
use super::text::{Blocks, Rate, Share};

/// Scale factor of the database: one of the benchmark's own (TPC-H, 4.1.3.1), chosen so that
/// queries take minutes, as the compute jobs do. Assumed: the study speaks of "multi-TB".
const SCALE: u64 = 100;

/// A TPC-H query.
#[derive(Clone, Copy)]
pub(super) struct Query {
    name: &'static str,
    /// MB of the tables it scans, at scale factor 1 (TPC-H, 4.2.5.1): LINEITEM 641, ORDERS 149,
    /// PARTSUPP 110, PART 30, CUSTOMER 26.
    megabytes: u64,
    /// CPU seconds per GB scanned, so that computing takes 25 to 35 % of an undisturbed run on
    /// one disk of 175 MB/s. Assumed.
    cpu_per_gb: f64,
    /// Share of requests that joins and sorts send elsewhere. Assumed: none in Q1, a plain scan;
    /// more where two large tables are joined.
    random: f64,
}

const fn query(name: &'static str, megabytes: u64, cpu_per_gb: f64, random: f64) -> Query {
    Query { name, megabytes, cpu_per_gb, random }
}

/// LINEITEM.
pub(super) const Q1: Query = query("tpch-q1", 641, 3.1, 0.0);
/// CUSTOMER, ORDERS, LINEITEM.
pub(super) const Q3: Query = query("tpch-q3", 816, 3.1, 0.1);
/// The same tables.
pub(super) const Q10: Query = query("tpch-q10", 816, 2.4, 0.1);
/// CUSTOMER, ORDERS.
pub(super) const Q13: Query = query("tpch-q13", 175, 2.4, 0.05);
/// LINEITEM, PART.
pub(super) const Q19: Query = query("tpch-q19", 671, 1.9, 0.05);

/// A job without I/O.
fn compute(name: &str, instances: u16, socket: Option<u16>, seconds: u64) -> BatchSpec {
    BatchSpec {
        name: name.to_owned(),
        instances,
        class: QosClass::Noncritical,
        socket,
        start: Nanos::ZERO,
        cpu: Nanos::from_secs(seconds),
        clock: Hertz(2.7e9),
        fixed: Share(0.0),
        activity: 1.0,
        io: None,
        objective: None,
    }
}

/// SPEC CPU2006 401.bzip2, reference input. Assumed: 420 s, its reference time of 9650 s over a
/// ratio of 23, usual for servers of 2012; a seventh of it waits for memory; power below
/// HMMER's, as its branches are hard to predict.
fn bzip2(instances: u16, socket: Option<u16>) -> BatchSpec {
    let spec = compute("bzip2", instances, socket, 420);
    BatchSpec { fixed: Share(0.15), activity: 0.85, ..spec }
}

/// SPEC CPU2006 456.hmmer, reference input. Assumed: 370 s, its reference time of 9330 s over a
/// ratio of 25; it lives in the first-level cache and keeps all units of the core busy.
fn hmmer(instances: u16, socket: Option<u16>) -> BatchSpec {
    BatchSpec { fixed: Share(0.02), ..compute("hmmer", instances, socket, 370) }
}

/// A query: scans its tables on one disk, a request at a time (the study turned the buffer cache
/// off, §V-A). Assumed: 256 KiB requests; its class, since somebody waits for a query.
fn tpch(query: Query, socket: Option<u16>) -> BatchSpec {
    let megabytes = query.megabytes * SCALE;
    let seconds = query.cpu_per_gb * megabytes as f64 / 1000.0;
    BatchSpec {
        class: QosClass::Critical,
        cpu: Nanos::from_seconds(seconds),
        fixed: Share(0.2),
        activity: 0.7,
        io: Some(BatchIo {
            read: Bytes(megabytes * 1_000_000),
            write: Bytes(0),
            request: Bytes(256 << 10),
            random: Share(query.random),
            depth: 1,
            drives: DriveShare { from: Share(0.0), to: Share(0.125) },
            rebuild: false,
        }),
        ..compute(query.name, 1, socket, 0)
    }
}

fn batch(name: &str, batch: Vec<BatchSpec>) -> WorkloadSpec {
    let batch = batch.into_iter().filter(|part| part.instances > 0).collect();
    WorkloadSpec { name: name.to_owned(), batch, ..WorkloadSpec::empty() }
}

/// Table IV: so many BZIP2 and HMMER beside one query, wherever there is room.
pub(super) fn table_iv(name: &str, bzips: u16, hmmers: u16, query: Query) -> WorkloadSpec {
    batch(name, vec![bzip2(bzips, None), hmmer(hmmers, None), tpch(query, None)])
}

/// Table VI: HMMER and a query on socket A, HMMER on socket B.
pub(super) fn table_vi(name: &str, a: u16, b: u16, query: Query) -> WorkloadSpec {
    let (one, other) = (Some(0), Some(1));
    let mut parts = vec![hmmer(a, one), tpch(query, one), hmmer(b, other)];
    parts[0].name = "hmmer-a".to_owned();
    parts[2].name = "hmmer-b".to_owned();
    batch(name, parts)
}

/// The "pure IO generator which issues random writes to the disk" (§V-A). Assumed: 64 KiB, 32
/// outstanding per disk.
pub(super) fn random_writes(name: &str) -> WorkloadSpec {
    let access = AccessSpec {
        block: Blocks(vec![Bytes(64 << 10)]),
        read: Share(0.0),
        random: Share(1.0),
        zipf: None,
        hot: None,
        span: Share(1.0),
    };
    let job = JobSpec {
        name: name.to_owned(),
        best_effort: false,
        drives: DriveShare::ALL,
        threads: 1,
        per_drive: true,
        depth: 32,
        access,
        rate: Rate::Max,
        stages: Vec::new(),
        phases: None,
    };
    WorkloadSpec::of_jobs(name, vec![job])
}

/// LoadGen, which keeps every core busy (§V-D): as many jobs as the servers of Table V have
/// slots, longer than any experiment.
pub(super) fn load_gen(name: &str) -> WorkloadSpec {
    batch(name, vec![compute("loadgen", 16, None, 36_000)])
}

/// A fixed piece of work on the disks, "updating a Multi-TB database" (§V-C, Fig. 7). Assumed: 4 GB
/// in random writes, small enough that the disks' write caches are not all there is.
pub(super) fn update(name: &str) -> WorkloadSpec {
    let io = BatchIo {
        read: Bytes(0),
        write: Bytes(4_000_000_000),
        request: Bytes(64 << 10),
        random: Share(1.0),
        depth: 256,
        drives: DriveShare::ALL,
        rebuild: false,
    };
    batch(name, vec![stream("update", QosClass::Critical, 10.0, io)])
}

/// Bytes that a backup moves. Assumed, as is every cost below.
const BACKUP: u64 = 400_000_000_000;

/// Streams of every class, by Table I's distribution of data.
fn streams(name: &str, make: impl Fn(u64, QosClass) -> BatchSpec) -> WorkloadSpec {
    let shares = [15, 20, 25, 40];
    let parts = QosClass::ALL.into_iter().zip(shares);
    batch(name, parts.map(|(class, percent)| make(BACKUP / 100 * percent, class)).collect())
}

fn stream(what: &str, class: QosClass, seconds: f64, io: BatchIo) -> BatchSpec {
    let class_name = format!("{class:?}").to_lowercase();
    BatchSpec {
        class,
        cpu: Nanos::from_seconds(seconds),
        fixed: Share(0.3),
        activity: 0.8,
        io: Some(io),
        ..compute(&format!("{what}-{class_name}"), 1, None, 0)
    }
}

fn sequential(read: u64, write: u64) -> BatchIo {
    BatchIo {
        read: Bytes(read),
        write: Bytes(write),
        request: Bytes(1 << 20),
        random: Share(0.0),
        depth: 16,
        drives: DriveShare::ALL,
        rebuild: false,
    }
}

/// Writes, deduplicated and compressed at 400 MB/s a core; due within the class's RPO.
pub(super) fn backup(name: &str) -> WorkloadSpec {
    streams(name, |bytes, class| BatchSpec {
        objective: class.recovery_point(),
        ..stream("backup", class, bytes as f64 / 400e6, sequential(0, bytes))
    })
}

/// Reads, decompressed and checked at 1 GB/s a core; due within the class's RTO.
pub(super) fn restore(name: &str) -> WorkloadSpec {
    streams(name, |bytes, class| BatchSpec {
        objective: Some(class.recovery_time()),
        ..stream("restore", class, bytes as f64 / 1e9, sequential(bytes, 0))
    })
}

/// Rebuilds 100 GB of a failed drive beside a restore: a whole drive takes hours to days. Parity
/// at 2 GB/s a core.
pub(super) fn rebuild(name: &str) -> WorkloadSpec {
    let bytes = 100_000_000_000;
    let io = BatchIo { rebuild: true, depth: 4, ..sequential(bytes, 0) };
    let rebuild = BatchSpec {
        name: "rebuild".to_owned(),
        ..stream("", QosClass::Vital, bytes as f64 / 2e9, io)
    };
    let mut spec = restore(name);
    spec.batch.push(rebuild);
    spec
}
