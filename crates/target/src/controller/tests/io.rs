//! Commands of the NVM command set.

use std::sync::atomic::{AtomicU32, Ordering};

use ebb_nvme::command::io;

use super::*;
use crate::controller::Wake;
use crate::device::Op;

struct Bench {
    subsystem: Arc<Subsystem>,
    admin: AdminQueue,
    queue: IoQueue,
}

fn bench() -> Bench {
    let subsystem = subsystem();
    let admin = enabled(&subsystem, NQN);
    let queue = try_io(&subsystem, &admin, 1).unwrap();
    Bench { subsystem, admin, queue }
}

fn command(opcode: u8, nsid: u32, lba: u64, blocks: u32, bytes: u32) -> Sqe {
    let mut sqe = to_host(opcode, nsid, bytes);
    sqe.set_cdw(10, lba as u32);
    sqe.set_cdw(11, (lba >> 32) as u32);
    sqe.set_cdw(12, blocks - 1);
    sqe
}

#[test]
fn commands_become_plans() {
    let Bench { mut admin, queue, .. } = bench();
    let plan = |sqe: &Sqe| queue.command(sqe).map(|(plan, _)| plan);
    let device = |op, lba, blocks| Ok(Plan::Device { namespace: 0, op, lba, blocks });
    let read = command(io::READ, 1, 8, 2, 8192);
    assert_eq!(plan(&read), device(Op::Read { durable: false }, 8, 2));
    let mut forced = read;
    forced.set_cdw(12, 1 << 30 | 1);
    assert_eq!(plan(&forced), device(Op::Read { durable: true }, 8, 2));
    let write = command(io::WRITE, 1, 1023, 1, 4096);
    assert_eq!(plan(&write), device(Op::Write { durable: false }, 1023, 1));
    let mut forced = write;
    forced.set_cdw(12, 1 << 30);
    assert_eq!(plan(&forced), device(Op::Write { durable: true }, 1023, 1));
    let zeroes = command(io::WRITE_ZEROES, 1, 0, 1024, 0);
    assert_eq!(plan(&zeroes), device(Op::WriteZeroes { durable: false }, 0, 1024));
    assert_eq!(plan(&command(io::FLUSH, 1, 0, 1, 0)), device(Op::Flush, 0, 0));
    let compare = Plan::Compare { namespace: 1, durable: false, lba: 5, blocks: 8 };
    assert_eq!(plan(&command(io::COMPARE, 2, 5, 8, 4096)), Ok(compare));
    // Without a write cache every write is durable.
    feature(&mut admin, admin::SET_FEATURES, 0x06, 0).unwrap();
    assert_eq!(plan(&write), device(Op::Write { durable: true }, 1023, 1));
}

#[test]
fn what_does_not_fit_is_refused() {
    let Bench { subsystem, mut admin, queue } = bench();
    let status = |sqe: &Sqe| queue.command(sqe).unwrap_err();
    assert_eq!(status(&command(io::READ, 4, 0, 1, 4096)), Status::INVALID_NAMESPACE);
    assert_eq!(status(&command(io::FLUSH, u32::MAX, 0, 1, 0)), Status::INVALID_NAMESPACE);
    assert_eq!(status(&command(io::READ, 1, 1024, 1, 4096)), Status::LBA_OUT_OF_RANGE);
    assert_eq!(status(&command(io::READ, 1, u64::MAX, 1, 4096)), Status::LBA_OUT_OF_RANGE);
    assert_eq!(status(&command(io::READ, 1, 0, 33, 4096)), Status::INVALID_FIELD);
    for bytes in [0, 4095, 8192] {
        let read = command(io::READ, 1, 0, 1, bytes);
        assert_eq!(status(&read), Status::DATA_SGL_LENGTH_INVALID);
        let write = command(io::WRITE, 1, 0, 1, bytes);
        assert_eq!(status(&write), Status::DATA_SGL_LENGTH_INVALID);
    }
    assert_eq!(status(&command(io::WRITE, 3, 0, 1, 512)), Status::WRITE_PROTECTED);
    assert_eq!(status(&command(io::WRITE_ZEROES, 3, 0, 1, 0)), Status::WRITE_PROTECTED);
    assert_eq!(status(&command(0x0d, 1, 0, 1, 0)), Status::INVALID_OPCODE);
    let mut directed = command(io::WRITE, 1, 0, 1, 4096);
    directed.set_cdw(12, 1 << 20);
    assert_eq!(status(&directed), Status::INVALID_FIELD);
    let errors = log(&mut admin, 0x01, 0, 64).unwrap();
    assert_eq!((u16_at(&errors, 8), u32_at(&errors, 24)), (1, 1));
    drop(admin);
    assert_eq!(status(&command(io::READ, 1, 0, 1, 4096)), Status::SEQUENCE_ERROR);
    assert_eq!(subsystem.totals(), Totals::default());
}

