//! Which tachometers belong to which PWM: each fan in turn at full speed, slower, and at full speed
//! again; those that follow are its own. Temperatures are watched, everything is on disk before the
//! first write, and is set back at the end, by `ebb restore` if this was killed.

use std::thread;
use std::time::{Duration, Instant};

use ebb_policy::Control;

use crate::act::by_hand::{Heat, SweepError, read, save, set_back, write};
use crate::act::knob::{MANUAL, Place};
use crate::act::originals::{Leave, Original, State};
use crate::act::places::{fan_places, fan_unit};
use crate::find::fans::{Fan, Fans};
use crate::find::machine::Machine;

/// The duty of the slower part: no server is too warm at it for seconds.
const SLOWER: u8 = 153;
/// A tachometer that falls by this share, and comes back, follows.
const FOLLOWS: f64 = 0.1;
/// Fans of one duty fall by about the same share: those that fall by less than this part of the
/// largest are dragged along by its air.
const ALIKE: f64 = 0.5;
/// Time from one look at the temperatures to the next.
const LOOK: Duration = Duration::from_millis(500);

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
    let heat = Heat::of(machine)?;
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
    save(machine, state, found)?;
    let mut one = |fan: &mut Fan| {
        let bench = Bench { machine, heat: &heat, settle, stopped };
        let follows = bench.try_one(fan)?;
        let name = fan.name(machine);
        tell(match &follows[..] {
            [] => format!("{name}: no tachometer follows it"),
            [one] => format!("{name}: {one} follows it"),
            several => format!("{name}: {} follow it", several.join(", ")),
        });
        fan.left = follows.is_empty().then(|| "no tachometer follows it".to_owned());
        (fan.tachometers, fan.strays) = (follows, Vec::new());
        Ok(())
    };
    let done = tried.into_iter().try_for_each(&mut one);
    set_back(machine, state)?;
    done.map(|()| fans)
}

/// What one fan is tried with.
struct Bench<'a> {
    machine: &'a Machine,
    heat: &'a Heat,
    settle: Duration,
    stopped: &'a dyn Fn() -> bool,
}

impl Bench<'_> {
    /// The tachometers of the fan's chip that follow its duty; its mode and duty are back before
    /// the next one is tried.
    fn try_one(&self, fan: &Fan) -> Result<Vec<String>, SweepError> {
        let (duty, mode) = fan_places(self.machine, fan);
        let before = [Some(&duty), mode.as_ref()];
        let before = before.map(|place| place.map(|one| read(self.machine, one)));
        let speeds = self.at_each(fan, &duty, mode.as_ref());
        for (place, value) in [Some(&duty), mode.as_ref()].into_iter().zip(before) {
            if let (Some(place), Some(Ok(value))) = (place, value) {
                // Whatever fails here is set back at the end of all.
                let _ = write(self.machine, place, &value);
            }
        }
        let Ok([full, slower, again]) = <[_; 3]>::try_from(speeds?) else { return Ok(Vec::new()) };
        let mut falls: Vec<(f64, String)> = Vec::new();
        for (((tachometer, full), (_, slower)), (_, again)) in
            full.into_iter().zip(slower).zip(again)
        {
            let least = full.min(again);
            let fall = (least - slower) / least.max(1.0);
            if fall >= FOLLOWS && slower == 0.0 {
                let duty = f64::from(SLOWER) / 255.0;
                return Err(SweepError::Stopped { of: tachometer, duty });
            }
            if fall >= FOLLOWS {
                falls.push((fall, tachometer));
            }
        }
        let most = falls.iter().map(|(fall, _)| *fall).fold(0.0, f64::max);
        falls.retain(|(fall, _)| *fall >= ALIKE * most);
        Ok(falls.into_iter().map(|(_, tachometer)| tachometer).collect())
    }

    /// What the tachometers say at each duty; less where the fan does not take one.
    fn at_each(
        &self,
        fan: &Fan,
        duty: &Place,
        mode: Option<&Place>,
    ) -> Result<Vec<Vec<(String, f64)>>, SweepError> {
        let mut speeds = Vec::new();
        for value in [255, SLOWER, 255] {
            let set = mode.map_or(Ok(()), |mode| write(self.machine, mode, MANUAL));
            if set.and_then(|()| write(self.machine, duty, &value.to_string())).is_err() {
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
