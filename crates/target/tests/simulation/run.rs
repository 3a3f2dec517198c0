//! The steps of a run, and what must be true at its end.

use std::sync::atomic::Ordering::Relaxed;

use ebb_policy::units::Nanos;
use ebb_target::device::{Device, Io, Keeper, Op, Pool};
use ebb_target::reactor::Task;
use rand::RngExt;

use super::history::{BLOCK, tag_of};
use super::network::has_news;
use super::scene::{ATTACKED, Extent, Space, Tally};
use super::world::World;

/// Steps between looks at what takes long.
const LOOK: u64 = 256;
/// The most polls of its group in which a well-behaved host's command must be answered, R2T and
/// slow wires included, and the most time unless groups are polled once in a millisecond at most.
const POLLS: u64 = 5_000;
const TIME: u64 = 1_000_000_000;
const SLOWEST: u64 = 100_000;
/// Steps in which the well-behaved hosts' last commands, and then all connections, must end.
const LAST: u64 = 200_000;

impl World {
    /// All steps of the plan, then the end. What happened.
    pub fn run(mut self) -> (Tally, u64) {
        for _ in 0..self.plan.steps {
            self.step();
            if self.plan.restarts > 0 && self.scene.once_in(self.plan.restarts) {
                self.restart();
            }
            if self.plan.changes > 0 && self.scene.once_in(self.plan.changes) {
                self.change();
            }
        }
        self.end();
        self.scene.tally.steps = self.scene.step;
        (self.scene.tally, self.scene.trace)
    }

    fn step(&mut self) {
        let scene = &mut self.scene;
        scene.step += 1;
        self.steps.store(scene.step, Relaxed);
        scene.now += Nanos(scene.random.random_range(0..=2 * self.pace));
        match scene.random.random_range(0..100) {
            0..45 => {
                let mut random = scene.random.clone();
                scene.fabric.travel(&mut random);
                scene.random = random;
            }
            45..70 => {
                let group = scene.random.random_range(0..self.targets.len());
                self.poll(group);
            }
            70..72 => {
                if let Some(keeper) = &mut self.keeper {
                    keeper.run_once();
                }
            }
            72..76 if !self.strangers.is_empty() => {
                let at = scene.random.random_range(0..self.strangers.len());
                self.strangers[at].turn(scene);
            }
            _ => {
                let at = scene.random.random_range(0..self.hosts.len());
                self.hosts[at].turn(scene);
            }
        }
        if let Some(failure) = &mut self.failure
            && self.scene.step == failure.step
        {
            failure.watch.fail();
            failure.is_over = true;
        }
        if self.scene.step.is_multiple_of(LOOK) {
            self.look();
        }
    }

    fn poll(&mut self, number: usize) {
        let now = self.scene.now;
        let is_rung = self.targets[number].bell.swap(false, Relaxed);
        let is_woken = is_rung || self.polls_always || self.is_woken(number);
        let sleeps = self.targets[number].sleeps && !is_woken;
        // Now and then it is shaken awake: then it must find nothing, or it slept too deep.
        if sleeps && !self.scene.once_in(20) {
            return;
        }
        let target = &mut self.targets[number];
        let counters = target.group.counters();
        let work = || [&counters.commands, &counters.received].map(|one| one.load(Relaxed));
        let before = work();
        let count = target.group.poll(now);
        if sleeps && (count > 0 || work() != before) {
            self.scene.fail("a group had work that nothing would have woken it for");
        }
        if count == 0 && target.group.waiting().get() > 0 {
            self.scene.fail("requests are said to wait where none is found");
        }
        target.sleeps = count == 0;
        self.scene.polls[number] += 1;
        let held = u64::from(target.group.held_buffers());
        self.scene.note("poll: group, count, held", [number as u64, count as u64, held, now.0]);
    }

    /// Whether a group that sleeps has been given a reason to wake up.
    fn is_woken(&self, number: usize) -> bool {
        let target = &self.targets[number];
        let is_due = target.group.deadline().is_some_and(|deadline| self.scene.now >= deadline);
        is_due
            || self.scene.fabric.is_expected(number)
            || self.all_watches().any(|watch| watch.is_busy(number))
            || has_news(&target.watched)
    }

