//! A disk and the kernel before it, with a cache that forgets: it loses power, fails, fills up,
//! and answers late, out of order, short or with errors.
//!
//! What is written may be kept from then on and must be once it was synced: a sync covers what was
//! answered before it was submitted, a durable write itself. When power goes, each sector keeps
//! any of its versions since the last that must stay, whatever the others keep; of what was under
//! way, any sectors are kept.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use ebb_target::device::{Call, Device, Geometry, Medium};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustix::io::Errno;

pub const SECTOR: usize = 512;
type Sector = [u8; SECTOR];

/// What all disks of a machine share: one power supply.
#[derive(Default)]
pub struct Power {
    /// Calls until it is cut; `None` for never.
    pub fuse: Option<u64>,
    pub off: bool,
}

/// What goes wrong, each with one call in so many; never where zero.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// A read fails with EIO.
    pub read: u32,
    /// A write fails with EIO, after any part of it.
    pub write: u32,
    /// A sync fails with EIO; the cache takes what it could not store for stored.
    pub sync: u32,
    /// EINTR or EAGAIN; EAGAIN of the submission too.
    pub passing: u32,
    /// Less is moved than asked for.
    pub short: u32,
    /// There is no room for sectors that have none yet.
    pub full: bool,
    /// Ranges can neither be zeroed nor let go.
    pub no_ranges: bool,
}

pub struct Disk {
    pub state: Arc<Mutex<State>>,
    pub medium: Arc<Medium>,
    pub geometry: Geometry,
}

struct Version {
    call: u64,
    data: Sector,
    /// When its write was answered.
    answered: Option<u64>,
    /// A sync could not store it and never will.
    lost: bool,
}

/// A call that was submitted.
pub struct Entry {
    pub lane: u64,
    pub tag: u64,
    pub id: u64,
    pub call: Call,
    pub sector: u64,
    pub sectors: u64,
    pub data: Vec<u8>,
    pub submitted: u64,
    /// It has been done, or not, but its caller does not know.
    pub ran: bool,
    /// Of a read, from when it was submitted.
    pub result: i32,
}

pub struct State {
    power: Arc<Mutex<Power>>,
    pub random: Pcg64Mcg,
    /// What survives a loss of power.
    durable: BTreeMap<u64, Sector>,
    /// What was written since: any version, or none, may survive.
    loose: BTreeMap<u64, Vec<Version>>,
    /// Of all lanes.
    pub under_way: Vec<Entry>,
    pub faults: Faults,
    /// Zeroes and holes take no room, and what they are put over gives its own back.
    thin: bool,
    /// Sectors that have room.
    taken: BTreeSet<u64>,
    /// Calls until it fails for good.
    fuse: Option<u64>,
    failed: bool,
    /// Writes and syncs that ended with an error other than a passing one.
    errors: u64,
    pub clock: u64,
}

impl Disk {
    pub fn new(seed: u64, geometry: Geometry, power: &Arc<Mutex<Power>>) -> Self {
        let state = State {
            power: power.clone(),
            random: Pcg64Mcg::seed_from_u64(seed),
            durable: BTreeMap::new(),
            loose: BTreeMap::new(),
            under_way: Vec::new(),
            faults: Faults::default(),
            thin: false,
            taken: BTreeSet::new(),
            fuse: None,
            failed: false,
            errors: 0,
            clock: 0,
        };
        Self::open(Arc::new(Mutex::new(state)), geometry)
    }

