//! `ebb ctl` with `ebb serve`, as whole commands: what it changes is seen by server and hosts.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use ebb_initiator::{Controller, Op, Queue, Request, Target};
use ebb_nvme::Status;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{ebb, fails, path, prints, valid};
use crate::serve::Serve;

const HOST: &str = "nqn.2026-01.org.example:host";
const OTHER: &str = "nqn.2026-01.org.example:other";
const LONG: Duration = Duration::from_secs(60);

/// A server with a control socket.
struct Bench {
    serve: Serve,
    folder: TempDir,
    socket: String,
}

impl Bench {
    fn start(more: &[&str]) -> Self {
        Self::under("true", more)
    }

    /// Under the shell's `limit`.
    fn under(limit: &str, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = path(folder.path(), "serve.sock");
        let fixed = ["--control", &socket, "--scheduler", "interrupt"];
        let serve = Serve::start_with(Some(limit), &[&fixed[..], more].concat());
        Self { serve, folder, socket }
    }

    /// What `ebb ctl` prints, as JSON that is as its schema says.
    fn ctl(&self, args: &[&str]) -> Value {
        let text = prints(&[&["ctl", "--json", "--socket", &self.socket], args].concat());
        let reply = serde_json::from_str(&text).unwrap();
        valid(if args == ["status"] { "serve-status-1" } else { "ctl-1" }, &reply);
        reply
    }

    fn done(&self, args: &[&str]) -> String {
        self.ctl(args)["done"].as_str().unwrap().to_owned()
    }

    fn fails(&self, args: &[&str]) -> (i32, String) {
        fails(&[&["ctl", "--socket", &self.socket], args].concat())
    }

    fn path(&self, name: &str) -> String {
        path(self.folder.path(), name)
    }

    fn target(&self, address: &str, host: &str) -> Target {
        let nqn = self.serve.status()["server"]["nqn"].as_str().unwrap().to_owned();
        let mut target = Target::new(address.parse().unwrap(), nqn);
        target.host.nqn = host.to_owned();
        target
    }

    fn connect(&self, host: &str) -> Controller {
        Controller::connect(&self.target(&self.serve.address, host)).unwrap()
    }

