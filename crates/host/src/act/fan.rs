//! One fan that is steered. Its mode and its duty are one thing, and whose they are is, too:
//!
//! ```text
//!            somebody else sets it              nobody moves it any more
//!   Ours ───────────────────────────► Theirs ────────────────────────────► Left
//!    └────────────────────────────────────────────────────────────────────► ▲
//!      it stops, or does not answer: back to the mode found, until Ebb starts anew
//! ```
//!
//! In an emergency it is at full speed, whosever it is, and goes back to whose it was.

use ebb_policy::Outcome;
use ebb_policy::units::{Nanos, Rpm};

use crate::act::contact::Attempt;
use crate::act::knob::MANUAL;
use crate::act::steering::{Steering, worse};
use crate::find::conflicts;

/// A fan that somebody else has taken and has not moved for so long is nobody's: a manual mode
/// with nobody at it is dangerous.
const QUIET: Nanos = Nanos::from_secs(20);
/// One that does not take its duty is tried again after so long.
const REST: Nanos = Nanos::from_secs(60);
/// One whose tachometer says 0, or nothing, for so long has stopped.
const STOPPED: Nanos = Nanos::from_secs(2);
/// So long after its duty has changed by [`STEP`] its speed has by a share of [`ANSWER`].
const SETTLED: Nanos = Nanos::from_secs(10);
const STEP: f64 = 0.25;
const ANSWER: f64 = 0.05;
/// So many of 255 are more than any chip rounds, and no matter to the air.
pub(super) const A_LITTLE: u8 = 13;

/// Who steers it.
#[derive(Debug, Clone, PartialEq)]
enum Whose {
    Ours,
    /// Ours again from then on.
    Rests(Nanos),
    /// Somebody else's: its duty, and since when it is that.
    Theirs(Option<String>, Nanos),
    /// In the mode found.
    Left,
}

/// One fan.
#[derive(Debug)]
pub struct FanControl {
    duty: usize,
    mode: Option<usize>,
    whose: Whose,
    /// Which of its places were somebody else's when an emergency took them.
    taken: Option<Vec<usize>>,
    /// What it was set to last, 0 to 1.
    set: Option<f64>,
    tachometer: Option<Tachometer>,
}

impl FanControl {
    /// The fan of two places; `watched` where it has a tachometer.
    #[must_use]
    pub fn new(duty: usize, mode: Option<usize>, watched: bool) -> Self {
        let tachometer = watched.then(Tachometer::default);
        Self { duty, mode, whose: Whose::Ours, taken: None, set: None, tachometer }
    }

    /// Begins anew: its chip has gone, or is back.
    pub fn begin_anew(&mut self) {
        *self = Self::new(self.duty, self.mode, self.tachometer.is_some());
    }

    /// Whether it is not followed any more, for another reason than that a place of it refuses.
    #[must_use]
    pub fn is_failing(&self, steering: &Steering) -> bool {
        self.whose == Whose::Left && !self.places().any(|at| steering.refuses(at))
    }

    /// Does without it, but in an emergency.
    pub fn refuse(&mut self) {
        self.whose = Whose::Left;
    }

    /// What it is tried with: by hand, a little faster or slower. One that was refused is not.
    #[must_use]
    pub fn attempt(&self, steering: &Steering) -> Option<Attempt> {
        if self.whose == Whose::Left {
            return None;
        }
        let found = steering.found(self.duty).parse::<u8>().unwrap_or_default();
        let other = found.checked_add(A_LITTLE).unwrap_or(found.saturating_sub(A_LITTLE));
        let mode = self.mode.map(|at| (at, MANUAL.to_owned()));
        let writes = mode.into_iter().chain([(self.duty, other.to_string())]);
        Some(Attempt { writes: writes.collect(), bounds: None })
    }

    /// Hears what the chip says of it.
    pub fn sensed(&mut self, duty: Option<f64>, speed: Option<Rpm>) {
        if let Some(tachometer) = &mut self.tachometer {
            tachometer.sensed(self.set.or(duty), speed);
        }
    }

