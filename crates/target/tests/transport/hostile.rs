//! Peers that break the rules: each gets its answer, and the others never notice.

use std::io::Write;
use std::net::{Shutdown, TcpStream};

use ebb_nvme::command::{admin, io, sgl};
use ebb_nvme::pdu::{Digests, Kind};
use ebb_nvme::{Sqe, Status};
use ebb_policy::units::Nanos;
use ebb_target::transport::Limits;
use proptest::prelude::*;

use super::peer::{Host, Peer, connect, initialize, transfer};
use super::server::Server;

const INVALID_FIELD: u16 = 1;
const SEQUENCE: u16 = 2;
const HEADER_DIGEST: u16 = 3;
const OUT_OF_RANGE: u16 = 4;
const LIMIT: u16 = 5;

/// Shows that the target still serves others.
fn assert_serves(server: &Server) {
    let (_admin, mut io) = Peer::pair(server, Digests::default());
    assert_eq!(io.read(1, 0, 4).len(), 4 * 512);
}

/// A server and an I/O queue with a write that waits for 4 KiB.
fn waiting_write(server: &Server) -> (Peer, Peer, ebb_nvme::pdu::Transfer) {
    let (admin, mut io) = Peer::pair(server, Digests::default());
    let r2t = io.roundtrip(transfer(io::WRITE, 3, 0, 8, sgl::TRANSPORT), &[]);
    assert_eq!(r2t.frame.kind, Kind::R2t);
    let r2t = r2t.transfer();
    (admin, io, r2t)
}

#[test]
fn nonsense_is_told_off() {
    let server = Server::start(Limits::default());
    let mut peer = Peer::new(&server);
    peer.send(b"GET / HTTP/1.1\r\nHost: storage\r\n\r\n");
    peer.expect_fatal(INVALID_FIELD);
    assert_serves(&server);
}

#[test]
fn the_handshake_has_an_order() {
    let server = Server::start(Limits::default());
    let mut twice = Peer::initialized(&server, Digests::default());
    twice.send(&initialize(Digests::default()));
    twice.expect_fatal(SEQUENCE);

    let mut early = Peer::new(&server);
    early.send(&early.capsule(transfer(io::READ, 1, 0, 1, sgl::TRANSPORT), &[]));
    early.expect_fatal(SEQUENCE);

    let mut unjoined = Peer::initialized(&server, Digests::default());
    let answer = unjoined.roundtrip(transfer(io::READ, 1, 0, 1, sgl::TRANSPORT), &[]);
    assert_eq!(answer.cqe().status(), Status::SEQUENCE_ERROR);

    let mut stranger = Peer::initialized(&server, Digests::default());
    let (sqe, mut data) = connect(0, 0xffff);
    data[256..300].fill(b'x');
    assert!(!stranger.roundtrip(sqe, &data).cqe().status().is_success());
    assert!(stranger.pdu().is_none());
    assert_serves(&server);
}

#[test]
fn a_pdu_of_the_controllers_or_a_wrong_header_digest_ends_it() {
    let server = Server::start(Limits::default());
    let (_admin, mut peer) = Peer::pair(&server, Digests::default());
    let mut capsule = peer.capsule(transfer(io::READ, 1, 0, 1, sgl::TRANSPORT), &[]);
    capsule[0] = Kind::CapsuleResp as u8;
    capsule[2] = 24;
    capsule[4] = 24;
    peer.send(&capsule);
    peer.expect_fatal(INVALID_FIELD);

    let (_admin, mut peer) = Peer::pair(&server, Digests::from_byte(1));
    let mut capsule = peer.capsule(transfer(io::READ, 1, 0, 1, sgl::TRANSPORT), &[]);
    capsule[20] ^= 1;
    peer.send(&capsule);
    peer.expect_fatal(HEADER_DIGEST);
    assert_serves(&server);
}