    fn open(state: Arc<Mutex<State>>, geometry: Geometry) -> Self {
        Self { state, medium: Arc::new(Medium::new(geometry)), geometry }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// The same disk opened anew.
    pub fn again(&self) -> Arc<dyn Device> {
        Arc::new(Self::open(self.state.clone(), self.geometry))
    }

    /// A disk with what this one would hold if power went now, and came back for good.
    pub fn after_a_cut(&self) -> Self {
        let mut state = self.state();
        let copy = Self::new(state.random.random(), self.geometry, &Arc::default());
        let mut other = copy.state();
        (other.durable, other.thin) = (state.kept(), state.thin);
        other.taken = state.taken_after_a_cut(&other.durable);
        drop((state, other));
        copy
    }

    /// From now on, only what is written takes room.
    pub fn thin(self) -> Self {
        self.state().thin = true;
        self
    }

    /// This very disk opened anew.
    pub fn reopen(&mut self) {
        self.medium = Arc::new(Medium::new(self.geometry));
    }

    pub fn faults(&self, faults: Faults) {
        self.state().faults = faults;
    }
    pub fn fail_after(&self, calls: u64) {
        self.state().fuse = Some(calls);
    }
    pub fn failed(&self) -> bool {
        self.state().failed
    }
    /// Whether it will fail or has.
    pub fn doomed(&self) -> bool {
        let state = self.state();
        state.failed || state.fuse.is_some()
    }
    pub fn errors(&self) -> u64 {
        self.state().errors
    }

    /// Power is back.
    pub fn power_up(&self) {
        let mut state = self.state();
        state.tear();
        state.durable = state.kept();
        state.taken = state.taken_after_a_cut(&state.durable);
        state.loose.clear();
    }

    /// What reads find from this byte on.
    pub fn content(&self, from: u64) -> Vec<u8> {
        let state = self.state();
        let sectors = from / SECTOR as u64..self.geometry.bytes() / SECTOR as u64;
        sectors.flat_map(|sector| state.get(sector)).collect()
    }
}

impl State {
    fn get(&self, sector: u64) -> Sector {
        let loose = self.loose.get(&sector).and_then(|versions| versions.last());
        let kept = || self.durable.get(&sector).copied().unwrap_or([0; SECTOR]);
        loose.map_or_else(kept, |version| version.data)
    }

    pub fn one_in(&mut self, count: u32) -> bool {
        count > 0 && self.random.random_range(0..count) == 0
    }

    /// One legal outcome of a loss of power.
    fn kept(&mut self) -> BTreeMap<u64, Sector> {
        let mut kept = self.durable.clone();
        for (sector, versions) in &self.loose {
            let chosen = self.random.random_range(0..=versions.len());
            if let Some(version) = versions.get(chosen).filter(|version| !version.lost) {
                kept.insert(*sector, version.data);
            }
        }
        kept
    }

    /// What never became durable gives its room back.
    fn taken_after_a_cut(&self, durable: &BTreeMap<u64, Sector>) -> BTreeSet<u64> {
        self.taken.iter().filter(|sector| durable.contains_key(sector)).copied().collect()
    }

    /// Power goes: of writes under way, some sectors are kept.
    fn tear(&mut self) {
        let mut under_way = std::mem::take(&mut self.under_way);
        for entry in under_way.iter_mut().filter(|entry| !entry.ran) {
            self.store(entry, entry.sectors, true);
            (entry.ran, entry.result) = (true, -Errno::IO.raw_os_error());
        }
        self.under_way = under_way;
    }

    /// Whether power has gone; then nothing is under way any more.
    pub fn lost_power(&mut self) -> bool {
        let off = self.power.lock().unwrap().off;
        if off {
            self.tear();
        }
        off
    }

    /// Puts the first `sectors` of a write into the cache, or any part of them.
    fn store(&mut self, entry: &Entry, sectors: u64, torn: bool) {
        if matches!(entry.call, Call::Read | Call::Sync) {
            return;
        }
        for index in 0..sectors {
            // A hint may be taken in part.
            if (torn || entry.call == Call::PunchHole) && self.random.random() {
                continue;
            }
            let bytes = entry.data.get(index as usize * SECTOR..(index as usize + 1) * SECTOR);
            let data = bytes.map_or([0; SECTOR], |bytes| bytes.try_into().unwrap());
            match self.thin && bytes.is_none() {
                true => self.taken.remove(&(entry.sector + index)),
                false => self.taken.insert(entry.sector + index),
            };
            let version = Version { call: entry.id, data, answered: None, lost: false };
            self.loose.entry(entry.sector + index).or_default().push(version);
        }
    }

    /// Whether calls reach the disk; the last one before power goes or the disk fails is torn.
    fn alive(&mut self, entry: &Entry) -> bool {
        let mut power = self.power.lock().unwrap();
        let burnt = |fuse: &mut Option<u64>| {
            *fuse = fuse.map(|left| left.saturating_sub(1));
            *fuse == Some(0)
        };
        if power.off || self.failed {
            return false;
        }
        power.off |= burnt(&mut power.fuse);
        self.failed |= !power.off && burnt(&mut self.fuse);
        let dead = power.off || self.failed;
        drop(power);
        if dead {
            self.store(entry, entry.sectors, true);
        }
        !dead
    }

