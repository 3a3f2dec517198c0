//! Numbers for people.

/// A number to about four digits, thousands apart.
#[must_use]
pub fn number(value: f64) -> String {
    let size = value.abs();
    match size {
        _ if !value.is_finite() => "–".to_owned(),
        0.0 => "0".to_owned(),
        1e12.. => format!("{value:.3e}"),
        999_999_500.0.. => format!("{:.3} G", value * 1e-9),
        999_999.5.. => format!("{:.3} M", value * 1e-6),
        1000.0.. => grouped(value),
        100.0.. => format!("{value:.1}"),
        10.0.. => format!("{value:.2}"),
        0.1.. => format!("{value:.3}"),
        1e-4.. => {
            let digits = (2.0 - size.log10().floor()) as usize;
            format!("{value:.digits$}")
        }
        _ => format!("{value:.2e}"),
    }
}

/// The same without zeros at its end, such as `10` or `2.5`.
#[must_use]
pub fn short(value: f64) -> String {
    let text = number(value);
    if !text.contains('.') || text.contains(['e', ' ']) {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A whole number, thousands apart.
#[must_use]
pub fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        for (value, text) in [
            (0.0, "0"),
            (0.5, "0.500"),
            (12.345, "12.35"),
            (999.96, "1000.0"),
            (0.017, "0.0170"),
            (0.000_123_4, "0.000123"),
            (9.73e-6, "9.73e-6"),
            (1e20, "1.000e20"),
            (1234.5, "1,234"),
            (1_234_567.0, "1.235 M"),
            (12_345_678_901.0, "12.346 G"),
            (-1234.0, "-1,234"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn short_numbers_end_where_they_can() {
        assert_eq!(
            [10.0, 2.5, 100.0, 1000.0, 0.2].map(short),
            ["10", "2.5", "100", "1,000", "0.2"]
        );
    }
}
