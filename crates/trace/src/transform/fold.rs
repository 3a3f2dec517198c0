//! Offsets and devices of a trace onto those of a server.

use ebb_policy::units::Bytes;

use super::{Each, InvalidOption, Step};
use crate::request::{Op, Request, Source, TraceError};

/// Folded offsets keep their place within blocks of this size.
const BLOCK: u64 = 4096;

/// Folds a trace onto `devices` devices of `capacity` each: both numbers modulo what is there.
///
/// Devices that come to lie on the same one are moved apart by the golden ratio of its capacity,
/// so that their hot ranges do not fall on each other. Offsets keep their alignment to 4 KiB and
/// a request that would cross the end moves to just before it. `name` stands in errors.
///
/// # Errors
/// When there is no device or no whole block; later, when a request is larger than a device.
pub fn fold<S: Source>(
    source: S,
    name: &str,
    devices: u16,
    capacity: Bytes,
) -> Result<impl Source + use<S>, InvalidOption> {
    if devices == 0 {
        let (given, valid) = ("0".to_owned(), "at least one is needed");
        return Err(InvalidOption { option: "the number of devices", given, valid });
    }
    let blocks = capacity.0 / BLOCK;
    if blocks == 0 {
        let (given, valid) = (capacity.to_string(), "at least 4 KiB are needed");
        return Err(InvalidOption { option: "the capacity", given, valid });
    }
    let name = name.to_owned();
    let mut number = 0_u64;
    let each = move |request: Request| {
        number += 1;
        if u64::from(request.bytes) > blocks * BLOCK {
            let reason = format!(
                "request {number} has {} bytes, more than the {capacity} of a whole device",
                request.bytes
            );
            return Err(TraceError::Malformed { file: name.clone(), line: number, reason });
        }
        Ok(Step::Take(folded(request, devices, blocks)))
    };
    Ok(Each { source, each, ended: false })
}

fn folded(request: Request, devices: u16, blocks: u64) -> Request {
    /// 2^64 divided by the golden ratio: multiples of it spread evenly over any range.
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let device = request.device % devices;
    if request.op == Op::Flush {
        return Request { device, ..request };
    }
    let lap = u64::from(request.device / devices);
    let apart = (u128::from(lap.wrapping_mul(GOLDEN)) * u128::from(blocks)) >> 64;
    let size = blocks * BLOCK;
    let offset = request.offset % size + apart as u64 * BLOCK;
    let offset = offset % size;
    let latest = (size - u64::from(request.bytes)) / BLOCK * BLOCK;
    let crosses = offset + u64::from(request.bytes) > size;
    Request { device, offset: if crosses { latest } else { offset }, ..request }
}

/// Lets through what lies on `devices` devices of `capacity` each and refuses the first request
/// beyond them. `name` stands in errors.
pub fn within<S: Source>(
    source: S,
    name: &str,
    devices: u16,
    capacity: Bytes,
) -> impl Source + use<S> {
    const REMEDY: &str = "fold the trace onto the devices (--fold) or choose larger ones";
    let name = name.to_owned();
    let mut number = 0_u64;
    let each = move |request: Request| {
        number += 1;
        let reason = if request.device >= devices {
            format!("request {number} is for device {} of {devices}", request.device)
        } else if request.offset.saturating_add(u64::from(request.bytes)) > capacity.0 {
            format!(
                "request {number} has offset {} and {} bytes, beyond the {capacity} of device {}",
                request.offset, request.bytes, request.device
            )
        } else {
            return Ok(Step::Take(request));
        };
        let reason = format!("{reason}; {REMEDY}");
        Err(TraceError::Malformed { file: name.clone(), line: number, reason })
    };
    Each { source, each, ended: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::tests::{all, at, given};
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    fn on(device: u16, offset: u64, bytes: u32) -> Request {
        Request { device, offset, bytes, ..at(0) }
    }

    #[test]
    fn offsets_and_devices_are_taken_modulo() {
        let source = given([on(1, 3 * MIB + 4096, 512), on(2, 0, 4096), on(0, MIB - 512, 4096)]);
        let mut fold = fold(source, "t", 2, Bytes(MIB)).unwrap();
        let folded = all(&mut fold).unwrap();
        assert_eq!((folded[0].device, folded[0].offset), (1, 4096));
        // Device 2 lies on 0 and is moved by 0.618 of the capacity.
        assert_eq!((folded[1].device, folded[1].offset / 4096), (0, 158));
        assert_eq!((folded[2].device, folded[2].offset), (0, MIB - 4096));
    }

    #[test]
    fn a_request_larger_than_a_device_is_refused() {
        let mut fold = fold(given([on(0, 0, 512), on(0, 0, 8192)]), "t", 1, Bytes(4096)).unwrap();
        let error = all(&mut fold).unwrap_err().to_string();
        assert!(error.contains("request 2") && error.contains("4 KiB"), "{error}");
    }

    #[test]
    fn nothing_to_fold_onto_is_refused() {
        assert!(fold(given([]), "t", 0, Bytes(MIB)).is_err());
        assert!(fold(given([]), "t", 1, Bytes(4095)).is_err());
    }

    #[test]
    fn what_lies_beyond_the_device_is_named_with_the_remedy() {
        for (request, said) in [
            (on(0, MIB - 512, 1024), "t:2: request 2 has offset 1048064 and 1024 bytes"),
            (on(2, 0, 512), "t:2: request 2 is for device 2 of 2"),
        ] {
            let mut source = within(given([on(1, 0, 512), request]), "t", 2, Bytes(MIB));
            let mut batch = Vec::new();
            let error = source.fill(&mut batch).unwrap_err().to_string();
            assert!(error.contains(said) && error.contains("--fold"), "{error}");
            assert_eq!(batch, [on(1, 0, 512)]);
        }
    }

    proptest! {
        #[test]
        fn whatever_is_folded_lies_within(
            list in prop::collection::vec((any::<u16>(), 0..u64::MAX / 2, 1..65_536_u32), 1..100),
            devices in 1..40_u16,
            capacity in 65_536..10 * MIB,
        ) {
            let request = |(device, offset, bytes)| on(device, offset, bytes);
            let source = given(list.into_iter().map(request));
            let folded = fold(source, "t", devices, Bytes(capacity)).unwrap();
            prop_assert!(all(&mut within(folded, "t", devices, Bytes(capacity))).is_ok());
        }

        #[test]
        fn alignment_stays(device: u16, block in 0..u64::MAX / 4096, capacity in MIB..10 * MIB) {
            let source = given([on(device, block * 4096, 4096)]);
            let folded = all(&mut fold(source, "t", 3, Bytes(capacity)).unwrap()).unwrap();
            prop_assert_eq!(folded[0].offset % 4096, 0);
        }
    }
}
