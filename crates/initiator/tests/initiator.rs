//! The initiator against a well-behaved peer in all its variants, and against a hostile one.

use std::time::{Duration, Instant};

use ebb_initiator::{
    Completion, Controller, Error, Op, Queue, Refused, Request, Target, Violation, discover,
};
use ebb_nvme::Status;
use ebb_nvme::pdu::{Digests, Fatal};
use proptest::prelude::*;

use crate::peer::{Config, Fault, NQN, Peer};

const BOTH: Digests = Digests { header: true, data: true };

fn target(peer: &Peer) -> Target {
    Target { timeout: Duration::from_secs(20), ..Target::new(peer.address(), NQN) }
}

fn request(op: Op, lba: u64, blocks: u32, buffer: Vec<u8>) -> Request {
    Request { op, nsid: 2, lba, blocks, buffer, tag: lba, from: Instant::now() }
}

/// Submits these and waits until all are answered, in the order of their tags.
fn all(queue: &mut Queue, requests: Vec<Request>) -> Result<Vec<Completion>, Error> {
    let mut done = Vec::new();
    let mut left = requests.into_iter();
    let mut waiting = left.next();
    let start = Instant::now();
    while waiting.is_some() || queue.outstanding() > 0 {
        while let Some(request) = waiting.take() {
            match queue.submit(request) {
                Ok(()) => waiting = left.next(),
                Err(Refused::Full(request)) => {
                    waiting = Some(request);
                    break;
                }
                Err(Refused::Invalid(request)) => panic!("{request:?}"),
            }
        }
        queue.poll(&mut done)?;
        queue.wait(Duration::from_millis(20))?;
        assert!(start.elapsed() < Duration::from_secs(60), "{} commands hang", queue.outstanding());
    }
    done.sort_by_key(|completion| completion.tag);
    Ok(done)
}

fn one(queue: &mut Queue, op: Op, lba: u64, blocks: u32, buffer: Vec<u8>) -> Completion {
    all(queue, vec![request(op, lba, blocks, buffer)]).unwrap().pop().unwrap()
}

