//! What the operator states anew while a run goes on: `--change`.

use ebb_policy::registry::Settings;
use ebb_policy::units::{Nanos, Watts, parse_tolerance};

/// Another tolerance or budget from a time on.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// From when on.
    pub at: Nanos,
    plf: Option<f64>,
    ssd_budget: Option<Watts>,
    server_budget: Option<Watts>,
}

impl Change {
    /// Reads `TIME: plf SHARE, ssd-budget POWER, server-budget POWER`, one of them or more.
    pub fn parse(text: &str) -> Result<Self, String> {
        let example = "write such as \"20 s: plf 10%, ssd-budget 150 W\"";
        let (at, stated) = text.split_once(':').ok_or_else(|| example.to_owned())?;
        let at = at.trim().parse().map_err(|error| format!("{error}; {example}"))?;
        let mut change = Self { at, plf: None, ssd_budget: None, server_budget: None };
        for part in stated.split(',') {
            let (name, value) = part.trim().split_once(' ').ok_or_else(|| example.to_owned())?;
            match name {
                "plf" if change.plf.is_none() => {
                    let share = parse_tolerance(value.trim());
                    change.plf = Some(share.map_err(|error| format!("{error}; {example}"))?);
                }
                "ssd-budget" if change.ssd_budget.is_none() => {
                    change.ssd_budget = Some(power(value, example)?);
                }
                "server-budget" if change.server_budget.is_none() => {
                    change.server_budget = Some(power(value, example)?);
                }
                "plf" | "ssd-budget" | "server-budget" => {
                    return Err(format!("{name} is stated twice; {example}"));
                }
                _ => return Err(format!("'{name}' cannot change in a run; {example}")),
            }
        }
        Ok(change)
    }

    /// Settings as they are after it.
    pub fn applied(&self, before: &Settings) -> Settings {
        Settings {
            plf: self.plf.unwrap_or(before.plf),
            tail: before.tail,
            ssd_budget: self.ssd_budget.or(before.ssd_budget),
            server_budget: self.server_budget.or(before.server_budget),
            curve: before.curve.clone(),
        }
    }
}

fn power(text: &str, example: &str) -> Result<Watts, String> {
    text.trim().parse().map_err(|error| format!("{error}; {example}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_read_and_the_rest_stays() {
        let change = Change::parse("20 s: plf 10%, ssd-budget 150 W").unwrap();
        assert_eq!(change.at, Nanos::from_secs(20));
        let before = Settings { ssd_budget: Some(Watts(200.0)), ..Settings::default() };
        let settings = |plf, watts| {
            let ssd_budget = Some(Watts(watts));
            Settings { plf, ssd_budget, ..Settings::default() }
        };
        assert_eq!(change.applied(&before), settings(0.1, 150.0));
        assert_eq!(Change::parse("1 min:plf 0.3").unwrap().applied(&before), settings(0.3, 200.0));
        let change = Change::parse("9 s: server-budget 300 W").unwrap();
        let settings = change.applied(&before);
        assert_eq!(settings, Settings { server_budget: Some(Watts(300.0)), ..before });
        for wrong in ["", "20 s", "20: plf 1", "20 s:", "20 s: plf", "20 s: plf x", "20 s: seed 2"]
        {
            assert!(Change::parse(wrong).is_err(), "{wrong}");
        }
        assert!(Change::parse("20 s: plf 1, plf 2").unwrap_err().contains("twice"));
    }
}
