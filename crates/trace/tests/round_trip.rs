//! What is written reads back.

use std::num::NonZeroU64;

use ebb_policy::units::Nanos;
use ebb_trace::{Format, Op, OpenOptions, Request, Source, TraceError, open, write};
use proptest::prelude::*;

struct Given(Vec<Request>);

impl Source for Given {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError> {
        let some = self.0.len().min(1000);
        batch.extend(self.0.drain(..some));
        Ok(())
    }
}

fn read_all(source: &mut dyn Source) -> Vec<Request> {
    let mut all = Vec::new();
    loop {
        let before = all.len();
        source.fill(&mut all).unwrap();
        if all.len() == before {
            return all;
        }
    }
}

fn round_trip(requests: &[Request], format: Format) -> Vec<Request> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let count = write(&mut Given(requests.to_vec()), &path, format).unwrap();
    assert_eq!(count, requests.len() as u64);
    // So fast, these times could also be whole ms of DiskSim.
    let format_named = (format == Format::Mqsim).then_some(format);
    let options = OpenOptions { format: format_named, ..OpenOptions::default() };
    let mut reader = open(&path, &options).unwrap();
    assert_eq!(reader.format(), format);
    read_all(&mut reader)
}

fn any_request() -> impl Strategy<Value = Request> {
    let op = prop_oneof![Just(Op::Read), Just(Op::Write), Just(Op::Flush), Just(Op::Trim)];
    let offset = prop_oneof![0..u64::from(u32::MAX), 0..u64::MAX / 2];
    let latency = prop::option::of(1..u64::MAX);
    (0..u64::MAX / 4096, op, offset, 1..u32::MAX, any::<u16>(), any::<u32>(), latency).prop_map(
        |(at, op, offset, bytes, device, stream, latency)| Request {
            at: Nanos(at),
            offset,
            bytes,
            device,
            op,
            stream,
            recorded_latency: latency.and_then(NonZeroU64::new),
        },
    )
}

/// Up to 300 requests in order, the first at 0.
fn any_trace() -> impl Strategy<Value = Vec<Request>> {
    prop::collection::vec(any_request(), 1..300).prop_map(|mut all| {
        all.sort_by_key(|request| request.at);
        let first = all[0].at;
        for request in &mut all {
            request.at = request.at - first;
        }
        all
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn our_own_formats_lose_nothing(trace in any_trace()) {
        prop_assert_eq!(&round_trip(&trace, Format::Parquet), &trace);
        prop_assert_eq!(&round_trip(&trace, Format::EbbCsv), &trace);
    }
}

fn plain(number: u64) -> Request {
    Request {
        at: Nanos(number * 1_234),
        offset: number * 4096,
        bytes: 8192,
        device: (number % 3) as u16,
        op: if number.is_multiple_of(2) { Op::Read } else { Op::Write },
        stream: (number % 3) as u32,
        recorded_latency: None,
    }
}

#[test]
fn several_row_groups_read_back() {
    let trace: Vec<_> = (0..300_000).map(plain).collect();
    assert!(round_trip(&trace, Format::Parquet) == trace);
}

#[test]
fn the_foreign_text_formats_read_back() {
    let trace: Vec<_> = (0..5000).map(plain).collect();
    assert_eq!(round_trip(&trace, Format::Mqsim), trace);
    assert_eq!(round_trip(&trace, Format::MsrCut), trace);
}

#[test]
fn an_empty_trace_can_be_written_to_parquet_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    assert_eq!(write(&mut Given(Vec::new()), &path, Format::Parquet).unwrap(), 0);
    let mut reader = open(&path, &OpenOptions::default()).unwrap();
    let error = reader.fill(&mut Vec::new()).unwrap_err().to_string();
    assert!(error.contains("no request in it"), "{error}");
}

#[test]
fn what_a_format_cannot_hold_is_refused_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let flush = Request { op: Op::Flush, bytes: 0, ..plain(1) };
    let odd = Request { bytes: 100, ..plain(1) };
    for (request, format, said) in [
        (flush, Format::MsrCut, "request 2: msr-cut has reads and writes only"),
        (odd, Format::Mqsim, "request 2: mqsim counts in sectors"),
        (odd, Format::Spc, "'spc' cannot be written; parquet, ebb-csv, msr-cut, mqsim can"),
    ] {
        let error = write(&mut Given(vec![plain(0), request]), &path, format).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
