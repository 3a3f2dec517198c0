//! Requests that wait for a disk, and everybody else.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use ebb_cli::progress::Progress;
use ebb_target::device::{self, Channel, Device, Geometry};
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::super::energy::{Model, profile};
use super::*;

const LONG: Duration = Duration::from_secs(60);
const HOST: &str = "nqn.2026-01.org.example:host";

/// A device that grows when it is let.
struct Slow {
    inner: Arc<dyn Device>,
    begun: Sender<()>,
    gate: Mutex<Receiver<()>>,
}

impl Device for Slow {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }
    fn describe(&self) -> String {
        "slow".to_owned()
    }
    fn grow(&self, bytes: u64) -> Result<(), device::Error> {
        self.begun.send(()).unwrap();
        let _ = self.gate.lock().unwrap().recv();
        self.inner.grow(bytes)
    }
    fn open(&self) -> std::io::Result<Box<dyn Channel>> {
        self.inner.open()
    }
}

struct Bench {
    server: Server,
    control: Arc<Control>,
}

impl Bench {
    fn new() -> Self {
        let options = Options {
            listen: vec!["127.0.0.1:0".parse().unwrap()],
            namespace: vec!["ram:1MiB".to_owned()],
            scheduler: Some("interrupt".to_owned()),
            ..Options::default()
        };
        let server = Server::start(&options, &Progress::new(true)).unwrap();
        let model = Model::new(profile(None).unwrap(), &server.machine);
        let (facts, monitor) = (server.facts.clone(), server.runtime.monitor());
        let rapl = super::super::rapl(Some("/nowhere".as_ref()));
        let observer = Arc::new(Observer::new(facts, monitor, rapl, model));
        let control = Arc::new(Control::new(&server, options, None, observer));
        Self { server, control }
    }

    /// Adds a namespace: what says that it is asked to grow, and what lets it.
    fn slow(&self, id: u32) -> (Receiver<()>, Sender<()>) {
        let inner = device::open(&"null:1MiB".parse().unwrap()).unwrap();
        let ((begin, begun), (gate, let_go)) = (channel(), channel());
        let device = Arc::new(Slow { inner, begun: begin, gate: Mutex::new(let_go) });
        let (uuid, nguid) = ([id as u8; 16], [id as u8; 16]);
        let namespace =
            ebb_target::controller::Namespace { id, device, uuid, nguid, read_only: false };
        let add = |running: &mut Running| Ok(running.fleet.add(namespace)?);
        self.control.with(add).unwrap();
        (begun, gate)
    }

    fn ask(&self, method: &str, params: &Value) -> JoinHandle<Result<Value, Fault>> {
        let (control, method) = (self.control.clone(), method.to_owned());
        let params = params.as_object().cloned().unwrap_or_default();
        thread::spawn(move || control.call(&method, params))
    }

    /// The answer to what must be answered whoever waits.
    fn now(&self, method: &str, params: &Value) -> Result<Value, String> {
        let (tell, told) = channel();
        let asked = self.ask(method, params);
        thread::spawn(move || tell.send(asked.join().unwrap()));
        let answer = told.recv_timeout(LONG);
        answer.unwrap_or_else(|_| panic!("{method} waits")).map_err(|fault| fault.message)
    }

    fn others_are_answered(&self) {
        for (method, params) in [
            ("status", json!({})),
            ("namespace.list", json!({})),
            ("host.list", json!({})),
            ("host.disconnect", json!({ "nqn": HOST })),
            ("limit.set", json!({ "nqn": HOST, "iops": 100 })),
        ] {
            self.now(method, &params).unwrap();
        }
    }
}

fn resize(id: u32) -> Value {
    json!({ "id": id, "bytes": 2 << 20 })
}

#[test]
fn a_disk_that_hangs_keeps_requests_for_it_alone_waiting() {
    let bench = Bench::new();
    let [(begun, gate), (begun_too, gate_too)] = [bench.slow(2), bench.slow(3)];
    let first = bench.ask("namespace.resize", &resize(2));
    begun.recv_timeout(LONG).unwrap();
    bench.others_are_answered();
    for (method, params) in
        [("namespace.resize", resize(2)), ("namespace.remove", json!({ "id": 2 }))]
    {
        let error = bench.now(method, &params).unwrap_err();
        assert!(error.contains("not ended with namespace 2;"), "{error}");
    }
    let second = bench.ask("namespace.resize", &resize(3));
    begun_too.recv_timeout(LONG).unwrap();
    let add = json!({ "device": "ram:1MiB" });
    let error = bench.now("namespace.add", &add).unwrap_err();
    assert!(error.contains("namespace 2 and namespace 3;"), "{error}");
    bench.others_are_answered();
    gate_too.send(()).unwrap();
    second.join().unwrap().unwrap();
    let grown = bench.server.subsystem.namespace(3).unwrap().device.geometry();
    assert_eq!(grown.bytes(), 2 << 20);
    bench.now("namespace.add", &add).unwrap();
    // The end does not wait either.
    assert!(bench.control.end(LONG).is_some());
    assert!(bench.control.is_at_work(2) && !bench.control.is_at_work(3));
    gate.send(()).unwrap();
    assert_eq!(first.join().unwrap().unwrap_err().message, ENDING);
    assert!(!bench.control.is_at_work(2));
    bench.server.stop();
}

/// The file of a drive is a pipe that nobody writes to.
#[test]
fn a_file_that_cannot_be_opened_keeps_nobody_waiting() {
    let bench = Bench::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let device = format!("modelled:1MiB,drive={}", path.display());
    let refused = bench.now("namespace.add", &json!({ "device": device, "id": 2 })).unwrap_err();
    assert!(refused.contains("is no file"), "{refused:?}");
    bench.others_are_answered();
    bench.now("namespace.add", &json!({ "device": "ram:1MiB" })).unwrap();
    bench.server.stop();
}

#[test]
fn the_end_waits_for_a_change_no_longer_than_it_may() {
    let bench = Bench::new();
    let end = |_: &mut Running| Ok(bench.control.end(Duration::ZERO).is_none());
    assert!(bench.control.with(end).unwrap());
    assert!(bench.control.end(Duration::ZERO).is_some());
    bench.server.stop();
}
