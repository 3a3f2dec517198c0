//! Controllers as hosts drive them, orderly and not.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use ebb_nvme::command::{FABRICS, admin, fabrics, sgl};
use ebb_nvme::fabrics::{ANY_CONTROLLER, ConnectData};
use ebb_nvme::identify::terminated;
use ebb_nvme::{Sqe, Status};
use ebb_policy::units::{Nanos, Watts};
use zerocopy::{FromZeros, IntoBytes};

use super::*;
use crate::device::{Channel, Device, Geometry};

mod changes;
mod features;
mod handshake;
mod hostile;
mod io;
mod pages;
mod random;

const NQN: &str = "nqn.2026-01.org.example:ebb";
const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:65626220-6c6f-6164-8000-000000000001";
const ENABLE: u32 = 0x0046_0001;
const NOW: Nanos = Nanos::from_secs(1);

/// A device with a size and nothing else: nothing here opens it.
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

fn namespace(id: u32, block_size: u32, blocks: u64) -> Namespace {
    Namespace {
        id,
        device: Arc::new(Sized(Geometry { block_size, blocks })),
        uuid: [id as u8; 16],
        nguid: [0x80 | id as u8; 16],
        read_only: id == 3,
    }
}

/// Power states and health that tests set.
#[derive(Default)]
struct Plant {
    states: Mutex<Vec<PowerState>>,
    state: AtomicU8,
    takes_limit: bool,
    limit: Mutex<Option<Watts>>,
    /// The longest wake-up of the idle states it may enter, us.
    idle: AtomicU32,
    warning: AtomicU8,
    kelvins: AtomicU16,
}

impl PowerControl for Plant {
    fn states(&self) -> Vec<PowerState> {
        self.states.lock().unwrap().clone()
    }
    fn set(&self, state: u8) -> Result<(), Status> {
        self.state.store(state, Ordering::Relaxed);
        Ok(())
    }
    fn get(&self) -> u8 {
        self.state.load(Ordering::Relaxed)
    }
    fn takes_limit(&self) -> bool {
        self.takes_limit
    }
    fn limit(&self, power: Option<Watts>) {
        *self.limit.lock().unwrap() = power;
    }
    fn idle(&self, longest: u32) {
        self.idle.store(longest, Ordering::Relaxed);
    }
}

impl Health for Plant {
    fn read(&self) -> Condition {
        Condition {
            temperature: Some(self.kelvins.load(Ordering::Relaxed)),
            warning: self.warning.load(Ordering::Relaxed),
        }
    }
}

fn power_state(watts: f64) -> PowerState {
    PowerState {
        max_power: Watts(watts),
        idle_power: Some(Watts(1.5)),
        active_power: None,
        entry_latency: 100,
        exit_latency: 200,
        read_rank: 0,
        write_rank: 1,
        is_operational: true,
    }
}

/// Has three power states.
fn plant() -> Plant {
    Plant { states: Mutex::new([25.0, 12.0, 3.5].map(power_state).to_vec()), ..Plant::default() }
}

fn config() -> Config {
    let namespaces =
        vec![namespace(3, 512, 64), namespace(1, 4096, 1024), namespace(2, 512, 1 << 20)];
    let plant = Arc::new(Plant { kelvins: 300.into(), ..plant() });
    Config {
        max_controllers: 4,
        max_io_queues: 3,
        ports: ["127.0.0.1:4420", "[::1]:4421"]
            .map(|one| one.parse::<SocketAddr>().unwrap().into())
            .to_vec(),
        power: Some(plant.clone()),
        health: Some(plant),
        ..Config::new(NQN, namespaces)
    }
}

fn subsystem() -> Arc<Subsystem> {
    Subsystem::new(config()).unwrap()
}

/// A Connect command and its data.
fn connect(queue: u16, size: u16, keep_alive: u32) -> Sqe {
    let mut sqe = Sqe::new(FABRICS, 0);
    sqe.nsid = u32::from(fabrics::CONNECT).into();
    (sqe.sgl_identifier, sqe.sgl_length) = (sgl::IN_CAPSULE, 1024.into());
    sqe.set_cdw(10, u32::from(queue) << 16);
    sqe.set_cdw(11, size.into());
    sqe.set_cdw(12, keep_alive);
    sqe
}

fn data(subsystem: &str, host: &str, controller: u16) -> ConnectData {
    ConnectData {
        host_id: [7; 16],
        controller_id: controller.into(),
        subsystem_nqn: terminated(subsystem),
        host_nqn: terminated(host),
        ..ConnectData::new_zeroed()
    }
}

