//! A host: an admin queue, I/O queues, a way of using them.

use ebb_nvme::command::{FABRICS, admin, fabrics, io};
use ebb_nvme::{Sqe, Status, feature, property};
use ebb_policy::units::Nanos;
use rand::RngExt;

use super::queue::{Answer, Manner, Queue, Trouble, Work};
use super::scene::{ATTACKED, Extent, Scene};

/// CC: enabled, with entries of 64 and 16 bytes.
const ENABLED: u32 = 0x0046_0001;
const SHUTDOWN: u32 = 1 << 14;
/// CSTS: ready, fatal, shut down.
const READY: u64 = 1;
const FATAL: u64 = 1 << 1;
const SHUT_DOWN: u64 = 1 << 3;

/// What a host does that it should not, or need not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vice {
    /// Nothing: it must be served well.
    None,
    /// Takes its answers slowly.
    Slow,
    /// Does nothing for long times, whatever is under way.
    Freezes,
    /// Sends wrong bits.
    Mangles,
    /// Asks and never reads.
    Deaf,
    /// Leaves R2Ts unanswered.
    Hoards,
    /// Comes and goes, at times in the middle of a PDU.
    Storms,
    /// Resets its controller over and over.
    Toggles,
    /// Clears as much as one command can.
    Clears,
}

impl Vice {
    pub const ALL: [Self; 9] = [
        Self::None,
        Self::Slow,
        Self::Freezes,
        Self::Mangles,
        Self::Deaf,
        Self::Hoards,
        Self::Storms,
        Self::Toggles,
        Self::Clears,
    ];

    /// Whether its data is part of what is checked.
    fn is_honest(self) -> bool {
        matches!(self, Self::None | Self::Slow | Self::Freezes)
    }
}

/// What an admin command was for.
mod wish {
    pub const ENABLE: u8 = 0;
    pub const DISABLE: u8 = 1;
    pub const SHUT_DOWN: u8 = 2;
    pub const KEEP_ALIVE: u8 = 3;
    pub const OTHER: u8 = 4;
    /// Whether a reset, or a shutdown, is over.
    pub const IS_RESET: u8 = 5;
    pub const IS_SHUT_DOWN: u8 = 6;
}

pub struct Host {
    id: u8,
    vice: Vice,
    admin: Option<Queue>,
    io: Vec<Option<Queue>>,
    /// Queues that a reset has ended, with what was sent on them.
    old: Vec<Queue>,
    controller: u16,
    is_enabled: bool,
    /// A reset or shutdown is under way: nothing new.
    is_pausing: bool,
    /// There was one already.
    has_paused: bool,
    keep_alive: Nanos,
    last_keep_alive: Nanos,
    /// Does nothing before this step.
    until: u64,
    discovers: bool,
}

impl Host {
    pub fn new(scene: &mut Scene, id: u8, vice: Vice) -> Self {
        let queues = scene.random.random_range(1..=3);
        Self {
            id,
            vice,
            admin: None,
            io: (0..queues).map(|_| None).collect(),
            old: Vec::new(),
            controller: 0xffff,
            is_enabled: false,
            is_pausing: false,
            has_paused: false,
            keep_alive: Nanos::ZERO,
            last_keep_alive: Nanos::ZERO,
            until: scene.random.random_range(0..2000),
            discovers: false,
        }
    }

    pub fn is_well_behaved(&self) -> bool {
        self.vice == Vice::None
    }

    /// Whether it can be made to wait: nobody counts its polls.
    pub fn may_be_limited(&self) -> bool {
        self.vice != Vice::None
    }

    pub fn nqn(&self) -> String {
        format!("nqn.2026-11.org.example:host{}", self.id)
    }

    /// Whether a command of its for a namespace is under way.
    pub fn uses(&self, namespace: usize) -> bool {
        self.queues().any(|queue| queue.uses(namespace))
    }

    fn queues(&self) -> impl Iterator<Item = &Queue> {
        self.admin.iter().chain(self.io.iter().flatten())
    }

