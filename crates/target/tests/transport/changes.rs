//! Namespaces, addresses and limits that change while hosts use them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ebb_initiator::{Controller, Queue, Request, Target};
use ebb_nvme::command::{admin, io, sgl};
use ebb_nvme::pdu::{Digests, Kind};
use ebb_nvme::{Sqe, Status, feature};
use ebb_target::controller::{Allowed, AnaState, Namespace};
use ebb_target::device::{Device, Op, Spec, open};
use ebb_target::transport::{ChangeError, Fleet, Limits, Removed};

use super::peer::{Peer, transfer};
use super::server::{DONE, FAILED, Gate, NQN, Server};

const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(60);

fn fleet(server: &Server, patience: Duration) -> Fleet {
    Fleet::new(server.subsystem.clone(), vec![server.steward.clone()], patience)
}

fn ram(size: &str) -> Arc<dyn Device> {
    open(&format!("ram:{size},block=512B,lazy").parse::<Spec>().unwrap()).unwrap()
}

fn namespace(id: u32, device: Arc<dyn Device>) -> Namespace {
    let tag = 0x40 | id as u8;
    Namespace { id, device, uuid: [tag; 16], nguid: [0x80 | tag; 16], read_only: false }
}

fn of(nsid: u32, sqe: Sqe) -> Sqe {
    Sqe { nsid: nsid.into(), ..sqe }
}

#[test]
fn a_namespace_is_used_grows_and_goes_while_its_host_stays() {
    let server = Server::start(Limits::default());
    let (mut admin, mut peer) = Peer::pair(&server, Digests::default());
    let mut fleet = fleet(&server, LONG);
    let mut events = Sqe::new(admin::SET_FEATURES, 1);
    events.set_cdw(10, feature::ASYNC_EVENTS.into());
    events.set_cdw(11, 1 << 8);
    assert_eq!(admin.roundtrip(events, &[]).cqe().status(), Status::SUCCESS);
    admin.send(&admin.capsule(Sqe::new(admin::ASYNC_EVENT_REQUEST, 2), &[]));
    let write = |lba| of(3, transfer(io::WRITE, 1, lba, 1, sgl::IN_CAPSULE));
    let mut status = |lba| peer.roundtrip(write(lba), &[7; 512]).cqe().status();
    assert_eq!(status(0), Status::INVALID_NAMESPACE);
    let device = ram("4KiB");
    fleet.add(namespace(3, device.clone())).unwrap();
    let event = admin.pdu().unwrap().cqe();
    assert_eq!((event.cid.get(), event.result.get()), (2, 0x04_0002), "see log page 04h");
    assert_eq!((status(7), status(8)), (Status::SUCCESS, Status::LBA_OUT_OF_RANGE));
    Fleet::resize(fleet.subsystem(), 3, 8 << 10).unwrap();
    assert_eq!((status(15), status(16)), (Status::SUCCESS, Status::LBA_OUT_OF_RANGE));
    assert!(
        Fleet::resize(fleet.subsystem(), 3, 4 << 10)
            .unwrap_err()
            .to_string()
            .contains("does not shrink")
    );
    assert_eq!(fleet.remove(3).unwrap(), Removed::Closed);
    assert_eq!(status(0), Status::INVALID_NAMESPACE);
    assert_eq!(Arc::strong_count(&device), 1, "nobody has it open");
    assert!(matches!(fleet.remove(3), Err(ChangeError::None(3))));
    assert!(matches!(fleet.add(namespace(5, ram("4KiB"))), Err(ChangeError::Config(_))));
    assert_eq!(peer.write(1, 0, &[1; 512]), Status::SUCCESS, "the other goes on");
}

