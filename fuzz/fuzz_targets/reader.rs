//! Any bytes, in any format: a reader may refuse them but never panics, and what it hands out
//! keeps the promises of [`ebb_trace::Source`].
//!
//! The first byte is the format by its place in [`Format::ALL`], counted from `a`; a capital
//! letter makes the reader lenient; a `|` makes columns of it; anything else leaves the format to
//! be detected.

#![no_main]

use ebb_trace::{Format, Op, OpenOptions, Source, open_bytes};
use libfuzzer_sys::fuzz_target;

// The fuzzer's own hook would end the process at panics of the Parquet library that the reader
// catches; those that it does not catch still do.
fuzz_target!(init: std::panic::set_hook(Box::new(|_| {})), |input: &[u8]| {
    let Some((choice, bytes)) = input.split_first() else { return };
    let index = choice.to_ascii_lowercase().wrapping_sub(b'a');
    let format = Format::ALL.get(usize::from(index)).copied();
    let all = "time:s,op:1=read,offset:KiB,size:sectors,latency:ms,device,stream,...";
    let columns = (*choice == b'|').then(|| all.parse().expect("well-formed"));
    let options = OpenOptions { format, columns, lenient: choice.is_ascii_uppercase() };
    let Ok(mut reader) = open_bytes("input", bytes.to_vec(), &options) else { return };
    let (mut batch, mut latest) = (Vec::new(), None);
    loop {
        batch.clear();
        let failed = reader.fill(&mut batch).is_err();
        for request in &batch {
            assert!(latest.is_some() || request.at.0 == 0, "the first request is not at 0");
            assert!(latest.is_none_or(|before| before <= request.at), "time runs backwards");
            assert!(request.bytes > 0 || request.op == Op::Flush, "nothing is moved");
            assert!(request.offset.checked_add(u64::from(request.bytes)).is_some());
            latest = Some(request.at);
        }
        if failed || batch.is_empty() {
            break;
        }
    }
});
