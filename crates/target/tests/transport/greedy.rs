//! Peers that take what they can get and give nothing back: what they make the target hold is
//! bounded, and the others get their share.

use std::sync::Arc;

use ebb_nvme::Status;
use ebb_nvme::command::{admin, io, sgl};
use ebb_nvme::pdu::{Digests, Kind};
use ebb_policy::units::Nanos;
use ebb_target::device::{Spec, open};
use ebb_target::transport::Limits;

use super::peer::{Host, Peer, transfer};
use super::server::{NQN, Server};

const OTHER: &str = "nqn.2026-11.org.example:other";

#[test]
fn requests_for_data_that_are_never_answered_leave_buffers_for_others() {
    let server = Server::start(Limits { buffers: 64, ..Limits::default() });
    let greedy = Host::named(OTHER);
    let (_admin, id) = Peer::enabled(&server, &greedy, Digests::default());
    let hold = |queue| {
        let (mut peer, _) = Peer::joined_as(&server, &greedy, queue, id, Digests::default());
        for cid in 0..31 {
            peer.send(&peer.capsule(transfer(io::WRITE, cid, 0, 8, sgl::TRANSPORT), &[]));
        }
        peer
    };
    let mut held: Vec<_> = (1..=12).map(hold).collect();
    // They have what they can get.
    assert_eq!(held[0].pdu().unwrap().frame.kind, Kind::R2t);
    let (_admin, mut peer) = Peer::pair(&server, Digests::default());
    for cid in 0..200 {
        let r2t = peer.roundtrip(transfer(io::WRITE, cid, 0, 8, sgl::TRANSPORT), &[]).transfer();
        peer.send(&peer.h2c_data(&r2t, 0, &[cid as u8; 4096], true));
        assert_eq!(peer.pdu().unwrap().cqe().status(), Status::SUCCESS);
        assert_eq!(peer.read(500, 0, 8), [cid as u8; 4096]);
    }
}

#[test]
fn data_in_a_capsule_never_waits_for_data_behind_it() {
    // Half of the buffers are held by writes whose data stands behind a capsule with data.
    let server = Server::start(Limits { buffers: 8, ..Limits::default() });
    let (_admin, mut peer) = Peer::pair(&server, Digests::default());
    for cid in 0..16 {
        peer.send(&peer.capsule(transfer(io::WRITE, cid, 0, 8, sgl::TRANSPORT), &[]));
    }
    let mut answered = 0;
    let mut asked = vec![peer.pdu().unwrap().transfer()];
    for cid in 16..24 {
        peer.send(&peer.capsule(transfer(io::WRITE, cid, 64, 8, sgl::IN_CAPSULE), &[1; 4096]));
    }
    while answered < 24 {
        asked.drain(..).for_each(|r2t| peer.send(&peer.h2c_data(&r2t, 0, &[2; 4096], true)));
        let pdu = peer.pdu().unwrap();
        match pdu.frame.kind {
            Kind::R2t => asked.push(pdu.transfer()),
            _ => {
                assert_eq!(pdu.cqe().status(), Status::SUCCESS);
                answered += 1;
            }
        }
    }
}

#[test]
fn peers_that_keep_buffers_from_others_are_closed_before_those_that_do_not() {
    let patience = Nanos::from_millis(300);
    let server = Server::start(Limits { buffers: 8, patience, ..Limits::default() });
    let greedy = Host::named(OTHER);
    let (_admin, id) = Peer::enabled(&server, &greedy, Digests::default());
    let hold = |queue| {
        let (mut peer, _) = Peer::joined_as(&server, &greedy, queue, id, Digests::default());
        peer.send(&peer.capsule(transfer(io::WRITE, 1, 0, 8, sgl::TRANSPORT), &[]));
        peer
    };
    // More of them than buffers.
    let _held: Vec<_> = (1..=16).map(hold).collect();
    let (_admin, mut peer) = Peer::pair(&server, Digests::default());
    let r2t = peer.roundtrip(transfer(io::WRITE, 1, 0, 8, sgl::TRANSPORT), &[]).transfer();
    peer.send(&peer.h2c_data(&r2t, 0, &[3; 4096], true));
    assert_eq!(peer.pdu().unwrap().cqe().status(), Status::SUCCESS);
}

