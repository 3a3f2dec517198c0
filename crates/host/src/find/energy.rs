//! Energy counters of processors (`Documentation/power/powercap/powercap.rst`,
//! `Documentation/hwmon/amd_energy.rst` of Linux 5.8 to 5.12).

use std::collections::{BTreeMap, BTreeSet};

use ebb_policy::units::{Joules, Nanos, Watts};

use crate::find::hwmon::Chip;
use crate::sys::{Absent, Sys};

/// Where Linux has its zones.
const ROOT: &str = "sys/class/powercap";

/// What the zone of a whole board is.
const PSYS: &str = "psys counts what the board's maker chose, neither the packages nor the server; \
                    an update of the firmware or the kernel may bring their own counters";

/// What any other zone is.
const PART: &str = "a part of a package, which stands for no whole; see whether the firmware hides \
                    the packages' own counters, or has an update";

/// No package is limited to less than this share of what it can draw: cores stand at their lowest
/// frequency by then, and some firmware takes next to nothing for no limit.
const LEAST: f64 = 0.1;
/// No package draws more: twice the largest design power (500 W, Xeon 6900P and EPYC 9005).
const MOST: Watts = Watts(1000.0);

/// The chips of AMD's energy driver: the kernel's, and what goes on with it outside.
const AMD: [&str; 2] = ["amd_energy", "zenergy"];

/// What it means that a zone is listed and has no files.
const HIDDEN: &str = "it is listed and has no files: they are hidden from this container or \
                      sandbox; run ebb on the host, or with the host's /sys";

/// One zone, such as a package or its memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// Its folder.
    pub folder: String,
    /// Its name, such as `package-0`, `dram` or `psys`.
    pub name: String,
    /// The file of its counter, in microjoules.
    pub counter: String,
    /// Where its counter starts again, in microjoules; `None` where nobody says.
    pub range: Option<u64>,
}

impl Zone {
    /// All zones, of Intel's driver and of any other of its kind, a package before its parts; where
    /// there is none, the sockets of AMD's energy driver. Two control types that have packages
    /// (`intel-rapl`, and beside it `intel-rapl-mmio` or `intel-rapl-tpmi`) count the same joules:
    /// the first that has most sockets counts.
    #[must_use]
    pub fn found(sys: &Sys, chips: &[Chip]) -> Vec<Self> {
        let zones = sys.names(ROOT).into_iter().filter_map(|name| Self::at(sys, &name).ok());
        let mut zones: Vec<_> = zones.collect();
        let mut sockets = BTreeMap::<String, BTreeSet<String>>::new();
        for zone in zones.iter().filter(|zone| zone.is_package()) {
            let own = sockets.entry(zone.control_type().to_owned()).or_default();
            own.insert(zone.socket().to_owned());
        }
        let most = sockets.iter().rev().max_by_key(|(_, own)| own.len()).map(|(kind, _)| kind);
        let counts = |kind: &str| most.is_some_and(|most| most == kind);
        zones.retain(|zone| {
            let kind = zone.control_type();
            counts(kind) || !sockets.contains_key(kind)
        });
        if most.is_none() {
            zones.extend(chips.iter().flat_map(|chip| Self::of_chip(sys, chip)));
        }
        zones
    }

    /// The zones of a control type that have this name.
    #[must_use]
    pub fn named(sys: &Sys, control_type: &str, name: &str) -> Vec<Self> {
        let all = sys.names(ROOT).into_iter().filter_map(|folder| Self::at(sys, &folder).ok());
        let is_it = |zone: &Self| (zone.control_type(), &*zone.name) == (control_type, name);
        all.filter(is_it).collect()
    }

    /// The zone of a folder; without one why, unless it is only a limit.
    fn at(sys: &Sys, name: &str) -> Result<Self, Option<String>> {
        let folder = format!("{ROOT}/{name}");
        let (counter, named) = (format!("{folder}/energy_uj"), format!("{folder}/name"));
        // Not readable without root since Linux 5.10; the zone is there all the same.
        if !sys.has(&counter) {
            return Err((!sys.has(named)).then(|| HIDDEN.to_owned()));
        }
        let name = sys.text(named).map_err(|absent| {
            format!("it does not say what it counts: {absent}; see what the kernel's log says")
        })?;
        let range = sys.number(format!("{folder}/max_energy_range_uj"));
        Ok(Self { folder, name, counter, range: range.ok().filter(|range| *range > 0) })
    }

