//! Whatever bytes come, a reader refuses them or keeps its promises; it never panics.

use std::path::Path;

use ebb_trace::{Format, Op, OpenOptions, Source, open_bytes};
use proptest::prelude::*;

/// Reads to the end or to the first error, and checks what is handed out.
fn check(bytes: &[u8], format: Option<Format>, lenient: bool) {
    let columns = None;
    let options = OpenOptions { format, columns, lenient };
    let Ok(mut reader) = open_bytes("t", bytes.to_vec(), &options) else { return };
    let (mut batch, mut latest) = (Vec::new(), None);
    loop {
        batch.clear();
        let failed = reader.fill(&mut batch).is_err();
        for request in &batch {
            assert!(latest.is_some() || request.at.0 == 0);
            assert!(latest.is_none_or(|before| before <= request.at));
            assert!(request.bytes > 0 || request.op == Op::Flush);
            assert!(request.offset.checked_add(u64::from(request.bytes)).is_some());
            latest = Some(request.at);
        }
        if failed || batch.is_empty() {
            return;
        }
    }
}

/// The inputs that the fuzzer starts from: the first byte is the format, see `fuzz/`.
fn seeds() -> Vec<(Format, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path| {
        let bytes = std::fs::read(path).unwrap();
        (Format::ALL[usize::from(bytes[0] - b'a')], bytes[1..].to_vec())
    };
    paths.iter().map(read).collect()
}

#[test]
fn every_format_has_a_seed_that_is_detected_and_reads() {
    let seeds = seeds();
    for format in Format::ALL {
        assert!(seeds.iter().any(|(of, _)| *of == format), "no seed for {format}");
    }
    for (format, bytes) in seeds {
        let mut reader = open_bytes("t", bytes, &OpenOptions::default()).unwrap();
        assert_eq!(reader.format(), format);
        let mut batch = Vec::new();
        reader.fill(&mut batch).unwrap();
        assert!(batch.len() >= 2, "{format}: {batch:?}");
    }
}

/// Found by fuzzing: the dictionary page of a column turned into a data page.
#[test]
fn a_damaged_parquet_page_is_an_error() {
    let (format, bytes) = seeds().into_iter().find(|(of, _)| *of == Format::Parquet).unwrap();
    for position in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff, bytes[position] ^ 1, bytes[position] ^ 8] {
            let mut damaged = bytes.clone();
            damaged[position] = value;
            check(&damaged, Some(format), false);
        }
    }
}

fn any_format() -> impl Strategy<Value = Option<Format>> {
    prop_oneof![Just(None), prop::sample::select(&Format::ALL[..]).prop_map(Some)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn arbitrary_bytes(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        format in any_format(),
        lenient: bool,
    ) {
        check(&bytes, format, lenient);
    }

    #[test]
    fn characters_that_formats_are_made_of(
        text in "[0-9RWQ ,.\\-+e\n]{0,300}",
        format in any_format(),
        lenient: bool,
    ) {
        check(text.as_bytes(), format, lenient);
    }

    #[test]
    fn good_traces_with_damage(
        seed: prop::sample::Index,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut: prop::sample::Index,
        named: bool,
        lenient: bool,
    ) {
        let seeds = seeds();
        let (format, mut bytes) = seeds[seed.index(seeds.len())].clone();
        for (position, value) in damage {
            let position = position.index(bytes.len());
            bytes[position] = value;
        }
        check(&bytes, named.then_some(format), lenient);
        bytes.truncate(cut.index(bytes.len()));
        check(&bytes, named.then_some(format), lenient);
    }
}
