//! Settings by the time of day: `[[schedule]]`.

use ebb_policy::units::Watts;
use jiff::civil::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::share::{Written, some_tolerance};

/// A time of day and what holds in it. Where two cover the same time, the later one in the file
/// holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// Its first minute, in local time.
    from: Clock,
    /// The minute after its last; before `from`, it is that of the next day.
    to: Clock,
    /// Instead of the `plf` of other times.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "some_tolerance")]
    #[schemars(with = "Written")]
    plf: Option<f64>,
    /// Instead of the `ssd_budget` of other times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("examples" = ["224 W"]))]
    ssd_budget: Option<Watts>,
    /// Instead of the `server_budget` of other times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("examples" = ["224 W"]))]
    server_budget: Option<Watts>,
}

/// A time of day, `HH:MM`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
struct Clock(#[schemars(with = "String", regex(pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$"))] u16);

impl Serialize for Clock {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{:02}:{:02}", self.0 / 60, self.0 % 60))
    }
}

impl<'de> Deserialize<'de> for Clock {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let parts = text.split_once(':').and_then(|(hour, minute)| {
            let two = |part: &str| part.parse::<u16>().ok().filter(|_| part.len() == 2);
            Some((two(hour)?, two(minute)?))
        });
        match parts {
            Some((hour @ 0..24, minute @ 0..60)) => Ok(Self(hour * 60 + minute)),
            Some((24, 0)) => Err(de::Error::custom("midnight is \"00:00\"")),
            _ => Err(de::Error::custom(format!("'{text}' is no time of day: write \"22:00\""))),
        }
    }
}

impl Span {
    /// Whether it sets a budget of the drives.
    pub fn has_budget(&self) -> bool {
        self.ssd_budget.is_some()
    }

    /// Whether it says when it holds, and what.
    ///
    /// # Errors
    /// The key of what is wrong, and what would be right.
    pub fn check(&self) -> Result<(), (&'static str, &'static str)> {
        if self.from == self.to {
            return Err(("to", " is from: what holds all day is written outside of [[schedule]]"));
        }
        are_budgets(self.ssd_budget, self.server_budget)?;
        let sets = self.plf.is_some() || self.has_budget() || self.server_budget.is_some();
        let nothing = " sets nothing: write plf, ssd_budget or server_budget";
        if sets { Ok(()) } else { Err(("from", nothing)) }
    }

    /// The budget of the whole server that it sets.
    pub fn server_budget(&self) -> Option<Watts> {
        self.server_budget
    }

    fn covers(&self, now: Clock) -> bool {
        if self.from < self.to {
            (self.from..self.to).contains(&now)
        } else {
            now >= self.from || now < self.to
        }
    }
}

/// Whether budgets are more than nothing.
///
/// # Errors
/// The key of what is not, and what would be right.
pub fn are_budgets(
    drives: Option<Watts>,
    server: Option<Watts>,
) -> Result<(), (&'static str, &'static str)> {
    let all = [("ssd_budget", drives), ("server_budget", server)];
    let none = all.into_iter().find(|(_, budget)| budget.is_some_and(|budget| budget.0 <= 0.0));
    none.map_or(Ok(()), |(key, _)| Err((key, " is no budget: write more than 0 W")))
}

/// What holds at some time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InEffect {
    /// The tolerated loss.
    pub plf: f64,
    /// The budget of the drives.
    pub ssd_budget: Option<Watts>,
    /// The budget of the whole server.
    pub server_budget: Option<Watts>,
}

impl InEffect {
    /// What holds at the local time `now`, where this is `usual` and `spans` say otherwise.
    pub fn at(usual: Self, spans: &[Span], now: Time) -> Self {
        let now = Clock(now.hour() as u16 * 60 + now.minute() as u16);
        let spans = spans.iter().filter(|span| span.covers(now));
        spans.fold(usual, |held, span| Self {
            plf: span.plf.unwrap_or(held.plf),
            ssd_budget: span.ssd_budget.or(held.ssd_budget),
            server_budget: span.server_budget.or(held.server_budget),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct File {
        schedule: Vec<Span>,
    }

    fn held(text: &str, hour: i8, minute: i8) -> (f64, Option<f64>) {
        let file: File = toml::from_str(text).unwrap();
        let (ssd_budget, server_budget) = (Some(Watts(200.0)), None);
        let usual = InEffect { plf: 0.1, ssd_budget, server_budget };
        let now = Time::new(hour, minute, 30, 0).unwrap();
        let held = InEffect::at(usual, &file.schedule, now);
        (held.plf, held.ssd_budget.map(|budget| budget.0))
    }

    #[test]
    fn a_night_goes_over_midnight_and_the_later_span_holds() {
        let text = r#"
            [[schedule]]
            from = "22:00"
            to = "06:00"
            plf = "50%"
            [[schedule]]
            from = "23:30"
            to = "23:45"
            ssd_budget = "90 W"
        "#;
        assert_eq!(held(text, 21, 59), (0.1, Some(200.0)));
        assert_eq!(held(text, 22, 0), (0.5, Some(200.0)));
        assert_eq!(held(text, 23, 44), (0.5, Some(90.0)));
        assert_eq!(held(text, 5, 59), (0.5, Some(200.0)));
        assert_eq!(held(text, 6, 0), (0.1, Some(200.0)));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for (wrong, says) in [
            ("24:00", "midnight is \"00:00\""),
            ("24:01", "22:00"),
            ("9:00", "22:00"),
            ("12:60", "22:00"),
            ("noon", "22:00"),
            ("12", "22:00"),
        ] {
            let text = format!("[[schedule]]\nfrom = \"{wrong}\"\nto = \"01:00\"");
            let error = toml::from_str::<File>(&text).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
