//! Hosts that authenticate themselves, and some that would rather not.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use ebb_initiator::{Controller, Error, Op, Queue, Request, Target, Transaction};
use ebb_nvme::chap::{Group, Key};
use ebb_nvme::command::{FABRICS, admin, fabrics, io, sgl};
use ebb_nvme::pdu::{Digests, Kind};
use ebb_nvme::{Sqe, Status, auth};
use ebb_target::controller::{Keys, Rules, Secrets, Tally};

use super::peer::{HOST, Peer, connect, keep_alive, transfer};
use super::server::{NQN, Server};

const OTHER: &str = "nqn.2026-11.org.example:other";
const ID: [u8; 16] = [7; 16];
/// Of 32 bytes of 1, 2, 3 and 4.
const SECRETS: [&str; 4] = [
    "DHHC-1:00:AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQHMnzFi:",
    "DHHC-1:00:AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgJvwX3v:",
    "DHHC-1:00:AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMOC0aU:",
    "DHHC-1:00:BAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBARoepQu:",
];

fn key(number: usize) -> Key {
    Key::parse(SECRETS[number]).unwrap()
}

/// The keys of [`HOST`], which are 0 and 2, the target's 1; those of [`OTHER`], 3. Reading them may
/// be held up.
#[derive(Default)]
struct Vault {
    revoked: Mutex<bool>,
    held: Mutex<bool>,
    released: Condvar,
}

impl Vault {
    fn hold(&self, held: bool) {
        *self.held.lock().unwrap() = held;
        self.released.notify_all();
    }
}

impl Secrets for Vault {
    fn requires(&self, host: &str) -> bool {
        [HOST, OTHER].contains(&host)
    }

    fn keys(&self, host: &str) -> Result<Keys, String> {
        let held = self.held.lock().unwrap();
        drop(self.released.wait_while(held, |held| *held).unwrap());
        let own = if *self.revoked.lock().unwrap() { vec![2] } else { vec![0, 2] };
        let own = if host == HOST { own } else { vec![3] };
        let host = own.into_iter().map(key).collect();
        Ok(Keys { host, controller: Some(key(1)) })
    }
}

fn server() -> (Server, Arc<Vault>) {
    let vault = Arc::new(Vault::default());
    (Server::guarded(Rules::new(vault.clone())), vault)
}

/// A host with this key, and one of the target if it is to show that it has it.
fn target(server: &Server, host: &str, own: usize, controller: Option<usize>) -> Target {
    let host = ebb_initiator::Host { nqn: host.to_owned(), id: ID };
    let secrets = Some(ebb_initiator::Secrets::new(key(own), controller.map(key)));
    let timeout = Duration::from_secs(60);
    Target { host, secrets, timeout, ..Target::new(server.address, NQN) }
}

fn connects(target: &Target) -> Controller {
    Controller::connect(target).unwrap()
}

fn why(target: &Target) -> String {
    match Controller::connect(target) {
        Ok(_) => panic!("it must not get in"),
        Err(error) => error.to_string(),
    }
}

fn reads(queue: &mut Queue) {
    let (op, buffer, from) = (Op::Read, vec![1; 4096], Instant::now());
    queue.submit(Request { op, nsid: 1, lba: 8, blocks: 8, buffer, tag: 5, from }).unwrap();
    let mut done = Vec::new();
    while done.is_empty() {
        queue.poll(&mut done).unwrap();
        queue.wait(Duration::from_millis(20)).unwrap();
        assert!(from.elapsed() < Duration::from_secs(60), "a read hangs");
    }
    assert!(done[0].status.is_success() && done[0].buffer == vec![0; 4096]);
}

#[test]
fn who_has_the_key_does_its_io_and_shows_it_again() {
    let (server, _) = server();
    for (controller, digests) in [(None, 0), (Some(1), 3)] {
        let mut target = target(&server, HOST, 2, controller);
        target.digests = Digests::from_byte(digests);
        let mut host = connects(&target);
        let mut queue = host.queue(1, 4).unwrap();
        reads(&mut queue);
        host.authenticate().unwrap();
        reads(&mut queue);
        host.namespaces().unwrap();
    }
    assert_eq!(server.subsystem.authentications(), Some(Tally { succeeded: 6, failed: 0 }));
}

