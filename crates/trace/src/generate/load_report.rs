//! Load shapes out of what `iostat -xt`, also with `-o JSON`, and `sar -d` print.

use std::collections::BTreeMap;
use std::io::{BufRead, Read};

use jiff::civil::Date;
use serde::Deserialize;
use serde_json::Value;

use super::windows::{Rate, Window, divided, each_line, number, shares};
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
    #[serde(default)]
    date: String,
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
        format(format!(
            "not what iostat -xt -o JSON prints, nor sar -d or sadf -d as text: {error}"
        ))
    })?;
    let mut readings = Readings::new(device);
    for host in json.sysstat.hosts {
        readings.each(|report| report.begin(&host.date)).map_err(format)?;
        for all in host.statistics {
            readings.each(|report| report.line(&all.timestamp)).map_err(format)?;
            for disk in &all.disk {
                let name =
                    |name: &String| if name == "disk_device" { "Device" } else { name }.to_owned();
                let text =
                    |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let names = disk.keys().map(name).collect::<Vec<_>>().join(" ");
                let values = disk.values().map(text).collect::<Vec<_>>().join(" ");
                readings.each(|report| report.line(&names)).map_err(format)?;
                readings.each(|report| report.line(&values)).map_err(format)?;
            }
        }
    }
    readings.windows(file)
}

/// The windows of one device.
pub(super) fn windows(
    from: impl BufRead,
    file: &str,
    device: &str,
) -> Result<Vec<Window>, TraceError> {
    let mut readings = Readings::new(device);
    each_line(from, file, |line| readings.each(|report| report.line(line)))?;
    readings.windows(file)
}

/// A report whose dates have the month first, and the same with the day first: 03/04/2026 does not
/// tell. A reading ends where a date does not exist or lies before the one above.
struct Readings<'a>(Vec<Report<'a>>);

impl<'a> Readings<'a> {
    fn new(device: &'a str) -> Self {
        let report = |month_first| Report { device, month_first, ..Report::default() };
        Self([true, false].map(report).into())
    }

    fn each(&mut self, take: impl Fn(&mut Report<'a>) -> Result<(), String>) -> Result<(), String> {
        let mut failed = Ok(());
        self.0.retain_mut(|report| take(report).map_err(|reason| failed = Err(reason)).is_ok());
        if self.0.is_empty() { failed } else { Ok(()) }
    }

    /// Of the reading whose reports lie closer together.
    fn windows(&self, file: &str) -> Result<Vec<Window>, TraceError> {
        let seconds = |report: &Report| report.rates.iter().map(|rate| rate.seconds).sum::<f64>();
        let all = self.0.iter().min_by(|a, b| seconds(a).total_cmp(&seconds(b)));
        all.map_or(Ok(Vec::new()), |report| report.windows(file))
    }
}

#[derive(Default)]
struct Report<'a> {
    device: &'a str,
    month_first: bool,
    columns: Option<Columns>,
    /// The day in the first line of a report, until a time follows.
    day: Option<f64>,
    /// Seconds since 1970 or, without dates, since the first midnight: of the last time, and where
    /// the last window ended.
    now: Option<f64>,
    ended: Option<f64>,
    /// The time before the last: a rate is of what lies between.
    before: Option<f64>,
    /// Whether iostat has told of the time since the machine was started.
    started: bool,
    /// Whether a window is of a row, not of the time between.
    measured: bool,
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
        if words.is_empty() {
            return Ok(());
        }
        if words[0] == "Linux" {
            // Behind the release and the host.
            return self.begin(words.get(3).copied().unwrap_or_default());
        }
        let place = |names: &[&str]| words.iter().position(|word| names.contains(word));
        if let Some(device) = place(&DEVICES[..2]) {
            let (Some(reads), Some(writes)) = (place(&["r/s"]), place(&["w/s"])) else {
                return Err(
                    "the heading has not both r/s and w/s: run iostat -xt, without -h or --pretty"
                        .to_owned(),
                );
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
            self.clock(&words)?;
            self.idle_until_now();
            let kind = Kind::Sar(requests, read, written);
            self.columns = Some(Columns { count: words.len(), device, kind });
        } else {
            return self.other(&words);
        }
        Ok(())
    }

