//! RAID-5 as its users meet it.

use std::sync::{Arc, Mutex};

use ebb_target::device::{Device, Error, Io, Op, Raid5, Raid5Options, Ram, Spec, open};
use proptest::prelude::*;

use super::common::{Client, any_ops, keeps_what_was_written};
use super::shelf::{self, Pages, Plate, Rig};

fn ram(blocks: u64) -> Arc<dyn Device> {
    let geometry = ebb_target::device::Geometry { block_size: 512, blocks };
    Arc::new(Ram::new(geometry, false).unwrap())
}

fn options() -> Raid5Options {
    Raid5Options {
        chunk: 8192,
        journal_slots: 16,
        create: true,
        rebuild: true,
        ..Raid5Options::default()
    }
}

fn named(devices: &[Arc<dyn Device>]) -> Vec<(String, Arc<dyn Device>)> {
    devices.iter().enumerate().map(|(at, device)| (format!("m{at}"), device.clone())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn arrays_read_what_was_written(members in 3..7usize, ops in any_ops(300)) {
        let devices: Vec<_> = (0..members).map(|_| ram((2 << 11) + 250)).collect();
        let array = Raid5::open(named(&devices), &options()).unwrap();
        prop_assert!(array.geometry().blocks >= 300);
        keeps_what_was_written(&array, ops);
    }
}

/// Cores write at once, each in blocks of its own that share stripes with the others'; any member
/// can then be missed, and the array can be made whole again.
#[test]
fn cores_share_stripes_and_any_member_can_be_rebuilt() {
    let mut devices: Vec<_> = (0..4).map(|_| ram((2 << 11) + 2048)).collect();
    let array = Raid5::open(named(&devices), &options()).unwrap();
    let blocks = array.geometry().blocks;
    const THREADS: u64 = 4;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let array = &array;
            scope.spawn(move || {
                let mut client = Client::new(array);
                let mut done = Vec::new();
                for round in 0..3u8 {
                    for lba in (0..blocks).filter(|lba| lba / 3 % THREADS == thread) {
                        let mut io = client.io(Op::Write { durable: false }, lba, 1);
                        io.buffer.as_mut().unwrap().fill((lba as u8) ^ round);
                        client.channel.submit(io);
                        while client.pool.available() < 40 {
                            client.channel.poll(&mut done);
                            assert!(done.drain(..).all(|done| done.status.is_success()));
                        }
                    }
                }
                while client.pool.available() < 64 {
                    client.channel.poll(&mut done);
                    assert!(done.drain(..).all(|done| done.status.is_success()));
                }
            });
        }
    });
    let check = |array: &Raid5| {
        let mut client = Client::new(array);
        for lba in 0..blocks {
            assert_eq!(client.read(lba, 1).unwrap(), [lba as u8 ^ 2; 512], "block {lba}");
        }
    };
    check(&array);
    drop(array);
    for lost in 0..4 {
        let rest: Vec<_> = (0..4).filter(|at| *at != lost).map(|at| devices[at].clone()).collect();
        let alone = Raid5Options { degraded: true, ..options() };
        let array = Raid5::open(named(&rest), &alone).unwrap();
        assert_eq!(array.status().failed, Some(lost));
        assert!(array.describe().contains("degraded"));
        check(&array);
        drop(array);
        devices[lost] = ram((2 << 11) + 2048);
        let array = Raid5::open(named(&devices), &options()).unwrap();
        let mut client = Client::new(&array);
        while array.status().rebuilding.is_some() {
            assert_eq!(client.read(5, 1).unwrap(), [5 ^ 2; 512]);
            std::thread::yield_now();
        }
        drop(client);
        assert!(array.status().was_clean);
        drop(array);
    }
    check(&Raid5::open(named(&devices), &options()).unwrap());
}

