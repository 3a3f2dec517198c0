//! Checking an I/O command, counting it and looking for events takes no memory; a session of TLS no
//! more than is counted for it.

#![allow(clippy::panic, clippy::unwrap_used)]

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use ebb_nvme::command::{FABRICS, fabrics, io, sgl};
use ebb_nvme::tls::{Key, MOST_SESSION, Psk, Session};
use ebb_nvme::{Sqe, Status};
use ebb_policy::units::Nanos;
use ebb_target::controller::{AdminQueue, Config, IoQueue, Namespace, Plan, Queue, Subsystem};
use ebb_target::device::{Channel, Device, Geometry};

const NQN: &str = "nqn.2026-01.org.example:ebb";

struct Sized;

impl Device for Sized {
    fn geometry(&self) -> Geometry {
        Geometry { block_size: 4096, blocks: 1024 }
    }
    fn describe(&self) -> String {
        "sized".to_owned()
    }
    fn open(&self) -> std::io::Result<Box<dyn Channel>> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

fn fabrics_command(kind: u8, dwords: [u32; 3]) -> Sqe {
    let mut sqe = Sqe::new(FABRICS, 0);
    sqe.nsid = u32::from(kind).into();
    (10..13).zip(dwords).for_each(|(at, dword)| sqe.set_cdw(at, dword));
    sqe
}

fn connect(subsystem: &Arc<Subsystem>, queue: u32, controller: u16) -> Queue {
    let sqe = fabrics_command(fabrics::CONNECT, [queue << 16, 31, 0]);
    let mut data = [0; 1024];
    data[16..18].copy_from_slice(&controller.to_le_bytes());
    for at in [256, 512] {
        data[at..at + NQN.len()].copy_from_slice(NQN.as_bytes());
    }
    subsystem
        .connect(&sqe, &data, Nanos::ZERO)
        .unwrap_or_else(|refusal| panic!("{refusal:?}"))
        .queue
}

fn queues() -> (AdminQueue, IoQueue) {
    let device = Arc::new(Sized);
    let namespace = Namespace { id: 1, device, uuid: [1; 16], nguid: [1; 16], read_only: false };
    let subsystem = Subsystem::new(Config::new(NQN, vec![namespace])).unwrap();
    let Queue::Admin(mut admin) = connect(&subsystem, 0, 0xffff) else {
        panic!("not an admin queue")
    };
    let enable = fabrics_command(fabrics::PROPERTY_SET, [0, 0x14, 0x0046_0001]);
    admin.command(&enable, &[], Nanos::ZERO);
    let Queue::Io(io) = connect(&subsystem, 1, admin.controller_id()) else {
        panic!("not an I/O queue")
    };
    (admin, io)
}

#[test]
fn the_data_path_takes_no_memory() {
    let (mut admin, queue) = queues();
    let mut sqe = Sqe::new(io::READ, 1);
    sqe.nsid = 1.into();
    (sqe.sgl_identifier, sqe.sgl_length) = (sgl::TRANSPORT, 4096.into());
    let mut planned = 0;
    let allocated = allocation_counter::measure(|| {
        for lba in 0..1000 {
            sqe.set_cdw(10, lba);
            if let Ok((plan @ Plan::Device { .. }, _)) = queue.command(&sqe) {
                queue.account(&sqe, &plan, Status::SUCCESS);
                planned += 1;
            }
            assert!(queue.alive(Nanos::ZERO) && admin.completions(Nanos::ZERO).is_empty());
        }
    });
    assert_eq!((planned, allocated.count_total), (1000, 0));
}

/// Two sessions, each with as much on its way as there may be. AWS-LC's contexts, some KiB, are
/// taken elsewhere.
#[test]
fn a_session_takes_no_more_memory_than_is_counted_for_it() {
    let key =
        "NVMeTLSkey-1:02:BAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEvGCx5w==:";
    let psk = Key::parse(key).unwrap().psks("host", "subsystem").next().unwrap();
    sessions(&psk); // What all of them share.
    let taken = allocation_counter::measure(|| sessions(&psk));
    println!("{} bytes at most, {MOST_SESSION} counted", taken.bytes_max / 2);
    assert!(taken.bytes_max <= 2 * MOST_SESSION as u64, "{taken:?}");
    assert_eq!(taken.bytes_current, 0, "{taken:?}");
}

fn sessions(psk: &Psk) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_nonblocking(true).unwrap();
    let mut host = Session::connect(std::slice::from_ref(psk)).unwrap();
    assert!(!host.handshake(&theirs).unwrap());
    let mut hello = vec![0; 1024];
    let count = (&ours).read(&mut hello).unwrap();
    hello.truncate(count);
    let mut target = Session::accept(psk, hello).unwrap();
    while !target.handshake(&ours).unwrap() {
        host.handshake(&theirs).unwrap();
    }
    let data = [7; 128 << 10];
    let mut both = [(&mut target, &ours), (&mut host, &theirs)];
    for (session, socket) in &mut both {
        let error = loop {
            match session.write(*socket, &[IoSlice::new(&data[..24]), IoSlice::new(&data)]) {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
    for (session, socket) in &mut both {
        session.read(*socket, &mut [IoSliceMut::new(&mut [0; 10])]).unwrap();
        assert!(session.has_input());
    }
}
