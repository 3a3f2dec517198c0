//! Driving a channel by hand.

use ebb_nvme::Status;
use ebb_target::device::{Channel, Device, Done, Io, Op, Pool};
use proptest::prelude::*;

/// A channel and buffers for it, one request at a time.
pub struct Client {
    pub channel: Box<dyn Channel>,
    pub pool: Pool,
    pub block: usize,
}

impl Client {
    pub fn new(device: &dyn Device) -> Self {
        let pool = Pool::new(64, 2 << 20).unwrap();
        let mut channel = device.open().unwrap();
        channel.register(&pool);
        Self { channel, pool, block: device.geometry().block_size as usize }
    }

    pub fn io(&self, op: Op, lba: u64, blocks: u32) -> Io {
        let buffer = matches!(op, Op::Read { .. } | Op::Write { .. })
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
        let done = self.run(self.io(Op::Read { durable: false }, lba, blocks));
        if done.status.is_success() { Ok(done.buffer.unwrap().to_vec()) } else { Err(done.status) }
    }
}

/// An operation, its first block, blocks and the byte written.
pub type AnyOp = (Op, u64, u32, u8);

/// Up to 60 operations on a device of `blocks` blocks.
pub fn any_ops(blocks: u64) -> impl Strategy<Value = Vec<AnyOp>> {
    let op = prop_oneof![
        4 => any::<bool>().prop_map(|durable| Op::Write { durable }),
        4 => any::<bool>().prop_map(|durable| Op::Read { durable }),
        1 => any::<bool>().prop_map(|durable| Op::WriteZeroes { durable }),
        1 => Just(Op::Deallocate),
        1 => Just(Op::Flush),
    ];
    let one = (op, 0..blocks, 0..200u32, any::<u8>()).prop_map(move |(op, lba, length, fill)| {
        (op, lba, length.min((blocks - lba) as u32), fill)
    });
    prop::collection::vec(one, 1..60)
}

/// Runs `ops` on a fresh device and beside it on plain memory.
pub fn keeps_what_was_written(device: &dyn Device, ops: Vec<AnyOp>) {
    let mut client = Client::new(device);
    let block = client.block;
    let mut model = vec![0; device.geometry().bytes() as usize];
    for (op, lba, blocks, fill) in ops {
        let at = lba as usize * block..(lba as usize + blocks as usize) * block;
        match op {
            Op::Write { .. } => {
                model[at.clone()].fill(fill);
                assert!(client.write(op, lba, &model[at]).is_success());
            }
            Op::Read { .. } => {
                let done = client.run(client.io(op, lba, blocks));
                assert!(done.status.is_success() && done.buffer.unwrap()[..] == model[at]);
            }
            Op::Flush => assert!(client.run(client.io(op, 0, 0)).status.is_success()),
            _ => {
                assert!(client.run(client.io(op, lba, blocks)).status.is_success());
                // A hint to deallocate may zero any part of the range and nothing else.
                model[at.clone()].copy_from_slice(&client.read(lba, blocks).unwrap());
                if let Op::WriteZeroes { .. } = op {
                    assert!(model[at].iter().all(|byte| *byte == 0));
                }
            }
        }
    }
    let whole = client.read(0, device.geometry().blocks as u32).unwrap();
    assert!(whole == model, "the whole device at the end");
}

/// Runs lives, each from a seed of its own, until power was cut often enough: `EBB_CRASHES` times,
/// or `cuts`. The first seed is `EBB_SEED`, or 0.
pub fn campaign(cuts: u64, life: impl Fn(u64) -> u64) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let wanted = number("EBB_CRASHES").unwrap_or(cuts);
    let first = number("EBB_SEED").unwrap_or(0);
    let (mut seed, mut seen) = (first, 0);
    while seen < wanted {
        seen += life(seed);
        seed += 1;
    }
    println!("{seen} cuts of power in {} lives", seed - first);
}
