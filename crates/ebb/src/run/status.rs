//! Where a run stands as JSON (docs/json-schema/run-status-1.json), and for people.

use std::fmt::Write;

use comfy_table::Table;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use ebb_cli::text;
use ebb_policy::table::{SIGNALS, SignalRow};
use ebb_policy::{Control, Outcome, Unit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::board::{By, Change, Noticed, Totals, View};
use super::events::{Ordered, Tick};
use super::sensors::{self, Sensor};

/// Everything a status shows.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "ebb status --json, of ebb run")]
pub struct Status {
    #[schemars(extend("const" = 1))]
    pub schema: u32,
    /// "run", to tell it from the status of other daemons.
    #[schemars(extend("const" = "run"))]
    pub daemon: String,
    pub version: String,
    /// At the last cycle.
    #[schemars(range(min = 0))]
    pub uptime_s: f64,
    /// Time of day of the last cycle, since 1970.
    pub unix_s: f64,
    /// In words; "starting" before the first cycle.
    #[schemars(regex(pattern = "^(starting|observing|acting|paused|degraded: .+|native: .+)$"))]
    pub state: String,
    /// From the start of the run.
    #[schemars(range(min = 0))]
    pub state_since_s: f64,
    pub policy: String,
    /// Tolerated rise of the mean latency, as a share.
    pub plf: f64,
    pub ssd_budget_w: Option<f64>,
    #[serde(default)]
    pub server_budget_w: Option<f64>,
    /// Until when everything is as found, for the trial; from the start of the run; absent
    /// otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_found_until_s: Option<f64>,
    /// Feeds of machine.feeds without input: server_budget_w is what the others allow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost_feeds: Vec<String>,
    /// By how much the mean latency would have risen since the parts were found, as a share,
    /// modelled; null while it acts, for then nobody knows what it would be.
    pub would_lose: Option<f64>,
    /// Where users' latency comes from; with block the tolerance is not promised.
    #[schemars(extend("enum" = ["served", "block+cpu", "block", ""]))]
    pub latency: String,
    /// What `ebb ctl` has ordered.
    pub orders: Vec<Ordered>,
    /// What is asked, given or refused; all else is as it was found.
    pub controls: Vec<Setting>,
    /// Watts, by part.
    pub power: Vec<Power>,
    /// Mean of the cores against the settings found, modelled; null: not known.
    pub saving: Option<Saving>,
    /// What could not be had at the start, and what to do.
    pub missing: Vec<String>,
    /// Signals of parts that are there, which nothing senses.
    pub absent: Vec<String>,
    /// Every signal of parts that are there.
    pub sensors: Vec<Sensor>,
    /// The last of what went wrong and what to do, the newest last.
    pub notices: Vec<Noticed>,
    /// The last 64, the newest last.
    pub changes: Vec<Change>,
    /// Changes since the start.
    pub decided: u64,
    /// Changes that were refused since the start, by control.
    #[serde(default)]
    pub refusals: Vec<Refusal>,
    pub cycles: u64,
    /// How late the last cycle began.
    #[schemars(range(min = 0))]
    pub late_s: f64,
    pub events_lost: u64,
}

/// A control of one part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Setting {
    pub control: String,
    /// The part; absent of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Null: released.
    pub asked: Option<f64>,
    pub given: Option<f64>,
    pub unit: String,
    pub reason: String,
    /// Absent while nothing is set: nobody tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["done", "refused", "changed"]))]
    pub applied: Option<String>,
    /// From the start of the run; absent of what was not changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_s: Option<f64>,
}

/// Changes of a control that were refused.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Refusal {
    pub control: String,
    /// Machine: or another program.
    #[schemars(extend("enum" = ["guard", "machine"]))]
    pub by: String,
    #[schemars(range(min = 1))]
    pub count: u64,
}

/// Power of one part.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Power {
    pub signal: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    pub watts: f64,
    /// "measured" or "modelled".
    #[schemars(extend("enum" = ["measured", "modelled"]))]
    pub source: String,
}

