//! The workloads that need no file.

use ebb_policy::units::{Bytes, Nanos};

use super::eadc;
use super::error::GenerateError;
use super::spec::{
    AccessSpec, ArrivalSpec, Gaps, JobSpec, PhaseSpec, ReaderSpec, RocksdbSpec, ShapeSpec,
    StageSpec, VarySpec, WorkloadSpec,
};
use super::target::DriveShare;
use super::text::{Blocks, Rate, Share};

/// A workload with a name.
pub struct Builtin {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    spec: fn(&str) -> WorkloadSpec,
}

impl Builtin {
    /// The workload.
    #[must_use]
    pub fn spec(&self) -> WorkloadSpec {
        (self.spec)(self.name)
    }
}

macro_rules! builtin {
    ($($name:literal, $summary:literal, $source:literal, $spec:expr;)+) => {
        /// All built-in workloads.
        pub const BUILTIN: &[Builtin] = &[$(Builtin {
            name: $name, summary: $summary, source: $source, spec: $spec,
        }),+];
    };
}

builtin! {
    "rand-r", "random 8 KiB reads, 900 threads", "PACER Table II",
        |name| vdbench(name, 8, 1.0, 1.0);
    "rand-w", "random 8 KiB writes, 900 threads", "PACER Table II",
        |name| vdbench(name, 8, 0.0, 1.0);
    "seq-r", "sequential 128 KiB reads, 900 threads", "PACER Table II",
        |name| vdbench(name, 128, 1.0, 0.0);
    "seq-w", "sequential 128 KiB writes, 900 threads", "PACER Table II",
        |name| vdbench(name, 128, 0.0, 0.0);
    "rand-rw", "random 8 KiB, 70% reads, 900 threads", "PACER Table II",
        |name| vdbench(name, 8, 0.7, 1.0);
    "burst", "rand-rw at 3% pressure, then saturating with 32 KiB", "PACER §V-A4, Fig. 16", burst;
    "fio-servers", "mail, VDI, media and web server, a quarter of the drives each",
        "PACMAN Table II, Fig. 5", fio_servers;
    "mail", "mail server: random 4 KiB, 67% reads, 16 jobs", "PACMAN Table II",
        |name| WorkloadSpec::of_jobs(name, vec![mail(DriveShare::ALL)]);
    "vdi", "virtual desktops: 4 and 16 KiB, 20% reads, 80% random, 1 to 5 jobs",
        "PACMAN Table II", |name| WorkloadSpec::of_jobs(name, vec![vdi(DriveShare::ALL)]);
    "vdi-busy", "vdi without times of idleness, for a share of the drives", "PACMAN Fig. 6",
        vdi_busy;
    "media", "media streaming: sequential 64 KiB, 98% reads, 5 jobs", "PACMAN Table II",
        |name| WorkloadSpec::of_jobs(name, vec![media(DriveShare::ALL)]);
    "web", "web server: 4, 8 and 16 KiB, 95% reads, 75% random, 1 job", "PACMAN Table II",
        |name| WorkloadSpec::of_jobs(name, vec![web(DriveShare::ALL)]);
    "rocksdb", "two SST_256 and two SST_1024 instances, a quarter of the drives each",
        "PACMAN Table II, Fig. 7", rocksdb;
    "sst-256", "RocksDB inserts, compaction at 256 SST files", "PACMAN Table II",
        |name| instances(name, vec![sst(256, "sst-256", DriveShare::ALL)]);
    "sst-1024", "RocksDB inserts, compaction at 1024 SST files", "PACMAN Table II",
        |name| instances(name, vec![sst(1024, "sst-1024", DriveShare::ALL)]);
    "3d-unet", "16 accelerators reading 3D-UNET samples", "PACER §V-B2; MLPerf Storage v0.5",
        unet3d;
    "bert", "16 accelerators reading BERT samples", "PACER §V-B2; MLPerf Storage v0.5", bert;
    "poisson", "Poisson arrivals of rand-rw requests at 10% pressure", "Ebb",
        |name| arrivals(name, Gaps::Exponential, ShapeSpec::Flat, Rate::Pressure(0.1));
    "constant", "rand-rw requests at a constant rate of 10% pressure", "Ebb",
        |name| arrivals(name, Gaps::Constant, ShapeSpec::Flat, Rate::Pressure(0.1));
    "on-off", "bursts of rand-rw requests at 50% pressure, 1% between", "Ebb", on_off;
    "diurnal", "a day of rand-rw requests, 3% pressure with six peaks of 30%", "PACER Fig. 3, 5",
        diurnal;
    "eadc-iv-w1", "5 BZIP2 jobs and TPC-H query 1", "EADC Table IV",
        |name| eadc::table_iv(name, 5, 0, eadc::Q1);
    "eadc-iv-w2", "5 BZIP2 jobs and TPC-H query 3", "EADC Table IV",
        |name| eadc::table_iv(name, 5, 0, eadc::Q3);
    "eadc-iv-w3", "5 BZIP2 jobs and TPC-H query 10", "EADC Table IV",
        |name| eadc::table_iv(name, 5, 0, eadc::Q10);
    "eadc-iv-w4", "5 BZIP2 jobs and TPC-H query 13", "EADC Table IV",
        |name| eadc::table_iv(name, 5, 0, eadc::Q13);
    "eadc-iv-w5", "5 BZIP2 jobs and TPC-H query 19", "EADC Table IV",
        |name| eadc::table_iv(name, 5, 0, eadc::Q19);
    "eadc-iv-w6", "3 BZIP2 and 2 HMMER jobs and TPC-H query 1", "EADC Table IV",
        |name| eadc::table_iv(name, 3, 2, eadc::Q1);
    "eadc-iv-w7", "3 BZIP2 and 2 HMMER jobs and TPC-H query 3", "EADC Table IV",
        |name| eadc::table_iv(name, 3, 2, eadc::Q3);
    "eadc-iv-w8", "3 BZIP2 and 2 HMMER jobs and TPC-H query 10", "EADC Table IV",
        |name| eadc::table_iv(name, 3, 2, eadc::Q10);
    "eadc-iv-w9", "3 BZIP2 and 2 HMMER jobs and TPC-H query 13", "EADC Table IV",
        |name| eadc::table_iv(name, 3, 2, eadc::Q13);
    "eadc-iv-w10", "3 BZIP2 and 2 HMMER jobs and TPC-H query 19", "EADC Table IV",
        |name| eadc::table_iv(name, 3, 2, eadc::Q19);
    "eadc-vi-w1", "2 HMMER and TPC-H query 1 on one socket, 3 HMMER on the other",
        "EADC Table VI", |name| eadc::table_vi(name, 2, 3, eadc::Q1);
    "eadc-vi-w2", "2 HMMER and TPC-H query 13 on one socket, 3 HMMER on the other",
        "EADC Table VI", |name| eadc::table_vi(name, 2, 3, eadc::Q13);
    "eadc-vi-w3", "2 HMMER and TPC-H query 19 on one socket, 3 HMMER on the other",
        "EADC Table VI", |name| eadc::table_vi(name, 2, 3, eadc::Q19);
    "eadc-vi-w4", "5 HMMER and TPC-H query 1 on one socket, 6 HMMER on the other",
        "EADC Table VI", |name| eadc::table_vi(name, 5, 6, eadc::Q1);
    "eadc-vi-w5", "5 HMMER and TPC-H query 13 on one socket, 6 HMMER on the other",
        "EADC Table VI", |name| eadc::table_vi(name, 5, 6, eadc::Q13);
    "eadc-vi-w6", "5 HMMER and TPC-H query 19 on one socket, 6 HMMER on the other",
        "EADC Table VI", |name| eadc::table_vi(name, 5, 6, eadc::Q19);
    "eadc-io", "random 64 KiB writes to every drive, as many as it takes", "EADC §V-A, Fig. 5",
        eadc::random_writes;
    "eadc-loadgen", "every core busy for hours, no I/O", "EADC §V-D, Fig. 3", eadc::load_gen;
    "eadc-update", "4 GB of random writes to all disks", "EADC §V-C, Fig. 7", eadc::update;
    "backup", "400 GB written in streams of every class, due within its RPO", "EADC Table I",
        eadc::backup;
    "restore", "400 GB read in streams of every class, due within its RTO", "EADC Table I",
        eadc::restore;
    "rebuild", "restore beside the rebuilding of 100 GB of a failed drive", "EADC §III-B",
        eadc::rebuild;
}

