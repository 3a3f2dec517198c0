//! Every real trace reads to its end with the numbers its origin states.

use std::path::PathBuf;

use ebb_trace::pressure::{SEGMENT, segments};
use ebb_trace::stats::summarise;
use ebb_trace::{Format, Op, OpenOptions, Reader, Request, Source, open};

/// The folder of real traces; `None`, with a message, where it is not there.
fn data() -> Option<PathBuf> {
    let folder = match std::env::var_os("EBB_DATA") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
    };
    let traces = folder.join("traces");
    if traces.is_dir() {
        return Some(traces);
    }
    println!("skipped: no real traces at {}; set EBB_DATA to where they are", traces.display());
    None
}

struct Whole {
    reader: Reader,
    requests: Vec<Request>,
}

impl Whole {
    fn read(file: &str) -> Option<Self> {
        let mut reader = open(data()?.join(file), &OpenOptions::default()).unwrap();
        let mut requests = Vec::new();
        loop {
            let before = requests.len();
            reader.fill(&mut requests).unwrap();
            if requests.len() == before {
                return Some(Self { reader, requests });
            }
        }
    }

    fn span(&self) -> f64 {
        self.requests.last().unwrap().at.seconds()
    }

    fn read_percent(&self) -> f64 {
        let reads = self.requests.iter().filter(|request| request.op == Op::Read).count();
        100.0 * reads as f64 / self.requests.len() as f64
    }

    fn devices(&self) -> usize {
        self.requests.iter().map(|r| r.device).collect::<std::collections::BTreeSet<_>>().len()
    }

    /// Checks what holds of every trace and what is stated of this one.
    fn check(&self, format: Format, requests: usize, span: f64, devices: usize, read: f64) {
        assert_eq!(self.reader.format(), format);
        assert_eq!(self.requests.len(), requests);
        assert_eq!(self.requests[0].at.0, 0);
        assert!(self.requests.is_sorted_by_key(|request| request.at));
        assert!((self.span() - span).abs() < 0.01 * span, "{} s", self.span());
        assert_eq!(self.devices(), devices);
        assert!((self.read_percent() - read).abs() < 0.5, "{} %", self.read_percent());
        assert_eq!(self.reader.skipped().malformed, 0);
    }
}

#[test]
fn cloudphysics() {
    let Some(trace) = Whole::read("cloudphysics_vscsi/cloudPhysicsIO.vscsi.gz") else { return };
    trace.check(Format::Vscsi, 113_872, 7200.1, 1, 41.25);
    assert!(trace.requests.iter().all(|request| request.recorded_latency.is_none()));
}

#[test]
fn mqsim_web_search_and_oltp() {
    let Some(trace) = Whole::read("mqsim_oltp_websearch/wsrch-small.trace.gz") else { return };
    trace.check(Format::Mqsim, 24_783, 60.05, 6, 100.0);
    let Some(trace) = Whole::read("mqsim_oltp_websearch/tpcc-small.trace.gz") else { return };
    trace.check(Format::Mqsim, 6_999, 0.1365, 16, 63.0);
}

#[test]
fn msr_cuts() {
    let folder = "msr_heimdall/msr.cut.per_10k";
    let Some(trace) = Whole::read(&format!("{folder}.most_thpt_rand_iops.1006.trace.gz")) else {
        return;
    };
    trace.check(Format::MsrCut, 10_000, 1.017, 1, 83.0);
    let Some(trace) = Whole::read(&format!("{folder}.rw_40_60.1370.trace.gz")) else { return };
    trace.check(Format::MsrCut, 10_000, 85.915, 1, 41.0);
}

#[test]
fn tencent_replayed_is_sorted_by_submission() {
    for (file, span, read) in [
        ("most_rand_iops.537", 54.0225, 82.1),
        ("most_size_thpt.222", 77.0, 83.3),
        ("rw_65_35.211", 132.0, 65.9),
    ] {
        let file = format!("tencent_nvme_latency/tencent.cut.per_50k.{file}.trace.gz");
        let Some(trace) = Whole::read(&file) else { return };
        trace.check(Format::TencentReplay, 50_000, span, 1, read);
        assert!(trace.requests.iter().all(|request| request.recorded_latency.is_some()));
    }
}