    /// Sets its duty, or gives it back where there is none; full, whosever it is, in an emergency.
    pub fn set(
        &mut self,
        steering: &mut Steering,
        share: Option<f64>,
        emergency: bool,
        now: Nanos,
    ) -> Outcome {
        if emergency {
            return self.full(steering, now);
        }
        self.calm(steering, now);
        let is_theirs = self.places().any(|at| steering.is_yielded(at));
        match self.whose.clone() {
            Whose::Theirs(was, since) => {
                self.wait(steering, was, since, now);
                return Outcome::Changed;
            }
            Whose::Left => {
                self.back(steering, now);
                return Outcome::Refused;
            }
            Whose::Rests(until) if now < until => {
                self.back(steering, now);
                return Outcome::Refused;
            }
            Whose::Ours | Whose::Rests(_) if is_theirs => {
                self.whose = Whose::Theirs(None, now);
                return Outcome::Changed;
            }
            Whose::Ours | Whose::Rests(_) => self.whose = Whose::Ours,
        }
        let Some(share) = share else {
            let set = |outcome, at| worse(outcome, steering.set(at, None, now));
            self.set = None;
            return self.places().fold(Outcome::Done, set);
        };
        if let (Some(tachometer), Some(set)) = (&mut self.tachometer, self.set)
            && let Some(fault) = tachometer.fault(set, now)
        {
            steering.note(self.duty, format!("{fault}: it is left in the mode found"));
            self.whose = Whose::Left;
            self.back(steering, now);
            return Outcome::Refused;
        }
        let mode = self.mode.map_or(Outcome::Done, |mode| steering.set(mode, Some(MANUAL), now));
        if mode != Outcome::Done {
            return mode;
        }
        let outcome = steering.set(self.duty, Some(&steps(share)), now);
        self.set = Some(share);
        if outcome == Outcome::Refused {
            // A manual mode in which nothing can be set is no mode to stay in.
            self.whose = Whose::Rests(now + REST);
            self.back(steering, now);
        }
        outcome
    }

    pub(super) fn places(&self) -> impl Iterator<Item = usize> + use<> {
        std::iter::once(self.duty).chain(self.mode)
    }

    /// Takes back what is ours: the duty while it can still be set, then the mode.
    fn back(&mut self, steering: &mut Steering, now: Nanos) {
        self.set = None;
        for at in self.places() {
            steering.take_back(at, now);
        }
    }

    fn full(&mut self, steering: &mut Steering, now: Nanos) -> Outcome {
        let theirs = self.places().filter(|at| steering.is_yielded(*at));
        let theirs: Vec<_> = theirs.collect();
        self.taken.get_or_insert_default().extend(theirs);
        self.set = Some(1.0);
        let mode = self.mode.map_or(Outcome::Done, |at| steering.insist(at, MANUAL, now));
        let duty = steering.insist(self.duty, "255", now);
        if let (Some(mode), Outcome::Refused) = (self.mode, duty) {
            // The board may do better than a manual mode in which nothing can be set.
            steering.set(mode, None, now);
        }
        worse(mode, duty)
    }

    /// After an emergency what was somebody else's is theirs again.
    fn calm(&mut self, steering: &mut Steering, now: Nanos) {
        let Some(taken) = self.taken.take() else { return };
        if taken.is_empty() {
            return;
        }
        for at in self.places() {
            let was_theirs = taken.contains(&at);
            if was_theirs || at == self.duty {
                steering.set(at, None, now);
            }
            if was_theirs {
                steering.leave(at);
            }
        }
        if let Whose::Theirs(_, since) = &mut self.whose {
            *since = now;
        }
    }

