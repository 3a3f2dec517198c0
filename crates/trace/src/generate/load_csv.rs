//! Measured load shapes: which share of a disk's requests came in which window.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use super::windows::{Loads, Others, Window};
use super::{load_json, load_prometheus, load_report, load_sadf};
use crate::files::open_beside;
use crate::open;
use crate::reports::Report;
use crate::request::{LONGEST, LONGEST_SAID, TraceError};

/// No line has more bytes.
const MOST_IN_LINE: u64 = 64 << 10;
/// What is taken of a report of another program.
const MOST_OF_REPORT: u64 = 1 << 30;
const HEADER: &str = "workload,window_end_us,read_share,write_share";

/// The windows of one workload, and what is not plain about them.
pub(super) fn read(path: &Path, workload: &str) -> Result<Loads, TraceError> {
    let name = path.display().to_string();
    let file = open_beside(path);
    let file = file.map_err(|source| TraceError::Io { file: name.clone(), source })?;
    let (head, plain) = open::text(&name, file)?;
    let head = String::from_utf8_lossy(&head);
    let plain = BufReader::new(plain);
    let is_json = head.trim_start().starts_with('{');
    let Some(report) = Report::of(&head).or(is_json.then_some(Report::Prometheus)) else {
        let windows = windows(plain, &name, workload)?;
        return Ok(Loads { windows, notes: Vec::new() });
    };
    let plain = plain.take(MOST_OF_REPORT);
    match report {
        Report::Sadf => load_sadf::windows(plain, &name, workload),
        Report::Text => load_report::windows(plain, &name, workload),
        Report::Json => load_json::windows(plain, &name, workload),
        Report::Prometheus => load_prometheus::windows(plain, &name, workload),
    }
}

fn windows(mut from: impl BufRead, file: &str, workload: &str) -> Result<Vec<Window>, TraceError> {
    let (mut windows, mut others) = (Vec::new(), Others::default());
    let mut ended = 0.0;
    let mut line = String::new();
    for index in 0_u64.. {
        line.clear();
        let read = from.by_ref().take(MOST_IN_LINE + 1).read_line(&mut line);
        let length = read.map_err(|source| TraceError::Io { file: file.to_owned(), source })?;
        if length == 0 {
            break;
        }
        let wrong = |reason: String| TraceError::Malformed {
            file: file.to_owned(),
            line: index + 1,
            reason,
        };
        if length as u64 > MOST_IN_LINE {
            return Err(wrong("the line is longer than 64 KiB".to_owned()));
        }
        if index == 0 {
            if line.trim_end() != HEADER {
                let others =
                    "the text of iostat -xt, sar -d or sadf -d, or Prometheus' answer in JSON";
                return Err(wrong(format!("expected the header {HEADER}, {others}")));
            }
            continue;
        }
        let Some((disk, numbers)) = line.trim_end().split_once(',') else {
            return Err(wrong("expected four columns".to_owned()));
        };
        if disk != workload {
            others.see(disk);
            continue;
        }
        let [end, reads, writes] = numbers3(numbers).map_err(wrong)?;
        if reads > 1.0 || writes > 1.0 {
            let all = "a share of all the workload's reads or writes lies between 0 and 1";
            return Err(wrong(format!("{:e}: {all}", reads.max(writes))));
        }
        if end * 1e3 > LONGEST.0 as f64 {
            return Err(wrong(format!("the window ends at {end:e} us, beyond {LONGEST_SAID}")));
        }
        let length = end * 1e3 - ended;
        if length <= 0.0 {
            return Err(wrong("the window does not end after the one before it".to_owned()));
        }
        ended = end * 1e3;
        windows.push(Window { length, reads, writes });
    }
    if windows.is_empty() {
        let reason = others.without(workload);
        return Err(TraceError::Format { file: file.to_owned(), reason });
    }
    Ok(windows)
}

fn numbers3(text: &str) -> Result<[f64; 3], String> {
    let mut numbers = [0.0; 3];
    let mut fields = text.split(',');
    for number in &mut numbers {
        let field = fields.next().ok_or("expected four columns")?;
        let good =
            field.trim().parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0);
        *number = good.ok_or_else(|| format!("'{field}' is not a number of zero or more"))?;
    }
    match fields.next() {
        None => Ok(numbers),
        Some(_) => Err("expected four columns, found more".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Vec<Window>, String> {
        windows(text.as_bytes(), "shape.csv", "w1").map_err(|error| error.to_string())
    }

    #[test]
    fn the_windows_of_one_workload_are_read() {
        let text = format!("{HEADER}\nw1,10,0.25,0.5\nw2,10,1,1\nw1,30,0.75,0.5\n");
        let windows = of(&text).unwrap();
        assert_eq!(windows[1], Window { length: 20_000.0, reads: 0.75, writes: 0.5 });
        assert_eq!(windows.len(), 2);
    }

    #[test]
    fn malformed_lines_are_named() {
        for (lines, reason) in [
            ("w1,10,0.25", ":2: expected four columns"),
            ("w1,10,0.25,0.5,1", ":2: expected four columns, found more"),
            ("w1,10,1e308,0.5", ":2: 1e308: a share of all"),
            ("w1,1e30,1,0.5", ":2: the window ends at 1e30 us, beyond 100 years"),
            ("w1,10,-1,0.5", ":2: '-1' is not a number"),
            ("w1,10,NaN,0.5", ":2: 'NaN' is not a number"),
            ("w1,10,1,0.5\nw1,10,1,0.5", ":3: the window does not end after"),
            ("w2,10,1,1\nw3,10,1,1", "no windows of workload 'w1'; it has those of 'w2', 'w3'"),
        ] {
            let error = of(&format!("{HEADER}\n{lines}\n")).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        let many: String = (2..20).map(|n| format!("w{n:02},10,1,1\n")).collect();
        let error = of(&format!("{HEADER}\n{many}")).unwrap_err();
        assert!(error.ends_with("'w08', 'w09', others"), "{error}");
        assert!(of("a,b\n").unwrap_err().contains("expected the header"));
    }
}
