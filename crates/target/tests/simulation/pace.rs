//! A host whose PDUs follow each other without a pause is not one that stalls in the middle of
//! one, whenever the target looks.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use ebb_nvme::Sqe;
use ebb_nvme::command::{FABRICS, fabrics};
use ebb_nvme::pdu::{self, CapsuleCmd, Kind};
use ebb_policy::units::Nanos;
use ebb_target::controller::{Config, Subsystem};
use ebb_target::reactor::Task;
use ebb_target::transport::{Group, Limits};
use zerocopy::IntoBytes;

use super::network::Wires;
use super::queue::{Manner, NQN, Queue};
use super::scene::Scene;

/// Lets everything travel and the target look at it.
fn settle(scene: &mut Scene, group: &mut Group<Wires>) {
    for _ in 0..200 {
        let mut random = scene.random.clone();
        scene.fabric.travel(&mut random);
        scene.random = random;
        group.poll(scene.now);
    }
}

#[test]
fn whoever_is_always_inside_a_pdu_but_never_the_same_may_stay() {
    let limits = Limits::default();
    let mut scene = Scene::new(1, 1, limits.connections, &Arc::<AtomicU64>::default());
    let subsystem = Subsystem::new(Config::new(NQN, Vec::new())).unwrap();
    let network = Wires::new(scene.fabric.inbox(0), 1);
    let places = scene.fabric.places.clone();
    let mut group = Group::over(network, subsystem, limits, places).unwrap();
    let mut queue = Queue::open(&mut scene, 1, 0, 0xffff, 0, false).unwrap();
    let manner = Manner { appetite: usize::MAX, hoards: false };
    while queue.turn(&mut scene, manner).unwrap().is_empty() {
        settle(&mut scene, &mut group);
    }
    let mut get = Sqe::new(FABRICS, 1);
    get.nsid = u32::from(fabrics::PROPERTY_GET).into();
    get.set_cdw(11, 0x1c); // CSTS
    let common = pdu::common(Kind::CapsuleCmd, 0, queue.link.digests, 0, 4);
    let mut command = Vec::new();
    pdu::put_header(&mut command, CapsuleCmd { common, sqe: get }.as_bytes());
    let (first, second) = command.split_at(40);
    queue.link.raw(first);
    let end = scene.now + Nanos(3 * limits.stall.0);
    while scene.now < end {
        scene.now += Nanos::from_millis(100);
        queue.link.raw(second);
        queue.link.raw(first);
        while queue.link.unsent() > 0 {
            queue.link.send(&mut scene.random);
            settle(&mut scene, &mut group);
            queue.link.receive(usize::MAX);
            assert!(queue.link.pipe.target_left().is_none(), "closed at {:?}", scene.now);
        }
    }
}
