//! The live page: one HTML document that shows what a run tells, in the look of the report.
//!
//! It is the same on every machine: whatever is of a machine comes by events (`GET events`, beside
//! the page) and enters by `textContent` only. Its policy lets the browser run this script and this
//! style, known by their hashes, and nothing else.

use std::collections::BTreeMap;

use base64ct::{Base64, Encoding};
use ebb_policy::Control;
use ebb_policy::live::SENSES;
use ebb_policy::table::SIGNALS;
use serde::Serialize;
use sha2::{Digest, Sha256};

/// The page as it is served.
#[derive(Debug, Clone)]
pub struct Page {
    /// The document.
    pub html: String,
    /// Its content security policy (CSP level 3, 6.7.2: hashes).
    pub policy: String,
}

/// What the table says of a signal.
#[derive(Serialize)]
struct SignalText {
    unit: &'static str,
    of: &'static str,
    text: &'static str,
    /// Where a server has it from; absent where none has.
    from: Option<&'static str>,
}

/// What the table says of a control.
#[derive(Serialize)]
struct ControlText {
    unit: &'static str,
    title: &'static str,
    text: &'static str,
}

/// Signals and controls by their names.
#[derive(Serialize)]
struct Table {
    signals: BTreeMap<&'static str, SignalText>,
    controls: BTreeMap<&'static str, ControlText>,
}

impl Table {
    fn new() -> Self {
        let from = |signal| SENSES.iter().find(|sense| sense.signals.contains(&signal))?.from;
        let signals = SIGNALS.iter().map(|row| {
            let (unit, of, text) = (row.unit.symbol(), row.domain.title(), row.text);
            (row.name, SignalText { unit, of, text, from: from(row.signal) })
        });
        let controls = Control::ALL.iter().map(|control| {
            let row = control.row();
            let (unit, title, text) = (row.unit.symbol(), row.title, row.text);
            (row.name, ControlText { unit, title, text })
        });
        Self { signals: signals.collect(), controls: controls.collect() }
    }
}

impl Page {
    /// The page.
    #[must_use]
    pub fn make() -> Self {
        let style = concat!(
            include_str!("../report/uplot/uPlot.min.css"),
            include_str!("../report/page.css"),
            include_str!("live.css")
        );
        let script = concat!(
            include_str!("../report/uplot/uPlot.iife.min.js"),
            include_str!("../report/shared.js"),
            include_str!("chart.js"),
            include_str!("live.js")
        );
        // All of it can be JSON.
        let table =
            serde_json::to_string(&Table::new()).unwrap_or_default().replace('<', "\\u003c");
        let mut html = String::new();
        for part in include_str!("live.html").split("<!--") {
            let (place, rest) = part.split_once("-->").unwrap_or(("", part));
            html.push_str(match place {
                "style" => style,
                "table" => &table,
                "script" => script,
                _ => "",
            });
            html.push_str(rest);
        }
        let hash = |text: &str| Base64::encode_string(&Sha256::digest(text));
        let policy = format!(
            "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; \
             connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
             frame-ancestors 'none'",
            hash(script),
            hash(style)
        );
        Self { html, policy }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is between two marks.
    fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
        text.split_once(from).unwrap().1.split_once(to).unwrap().0
    }

    #[test]
    fn the_policy_lets_run_what_stands_in_the_page_and_nothing_else() {
        let Page { html, policy } = Page::make();
        let hash = |text: &str| {
            format!("'sha256-{}'", Base64::encode_string(&Sha256::digest(text.as_bytes())))
        };
        let style = between(&html, "<style>", "</style>");
        let script = between(&html, "<script>", "</script>");
        assert!(policy.contains(&format!("style-src {};", hash(style))), "{policy}");
        assert!(policy.contains(&format!("script-src {};", hash(script))), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        for attribute in [" style=", " onclick=", " onload=", "src=", "href=\"http"] {
            assert!(!html.contains(attribute), "{attribute} needs what the policy forbids");
        }
        let table = between(&html, "id=\"table\">", "</script>");
        let table: serde_json::Value = serde_json::from_str(table).unwrap();
        assert_eq!(table["controls"]["fan_duty"]["title"], "fans");
        assert_eq!(table["signals"]["cpu_power"]["from"], "RAPL");
    }

    /// Names of drives and chips are whatever their makers wrote.
    #[test]
    fn text_can_become_no_markup() {
        let scripts = [
            include_str!("../report/shared.js"),
            include_str!("chart.js"),
            include_str!("live.js"),
        ];
        for way in ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval("] {
            assert!(scripts.iter().all(|script| !script.contains(way)), "{way}");
        }
    }
}
