//! What holds for every workload on every server.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::generate::{BUILTIN, Overrides};

fn any_builtin() -> impl Strategy<Value = WorkloadSpec> {
    let specs: Vec<WorkloadSpec> =
        BUILTIN.iter().map(|builtin| builtin.spec().with_maximum(300_000.0)).collect();
    prop::sample::select(specs)
}

fn requests(spec: &WorkloadSpec, context: &BuildContext, most: usize) -> Vec<Request> {
    match spec.build(context).unwrap() {
        Workload::Open(mut source) => take(&mut *source, most),
        Workload::Closed(mut clients) => {
            let sent = run(&mut *clients, Nanos::from_micros(150), most);
            sent.into_iter().map(|(_, request)| request).collect()
        }
    }
}

/// The requests of each stream in order, without their times.
fn by_stream(sent: &[(u32, Request)]) -> HashMap<u32, Vec<(u16, u64, u32, Op)>> {
    let mut streams: HashMap<u32, Vec<_>> = HashMap::new();
    for (_, r) in sent {
        streams.entry(r.stream).or_default().push((r.device, r.offset, r.bytes, r.op));
    }
    streams
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn requests_stay_on_the_server_and_are_aligned(
        spec in any_builtin(),
        devices in 4_u16..64,
        capacity in 1_000_000_000_000_u64..30_000_000_000_000,
        seed: u64,
    ) {
        let context = BuildContext { devices, capacity_bytes: capacity, seed };
        for request in requests(&spec, &context, 20_000) {
            prop_assert!(request.device < devices);
            prop_assert!(request.bytes > 0);
            prop_assert!(request.offset + u64::from(request.bytes) <= capacity);
            prop_assert_eq!(request.offset % 4096, 0);
            prop_assert_eq!(request.bytes % 4096, 0);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_requests_and_another_one_others(
        spec in any_builtin(),
        seed: u64,
    ) {
        let context = BuildContext { seed, ..SERVER };
        let first = requests(&spec, &context, 5_000);
        prop_assert_eq!(&first, &requests(&spec, &context, 5_000));
        let random = spec.jobs.iter().any(|job| job.access.random.0 > 0.0);
        if random || !spec.arrivals.is_empty() || !spec.readers.is_empty() {
            let other = BuildContext { seed: seed ^ 1, ..SERVER };
            prop_assert_ne!(&first, &requests(&spec, &other, 5_000));
        }
    }

    /// Each thread asks for the same, in the same order, however its completions interleave with
    /// those of others: policies are compared over the same requests.
    #[test]
    fn what_a_thread_asks_for_does_not_depend_on_the_server(
        spec in any_builtin(),
        latencies in prop::collection::vec(1_000_u64..5_000_000, 2..40),
    ) {
        prop_assume!(spec.arrivals.is_empty() && spec.rocksdb.is_empty() && spec.batch.is_empty());
        let even = run(&mut *closed(&spec, &SERVER), Nanos::from_micros(80), 20_000);
        let mut at = 0;
        let uneven = run_with(&mut *closed(&spec, &SERVER), 20_000, |_| {
            at = (at + 1) % latencies.len();
            latencies[at]
        });
        let (even, uneven) = (by_stream(&even), by_stream(&uneven));
        for (stream, ours) in &even {
            let theirs = uneven.get(stream).map_or(&[][..], Vec::as_slice);
            let both = ours.len().min(theirs.len());
            prop_assert_eq!(&ours[..both], &theirs[..both]);
        }
    }

    #[test]
    fn nothing_comes_after_the_duration(spec in any_builtin(), millis in 1_u64..300) {
        let duration = Nanos::from_millis(millis);
        let overrides = Overrides { duration: Some(duration), ..Overrides::default() };
        let spec = spec.with(&overrides).unwrap();
        let requests = requests(&spec, &SERVER, 200_000);
        prop_assert!(requests.iter().all(|request| request.at < duration));
    }
}

#[test]
fn every_builtin_builds_on_one_drive_per_part_and_has_its_own_name() {
    let context = BuildContext { devices: 4, capacity_bytes: 4_000_000_000_000, seed: 1 };
    for builtin in BUILTIN {
        let spec = builtin.spec().with_maximum(1e5);
        assert_eq!(spec.name, builtin.name);
        assert!(spec.build(&context).is_ok(), "{}", builtin.name);
        assert_eq!(BUILTIN.iter().filter(|other| other.name == builtin.name).count(), 1);
    }
}

/// A seed in a paper's table means these requests for ever: a change here is a breaking one.
#[test]
fn the_requests_of_a_seed_are_pinned() {
    for (name, pinned) in PINNED {
        let spec = builtin(name).with_maximum(300_000.0);
        let mut digest = 0xcbf2_9ce4_8422_2325_u64;
        for r in requests(&spec, &SERVER, 10_000) {
            let last = u64::from(r.bytes) << 32 | u64::from(r.device) << 8 | r.op as u64;
            for part in [r.at.0, r.offset, last, u64::from(r.stream)] {
                // FNV-1a, a word at a time.
                digest = (digest ^ part).wrapping_mul(0x0100_0000_01b3);
            }
        }
        assert_eq!(digest, pinned, "{name}: {digest:#x}");
    }
}

const PINNED: [(&str, u64); 6] = [
    ("rand-rw", 0x83b1_c1ca_78c7_7608),
    ("burst", 0x9bc0_30e4_ee10_1c63),
    ("fio-servers", 0x1cac_fde9_d96b_c4a0),
    ("rocksdb", 0x6a5a_1d9d_9e6e_4a95),
    ("3d-unet", 0x9ae3_9bf0_9b49_e425),
    ("poisson", 0xcf66_1ced_9a18_7561),
];
