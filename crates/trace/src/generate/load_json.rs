//! Load shapes out of what `iostat -xt -o JSON` writes, which is not always JSON: cut off where it
//! was killed, a comma too many with `-y`, decimals behind commas, one run behind the other.

use std::collections::BTreeMap;
use std::io::Read;

use super::load_report::Readings;
use super::windows::{Loads, Others};
use crate::request::TraceError;

/// The windows of one device, of every report that is complete.
pub(super) fn windows(mut from: impl Read, file: &str, device: &str) -> Result<Loads, TraceError> {
    let mut text = Vec::new();
    let read = from.read_to_end(&mut text);
    read.map_err(|source| TraceError::Io { file: file.to_owned(), source })?;
    let text = String::from_utf8_lossy(&text);
    let readings = Readings::new(device);
    let (others, odd, open) = Default::default();
    let mut reports = Reports { device, others, readings, odd, rows: 0, open };
    let (mut key, mut value) = (None, None);
    let format = |reason: String| TraceError::Format { file: file.to_owned(), reason };
    for token in Tokens(&text) {
        match token {
            Token::Text(text) | Token::Bare(text) if key.is_none() || value.is_some() => {
                // Behind a comma stands a name, or the decimals of the number before.
                match (&mut value, token) {
                    (Some(number), Token::Bare(_)) => *number = format!("{number},{text}"),
                    _ => {
                        reports.field(key.take(), value.take()).map_err(format)?;
                        key = Some(text);
                    }
                }
            }
            Token::Text(text) | Token::Bare(text) => value = Some(text.to_owned()),
            Token::Mark(',' | ':') => {}
            Token::Mark(mark) => {
                reports.field(key.take(), value.take()).map_err(format)?;
                match mark {
                    '{' => reports.open.push(Object::default()),
                    '}' => reports.close().map_err(format)?,
                    _ => {}
                }
            }
        }
    }
    reports.loads(file)
}

/// A name or a text, a number or another word, or what stands between them.
#[derive(Clone, Copy)]
enum Token<'a> {
    Text(&'a str),
    Bare(&'a str),
    Mark(char),
}

struct Tokens<'a>(&'a str);

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let text = self.0.trim_start();
        let first = text.chars().next()?;
        let marks = |letter: char| "{}[],:\"".contains(letter);
        let (token, rest) = if first == '"' {
            let (within, rest) = text[1..].split_once('"')?;
            (Token::Text(within), rest)
        } else if marks(first) {
            (Token::Mark(first), &text[1..])
        } else {
            let end = text.find(|c: char| marks(c) || c.is_whitespace()).unwrap_or(text.len());
            (Token::Bare(&text[..end]), &text[end..])
        };
        self.0 = rest;
        Some(token)
    }
}

/// An object whose end has not come: what it says itself, and the disks in it.
#[derive(Default)]
struct Object {
    fields: BTreeMap<String, String>,
    disks: Vec<BTreeMap<String, String>>,
}

struct Reports<'a> {
    device: &'a str,
    others: Others,
    readings: Readings<'a>,
    open: Vec<Object>,
    /// Times of rows of the device that lack reads or writes.
    odd: Vec<String>,
    /// Its other rows.
    rows: u64,
}

