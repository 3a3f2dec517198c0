//! Load shapes out of what `iostat -xt`, also with `-o JSON`, and `sar -d` print.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};

use serde::Deserialize;
use serde_json::Value;

use super::windows::{Rate, Window, shares};
use crate::request::TraceError;

const DAY: f64 = 86_400.0;

/// How the two name the column of devices.
const DEVICES: [&str; 3] = ["Device", "Device:", "DEV"];

/// Whether a text that begins so is a report: by its first line or, where that is gone, by a
/// heading.
pub(super) fn is_one(head: &str) -> bool {
    let is_heading = |line: &str| line.split_whitespace().any(|word| DEVICES.contains(&word));
    head.starts_with("Linux ") || head.lines().any(is_heading)
}

#[derive(Deserialize)]
struct Json {
    sysstat: Sysstat,
}

#[derive(Deserialize)]
struct Sysstat {
    hosts: Vec<Host>,
}

#[derive(Deserialize)]
struct Host {
    statistics: Vec<Statistics>,
}

#[derive(Deserialize)]
struct Statistics {
    #[serde(default)]
    timestamp: String,
    #[serde(default)]
    disk: Vec<BTreeMap<String, Value>>,
}

/// The same of `iostat -xt -o JSON`.
pub(super) fn json(from: impl Read, file: &str, device: &str) -> Result<Vec<Window>, TraceError> {
    let format = |reason: String| TraceError::Format { file: file.to_owned(), reason };
    let json: Json = serde_json::from_reader(from).map_err(|error| {
        format(format!("not what iostat -xt -o JSON prints, nor sar -d as text: {error}"))
    })?;
    let mut report = Report { device, ..Report::default() };
    for all in json.sysstat.hosts.iter().flat_map(|host| &host.statistics) {
        report.line(&all.timestamp).map_err(format)?;
        for disk in &all.disk {
            let name =
                |name: &String| if name == "disk_device" { "Device" } else { name }.to_owned();
            let text =
                |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let names: Vec<String> = disk.keys().map(name).collect();
            let values: Vec<String> = disk.values().map(text).collect();
            report.line(&names.join(" ")).map_err(format)?;
            report.line(&values.join(" ")).map_err(format)?;
        }
    }
    report.windows(file)
}

/// The windows of one device.
pub(super) fn windows(
    from: impl BufRead,
    file: &str,
    device: &str,
) -> Result<Vec<Window>, TraceError> {
    let mut report = Report { device, ..Report::default() };
    for (index, line) in from.lines().enumerate() {
        let line = line.map_err(|source| TraceError::Io { file: file.to_owned(), source })?;
        report.line(&line).map_err(|reason| TraceError::Malformed {
            file: file.to_owned(),
            line: index as u64 + 1,
            reason,
        })?;
    }
    report.windows(file)
}

#[derive(Default)]
struct Report<'a> {
    device: &'a str,
    columns: Option<Columns>,
    /// Seconds since the first midnight: of the last time, and where the last window ended.
    now: Option<f64>,
    ended: Option<f64>,
    rates: Vec<Rate>,
}

/// Places of what a heading names, and how many columns it has.
#[derive(Clone, Copy)]
struct Columns {
    count: usize,
    device: usize,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    /// Reads and writes per second.
    Iostat(usize, usize),
    /// Requests per second, and what is read and written: requests are divided as the data is.
    Sar(usize, usize, usize),
}

