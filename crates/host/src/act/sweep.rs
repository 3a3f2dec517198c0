//! Which tachometer belongs to which PWM: each fan in turn at full speed, slower, and at full speed
//! again; what follows is its own. Temperatures are watched, everything is on disk before the first
//! write, and is set back at the end, by `ebb restore` if this was killed.

use std::thread;
use std::time::{Duration, Instant};

use ebb_policy::Control;
use ebb_policy::units::Celsius;

use crate::act::knob::{Knob, Place};
use crate::act::lock;
use crate::act::originals::{Leave, Original, State};
use crate::act::owned::StateError;
use crate::act::places::{fan_places, fan_unit};
use crate::act::restore::{self, Restored, restore};
use crate::find::fans::{Fan, Fans};
use crate::find::machine::Machine;
use crate::sys::Absent;

/// The duty of the slower part: no server is too warm at it for seconds.
const SLOWER: &str = "153";
/// A tachometer that falls by this share, and comes back, follows.
const FOLLOWS: f64 = 0.1;
/// What is not exceeded meanwhile; less where the hardware throttles earlier, with a margin.
const HOT: Celsius = Celsius(80.0);
const MARGIN: f64 = 15.0;
/// Time from one look at the temperatures to the next.
const LOOK: Duration = Duration::from_millis(500);

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
    #[error("{of} stood still at a duty of 60 %; see to it before ebb steers fans")]
    Stopped {
        /// The tachometer.
        of: String,
    },
    /// The operator has ended it.
    #[error("ended before its time")]
    Interrupted,
    /// Something was not set back and stays saved.
    #[error("{0} could not be set back; ebb restore tries again")]
    Left(String),
}

/// Tries the fans of which it is not known whether and how they answer, `settle` long at each duty;
/// `tell` hears of each. The pairs found are in what is returned; fans that answer to no PWM stay
/// as they were found.
///
/// # Errors
/// Why it ended before its time.
pub fn sweep(
    machine: &Machine,
    state: &State,
    settle: Duration,
    stopped: &dyn Fn() -> bool,
    tell: &mut dyn FnMut(String),
) -> Result<Fans, SweepError> {
    let mut fans = Fans::found(machine, &[]);
    let heat = Heat::of(machine);
    if heat.0.is_empty() {
        return Err(SweepError::Blind);
    }
    heat.check(machine)?;
    // What an earlier start has left is nobody's choice.
    set_back(machine, state)?;
    let mut tried = Vec::new();
    let mut found: Vec<Original> = Vec::new();
    let all = fans.fans.iter_mut().chain(&mut fans.apart);
    for fan in all.filter(|fan| fan.left.is_none() || fan.doubt) {
        match fan_unit(machine, fan).originals(machine, |_: Control| Leave::Restore) {
            Ok(originals) => {
                found.extend(originals);
                tried.push(fan);
            }
            Err(notice) => tell(format!("{}: {}", notice.place, notice.text)),
        }
    }
    state.save(&machine.boot().unwrap_or_default(), found)?;
    lock::remember(&machine.sys, state.path())?;
    let mut one = |fan: &mut Fan| {
        let bench = Bench { machine, heat: &heat, settle, stopped };
        let follows = bench.try_one(fan)?;
        let name = fan.name(machine);
        tell(match &follows {
            Some(tachometer) => format!("{name}: {tachometer} follows it"),
            None => format!("{name}: no tachometer follows it"),
        });
        fan.left = follows.is_none().then(|| "no tachometer follows it".to_owned());
        fan.tachometer = follows;
        Ok(())
    };
    let done = tried.into_iter().try_for_each(&mut one);
    set_back(machine, state)?;
    done.map(|()| fans)
}

fn set_back(machine: &Machine, state: &State) -> Result<(), SweepError> {
    let back = restore(machine, state, None)?;
    let failed = |one: &&Restored| matches!(one.outcome, restore::Outcome::Failed { .. });
    let failed: Vec<_> =
        back.places.iter().filter(failed).map(|one| one.place.to_string()).collect();
    if failed.is_empty() { Ok(()) } else { Err(SweepError::Left(failed.join(", "))) }
}

