use std::fs::File;
use std::io::{Seek, Write};

use ebb_policy::{Aggregation, Cycle, Domain, Limits, Unit};
use ebb_record::recorder::Keep;
use ebb_record::report::{self, About};
use ebb_record::series::{self, COLUMNS_KEY};
use ebb_record::{Column, Columns, Recorded, Recorder, RunSummary, Summary};
use parquet::basic::{LogicalType, Type};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::RowAccessor;
use serde_json::Value;

use crate::plant::{Capping, Machine, PERIOD, topology};

/// Cycles after the first, which senses no time.
const CYCLES: u64 = 7;

/// What this plant tells beside what is sensed: a door, and a count that is there at times.
fn added() -> Vec<Column> {
    let of = Column::of_server;
    vec![
        of("door_open", Unit::Flag, "Whether the lid is off."),
        of("corrected_errors", Unit::Count, "Of the memory."),
        of("mode", Unit::Mode, "Of the firmware."),
    ]
}

fn record() -> Recorded {
    let mut cycle = Cycle::new(&topology(), Box::new(Capping::new()), Limits::default());
    let keep = Keep { rows: true, decisions: true };
    let mut recorder = Recorder::new("capping", &topology(), added(), keep).unwrap();
    let mut machine = Machine::default();
    for number in 0..=CYCLES {
        let cycled = cycle.step(&mut machine);
        let errors = if number == 2 { f64::NAN } else { number as f64 };
        recorder.cycle(&cycled, &[f64::from(u8::from(number == 3)), errors, 2.0]);
    }
    recorder.finish()
}

fn columns() -> Columns {
    Columns::new(&topology(), added())
}

fn csv(recorded: &mut Recorded) -> Vec<Vec<String>> {
    let mut text = Vec::new();
    series::csv(&mut text, &columns(), [recorded].into_iter()).unwrap();
    let text = String::from_utf8(text).unwrap();
    text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

#[test]
fn csv_has_what_was_sensed_what_is_in_force_and_what_the_plant_adds() {
    let rows = csv(&mut record());
    let column = |name: &str| -> Vec<&str> {
        let at = rows[0].iter().position(|other| other == name).unwrap_or_else(|| panic!("{name}"));
        rows[1..].iter().map(|row| row[at].as_str()).collect()
    };
    assert_eq!(rows.len() as u64, 1 + CYCLES, "the cycle at the start makes no row");
    assert!(rows.iter().all(|row| row.len() == rows[0].len()));
    assert_eq!(column("policy"), ["capping"; 7]);
    assert_eq!(column("time_s")[..3], ["0.25", "0.5", "0.75"]);
    assert_eq!(column("completed")[..2], ["100", "200"]);
    assert_eq!(column("iops")[..2], ["400", "800"]);
    assert_eq!(column("power_w"), ["200", "200", "200", "", "200", "200", "200"]);
    assert_eq!(column("drive0_power_state"), ["0", "1", "1", "1", "1", "1", "1"]);
    assert_eq!(column("drive0_state"), ["0", "0", "1", "1", "1", "1", "1"], "a cycle later");
    assert_eq!(column("S64F1_state"), ["0", "0", "0", "0", "0", "1", "1"], "refused until then");
    assert_eq!(column("front_end_2_active_cores"), ["4"; 7]);
    assert_eq!(column("inlet_temperature_celsius"), [""; 7], "absent, never zero");
    assert_eq!(column("door_open")[1..4], ["false", "true", "false"]);
    assert_eq!(column("corrected_errors")[..3], ["1", "", "3"]);
    assert_eq!(column("critical_admit"), ["true"; 7]);
}

#[test]
fn parquet_has_real_types_the_same_values_and_says_what_it_is() {
    let mut recorded = record();
    let text = csv(&mut recorded);
    let mut file = tempfile::tempfile().unwrap();
    let about = [("ebb.seed", "7".to_owned()), ("ebb.command", "ebb run".to_owned())];
    let runs = [&mut recorded].into_iter();
    series::parquet(&mut file, &columns(), &about, runs).unwrap();
    file.flush().unwrap();
    file.rewind().unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    let metadata = reader.metadata().file_metadata().clone();
    let type_of = |name: &str| {
        let found = metadata.schema_descr().columns().iter().find(|column| column.name() == name);
        let column = found.unwrap_or_else(|| panic!("{name}"));
        (column.physical_type(), column.logical_type_ref().cloned())
    };
    assert_eq!(type_of("policy"), (Type::BYTE_ARRAY, Some(LogicalType::String)));
    for name in ["completed", "bytes", "corrected_errors", "front_end_1_active_cores"] {
        assert_eq!(type_of(name), (Type::INT64, None), "{name}");
    }
    for name in ["drive0_state", "S64F1_power_state", "background", "mode"] {
        let small = Some(LogicalType::integer(16, false));
        assert_eq!(type_of(name), (Type::INT32, small), "{name}");
    }
    for name in ["door_open", "vital_admit"] {
        assert_eq!(type_of(name), (Type::BOOLEAN, None), "{name}");
    }
    for name in ["time_s", "iops", "power_w", "latency_mean_s", "front_end_1_frequency_hz"] {
        assert_eq!(type_of(name), (Type::DOUBLE, None), "{name}");
    }
    same_values(&reader, &text);
    let said = |key: &str| {
        let all = metadata.key_value_metadata().unwrap();
        all.iter().find(|pair| pair.key == key).and_then(|pair| pair.value.clone()).unwrap()
    };
    assert_eq!([said("ebb.seed"), said("ebb.command")], ["7", "ebb run"]);
    assert_eq!(said("ebb.schema"), series::SCHEMA);
    let described: Value = serde_json::from_str(&said(COLUMNS_KEY)).unwrap();
    assert_eq!(described.as_object().unwrap().len(), text[0].len() - 1, "all but the policy");
    let power = &described["S64F1_power_w"];
    assert_eq!([&power["unit"], &power["of"], &power["all"]], ["W", "drive", "sum"]);
    assert_eq!(described["door_open"]["text"], "Whether the lid is off.");
}

/// Every value of the file is that of the text.
fn same_values(reader: &SerializedFileReader<File>, text: &[Vec<String>]) {
    let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), text.len() - 1);
    for (row, text) in rows.iter().zip(&text[1..]) {
        assert_eq!(row.get_string(0).unwrap(), &text[0]);
        for (at, text) in text.iter().enumerate().skip(1) {
            let value = (row.get_long(at).map(|value| value.to_string()))
                .or_else(|_| row.get_ushort(at).map(|value| value.to_string()))
                .or_else(|_| row.get_bool(at).map(|value| value.to_string()))
                .or_else(|_| row.get_double(at).map(|value| value.to_string()));
            assert_eq!(value.unwrap_or_default(), *text, "column {at}");
        }
    }
}

