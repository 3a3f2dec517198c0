//! Fans that are set by hand for a while, to try or to measure something: what they are set to is
//! on disk before the first write, temperatures are watched, and everything is set back at the end,
//! by `ebb restore` if this was killed.

use std::time::Duration;

use ebb_policy::Control;
use ebb_policy::units::{Celsius, Rpm};

use crate::act::fan::{A_LITTLE, steps};
use crate::act::knob::{Knob, MANUAL, Place};
use crate::act::lock;
use crate::act::originals::{Leave, Original, State};
use crate::act::owned::StateError;
use crate::act::places::{fan_places, fan_unit};
use crate::act::restore::{Outcome, Restored, restore};
use crate::find::drives::Drive;
use crate::find::fans::{Fan, Fans};
use crate::find::hwmon::Chip;
use crate::find::machine::Machine;
use crate::sys::Absent;

/// What is not exceeded meanwhile; less where the hardware throttles earlier, with a margin.
const HOT: Celsius = Celsius(80.0);
const MARGIN: f64 = 15.0;
/// The same of hard disks, most of which may be used up to 60 °C.
const HOT_DISK: Celsius = Celsius(55.0);
const DISK_MARGIN: f64 = 5.0;
/// So many looks in a row without a turn are a fan that has stopped: one reading may be wrong.
const STOPPED: u32 = 4;

/// Why a sweep ended before its time. Everything is set back.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The state folder cannot be used; nothing was changed.
    #[error(transparent)]
    State(#[from] StateError),
    /// Nothing says how warm it is; nothing was changed.
    #[error("no temperature of a processor to watch; modprobe coretemp (Intel) or k10temp (AMD)")]
    Blind,
    /// It is too warm.
    #[error("{of} is at {now:.0}, the sweep ends at {most:.0}; try again when the machine is idle")]
    Hot {
        /// The sensor.
        of: String,
        /// Its reading.
        now: Celsius,
        /// The limit.
        most: Celsius,
    },
    /// A fan stood still.
    #[error("{of} stood still at {:.0} % duty; see to it before ebb steers fans", duty * 100.0)]
    Stopped {
        /// The tachometer.
        of: String,
        /// What was set, 0 to 1.
        duty: f64,
    },
    /// A fan does not take what is set, or somebody else sets it.
    #[error("{of}: {why}")]
    Refused {
        /// The fan.
        of: String,
        /// What happened.
        why: String,
    },
    /// The operator has ended it.
    #[error("ended before its time")]
    Interrupted,
    /// Something was not set back and stays saved.
    #[error("{0} could not be set back; ebb restore tries again")]
    Left(String),
}

/// Puts `found` on disk, before any of it is set.
///
/// # Errors
/// Where that is not possible; nothing may be set then.
pub(super) fn save(
    machine: &Machine,
    state: &State,
    mut found: Vec<Original>,
) -> Result<(), SweepError> {
    found.iter_mut().for_each(|original| original.touched = true);
    state.save(&machine.boot().unwrap_or_default(), found)?;
    Ok(lock::remember(&machine.sys, state.path())?)
}

/// Sets back all that is saved.
///
/// # Errors
/// What was not.
pub(super) fn set_back(machine: &Machine, state: &State) -> Result<(), SweepError> {
    let back = restore(machine, state, None)?;
    let failed = |one: &&Restored| matches!(one.outcome, Outcome::Failed { .. });
    let failed: Vec<_> =
        back.places.iter().filter(failed).map(|one| one.place.to_string()).collect();
    if failed.is_empty() { Ok(()) } else { Err(SweepError::Left(failed.join(", "))) }
}

/// Sets the fans that are in the manual mode to full speed, where what they were before is lost.
#[must_use]
pub fn full_speed(machine: &Machine) -> Vec<Restored> {
    let full = steps(1.0);
    let set = |fan: &Fan| {
        let (place, mode) = fan_places(machine, fan);
        if mode.is_some_and(|mode| read(machine, &mode).as_deref() != Ok(MANUAL)) {
            return None;
        }
        let mut none = Duration::ZERO;
        let set = Knob::find(machine, &place)
            .and_then(|mut knob| knob.set(&machine.sys, &full, &mut none));
        let outcome = match set {
            Ok(set) => Outcome::of(&full, set),
            Err(absent) => Outcome::failed(absent.to_string()),
        };
        Some(Restored { place, to: Some(full.clone()), outcome })
    };
    let fans = Fans::found(machine, &[]).fans;
    fans.iter().filter(|fan| fan.left.is_none()).filter_map(set).collect()
}

