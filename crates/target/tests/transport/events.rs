//! What ends leaves its place: event requests with a reset, an I/O queue with Disconnect.

use ebb_nvme::command::{FABRICS, admin, fabrics, io, sgl};
use ebb_nvme::pdu::{Digests, Kind};
use ebb_nvme::{Sqe, Status};
use ebb_target::transport::Limits;

use super::peer::{Host, Peer, transfer};
use super::server::{NQN, Server};

#[test]
fn a_host_that_resets_over_and_over_has_room_for_its_event_requests() {
    let server = Server::start(Limits::default());
    let (mut peer, _) = Peer::enabled(&server, &Host::named(NQN), Digests::default());
    for round in 0..40 {
        for event in 0..4 {
            let request = Sqe::new(admin::ASYNC_EVENT_REQUEST, 1000 + round * 4 + event);
            peer.send(&peer.capsule(request, &[]));
        }
        let mut set = Sqe::new(FABRICS, 1);
        set.set_cdw(11, ebb_nvme::property::CC);
        for (cid, value) in [(1, 0), (2, 0x0046_0001)] {
            (set.cid, set.nsid) = (u16::into(cid), 0.into());
            set.set_cdw(12, value);
            peer.send(&peer.capsule(set, &[]));
        }
        // Each is aborted before the reset is answered.
        let answers: Vec<_> = (0..6).map(|_| peer.pdu().unwrap()).collect();
        assert!(answers.iter().all(|answer| answer.frame.kind == Kind::CapsuleResp));
        let statuses: Vec<_> = answers.iter().map(|answer| answer.cqe().status()).collect();
        assert_eq!(statuses[..4], [Status::ABORT_REQUESTED; 4], "round {round}");
        assert_eq!(statuses[4..], [Status::SUCCESS; 2]);
    }
}

#[test]
fn disconnect_is_answered_and_ends_what_waits_for_data_and_the_number_is_free() {
    let server = Server::start(Limits::default());
    let host = Host::named(NQN);
    let (_admin, id) = Peer::enabled(&server, &host, Digests::default());
    let mut before: Option<Peer> = None;
    for round in 0..20_u8 {
        let (mut peer, _) = Peer::joined_as(&server, &host, 1, id, Digests::default());
        // What the queue before was asked for comes too late.
        if let Some(mut old) = before.take() {
            assert!(old.pdu().is_none(), "it was not closed");
            assert_eq!(peer.read(500, 0, 8), [round - 1; 4096]);
        }
        assert_eq!(peer.write_when_asked(7, 0, &[round; 4096]), Status::SUCCESS);
        let r2t = peer.roundtrip(transfer(io::WRITE, 8, 0, 8, sgl::TRANSPORT), &[]).transfer();
        let mut disconnect = Sqe::new(FABRICS, 9);
        disconnect.nsid = u32::from(fabrics::DISCONNECT).into();
        let data = peer.h2c_data(&r2t, 0, &[0xee; 4096], true);
        let both = [peer.capsule(disconnect, &[]), data].concat();
        peer.send(&both);
        let answer = peer.pdu().unwrap().cqe();
        assert_eq!((answer.cid.get(), answer.status()), (9, Status::SUCCESS));
        before = Some(peer);
    }
}
