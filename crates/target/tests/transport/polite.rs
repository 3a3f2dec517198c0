//! What a well-behaved host gets.

use std::sync::atomic::Ordering;

use ebb_nvme::Status;
use ebb_nvme::command::{io, sgl};
use ebb_nvme::pdu::{Digests, Kind};
use ebb_target::transport::Limits;
use proptest::prelude::*;

use super::peer::{Pdu, Peer, keep_alive, transfer};
use super::server::{BLOCKS, Server};

fn pattern(blocks: usize, seed: u8) -> Vec<u8> {
    (0..blocks * 512).map(|at| (at as u8).wrapping_mul(31) ^ seed ^ (at >> 9) as u8).collect()
}

fn all_digests() -> [Digests; 4] {
    [0, 1, 2, 3].map(Digests::from_byte)
}

#[test]
fn what_is_written_is_read_with_every_digest() {
    let server = Server::start(Limits::default());
    for digests in all_digests() {
        let (mut admin, mut io) = Peer::pair(&server, digests);
        let data = pattern(8, digests.to_byte());
        assert_eq!(io.write(1, 40, &data), Status::SUCCESS);
        assert_eq!(io.read(2, 40, 8), data);
        assert!(admin.roundtrip(keep_alive(5), &[]).cqe().status().is_success());
    }
}

#[test]
fn a_host_that_only_keeps_its_connection_alive_asks_for_nothing() {
    let server = Server::start(Limits::default());
    let (mut admin, mut io) = Peer::pair(&server, Digests::default());
    let mut shown = |requests: u64| {
        // What the round of the answer counted is shown by the time the next one is answered.
        for cid in 5..8 {
            assert!(admin.roundtrip(keep_alive(cid), &[]).cqe().status().is_success());
        }
        assert_eq!(server.requests.load(Ordering::Acquire), requests);
    };
    shown(0);
    assert_eq!(io.write(1, 40, &pattern(8, 0)), Status::SUCCESS);
    shown(1);
    assert_eq!(io.read(2, 40, 8), pattern(8, 0));
    shown(2);
}