impl Report<'_> {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.is_empty() || words[0] == "Linux" {
            return Ok(());
        }
        let place = |names: &[&str]| words.iter().position(|word| names.contains(word));
        if let Some(device) = place(&DEVICES[..2]) {
            let (Some(reads), Some(writes)) = (place(&["r/s"]), place(&["w/s"])) else {
                return Err("the heading has no columns r/s and w/s: run iostat -xt".to_owned());
            };
            let kind = Kind::Iostat(reads, writes);
            self.columns = Some(Columns { count: words.len(), device, kind });
        } else if let Some(device) = place(&DEVICES[2..]) {
            let all =
                (place(&["tps"]), place(&["rkB/s", "rd_sec/s"]), place(&["wkB/s", "wr_sec/s"]));
            let (Some(requests), Some(read), Some(written)) = all else {
                return Err(
                    "the heading has no columns tps, rkB/s and wkB/s: run sar -d".to_owned()
                );
            };
            self.clock(&words);
            self.idle_until_now();
            let kind = Kind::Sar(requests, read, written);
            self.columns = Some(Columns { count: words.len(), device, kind });
        } else {
            let has_time = self.clock(&words);
            if let Some(columns) = self.columns
                && words.get(columns.device) == Some(&self.device)
                // Those of sar without a time are means of all.
                && (has_time || matches!(columns.kind, Kind::Iostat(..)))
            {
                return self.row(&words, columns);
            }
        }
        Ok(())
    }

    /// The windows, or why there are none.
    fn windows(&self, file: &str) -> Result<Vec<Window>, TraceError> {
        if self.rates.is_empty() && self.ended.is_some() {
            let reason = format!(
                "has one report of '{}': the first is about the time since the machine was started",
                self.device
            );
            return Err(TraceError::Format { file: file.to_owned(), reason });
        }
        shares(&self.rates, file, self.device)
    }

    /// Takes the time of a line that has one: `14:00:01`, `02:00:01 PM` or `...T14:00:01+0100`.
    fn clock(&mut self, words: &[&str]) -> bool {
        let mut found = words.iter().take(2).enumerate();
        let Some((at, (clock, seconds))) =
            found.find_map(|(at, word)| Some((at, of_day(word.rsplit('T').next()?)?)))
        else {
            return false;
        };
        let half = match words.get(at + 1).map(|word| word.to_ascii_uppercase()).as_deref() {
            Some("AM") if clock == 12 => -DAY / 2.0,
            Some("PM") if clock < 12 => DAY / 2.0,
            _ => 0.0,
        };
        let mut now = seconds + half;
        while self.now.is_some_and(|before| now < before) {
            now += DAY;
        }
        self.now = Some(now);
        true
    }

    /// What lies between the last window and a new start, after the machine was off, has no load.
    fn idle_until_now(&mut self) {
        let Some(now) = self.now else { return };
        if let Some(ended) = self.ended.filter(|ended| *ended < now) {
            self.rates.push(Rate { seconds: now - ended, reads: 0.0, writes: 0.0 });
        }
        self.ended = Some(now);
    }

    fn row(&mut self, words: &[&str], columns: Columns) -> Result<(), String> {
        if words.len() != columns.count {
            return Err(format!("{} columns, not {}", words.len(), columns.count));
        }
        let number = |place: usize| {
            let word = words.get(place).copied().unwrap_or_default().replace(',', ".");
            let good = word.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0);
            good.ok_or_else(|| format!("'{word}' is not a number of zero or more"))
        };
        let (reads, writes) = match columns.kind {
            Kind::Iostat(reads, writes) => (number(reads)?, number(writes)?),
            Kind::Sar(requests, read, written) => {
                let (requests, read, written) =
                    (number(requests)?, number(read)?, number(written)?);
                let share = if read + written > 0.0 { read / (read + written) } else { 0.0 };
                (requests * share, requests * (1.0 - share))
            }
        };
        let now = self.now.ok_or("there are no times between the reports: run iostat -xt")?;
        // The first report is about the time since the machine was started.
        let Some(ended) = self.ended.replace(now) else { return Ok(()) };
        if ended >= now {
            return Err("no time lies between this and the report before".to_owned());
        }
        self.rates.push(Rate { seconds: now - ended, reads, writes });
        Ok(())
    }
}

