//! One run: the target, its hosts and devices, and who does something next.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use ebb_policy::units::Nanos;
use ebb_target::controller::{Config, Namespace, Subsystem};
use ebb_target::device::{Device, Geometry, Keeper, Null, Raid5, Raid5Options, Ram};
use ebb_target::transport::{Group, Limits};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::changes::{CHANGING, Changing};
use super::device::{Lie, Nature, Slow, Watch};
use super::history::BLOCK;
use super::host::{Host, Vice};
use super::network::{Watched, Wires, address};
use super::queue::NQN;
use super::scene::{Scene, Space};
use super::stranger::Stranger;

/// Blocks of the namespaces that are checked.
const BLOCKS: u64 = 192;
/// Identifiers so far apart that no wrong bit makes one of another.
const IDS: [u32; 4] = [0x001, 0x01e, 0x1f0, 0x30f];
/// Steps without completions after which a device is stalled: more than a pause of one takes.
const SILENCE: u64 = 5_000;
/// Time between looks of the target at deadlines, and some for being late.
const TICKS: Nanos = Nanos::from_millis(1500);

/// What a run is made of.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub steps: u64,
    pub vices: Vec<Vice>,
    pub strangers: usize,
    pub lie: Option<Lie>,
    /// One step in so many restarts the target; zero for none.
    pub restarts: u32,
    /// One step in so many changes what it serves, where, or to whom; zero for none.
    pub changes: u32,
}

impl Plan {
    /// What the seed makes of it.
    pub fn of(seed: u64, steps: u64) -> Self {
        let mut random = Pcg64Mcg::seed_from_u64(seed ^ 0x5eed);
        let polite = random.random_range(1..=3);
        let others = random.random_range(0..=5);
        let any = |_| Vice::ALL[random.random_range(0..Vice::ALL.len())];
        let vices = (0..others).map(any).chain([Vice::None].into_iter().cycle().take(polite));
        let vices = vices.collect();
        let strangers = random.random_range(0..=2);
        let restarts = if random.random_ratio(1, 3) { 15_000 } else { 0 };
        let changes = if random.random_ratio(2, 3) { 500 } else { 0 };
        Self { seed, steps, vices, strangers, lie: None, restarts, changes }
    }
}

/// A member of the array that fails for good.
pub(crate) struct Failure {
    pub member: usize,
    pub watch: Watch,
    pub step: u64,
    pub is_over: bool,
}

pub(crate) struct Target {
    pub group: Group<Wires>,
    pub watched: Watched,
    /// It has orders.
    pub bell: Arc<AtomicBool>,
    /// Its last poll found nothing: it sleeps until there is something.
    pub sleeps: bool,
}

pub struct World {
    pub(crate) scene: Scene,
    pub(crate) plan: Plan,
    pub(crate) limits: Limits,
    /// Of what scheduling decision it is, for whom it concerns.
    pub(crate) steps: Arc<AtomicU64>,
    /// Mean time between steps, ns.
    pub(crate) pace: u64,
    /// Whether groups are polled when there is nothing to be found.
    pub(crate) polls_always: bool,
    pub(crate) subsystem: Arc<Subsystem>,
    pub(crate) devices: Vec<Arc<dyn Device>>,
    /// Of the devices that outlive a target, then of those that do not.
    pub(crate) watches: Vec<Watch>,
    pub(crate) members: Vec<(String, Arc<dyn Device>)>,
    /// The member that fails for good, and at which step.
    pub(crate) failure: Option<Failure>,
    pub(crate) keeper: Option<Keeper>,
    pub(crate) targets: Vec<Target>,
    pub(crate) changing: Changing,
    pub(crate) hosts: Vec<Host>,
    pub(crate) strangers: Vec<Stranger>,
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.scene.print_log();
            let (seed, steps) = (self.plan.seed, self.plan.steps);
            eprintln!(
                "seed {seed} failed; once more:\n  EBB_SEED={seed} EBB_STEPS={steps} cargo test -p \
                 ebb-target --test all simulation::replay -- --ignored --nocapture"
            );
        }
    }
}

pub(crate) fn ram(blocks: u64) -> Arc<dyn Device> {
    Arc::new(Ram::new(Geometry { block_size: BLOCK as u32, blocks }, false).unwrap())
}

impl World {
    pub fn new(plan: Plan) -> Self {
        let steps = Arc::<AtomicU64>::default();
        let mut random = Pcg64Mcg::seed_from_u64(plan.seed);
        let pace = [2_000, 20_000, 200_000][random.random_range(0..3)];
        let limits = Limits {
            connections: 64,
            max_h2c_data: [4 << 10, 8 << 10, 128 << 10][random.random_range(0..3)],
            max_transfer: 16 << 10,
            in_capsule: 8 << 10,
            handshake: Nanos::from_secs(5),
            stall: Nanos::from_secs(10),
            patience: Nanos::from_secs(2),
            recall: Nanos::from_secs(1),
            buffers: [16, 64, 256][random.random_range(0..3)],
            silence: Nanos(pace * SILENCE),
            secure: false,
        };
        let groups = random.random_range(1..=3);
        let scene = Scene::new(plan.seed, groups, limits.connections, &steps);
        let strangers =
            (0..plan.strangers).map(|_| Stranger::new(limits.handshake + TICKS)).collect();
        let mut world = Self {
            scene,
            pace,
            polls_always: random.random(),
            limits,
            steps,
            subsystem: Subsystem::new(Config::new(NQN, vec![])).unwrap(),
            devices: Vec::new(),
            watches: Vec::new(),
            members: Vec::new(),
            failure: None,
            keeper: None,
            targets: Vec::new(),
            changing: Changing::default(),
            hosts: Vec::new(),
            strangers,
            plan,
        };
        world.make_devices(&mut random);
        world.start();
        for (id, vice) in world.plan.vices.clone().into_iter().enumerate() {
            world.hosts.push(Host::new(&mut world.scene, id as u8 + 1, vice));
        }
        world
    }