/// A built-in workload.
///
/// # Errors
/// When there is none of this name; the error lists all.
pub fn by_name(name: &str) -> Result<WorkloadSpec, GenerateError> {
    let found = BUILTIN.iter().find(|builtin| builtin.name == name);
    found.map(Builtin::spec).ok_or_else(|| GenerateError::Unknown {
        name: name.to_owned(),
        names: BUILTIN.iter().map(|builtin| builtin.name).collect(),
    })
}

fn access(kib: &[u64], read: f64, random: f64) -> AccessSpec {
    AccessSpec {
        block: Blocks(kib.iter().map(|&kib| Bytes(kib << 10)).collect()),
        read: Share(read),
        random: Share(random),
        zipf: None,
        hot: None,
        span: Share(1.0),
    }
}

/// Three clients of 300 threads (PACER §V), saturating unless a rate is set.
fn vdbench(name: &str, kib: u64, read: f64, random: f64) -> WorkloadSpec {
    let job = JobSpec {
        name: name.to_owned(),
        best_effort: false,
        drives: DriveShare::ALL,
        threads: 900,
        per_drive: false,
        depth: 1,
        access: access(&[kib], read, random),
        rate: Rate::Max,
        stages: Vec::new(),
        phases: None,
    };
    WorkloadSpec::of_jobs(name, vec![job])
}

