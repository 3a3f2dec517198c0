//! `modelled:SIZE[,drive=NAME|FILE]`: memory that answers as slowly as the twin's model of an SSD
//! would, with power states that real NVMe clients can set.
//!
//! **Modelled**: data is kept in memory; only the timing and the watts follow the drive's profile.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ebb_nvme::Status;
use ebb_policy::units::{Nanos, Watts};
use ebb_target::controller::{PowerControl, PowerState};
use ebb_target::device::{self, Channel, Device, Done, Geometry, Io, Op, Spec};
use ebb_twin::DriveFile;
use ebb_twin::drive::{Drive, DriveProfile};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use ebb_cli::usage;

/// The drive where the text names none: one with five power states.
const DEFAULT_DRIVE: &str = "pm1743";
/// The most bytes of a drive's file.
const MOST_TEXT: u64 = 1 << 20;
/// The seed of the model's varying latencies.
const SEED: u64 = 1;

/// Memory behind a modelled drive.
pub struct Modelled {
    memory: Arc<dyn Device>,
    model: Arc<Model>,
    profile: DriveProfile,
}

/// What the model of a drive shows.
pub struct Reading {
    /// The drive's name.
    pub drive: String,
    /// When it started; no other drive of its number did then.
    pub start: Instant,
    /// Its power state.
    pub power_state: u8,
    /// The power limit set, if one is.
    pub power_limit: Option<Watts>,
    /// Energy since it started, in joules.
    pub joules: f64,
}

/// The one drive that all channels share.
struct Model {
    start: Instant,
    drive: Mutex<Drive>,
}

impl Model {
    fn now(&self) -> Nanos {
        Nanos(self.start.elapsed().as_nanos() as u64)
    }
    fn drive(&self) -> MutexGuard<'_, Drive> {
        self.drive.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn set_power_state(&self, state: u8) {
        let now = self.now();
        self.drive().set_power_state(now, state);
    }
    fn set_idle(&self, longest: u32) {
        let now = self.now();
        self.drive().set_idle_wake(now, Some(Nanos::from_micros(longest.into())));
    }
    fn set_power_limit(&self, limit: Option<Watts>) {
        let now = self.now();
        self.drive().set_power_limit(now, limit);
    }
}

/// The drive and the memory that a text after `modelled:` names; looks at no file.
pub fn split(text: &str) -> (&str, Result<Spec, device::Error>) {
    let (mut drive, mut rest) = (DEFAULT_DRIVE, Vec::new());
    for part in text.split(',') {
        match part.strip_prefix("drive=") {
            Some(name) => drive = name,
            None => rest.push(part),
        }
    }
    (drive, format!("ram:{}", rest.join(",")).parse())
}

/// What a text after `modelled:` asks for.
pub struct Parts {
    /// Where the data is kept.
    pub memory: Spec,
    profile: DriveProfile,
}

impl Parts {
    /// Reads what follows `modelled:`.
    ///
    /// # Errors
    /// When the size or the drive is not right: what would be.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let (drive, memory) = split(text);
        let wrong = |error| usage(format!("--namespace modelled:{text}: {error}"));
        let memory = memory.map_err(|error| wrong(error.to_string()))?;
        Ok(Self { memory, profile: profile(drive).map_err(wrong)? })
    }
}

impl Modelled {
    /// Takes the memory, calling `taken` as it goes on, and starts the drive.
    ///
    /// # Errors
    /// When there is not as much memory.
    pub fn open(parts: Parts, taken: &(dyn Fn(u64) + Sync)) -> Result<Self, device::Error> {
        let Parts { memory, mut profile } = parts;
        profile.describe_idle();
        let memory = device::open_watched(&memory, taken)?;
        let drive = Mutex::new(Drive::new(&profile, SEED));
        let model = Model { start: Instant::now(), drive };
        Ok(Self { memory, model: Arc::new(model), profile })
    }

    fn reading(&self, limit: Option<Watts>) -> Reading {
        let now = self.model.now();
        let mut drive = self.model.drive();
        Reading {
            drive: self.profile.name.clone(),
            start: self.model.start,
            power_state: drive.power_state(),
            power_limit: limit.filter(|_| self.profile.power_limit),
            joules: drive.energy(now).0,
        }
    }

