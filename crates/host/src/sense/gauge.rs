//! A sensor's file whose value is believed only where it can be one: what else it says is absent,
//! and named once.

use std::ops::RangeInclusive;

use crate::act::knob::Place;
use crate::act::steering::Notice;
use crate::find::hwmon::fault_file;
use crate::sense::watched::Watched;
use crate::sys::Sys;

/// Such a file.
#[derive(Debug)]
pub struct Gauge {
    file: Watched,
    /// Where the driver says whether the sensor has a fault, if it does.
    fault: Option<Watched>,
    path: String,
    /// What the file counts in, to a unit.
    per: f64,
    unit: &'static str,
    believed: RangeInclusive<f64>,
    said: bool,
}

impl Gauge {
    /// The file `path` of whole numbers, `per` of which are a unit.
    pub fn new(
        sys: &Sys,
        path: String,
        (per, unit): (f64, &'static str),
        believed: RangeInclusive<f64>,
    ) -> Self {
        let file = Watched::new(sys, &path);
        let fault = Some(fault_file(&path)).filter(|fault| sys.has(fault));
        let fault = fault.map(|fault| Watched::new(sys, &fault));
        Self { file, fault, path, per, unit, believed, said: false }
    }

    /// The same, of which it is said already why there is no value.
    pub fn told(self, said: bool) -> Self {
        Self { said, ..self }
    }

    /// Where it is read.
    pub fn place(&self) -> Place {
        Place::File { path: self.path.clone() }
    }

    /// The value in its unit; why there is none goes to `notices`, the first time.
    pub fn read(&mut self, notices: &mut Vec<Notice>) -> Option<f64> {
        let fault = self.fault.as_mut().and_then(|fault| fault.number::<u32>().ok());
        let why = match self.file.number::<i64>().map(|number| number as f64 / self.per) {
            Ok(_) if fault.is_some_and(|fault| fault != 0) => {
                "its driver reports a fault: absent for as long as it does; see what `sensors` \
                 says, and whether it is connected"
                    .to_owned()
            }
            Ok(value) if self.believed.contains(&value) => return Some(value),
            Ok(value) => format!(
                "{value} {} cannot be: absent until it says something else; see what `sensors` \
                 says, and whether the firmware has an update",
                self.unit
            ),
            Err(absent) => format!("absent until it can be read: {absent}"),
        };
        if !std::mem::replace(&mut self.said, true) {
            notices.push(Notice { place: self.place(), text: why });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_absent_and_named_once() {
        let folder = tempfile::tempdir().unwrap();
        let put = |text: &str| std::fs::write(folder.path().join("temp1_input"), text).unwrap();
        let sys = Sys::new(folder.path());
        let mut gauge = Gauge::new(&sys, "temp1_input".into(), (1e3, "°C"), 1.0..=150.0);
        let mut notices = Vec::new();
        put("41500");
        assert_eq!(gauge.read(&mut notices), Some(41.5));
        for odd in ["255000", "-128000", "0", "x"] {
            put(odd);
            assert_eq!(gauge.read(&mut notices), None, "{odd}");
        }
        put("42000");
        assert_eq!(gauge.read(&mut notices), Some(42.0));
        assert_eq!(notices.len(), 1);
        assert!(notices[0].text.starts_with("255 °C cannot be"), "{}", notices[0].text);
        assert_eq!(notices[0].place.to_string(), "/temp1_input");
    }

    #[test]
    fn what_has_a_fault_is_absent_for_as_long_as_it_has() {
        let folder = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| std::fs::write(folder.path().join(file), text).unwrap();
        put("fan1_input", "480");
        put("fan1_fault", "1");
        let sys = Sys::new(folder.path());
        let mut gauge = Gauge::new(&sys, "fan1_input".into(), (1.0, "rpm"), 0.0..=1e4);
        let mut notices = Vec::new();
        assert_eq!([gauge.read(&mut notices), gauge.read(&mut notices)], [None, None]);
        assert!(notices.len() == 1 && notices[0].text.contains("reports a fault"), "{notices:?}");
        put("fan1_fault", "0");
        assert_eq!(gauge.read(&mut notices), Some(480.0));
    }
}
