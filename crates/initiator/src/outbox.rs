//! What waits to be sent: headers and pieces of the commands' data, in one vectored send.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice};

use super::link::Line;
use super::slot::Slots;

/// Pieces handed to the kernel at once.
const PIECES: usize = 64;

#[derive(Debug, Clone, Copy)]
enum Part {
    /// So many bytes of `Outbox::bytes`.
    Bytes(usize),
    /// A range of a command's data.
    Data { slot: u16, at: usize, end: usize },
}

/// Bytes to send, in order. Data is not copied: it stays in its command's slot until it is sent.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    /// Where the bytes of the first part begin.
    start: usize,
    parts: VecDeque<Part>,
    /// The connection has taken bytes and not sent them.
    is_held: bool,
}

impl Outbox {
    pub fn with_capacity(depth: usize) -> Self {
        let bytes = Vec::with_capacity(depth * 128);
        Self { bytes, start: 0, parts: VecDeque::with_capacity(depth * 4), is_held: false }
    }
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty() && !self.is_held
    }
    pub fn parts(&self) -> usize {
        self.parts.len()
    }
    /// Appends what `put` writes.
    pub fn put(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        let before = self.bytes.len();
        put(&mut self.bytes);
        let length = self.bytes.len() - before;
        match self.parts.back_mut() {
            Some(Part::Bytes(last)) => *last += length,
            _ => self.parts.push_back(Part::Bytes(length)),
        }
    }
    /// Appends a range of a command's data; the caller counts it in the slot's `unsent`.
    pub fn put_data(&mut self, slot: u16, at: usize, end: usize) {
        self.parts.push_back(Part::Data { slot, at, end });
    }

    /// Sends what the socket takes.
    pub fn flush(&mut self, stream: &mut Line, slots: &mut Slots) -> io::Result<()> {
        while !self.parts.is_empty() {
            let mut slices = [IoSlice::new(&[]); PIECES];
            let count = self.gather(slots, &mut slices);
            match stream.write_vectored(&slices[..count]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(sent) => self.sent(sent, slots),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.is_held = !stream.flush()?;
        Ok(())
    }

    fn gather<'a>(&'a self, slots: &'a Slots, slices: &mut [IoSlice<'a>]) -> usize {
        let mut start = self.start;
        let mut count = 0;
        for (part, slice) in self.parts.iter().zip(slices) {
            *slice = IoSlice::new(match *part {
                Part::Bytes(length) => {
                    start += length;
                    &self.bytes[start - length..start]
                }
                Part::Data { slot, at, end } => &slots.data(slot)[at..end],
            });
            count += 1;
        }
        count
    }

    /// Takes what was sent off the front.
    fn sent(&mut self, mut sent: usize, slots: &mut Slots) {
        while sent > 0 {
            let Some(part) = self.parts.front_mut() else { break };
            let (length, bytes) = match part {
                Part::Bytes(length) => (*length, true),
                Part::Data { at, end, .. } => (*end - *at, false),
            };
            let now = sent.min(length);
            sent -= now;
            self.start += if bytes { now } else { 0 };
            match part {
                Part::Bytes(length) => *length -= now,
                Part::Data { at, .. } => *at += now,
            }
            if now == length {
                if let Part::Data { slot, .. } = *part {
                    slots.at(slot).unsent -= 1;
                }
                self.parts.pop_front();
            }
        }
        // Under back-pressure the box may never be empty: what was sent goes once it is half.
        if self.parts.is_empty() {
            self.bytes.clear();
            self.start = 0;
        } else if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }
}
