//! A shutdown is complete when what was written would survive a loss of power, and not before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use ebb_nvme::command::{FABRICS, fabrics};
use ebb_nvme::pdu::Digests;
use ebb_nvme::{Sqe, Status};
use ebb_target::device::Op;
use ebb_target::transport::Limits;

use super::peer::Peer;
use super::server::{DONE, FAILED, Gate, Server};

/// Memory whose flushes end when and as the test says.
fn gated() -> (Arc<Gate>, Arc<AtomicU8>) {
    Gate::before("ram:1MiB,block=512B", |op| op == Op::Flush)
}

fn property(kind: u8, offset: u32, value: u32) -> Sqe {
    let mut sqe = Sqe::new(FABRICS, 3);
    sqe.nsid = u32::from(kind).into();
    sqe.set_cdw(11, offset);
    sqe.set_cdw(12, value);
    sqe
}

fn configure(admin: &mut Peer, value: u32) {
    let cqe = admin.roundtrip(property(fabrics::PROPERTY_SET, 0x14, value), &[]).cqe();
    assert!(cqe.status().is_success(), "{:?}", cqe.status());
}

/// SHST and CFS of CSTS.
fn state(admin: &mut Peer) -> (u64, u64) {
    let csts = admin.roundtrip(property(fabrics::PROPERTY_GET, 0x1c, 0), &[]).cqe().result.get();
    (csts >> 2 & 3, csts >> 1 & 1)
}

const ENABLE: u32 = 0x0046_0001;
const SHUT_DOWN: u32 = ENABLE | 1 << 14;

#[test]
fn a_shutdown_waits_for_the_flush_of_every_namespace() {
    let (device, gate) = gated();
    let server = Server::of(device, Limits::default());
    let (mut admin, mut io) = Peer::pair(&server, Digests::default());
    assert_eq!(io.write(1, 0, &[7; 512]), Status::SUCCESS);
    configure(&mut admin, SHUT_DOWN);
    assert_eq!(state(&mut admin), (1, 0), "under way");
    configure(&mut admin, SHUT_DOWN);
    assert_eq!(state(&mut admin), (1, 0), "asked again, it is still the same");
    gate.store(DONE, Ordering::SeqCst);
    while state(&mut admin) == (1, 0) {}
    assert_eq!(state(&mut admin), (2, 0), "complete");
    configure(&mut admin, 0);
    configure(&mut admin, ENABLE);
    assert_eq!(state(&mut admin), (0, 0), "and the controller starts again");
}

#[test]
fn what_cannot_be_flushed_is_no_complete_shutdown() {
    let (device, gate) = gated();
    gate.store(FAILED, Ordering::SeqCst);
    let server = Server::of(device, Limits::default());
    let (mut admin, _io) = Peer::pair(&server, Digests::default());
    configure(&mut admin, SHUT_DOWN);
    while state(&mut admin) == (1, 0) {}
    assert_eq!(state(&mut admin), (1, 1), "fatal, never complete");
}

#[test]
fn a_reset_ends_a_shutdown_and_its_flushes_complete_no_other() {
    let (device, gate) = gated();
    let server = Server::of(device, Limits::default());
    let (mut admin, _io) = Peer::pair(&server, Digests::default());
    configure(&mut admin, SHUT_DOWN);
    configure(&mut admin, 0);
    assert_eq!(state(&mut admin), (0, 0));
    configure(&mut admin, ENABLE);
    configure(&mut admin, SHUT_DOWN);
    assert_eq!(state(&mut admin), (1, 0), "waits for its own flush");
    gate.store(DONE, Ordering::SeqCst);
    while state(&mut admin) == (1, 0) {}
    assert_eq!(state(&mut admin), (2, 0));
}