    fn slow(&mut self, inner: Arc<dyn Device>, seed: u64, nature: Nature) -> Arc<dyn Device> {
        let (device, watch) = Slow::new(inner, seed, nature, &self.steps);
        self.watches.push(watch);
        device
    }

    fn make_devices(&mut self, random: &mut Pcg64Mcg) {
        let eagerness = random.random_range(1..=7);
        let geometry = Geometry { block_size: BLOCK as u32, blocks: 4 << 20 };
        let from = random.random_range(0..self.plan.steps);
        let length = random.random_range(0..=self.plan.steps / 4);
        let hangs = if random.random() { (from, from + length) } else { (0, 0) };
        let nature = Nature { eagerness, hangs, ..Nature::default() };
        let null = self.slow(Arc::new(Null::new(geometry)), random.random(), nature);
        let failure = if random.random() { 100 } else { 0 };
        let flaky =
            Nature { failure, pause: 200, eagerness, lie: self.plan.lie, ..Nature::default() };
        let slow = self.slow(ram(BLOCKS), random.random(), flaky);
        self.devices = vec![null, ram(BLOCKS), slow];
        let spaces = [(geometry.blocks, false), (BLOCKS, false), (BLOCKS, failure > 0)];
        let space =
            |(at, (blocks, fails)): (usize, (u64, bool))| Space::new(IDS[at], blocks, fails);
        self.scene.spaces = spaces.into_iter().enumerate().map(space).collect();
        if random.random() {
            let nature = Nature { eagerness: eagerness.max(4), ..Nature::default() };
            let loses = random.random_range(0..6);
            for at in 0..3 {
                // Not among the watched: the array's own channels and keeper use them.
                let (device, watch) = Slow::new(ram(5 << 10), random.random(), nature, &self.steps);
                self.members.push((format!("member {at}"), device));
                if at == loses {
                    let step = random.random_range(0..self.plan.steps);
                    self.failure = Some(Failure { member: at, watch, step, is_over: false });
                }
            }
            self.scene.spaces.push(Space::new(IDS[3], BLOCKS, false));
        }
    }

    /// Starts the target on what the devices hold.
    pub(crate) fn start(&mut self) {
        let mut devices = self.devices.clone();
        self.watches.truncate(2);
        if !self.members.is_empty() {
            let options = Raid5Options {
                chunk: 4096,
                journal_slots: 16,
                create: self.scene.tally.restarts == 0,
                degraded: self.members.len() < 3,
                ..Raid5Options::default()
            };
            let (array, keeper) = Raid5::open_kept(self.members.clone(), &options)
                .unwrap_or_else(|error| self.scene.fail(&format!("no array: {error}")));
            self.keeper = Some(keeper);
            let nature = Nature { eagerness: 8, ..Nature::default() };
            let seed = self.scene.random.random();
            let (device, watch) = Slow::new(Arc::new(array), seed, nature, &self.steps);
            devices.push(device);
            self.watches.push(watch);
        }
        let namespace = |(at, device): (usize, Arc<dyn Device>)| {
            let id = IDS[at];
            let (uuid, nguid) = ([id as u8; 16], [id as u8 | 0x40; 16]);
            Namespace { id, device, uuid, nguid, read_only: false }
        };
        let namespaces = devices.into_iter().enumerate().map(namespace).collect();
        let mut config = Config::new(NQN, namespaces);
        config.max_transfer = self.limits.max_transfer;
        config.in_capsule = self.limits.in_capsule;
        config.max_controllers = 16;
        config.max_queue_depth = 64;
        config.ports = vec![address(0).into()];
        config.places = CHANGING;
        self.subsystem = Subsystem::new(config).unwrap();
        self.watches.iter().for_each(Watch::restart);
        let (limits, subsystem) = (self.limits, &self.subsystem);
        let scene = &mut self.scene;
        let group = |number| {
            let network = Wires::new(scene.fabric.inbox(number), scene.random.random());
            let (watched, bell) = (network.watched(), network.bell());
            let places = scene.fabric.places.clone();
            let group = Group::over(network, subsystem.clone(), limits, places).unwrap();
            Target { group, watched, bell, sleeps: false }
        };
        let groups = scene.polls.len();
        self.targets = (0..groups).map(group).collect();
        self.start_changes();
    }
}
