//! The log of decisions as JSON lines.

use std::fs::File;
use std::io::{self, BufReader, Seek};
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use ebb_policy::Decision;
use ebb_twin::faults::FaultEvent;

use crate::output;

/// A decision in words and numbers.
#[derive(Debug, Serialize)]
pub struct Line<'a> {
    /// Seconds since the start of the run.
    pub time_s: f64,
    /// The policy whose run it is.
    pub policy: &'a str,
    /// What changed, with its unit where it has one, such as `frequency_hz` (see
    /// `docs/json-schema/decision-2.json`).
    pub control: &'static str,
    /// Of which core group, drive, fan, socket, job or class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Value before; absent where whoever the control was released to decided.
    pub from: Option<f64>,
    /// Value after.
    pub to: Option<f64>,
    /// What was asked for, where the guard gave something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<f64>,
    /// Machine-readable reason.
    pub reason: &'static str,
}

/// `decision` of `policy` for people and programs; `groups` are the names of the core groups.
pub fn told<'a>(policy: &'a str, groups: &[String], decision: &Decision) -> Line<'a> {
    let Decision { at, control, part, from, to, asked, reason } = *decision;
    Line {
        time_s: at.seconds(),
        policy,
        control: control.row().name,
        of: control.part(part, groups),
        from,
        to,
        asked: asked.filter(|_| decision.is_held()),
        reason,
    }
}

/// One line of the file.
pub fn line(policy: &str, groups: &[String], decision: &Decision) -> String {
    serde_json::to_string(&told(policy, groups, decision)).unwrap_or_default()
}

/// One line of the file for an injected fault: 0 to 1 when it begins, 1 to 0 when it ends.
pub fn fault_line(policy: &str, event: &FaultEvent, begins: bool) -> String {
    let (time, from) = if begins { (event.from, 0.0) } else { (event.until, 1.0) };
    let line = Line {
        time_s: time.seconds(),
        policy,
        control: "fault",
        of: Some(event.fault.part()),
        from: Some(from),
        to: Some(1.0 - from),
        asked: None,
        reason: event.fault.reason(),
    };
    serde_json::to_string(&line).unwrap_or_default()
}

/// Writes the lines of all `logs`, in their order.
pub fn write(path: &Path, logs: impl Iterator<Item = io::Result<Option<File>>>) -> Result<()> {
    output::write(path, |to| {
        for log in logs {
            if let Some(mut file) = log? {
                file.rewind()?;
                io::copy(&mut BufReader::new(file), to)?;
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use ebb_policy::Control;

    #[test]
    fn the_schema_has_every_control_of_the_table_and_no_other() {
        let schema = include_str!("../../../../docs/json-schema/decision-2.json");
        let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
        let named = schema["properties"]["control"]["enum"].as_array().unwrap();
        let mut table: Vec<_> = Control::ALL.iter().map(|control| control.row().name).collect();
        table.push("fault");
        assert_eq!(named.iter().map(|name| name.as_str().unwrap()).collect::<Vec<_>>(), table);
    }
}
