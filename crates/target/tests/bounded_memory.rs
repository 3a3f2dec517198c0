//! What peers make the target hold, as the system counts it: in a process of its own, so that no
//! other test's memory is in the way.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code)]

#[path = "transport/peer.rs"]
mod peer;
#[path = "transport/server.rs"]
mod server;

use ebb_nvme::Sqe;
use ebb_nvme::command::{admin, io, sgl};
use ebb_nvme::fabrics::DISCOVERY_NQN;
use ebb_nvme::pdu::Digests;
use ebb_target::transport::Limits;

use peer::{Host, Peer, transfer};
use server::Server;

const OTHER: &str = "nqn.2026-11.org.example:other";

/// Resident bytes of this process, in which the target runs too.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// A Get Log Page of 128 KiB.
fn log_page(cid: u16, page: u32) -> Sqe {
    let mut sqe = Sqe::new(admin::GET_LOG_PAGE, cid);
    (sqe.sgl_identifier, sqe.sgl_length) = (sgl::TRANSPORT, (128 << 10).into());
    sqe.nsid = u32::MAX.into();
    sqe.set_cdw(10, page | 0x7fff << 16);
    sqe
}

#[test]
fn a_thousand_peers_that_never_read_make_it_hold_no_more_than_is_documented() {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let limit = rustix::process::Rlimit { current: most.map(|most| most.min(4096)), maximum: most };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    let limits = Limits { connections: 1000, ..Limits::default() };
    let server = Server::start(limits);
    let before = resident();
    let mut peers = Vec::new();
    let enable = |host: &Host| Peer::enabled(&server, host, Digests::default());
    // Discovery, open to hosts that are not allowed; admin queues; reads; writes without data.
    for number in 0..200 {
        let host = Host { subsystem: DISCOVERY_NQN, ..Host::named(&format!("{OTHER}{number}")) };
        let (peer, _) = enable(&host);
        let flood: Vec<u8> =
            (0..4000).flat_map(|n| peer.capsule(log_page(n % 16, 0x70), &[])).collect();
        peer.push(&flood);
        peers.push(peer);
    }
    for number in 0..200 {
        let host = Host::named(&format!("{OTHER}{number}"));
        let (peer, id) = enable(&host);
        for queue in 1..=3 {
            let (io, _) = Peer::joined_as(&server, &host, queue, id, Digests::default());
            let opcode = if queue == 1 { io::WRITE } else { io::READ };
            let flood = (0..1000).map(|n| transfer(opcode, n % 32, 0, 256, sgl::TRANSPORT));
            io.push(&flood.flat_map(|sqe| io.capsule(sqe, &[])).collect::<Vec<u8>>());
            peers.push(io);
        }
        let flood: Vec<u8> =
            (0..4000).flat_map(|n| peer.capsule(log_page(n % 16, 2), &[])).collect();
        peer.push(&flood);
        peers.push(peer);
    }
    assert_eq!(peers.len(), 1000);
    let (held, bound) = (resident().saturating_sub(before), limits.most_memory(1, 32, 512, 4));
    println!("{held} bytes held, {bound} at most");
    assert!(held < bound, "{held} bytes of at most {bound}");
}