    /// A line that names no columns: of a device, with a time, or of something else.
    fn other(&mut self, words: &[&str]) -> Result<(), String> {
        let is_row = |of: Columns| words.get(of.device) == Some(&self.device);
        match self.columns {
            Some(columns @ Columns { kind: Kind::Sar(..), .. }) => {
                if is_row(columns) {
                    // Those without a time are means of all.
                    return if self.clock(words)? { self.row(words, columns) } else { Ok(()) };
                }
                if words.last().is_some_and(|word| number(word).is_err()) {
                    // A heading of other things, which have times of their own.
                    self.columns = None;
                    return Ok(());
                }
                self.clock(words).map(|_| ())
            }
            Some(columns) if is_row(columns) => self.row(words, columns),
            // Rows of sar begin with a time, those of iostat follow a date and time.
            _ if words.len() <= 3 && of_day(words[0]).is_none() => self.clock(words).map(|_| ()),
            _ => Ok(()),
        }
    }

    /// The first line of a report, with its date.
    fn begin(&mut self, date: &str) -> Result<(), String> {
        self.columns = None;
        self.started = false;
        self.day = self.day_of(date)?;
        Ok(())
    }

    /// The windows, or why there are none.
    fn windows(&self, file: &str) -> Result<Vec<Window>, TraceError> {
        if self.started && !self.measured {
            let reason = format!(
                "of '{}' it has first reports only, about the time since the machine was started: \
                 run iostat -xt INTERVAL",
                self.device
            );
            return Err(TraceError::Format { file: file.to_owned(), reason });
        }
        shares(if self.measured { &self.rates } else { &[] }, file, self.device)
    }

    /// Takes the time of a line that has one: `14:00:01`, `02:00:01 PM` or `...T14:00:01+0100`,
    /// with the date before it.
    fn clock(&mut self, words: &[&str]) -> Result<bool, String> {
        let mut found = words.iter().take(2).enumerate();
        let Some((at, date, (clock, seconds))) = found.find_map(|(at, word)| {
            let (date, time) = word.rsplit_once('T').unwrap_or(("", word));
            Some((at, if at > 0 { words[0] } else { date }, of_day(time)?))
        }) else {
            return Ok(false);
        };
        let half = match words.get(at + 1).map(|word| word.to_ascii_uppercase()).as_deref() {
            Some("AM") if clock == 12 => -DAY / 2.0,
            Some("PM") if clock < 12 => DAY / 2.0,
            _ => 0.0,
        };
        let (time, day) = (seconds + half, self.day.take());
        let now = match (self.day_of(date)?.or(day), self.now) {
            (Some(day), _) => day + time,
            (None, None) => time,
            (None, Some(before)) => {
                let today = before - before.rem_euclid(DAY) + time;
                // The clock is past midnight rather than set back by most of a day.
                if before - today > DAY / 2.0 { today + DAY } else { today }
            }
        };
        if self.now != Some(now) {
            self.before = self.now;
        }
        if let Some(before) = self.now.filter(|before| now < *before) {
            return Err(format!(
                "{} lies {} s before the time above it: if a clock was set, keep the part above or \
                 below; with summer time, run iostat with S_TIME_FORMAT=ISO, or sadf -d",
                words[..=at].join(" "),
                before - now
            ));
        }
        self.now = Some(now);
        Ok(true)
    }

    /// Seconds from 1970 to a date, if the word is of three numbers.
    fn day_of(&self, word: &str) -> Result<Option<f64>, String> {
        let numbers = word.split(|letter: char| !letter.is_ascii_digit());
        let numbers: Vec<&str> = numbers.filter(|number| !number.is_empty()).collect();
        let [first, second, third] = numbers[..] else { return Ok(None) };
        let (year, month, day) = match (first.len(), word.contains('/') && self.month_first) {
            (4, _) => (first, second, third),
            (_, true) => (third, first, second),
            (_, false) => (third, second, first),
        };
        let century = if year.len() == 2 { 2000 } else { 0 };
        let date = || {
            let year = year.parse::<i16>().ok()?.checked_add(century)?;
            Date::new(year, month.parse().ok()?, day.parse().ok()?).ok()
        };
        let date = date().ok_or_else(|| format!("'{word}' is no date"))?;
        Ok(Some(date.duration_since(Date::constant(1970, 1, 1)).as_secs_f64()))
    }

