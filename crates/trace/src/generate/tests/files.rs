//! Workloads in TOML, and what is wrong with some.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::generate::{BUILTIN, DriveShare, Overrides, Rate, Share, load};

fn error_of(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.toml");
    fs::write(&file, text).unwrap();
    match load(&file) {
        Err(error) => error.to_string(),
        Ok(spec) => match spec.build(&SERVER) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("accepted: {text}"),
        },
    }
}

#[test]
fn builtin_workloads_survive_the_way_through_toml() {
    for builtin in BUILTIN {
        let spec = builtin.spec();
        let text = toml::to_string(&spec).unwrap();
        let again: WorkloadSpec = toml::from_str(&text).unwrap();
        assert_eq!(again, spec, "{text}");
    }
}

#[test]
fn a_short_file_is_a_workload() {
    let text = r#"
        name = "mine"
        [[jobs]]
        name = "database"
        threads = 32
        rate = "20000 IOPS"
        access = { block = ["8 KiB", "8 KiB", "64 KiB"], read = "70%", zipf = 0.99 }
        drives = { from = 0, to = "50%" }
        [[rocksdb]]
        name = "kv"
        trigger = 64
        data = "1 GB"
        drives = { from = 0.5, to = 1.0 }
    "#;
    let spec: WorkloadSpec = toml::from_str(text).unwrap();
    assert_eq!(spec.jobs[0].access.read, Share(0.7));
    assert_eq!(spec.jobs[0].rate, Rate::Iops(20_000.0));
    let parts = spec.parts(16);
    assert_eq!((parts[0].first, parts[0].count), (0, 8));
    assert_eq!((parts[1].first, parts[1].count), (8, 8));
    assert_eq!(closed(&spec, &SERVER).slots(), 64);
}

#[test]
fn mistakes_are_named_with_what_would_be_valid() {
    let job = |rest: &str| format!("name = 'w'\n[[jobs]]\nname = 'j'\nthreads = 4\n{rest}\n");
    let good = "access = { block = '8 KiB', read = 1 }\n";
    let vary = "vary = { from = 1, to = 9, every = '1 s' }";
    let hot = "zipf = 1, hot = { accesses = 0.8, space = 0.2 }";
    let clock = format!("name = 'w'\n[[arrivals]]\nname = 'a'\nrate = 'max'\n{good}");
    for (text, parts) in [
        ("name = 'w'\n".to_owned(), ["w", "at least one [[jobs]]"]),
        ("name = 'w'\ncolour = 1\n".to_owned(), ["line 2", "colour"]),
        (job("access = { block = '8 KB2', read = 1 }"), ["line 5", "8 KiB"]),
        (job("access = { block = '8 KiB', read = 2 }"), ["line 5", "0 and 1"]),
        (job("access = { block = '1000 B', read = 1 }"), ["j.access.block", "512 B"]),
        (job("access = { block = [], read = 1 }"), ["j.access.block", "at least one size"]),
        (job("access = { block = '64 TiB', read = 1 }"), ["j.access.block", "4 GiB"]),
        (job(&format!("{good}rate = 'quick'")), ["line 6", "18000 IOPS"]),
        (
            job(&format!("access = {{ block = '8 KiB', read = 1, {hot} }}")),
            ["j.access", "not both"],
        ),
        (job(&format!("{good}drives = {{ from = 0.5, to = 0.5 }}")), ["j.drives", "16 devices"]),
        (
            job(&format!("{good}phases = {{ busy = '1 s', idle = '1 s', {vary} }}")),
            ["j.phases.vary", "4 threads"],
        ),
        (clock, ["a.rate", "by the clock"]),
        (
            "name = 'w'\n[[rocksdb]]\nname = 'r'\ntrigger = 1000000\n".to_owned(),
            ["r.trigger", "too small"],
        ),
    ] {
        let error = error_of(&text);
        assert!(parts.iter().all(|part| error.contains(part)), "{parts:?} in: {error}");
    }
}

#[test]
fn an_unknown_name_lists_the_known_ones() {
    let error = by_name("rand-x").unwrap_err().to_string();
    assert!(error.contains("rand-x") && error.contains("rand-rw") && error.contains("bert"));
}

#[test]
fn options_without_meaning_are_refused() {
    let data = Overrides { data: Some(ebb_policy::units::Bytes(1)), ..Overrides::default() };
    let error = builtin("mail").with(&data).unwrap_err().to_string();
    assert!(error.contains("data") && error.contains("rocksdb"), "{error}");
    let drives = Overrides { drives: Some(DriveShare::segment(0, 2)), ..Overrides::default() };
    assert!(builtin("fio-servers").with(&drives).is_err());
    let vdi = builtin("vdi-busy").with(&drives).unwrap();
    let sent = run(&mut *closed(&vdi, &SERVER), Nanos::from_micros(100), 10_000);
    assert!(sent.iter().all(|(_, request)| request.device < 8));
}

#[test]
fn paths_are_relative_to_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let csv = "workload,window_end_us,read_share,write_share\nd,1000000,0.25,1\nd,4000000,0.75,0\n";
    fs::write(folder.path().join("shape.csv"), csv).unwrap();
    let text = "name = 'w'\nduration = '4 s'\n[[arrivals]]\nname = 'a'\nrate = 10000\n\
                access = { block = '8 KiB', read = '50%' }\n\
                shape.file = { path = 'shape.csv', workload = 'd' }\n";
    fs::write(folder.path().join("w.toml"), text).unwrap();
    let spec = load(folder.path().join("w.toml")).unwrap();
    let requests = take(&mut *open(&spec, &SERVER), usize::MAX);
    // A quarter of the reads and all writes come in the first second of four.
    let first: Vec<_> = requests.iter().filter(|r| r.at < Nanos::from_secs(1)).collect();
    assert!((first.len() as f64 / requests.len() as f64 - 0.625).abs() < 0.01);
    assert!((share_of_reads(first) - 0.2).abs() < 0.01);
    assert!((requests.len() as f64 / 40_000.0 - 1.0).abs() < 0.02);
}

