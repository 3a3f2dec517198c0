//! The live page in a browser, where there is one: chromium, over its debugging pipe.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::Copy;
use super::metrics::{Run, cycles};

const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one page; ended when dropped.
struct Browser {
    child: Child,
    to: ChildStdin,
    /// What it says (Chrome DevTools Protocol), one message after the other.
    said: Receiver<Value>,
    session: Option<String>,
    calls: u64,
    /// What went wrong in the page, as it says.
    wrong: Vec<Value>,
    _folder: TempDir,
}

impl Browser {
    /// The browser at `url`; nothing where there is none.
    fn open(url: &str) -> Option<Self> {
        let exists = Command::new("chromium").arg("--version").output();
        if !exists.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: there is no chromium here");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        // Its pipe is of descriptors 3 and 4.
        let line = "exec chromium --headless=new --no-sandbox --disable-gpu \
                    --remote-debugging-pipe --user-data-dir=\"$0\" 3<&0 4>&1 >/dev/null 2>&1";
        let mut command = Command::new("sh");
        command.args(["-c", line]).arg(folder.path());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a shell");
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (tell, said) = channel();
        thread::spawn(move || {
            for message in BufReader::new(from).split(0).map_while(Result::ok) {
                let _ = tell.send(serde_json::from_slice(&message).unwrap());
            }
        });
        let (session, wrong) = (None, Vec::new());
        let mut browser = Self { child, to, said, session, calls: 0, wrong, _folder: folder };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let target = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", target);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser.call("Page.navigate", json!({"url": url}));
        Some(browser)
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let mut call = json!({"id": self.calls, "method": method, "params": params});
        if let Some(session) = &self.session {
            call["sessionId"] = session.as_str().into();
        }
        self.to.write_all(format!("{call}\0").as_bytes()).unwrap();
        loop {
            let mut said = self.said.recv_timeout(PATIENCE).expect("the browser answers");
            if said["id"] == self.calls {
                assert!(said["error"].is_null(), "{method}: {said}");
                return said["result"].take();
            }
            let wrong =
                ["Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening"];
            if wrong.contains(&said["method"].as_str().unwrap_or_default()) {
                self.wrong.push(said);
            }
        }
    }