#[test]
fn darshan_jobs() {
    // The 17,652 calls include 5 that moved no data.
    let Some(trace) = Whole::read("darshan_dxt/dxt_nonmpi_app.csv.gz") else { return };
    trace.check(Format::Darshan, 17_647, 26.37, 75, 44.0);
    assert_eq!(trace.reader.skipped().ignored, 5);
    let Some(trace) = Whole::read("darshan_dxt/dxt_mpiio_32ranks.csv.gz") else { return };
    trace.check(Format::Darshan, 320, 12.9, 33, 40.0);
    let ranks: std::collections::BTreeSet<_> = trace.requests.iter().map(|r| r.stream).collect();
    assert_eq!(ranks.len(), 32);
}

#[test]
fn samples_of_three_formats() {
    let Some(trace) = Whole::read("format_samples/biosnoop_sample.txt") else { return };
    trace.check(Format::Biosnoop, 15, 2.0440, 3, 0.0);
    let Some(trace) = Whole::read("format_samples/msr_raw_sample.csv") else { return };
    trace.check(Format::Msr, 5, 293.683_692_8, 1, 0.0);
    let Some(trace) = Whole::read("format_samples/alibaba_raw_sample.csv") else { return };
    trace.check(Format::Alibaba, 6, 0.00058, 5, 33.3);
}

#[test]
fn summaries_agree_with_what_is_known() {
    let Some(folder) = data() else { return };
    let summary = |file: &str| {
        let mut reader = open(folder.join(file), &OpenOptions::default()).unwrap();
        summarise(&mut reader).unwrap()
    };
    let disk = summary("cloudphysics_vscsi/cloudPhysicsIO.vscsi.gz");
    assert_eq!((disk.requests, disk.reads, disk.writes), (113_872, 46_974, 66_898));
    assert!(disk.recorded_latency.is_none() && disk.longest_gap_seconds > 1.0);

    // Bursts: 51 thousand IOPS over 16 devices.
    let burst = summary("mqsim_oltp_websearch/tpcc-small.trace.gz");
    assert!((51_000.0..52_000.0).contains(&burst.iops), "{}", burst.iops);
    assert_eq!((burst.devices, burst.streams, burst.peak_iops), (16, 16, 6999));

    // 50,000 requests on 104 MiB, each with its latency.
    let file = "tencent_nvme_latency/tencent.cut.per_50k.most_rand_iops.537.trace.gz";
    let replayed = summary(file);
    assert!(replayed.sequential_share < 0.1, "{}", replayed.sequential_share);
    assert_eq!(replayed.highest_byte, 104 << 20);
    // Counted exactly elsewhere: 46,854,144 bytes; four standard errors are 3.2 %.
    assert!(replayed.footprint_bytes.abs_diff(46_854_144) < 1_500_000);
    let latency = replayed.recorded_latency.unwrap();
    assert_eq!(latency.count, 50_000);
    assert!(latency.p50 <= latency.p99 && latency.p99 <= latency.max);
}

#[test]
fn two_hours_are_six_segments_and_a_rest() {
    let Some(folder) = data() else { return };
    let file = folder.join("cloudphysics_vscsi/cloudPhysicsIO.vscsi.gz");
    let mut reader = open(file, &OpenOptions::default()).unwrap();
    let segments = segments(&mut reader, SEGMENT).unwrap();
    assert_eq!(segments.len(), 7);
    assert_eq!(segments.iter().map(|segment| segment.requests).sum::<u64>(), 113_872);
    assert!(segments[..6].iter().all(|segment| segment.seconds == 1200.0));
    assert!(segments[6].seconds < 1.0);
}