#[test]
fn wrong_members_are_named_with_a_remedy() {
    let blocks = (2 << 11) + 250;
    let devices: Vec<_> = (0..3).map(|_| ram(blocks)).collect();
    let refused = |devices: &[Arc<dyn Device>], options: &Raid5Options, part: &str| {
        let error: Error = Raid5::open(named(devices), options).err().expect("it is refused");
        let error = error.to_string();
        assert!(error.contains("m0") || error.contains("m1") || error.contains("m2"), "{error}");
        assert!(error.contains(part), "{error}");
    };
    let plain = Raid5Options { create: false, rebuild: false, ..options() };
    refused(&devices, &plain, "add ',create'");
    refused(&devices[..2], &options(), "3 to 16 members");
    drop(Raid5::open(named(&devices), &options()).unwrap());
    let other: Vec<_> = (0..3).map(|_| ram(blocks)).collect();
    drop(Raid5::open(named(&other), &options()).unwrap());
    let mixed = [devices[0].clone(), devices[1].clone(), other[2].clone()];
    refused(&mixed, &plain, "belongs to array");
    refused(&devices[..2], &plain, "add ',degraded'");
    refused(&devices[..1], &plain, "all but one");
    let twice = [devices[0].clone(), devices[1].clone(), devices[1].clone()];
    refused(&twice, &plain, "one is a copy");
    let blank = [devices[0].clone(), devices[1].clone(), ram(blocks)];
    refused(&blank, &Raid5Options { degraded: true, ..plain.clone() }, "add ',rebuild'");
    refused(&[devices[0].clone(), devices[1].clone(), ram(100)], &options(), "needs");
    let used = ram(blocks);
    let status = Client::new(&*used).write(Op::Write { durable: true }, 0, &[1; 512]);
    assert!(status.is_success());
    refused(&[devices[0].clone(), devices[1].clone(), used], &options(), "not a member");
    // A member that missed writes is not taken back as if it had not.
    let alone = Raid5Options { degraded: true, ..plain.clone() };
    drop(Raid5::open(named(&devices[1..]), &alone).unwrap());
    refused(&devices, &plain, "m0: is outdated");
    let array = Raid5::open(named(&devices), &alone).unwrap();
    assert_eq!(array.status().failed, Some(0));
    drop(array);
    refused(&devices[1..], &plain, "add ',degraded'");
    refused(&devices[..2], &alone, "all but one");
}

#[test]
fn a_text_makes_and_reopens_an_array_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<_> =
        ["a", "b", "c"].map(|name| folder.path().join(name).display().to_string()).into();
    let text = format!("raid5:{},journal=16", paths.join(","));
    let made = format!("{text},create,size=8MiB").parse::<Spec>().unwrap();
    let array = open(&made).unwrap();
    let mut client = Client::new(&*array);
    assert!(client.write(Op::Write { durable: true }, 100, &[3; 3 * 4096]).is_success());
    drop((client, array));
    let array = open(&text.parse::<Spec>().unwrap()).unwrap();
    assert_eq!(Client::new(&*array).read(100, 3).unwrap(), [3; 3 * 4096]);
    let error = open(&text.parse::<Spec>().unwrap()).err().unwrap().to_string();
    assert!(error.contains("in use"), "{error}");
}

/// A read is answered while large writes of others still have most of their way to go.
#[test]
fn a_read_does_not_wait_for_large_writes() {
    let devices: Vec<_> = (0..3).map(|_| ram((2 << 11) + 64_000)).collect();
    let array = Raid5::open(named(&devices), &options()).unwrap();
    let (blocks, mut client) = (array.geometry().blocks as u32, Client::new(&array));
    let mut done = Vec::new();
    for tag in 0..12 {
        let io = client.io(Op::WriteZeroes { durable: false }, 0, blocks);
        client.channel.submit(Io { tag, ..io });
    }
    for turn in 0..20 {
        let read = client.io(Op::Read { durable: false }, 77, 1);
        client.channel.submit(Io { tag: 100 + turn, ..read });
        client.channel.poll(&mut done);
        assert_eq!(done.pop().map(|done| done.tag), Some(100 + turn), "read {turn}");
        assert!(done.is_empty(), "the writes are far from done");
    }
    while done.len() < 12 {
        client.channel.poll(&mut done);
    }
    assert!(done.iter().all(|done| done.status.is_success()));
}

/// Large writes get on together, not one after the other.
#[test]
fn writes_take_turns() {
    let devices: Vec<_> = (0..3).map(|_| ram((2 << 11) + 64_000)).collect();
    let array = Raid5::open(named(&devices), &options()).unwrap();
    let (blocks, mut client) = (array.geometry().blocks as u32 / 4, Client::new(&array));
    let mut done = Vec::new();
    for (tag, length) in [(0, blocks * 3), (1, blocks)] {
        let io = client.io(Op::WriteZeroes { durable: false }, tag * u64::from(blocks * 3), length);
        client.channel.submit(Io { tag, ..io });
    }
    while done.is_empty() {
        client.channel.poll(&mut done);
    }
    assert_eq!(done[0].tag, 1, "the smaller one ends first");
}