    /// Sends bytes to the socket, and returns the lines that come back until it ends.
    fn raw(&self, bytes: &[u8]) -> Vec<Value> {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let _ = stream.write_all(bytes); // Too much is not taken.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn io(queue: &mut Queue, op: Op, nsid: u32, lba: u64) -> Status {
    let (buffer, from) = (vec![0; 4096], Instant::now());
    queue.submit(Request { op, nsid, lba, blocks: 1, buffer, tag: 0, from }).unwrap();
    let mut done = Vec::new();
    while done.is_empty() {
        queue.flush().unwrap();
        queue.wait(LONG).unwrap();
        queue.poll(&mut done).unwrap();
    }
    done[0].status
}

fn queue(host: &mut Controller) -> Queue {
    host.set_queues(1).unwrap();
    host.queue(1, 8).unwrap()
}

#[test]
fn namespaces_come_grow_and_go_under_a_host() {
    let bench = Bench::start(&[]);
    let mut host = bench.connect(HOST);
    let mut queue = queue(&mut host);
    let write = Op::Write { durable: false };
    assert_eq!(io(&mut queue, write, 2, 0), Status::INVALID_NAMESPACE);
    let said = bench.done(&["namespace", "add", "ram:1MiB"]);
    assert_eq!(said, "namespace 2 was added: ram:1MiB, 1 MiB");
    assert_eq!(host.namespaces().unwrap(), [1, 2]);
    assert_eq!(io(&mut queue, write, 2, 255), Status::SUCCESS);
    assert_eq!(io(&mut queue, write, 2, 256), Status::LBA_OUT_OF_RANGE);
    bench.done(&["namespace", "resize", "2", "2 MiB"]);
    assert_eq!(io(&mut queue, write, 2, 256), Status::SUCCESS);
    assert_eq!(host.namespace(2).unwrap().blocks, 512);
    // What changed, in the log that the event points to.
    let changed = host.log_page(4, 0, 8).unwrap();
    assert_eq!(changed, [2, 0, 0, 0, 0, 0, 0, 0]);
    bench.done(&["namespace", "add", "ram:1MiB", "--id", "7"]);
    let list = bench.ctl(&["namespace", "list"]);
    let row = |at: usize| list["namespaces"][at].clone();
    assert_eq!(row(1)["device"], "ram:2MiB");
    assert_eq!((row(2)["id"].clone(), row(2)["state"].clone()), (json!(7), json!("serving")));
    assert_eq!(bench.serve.status()["namespaces"][2]["id"], 7);
    let said = bench.done(&["namespace", "remove", "2"]);
    assert_eq!(said, "namespace 2 was removed; its device was flushed and is closed");
    assert_eq!(io(&mut queue, write, 2, 0), Status::INVALID_NAMESPACE);
    assert_eq!(io(&mut queue, write, 7, 0), Status::SUCCESS);
    assert_eq!(host.namespaces().unwrap(), [1, 7]);
    for (args, word) in [
        (&["namespace", "remove", "2"][..], "no namespace 2"),
        (&["namespace", "resize", "7", "512 KiB"], "does not shrink"),
        (&["namespace", "resize", "1", "8193 B"], "does not shrink"),
        (&["namespace", "add", "ram:1MiB", "--id", "7"], "7 is there"),
        (&["namespace", "add", "ram:1MiB", "--id", "33"], "number of namespaces"),
        (&["namespace", "add", "modelled:1MiB,drive=floppy"], "no drive 'floppy'"),
        (&["namespace", "add", "rom:1MiB"], "must start with a kind"),
        (&["namespace", "add", "file:/nowhere/disk.img"], "cannot find it"),
    ] {
        let (code, error) = bench.fails(args);
        assert!(error.contains(word), "{args:?}: {error}");
        assert_eq!(code, if word == "cannot find it" { 1 } else { 2 }, "{args:?}: {error}");
    }
    assert_eq!(host.namespaces().unwrap(), [1, 7], "and nothing has changed");
    bench.serve.end();
}

/// The power state of a drive, wherever a server shows it; `None` where there is no drive.
fn power_state(bench: &Bench, id: u32) -> Option<u64> {
    let status = bench.ctl(&["status"]);
    let mut drives = status["drives"].as_array().unwrap().iter();
    let drive = drives.find(|drive| drive["namespace"] == id);
    let state = drive.map(|drive| {
        assert!(drive["power_modelled_w"].as_f64().unwrap() > 0.0, "{drive}");
        assert!(drive["energy_modelled_j"].as_f64().unwrap() > 0.0, "{drive}");
        drive["power_state"].as_u64().unwrap()
    });
    let labels = format!("{{namespace=\"{id}\",drive=\"pm1743\",source=\"modelled\"}}");
    let (_, metrics) = bench.serve.get("/metrics");
    let row = |name: &str| {
        let name = format!("ebb_drive_{name}{labels} ");
        metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse::<f64>().ok())
    };
    assert_eq!(row("power_state"), state.map(|state| state as f64), "{metrics}");
    assert_eq!(row("energy_joules_total").is_some(), state.is_some(), "{metrics}");
    state
}