/// The mean saving of the cores, modelled.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Saving {
    pub least_w: f64,
    pub most_w: f64,
    /// Whose cores stand for this machine's.
    pub profile: String,
    /// Only what would be saved.
    pub would: bool,
}

impl Saving {
    /// As a sentence without its end.
    pub fn text(&self) -> String {
        let Self { least_w, most_w, profile, would } = self;
        let verb = if *would { "would save" } else { "saves" };
        let what = match least_w.abs().max(most_w.abs()) < 0.05 {
            true => "nothing so far".to_owned(),
            false => format!("{least_w:.1} to {most_w:.1} W"),
        };
        format!(
            "{verb} {what} of the cores' power against the settings found, in the mean (modelled \
             with the cores of {profile})"
        )
    }
}

impl Status {
    /// Of a run as it is seen.
    pub fn of(view: &View) -> Self {
        let mut status = Self {
            schema: 1,
            daemon: "run".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: 0.0,
            unix_s: 0.0,
            state: "starting".to_owned(),
            state_since_s: view.state_since.seconds(),
            policy: String::new(),
            plf: 0.0,
            ssd_budget_w: None,
            server_budget_w: None,
            as_found_until_s: None,
            lost_feeds: Vec::new(),
            would_lose: None,
            latency: view.latency.to_owned(),
            orders: Vec::new(),
            controls: Vec::new(),
            power: Vec::new(),
            saving: None,
            missing: view.missing.clone(),
            absent: Vec::new(),
            sensors: Vec::new(),
            notices: view.notices.iter().cloned().collect(),
            changes: view.changes.iter().cloned().collect(),
            decided: view.decided,
            refusals: refusals(&view.totals),
            cycles: view.totals.cycles,
            late_s: 0.0,
            events_lost: view.totals.lost,
        };
        if let Some(tick) = view.last() {
            status.add(view, tick);
        }
        status
    }

    fn add(&mut self, view: &View, tick: &Tick) {
        (self.uptime_s, self.state) = (tick.at.seconds(), tick.state.to_string());
        self.unix_s = tick.unix_s;
        self.policy = tick.settings.policy.clone();
        self.plf = tick.settings.plf;
        self.would_lose = tick.loss;
        self.ssd_budget_w = tick.settings.ssd_budget.map(|budget| budget.0);
        self.server_budget_w = tick.settings.server_budget.map(|budget| budget.0);
        self.as_found_until_s = tick.settings.as_found_until.map(|until| until.seconds());
        self.lost_feeds.clone_from(&tick.settings.lost_feeds);
        self.orders.clone_from(&tick.settings.orders);
        self.late_s = tick.late.seconds();
        for control in Control::ALL {
            let parts = 0..tick.in_force.count(*control);
            self.controls.extend(parts.filter_map(|at| setting(view, tick, *control, at)));
        }
        for row in SIGNALS {
            let parts = row.domain.count(&view.topology);
            let known: Vec<_> =
                (0..parts).filter_map(|at| Some((at, (row.read)(&tick.signals, at)?))).collect();
            if parts > 0 && known.is_empty() {
                self.absent.push(row.name.to_owned());
            }
            if row.unit == Unit::Watts {
                self.power
                    .extend(known.iter().map(|(at, watts)| power(view, tick, row, *at, *watts)));
            }
        }
        self.sensors = sensors::all(view, tick);
        self.saving = tick.saving.map(|[least, most]| Saving {
            least_w: least.0,
            most_w: most.0,
            profile: view.profile.clone(),
            would: view.would,
        });
    }
}

fn refusals(totals: &Totals) -> Vec<Refusal> {
    let refusal = |(&(control, by), &count): (&(Control, By), &u64)| Refusal {
        control: control.row().name.to_owned(),
        by: by.name().to_owned(),
        count,
    };
    totals.refused.iter().map(refusal).collect()
}

fn power(view: &View, tick: &Tick, row: &SignalRow, at: usize, watts: f64) -> Power {
    Power {
        signal: row.name.to_owned(),
        of: view.names.of(row.domain, at as u16),
        watts,
        source: tick.signals.sources.of(row.signal, at).origin.name().to_owned(),
    }
}