/// What the device has ends as it ends, what it has not is refused, and none of it reaches the
/// namespace that takes the place.
#[test]
fn a_namespace_in_use_goes_when_its_device_is_done() {
    let (gate, state) = Gate::before("ram:1MiB,block=512B", |op| matches!(op, Op::Write { .. }));
    let server = Server::of(gate.clone(), Limits { buffers: 4, ..Limits::default() });
    let (_admin, mut peer) = Peer::pair(&server, Digests::default());
    let asked = peer.roundtrip(transfer(io::WRITE, 1, 8, 2, sgl::TRANSPORT), &[]);
    assert_eq!(asked.frame.kind, Kind::R2t);
    // Two are at the device, the others find no buffers.
    let mut writes = Vec::new();
    for cid in 2..6 {
        writes.extend(peer.capsule(transfer(io::WRITE, cid, 0, 1, sgl::IN_CAPSULE), &[9; 512]));
    }
    peer.send(&writes);
    while server.counters.under_way.load(Ordering::Relaxed) == 0 {}
    let mut fleet = fleet(&server, SHORT);
    assert_eq!(fleet.remove(1).unwrap(), Removed::Waiting);
    assert_eq!(fleet.leaving(), [1]);
    let next = || namespace(1, ram("1MiB"));
    assert!(matches!(fleet.add(next()), Err(ChangeError::Leaving(1))));
    state.store(DONE, Ordering::SeqCst);
    let mut statuses = [2, 3, 4, 5].map(|_| {
        let cqe = peer.pdu().unwrap().cqe();
        (cqe.cid.get(), cqe.status())
    });
    statuses.sort_by_key(|(cid, _)| *cid);
    let done = statuses.iter().filter(|(_, status)| status.is_success()).count();
    assert!((1..=2).contains(&done) && statuses[0].1.is_success(), "{statuses:?}");
    assert!(statuses[done..].iter().all(|(_, status)| *status == Status::INVALID_NAMESPACE));
    while !fleet.leaving().is_empty() {}
    assert_eq!(Arc::strong_count(&gate), 1);
    fleet.add(next()).unwrap();
    peer.send(&peer.h2c_data(&asked.transfer(), 0, &[5; 1024], true));
    assert_eq!(peer.pdu().unwrap().cqe().status(), Status::INVALID_NAMESPACE);
    assert_eq!(peer.read(7, 0, 16), [0; 16 * 512], "the new one is untouched");
}

#[test]
fn what_was_written_is_flushed_before_a_device_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk");
    let spec = format!("file:{},create,size=1MiB,block=512B", path.display());
    // Where there is no io_uring, there is nothing to ask.
    let Ok(device) = open(&spec.parse::<Spec>().unwrap()) else { return };
    let server = Server::start(Limits::default());
    let (_admin, mut peer) = Peer::pair(&server, Digests::default());
    let mut fleet = fleet(&server, LONG);
    fleet.add(namespace(2, device.clone())).unwrap();
    let write = |lba| of(2, transfer(io::WRITE, 1, lba, 1, sgl::IN_CAPSULE));
    assert_eq!(peer.roundtrip(write(2047), &[7; 512]).cqe().status(), Status::SUCCESS);
    Fleet::resize(fleet.subsystem(), 2, 2 << 20).unwrap();
    assert_eq!(peer.roundtrip(write(4095), &[8; 512]).cqe().status(), Status::SUCCESS);
    assert_eq!(fleet.remove(2).unwrap(), Removed::Closed);
    assert_eq!(Arc::strong_count(&device), 1);
    drop(device);
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!((bytes.len(), bytes[2047 * 512], bytes[4095 * 512]), (2 << 20, 7, 8));
    // Its lock is free.
    open(&spec.parse::<Spec>().unwrap()).unwrap();
}

fn read(queue: &mut Queue, nsid: u32) -> Status {
    let buffer = vec![0; 512];
    let (op, from) = (ebb_initiator::Op::Read, Instant::now());
    let request = Request { op, nsid, lba: 0, blocks: 1, buffer, tag: 0, from };
    queue.submit(request).unwrap();
    let mut done = Vec::new();
    while done.is_empty() {
        queue.flush().unwrap();
        queue.wait(LONG).unwrap();
        queue.poll(&mut done).unwrap();
    }
    done[0].status
}