/// The temperatures that are watched: name, file, limit.
struct Heat(Vec<(String, String, Celsius)>);

impl Heat {
    fn of(machine: &Machine) -> Self {
        let watched = machine.socket_sensors().into_iter().flatten().map(|(at, input)| {
            let (chip, input) = (&machine.chips[at], input.as_str());
            let throttle = chip.throttle(&machine.sys, input).map(|at| Celsius(at.0 - MARGIN));
            let most = throttle.map_or(HOT, |most| most.min(HOT));
            (format!("{input} of {}", chip.name), chip.file(input), most)
        });
        Self(watched.collect())
    }

    /// A reading that is lost is one that is too high.
    fn check(&self, machine: &Machine) -> Result<(), SweepError> {
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

/// What one fan is tried with.
struct Bench<'a> {
    machine: &'a Machine,
    heat: &'a Heat,
    settle: Duration,
    stopped: &'a dyn Fn() -> bool,
}

impl Bench<'_> {
    /// The tachometer of the fan's chip that follows its duty most; its mode and duty are back
    /// before the next one is tried.
    fn try_one(&self, fan: &Fan) -> Result<Option<String>, SweepError> {
        let (duty, mode) = fan_places(self.machine, fan);
        let before = [Some(&duty), mode.as_ref()].map(|place| place.map(|one| self.read(one)));
        let speeds = self.at_each(fan, &duty, mode.as_ref());
        for (place, value) in [Some(&duty), mode.as_ref()].into_iter().zip(before) {
            if let (Some(place), Some(Ok(value))) = (place, value) {
                // Whatever fails here is set back at the end of all.
                let _ = self.write(place, &value);
            }
        }
        let Ok([full, slower, again]) = <[_; 3]>::try_from(speeds?) else { return Ok(None) };
        let mut most: Option<(f64, String)> = None;
        for (((tachometer, full), (_, slower)), (_, again)) in
            full.into_iter().zip(slower).zip(again)
        {
            let least = full.min(again);
            let fall = (least - slower) / least.max(1.0);
            if fall >= FOLLOWS && slower == 0.0 {
                return Err(SweepError::Stopped { of: tachometer });
            }
            if fall >= FOLLOWS && most.as_ref().is_none_or(|(known, _)| fall > *known) {
                most = Some((fall, tachometer));
            }
        }
        Ok(most.map(|(_, tachometer)| tachometer))
    }

    /// What the tachometers say at each duty; less where the fan does not take one.
    fn at_each(
        &self,
        fan: &Fan,
        duty: &Place,
        mode: Option<&Place>,
    ) -> Result<Vec<Vec<(String, f64)>>, SweepError> {
        let mut speeds = Vec::new();
        for value in ["255", SLOWER, "255"] {
            let set = mode.map_or(Ok(()), |mode| self.write(mode, "1"));
            if set.and_then(|()| self.write(duty, value)).is_err() {
                break;
            }
            self.wait()?;
            speeds.push(self.speeds(fan));
        }
        Ok(speeds)
    }

    fn speeds(&self, fan: &Fan) -> Vec<(String, f64)> {
        let chip = &self.machine.chips[fan.chip];
        let speed = |input: &String| {
            let speed = chip.speed(&self.machine.sys, input).map_or(0.0, |speed| speed.0);
            (input.clone(), speed)
        };
        chip.fans.iter().map(speed).collect()
    }

    fn read(&self, place: &Place) -> Result<String, Absent> {
        Knob::find(self.machine, place)?.read(&self.machine.sys)
    }

    fn write(&self, place: &Place, value: &str) -> Result<(), Absent> {
        Knob::find(self.machine, place)?.write(&self.machine.sys, value)
    }

    fn wait(&self) -> Result<(), SweepError> {
        let begun = Instant::now();
        loop {
            self.heat.check(self.machine)?;
            if (self.stopped)() {
                return Err(SweepError::Interrupted);
            }
            let Some(left) = self.settle.checked_sub(begun.elapsed()) else { return Ok(()) };
            thread::sleep(left.min(LOOK));
        }
    }
}
