//! I/O queues: what a command of the NVM command set does to which device (NVM 3).

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ebb_nvme::command::{FABRICS, fabrics, io};
use ebb_nvme::{Sqe, Status};
use ebb_policy::units::Nanos;

use super::association::{Association, Claim, Ticket};
use super::counters::Counters;
use super::stay::Stay;
use super::{AnaState, Direction, Subsystem, Wake};
use crate::device::{Geometry, Op};

/// Bytes of a Dataset Management range (NVM Figure 41).
const RANGE: usize = 16;
/// Ranges that there is room for.
const MOST_RANGES: usize = 256;
/// CAP.MPSMIN, the unit of WZSL.
const PAGE: u64 = 4096;
/// FUA, bit 30 of dword 12 of reads, compares and writes (NVM 3.2).
const FORCE_UNIT_ACCESS: u32 = 1 << 30;
/// AD, bit 2 of dword 11 of Dataset Management: deallocate.
const DEALLOCATE: u32 = 1 << 2;

/// What to do for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// One request to the device.
    Device {
        /// The namespace's identifier less one.
        namespace: usize,
        /// What to do.
        op: Op,
        /// First block.
        lba: u64,
        /// Blocks; none for a flush.
        blocks: u32,
    },
    /// Read the blocks and compare them with the host's data.
    Compare {
        /// As above.
        namespace: usize,
        /// Force unit access.
        durable: bool,
        /// First block.
        lba: u64,
        /// Blocks.
        blocks: u32,
    },
    /// Deallocate the [ranges](range_at) in the host's data.
    Deallocate {
        /// As above.
        namespace: usize,
        /// How many ranges, 1 to 256.
        ranges: u16,
    },
    /// Succeed: a hint that is not taken, or a Disconnect.
    Nothing,
}

impl Plan {
    /// The namespace that it is for, by its index.
    #[must_use]
    pub const fn namespace(&self) -> Option<usize> {
        match self {
            Self::Device { namespace, .. }
            | Self::Compare { namespace, .. }
            | Self::Deallocate { namespace, .. } => Some(*namespace),
            Self::Nothing => None,
        }
    }

    /// Whether the host's data is needed first.
    #[must_use]
    pub const fn takes_data(self) -> bool {
        matches!(
            self,
            Self::Device { op: Op::Write { .. }, .. }
                | Self::Compare { .. }
                | Self::Deallocate { .. }
        )
    }
}

/// An I/O queue, used by one thread at a time.
pub struct IoQueue {
    subsystem: Arc<Subsystem>,
    association: Arc<Association>,
    id: u16,
    ticket: Ticket,
    /// Its number, as long as there is the queue.
    claim: Arc<Claim>,
    stay: Option<Stay>,
    /// The port by which the host came.
    port: usize,
    counters: Arc<Counters>,
    /// The host sent Disconnect. The cell also keeps the queue, and with it the counters, from
    /// being shared between threads.
    disconnected: Cell<bool>,
}

impl Drop for IoQueue {
    fn drop(&mut self) {
        self.subsystem.ledger.close(&self.association.host.nqn, &self.counters);
    }
}

impl IoQueue {
    pub(super) fn new(
        subsystem: Arc<Subsystem>,
        association: Arc<Association>,
        id: u16,
        ticket: Ticket,
        claim: Arc<Claim>,
    ) -> Option<Self> {
        let stay = Stay::new(association.clone(), ticket)?;
        let counters = subsystem.ledger.open(&association.host.nqn);
        let disconnected = Cell::new(false);
        Some(Self {
            subsystem,
            association,
            id,
            ticket,
            claim,
            stay: Some(stay),
            port: 0,
            counters,
            disconnected,
        })
    }

    /// Has `wake` called when its controller ends it.
    pub(crate) fn wake_with(&self, wake: &Wake) {
        self.stay.iter().for_each(|stay| stay.wake_with(wake));
    }

    /// It begins nothing any more: what is left while the devices of the namespaces `at` have
    /// something of it.
    pub(crate) fn end(&mut self, at: Vec<usize>, now: Nanos) -> Option<Stay> {
        self.claim.give_up();
        let mut stay = self.stay.take()?;
        stay.end(at, now);
        Some(stay)
    }

    /// Since when commands for a namespace must wait for what was left of the host's queues that
    /// have ended; then `wake` is called when they need no longer. `None`: they need not.
    pub(crate) fn bar(&self, namespace: usize, wake: &Wake) -> Option<Nanos> {
        self.association.allowance.ends.bar(namespace, wake)
    }

    /// QID.
    #[must_use]
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Its host, to be told from others.
    #[must_use]
    pub fn host(&self) -> u64 {
        self.association.host.key()
    }

    /// The host reached it at this address.
    pub fn reached_at(&mut self, local: SocketAddr) {
        self.port = self.subsystem.ports.of(local);
    }

    /// Until when the host's next command must wait for its allowance; `None`: it need not.
    #[must_use]
    pub fn must_wait(&self, now: Nanos) -> Option<Nanos> {
        self.association.allowance.wait(now)
    }

