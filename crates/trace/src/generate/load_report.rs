//! Load shapes out of what `iostat -xt` and `sar -d` print.

use std::io::BufRead;

use super::windows::{Loads, Others, Rate, Window, complete, divided, each_line, number, shares};
use crate::reports::DEVICES;
use crate::request::TraceError;
use crate::times::{self, Clock, half};
use jiff::civil::Date;

const DAY: f64 = 86_400.0;

/// The windows of one device.
pub(super) fn windows(from: impl BufRead, file: &str, device: &str) -> Result<Loads, TraceError> {
    let mut readings = Readings::new(device);
    let take = |readings: &mut Readings<'_>, line: &str| readings.each(|report| report.line(line));
    let cut = each_line(from, file, &mut readings, take)?;
    let mut loads = readings.loads(file)?;
    loads.notes.extend(cut);
    Ok(loads)
}

/// A report whose dates have the month first, and the same with the day first: 03/04/2026 does not
/// tell. A reading ends where a date does not exist or lies before the one above.
#[derive(Clone)]
pub(super) struct Readings<'a>(Vec<Report<'a>>);

impl<'a> Readings<'a> {
    pub(super) fn new(device: &'a str) -> Self {
        let report = |month_first| Report { device, month_first, ..Report::default() };
        Self([true, false].map(report).into())
    }