    /// Whether nothing is under way that must end.
    pub fn is_idle(&self) -> bool {
        self.queues().all(|queue| queue.is_idle() && queue.link.unsent() == 0)
    }

    /// Of each queue the oldest command that is not answered.
    pub fn oldest(&self) -> Vec<String> {
        self.queues().map(Queue::oldest).collect()
    }

    /// How long the oldest command of its queues is under way: polls, nanoseconds.
    pub fn age(&self, scene: &Scene) -> (u64, u64) {
        let ages = self.queues().map(|queue| queue.age(scene));
        ages.fold((0, 0), |old, new| (old.0.max(new.0), old.1.max(new.1)))
    }

    /// Drops all connections.
    pub fn leave(&mut self, scene: &mut Scene, orderly: bool) {
        let admin = self.admin.take();
        for mut queue in self.io.iter_mut().filter_map(Option::take) {
            queue.give_up(scene, self.id, admin.as_ref());
            queue.link.pipe.close(orderly);
        }
        self.old.drain(..).for_each(|queue| queue.link.pipe.close(orderly));
        admin.iter().for_each(|queue| queue.link.pipe.close(orderly));
        (self.is_enabled, self.is_pausing, self.has_paused) = (false, false, false);
        self.until = scene.step + scene.random.random_range(0..2000);
        scene.note("left: host", [self.id.into(), orderly.into(), 0, 0]);
    }

    /// Does something.
    pub fn turn(&mut self, scene: &mut Scene) {
        if scene.step < self.until {
            return;
        }
        if self.vice == Vice::Freezes && scene.once_in(300) {
            self.until = scene.step + scene.random.random_range(0..30_000);
            return;
        }
        self.send_late(scene);
        if self.admin.is_none() {
            if !scene.is_ending {
                self.arrive(scene);
            }
            return;
        }
        self.administer(scene);
        for at in 0..self.io.len() {
            self.serve(scene, at);
        }
        let often = match self.vice {
            Vice::Storms => 30,
            Vice::None | Vice::Slow => 3000,
            _ => 800,
        };
        if !scene.is_ending && scene.once_in(often) {
            let orderly = scene.random.random();
            self.leave(scene, orderly);
        }
    }

    fn arrive(&mut self, scene: &mut Scene) {
        let seconds = scene.random.random_range(0..4_u32) * 5;
        self.discovers = self.vice == Vice::Deaf && scene.once_in(2);
        let (id, keep_alive) = (self.id, seconds * 1000);
        self.admin = Queue::open(scene, id, 0, 0xffff, keep_alive, self.discovers);
        if let Some(admin) = &mut self.admin {
            admin.link.mangles = if self.vice == Vice::Mangles { 40 } else { 0 };
        }
        self.keep_alive = Nanos::from_secs(seconds.into());
        self.last_keep_alive = scene.now;
        scene.note("arrives: host, keep-alive", [id.into(), seconds.into(), 0, 0]);
    }

    fn manner(&self, scene: &mut Scene, is_ready: bool) -> Manner {
        let appetite = match self.vice {
            Vice::Deaf if is_ready => 0,
            Vice::Slow => scene.random.random_range(0..200),
            _ => usize::MAX,
        };
        Manner { appetite, hoards: self.vice == Vice::Hoards }
    }

    /// The admin queue's turn.
    fn administer(&mut self, scene: &mut Scene) {
        let Some(mut queue) = self.admin.take() else { return };
        let manner = self.manner(scene, queue.is_ready);
        match queue.turn(scene, manner) {
            Ok(answers) => {
                self.admin = Some(queue);
                for answer in answers {
                    self.answered(scene, &answer);
                }
                if !self.is_pausing {
                    self.wishes(scene);
                }
            }
            Err(trouble) => {
                self.lost(scene, &queue, &trouble);
                self.admin = Some(queue);
                self.leave(scene, true);
            }
        }
    }