/// PACER waits for its policy to become stable and then ten seconds. How long becoming stable
/// takes is not stated: 20 s in all are assumed here.
fn burst(name: &str) -> WorkloadSpec {
    let mut spec = vdbench(name, 8, 0.7, 1.0);
    for job in &mut spec.jobs {
        job.rate = Rate::Pressure(0.03);
        job.stages = vec![StageSpec {
            start: Nanos::from_secs(20),
            rate: Rate::Max,
            block: Some(Blocks(vec![Bytes(32 << 10)])),
        }];
    }
    spec
}

/// A fio server of PACMAN Table II. Assumed, as the paper states none of it: 32 requests
/// outstanding per job, 30 s busy and 10 s idle by turns, each within half around that.
fn fio(name: &str, drives: DriveShare, threads: u32, access: AccessSpec) -> JobSpec {
    JobSpec {
        name: name.to_owned(),
        best_effort: false,
        drives,
        threads,
        per_drive: true,
        depth: 32,
        access,
        rate: Rate::Max,
        stages: Vec::new(),
        phases: Some(PhaseSpec {
            busy: Nanos::from_secs(30),
            idle: Nanos::from_secs(10),
            spread: Share(0.5),
            vary: None,
        }),
    }
}

fn mail(drives: DriveShare) -> JobSpec {
    fio("mail", drives, 16, access(&[4], 0.67, 1.0))
}

/// The jobs vary from 1 to 5; how often is assumed: about every 10 s.
fn vdi(drives: DriveShare) -> JobSpec {
    let mut job = fio("vdi", drives, 5, access(&[4, 16], 0.2, 0.8));
    if let Some(phases) = &mut job.phases {
        phases.vary = Some(VarySpec { from: 1, to: 5, every: Nanos::from_secs(10) });
    }
    job
}

fn vdi_busy(name: &str) -> WorkloadSpec {
    let mut job = vdi(DriveShare::ALL);
    if let Some(phases) = &mut job.phases {
        phases.idle = Nanos::ZERO;
    }
    WorkloadSpec::of_jobs(name, vec![job])
}

fn media(drives: DriveShare) -> JobSpec {
    fio("media", drives, 5, access(&[64], 0.98, 0.0))
}

