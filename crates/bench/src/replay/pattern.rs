//! The paper's access patterns (section 3.1): what each of several processes asks of the server.
//!
//! Contiguous: process p of P reads or writes its own part of the file, from p × size on, one
//! request after the other. One-dimensional strided: the requests of all processes alternate, so
//! process p has every P-th one, beginning with the p-th. Either way all of them together cover
//! the file once. "32KB", "4MB" and "3GB" are taken as binary multiples, as file systems have
//! them.

use ebb_cli::random::Random;
use ebb_trace::Op;

use super::args::{Direction, Pattern};

/// Requests of a pattern.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Where they are.
    pub pattern: Pattern,
    /// What they do.
    pub direction: Direction,
    /// Bytes of each.
    pub request: u64,
    /// Requests of each stream.
    pub count: u64,
    /// Streams.
    pub streams: u64,
    /// Seed of random places and kinds.
    pub seed: u64,
}

impl Shape {
    /// Bytes of the target that all streams together use.
    pub fn extent(&self) -> Option<u64> {
        self.request.checked_mul(self.count)?.checked_mul(self.streams)
    }

    /// Operation and offset of the requests of `stream`, in order.
    pub fn stream(self, stream: u64) -> impl Iterator<Item = (Op, u64)> {
        let mut random = Random::new(self.seed, 0x400 + stream);
        (0..self.count).map(move |index| {
            let unit = match self.pattern {
                Pattern::Contiguous => stream * self.count + index,
                Pattern::Strided => index * self.streams + stream,
                Pattern::Random => random.below(self.count * self.streams),
            };
            let op = match self.direction {
                Direction::Read => Op::Read,
                Direction::Write => Op::Write,
                Direction::Rw if random.happens(0.5) => Op::Read,
                Direction::Rw => Op::Write,
            };
            (op, unit * self.request)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn shape(pattern: Pattern, request: u64, count: u64, streams: u64) -> Shape {
        Shape { pattern, direction: Direction::Read, request, count, streams, seed: 1 }
    }

    fn offsets(shape: Shape, stream: u64) -> Vec<u64> {
        shape.stream(stream).map(|(_, offset)| offset).collect()
    }

    #[test]
    fn two_processes_are_those_of_the_paper() {
        const MIB: u64 = 1 << 20;
        let contiguous = shape(Pattern::Contiguous, 4 * MIB, 768, 2); // 3 GiB each
        assert_eq!(contiguous.extent(), Some(6 << 30));
        assert_eq!(offsets(contiguous, 0)[..3], [0, 4 * MIB, 8 * MIB]);
        assert_eq!(offsets(contiguous, 1)[0], 3 << 30);
        let strided = shape(Pattern::Strided, 4 * MIB, 768, 2);
        assert_eq!(offsets(strided, 0)[..3], [0, 8 * MIB, 16 * MIB]);
        assert_eq!(offsets(strided, 1)[..2], [4 * MIB, 12 * MIB]);
        assert_eq!(offsets(strided, 1).last(), Some(&((6 << 30) - 4 * MIB)));
    }

    proptest! {
        /// Whatever the numbers: the streams cover the whole once; random ones stay within it.
        #[test]
        fn streams_cover_everything_once(
            request in 1_u64..10, count in 1_u64..50, streams in 1_u64..9, strided: bool,
        ) {
            let pattern = if strided { Pattern::Strided } else { Pattern::Contiguous };
            let shape = shape(pattern, request * 512, count, streams);
            let all: Vec<u64> = (0..streams).flat_map(|stream| offsets(shape, stream)).collect();
            let unit = request * 512;
            let wanted: BTreeSet<u64> = (0..count * streams).map(|number| number * unit).collect();
            prop_assert_eq!(all.len() as u64, count * streams);
            prop_assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), wanted);
            let random = Shape { pattern: Pattern::Random, direction: Direction::Rw, ..shape };
            let end = shape.extent().unwrap();
            let inside = |(_, offset): (Op, u64)| {
                offset.is_multiple_of(request * 512) && offset + request * 512 <= end
            };
            prop_assert!((0..streams).all(|stream| random.stream(stream).all(inside)));
        }
    }
}
