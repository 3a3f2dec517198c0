//! What a connection has to send: headers in one piece of memory, data where it is, gathered
//! into as few system calls as the socket takes.
//!
//! A peer that does not read makes us keep what is here. Data stands in buffers of the pool, of
//! which a connection gets a share; of headers, [`Sender::is_full`] says when there are enough.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

use ebb_policy::units::Nanos;

use crate::device::{Buffer, Loan, Pinned};

/// Pieces given to one system call; Linux takes up to 1024.
const GATHER: usize = 128;
/// Sent header bytes that are kept before they are thrown away.
const KEEP: usize = 16 << 10;
/// Unsent header bytes at which no more commands are taken.
const FULL: usize = 16 << 10;
/// The most header bytes of one answer: C2HData, its digests and a response with its digest.
const ANSWER: usize = 64;

#[derive(Debug)]
enum Segment {
    /// Bytes of `Sender::heads`.
    Head(usize),
    Data(Buffer),
    Lent(Loan),
}

/// The bytes on their way to one peer, in order.
#[derive(Debug, Default)]
pub(super) struct Sender {
    heads: Vec<u8>,
    /// Bytes of `heads` that are sent.
    heads_sent: usize,
    segments: VecDeque<Segment>,
    /// The socket has taken bytes and not sent them.
    is_held: bool,
    /// Segments that hold a buffer.
    buffers: u32,
    /// Bytes of the first segment that are sent, if that is data.
    data_sent: usize,
    /// The next bytes of the first segment: the rest of a lent block of which some are sent, as it
    /// was when they were.
    torn: Vec<u8>,
    /// Commands that the queue holds.
    depth: usize,
    /// Bytes ever put here, and those of them that are sent.
    put: u64,
    sent: u64,
    /// What must be sent next, and since when it has been waited for.
    awaited: Option<(u64, Nanos)>,
}

impl Sender {
    /// The most bytes of memory that a queue of `depth` commands makes it take, without buffers
    /// and the rest of one block: vectors grow by doubling.
    pub const fn most_memory(depth: usize) -> usize {
        let segments = 4 * (depth + 1) * size_of::<Segment>();
        2 * (KEEP + FULL + (depth + 1) * ANSWER) + 2 * segments
    }

    /// The queue holds so many commands.
    pub fn set_depth(&mut self, depth: u16) {
        self.depth = depth.into();
    }

    /// Appends what `put` writes: headers and what is as small.
    pub fn put(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        let before = self.heads.len();
        put(&mut self.heads);
        let added = self.heads.len() - before;
        self.put += added as u64;
        match self.segments.back_mut() {
            Some(Segment::Head(length)) => *length += added,
            _ if added > 0 => self.segments.push_back(Segment::Head(added)),
            _ => {}
        }
    }

    /// Appends the content of `buffer`.
    pub fn put_data(&mut self, buffer: Buffer) {
        if !buffer.is_empty() {
            self.put += buffer.len() as u64;
            self.buffers += 1;
            self.segments.push_back(Segment::Data(buffer));
        }
    }

    /// Appends what a device lends.
    pub fn put_loan(&mut self, loan: Loan) {
        self.put += loan.length() as u64;
        self.segments.push_back(Segment::Lent(loan));
    }

