//! The write-back buffer and the log behind it: writes are acknowledged from battery-backed
//! memory and reach the drives later, in full stripes of a log-structured array.

use ebb_trace::Op;

use super::Engine;
use super::events::Event;
use super::io::{DriveCommand, Io, Kind, NONE};

impl Engine<'_> {
    /// Acknowledges writes, in order, as far as the write-back buffer has room. One that is larger
    /// than the buffer waits only for what is on its way out; the rest of a chunk stays.
    pub(super) fn acknowledge_writes(&mut self) {
        while let Some(io) = self.stalled.first() {
            let full = self.unflushed + u64::from(self.ios[io].bytes) > self.write_buffer;
            if full && self.unflushed > self.log_filled {
                break;
            }
            self.stalled.pop(&self.ios);
            self.acknowledge_write(io);
        }
    }

    /// The write is safe in the write-back buffer; its flush goes on as background work.
    fn acknowledge_write(&mut self, io: u32) {
        let bytes = self.ios[io].bytes;
        let flush = Io {
            kind: Kind::Flush,
            slot: NONE,
            stage: (self.profile.stage.len() - 1) as u8,
            ..self.ios[io]
        };
        self.unflushed += u64::from(bytes);
        self.complete(io, self.now);
        let flush = self.ios.insert(flush);
        self.dispatch(flush);
    }

    /// A flushed write joins the log.
    pub(super) fn flushed(&mut self, io: u32) {
        let bytes = self.ios[io].bytes;
        self.ios.remove(io);
        self.append_to_log(bytes);
        self.acknowledge_writes();
    }

    /// Adds bytes to the open chunks of the log; full ones are written, with parity once per
    /// stripe: a log-structured array writes full stripes only.
    fn append_to_log(&mut self, bytes: u32) {
        let chunk = self.profile.layout.chunk.0;
        self.log_filled += u64::from(bytes);
        while self.log_filled >= chunk {
            self.log_filled -= chunk;
            let place = self.array.place(self.log_address);
            self.log_part(place.drive, place.offset, chunk as u32, false);
            if place.position == 0 {
                for drive in self.array.parity_drives(place.stripe) {
                    self.log_part(drive, place.offset, chunk as u32, true);
                }
            }
            let capacity = self.array.volume_bytes(self.profile.layout.raid);
            self.log_address = (self.log_address + chunk) % (capacity - chunk);
        }
    }

    /// Writes one chunk of the log; a parity chunk frees nothing in the buffer.
    fn log_part(&mut self, drive: u16, offset: u64, bytes: u32, parity: bool) {
        let command = DriveCommand { drive, op: Op::Write, offset, bytes };
        let end = self.array.accept(self.now, command);
        if end.is_some() && parity {
            return;
        }
        let part = self.part(NONE, command);
        self.ios[part].parts = u32::from(!parity);
        match end {
            Some(end) => self.events.push(end, Event::Served(part)),
            None => self.array.submit(&mut self.ios, &mut self.events, self.now, part),
        }
    }
}
