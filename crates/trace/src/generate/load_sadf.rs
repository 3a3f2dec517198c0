//! Load shapes out of what `sadf -d FILE -- -d` writes: rows of sar with semicolons and dates.

use std::io::BufRead;

use super::windows::{Loads, Others, Rate, complete, divided, each_line, number, shares};
use crate::request::TraceError;
use crate::times::moment;

/// Time and interval are in whole seconds: so much lies between two rows that follow each other.
const ROUNDED: f64 = 1.0;

/// The windows of one device.
pub(super) fn windows(from: impl BufRead, file: &str, device: &str) -> Result<Loads, TraceError> {
    let mut export = Export { device, ..Export::default() };
    let notes = each_line(from, file, &mut export, Export::line)?;
    Ok(Loads { windows: shares(&export.rates, file, device, &export.others)?, notes })
}

#[derive(Clone, Default)]
struct Export<'a> {
    device: &'a str,
    others: Others,
    /// Places of those that are used, where the rows are of devices, and how many there are.
    columns: Option<([usize; 6], usize)>,
    /// What stands behind all times.
    zone: Option<String>,
    /// Seconds since 1970 where the last window ended.
    ended: Option<f64>,
    rates: Vec<Rate>,
}

impl Export<'_> {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let words: Vec<&str> = line.trim_end().split(';').collect();
        if line.starts_with('#') {
            self.columns = columns(&words)?.map(|columns| (columns, words.len()));
            return Ok(());
        }
        let Some((columns, count)) = self.columns else { return Ok(()) };
        let is_event = |word: &&str| word.starts_with("LINUX-RESTART") || word.starts_with("COM ");
        if words.get(columns[2]).is_some_and(is_event) {
            return Ok(());
        }
        complete(words.len(), count)?;
        let [interval, timestamp, device, requests, read, written] =
            columns.map(|place| words.get(place).copied().unwrap_or_default());
        if device != self.device {
            self.others.see(device);
            return Ok(());
        }
        let (now, zone) = time(timestamp)?;
        let interval = number(interval)?;
        if *self.zone.get_or_insert_with(|| zone.to_owned()) != zone {
            return Err(format!(
                "the zone of '{timestamp}' is not that of the rows above: export in UTC, by sadf \
                 -d without -T and -t"
            ));
        }
        let began = match self.ended.replace(now) {
            Some(ended) if now <= ended => {
                return Err(format!(
                    "'{timestamp}' does not lie after the row above: export with sadf -d without \
                     -T and -t, the files in the order of their days"
                ));
            }
            Some(ended) if now - interval > ended + ROUNDED => {
                let seconds = now - interval - ended;
                self.rates.push(Rate { seconds, reads: 0.0, writes: 0.0 });
                now - interval
            }
            Some(ended) => ended,
            None if interval > 0.0 => now - interval,
            None => return Err("the interval is 0".to_owned()),
        };
        let (reads, writes) = divided(number(requests)?, number(read)?, number(written)?);
        self.rates.push(Rate { seconds: now - began, reads, writes });
        Ok(())
    }
}

/// Where a heading of devices has what is used; `None` in one of something else.
fn columns(words: &[&str]) -> Result<Option<[usize; 6]>, String> {
    let place = |names: &[&str]| words.iter().position(|word| names.contains(word));
    let Some(device) = place(&["DEV"]) else {
        return match place(&["DEV[...]"]) {
            Some(_) => Err("all devices stand in one row: run sadf without -h".to_owned()),
            None => Ok(None),
        };
    };
    let all = || {
        Some([
            place(&["interval"])?,
            place(&["timestamp"])?,
            device,
            place(&["tps"])?,
            place(&["rkB/s", "rd_sec/s"])?,
            place(&["wkB/s", "wr_sec/s"])?,
        ])
    };
    let missing = "the heading has not all of interval, timestamp, tps, rkB/s and wkB/s: run \
                   sadf -d FILE -- -d";
    all().map(Some).ok_or_else(|| missing.to_owned())
}

/// `2026-11-25 00:10:01 CET` as seconds since 1970 in its zone and the name of that, also without
/// one, or seconds since 1970.
fn time(word: &str) -> Result<(f64, &str), String> {
    if let Ok(seconds) = word.parse::<u32>() {
        return Ok((f64::from(seconds), ""));
    }
    let end = word.trim_end_matches(|c: char| !c.is_ascii_digit() && c != ' ').len();
    let (time, zone) = word.split_at(if word[..end].ends_with(' ') { end } else { word.len() });
    let time = moment(time, false).filter(|moment| moment.ahead.is_none());
    let time =
        time.ok_or_else(|| format!("'{word}' is no time such as 2026-11-25 00:10:01 UTC"))?;
    Ok((time.nanos as f64 * 1e-9, zone))
}