    /// The drive's power states, as Identify Controller describes them.
    fn power_states(&self) -> Vec<PowerState> {
        let state = |(rank, state): (usize, &ebb_policy::PowerStateSpec)| PowerState {
            max_power: state.max_power,
            idle_power: None,
            active_power: None,
            entry_latency: state.entry.micros().ceil() as u32,
            exit_latency: state.exit.micros().ceil() as u32,
            read_rank: rank as u8,
            write_rank: rank as u8,
            is_operational: state.operational,
        };
        self.profile.spec().states.iter().enumerate().map(state).collect()
    }
}

/// What a file of a drive says. Whoever adds a namespace names it: it may be a pipe that nobody
/// writes into, which is not waited for.
fn text(path: &Path) -> Result<String, String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    let file = openat(CWD, path, flags, Mode::empty()).map_err(|error| cannot(error.into()))?;
    let file = std::fs::File::from(file);
    if !file.metadata().map_err(cannot)?.is_file() {
        return Err("is no file".to_owned());
    }
    let mut text = String::new();
    file.take(MOST_TEXT + 1).read_to_string(&mut text).map_err(cannot)?;
    if text.len() as u64 > MOST_TEXT {
        return Err(format!("is longer than {MOST_TEXT} bytes"));
    }
    Ok(text)
}

/// A shipped drive, or one from a TOML file.
fn profile(name: &str) -> Result<DriveProfile, String> {
    if let Some(profile) = DriveProfile::builtin(name) {
        return Ok(profile);
    }
    let path = Path::new(name);
    if !path.exists() {
        let names: Vec<_> = DriveProfile::names().collect();
        return Err(format!("no drive '{name}'; give a TOML file or one of {}", names.join(", ")));
    }
    let text = text(path).map_err(|error| format!("{name}: {error}"))?;
    DriveProfile::from_toml(&text).map_err(|error| format!("{name}: {error}"))
}

impl Device for Modelled {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn grow(&self, bytes: u64) -> Result<(), device::Error> {
        self.memory.grow(bytes)
    }

    fn describe(&self) -> String {
        format!("memory that answers like a modelled {}", self.profile.name)
    }

    fn open(&self) -> std::io::Result<Box<dyn Channel>> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Box::new(ModelledChannel {
            memory: self.memory.open()?,
            block_size: self.memory.geometry().block_size,
            model: self.model.clone(),
            timer: timerfd_create(TimerfdClockId::Monotonic, flags)?,
            armed: None,
            answered: Vec::new(),
            waiting: BTreeMap::new(),
            sequence: 0,
        }))
    }
}

struct ModelledChannel {
    memory: Box<dyn Channel>,
    block_size: u32,
    model: Arc<Model>,
    /// Goes off when the first request is done.
    timer: OwnedFd,
    armed: Option<Nanos>,
    /// What memory has answered, on the way to `waiting`.
    answered: Vec<Done>,
    /// Requests by the instant the drive completes them, in order of arrival where that is equal.
    waiting: BTreeMap<(Nanos, u64), Done>,
    sequence: u64,
}

impl ModelledChannel {
    fn arm(&mut self, now: Nanos) {
        let first = self.waiting.keys().next().map(|(due, _)| *due);
        if first == self.armed {
            return;
        }
        self.armed = first;
        // Zero would disarm it.
        let left = first.map_or(0, |due| due.saturating_sub(now).0.max(1));
        let it_value = Timespec {
            tv_sec: (left / 1_000_000_000) as i64,
            tv_nsec: (left % 1_000_000_000) as i64,
        };
        let once = Itimerspec { it_interval: Timespec::default(), it_value };
        // Cannot fail with these values; if it did, polling still finds what is due.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
    }
}

