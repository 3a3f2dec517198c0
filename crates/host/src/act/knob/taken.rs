//! What became of a value that was written: one rule for setting a place, giving it back, restoring
//! it and comparing it. It is taken where it reads back
//!
//! * as written, or near it: drivers round, a fan's chip to a few steps, a processor to its own
//!   frequencies;
//! * as a fan's duty of more air: some drivers know a few speeds alone. What they round to less air
//!   is asked for again, higher;
//! * lower, where something else limits it now: heat, the firmware, the hardware without turbo.

use std::thread;
use std::time::Duration;

use super::{At, Knob, MANUAL, MODE};
use crate::sys::{Absent, Sys};

/// The first nap of who waits for the kernel; each is twice as long as the one before, up to
/// [`LONGEST_NAP`].
const NAP: Duration = Duration::from_millis(1);
const LONGEST_NAP: Duration = Duration::from_millis(20);

/// The highest duty, and how a driver of four bits shows it (`w83792d.c`, `store_pwm`).
const FULL: f64 = 255.0;
const LEAST_FULL: f64 = 240.0;
/// So often more is asked for where a driver has rounded a duty down.
const RAISES: usize = 4;

/// What limits a highest frequency beside what is written: the file shows the lowest of all
/// (`drivers/cpufreq/cpufreq.c`, `cpufreq_set_policy`).
const LIMITS: [(&str, &str); 2] = [
    ("cpuinfo_max_freq", "the highest that the hardware allows, as with turbo turned off"),
    ("bios_limit", "the firmware (_PPC)"),
];

/// Whether a place is as it was to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// It is, as far as its driver rounds and shows it.
    So,
    /// It is lower for as long as this limits it.
    Limited(String),
    /// It is otherwise.
    Not,
}

/// What was written, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// What it was before.
    pub before: String,
    /// What it says now.
    pub is: String,
    /// Whether that is what was to be.
    pub taken: Taken,
}

impl Knob {
    /// Whether it is as `asked` where it reads `read`, whoever wrote that.
    pub fn taken(&mut self, sys: &Sys, asked: &str, read: &str) -> Taken {
        let is_full = || self.is_duty() && number(asked) >= FULL && number(read) >= LEAST_FULL;
        if is_near(asked, read) || is_full() {
            return Taken::So;
        }
        self.shown(sys, asked, read)
    }

    /// The same of what is exactly as `asked` and is shown otherwise: a manual mode, a limit.
    pub fn shown(&mut self, sys: &Sys, asked: &str, read: &str) -> Taken {
        match self.limiter(sys, asked, read) {
            Some(by) => Taken::Limited(by),
            None if self.is_manual(sys, asked, read) => Taken::So,
            None => Taken::Not,
        }
    }

