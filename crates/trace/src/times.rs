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

/// A date and a time of day, perhaps with a half of the day and a zone: `2026-11-29T10:10:07Z`,
/// `30/Nov/2026:15:04:05 +0000`, `Mon Nov 30 15:04:05 2026`, `20261130 150405`.
#[must_use]
pub fn moment(text: &str, month_first: bool) -> Option<Moment> {
    moment_of(text, month_first, None)
}

/// The same, of this `year` where a date says none (`Nov 30 15:04:05`).
#[must_use]
pub fn moment_of(text: &str, month_first: bool, year: Option<i16>) -> Option<Moment> {
    let text = text.trim().trim_start_matches('[').trim_end_matches(']');
    let (day, time) = text.split_at(clock_place(text)?);
    let mut behind: Vec<&str> = time.split_whitespace().map(|it| it.trim_matches(',')).collect();
    let first = behind.first().copied()?;
    let mut clock = clock(first).or_else(|| clock(&spread(first, ':', 2)?))?;
    behind.remove(0);
    let words: Vec<&str> = day.split_whitespace().collect();
    let before = words.len().checked_sub(1).and_then(|last| half(&words[last..]));
    let found = before.or_else(|| half(&behind));
    if let Some((afternoon, used)) = found {
        clock = clock.in_half(afternoon);
        behind.drain(..if before.is_some() { 0 } else { used });
    }
    let day = words[..words.len() - usize::from(before.is_some())].join(" ");
    let day = spread(day.trim_end_matches('T'), '-', 4).unwrap_or(day);
    // As ctime writes it.
    let is_year = |word: &str| word.len() == 4 && word.bytes().all(|byte| byte.is_ascii_digit());
    let is_named = pieces(&day).any(|piece| month(piece).is_some());
    let stated = behind.pop_if(|word| is_named && is_year(word));
    let stated = stated.and_then(|year| year.parse().ok());
    let ahead = match behind[..] {
        [] => clock.ahead,
        ["UTC" | "GMT" | "Z"] => Some(0),
        [zone] => Some(offset(zone)?),
        _ => return None,
    };
    let day = date_of(&day, month_first, stated.or(year))?.ok()?;
    let nanos = day.duration_since(Date::constant(1970, 1, 1)).as_nanos() + i128::from(clock.nanos);
    Some(Moment { nanos, ahead })
}

/// Where the time of day begins behind a date: with the fourth number, or with the first of those
/// between colons where the month is a name, or with the second behind a date of one number.
fn clock_place(text: &str) -> Option<usize> {
    let numbers = || {
        let is_digit = |at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
        (0..text.len()).filter(move |at| is_digit(*at) && (*at == 0 || !is_digit(*at - 1)))
    };
    if pieces(text).any(|piece| month(piece).is_some()) {
        let is_clock = |at: &usize| {
            let mut parts = text[*at..].split(':');
            parts.next().is_some_and(|hours| hours.len() <= 2)
                && parts.next().is_some_and(|minutes| minutes.len() == 2)
                && parts.next().is_some()
        };
        // Behind a year that has two digits as well.
        return numbers().rfind(is_clock);
    }
    let first = numbers().next()?;
    let is_whole = pieces(&text[first..]).next().is_some_and(|number| number.len() == 8);
    numbers().nth(if is_whole { 1 } else { 3 })
}

/// Runs of digits, and of letters.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text.trim_start_matches(|letter: char| !letter.is_alphanumeric());
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let is_other = |letter: char| {
            !letter.is_alphanumeric() || letter.is_ascii_digit() != first.is_ascii_digit()
        };
        let (piece, behind) = rest.split_at(rest.find(is_other).unwrap_or(rest.len()));
        rest = behind.trim_start_matches(|letter: char| !letter.is_alphanumeric());
        Some(piece)
    })
}

/// The month of a name: 1 to 12.
fn month(name: &str) -> Option<i8> {
    const MONTHS: [&str; 12] = [
        "january",
        "february",
        "march",
        "april",
        "may",
        "june",
        "july",
        "august",
        "september",
        "october",
        "november",
        "december",
    ];
    (1..).zip(MONTHS).find(|(_, month)| is_short(name, month)).map(|(number, _)| number)
}

/// Whether a name is this one or its first three letters.
fn is_short(name: &str, whole: &str) -> bool {
    name.eq_ignore_ascii_case(whole) || name.eq_ignore_ascii_case(&whole[..3])
}

