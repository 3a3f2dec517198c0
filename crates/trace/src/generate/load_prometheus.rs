//! Load shapes out of the answer of Prometheus to a range query, in JSON.

use std::collections::BTreeMap;
use std::io::Read;

use serde::Deserialize;

use super::windows::{Loads, Others, Rate, shares};
use crate::request::TraceError;

/// What a metric's name has as one of its words, or a label of the direction as its value.
const READS: [&str; 5] = ["read", "reads", "nread", "rd", "r"];
const WRITES: [&str; 7] = ["write", "writes", "written", "writing", "nwritten", "wr", "w"];
/// Words in the name of a label whose value may be the direction.
const DIRECTION: [&str; 16] = [
    "access",
    "action",
    "cmd",
    "command",
    "dir",
    "direction",
    "io",
    "kind",
    "method",
    "mode",
    "op",
    "operation",
    "optype",
    "request",
    "rw",
    "type",
];

#[derive(Deserialize)]
struct Answer {
    data: Option<Data>,
    #[serde(default)]
    error: String,
}

#[derive(Deserialize)]
struct Data {
    #[serde(rename = "resultType")]
    kind: String,
    result: Vec<Series>,
}

#[derive(Deserialize)]
struct Series {
    metric: BTreeMap<String, String>,
    #[serde(default)]
    values: Vec<(f64, String)>,
}

/// The windows of the series that have `workload` as the value of a label: one of reads and one of
/// writes, as a label or the metric's name says, or one of both.
pub(super) fn windows(from: impl Read, file: &str, workload: &str) -> Result<Loads, TraceError> {
    let format = |reason: String| TraceError::Format { file: file.to_owned(), reason };
    let answer: Answer = serde_json::from_reader(from)
        .map_err(|error| format(format!("not the answer to a range query: {error}")))?;
    let Some(data) = answer.data else {
        return Err(format(match answer.error.as_str() {
            "" => "not the answer to a range query: it has no data".to_owned(),
            error => format!("Prometheus answered with an error, not with data: {error}"),
        }));
    };
    if data.kind != "matrix" {
        let kind = data.kind;
        return Err(format(format!("the result is a {kind}, not a matrix: use query_range")));
    }
    let rates = rates(&data.result, workload).map_err(format)?;
    let mut others = Others::default();
    let labels = data.result.iter().flat_map(|series| &series.metric);
    labels.filter(|(label, _)| *label != "__name__").for_each(|(_, value)| others.see(value));
    let windows = shares(&rates, file, workload, &others)?;
    let of_bytes = |series: &Series| {
        let name = series.metric.get("__name__").map_or("", String::as_str);
        series.metric.values().any(|v| v == workload) && words(name).any(|word| word == "bytes")
    };
    let note = data.result.iter().any(of_bytes).then(|| {
        "its series are of bytes: the load has their shape, with requests of one size".to_owned()
    });
    Ok(Loads { windows, notes: note.into_iter().collect() })
}

fn rates(all: &[Series], workload: &str) -> Result<Vec<Rate>, String> {
    let [mut reads, mut writes, mut both] = [None, None, None];
    for series in all.iter().filter(|series| series.metric.values().any(|v| v == workload)) {
        let (place, kind) = match directions(&series.metric, workload) {
            (true, false) => (&mut reads, "reads"),
            (false, true) => (&mut writes, "writes"),
            _ => (&mut both, "reads and writes together"),
        };
        if place.replace(series).is_some() {
            return Err(format!(
                "there are several series of {kind} of '{workload}': query one, or \
                 sum by (op) with a label op of read or write"
            ));
        }
    }
    match (reads, writes, both) {
        (None, None, None) => Ok(Vec::new()),
        (None, None, Some(both)) => {
            let pair = |(seconds, value)| Rate { seconds, reads: value, writes: value };
            Ok(points(both)?.into_iter().map(pair).collect())
        }
        (reads, writes, None) => {
            let times = |series: &Series| series.values.iter().map(|v| v.0).collect::<Vec<_>>();
            if let (Some(reads), Some(writes)) = (reads, writes)
                && times(reads) != times(writes)
            {
                return Err("the series of reads and of writes have other times".to_owned());
            }
            let reads = reads.map(points).transpose()?.unwrap_or_default();
            let writes = writes.map(points).transpose()?.unwrap_or_default();
            let count = reads.len().max(writes.len());
            let value = |all: &[(f64, f64)], at: usize| all.get(at).map_or(0.0, |point| point.1);
            let seconds = |at: usize| reads.get(at).or(writes.get(at)).map_or(0.0, |point| point.0);
            let rate = |at| Rate {
                seconds: seconds(at),
                reads: value(&reads, at),
                writes: value(&writes, at),
            };
            Ok((0..count).map(rate).collect())
        }
        _ => Err(format!("reads or writes of '{workload}' are there alone and together")),
    }
}