#[test]
fn peers_that_neither_send_what_they_were_asked_for_nor_read_are_closed() {
    let soon = Nanos::from_millis(200);
    let limits = Limits { handshake: soon, stall: soon, ..Limits::default() };
    let server = Server::start(limits);
    let (admin, mut silent) = Peer::pair(&server, Digests::default());
    let r2t = silent.roundtrip(transfer(io::WRITE, 1, 0, 8, sgl::TRANSPORT), &[]);
    assert_eq!(r2t.frame.kind, Kind::R2t);
    assert!(silent.pdu().is_none(), "its data was awaited long enough");
    drop(admin);

    // Unread answers, and a PDU that ends the connection behind them.
    let (admin, deaf) = Peer::pair(&server, Digests::default());
    let reads = (0..31).cycle().take(2000);
    let reads = reads.map(|cid| transfer(io::READ, cid, 0, 256, sgl::TRANSPORT));
    let mut bytes: Vec<u8> = reads.flat_map(|sqe| deaf.capsule(sqe, &[])).collect();
    bytes.extend([0xff; 64]);
    deaf.push(&bytes);
    drop(admin);
    while server.places.taken() > 0 {
        std::thread::yield_now();
    }
}

/// Deallocation of `count` times 1 MiB.
fn deallocation(peer: &Peer, cid: u16, count: u8) -> Vec<u8> {
    let mut sqe = transfer(io::DATASET_MANAGEMENT, cid, 0, 8, sgl::IN_CAPSULE);
    sqe.set_cdw(10, u32::from(count) - 1);
    sqe.set_cdw(11, 4);
    let range = [&[0; 4][..], &2048_u32.to_le_bytes(), &[0; 8]].concat();
    let mut data = range.repeat(count.into());
    data.resize(4096, 0);
    peer.capsule(sqe, &data)
}

#[test]
fn a_host_with_long_commands_does_not_stop_another() {
    let device = open(&"ram:1MiB,block=512B".parse::<Spec>().unwrap()).unwrap();
    let server = Server::of(Arc::clone(&device), Limits::default());
    let greedy = Host::named(OTHER);
    let (_admin, id) = Peer::enabled(&server, &greedy, Digests::default());
    let (mut long, _) = Peer::joined_as(&server, &greedy, 1, id, Digests::default());
    let (_admin, mut peer) = Peer::pair(&server, Digests::default());
    (0..31).for_each(|cid| long.send(&deallocation(&long, cid, 255)));
    // 31 commands of 255 MiB each: the other's reads are answered while they are under way.
    for cid in 0..100 {
        assert_eq!(peer.read(cid, 7, 1).len(), 512);
    }
    long.stream.set_nonblocking(true).unwrap();
    let mut answers = [0; 31 * 24];
    let early = std::io::Read::read(&mut long.stream, &mut answers).unwrap_or(0);
    assert!(early < answers.len(), "all long commands were done before 100 reads");
    long.stream.set_nonblocking(false).unwrap();
    std::io::Read::read_exact(&mut long.stream, &mut answers[early..]).unwrap();
    assert!(answers.chunks(24).all(|answer| answer[22..] == [0, 0]), "all succeed in the end");
}

#[test]
fn data_for_admin_commands_is_taken_up_to_what_was_agreed_and_thrown_away() {
    let server = Server::start(Limits::default());
    let (mut admin, _io) = Peer::pair(&server, Digests::from_byte(2));
    let mut sqe = transfer(admin::SET_FEATURES, 5, 0, 256, sgl::TRANSPORT);
    sqe.set_cdw(10, 0x0b);
    sqe.set_cdw(11, 0);
    let r2t = admin.roundtrip(sqe, &[]).transfer();
    admin.send(&admin.h2c_data(&r2t, 0, &vec![9; 128 << 10], true));
    assert_eq!(admin.pdu().unwrap().cqe().status(), Status::SUCCESS);
    // What does not exist is refused before its data is asked for.
    let unknown = admin.roundtrip(transfer(0xc1, 6, 0, 256, sgl::TRANSPORT), &[]);
    assert_eq!(unknown.cqe().status(), Status::INVALID_OPCODE);
    let own = Host { subsystem: NQN, ..Host::named("nqn.2026-11.org.example:host") };
    let (_again, _) = Peer::enabled(&server, &own, Digests::default());
}