#[test]
fn a_queue_that_was_disconnected_can_be_connected_again_at_once() {
    let Bench { subsystem, admin, queue } = bench();
    let mut disconnect = Sqe::new(FABRICS, 1);
    disconnect.nsid = u32::from(fabrics::DISCONNECT).into();
    disconnect.sgl_identifier = sgl::TRANSPORT;
    assert_eq!(queue.command(&disconnect).map(|(plan, _)| plan), Ok(Plan::Nothing));
    let again = try_io(&subsystem, &admin, 1).unwrap();
    drop(queue);
    assert!(try_io(&subsystem, &admin, 1).is_err() && again.alive(NOW));
}

#[test]
fn a_host_waits_for_what_is_left_of_its_queues_and_no_other_host_does() {
    let Bench { subsystem, admin, mut queue } = bench();
    let (other_admin, calls) = (enabled(&subsystem, NQN), Arc::<AtomicU32>::default());
    let other = try_io(&subsystem, &other_admin, 1).unwrap();
    let stranger =
        subsystem.connect(&connect(0, 31, 0), data(NQN, "", ANY_CONTROLLER).as_bytes(), NOW);
    assert!(stranger.is_ok());
    let counted = calls.clone();
    let wake: Wake = Arc::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let bars = || [0, 1].map(|namespace| other.bar(namespace, &wake).is_some());
    assert_eq!(bars(), [false, false]);
    // Until its thread has seen that it has ended, it may begin anything.
    drop(admin);
    assert_eq!(bars(), [true, true]);
    let mut left = queue.end(vec![1, 1], NOW).unwrap();
    assert_eq!((bars(), calls.load(Ordering::Relaxed)), ([false, true], 1));
    assert!(other.bar(1, &wake).is_some_and(|since| since == NOW));
    left.done(1);
    assert_eq!((bars(), calls.load(Ordering::Relaxed)), ([false, false], 2));
}

#[test]
fn ranges_to_deallocate_are_all_checked_first() {
    let Bench { subsystem, admin: _admin, queue } = bench();
    let mut sqe = to_host(io::DATASET_MANAGEMENT, 2, 4096); // As Linux: room for all 256.
    sqe.set_cdw(10, 2);
    assert_eq!(queue.command(&sqe).map(|(plan, _)| plan), Ok(Plan::Nothing));
    sqe.set_cdw(11, 4);
    let plan = Plan::Deallocate { namespace: 1, ranges: 3 };
    assert_eq!(queue.command(&sqe).map(|(plan, _)| plan), Ok(plan));
    sqe.sgl_length = 47.into();
    assert_eq!(queue.command(&sqe), Err(Status::DATA_SGL_LENGTH_INVALID));
    let geometry = subsystem.namespaces()[1].device.geometry();
    let range =
        |lba: u64, blocks: u32| [&[0; 4][..], &blocks.to_le_bytes(), &lba.to_le_bytes()].concat();
    let of = |data: &[u8]| check_ranges(data, 3, geometry);
    let good = [range(0, 8), range(99, 0), range((1 << 20) - 1, 1)].concat();
    assert_eq!(of(&good), Ok(()));
    assert_eq!(range_at(&good, 2), Some(((1 << 20) - 1, 1)));
    let beyond = [range(0, 8), range(8, 8), range((1 << 20) - 1, 2)].concat();
    assert_eq!(of(&beyond), Err(Status::LBA_OUT_OF_RANGE));
    let wrapping = [range(0, 8), range(8, 8), range(u64::MAX, 2)].concat();
    assert_eq!(of(&wrapping), Err(Status::LBA_OUT_OF_RANGE));
    assert_eq!(of(&good[..47]), Err(Status::DATA_SGL_LENGTH_INVALID));
    let gone = Geometry { blocks: 0, ..geometry };
    assert_eq!(check_ranges(&good, 3, gone), Err(Status::INVALID_NAMESPACE));
}