/// Reads of more than a host may have moved in one round: the others wait for the next ones.
#[test]
fn commands_that_wait_between_polls_are_seen_until_they_are_taken_up() {
    let server = Server::start(Limits::default());
    let (_admin, mut peer) = Peer::pair(&server, Digests::default());
    assert_eq!(peer.read(1, 0, 8).len(), 8 * 512);
    assert_eq!(server.most_waiting.get(), 0, "one at a time waits for nobody");
    let reads =
        (0..31).map(|cid| peer.capsule(transfer(io::READ, cid, 0, 256, sgl::TRANSPORT), &[]));
    let reads: Vec<u8> = reads.flatten().collect();
    peer.send(&reads);
    let mut left = 31 * 256 * 512;
    while left > 0 {
        left -= peer.pdu().unwrap().data.len();
    }
    let most = server.most_waiting.get();
    assert!((1..31).contains(&most), "{most} of 31 seen to wait");
    while server.waiting.get() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn large_writes_are_asked_for_and_may_come_in_pieces() {
    let server = Server::start(Limits::default());
    for digests in all_digests() {
        let (_admin, mut peer) = Peer::pair(&server, digests);
        let data = pattern(200, digests.to_byte());
        let write = transfer(io::WRITE, 9, 100, 200, sgl::TRANSPORT);
        let r2t = peer.roundtrip(write, &[]);
        assert_eq!(r2t.frame.kind, Kind::R2t);
        let r2t = r2t.transfer();
        assert_eq!((r2t.offset.get(), r2t.length.get()), (0, data.len() as u32));
        for (index, piece) in data.chunks(30_000).enumerate() {
            let offset = index * 30_000;
            let is_last = offset + piece.len() == data.len();
            peer.send(&peer.h2c_data(&r2t, offset as u32, piece, is_last));
        }
        assert_eq!(peer.pdu().unwrap().cqe().status(), Status::SUCCESS);
        assert_eq!(peer.read(1, 100, 200), data);
    }
}

#[test]
fn commands_of_all_kinds() {
    let server = Server::start(Limits::default());
    let (_admin, mut peer) = Peer::pair(&server, Digests::default());
    let data = pattern(4, 3);
    assert_eq!(peer.write(1, 8, &data), Status::SUCCESS);
    let compare = |cid| transfer(io::COMPARE, cid, 8, 4, sgl::IN_CAPSULE);
    assert_eq!(peer.roundtrip(compare(2), &data).cqe().status(), Status::SUCCESS);
    let other = pattern(4, 4);
    assert_eq!(peer.roundtrip(compare(3), &other).cqe().status(), Status::COMPARE_FAILURE);
    let mut flush = transfer(io::FLUSH, 4, 0, 1, 0);
    flush.sgl_length = 0.into();
    assert_eq!(peer.roundtrip(flush, &[]).cqe().status(), Status::SUCCESS);
    let mut zeroes = transfer(io::WRITE_ZEROES, 5, 9, 2, 0);
    zeroes.sgl_length = 0.into();
    assert_eq!(peer.roundtrip(zeroes, &[]).cqe().status(), Status::SUCCESS);
    let mut expected = data.clone();
    expected[512..3 * 512].fill(0);
    assert_eq!(peer.read(6, 8, 4), expected);
    // Dataset Management: deallocate one range of one block; RAM then reads zeros.
    let mut deallocate = transfer(io::DATASET_MANAGEMENT, 7, 0, 1, sgl::IN_CAPSULE);
    (0..6).for_each(|dword| deallocate.set_cdw(10 + dword, 0));
    deallocate.set_cdw(11, 4);
    deallocate.sgl_length = 16.into();
    let mut range = [0_u8; 16];
    range[4..8].copy_from_slice(&1_u32.to_le_bytes());
    range[8..].copy_from_slice(&8_u64.to_le_bytes());
    assert_eq!(peer.roundtrip(deallocate, &range).cqe().status(), Status::SUCCESS);
    let beyond = transfer(io::READ, 8, BLOCKS - 1, 2, sgl::TRANSPORT);
    assert_eq!(peer.roundtrip(beyond, &[]).cqe().status(), Status::LBA_OUT_OF_RANGE);
}

#[test]
fn a_wrong_data_digest_fails_the_command_and_writes_nothing() {
    let server = Server::start(Limits::default());
    let (_admin, mut peer) = Peer::pair(&server, Digests::from_byte(2));
    let before = peer.read(1, 0, 1);
    let mut capsule = peer.capsule(transfer(io::WRITE, 2, 0, 1, sgl::IN_CAPSULE), &pattern(1, 77));
    *capsule.last_mut().unwrap() ^= 1;
    peer.send(&capsule);
    assert_eq!(peer.pdu().unwrap().cqe().status(), Status::DATA_TRANSFER_ERROR);
    assert_eq!(peer.read(3, 0, 1), before);
}

#[test]
fn commands_wait_for_buffers_rather_than_fail() {
    // As few buffers as there may be for a queue of many reads and writes.
    let limits = Limits { buffers: 4, ..Limits::default() };
    let server = Server::start(limits);
    let (_admin, mut peer) = Peer::pair(&server, Digests::default());
    let mut batch = Vec::new();
    for cid in 0..16 {
        let lba = u64::from(cid) * 4;
        let write = transfer(io::WRITE, cid, lba, 4, sgl::IN_CAPSULE);
        batch.extend(peer.capsule(write, &pattern(4, cid as u8)));
    }
    peer.send(&batch);
    for _ in 0..16 {
        assert_eq!(peer.pdu().unwrap().cqe().status(), Status::SUCCESS);
    }
    let reads = (0..16_u16).flat_map(|cid| {
        peer.capsule(transfer(io::READ, cid, u64::from(cid) * 4, 4, sgl::TRANSPORT), &[])
    });
    let reads: Vec<u8> = reads.collect();
    peer.send(&reads);
    for _ in 0..16 {
        let pdu = peer.pdu().unwrap();
        assert_eq!(pdu.data, pattern(4, pdu.transfer().cid.get() as u8));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// However the network cuts the stream, the answers are the same.
    #[test]
    fn cuts_in_the_stream_change_nothing(
        cuts in prop::collection::vec(1_usize..3000, 1..40),
        digests in (0_u8..4).prop_map(Digests::from_byte),
        seed: u8,
    ) {
        let server = Server::start(Limits::default());
        let (_admin, mut peer) = Peer::pair(&server, digests);
        let data = pattern(12, seed);
        let mut bytes = peer.capsule(transfer(io::WRITE, 1, 5, 12, sgl::IN_CAPSULE), &data);
        bytes.extend(peer.capsule(transfer(io::READ, 2, 0, 1, sgl::TRANSPORT), &[]));
        let mut rest = &bytes[..];
        for cut in cuts.iter().cycle() {
            let (piece, after) = rest.split_at((*cut).min(rest.len()));
            peer.send(piece);
            rest = after;
            if rest.is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        // Commands under way at once are answered in any order.
        let answers = [peer.pdu().unwrap(), peer.pdu().unwrap()];
        let is_read = |pdu: &&Pdu| pdu.frame.kind == Kind::C2hData;
        let read = answers.iter().find(is_read).unwrap();
        prop_assert_eq!(read.transfer().cid.get(), 2);
        let written = answers.iter().find(|pdu| !is_read(pdu)).unwrap();
        prop_assert_eq!(written.cqe().status(), Status::SUCCESS);
        prop_assert_eq!(peer.read(3, 5, 12), data);
    }
}
