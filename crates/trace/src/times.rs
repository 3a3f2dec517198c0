//! Dates and times of day as programs write them.

use jiff::civil::Date;

const SECOND: u64 = 1_000_000_000;

/// A moment as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Nanoseconds since 1970 began, on its own clock.
    pub nanos: i128,
    /// Seconds that its clock is ahead of Greenwich, where it says so.
    pub ahead: Option<i32>,
}

/// A time of day as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clock {
    /// Nanoseconds since midnight.
    pub nanos: u64,
    /// Seconds ahead of Greenwich, where it says so.
    pub ahead: Option<i32>,
}

/// A date, a `T` or blanks, and a time of day, perhaps with a half of the day and a zone behind it.
#[must_use]
pub fn moment(text: &str, month_first: bool) -> Option<Moment> {
    let (day, time) = text.trim().split_once(['T', ' ', '\t'])?;
    let day = date(day, month_first)?.ok()?;
    let words: Vec<&str> = time.split_whitespace().collect();
    let (first, behind) = words.split_first()?;
    let mut clock = clock(first)?;
    let mut behind = behind;
    if let Some((afternoon, used)) = half(behind) {
        clock = clock.in_half(afternoon);
        behind = &behind[used..];
    }
    let ahead = match behind {
        [] => clock.ahead,
        ["UTC" | "GMT" | "Z"] => Some(0),
        [zone] => Some(offset(zone)?),
        _ => return None,
    };
    let nanos = day.duration_since(Date::constant(1970, 1, 1)).as_nanos() + i128::from(clock.nanos);
    Some(Moment { nanos, ahead })
}

/// A date of three numbers divided by anything, the year first or last; `None` if the word has not
/// three. Behind slashes the month comes before the day if `month_first` says so.
#[must_use]
pub fn date(word: &str, month_first: bool) -> Option<Result<Date, String>> {
    let numbers = word.split(|letter: char| !letter.is_ascii_digit());
    let numbers: Vec<&str> = numbers.filter(|number| !number.is_empty()).collect();
    let [first, second, third] = numbers[..] else { return None };
    let (year, month, day) = match (first.len(), word.contains('/') && month_first) {
        (4, _) => (first, second, third),
        (_, true) => (third, first, second),
        (_, false) => (third, second, first),
    };
    let century = if year.len() == 2 { 2000 } else { 0 };
    let date = || {
        let year = year.parse::<i16>().ok()?.checked_add(century)?;
        Date::new(year, month.parse().ok()?, day.parse().ok()?).ok()
    };
    Some(date().ok_or_else(|| format!("'{word}' is no date")))
}

/// A time of day: three numbers divided by anything but what divides dates, perhaps with a fraction
/// and a zone.
#[must_use]
pub fn clock(word: &str) -> Option<Clock> {
    let mut rest = word;
    let hours = number(&mut rest, 24)?;
    let minutes = divided(&mut rest, 60)?;
    let seconds = divided(&mut rest, 61)?;
    let mut nanos = ((hours * 60 + minutes) * 60 + seconds) * SECOND;
    if let Some(behind) = rest.strip_prefix(['.', ',']) {
        let end = behind.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(behind.len());
        let (fraction, behind) = behind.split_at(end);
        let scale = |(digit, power): (u8, u32)| u64::from(digit - b'0') * 10_u64.pow(power);
        nanos += fraction.bytes().zip((0..9).rev()).map(scale).sum::<u64>();
        rest = behind;
    }
    let ahead = match rest {
        "" => None,
        "Z" => Some(0),
        _ if rest.starts_with(['+', '-']) => Some(offset(rest)?),
        _ if rest.chars().all(char::is_alphabetic) => None,
        _ => return None,
    };
    Some(Clock { nanos, ahead })
}

/// The number of one or two digits, below `most`, that `rest` begins with.
fn number(rest: &mut &str, most: u64) -> Option<u64> {
    let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    let (digits, behind) = rest.split_at(end);
    *rest = behind;
    digits.parse().ok().filter(|number| digits.len() <= 2 && *number < most)
}