    /// A queue has ended: whether it might.
    fn lost(&self, scene: &Scene, queue: &Queue, trouble: &Trouble) {
        // With the admin queue all others end.
        let is_cut = |queue: &Queue| queue.is_cut(scene);
        let was_cut = is_cut(queue) || self.admin.as_ref().is_some_and(is_cut);
        let is_excused = was_cut || !self.vice.is_honest();
        let (host, number) = (self.id, queue.number);
        match trouble {
            _ if is_excused => {}
            Trouble::Closed if queue.may_close || self.vice != Vice::None => {}
            Trouble::Closed => scene.fail(&format!("host {host}, queue {number} was closed")),
            Trouble::Wrong(what) => scene.fail(&format!("host {host}, queue {number}: {what}")),
        }
    }

    fn answered(&mut self, scene: &mut Scene, answer: &Answer) {
        let Some(admin) = &mut self.admin else { return };
        let must = self.vice.is_honest();
        match answer.work {
            Work::Connect if answer.status.is_success() => {
                self.controller = answer.result as u16;
                admin.is_ready = true;
                self.configure(scene, wish::ENABLE, ENABLED);
            }
            // As many controllers as there may be.
            Work::Connect => admin.may_close = true,
            Work::Admin(wish::ENABLE) if answer.status.is_success() => {
                (self.is_enabled, self.is_pausing) = (true, false);
                if !self.discovers && scene.once_in(2) {
                    // Obeys retry delays (ACRE).
                    let mut sqe = Sqe::new(admin::SET_FEATURES, 0);
                    sqe.set_cdw(10, feature::HOST_BEHAVIOR.into());
                    let mut data = vec![0; 512];
                    data[0] = 1;
                    admin.submit(scene, sqe, (Work::Admin(wish::OTHER), 0), data, 0);
                }
            }
            Work::Admin(wish::DISABLE) if answer.status.is_success() => {
                self.ask(scene, wish::IS_RESET);
            }
            Work::Admin(wish::IS_RESET) if answer.status.is_success() => {
                if answer.result & READY != 0 {
                    return self.ask(scene, wish::IS_RESET);
                }
                self.end_queues(scene);
                self.configure(scene, wish::ENABLE, ENABLED);
            }
            Work::Admin(wish::SHUT_DOWN) if answer.status.is_success() => {
                self.ask(scene, wish::IS_SHUT_DOWN);
            }
            Work::Admin(wish::IS_SHUT_DOWN) if answer.status.is_success() => {
                if answer.result & (FATAL | SHUT_DOWN) == 0 {
                    return self.ask(scene, wish::IS_SHUT_DOWN);
                }
                if answer.result & FATAL == 0 {
                    self.end_queues(scene);
                }
                self.leave(scene, true);
            }
            // Commands may overtake each other, also a reset or shutdown.
            Work::Admin(_) if self.has_paused && answer.status == Status::SEQUENCE_ERROR => {}
            Work::Admin(_) if must && !answer.status.is_success() => {
                scene.fail(&format!("host {}: {answer:?}", self.id));
            }
            _ => {}
        }
    }

    /// Its controller is reset or shut down: what was under way has happened or never will,
    /// whatever is still on its way to the target.
    fn end_queues(&mut self, scene: &mut Scene) {
        for mut queue in self.io.iter_mut().filter_map(Option::take) {
            queue.give_up_for_good(scene);
            if scene.once_in(2) {
                queue.link.pipe.close(true);
            } else {
                self.old.push(queue);
            }
        }
    }

    /// Goes on sending on queues that have ended.
    fn send_late(&mut self, scene: &mut Scene) {
        self.old.retain_mut(|queue| {
            queue.link.send(&mut scene.random);
            let is_open = queue.link.receive(usize::MAX);
            if !is_open {
                queue.link.pipe.close(true);
            }
            is_open
        });
    }

    /// Reads CSTS.
    fn ask(&mut self, scene: &mut Scene, wish: u8) {
        let Some(admin) = &mut self.admin else { return };
        let mut sqe = Sqe::new(FABRICS, 0);
        sqe.nsid = u32::from(fabrics::PROPERTY_GET).into();
        sqe.set_cdw(11, property::CSTS);
        admin.submit(scene, sqe, (Work::Admin(wish), 0), Vec::new(), 0);
    }