fn admin_of(subsystem: &Arc<Subsystem>, nqn: &str, keep_alive: u32) -> AdminQueue {
    let data = data(nqn, HOST, ANY_CONTROLLER);
    let connected = subsystem.connect(&connect(0, 31, keep_alive), data.as_bytes(), NOW).unwrap();
    match connected.queue {
        Queue::Admin(queue) => queue,
        Queue::Io(_) => panic!("an admin queue was asked for"),
    }
}

fn try_io(subsystem: &Arc<Subsystem>, admin: &AdminQueue, queue: u16) -> Result<IoQueue, Refusal> {
    let data = data(NQN, HOST, admin.controller_id());
    match subsystem.connect(&connect(queue, 127, 0), data.as_bytes(), NOW)?.queue {
        Queue::Io(queue) => Ok(queue),
        Queue::Admin(_) => panic!("an I/O queue was asked for"),
    }
}

/// The answer to a command that is not held.
fn done(admin: &mut AdminQueue, sqe: &Sqe) -> (Status, u64, Vec<u8>) {
    match admin.command(sqe, &[], NOW) {
        Reply::Done { status, result, data } => (status, result, data),
        Reply::Pending => panic!("held: {sqe:?}"),
    }
}

fn property(admin: &mut AdminQueue, kind: u8, offset: u32, value: u32) -> (Status, u64) {
    let mut sqe = Sqe::new(FABRICS, 1);
    sqe.nsid = u32::from(kind).into();
    sqe.set_cdw(10, u32::from(offset == 0));
    sqe.set_cdw(11, offset);
    sqe.set_cdw(12, value);
    let (status, result, _) = done(admin, &sqe);
    (status, result)
}

fn get(admin: &mut AdminQueue, offset: u32) -> u64 {
    let (status, value) = property(admin, fabrics::PROPERTY_GET, offset, 0);
    assert_eq!(status, Status::SUCCESS);
    value
}

fn configure(admin: &mut AdminQueue, value: u32) {
    assert_eq!(property(admin, fabrics::PROPERTY_SET, 0x14, value).0, Status::SUCCESS);
}

fn enabled(subsystem: &Arc<Subsystem>, nqn: &str) -> AdminQueue {
    let mut admin = admin_of(subsystem, nqn, 0);
    configure(&mut admin, ENABLE);
    admin
}

fn to_host(opcode: u8, nsid: u32, length: u32) -> Sqe {
    let mut sqe = Sqe::new(opcode, 2);
    sqe.nsid = nsid.into();
    (sqe.sgl_identifier, sqe.sgl_length) = (sgl::TRANSPORT, length.into());
    sqe
}

fn identify(admin: &mut AdminQueue, cns: u32, nsid: u32) -> Result<Vec<u8>, Status> {
    let mut sqe = to_host(admin::IDENTIFY, nsid, 4096);
    sqe.set_cdw(10, cns);
    let (status, _, data) = done(admin, &sqe);
    if status.is_success() { Ok(data) } else { Err(status) }
}

fn log(admin: &mut AdminQueue, page: u8, offset: u64, length: u32) -> Result<Vec<u8>, Status> {
    let mut sqe = to_host(admin::GET_LOG_PAGE, u32::MAX, length);
    let dwords = length / 4 - 1;
    sqe.set_cdw(10, u32::from(page) | dwords << 16);
    sqe.set_cdw(11, dwords >> 16);
    sqe.set_cdw(12, offset as u32);
    sqe.set_cdw(13, (offset >> 32) as u32);
    let (status, _, data) = done(admin, &sqe);
    if status.is_success() { Ok(data) } else { Err(status) }
}

fn feature(admin: &mut AdminQueue, opcode: u8, cdw10: u32, cdw11: u32) -> Result<u32, Status> {
    let mut sqe = Sqe::new(opcode, 3);
    sqe.set_cdw(10, cdw10);
    sqe.set_cdw(11, cdw11);
    let (status, result, _) = done(admin, &sqe);
    if status.is_success() { Ok(result as u32) } else { Err(status) }
}

fn hold(admin: &mut AdminQueue, cid: u16) -> Reply {
    admin.command(&Sqe::new(admin::ASYNC_EVENT_REQUEST, cid), &[], NOW)
}

fn u16_at(data: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([data[at], data[at + 1]])
}
fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]])
}
fn u64_at(data: &[u8], at: usize) -> u64 {
    u64::from(u32_at(data, at)) | u64::from(u32_at(data, at + 4)) << 32
}