    /// Sets it, and reads it back. What the kernel does later is waited for, out of `patience`.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn set(&mut self, sys: &Sys, value: &str, patience: &mut Duration) -> Result<Set, Absent> {
        let before = self.read(sys)?;
        let late = self.is_late();
        if before == value && !late {
            return Ok(Set { is: before.clone(), before, taken: Taken::So });
        }
        self.write(sys, value)?;
        let mut none = Duration::ZERO;
        let patience = if late { patience } else { &mut none };
        let read = |knob: &mut Self| {
            let is = knob.read(sys)?;
            Ok((knob.taken(sys, value, &is), is))
        };
        // What is limited now may not have come true yet.
        let is_right = |(taken, is): &(Taken, String)| match taken {
            Taken::So => true,
            Taken::Limited(_) => *is != before,
            Taken::Not => false,
        };
        let (mut taken, mut is) = settled(|| read(self), is_right, patience)?;
        if self.is_duty() {
            let mut asked = number(value);
            for _ in 0..RAISES {
                let short = number(value) - number(&is);
                if taken == Taken::So || !(short > 0.0 && asked < FULL) {
                    break;
                }
                asked = (asked + short).min(FULL);
                self.write(sys, &format!("{asked:.0}"))?;
                (taken, is) = read(self)?;
            }
            if number(&is) >= number(value) {
                taken = Taken::So;
            }
        }
        Ok(Set { before, is, taken })
    }

    /// Sets it to what was found. Nothing is to be done for a duty that its chip steers; nor where
    /// it is so and cannot be written, as in a `/sys` that has become read-only.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn give_back(
        &mut self,
        sys: &Sys,
        found: &str,
        patience: &mut Duration,
    ) -> Result<Set, Absent> {
        let so = |is: String| Set { before: is.clone(), is, taken: Taken::So };
        if self.is_steered(sys) {
            return self.read(sys).map(so);
        }
        self.set(sys, found, patience).or_else(|absent| match self.read(sys) {
            Ok(is) if self.taken(sys, found, &is) == Taken::So => Ok(so(is)),
            _ => Err(absent),
        })
    }

    /// What keeps a highest frequency below what is `asked` now.
    fn limiter(&mut self, sys: &Sys, asked: &str, read: &str) -> Option<String> {
        let At::File(device, file, _) = &mut self.at else { return None };
        let is_lower = number(read) < number(asked);
        if file != "scaling_max_freq" || !is_lower {
            return None;
        }
        let folder = device.here(sys).ok()?;
        let limits = |most: String| number(&most) < number(asked) && is_near(&most, read);
        let mut all = LIMITS.iter();
        let by = all.find(|(file, _)| folder.text(file).is_ok_and(limits));
        by.map(|(_, by)| (*by).to_owned()).or_else(|| heat(sys))
    }

    /// Whether it is a fan's mode, `set` to manual, that reads 0 (none) while the duty is 255, as
    /// some drivers show the manual mode (`reg_to_pwm_enable` of nct6775, `pwm_mode` of it87).
    fn is_manual(&mut self, sys: &Sys, set: &str, read: &str) -> bool {
        let At::File(device, file, _) = &mut self.at else { return false };
        if (set, read) != (MANUAL, "0") {
            return false;
        }
        let Some(duty) = file.strip_suffix(MODE) else { return false };
        let read = device.here(sys).and_then(|folder| folder.text(duty));
        read.is_ok_and(|duty| duty == "255")
    }

    /// Whether it is the duty of a fan.
    fn is_duty(&self) -> bool {
        matches!(&self.at, At::File(_, file, _) if file.starts_with("pwm") && !file.ends_with(MODE))
    }

    /// Whether it is the duty of a fan that its chip steers, which is nobody else's to set.
    pub fn is_steered(&mut self, sys: &Sys) -> bool {
        if !self.is_duty() {
            return false;
        }
        let At::File(device, file, _) = &mut self.at else { return false };
        let mode = device.here(sys).and_then(|folder| folder.text(&format!("{file}{MODE}")));
        mode.is_ok_and(|mode| mode.parse::<u32>().is_ok_and(|mode| mode > 1))
    }
}

/// The device by which heat limits frequencies now (`drivers/thermal/cpufreq_cooling.c`,
/// `drivers/acpi/processor_thermal.c`).
fn heat(sys: &Sys) -> Option<String> {
    const DEVICES: &str = "sys/class/thermal";
    sys.numbered(DEVICES, "cooling_device").into_iter().find_map(|device| {
        let of = |file: &str| sys.text(format!("{DEVICES}/{device}/{file}"));
        let limits = |of: String| of == "Processor" || of.contains("cpufreq");
        let is = of("type").is_ok_and(limits) && of("cur_state").is_ok_and(|state| state != "0");
        is.then(|| format!("heat ({device})"))
    })
}

/// What cannot be told is no number, and is neither more nor less than any.
fn number(text: &str) -> f64 {
    text.parse().unwrap_or(f64::NAN)
}

/// What `read` says once `is_right`, or when all of `patience` has gone.
fn settled<T>(
    mut read: impl FnMut() -> Result<T, Absent>,
    is_right: impl Fn(&T) -> bool,
    patience: &mut Duration,
) -> Result<T, Absent> {
    let mut nap = NAP;
    loop {
        let is = read()?;
        if is_right(&is) || patience.is_zero() {
            return Ok(is);
        }
        let length = nap.min(*patience);
        thread::sleep(length);
        *patience -= length;
        nap = (nap * 2).min(LONGEST_NAP);
    }
}