fn setting(view: &View, tick: &Tick, control: Control, at: usize) -> Option<Setting> {
    let (row, is) = (control.row(), tick.in_force.at(control, at));
    let outcome = tick.applied.of(control, at);
    let concerns = is.asked.is_some() || is.given.is_some() || outcome != Outcome::Done;
    concerns.then(|| Setting {
        control: row.name.to_owned(),
        of: view.names.of(row.domain, at as u16),
        asked: is.asked,
        given: is.given,
        unit: row.unit.symbol().to_owned(),
        reason: is.reason.to_owned(),
        applied: (!view.would).then(|| outcome.name().to_owned()),
        since_s: view.since.get(&(control, at)).map(|since| since.seconds()),
    })
}

/// A time for people.
pub fn ago(seconds: f64) -> String {
    let whole = seconds.max(0.0) as u64;
    match (whole / 86_400, whole / 3600 % 24, whole / 60 % 60, whole % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, ..) => format!("{days} d {hours} h"),
    }
}

/// A status for people: what is in force, why, since when, and what is missing.
pub fn text(status: &Status) -> String {
    let mut out = String::new();
    let Status { policy, state, uptime_s, plf, .. } = status;
    let since = ago(uptime_s - status.state_since_s);
    let _ = writeln!(out, "ebb run: {state} for {since}; policy {}", text::printable(policy));
    let budget = status.ssd_budget_w.map(|budget| format!(", drives' caps up to {budget} W"));
    let server = status.server_budget_w.map(|budget| format!(", the server up to {budget} W"));
    let _ = writeln!(
        out,
        "tolerated loss {:.1} %{}{}; up {}, {} cycles",
        100.0 * plf,
        budget.unwrap_or_default(),
        server.unwrap_or_default(),
        ago(*uptime_s),
        status.cycles
    );
    if let Some(until) = status.as_found_until_s {
        let _ = writeln!(out, "trial: all is as found, for {} more", ago(until - uptime_s));
    }
    if !status.lost_feeds.is_empty() {
        let lost = status.lost_feeds.join(", ");
        let _ = writeln!(out, "no input: feed {}", text::printable(&lost));
    }
    for Ordered { what, ends_s } in &status.orders {
        let end = ends_s.map(|ends| format!(", for {} more", ago(ends - uptime_s)));
        let _ = writeln!(out, "by ebb ctl: {what}{}", end.unwrap_or_default());
    }
    for one in &status.power {
        let of = one.of.as_deref().map(|of| format!(" of {of}")).unwrap_or_default();
        let _ = writeln!(out, "{}{of}: {:.1} W ({})", one.signal, one.watts, one.source);
    }
    let _ = match &status.saving {
        Some(saving) => writeln!(out, "{}", saving.text()),
        None => writeln!(out, "saving not known: cores' load or frequency is not sensed"),
    };
    if status.controls.is_empty() {
        out += "\neverything is as it was found\n";
    } else {
        let _ = writeln!(out, "\n{}", settings(status));
    }
    for text in &status.missing {
        let _ = writeln!(out, "{}", text::printable(text));
    }
    if !status.absent.is_empty() {
        let _ = writeln!(out, "not sensed here: {}; ebb probe says why", status.absent.join(", "));
    }
    out
}

fn settings(status: &Status) -> Table {
    let mut table = Table::new();
    let header = ["control", "of", "asked", "given", "unit", "applied", "for", "why"];
    let value = |value: Option<f64>| value.map_or("released".to_owned(), |value| value.to_string());
    let row = |one: &Setting| {
        let since = one.since_s.map(|since| ago(status.uptime_s - since));
        [
            one.control.clone(),
            one.of.as_deref().map(text::printable).unwrap_or_default(),
            value(one.asked),
            value(one.given),
            one.unit.clone(),
            one.applied.clone().unwrap_or_else(|| "–".to_owned()),
            since.unwrap_or_default(),
            one.reason.clone(),
        ]
    };
    table.load_style(UTF8_HORIZONTAL_ONLY).set_header(header);
    table.add_rows(status.controls.iter().map(row));
    table
}

#[cfg(test)]
crate::schema::written!("run-status-1", Status);
