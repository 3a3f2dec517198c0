//! RAID-5 over any devices, without the write hole.
//!
//! What is promised, what it costs and how it is proved: `docs/devices.md`.

use std::io;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use super::{Channel, Device, Error, Failed, Geometry, Health, Rebuilding};

mod array;
mod assemble;
mod channel;
mod journal;
mod keeper;
mod layout;
mod locks;
mod mailbox;
mod owed;
mod plan;
mod recover;
mod scrub;
mod segment;
mod steps;
mod superblock;
mod wait;

use array::Array;
use assemble::{Given, Roles};
use channel::RaidChannel;
pub use keeper::Keeper;
use keeper::broken;
use mailbox::LOOK;
use recover::Recovery;
pub use scrub::{Checked, Fault, Finding};
use superblock::{Found, Superblock};

/// How to assemble or make an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raid5Options {
    /// Bytes of a stripe on each member, when the array is made: a power of two from 4 KiB on.
    pub chunk: u32,
    /// Changes of stripes on their way at once, when the array is made.
    pub journal_slots: u32,
    /// Make an array if all members are blank.
    pub create: bool,
    /// Go on without a member that is missing or outdated.
    pub degraded: bool,
    /// Put a blank or outdated device in the place of a missing member.
    pub rebuild: bool,
    /// The most bytes per second that a rebuild writes.
    pub rebuild_rate: Option<u64>,
}

impl Default for Raid5Options {
    fn default() -> Self {
        Self {
            chunk: 64 << 10,
            journal_slots: 256,
            create: false,
            degraded: false,
            rebuild: false,
            rebuild_rate: None,
        }
    }
}

/// How an array is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Raid5Status {
    /// The member that is not used, counted from 0.
    pub failed: Option<usize>,
    /// The member being rebuilt.
    pub rebuilding: Option<usize>,
    /// Stripes rebuilt, of all.
    pub rebuilt: (u64, u64),
    /// The rebuild met a source that cannot be read; it is tried again now and then.
    pub stuck: bool,
    /// The members that have not answered for seconds what the array's keeper asked, one bit each.
    pub silent: u32,
    /// Two members are gone: nothing is written any more.
    pub dead: bool,
    /// Changes that assembling carried out from the journal.
    pub replayed: u64,
    /// It had been stopped in order before.
    pub was_clean: bool,
}

/// An assembled array.
pub struct Raid5 {
    inner: Arc<Inner>,
}

/// Lives as long as the array or one of its channels does.
struct Inner {
    array: Arc<Array>,
    names: Vec<String>,
    replayed: u64,
    was_clean: bool,
    keeper: Option<JoinHandle<()>>,
}