/// One that comes later is as one that was there from the start.
#[test]
fn modelled_drives_come_grow_and_go_with_their_power() {
    let bench = Bench::start(&[]);
    let mut host = bench.connect(HOST);
    let states = |host: &mut Controller| host.identify_controller().unwrap()[263];
    let (state, deepest) = (2, 4);
    assert_eq!((states(&mut host), power_state(&bench, 5)), (0, None));
    assert!(host.set_feature(state, 1).is_err());
    bench.done(&["namespace", "add", "modelled:4MiB", "--id", "5"]);
    // Of a host that is there, and of one that comes.
    for host in [&mut host, &mut bench.connect(OTHER)] {
        assert_eq!(states(host), deepest);
    }
    assert_eq!(power_state(&bench, 5), Some(0));
    bench.serve.verify(5);
    host.set_feature(state, 2).unwrap();
    assert_eq!(power_state(&bench, 5), Some(2));
    // The state is the controller's: another drive gets it too.
    bench.done(&["namespace", "add", "modelled:1MiB,drive=pm1743,lazy"]);
    assert_eq!(power_state(&bench, 2), Some(2));
    bench.done(&["namespace", "resize", "2", "2MiB"]);
    assert_eq!(host.namespace(2).unwrap().blocks, 512);
    bench.serve.verify(2);
    let (code, error) = bench.fails(&["namespace", "add", "modelled:1MiB,drive=samsung-980-pro"]);
    assert!(code == 2 && error.contains("different power states"), "{error}");
    let file = bench.path("serve.toml");
    bench.done(&["save", &file]);
    bench.done(&["namespace", "remove", "2"]);
    assert_eq!((power_state(&bench, 2), power_state(&bench, 5)), (None, Some(2)));
    bench.done(&["namespace", "remove", "5"]);
    assert_eq!((states(&mut host), power_state(&bench, 5)), (0, None));
    assert!(host.set_feature(state, 1).is_err());
    bench.done(&["namespace", "add", "modelled:1MiB,drive=samsung-980-pro"]);
    host.shut_down().unwrap();
    let (socket, folder) = (bench.socket.clone(), bench.folder);
    bench.serve.end();
    let again = Bench { serve: Serve::of_file(&file), folder, socket };
    let list = again.ctl(&["namespace", "list"]);
    let row = |at: usize| (list["namespaces"][at]["id"].clone(), &list["namespaces"][at]["device"]);
    assert_eq!(row(1), (json!(2), &json!("modelled:2MiB,drive=pm1743,lazy")));
    assert_eq!(row(2), (json!(5), &json!("modelled:4MiB")));
    assert_eq!(states(&mut again.connect(HOST)), deepest);
    assert_eq!((power_state(&again, 2), power_state(&again, 5)), (Some(0), Some(0)));
    again.serve.verify(5);
}

/// As many connections as were promised find a descriptor, whatever is added.
#[test]
fn namespaces_that_come_leave_descriptors_for_connections() {
    let bench = Bench::under("ulimit -n 400", &["--threads", "8"]);
    let limit = bench.serve.status()["connections"]["limit"].as_u64().unwrap();
    let add = ["namespace", "add", "modelled:1MiB,lazy"];
    let refused = (0..31).find_map(|_| {
        let output = ebb(&[&["ctl", "--socket", &bench.socket], &add[..]].concat());
        (!output.status.success()).then(|| String::from_utf8(output.stderr).unwrap())
    });
    // Where the limit can be raised, nothing is.
    assert!(refused.is_none_or(|error| error.contains("LimitNOFILE=")));
    let held: Vec<_> =
        (0..limit).map(|_| TcpStream::connect(&bench.serve.address).unwrap()).collect();
    while bench.serve.status()["connections"]["open"] != limit {}
    bench.serve.load("randread");
    drop(held);
}

/// What hosts may use is kept for them, though nothing of it is taken yet.
#[test]
fn namespaces_that_come_and_grow_leave_memory_for_hosts() {
    let large = ["--threads", "1", "--buffers", "2048", "--max-transfer", "1MiB"];
    let bench = Bench::under(&format!("ulimit -v {}", 4 << 20), &large);
    bench.done(&["namespace", "add", "modelled:8MiB"]);
    for too_large in [
        &["namespace", "add", "ram:2500MiB"][..],
        &["namespace", "add", "modelled:2500MiB"],
        &["namespace", "resize", "1", "2500MiB"],
        &["namespace", "resize", "2", "2500MiB"],
    ] {
        let (code, error) = bench.fails(too_large);
        assert!(code == 2 && error.contains("was left beside what hosts may use"), "{error}");
    }
    bench.serve.load("randread");
    bench.serve.end();
}