#[test]
fn paths_have_states_and_those_of_an_address_that_is_given_up_end() {
    let server = Server::start(Limits::default());
    let second = server.doors.open(SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    server.subsystem.set_ports(&server.doors.ports());
    let connect = |address| Controller::connect(&Target::new(address, NQN));
    let mut hosts = [server.address, second].map(|address| connect(address).unwrap());
    let mut queues = [0, 1].map(|at| {
        hosts[at].set_queues(1).unwrap();
        hosts[at].queue(1, 8).unwrap()
    });
    let mut reads = || [0, 1].map(|at| read(&mut queues[at], 1));
    assert_eq!(reads(), [Status::SUCCESS; 2]);
    assert!(server.subsystem.set_ana(second, Some(1), AnaState::Inaccessible));
    assert_eq!(reads(), [Status::SUCCESS, Status::ANA_INACCESSIBLE]);
    assert!(server.subsystem.set_ana(second, None, AnaState::Optimized));
    assert_eq!(reads(), [Status::SUCCESS; 2]);
    assert!(server.doors.close(second) && !server.doors.close(second));
    server.subsystem.set_ports(&server.doors.ports());
    fleet(&server, LONG).close(second).unwrap();
    assert!(hosts[0].keep_alive().is_ok() && hosts[1].keep_alive().is_err());
    assert_eq!(read(&mut queues[0], 1), Status::SUCCESS);
    assert!(connect(second).is_err(), "nobody listens there");
    assert_eq!(server.doors.open(second.into()).unwrap(), second, "and it may come back");
}

/// Both connections of a host share its limit; another host does not wait for it.
#[test]
fn a_host_does_no_more_than_it_is_allowed() {
    let server = Server::start(Limits::default());
    let target = Target::new(server.address, NQN);
    let mut host = Controller::connect(&target).unwrap();
    host.set_queues(2).unwrap();
    let mut queues = [1, 2].map(|id| host.queue(id, 8).unwrap());
    let allow = |iops| {
        let allowed = Allowed { iops, bytes_per_second: None };
        server.subsystem.allow(&target.host.nqn, allowed).unwrap();
    };
    allow(Some(50));
    let start = Instant::now();
    for _ in 0..15 {
        queues.iter_mut().for_each(|queue| assert_eq!(read(queue, 1), Status::SUCCESS));
    }
    // The first comes at once, and another may on each connection.
    let took = start.elapsed();
    assert!(took >= Duration::from_millis(20 * (30 - 3)), "{took:?}");
    allow(Some(10));
    read(&mut queues[0], 1);
    let mut other = target.clone();
    other.host.nqn = "nqn.2026-01.org.example:other".to_owned();
    let mut other = Controller::connect(&other).unwrap();
    other.set_queues(1).unwrap();
    let mut free = other.queue(1, 8).unwrap();
    let start = Instant::now();
    (0..500).for_each(|_| assert_eq!(read(&mut free, 1), Status::SUCCESS));
    let of_other = start.elapsed();
    assert!(of_other < Duration::from_secs(25), "500 at 10 a second take 50 s: {of_other:?}");
    host.keep_alive().unwrap();
    allow(None);
    let start = Instant::now();
    (0..500).for_each(|_| assert_eq!(read(&mut queues[0], 1), Status::SUCCESS));
    assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
}

/// It would have to wait for minutes, and hears of each change at once.
#[test]
fn a_limit_that_is_changed_lets_go_who_waits() {
    let server = Server::start(Limits::default());
    let target = Target::new(server.address, NQN);
    let mut host = Controller::connect(&target).unwrap();
    host.set_queues(1).unwrap();
    let mut queue = host.queue(1, 8).unwrap();
    for rate in [Some(1 << 30), None] {
        let allow = |bytes_per_second| {
            let allowed = Allowed { iops: None, bytes_per_second };
            server.subsystem.allow(&target.host.nqn, allowed).unwrap();
        };
        allow(Some(1));
        assert_eq!(read(&mut queue, 1), Status::SUCCESS);
        let (op, from, mut done) = (ebb_initiator::Op::Read, Instant::now(), Vec::new());
        let buffer = vec![0; 512];
        let request = Request { op, nsid: 1, lba: 0, blocks: 1, buffer, tag: 0, from };
        queue.submit(request).unwrap();
        queue.flush().unwrap();
        queue.wait(SHORT).unwrap();
        queue.poll(&mut done).unwrap();
        assert!(done.is_empty(), "it has to wait");
        allow(rate);
        queue.wait(LONG).unwrap();
        queue.poll(&mut done).unwrap();
        assert!(done.first().is_some_and(|done| done.status.is_success()), "{rate:?}");
        allow(None);
    }
}

/// At the end hosts are disconnected, every device is flushed, and one that hangs keeps nobody
/// from that.
#[test]
fn the_end_flushes_every_namespace_and_waits_for_a_hung_one_no_longer_than_it_may() {
    let (hung, state) = Gate::before("ram:1MiB,block=512B", |op| matches!(op, Op::Write { .. }));
    let (fine, flushes) = Gate::before("ram:1MiB,block=512B", |op| op == Op::Flush);
    let (failing, fails) = Gate::before("ram:1MiB,block=512B", |op| op == Op::Flush);
    flushes.store(DONE, Ordering::SeqCst);
    fails.store(FAILED, Ordering::SeqCst);
    let devices: Vec<Arc<dyn Device>> = vec![hung.clone(), fine.clone(), failing.clone()];
    let server = Server::of_all(devices, Limits::default());
    let (_admin, mut peer) = Peer::pair(&server, Digests::default());
    peer.send(&peer.capsule(transfer(io::WRITE, 1, 0, 1, sgl::IN_CAPSULE), &[9; 512]));
    while server.counters.under_way.load(Ordering::Relaxed) == 0 {}
    let ends = fleet(&server, LONG).end(Duration::from_secs(5));
    let ends: Vec<_> = ends.into_iter().map(|(id, _, end)| (id, end)).collect();
    let unflushed = Removed::Unflushed(Status::WRITE_FAULT);
    assert_eq!(ends, [(1, Removed::Waiting), (2, Removed::Closed), (3, unflushed)]);
    assert_eq!((Arc::strong_count(&fine), Arc::strong_count(&failing)), (1, 1), "both are closed");
    assert!(peer.pdu().is_none(), "disconnected, and never told that it is gone");
    state.store(DONE, Ordering::SeqCst);
    while Arc::strong_count(&hung) > 1 {}
}