#[test]
fn who_has_another_key_does_not_get_in_and_is_told_of() {
    let (server, vault) = server();
    for wrong in [
        target(&server, HOST, 1, None),
        target(&server, HOST, 3, Some(1)),
        target(&server, OTHER, 0, None),
    ] {
        assert!(why(&wrong).contains("authentication failed"), "{}", why(&wrong));
    }
    let unknown = target(&server, "nqn.2026-11.org.example:unknown", 0, None);
    assert!(why(&unknown).contains("not on its allow-list"));
    let none = Target { secrets: None, ..target(&server, HOST, 0, None) };
    assert!(why(&none).contains("give a key"));
    let false_target = target(&server, HOST, 0, Some(3));
    assert!(why(&false_target).contains("failed to authenticate itself"));
    let failures = server.subsystem.failures_since(0);
    assert!(failures.iter().any(|one| one.host == OTHER && one.why.contains("another key")));
    assert!(failures.iter().all(|one| one.address.is_loopback()));
    // Hosts that are there stay when a key is revoked; it is of no use to who comes.
    let old = target(&server, HOST, 0, None);
    let mut host = connects(&old);
    let mut queue = host.queue(1, 4).unwrap();
    *vault.revoked.lock().unwrap() = true;
    assert!(why(&old).contains("authentication failed"));
    assert!(host.queue(2, 4).is_err(), "nor for another queue");
    reads(&mut queue);
    host.keep_alive().unwrap();
    connects(&target(&server, HOST, 2, Some(1)));
    assert!(matches!(host.authenticate(), Err(Error::Unauthenticated(_))));
    assert!(host.keep_alive().is_err(), "it is found to have no key any more");
}

#[test]
fn nothing_but_authentication_is_answered_before_it() {
    let (server, _) = server();
    let (mut admin, _) = Peer::joined(&server, 0, 0xffff, Digests::default());
    let mut get = Sqe::new(FABRICS, 1);
    get.nsid = u32::from(fabrics::PROPERTY_GET).into();
    let mut set = get;
    set.nsid = u32::from(fabrics::PROPERTY_SET).into();
    set.set_cdw(11, 0x14);
    set.set_cdw(12, 0x0046_0001);
    let identify = transfer(admin::IDENTIFY, 2, 0, 8, sgl::TRANSPORT);
    let (again, data) = connect(0, 0xffff);
    let required = Status::AUTHENTICATION_REQUIRED;
    for sqe in [get, set, identify, keep_alive(3), transfer(0xc1, 4, 0, 1, sgl::TRANSPORT)] {
        assert_eq!(admin.roundtrip(sqe, &[]).cqe().status(), required, "{sqe:?}");
    }
    assert_eq!(admin.roundtrip(again, &data).cqe().status(), required);
    // Nor on a queue of a controller whose host has shown who it is.
    let host = connects(&target(&server, HOST, 0, None));
    let (mut queue, _) = Peer::joined(&server, 1, host.id(), Digests::default());
    for sqe in
        [transfer(io::READ, 1, 0, 1, sgl::TRANSPORT), transfer(io::WRITE, 2, 0, 8, sgl::TRANSPORT)]
    {
        assert_eq!(queue.roundtrip(sqe, &[]).cqe().status(), required);
    }
    let write = transfer(io::WRITE, 3, 0, 8, sgl::IN_CAPSULE);
    assert_eq!(queue.roundtrip(write, &[9; 4096]).cqe().status(), required);
    reads(&mut host.queue(2, 4).unwrap());
}