/// All that was sent is answered, by the drive or with a refusal.
#[test]
fn a_modelled_drive_goes_under_load() {
    let bench = Bench::start(&["--namespace", "modelled:4MiB"]);
    let mut host = bench.connect(HOST);
    let mut queue = queue(&mut host);
    let loaded = std::thread::spawn(move || {
        let (mut done, mut sent, mut refused) = (Vec::new(), 0, 0);
        while refused == 0 || queue.outstanding() > 0 {
            while refused == 0 && queue.room() > 0 {
                let (op, from) = (Op::Write { durable: false }, Instant::now());
                let (lba, buffer) = (sent % 1024, vec![1; 4096]);
                queue
                    .submit(Request { op, nsid: 2, lba, blocks: 1, buffer, tag: 0, from })
                    .unwrap();
                sent += 1;
            }
            queue.flush().unwrap();
            queue.wait(LONG).unwrap();
            queue.poll(&mut done).unwrap();
            for one in done.drain(..) {
                assert!([Status::SUCCESS, Status::INVALID_NAMESPACE].contains(&one.status));
                refused += u64::from(!one.status.is_success());
            }
        }
        sent
    });
    while bench.serve.status()["namespaces"][1]["work"]["write"]["commands"] == 0 {}
    let said = bench.done(&["namespace", "remove", "2"]);
    assert!(said.contains("is closed"), "{said}");
    assert!(loaded.join().unwrap() > 0);
    assert_eq!(power_state(&bench, 2), None);
    bench.serve.load("randread");
    bench.serve.end();
}

#[test]
fn hosts_are_named_limited_and_sent_away() {
    let bench = Bench::start(&[]);
    let mut host = bench.connect(HOST);
    let hosts = bench.ctl(&["host", "list"]);
    let listed = json!({ "nqn": HOST, "access": "any", "controllers": 1 });
    assert_eq!((hosts["any"].clone(), hosts["hosts"][0].clone()), (json!(true), listed));
    let said = bench.done(&["host", "add", OTHER]);
    assert!(said.contains("only hosts that are named"), "{said}");
    host.keep_alive().unwrap();
    let again = bench.target(&bench.serve.address, HOST);
    assert!(Controller::connect(&again).is_err());
    let mut other = bench.connect(OTHER);
    bench.done(&["host", "disconnect", HOST]);
    // Seen by the next look at deadlines.
    let start = Instant::now();
    while host.keep_alive().is_ok() {
        assert!(start.elapsed() < LONG, "it stays connected");
        std::thread::sleep(Duration::from_millis(20));
    }
    other.keep_alive().unwrap();
    let (code, error) = bench.fails(&["host", "remove", OTHER]);
    assert!(code == 2 && error.contains("last host that is named"), "{error}");
    let key = bench.path("host.key");
    std::fs::write(&key, "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:").unwrap();
    let (code, error) = bench.fails(&["host", "add", HOST, "--key", &key]);
    assert!(code == 2 && error.contains("chmod 600"), "{error}");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    assert!(bench.done(&["host", "add", HOST, "--key", &key]).contains("with its key"));
    assert!(Controller::connect(&again).is_err(), "its name is not enough");
    bench.done(&["host", "remove", OTHER]);
    assert!(Controller::connect(&bench.target(&bench.serve.address, OTHER)).is_err());
    assert_eq!(bench.serve.status()["access"]["authentication"], true);
    let limits = ["limit", "set", OTHER, "--iops", "1000", "--bytes-per-second", "1 MiB"];
    bench.done(&limits);
    let hosts = bench.ctl(&["host", "list"]);
    let of_other = &hosts["hosts"][1];
    assert_eq!(of_other["access"], "none");
    assert_eq!((&of_other["iops"], &of_other["bytes_per_second"]), (&json!(1000), &json!(1 << 20)));
    let limit = json!({ "host": OTHER, "iops": 1000, "bytes_per_second": 1 << 20 });
    let status = bench.serve.status();
    valid("serve-status-1", &status);
    assert_eq!(status["limits"], json!([limit]));
    let (_, metrics) = bench.serve.get("/metrics");
    for (name, value) in [("commands_limit", "1000"), ("data_limit_bytes", "1048576")] {
        let row = format!("ebb_host_{name}{{host=\"{OTHER}\"}} {value}");
        assert!(metrics.contains(&row), "no {row} in {metrics}");
    }
    assert!(bench.done(&["limit", "clear", OTHER]).contains("no limit any more"));
    assert_eq!(bench.serve.status()["limits"], json!([]));
    for (args, word) in [
        (&["limit", "set", OTHER, "--iops", "1"][..], "10 to"),
        (&["limit", "set", "x", "--iops", "100"], "qualified name"),
        (&["host", "add", "x"], "qualified name"),
        (&["host", "remove", OTHER], "not named"),
    ] {
        let (code, error) = bench.fails(args);
        assert!(code == 2 && error.contains(word), "{args:?}: {error}");
    }
}

