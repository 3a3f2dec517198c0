//! Driving a channel by hand.

use ebb_target::device::{Channel, Done, Io, Op, Pool};
use ebb_target::wire::Status;

/// A channel and buffers for it, one request at a time.
pub struct Client {
    pub channel: Box<dyn Channel>,
    pub pool: Pool,
    pub block: usize,
}

impl Client {
    pub fn new(device: &dyn ebb_target::device::Device) -> Self {
        let pool = Pool::new(64, 1 << 20);
        let mut channel = device.open().unwrap();
        channel.register(&pool);
        Self { channel, pool, block: device.geometry().block_size as usize }
    }

    pub fn io(&self, op: Op, lba: u64, blocks: u32) -> Io {
        let buffer = matches!(op, Op::Read | Op::Write { .. })
            .then(|| self.pool.take(blocks as usize * self.block).unwrap());
        Io { tag: lba, op, lba, blocks, buffer }
    }

    /// Submits and polls until it is done.
    pub fn run(&mut self, io: Io) -> Done {
        self.channel.submit(io);
        let mut done = Vec::new();
        while done.is_empty() {
            self.channel.poll(&mut done);
        }
        assert_eq!(done.len(), 1);
        done.remove(0)
    }

    pub fn write(&mut self, op: Op, lba: u64, data: &[u8]) -> Status {
        let mut io = self.io(op, lba, (data.len() / self.block) as u32);
        io.buffer.as_mut().unwrap().copy_from_slice(data);
        self.run(io).status
    }

    pub fn read(&mut self, lba: u64, blocks: u32) -> Result<Vec<u8>, Status> {
        let done = self.run(self.io(Op::Read, lba, blocks));
        if done.status.is_success() { Ok(done.buffer.unwrap().to_vec()) } else { Err(done.status) }
    }
}