    /// What is listed and does not count energy, or that of a board or a part alone where `psys` or
    /// `parts` are to be told, and why.
    #[must_use]
    pub fn left(sys: &Sys, psys: bool, parts: bool) -> Vec<(String, String)> {
        // Without a colon it is a kind of zone, with two a part of a package.
        let is_top = |name: &str| name.matches(':').count() == 1;
        let names = sys.names(ROOT).into_iter().filter(|name| name.contains(':'));
        let why = |name: &String| match Self::at(sys, name) {
            Ok(zone) if zone.name == "psys" => psys.then(|| PSYS.to_owned()),
            Ok(zone) => parts.then(|| format!("{} is {PART}", zone.name)),
            Err(why) => why.filter(|_| is_top(name)),
        };
        names.filter_map(|name| Some((format!("{ROOT}/{name}"), why(&name)?))).collect()
    }

    /// The sockets of AMD's energy driver, whose counters of 64 bits start again after years.
    fn of_chip(sys: &Sys, chip: &Chip) -> Vec<Self> {
        let folder = &chip.folder;
        let own = sys.names(folder).into_iter().filter(|_| AMD.contains(&&*chip.name));
        let socket = |file: String| {
            let input = file.strip_suffix("_input").filter(|input| input.starts_with("energy"))?;
            let name = sys.text(format!("{folder}/{input}_label")).ok()?;
            let counter = format!("{folder}/{file}");
            Some(Self { folder: folder.clone(), name, counter, range: None })
                .filter(Self::is_package)
        };
        own.filter_map(socket).collect()
    }

    /// Whether it is a whole socket: its parts are in it and never added to it.
    #[must_use]
    pub fn is_package(&self) -> bool {
        self.name.starts_with("package-") || self.name.starts_with("Esocket")
    }

    /// The socket that it is of or in: `package-1` of `package-1-die-0`.
    #[must_use]
    pub fn socket(&self) -> &str {
        self.name.split_once("-die-").map_or(&self.name, |(socket, _)| socket)
    }

    /// What kind of zone it is, such as `intel-rapl`: two kinds may have zones of one name.
    #[must_use]
    pub fn control_type(&self) -> &str {
        let name = self.folder.rsplit('/').next().unwrap_or_default();
        name.split_once(':').map_or(name, |(control_type, _)| control_type)
    }

    /// The file of its long-term limit, in microwatts: limits are told apart by their names alone.
    #[must_use]
    pub fn limit(&self, sys: &Sys) -> Option<String> {
        self.long_term(sys, "power_limit")
    }

    /// That limit now.
    #[must_use]
    pub fn power_limit(&self, sys: &Sys) -> Option<Watts> {
        self.watts(sys, "power_limit")
    }

    /// The least that it is limited to, where `found` is its limit as found. A limit above what a
    /// package can draw is none: firmware writes the register's most, 4,096 W, to turn it off.
    #[must_use]
    pub fn least(&self, sys: &Sys, found: Watts) -> Watts {
        let stated = self.watts(sys, "max_power").filter(|most| most.0 > 0.0);
        [MOST].into_iter().chain(stated).fold(found, Watts::min) * LEAST
    }

    /// A file of the long-term limit.
    fn long_term(&self, sys: &Sys, what: &str) -> Option<String> {
        let name = |number: &usize| sys.text(format!("{}/constraint_{number}_name", self.folder));
        let number = (0..8).find(|number| name(number).is_ok_and(|name| name == "long_term"))?;
        Some(format!("constraint_{number}_{what}_uw"))
    }

    fn watts(&self, sys: &Sys, what: &str) -> Option<Watts> {
        let file = format!("{}/{}", self.folder, self.long_term(sys, what)?);
        sys.number::<u64>(file).ok().map(|micros| Watts(micros as f64 * 1e-6))
    }