    /// Sees whether whoever has taken it still moves it. One that nobody moves goes back to the
    /// mode found where that is the board's own, unless a program for fans is there.
    fn wait(&mut self, steering: &mut Steering, was: Option<String>, since: Nanos, now: Nanos) {
        let is = steering.read(self.duty).ok();
        if is != was {
            self.whose = Whose::Theirs(is, now);
            return;
        }
        let Some(mode) = self.mode else { return };
        let is_ours = !steering.is_yielded(mode) && steering.found(mode) != MANUAL;
        if !is_ours || now.saturating_sub(since) < QUIET {
            return;
        }
        self.whose = Whose::Theirs(is, now);
        let others = conflicts::found(steering.sys());
        if others.iter().any(|other| other.sets.contains("fan")) {
            return;
        }
        if steering.set(mode, None, now) == Outcome::Done {
            let seconds = QUIET.seconds();
            let found = steering.found(mode);
            let text = format!("nobody has moved it for {seconds} s: it is '{found}' again");
            steering.note(mode, text);
            self.whose = Whose::Left;
        }
    }
}

/// A duty as chips count it.
pub(super) fn steps(share: f64) -> String {
    assert!(!share.is_nan(), "no number would stop the fan");
    ((share.clamp(0.0, 1.0) * 255.0).ceil() as u8).to_string()
}

/// What its tachometer shows of a fan's obedience.
#[derive(Debug, Default)]
struct Tachometer {
    speed: Option<Rpm>,
    /// Since when it stands still, or says nothing.
    still: Option<Nanos>,
    /// Duty and speed against which an answer is judged.
    from: Option<(f64, Rpm)>,
    /// Since when its duty is another by [`STEP`].
    asked: Option<Nanos>,
}

impl Tachometer {
    fn sensed(&mut self, duty: Option<f64>, speed: Option<Rpm>) {
        self.speed = speed;
        if self.from.is_none() {
            self.from = duty.zip(speed);
        }
    }