/// Whether a series is of reads and whether of writes: by its labels of the direction or, where
/// they do not say, by its name.
fn directions(metric: &BTreeMap<String, String>, workload: &str) -> (bool, bool) {
    let is_direction =
        |name: &str| name != "__name__" && words(name).any(|word| DIRECTION.contains(&&*word));
    let labels = metric.iter().filter(|(name, value)| is_direction(name) && *value != workload);
    let labels: Vec<String> = labels.map(|(_, value)| value.to_lowercase()).collect();
    let name = metric.get("__name__").map_or("", String::as_str);
    let says = |of: &[String]| {
        let any = |known: &[&str]| of.iter().any(|word| known.contains(&word.as_str()));
        (any(&READS), any(&WRITES))
    };
    match says(&labels) {
        (false, false) => says(&words(name).collect::<Vec<_>>()),
        said => said,
    }
}

/// Words of a name such as `job:node_disk_reads_completed:rate5m`.
fn words(name: &str) -> impl Iterator<Item = String> {
    name.split(|letter: char| !letter.is_alphanumeric()).map(str::to_lowercase)
}

/// Base units of metrics that are no requests and no data.
const OTHERS: [&str; 7] = ["seconds", "celsius", "ratio", "percent", "watts", "joules", "volts"];
/// Unix seconds of the year 2100: later times are in ms.
const LATEST: f64 = 4_102_444_800.0;

/// Seconds since the point before, and values; the first point is as long as the step.
fn points(Series { metric, values }: &Series) -> Result<Vec<(f64, f64)>, String> {
    let name = metric.get("__name__").map_or("", String::as_str);
    if let Some(unit) = words(name).find(|word| OTHERS.contains(&word.as_str())) {
        return Err(format!(
            "{name} counts {unit}, not requests: query a rate of requests, as in \
             rate(node_disk_reads_completed_total[5m])"
        ));
    }
    if values.iter().any(|(at, _)| *at > LATEST) {
        return Err("its times lie behind the year 2100, as if they were in ms: Prometheus has \
                    them in seconds; divide them by 1000"
            .to_owned());
    }
    let gaps: Vec<f64> = values.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    let step = gaps.iter().copied().reduce(f64::min).ok_or("a series has fewer than two values")?;
    if !(step > 0.0 && step.is_finite()) {
        return Err("the times of a series do not go on".to_owned());
    }
    if let Some(at) = gaps.iter().position(|gap| *gap > 1.5 * step) {
        let (after, gap) = (values[at].0, gaps[at]);
        return Err(format!(
            "a gap of {gap} s in the series after {after}: query a range before or behind it, or \
             rates over more than the gap, as in rate(...[{:.0}s])",
            2.0 * gap
        ));
    }
    let number = |(at, text): &(f64, String)| {
        let good = text.parse().ok().filter(|value: &f64| value.is_finite() && *value >= 0.0);
        good.map(|value| (step, value)).ok_or_else(|| {
            format!(
                "'{text}' at {at} is not a number of zero or more: query a range without it or, \
                 where it means no requests, (...) >= 0 or 0 * METRIC"
            )
        })
    };
    let points = values.iter().map(number).collect::<Result<Vec<_>, _>>()?;
    match metric.get("__name__").filter(|name| is_counter(name, &points)) {
        None => Ok(points),
        Some(name) => Err(format!(
            "{name} is a counter since some start, not a rate, as it seems: query rate({name}[5m]) \
             or, if it is a rate, {name} * 1"
        )),
    }
}

/// Whether a series is the counter itself: rate() drops the name, and a recording rule has colons
/// in its own. A rate falls about as often as it rises, a counter only where it starts anew.
fn is_counter(name: &str, points: &[(f64, f64)]) -> bool {
    let steps = || points.windows(2).map(|pair| pair[1].1 - pair[0].1);
    let (rises, falls) =
        (steps().filter(|s| *s > 0.0).count(), steps().filter(|s| *s < 0.0).count());
    name.ends_with("_total") || (!name.contains(':') && rises > 10 * falls)
}

#[cfg(test)]
mod tests {
    use super::super::windows::Window;
    use super::*;

    fn of(result: &str) -> Result<Vec<Window>, String> {
        all(result).map(|loads| loads.windows)
    }

    fn all(result: &str) -> Result<Loads, String> {
        let text = format!(
            r#"{{"status":"success","data":{{"resultType":"matrix","result":[{result}]}}}}"#
        );
        windows(text.as_bytes(), "p.json", "sda").map_err(|error| error.to_string())
    }

    #[test]
    fn series_of_reads_and_writes_belong_together() {
        let reads = r#"{"metric":{"device":"sda","op":"read"},"values":[[60,"1"],[120,"3"]]}"#;
        let writes = r#"{"metric":{"device":"sda","op":"write"},"values":[[60,"2"],[120,"2"]]}"#;
        let other = r#"{"metric":{"device":"sdb","op":"write"},"values":[[60,"2"]]}"#;
        let windows = of(&[reads, other, writes].join(",")).unwrap();
        assert_eq!(windows[0], Window { length: 60e9, reads: 0.25, writes: 0.5 });
        assert_eq!(windows[1], Window { length: 60e9, reads: 0.75, writes: 0.5 });
        assert_eq!(of(reads).unwrap()[1].writes, 0.0);
        let both = r#"{"metric":{"device":"sda"},"values":[[60,"1"],[120,"3"]]}"#;
        assert_eq!(of(both).unwrap()[1], Window { length: 60e9, reads: 0.75, writes: 0.75 });
        assert!(of(&[reads, both].join(",")).unwrap_err().contains("alone and together"));
        assert!(of(&[reads, reads].join(",")).unwrap_err().contains("several series of reads"));
        assert!(of(other).unwrap_err().contains("no windows of workload 'sda'"));
    }