#[test]
fn a_member_that_fails_is_named_with_the_reason() {
    let rig = Arc::<Mutex<Rig>>::default();
    let plates: Vec<_> = (0..3).map(|role| Plate::new(role, Pages::default(), &rig)).collect();
    let members: Vec<Arc<dyn Device>> =
        plates.iter().map(|plate| Arc::new(plate.clone()) as _).collect();
    let small = Raid5Options { chunk: 4096, journal_slots: 4, ..options() };
    let (array, mut keeper) = Raid5::open_kept(named(&members), &small).unwrap();
    let health = |array: &Raid5| array.health().unwrap();
    assert!(!health(&array).is_degraded() && health(&array).to_string().contains("whole"));
    rig.lock().unwrap().broken = Some(1);
    let mut client = shelf::Client::new(&array);
    assert!((0..6).all(|lba| client.write(lba, 1, &mut keeper)));
    let text = health(&array).to_string();
    assert!(health(&array).is_degraded() && !health(&array).read_only);
    assert!(text.contains("without m1 (its journal could not be written)"), "{text}");
    assert!(text.contains("',rebuild'") && array.describe().contains(&text), "{text}");
    // A second one: nothing is written any more, and all of it is read.
    rig.lock().unwrap().broken = Some(2);
    assert!((0..6).any(|lba| !client.write(lba, 2, &mut keeper)));
    let text = health(&array).to_string();
    assert!(health(&array).read_only && text.contains("m1") && text.contains("m2"), "{text}");
    assert!((0..6).all(|lba| [1, 2].contains(&client.read(lba, &mut keeper))));
    drop((client, keeper, array));
    rig.lock().unwrap().broken = None;
    let array = Raid5::open(named(&members), &Raid5Options { create: false, ..small }).unwrap();
    assert_eq!(health(&array).failed, [], "being rebuilt is not failed");
    while health(&array).is_degraded() {
        std::thread::yield_now();
    }
}

#[test]
fn a_rebuild_that_could_not_read_goes_on_when_it_can() {
    let rig = Arc::<Mutex<Rig>>::default();
    let mut plates: Vec<_> = (0..3).map(|role| Plate::new(role, Pages::default(), &rig)).collect();
    let open = |plates: &[Plate]| {
        let members: Vec<Arc<dyn Device>> =
            plates.iter().map(|plate| Arc::new(plate.clone()) as _).collect();
        let small = Raid5Options { chunk: 4096, journal_slots: 4, ..options() };
        Raid5::open_kept(named(&members), &small).unwrap()
    };
    let (array, mut keeper) = open(&plates);
    let mut client = shelf::Client::new(&array);
    assert!((0..6).all(|lba| client.write(lba, 7, &mut keeper)));
    drop((client, keeper, array));
    plates[1] = Plate::new(1, Pages::default(), &rig);
    rig.lock().unwrap().unreadable = Some(2);
    let (array, mut keeper) = open(&plates);
    assert!(!keeper.run_once() && array.status().stuck && keeper.waits());
    let text = array.health().unwrap().to_string();
    assert!(text.contains("the rebuild of m1 stands still"), "{text}");
    assert!(!keeper.retry() && array.status().stuck);
    rig.lock().unwrap().unreadable = None;
    assert!(!keeper.run_once(), "only now and then");
    let mut more = keeper.retry();
    while more {
        more = keeper.run_once();
    }
    assert_eq!((array.status().rebuilding, array.status().stuck), (None, false));
    let mut client = shelf::Client::new(&array);
    assert!((0..6).all(|lba| client.read(lba, &mut keeper) == 7));
}

#[test]
fn a_member_is_no_plain_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let [a, b, c] = ["a", "b", "c"].map(path);
    let made = format!("raid5:{a},{b},{c},journal=16,create,size=8MiB");
    drop(open(&made.parse::<Spec>().unwrap()).unwrap());
    for block in ["512B", "64KiB"] {
        let text = format!("file:{b},block={block}");
        let error = open(&text.parse::<Spec>().unwrap()).err().unwrap().to_string();
        assert!(error.contains(&b) && error.contains("',overwrite'"), "{error}");
        open(&format!("{text},overwrite").parse::<Spec>().unwrap()).unwrap();
    }
    drop(open(&format!("raid5:{a},{b},{c}").parse::<Spec>().unwrap()).unwrap());
}
