//! Which requests go on where another ended.

/// Ends remembered per device: as many interleaved sequential streams are told apart.
const ENDS: usize = 32;

/// The latest ends of one device, in a ring.
#[derive(Clone)]
struct Ends {
    ends: [u64; ENDS],
    next: usize,
}

/// Tells sequential requests from random ones: one is sequential if it starts where one of the
/// last 32 requests of its device ended. Devices take about 270 bytes each.
#[derive(Clone, Default)]
pub(crate) struct Sequence {
    devices: Vec<Option<Box<Ends>>>,
}

impl Sequence {
    /// Whether a request is sequential; remembers its end.
    pub(crate) fn push(&mut self, device: u16, offset: u64, bytes: u32) -> bool {
        let device = usize::from(device);
        if self.devices.len() <= device {
            self.devices.resize(device + 1, None);
        }
        let empty = || Box::new(Ends { ends: [u64::MAX; ENDS], next: 0 });
        let Ends { ends, next } = &mut **self.devices[device].get_or_insert_with(empty);
        let end = offset.saturating_add(u64::from(bytes));
        match ends.iter().position(|end| *end == offset) {
            Some(found) => {
                // The stream keeps its place.
                ends[found] = end;
                true
            }
            None => {
                ends[*next] = end;
                *next = (*next + 1) % ENDS;
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaved_streams_are_sequential_each() {
        let mut sequence = Sequence::default();
        let mut sequential = 0;
        for step in 0..100_u64 {
            for stream in 0..8_u64 {
                let offset = stream * (1 << 30) + step * 4096;
                sequential += u64::from(sequence.push((stream % 2) as u16, offset, 4096));
            }
        }
        assert_eq!(sequential, 8 * 99);
    }

    #[test]
    fn the_same_place_again_is_not_sequential() {
        let mut sequence = Sequence::default();
        assert!(!(0..10).any(|_| sequence.push(0, 4096, 4096)));
    }
}