fn web(drives: DriveShare) -> JobSpec {
    fio("web", drives, 1, access(&[4, 8, 16], 0.95, 0.75))
}

fn fio_servers(name: &str) -> WorkloadSpec {
    let quarter = |index| DriveShare::segment(index, 4);
    WorkloadSpec::of_jobs(
        name,
        vec![mail(quarter(0)), vdi(quarter(1)), media(quarter(2)), web(quarter(3))],
    )
}

fn sst(trigger: u32, name: &str, drives: DriveShare) -> RocksdbSpec {
    RocksdbSpec { drives, ..RocksdbSpec::new(name, trigger) }
}

fn instances(name: &str, rocksdb: Vec<RocksdbSpec>) -> WorkloadSpec {
    WorkloadSpec { name: name.to_owned(), rocksdb, ..WorkloadSpec::empty() }
}

fn rocksdb(name: &str) -> WorkloadSpec {
    let quarter = |index| DriveShare::segment(index, 4);
    let four = vec![
        sst(256, "sst-256-1", quarter(0)),
        sst(256, "sst-256-2", quarter(1)),
        sst(1024, "sst-1024-1", quarter(2)),
        sst(1024, "sst-1024-2", quarter(3)),
    ];
    instances(name, four)
}

fn readers(name: &str, reader: ReaderSpec) -> WorkloadSpec {
    WorkloadSpec { name: name.to_owned(), readers: vec![reader], ..WorkloadSpec::empty() }
}

/// storage-conf/workload/unet3d.yaml of MLPerf Storage v0.5 (an emulated V100), with as many
/// files as its benchmark.sh wants at least: 100 steps of a batch for each accelerator. The size
/// of a read is assumed.
fn unet3d(name: &str) -> WorkloadSpec {
    let reader = ReaderSpec {
        name: name.to_owned(),
        drives: DriveShare::ALL,
        accelerators: 16,
        workers: 4,
        batch: 4,
        compute: Nanos(1_360_400_000),
        sample: Bytes(146_600_628),
        deviation: Bytes(68_341_808),
        samples_per_file: 1,
        files: 6_400,
        transfer: Bytes(1 << 20),
    };
    readers(name, reader)
}

/// storage-conf/workload/bert.yaml of MLPerf Storage v0.5 (an emulated V100).
fn bert(name: &str) -> WorkloadSpec {
    let reader = ReaderSpec {
        name: name.to_owned(),
        drives: DriveShare::ALL,
        accelerators: 16,
        workers: 1,
        batch: 48,
        compute: Nanos::from_millis(968),
        sample: Bytes(2500),
        deviation: Bytes(0),
        samples_per_file: 313_532,
        files: 500,
        transfer: Bytes(256 << 10),
    };
    readers(name, reader)
}

fn arrivals(name: &str, gaps: Gaps, shape: ShapeSpec, rate: Rate) -> WorkloadSpec {
    let part = ArrivalSpec {
        name: name.to_owned(),
        best_effort: false,
        drives: DriveShare::ALL,
        streams: 64,
        access: access(&[8], 0.7, 1.0),
        rate,
        gaps,
        shape,
    };
    WorkloadSpec { name: name.to_owned(), arrivals: vec![part], ..WorkloadSpec::empty() }
}

fn on_off(name: &str) -> WorkloadSpec {
    let shape = ShapeSpec::OnOff {
        on: Nanos::from_secs(2),
        off: Nanos::from_secs(8),
        floor: Share(0.02),
        spread: Share(0.5),
    };
    arrivals(name, Gaps::Exponential, shape, Rate::Pressure(0.5))
}

/// "Relatively low throughout the day with occasional peaks" (PACER Fig. 3) and under 10%
/// pressure for 95% of the time (Fig. 5): 3% with six peaks of 30% that fill 5% of the day.
fn diurnal(name: &str) -> WorkloadSpec {
    let shape = ShapeSpec::Day {
        length: Nanos::from_secs(86_400),
        peaks: 6,
        height: 10.0,
        share: Share(0.05),
    };
    arrivals(name, Gaps::Exponential, shape, Rate::Pressure(0.03))
}
