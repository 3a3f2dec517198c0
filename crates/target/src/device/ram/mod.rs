//! A device in anonymous memory.
//!
//! Channels on different cores work on the same memory at once. Each block is read and written
//! whole, as the contract asks: a version per page or block (a sequence lock) lets readers notice a
//! write that overtook them and copy again, so readers never write to shared memory and never wait
//! for each other.

use std::sync::Arc;
use std::time::Duration;

use ebb_nvme::Status;

use super::{Channel, Device, Done, Error, Geometry, Io, Op, larger};

mod memory;
mod pins;
mod populate;

use memory::Memory;
pub use pins::{Loan, Pinned};

/// A device in memory; its content goes with the process.
#[derive(Debug)]
pub struct Ram {
    block_size: u32,
    huge: bool,
    memory: Arc<Memory>,
    /// How long taking the memory took; `None` while it is taken as it is written.
    taken: Option<Duration>,
}

impl Ram {
    /// Of this size, all zeros; memory is taken as it is written. `huge` asks the kernel for huge
    /// pages.
    ///
    /// # Errors
    /// When the system has no address space left.
    pub fn new(geometry: Geometry, huge: bool) -> Result<Self, Error> {
        let memory = Memory::new(geometry.bytes(), geometry.block_size, huge)
            .map_err(Error::system("ram", "cannot map the memory", "ask for a smaller size"))?;
        let (block_size, memory) = (geometry.block_size, Arc::new(memory));
        memory.show(geometry.blocks);
        Ok(Self { block_size, huge, memory, taken: None })
    }

    /// Takes all the memory now, so that no first write of a page waits for the system; calls
    /// `progress` with the bytes of each piece, from several threads. Pages given back later
    /// (Deallocate) are taken again as they are written.
    ///
    /// # Errors
    /// When the system has not got as much.
    pub fn populate(&mut self, progress: &(dyn Fn(u64) + Sync)) -> Result<(), Error> {
        self.taken = Some(populate::populate(&self.memory, 0, progress)?);
        Ok(())
    }
}

fn run(io: &mut Io, geometry: Geometry, memory: &Memory) -> Status {
    let range = match io.range(geometry) {
        Ok(range) => range,
        Err(status) => return status,
    };
    match (io.op, &mut io.buffer) {
        (Op::Read { .. }, Some(buffer)) => memory.read(range.start, buffer),
        (Op::Write { .. }, Some(buffer)) => memory.write(range.start, buffer),
        (Op::WriteZeroes { .. }, _) => memory.fill(range),
        (Op::Deallocate, _) => memory.give_back(range),
        _ => {}
    }
    Status::SUCCESS
}

/// Does each request as it is submitted; the next poll hands it back.
struct RamChannel {
    block_size: u32,
    memory: Arc<Memory>,
    done: Vec<Done>,
}

impl Channel for RamChannel {
    fn submit(&mut self, mut io: Io) {
        let status = run(&mut io, geometry(self.block_size, &self.memory), &self.memory);
        self.done.push(io.done(status));
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> usize {
        let count = self.done.len();
        done.append(&mut self.done);
        count
    }

    fn lend(&mut self, lba: u64, blocks: u32) -> Option<Loan> {
        let block = u64::from(self.block_size);
        let range = lba * block..(lba + u64::from(blocks)) * block;
        let is_inside = geometry(self.block_size, &self.memory).contains(lba, blocks.into());
        is_inside.then(|| Loan::new(self.memory.clone(), range, self.block_size))
    }

    fn store(&mut self, lba: u64, data: &[u8]) -> bool {
        let block = u64::from(self.block_size);
        let blocks = data.len() as u64 / block;
        let is_inside = (data.len() as u64).is_multiple_of(block)
            && geometry(self.block_size, &self.memory).contains(lba, blocks);
        if is_inside {
            self.memory.write(lba * block, data);
        }
        is_inside
    }
}

/// The size as hosts see it.
fn geometry(block_size: u32, memory: &Memory) -> Geometry {
    Geometry { block_size, blocks: memory.blocks() }
}

impl Device for Ram {
    fn geometry(&self) -> Geometry {
        geometry(self.block_size, &self.memory)
    }
    fn grow(&self, bytes: u64) -> Result<(), Error> {
        let blocks = larger(self.geometry(), bytes).map_err(|why| Error::unfit("ram", why))?;
        let before = self.memory.bytes();
        let remedy = "raise the limit of address space (ulimit -v), or add another namespace";
        self.memory.extend(bytes, self.huge).map_err(Error::system(
            "ram",
            "has no address space to grow into",
            remedy,
        ))?;
        if self.taken.is_some() {
            populate::populate(&self.memory, before, &|_| {})?;
        }
        self.memory.show(blocks);
        Ok(())
    }
    fn describe(&self) -> String {
        let pages = if self.huge { ", huge pages where the kernel has them" } else { "" };
        let taken = match self.taken {
            Some(time) => format!("taken at start in {:.2} s", time.as_secs_f64()),
            None => "taken as it is written".to_owned(),
        };
        format!("ram: lost when the process ends, {taken}{pages}")
    }
    fn slice(&self) -> u64 {
        128 << 10 // Done while everybody waits: some 10 µs.
    }
    fn open(&self) -> std::io::Result<Box<dyn Channel>> {
        let (block_size, memory) = (self.block_size, self.memory.clone());
        Ok(Box::new(RamChannel { block_size, memory, done: Vec::new() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_under_open_channels_and_keeps_what_is_in_it() {
        let geometry = Geometry { block_size: 512, blocks: 9 };
        let mut ram = Ram::new(geometry, false).unwrap();
        ram.populate(&|_| {}).unwrap();
        let mut disk = ram.open().unwrap();
        assert!(disk.store(8, &[7; 512]) && !disk.store(9, &[9; 512]));
        ram.grow(1 << 20).unwrap();
        assert_eq!(ram.geometry().blocks, 2048);
        assert!(disk.store(9, &[9; 512]) && disk.store(2047, &[1; 512]) && !disk.store(2048, &[1]));
        let lent = disk.lend(7, 3).unwrap();
        let bytes = lent.pin(0).unwrap();
        assert_eq!([0, 512, 1024].map(|at| bytes[at]), [0, 7, 9]);
        for (size, word) in [(512, "does not shrink"), (1 << 20 | 1, "multiple of 512 B")] {
            let error = ram.grow(size).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        ram.grow(1 << 20).unwrap();
    }

    #[test]
    fn whole_blocks_inside_are_stored_at_once() {
        let geometry = Geometry { block_size: 512, blocks: 16 };
        let mut disk = Ram::new(geometry, false).unwrap().open().unwrap();
        let lent = |disk: &mut Box<dyn Channel>, lba| disk.lend(lba, 1).unwrap().pin(0).unwrap()[0];
        assert!(disk.store(14, &[7; 1024]));
        assert_eq!([13, 14, 15].map(|lba| lent(&mut disk, lba)), [0, 7, 7]);
        for (lba, length) in [(15, 1024), (16, 512), (u64::MAX, 512), (0, 511)] {
            assert!(!disk.store(lba, &vec![9; length]), "{length} bytes at block {lba}");
        }
        assert_eq!([0, 14, 15].map(|lba| lent(&mut disk, lba)), [0, 7, 7]);
    }
}
