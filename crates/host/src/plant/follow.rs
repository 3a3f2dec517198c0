//! The machine changes while it is watched: what has gone is left alone, what is back is taken in
//! again, and everything else goes on. The parts that were there at the start stay the frame in
//! which policies see it.

use ebb_policy::units::Nanos;
use ebb_policy::{Control, Steward};

use crate::act::knob::Place;
use crate::find::chips;
use crate::find::drives::Drive;
use crate::find::energy::Zone;
use crate::find::fans::Fan;
use crate::find::hwmon::Chip;
use crate::find::layout::{Core, Layout, identities};
use crate::find::machine::Machine;
use crate::find::parts::{Became, Changed, Glance, ONLINE, is_same};
use crate::nvme::DEADLINE;
use crate::plant::Host;
use crate::sense::drive_watch::DriveWatch;
use crate::sys::cpu_list;

/// How often drives are asked again that did not say what they are.
const LATE: Nanos = Nanos::from_secs(10);

/// What has changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Followed {
    /// For people, a line each.
    pub notes: Vec<String>,
    /// Whether there are parts of a kind that is steered and that were not there at the start: to
    /// take these in, all has to begin anew.
    pub is_new: bool,
}

/// The parts that changed.
#[derive(Debug, Default)]
struct Parts {
    cpus: Vec<u16>,
    drives: Vec<Changed>,
    chips: Vec<Changed>,
    zones: bool,
}

impl Host {
    /// Takes in what has changed since it was last asked; `None` where nothing did. Call it before
    /// each cycle, so that nothing is read or set by the path that another device has now.
    pub fn follow(&mut self) -> Option<Followed> {
        let now = Glance::of(&self.machine.sys);
        let then = std::mem::replace(&mut self.glance, now);
        if then == now {
            return self.late();
        }
        let mut parts = Parts::default();
        let mut notes = Vec::new();
        if then.cpus != now.cpus {
            parts.cpus = self.follow_cpus(&mut notes);
        }
        if then.drives != now.drives {
            parts.drives = self.follow_drives(&mut notes);
        }
        if then.chips != now.chips {
            parts.chips = self.follow_chips(&mut notes);
        }
        parts.zones = then.zones != now.zones;
        if parts.zones || then.chips != now.chips {
            self.machine.zones = Zone::found(&self.machine.sys, &self.machine.chips);
        }
        self.take_in(&parts);
        if then.chips != now.chips {
            self.cooling = self.has_new_cooling();
        }
        Some(Followed { notes, is_new: self.has_new() })
    }

    /// Drives that say only now what they are.
    fn late(&mut self) -> Option<Followed> {
        if self.now < self.asks_late {
            return None;
        }
        self.asks_late = self.now + LATE;
        let silent = self.layout.drives.iter().filter(|parts| parts.is_silent());
        let silent: Vec<_> = silent.map(|parts| &parts.drive).collect();
        let said = identities(&self.machine, silent.iter().copied(), DEADLINE);
        let late = silent.iter().zip(said).filter(|(_, said)| said.is_some());
        let say = |(drive, _): (&&Drive, _)| {
            format!("{}{} says what it is now", drive.name, shown(drive))
        };
        let notes: Vec<_> = late.map(say).collect();
        (!notes.is_empty()).then_some(Followed { notes, is_new: true })
    }