/// Whoever knows the names of a controller can come first, and even have the key.
#[test]
fn the_number_of_a_queue_is_taken_by_who_has_authenticated_itself_first() {
    let (server, _) = server();
    let host = connects(&target(&server, HOST, 0, None));
    let (mut early, _) = Peer::joined(&server, 1, host.id(), Digests::default());
    let mut queue = host.queue(1, 4).unwrap();
    reads(&mut queue);
    let (sqe, data) = connect(1, host.id());
    let late = Peer::initialized(&server, Digests::default()).roundtrip(sqe, &data);
    assert_eq!(late.cqe().status(), Status::SEQUENCE_ERROR.retry(), "there is one by now");
    let secrets = ebb_initiator::Secrets::new(key(0), None);
    let mut transaction = Transaction::new(&secrets, 1, HOST, NQN);
    let send = |peer: &mut Peer, bytes: &[u8]| {
        let sqe = message(SEND, 1, bytes.len() as u32, sgl::IN_CAPSULE);
        assert_eq!(peer.roundtrip(sqe, bytes).cqe().status(), Status::SUCCESS);
    };
    send(&mut early, &transaction.negotiate());
    let challenge = early.roundtrip(message(RECEIVE, 2, 4096, sgl::TRANSPORT), &[]);
    assert_eq!(early.pdu().unwrap().cqe().status(), Status::SUCCESS);
    send(&mut early, &transaction.reply(&challenge.data).unwrap());
    early.send(&early.capsule(message(RECEIVE, 3, 80, sgl::TRANSPORT), &[]));
    while early.pdu().is_some() {} // Success, perhaps, and in any case the end.
    reads(&mut queue);
    drop(queue);
    let again = Instant::now();
    while host.queue(1, 4).is_err() {
        assert!(again.elapsed() < Duration::from_secs(60), "the number is never free again");
    }
}

/// Authentication Send, or Receive, of `length` bytes.
fn message(kind: u8, cid: u16, length: u32, identifier: u8) -> Sqe {
    let mut sqe = Sqe::new(FABRICS, cid);
    sqe.nsid = u32::from(kind).into();
    (sqe.sgl_length, sqe.sgl_identifier) = (length.into(), identifier);
    auth::put_fields(&mut sqe, length);
    sqe
}

const SEND: u8 = fabrics::AUTHENTICATION_SEND;
const RECEIVE: u8 = fabrics::AUTHENTICATION_RECEIVE;

#[test]
fn messages_come_one_at_a_time_and_no_longer_than_they_may_be() {
    let (server, _) = server();
    let secrets = ebb_initiator::Secrets::new(key(0), None);
    let mut host = Transaction::new(&secrets, 1, HOST, NQN);
    let negotiation = host.negotiate();
    let length = negotiation.len() as u32;
    let (mut admin, _) = Peer::joined(&server, 0, 0xffff, Digests::from_byte(2));
    let status = |peer: &mut Peer, sqe| peer.roundtrip(sqe, &[]).cqe().status();
    let mut other = message(SEND, 1, 72, sgl::TRANSPORT);
    other.set_cdw(10, 0);
    assert_eq!(status(&mut admin, other), Status::INVALID_FIELD);
    let long = message(SEND, 1, 4097, sgl::TRANSPORT);
    assert_eq!(status(&mut admin, long), Status::INVALID_FIELD);
    assert_eq!(status(&mut admin, message(SEND, 1, 0, sgl::TRANSPORT)), Status::INVALID_FIELD);
    let long = message(RECEIVE, 1, 4097, sgl::TRANSPORT);
    assert_eq!(status(&mut admin, long), Status::INVALID_FIELD);
    // Data that is asked for, and another message meanwhile.
    let r2t = admin.roundtrip(message(SEND, 1, length, sgl::TRANSPORT), &[]).transfer();
    let second = admin.roundtrip(message(SEND, 2, length, sgl::IN_CAPSULE), &negotiation);
    assert_eq!(second.cqe().status(), Status::SEQUENCE_ERROR);
    admin.send(&admin.h2c_data(&r2t, 0, &negotiation, true));
    assert_eq!(admin.pdu().unwrap().cqe().status(), Status::SUCCESS);
    let challenge = admin.roundtrip(message(RECEIVE, 3, 4096, sgl::TRANSPORT), &[]);
    assert_eq!((challenge.frame.kind, challenge.data.len()), (Kind::C2hData, 4096));
    assert_eq!(admin.pdu().unwrap().cqe().status(), Status::SUCCESS);
    let reply = host.reply(&challenge.data).unwrap();
    let sent = admin.roundtrip(message(SEND, 4, reply.len() as u32, sgl::IN_CAPSULE), &reply);
    assert_eq!(sent.cqe().status(), Status::SUCCESS);
    let success = admin.roundtrip(message(RECEIVE, 5, 80, sgl::TRANSPORT), &[]);
    assert_eq!(host.conclude(&success.data), Ok(None));
    assert_eq!(admin.pdu().unwrap().cqe().status(), Status::SUCCESS);
    admin.configure(0x0046_0001);
    // A challenge that has no room is lost, and with it the attempt.
    let (mut small, _) = Peer::joined(&server, 0, 0xffff, Digests::default());
    small.roundtrip(message(SEND, 1, length, sgl::IN_CAPSULE), &negotiation);
    let none = small.roundtrip(message(RECEIVE, 2, 100, sgl::TRANSPORT), &[]);
    assert_eq!(none.cqe().status(), Status::INVALID_FIELD);
}