/// The same behind what divides it from the one before.
fn divided(rest: &mut &str, most: u64) -> Option<u64> {
    let start = rest.find(|letter: char| letter.is_ascii_digit())?;
    let (mark, behind) = rest.split_at(start);
    *rest = behind;
    if mark.contains(['/', '-', '+']) { None } else { number(rest, most) }
}

/// Seconds of an offset such as `+0100` or `-05:30`.
fn offset(zone: &str) -> Option<i32> {
    let zone = zone.replace(':', "");
    let zone: i32 = zone.parse().ok().filter(|_| zone.starts_with(['+', '-']))?;
    Some(zone / 100 * 3600 + zone % 100 * 60)
}

/// Halves of the day in the locales whose clocks have twelve hours.
const HALVES: [(&str, bool); 12] = [
    ("am", false),
    ("pm", true),
    ("πμ", false),
    ("μμ", true),
    ("午前", false),
    ("午後", true),
    ("上午", false),
    ("下午", true),
    ("오전", false),
    ("오후", true),
    ("पूर्वाह्न", false),
    ("अपराह्न", true),
];

/// Whether the first word of several, or the first two (`p. m.`), are the second half of the day,
/// and how many they are; `None` if they are no half.
#[must_use]
pub fn half(words: &[&str]) -> Option<(bool, usize)> {
    (1..=words.len().min(2)).find_map(|used| {
        let plain = words[..used].concat().replace('.', "").to_lowercase();
        let found = HALVES.iter().find(|(name, _)| *name == plain);
        found.map(|(_, afternoon)| (*afternoon, used))
    })
}

impl Clock {
    /// What it is in one half of the day; as it is if it counts to 24.
    #[must_use]
    pub fn in_half(self, afternoon: bool) -> Self {
        let noon = 12 * 3600 * SECOND;
        let nanos = match (afternoon, self.nanos / (3600 * SECOND)) {
            (true, ..12) => self.nanos + noon,
            (false, 12) => self.nanos - noon,
            _ => self.nanos,
        };
        Self { nanos, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn moments_of_other_programs_are_one() {
        let wanted = 1_795_947_007_123_000_000;
        for text in [
            "2026-11-29T10:10:07.123Z",
            "2026/11/29 10:10:07.123",
            "29.11.2026  10:10:07,123 GMT",
            "11/29/2026 10:10:07.123 AM",
            "2026年11月29日 10時10分07.123",
            "2026-11-29 10:10:07.123 +0000",
        ] {
            assert_eq!(moment(text, true).map(|moment| moment.nanos), Some(wanted), "{text}");
        }
        let ahead = |text| moment(text, true).unwrap().ahead;
        assert_eq!(ahead("2026-11-29T10:10:07-05:30"), Some(-19_800));
        assert_eq!(ahead("2026-11-29T10:10:07"), None);
        for text in ["10:10:07", "2026-11-29", "2026-11-31 10:10:07", "2026-11-29 10:10:07 x"] {
            assert_eq!(moment(text, true), None, "{text}");
        }
        assert_eq!(moment("03/04/2026 00:00:00", true), moment("04/03/2026 00:00:00", false));
    }

    #[test]
    fn halves_of_the_day_are_told_in_other_words() {
        for (words, said) in [
            (&["PM"][..], Some((true, 1))),
            (&["p.", "m."], Some((true, 2))),
            (&["a.m.", "x"], Some((false, 1))),
            (&["下午"], Some((true, 1))),
            (&["sda", "m"], None),
            (&[], None),
        ] {
            assert_eq!(half(words), said, "{words:?}");
        }
        let hours = |word, afternoon| clock(word).unwrap().in_half(afternoon).nanos / SECOND / 3600;
        assert_eq!((hours("12:00:00", false), hours("12:00:00", true)), (0, 12));
        assert_eq!((hours("01:00:00", true), hours("13:00:00", true)), (13, 13));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".{0,40}", digits in "[0-9:./T +-]{0,24}") {
            for text in [text, digits] {
                let words: Vec<&str> = text.split(' ').collect();
                let _ = (moment(&text, true), moment(&text, false), clock(&text), half(&words));
            }
        }
    }
}
