//! What writes write: bytes that cannot be compressed, and in each 4 KiB a stamp by which later
//! replays know a file for their own.

/// Stamps stand at multiples of this.
pub const BLOCK: u64 = 4096;
/// Marks the blocks of `ebb replay`; after it comes the offset.
const MAGIC: [u8; 8] = *b"EBBREPLY";
/// Bytes of a stamp.
pub const STAMP: usize = 16;

/// Stamps the blocks of a buffer that is written to `offset`.
#[inline]
pub fn stamp(buffer: &mut [u8], offset: u64) {
    let first = offset.next_multiple_of(BLOCK);
    let mut at = (first - offset) as usize;
    while let Some(place) = buffer.get_mut(at..at + STAMP) {
        place[..8].copy_from_slice(&MAGIC);
        place[8..].copy_from_slice(&(offset + at as u64).to_le_bytes());
        at += BLOCK as usize;
    }
}

/// Whether these bytes, found at `offset`, begin with the stamp of a replay.
pub fn is_own(bytes: &[u8], offset: u64) -> bool {
    bytes.starts_with(&MAGIC) && bytes.get(8..STAMP) == Some(&offset.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_of_a_buffer_says_where_it_belongs() {
        let mut buffer = vec![1; 3 * 4096];
        stamp(&mut buffer, 512);
        assert!(buffer[..3584].iter().all(|byte| *byte == 1));
        for at in [3584, 3584 + 4096] {
            assert!(is_own(&buffer[at..], 512 + at as u64));
            assert!(!is_own(&buffer[at..], at as u64));
        }
        assert!(!is_own(&buffer, 512) && !is_own(&[], 0));
    }
}
