//! Members of an array with any bytes in their superblocks and journals: assembling refuses them
//! by name or serves what it says, and never panics, loops or goes beyond the members.
//!
//! Starts from the members of an array that was cut off in its work. The first byte chooses which
//! are given and how; every 16 after it change up to eight bytes of one: member and what else
//! (1 byte), place (2), how many (1), bytes (12). Checksums are made right again where asked for.

#![no_main]

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use ebb_nvme::Status;
use ebb_target::device::{
    Buffer, Channel, Device, Done, Geometry, Io, Keeper, Op, Pool, Raid5, Raid5Options,
};
use libfuzzer_sys::fuzz_target;

const BLOCK: usize = 512;
const GEOMETRY: Geometry = Geometry { block_size: BLOCK as u32, blocks: (2 << 11) + 64 };
/// Bytes that a superblock's checksum covers.
const SUPERBLOCK: usize = 144;
const JOURNAL: u64 = 1 << 20;
const SLOT: u64 = 8192;
const SLOTS: u64 = 8;
/// Polls after which a request hangs.
const PATIENCE: usize = 10_000;

type Blocks = BTreeMap<u64, [u8; BLOCK]>;

/// A member in memory.
#[derive(Clone, Default)]
struct Member(Arc<Mutex<Blocks>>);

struct Lane(Member, Vec<Done>);

impl Device for Member {
    fn geometry(&self) -> Geometry {
        GEOMETRY
    }
    fn describe(&self) -> String {
        "fuzzed".to_owned()
    }
    fn open(&self) -> io::Result<Box<dyn Channel>> {
        Ok(Box::new(Lane(self.clone(), Vec::new())))
    }
}

impl Channel for Lane {
    fn submit(&mut self, mut io: Io) {
        assert!(io.range(GEOMETRY).is_ok(), "beyond the member: {io:?}");
        let mut blocks = self.0.0.lock().unwrap();
        for index in 0..u64::from(io.blocks) {
            let (at, place) =
                (io.lba + index, index as usize * BLOCK..(index as usize + 1) * BLOCK);
            match (io.op, &mut io.buffer) {
                (Op::Read { .. }, Some(buffer)) => {
                    buffer[place].copy_from_slice(blocks.get(&at).unwrap_or(&[0; BLOCK]));
                }
                (Op::Write { .. }, Some(buffer)) => {
                    blocks.insert(at, buffer[place].try_into().unwrap());
                }
                (Op::WriteZeroes { .. }, _) => drop(blocks.remove(&at)),
                _ => {}
            }
        }
        drop(blocks);
        self.1.push(io.done(Status::SUCCESS));
    }
    fn poll(&mut self, done: &mut Vec<Done>) -> usize {
        let count = self.1.len();
        done.append(&mut self.1);
        count
    }
}

impl Member {
    fn change(&self, at: u64, bytes: &[u8]) {
        let mut blocks = self.0.lock().unwrap();
        for (at, byte) in (at..).zip(bytes) {
            let block = blocks.entry(at / BLOCK as u64).or_insert([0; BLOCK]);
            block[at as usize % BLOCK] = *byte;
        }
    }
    fn bytes(&self, at: u64, count: usize) -> Vec<u8> {
        let blocks = self.0.lock().unwrap();
        let byte = |at: u64| {
            blocks.get(&(at / BLOCK as u64)).map_or(0, |block| block[at as usize % BLOCK])
        };
        (at..at + count as u64).map(byte).collect()
    }
    /// Checksums are where this file believes them to be.
    fn check(&self) {
        for page in [0, 4096].into_iter().chain((0..SLOTS).map(|slot| JOURNAL + slot * SLOT)) {
            let before = self.bytes(page, 4096);
            if before.iter().any(|byte| *byte != 0) {
                self.repair(page);
                assert!(self.bytes(page, 4096) == before, "the format has changed: {page}");
            }
        }
    }
    /// Makes the checksum of the superblock or journal slot at `page` right.
    fn repair(&self, page: u64) {
        if page < JOURNAL {
            self.change(page + 12, &[0; 4]);
            let sum = crc32c::crc32c(&self.bytes(page, SUPERBLOCK));
            return self.change(page + 12, &sum.to_le_bytes());
        }
        self.change(page + 56, &[0; 4]);
        let slot = self.bytes(page, SLOT as usize);
        let number = |at: usize| u32::from_le_bytes(slot[at..at + 4].try_into().unwrap());
        let rows = number(52).saturating_sub(number(48)).min(4096) as usize;
        let head = crc32c::crc32c(&slot[..64]);
        let sum = crc32c::crc32c_append(head, &slot[4096..4096 + rows]);
        self.change(page + 56, &sum.to_le_bytes());
    }
}