    /// A command that moves so many `bytes` is taken up.
    pub fn charge(&self, bytes: u32, now: Nanos) {
        self.association.allowance.charge(bytes, now);
    }

    /// False once the queue was disconnected or its controller reset, shut down or lost.
    #[must_use]
    pub fn alive(&self, _now: Nanos) -> bool {
        !self.disconnected.get() && self.association.check(self.ticket).is_some()
    }

    /// Whether the host waits as long as it is told before it sends a command again (ACRE).
    #[must_use]
    pub fn retries_later(&self) -> bool {
        self.association.retries_later.load(Ordering::Relaxed)
    }

    /// What to do for a command and which way its data goes. Does not allocate.
    ///
    /// # Errors
    /// The status to answer it with; it is in the error log then.
    pub fn command(&self, sqe: &Sqe) -> Result<(Plan, Direction), Status> {
        let planned = self.plan(sqe);
        if let Err(status) = planned {
            self.association.record(self.id, sqe, status, sqe.cdw_pair(10));
        }
        planned
    }

    fn plan(&self, sqe: &Sqe) -> Result<(Plan, Direction), Status> {
        let write_through = self.association.check(self.ticket).ok_or(Status::SEQUENCE_ERROR)?;
        let config = &self.subsystem.config;
        let direction = Direction::of(sqe, config.max_transfer, config.in_capsule)?;
        if sqe.opcode == FABRICS {
            return self.fabrics(sqe).map(|plan| (plan, direction));
        }
        if !is_supported(sqe.opcode) {
            return Err(Status::INVALID_OPCODE);
        }
        let namespace =
            self.subsystem.spaces.find(sqe.nsid.get()).ok_or(Status::INVALID_NAMESPACE)?;
        if !self.subsystem.ports.is_open(self.port, namespace) {
            return Err(match self.subsystem.ports.state(self.port, namespace) {
                AnaState::Change => Status::ANA_TRANSITION,
                _ => Status::ANA_INACCESSIBLE,
            });
        }
        let writes = matches!(sqe.opcode, io::WRITE | io::WRITE_ZEROES | io::DATASET_MANAGEMENT);
        if writes && self.subsystem.spaces.is_read_only(namespace) {
            return Err(Status::WRITE_PROTECTED);
        }
        let range = |data: u32| self.range(sqe, namespace, data);
        let force = sqe.cdw(12) & FORCE_UNIT_ACCESS != 0;
        let durable = write_through || force;
        let device = |op, (lba, blocks)| Plan::Device { namespace, op, lba, blocks };
        let plan = match sqe.opcode {
            // What is written through is durable already.
            io::READ => device(Op::Read { durable: force }, range(direction.to_host())?),
            io::WRITE => {
                no_directive(sqe)?;
                device(Op::Write { durable }, range(direction.from_host())?)
            }
            io::COMPARE => {
                let (lba, blocks) = range(direction.from_host())?;
                Plan::Compare { namespace, durable: force, lba, blocks }
            }
            io::WRITE_ZEROES => {
                no_directive(sqe)?;
                let (lba, blocks) = self.blocks(sqe, namespace)?;
                let size = self.subsystem.geometry(namespace).block_size;
                if u64::from(blocks) * u64::from(size) > PAGE << limits::ZEROES_SHIFT {
                    return Err(Status::INVALID_FIELD); // NVM Figure 101, WZSL.
                }
                device(Op::WriteZeroes { durable }, (lba, blocks))
            }
            io::FLUSH => device(Op::Flush, (0, 0)),
            _ => dataset_management(sqe, namespace, direction)?,
        };
        Ok((plan, direction))
    }

    /// SLBA and NLB, which must lie within the namespace (NVM Figure 63).
    fn blocks(&self, sqe: &Sqe, namespace: usize) -> Result<(u64, u32), Status> {
        let (lba, blocks) = (sqe.cdw_pair(10), (sqe.cdw(12) & 0xffff) + 1);
        check_range(self.subsystem.geometry(namespace), lba, blocks).map(|()| (lba, blocks))
    }

    /// The same with `data` bytes, which must be exactly the blocks'.
    fn range(&self, sqe: &Sqe, namespace: usize, data: u32) -> Result<(u64, u32), Status> {
        let (lba, blocks) = self.blocks(sqe, namespace)?;
        let size = self.subsystem.geometry(namespace).block_size;
        let needed = u64::from(blocks) * u64::from(size);
        if needed > self.subsystem.config.max_transfer.into() {
            return Err(Status::INVALID_FIELD); // Base Figure 275, MDTS.
        }
        (needed == data.into()).then_some((lba, blocks)).ok_or(Status::DATA_SGL_LENGTH_INVALID)
    }

    fn fabrics(&self, sqe: &Sqe) -> Result<Plan, Status> {
        match sqe.fabrics_type() {
            fabrics::DISCONNECT => {
                if sqe.cdw(10) & 0xffff != 0 {
                    return Err(Status::CONNECT_FORMAT); // RECFMT (Base Figure 384).
                }
                self.disconnected.set(true);
                // It may be connected again as soon as this is answered.
                self.claim.give_up();
                Ok(Plan::Nothing)
            }
            fabrics::CONNECT => Err(Status::SEQUENCE_ERROR),
            // Properties are the admin queue's (Base 6.5, 6.6).
            fabrics::PROPERTY_GET | fabrics::PROPERTY_SET => Err(Status::INVALID_FIELD),
            _ => Err(Status::INVALID_OPCODE),
        }
    }