#[test]
fn an_association_is_made_and_ended_in_order() {
    let peer = Peer::start(Config::default());
    let found = discover(&target(&peer)).unwrap();
    assert_eq!((found.len(), found[0].nqn.as_str(), found[0].is_usable()), (1, NQN, true));
    assert_eq!(found[0].service, peer.address().port().to_string());
    let mut controller = Controller::connect(&target(&peer)).unwrap();
    assert_eq!(controller.identity().model, "Peer");
    assert_eq!(controller.identity().most_bytes, Some(128 << 10));
    assert_eq!(controller.namespaces().unwrap(), [1, 2]);
    let namespace = controller.namespace(2).unwrap();
    assert_eq!((namespace.block_size, namespace.bytes()), (512, 1 << 20));
    assert!(matches!(controller.namespace(9), Err(Error::Failed { .. })));
    assert_eq!(controller.set_queues(64).unwrap(), 8);
    controller.keep_alive().unwrap();
    let mut queue = controller.queue(1, 1000).unwrap();
    assert_eq!(queue.room(), 127);
    one(&mut queue, Op::Flush, 0, 0, Vec::new());
    controller.disconnect_queue(&mut queue).unwrap();
    controller.shut_down().unwrap();
    assert_eq!(peer.shared.disconnects.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[test]
fn every_command_does_what_it_says() {
    let peer = Peer::start(Config::default());
    let controller = Controller::connect(&target(&peer)).unwrap();
    let mut queue = controller.queue(1, 8).unwrap();
    let data: Vec<u8> = (0..64 * 512).map(|byte| (byte * 7 / 5) as u8).collect();
    let done = one(&mut queue, Op::Write { durable: true }, 3, 64, data.clone());
    assert!(done.status.is_success() && done.latency > Duration::ZERO);
    assert_eq!(done.buffer, data, "the buffer comes back");
    let read = |queue: &mut Queue| one(queue, Op::Read, 3, 64, vec![1; data.len()]).buffer;
    assert_eq!(read(&mut queue), data);
    assert!(one(&mut queue, Op::Compare, 3, 64, data.clone()).status.is_success());
    let other = vec![9; data.len()];
    let status = one(&mut queue, Op::Compare, 3, 64, other).status;
    assert_eq!(status, Status::COMPARE_FAILURE);
    assert!(one(&mut queue, Op::WriteZeroes, 3, 1, Vec::new()).status.is_success());
    assert!(one(&mut queue, Op::Deallocate, 66, 1, Vec::new()).status.is_success());
    let read = read(&mut queue);
    assert_eq!((&read[..512], &read[63 * 512..]), (&[0; 512][..], &[0; 512][..]));
    assert_eq!(read[512..63 * 512], data[512..63 * 512]);
    let beyond = one(&mut queue, Op::Read, 2048, 1, vec![0; 512]);
    assert_eq!(beyond.status, Status::LBA_OUT_OF_RANGE);
}

#[test]
fn impossible_requests_come_back() {
    let peer = Peer::start(Config::default());
    let controller = Controller::connect(&target(&peer)).unwrap();
    let mut queue = controller.queue(1, 1).unwrap();
    for (blocks, bytes) in [(0, 512), (65_537, 65_537), (2, 0), (3, 512)] {
        let refused = queue.submit(request(Op::Read, 0, blocks, vec![0; bytes]));
        assert!(matches!(refused, Err(Refused::Invalid(_))), "{blocks} {bytes}");
    }
    queue.submit(request(Op::Read, 0, 1, vec![0; 512])).unwrap();
    let refused = queue.submit(request(Op::Read, 0, 1, vec![0; 512]));
    assert!(matches!(refused, Err(Refused::Full(_))));
}

#[test]
fn connecting_says_what_is_wrong() {
    let peer = Peer::start(Config::default());
    let text = |target: &Target| Controller::connect(target).unwrap_err().to_string();
    let mut wrong = target(&peer);
    wrong.subsystem = "nqn.2014-08.org:nobody".to_owned();
    assert!(text(&wrong).contains("no subsystem nqn.2014-08.org:nobody"), "{}", text(&wrong));
    let mut wrong = target(&peer);
    wrong.host.nqn = "nqn.2014-08.org:unwelcome".to_owned();
    assert!(text(&wrong).contains("allow-list"), "{}", text(&wrong));
    let plain = Peer::start(Config { digests: Digests::default(), ..Config::default() });
    let mut wrong = target(&plain);
    wrong.digests = BOTH;
    assert!(text(&wrong).contains("--digest"), "{}", text(&wrong));
    let gone = target(&peer);
    drop(peer);
    assert!(matches!(Controller::connect(&gone), Err(Error::Connect { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Many writes, then reads of all of it, with every way a peer may transfer data.
    #[test]
    fn what_is_written_is_read(
        (header, data) in any::<(bool, bool)>(),
        in_capsule in prop::sample::select(vec![0_usize, 512, 4096]),
        (pieces, h2c_pages) in (1_usize..40, 1_u32..5),
        (alignment, success, reorder) in (0_u8..32, any::<bool>(), any::<bool>()),
        (depth, lengths) in (1_usize..24, prop::collection::vec(1_u32..40, 1..40)),
    ) {
        let (piece, max_h2c) = (pieces * 516, h2c_pages * 4096);
        let config =
            Config { in_capsule, max_h2c, alignment, success, piece, reorder, ..Config::default() };
        let peer = Peer::start(config);
        let digests = Digests { header, data };
        let controller = Controller::connect(&Target { digests, ..target(&peer) }).unwrap();
        let mut queue = controller.queue(1, depth).unwrap();
        let mut lba = 0;
        let mut expected = Vec::new();
        for blocks in lengths {
            let content: Vec<u8> =
                (0..blocks as usize * 512).map(|at| (at as u64 * 31 + lba * 7) as u8).collect();
            expected.push((lba, blocks, content));
            lba += u64::from(blocks);
        }
        let writes = expected.iter().map(|(lba, blocks, content)| {
            request(Op::Write { durable: false }, *lba, *blocks, content.clone())
        });
        for done in all(&mut queue, writes.collect()).unwrap() {
            prop_assert!(done.status.is_success());
        }
        let reads = expected.iter().map(|(lba, blocks, content)| {
            request(Op::Read, *lba, *blocks, vec![0; content.len()])
        });
        let reads = all(&mut queue, reads.collect()).unwrap();
        for (done, (lba, _, content)) in reads.iter().zip(&expected) {
            prop_assert_eq!((done.tag, &done.buffer), (*lba, content));
        }
    }
}

/// What an initiator says to a peer that misbehaves at the third of several commands.
fn misbehaving(fault: Fault, op: Op) -> Error {
    let peer = Peer::start(Config { fault: Some((fault, 2)), in_capsule: 0, ..Config::default() });
    let target = Target { digests: BOTH, ..target(&peer) };
    let controller = Controller::connect(&target).unwrap();
    let mut queue = controller.queue(1, 4).unwrap();
    let requests = (0..8).map(|lba| request(op, lba * 8, 8, vec![0; 4096])).collect();
    let error = all(&mut queue, requests).unwrap_err();
    assert!(error.is_connection(), "{error}");
    let outstanding = queue.outstanding();
    assert!((1..=4).contains(&outstanding), "{fault:?}: {outstanding}");
    assert!(queue.abandon().all(|(_, buffer)| buffer.len() == 4096));
    assert_eq!((queue.outstanding(), queue.room()), (0, 4));
    assert!(matches!(queue.poll(&mut Vec::new()), Err(Error::Closed)));
    error
}

#[test]
fn a_hostile_peer_is_found_out_when_read_from() {
    let read = |fault| misbehaving(fault, Op::Read);
    let violation = |fault| match read(fault) {
        Error::Violation(violation) => violation,
        error => panic!("{fault:?}: {error}"),
    };
    use Violation::{DataDigest, Early, Frame, Length, Offset, UnknownCommand};
    assert!(matches!(violation(Fault::DataDigest), DataDigest { .. }));
    assert!(matches!(violation(Fault::HeaderDigest), Frame(Fatal::HeaderDigest(_))));
    assert!(matches!(violation(Fault::Offset), Offset { expected: 0, found: 4, .. }));
    assert!(matches!(violation(Fault::TooLong), Length { length: 8192, total: 4096, .. }));
    assert!(matches!(violation(Fault::LengthMismatch), Length { length: 4092, .. }));
    assert!(matches!(violation(Fault::UnknownCommand), UnknownCommand(_)));
    assert!(matches!(violation(Fault::UnknownPdu), Frame(Fatal::InvalidHeaderField(0))));
    assert!(matches!(violation(Fault::ShortHeader), Frame(Fatal::InvalidHeaderField(2))));
    assert!(matches!(violation(Fault::HostPdu), Frame(Fatal::Sequence)));
    assert!(matches!(violation(Fault::Early), Early { moved: 0, total: 4096, .. }));
    assert!(matches!(violation(Fault::SuccessNotLast), Frame(Fatal::InvalidHeaderField(1))));
    assert!(matches!(read(Fault::Terminate), Error::Terminated { status: 2, information: 7 }));
    assert!(matches!(read(Fault::CloseInside), Error::Closed));
    assert!(matches!(read(Fault::Close), Error::Closed | Error::Socket(_)));
}

#[test]
fn a_hostile_peer_is_found_out_when_written_to() {
    let violation = |fault| match misbehaving(fault, Op::Write { durable: false }) {
        Error::Violation(violation) => violation,
        error => panic!("{fault:?}: {error}"),
    };
    assert!(matches!(violation(Fault::UnknownCommand), Violation::UnknownCommand(_)));
    assert!(matches!(violation(Fault::Twice), Violation::UnknownCommand(_)));
    assert!(matches!(violation(Fault::DataForWrite), Violation::Direction(_)));
    let beyond = violation(Fault::RequestBeyond);
    assert!(matches!(beyond, Violation::Length { length: 8192, total: 4096, .. }));
    // The second may come while the first is being answered, or after.
    let twice = violation(Fault::TwoRequests);
    assert!(matches!(twice, Violation::TooManyRequests(_) | Violation::Offset { .. }));
}

#[test]
fn a_stalled_peer_is_waited_for_no_longer_than_asked() {
    let peer = Peer::start(Config { fault: Some((Fault::Stall, 0)), ..Config::default() });
    let controller = Controller::connect(&target(&peer)).unwrap();
    let mut queue = controller.queue(1, 4).unwrap();
    queue.submit(request(Op::Read, 0, 1, vec![0; 512])).unwrap();
    let mut done = Vec::new();
    for _ in 0..3 {
        queue.poll(&mut done).unwrap();
        queue.wait(Duration::from_millis(5)).unwrap();
    }
    assert_eq!((done.len(), queue.outstanding()), (0, 1));
    assert!(queue.heard() < Instant::now());
}