#[test]
fn addresses_come_and_go_and_paths_have_states() {
    let bench = Bench::start(&[]);
    let said = bench.done(&["listener", "add", "127.0.0.1:0"]);
    let second = said.strip_prefix("listening on ").unwrap().to_owned();
    let mut first = bench.connect(HOST);
    let mut host = Controller::connect(&bench.target(&second, HOST)).unwrap();
    let (mut near, mut far) = (queue(&mut first), queue(&mut host));
    assert_eq!(io(&mut far, Op::Read, 1, 0), Status::SUCCESS);
    bench.done(&["ana", "set", &second, "inaccessible"]);
    assert_eq!(io(&mut far, Op::Read, 1, 0), Status::ANA_INACCESSIBLE);
    assert_eq!(io(&mut near, Op::Read, 1, 0), Status::SUCCESS);
    bench.done(&["ana", "set", &second, "1", "change"]);
    assert_eq!(io(&mut far, Op::Read, 1, 0), Status::ANA_TRANSITION);
    let list = bench.ctl(&["listener", "list"]);
    let expected = json!({ "address": second, "ana": { "1": "change" } });
    assert_eq!(list["listeners"][1], expected);
    let status = bench.serve.status();
    valid("serve-status-1", &status);
    assert_eq!(status["server"]["listen"][1], second.as_str());
    let path = json!({ "listen": second, "namespace": 1, "state": "change" });
    assert_eq!(status["paths"][1], path);
    let row = format!("ebb_path_state{{listen=\"{second}\",namespace=\"1\",state=\"change\"}} 1");
    assert!(bench.serve.get("/metrics").1.contains(&row), "no {row}");
    bench.done(&["listener", "remove", &second]);
    assert!(host.keep_alive().is_err());
    assert_eq!(io(&mut near, Op::Read, 1, 0), Status::SUCCESS);
    for (args, word) in [
        (&["listener", "remove", &second][..], "does not listen on"),
        (&["listener", "remove", &bench.serve.address], "last address"),
        (&["listener", "add", &bench.serve.address], "cannot listen on"),
        (&["ana", "set", &second, "optimized"], "does not listen on"),
        (&["ana", "set", &bench.serve.address, "9", "optimized"], "no namespace 9"),
        (&["ana", "set", &bench.serve.address, "lost"], "no ANA state 'lost'"),
    ] {
        let (_, error) = bench.fails(args);
        assert!(error.contains(word), "{args:?}: {error}");
    }
}

#[test]
fn scheduler_and_log_level_change() {
    let bench = Bench::start(&[]);
    assert_eq!(bench.ctl(&["status"])["server"]["scheduler"], "interrupt");
    bench.done(&["scheduler", "set", "static"]);
    let status = bench.ctl(&["status"]);
    assert_eq!(
        (&status["server"]["scheduler"], &status["cores"][0]["wait"]),
        (&json!("static"), &json!("poll"))
    );
    bench.serve.load("randread");
    let (code, error) = bench.fails(&["scheduler", "set", "statick"]);
    assert!(code == 2 && error.contains("sandman"), "{error}");
    bench.done(&["scheduler", "set", "interrupt"]);
    bench.done(&["log-level", "set", "error"]);
    bench.done(&["namespace", "add", "ram:1MiB"]);
    bench.done(&["log-level", "set", "info"]);
    bench.done(&["namespace", "remove", "2"]);
    let text = prints(&["ctl", "--socket", &bench.socket, "status"]);
    assert!(text.contains("scheduler interrupt"), "{text}");
    let told = bench.serve.errors();
    assert!(told.contains("namespace 2 was removed") && !told.contains("2 was added"), "{told}");
}

