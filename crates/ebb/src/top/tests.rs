//! What stands on the screen, for a status of each kind and terminals of any size.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::json;

use super::*;

/// Two fans that are held, one of which is refused, and a drive with a strange name.
fn status() -> Value {
    let fan = |of: &str, applied: &str| {
        json!({
            "control": "fan_duty", "of": of, "asked": 0.3, "given": 0.45, "unit": "0 to 1",
            "reason": "guard:heat", "applied": applied, "since_s": 40.0,
        })
    };
    let sensor = |signal: &str, known: u32, least: Option<f64>, without: &[&str]| {
        json!({
            "signal": signal, "parts": 2, "known": known, "modelled": 0, "least": least,
            "most": least, "oldest_s": 0.0, "without": without,
            "reasons": if known < 2 { &["load its driver"][..] } else { &[] },
        })
    };
    json!({
        "schema": 1, "daemon": "run", "version": "0.1.0", "uptime_s": 100.0,
        "unix_s": 1_764_270_000.0, "state": "degraded: 1 controls do not follow",
        "state_since_s": 30.0, "policy": "eadc", "plf": 0.2, "ssd_budget_w": 224.0,
        "would_lose": null, "latency": "block", "cycles": 200, "late_s": 0.0, "events_lost": 3,
        "orders": [{"what": "tolerance 50 %", "ends_s": 160.0}],
        "controls": [fan("fan0", "done"), fan("fan1", "done"), fan("fan2", "refused")],
        "power": [
            {"signal": "power", "watts": 412.04, "source": "measured"},
            {"signal": "ssd_power", "watts": 60.0, "source": "modelled"},
            {"signal": "ssd_drive_power", "of": "nvme0", "watts": 7.0, "source": "modelled"},
        ],
        "saving": {"least_w": 2.0, "most_w": 3.8, "profile": "generic-1u", "would": false},
        "missing": ["no latency of users: set serve"], "absent": [],
        "sensors": [
            sensor("cores_utilisation", 2, Some(0.25), &[]),
            sensor("fan_speed", 1, Some(5000.0), &["fan1"]),
            sensor("latency_p99", 0, None, &[]),
            sensor("latency_p50", 0, None, &[]),
        ],
        "notices": [{"at_s": 60.0, "of": "fan2", "text": "turns no more\u{1b}[2J"}],
        "changes": [
            {"at_s": 39.5, "control": "fan_duty", "of": "fan0", "from": null, "to": 0.3,
             "reason": "eadc:cooler", "applied": "done"},
            {"at_s": 40.0, "control": "fan_duty", "of": "fan0", "from": 0.3, "to": 0.45,
             "reason": "guard:heat", "applied": "done"},
        ],
        "decided": 1234,
        "refusals": [{"control": "fan_duty", "by": "machine", "count": 7}],
    })
}

fn view(status: Value) -> View {
    View::new(Seen::new(status).unwrap())
}

