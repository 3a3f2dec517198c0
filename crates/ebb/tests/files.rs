//! The files that `ebb sim` writes: time series, decisions, the report.

use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::process::Command;

use crate::common::{QUICK, json, path, prints, small_trace, valid};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::Value;

fn quick_with(more: &[&str]) -> String {
    prints(&[QUICK, more].concat())
}

#[test]
fn the_series_has_a_row_per_policy_and_period_in_both_forms() {
    let folder = tempfile::tempdir().unwrap();
    let (csv, parquet) = (path(folder.path(), "s.csv"), path(folder.path(), "s.parquet"));
    quick_with(&["--timeseries", &csv]);
    quick_with(&["--timeseries", &parquet]);
    let text = fs::read_to_string(&csv).unwrap();
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    assert!(rows.iter().all(|row| row.len() == names.len()));
    let reader = SerializedFileReader::new(File::open(&parquet).unwrap()).unwrap();
    let fields = reader.metadata().file_metadata().schema().get_fields().to_vec();
    assert_eq!(fields.iter().map(|field| field.name()).collect::<Vec<_>>(), names);
    let read: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    assert_eq!(read.len(), rows.len());
    for (row, text) in read.iter().zip(&rows) {
        assert_eq!(row.get_string(0).unwrap(), text[0]);
        for (column, text) in text.iter().enumerate().skip(1) {
            let value = (row.get_long(column).map(|value| value.to_string()))
                .or_else(|_| row.get_ushort(column).map(|value| value.to_string()))
                .or_else(|_| row.get_bool(column).map(|value| value.to_string()))
                .or_else(|_| row.get_double(column).map(|value| value.to_string()));
            assert_eq!(value.unwrap_or_default(), *text, "{}", names[column]);
        }
    }
    let metadata = reader.metadata().file_metadata().key_value_metadata().unwrap();
    let said = |key: &str| metadata.iter().find(|pair| pair.key == key)?.value.as_deref();
    assert_eq!(said("ebb.version"), Some(env!("CARGO_PKG_VERSION")));
    assert_eq!((said("ebb.profile"), said("ebb.seed")), (Some("generic-1u"), Some("1")));
    assert_eq!(said("ebb.policies"), Some("native,ondemand,pacer"));
    assert!(said("ebb.command").unwrap().starts_with("ebb sim --profile generic-1u"));
    assert!(said("ebb.columns").unwrap().contains("\"memory_power_w\":{\"unit\":\"W\""));
}

#[test]
fn the_series_adds_up_to_the_summary() {
    let folder = tempfile::tempdir().unwrap();
    let csv = path(folder.path(), "s.csv");
    let result: Value =
        serde_json::from_str(&quick_with(&["--json", "--timeseries", &csv])).unwrap();
    let text = fs::read_to_string(&csv).unwrap();
    let names: Vec<&str> = text.lines().next().unwrap().split(',').collect();
    let column = |name: &str| names.iter().position(|other| *other == name).unwrap();
    let (seconds, watts, completed) =
        (column("period_s"), column("ssd_power_w"), column("completed"));
    for run in result["runs"].as_array().unwrap() {
        let policy = run["policy"].as_str().unwrap();
        let rows = text.lines().skip(1).map(|line| line.split(',').collect::<Vec<_>>());
        let (mut joules, mut requests, mut periods) = (0.0, 0.0, 0);
        for row in rows.filter(|row| row[0] == policy) {
            let number = |column: usize| row[column].parse::<f64>().unwrap();
            joules += number(seconds) * number(watts);
            requests += number(completed);
            periods += 1;
        }
        assert!((joules / run["energy_joules"]["ssd"].as_f64().unwrap() - 1.0).abs() < 1e-6);
        assert_eq!(requests, run["requests"].as_f64().unwrap());
        assert!((12..=14).contains(&periods), "6 s of half-second periods: {periods}");
    }
}

#[test]
fn decisions_are_json_lines_in_the_order_of_the_policies() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "d.jsonl");
    let args = [QUICK, &["--decisions", &file, "--json"]].concat();
    let runs = json(&args)["runs"].clone();
    let text = fs::read_to_string(&file).unwrap();
    let mut order: Vec<String> = Vec::new();
    for line in text.lines() {
        let decision: Value = serde_json::from_str(line).unwrap();
        valid("decision-3", &decision);
        order.push(decision["policy"].as_str().unwrap().to_owned());
    }
    for run in runs.as_array().unwrap() {
        let name = run["policy"].as_str().unwrap();
        let count = order.iter().filter(|policy| *policy == name).count() as u64;
        assert_eq!(run["decisions"], count, "{name}");
    }
    order.dedup();
    assert_eq!(order, ["ondemand", "pacer"]);
}

/// The page without the plotting library, which is the first and by far the longest script.
fn page(folder: &str) -> (String, Value) {
    let text = fs::read_to_string(format!("{folder}/index.html")).unwrap();
    let (start, rest) = text.split_once("<script>").unwrap();
    let rest = rest.split_once("</script>").unwrap().1;
    let marked = "<script type=\"application/json\" id=\"data\">";
    let numbers = rest.split_once(marked).unwrap().1.split_once("</script>").unwrap().0;
    let data = serde_json::from_str(numbers).unwrap();
    (format!("{start}{rest}"), data)
}

