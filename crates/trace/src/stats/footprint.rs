//! How much of the devices a trace touches, in bounded memory.

use std::collections::HashSet;

/// Bits of the hash that choose a register: 2^14 registers, a standard error of 0.8 %.
const BITS: u32 = 14;
/// Blocks that are counted one by one.
const FEW: usize = 1 << 14;
const REGISTERS: usize = 1 << BITS;
/// What counts as one place.
const BLOCK: u64 = 4096;

/// Counts different 4 KiB blocks with HyperLogLog (Flajolet et al., 2007): 16 KiB of memory,
/// standard error 1.04 / sqrt(2^14) = 0.8 %, linear counting where few registers are used; exact
/// while blocks are few.
#[derive(Clone)]
pub(crate) struct Footprint {
    /// The blocks themselves, while they are few.
    few: Option<HashSet<(u16, u64)>>,
    registers: Box<[u8]>,
}

impl Default for Footprint {
    fn default() -> Self {
        Self { few: Some(HashSet::new()), registers: vec![0; REGISTERS].into_boxed_slice() }
    }
}

impl Footprint {
    /// Counts the blocks that a request touches.
    pub(crate) fn push(&mut self, device: u16, offset: u64, bytes: u32) {
        let last = offset.saturating_add(u64::from(bytes).saturating_sub(1)) / BLOCK;
        for block in offset / BLOCK..=last {
            if let Some(few) = &mut self.few {
                few.insert((device, block));
                if few.len() > FEW {
                    self.few = None;
                }
            }
            self.add(block ^ (u64::from(device) << 48));
        }
    }

    fn add(&mut self, key: u64) {
        let hash = mixed(key);
        let register = (hash >> (64 - BITS)) as usize;
        let rank = (hash << BITS | 1 << (BITS - 1)).leading_zeros() as u8 + 1;
        self.registers[register] = self.registers[register].max(rank);
    }

    /// Whether the blocks were few enough to be counted one by one.
    pub(crate) fn is_exact(&self) -> bool {
        self.few.is_some()
    }

    /// The bytes of the blocks, or an estimate.
    pub(crate) fn bytes(&self) -> u64 {
        if let Some(few) = &self.few {
            return few.len() as u64 * BLOCK;
        }
        let count = REGISTERS as f64;
        let alpha = 0.7213 / (1.0 + 1.079 / count);
        let sum: f64 = self.registers.iter().map(|rank| (-f64::from(*rank)).exp2()).sum();
        let estimate = alpha * count * count / sum;
        let unused = self.registers.iter().filter(|rank| **rank == 0).count();
        let blocks = if estimate <= 2.5 * count && unused > 0 {
            count * (count / unused as f64).ln()
        } else {
            estimate
        };
        blocks.round() as u64 * BLOCK
    }
}

/// SplitMix64 (Steele et al., 2014): spreads neighbouring blocks over all registers.
fn mixed(key: u64) -> u64 {
    let mut value = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_lie_within_four_standard_errors() {
        for blocks in [0_u64, 1, 100, 10_000, 50_000, 1_000_000] {
            let mut footprint = Footprint::default();
            for block in 0..blocks {
                footprint.push((block % 3) as u16, block / 3 * BLOCK, 4096);
                footprint.push((block % 3) as u16, block / 3 * BLOCK, 512);
            }
            let estimate = footprint.bytes() / BLOCK;
            let error = (estimate as f64 - blocks as f64).abs();
            let bound = if footprint.is_exact() { 0.0 } else { 0.032 * blocks as f64 };
            assert_eq!(footprint.is_exact(), blocks < 16_384);
            assert!(error <= bound, "{estimate} for {blocks}");
        }
    }

    #[test]
    fn requests_touch_every_block_they_reach_into() {
        let mut footprint = Footprint::default();
        footprint.push(0, 4095, 2);
        assert_eq!(footprint.bytes(), 2 * BLOCK);
        footprint.push(0, 0, 1 << 20);
        assert!(footprint.bytes().abs_diff(1 << 20) <= 3 * BLOCK, "{}", footprint.bytes());
    }
}