/// What stands on a terminal of this size, by line.
fn drawn(view: &mut View, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| view.draw(frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let cells = buffer.content.chunks(usize::from(width).max(1));
    let line = |cells: &[ratatui::buffer::Cell]| -> String {
        cells.iter().map(ratatui::buffer::Cell::symbol).collect()
    };
    cells.map(|cells| line(cells).trim_end().to_owned()).collect()
}

fn press(view: &mut View, code: KeyCode) -> bool {
    view.press(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn a_wide_terminal_shows_all_that_an_operator_asks_for() {
    let lines = drawn(&mut view(status()), 120, 60);
    let text = lines.join("\n");
    for words in [
        "ebb run: degraded: 1 controls do not follow for 1 min 10 s; policy eadc",
        "tolerated loss 20 %, drives' caps up to 224 W; up 1 min 40 s, 200 cycles, the last at ",
        "by ebb ctl: tolerance 50 %, for 1 min 0 s more",
        "at the wall  412.0 W  measured",
        "processors   –        not known",
        "drives       60.0 W   modelled",
        "saves 2.0 to 3.8 W of the cores' power against the settings found, in the mean",
        "3 events were lost",
        "fan2: turns no more\\u{1b}[2J",
        "no latency of users: set serve",
        "machine",
        "1 of 2; not fan1; load its driver",
        "no latency_p99, latency_p50: load its driver",
        "1,234 since the start",
    ] {
        assert!(text.contains(words), "{words}:\n{text}");
    }
    let has = |cells: &[&str]| {
        let is = |line: &&String| cells.iter().all(|cell| line.contains(cell));
        assert!(lines.iter().any(|line| is(&line)), "{cells:?}:\n{text}");
    };
    has(&["fan0, fan1", "30 %", "45 %", "done", "1 min 0 s", "guard:heat"]);
    has(&["fan2", "30 %", "45 %", "refused", "guard:heat"]);
    has(&["released", "30 %", "eadc:cooler"]);
    has(&["7", "by the machine"]);
    has(&["cores_utilisation", "25 %", "measured", "now", "known"]);
    // A fan that lacks stands before what is known of all parts.
    let place = |words: &str| lines.iter().position(|line| line.starts_with(words)).unwrap();
    assert!(place("fan_speed") < place("cores_utilisation"), "{text}");
    assert!(lines[59].starts_with("q quits"), "{text}");
}

#[test]
fn a_narrow_terminal_loses_no_word_and_every_line_is_reached() {
    let words = |lines: &[String]| -> Vec<String> {
        let all = lines.iter().flat_map(|line| line.split_whitespace());
        all.map(str::to_owned).collect()
    };
    let mut narrow = view(status());
    let mut seen = Vec::new();
    loop {
        let lines = drawn(&mut narrow, 40, 12);
        assert!(lines[11].starts_with("q quits"), "{lines:#?}");
        seen.extend(words(&lines[..11]));
        let before = narrow.from;
        assert!(!press(&mut narrow, KeyCode::PageDown));
        drawn(&mut narrow, 40, 12);
        if narrow.from < before + 11 {
            break;
        }
    }
    let wide = drawn(&mut view(status()), 200, 80);
    let wanted = words(&wide[..79]);
    let lost: Vec<_> = wanted.iter().filter(|word| !seen.contains(word)).collect();
    // The last page overlaps the one before, so that it was not looked at as a whole.
    press(&mut narrow, KeyCode::End);
    let end = words(&drawn(&mut narrow, 40, 12));
    let lost: Vec<_> = lost.into_iter().filter(|word| !end.contains(word)).collect();
    assert!(lost.is_empty(), "{lost:?}");
    press(&mut narrow, KeyCode::Home);
    assert!(drawn(&mut narrow, 40, 12)[0].starts_with("ebb run: degraded"));
    for (width, height) in [(1, 1), (5, 2), (20, 1), (1, 40), (400, 3)] {
        drawn(&mut narrow, width, height);
    }
}

#[test]
fn keys_scroll_and_leave() {
    let mut view = view(status());
    drawn(&mut view, 80, 10);
    for (code, from) in [
        (KeyCode::Up, 0),
        (KeyCode::Down, 1),
        (KeyCode::Char('j'), 2),
        (KeyCode::Char(' '), 11),
        (KeyCode::Char('k'), 10),
        (KeyCode::PageUp, 1),
    ] {
        assert!(!press(&mut view, code));
        drawn(&mut view, 80, 10);
        assert_eq!(view.from, from, "{code:?}");
    }
    assert!(!press(&mut view, KeyCode::Char('c')));
    assert!(view.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    assert!(press(&mut view, KeyCode::Char('q')) && press(&mut view, KeyCode::Esc));
}

#[test]
fn a_daemon_that_does_not_answer_is_named_below_what_it_said_last() {
    let mut view = view(status());
    view.hear(Err(anyhow::anyhow!("connection refused\u{7}")));
    let lines = drawn(&mut view, 80, 10);
    assert!(lines[0].starts_with("ebb run: degraded"), "{lines:#?}");
    assert!(lines[9].starts_with("no answer for 0 s: connection refused\\u{7}"), "{lines:#?}");
    view.hear(Seen::new(status()));
    assert!(drawn(&mut view, 80, 10)[9].starts_with("q quits"));
    let error = Seen::new(json!({"daemon": "run", "schema": 9})).err().unwrap();
    assert!(error.to_string().contains("another version"), "{error}");
}
