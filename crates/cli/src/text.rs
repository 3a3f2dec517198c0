//! Numbers for people.

pub use ebb_record::text::{grouped, number, short};

/// A change in percent, such as `-12.3%`.
pub fn percent(change: f64) -> String {
    let percent = change * 100.0;
    match percent.abs() {
        size if !size.is_finite() => "–".to_owned(),
        size if size < 0.05 => "=".to_owned(),
        size if size < 100.0 => format!("{percent:+.1}%"),
        size if size < 1000.0 => format!("{percent:+.0}%"),
        _ => format!("×{}", number(1.0 + change)),
    }
}

/// A size in bytes with a unit.
pub fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = value;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    let text = if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.1}") };
    format!("{text} {}", units[unit])
}

/// A time with a unit.
pub fn seconds(value: f64) -> String {
    match value {
        86400.0.. => format!("{:.1} d", value / 86400.0),
        7200.0.. => format!("{:.1} h", value / 3600.0),
        120.0.. => format!("{:.1} min", value / 60.0),
        1.0.. => format!("{} s", trimmed(value)),
        1e-3.. => format!("{} ms", trimmed(value * 1e3)),
        0.0 => "0 s".to_owned(),
        _ => format!("{} µs", trimmed(value * 1e6)),
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `text` on lines of at most 100 columns, all but the first indented.
pub fn wrapped(text: &str) -> String {
    const WIDTH: usize = 100;
    let (mut all, mut width) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > WIDTH {
            all.push_str("\n ");
            width = 1;
        }
        if width > 0 {
            all.push(' ');
            width += 1;
        }
        all.push_str(word);
        width += length;
    }
    all
}

/// A text with its control characters escaped, but for tabs: what stands in a name is not for the
/// terminal to act on.
pub fn printable(text: &str) -> String {
    let plain = |c: char| c == '\t' || !c.is_control();
    let escaped = |c: char| match plain(c) {
        true => String::from(c),
        false => c.escape_default().to_string(),
    };
    if text.chars().all(plain) { text.to_owned() } else { text.chars().map(escaped).collect() }
}

/// The same of each line.
pub fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_and_what_a_terminal_would_act_on_does_not() {
        assert_eq!(printable_lines("a\tb\n\u{1b}[2J\r\u{9b}m\n"), "a\tb\n\\u{1b}[2J\\r\\u{9b}m\n");
    }

    #[test]
    fn long_texts_are_wrapped_between_words() {
        let text = wrapped(&"word ".repeat(50));
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        assert_eq!(text.lines().count(), 3);
        assert_eq!(text.split_whitespace().count(), 50);
        assert_eq!(wrapped("short"), "short");
    }

    #[test]
    fn changes_read_well() {
        let texts = [-0.123, 0.0, 0.0003, 2.5, 99.0].map(percent);
        assert_eq!(texts, ["-12.3%", "=", "=", "+250%", "×100.0"]);
    }

    #[test]
    fn sizes_and_times_read_well() {
        assert_eq!([bytes(4096.0), bytes(1536.0), bytes(17.0)], ["4 KiB", "1.5 KiB", "17 B"]);
        let times = [1.5e-6, 0.0025, 3.0, 600.0, 90000.0].map(seconds);
        assert_eq!(times, ["1.5 µs", "2.5 ms", "3 s", "10.0 min", "1.0 d"]);
    }
}
