//! Energy counters of processors (`Documentation/power/powercap/powercap.rst`).

use ebb_policy::units::{Joules, Nanos, Watts};

use crate::sys::{Absent, Sys};

/// Where Linux has its zones.
const ROOT: &str = "sys/class/powercap";

/// One zone, such as a package or its memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    /// Its folder.
    pub folder: String,
    /// Its name, such as `package-0`, `dram` or `psys`.
    pub name: String,
    /// Where its counter starts again, in microjoules.
    pub range: u64,
}

impl Zone {
    /// All zones, of Intel's driver and of any other of its kind, a package before its parts.
    #[must_use]
    pub fn found(sys: &Sys) -> Vec<Self> {
        let zone = |name: &String| {
            let folder = format!("{ROOT}/{name}");
            // Not readable without root since Linux 5.10; the zone is there all the same.
            let has_counter = sys.has(format!("{folder}/energy_uj"));
            let name = sys.text(format!("{folder}/name")).ok().filter(|_| has_counter)?;
            let range = sys.number(format!("{folder}/max_energy_range_uj")).ok()?;
            Some(Self { folder, name, range })
        };
        // `intel-rapl-mmio` counts the same joules a second time.
        let zones = sys.names(ROOT).into_iter().filter(|name| !name.contains("mmio"));
        zones.filter_map(|name| zone(&name)).collect()
    }

    /// Whether it is a whole socket: its parts are in it and never added to it.
    #[must_use]
    pub fn is_package(&self) -> bool {
        self.name.starts_with("package-")
    }

    /// The counter, in microjoules.
    ///
    /// # Errors
    /// Why there is none.
    pub fn read(&self, sys: &Sys) -> Result<u64, Absent> {
        sys.number(format!("{}/energy_uj", self.folder))
    }
}

/// Turns the readings of one zone into mean power.
#[derive(Debug, Clone, PartialEq)]
pub struct Meter {
    range: u64,
    last: Option<(Nanos, u64)>,
}

impl Meter {
    /// A meter of `zone` without a reading yet.
    #[must_use]
    pub fn new(zone: &Zone) -> Self {
        Self { range: zone.range, last: None }
    }

    /// Mean power since the last reading; `None` of the first one, of a second one at the same
    /// time, and of one beyond the counter's range. One wrap in between is seen through; a package
    /// of 400 W takes ten minutes for one.
    pub fn power(&mut self, now: Nanos, counter: u64) -> Option<Watts> {
        let counter = Some(counter).filter(|counter| *counter <= self.range);
        let last = std::mem::replace(&mut self.last, counter.map(|counter| (now, counter)));
        let ((then, before), counter) = (last?, counter?);
        let micros = match counter.checked_sub(before) {
            Some(micros) => micros,
            // The value after the range is 0.
            None => (self.range - before).saturating_add(counter).saturating_add(1),
        };
        (now > then).then(|| Joules(micros as f64 * 1e-6) / now.saturating_sub(then))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever a zone draws, and wherever its counter wraps: the sum of what the meter says is
        /// what it drew.
        #[test]
        fn a_wrap_is_seen_through(
            range in 1_000_000_u64..1 << 40, start in any::<u64>(),
            drawn in proptest::collection::vec(0.0..1.0_f64, 1..50),
        ) {
            let zone = Zone { folder: String::new(), name: "package-0".into(), range };
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
        let zone = Zone { folder: String::new(), name: "package-0".into(), range: 1000 };
        let mut meter = Meter::new(&zone);
        let second = Nanos::from_secs;
        assert_eq!(meter.power(second(1), 500), None, "the first");
        assert_eq!(meter.power(second(1), 600), None, "no time between");
        assert_eq!(meter.power(second(2), 1001), None, "beyond the range");
        assert_eq!(meter.power(second(3), 700), None, "and it is forgotten");
        assert_eq!(meter.power(second(4), 1000), Some(Watts(300.0 * 1e-6)));
    }
}