#[test]
fn a_failed_attempt_ends_the_connection() {
    let (server, _) = server();
    let (mut admin, _) = Peer::joined(&server, 0, 0xffff, Digests::default());
    let sent = admin.roundtrip(message(SEND, 1, 8, sgl::IN_CAPSULE), &[0xff; 8]);
    assert_eq!(sent.cqe().status(), Status::SUCCESS);
    let failure = admin.roundtrip(message(RECEIVE, 2, 4096, sgl::TRANSPORT), &[]);
    assert_eq!(failure.data[..2], [0, auth::id::FAILURE1]);
    assert_eq!(admin.pdu().unwrap().cqe().status(), Status::SUCCESS);
    assert!(admin.pdu().is_none(), "the connection must be closed");
    assert_eq!(server.subsystem.authentications(), Some(Tally { succeeded: 0, failed: 1 }));
}

/// Reading keys takes as long as it takes: who is in does not notice.
#[test]
fn what_takes_long_stops_nobody() {
    let (server, vault) = server();
    let mut host = connects(&target(&server, HOST, 0, None));
    let mut queue = host.queue(1, 4).unwrap();
    vault.hold(true);
    std::thread::scope(|scope| {
        let joining: Vec<_> =
            (0..8).map(|_| scope.spawn(|| connects(&target(&server, OTHER, 3, Some(1))))).collect();
        for _ in 0..50 {
            reads(&mut queue);
        }
        host.keep_alive().unwrap();
        assert!(joining.iter().all(|one| !one.is_finished()));
        vault.hold(false);
        joining.into_iter().for_each(|one| drop(one.join().unwrap()));
    });
}

/// Those who only begin, hold no host's place and none of its turn.
#[test]
fn a_crowd_that_only_begins_keeps_nobody_out() {
    let (server, _) = server();
    let groups = vec![Group::F4096];
    let secrets = ebb_initiator::Secrets { groups, ..ebb_initiator::Secrets::new(key(0), None) };
    let negotiation = Transaction::new(&secrets, 1, HOST, NQN).negotiate();
    let crowd: Vec<Peer> = (0..64)
        .map(|_| {
            let (mut peer, _) = Peer::joined(&server, 0, 0xffff, Digests::default());
            let sqe = message(SEND, 1, negotiation.len() as u32, sgl::IN_CAPSULE);
            peer.roundtrip(sqe, &negotiation);
            peer.send(&peer.capsule(message(RECEIVE, 2, 4096, sgl::TRANSPORT), &[]));
            peer
        })
        .collect();
    let host = connects(&target(&server, HOST, 0, None));
    reads(&mut host.queue(1, 4).unwrap());
    drop(crowd);
}