    /// What lies between the last window and a new start has no load: the machine was off, or
    /// nothing was measured.
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
        let number = |place: usize| number(words.get(place).copied().unwrap_or_default());
        let (is_first, (reads, writes)) = match columns.kind {
            Kind::Iostat(reads, writes) => (!self.started, (number(reads)?, number(writes)?)),
            Kind::Sar(requests, read, written) => {
                (false, divided(number(requests)?, number(read)?, number(written)?))
            }
        };
        let now = self.now.ok_or(
            "there are no times between the reports, or none that is understood: run iostat -xt \
             with S_TIME_FORMAT=ISO",
        )?;
        if is_first {
            // About the time since the machine was started.
            self.started = true;
            self.idle_until_now();
            return Ok(());
        }
        let Some(mut ended) = self.ended.replace(now) else { return Ok(()) };
        if let Some(before) = self.before.filter(|before| *before > ended) {
            // Idle devices are left out (-z).
            self.rates.push(Rate { seconds: before - ended, reads: 0.0, writes: 0.0 });
            ended = before;
        }
        if ended >= now {
            return Err("no time lies between this and the report before".to_owned());
        }
        self.measured = true;
        self.rates.push(Rate { seconds: now - ended, reads, writes });
        Ok(())
    }
}

/// Hours and seconds of a time of day, the seconds those of Greenwich where a zone follows.
fn of_day(word: &str) -> Option<(u32, f64)> {
    let mut parts = word.splitn(3, ':');
    let hours: u32 = parts.next()?.parse().ok().filter(|hours| *hours < 24)?;
    let minutes: u32 = parts.next()?.parse().ok().filter(|minutes| *minutes < 60)?;
    let rest = parts.next()?;
    let (seconds, zone) = rest.split_at(rest.find(['+', '-', 'Z']).unwrap_or(rest.len()));
    let seconds: u32 = seconds.parse().ok().filter(|seconds| *seconds <= 60)?;
    let ahead = match zone.replace(':', "").parse::<i32>() {
        Ok(zone) => zone / 100 * 3600 + zone % 100 * 60,
        Err(_) => 0,
    };
    Some((hours, f64::from(hours * 3600 + minutes * 60 + seconds) - f64::from(ahead)))
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
        assert!(of(&first, "sda").unwrap_err().contains("has first reports only"));
        let plain = "Device tps kB_read/s kB_wrtn/s\nsda 1 1 1\n";
        assert!(of(plain, "sda").unwrap_err().contains("has not both r/s and w/s"));
        // With -h reads and writes stand apart.
        let apart = "     r/s     rkB/s Device\n 500.00 9.0k sda\n";
        assert!(of(apart, "sda").unwrap_err().contains("without -h"));
    }

    const HEAD: &str = "Linux 6.1.0 (host)  11/25/2026  _x86_64_ (8 CPU)\n\n";

    fn iostat(times: &[&str]) -> String {
        let report = |time: &&str| format!("{time}\nDevice r/s w/s %util\nsda 10 0 1\n\n");
        times.iter().map(report).collect()
    }

    /// Seconds of each window, negative where it has no load.
    fn lengths(text: &str) -> Vec<f64> {
        let seconds =
            |window: &Window| window.length / 1e9 * if window.reads > 0.0 { 1.0 } else { -1.0 };
        of(text, "sda").unwrap().iter().map(seconds).collect()
    }

    #[test]
    fn dates_tell_how_long_a_window_is() {
        for (times, seconds) in [
            (["11/25/2026 11:00:10 PM", "11/27/2026 11:00:20 PM"], 172_810.0),
            // Month and day are told apart by what lies closer together.
            (["03/04/26 23:59:50", "03/05/26 00:00:00"], 10.0),
            (["04/03/2026 23:59:50", "05/03/2026 00:00:00"], 10.0),
            (["31/10/2026 23:59:50", "01/11/2026 00:00:00"], 10.0),
            (["10/31/2026 23:59:50", "11/01/2026 00:00:00"], 10.0),
            (["28-02-2028 23:59:50", "01-03-2028 00:00:00"], 86_410.0),
            (["2026-10-25T02:59:50+0200", "2026-10-25T02:00:00+0100"], 10.0),
        ] {
            assert_eq!(lengths(&iostat(&times)), [seconds], "{times:?}");
        }
        let odd = "10:00:00 DEV tps rkB/s wkB/s x\n10:10:00 sda 1 nan 1 x\n";
        assert!(of(odd, "sda").unwrap_err().contains("r:2: 'nan' is not a number"));
        let error = of(&iostat(&["13/13/2026 10:00:00", "13/13/2026 10:00:10"]), "sda");
        assert!(error.unwrap_err().contains("r:1: '13/13/2026' is no date"));
    }

    #[test]
    fn a_device_that_is_left_out_is_idle() {
        let report = |time, device| iostat(&[time]).replace("sda", device);
        let text = report("2026-11-25 10:00:00", "sda")
            + &report("2026-11-25 10:00:10", "sdb")
            + &report("2026-11-25 10:00:20", "sda");
        assert_eq!(lengths(&text), [-10.0, 10.0]);
        let sar = "10:00:00 DEV tps rkB/s wkB/s\n10:10:00 sdb 1 1 0\n10:20:00 sda 1 1 0\n\
                   10:20:00 sdb 1 1 0\n10:30:00 sdb 1 1 0\n10:40:00 sda 1 1 0\n";
        assert_eq!(lengths(sar), [-600.0, 600.0, -600.0, 600.0]);
    }

    #[test]
    fn a_clock_that_goes_back_is_refused_by_line() {
        let back = ["11/25/2026 11:00:00 PM", "11/25/2026 11:00:10 PM", "11/25/2026 11:00:09 PM"];
        let sar = "10:00:00 DEV tps rkB/s wkB/s\n10:10:00 sda 1 3 1\n10:09:59 sda 1 3 1\n";
        for (text, said) in [
            (HEAD.to_owned() + &iostat(&back), "r:11: 11/25/2026 11:00:09 lies 1 s before"),
            (iostat(&["10/25/2026 02:59:50", "10/25/2026 02:00:00"]), "S_TIME_FORMAT=ISO"),
            (sar.to_owned(), "r:3: 10:09:59 lies 1 s before"),
        ] {
            let error = of(&text, "sda").unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn each_first_line_begins_anew() {
        let run = |times: [&str; 2]| HEAD.to_owned() + &iostat(&times);
        let twice = run(["11/25/2026 11:00:00 PM", "11/25/2026 11:00:10 PM"])
            + &run(["11/25/2026 11:30:00 PM", "11/25/2026 11:30:10 PM"]);
        assert_eq!(lengths(&twice), [10.0, -1790.0, 10.0]);
        let first = HEAD.to_owned() + &iostat(&["11/25/2026 11:00:00 PM"]);
        let firsts = first.clone() + &first.replace("11:00:00", "11:10:00");
        assert!(of(&firsts, "sda").unwrap_err().contains("run iostat -xt INTERVAL"));
        // What sar prints of other things has times of its own; without dates midnight passes.
        let sar = |head: &str| {
            let cpus = "23:30:01 CPU %user\n23:50:01 all 1\n00:10:01 all 1\nAverage: all 1\n\n";
            let disks = "23:30:01 DEV tps rkB/s wkB/s\n23:50:01 sda 1 1 0\n00:10:01 sda 1 1 0\n";
            format!("{head}{cpus}{disks}")
        };
        assert_eq!(lengths(&sar("")), [1200.0, 1200.0]);
        let days = sar(HEAD) + &sar(&HEAD.replace("/25", "/28"));
        assert_eq!(lengths(&days), [1200.0, 1200.0, -256_800.0, 1200.0, 1200.0]);
        assert!(of(&days, "sdb").unwrap_err().contains("no windows of workload 'sdb'"));
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
