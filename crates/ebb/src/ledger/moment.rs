//! A moment as an operator says it.

use jiff::civil::{DateTime, Weekday};
use jiff::{Span, ToSpan, Zoned};

const DAYS: [(&str, Weekday); 7] = [
    ("monday", Weekday::Monday),
    ("tuesday", Weekday::Tuesday),
    ("wednesday", Weekday::Wednesday),
    ("thursday", Weekday::Thursday),
    ("friday", Weekday::Friday),
    ("saturday", Weekday::Saturday),
    ("sunday", Weekday::Sunday),
];

/// The moment that `text` means at `now`: the begin of a day by its name or date, the time of a
/// day, or how long ago.
///
/// # Errors
/// What could be written instead.
pub fn moment(text: &str, now: &Zoned) -> Result<Zoned, String> {
    let word = text.trim().to_lowercase();
    let begin = |back: i64| now.checked_sub(back.days())?.start_of_day();
    let named = DAYS.iter().find(|(name, _)| *name == word);
    let found = if let Some((_, day)) = named {
        begin(i64::from(day.until(now.weekday())))
    } else if word == "today" {
        begin(0)
    } else if word == "yesterday" {
        begin(1)
    } else if let Ok(ago) = word.parse::<Span>() {
        now.checked_sub(ago)
    } else {
        // Of a date alone its begin.
        word.parse::<DateTime>().and_then(|at| at.to_zoned(now.time_zone().clone()))
    };
    let known = "monday, today, 2026-11-23, \"2026-11-23 18:00\" or \"7 days\"";
    found.map_err(|_| format!("\"{text}\": write such as {known}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_dates_and_spans_are_understood() {
        let now: Zoned = "2026-11-27T10:30:00+01:00[+01:00]".parse().unwrap();
        for (text, is) in [
            ("monday", "2026-11-23T00:00:00"),
            ("Friday", "2026-11-27T00:00:00"),
            ("saturday", "2026-11-21T00:00:00"),
            ("today", "2026-11-27T00:00:00"),
            ("yesterday", "2026-11-26T00:00:00"),
            ("2026-11-23", "2026-11-23T00:00:00"),
            ("2026-11-23 18:00", "2026-11-23T18:00:00"),
            ("7 days", "2026-11-20T10:30:00"),
            ("36 h", "2026-11-25T22:30:00"),
            ("2 months", "2026-09-27T10:30:00"),
        ] {
            assert_eq!(moment(text, &now).unwrap().datetime(), is.parse().unwrap(), "{text}");
        }
        for bad in ["", "someday", "2026-13-01", "7"] {
            assert!(moment(bad, &now).unwrap_err().contains("write such as"), "{bad}");
        }
    }
}