impl Inner {
    fn geometry(&self) -> Geometry {
        let layout = self.array.layout;
        let bytes = layout.stripes * layout.stripe_bytes();
        Geometry { block_size: layout.block, blocks: bytes / u64::from(layout.block) }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.array.stopping.store(true, Ordering::Release);
        self.array.keeper.post(LOOK);
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

impl Raid5 {
    /// Assembles the array that `members`, by name, belong to; its keeper runs on a thread of its
    /// own that sleeps while there is nothing to do.
    ///
    /// # Errors
    /// Names the member, what is wrong with it and what to do.
    pub fn open(
        members: Vec<(String, Arc<dyn Device>)>,
        options: &Raid5Options,
    ) -> Result<Self, Error> {
        let (mut inner, keeper) = assemble(members, options)?;
        let rate = options.rebuild_rate;
        let thread = std::thread::Builder::new().name("raid5-keeper".to_owned());
        let thread = thread.spawn(move || keeper.run(rate)).map_err(Error::system(
            "raid5",
            "cannot start its keeper",
            "raise the thread limit",
        ))?;
        inner.keeper = Some(thread);
        Ok(Self { inner: Arc::new(inner) })
    }

    /// As [`Raid5::open`], with the keeper in the caller's hands: without it, nobody writes
    /// superblocks, frees slots of the journal or rebuilds.
    ///
    /// # Errors
    /// As for [`Raid5::open`].
    pub fn open_kept(
        members: Vec<(String, Arc<dyn Device>)>,
        options: &Raid5Options,
    ) -> Result<(Self, Keeper), Error> {
        let (inner, keeper) = assemble(members, options)?;
        Ok((Self { inner: Arc::new(inner) }, keeper))
    }

    /// The members, by role.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.inner.names
    }

    /// How it is now.
    #[must_use]
    pub fn status(&self) -> Raid5Status {
        let (array, health) = (&self.inner.array, self.inner.array.health());
        Raid5Status {
            failed: health.failed,
            rebuilding: health.rebuilding,
            rebuilt: (array.rebuilt.load(Ordering::Relaxed), array.layout.stripes),
            stuck: array.stuck.load(Ordering::Relaxed),
            silent: array.silent.load(Ordering::Relaxed),
            dead: health.dead,
            replayed: self.inner.replayed,
            was_clean: self.inner.was_clean,
        }
    }
}

/// Refuses a device that is a member of an array, to be used as something else.
///
/// # Errors
/// Says how to open it instead.
pub(super) fn refuse_member(path: &Path, device: &Arc<dyn Device>) -> Result<(), Error> {
    // What cannot be read is told when it is used.
    let given = Given::new((path.display().to_string(), device.clone()));
    if !given.is_ok_and(|given| matches!(given.found, Found::Member(..) | Found::Version(_))) {
        return Ok(());
    }
    let reason = "is a member of a RAID-5 array, which writes to it would destroy; open the array \
                  with 'raid5:' and all its members, or add ',overwrite' if it is not needed any \
                  more";
    Err(Error::unfit(path, reason))
}

fn assemble(
    members: Vec<(String, Arc<dyn Device>)>,
    options: &Raid5Options,
) -> Result<(Inner, Keeper), Error> {
    let mut given = members.into_iter().map(Given::new).collect::<Result<Vec<_>, _>>()?;
    let blank = |given: &Given| matches!(given.found, Found::Blank);
    if options.create
        && given.iter().any(blank)
        && given.iter().all(|given| blank(given) || given.unused())
    {
        assemble::create(&mut given, options)?;
    }
    let roles = assemble::roles(given, options)?;
    start(roles)
}

/// Recovers from the journal and opens the array for writing: a new run begins.
fn start(roles: Roles) -> Result<(Inner, Keeper), Error> {
    let Roles { names, devices, mut members, mut superblock, changes, fresh, health } = roles;
    let was_clean = superblock.clean;
    // What a device taken for the rebuild held before has nothing to do with this array.
    let spare = fresh.and_then(|role| members[role].take().map(|member| (role, member)));
    let recovery = Recovery { members: &mut members, names: &names, superblock: &superblock };
    let replayed = recovery.run(&changes)?;
    if let Some((role, mut spare)) = spare {
        let end = superblock.layout.chunk_at(0);
        spare.zero(0, end).map_err(|status| broken(&names[role], "zeroed", status))?;
        members[role] = Some(spare);
    }
    let mut tell = |superblock: &mut Superblock| {
        for (role, member) in members.iter_mut().enumerate() {
            if let Some(member) = member {
                keeper::write(member, role, superblock)
                    .map_err(|status| broken(&names[role], "written", status))?;
            }
        }
        superblock.told();
        Ok::<(), Error>(())
    };
    superblock.clean = false;
    superblock.now.events += 1;
    tell(&mut superblock)?;
    superblock.assembled(assemble::draw(&names[0])?);
    tell(&mut superblock)?;
    superblock.now.events += 1;
    tell(&mut superblock)?;
    let array = Array::new(&superblock, devices, health);
    let array =
        array.map_err(Error::system("raid5", "cannot set it up", "raise the file limit"))?;
    let array = Arc::new(array);
    let keeper = Keeper::new(array.clone(), members, superblock);
    Ok((Inner { array, names, replayed, was_clean, keeper: None }, keeper))
}

impl Device for Raid5 {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn describe(&self) -> String {
        let mut text = format!("raid5 over {}", self.inner.names.join(", "));
        if self.inner.replayed > 0 {
            text += &format!("; {} changes finished from the journal", self.inner.replayed);
        }
        match self.health() {
            Some(health) if !health.is_well() => format!("{text}; {health}"),
            _ => text,
        }
    }

    fn health(&self) -> Option<Health> {
        let (status, names) = (self.status(), &self.inner.names);
        let causes = self.inner.array.causes.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = causes.iter().map(|(role, why)| Failed { name: names[*role].clone(), why });
        let rebuilding = |role: usize| Rebuilding {
            name: names[role].clone(),
            done: status.rebuilt.0,
            of: status.rebuilt.1,
            stuck: status.stuck,
        };
        let named = |bits: u32| segment::roles(bits).map(|role| names[role].clone()).collect();
        Some(Health {
            silent: named(status.silent),
            failed: failed.collect(),
            rebuilding: status.rebuilding.map(rebuilding),
            read_only: status.dead,
        })
    }

    fn identity(&self) -> Option<[u8; 16]> {
        Some(self.inner.array.uuid)
    }

    fn open(&self) -> io::Result<Box<dyn Channel>> {
        Ok(Box::new(RaidChannel::new(self.inner.clone())?))
    }
}
