//! Rows of numbers kept on disk while runs go on, so that memory stays flat for runs of any
//! length: a temporary file without a name, gone with the process however that ends.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};

/// Rows of `width` numbers; NaN stands for a missing one.
#[derive(Debug)]
pub struct Spool {
    to: BufWriter<File>,
    width: usize,
    rows: u64,
    /// The first failure; told when the rows are read back.
    failed: Option<io::Error>,
}

impl Spool {
    /// An empty one.
    ///
    /// # Errors
    /// When there is no room for a temporary file.
    pub fn new(width: usize) -> io::Result<Self> {
        let to = BufWriter::with_capacity(1 << 16, tempfile::tempfile()?);
        Ok(Self { to, width, rows: 0, failed: None })
    }

    /// Appends a row.
    pub fn push(&mut self, row: &[f64]) {
        debug_assert_eq!(row.len(), self.width);
        if self.failed.is_some() {
            return;
        }
        let written = row.iter().try_for_each(|value| self.to.write_all(&value.to_le_bytes()));
        self.rows += 1;
        self.failed = written.err();
    }

    /// How many there are.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Calls `each` with every row, in order.
    ///
    /// # Errors
    /// When a row could not be written or read back, or `each` fails.
    pub fn each(&mut self, mut each: impl FnMut(&[f64]) -> io::Result<()>) -> io::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.to.flush()?;
        let file = self.to.get_mut();
        file.rewind()?;
        let mut from = BufReader::with_capacity(1 << 16, file);
        let mut bytes = vec![0; self.width * 8];
        let mut row = vec![0.0; self.width];
        for _ in 0..self.rows {
            from.read_exact(&mut bytes)?;
            for (value, bytes) in row.iter_mut().zip(bytes.as_chunks().0) {
                *value = f64::from_le_bytes(*bytes);
            }
            each(&row)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_as_often_as_asked() {
        let mut spool = Spool::new(3).unwrap();
        for number in 0..10_000 {
            spool.push(&[f64::from(number), f64::NAN, -0.5]);
        }
        for _ in 0..2 {
            let mut next = 0.0;
            spool
                .each(|row| {
                    assert_eq!((row[0], row[2]), (next, -0.5));
                    assert!(row[1].is_nan());
                    next += 1.0;
                    Ok(())
                })
                .unwrap();
            assert_eq!(next, 10_000.0);
        }
        assert_eq!(spool.rows(), 10_000);
    }
}
