//! Checking an I/O command, counting it and looking for events takes no memory.

#![allow(clippy::panic, clippy::unwrap_used)]

use std::sync::Arc;

use ebb_dataplane::controller::{AdminQueue, Config, IoQueue, Namespace, Plan, Queue, Subsystem};
use ebb_dataplane::device::{Channel, Device, Geometry};
use ebb_dataplane::wire::command::{FABRICS, fabrics, io, sgl};
use ebb_dataplane::wire::{Sqe, Status};
use ebb_policy::units::Nanos;

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
