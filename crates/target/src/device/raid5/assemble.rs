//! Which members make an array, and when they do not.

use std::sync::Arc;

use ebb_policy::units::Bytes;

use super::super::Device;
use super::array::Health;
use super::keeper::{broken, write};
use super::layout::{Layout, MOST, MOST_CHUNK, PAGE};
use super::recover::{self, Changes};
use super::superblock::{Found, Moment, State, Superblock, Uuid};
use super::wait::Member;
use super::{Error, Raid5Options};

/// The number of events of an array just made.
const MADE: u64 = 1 << 32;

/// A device given as a member.
pub(super) struct Given {
    pub(super) name: String,
    pub(super) device: Arc<dyn Device>,
    pub(super) member: Member,
    pub(super) found: Found,
}

/// Every role's device, or none.
pub(super) struct Roles {
    pub(super) names: Vec<String>,
    pub(super) devices: Vec<Option<Arc<dyn Device>>>,
    pub(super) members: Vec<Option<Member>>,
    pub(super) superblock: Superblock,
    /// What the journals hold.
    pub(super) changes: Changes,
    /// The role of a device that is new to the array: to be rebuilt from the first stripe on.
    pub(super) fresh: Option<usize>,
    pub(super) health: Health,
}

/// An identifier that nothing else has.
pub(super) fn draw(name: &str) -> Result<Uuid, Error> {
    let mut uuid = Uuid::default();
    match rustix::rand::getrandom(&mut uuid, rustix::rand::GetRandomFlags::empty()) {
        Ok(_) => Ok(uuid),
        Err(error) => {
            Err(Error::system(name, "cannot draw a random identifier", "try again")(error.into()))
        }
    }
}

