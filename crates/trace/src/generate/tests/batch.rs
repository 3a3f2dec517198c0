//! Jobs, from their data to what a server is to do.

use ebb_policy::QosClass;

use super::*;
use crate::generate::{BUILTIN, BatchSpec, GenerateError};

fn parse(text: &str) -> WorkloadSpec {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.toml");
    std::fs::write(&path, format!("name = \"mine\"\n{text}")).unwrap();
    crate::generate::load(path).unwrap()
}

#[test]
fn the_studys_tables_come_out() {
    let count = |name: &str, what: &str| {
        let jobs = by_name(name).unwrap().batch_jobs(&SERVER).unwrap();
        jobs.iter().filter(|job| job.name.starts_with(what)).count()
    };
    for (name, bzips, hmmers, query) in [
        ("eadc-iv-w1", 5, 0, "tpch-q1"),
        ("eadc-iv-w4", 5, 0, "tpch-q13"),
        ("eadc-iv-w8", 3, 2, "tpch-q10"),
        ("eadc-iv-w10", 3, 2, "tpch-q19"),
        ("eadc-vi-w2", 0, 5, "tpch-q13"),
        ("eadc-vi-w4", 0, 11, "tpch-q1"),
        ("eadc-vi-w6", 0, 11, "tpch-q19"),
    ] {
        let found = (count(name, "bzip2"), count(name, "hmmer"), count(name, query));
        assert_eq!(found, (bzips, hmmers, 1), "{name}");
    }
    let backup = by_name("restore").unwrap().batch_jobs(&SERVER).unwrap();
    let bytes = |job: &crate::generate::Job| job.io.as_ref().unwrap().requests << 20;
    let all: u64 = backup.iter().map(bytes).sum();
    for (job, share) in backup.iter().zip([0.15, 0.2, 0.25, 0.4]) {
        assert!((bytes(job) as f64 / all as f64 - share).abs() < 1e-3, "{}", job.name);
        assert_eq!(job.objective, Some(job.class.recovery_time()));
    }
}

#[test]
fn jobs_have_regions_of_their_own() {
    for builtin in BUILTIN {
        let jobs = builtin.spec().batch_jobs(&SERVER).unwrap();
        let regions = jobs.iter().filter_map(|job| job.io.as_ref()).filter(|io| !io.rebuild);
        let mut ends: Vec<(u64, u64)> = regions.map(|io| (io.base, io.base + io.span)).collect();
        ends.sort_unstable();
        assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{}", builtin.name);
        assert!(ends.iter().all(|(_, end)| *end <= SERVER.capacity_bytes), "{}", builtin.name);
    }
}

#[test]
fn a_file_says_all_of_it() {
    let spec = parse(
        "[[batch]]\nname = \"verify\"\ninstances = 2\nclass = \"vital\"\nsocket = 1\n\
         start = \"10 s\"\ncpu = \"90 s\"\nclock = \"2 GHz\"\nfixed = 0.2\nactivity = 0.8\n\
         objective = \"10 min\"\n[batch.io]\nread = \"3 MiB\"\nwrite = \"1 MiB\"\n\
         request = \"1 MiB\"\nrandom = \"25%\"\ndepth = 4\n",
    );
    let jobs = spec.batch_jobs(&SERVER).unwrap();
    assert_eq!((jobs[0].name.as_str(), jobs[1].name.as_str()), ("verify-1", "verify-2"));
    assert_eq!((jobs[0].class, jobs[0].socket), (QosClass::Vital, Some(1)));
    let io = jobs[1].io.as_ref().unwrap();
    assert_eq!((io.requests, io.writes, io.depth, io.count), (4, 1, 4, 16));
    let back: BatchSpec = toml::from_str(&toml::to_string(&spec.batch[0]).unwrap()).unwrap();
    assert_eq!(back, spec.batch[0]);
    let Workload::Open(mut none) = spec.build(&SERVER).unwrap() else { panic!("closed") };
    assert!(take(&mut *none, 10).is_empty(), "jobs alone send no requests by the clock");
}

#[test]
fn impossible_jobs_are_refused_with_part_and_field() {
    for (text, says) in [
        ("cpu = \"0 s\"", "CPU time, I/O or both"),
        ("cpu = \"1 s\"\ninstances = 0", "one or more"),
        ("cpu = \"1 s\"\nactivity = 3.0", "0 to 2"),
        ("io = { request = \"1 MiB\" }", "bytes to read or to write"),
        ("io = { read = \"1 MiB\", request = \"1000 B\" }", "multiple of 512"),
        ("io = { read = \"1 MiB\", request = \"4 KiB\", depth = 0 }", "1 to 1024"),
        ("io = { write = \"1 MiB\", request = \"4 KiB\", rebuild = true }", "leave it out"),
    ] {
        let spec = parse(&format!("[[batch]]\nname = \"verify\"\n{text}\n"));
        let error: GenerateError = spec.build(&SERVER).map(|_| ()).unwrap_err();
        let message = error.to_string();
        assert!(message.contains(says) && message.contains("verify"), "{message}");
    }
}
