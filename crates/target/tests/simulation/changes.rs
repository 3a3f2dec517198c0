//! What `ebb ctl` does, amid everything else: a namespace comes, grows and goes, and another takes
//! its number; paths open and shut, an address comes and goes; hosts may do less.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use ebb_target::controller::{Allowed, AnaState, Namespace, Port};
use ebb_target::device::Device;
use ebb_target::reactor::Task;
use ebb_target::transport::Fleet;
use rand::RngExt;

use super::device::{Nature, Slow, Watch};
use super::history::BLOCK;
use super::network::{PORTS, address};
use super::scene::{ATTACKED, Path, Space};
use super::world::{World, ram};

/// The namespace that comes and goes, and the most that there may be.
pub const CHANGING: u32 = 0x3e0;
/// Its blocks at first and at last.
const BLOCKS: (u64, u64) = (64, 192);

/// What is changed, and what of it is known.
#[derive(Default)]
pub struct Changing {
    fleet: Option<Fleet>,
    /// Of the namespace that comes and goes, last.
    watch: Option<Watch>,
    /// Its index in the scene.
    space: Option<usize>,
}

impl World {
    /// The target has started: with nothing of what was changed.
    pub(crate) fn start_changes(&mut self) {
        let stewards = self.targets.iter().map(|target| target.group.steward()).collect();
        let fleet = Fleet::new(self.subsystem.clone(), stewards, Duration::ZERO);
        let space = self.changing.space;
        self.changing = Changing { fleet: Some(fleet), watch: None, space };
        self.goes();
        let path = Path { is_shut: false, since: self.scene.now };
        self.scene.spaces.iter_mut().for_each(|space| space.paths = [path; PORTS]);
        self.scene.is_open = [true, false];
    }

    pub(crate) fn all_watches(&self) -> impl Iterator<Item = &Watch> {
        self.watches.iter().chain(&self.changing.watch)
    }

    /// One change.
    pub(crate) fn change(&mut self) {
        let kind = self.scene.random.random_range(0..5_u64);
        match kind {
            0 if self.is_there() => self.remove(),
            0 => self.add(),
            1 if self.is_there() => self.grow(),
            1 | 2 => self.change_path(),
            3 => self.change_ports(!self.scene.is_open[1]),
            _ => self.limit(),
        }
        self.scene.tally.changes += 1;
        self.scene.note("change: kind", [kind, 0, 0, 0]);
    }

    /// As every change began, and with no limits: for what must end now.
    pub(crate) fn undo_changes(&mut self) {
        for host in &self.hosts {
            self.subsystem.allow(&host.nqn(), Allowed::default()).unwrap();
        }
    }

    fn is_there(&self) -> bool {
        self.changing.space.is_some_and(|at| !self.scene.spaces[at].is_gone)
    }

    /// Hosts must not rely on it any more.
    fn goes(&mut self) {
        if let Some(at) = self.changing.space {
            self.scene.spaces[at].is_gone = true;
            self.scene.recent.retain(|(extent, _)| extent.namespace != at);
        }
    }

    fn remove(&mut self) {
        let fleet = self.changing.fleet.as_mut().unwrap();
        fleet.remove(CHANGING).unwrap();
        self.goes();
    }

    /// Removals go on whenever somebody looks.
    pub(crate) fn go_on_changing(&mut self) {
        self.changing.fleet.iter_mut().for_each(|fleet| drop(fleet.leaving()));
    }

    /// Once nothing can be meant for the one before.
    fn add(&mut self) {
        let mut fleet = self.changing.fleet.take().unwrap();
        let may_be_meant =
            |at| self.hosts.iter().any(|host| host.uses(at)) || self.scene.has_orphans(at);
        if fleet.leaving().is_empty() && !self.changing.space.is_some_and(may_be_meant) {
            let nature = Nature { eagerness: 4, ..Nature::default() };
            let seed = self.scene.random.random();
            let (device, watch) = Slow::new(ram(BLOCKS.0), seed, nature, &self.steps);
            self.changing.watch = Some(watch);
            self.attach(&mut fleet, device);
            self.changing.space = Some(self.scene.spaces.len());
            let mut space = Space::new(CHANGING, BLOCKS.0, false);
            // States are of addresses, whatever is there.
            let (now, subsystem) = (self.scene.now, &self.subsystem);
            space.paths = std::array::from_fn(|port| {
                let state = subsystem.ana(address(port), CHANGING);
                Path { is_shut: state.is_some_and(is_shut), since: now }
            });
            self.scene.spaces.push(space);
        }
        self.changing.fleet = Some(fleet);
    }