    /// Sets CC.
    fn configure(&mut self, scene: &mut Scene, wish: u8, value: u32) {
        let Some(admin) = &mut self.admin else { return };
        let mut sqe = Sqe::new(FABRICS, 0);
        sqe.nsid = u32::from(fabrics::PROPERTY_SET).into();
        sqe.set_cdw(11, property::CC);
        sqe.set_cdw(12, value);
        admin.submit(scene, sqe, (Work::Admin(wish), 0), Vec::new(), 0);
        self.is_pausing = true;
        if wish != wish::ENABLE {
            (self.is_enabled, self.has_paused) = (false, true);
            self.io.iter_mut().flatten().for_each(|queue| queue.may_close = true);
        }
    }

    /// What it wants of the admin queue now.
    fn wishes(&mut self, scene: &mut Scene) {
        let Some(admin) = &mut self.admin else { return };
        if !admin.has_room() || !self.is_enabled {
            return;
        }
        let since = scene.now.saturating_sub(self.last_keep_alive);
        if self.keep_alive > Nanos::ZERO && since.0 > self.keep_alive.0 / 4 {
            self.last_keep_alive = scene.now;
            let sqe = Sqe::new(admin::KEEP_ALIVE, 0);
            let work = (Work::Admin(wish::KEEP_ALIVE), 0);
            return admin.submit(scene, sqe, work, Vec::new(), 0);
        }
        if scene.is_ending {
            return;
        }
        let often = match self.vice {
            Vice::Deaf => 1,
            Vice::Toggles => 10,
            _ => 200,
        };
        if !scene.once_in(often) {
            return;
        }
        if self.vice == Vice::Toggles || scene.once_in(20) {
            let is_reset = self.vice == Vice::Toggles || scene.once_in(2);
            let (wish, value) = match is_reset {
                true => (wish::DISABLE, ENABLED & !1),
                false => (wish::SHUT_DOWN, ENABLED | SHUTDOWN),
            };
            return self.configure(scene, wish, value);
        }
        let (mut sqe, mut expects) = (Sqe::new(admin::GET_LOG_PAGE, 0), 512);
        let mut work = Work::Admin(wish::OTHER);
        match scene.random.random_range(0..3) {
            // It is answered when something happens: the keep-alive needs a place beside it.
            0 if !admin.has_events() && self.vice != Vice::Deaf && admin.has_room_for(2) => {
                (sqe, expects, work) = (Sqe::new(admin::ASYNC_EVENT_REQUEST, 0), 0, Work::Event);
            }
            1 if !self.discovers => {
                sqe = Sqe::new(admin::IDENTIFY, 0);
                (expects, work) = (4096, Work::Admin(wish::OTHER));
                sqe.set_cdw(10, 1); // The controller.
            }
            _ => {
                let page = if self.discovers { 0x70 } else { scene.random.random_range(1..=2) };
                expects = if self.vice == Vice::Deaf { 16 << 10 } else { expects };
                sqe.set_cdw(10, page | (expects as u32 / 4 - 1) << 16);
            }
        }
        admin.submit(scene, sqe, (work, 0), Vec::new(), expects);
    }