/// What is saved is what another server starts with.
#[test]
fn a_server_starts_again_from_what_was_saved() {
    let bench = Bench::start(&[]);
    let disk = bench.path("disk.img");
    bench.done(&["namespace", "add", &format!("file:{disk},create,size=1MiB"), "--id", "5"]);
    bench.done(&["namespace", "resize", "5", "2MiB"]);
    bench.done(&["host", "add", HOST]);
    bench.done(&["limit", "set", HOST, "--iops", "500"]);
    bench.done(&["ana", "set", &bench.serve.address, "5", "non-optimized"]);
    bench.done(&["log-level", "set", "warning"]);
    let file = bench.path("serve.toml");
    let (code, error) = bench.fails(&["save"]);
    assert!(code == 2 && error.contains("ebb ctl save PATH"), "{error}");
    bench.done(&["save", &file]);
    let first = std::fs::read_to_string(&file).unwrap();
    let table: toml::Table = first.parse().unwrap();
    let list = |name: &str| table[name].as_array().unwrap().clone();
    assert_eq!(list("namespace")[1].as_str().unwrap(), format!("5=file:{disk},create,size=2MiB"));
    assert_eq!(list("limit")[0].as_str().unwrap(), format!("{HOST},iops=500"));
    let (code, error) = bench.fails(&["save", &file]);
    assert!(code == 2 && error.contains("--force"), "{error}");
    bench.done(&["log-level", "set", "debug"]);
    assert!(bench.done(&["save", &file, "--force"]).contains("the one before is"));
    assert_eq!(std::fs::read_to_string(file.clone() + ".old").unwrap(), first);
    assert!(std::fs::read_to_string(&file).unwrap().contains("log-level = \"debug\""));
    let (socket, folder) = (bench.socket.clone(), bench.folder);
    bench.serve.end();
    assert!(!std::path::Path::new(&socket).exists(), "it is gone with its server");
    let serve = Serve::of_file(&file);
    let again = Bench { serve, folder, socket };
    let namespaces = again.ctl(&["namespace", "list"]);
    assert_eq!(
        (&namespaces["namespaces"][1]["id"], &namespaces["namespaces"][1]["bytes"]),
        (&json!(5), &json!(2 << 20))
    );
    assert_eq!(again.ctl(&["host", "list"])["hosts"][0]["iops"], 500);
    let listeners = again.ctl(&["listener", "list"]);
    assert_eq!(listeners["listeners"][0]["ana"]["5"], "non-optimized");
    // Into its own file it saves without being forced to.
    again.done(&["limit", "clear", HOST]);
    assert!(again.done(&["save"]).contains("serve.toml.old"));
    assert!(!std::fs::read_to_string(&file).unwrap().contains("limit"));
}

fn code(reply: &Value) -> i64 {
    assert_eq!(reply["jsonrpc"], "2.0");
    reply["error"]["code"].as_i64().unwrap()
}