fn run(
    (channel, keeper): (&mut dyn Channel, &mut Keeper),
    op: Op,
    lba: u64,
    buffer: Option<Buffer>,
) -> Done {
    let blocks = buffer.as_ref().map_or(0, |buffer| buffer.len() / BLOCK) as u32;
    channel.submit(Io { tag: 7, op, lba, blocks, buffer });
    let mut done = Vec::new();
    for _ in 0..PATIENCE {
        keeper.run_once();
        if channel.poll(&mut done) > 0 {
            return done.remove(0);
        }
    }
    panic!("{op:?} at {lba} hangs");
}

fn named(members: &[Member], given: impl Fn(usize) -> bool) -> Vec<(String, Arc<dyn Device>)> {
    let members = members.iter().enumerate().filter(|(at, _)| given(*at));
    members.map(|(at, member)| (format!("m{at}"), Arc::new(member.clone()) as _)).collect()
}

/// Members of an array that was not stopped.
fn base() -> &'static [Blocks] {
    static BASE: OnceLock<Vec<Blocks>> = OnceLock::new();
    BASE.get_or_init(|| {
        let members: Vec<Member> = (0..3).map(|_| Member::default()).collect();
        let options = Raid5Options {
            chunk: 4096,
            journal_slots: SLOTS as u32,
            create: true,
            ..Default::default()
        };
        let (array, mut keeper) = Raid5::open_kept(named(&members, |_| true), &options).unwrap();
        let (mut channel, pool) = (array.open().unwrap(), Pool::new(1, 8192).unwrap());
        for lba in 0..7 {
            let mut buffer = pool.take(if lba < 3 { 8192 } else { 512 });
            buffer.as_mut().unwrap().fill(lba as u8 + 1);
            run((&mut *channel, &mut keeper), Op::Write { durable: true }, lba * 5, buffer);
        }
        drop(channel);
        members.iter().for_each(Member::check);
        members.iter().map(|member| member.0.lock().unwrap().clone()).collect()
    })
}

fuzz_target!(|input: &[u8]| {
    let Some((how, changes)) = input.split_first() else { return };
    let members: Vec<_> =
        base().iter().map(|blocks| Member(Arc::new(Mutex::new(blocks.clone())))).collect();
    for change in changes.chunks_exact(16) {
        let member = &members[usize::from(change[0] & 3) % 3];
        let place = u64::from(u16::from_le_bytes([change[1], change[2]]));
        let page = match change[0] >> 2 & 3 {
            0 => 0,
            1 => 4096,
            _ => JOURNAL + place / 64 % SLOTS * SLOT,
        };
        let place =
            page + if change[0] & 0x40 == 0 { place % SUPERBLOCK as u64 } else { place % SLOT };
        member.change(place, &change[4..4 + usize::from(change[3] % 13)]);
        if change[0] & 0x80 == 0 {
            member.repair(page);
        }
    }
    let options = Raid5Options {
        degraded: how & 1 == 1,
        rebuild: how & 2 == 2,
        create: how & 4 == 4,
        chunk: 4096,
        journal_slots: SLOTS as u32,
        ..Default::default()
    };
    let absent = usize::from(how >> 3 & 3);
    match Raid5::open_kept(named(&members, |at| at != absent), &options) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok((array, mut keeper)) => serve(&array, &mut keeper),
    }
});

/// What was assembled does its work.
fn serve(array: &Raid5, keeper: &mut Keeper) {
    let geometry = array.geometry();
    assert!(geometry.blocks > 0 && geometry.bytes() < 2 * GEOMETRY.bytes(), "{geometry:?}");
    let Ok(mut channel) = array.open() else { return };
    let (pool, count) = (Pool::new(1, 4096).unwrap(), BLOCK.max(geometry.block_size as usize));
    for step in 0..8 {
        let lba = step * geometry.blocks / 8;
        let mut buffer = pool.take(count);
        buffer.as_mut().unwrap().fill(step as u8);
        let blocks = count as u32 / geometry.block_size;
        assert_eq!(blocks, 1, "members have blocks of {BLOCK}");
        if run((&mut *channel, keeper), Op::Write { durable: false }, lba, buffer)
            .status
            .is_success()
        {
            let done =
                run((&mut *channel, keeper), Op::Read { durable: false }, lba, pool.take(count));
            assert!(done.status.is_success());
            assert!(done.buffer.unwrap().iter().all(|byte| *byte == step as u8));
        }
    }
}