/// Hours and seconds of a time of day.
fn of_day(word: &str) -> Option<(u32, f64)> {
    let mut parts = word.split(':');
    let hours: u32 = parts.next()?.parse().ok().filter(|hours| *hours < 24)?;
    let minutes: u32 = parts.next()?.parse().ok().filter(|minutes| *minutes < 60)?;
    let seconds = parts.next()?.split(['+', '-', 'Z']).next()?;
    let seconds: u32 = seconds.parse().ok().filter(|seconds| *seconds <= 60)?;
    Some((hours, f64::from(hours * 3600 + minutes * 60 + seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str, device: &str) -> Result<Vec<Window>, String> {
        windows(text.as_bytes(), "r", device).map_err(|error| error.to_string())
    }

    #[test]
    fn iostat_tells_reads_and_writes() {
        let report = |time: &str, reads: &str, writes: &str| {
            format!(
                "{time}\navg-cpu:  %user %nice %system %iowait  %steal   %idle\n   0,10 0,00 0,10 \
                 0,00 0,00 99,80\n\nDevice            r/s     rkB/s     w/s     wkB/s  %util\n\
                 sda  {reads} 9,00 {writes} 9,00 1,00\nsdb 1,00 1,00 1,00 1,00 1,00\n\n\n"
            )
        };
        for times in [
            ["11/25/2026 11:59:30 PM", "11/25/2026 11:59:40 PM", "11/26/2026 12:00:00 AM"],
            ["25.11.2026 23:59:30", "25.11.2026 23:59:40", "26.11.2026 00:00:00"],
            ["2026-11-25T23:59:30+0100", "2026-11-25T23:59:40+0100", "2026-11-26T00:00:00+0100"],
        ] {
            let text = "Linux 6.1.0 (host) \t11/25/2026 \t_x86_64_\t(8 CPU)\n\n".to_owned()
                + &report(times[0], "500,00", "500,00")
                + &report(times[1], "10,00", "0,00")
                + &report(times[2], "15,00", "2,50");
            let windows = of(&text, "sda").unwrap();
            assert_eq!(windows[0], Window { length: 10e9, reads: 0.25, writes: 0.0 }, "{times:?}");
            assert_eq!(windows[1], Window { length: 20e9, reads: 0.75, writes: 1.0 });
            assert!(of(&text, "sdc").unwrap_err().contains("no windows of workload 'sdc'"));
        }
        let no_time = report("", "1,00", "1,00");
        assert!(of(&no_time, "sda").unwrap_err().contains("iostat -xt"));
        let first = report("25.11.2026 23:59:30", "1,00", "1,00");
        assert!(of(&first, "sda").unwrap_err().contains("has one report of 'sda'"));
        let plain = "Device tps kB_read/s kB_wrtn/s\nsda 1 1 1\n";
        assert!(of(plain, "sda").unwrap_err().contains("no columns r/s and w/s"));
    }

    #[test]
    fn sar_tells_requests_and_data() {
        let text = "\
Linux 5.15.0 (host)  11/25/2026  _x86_64_ (8 CPU)

11:40:01 PM       DEV       tps     rkB/s     wkB/s   areq-sz
11:50:01 PM       sda     10.00     30.00     10.00      4.00
11:50:01 PM       sdb      1.00      1.00      0.00      1.00
12:00:01 AM       sda     10.00     10.00     30.00      4.00

12:02:01 AM  LINUX RESTART (8 CPU)

12:10:01 AM       DEV       tps     rkB/s     wkB/s   areq-sz
12:20:01 AM       sda      0.00      0.00      0.00      0.00
Average:          sda      6.67     13.33     13.33      4.00
";
        let windows = of(text, "sda").unwrap();
        let lengths: Vec<f64> = windows.iter().map(|window| window.length / 1e9).collect();
        assert_eq!(lengths, [600.0, 600.0, 600.0, 600.0]);
        // With a clock of 24 hours the means stand in the columns of the rest.
        let day = "10:00:00 DEV tps rkB/s wkB/s\n10:10:00 sda 1 3 1\n10:20:00 sda 2,0 3 1\n\
                   Durchschn.: DEV tps rkB/s wkB/s\nDurchschn.: sda 1 3 1\n";
        assert_eq!(of(day, "sda").map(|windows| windows.len()), Ok(2));
        let shares: Vec<_> = windows.iter().map(|window| (window.reads, window.writes)).collect();
        assert_eq!(shares, [(0.75, 0.25), (0.25, 0.75), (0.0, 0.0), (0.0, 0.0)]);
    }

    proptest! {
        #[test]
        fn no_report_panics(lines in
            prop::collection::vec("[ 0-9:,.APMDEVicrw/stpkBsda-]{0,40}", 0..12),
        ) {
            let _ = of(&lines.join("\n"), "sda");
        }
    }
}