/// Digits without anything between them: `20261130` as `2026-11-30`, `150405.5` as `15:04:05.5`.
fn spread(word: &str, mark: char, first: usize) -> Option<String> {
    let end = word.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(word.len());
    let (digits, behind) = word.split_at(end);
    (digits.len() == first + 4).then(|| {
        let (first, second, third) =
            (&digits[..first], &digits[first..first + 2], &digits[first + 2..]);
        format!("{first}{mark}{second}{mark}{third}{behind}")
    })
}

/// A date of three numbers divided by anything, the year first or last, or with a name for the
/// month; `None` if the text is none of these. Behind slashes the month comes before the day if
/// `month_first` says so.
#[must_use]
pub fn date(text: &str, month_first: bool) -> Option<Result<Date, String>> {
    date_of(text, month_first, None)
}

fn date_of(text: &str, month_first: bool, of: Option<i16>) -> Option<Result<Date, String>> {
    let is_day = |name: &str| DAYS.iter().any(|day| is_short(name, day));
    let (mut numbers, mut named) = (Vec::new(), None);
    for piece in pieces(text) {
        match month(piece) {
            _ if piece.starts_with(|letter: char| letter.is_ascii_digit()) => numbers.push(piece),
            Some(month) if named.is_none() => named = Some(month),
            // A word of another language may stand behind a number, as in 2026年11月29日.
            None if is_day(piece) || piece == "T" || !piece.is_ascii() => {}
            _ => return None,
        }
    }
    let whole = |number: &str| number.parse::<i16>().ok();
    let century = |year: &str| if year.len() == 2 { 2000 } else { 0 };
    let (year, month, day) = match (&numbers[..], named, of) {
        ([day], Some(month), Some(year)) => (Some(year), Some(month), day),
        ([first, second], Some(month), _) => {
            let (year, day) = if first.len() == 4 { (first, second) } else { (second, first) };
            (whole(year).map(|number| number + century(year)), Some(month), day)
        }
        ([first, second, third], None, _) => {
            let (year, month, day) = match (first.len(), text.contains('/') && month_first) {
                (4, _) => (first, second, third),
                (_, true) => (third, first, second),
                (_, false) => (third, second, first),
            };
            let year = whole(year).and_then(|number| number.checked_add(century(year)));
            (year, month.parse().ok(), day)
        }
        _ => return None,
    };
    let date = || Date::new(year?, month?, day.parse().ok()?).ok();
    Some(date().ok_or_else(|| format!("'{text}' is no date")))
}

const DAYS: [&str; 7] =
    ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

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
            "29/Nov/2026:10:10:07.123",
            "[29/Nov/2026:10:10:07.123 +0000]",
            "29-Nov-26 10:10:07.123",
            "29/Nov/26:10:10:07.123 +0000",
            "2026-NOV-29 10:10:07.123",
            "Sun Nov 29 10:10:07.123 2026",
            "Sun Nov 29 10:10:07.123 UTC 2026",
            "Sunday, November 29, 2026, 10:10:07.123 AM",
            "Sun, 29 Nov 2026 10:10:07.123 GMT",
            "Sun 2026-11-29 10:10:07.123 UTC",
            "20261129T101007.123Z",
            "20261129 101007.123",
            "2026-11-29-10.10.07.123",
            "2026-11-29_10:10:07.123",
            "2026:11:29:10:10:07.123",
            "2026/11/29 午前10:10:07.123",
        ] {
            assert_eq!(moment(text, true).map(|moment| moment.nanos), Some(wanted), "{text}");
        }
        let ahead = |text| moment(text, true).unwrap().ahead;
        assert_eq!(ahead("2026-11-29T10:10:07-05:30"), Some(-19_800));
        assert_eq!(ahead("2026-11-29T10:10:07"), None);
        for text in [
            "10:10:07",
            "2026-11-29",
            "2026-11-31 10:10:07",
            "2026-11-29 10:10:07 x",
            "2026-11-29 10:10:07 2026",
            "Nov 29 10:10:07",
            "29 Dov 2026 10:10:07",
            "Nov 29 Dec 2026 10:10:07",
            "20261129101007",
        ] {
            assert_eq!(moment(text, true), None, "{text}");
        }
        // Of a year that is said elsewhere.
        for text in ["Nov 29 10:10:07.123", "Sun Nov 29 10:10:07.123", "29 Nov 10:10:07.123"] {
            let found = moment_of(text, true, Some(2026)).map(|moment| moment.nanos);
            assert_eq!(found, Some(wanted), "{text}");
        }
        assert_eq!(moment_of("Feb 29 10:10:07", true, Some(1971)), None);
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
