//! A target on a thread of its own: a listener and a group, polled in turn.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ebb_nvme::Status;
use ebb_nvme::tls::Security;
use ebb_policy::units::Nanos;
use ebb_target::controller::{Config, Namespace, Port, Rules, Subsystem, TlsKeys};
use ebb_target::device::{Channel, Device, Done, Geometry, Io, Op, Spec, open};
use ebb_target::reactor::{Task, Waiting};
use ebb_target::transport::{Counters, Doors, Group, Limits, Listener, Places, Steward};

pub const NQN: &str = "nqn.2026-11.org.example:test";
/// Blocks of 512 bytes in the namespace.
pub const BLOCKS: u64 = 2048;

pub struct Server {
    pub address: SocketAddr,
    pub subsystem: Arc<Subsystem>,
    pub places: Arc<Places>,
    pub doors: Arc<Doors>,
    pub steward: Arc<Steward>,
    pub counters: Arc<Counters>,
    /// Requests, as a scheduler sees them.
    pub requests: Arc<AtomicU64>,
    /// Of these, those that wait, and the most that ever waited from one poll to the next.
    pub waiting: Waiting,
    pub most_waiting: Waiting,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(limits: Limits) -> Self {
        Self::of(open(&"ram:1MiB,block=512B".parse::<Spec>().unwrap()).unwrap(), limits)
    }

    /// One that serves `device`.
    pub fn of(device: Arc<dyn Device>, limits: Limits) -> Self {
        Self::of_all(vec![device], limits)
    }

    /// One whose hosts authenticate themselves.
    pub fn guarded(rules: Rules) -> Self {
        let device = open(&"ram:1MiB,block=512B".parse::<Spec>().unwrap()).unwrap();
        Self::with(
            vec![device],
            Limits::default(),
            |config| config.authentication = Some(rules),
            None,
        )
    }

    /// One with TLS.
    pub fn secured(keys: Arc<dyn TlsKeys>, security: Security, limits: Limits) -> Self {
        let device = open(&"ram:1MiB,block=512B".parse::<Spec>().unwrap()).unwrap();
        Self::with(vec![device], limits, |config| config.tls = Some(keys), Some(security))
    }

    /// One that serves `devices`, as namespaces 1 and on.
    pub fn of_all(devices: Vec<Arc<dyn Device>>, limits: Limits) -> Self {
        Self::with(devices, limits, |_| (), None)
    }

    fn with(
        devices: Vec<Arc<dyn Device>>,
        limits: Limits,
        change: impl FnOnce(&mut Config),
        security: Option<Security>,
    ) -> Self {
        let namespace = |(id, device)| {
            let (uuid, nguid) = ([id as u8; 16], [id as u8 | 0x80; 16]);
            Namespace { id, device, uuid, nguid, read_only: false }
        };
        let mut config = Config::new(NQN, (1..).zip(devices).map(namespace).collect());
        config.places = 4;
        config.max_transfer = limits.max_transfer;
        config.in_capsule = limits.in_capsule;
        change(&mut config);
        let subsystem = Subsystem::new(config).unwrap();
        let places = Arc::new(Places::new(limits.connections, 1));
        let mut group = Group::new(subsystem.clone(), limits, places.clone()).unwrap();
        let inboxes = vec![group.inbox()];
        let any = "127.0.0.1:0".parse().unwrap();
        let mut listener = Listener::new(inboxes, places.clone()).unwrap();
        let (doors, steward) = (listener.doors(), group.steward());
        let counters = group.counters();
        let address = doors.open(Port { address: any, security }).unwrap();
        subsystem.set_ports(&doors.ports());
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = stop.clone();
        let requests = Arc::new(AtomicU64::new(0));
        let shown = requests.clone();
        let (waiting, most_waiting) = (group.waiting(), Waiting::default());
        let (wait, most) = (waiting.clone(), most_waiting.clone());
        let thread = thread::spawn(move || {
            let start = Instant::now();
            while !stopping.load(Ordering::Relaxed) {
                let now = Nanos(start.elapsed().as_nanos() as u64);
                let found = listener.poll(now) + group.poll(now);
                most.set(most.get().max(wait.get()));
                shown.store(group.requests(), Ordering::Release);
                if found == 0 {
                    thread::sleep(Duration::from_micros(20));
                }
            }
        });
        Self {
            address,
            subsystem,
            places,
            doors,
            steward,
            counters,
            requests,
            waiting,
            most_waiting,
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        // A test that fails already must not fail twice.
        assert!(ended.is_ok() || thread::panicking(), "the target panicked");
    }
}

/// What becomes of the requests that a gate holds.
pub const HELD: u8 = 0;
pub const DONE: u8 = 1;
pub const FAILED: u8 = 2;

/// A device whose requests, those that the test chose, end when and as it says.
pub struct Gate {
    inner: Arc<dyn Device>,
    holds: fn(Op) -> bool,
    state: Arc<AtomicU8>,
}

impl Gate {
    /// Before the device of `spec`, and what says how it is: at first [`HELD`].
    pub fn before(spec: &str, holds: fn(Op) -> bool) -> (Arc<Self>, Arc<AtomicU8>) {
        let inner = open(&spec.parse::<Spec>().unwrap()).unwrap();
        let state = Arc::new(AtomicU8::new(HELD));
        (Arc::new(Self { inner, holds, state: state.clone() }), state)
    }
}

impl Device for Gate {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn describe(&self) -> String {
        "gated".to_owned()
    }
    fn open(&self) -> std::io::Result<Box<dyn Channel>> {
        let (inner, state) = (self.inner.open()?, self.state.clone());
        Ok(Box::new(Gated { inner, holds: self.holds, state, held: Vec::new() }))
    }
}

struct Gated {
    inner: Box<dyn Channel>,
    holds: fn(Op) -> bool,
    state: Arc<AtomicU8>,
    held: Vec<Io>,
}

impl Channel for Gated {
    fn submit(&mut self, io: Io) {
        match (self.holds)(io.op) {
            true => self.held.push(io),
            false => self.inner.submit(io),
        }
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> usize {
        let before = done.len();
        match self.state.load(Ordering::SeqCst) {
            HELD => {}
            FAILED => done.extend(self.held.drain(..).map(|io| io.done(Status::WRITE_FAULT))),
            _ => self.held.drain(..).for_each(|io| self.inner.submit(io)),
        }
        self.inner.poll(done);
        done.len() - before
    }
}