impl Reports<'_> {
    fn field(&mut self, key: Option<&str>, value: Option<String>) -> Result<(), String> {
        let (Some(key), Some(value)) = (key, value) else { return Ok(()) };
        if key == "date" {
            self.readings.each(|report| report.begin(&value))?;
        }
        if let Some(object) = self.open.last_mut() {
            object.fields.insert(key.to_owned(), value);
        }
        Ok(())
    }

    fn close(&mut self) -> Result<(), String> {
        let Some(object) = self.open.pop() else { return Ok(()) };
        if object.fields.contains_key("disk_device") {
            if let Some(report) = self.open.last_mut() {
                report.disks.push(object.fields);
            }
            return Ok(());
        }
        let Some(time) = object.fields.get("timestamp") else { return Ok(()) };
        self.readings.each(|report| report.line(time))?;
        for mut disk in object.disks {
            let name = disk.remove("disk_device").unwrap_or_default();
            if name != self.device {
                self.others.see(&name);
                continue;
            }
            if !(disk.contains_key("r/s") && disk.contains_key("w/s")) {
                self.odd.push(time.clone());
                self.readings.each(|report| {
                    report.leave_out();
                    Ok(())
                })?;
                continue;
            }
            self.rows += 1;
            disk.insert("Device".to_owned(), name);
            let line = |words: Vec<&String>| {
                words.iter().map(|word| word.as_str()).collect::<Vec<_>>().join(" ")
            };
            let (names, values) = (line(disk.keys().collect()), line(disk.values().collect()));
            self.readings.each(|report| report.line(&names))?;
            self.readings.each(|report| report.line(&values))?;
        }
        Ok(())
    }

    fn loads(&self, file: &str) -> Result<Loads, TraceError> {
        if let (0, Some(time)) = (self.rows, self.odd.first()) {
            let reason = format!(
                "its row of '{}' at {time} has not both r/s and w/s: run iostat -xt -o JSON",
                self.device
            );
            return Err(TraceError::Format { file: file.to_owned(), reason });
        }
        if self.rows == 0 {
            let reason = format!(
                "{}: it has to be what iostat -xt -o JSON prints, or sar -d or sadf -d as text",
                self.others.without(self.device)
            );
            return Err(TraceError::Format { file: file.to_owned(), reason });
        }
        let mut loads = self.readings.loads(file)?;
        if let Some(time) = self.odd.first() {
            loads.notes.push(format!(
                "{} rows of '{}' are left out, the first at {time}: they have not both r/s and w/s",
                self.odd.len(),
                self.device
            ));
        }
        if !self.open.is_empty() {
            loads.notes.push("it ends early (cut off): what is complete counts".to_owned());
        }
        Ok(loads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str) -> Result<Loads, String> {
        windows(text.as_bytes(), "j", "sda").map_err(|error| error.to_string())
    }

    fn report(second: u32, row: &str) -> String {
        format!(
            "{{\"timestamp\": \"2026-11-29T10:00:{second:02}Z\", \"avg-cpu\": {{\"user\": 1.0}},
             \"disk\": [{{\"disk_device\": \"sda\", {row}, \"util\": 1.00}},
             {{\"disk_device\": \"sdb\", \"r/s\": 1.00}}]}}"
        )
    }

    fn file(reports: &[String]) -> String {
        format!(
            "{{\"sysstat\": {{\"hosts\": [{{\"nodename\": \"h\", \"date\": \"11/29/2026\",
             \"statistics\": [{}]}}]}}}}",
            reports.join(",")
        )
    }

    fn shares(loads: &Loads) -> Vec<(f64, f64)> {
        loads.windows.iter().map(|window| (window.length / 1e9, window.reads)).collect()
    }

    #[test]
    fn what_is_complete_of_a_broken_file_counts() {
        let rows = ["5", "10", "30"].map(|reads| format!("\"r/s\": {reads}.00, \"w/s\": 0.00"));
        let reports: Vec<String> = (0..).zip(&rows).map(|(at, row)| report(10 * at, row)).collect();
        let whole = file(&reports);
        let wanted = [(10.0, 0.25), (10.0, 0.75)];
        let loads = of(&whole).unwrap();
        assert_eq!((shares(&loads), loads.notes.len()), (wanted.into(), 0));
        let comma = whole.replace(".00", ",00");
        let cut = &whole[..whole.len() - 4];
        let y = whole.replace("\"statistics\": [", "\"statistics\": [ ,");
        for text in [comma.as_str(), cut, &y] {
            assert_eq!(shares(&of(text).unwrap()), wanted, "{text}");
        }
        assert!(of(cut).unwrap().notes[0].contains("cut off"));
        let within = &whole[..whole.rfind("sda").unwrap()];
        assert_eq!(shares(&of(within).unwrap()), [(10.0, 1.0)]);
        let later = whole.replace("T10:00", "T10:01");
        let twice = shares(&of(&format!("{whole}\n{later}")).unwrap());
        assert_eq!(
            twice.iter().map(|window| window.0).collect::<Vec<_>>(),
            [10.0, 10.0, 40.0, 10.0, 10.0]
        );
    }

    #[test]
    fn a_row_without_the_columns_is_left_out_and_named() {
        let good = "\"r/s\": 10.00, \"w/s\": 0.00";
        let odd = report(10, "\"r/s\": 10.00");
        let loads = of(&file(&[report(0, good), odd.clone(), report(20, good)])).unwrap();
        assert_eq!(shares(&loads), [(20.0, 1.0)]);
        assert!(loads.notes[0].contains("the first at 2026-11-29T10:00:10Z"), "{:?}", loads.notes);
        let error = of(&file(&[report(0, "\"r/s\": 1"), odd])).unwrap_err();
        assert!(error.contains("has not both r/s and w/s"), "{error}");
        assert!(of("{\"sysstat\": 1").unwrap_err().contains("holds no windows"));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[{}:,\" a-z0-9\\[\\]]{0,60}") {
            let _ = of(&text);
        }
    }
}