/// What a place is set to.
pub(super) fn read(machine: &Machine, place: &Place) -> Result<String, Absent> {
    Knob::find(machine, place)?.read(&machine.sys)
}

/// Sets a place that is saved.
pub(super) fn write(machine: &Machine, place: &Place, value: &str) -> Result<(), Absent> {
    Knob::find(machine, place)?.write(&machine.sys, value)
}

/// The temperatures that are watched: name, file, limit.
pub(super) struct Heat(Vec<(String, String, Celsius)>);

impl Heat {
    /// Those of the processors.
    ///
    /// # Errors
    /// Where there is none.
    pub(super) fn of(machine: &Machine) -> Result<Self, SweepError> {
        let inputs = machine.socket_sensors().into_iter().flatten();
        let watched = inputs.map(|(at, input)| {
            let chip = &machine.chips[at];
            let name = format!("{input} of {}", chip.name);
            (name, chip.file(&input), limit(machine, chip, &input, HOT, MARGIN))
        });
        let watched: Vec<_> = watched.collect();
        if watched.is_empty() { Err(SweepError::Blind) } else { Ok(Self(watched)) }
    }

    /// And those of drives, where the kernel shows them.
    fn with(mut self, machine: &Machine, drives: &[&Drive]) -> Self {
        self.0.extend(drives.iter().filter_map(|drive| {
            let chip = machine.drive_chip(drive)?;
            let (input, _) = chip.temperatures.first()?;
            let (most, margin) =
                if drive.rotational { (HOT_DISK, DISK_MARGIN) } else { (HOT, MARGIN) };
            let most = limit(machine, chip, input, most, margin);
            Some((drive.name.clone(), chip.file(input), most))
        }));
        self
    }

    /// A reading that is lost is one that is too high.
    pub(super) fn check(&self, machine: &Machine) -> Result<(), SweepError> {
        for (of, file, most) in &self.0 {
            let now = machine.sys.number::<i64>(file).map(|millis| Celsius(millis as f64 / 1e3));
            let now = now.unwrap_or(Celsius(f64::INFINITY));
            if now >= *most {
                return Err(SweepError::Hot { of: of.clone(), now, most: *most });
            }
        }
        Ok(())
    }
}

fn limit(machine: &Machine, chip: &Chip, input: &str, most: Celsius, margin: f64) -> Celsius {
    let throttle = chip.throttle(&machine.sys, input).map(|at| Celsius(at.0 - margin));
    throttle.map_or(most, |limit| limit.min(most))
}

/// Fans that are held at one duty. Whoever has them gives them back by [`HeldFans::give_back`].
pub struct HeldFans<'a> {
    machine: &'a Machine,
    state: &'a State,
    heat: Heat,
    fans: Vec<Held>,
    /// What they are held at, 0 to 1.
    duty: f64,
}

struct Held {
    name: String,
    fan: Fan,
    duty: Place,
    mode: Option<Place>,
    /// What its mode and duty read back as.
    is: (Option<String>, String),
    /// Looks in a row at which it stood still.
    still: u32,
}

impl<'a> HeldFans<'a> {
    /// Saves what `fans` are set to; temperatures of `drives` are watched beside those of the
    /// processors. What an earlier start has left is set back first.
    ///
    /// # Errors
    /// Why nothing was changed.
    pub fn take(
        machine: &'a Machine,
        state: &'a State,
        fans: &[Fan],
        drives: &[&Drive],
    ) -> Result<Self, SweepError> {
        let heat = Heat::of(machine)?.with(machine, drives);
        heat.check(machine)?;
        set_back(machine, state)?;
        let (mut found, mut held) = (Vec::new(), Vec::new());
        for fan in fans {
            let originals = fan_unit(machine, fan).originals(machine, |_: Control| Leave::Restore);
            found.extend(originals.map_err(|notice| {
                let why = notice.text;
                SweepError::Refused { of: notice.place.to_string(), why }
            })?);
            let (duty, mode) = fan_places(machine, fan);
            held.push(Held {
                name: fan.name(machine),
                fan: fan.clone(),
                duty,
                mode,
                is: (None, String::new()),
                still: 0,
            });
        }
        save(machine, state, found)?;
        Ok(Self { machine, state, heat, fans: held, duty: 1.0 })
    }