impl Channel for ModelledChannel {
    fn submit(&mut self, io: Io) {
        let bytes = io.blocks.saturating_mul(self.block_size);
        let offset = io.lba * u64::from(self.block_size);
        let op = match io.op {
            Op::Read { .. } => ebb_trace::Op::Read,
            Op::Write { .. } => ebb_trace::Op::Write,
            Op::Flush => ebb_trace::Op::Flush,
            // Drives keep zeros as an unmapped range.
            Op::WriteZeroes { .. } | Op::Deallocate => ebb_trace::Op::Trim,
        };
        let now = self.model.now();
        let due = self.model.drive().submit(now, op, offset, bytes);
        self.memory.submit(io);
        self.memory.poll(&mut self.answered);
        for done in self.answered.drain(..) {
            self.waiting.insert((due, self.sequence), done);
            self.sequence += 1;
        }
        self.arm(now);
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> usize {
        let before = done.len();
        let now = self.model.now();
        while let Some(entry) = self.waiting.first_entry() {
            if entry.key().0 > now {
                break;
            }
            done.push(entry.remove());
        }
        if done.len() > before {
            self.arm(now);
        }
        done.len() - before
    }

    fn wake_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.timer.as_fd())
    }
}

/// The modelled drives of a subsystem by their namespaces, with one power state, one power limit
/// and one choice of idle states for all, as a controller has one of each.
#[derive(Default)]
pub struct Drives(Mutex<Together>);

#[derive(Default)]
struct Together {
    drives: BTreeMap<u32, Arc<Modelled>>,
    /// The power limit set, of drives that take one.
    limit: Option<Watts>,
    /// The longest wake-up of the idle states that they may enter, us.
    idle: u32,
}

impl Together {
    fn first(&self) -> Option<&Arc<Modelled>> {
        self.drives.values().next()
    }
}

impl Drives {
    fn lock(&self) -> MutexGuard<'_, Together> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a drive, which gets the power state and the limit of those there are.
    ///
    /// # Errors
    /// When its power states differ from theirs, or only some take a power limit.
    pub fn add(&self, id: u32, drive: Arc<Modelled>) -> anyhow::Result<()> {
        let mut all = self.lock();
        if let Some(first) = all.first() {
            let takes_limit = drive.profile.power_limit;
            if drive.power_states() != first.power_states()
                || takes_limit != first.profile.power_limit
            {
                let (one, other) = (&first.profile.name, &drive.profile.name);
                return Err(usage(format!(
                    "modelled drives {one} and {other} have different power states or limits, and \
                     a controller has one set; serve them by two processes"
                )));
            }
            drive.model.set_power_state(first.model.drive().power_state());
        }
        drive.model.set_idle(all.idle);
        if drive.profile.power_limit {
            drive.model.set_power_limit(all.limit);
        }
        all.drives.insert(id, drive);
        Ok(())
    }

    /// Takes out the drive of a namespace, if it is one.
    pub fn remove(&self, id: u32) {
        self.lock().drives.remove(&id);
    }

    /// What each drive shows now: **modelled**.
    pub fn readings(&self) -> BTreeMap<u32, Reading> {
        let all = self.lock();
        all.drives.iter().map(|(id, drive)| (*id, drive.reading(all.limit))).collect()
    }
}

impl PowerControl for Drives {
    fn states(&self) -> Vec<PowerState> {
        self.lock().first().map(|drive| drive.power_states()).unwrap_or_default()
    }

    fn set(&self, state: u8) -> Result<(), Status> {
        self.lock().drives.values().for_each(|drive| drive.model.set_power_state(state));
        Ok(())
    }

    fn get(&self) -> u8 {
        // I/O takes a drive out of a non-operational state, so the drive knows best.
        self.lock().first().map_or(0, |drive| drive.model.drive().power_state())
    }

    fn takes_limit(&self) -> bool {
        self.lock().first().is_some_and(|drive| drive.profile.power_limit)
    }

    fn limit(&self, power: Option<Watts>) {
        let mut all = self.lock();
        all.limit = power;
        let limited = all.drives.values().filter(|drive| drive.profile.power_limit);
        limited.for_each(|drive| drive.model.set_power_limit(power));
    }

    fn idle(&self, longest: u32) {
        let mut all = self.lock();
        all.idle = longest;
        all.drives.values().for_each(|drive| drive.model.set_idle(longest));
    }
}