/// What other programs print is known by how it begins, however it came to be a file.
#[test]
fn reports_of_other_programs_are_shapes() {
    let folder = tempfile::tempdir().unwrap();
    let of = |bytes: &[u8]| {
        fs::write(folder.path().join("report"), bytes).unwrap();
        let text = "name = 'w'\nduration = '20 s'\n[[arrivals]]\nname = 'a'\nrate = 1000\n\
                    access = { block = '8 KiB', read = '50%' }\n\
                    shape.file = { path = 'report', workload = 'sda' }\n";
        fs::write(folder.path().join("w.toml"), text).unwrap();
        let built = load(folder.path().join("w.toml")).and_then(|spec| spec.build(&SERVER));
        built.map(drop).map_err(|error| error.to_string())?;
        let spec = load(folder.path().join("w.toml")).unwrap();
        let requests = take(&mut *open(&spec, &SERVER), usize::MAX);
        let first = requests.iter().filter(|r| r.at < Nanos::from_secs(10)).count();
        Ok::<_, String>((first as f64 / requests.len() as f64 * 100.0).round())
    };
    let head = "Linux 6.1.0 (host)  11/25/2026  _x86_64_ (8 CPU)\n\n";
    let reports = ["10:00:00", "10:00:10", "10:00:20"].into_iter().zip(["9", "10", "30"]);
    let iostat = |(time, rate): (&str, &str)| {
        format!("11/25/2026 {time} AM\nDevice r/s w/s %util\nsda {rate} {rate} 1\n\n")
    };
    let iostat: String = reports.clone().map(iostat).collect();
    let json = |(time, rate): (&str, &str)| {
        format!(
            r#"{{"timestamp": "11/25/26 {time}",
                 "disk": [{{"disk_device": "sda", "r/s": {rate}, "w/s": {rate}.00}}]}}"#
        )
    };
    let json = reports.map(json).collect::<Vec<_>>().join(",");
    let json = format!(r#"{{"sysstat": {{"hosts": [{{"statistics": [{json}]}}]}}}}"#);
    let sar = "10:00:00 DEV tps rkB/s wkB/s\n10:00:10 sda 10 1 1\n10:00:20 sda 30 1 1\n";
    let sadf = "# hostname;interval;timestamp;DEV;tps;rkB/s;wkB/s\n\
                h;10;2026-11-25 10:00:10 UTC;sda;10;1;1\nh;10;2026-11-25 10:00:20 UTC;sda;30;1;1\n";
    for text in [
        sadf.to_owned(),
        format!("\u{feff}{sadf}").replace('\n', "\r\n"),
        format!("{head}{iostat}"),
        format!("\u{feff}{head}{iostat}").replace('\n', "\r\n"),
        iostat,
        format!("{head}{sar}"),
        sar.to_owned(),
        json,
    ] {
        assert_eq!(of(text.as_bytes()), Ok(25.0), "{text}");
        assert_eq!(of(&zstd::encode_all(text.as_bytes(), 0).unwrap()), Ok(25.0), "{text}");
    }
    assert!(of(b"\xfd7zXZ\0...").unwrap_err().contains("xz -dc"));
    let none = r#"{"sysstat": {"hosts": [{"statistics": [{"timestamp": {"date": "1"}}]}]}}"#;
    assert!(of(none.as_bytes()).unwrap_err().contains("sadf -d as text"));
}

/// The measured load shapes where they are at hand.
fn measured() -> Option<PathBuf> {
    let data = std::env::var_os("EBB_DATA").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"),
        PathBuf::from,
    );
    let path = data.join("traces/load_cloudphysics_windows/cloudphysics_load_shape.csv.gz");
    let there = path.exists();
    if !there {
        println!("skipped: {} is not there", path.display());
    }
    there.then_some(path)
}

#[test]
fn a_measured_load_shape_is_followed() {
    let Some(path) = measured() else { return };
    let text = format!(
        "name = 'week'\nduration = '168 s'\n[[arrivals]]\nname = 'w93'\nrate = 1000\n\
         access = {{ block = '8 KiB', read = 0.8 }}\n\
         shape.file = {{ path = '{}', workload = 'w93', length = '168 s' }}\n",
        path.display()
    );
    let spec: WorkloadSpec = toml::from_str(&text).unwrap();
    let requests = take(&mut *open(&spec, &SERVER), usize::MAX);
    let rate = requests.len() as f64 / 168.0;
    assert!((rate / 1_000.0 - 1.0).abs() < 0.02, "{rate}");
    assert!((share_of_reads(&requests) - 0.8).abs() < 0.02);
    let mut seconds = vec![0; 168];
    requests.iter().for_each(|request| seconds[request.at.seconds() as usize] += 1);
    assert!(seconds.iter().max().unwrap() > &(2 * seconds.iter().min().unwrap()));
    let missing: WorkloadSpec = toml::from_str(&text.replace("'w93', l", "'w999', l")).unwrap();
    assert!(missing.build(&SERVER).err().unwrap().to_string().contains("w999"));
}