    #[test]
    fn reads_and_writes_are_told_by_whole_words() {
        let (reads, writes, both) = ((true, false), (false, true), (false, false));
        for (name, label, value, said) in [
            ("", "job", "threads", both),
            ("iops", "instance", "spreadsheets-01:9100", both),
            ("", "pod", "log-writer-0", both),
            ("", "job", "read", both),
            ("", "mode", "read-only", both),
            ("threads_already_written_off", "job", "", writes),
            ("", "op", "read", reads),
            ("", "operation", "Write", writes),
            ("", "io_type", "READ", reads),
            ("disk_reads_writes", "direction", "write", writes),
            ("disk_reads_writes", "direction", "", (true, true)),
            ("node_disk_reads_completed", "job", "writer", reads),
            ("instance:node_disk_written_bytes:rate5m", "job", "", writes),
            ("container_fs_reads", "type", "ssd", reads),
            ("libvirt_domain_block_stats_write_requests", "job", "", writes),
            ("ceph_pool_rd", "job", "", reads),
            ("ceph_osd_op_w", "job", "", writes),
            ("node_zfs_zpool_nwritten", "job", "", writes),
        ] {
            let pairs = [("__name__", name), (label, value), ("device", "sda")];
            let metric = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            assert_eq!(directions(&metric, "sda"), said, "{name} {label}={value}");
        }
        let threads = r#"{"metric":{"device":"sda","job":"threads"},"values":[[0,"1"],[9,"3"]]}"#;
        assert_eq!(of(threads).unwrap()[1].writes, 0.75);
    }

    #[test]
    fn an_answer_that_is_an_error_tells_it() {
        let of = |text: &str| windows(text.as_bytes(), "p", "sda").unwrap_err().to_string();
        let error = r#"{"status":"error","errorType":"bad_data","error":"invalid \"query\""}"#;
        assert!(of(error).contains("an error, not with data: invalid \"query\""));
        assert!(of("{}").contains("it has no data"));
    }

    #[test]
    fn what_is_no_rate_is_refused() {
        let series = |name: &str, values: &str| {
            format!(r#"{{"metric":{{"__name__":"{name}","device":"sda"}},"values":{values}}}"#)
        };
        for (name, values, said) in [
            ("node_disk_reads_completed_total", r#"[[0,"1"],[1,"2"]]"#, "query rate"),
            ("iops", r#"[[0,"1"]]"#, "fewer than two"),
            ("iops", r#"[[0,"1"],[0,"2"]]"#, "do not go on"),
            ("iops", r#"[[0,"1"],[1,"2"],[3,"2"]]"#, "a gap of 2 s in the series after 1: query"),
            ("iops", r#"[[0,"NaN"],[1,"2"]]"#, "'NaN' at 0 is not a number of zero or more: query"),
            ("disk:read_latency_seconds", r#"[[0,"7"],[1,"7"]]"#, "counts seconds, not requests"),
            ("node_disk_io_ratio", r#"[[0,"7"],[1,"7"]]"#, "query a rate of requests"),
            ("iops", r#"[[1.7e12,"7"],[1.70000006e12,"7"]]"#, "as if they were in ms"),
            ("ceph_osd_op_r", r#"[[0,"7"],[1,"7"],[2,"9"]]"#, "query rate(ceph_osd_op_r[5m]) or"),
        ] {
            let error = of(&series(name, values)).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        let bytes = series("node_disk_read_bytes:rate5m", r#"[[0,"7"],[1,"9"]]"#);
        assert!(all(&bytes).unwrap().notes[0].contains("of bytes"));
        assert!(of("1").unwrap_err().contains("not the answer to a range query"));
        // Started anew once, and rates: by the values, without a name, by a recording rule.
        let values = |all: &[u64]| {
            let pair = |(at, value): (usize, &u64)| format!(r#"[{at},"{value}"]"#);
            format!("[{}]", all.iter().enumerate().map(pair).collect::<Vec<_>>().join(","))
        };
        let anew = values(&[50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 2, 3]);
        assert!(of(&series("rd", &anew)).unwrap_err().contains("a counter since some start"));
        for (name, all) in
            [("iops", [3, 5, 4]), ("iops", [4, 4, 4]), ("disk:reads:rate5m", [1, 2, 3])]
        {
            of(&series(name, &values(&all))).unwrap();
        }
        of(&series("", &values(&[1, 2, 3])).replace(r#""__name__":"","#, "")).unwrap();
    }
}
