use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

use serde_json::json;
use tempfile::TempDir;

use super::*;

/// `status` is short, `long` more than a socket takes, and `wait` ends when it is let.
struct Double {
    begun: Sender<()>,
    gate: Mutex<Receiver<()>>,
}

impl Methods for Double {
    fn names(&self) -> &'static [&'static str] {
        &["status", "long", "wait"]
    }
    fn call(&self, method: &str, _: Map<String, Value>) -> Result<Value, Fault> {
        match method {
            "long" => Ok(json!("x".repeat(8 << 20))),
            "wait" => {
                self.begun.send(()).unwrap();
                let _ = self.gate.lock().unwrap().recv();
                Ok(Value::Null)
            }
            _ => Ok(json!("well")),
        }
    }
}

struct Bench {
    folder: TempDir,
    _socket: Socket,
    begun: Receiver<()>,
    gate: Sender<()>,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let ((begin, begun), (gate, let_go)) = (channel(), channel());
        let double = Double { begun: begin, gate: Mutex::new(let_go) };
        let mut socket = Socket::bind(&folder.path().join("socket"), None).unwrap();
        socket.serve(Arc::new(double)).unwrap();
        Self { folder, _socket: socket, begun, gate }
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.folder.path().join("socket")).unwrap()
    }

    fn ask(&self, method: &str) -> UnixStream {
        let mut stream = self.connect();
        stream.write_all(protocol::request(method, &json!({}), 1).as_bytes()).unwrap();
        stream
    }

    fn is_answered(&self) -> bool {
        let mut line = String::new();
        BufReader::new(self.ask("status")).read_line(&mut line).unwrap();
        line.contains("well")
    }
}

#[test]
fn who_does_not_read_gives_way() {
    let bench = Bench::new();
    let mut guests: Vec<_> = (0..CONNECTIONS).map(|_| bench.ask("long")).collect();
    // The answer has begun, and does not fit.
    guests.iter_mut().for_each(|guest| guest.read_exact(&mut [0]).unwrap());
    assert!(bench.is_answered());
}

#[test]
fn what_waits_for_nothing_is_answered_whatever_others_wait_for() {
    let bench = Bench::new();
    let guests: Vec<_> = (0..CONNECTIONS / 2).map(|_| bench.ask("wait")).collect();
    for _ in 0..WORKERS - 1 {
        bench.begun.recv().unwrap();
    }
    assert!(bench.is_answered());
    let more: Vec<_> = (guests.len()..CONNECTIONS).map(|_| bench.ask("wait")).collect();
    // All connections have a request under way: one beyond them is heard for what does not wait.
    let mut refusal = String::new();
    while !refusal.contains(&code::BUSY.to_string()) {
        refusal.clear();
        BufReader::new(bench.ask("long")).read_line(&mut refusal).unwrap();
    }
    let _silent: Vec<_> = (0..2 * EXTRA).map(|_| bench.connect()).collect();
    for _ in 0..5 {
        assert!(bench.is_answered());
    }
    let guests = guests.into_iter().chain(more).collect::<Vec<_>>();
    guests.iter().for_each(|_| bench.gate.send(()).unwrap());
    for guest in guests {
        assert!(BufReader::new(guest).lines().next().is_some());
    }
}