    /// Whether its limits are turned off.
    #[must_use]
    pub fn is_unlimited(&self, sys: &Sys) -> bool {
        sys.text(format!("{}/enabled", self.folder)).is_ok_and(|enabled| enabled == "0")
    }

    /// The counter, in microjoules.
    ///
    /// # Errors
    /// Why there is none.
    pub fn read(&self, sys: &Sys) -> Result<u64, Absent> {
        sys.number(&self.counter)
    }
}

/// Turns the readings of one zone into mean power.
#[derive(Debug, Clone, PartialEq)]
pub struct Meter {
    range: Option<u64>,
    last: Option<(Nanos, u64)>,
}

impl Meter {
    /// A meter of `zone` without a reading yet.
    #[must_use]
    pub fn new(zone: &Zone) -> Self {
        Self { range: zone.range, last: None }
    }

    /// Mean power since the last reading; `None` of the first one, of a second one at the same
    /// time, and of one that went back where the range is not known. One wrap in between is seen
    /// through; a package of 400 W takes ten minutes for one.
    pub fn power(&mut self, now: Nanos, counter: u64) -> Option<Watts> {
        // A counter beyond it belies the range.
        self.range = self.range.filter(|range| counter <= *range);
        let (then, before) = self.last.replace((now, counter))?;
        let micros = match (counter.checked_sub(before), self.range) {
            (Some(micros), _) => micros,
            // The value after the range is 0.
            (None, Some(range)) => {
                range.checked_sub(before)?.saturating_add(counter).saturating_add(1)
            }
            (None, None) => return None,
        };
        (now > then).then(|| Joules(micros as f64 * 1e-6) / now.saturating_sub(then))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn zone(range: Option<u64>) -> Zone {
        let (folder, counter) = (String::new(), String::new());
        Zone { folder, name: "package-0".into(), counter, range }
    }

    proptest! {
        /// Whatever a zone draws, and wherever its counter wraps: the sum of what the meter says is
        /// what it drew.
        #[test]
        fn a_wrap_is_seen_through(
            range in 1_000_000_u64..1 << 40, start in any::<u64>(),
            drawn in proptest::collection::vec(0.0..1.0_f64, 1..50),
        ) {
            let zone = zone(Some(range));
            let (mut meter, mut counter) = (Meter::new(&zone), start % (range + 1));
            prop_assert_eq!(meter.power(Nanos::ZERO, counter), None);
            for (second, share) in drawn.iter().enumerate() {
                let micros = (share * range as f64) as u64;
                counter = (counter + micros) % (range + 1);
                let power = meter.power(Nanos::from_secs(second as u64 + 1), counter).unwrap();
                prop_assert!((power.0 - micros as f64 * 1e-6).abs() <= 1e-6 * power.0.max(1.0));
            }
        }
    }

    #[test]
    fn what_is_no_reading_is_none() {
        let second = Nanos::from_secs;
        let mut meter = Meter::new(&zone(Some(1000)));
        assert_eq!(meter.power(second(1), 500), None, "the first");
        assert_eq!(meter.power(second(1), 600), None, "no time between");
        assert_eq!(meter.power(second(2), 100), Some(Watts(501.0 * 1e-6)), "a wrap");
        assert_eq!(meter.power(second(3), 1100), Some(Watts(1000.0 * 1e-6)));
        assert_eq!(meter.power(second(4), 700), None, "a range that was belied explains no step");
        assert_eq!(meter.power(second(5), 1000), Some(Watts(300.0 * 1e-6)));
    }

    #[test]
    fn without_a_range_a_step_back_is_skipped() {
        let second = Nanos::from_secs;
        let mut meter = Meter::new(&zone(None));
        assert_eq!(meter.power(second(1), 4_000_000_000), None);
        assert_eq!(meter.power(second(2), 4_100_000_000), Some(Watts(100.0)));
        assert_eq!(meter.power(second(3), 7), None);
        assert_eq!(meter.power(second(4), 50_000_007), Some(Watts(50.0)));
    }
}
