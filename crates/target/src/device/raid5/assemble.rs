//! Which members make an array, and when they do not.

use std::sync::Arc;

use ebb_policy::units::Bytes;

use super::super::Device;
use super::array::Health;
use super::keeper::{broken, write};
use super::layout::{Layout, MOST, MOST_CHUNK, PAGE};
use super::superblock::{Found, State, Superblock, Uuid};
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
    pub(super) health: Health,
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
        let mut pages = [0; 2 * PAGE];
        let read = if device.geometry().bytes() < pages.len() as u64 {
            Ok(()) // Too small to be anything; refused when its size is looked at.
        } else {
            member.read(0, &mut pages)
        };
        read.map_err(|status| broken(&name, "read", status))?;
        let found = Superblock::find(&pages);
        Ok(Self { name, device, member, found })
    }

    /// Of an array that was never assembled: perhaps its making was cut short.
    pub(super) fn unused(&self) -> bool {
        matches!(&self.found, Found::Member(_, superblock) if superblock.events == MADE)
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
    let mut uuid = Uuid::default();
    rustix::rand::getrandom(&mut uuid, rustix::rand::GetRandomFlags::empty()).map_err(|error| {
        Error::system(&name, "cannot name the array", "try again")(error.into())
    })?;
    let superblock = Superblock {
        uuid,
        events: MADE,
        layout,
        clean: true,
        tail: 0,
        rebuilt: 0,
        states: [State::Live; MOST],
    };
    for given in given.iter_mut() {
        let zeroed = given.member.zero(layout.chunk_at(0), layout.member_bytes());
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
        if best.is_none_or(|(_, known)| superblock.events > known.events) {
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
        names: (0..count).map(|role| format!("raid5 member {role}")).collect(),
        devices: vec![None; count],
        members: (0..count).map(|_| None).collect(),
        superblock,
        health: Health::default(),
    };
    let mut spare = Vec::new();
    for given in given {
        fits(&given, &roles.superblock.layout)?;
        match &given.found {
            Found::Member(role, _) if roles.devices[*role].is_some() => {
                let reason = format!(
                    "says it is member {role}, as {} does; one is a copy: leave it out",
                    roles.names[*role]
                );
                return Err(Error::unfit(&given.name, reason));
            }
            Found::Member(role, _) if roles.superblock.states[*role] == State::Failed => {
                spare.push((Some(*role), given));
            }
            Found::Member(role, _) => roles.set(*role, given),
            Found::Blank => spare.push((None, given)),
            Found::Other => {
                let reason = "holds something that is not a member of an array; give another \
                              device, or wipe its first MiB if that is not needed";
                return Err(Error::unfit(&given.name, reason));
            }
        }
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
        let lost = absent.len() + usize::from(rebuilding.is_some_and(|r| !absent.contains(&r)));
        if lost > 1 {
            let names: Vec<_> = absent.iter().map(|role| format!("{}", role + 1)).collect();
            let reason = format!(
                "of {} members, number {} missing or outdated; RAID-5 needs all but one",
                self.devices.len(),
                names.join(" and ")
            );
            return Err(Error::unfit(self.any_name(), reason));
        }
        let Some(&role) = absent.first() else {
            self.health.rebuilding = rebuilding;
            return spare.pop().map_or(Ok(()), |(_, given)| {
                Err(Error::unfit(given.name, "is not needed: no member is missing; leave it out"))
            });
        };
        let known = self.superblock.states[role] == State::Failed;
        if let Some((_, given)) = spare.pop_if(|_| options.rebuild) {
            self.set(role, given);
            self.superblock.states[role] = State::Rebuilding;
            self.superblock.rebuilt = 0;
            self.health.rebuilding = Some(role);
        } else if known || options.degraded {
            self.superblock.states[role] = State::Failed;
            self.health.failed = Some(role);
        } else {
            let reason = format!(
                "member {} of its array is missing: give it, or add ',degraded' to go on without",
                role + 1
            );
            return Err(Error::unfit(self.any_name(), reason));
        }
        match spare.pop() {
            Some((None, given)) => {
                let reason = "is blank; add ',rebuild' to rebuild the missing member on it";
                Err(Error::unfit(given.name, reason))
            }
            // One that missed writes and is known for it: left alone until a rebuild is asked for.
            _ => Ok(()),
        }
    }

    fn any_name(&self) -> String {
        let at = self.devices.iter().position(Option::is_some);
        at.map_or_else(|| "raid5".to_owned(), |at| self.names[at].clone())
    }
}