fn hex(uuid: &Uuid) -> String {
    uuid.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Given {
    pub(super) fn new((name, device): (String, Arc<dyn Device>)) -> Result<Self, Error> {
        let remedy = "see that it can be opened";
        let most = PAGE + MOST_CHUNK as usize;
        let mut member = Member::open(&device, most).map_err(Error::system(
            &name,
            "cannot open a channel to it",
            remedy,
        ))?;
        let geometry = device.geometry();
        let mut pages = vec![0; (2 * PAGE).max(geometry.block_size as usize)];
        let read = if geometry.bytes() < pages.len() as u64 {
            Ok(()) // Too small to be anything; refused when its size is looked at.
        } else {
            member.read(0, &mut pages)
        };
        read.map_err(|status| broken(&name, "read", status))?;
        let found = Superblock::find(&pages[..2 * PAGE]);
        Ok(Self { name, device, member, found })
    }

    /// Of an array that was never assembled: perhaps its making was cut short.
    pub(super) fn unused(&self) -> bool {
        matches!(&self.found, Found::Member(_, superblock) if superblock.now.events == MADE)
    }
}

/// Makes a new array of blank members: all zeros, so the parity is right as it is.
pub(super) fn create(given: &mut [Given], options: &Raid5Options) -> Result<(), Error> {
    let count = given.len();
    let first = given.first().map(|given| given.device.geometry().block_size);
    let name = given.first().map_or("raid5", |given| &given.name).to_owned();
    if !(3..=MOST).contains(&count) {
        return Err(Error::unfit(name, format!("RAID-5 takes 3 to {MOST} members, not {count}")));
    }
    let (block, chunk) = (first.unwrap_or(4096), u64::from(options.chunk));
    let least = given.iter().map(|given| given.device.geometry().bytes()).min().unwrap_or(0);
    let layout = Layout::fit(count, chunk, block, u64::from(options.journal_slots), least);
    if !(Layout { stripes: 1, ..layout }).sound() {
        let reason = "needs blocks of 4 KiB at most, a power of two from 4 KiB to 1 MiB as chunk, \
                      and 1 to 1048576 journal slots; change block=, chunk= or journal=";
        return Err(Error::unfit(name, reason));
    }
    if layout.stripes == 0 {
        let need = Bytes(layout.member_bytes() + chunk);
        return Err(Error::unfit(name, format!("members must have {need} at least")));
    }
    let uuid = draw(&name)?;
    let made = Moment { run: uuid, events: MADE };
    let superblock = Superblock {
        uuid,
        now: made,
        known: made,
        layout,
        clean: true,
        tail: 0,
        rebuilt: 0,
        states: [State::Live; MOST],
    };
    for given in given.iter_mut() {
        let zeroed = given.member.zero(0, layout.member_bytes());
        let done = zeroed.and_then(|()| given.member.flush());
        done.map_err(|status| broken(&given.name, "zeroed", status))?;
    }
    for (role, given) in given.iter_mut().enumerate() {
        write(&mut given.member, role, &superblock)
            .map_err(|status| broken(&given.name, "written", status))?;
        given.found = Found::Member(role, Box::new(superblock.clone()));
    }
    Ok(())
}

/// What the members say last, after all are found to be of one array.
fn authority(given: &[Given]) -> Result<Superblock, Error> {
    let mut best: Option<(&Given, &Superblock)> = None;
    for given in given {
        let Found::Member(_, superblock) = &given.found else { continue };
        if let Some((other, known)) = best
            && (known.uuid != superblock.uuid || known.layout != superblock.layout)
        {
            let (a, b) = (hex(&superblock.uuid), hex(&known.uuid));
            let reason = format!(
                "belongs to array {a}, but {} to array {b}; give the members of one",
                other.name
            );
            return Err(Error::unfit(&given.name, reason));
        }
        if best.is_none_or(|(_, known)| superblock.now.events > known.now.events) {
            best = Some((given, superblock));
        }
    }
    let none = || {
        let name = given.first().map_or("raid5", |given| &given.name);
        Error::unfit(name, "holds no array; add ',create' to make one of blank members")
    };
    best.map(|(_, superblock)| superblock.clone()).ok_or_else(none)
}

/// Finds every role's member; decides who is used.
pub(super) fn roles(given: Vec<Given>, options: &Raid5Options) -> Result<Roles, Error> {
    let superblock = authority(&given)?;
    let count = superblock.layout.members;
    let mut roles = Roles {
        names: (0..count).map(|role| format!("raid5 member {}", role + 1)).collect(),
        devices: vec![None; count],
        members: (0..count).map(|_| None).collect(),
        superblock,
        changes: Changes::new(),
        fresh: None,
        health: Health::default(),
    };
    let mut spare = Vec::new();
    let mut oldest: Option<Box<Superblock>> = None;
    for mut given in given {
        fits(&given, &roles.superblock.layout)?;
        match std::mem::replace(&mut given.found, Found::Other) {
            Found::Member(role, _) if roles.devices[role].is_some() => {
                let reason = format!(
                    "says it is member {}, as {} does; one is a copy: leave it out",
                    role + 1,
                    roles.names[role]
                );
                return Err(Error::unfit(&given.name, reason));
            }
            Found::Member(role, superblock)
                if roles.superblock.states[role] != State::Failed
                    && roles.superblock.vouches(&superblock) =>
            {
                roles.set(role, given);
                if oldest.as_ref().is_none_or(|oldest| superblock.now.events < oldest.now.events) {
                    oldest = Some(superblock);
                }
            }
            Found::Member(role, _) => spare.push((Some(role), given)),
            Found::Blank => spare.push((None, given)),
            Found::Version(version) => {
                let reason = format!(
                    "belongs to an array of another version of Ebb (its superblock is of version \
                     {version}); use that one"
                );
                return Err(Error::unfit(&given.name, reason));
            }
            Found::Other => {
                let reason = "holds something that is not a member of an array; give another \
                              device, or wipe its first MiB if that is not needed";
                return Err(Error::unfit(&given.name, reason));
            }
        }
    }
    if let Some(oldest) = oldest {
        roles.read_journals(&oldest, &mut spare);
    }
    roles.absences(spare, options)?;
    Ok(roles)
}

fn fits(given: &Given, layout: &Layout) -> Result<(), Error> {
    let (geometry, need) = (given.device.geometry(), layout.member_bytes());
    if geometry.block_size == layout.block && geometry.bytes() >= need {
        return Ok(());
    }
    let (need, block) = (Bytes(need), Bytes(layout.block.into()));
    let reason = format!("does not fit the array: it needs {need} in blocks of {block}");
    Err(Error::unfit(&given.name, reason))
}

impl Roles {
    fn set(&mut self, role: usize, given: Given) {
        self.names[role] = given.name;
        self.devices[role] = Some(given.device);
        self.members[role] = Some(given.member);
    }

    /// Reads the journals from where `oldest` says; who lost a part of them is outdated, too.
    fn read_journals(&mut self, oldest: &Superblock, spare: &mut Vec<(Option<usize>, Given)>) {
        self.changes = recover::scan(&mut self.members, oldest);
        for role in recover::outdated(&self.changes) {
            if let (Some(device), Some(member)) =
                (self.devices[role].take(), self.members[role].take())
            {
                let name = self.names[role].clone();
                spare.push((Some(role), Given { name, device, member, found: Found::Other }));
            }
        }
        for pieces in self.changes.values_mut() {
            pieces.retain(|piece| self.members[piece.role].is_some());
        }
    }

    /// Fills a missing role by a spare, or goes on without.
    fn absences(
        &mut self,
        mut spare: Vec<(Option<usize>, Given)>,
        options: &Raid5Options,
    ) -> Result<(), Error> {
        let absent: Vec<usize> =
            (0..self.devices.len()).filter(|role| self.devices[*role].is_none()).collect();
        let rebuilding =
            (0..self.devices.len()).find(|role| self.superblock.states[*role] == State::Rebuilding);
        if absent.iter().chain(&rebuilding.filter(|role| !absent.contains(role))).count() > 1 {
            return Err(self.too_few(&absent, &spare));
        }
        let Some(&role) = absent.first() else {
            self.health.rebuilding = rebuilding;
            return spare.pop().map_or(Ok(()), |(_, given)| {
                Err(Error::unfit(given.name, "is not needed: no member is missing; leave it out"))
            });
        };
        if let Some((_, given)) = spare.pop_if(|_| options.rebuild) {
            self.set(role, given);
            self.superblock.states[role] = State::Rebuilding;
            self.superblock.rebuilt = 0;
            (self.fresh, self.health.rebuilding) = (Some(role), Some(role));
            return spare.pop().map_or(Ok(()), |(_, given)| {
                Err(Error::unfit(given.name, "is one too many to rebuild on; leave it out"))
            });
        }
        let blank = spare.iter().position(|(role, _)| role.is_none());
        if let Some((_, given)) = blank.map(|at| spare.swap_remove(at)) {
            let reason = "is blank; add ',rebuild' to rebuild the missing member on it";
            return Err(Error::unfit(given.name, reason));
        }
        if !options.degraded {
            let number = role + 1;
            return Err(match spare.pop() {
                Some((_, given)) => Error::unfit(
                    given.name,
                    format!(
                        "is outdated: it missed writes of its array, or is an old copy of member \
                         {number}; add ',rebuild' to rebuild it, or ',degraded' to go on without"
                    ),
                ),
                None => Error::unfit(
                    self.any_name(),
                    format!(
                        "member {number} of its array is missing: give it, add ',rebuild' and a \
                         blank device for it, or add ',degraded' to go on without"
                    ),
                ),
            });
        }
        self.superblock.states[role] = State::Failed;
        self.health.failed = Some(role);
        Ok(())
    }

    /// More than one member cannot be used.
    fn too_few(&self, absent: &[usize], spare: &[(Option<usize>, Given)]) -> Error {
        let outdated =
            |role| spare.iter().find(|(of, _)| *of == Some(role)).map(|(_, given)| given);
        let mut what: Vec<_> = absent
            .iter()
            .map(|role| match outdated(*role) {
                Some(given) => format!("number {} ({}) is outdated", role + 1, given.name),
                None => format!("number {} is missing", role + 1),
            })
            .collect();
        let states = self.superblock.states.iter().enumerate();
        let unfinished =
            states.filter(|(role, state)| **state == State::Rebuilding && !absent.contains(role));
        what.extend(unfinished.map(|(role, _)| format!("number {} is half rebuilt", role + 1)));
        let reason = format!(
            "of {} members, {}; RAID-5 needs all but one: give those that were in use last",
            self.devices.len(),
            what.join(" and ")
        );
        Error::unfit(self.any_name(), reason)
    }

    fn any_name(&self) -> String {
        let at = self.devices.iter().position(Option::is_some);
        at.map_or_else(|| "raid5".to_owned(), |at| self.names[at].clone())
    }
}