    pub(super) fn each(
        &mut self,
        take: impl Fn(&mut Report<'a>) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut failed = Ok(());
        self.0.retain_mut(|report| take(report).map_err(|reason| failed = Err(reason)).is_ok());
        if self.0.is_empty() { failed } else { Ok(()) }
    }

    /// Of the reading whose reports lie closer together.
    pub(super) fn loads(&self, file: &str) -> Result<Loads, TraceError> {
        let seconds = |report: &Report| report.rates.iter().map(|rate| rate.seconds).sum::<f64>();
        let best = self.0.iter().min_by(|a, b| seconds(a).total_cmp(&seconds(b)));
        let windows = best.map_or(Ok(Vec::new()), |report| report.windows(file))?;
        Ok(Loads { windows, notes: best.map_or(Vec::new(), Report::notes) })
    }
}

#[derive(Clone, Default)]
pub(super) struct Report<'a> {
    device: &'a str,
    others: Others,
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
    /// The greatest of the first reports, which are of the time since the machine was started.
    first: Option<(f64, f64)>,
    /// Reports with the time of the one before, now and in all.
    same: (f64, u64),
    /// A row was left out: what it was is not known.
    left_out: bool,
    /// What stands where a time should, in a row that has none.
    untimed: Option<String>,
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
    pub(super) fn line(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.is_empty() {
            return Ok(());
        }
        if words[0] == "Linux" {
            // Behind the release and the host, before the architecture.
            let date = words.iter().skip(3).take_while(|word| !word.starts_with('_'));
            return self.begin(&date.copied().collect::<Vec<_>>().join(" "));
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
        let other = self.columns.filter(|of| words.len() == of.count && !is_row(*of));
        let name = other.map(|of| words[of.device]).filter(|name| !name.ends_with(':'));
        name.filter(|name| number(name).is_err())
            .into_iter()
            .for_each(|name| self.others.see(name));
        match self.columns {
            Some(columns @ Columns { kind: Kind::Sar(..), .. }) => {
                if is_row(columns) {
                    // Those without a time are means of all.
                    if self.clock(words)? {
                        return self.row(words, columns);
                    }
                    self.untimed.get_or_insert_with(|| words[..columns.device].join(" "));
                    return Ok(());
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
            _ if words.len() <= FIELDS && is_dated(words) => self.clock(words).map(|_| ()),
            _ => Ok(()),
        }
    }

    /// The first line of a report, with its date.
    pub(super) fn begin(&mut self, date: &str) -> Result<(), String> {
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
        if let (false, Some(time)) = (self.measured, &self.untimed) {
            let reason = format!(
                "it has rows of '{}', but '{time}' is no time that is understood: run sar with \
                 LC_ALL=C and S_TIME_FORMAT=ISO",
                self.device
            );
            return Err(TraceError::Format { file: file.to_owned(), reason });
        }
        let rates = if self.measured { &self.rates[..] } else { &[] };
        shares(rates, file, self.device, &self.others)
    }

    /// What is not plain about the windows.
    fn notes(&self) -> Vec<String> {
        let most = self.rates.iter().map(|rate| rate.reads + rate.writes).fold(0.0, f64::max);
        let first = self.first.filter(|(reads, writes)| reads + writes > most);
        let first = first.map(|(reads, writes)| {
            format!(
                "the first report ({reads} r/s, {writes} w/s) is not counted, as the one of the \
                 time since the machine was started; with iostat -y it is a window"
            )
        });
        let same = (self.same.1 > 0).then(|| {
            format!(
                "{} reports have the time of the one before: the mean counts of each",
                self.same.1
            )
        });
        first.into_iter().chain(same).collect()
    }

    /// Passes over a row of the device of which too little is known.
    pub(super) fn leave_out(&mut self) {
        self.left_out = true;
    }

    /// Takes the time of a line that has one: `14:00:01`, `02:00:01 PM` or `...T14:00:01+0100`,
    /// with the date before it.
    fn clock(&mut self, words: &[&str]) -> Result<bool, String> {
        let Some((at, date, clock)) = find_clock(words) else { return Ok(false) };
        let half = half(&words[at + 1..]).or_else(|| half(&words[at.checked_sub(1)?..at]));
        let clock = half.map_or(clock, |(afternoon, _)| clock.in_half(afternoon));
        let time = (clock.nanos / 1_000_000_000) as f64 - f64::from(clock.ahead.unwrap_or(0));
        let day = self.day.take();
        let now = match (self.day_of(&date)?.or(day), self.now) {
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
        let date = times::date(word, self.month_first).transpose()?;
        Ok(date.map(|date| date.duration_since(Date::constant(1970, 1, 1)).as_secs_f64()))
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
        complete(words.len(), columns.count)?;
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
            if self.first.is_none_or(|(r, w)| r + w < reads + writes) {
                self.first = Some((reads, writes));
            }
            self.idle_until_now();
            return Ok(());
        }
        let Some(mut ended) = self.ended.replace(now) else { return Ok(()) };
        let left_out = std::mem::take(&mut self.left_out);
        if let Some(before) = self.before.filter(|before| *before > ended && !left_out) {
            // Idle devices are left out (-z).
            self.rates.push(Rate { seconds: before - ended, reads: 0.0, writes: 0.0 });
            ended = before;
        }
        if ended >= now {
            // Two within the second in which the clock counts.
            self.same = (self.same.0 + 1.0, self.same.1 + 1);
            if let Some(last) = self.rates.last_mut().filter(|_| self.measured) {
                let mean = |old: f64, new: f64| old + (new - old) / (self.same.0 + 1.0);
                (last.reads, last.writes) = (mean(last.reads, reads), mean(last.writes, writes));
            }
            return Ok(());
        }
        self.same.0 = 0.0;
        self.measured = true;
        self.rates.push(Rate { seconds: now - ended, reads, writes });
        Ok(())
    }
}

/// Most words of a date with its time of day: `Wednesday 25 November 2026 02:00:01 PM IST`.
const FIELDS: usize = 7;

/// Where the time of a line stands, and what stands before it as a date.
fn find_clock(words: &[&str]) -> Option<(usize, String, Clock)> {
    // A date with dots can look like a time, and stands first.
    words.iter().take(FIELDS).enumerate().rev().find_map(|(at, word)| {
        let (date, time) = word.rsplit_once('T').unwrap_or(("", word));
        let date = if at > 0 { words[..at].join(" ") } else { date.to_owned() };
        Some((at, date, times::clock(time)?))
    })
}

/// Whether a line is a time of iostat, which has a date or another word before it: rows of sar
/// begin with a time.
fn is_dated(words: &[&str]) -> bool {
    find_clock(words).is_some_and(|(at, date, _)| match at {
        0 => !date.is_empty(),
        _ => half(&words[..1]).is_none(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str, device: &str) -> Result<Vec<Window>, String> {
        all(text, device).map(|loads| loads.windows)
    }

    fn all(text: &str, device: &str) -> Result<Loads, String> {
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
            assert!(of(&text, "sdc").unwrap_err().contains("no windows of workload 'sdc'; it has"));
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

    #[test]
    fn a_report_is_of_the_day_that_its_first_line_names() {
        let rows = "DEV tps rkB/s wkB/s\n10:00:10 sda 1 1 0\n";
        let report =
            |date: &str| format!("Linux 6.1.0 (h) {date} _x86_64_ (8 CPU)\n10:00:00 {rows}");
        for [one, next] in [
            ["11/25/2026", "11/26/2026"],
            ["Wednesday 25 November 2026", "Thursday 26 November 2026"],
        ] {
            let text = report(one) + &report(next);
            assert_eq!(lengths(&text), [10.0, -86_390.0, 10.0], "{one}");
        }
    }

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
            (["Sunday 28 February 2027 11:59:50 PM", "Monday 01 March 2027 12:00:00 AM"], 10.0),
            (["28-Feb-2027 23:59:50", "01-Mar-2027 00:00:00"], 10.0),
            (["2026-10-25T02:59:50+0200", "2026-10-25T02:00:00+0100"], 10.0),
        ] {
            assert_eq!(lengths(&iostat(&times)), [seconds], "{times:?}");
        }
        let error = of(
            &iostat(&["11/25/26 10:00:00", "11/25/26 10:00:10"])
                .replace("sda 10", "sda 9223372036854775808.00"),
            "sda",
        );
        assert!(error.unwrap_err().contains("a counter went back"));
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
    fn what_is_left_out_or_taken_as_a_mean_is_said() {
        let times = ["10:00:00", "10:00:10", "10:00:20"].map(|time| format!("2026-11-25 {time}"));
        let text = iostat(&times.each_ref().map(String::as_str));
        let loads = |text: &str| all(text, "sda").unwrap();
        assert_eq!((loads(&text).windows.len(), loads(&text).notes.len()), (2, 0));
        let first = text.replacen("sda 10", "sda 99", 1);
        let notes = loads(&first).notes;
        assert!(notes[0].starts_with("the first report (99 r/s, 0 w/s) is not counted"));
        let cut = loads(text.trim_end_matches(" 1\n\n"));
        assert_eq!(cut.windows.len(), 1);
        assert!(cut.notes[0].starts_with("line 11, the last, is cut off"), "{:?}", cut.notes);
        let within = text.replacen("sda 10 0 1", "sda 10", 3);
        assert!(of(&within, "sda").unwrap_err().contains("r:3: 2 columns, not the 4 of"));
        // Two reports within one second.
        let twice = text.replace("10:00:20", "10:00:10").replacen("sda 10", "sda 30", 3);
        let third = iostat(&["2026-11-25 10:00:20"]).replace("sda 10", "sda 40");
        let loads = loads(&(twice.replacen("sda 30", "sda 50", 1) + &third));
        let shares: Vec<f64> = loads.windows.iter().map(|window| window.reads).collect();
        assert_eq!((shares, loads.notes.len()), (vec![3.0 / 7.0, 4.0 / 7.0], 2));
    }

    #[test]
    fn clocks_of_other_locales_are_times_too() {
        for times in [
            ["29/11/2026 11:59:30 a. m.", "29/11/2026 12:00:00 p. m."],
            ["2026年11月29日 上午 11:59:30", "2026年11月29日 下午 12:00:00"],
            ["2026年11月29日 11時59分30秒", "2026年11月29日 12時00分00秒"],
            ["29.11.26 11.59.30", "29.11.26 12.00.00"],
            ["29/11/2026 11:59:30 πμ", "29/11/2026 12:00:00 μμ"],
        ] {
            assert_eq!(lengths(&iostat(&times)), [30.0], "{times:?}");
        }
        let sar = "11:30:00 πμ DEV tps rkB/s wkB/s\n12:00:00 μμ sda 1 1 0\n\
                   12:30:00 μμ sda 1 1 0\n01:00:00 μμ sda 1 1 0\n";
        assert_eq!(lengths(sar), [1800.0; 3]);
        let odd = "at_noon DEV tps rkB/s wkB/s\nat_one sda 1 1 0\n";
        let error = of(odd, "sda").unwrap_err();
        assert!(error.contains("'at_one' is no time that is understood"), "{error}");
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