#[test]
fn data_that_nobody_asked_for_ends_it() {
    let server = Server::start(Limits::default());
    let data = [9; 4096];

    let (_admin, mut peer, r2t) = waiting_write(&server);
    peer.send(&peer.h2c_data(&r2t, 512, &data[..512], false));
    peer.expect_fatal(OUT_OF_RANGE);

    let (_admin, mut peer, r2t) = waiting_write(&server);
    peer.send(&peer.h2c_data(&r2t, 0, &data[..2048], false));
    peer.send(&peer.h2c_data(&r2t, 2048, &[1; 4096], true));
    peer.expect_fatal(OUT_OF_RANGE);

    for (tag, cid) in [(31, 3), (900, 3), (0, 4)] {
        let (_admin, mut peer, mut r2t) = waiting_write(&server);
        r2t.cid = cid.into();
        r2t.tag = if tag == 0 { r2t.tag } else { tag.into() };
        peer.send(&peer.h2c_data(&r2t, 0, &data, true));
        peer.expect_fatal(INVALID_FIELD);
    }

    // The same data twice: the second is no longer asked for.
    let (_admin, mut peer, r2t) = waiting_write(&server);
    peer.send(&peer.h2c_data(&r2t, 0, &data, true));
    assert_eq!(peer.pdu().unwrap().cqe().status(), Status::SUCCESS);
    peer.send(&peer.h2c_data(&r2t, 0, &data, true));
    peer.expect_fatal(INVALID_FIELD);
    assert_serves(&server);
}

