//! Requests over several drives, and what parity takes: old data and parity are read before a
//! write in place, or the rest of the stripe where that is less.

use ebb_trace::Op;

use super::Engine;
use super::io::{DriveCommand, Io};
use crate::profile::Raid;

/// The part of a write that lies in one stripe, as addresses of the volume.
#[derive(Debug, Clone, Copy)]
struct Segment {
    from: u64,
    to: u64,
    /// Whether it touches one chunk only.
    single: bool,
}

impl Segment {
    fn bytes(self) -> u64 {
        self.to - self.from
    }
}

impl Engine<'_> {
    /// Whether the drives' next turn, or the one under way, is to read what new parity follows
    /// from. Whole stripes need none of it.
    pub(super) fn reads_first(&self, io: u32) -> bool {
        let Io { op, old_read, offset, bytes, .. } = self.ios[io];
        let stripe = self.stripe_bytes();
        let whole = bytes > 0 && offset % stripe == 0 && u64::from(bytes) % stripe == 0;
        op == Op::Write && !old_read && self.profile.layout.raid != Raid::None && !whole
    }

    /// Data of a stripe.
    fn stripe_bytes(&self) -> u64 {
        let layout = &self.profile.layout;
        layout.chunk.0 * (self.array.drives() - layout.raid.parity()) as u64
    }

    /// Sends a part of `parent` to each drive it touches; of a write also new parity.
    pub(super) fn fan_out(&mut self, parent: u32, op: Op) {
        let mut end = None;
        self.for_segments(parent, |engine, segment| {
            end = end.max(engine.send_data(parent, op, segment));
            if op == Op::Write {
                end = end.max(engine.send_parity(parent, op, segment));
            }
        });
        self.sent_parts(parent, end);
    }

    /// Sends the reads that new parity follows from, stripe by stripe: old data and parity, or what
    /// the write leaves of the stripe.
    pub(super) fn read_for_parity(&mut self, parent: u32) {
        let (chunk, stripe) = (self.profile.layout.chunk.0, self.stripe_bytes());
        let parities = self.profile.layout.raid.parity() as u64;
        let mut end = None;
        self.for_segments(parent, |engine, segment| {
            let bytes = segment.bytes();
            let old = bytes + parities * bytes.min(chunk);
            let rest = if segment.single { bytes * (stripe / chunk) } else { stripe } - bytes;
            if rest < old {
                end = end.max(engine.send_rest(parent, segment));
            } else {
                end = end.max(engine.send_data(parent, Op::Read, segment));
                end = end.max(engine.send_parity(parent, Op::Read, segment));
            }
        });
        self.sent_parts(parent, end);
    }

    /// Calls `visit` with each stripe's segment of an I/O.
    fn for_segments(&mut self, io: u32, mut visit: impl FnMut(&mut Self, Segment)) {
        let Io { offset, bytes, .. } = self.ios[io];
        let (chunk, stripe) = (self.profile.layout.chunk.0, self.stripe_bytes());
        let (mut from, until) = (offset, offset + u64::from(bytes));
        while from < until {
            let to = until.min((from / stripe + 1) * stripe);
            visit(self, Segment { from, to, single: from / chunk == (to - 1) / chunk });
            from = to;
        }
    }

    fn send_data(&mut self, parent: u32, op: Op, segment: Segment) -> Option<u64> {
        let (mut from, mut end) = (segment.from, None);
        while from < segment.to {
            let bytes = (segment.to - from).min(self.array.left_in_chunk(from));
            end = end.max(self.send_at(parent, op, from, bytes));
            from += bytes;
        }
        end
    }

    /// Parity has as many bytes as the segment in a chunk of its own.
    fn send_parity(&mut self, parent: u32, op: Op, segment: Segment) -> Option<u64> {
        let place = self.array.place(segment.from);
        let bytes = segment.bytes().min(self.profile.layout.chunk.0);
        let within = if segment.single { 0 } else { place.offset % self.profile.layout.chunk.0 };
        let mut end = None;
        for drive in self.array.parity_drives(place.stripe) {
            let offset = place.offset - within;
            let command = DriveCommand { drive, op, offset, bytes: bytes as u32 };
            end = end.max(self.send_part(parent, command));
        }
        end
    }

    /// Reads what the segment leaves as it is: of each chunk of the stripe, as much as the segment
    /// has of the one that it touches, or all of it.
    fn send_rest(&mut self, parent: u32, segment: Segment) -> Option<u64> {
        let (chunk, stripe) = (self.profile.layout.chunk.0, self.stripe_bytes());
        let first = segment.from / stripe * stripe;
        let (start, bytes) =
            if segment.single { (segment.from % chunk, segment.bytes()) } else { (0, chunk) };
        let mut end = None;
        for position in 0..stripe / chunk {
            let from = first + position * chunk + start;
            let to = from + bytes;
            for (from, to) in
                [(from, to.min(segment.from).max(from)), (from.max(segment.to).min(to), to)]
            {
                if from < to {
                    end = end.max(self.send_at(parent, Op::Read, from, to - from));
                }
            }
        }
        end
    }

    /// Sends a part that lies in one chunk.
    fn send_at(&mut self, parent: u32, op: Op, address: u64, bytes: u64) -> Option<u64> {
        let place = self.array.place(address);
        let bytes = bytes as u32;
        self.send_part(parent, DriveCommand { drive: place.drive, op, offset: place.offset, bytes })
    }
}
