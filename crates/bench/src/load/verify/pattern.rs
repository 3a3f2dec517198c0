//! The content of a block: who wrote it, where, when, and bytes that follow from that.

use ebb_cli::random::scatter;

/// Marks the blocks of `ebb load`.
const MAGIC: [u8; 8] = *b"EBB LOAD";
/// Bytes before those that follow from the stamp: magic, run, LBA, namespace, generation,
/// CRC32C of all other bytes of the block, size of the block.
const HEAD: usize = 40;
/// Where the checksum is.
const CHECKSUM: std::ops::Range<usize> = 32..36;
/// 2^64 divided by the golden ratio.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// What a block says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The run that wrote it; follows from its seed and start.
    pub run: u64,
    /// Namespace.
    pub namespace: u32,
    /// Logical block address.
    pub lba: u64,
    /// How often this run has written this block.
    pub generation: u32,
}

impl Stamp {
    /// Fills a block.
    pub fn write(&self, block: &mut [u8]) {
        let size = block.len() as u32;
        let (head, body) = block.split_at_mut(HEAD);
        head.copy_from_slice(&self.head(size));
        for (chunk, word) in body.as_chunks_mut::<8>().0.iter_mut().zip(self.words()) {
            *chunk = word.to_le_bytes();
        }
        let checksum = checksum(block);
        block[CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    }

    /// The stamp of a block that is whole: one that some run of `ebb load` wrote.
    pub fn read(block: &[u8]) -> Option<Self> {
        let stamp = Self::claimed(block)?;
        stamp.first_difference(block).is_none().then_some(stamp)
    }

    /// What a block claims to be, whole or not.
    pub fn claimed(block: &[u8]) -> Option<Self> {
        let u64_at = |at: usize| Some(u64::from_le_bytes(*block.get(at..)?.first_chunk()?));
        let u32_at = |at: usize| Some(u32::from_le_bytes(*block.get(at..)?.first_chunk()?));
        let (run, lba) = (u64_at(8)?, u64_at(16)?);
        let (namespace, generation) = (u32_at(24)?, u32_at(28)?);
        block.starts_with(&MAGIC).then_some(Self { run, namespace, lba, generation })
    }

    /// The first byte in which a block differs from what this stamp makes.
    pub fn first_difference(&self, block: &[u8]) -> Option<usize> {
        let head = self.head(block.len() as u32);
        let differs = |at: usize| !CHECKSUM.contains(&at) && head[at] != block[at];
        if let Some(at) = (0..HEAD).find(|at| differs(*at)) {
            return Some(at);
        }
        let body = block[HEAD..].as_chunks::<8>().0;
        for (index, (found, word)) in body.iter().zip(self.words()).enumerate() {
            if u64::from_le_bytes(*found) != word {
                let wanted = word.to_le_bytes();
                let byte = (0..8).find(|byte| found[*byte] != wanted[*byte]).unwrap_or(0);
                return Some(HEAD + index * 8 + byte);
            }
        }
        (block[CHECKSUM] != checksum(block).to_le_bytes()).then_some(CHECKSUM.start)
    }

    fn head(&self, size: u32) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        head[..8].copy_from_slice(&MAGIC);
        head[8..16].copy_from_slice(&self.run.to_le_bytes());
        head[16..24].copy_from_slice(&self.lba.to_le_bytes());
        head[24..28].copy_from_slice(&self.namespace.to_le_bytes());
        head[28..32].copy_from_slice(&self.generation.to_le_bytes());
        head[36..].copy_from_slice(&size.to_le_bytes());
        head
    }

    /// The bytes after the head, eight at a time.
    fn words(&self) -> impl Iterator<Item = u64> + use<> {
        let who = u64::from(self.namespace) << 32 | u64::from(self.generation);
        let base = scatter(self.run ^ scatter(self.lba ^ scatter(who)));
        (0_u64..).map(move |index| {
            let word = base.wrapping_add(index.wrapping_mul(GOLDEN));
            (word ^ (word >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
        })
    }
}

fn checksum(block: &[u8]) -> u32 {
    let before = crc32c::crc32c(&block[..CHECKSUM.start]);
    crc32c::crc32c_append(before, &block[CHECKSUM.end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_says_what_it_is() {
        for size in [512, 4096, 65536] {
            let stamp = Stamp { run: 7, namespace: 2, lba: 1 << 40, generation: 9 };
            let mut block = vec![0; size];
            stamp.write(&mut block);
            assert_eq!(Stamp::read(&block), Some(stamp));
            let zeros = block.iter().filter(|byte| **byte == 0).count();
            assert!(zeros < size / 64 + 40, "{zeros} zeros");
        }
    }

    #[test]
    fn every_flipped_bit_is_found_where_it_is() {
        let stamp = Stamp { run: 7, namespace: 2, lba: 5, generation: 9 };
        let mut block = vec![0; 512];
        stamp.write(&mut block);
        for bit in 0..512 * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            let at = stamp.first_difference(&block).unwrap();
            let expected = if CHECKSUM.contains(&(bit / 8)) { CHECKSUM.start } else { bit / 8 };
            assert_eq!(at, expected);
            assert_ne!(Stamp::read(&block), Some(stamp));
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn other_stamps_make_other_blocks() {
        let stamp = Stamp { run: 7, namespace: 2, lba: 5, generation: 9 };
        let mut block = vec![0; 512];
        stamp.write(&mut block);
        for other in [
            Stamp { run: 8, ..stamp },
            Stamp { namespace: 3, ..stamp },
            Stamp { lba: 6, ..stamp },
            Stamp { generation: 8, ..stamp },
        ] {
            let mut second = vec![0; 512];
            other.write(&mut second);
            let same = block[HEAD..].iter().zip(&second[HEAD..]).filter(|(a, b)| a == b).count();
            assert!(same < 20, "{other:?}: {same} equal bytes");
        }
    }
}