    /// CPUs that somebody else takes offline and online; the numbers of those that changed.
    fn follow_cpus(&mut self, notes: &mut Vec<String>) -> Vec<u16> {
        let Ok(online) = self.machine.sys.cpus(ONLINE) else { return Vec::new() };
        // Those that are parked are where Ebb wants them.
        let parked = self.acting.as_ref().map(|acting| acting.offline()).unwrap_or_default();
        let is_away = |cpu: &u16| !online.contains(cpu) && !parked.contains(cpu);
        let all = self.machine.cpus.cpus.iter().map(|cpu| cpu.number);
        let away: Vec<u16> = all.filter(is_away).collect();
        let left: Vec<_> = away.iter().filter(|cpu| !self.away.contains(cpu)).copied().collect();
        let back: Vec<_> = self.away.iter().filter(|cpu| !away.contains(cpu)).copied().collect();
        if !left.is_empty() {
            let theirs = if left.len() == 1 { "its core is" } else { "their cores are" };
            notes.push(format!("cpu{} went offline: {theirs} left alone", cpu_list(&left)));
        }
        if !back.is_empty() {
            notes.push(format!("cpu{} online again", cpu_list(&back) + is_or_are(back.len())));
        }
        self.away = away;
        let is_new = |cpu: &u16| !self.machine.cpus.cpus.iter().any(|one| one.number == *cpu);
        let new: Vec<_> = online.into_iter().filter(is_new).collect();
        if !new.is_empty() {
            notes.push(format!("cpu{} new", cpu_list(&new) + is_or_are(new.len())));
        }
        left.into_iter().chain(back).collect()
    }

    fn follow_drives(&mut self, notes: &mut Vec<String>) -> Vec<Changed> {
        let machine = &mut self.machine;
        let before = std::mem::replace(&mut machine.drives, Drive::found(&machine.sys));
        let mut changed = Vec::new();
        for (at, parts) in self.layout.drives.iter_mut().enumerate() {
            let (name, controller) = (parts.drive.name.clone(), parts.drive.controller.clone());
            let became = self.came.follow(&machine.sys, at, &mut parts.drive, &machine.drives);
            let Some(became) = became else { continue };
            // A controller that comes later with this name is another one.
            let controllers = controller.iter().chain(&parts.drive.controller);
            controllers.for_each(|name| machine.nvme.forget(name));
            let (id, now) = (shown(&parts.drive), &parts.drive.name);
            notes.push(match became {
                Became::Left => format!("{name}{id} left: it is left alone until it is back"),
                Became::Back => format!("{now}{id} is back"),
                Became::Another if *now == name => format!("{now}{id} was away and is back"),
                Became::Another => format!("{now}{id} is what {name} was"),
            });
            changed.push((at, became));
        }
        let was_there = |drive: &Drive| before.iter().any(|one| is_same(one, drive));
        let new = self.machine.drives.iter().filter(|drive| !was_there(drive));
        let new = new.filter(|drive| !is_known(&self.layout, drive));
        notes.extend(new.map(|drive| format!("{}{} is new", drive.name, shown(drive))));
        changed
    }

    fn follow_chips(&mut self, notes: &mut Vec<String>) -> Vec<Changed> {
        let machine = &mut self.machine;
        let before = machine.chips.len();
        let changed = self.chips.follow(&machine.sys, &mut machine.chips);
        let shown = |chip: &Chip| {
            let device = chip.device.as_deref().unwrap_or_default();
            format!("chip {}", chips::shown(&chip.name, &[device]))
        };
        notes.extend(machine.chips[before..].iter().map(|chip| shown(chip) + " is new"));
        for (at, became) in &changed {
            let chip = shown(&machine.chips[*at]);
            match became {
                Became::Left => notes
                    .push(format!("{chip} left: nothing of it is read or set until it is back")),
                Became::Back => notes.push(format!("{chip} is back")),
                Became::Another => {}
            }
        }
        // What is set of another with the same name has to be looked at.
        let new = (before..machine.chips.len()).map(|at| (at, Became::Back));
        changed.into_iter().chain(new).collect()
    }