    /// What is wrong with a fan that was `set` to this duty.
    fn fault(&mut self, set: f64, now: Nanos) -> Option<String> {
        let turns = self.speed.filter(|speed| speed.0 > 0.0);
        let Some(speed) = turns else {
            let still = now.saturating_sub(*self.still.get_or_insert(now));
            let said = self.speed.map_or("its tachometer says nothing", |_| "it has stopped");
            let is_over = still >= STOPPED && set > 0.0;
            return is_over.then(|| format!("{said} at {:.0} %", set * 100.0));
        };
        self.still = None;
        let (duty, before) = self.from?;
        if (set - duty).abs() < STEP {
            self.asked = None;
            return None;
        }
        if now.saturating_sub(*self.asked.get_or_insert(now)) < SETTLED {
            return None;
        }
        if (speed.0 - before.0).abs() >= ANSWER * before.0 {
            (self.from, self.asked) = (Some((set, speed)), None);
            return None;
        }
        Some(format!(
            "it does not answer: {:.0} rpm at {:.0} %, {:.0} rpm at {:.0} %",
            before.0,
            duty * 100.0,
            speed.0,
            set * 100.0
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::act::knob::Place;
    use crate::act::originals::{Leave, Original, State};
    use crate::act::steering::Contest;
    use crate::find::machine::Machine;
    use crate::sys::Sys;

    struct Bench {
        root: tempfile::TempDir,
        folder: tempfile::TempDir,
        steering: Steering,
        fan: FanControl,
        rpm: f64,
    }

    impl Bench {
        /// A fan that turns at 3,000 rpm at 120 of 255, by the board.
        fn new() -> Self {
            let (root, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let put = |file: &str, text: &str| {
                let file = root.path().join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            };
            put("sys/devices/system/cpu/online", "0");
            put("sys/class/hwmon/hwmon1/name", "nct6798");
            put("sys/class/hwmon/hwmon1/pwm1", "120");
            put("sys/class/hwmon/hwmon1/pwm1_enable", "5");
            let machine = Machine::found(Sys::new(root.path())).unwrap();
            let original = |file: &str, found: &str, leave| Original {
                place: Place::Chip {
                    chip: "nct6798".to_owned(),
                    device: String::new(),
                    file: file.to_owned(),
                },
                found: found.to_owned(),
                safe: "255".to_owned(),
                leave,
                touched: false,
            };
            let found = vec![
                original("pwm1", "120", Leave::Keep),
                original("pwm1_enable", "5", Leave::Restore),
            ];
            let state = State::open(folder.path()).unwrap();
            state.save("", found.clone()).unwrap();
            let steering = Steering::new(&machine, found, Contest::Yield, state.clone());
            let fan = FanControl::new(0, Some(1), true);
            Self { root, folder, steering, fan, rpm: 3000.0 }
        }

        /// One cycle; what became of it, and what was said.
        fn cycle(&mut self, second: u64, share: Option<f64>, emergency: bool) -> (Outcome, String) {
            let now = Nanos::from_secs(second);
            self.steering.check(2, now, |_| false);
            let duty = self.get("pwm1").parse::<f64>().unwrap() / 255.0;
            self.fan.sensed(Some(duty), Some(Rpm(self.rpm)));
            let outcome = self.fan.set(&mut self.steering, share, emergency, now);
            let notices = self.steering.notices().into_iter().map(|notice| notice.text);
            (outcome, notices.collect())
        }

        fn file(&self, name: &str) -> std::path::PathBuf {
            self.root.path().join("sys/class/hwmon/hwmon1").join(name)
        }

        fn get(&self, name: &str) -> String {
            fs::read_to_string(self.file(name)).unwrap()
        }

        fn rival(&self, name: &str, value: &str) {
            fs::write(self.file(name), value).unwrap();
        }

        fn is(&self, mode: &str, duty: &str) -> bool {
            self.get("pwm1_enable") == mode && self.get("pwm1") == duty
        }

        fn saved(&self) -> Vec<String> {
            let saved = State::open(self.folder.path()).unwrap().load().unwrap();
            saved.unwrap().originals.into_iter().map(|one| one.found).collect()
        }
    }

    #[test]
    fn a_fan_that_nobody_steers_any_more_goes_back_to_the_board() {
        let mut bench = Bench::new();
        assert_eq!(bench.cycle(0, Some(0.5), false).0, Outcome::Done);
        assert!(bench.is("1", "128"));
        bench.rival("pwm1", "77");
        assert!(bench.cycle(1, Some(0.5), false).1.contains("theirs"));
        assert_eq!(bench.saved(), ["5"], "the mode was never theirs");
        // It steers for as long as it moves it.
        for second in 2..40 {
            bench.rival("pwm1", &(60 + second / 10).to_string());
            assert_eq!(bench.cycle(second, Some(0.5), false).0, Outcome::Changed);
            assert_eq!(bench.get("pwm1_enable"), "1");
        }
        let said: Vec<_> = (40..70).map(|at| bench.cycle(at, Some(0.5), false).1).collect();
        assert!(said.concat().contains("nobody has moved it for 20 s"), "{said:?}");
        assert!(bench.is("5", "63"));
        assert_eq!(bench.cycle(70, Some(0.5), false).0, Outcome::Refused);
        assert!(bench.fan.is_failing(&bench.steering) && bench.is("5", "63"));
    }

    #[test]
    fn a_program_for_fans_that_is_there_still_steers_what_it_does_not_move() {
        let mut bench = Bench::new();
        bench.cycle(0, Some(0.5), false);
        bench.rival("pwm1", "77");
        let process = bench.root.path().join("proc/4242");
        fs::create_dir_all(&process).unwrap();
        fs::write(process.join("comm"), "fancontrol").unwrap();
        (1..60).for_each(|at| drop(bench.cycle(at, Some(0.5), false)));
        assert!(bench.is("1", "77"));
        fs::remove_dir_all(&process).unwrap();
        (60..90).for_each(|at| drop(bench.cycle(at, Some(0.5), false)));
        assert!(bench.is("5", "77"));
    }

    #[test]
    fn an_emergency_has_every_fan_and_gives_it_back() {
        // Ours, the board's again, and a rival's by its mode or by its duty.
        let mut bench = Bench::new();
        bench.cycle(0, Some(0.5), false);
        assert_eq!(bench.cycle(1, Some(0.5), true).0, Outcome::Done);
        assert!(bench.is("1", "255"));
        assert_eq!(bench.cycle(2, None, false).0, Outcome::Done);
        assert!(bench.is("5", "120"));
        for (file, value, mode, duty) in
            [("pwm1", "77", "1", "77"), ("pwm1_enable", "2", "2", "120")]
        {
            let mut bench = Bench::new();
            bench.cycle(0, Some(0.5), false);
            bench.rival(file, value);
            bench.cycle(1, Some(0.5), false);
            bench.cycle(2, Some(0.5), true);
            assert!(bench.is("1", "255"), "{file}");
            assert!(bench.saved().contains(&value.to_owned()), "a kill gives it back");
            bench.rival(file, value);
            bench.cycle(3, Some(0.5), true);
            assert!(bench.is("1", "255"), "{file}: whoever else sets it");
            assert_eq!(bench.cycle(4, Some(0.5), false).0, Outcome::Changed);
            assert!(bench.is(mode, duty), "{file} {:?}", bench.get("pwm1"));
        }
    }

    /// nct6775 and it87 say that the mode is none (0) while the duty is 255 by hand, the first of
    /// them for 1.5 s longer.
    #[test]
    fn no_mode_at_full_duty_is_the_manual_mode() {
        let mut bench = Bench::new();
        bench.rival("pwm1", "255");
        // Whatever they make of it when it is written.
        for (second, share, said) in [(0, 1.0, "1"), (1, 1.0, "0"), (2, 1.0, "0"), (3, 0.9, "0")] {
            let (outcome, notices) = bench.cycle(second, Some(share), false);
            assert_eq!((outcome, notices.as_str()), (Outcome::Done, ""), "{second}");
            bench.rival("pwm1_enable", said);
        }
        for second in [4, 5, 10] {
            assert_eq!(bench.cycle(second, Some(0.9), false), (Outcome::Done, String::new()));
            bench.rival("pwm1_enable", "1");
        }
        // At another duty it is somebody's doing.
        bench.rival("pwm1_enable", "0");
        assert!(bench.cycle(20, Some(0.9), false).1.contains("from '1' to '0'"));
        bench.cycle(21, None, false);
        assert!(bench.is("0", "230"), "theirs");
    }

    #[test]
    fn a_fan_that_stops_goes_back_at_once() {
        let mut bench = Bench::new();
        bench.cycle(0, Some(0.4), false);
        bench.rpm = 0.0;
        bench.cycle(1, Some(0.4), false);
        assert_eq!(bench.cycle(2, Some(0.4), false).0, Outcome::Done, "one reading may be wrong");
        let (outcome, said) = bench.cycle(3, Some(0.4), false);
        assert_eq!((outcome, bench.is("5", "120")), (Outcome::Refused, true));
        assert!(said.contains("it has stopped at 40 %"), "{said}");
        bench.rpm = 3000.0;
        assert_eq!(bench.cycle(60, Some(0.4), false).0, Outcome::Refused, "until a new start");
        bench.cycle(61, Some(0.4), true);
        assert!(bench.is("1", "255"));
        bench.cycle(62, Some(0.4), false);
        assert!(bench.is("5", "120"));
    }

    #[test]
    fn a_fan_that_does_not_answer_goes_back() {
        let mut bench = Bench::new();
        for second in 0..30 {
            // It follows, with a lag.
            bench.rpm = if second < 5 { 3000.0 } else { 5000.0 };
            assert_eq!(bench.cycle(second, Some(0.8), false).0, Outcome::Done);
        }
        // A little is not to be told from noise.
        let little = (30..60).map(|at| bench.cycle(at, Some(0.7), false).0);
        assert!(little.into_iter().all(|outcome| outcome == Outcome::Done));
        let said: Vec<_> = (60..75).map(|at| bench.cycle(at, Some(0.3), false).1).collect();
        assert!(said.concat().contains("does not answer: 5000 rpm at 80 %"), "{said:?}");
        assert!(bench.is("5", "120"));
    }
}