/// Whether what was read back is what was written, as far as all drivers round.
fn is_near(written: &str, read: &str) -> bool {
    let numbers = (written.parse::<f64>(), read.parse::<f64>());
    let (Ok(written), Ok(read)) = numbers else { return written == read };
    let coarse = written >= 16.0;
    written == read || coarse && (written - read).abs() <= (0.02 * written).max(4.0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::act::knob::Place;
    use crate::find::machine::Machine;

    /// A frequency that something else limits says so in the same file as one that is written.
    #[test]
    fn heat_firmware_and_a_turbo_turned_off_are_nobody() {
        const POLICY: &str = "sys/devices/system/cpu/cpufreq/policy0";
        let taken = |file: &str, read: &str, files: &[(&str, &str)]| {
            let root = tempfile::tempdir().unwrap();
            let put = |file: &str, text: &str| {
                let file = root.path().join(file);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            };
            put("sys/devices/system/cpu/online", "0");
            put(&format!("{POLICY}/{file}"), read);
            files.iter().for_each(|(file, text)| put(file, text));
            let machine = Machine::found(Sys::new(root.path())).unwrap();
            let path = format!("{POLICY}/{file}");
            let mut knob = Knob::find(&machine, &Place::File { path }).unwrap();
            match knob.taken(&machine.sys, "3400000", read) {
                Taken::So => "so".to_owned(),
                Taken::Limited(by) => by,
                Taken::Not => "not".to_owned(),
            }
        };
        let limited = |files: &[(&str, &str)], read: &str| taken("scaling_max_freq", read, files);
        let max = |name: &str| format!("{POLICY}/{name}");
        let (turbo, firmware) = (max("cpuinfo_max_freq"), max("bios_limit"));
        assert_eq!(limited(&[], "3390000"), "so");
        assert_eq!(limited(&[(&turbo, "3400000"), (&firmware, "3400000")], "2400000"), "not");
        assert!(limited(&[(&turbo, "2400000")], "2400000").contains("turbo"));
        assert!(limited(&[(&firmware, "2400000")], "2400000").contains("firmware"));
        assert_eq!(limited(&[(&turbo, "2400000")], "1900000"), "not", "lower than that");
        const KIND: &str = "sys/class/thermal/cooling_device7/type";
        const STATE: &str = "sys/class/thermal/cooling_device7/cur_state";
        let heat = "heat (cooling_device7)";
        for (kind, state, read, is) in [
            ("Processor", "2", "1900000", heat),
            ("cpufreq-cpu0", "1", "1900000", heat),
            ("Processor", "2", "3500000", "not"),
            ("Processor", "0", "1900000", "not"),
            ("Fan", "3", "1900000", "not"),
        ] {
            assert_eq!(limited(&[(KIND, kind), (STATE, state)], read), is, "{kind} {state} {read}");
        }
        let hot = [(KIND, "Processor"), (STATE, "2")];
        assert_eq!(taken("scaling_min_freq", "1900000", &hot), "not");
    }

    #[test]
    fn what_comes_true_later_is_waited_for_but_not_for_ever() {
        let mut reads = 0;
        let mut late = || {
            reads += 1;
            Ok(if reads < 4 { "2400000" } else { "2000000" }.to_owned())
        };
        let mut patience = Duration::from_secs(60);
        let is = settled(&mut late, |is| is == "2000000", &mut patience).unwrap();
        assert_eq!((is.as_str(), patience), ("2000000", Duration::from_millis(60_000 - 7)));
        let mut patience = Duration::from_millis(5);
        let is = settled(|| Ok("1".to_owned()), |is| is == "2", &mut patience).unwrap();
        assert_eq!((is.as_str(), patience), ("1", Duration::ZERO));
    }

    #[test]
    fn a_value_that_is_rounded_is_the_value() {
        for (written, read, near) in
            [("128", "127", true), ("128", "120", false), ("2000000", "1990000", true)]
        {
            assert_eq!(is_near(written, read), near, "{written} {read}");
        }
        assert!(!is_near("3", "2"), "a power state is not rounded");
        assert!(is_near("4-7", "4-7") && !is_near("4-7", "root invalid"));
    }
}
