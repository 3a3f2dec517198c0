//! The log of decisions as JSON lines.

use std::io::{self, BufReader, Seek};
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use ebb_policy::{ControlName, Decision};
use ebb_twin::faults::FaultEvent;

use super::run::RunResult;
use crate::output;

/// A decision in words and numbers.
#[derive(Debug, Serialize)]
pub struct Line<'a> {
    /// Seconds since the start of the run.
    pub time_s: f64,
    /// The policy whose run it is.
    pub policy: &'a str,
    /// What changed, with its unit where it has one, such as `frequency_hz` (see
    /// `docs/json-schema/decision-1.json`).
    pub control: &'static str,
    /// Of which core group, drive, fan, socket, job or class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Value before.
    pub from: f64,
    /// Value after.
    pub to: f64,
    /// Machine-readable reason.
    pub reason: &'static str,
}

/// `decision` of `policy` for people and programs; `groups` are the names of the core groups.
pub fn told<'a>(policy: &'a str, groups: &[String], decision: &Decision) -> Line<'a> {
    let group = |index: u16| groups.get(usize::from(index)).cloned();
    let (control, of) = match decision.control {
        ControlName::ActiveCores(index) => ("active_cores", group(index)),
        ControlName::Frequency(index) => ("frequency_hz", group(index)),
        ControlName::PowerState(drive) => ("power_state", Some(format!("drive{drive}"))),
        ControlName::Background => ("background", None),
        ControlName::FanDuty(fan) => ("fan_duty", Some(format!("fan{fan}"))),
        ControlName::FrequencyCap(socket) => ("frequency_cap_hz", Some(format!("socket{socket}"))),
        ControlName::JobShare(job) => ("job_share", Some(format!("job{job}"))),
        ControlName::JobSocket(job) => ("job_socket", Some(format!("job{job}"))),
        ControlName::Admit(class) => ("admit", Some(format!("{class:?}").to_lowercase())),
    };
    let Decision { at, from, to, reason, .. } = *decision;
    Line { time_s: at.seconds(), policy, control, of, from, to, reason }
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
        from,
        to: 1.0 - from,
        reason: event.fault.reason(),
    };
    serde_json::to_string(&line).unwrap_or_default()
}

/// Writes the decisions of all runs, in the order of the policies.
pub fn write(path: &Path, results: &mut [RunResult]) -> Result<()> {
    output::write(path, |to| {
        for result in results.iter_mut() {
            if let Some(mut file) = result.log.take_file()? {
                file.rewind()?;
                io::copy(&mut BufReader::new(file), to)?;
            }
        }
        Ok(())
    })
}