    pub fn run(&mut self, entry: &Entry) -> i32 {
        if !self.alive(entry) {
            return -Errno::IO.raw_os_error();
        }
        if let Err(error) = self.trouble(entry) {
            return -error.raw_os_error();
        }
        match entry.call {
            Call::Read => entry.result,
            Call::Write { .. } => {
                let mut bytes = entry.data.len();
                if self.one_in(self.faults.short) {
                    bytes = self.random.random_range(1..=bytes);
                }
                self.store(entry, (bytes / SECTOR) as u64, false);
                bytes as i32
            }
            Call::Sync => {
                self.sync(entry.submitted);
                0
            }
            Call::ZeroRange | Call::PunchHole => {
                self.store(entry, entry.sectors, false);
                0
            }
        }
    }

    /// The errors of everything but reads, which had theirs when they were submitted.
    fn trouble(&mut self, entry: &Entry) -> Result<(), Errno> {
        let faults = self.faults;
        if entry.call == Call::Read {
            return Ok(());
        }
        if self.one_in(faults.passing) {
            return Err(if self.random.random() { Errno::INTR } else { Errno::AGAIN });
        }
        let range = matches!(entry.call, Call::ZeroRange | Call::PunchHole);
        if range && faults.no_ranges {
            return Err(Errno::OPNOTSUPP);
        }
        if entry.call == Call::Sync {
            return if self.one_in(faults.sync) { Err(Errno::IO) } else { Ok(()) };
        }
        if self.one_in(faults.write) {
            self.store(entry, entry.sectors, true);
            return Err(Errno::IO);
        }
        let mut sectors = entry.sector..entry.sector + entry.sectors;
        let free = sectors.find(|sector| !self.taken.contains(sector));
        let needs = entry.call != Call::PunchHole && !(self.thin && range);
        match free.filter(|_| faults.full && needs) {
            Some(free) => {
                self.store(entry, free - entry.sector, false);
                Err(if self.random.random() { Errno::NOSPC } else { Errno::DQUOT })
            }
            None => Ok(()),
        }
    }

    /// All that was answered before `submitted` becomes durable.
    fn sync(&mut self, submitted: u64) {
        for (sector, versions) in &mut self.loose {
            versions.retain(|version| !version.lost);
            let covered = |version: &Version| version.answered.is_some_and(|at| at < submitted);
            if let Some(last) = versions.iter().rposition(covered) {
                self.durable.insert(*sector, versions[last].data);
                versions.drain(..=last);
            }
        }
        self.loose.retain(|_, versions| !versions.is_empty());
    }

    /// The caller hears of it.
    pub fn answer(&mut self, entry: &Entry) {
        self.clock += 1;
        let (clock, result) = (self.clock, entry.result);
        let harmless = [Errno::INTR, Errno::AGAIN, Errno::OPNOTSUPP];
        let failed = result < 0 && !harmless.contains(&Errno::from_raw_os_error(-result));
        self.errors += u64::from(failed && entry.call != Call::Read);
        let durable = entry.call == (Call::Write { durable: true });
        if failed && (entry.call == Call::Sync || durable && result == -Errno::IO.raw_os_error()) {
            let State { loose, random, .. } = self;
            let answered = loose.values_mut().flatten().filter(|v| v.answered.is_some());
            answered.for_each(|version| version.lost |= random.random::<bool>());
        }
        if result < 0 {
            return;
        }
        let written = matches!(entry.call, Call::Write { .. });
        let moved = if written { result as u64 / SECTOR as u64 } else { entry.sectors };
        for sector in entry.sector..entry.sector + moved {
            let Some(versions) = self.loose.get_mut(&sector) else { continue };
            let Some(at) = versions.iter().position(|v| v.call == entry.id) else { continue };
            versions[at].answered = Some(clock);
            if durable {
                self.durable.insert(sector, versions[at].data);
                versions.drain(..=at);
            }
        }
    }

    /// What a read brings: decided when it is submitted, as it may happen at any time until it
    /// is answered.
    pub fn read(&mut self, sector: u64, data: &mut [u8]) -> i32 {
        data.fill(0xee);
        if self.one_in(self.faults.passing) {
            return -Errno::INTR.raw_os_error();
        }
        if self.one_in(self.faults.read) {
            return -Errno::IO.raw_os_error();
        }
        let mut bytes = data.len();
        if self.one_in(self.faults.short) {
            bytes = self.random.random_range(1..=bytes);
        }
        for (index, part) in data[..bytes].chunks_mut(SECTOR).enumerate() {
            part.copy_from_slice(&self.get(sector + index as u64)[..part.len()]);
        }
        bytes as i32
    }
}