    /// Whether all is sent.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty() && !self.is_held
    }

    /// Whether no more commands may be taken before the peer has read some answers: a queue's worth
    /// of them, each a header and data, or headers enough.
    pub fn is_full(&self) -> bool {
        self.segments.len() > 2 * (self.depth + 1) || self.heads.len() - self.heads_sent >= FULL
    }

    /// Buffers held.
    pub fn buffers(&self) -> u32 {
        self.buffers
    }

    /// For how long the peer has kept us waiting: since when bytes have been here that it has not
    /// taken all of yet. To be asked now and then.
    pub fn waiting(&mut self, now: Nanos) -> Nanos {
        match self.awaited {
            Some((mark, since)) if self.sent < mark => now - since,
            _ => {
                self.awaited = (self.sent < self.put).then_some((self.put, now));
                Nanos::ZERO
            }
        }
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
                Ok(sent) if sent < wanted => return Ok(false),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let flushed = socket.flush();
        self.is_held = matches!(&flushed, Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        if self.is_held { Ok(false) } else { flushed.map(|()| true) }
    }

    /// One system call: the bytes offered and what came of it.
    fn send_some(&mut self, socket: &mut impl Write) -> (usize, io::Result<usize>) {
        let mut pins = [const { None }; GATHER];
        let pieces = pin(&self.segments, self.data_sent + self.torn.len(), &mut pins);
        let mut slices = [IoSlice::new(&[]); GATHER + 1];
        let (mut count, mut wanted) = (0, 0);
        let (mut head, mut done) = (self.heads_sent, self.data_sent);
        let mut add = |bytes| {
            slices[count] = IoSlice::new(bytes);
            (count, wanted) = (count + 1, wanted + bytes.len());
        };
        if !self.torn.is_empty() {
            add(&self.torn);
        }
        for (segment, pin) in self.segments.iter().zip(&pins).take(pieces) {
            let skip = std::mem::take(&mut done); // Of the first alone.
            add(match (segment, pin) {
                (Segment::Head(length), _) => {
                    head += length;
                    &self.heads[head - length..head]
                }
                (Segment::Data(buffer), _) => &buffer[skip..],
                (Segment::Lent(_), Some(pinned)) => pinned,
                (Segment::Lent(_), None) => &[],
            });
        }
        let result = socket.write_vectored(&slices[..count]);
        if let Ok(sent) = result {
            let torn = self.torn_by(sent, &pins);
            drop(pins);
            self.advance(sent);
            self.torn = torn.unwrap_or_default();
        }
        (wanted, result)
    }

    /// What is left, when so many bytes are sent, of the lent block that they end in.
    fn torn_by(&self, mut sent: usize, pins: &[Option<Pinned<'_>>]) -> Option<Vec<u8>> {
        if sent < self.torn.len() {
            return Some(self.torn[sent..].to_vec());
        }
        let mut done = self.data_sent;
        for (segment, pin) in self.segments.iter().zip(pins) {
            let length = match segment {
                Segment::Head(length) => *length,
                Segment::Data(buffer) => buffer.len() - std::mem::take(&mut done),
                Segment::Lent(loan) => loan.length() - std::mem::take(&mut done),
            };
            if sent >= length {
                sent -= length;
                continue;
            }
            let (Segment::Lent(loan), Some(pinned)) = (segment, pin) else { return None };
            let at = loan.length() - length + sent;
            let end = at.next_multiple_of(loan.block());
            let from = pinned.len() - (loan.length() - at);
            return Some(pinned[from..from + end - at].to_vec());
        }
        None
    }

    fn advance(&mut self, mut sent: usize) {
        self.sent += sent as u64;
        assert!(self.sent <= self.put, "more was sent than there was");
        while let Some(segment) = self.segments.front_mut() {
            let left = match segment {
                Segment::Head(length) => *length,
                Segment::Data(buffer) => buffer.len() - self.data_sent,
                Segment::Lent(loan) => loan.length() - self.data_sent,
            };
            if sent < left {
                match segment {
                    Segment::Head(length) => {
                        *length -= sent;
                        self.heads_sent += sent;
                    }
                    Segment::Data(_) | Segment::Lent(_) => self.data_sent += sent,
                }
                break;
            }
            sent -= left;
            match segment {
                Segment::Head(length) => self.heads_sent += *length,
                Segment::Data(_) => {
                    self.data_sent = 0;
                    self.buffers -= 1;
                }
                Segment::Lent(_) => self.data_sent = 0,
            }
            self.segments.pop_front();
        }
        if self.segments.is_empty() || self.heads_sent > KEEP {
            self.heads.drain(..self.heads_sent);
            self.heads_sent = 0;
        }
    }
}

/// Pins what the first segments lend, the first of them from byte `skip` on; how many segments can
/// be sent now. The first waits for who writes there; nobody else is kept waiting meanwhile.
fn pin<'a>(
    segments: &'a VecDeque<Segment>,
    mut skip: usize,
    pins: &mut [Option<Pinned<'a>>; GATHER],
) -> usize {
    for (at, (segment, pin)) in segments.iter().zip(pins.iter_mut()).enumerate() {
        if let Segment::Lent(loan) = segment {
            *pin = loan.pin(skip);
            while pin.is_none() {
                if at > 0 {
                    return at;
                }
                std::thread::yield_now();
                *pin = loan.pin(skip);
            }
        }
        skip = 0;
    }
    segments.len().min(GATHER)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::device::{Device, Geometry, Pool, Ram};

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
            pieces in prop::collection::vec((0_u8..3, 0_usize..300), 0..100),
            appetite in prop::collection::vec(0_usize..1500, 0..60),
        ) {
            let pool = Pool::new(100, 300).unwrap();
            let geometry = Geometry { block_size: 512, blocks: 300 };
            let mut disk = Ram::new(geometry, false).unwrap().open().unwrap();
            let (mut sender, mut expected) = (Sender::default(), Vec::new());
            let mut socket = Fickle { taken: Vec::new(), appetite };
            for (index, (kind, length)) in pieces.into_iter().enumerate() {
                let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + index) as u8).collect();
                if kind == 2 {
                    let blocks = 1 + length as u32 / 100;
                    sender.put_loan(disk.lend(length as u64 % 290, blocks).unwrap());
                    expected.resize(expected.len() + blocks as usize * 512, 0);
                    continue;
                }
                expected.extend_from_slice(&bytes);
                if kind == 1 {
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

    #[test]
    fn a_peer_that_reads_a_little_keeps_us_waiting_all_the_same() {
        let mut sender = Sender::default();
        let at = Nanos::from_secs;
        assert_eq!(sender.waiting(at(1)), Nanos::ZERO);
        sender.put(|out| out.extend([1; 1000]));
        assert_eq!(sender.waiting(at(2)), Nanos::ZERO);
        for second in 3..7 {
            let mut sip = Fickle { taken: Vec::new(), appetite: vec![0, 100] };
            assert!(!sender.flush(&mut sip).unwrap());
            sender.put(|out| out.extend([2; 500]));
            assert_eq!(sender.waiting(at(second)), at(second - 2));
        }
        // What was there at first is gone: what came since is another wait.
        let mut gulp = Fickle { taken: Vec::new(), appetite: vec![0, 800] };
        assert!(!sender.flush(&mut gulp).unwrap());
        assert_eq!(sender.waiting(at(8)), Nanos::ZERO);
        assert_eq!(sender.waiting(at(9)), at(1));
        sender.flush(&mut Fickle { taken: Vec::new(), appetite: vec![] }).unwrap();
        assert_eq!(sender.waiting(at(10)), Nanos::ZERO);
    }
}
