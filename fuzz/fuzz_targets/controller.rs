//! Any sequence of commands, on any number of queues: a subsystem answers or refuses, never
//! panics, never replies with more than was asked for, never touches blocks that do not exist,
//! and never has a controller or a queue twice.
//!
//! The input is a sequence of steps: a byte that says what and to which queue, then its operands.

#![no_main]

use std::net::SocketAddr;
use std::sync::Arc;

use ebb_nvme::Sqe;
use ebb_nvme::command::{FABRICS, fabrics, sgl};
use ebb_nvme::fabrics::{ANY_CONTROLLER, DISCOVERY_NQN};
use ebb_policy::units::Nanos;
use ebb_target::controller::{
    AdminQueue, Config, IoQueue, Namespace, Plan, Port, Queue, Reply, Subsystem, check_ranges,
};
use ebb_target::device::{Channel, Device, Geometry};
use libfuzzer_sys::fuzz_target;
use zerocopy::FromBytes;

const NQN: &str = "nqn.2026-01.org.example:ebb";

struct Sized(Geometry);

impl Device for Sized {
    fn geometry(&self) -> Geometry {
        self.0
    }
    fn describe(&self) -> String {
        "sized".to_owned()
    }
    fn open(&self) -> std::io::Result<Box<dyn Channel>> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

fn subsystem() -> Arc<Subsystem> {
    let namespace = |id: u32, block_size, blocks| Namespace {
        id,
        device: Arc::new(Sized(Geometry { block_size, blocks })),
        uuid: [id as u8; 16],
        nguid: [id as u8; 16],
        read_only: id == 3,
    };
    let namespaces =
        vec![namespace(1, 4096, 64), namespace(2, 512, u64::MAX >> 9), namespace(9, 512, 1)];
    let config = Config {
        max_controllers: 4,
        max_io_queues: 4,
        ports: vec![Port::from(SocketAddr::from(([127, 0, 0, 1], 4420)))],
        ..Config::new(NQN, namespaces)
    };
    Subsystem::new(config).expect("a subsystem")
}

#[derive(Default)]
struct Bench {
    admins: Vec<AdminQueue>,
    queues: Vec<(u16, IoQueue)>,
    now: Nanos,
}

/// Takes `N` bytes off the front.
fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*first)
}

fuzz_target!(|input: &[u8]| {
    let subsystem = subsystem();
    let (mut bench, mut input) = (Bench::default(), input);
    while step(&subsystem, &mut bench, &mut input).is_some() {
        bench.admins.retain(|admin| !admin.gave_way());
        assert_eq!(subsystem.controllers(), bench.admins.len());
        let ids = bench.admins.iter().map(AdminQueue::controller_id);
        unique(ids.collect());
        let alive = bench.queues.iter().filter(|(_, queue)| queue.alive(bench.now));
        unique(alive.map(|(controller, queue)| (*controller, queue.id())).collect());
    }
});

fn unique<T: Ord>(mut values: Vec<T>) {
    let count = values.len();
    values.sort();
    values.dedup();
    assert_eq!(values.len(), count, "there are doubles");
}

