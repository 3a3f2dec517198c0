//! Everything in flight, in one slab; queues are links through it, so nothing is allocated per
//! request once the slab has grown to the most that were ever in flight.

use ebb_trace::Op;

/// No I/O, no parent, no slot.
pub(super) const NONE: u32 = u32::MAX;

/// No part of the load.
pub(super) const NO_PART: u16 = u16::MAX;

/// Why an I/O exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A user's request.
    User,
    /// One drive's part of another I/O.
    Part,
    /// An acknowledged write on its way from the write-back buffer to the log.
    Flush,
    /// A task of background work.
    Task,
    /// A place of a failed drive that a job rebuilds.
    Rebuild,
}

/// One I/O; in a cache line of its own, for it is looked at long after its neighbours.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
pub(super) struct Io {
    /// When its client meant to send it.
    pub arrival: u64,
    /// When the server had it.
    pub sent: u64,
    /// Byte on the volume; on the drive once it is sent there.
    pub offset: u64,
    /// Length.
    pub bytes: u32,
    /// Draws its random numbers: the same request has the same ones under every policy.
    pub key: u32,
    /// The next in its queue.
    pub next: u32,
    /// The I/O this is a part of.
    pub parent: u32,
    /// The closed-loop slot that waits for it.
    pub slot: u32,
    /// Parts outstanding; of a log write, whether it frees the write-back buffer.
    pub parts: u32,
    /// The drive it is for.
    pub drive: u16,
    /// The part of the load that it belongs to; [`NO_PART`] where there are not several.
    pub part: u16,
    /// What it does.
    pub op: Op,
    /// Why it exists.
    pub kind: Kind,
    /// The stage it is in.
    pub stage: u8,
    /// Whether old data and parity were read already (read-modify-write).
    pub old_read: bool,
    /// Whether nobody waits for it.
    pub best_effort: bool,
}

#[cfg(test)]
impl Io {
    /// A user's request to the first drive, for tests.
    pub(super) const fn of(op: Op, offset: u64, bytes: u32) -> Self {
        Self {
            arrival: 0,
            sent: 0,
            offset,
            bytes,
            key: 0,
            next: NONE,
            parent: NONE,
            slot: NONE,
            parts: 0,
            drive: 0,
            part: NO_PART,
            op,
            kind: Kind::User,
            stage: 0,
            old_read: false,
            best_effort: false,
        }
    }
}

/// What a drive is asked to do.
#[derive(Debug, Clone, Copy)]
pub(super) struct DriveCommand {
    pub drive: u16,
    pub op: Op,
    /// Byte on the drive.
    pub offset: u64,
    pub bytes: u32,
}

/// The slab.
#[derive(Debug, Default)]
pub(super) struct Ios {
    slab: Vec<Io>,
    free: Vec<u32>,
}

impl Ios {
    pub(super) fn insert(&mut self, io: Io) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.slab[index as usize] = io;
                index
            }
            None => {
                self.slab.push(io);
                (self.slab.len() - 1) as u32
            }
        }
    }
    pub(super) fn remove(&mut self, index: u32) {
        self.free.push(index);
    }
    /// What an I/O asks of its drive.
    pub(super) fn command(&self, index: u32) -> DriveCommand {
        let Io { drive, op, offset, bytes, .. } = self[index];
        DriveCommand { drive, op, offset, bytes }
    }
    /// I/Os in flight, of every kind.
    pub(super) fn len(&self) -> usize {
        self.slab.len() - self.free.len()
    }
}

impl std::ops::Index<u32> for Ios {
    type Output = Io;
    fn index(&self, index: u32) -> &Io {
        &self.slab[index as usize]
    }
}
impl std::ops::IndexMut<u32> for Ios {
    fn index_mut(&mut self, index: u32) -> &mut Io {
        &mut self.slab[index as usize]
    }
}

/// A first-in first-out queue of I/Os, linked through [`Io::next`].
#[derive(Debug, Clone, Copy)]
pub(super) struct Queue {
    head: u32,
    tail: u32,
}

impl Queue {
    pub(super) const EMPTY: Self = Self { head: NONE, tail: NONE };

    pub(super) fn push(&mut self, ios: &mut Ios, index: u32) {
        ios[index].next = NONE;
        if self.tail == NONE {
            self.head = index;
        } else {
            ios[self.tail].next = index;
        }
        self.tail = index;
    }
    pub(super) fn is_empty(&self) -> bool {
        self.head == NONE
    }
    pub(super) fn first(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }
    pub(super) fn pop(&mut self, ios: &Ios) -> Option<u32> {
        if self.head == NONE {
            return None;
        }
        let index = self.head;
        self.head = ios[index].next;
        if self.head == NONE {
            self.tail = NONE;
        }
        Some(index)
    }
}

/// Mixes a key and a purpose into 64 random-looking bits (SplitMix64 finaliser).
pub(super) fn mix(key: u32, purpose: u32) -> u64 {
    let mut z = (u64::from(purpose) << 32 | u64::from(key)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