#[test]
fn the_report_is_one_page_that_loads_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let to = path(folder.path(), "new/report");
    let text = quick_with(&["--report", &to]);
    assert!(text.contains("index.html"));
    let files: Vec<_> = fs::read_dir(&to).unwrap().collect();
    assert_eq!(files.len(), 1);
    let (page, data) = page(&to);
    for forbidden in ["http://", "https://", "src=", "href=", "@import", "url("] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    assert!(page.contains("default-src 'none'"), "the browser forbids it, too");
    assert!(!page.contains("<!--"), "a place of the template was left open");
    let runs = data["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 3);
    for run in runs {
        let points = run["time"].as_array().unwrap().len();
        assert!((12..=13).contains(&points));
        let wanted = ["power_w", "cpu_power_w", "ssd_power_w", "iops", "front_end_cores_active"];
        for name in wanted.into_iter().chain(["latency_mean_s", "front_end_frequency_hz"]) {
            let series = run["series"][name]["mean"].as_array();
            assert_eq!(series.map(Vec::len), Some(points), "{name}");
        }
        assert_eq!(run["map"]["states"].as_array().unwrap().len(), 8);
        let count = run["latency"]["count"].as_array().unwrap();
        let sum: u64 = count.iter().map(|count| count.as_u64().unwrap()).sum();
        let told = data["summary"]["runs"].as_array().unwrap();
        assert!(told.iter().any(|run| run["requests"] == sum));
    }
    assert!(!runs[2]["decisions"]["shown"].as_array().unwrap().is_empty());
}

/// As root, replacing the name would destroy the device for everybody.
#[test]
fn pipes_devices_and_links_are_written_through() {
    let folder = tempfile::tempdir().unwrap();
    let trace = small_trace(folder.path());
    let mut written = 0;
    let mut through = |args: &[&str]| {
        let [pipe, link, target] =
            ["pipe.csv", "link.csv", "target.csv"].map(|name| path(folder.path(), name));
        let _ = [&pipe, &link, &target].map(fs::remove_file);
        mkfifoat(CWD, &pipe, Mode::from_raw_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("target.csv", &link).unwrap();
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe).unwrap()
        });
        prints(&[args, &[&pipe]].concat());
        let read = reader.join().unwrap();
        prints(&[args, &[&link]].concat());
        prints(&[args, &["/dev/null"]].concat());
        assert!(!read.is_empty());
        assert_eq!(read, fs::read(&target).unwrap());
        assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(fs::symlink_metadata("/dev/null").unwrap().file_type().is_char_device());
        written += 1;
    };
    through(&["trace", "convert", &trace, "--output"]);
    through(&["sim", "--trace", &trace, "--fold", "--policy", "ondemand", "--timeseries"]);
    through(&["sim", "--trace", &trace, "--fold", "--policy", "ondemand", "--decisions"]);
    through(&["characterise", "--pause", "20 s", "--step", "50%", "--out"]);
    assert_eq!(written, 4);
}

#[test]
fn a_full_disk_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let old = path(folder.path(), "index.html");
    fs::write(&old, "old").unwrap();
    let small = Command::new("sh")
        .args(["-c", "ulimit -f 20; trap '' XFSZ; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_ebb")])
        .args(QUICK)
        .args(["--report", folder.path().to_str().unwrap()])
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&small.stderr);
    assert_eq!(small.status.code(), Some(1), "{error}");
    assert!(error.contains("cannot write") && error.contains("index.html"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(&old).unwrap(), "old");
}

#[test]
fn names_cannot_become_markup() {
    let folder = tempfile::tempdir().unwrap();
    let evil = "</script><img src=x onerror=alert(1)>";
    let spec = path(folder.path(), "evil.toml");
    let jobs = "[[jobs]]\nname = \"a\"\nthreads = 1\nrate = \"100 IOPS\"\n\
                access = { block = \"4 KiB\", read = 1.0 }\n";
    fs::write(&spec, format!("name = \"{evil}\"\n{jobs}")).unwrap();
    let to = path(folder.path(), "report");
    prints(&["sim", "--workload", &spec, "--duration", "1 s", "--report", &to, "--quiet"]);
    let (page, data) = page(&to);
    assert_eq!(data["summary"]["workload"], evil);
    assert!(!page.contains("<img"));
}

#[test]
fn long_runs_stay_small_and_keep_their_peaks() {
    let folder = tempfile::tempdir().unwrap();
    let to = path(folder.path(), "report");
    let args = ["sim", "--profile", "generic-1u", "--workload", "rand-r", "--rate", "5"];
    prints(&[&args[..], &["--duration", "30 min", "--report", &to, "--policy", "pacer"]].concat());
    let (_, data) = page(&to);
    let run = &data["runs"][0];
    assert!(run["rows"].as_u64().unwrap() >= 3600);
    let points = run["time"].as_array().unwrap().len();
    assert!((500..=2000).contains(&points), "{points}");
    let peak = run["series"]["power_w"]["max"].as_array().unwrap();
    let peak = peak.iter().filter_map(Value::as_f64).fold(0.0, f64::max);
    let told = data["summary"]["runs"][0]["peak_watts"].as_f64().unwrap();
    assert!((peak / told - 1.0).abs() < 1e-3, "{peak} of {told}");
}