    /// Holds all of them at `duty`, 0 to 1, or at the next higher one that they know; the lowest
    /// duty in force.
    ///
    /// # Errors
    /// Which of them does not take it.
    pub fn set(&mut self, duty: f64) -> Result<f64, SweepError> {
        self.duty = duty;
        let set = self.fans.iter_mut().map(|fan| fan.set(self.machine, duty));
        set.reduce(|one, other| Ok(one?.min(other?))).unwrap_or(Ok(duty))
    }

    /// How fast they turn; `None` of one that has no tachometer.
    ///
    /// # Errors
    /// It is too warm, one has stopped, or somebody else has set one.
    pub fn look(&mut self) -> Result<Vec<Option<Rpm>>, SweepError> {
        self.heat.check(self.machine)?;
        self.fans.iter_mut().map(|fan| fan.look(self.machine, self.duty)).collect()
    }

    /// Sets back what was found.
    ///
    /// # Errors
    /// What was not.
    pub fn give_back(self) -> Result<(), SweepError> {
        set_back(self.machine, self.state)
    }
}

impl Held {
    fn refused(&self, why: String) -> SweepError {
        SweepError::Refused { of: self.name.clone(), why }
    }

    fn now(&self, machine: &Machine) -> Result<(Option<String>, String), SweepError> {
        let told = |absent: Absent| self.refused(absent.to_string());
        let mode = self.mode.as_ref().map(|mode| read(machine, mode)).transpose();
        let (mode, duty) = (mode.map_err(told)?, read(machine, &self.duty).map_err(told)?);
        // The manual mode may read 0 then (`Knob::is_manual`).
        let is_full = mode.as_deref() == Some("0") && duty == "255";
        Ok((if is_full { Some(MANUAL.to_owned()) } else { mode }, duty))
    }

    fn set(&mut self, machine: &Machine, duty: f64) -> Result<f64, SweepError> {
        let wanted = steps(duty);
        let told = |absent: Absent| self.refused(absent.to_string());
        let mode = self.mode.as_ref().map_or(Ok(()), |mode| write(machine, mode, MANUAL));
        mode.and_then(|()| write(machine, &self.duty, &wanted)).map_err(told)?;
        let (mode, is) = self.now(machine)?;
        // Chips round, and some know a few speeds alone: what blows more is as good.
        let number = |text: &str| text.parse::<u8>().ok();
        let taken = number(&is)
            .zip(number(&wanted))
            .filter(|(is, wanted)| is.saturating_add(A_LITTLE) >= *wanted);
        let Some((now, asked)) =
            taken.filter(|_| mode.as_deref().is_none_or(|mode| mode == MANUAL))
        else {
            let mode = mode.map(|mode| format!(" in mode {mode}")).unwrap_or_default();
            return Err(self.refused(format!("{wanted} was written, {is}{mode} is read back")));
        };
        (self.is, self.still) = ((mode, is), 0);
        Ok(if now.abs_diff(asked) > A_LITTLE { f64::from(now) / 255.0 } else { duty })
    }

    fn look(&mut self, machine: &Machine, duty: f64) -> Result<Option<Rpm>, SweepError> {
        if self.now(machine)? != self.is {
            let why = "somebody else sets it; stop that first (ebb probe names who may be)";
            return Err(self.refused(why.to_owned()));
        }
        let Some(speed) = self.fan.speed(machine) else { return Ok(None) };
        let speed = speed.ok();
        if speed.is_some_and(|speed| speed.0 > 0.0) {
            self.still = 0;
            return Ok(speed);
        }
        self.still += 1;
        match self.still {
            STOPPED.. => Err(SweepError::Stopped { of: self.name.clone(), duty }),
            _ => Ok(Some(Rpm(0.0))),
        }
    }
}
