//! The rows of signals, how each is read, and the page `docs/signals-and-controls.md` that is made
//! from both tables; `tests/table.rs` compares it.

use super::control::{Control, ControlRow};
use super::live::{ACTS, Act, SENSES, Sense};
use super::row::{Aggregation, Domain, Unit};
use super::signal::{Signal, signals};
use super::signals::{JobSignals, Signals};
use super::units::Nanos;

/// What the table says of a signal.
#[derive(Debug, Clone, Copy)]
pub struct SignalRow {
    /// Of which signal.
    pub signal: Signal,
    /// Name.
    pub name: &'static str,
    /// Unit.
    pub unit: Unit,
    /// What it is there once for.
    pub domain: Domain,
    /// How the values of all parts become one.
    pub aggregation: Aggregation,
    /// One line of description.
    pub text: &'static str,
    /// Its value of a part; `None` where it was not sensed.
    pub read: fn(&Signals, usize) -> Option<f64>,
    /// When it is too old; `None` of what is counted over the period, or carries the time of its
    /// reading.
    pub worth: Option<Worth>,
}

/// For how long a value says something of the present.
#[derive(Debug, Clone, Copy)]
pub struct Worth {
    /// The highest age.
    pub until: Nanos,
    /// Makes it absent.
    pub(super) take_out: fn(&mut Signals, usize),
}

fn job(signals: &Signals, slot: usize) -> Option<&JobSignals> {
    signals.jobs.get(slot).filter(|job| job.present)
}

/// Sensors of power answer several times a second, management controllers once in some seconds.
const POWER: Nanos = Nanos::from_secs(5);
/// A drive's share of a budget is moved by its last `m_interval`s (PACMAN §VI-A).
const DRIVE_POWER: Nanos = Nanos::from_secs(1);
/// A drive changes its state by itself only in minutes (APST), and what is written is read back.
const DRIVE_STATE: Nanos = Nanos::from_secs(60);
/// Drives warm up in minutes, and asking one too often keeps it awake.
const DRIVE_TEMPERATURE: Nanos = Nanos::from_secs(120);
/// Fans answer within seconds.
const FAN: Nanos = Nanos::from_secs(5);

macro_rules! rows {
    ($($kind:ident $name:ident $unit:ident $domain:ident $aggregation:ident $text:literal
       |$signals:pat_param, $at:pat_param| $read:expr
       $(, until $limit:ident |$old:ident, $part:ident| $value:expr)?;)*) => {
        /// The rows of all signals.
        pub const SIGNALS: &[SignalRow] = &[$(SignalRow {
            signal: Signal::$kind,
            name: stringify!($name),
            unit: Unit::$unit,
            domain: Domain::$domain,
            aggregation: Aggregation::$aggregation,
            text: $text,
            read: |$signals: &Signals, $at: usize| $read,
            worth: rows!(@worth $($limit |$old, $part| $value)?),
        }),*];
    };
    (@worth) => { None };
    (@worth $limit:ident |$old:ident, $part:ident| $value:expr) => {
        Some(Worth {
            until: $limit,
            take_out: |$old: &mut Signals, $part: usize| $value = None,
        })
    };
}
signals!(rows);

impl Signals {
    /// Takes out what is older than its row allows, so that no policy takes an old value for a new
    /// one.
    pub(crate) fn expire(&mut self) {
        for row in SIGNALS {
            let Some(worth) = row.worth else { continue };
            for at in 0..self.sources.parts(row.signal) {
                if self.sources.of(row.signal, at).age > worth.until {
                    (worth.take_out)(self, at);
                }
            }
        }
    }
}

/// The page `docs/signals-and-controls.md`.
#[must_use]
pub fn page() -> String {
    let mut page = String::from(
        "# Signals and controls\n\n\
         This page is made from the tables in `crates/policy/src/contract` (`control.rs`, \
         `table.rs`); a test\ncompares it. After a change of a table run `EBB_WRITE_DOCS=1 cargo \
         test -p ebb-policy --test all table`.\n\n\
         A signal that nobody senses is absent, never zero. *All* says how the values of all parts \
         become one\nfor the server. Every value carries its age and whether it was measured or \
         modelled; one that is older than *until*\nis taken out before a policy sees it. Without \
         *until* it is counted over the period, or carries the time of its reading.\n\n\
         ## Signals\n\n\
         | signal | of each | unit | all | until | what it is |\n|---|---|---|---|---|---|\n",
    );
    for row in SIGNALS {
        let SignalRow { name, unit, domain, aggregation, text, .. } = *row;
        let (domain, unit, all) = (domain.title(), unit.symbol(), aggregation.title());
        let until = row.worth.map_or(String::new(), |worth| worth.until.to_string());
        page.push_str(&format!("| `{name}` | {domain} | {unit} | {all} | {until} | {text} |\n"));
    }
    page.push_str(
        "\n## Controls\n\n\
         A control of which nothing is asked is *released*: left to the operating system or the \
         firmware, as it was\nfound. Where the policy and the operator ask for the same control, \
         the table says which value wins, or\nthat only one of the two may set it; two policies \
         never share a control.\n\n\
         | control | of each | unit | all | policies | two owners | released | what it is |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for control in Control::ALL {
        let row = control.row();
        let ControlRow { name, released, text, .. } = row;
        let (domain, unit, all) = (row.domain.title(), row.unit.symbol(), row.aggregation.title());
        let (who, combine) = (row.steward.title(), row.combine.title());
        page.push_str(&format!(
            "| `{name}` | {domain} | {unit} | {all} | {who} | {combine} | {released} | {text} |\n"
        ));
    }
    live(&mut page);
    page
}

/// Where all of that is on a server.
fn live(page: &mut String) {
    page.push_str(
        "\n## On a server\n\n\
         Where signals come from on a server, how often, and what the twin plays of that with \
         [`ebb sim --as-host`](models/server.md#as-on-a-server).\nHost and twin take their paces \
         from this table (`live.rs`); tests hold both to it.\n\n\
         | signals | from | every | as-host |\n|---|---|---|---|\n",
    );
    for Sense { signals, from, pace, played } in SENSES {
        let name = |signal: &Signal| format!("`{}`", SIGNALS[*signal as usize].name);
        let names: Vec<_> = signals.iter().map(name).collect();
        let pace = match (from, *pace) {
            (None, _) => String::new(),
            (_, Nanos::ZERO) => "cycle".to_owned(),
            (_, pace) => pace.to_string(),
        };
        let (names, from) = (names.join(", "), from.unwrap_or("nowhere"));
        page.push_str(&format!("| {names} | {from} | {pace} | {played} |\n"));
    }
    page.push_str("\n| control | set by | as-host |\n|---|---|---|\n");
    for Act { control, by, played } in ACTS {
        let (name, by) = (control.row().name, by.unwrap_or("what the operator names"));
        page.push_str(&format!("| `{name}` | {by} | {played} |\n"));
    }
}