    /// Adds a namespace, for which every group must carry out an order.
    fn attach(&mut self, fleet: &mut Fleet, device: Arc<dyn Device>) {
        let id = CHANGING;
        let namespace =
            Namespace { id, device, uuid: [0xcc; 16], nguid: [0xdd; 16], read_only: false };
        fleet.be_patient(Duration::from_secs(600));
        self.targets.iter().for_each(|target| target.bell.store(false, Relaxed));
        thread::scope(|scope| {
            let adding = scope.spawn(|| fleet.add(namespace));
            for target in &mut self.targets {
                while !target.bell.load(Relaxed) {
                    assert!(!adding.is_finished(), "it was not added");
                    thread::yield_now();
                }
            }
            // All orders are there, each group is polled once: every run is the same.
            for (number, target) in self.targets.iter_mut().enumerate() {
                target.group.poll(self.scene.now);
                target.sleeps = false;
                self.scene.polls[number] += 1;
            }
            adding.join().unwrap().unwrap();
        });
        fleet.be_patient(Duration::ZERO);
    }

    fn grow(&mut self) {
        let at = self.changing.space.unwrap();
        let blocks = (self.scene.spaces[at].blocks + 16).min(BLOCKS.1);
        if blocks > self.scene.spaces[at].blocks {
            let fleet = self.changing.fleet.as_ref().unwrap();
            Fleet::resize(fleet.subsystem(), CHANGING, blocks * BLOCK as u64).unwrap();
            self.scene.spaces[at].blocks = blocks;
        }
    }

    fn change_path(&mut self) {
        let scene = &mut self.scene;
        let port = if scene.is_open[1] { scene.random.random_range(0..PORTS) } else { 0 };
        let namespace = scene.random.random_range(ATTACKED..scene.spaces.len());
        // Mostly open, or there would be little to look at.
        let states = [&AnaState::ALL[..2], &AnaState::ALL].concat();
        let state = states[scene.random.random_range(0..states.len())];
        let id = scene.spaces[namespace].id;
        assert!(self.subsystem.set_ana(address(port), Some(id), state));
        for at in 0..scene.spaces.len() {
            if scene.spaces[at].id == id {
                scene.set_path(at, port, is_shut(state));
            }
        }
    }

    fn change_ports(&mut self, opens: bool) {
        let ports: Vec<Port> = (0..1 + usize::from(opens)).map(|at| address(at).into()).collect();
        self.subsystem.set_ports(&ports);
        self.scene.is_open[1] = opens;
        if !opens {
            self.scene.epochs[1] += 1;
            // Nobody answers before a group was polled.
            let _ = self.changing.fleet.as_ref().unwrap().close(address(1));
        }
        (0..self.scene.spaces.len()).for_each(|at| self.scene.set_path(at, 1, false));
    }

    /// Limits one of those whom nobody waits for, or lets it go again.
    fn limit(&mut self) {
        let at = self.scene.random.random_range(0..self.hosts.len());
        let (iops, bytes) =
            (self.scene.random.random_range(10..10_000), self.scene.random.random());
        let allowed = Allowed {
            iops: self.scene.once_in(2).then_some(iops),
            bytes_per_second: if bytes { Some(64 << 10) } else { None },
        };
        if self.hosts[at].may_be_limited() {
            self.subsystem.allow(&self.hosts[at].nqn(), allowed).unwrap();
        }
    }
}

/// Whether commands fail in this state.
fn is_shut(state: AnaState) -> bool {
    matches!(state, AnaState::Inaccessible | AnaState::Change)
}