#[cfg(test)]
mod tests {
    use ebb_target::device::Pool;

    use super::*;

    fn of(drives: &[&Arc<Modelled>]) -> anyhow::Result<Drives> {
        let all = Drives::default();
        (1..).zip(drives).try_for_each(|(id, drive)| all.add(id, (*drive).clone()))?;
        Ok(all)
    }

    /// Reads 128 KiB pieces, 64 at a time, until so many are done; how long that took.
    fn read(device: &Modelled, pieces: u64) -> Nanos {
        let pool = Pool::new(64, 128 << 10).unwrap();
        let mut channel = device.open().unwrap();
        let (mut sent, mut done) = (0, Vec::new());
        let start = device.model.now();
        let mut count = 0;
        while count < pieces {
            while sent < pieces.min(count + 64) {
                let buffer = pool.take(128 << 10);
                let lba = sent * 32 % 1024;
                channel.submit(Io {
                    tag: sent,
                    op: Op::Read { durable: false },
                    lba,
                    blocks: 32,
                    buffer,
                });
                sent += 1;
            }
            channel.poll(&mut done);
            count += done.len() as u64;
            assert!(done.drain(..).all(|done| done.status.is_success()));
        }
        Nanos(device.model.now().0 - start.0)
    }

    /// The same in virtual time, where nothing but the drive takes any.
    fn read_virtually(drive: &mut Drive, from: Nanos, pieces: u64) -> Nanos {
        let mut under_way = std::collections::VecDeque::new();
        let mut now = from;
        for piece in 0..pieces {
            if under_way.len() == 64 {
                now = now.max(under_way.pop_front().unwrap());
            }
            let offset = piece * 32 % 1024 * 4096;
            under_way.push_back(drive.submit(now, ebb_trace::Op::Read, offset, 128 << 10));
        }
        Nanos(under_way.into_iter().max().unwrap().0 - from.0)
    }

    #[test]
    fn a_deeper_power_state_is_slower_for_real() {
        let device = open(false);
        let power = of(&[&device]).unwrap();
        let deepest = power.states().iter().rposition(|state| state.is_operational).unwrap() as u8;
        let mut drive = Drive::new(&device.profile, SEED);
        let fast = read_virtually(&mut drive, Nanos::ZERO, 4000);
        drive.set_power_state(Nanos::from_secs(10), deepest);
        read_virtually(&mut drive, Nanos::from_secs(20), 4000);
        let slow = read_virtually(&mut drive, Nanos::from_secs(30), 4000);
        assert!(slow.0 > 2 * fast.0, "{slow:?} {fast:?}");
        // A busy machine can only be slower than the model.
        power.set(deepest).unwrap();
        assert_eq!(power.get(), deepest);
        read(&device, 4000);
        let real = read(&device, 4000);
        assert!(real.0 as f64 > 0.8 * slow.0 as f64, "{real:?} {slow:?}");
    }

    #[test]
    fn a_power_limit_is_kept_for_real() {
        let device = open(true);
        let power = of(&[&device]).unwrap();
        assert!(power.takes_limit());
        let limit = Watts(11.5); // Between the two lowest states, of 14 and 9 W.
        let mut drive = Drive::new(&device.profile, SEED);
        let virtually = |drive: &mut Drive, from: u64| {
            read_virtually(drive, Nanos::from_secs(from), 4000);
            read_virtually(drive, Nanos::from_secs(from + 10), 4000)
        };
        let fast = virtually(&mut drive, 0);
        drive.set_power_limit(Nanos::from_secs(20), Some(limit));
        let slow = virtually(&mut drive, 30);
        assert!(slow.0 > 2 * fast.0, "{slow:?} {fast:?}");
        power.limit(Some(limit));
        read(&device, 4000);
        let (begin, before) = (device.model.now(), power.readings()[&1].joules);
        // A busy machine can only be slower than the model.
        let real = read(&device, 4000);
        let drawn = power.readings()[&1].joules - before;
        let most = limit.0 * (device.model.now() - begin).seconds();
        assert!(real.0 as f64 > 0.8 * slow.0 as f64, "{real:?} {slow:?}");
        assert!(drawn <= most, "{drawn} J of {most}");
        assert_eq!(power.get(), 0, "the power state is another matter");
    }

