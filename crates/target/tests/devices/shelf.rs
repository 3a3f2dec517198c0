//! Members that are plain memory: cheap to copy, and cut off at a chosen write.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ebb_nvme::Status;
use ebb_target::device::{Channel, Device, Done, Geometry, Io, Keeper, Op, Pool};

pub const BLOCK: usize = 4096;
/// Blocks of a member: superblocks and journal, then three stripes.
const SIZE: u64 = (2 << 20) / BLOCK as u64 + 3;
/// The number of a copy that never was in an array.
pub const STOCK: usize = usize::MAX;

/// What a member holds; what is absent is zeros.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pages(BTreeMap<u64, Arc<[u8]>>);

impl Pages {
    /// The two superblocks.
    pub fn heads(&self) -> [Option<Arc<[u8]>>; 2] {
        [0, 1].map(|page| self.0.get(&page).cloned())
    }
}

/// What all members share.
#[derive(Default)]
pub struct Rig {
    /// Writes until power is lost: the last one is not done.
    pub fuse: Option<u64>,
    pub off: bool,
    /// A member that takes no writes.
    pub broken: Option<usize>,
    /// A member whose blocks behind the journal cannot be read.
    pub unreadable: Option<usize>,
    /// By member, writes to any of them until what is below it has no room for more.
    pub full: BTreeMap<usize, u64>,
}

impl Rig {
    fn takes(&mut self, role: usize) -> bool {
        if let Some(left) = &mut self.fuse {
            *left = left.saturating_sub(1);
            self.off |= *left == 0;
        }
        !self.off && self.broken != Some(role)
    }

    fn has_room(&mut self, role: usize) -> bool {
        self.full.values_mut().for_each(|left| *left = left.saturating_sub(1));
        self.full.get(&role) != Some(&0)
    }
}

#[derive(Clone)]
pub struct Plate {
    role: usize,
    pages: Arc<Mutex<Pages>>,
    rig: Arc<Mutex<Rig>>,
}

impl Plate {
    pub fn new(role: usize, pages: Pages, rig: &Arc<Mutex<Rig>>) -> Self {
        Self { role, pages: Arc::new(Mutex::new(pages)), rig: rig.clone() }
    }
    pub fn pages(&self) -> Pages {
        self.pages.lock().unwrap().clone()
    }
    pub fn heads(&self) -> [Option<Arc<[u8]>>; 2] {
        self.pages.lock().unwrap().heads()
    }

    fn run(&self, io: &mut Io) -> Status {
        let (mut rig, mut pages) = (self.rig.lock().unwrap(), self.pages.lock().unwrap());
        let all = io.lba..io.lba + u64::from(io.blocks);
        match io.op {
            _ if rig.off => return Status::INTERNAL_ERROR,
            Op::Read { .. } if rig.unreadable == Some(self.role) && io.lba >= SIZE - 3 => {
                return Status::UNRECOVERED_READ;
            }
            Op::Read { .. } => {
                let to = io.buffer.as_mut().unwrap().chunks_mut(BLOCK);
                for (page, to) in all.zip(to) {
                    match pages.0.get(&page) {
                        Some(from) => to.copy_from_slice(from),
                        None => to.fill(0),
                    }
                }
            }
            Op::Flush | Op::Deallocate => {}
            _ if !rig.takes(self.role) => return Status::WRITE_FAULT,
            _ if !rig.has_room(self.role) => return Status::CAPACITY_EXCEEDED,
            Op::WriteZeroes { .. } => pages.0.retain(|page, _| !all.contains(page)),
            Op::Write { .. } => {
                let from = io.buffer.as_ref().unwrap().chunks(BLOCK);
                pages.0.extend(all.zip(from.map(Arc::from)));
            }
        }
        Status::SUCCESS
    }
}

struct Lane {
    plate: Plate,
    done: Vec<Done>,
}

impl Channel for Lane {
    fn submit(&mut self, mut io: Io) {
        let status = self.plate.run(&mut io);
        self.done.push(io.done(status));
    }
    fn poll(&mut self, done: &mut Vec<Done>) -> usize {
        let count = self.done.len();
        done.append(&mut self.done);
        count
    }
}

impl Device for Plate {
    fn geometry(&self) -> Geometry {
        Geometry { block_size: BLOCK as u32, blocks: SIZE }
    }
    fn describe(&self) -> String {
        format!("plate {}", self.role)
    }
    fn open(&self) -> std::io::Result<Box<dyn Channel>> {
        Ok(Box::new(Lane { plate: self.clone(), done: Vec::new() }))
    }
}

/// The members of a run, by role, and what they share.
pub struct Bench {
    pub plates: Vec<(usize, Plate)>,
    pub rig: Arc<Mutex<Rig>>,
}

impl Bench {
    /// Power is lost at the write of this number from now on.
    pub fn cut(&self, writes: u64) {
        self.rig.lock().unwrap().fuse = Some(writes);
    }
    pub fn fail(&self, role: usize) {
        self.rig.lock().unwrap().broken = Some(role);
    }
    pub fn off(&self) -> bool {
        self.rig.lock().unwrap().off
    }
}

/// One block at a time, with the keeper at work only where a request waits for it.
pub struct Client {
    channel: Box<dyn Channel>,
    pool: Pool,
    done: Vec<Done>,
}

impl Client {
    pub fn new(device: &dyn Device) -> Self {
        Self {
            channel: device.open().unwrap(),
            pool: Pool::new(1, BLOCK).unwrap(),
            done: Vec::new(),
        }
    }

    fn run(&mut self, op: Op, lba: u64, value: u8, keeper: &mut Keeper) -> Option<Done> {
        let mut buffer = self.pool.take(BLOCK);
        buffer.as_mut().unwrap().fill(value);
        self.channel.submit(Io { tag: 0, op, lba, blocks: 1, buffer });
        for _ in 0..8 {
            self.channel.poll(&mut self.done);
            if let Some(done) = self.done.pop() {
                return Some(done);
            }
            keeper.run_once();
        }
        None
    }

    /// The value of a block, each of whose bytes is the same.
    pub fn read(&mut self, lba: u64, keeper: &mut Keeper) -> u8 {
        let done = self.run(Op::Read { durable: false }, lba, 0, keeper).expect("a read ends");
        assert!(done.status.is_success(), "{:?}", done.status);
        let data = done.buffer.unwrap();
        assert!(data.iter().all(|byte| *byte == data[0]), "a torn block");
        data[0]
    }

    /// Whether a write was acknowledged.
    pub fn write(&mut self, lba: u64, value: u8, keeper: &mut Keeper) -> bool {
        self.try_write(lba, value, keeper).is_some_and(Status::is_success)
    }

    /// How a write ended; `None` when it has not: then the client is of no use any more.
    pub fn try_write(&mut self, lba: u64, value: u8, keeper: &mut Keeper) -> Option<Status> {
        self.run(Op::Write { durable: false }, lba, value, keeper).map(|done| done.status)
    }
}
