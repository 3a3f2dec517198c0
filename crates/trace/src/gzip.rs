//! gzip (RFC 1952): members one after the other, and zeros that fill up a block at the end, as
//! tapes and copies by block leave them. gzip itself takes both.

use std::io::{self, BufRead, Read};

use flate2::bufread::GzDecoder;

/// All members as one stream.
pub(crate) struct Gzip<R> {
    /// The present member; `None` at the end.
    member: Option<GzDecoder<R>>,
}

impl<R: BufRead> Gzip<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { member: Some(GzDecoder::new(from)) }
    }
}

impl<R: BufRead> Read for Gzip<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(to)?;
            if read > 0 || to.is_empty() {
                return Ok(read);
            }
            if is_padding(member.get_mut())? {
                self.member = None;
            } else if let Some(ended) = self.member.take() {
                self.member = Some(GzDecoder::new(ended.into_inner()));
            }
        }
        Ok(0)
    }
}

/// Passes over zeros; whether nothing comes after them.
fn is_padding(from: &mut impl BufRead) -> io::Result<bool> {
    loop {
        let there = from.fill_buf()?;
        if there.is_empty() {
            return Ok(true);
        }
        let zeros = there.iter().position(|byte| *byte != 0);
        let used = zeros.unwrap_or(there.len());
        from.consume(used);
        if zeros.is_some() {
            return Ok(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Write};

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn packed(text: &str) -> Vec<u8> {
        let mut to = GzEncoder::new(Vec::new(), Compression::default());
        to.write_all(text.as_bytes()).unwrap();
        to.finish().unwrap()
    }

    fn read(bytes: &[u8]) -> io::Result<String> {
        let mut text = String::new();
        Gzip::new(BufReader::with_capacity(7, bytes)).read_to_string(&mut text).map(|_| text)
    }

    #[test]
    fn members_and_padding_are_read_to_the_end() {
        let two = [packed("one "), packed(""), packed("two")].concat();
        assert_eq!(read(&two).unwrap(), "one two");
        assert_eq!(read(&[&two[..], &[0; 512]].concat()).unwrap(), "one two");
        assert!(read(&[&two[..], b"more"].concat()).is_err(), "other bytes are no padding");
        assert!(read(&[&two[..], &[0; 512], b"more"].concat()).is_err());
        let cut = read(&two[..two.len() - 9]).unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
    }
}