    /// A drive that takes a power limit, or does not.
    fn open(power_limit: bool) -> Arc<Modelled> {
        let mut parts = Parts::parse("4MiB").unwrap();
        parts.profile.power_limit = power_limit;
        Arc::new(Modelled::open(parts, &|_| {}).unwrap())
    }

    #[test]
    fn drives_of_one_controller_take_limits_or_do_not() {
        let error = of(&[&open(true), &open(false)]).err().unwrap().to_string();
        assert!(error.contains("power states or limits"), "{error}");
        assert!(of(&[&open(true), &open(true)]).is_ok());
    }

    #[test]
    fn a_drive_that_comes_later_gets_the_state_and_the_limit_of_the_others() {
        let power = of(&[&open(true)]).unwrap();
        power.set(2).unwrap();
        power.limit(Some(Watts(12.0)));
        power.add(2, open(true)).unwrap();
        let of_second = || {
            let Reading { power_state, power_limit, .. } = power.readings().remove(&2).unwrap();
            (power_state, power_limit)
        };
        assert_eq!(of_second(), (2, Some(Watts(12.0))));
        assert!(power.add(3, open(false)).is_err());
        (1..3).for_each(|id| power.remove(id));
        assert!(power.states().is_empty() && !power.takes_limit() && power.get() == 0);
        // The limit stands for drives that take one.
        power.add(2, open(false)).unwrap();
        assert_eq!((of_second(), power.takes_limit()), ((0, None), false));
        power.remove(2);
        power.add(2, open(true)).unwrap();
        assert_eq!(of_second(), (0, Some(Watts(12.0))));
    }

    #[test]
    fn idle_states_are_described_and_entered_once_a_host_allows_them() {
        let open = || {
            let parts = Parts::parse("4MiB,drive=dorado-ssd").unwrap();
            Arc::new(Modelled::open(parts, &|_| {}).unwrap())
        };
        let drives = [open(), open()];
        let power = of(&[&drives[0]]).unwrap();
        let idle = &drives[0].profile.idle;
        let wake = idle[1].wake.micros() as u32;
        let exits = power.states().into_iter().filter(|state| !state.is_operational);
        assert_eq!(exits.map(|state| state.exit_latency).collect::<Vec<_>>(), [1, wake]);
        // Far ahead in virtual time, where it is idle for longer than the last state takes.
        let is = |drive: usize, from: u64, expected: Watts| {
            let at = |ms| Nanos::from_secs(from) + Nanos::from_millis(ms);
            let mut model = drives[drive].model.drive();
            let before = model.energy(at(0));
            let watts = (model.energy(at(100)).0 - before.0) / 0.1;
            assert!((watts - expected.0).abs() < 1e-6, "drive {drive}: {watts} at {from} s");
        };
        let ready = drives[0].profile.power.ready;
        is(0, 10, ready);
        power.idle(1);
        is(0, 20, idle[0].power);
        power.idle(wake);
        is(0, 30, idle[1].power);
        // One that comes later may do what the others may.
        power.add(2, drives[1].clone()).unwrap();
        is(1, 10, idle[1].power);
        power.idle(0);
        is(0, 40, ready);
        is(1, 20, ready);
    }

    #[test]
    fn wrong_texts_say_what_would_be_right() {
        for (text, part) in [("4MiB,drive=floppy", "pm1743"), ("4", "ram:256MiB"), ("", "size")] {
            let error = format!("{:#}", Parts::parse(text).err().unwrap());
            assert!(error.contains(part) && error.contains("modelled:"), "{error}");
        }
    }

    #[test]
    fn a_pipe_is_no_drive_and_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("ebb-drive-{}", std::process::id()));
        rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let read = super::profile(path.to_str().unwrap()).map(|_| ());
        std::fs::remove_file(&path).unwrap();
        assert!(read.is_err_and(|why| why.ends_with("is no file")));
    }
}