    /// Commands that take too long, and writes that are known to have ended.
    fn look(&mut self) {
        self.go_on_changing();
        let oldest = self.all_watches().filter_map(|watch| watch.oldest()).min();
        self.scene.settle(oldest.unwrap_or(self.scene.step));
        for host in self.hosts.iter().filter(|host| host.is_well_behaved()) {
            let (polls, time) = host.age(&self.scene);
            let tally = &mut self.scene.tally;
            tally.most_polls = tally.most_polls.max(polls);
            if polls > POLLS || time > TIME && self.pace < SLOWEST {
                let time = time / 1_000_000;
                let what = format!("no answer in {polls} polls, {time} ms: {:#?}", host.oldest());
                self.scene.fail(&what);
            }
        }
    }

    /// The target crashes and starts again on the same devices.
    fn restart(&mut self) {
        self.scene.note("restart", [0; 4]);
        self.targets.clear();
        self.scene.fabric.cut();
        self.keeper = None;
        if let Some(failure) = self.failure.take_if(|failure| failure.is_over) {
            self.members.remove(failure.member);
        }
        self.scene.epochs.iter_mut().for_each(|epoch| *epoch += 1);
        self.scene.tally.restarts += 1;
        self.start();
    }

    /// Lets what is under way end, then everybody go; looks at what is left.
    fn end(&mut self) {
        self.scene.is_ending = true;
        self.undo_changes();
        let from = self.scene.step;
        while !self.hosts.iter().all(|host| !host.is_well_behaved() || host.is_idle()) {
            self.step();
            if self.scene.step - from > LAST {
                self.scene.fail("the last commands are not answered");
            }
        }
        for host in &mut self.hosts {
            let orderly = self.scene.random.random();
            host.leave(&mut self.scene, orderly);
        }
        let from = self.scene.step;
        self.pace = 1_000_000;
        while !self.is_quiet() {
            self.step();
            if self.scene.step - from > LAST {
                let (open, controllers) = self.left();
                let oldest: Vec<_> = self.all_watches().map(|watch| watch.oldest()).collect();
                let what = format!(
                    "left: {open} connections, {controllers} controllers, of the devices' \
                     requests the oldest of {oldest:?}"
                );
                self.scene.fail(&what);
            }
        }
        for target in &self.targets {
            let held = target.group.held_buffers();
            if held > 0 {
                self.scene.fail(&format!("{held} buffers did not come back"));
            }
        }
        self.scene.settle(self.scene.step);
        self.read_back();
    }

    fn left(&self) -> (u64, usize) {
        (self.scene.fabric.places.taken(), self.subsystem.controllers())
    }

    fn is_quiet(&self) -> bool {
        let is_quiet = self.all_watches().all(|watch| watch.oldest().is_none());
        self.left() == (0, 0) && is_quiet
    }

    /// Every block, straight from the devices.
    fn read_back(&mut self) {
        for namespace in self.subsystem.namespaces() {
            let is_it = |space: &Space| space.id == namespace.id && !space.is_gone;
            let Some(at) = self.scene.spaces.iter().position(is_it) else {
                self.scene.fail("a namespace that was removed is there")
            };
            if at == ATTACKED {
                continue;
            }
            let (device, blocks) = (namespace.device.clone(), self.scene.spaces[at].blocks);
            for lba in 0..blocks {
                let extent = Extent { namespace: at, lba, blocks: 1 };
                let read = self.scene.history.begin_read(extent.places());
                let Some(block) = read_block(&*device, &mut self.keeper, lba) else {
                    self.scene.history.abandon_read(extent.places(), read);
                    continue;
                };
                let tag = tag_of(&block, lba);
                let read = tag.and_then(|tag| {
                    let values = std::iter::once(tag);
                    self.scene.history.end_read(extent.places(), read, values)
                });
                if let Err(what) = read {
                    self.scene.fail(&format!("at the end, namespace {at}: {what}"));
                }
            }
        }
    }
}

/// One block; `None` when it cannot be read.
fn read_block(device: &dyn Device, keeper: &mut Option<Keeper>, lba: u64) -> Option<[u8; BLOCK]> {
    let mut channel = device.open().unwrap();
    let buffer = Pool::new(1, BLOCK).unwrap().take(BLOCK);
    channel.submit(Io { tag: 0, op: Op::Read { durable: false }, lba, blocks: 1, buffer });
    let mut done = Vec::new();
    while channel.poll(&mut done) == 0 {
        if let Some(keeper) = keeper {
            keeper.run_once();
        }
    }
    let done = done.pop().unwrap();
    done.status.is_success().then(|| done.buffer.unwrap()[..].try_into().unwrap())
}