    /// Counts a command that a device has completed; a failure goes to the error log.
    pub fn account(&self, sqe: &Sqe, plan: &Plan, status: Status) {
        let counters = &*self.counters;
        if !status.is_success() {
            let is_medium = status.kind == Status::UNRECOVERED_READ.kind;
            if is_medium && status != Status::COMPARE_FAILURE {
                counters.media_errors.add(1);
            }
            return self.association.record(self.id, sqe, status, sqe.cdw_pair(10));
        }
        let bytes = |namespace: usize, blocks: u32| {
            u64::from(blocks) * u64::from(self.subsystem.geometry(namespace).block_size)
        };
        match *plan {
            Plan::Device { namespace, op: Op::Read { .. }, blocks, .. }
            | Plan::Compare { namespace, blocks, .. } => {
                counters.reads.add(1);
                counters.bytes_read.add(bytes(namespace, blocks));
            }
            Plan::Device { namespace, op: Op::Write { .. }, blocks, .. } => {
                counters.writes.add(1);
                counters.bytes_written.add(bytes(namespace, blocks));
            }
            _ => {}
        }
    }
}

pub(super) const fn is_supported(opcode: u8) -> bool {
    matches!(
        opcode,
        io::FLUSH | io::READ | io::WRITE | io::COMPARE | io::WRITE_ZEROES | io::DATASET_MANAGEMENT
    )
}

/// DTYPE, bits 23:20 of dword 12: there are no directives (Base 8.7).
fn no_directive(sqe: &Sqe) -> Result<(), Status> {
    (sqe.cdw(12) >> 20 & 15 == 0).then_some(()).ok_or(Status::INVALID_FIELD)
}

/// Dataset Management (NVM 3.2.3). Only deallocation is acted upon.
fn dataset_management(sqe: &Sqe, namespace: usize, data: Direction) -> Result<Plan, Status> {
    let ranges = (sqe.cdw(10) & 0xff) as u16 + 1;
    // Linux always sends room for all 256 ranges, so more data than ranges is fine.
    let given = data.from_host() as usize;
    if given < usize::from(ranges) * RANGE || given > MOST_RANGES * RANGE {
        return Err(Status::DATA_SGL_LENGTH_INVALID);
    }
    if ranges > limits::RANGES.into() {
        return Err(Status::SIZE_LIMIT_EXCEEDED);
    }
    let deallocates = sqe.cdw(11) & DEALLOCATE != 0;
    Ok(if deallocates { Plan::Deallocate { namespace, ranges } } else { Plan::Nothing })
}

/// The first block and number of blocks of Dataset Management range `number` in `data`.
#[must_use]
pub fn range_at(data: &[u8], number: u16) -> Option<(u64, u32)> {
    let range = data.as_chunks::<RANGE>().0.get(usize::from(number))?;
    // Bytes 0-3 are attributes, 4-7 the length, 8-15 the first block.
    let bytes = u128::from_le_bytes(*range);
    Some(((bytes >> 64) as u64, (bytes >> 32) as u32))
}

/// Of no blocks at all is a namespace that was removed since it was looked up.
fn check_range(geometry: Geometry, lba: u64, blocks: u32) -> Result<(), Status> {
    match geometry.contains(lba, blocks.into()) {
        _ if geometry.blocks == 0 => Err(Status::INVALID_NAMESPACE),
        true => Ok(()),
        false => Err(Status::LBA_OUT_OF_RANGE),
    }
}

/// Checks the first `count` Dataset Management ranges in `data`.
///
/// # Errors
/// When `data` holds fewer, one is outside of the namespace, or they are more than a command may
/// ask for (DMRSL, DMSL).
pub fn check_ranges(data: &[u8], count: u16, geometry: Geometry) -> Result<(), Status> {
    let mut all = 0;
    for number in 0..count {
        let (lba, blocks) = range_at(data, number).ok_or(Status::DATA_SGL_LENGTH_INVALID)?;
        check_range(geometry, lba, blocks)?;
        if blocks > limits::RANGE_BLOCKS {
            return Err(Status::SIZE_LIMIT_EXCEEDED);
        }
        all += u64::from(blocks);
    }
    (all <= limits::ALL_BLOCKS).then_some(()).ok_or(Status::SIZE_LIMIT_EXCEEDED)
}

/// How much one command may ask for that takes no data along (NVM Figure 101).
pub(super) mod limits {
    /// DMRL: ranges of one Dataset Management command.
    pub const RANGES: u8 = 255;
    /// DMRSL: blocks of one range.
    pub const RANGE_BLOCKS: u32 = 1 << 20;
    /// DMSL: blocks of all its ranges.
    pub const ALL_BLOCKS: u64 = 1 << 22;
    /// WZSL: bytes of one Write Zeroes command, as a power of two of pages.
    pub const ZEROES_SHIFT: u8 = 11;
}