#[test]
fn lengths_that_lie_are_refused() {
    let server = Server::start(Limits::default());
    let (_admin, mut peer) = Peer::pair(&server, Digests::default());
    // The SGL says 4 blocks, the capsule holds 2, and the other way round.
    let short = peer.roundtrip(transfer(io::WRITE, 1, 0, 4, sgl::IN_CAPSULE), &[1; 1024]);
    assert_eq!(short.cqe().status(), Status::DATA_SGL_LENGTH_INVALID);
    let none = peer.roundtrip(transfer(io::WRITE, 2, 0, 4, sgl::IN_CAPSULE), &[]);
    assert_eq!(none.cqe().status(), Status::DATA_SGL_LENGTH_INVALID);
    let extra = peer.roundtrip(transfer(io::READ, 3, 0, 4, sgl::TRANSPORT), &[1; 512]);
    assert_eq!(extra.cqe().status(), Status::DATA_SGL_LENGTH_INVALID);
    let mut huge = transfer(io::READ, 4, 0, 4, sgl::TRANSPORT);
    huge.sgl_length = u32::MAX.into();
    assert!(!peer.roundtrip(huge, &[]).cqe().status().is_success());
    assert_eq!(peer.read(5, 0, 4).len(), 2048);
    let mut capsule = peer.capsule(transfer(io::WRITE, 6, 0, 4, sgl::IN_CAPSULE), &[]);
    capsule[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    capsule[3] = 72;
    peer.send(&capsule);
    peer.expect_fatal(LIMIT);
    assert_serves(&server);
}

#[test]
fn a_command_identifier_in_use_is_a_conflict() {
    let server = Server::start(Limits::default());
    let (_admin, mut peer, r2t) = waiting_write(&server);
    let cid = r2t.cid.get();
    let double = peer.roundtrip(transfer(io::READ, cid, 0, 1, sgl::TRANSPORT), &[]);
    assert_eq!(double.cqe().status(), Status::ID_CONFLICT);
}

/// As SPDK's host does before it says that it leaves.
#[test]
fn a_host_that_uses_the_identifier_of_an_event_request_again_has_given_it_up() {
    let server = Server::start(Limits::default());
    let (mut admin, _io) = Peer::pair(&server, Digests::default());
    // Held ones would be too many.
    for _ in 0..20 {
        admin.send(&admin.capsule(Sqe::new(admin::ASYNC_EVENT_REQUEST, 2), &[]));
        let answer = admin.roundtrip(Sqe::new(admin::KEEP_ALIVE, 2), &[]);
        assert_eq!((answer.cqe().status(), answer.cqe().cid.get()), (Status::SUCCESS, 2));
    }
}

#[test]
fn more_commands_than_the_queue_holds_end_it() {
    let server = Server::start(Limits::default());
    let (_admin, mut peer) = Peer::pair(&server, Digests::default());
    let writes =
        (0..33).flat_map(|cid| peer.capsule(transfer(io::WRITE, cid, 0, 8, sgl::TRANSPORT), &[]));
    let writes: Vec<u8> = writes.collect();
    peer.send(&writes);
    for _ in 0..32 {
        assert_eq!(peer.pdu().unwrap().frame.kind, Kind::R2t);
    }
    peer.expect_fatal(LIMIT);
    assert_serves(&server);
}

#[test]
fn a_peer_that_does_not_read_is_not_read_from() {
    let server = Server::start(Limits::default());
    let (_admin, peer) = Peer::pair(&server, Digests::default());
    let read = |cid| peer.capsule(transfer(io::READ, cid, 0, 256, sgl::TRANSPORT), &[]);
    let reads: Vec<u8> = (0..16).cycle().take(512).flat_map(read).collect();
    let mut stream = peer.stream.try_clone().unwrap();
    stream.set_nonblocking(true).unwrap();
    // It asks for ever more and takes no answer, until it may not send any more.
    let (mut sent, mut refused) = (0, 0);
    while sent < 64 << 20 && refused < 100 {
        match stream.write(&reads) {
            Ok(count) => (sent, refused) = (sent + count, 0),
            Err(_) => {
                refused += 1;
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
    }
    assert!(sent < 64 << 20, "nothing holds it back");
    assert_serves(&server);
}

#[test]
fn peers_that_dawdle_are_closed() {
    let soon = Nanos::from_millis(200);
    let server = Server::start(Limits { handshake: soon, stall: soon, ..Limits::default() });
    let mut silent = Peer::new(&server);
    assert!(silent.pdu().is_none());
    let mut half = Peer::initialized(&server, Digests::default());
    let (sqe, data) = connect(0, 0xffff);
    let capsule = half.capsule(sqe, &data);
    half.send(&capsule[..500]);
    assert!(half.pdu().is_none());
    let (_admin, mut slow) = Peer::pair(&server, Digests::default());
    let capsule = slow.capsule(transfer(io::WRITE, 1, 0, 4, sgl::IN_CAPSULE), &[1; 2048]);
    slow.send(&capsule[..1000]);
    assert!(slow.pdu().is_none());
    assert_serves(&server);
}

#[test]
fn more_connections_than_allowed_are_closed_and_the_rest_served() {
    let server = Server::start(Limits { connections: 8, ..Limits::default() });
    let (_admin, mut io) = Peer::pair(&server, Digests::default());
    let crowd: Vec<TcpStream> =
        (0..1000).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    assert_eq!(io.read(1, 0, 1).len(), 512);
    assert!(server.places.taken() <= 8);
    drop(crowd);
    drop(io);
    drop(_admin);
    while server.places.taken() > 0 {
        std::thread::yield_now();
    }
    assert_serves(&server);
}

/// Whoever holds places without becoming a queue keeps nobody out.
#[test]
fn strangers_give_way_to_newcomers() {
    let limits = Limits { connections: 8, handshake: Nanos::from_secs(600), ..Limits::default() };
    let server = Server::start(limits);
    let mut crowd: Vec<_> = (0..8).map(|_| Peer::new(&server)).collect();
    let half: Vec<_> = (0..8).map(|_| Peer::initialized(&server, Digests::default())).collect();
    for _ in 0..20 {
        assert_serves(&server);
        crowd.extend((0..8).map(|_| Peer::new(&server)));
    }
    let (_admin, mut io) = Peer::pair(&server, Digests::default());
    crowd.extend((0..100).map(|_| Peer::new(&server)));
    assert_eq!(io.read(1, 0, 1).len(), 512, "a queue gives way to nobody");
    drop(half);
}

/// A host that has taken all places leaves half of them to others, and keeps its admin queue.
#[test]
fn a_host_with_most_of_the_places_gives_way() {
    let server = Server::start(Limits { connections: 8, ..Limits::default() });
    let [greedy, other] =
        ["greedy", "other"].map(|name| Host::named(&format!("nqn.2026-11.org.example:{name}")));
    let (mut admin, id) = Peer::enabled(&server, &greedy, Digests::default());
    let join = |host, queue, id| Peer::joined_as(&server, host, queue, id, Digests::default()).0;
    let mut queues: Vec<_> = (1..8).map(|queue| join(&greedy, queue, id)).collect();
    let (_admin, id) = Peer::enabled(&server, &other, Digests::default());
    let mut others: Vec<_> = (1..4).map(|queue| join(&other, queue, id)).collect();
    // Neither has more than half now.
    assert!(Peer::new(&server).pdu().is_none());
    for io in queues.drain(..3).chain(others.drain(..)) {
        let mut io = io;
        assert_eq!(io.read(1, 0, 1).len(), 512);
    }
    assert!(queues.iter_mut().all(|io| io.pdu().is_none()));
    let keep_alive = Sqe::new(admin::KEEP_ALIVE, 9);
    assert!(admin.roundtrip(keep_alive, &[]).cqe().status().is_success());
}

/// An error would fail the command for good; once the connection is closed, the host sends it again
/// to the next controller. A Linux host, cut off for a second, passed such errors on to fio.
#[test]
fn a_command_after_its_controller_is_gone_has_no_answer() {
    let server = Server::start(Limits::default());
    let answer = |io: &mut Peer, cid| {
        let write = io.capsule(transfer(io::WRITE, cid, 8, 1, sgl::IN_CAPSULE), &[7; 512]);
        let _ = io.stream.write_all(&write); // The target may have closed it already.
        io.pdu().map(|answer| answer.cqe().status())
    };
    let (mut admin, mut io) = Peer::pair(&server, Digests::default());
    admin.configure(0);
    assert_eq!(answer(&mut io, 1), None, "the connection must be closed");
    // The same where the host is gone; until the target knows, commands have answers.
    let (admin, mut io) = Peer::pair(&server, Digests::default());
    drop(admin);
    let last = (0..).map(|cid| answer(&mut io, cid)).find(|one| *one != Some(Status::SUCCESS));
    assert_eq!(last, Some(None));
    assert_serves(&server);
}

#[test]
fn half_open_and_broken_connections_are_let_go() {
    let server = Server::start(Limits::default());
    let (admin, mut io, r2t) = waiting_write(&server);
    io.send(&io.h2c_data(&r2t, 0, &[5; 4096], true)[..1000]);
    io.stream.shutdown(Shutdown::Write).unwrap();
    assert!(io.pdu().is_none());
    drop(admin);
    while server.places.taken() > 0 {
        std::thread::yield_now();
    }
    assert_serves(&server);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    /// A conversation with bytes changed, repeated and left out: anything but a crash or a hang.
    #[test]
    fn a_garbled_conversation_harms_nobody(
        changes in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<u8>(), 0_u8..4),
            1..6,
        ),
        digests in (0_u8..4).prop_map(Digests::from_byte),
    ) {
        let handshake = Nanos::from_millis(100);
        let server = Server::start(Limits { handshake, ..Limits::default() });
        let (_admin, mut peer) = Peer::pair(&server, digests);
        let mut bytes = Vec::new();
        for cid in 0..4 {
            let write = transfer(io::WRITE, cid, u64::from(cid), 2, sgl::IN_CAPSULE);
            bytes.extend(peer.capsule(write, &[cid as u8; 1024]));
            let read = transfer(io::READ, 10 + cid, u64::from(cid), 2, sgl::TRANSPORT);
            bytes.extend(peer.capsule(read, &[]));
        }
        for (at, byte, how) in changes {
            let at = at.index(bytes.len());
            match how {
                0 => bytes[at] = byte,
                1 => { bytes.remove(at); }
                2 => bytes.insert(at, byte),
                _ => { let repeat = bytes[at..].to_vec(); bytes.extend(repeat); }
            }
        }
        // The target may close in the middle.
        let _ = peer.stream.write_all(&bytes);
        let _ = peer.stream.shutdown(Shutdown::Both);
        assert_serves(&server);
    }
}
