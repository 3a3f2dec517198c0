//! What a request of 4 KiB costs on each device, beside the bare copy of 4 KiB: read the ratios.

use divan::{Bencher, black_box};
use ebb_target::device::{Channel, Device, Done, Io, Op, Pool, Spec, open};

const BYTES: usize = 4096;

fn main() {
    divan::main();
}

struct Client {
    channel: Box<dyn Channel>,
    pool: Pool,
    done: Vec<Done>,
    lba: u64,
    blocks: u64,
}

impl Client {
    fn new(text: &str) -> Option<Self> {
        let device = open(&text.parse::<Spec>().ok()?).ok()?;
        let (pool, blocks) = (Pool::new(8, 1 << 20).ok()?, device.geometry().blocks);
        let channel = Device::open(&*device).ok()?;
        Some(Self { channel, pool, done: Vec::new(), lba: 0, blocks })
    }

    /// One request, submitted and polled to its end, somewhere in the device.
    fn run(&mut self, op: Op, blocks: u32) {
        self.lba = (self.lba + 7919) % (self.blocks - u64::from(blocks));
        let buffer = self.pool.take(blocks as usize * BYTES);
        self.channel.submit(Io { tag: 0, op, lba: self.lba, blocks, buffer });
        while self.done.is_empty() {
            self.channel.poll(&mut self.done);
        }
        black_box(self.done.drain(..).all(|done| done.status.is_success()));
    }
}

const RAID: &str = "raid5:ram:64MiB,ram:64MiB,ram:64MiB,ram:64MiB,create";
const DEVICES: [&str; 3] = ["null:128MiB", "ram:128MiB", RAID];

#[divan::bench]
fn copy(bencher: Bencher) {
    let (from, mut to) = (vec![1u8; BYTES], vec![0u8; BYTES]);
    bencher.bench_local(|| black_box(&mut to[..]).copy_from_slice(black_box(&from)));
}

#[divan::bench(args = DEVICES)]
fn read(bencher: Bencher, device: &str) {
    let Some(mut client) = Client::new(device) else { return };
    bencher.bench_local(|| client.run(Op::Read { durable: false }, 1));
}

#[divan::bench(args = DEVICES)]
fn write(bencher: Bencher, device: &str) {
    let Some(mut client) = Client::new(device) else { return };
    bencher.bench_local(|| client.run(Op::Write { durable: false }, 1));
}

/// 192 KiB, which on the array is a whole stripe where it is aligned.
#[divan::bench(args = DEVICES)]
fn write_large(bencher: Bencher, device: &str) {
    let Some(mut client) = Client::new(device) else { return };
    bencher.bench_local(|| client.run(Op::Write { durable: false }, 48));
}
