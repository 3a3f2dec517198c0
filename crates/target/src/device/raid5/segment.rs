//! The part of a request that lies in one stripe, and how far it is.

use std::ops::Range;

use super::super::Buffer;
use super::layout::Layout;
use super::locks::Claim;
use super::plan::Plan;

/// What a segment does or waits for.
///
/// ```text
/// write: Lock -> Plan -> Old -> Slot -> Journal -> Place -> Settle
/// read:  Direct, and when that is not possible: Lock -> Others -> Repair
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// A read goes to the one member that has the data.
    Direct,
    /// Its rows are to become its own.
    Lock,
    /// Which members take part is to be decided, once the superblocks agree with it.
    Plan,
    /// What is needed for the parity is read.
    Old,
    /// A slot of the journal is to become free.
    Slot,
    /// The change becomes durable in the journals.
    Journal,
    /// The change goes where it belongs.
    Place,
    /// Not to be acknowledged before a failed member is known as such for good.
    Settle,
    /// A read gathers the rest of the stripe.
    Others,
    /// What could not be read is written again.
    Repair,
}

impl Phase {
    /// Whether stopping here would leave a stripe half changed.
    pub(super) fn must_end(self) -> bool {
        self.fault().is_some()
    }

    /// What a member could not do that fails in this phase, where that makes it useless: what
    /// cannot be read follows from others.
    pub(super) fn fault(self) -> Option<&'static str> {
        match self {
            Self::Journal => Some("its journal could not be written"),
            Self::Place => Some("it could not be written"),
            Self::Repair => Some("what it could not read could not be written again"),
            _ => None,
        }
    }
}

/// The roles whose bits are set.
pub(super) fn roles(bits: u32) -> impl Iterator<Item = usize> {
    (0..u32::BITS as usize).filter(move |role| bits >> role & 1 == 1)
}

#[derive(Debug)]
pub(super) struct Segment {
    /// The request's slot in the channel.
    pub(super) request: u32,
    pub(super) write: bool,
    pub(super) stripe: u64,
    /// Client bytes within the stripe.
    pub(super) range: Range<u64>,
    /// Where they start in the request's buffer.
    pub(super) base: usize,
    pub(super) phase: Phase,
    /// Requests that members have not answered.
    pub(super) pending: u32,
    /// Members that answered with an error in this phase, one bit each.
    pub(super) failed: u32,
    /// A member that could not be read.
    pub(super) unread: Option<usize>,
    pub(super) claim: Option<Claim>,
    pub(super) plan: Option<Plan>,
    pub(super) seq: u64,
    /// By role, what was read.
    pub(super) old: Vec<Option<Buffer>>,
    /// By role, header and rows for the journal; then the rows for their place.
    pub(super) new: Vec<Option<Buffer>>,
}

impl Segment {
    pub(super) fn new(
        (request, write): (u32, bool),
        (stripe, range): (u64, Range<u64>),
        base: usize,
        members: usize,
    ) -> Self {
        Self {
            request,
            write,
            stripe,
            range,
            base,
            phase: if write { Phase::Lock } else { Phase::Direct },
            pending: 0,
            failed: 0,
            unread: None,
            claim: None,
            plan: None,
            seq: 0,
            old: (0..members).map(|_| None).collect(),
            new: (0..members).map(|_| None).collect(),
        }
    }

    /// The data chunk and rows of a read, which lies in one chunk.
    pub(super) fn place(&self, layout: &Layout) -> (usize, Range<usize>) {
        let index = (self.range.start / layout.chunk) as usize;
        (layout.data_member(self.stripe, index), layout.rows_of(index, &self.range))
    }

    pub(super) fn bytes(&self) -> usize {
        (self.range.end - self.range.start) as usize
    }

    /// The roles in [`Segment::failed`].
    pub(super) fn failures(&self) -> impl Iterator<Item = usize> + use<> {
        roles(self.failed)
    }

    /// Where data chunk `index` of this write is: its rows, and its place in the request's buffer.
    pub(super) fn change(&self, layout: &Layout, index: usize) -> (Range<usize>, Range<usize>) {
        let rows = layout.rows_of(index, &self.range);
        let at = index as u64 * layout.chunk + rows.start as u64;
        let start = self.base + at.saturating_sub(self.range.start) as usize;
        (rows.clone(), start..start + rows.len())
    }
}
