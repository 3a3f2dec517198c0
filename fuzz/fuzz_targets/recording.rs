//! A recording as somebody else may have written it: as files, or as what stands in a block, which
//! is packed here as one. It is refused, or decided again.

#![no_main]

use ebb_record::recording::{Reader, again};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((first, rest)) = input.split_first() else { return };
    let Ok(folder) = tempfile::tempdir() else { return };
    let packed = zstd::bulk::compress(rest, 1).unwrap_or_default();
    let file = if first % 2 == 0 { rest } else { &packed };
    if std::fs::write(folder.path().join("00000001.ebb.zst"), file).is_err() {
        return;
    }
    let Ok(mut reader) = Reader::open(folder.path()) else { return };
    if let Ok(told) = again(&mut reader) {
        assert_eq!(told.same + told.other + told.unknown, told.cycles);
    }
});