    /// Finds sensors and settings anew.
    fn take_in(&mut self, parts: &Parts) {
        let Self { machine, layout, away, .. } = self;
        let more: Vec<_> = machine.drives.iter().filter(|one| !is_known(layout, one)).collect();
        let is_here = |core: &&Core| !core.cpus.iter().all(|cpu| away.contains(cpu));
        let here = |cores: &Vec<Core>| cores.iter().filter(is_here).cloned().collect();
        let present = Layout { groups: layout.groups.iter().map(here).collect(), ..layout.clone() };
        self.sensors.follow(machine, &present, &more);
        self.jobs.follow(machine);
        self.throttled.follow(machine, layout);
        self.crowd.follow(machine);
        for (at, _) in &parts.drives {
            self.drives[*at] = DriveWatch::new(machine, &layout.drives[*at]);
        }
        self.present = present.groups.iter().map(|cores| cores.len() as u16).collect();
        if let Some(acting) = &mut self.acting {
            let is_concerned = |place: &Place| is_concerned(place, parts, machine, layout);
            acting.follow(machine, away, is_concerned);
        }
    }

    /// Whether there is now what a policy would steer, or the operator holds, and was not there.
    fn has_new(&self) -> bool {
        let (machine, frame, (holds, held)) = (&self.machine, &self.layout, &self.holds);
        let owns = |family| self.owned.iter().any(|control| control.row().steward == family);
        if owns(Steward::Cpu) || holds.are_of_cpus() {
            let known = |cpu: &u16| machine.cpus.cpus.iter().any(|one| one.number == *cpu);
            let online = machine.sys.cpus(ONLINE).unwrap_or_default();
            if !online.iter().all(known) {
                return true;
            }
        }
        let steers = |control| self.owned.contains(&control);
        let drives = steers(Control::PowerState) || steers(Control::IdleWake);
        if drives && machine.drives.iter().any(|drive| !is_known(frame, drive)) {
            return true;
        }
        let now = holds.places(machine).unwrap_or_default();
        self.cooling || !now.constant.iter().all(|hold| held.contains(&hold.place))
    }

    /// The same of fans and of sockets' sensors alone.
    fn has_new_cooling(&self) -> bool {
        let (machine, frame) = (&self.machine, &self.layout);
        let Ok((now, _)) = Layout::new(machine, &self.stated, &self.owned) else { return false };
        let is_one = |one: &Fan, other: &Fan| (one.chip, &one.pwm) == (other.chip, &other.pwm);
        let is_known =
            |fan: &Fan| fan.left.is_some() || frame.fans.fans.iter().any(|one| is_one(one, fan));
        !now.fans.fans.iter().all(is_known) || now.sockets.len() > frame.sockets.len()
    }
}

fn is_or_are(count: usize) -> &'static str {
    if count == 1 { " is" } else { " are" }
}

/// Who a drive is, where that is known, for people.
fn shown(drive: &Drive) -> String {
    drive.id.as_ref().map(|id| format!(" ({id})")).unwrap_or_default()
}

fn is_known(layout: &Layout, drive: &Drive) -> bool {
    layout.drives.iter().any(|parts| is_same(&parts.drive, drive))
}

/// Whether a place is in a part that changed.
fn is_concerned(place: &Place, parts: &Parts, machine: &Machine, layout: &Layout) -> bool {
    match place {
        Place::Chip { chip, device, .. } => parts.chips.iter().any(|(at, _)| {
            let one = &machine.chips[*at];
            one.name == *chip && one.device.as_deref().unwrap_or_default() == device
        }),
        Place::PackagePower { .. } => parts.zones,
        Place::Offline => !parts.cpus.is_empty(),
        Place::File { path } => parts.cpus.iter().any(|cpu| {
            let own = path.contains(&format!("/cpu/cpu{cpu}/"));
            let policies = machine.cpus.policies.iter().filter(|one| one.cpus.contains(cpu));
            own || policies.into_iter().any(|one| path.starts_with(&format!("{}/", one.folder)))
        }),
        other => parts.drives.iter().any(|(at, _)| {
            let drive = &layout.drives[*at].drive;
            other.drive().is_some() && drive.saved.as_deref() == other.drive()
        }),
    }
}
