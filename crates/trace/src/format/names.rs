//! Devices that a trace names: numbered from 0 in the order in which they appear.

use std::collections::HashMap;

use super::field::Reason;

/// Numbers given to names so far.
#[derive(Default)]
pub(crate) struct Names {
    numbers: HashMap<Box<[u8]>, u16>,
    key: Vec<u8>,
    /// The key and number of the last look-up, which most often is also the next.
    last: Vec<u8>,
    last_number: u16,
}

impl Names {
    /// The number of a device whose name stands in one or more columns.
    #[inline]
    pub(crate) fn number(&mut self, parts: &[&[u8]]) -> Result<u16, Reason> {
        self.key.clear();
        for part in parts {
            self.key.extend_from_slice(part);
            self.key.push(b',');
        }
        if self.key == self.last {
            return Ok(self.last_number);
        }
        self.last_number = match self.numbers.get(self.key.as_slice()) {
            Some(number) => *number,
            None => self.add()?,
        };
        std::mem::swap(&mut self.key, &mut self.last);
        Ok(self.last_number)
    }

    #[cold]
    fn add(&mut self) -> Result<u16, Reason> {
        let number = u16::try_from(self.numbers.len())
            .map_err(|_| "more than 65536 devices in one trace".to_owned())?;
        self.numbers.insert(self.key.as_slice().into(), number);
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_the_order_of_appearance() {
        let mut names = Names::default();
        let mut number = |parts: &[&[u8]]| names.number(parts).unwrap();
        assert_eq!(number(&[b"sdb"]), 0);
        assert_eq!(number(&[b"sda"]), 1);
        assert_eq!(number(&[b"sdb"]), 0);
        assert_eq!(number(&[b"a", b"bc"]), 2);
        assert_eq!(number(&[b"ab", b"c"]), 3);
    }

    #[test]
    fn the_65537th_device_is_refused() {
        let mut names = Names::default();
        for number in 0..=u16::MAX {
            assert_eq!(names.number(&[number.to_string().as_bytes()]), Ok(number));
        }
        assert!(names.number(&[b"one more"]).unwrap_err().contains("65536"));
    }
}