#[test]
fn one_command_asks_for_no_more_than_the_limits_that_are_told() {
    let Bench { queue, admin: _admin, .. } = bench();
    let mut deallocate = to_host(io::DATASET_MANAGEMENT, 2, 4096);
    deallocate.set_cdw(11, 4);
    deallocate.set_cdw(10, 254);
    assert!(queue.command(&deallocate).is_ok());
    deallocate.set_cdw(10, 255);
    assert_eq!(queue.command(&deallocate), Err(Status::SIZE_LIMIT_EXCEEDED));
    let range = |blocks: u32| [&[0; 4][..], &blocks.to_le_bytes(), &[0; 8]].concat();
    let geometry = Geometry { block_size: 512, blocks: u64::MAX >> 9 };
    assert_eq!(check_ranges(&range(1 << 20).repeat(4), 4, geometry), Ok(()));
    let more = check_ranges(&range(1 << 20).repeat(5), 5, geometry);
    assert_eq!(more, Err(Status::SIZE_LIMIT_EXCEEDED));
    let larger = check_ranges(&range((1 << 20) + 1), 1, geometry);
    assert_eq!(larger, Err(Status::SIZE_LIMIT_EXCEEDED));
    let zeroes = |blocks: u32| command(io::WRITE_ZEROES, 2, 0, blocks, 0);
    assert!(queue.command(&zeroes(16_384)).is_ok());
    assert_eq!(queue.command(&zeroes(16_385)), Err(Status::INVALID_FIELD));
}

#[test]
fn a_queue_can_be_disconnected_alone() {
    let Bench { subsystem, admin, queue } = bench();
    let mut sqe = Sqe::new(FABRICS, 1);
    sqe.nsid = u32::from(fabrics::DISCONNECT).into();
    assert_eq!(queue.command(&sqe), Ok((Plan::Nothing, Direction::None)));
    assert!(!queue.alive(NOW) && admin.alive(NOW));
    drop(queue);
    assert!(try_io(&subsystem, &admin, 1).is_ok());
}

#[test]
fn smart_counts_what_was_done_even_by_queues_that_are_gone() {
    let Bench { subsystem, mut admin, queue } = bench();
    let (read, write) = (command(io::READ, 1, 0, 2, 8192), command(io::WRITE, 2, 0, 200, 102_400));
    for (sqe, times) in [(read, 100), (write, 7)] {
        let (plan, _) = queue.command(&sqe).unwrap();
        (0..times).for_each(|_| queue.account(&sqe, &plan, Status::SUCCESS));
    }
    let (plan, _) = queue.command(&read).unwrap();
    queue.account(&read, &plan, Status::UNRECOVERED_READ);
    drop(queue);
    let other = try_io(&subsystem, &admin, 2).unwrap();
    other.account(&read, &plan, Status::SUCCESS);
    let smart = log(&mut admin, 0x02, 0, 512).unwrap();
    // 101 reads of 8 KiB and 7 writes of 100 KiB, in thousands of 512 bytes, rounded up.
    assert_eq!((u64_at(&smart, 32), u64_at(&smart, 48)), (2, 2));
    assert_eq!((u64_at(&smart, 64), u64_at(&smart, 80)), (101, 7));
    assert_eq!((u64_at(&smart, 160), u64_at(&smart, 176)), (1, 1));
    assert_eq!((u16_at(&smart, 1), smart[3]), (300, 100));
    let errors = log(&mut admin, 0x01, 0, 64).unwrap();
    assert_eq!((u16_at(&errors, 8), u16_at(&errors, 10)), (1, 2));
}
