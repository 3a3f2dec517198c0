//! Several traces at the same time.

use ebb_policy::units::Nanos;

use crate::reader::BATCH;
use crate::request::{Request, Source, TraceError};

/// Marks a device that has not been seen.
const UNSEEN: u32 = u32::MAX;

/// One of the merged sources.
struct Part {
    source: Box<dyn Source>,
    batch: Vec<Request>,
    next: usize,
    ended: bool,
    /// The new number of each device of this source.
    devices: Vec<u32>,
    /// Added to streams, so that those of different sources stay apart.
    stream: u32,
}

impl Part {
    fn head(&mut self) -> Result<Option<Nanos>, TraceError> {
        if self.next == self.batch.len() && !self.ended {
            self.batch.clear();
            self.next = 0;
            self.source.fill(&mut self.batch)?;
            self.ended = self.batch.is_empty();
        }
        Ok(self.batch.get(self.next).map(|request| request.at))
    }
}

/// Traces laid side by side in time. See [`merge`].
pub struct Merge {
    parts: Vec<Part>,
    devices: u32,
}

/// Plays several traces at once, each on devices of its own: those are numbered from 0 in the
/// order in which they first appear, and streams of different traces stay apart. Of requests that
/// arrive at the same instant the earlier source comes first.
#[must_use]
pub fn merge(sources: Vec<Box<dyn Source>>) -> Merge {
    let part = |(index, source): (usize, _)| Part {
        source,
        batch: Vec::with_capacity(BATCH),
        next: 0,
        ended: false,
        devices: Vec::new(),
        stream: (index as u32).wrapping_mul(0x9e37_79b9),
    };
    Merge { parts: sources.into_iter().enumerate().map(part).collect(), devices: 0 }
}

impl Merge {
    /// Devices that appeared so far.
    #[must_use]
    pub fn devices(&self) -> u32 {
        self.devices
    }

    /// The part whose next request is the earliest.
    fn earliest(&mut self) -> Result<Option<usize>, TraceError> {
        let mut best = None;
        for (index, part) in self.parts.iter_mut().enumerate() {
            if let Some(at) = part.head()?
                && best.is_none_or(|(earliest, _)| at < earliest)
            {
                best = Some((at, index));
            }
        }
        Ok(best.map(|(_, index)| index))
    }

    fn take(&mut self, index: usize) -> Result<Request, TraceError> {
        let part = &mut self.parts[index];
        let request = part.batch[part.next];
        part.next += 1;
        let old = usize::from(request.device);
        if part.devices.len() <= old {
            part.devices.resize(old + 1, UNSEEN);
        }
        if part.devices[old] == UNSEEN {
            part.devices[old] = self.devices;
            self.devices += 1;
        }
        let device = u16::try_from(part.devices[old]).map_err(|_| TraceError::Format {
            file: "the merged traces".to_owned(),
            reason: "they have more than 65536 devices together".to_owned(),
        })?;
        Ok(Request { device, stream: request.stream.wrapping_add(part.stream), ..request })
    }
}

impl Source for Merge {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<(), TraceError> {
        let full = batch.len() + BATCH;
        while batch.len() < full
            && let Some(index) = self.earliest()?
        {
            batch.push(self.take(index)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::tests::{all, at, given};
    use proptest::prelude::*;

    fn on(micros: u64, device: u16) -> Request {
        Request { device, stream: u32::from(device), ..at(micros) }
    }

    #[test]
    fn each_trace_has_devices_of_its_own() {
        let first = given([on(0, 4), on(20, 3), on(40, 4)]);
        let second = given([on(10, 4), on(20, 0)]);
        let mut merged = merge(vec![Box::new(first), Box::new(second)]);
        let all = all(&mut merged).unwrap();
        let devices: Vec<_> = all.iter().map(|r| (r.at.0 / 1000, r.device)).collect();
        assert_eq!(devices, [(0, 0), (10, 1), (20, 2), (20, 3), (40, 0)]);
        assert_ne!(all[0].stream, all[1].stream);
        assert_eq!(merged.devices(), 4);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_order_holds(
            lists in prop::collection::vec(prop::collection::vec(0..1000_u64, 0..200), 0..5),
        ) {
            let mut expected: Vec<u64> = lists.concat();
            expected.sort_unstable();
            let boxed = |mut list: Vec<u64>| {
                list.sort_unstable();
                Box::new(given(list.into_iter().map(at))) as Box<dyn Source>
            };
            let merged = all(&mut merge(lists.into_iter().map(boxed).collect())).unwrap();
            let times: Vec<_> = merged.iter().map(|request| request.at.0 / 1000).collect();
            prop_assert_eq!(times, expected);
        }
    }
}