#[test]
fn decisions_say_what_the_plant_made_of_them() {
    let mut lines = Vec::new();
    let mut recorded = record();
    recorded.log.lines(&mut lines).unwrap();
    let lines = String::from_utf8(lines).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> = lines
        .iter()
        .map(|line| {
            let text = |name: &str| line[name].as_str().unwrap().to_owned();
            (line["time_s"].as_f64().unwrap(), text("of"), text("reason"), text("applied"))
        })
        .collect();
    let line = |time, of: &str, reason: &str, applied: &str| {
        (time, of.to_owned(), reason.to_owned(), applied.to_owned())
    };
    assert_eq!(
        told,
        [
            line(0.5, "drive0", "capping:turn", "done"),
            line(0.75, "S64F1", "capping:turn", "refused"),
            // Nobody decided anything then, but the drive took what stands.
            line(1.25, "S64F1", "plant:done", "done"),
        ]
    );
    assert!(
        lines.iter().all(|line| line["control"] == "power_state" && line["policy"] == "capping")
    );
    assert_eq!(recorded.log.count, 3);
}

#[test]
fn the_summary_tells_what_was_measured_and_no_more() {
    let summary = RunSummary::new(&record());
    let completed: u64 = (1..=CYCLES).map(|cycle| 100 * cycle).sum();
    assert_eq!(summary.requests, Some(completed));
    assert_eq!(summary.seconds, CYCLES as f64 * PERIOD.seconds());
    // One reading at the wall is lost: a mean there is, a sum would lack it.
    assert_eq!(summary.mean_watts, Some(200.0));
    assert_eq!(summary.energy_joules.get("cpu"), Some(&(60.0 * summary.seconds)));
    assert_eq!(summary.energy_joules.get("total"), None);
    let by_request: u64 = (1..=CYCLES).map(|cycle| 100 * cycle * 100 * cycle).sum();
    let mean = summary.latency_us.mean.unwrap();
    assert!((mean / (by_request as f64 / completed as f64) - 1.0).abs() < 1e-9, "{mean}");
    assert_eq!((summary.latency_us.p99, summary.latency_us.max), (None, Some(500.0)));
    assert_eq!((summary.thermal.is_some(), summary.decisions), (false, 3));
}

#[test]
fn the_report_shows_it() {
    let mut recorded = record();
    let runs = vec![RunSummary::new(&recorded)];
    let profile = "</script><b>".to_owned();
    let summary = Summary { profile, runs, ..Summary::default() };
    let about = About { command: "ebb run".to_owned(), ..About::default() };
    let mut page = Vec::new();
    let runs = [&mut recorded].into_iter();
    report::write(&mut page, &about, &topology(), &columns(), &summary, runs).unwrap();
    let page = String::from_utf8(page).unwrap();
    assert!(!page.contains("</script><b>"), "no name becomes markup");
    let marked = "<script type=\"application/json\" id=\"data\">";
    let data = page.split_once(marked).unwrap().1.split_once("</script>").unwrap().0;
    let data: Value = serde_json::from_str(data).unwrap();
    assert_eq!(
        (&data["summary"]["simulated"], &data["command"]),
        (&false.into(), &"ebb run".into())
    );
    let run = &data["runs"][0];
    assert_eq!((&run["period_s"], &run["latency"]), (&0.25.into(), &Value::Null));
    let series = &run["series"];
    assert_eq!(series["power_w"]["mean"][3], Value::Null);
    assert_eq!(series["drives_power_w"]["mean"][2], 15, "of both drives, by the table");
    assert_eq!(series["door_open"]["mean"][2], 1);
    assert_eq!(run["map"]["states"][1], serde_json::json!([0, 0, 0, 0, 0, 1, 1]));
    assert_eq!(run["decisions"]["shown"][1][6], "refused");
}

#[test]
fn every_column_has_one_name_and_jobs_are_told_together() {
    let topology = ebb_policy::Topology { sockets: 2, jobs: 3, ..topology() };
    let columns = Columns::new(&topology, added());
    let mut names: Vec<_> = columns.all.iter().map(|column| column.name.as_str()).collect();
    for name in
        ["socket1_temperature_celsius", "job_waiting_sum", "job_share_mean", "job_age_max_s"]
    {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("job_socket")), "no sum of socket numbers");
    let share = &columns.all[columns.place("job_share_mean").unwrap()];
    assert_eq!((share.domain, share.aggregation), (Domain::Server, Aggregation::Mean));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
