//! The read cache: which blocks are in memory, as a 4-way set-associative table of tags.

use super::prefetch::prefetch;
use crate::profile::Cache;

const WAYS: usize = 4;

/// The blocks held; each set keeps its blocks most recently used first.
#[derive(Debug)]
pub(super) struct ReadCache {
    sets: Vec<[u32; WAYS]>,
    block_shift: u32,
}

impl ReadCache {
    pub(super) fn new(cache: &Cache) -> Self {
        let block = cache.block.0;
        let sets = (cache.size.0 / block / WAYS as u64).max(1).next_power_of_two();
        Self { sets: vec![[0; WAYS]; sets as usize], block_shift: block.trailing_zeros() }
    }

    /// Whether the first and last blocks of a range are held; afterwards they are.
    pub(super) fn touch(&mut self, address: u64, bytes: u32) -> bool {
        let first = address >> self.block_shift;
        let last = (address + u64::from(bytes.max(1)) - 1) >> self.block_shift;
        let hit = self.touch_block(first);
        // The block just touched is held.
        hit & (first == last || self.touch_block(last))
    }

    fn touch_block(&mut self, block: u64) -> bool {
        let mixed = mixed(block);
        let index = self.set(mixed);
        let set = &mut self.sets[index];
        // 0 stands for an empty way. The set index takes other bits of the same product.
        let tag = (mixed as u32 ^ (block as u32).rotate_left(16)) | 1;
        let found = set.iter().position(|way| *way == tag);
        let last = found.unwrap_or(WAYS - 1);
        set.copy_within(0..last, 1);
        set[0] = tag;
        found.is_some()
    }

    fn set(&self, mixed: u64) -> usize {
        (mixed >> 32) as usize & (self.sets.len() - 1)
    }

    /// Has the processor fetch the set of a block that will be touched soon.
    pub(super) fn prefetch(&self, address: u64) {
        prefetch(&self.sets[self.set(mixed(address >> self.block_shift))]);
    }
}

fn mixed(block: u64) -> u64 {
    block.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use ebb_policy::units::Bytes;

    use super::*;

    fn cache(size: u64) -> ReadCache {
        ReadCache::new(&Cache { size: Bytes(size), block: Bytes(4096), write_buffer: Bytes(0) })
    }

    #[test]
    fn a_working_set_that_fits_is_held() {
        let mut cache = cache(64 << 20);
        for block in 0..1000u64 {
            assert!(!cache.touch(block * 4096, 4096));
        }
        let hits = (0..1000u64).filter(|block| cache.touch(block * 4096 + 7, 512)).count();
        assert!(hits >= 990, "{hits}");
    }

    #[test]
    fn a_working_set_that_does_not_fit_is_mostly_missed() {
        let mut cache = cache(1 << 20);
        for _ in 0..2 {
            for block in 0..100_000u64 {
                cache.touch(block * 4096, 4096);
            }
        }
        let hits = (0..100_000u64).filter(|block| cache.touch(block * 4096, 4096)).count();
        assert!(hits < 1000, "{hits}");
    }
}