    fn value(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true});
        self.call("Runtime.evaluate", params)["result"]["value"].take()
    }

    fn until(&mut self, expression: &str) {
        let begun = Instant::now();
        while self.value(expression) != true {
            let page = "document.body.innerText";
            assert!(begun.elapsed() < PATIENCE, "{expression}: {}", self.value(page));
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Bytes that its script has, and nodes of the document, once what is not used is gone.
    fn memory(&mut self) -> (f64, f64) {
        self.call("HeapProfiler.collectGarbage", json!({}));
        let heap = self.call("Runtime.getHeapUsage", json!({}));
        let nodes = self.value("document.getElementsByTagName('*').length");
        (heap["usedSize"].as_f64().unwrap(), nodes.as_f64().unwrap())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_browser_shows_names_as_text_and_fits_a_phone() {
    let copy = Copy::new();
    copy.put("sys/block/sda/device/wwid", "</script><img src=x onerror=alert(1)>");
    let run = Run::start(&copy, &["--policy", "eadc+pacman", "--ssd-budget", "50 W"]);
    run.until(|samples| cycles(samples) >= 2.0);
    let Some(mut browser) = Browser::open(&format!("http://{}/", run.metrics)) else { return };
    let phone = json!({"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": true});
    browser.call("Emulation.setDeviceMetricsOverride", phone);
    browser.until("document.getElementById('state').innerText.startsWith('observing')");
    browser.until("document.getElementById('remarks').innerText.includes('<img src=x onerror')");
    browser.until("document.getElementById('decisions').innerText.includes('eadc:')");
    browser.until("document.getElementById('link').dataset.link === 'live'");
    assert_eq!(browser.value("document.images.length"), 0);
    assert_eq!(browser.value("document.documentElement.scrollWidth"), 360);
    // It goes, and what is shown is called old.
    drop(run);
    browser.until("document.getElementById('link').innerText.startsWith('No connection')");
    let lost = |said: &Value| said["params"]["entry"]["source"] == "network";
    let wrong: Vec<_> = browser.wrong.iter().filter(|said| !lost(said)).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// By then all that has a bound in the page is full.
const FULL: u64 = 2400;
/// So many bytes may the engine itself come to take, for code that it compiles later, say: one
/// measured 0.3 MB in the first hours and 0.1 MB in the rest of a day. A page that kept one number
/// of each event would take more in a day.
const ENGINE: f64 = 1e6;

/// Answers like a run whose every cycle changes all drives, as fast as it is read; once the page is
/// full it waits for `go`.
fn play(listener: &TcpListener, page: &str, status: &Value, events: u64, go: &Receiver<()>) {
    for mut stream in listener.incoming().map_while(Result::ok) {
        let mut asked = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut asked).unwrap();
        let kind = if asked.contains("/events") { "text/event-stream" } else { "text/html" };
        let head = format!("HTTP/1.0 200 OK\r\ncontent-type: {kind}\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        if !asked.contains("/events") {
            stream.write_all(page.as_bytes()).unwrap();
            continue;
        }
        let past = json!({"at_s": [], "series": [], "saving": {"least_w": [], "most_w": []}});
        write!(stream, "event: history\ndata: {past}\n\n").unwrap();
        for cycle in 1..=events {
            let text = format!("event: status\ndata: {}\n\n", busy(status.clone(), cycle));
            // Who reads it ends with the test.
            if stream.write_all(text.as_bytes()).is_err() || cycle == FULL && go.recv().is_err() {
                return;
            }
        }
        let _ = go.recv();
    }
}

/// The status after a cycle in which all is other than before.
fn busy(mut status: Value, cycle: u64) -> Value {
    let at = 0.5 * cycle as f64;
    let source = if (cycle / 1000).is_multiple_of(2) { "measured" } else { "modelled" };
    let of = |drive: u64| format!("naa.5000c500d5f1{drive:04x}");
    let power = |signal| json!({"signal": signal, "watts": at % 97.0, "source": source});
    let change = |drive| {
        json!({"at_s": at, "control": "power_state", "of": of(drive), "from": cycle % 3,
            "to": (cycle + drive) % 3, "reason": "pacman:give", "applied": "done"})
    };
    let notice = |one| json!({"at_s": at, "of": of(one), "text": format!("absent: {cycle}")});
    for (name, value) in [
        ("uptime_s", json!(at)),
        ("cycles", cycle.into()),
        ("decided", (32 * cycle).into()),
        ("power", ["power", "cpu_power", "ssd_power"].map(power).into()),
        ("changes", (0..32).map(change).collect()),
        ("notices", (0..20).map(notice).collect()),
        ("saving", json!({"least_w": at % 7.0, "most_w": 9, "profile": "x", "would": false})),
    ] {
        status[name] = value;
    }
    status
}

/// Two hours by default; EBB_EVENTS=172800 are a day.
#[test]
fn a_page_that_is_open_for_long_takes_no_more_memory() {
    let events = std::env::var("EBB_EVENTS").map_or(14_400, |count| count.parse().unwrap());
    let copy = Copy::new();
    let run = Run::start(&copy, &["--policy", "eadc"]);
    run.until(|samples| cycles(samples) >= 2.0);
    let page = run.ask("GET", "/", "*/*").1;
    let status: Value = serde_json::from_str(&run.ask("GET", "/status", "*/*").1).unwrap();
    drop(run);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (go, told_to) = channel();
    thread::spawn(move || play(&listener, &page, &status, events, &told_to));
    let Some(mut browser) = Browser::open(&url) else { return };
    let at = |browser: &mut Browser, events: u64| {
        let begun = Instant::now();
        while browser.value("status && status.cycles") != events {
            assert!(begun.elapsed() < Duration::from_secs(1800), "{}", browser.value("cycles"));
            thread::sleep(Duration::from_millis(200));
        }
        let (heap, nodes) = browser.memory();
        eprintln!("{events} events: {:.2} MB, {nodes} elements", heap / 1e6);
        (heap, nodes)
    };
    let (was, were) = at(&mut browser, FULL);
    go.send(()).unwrap();
    let (heap, nodes) = at(&mut browser, events);
    assert!(heap < was + ENGINE && nodes <= were, "{was} B and {were} elements at first");
    assert_eq!(browser.value("[skipped, unheard].join()"), "0,0");
    assert!(browser.wrong.is_empty(), "{:#?}", browser.wrong);
}
