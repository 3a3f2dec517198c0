//! What a connection has to send: headers in one piece of memory, data where it is, gathered
//! into as few system calls as the socket takes.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

use crate::device::Buffer;

/// Pieces given to one system call; Linux takes up to 1024.
const GATHER: usize = 64;
/// Sent header bytes that are kept before they are thrown away.
const KEEP: usize = 64 << 10;

#[derive(Debug)]
enum Segment {
    /// Bytes of `Sender::heads`.
    Head(usize),
    Data(Buffer),
}

/// The bytes on their way to one peer, in order.
#[derive(Debug, Default)]
pub(super) struct Sender {
    heads: Vec<u8>,
    /// Bytes of `heads` that are sent.
    heads_sent: usize,
    segments: VecDeque<Segment>,
    /// Bytes of the first segment that are sent, if that is data.
    data_sent: usize,
}

impl Sender {
    /// Appends what `put` writes: headers and small data.
    pub fn put(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        let before = self.heads.len();
        put(&mut self.heads);
        let added = self.heads.len() - before;
        match self.segments.back_mut() {
            Some(Segment::Head(length)) => *length += added,
            _ if added > 0 => self.segments.push_back(Segment::Head(added)),
            _ => {}
        }
    }

    /// Appends the content of `buffer`.
    pub fn put_data(&mut self, buffer: Buffer) {
        if !buffer.is_empty() {
            self.segments.push_back(Segment::Data(buffer));
        }
    }

    /// Whether all is sent.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Pieces not yet sent: what a peer that does not read makes us keep.
    pub fn backlog(&self) -> usize {
        self.segments.len()
    }

    /// Sends what `socket` takes. Returns whether all is sent.
    ///
    /// # Errors
    /// Those of the socket, but for "would block".
    pub fn flush(&mut self, socket: &mut impl Write) -> io::Result<bool> {
        while !self.segments.is_empty() {
            let (wanted, sent) = self.send_some(socket);
            match sent {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => {
                    self.advance(sent);
                    if sent < wanted {
                        return Ok(false);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// One system call: the bytes offered and what came of it.
    fn send_some(&self, socket: &mut impl Write) -> (usize, io::Result<usize>) {
        let mut slices = [IoSlice::new(&[]); GATHER];
        let (mut count, mut wanted) = (0, 0);
        let (mut head, mut skip) = (self.heads_sent, self.data_sent);
        for (slice, segment) in slices.iter_mut().zip(&self.segments) {
            let bytes = match segment {
                Segment::Head(length) => {
                    head += length;
                    &self.heads[head - length..head]
                }
                Segment::Data(buffer) => &buffer[std::mem::take(&mut skip)..],
            };
            *slice = IoSlice::new(bytes);
            wanted += bytes.len();
            count += 1;
        }
        (wanted, socket.write_vectored(&slices[..count]))
    }

    fn advance(&mut self, mut sent: usize) {
        while sent > 0 {
            match self.segments.front_mut() {
                Some(Segment::Head(length)) if *length > sent => {
                    *length -= sent;
                    self.heads_sent += sent;
                    return;
                }
                Some(Segment::Head(length)) => {
                    sent -= *length;
                    self.heads_sent += *length;
                }
                Some(Segment::Data(buffer)) if buffer.len() - self.data_sent > sent => {
                    self.data_sent += sent;
                    return;
                }
                Some(Segment::Data(buffer)) => {
                    sent -= buffer.len() - self.data_sent;
                    self.data_sent = 0;
                }
                None => unreachable!("more was sent than there was"),
            }
            self.segments.pop_front();
        }
        if self.segments.is_empty() || self.heads_sent > KEEP {
            self.heads.drain(..self.heads_sent);
            self.heads_sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::device::Pool;

    /// A socket that takes what it likes, at times nothing.
    struct Fickle {
        taken: Vec<u8>,
        appetite: Vec<usize>,
    }

    impl Write for Fickle {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            match self.appetite.pop() {
                Some(0) => Err(io::ErrorKind::WouldBlock.into()),
                Some(appetite) if appetite % 7 == 0 => Err(io::ErrorKind::Interrupted.into()),
                appetite => {
                    let taken = appetite.unwrap_or(usize::MAX).min(bytes.len());
                    self.taken.extend_from_slice(&bytes[..taken]);
                    Ok(taken)
                }
            }
        }
        fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
            self.write(&all)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn the_peer_gets_every_byte_once_and_in_order(
            pieces in prop::collection::vec((any::<bool>(), 0_usize..300), 0..100),
            appetite in prop::collection::vec(0_usize..500, 0..60),
        ) {
            let pool = Pool::new(100, 300);
            let (mut sender, mut expected) = (Sender::default(), Vec::new());
            let mut socket = Fickle { taken: Vec::new(), appetite };
            for (index, (is_data, length)) in pieces.into_iter().enumerate() {
                let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + index) as u8).collect();
                expected.extend_from_slice(&bytes);
                if is_data {
                    let mut buffer = pool.take(length).unwrap();
                    buffer.copy_from_slice(&bytes);
                    sender.put_data(buffer);
                } else {
                    sender.put(|out| out.extend_from_slice(&bytes));
                }
                if index % 5 == 0 {
                    sender.flush(&mut socket).unwrap();
                }
            }
            while !sender.flush(&mut socket).unwrap() {}
            prop_assert_eq!(socket.taken, expected);
            prop_assert!(sender.is_empty() && sender.heads.is_empty());
            prop_assert_eq!(pool.available(), 100);
        }
    }
}
