//! A counter of energy that is read in every cycle: one that stands still, or says what cannot be,
//! is absent, and named once.

use ebb_policy::units::{Nanos, Watts};

use crate::act::knob::Place;
use crate::act::steering::Notice;
use crate::find::energy::{Meter, Zone};
use crate::sense::watched::Watched;
use crate::sys::Sys;

/// No processor draws more over a period: four times what the largest does.
const PACKAGE: Watts = Watts(2_000.0);
/// What says nothing for so long is named: counters move within milliseconds.
const SILENT: Nanos = Nanos::from_secs(10);

/// Such a counter.
#[derive(Debug)]
pub struct EnergyCounter {
    file: Watched,
    path: String,
    meter: Meter,
    /// Since when it says nothing.
    silent: Option<Nanos>,
    said: bool,
}

impl EnergyCounter {
    /// That of `zone`.
    pub fn new(sys: &Sys, zone: &Zone) -> Self {
        let (file, path) = (Watched::new(sys, &zone.counter), zone.counter.clone());
        Self { file, path, meter: Meter::new(zone), silent: None, said: false }
    }

    /// The mean power since it was last read; why there is none for long goes to `notices`, once.
    pub fn power(&mut self, now: Nanos, notices: &mut Vec<Notice>) -> Option<Watts> {
        let power = self.file.number().map(|counter| self.meter.power(now, counter));
        let why = match power {
            Ok(Some(power)) if power.0 > 0.0 && power <= PACKAGE => {
                self.silent = None;
                return Some(power);
            }
            // The first, or it went back.
            Ok(None) => return None,
            Ok(Some(Watts(0.0))) => {
                "it stands still: absent until it moves. Many virtual machines count nothing, and \
                 firmware may have turned it off; ebb probe says which other meters are here"
                    .to_owned()
            }
            Ok(Some(power)) => format!("{power:.0} cannot be: absent until it says something else"),
            Err(absent) => format!("absent until it can be read: {absent}"),
        };
        let since = *self.silent.get_or_insert(now);
        if now.saturating_sub(since) >= SILENT && !std::mem::replace(&mut self.said, true) {
            notices.push(Notice { place: Place::File { path: self.path.clone() }, text: why });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_stands_still_is_absent_and_named_once() {
        let folder = tempfile::tempdir().unwrap();
        let put = |text: &str| std::fs::write(folder.path().join("energy_uj"), text).unwrap();
        let zone = Zone {
            folder: String::new(),
            name: "package-0".to_owned(),
            counter: "energy_uj".to_owned(),
            range: None,
        };
        let mut counter = EnergyCounter::new(&Sys::new(folder.path()), &zone);
        let mut notices = Vec::new();
        let mut read = |second: u64, notices: &mut Vec<Notice>| {
            counter.power(Nanos::from_secs(second), notices)
        };
        put("5000000");
        assert!((0..10).all(|second| read(second, &mut notices).is_none()));
        assert_eq!(notices, [], "a bounded time");
        assert!((10..40).all(|second| read(second, &mut notices).is_none()));
        assert_eq!(notices.len(), 1);
        assert!(notices[0].text.starts_with("it stands still"), "{}", notices[0].text);
        put("65000000");
        assert_eq!(read(41, &mut notices), Some(Watts(30.0)), "60 J in 2 s");
        for text in ["9000000000000", "x"] {
            put(text);
            assert_eq!(read(42, &mut notices), None, "{text}");
        }
        assert_eq!(notices.len(), 1);
    }
}
