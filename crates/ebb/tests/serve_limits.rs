//! `ebb serve` within what the system gives: raised where it can be, refused where it does not
//! fit, and never met by surprise.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::path;
use crate::serve::Serve;

/// `ebb serve` under the shell's `limit`, which refuses to start.
fn refused(limit: &str, more: &[&str]) -> String {
    let script = format!("{limit} && exec \"$0\" \"$@\"");
    let fixed = ["serve", "--listen", "127.0.0.1:0", "--namespace", "ram:1MiB"];
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_ebb")]).args(fixed).args(more);
    let Output { status, stderr, .. } = command.output().unwrap();
    let error = String::from_utf8(stderr).unwrap();
    assert!(status.code() == Some(2) && !error.contains("panicked"), "{limit}: {status} {error}");
    error
}

#[test]
fn limits_that_do_not_fit_are_refused_with_the_remedy() {
    let error = refused("ulimit -n 200", &["--max-connections", "1024"]);
    assert!(error.contains("LimitNOFILE=") && error.contains("--max-connections 1"), "{error}");
    let error = refused("ulimit -n 30", &[]);
    assert!(error.contains("LimitNOFILE="), "{error}");
    for kib in [120, 150, 400].map(|mib| mib << 10) {
        let error = refused(&format!("ulimit -v {kib}"), &["--threads", "8"]);
        assert!(error.contains("LimitAS=") && error.contains("lower --max-con"), "{error}");
    }
}

/// In a cpuset or under an affinity without CPU 0, as in many containers.
#[test]
fn without_cores_named_it_runs_on_the_first_that_it_may() {
    let allowed = ebb_target::reactor::topology::allowed().unwrap();
    let &last = allowed.last().unwrap();
    let serve = Serve::start_with(Some(&format!("taskset -pc {last} $$ > /dev/null")), &[]);
    assert_eq!(serve.status()["cores"][0]["cpu"], last);
}

/// As many connections as it says fit, in whatever kinds of namespaces; and the metrics besides.
#[test]
fn every_connection_that_is_promised_finds_a_descriptor() {
    let folder = tempfile::tempdir().unwrap();
    let file = path(folder.path(), "disk.img");
    let members = ["a", "b", "c"].map(|name| path(folder.path(), name));
    let raid = format!("raid5:{},create,size=32MiB", members.join(","));
    let file = format!("file:{file},create,size=1MiB");
    let more = ["--namespace", &file, "--namespace", &raid, "--namespace", "modelled:1MiB"];
    let serve = Serve::start_with(Some("ulimit -n 300"), &more);
    let limit = serve.status()["connections"]["limit"].as_u64().unwrap();
    assert!((50..250).contains(&limit), "{limit} connections of 300 descriptors");
    let scrapers: Vec<_> = (0..64).map(|_| TcpStream::connect(&serve.metrics).unwrap()).collect();
    // Strangers, who give way to each other once there are more than places.
    let held: Vec<_> = (0..limit).map(|_| TcpStream::connect(&serve.address).unwrap()).collect();
    while serve.status()["connections"]["open"] != limit {}
    serve.load("randread");
    assert_eq!(serve.descriptors().checked_sub(300), None, "{}", serve.descriptors());
    drop((held, scrapers));
    // Beyond what there is: refused, and served again later.
    let beyond: Vec<_> = (0..1000).map(|_| TcpStream::connect(&serve.address).unwrap()).collect();
    serve.load("randread");
    for mut stream in beyond {
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read(&mut [0]);
    }
}

/// Where no thread can be had for closing a namespace, it is flushed all the same.
#[test]
fn an_end_without_room_for_threads_is_an_end_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let file = format!("file:{},create,size=1MiB", path(folder.path(), "disk.img"));
    let serve = Serve::start(&["--namespace", &file]);
    serve.load("randwrite");
    // A thread's stack is larger.
    serve.limit_address_space(1 << 20);
    serve.end();
}

/// Silent, stopped half-way or with nonsense, beside a host that compares all that it reads.
#[test]
fn strangers_who_come_by_the_thousand_disturb_no_data() {
    let serve = Serve::start(&[]);
    let have_come = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            serve.verify(1);
            while !have_come.load(Ordering::Relaxed) {
                serve.verify(1);
            }
        });
        for number in 0..10_000 {
            let mut stream = TcpStream::connect(&serve.address).unwrap();
            let said = [&b""[..], &[0; 7], &[0xff; 200]][number % 3];
            let _ = stream.write_all(said); // It may be told off before it has said all.
        }
        have_come.store(true, Ordering::Relaxed);
    });
    while serve.status()["connections"]["open"] != 0 {}
    serve.end();
}