    /// The turn of I/O queue `at`, or of what is to become it.
    fn serve(&mut self, scene: &mut Scene, at: usize) {
        let (number, controller) = (at as u16 + 1, self.controller);
        let Some(mut queue) = self.io[at].take() else {
            if self.is_enabled && !self.discovers && !self.is_pausing && !scene.is_ending {
                self.io[at] = Queue::open(scene, self.id, number, controller, 0, false);
                if let Some(queue) = &mut self.io[at] {
                    queue.link.mangles = if self.vice == Vice::Mangles { 40 } else { 0 };
                }
            }
            return;
        };
        let manner = self.manner(scene, queue.is_ready);
        let mut is_over = false;
        match queue.turn(scene, manner) {
            Ok(answers) => {
                for answer in answers {
                    let ok = answer.status.is_success();
                    match answer.work {
                        Work::Connect if ok => queue.is_ready = true,
                        // The old queue of this number may not be gone yet.
                        Work::Connect if answer.status == Status::SEQUENCE_ERROR.retry() => {
                            is_over = true;
                        }
                        Work::Connect if self.vice.is_honest() && !queue.may_close => {
                            scene.fail(&format!("host {}: {answer:?}", self.id));
                        }
                        Work::Connect => is_over = true,
                        _ if self.vice == Vice::None => scene.tally.answered += 1,
                        _ => {}
                    }
                }
                if !scene.is_ending && !self.is_pausing {
                    self.wish_io(scene, &mut queue);
                }
            }
            Err(trouble) => {
                self.lost(scene, &queue, &trouble);
                is_over = true;
            }
        }
        if is_over {
            queue.give_up(scene, self.id, self.admin.as_ref());
            queue.link.pipe.close(true);
        } else {
            self.io[at] = Some(queue);
        }
    }

    /// Commands it wants done on an I/O queue now.
    fn wish_io(&mut self, scene: &mut Scene, queue: &mut Queue) {
        while queue.has_room() && !scene.once_in(3) {
            let extent = if self.vice.is_honest() { wanted(scene) } else { attacked(scene) };
            let opcode = match scene.random.random_range(0..20) {
                _ if self.vice == Vice::Hoards => io::WRITE,
                _ if self.vice == Vice::Clears && scene.once_in(2) => io::WRITE_ZEROES,
                _ if self.vice == Vice::Clears => io::DATASET_MANAGEMENT,
                _ if self.vice == Vice::Deaf => io::READ,
                0..8 => io::READ,
                8..16 => io::WRITE,
                16 => io::COMPARE,
                17 => io::WRITE_ZEROES,
                18 => io::FLUSH,
                _ => io::DATASET_MANAGEMENT,
            };
            let known = scene.recent.back().copied();
            match (opcode, known) {
                (io::COMPARE, Some((extent, _))) if self.vice.is_honest() => {
                    queue.submit_io(scene, opcode, extent);
                }
                (io::DATASET_MANAGEMENT, _) => {
                    let count = if self.vice == Vice::Clears { 256 } else { 2 };
                    let whole = scene.spaces[ATTACKED].blocks as u32;
                    let ranges = match self.vice {
                        Vice::Clears => vec![Extent { lba: 0, blocks: whole, ..extent }; count],
                        _ => vec![extent; scene.random.random_range(1..=count)],
                    };
                    queue.deallocate(scene, ranges);
                }
                (io::WRITE_ZEROES, _) if self.vice == Vice::Clears => {
                    let blocks = 65_536.min(scene.spaces[ATTACKED].blocks as u32);
                    queue.submit_io(scene, opcode, Extent { lba: 0, blocks, ..extent });
                }
                _ => queue.submit_io(scene, opcode, extent),
            }
        }
    }
}

/// Blocks that hosts contend for: some often, all at times.
fn wanted(scene: &mut Scene) -> Extent {
    let count = scene.spaces.len();
    let mut namespace = scene.random.random_range(ATTACKED + 1..count);
    if scene.spaces[namespace].is_gone {
        namespace = ATTACKED + 1;
    }
    let space = scene.spaces[namespace];
    let blocks = match scene.random.random_range(0..8) {
        0 => scene.random.random_range(1..=32),
        1 => 8,
        _ => scene.random.random_range(1..=3),
    };
    let last = space.blocks - u64::from(blocks);
    let hot = if scene.once_in(4) { last } else { last.min(12) };
    Extent { namespace, lba: scene.random.random_range(0..=hot), blocks }
}

fn attacked(scene: &mut Scene) -> Extent {
    let last = scene.spaces[ATTACKED].blocks - 32;
    let lba = scene.random.random_range(0..=last);
    Extent { namespace: ATTACKED, lba, blocks: 32 }
}