fn step(subsystem: &Arc<Subsystem>, bench: &mut Bench, input: &mut &[u8]) -> Option<()> {
    let [what] = take(input)?;
    let at = usize::from(what >> 4);
    match what & 15 {
        0 => connect(subsystem, bench, take(input)?),
        1 => {
            let sqe = Sqe::read_from_bytes(&take::<64>(input)?).ok()?;
            let data = take::<32>(input)?.repeat(32);
            if let Ok(connected) = subsystem.connect(&sqe, &data, bench.now) {
                keep(bench, connected.queue, u16::from_le_bytes([data[16], data[17]]));
            }
        }
        2..5 => {
            let sqe = Sqe::read_from_bytes(&take::<64>(input)?).ok()?;
            if let Some(admin) = bench.admins.get_mut(at) {
                administer(admin, &sqe, bench.now);
            }
        }
        5..8 => {
            let sqe = Sqe::read_from_bytes(&take::<64>(input)?).ok()?;
            if let Some((_, queue)) = bench.queues.get(at) {
                run(subsystem, queue, &sqe);
            }
        }
        8 => {
            let mut sqe = Sqe::new(FABRICS, 0);
            sqe.nsid = u32::from(fabrics::PROPERTY_SET).into();
            sqe.set_cdw(11, 0x14);
            sqe.set_cdw(12, u32::from_le_bytes(take(input)?));
            if let Some(admin) = bench.admins.get_mut(at) {
                administer(admin, &sqe, bench.now);
            }
        }
        9 if at < bench.admins.len() => drop(bench.admins.swap_remove(at)),
        10 if at < bench.queues.len() => drop(bench.queues.swap_remove(at)),
        11 => bench.now = Nanos(bench.now.0 + u64::from(u32::from_le_bytes(take(input)?)) * 1000),
        12 => subsystem.set_ports(&vec![SocketAddr::from(([127, 0, 0, 1], 4420)).into(); at]),
        _ => {}
    }
    Some(())
}

/// A Connect that is right but for its numbers.
fn connect(subsystem: &Arc<Subsystem>, bench: &mut Bench, [queue, other, size]: [u8; 3]) {
    let mut sqe = Sqe::new(FABRICS, 0);
    sqe.nsid = u32::from(fabrics::CONNECT).into();
    (sqe.sgl_identifier, sqe.sgl_length) = (sgl::IN_CAPSULE, 1024.into());
    sqe.set_cdw(10, u32::from(queue & 7) << 16);
    sqe.set_cdw(11, size.into());
    sqe.set_cdw(12, u32::from(queue >> 3) * 1000);
    let controller = if queue & 7 == 0 { ANY_CONTROLLER } else { u16::from(other & 15) };
    let mut data = [0; 1024];
    data[16..18].copy_from_slice(&controller.to_le_bytes());
    let nqn = if other & 0x80 == 0 { NQN } else { DISCOVERY_NQN };
    data[256..256 + nqn.len()].copy_from_slice(nqn.as_bytes());
    data[512..512 + NQN.len()].copy_from_slice(NQN.as_bytes());
    if let Ok(connected) = subsystem.connect(&sqe, &data, bench.now) {
        assert!((2..=128).contains(&connected.depth));
        keep(bench, connected.queue, controller);
    }
}

fn keep(bench: &mut Bench, queue: Queue, controller: u16) {
    match queue {
        Queue::Admin(admin) => bench.admins.push(admin),
        Queue::Io(queue) => bench.queues.push((controller, queue)),
    }
}

fn administer(admin: &mut AdminQueue, sqe: &Sqe, now: Nanos) {
    let direction = admin.direction(sqe);
    if let Reply::Done { status, data, .. } = admin.command(sqe, &[], now) {
        let most = direction.map_or(0, |direction| direction.to_host() as usize);
        assert!(data.len() <= most && (status.is_success() || data.is_empty()));
    }
    assert!(admin.completions(now).len() <= 8);
    let _ = admin.alive(now);
}

fn run(subsystem: &Subsystem, queue: &IoQueue, sqe: &Sqe) {
    let Ok((plan, direction)) = queue.command(sqe) else { return };
    let geometry = |namespace: usize| subsystem.namespaces()[namespace].device.geometry();
    match plan {
        Plan::Device { namespace, lba, blocks, .. }
        | Plan::Compare { namespace, lba, blocks, .. } => {
            assert!(geometry(namespace).contains(lba, blocks.into()));
            let moved = u64::from(direction.from_host() + direction.to_host());
            let is_whole = moved == u64::from(blocks) * u64::from(geometry(namespace).block_size);
            assert!(is_whole || moved == 0 && !plan.takes_data());
        }
        Plan::Deallocate { namespace, ranges: count } => {
            let data = vec![0; direction.from_host() as usize];
            assert!(check_ranges(&data, count, geometry(namespace)).is_ok());
        }
        Plan::Nothing => {}
    }
    queue.account(sqe, &plan, ebb_nvme::Status::SUCCESS);
}
