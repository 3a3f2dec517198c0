//! Dates in the rows of a trace.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use super::field::{Reason, shown};
use crate::times::{moment_of, unknown};

const SECOND: i128 = 1_000_000_000;
const YEAR: i128 = 365 * 86_400 * SECOND;
/// What stands for the year where dates have none: one without a 29th of February, so that it is
/// refused rather than taken for a day that may not have been.
const SOME_YEAR: i16 = 1971;

/// Reads dates, and remembers what those above have told.
#[derive(Debug, Default)]
pub(super) struct Dates {
    /// Whether dates whose year is last have the month first, once one has told.
    month_first: Option<bool>,
    /// The last one without a year.
    last: Option<i128>,
}

impl Dates {
    /// ns since 1970 of a date with a time of day, by ISO 8601 or in the form of other programs.
    /// Whether the month comes first there, a date tells that fits one order alone, and is then
    /// known of those behind it. Of one without a year the nearest to the one above is meant.
    pub(super) fn read(&mut self, field: &[u8]) -> Result<u64, Reason> {
        let text = std::str::from_utf8(field).unwrap_or_default();
        // A date alone is midnight to them.
        let iso = if text.contains(':') { text } else { "" };
        let utc = || iso.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok();
        let stamp = iso.parse::<Timestamp>().ok().or_else(|| Some(utc()?.timestamp()));
        let found = match (stamp, instant(text, true, None), instant(text, false, None)) {
            (Some(stamp), ..) => Some(stamp.as_nanosecond()),
            (None, Some(one), Some(other)) if one != other => {
                let Some(month_first) = self.month_first else {
                    return Err(format!(
                        "time is '{}', of which day and month may be taken for each other: write \
                         it as in 2026-11-25T00:10:01.5Z",
                        shown(field)
                    ));
                };
                Some(if month_first { one } else { other })
            }
            (None, one, other) => {
                if one.is_some() != other.is_some() {
                    self.month_first = Some(one.is_some());
                }
                one.or(other).or_else(|| self.of_some_year(text))
            }
        };
        found.and_then(|nanos| u64::try_from(nanos).ok()).ok_or_else(|| {
            let (known, text) = (unknown(text), shown(field));
            if let Some(why) = known {
                return format!("time is '{text}': {why}");
            }
            format!("time is '{text}', no date since 1970 such as 2026-11-25T00:10:01.5Z")
        })
    }

    fn of_some_year(&mut self, text: &str) -> Option<i128> {
        let at = instant(text, true, Some(SOME_YEAR))?;
        let years = self.last.map_or(0, |last| (last - at + YEAR / 2).div_euclid(YEAR));
        self.last = Some(at + years * YEAR);
        self.last
    }
}

/// An instant, in ns since 1970, of a date and a time of day; without a zone it is UTC.
fn instant(text: &str, month_first: bool, year: Option<i16>) -> Option<i128> {
    let moment = moment_of(text, month_first, year)?;
    Some(moment.nanos - i128::from(moment.ahead.unwrap_or(0)) * SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_year_the_nearest_is_meant() {
        let mut dates = Dates::default();
        let mut second = |text: &str| dates.read(text.as_bytes()).map(|at| at / 1_000_000_000);
        let first = second("Dec 31 23:59:59").unwrap();
        assert_eq!(second("Jan  1 00:00:01"), Ok(first + 2));
        assert_eq!(second("Dec 31 23:59:58"), Ok(first - 1), "a row that is late");
        assert_eq!(second("Feb 28 23:59:59"), Ok(first + 59 * 86_400));
        assert!(second("Feb 29 00:00:00").is_err());
        let zone = second("2026-11-29 10:10:07 CEST").unwrap_err();
        assert!(
            zone.starts_with("time is '2026-11-29 10:10:07 CEST': 'CEST' is no name"),
            "{zone}"
        );
        assert_eq!(second("1970-01-02 00:00:00"), Ok(86_400));
    }
}