#[cfg(test)]
mod tests {
    use super::super::windows::Window;
    use super::*;

    const HEAD: &str = "# hostname;interval;timestamp;";

    fn of(rows: &str) -> Result<Vec<Window>, String> {
        all(rows).map(|loads| loads.windows)
    }

    fn all(rows: &str) -> Result<Loads, String> {
        let heading = "DEV;tps;rkB/s;wkB/s;areq-sz";
        windows(format!("{HEAD}{heading}\n{rows}").as_bytes(), "s", "sda")
            .map_err(|error| error.to_string())
    }

    #[test]
    fn rows_have_dates_and_intervals() {
        let rows = "\
host;600;2026-11-25 23:50:01 UTC;sda;10.00;30.00;10.00;4.00
host;600;2026-11-25 23:50:01 UTC;sdb;1.00;1.00;1.00;1.00
host;599;2026-11-26 00:00:01 UTC;sda;10,00;10,00;30,00;4,00
host;-1;2026-11-27 23:00:01 UTC;COM a;b
host;-1;2026-11-28 00:00:01 UTC;LINUX-RESTART\t(8 CPU)
# hostname;interval;timestamp;CPU;%user
host;600;2026-11-28 00:20:01 UTC;sda;7
# hostname;interval;timestamp;DEV;tps;rkB/s;wkB/s
host;600;2026-11-28 00:10:01 UTC;sda;0;0;0
";
        let seconds = |text: &str| {
            let all = of(text).unwrap();
            all.iter().map(|window| window.length / 1e9).collect::<Vec<_>>()
        };
        assert_eq!(seconds(rows), [600.0, 600.0, 172_800.0, 600.0]);
        let shares: Vec<_> =
            of(rows).unwrap().iter().map(|window| (window.reads, window.writes)).collect();
        assert_eq!(shares, [(0.75, 0.25), (0.25, 0.75), (0.0, 0.0), (0.0, 0.0)]);
        assert_eq!(seconds("h;5;1764029405;sda;1;1;1;1\nh;5;1764029410;sda;1;1;1;1\n"), [5.0; 2]);
    }

    #[test]
    fn rows_are_as_long_as_their_heading_and_the_last_may_be_cut() {
        let row = |minute: u32, tps: &str| {
            format!("h;60;2026-11-25 00:{minute:02}:00 CET;sda;{tps};1;1;1\n")
        };
        let rows = row(1, "1") + &row(2, "3");
        for broken in [row(3, "1;234"), "h;60;2026-11-25 00:03:00 CET;sdb;1\n".to_owned()] {
            let error = of(&format!("{rows}{broken}")).unwrap_err();
            assert!(error.contains("s:4: ") && error.contains("of the heading: delete"), "{error}");
        }
        let third = row(3, "80");
        for end in 1..third.len() - 3 {
            let loads = all(&format!("{rows}{}", &third[..end])).unwrap();
            assert_eq!((loads.windows.len(), loads.notes.len()), (2, 1), "{}", &third[..end]);
        }
        assert_eq!(of(&format!("{rows}{}", third.trim_end())).unwrap().len(), 3);
        let summer = rows.clone() + &row(3, "1").replace("CET", "CEST");
        assert!(of(&summer).unwrap_err().contains("the zone of"));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let row = "h;5;2026-11-25 00:00:05;sda;1;1;1;1\n";
        for (rows, said) in [
            (row.repeat(2), "s:3: '2026-11-25 00:00:05' does not lie after the row above"),
            (row.replace(":05", ":65"), "s:2: '2026-11-25 00:00:65' is no time such as"),
            (row.replace("h;5", "h;x"), "s:2: 'x' is not a number"),
            (row.replace("h;5", "h;0"), "s:2: the interval is 0"),
            (row.replace("sda;1", "sda;"), "s:2: '' is not a number"),
            (row.replace("sda", "sdb"), "no windows of workload 'sda'; it has those of 'sdb'"),
            (format!("{HEAD}DEV[...];tps\n{row}"), "s:2: all devices stand in one row"),
            (format!("{HEAD}DEV;tps\n{row}"), "s:2: the heading has not all of"),
        ] {
            let error = of(&rows).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