#[test]
fn garbage_is_refused_and_stalled_clients_do_no_harm() {
    let bench = Bench::start(&[]);
    let meta = std::fs::metadata(&bench.socket).unwrap();
    assert!(meta.file_type().is_socket() && meta.mode() & 0o777 == 0o600, "{:o}", meta.mode());
    let ask = |method: &str| json!({ "jsonrpc": "2.0", "method": method, "id": 1 }).to_string();
    let lines = [
        ask("namespace.list"),
        "garbage".to_owned(),
        "[]".to_owned(),
        ask("namespace.burn"),
        json!({ "jsonrpc": "2.0", "method": "status" }).to_string(), // no answer wanted
        json!({ "jsonrpc": "2.0", "method": "namespace.remove", "params": { "id": "x" }, "id": 2 })
            .to_string(),
        json!({ "jsonrpc": "2.0", "method": "status", "params": { "x": 1 }, "id": 3 }).to_string(),
        ask("host.list"),
    ];
    let replies = bench.raw((lines.join("\n") + "\n").as_bytes());
    assert_eq!(replies.len(), lines.len() - 1);
    assert_eq!(replies[0]["result"]["namespaces"][0]["id"], 1);
    let codes: Vec<_> = replies[1..6].iter().map(code).collect();
    assert_eq!(codes, [-32700, -32600, -32601, -32602, -32602]);
    assert!(replies[3]["error"]["message"].as_str().unwrap().contains("namespace.list"));
    assert_eq!(replies[6]["result"]["any"], true);
    let long = bench.raw(&vec![b'x'; 1 << 20]);
    assert_eq!((long.len(), code(&long[0])), (1, -32600));
    assert_eq!(bench.raw(&[0xff; 64])[0]["error"]["code"], -32700);
    // A thousand that say half a word, and one that asks.
    let before = bench.serve.descriptors();
    let mut stalled = Vec::new();
    for _ in 0..1000 {
        let Ok(mut stream) = UnixStream::connect(&bench.socket) else { continue };
        let _ = stream.write_all(b"{\"jsonrpc\":");
        stalled.push(stream);
    }
    assert_eq!(bench.ctl(&["namespace", "list"])["namespaces"][0]["id"], 1);
    assert!(bench.serve.descriptors() < before + 100, "{}", bench.serve.descriptors());
    bench.serve.load("randread");
    drop(stalled);
}

#[test]
fn other_users_and_other_servers_are_refused() {
    let bench = Bench::start(&[]);
    let (socket, folder) = (&bench.socket, bench.folder.path());
    let second = ["serve", "--listen", "127.0.0.1:0", "--namespace", "ram:1MiB", "--control"];
    let (code, error) = fails(&[&second[..], &[socket]].concat());
    assert!(code == 2 && error.contains("another server's"), "{error}");
    let file = bench.path("file");
    std::fs::write(&file, "kept").unwrap();
    let (code, error) = fails(&[&second[..], &[&file]].concat());
    assert!(code == 2 && error.contains("no socket"), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), b"kept");
    let (code, error) = fails(&["ctl", "--socket", &file, "status"]);
    assert!(code == 1 && error.contains("ebb serve --control"), "{error}");
    // Even where somebody has changed the socket's mode.
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(folder, all.clone()).unwrap();
    std::fs::set_permissions(socket, all).unwrap();
    // Where others may run it.
    let binary = bench.path("ebb");
    std::fs::copy(env!("CARGO_BIN_EXE_ebb"), &binary).unwrap();
    let mut as_nobody = Command::new(&binary);
    as_nobody.args(["ctl", "--socket", socket, "namespace", "list"]).uid(65534).gid(65534);
    match as_nobody.output() {
        Ok(output) => {
            let error = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(1), "{error}");
            assert!(error.contains("only root") && error.contains("--control-group"), "{error}");
        }
        Err(error) => println!("skipped: only root can be somebody else: {error}"),
    }
    assert_eq!(bench.ctl(&["namespace", "list"])["namespaces"][0]["id"], 1);
}

#[test]
fn help_names_what_there_is() {
    let text = String::from_utf8(ebb(&["ctl", "--help"]).stdout).unwrap();
    for word in ["namespace", "listener", "ana", "save", "docs/ctl.md", "/run/ebb-serve/serve.sock"]
    {
        assert!(text.contains(word), "{word}: {text}");
    }
    let (code, error) = fails(&["ctl", "limit", "set", HOST]);
    assert!(code == 2 && error.contains("--iops"), "{error}");
}

/// Reads one line at a time from a connection that stays, as a program would.
#[test]
fn one_connection_carries_many_requests() {
    let bench = Bench::start(&[]);
    let mut stream = UnixStream::connect(&bench.socket).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    for id in 0..100 {
        let request = json!({ "jsonrpc": "2.0", "method": "listener.list", "id": id });
        stream.write_all(format!("{request}\n").as_bytes()).unwrap();
        let reply: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert_eq!(reply["id"], id);
        assert_eq!(reply["result"]["listeners"][0]["address"], bench.serve.address.as_str());
    }
}
