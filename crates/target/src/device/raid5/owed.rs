//! What could not go to its place before the array stopped writing.
//!
//! It is durable in the journals, so the next assembly carries it out. Until then reads see it as
//! if it were in place: other blocks of the same rows may only follow from it.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

#[derive(Debug)]
struct Rows {
    role: usize,
    stripe: u64,
    start: usize,
    bytes: Vec<u8>,
}

/// Rows of members, in no order: those of one stripe do not overlap, as they are held by one write.
#[derive(Debug, Default)]
pub(super) struct Owed(Mutex<Vec<Rows>>);

impl Owed {
    pub(super) fn add(&self, role: usize, stripe: u64, start: usize, bytes: &[u8]) {
        let mut owed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        owed.push(Rows { role, stripe, start, bytes: bytes.to_vec() });
    }

    /// Puts what is owed to a member into `data`, these rows as they were read from it.
    pub(super) fn patch(&self, role: usize, stripe: u64, rows: &Range<usize>, data: &mut [u8]) {
        let owed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for one in owed.iter().filter(|one| (one.role, one.stripe) == (role, stripe)) {
            let from = one.start.max(rows.start);
            let to = (one.start + one.bytes.len()).min(rows.end);
            if from < to {
                data[from - rows.start..to - rows.start]
                    .copy_from_slice(&one.bytes[from - one.start..to - one.start]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_owed_covers_what_was_read() {
        let owed = Owed::default();
        owed.add(1, 7, 4, &[9; 4]);
        let read = |role, stripe, rows: Range<usize>| {
            let mut data = vec![0; rows.len()];
            owed.patch(role, stripe, &rows, &mut data);
            data
        };
        assert_eq!(read(1, 7, 2..6), [0, 0, 9, 9]);
        assert_eq!(read(1, 7, 6..10), [9, 9, 0, 0]);
        assert_eq!(read(1, 7, 5..7), [9, 9]);
        assert_eq!([read(0, 7, 4..6), read(1, 8, 4..6), read(1, 7, 8..10)], [[0, 0]; 3]);
    }
}
