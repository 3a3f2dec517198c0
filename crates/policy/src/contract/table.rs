//! The table's half of signals, and the page `docs/signals-and-controls.md` that is made from both;
//! `tests/table.rs` compares it.

use super::control::{Control, ControlRow};
use super::row::{Aggregation, Domain, Unit};
use super::signals::{JobSignals, Signals};

/// What the table says of a signal.
#[derive(Debug, Clone, Copy)]
pub struct SignalRow {
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
}

fn job(signals: &Signals, slot: usize) -> Option<&JobSignals> {
    signals.jobs.get(slot).filter(|job| job.present)
}

macro_rules! signals {
    ($($name:ident $unit:ident $domain:ident $aggregation:ident $text:literal
       |$signals:pat_param, $at:pat_param| $read:expr;)*) => {
        /// Every signal.
        pub const SIGNALS: &[SignalRow] = &[$(SignalRow {
            name: stringify!($name),
            unit: Unit::$unit,
            domain: Domain::$domain,
            aggregation: Aggregation::$aggregation,
            text: $text,
            read: |$signals: &Signals, $at: usize| $read,
        }),*];
    };
}

signals! {
    arrived Count Server None "Users' requests that arrived in the period."
        |s, _| Some(s.io.arrived? as f64);
    completed Count Server None "Users' requests that completed in the period."
        |s, _| Some(s.io.completed? as f64);
    bytes Bytes Server None "Read and written by completed requests."
        |s, _| Some(s.io.bytes? as f64);
    latency_mean Seconds Server None "Mean latency of completed requests."
        |s, _| Some(s.io.mean_latency?.seconds());
    latency_max Seconds Server None "Largest latency of completed requests."
        |s, _| Some(s.io.max_latency?.seconds());
    in_flight Count Server None "Users' requests in the system at the end of the period."
        |s, _| Some(s.io.in_flight? as f64);
    background_pending Bytes Server None "Background work that waits to be done."
        |s, _| Some(s.background_pending? as f64);
    power Watts Server None "Of the whole server at the wall."
        |s, _| Some(s.power.total?.0);
    cpu_power Watts Server None "Of the processor packages."
        |s, _| Some(s.power.cpu?.0);
    ssd_power Watts Server None "Of all drives."
        |s, _| Some(s.power.ssd?.0);
    fan_power Watts Server None "Of all fans."
        |s, _| Some(s.power.fans?.0);
    inlet_temperature Celsius Server None "Of the air at the inlet."
        |s, _| Some(s.cooling.inlet?.temperature.0);
    cores_active Count CoreGroup Sum "Cores that take new work."
        |s, at| Some(f64::from(s.groups.get(at)?.active));
    cores_utilisation Share CoreGroup Mean "Share of the time spent on useful work, not polling."
        |s, at| s.groups.get(at)?.utilisation;
    cores_busiest Share CoreGroup Max "The same of the busiest core."
        |s, at| s.groups.get(at)?.busiest;
    cores_frequency Hertz CoreGroup Mean "Frequency at the end of the period."
        |s, at| Some(s.groups.get(at)?.frequency?.0);
    socket_temperature Celsius Socket Max "Hottest sensor of the socket."
        |s, at| Some(s.cooling.sockets.get(at)?.as_ref()?.temperature.0);
    drive_power Watts Drive Sum "Mean power."
        |s, at| Some(s.drives.get(at)?.power?.0);
    drive_state Index Drive None "NVMe power state, as the drive reports it."
        |s, at| Some(f64::from(s.drives.get(at)?.state?));
    drive_temperature Celsius Drive Max "Composite temperature."
        |s, at| Some(s.drives.get(at)?.temperature?.0);
    drive_utilisation Share Drive Mean "Share of the period in which it had a command to serve."
        |s, at| s.drives.get(at)?.utilisation;
    fan_reported_duty Share Fan Mean "PWM duty as the fan's controller reports it."
        |s, at| s.cooling.fans.get(at)?.duty;
    fan_speed Rpm Fan Mean "By the tachometer."
        |s, at| Some(s.cooling.fans.get(at)?.speed?.0);
    job_cpu Share Job Sum "Share of the period for which the job kept a core busy."
        |s, at| Some(job(s, at)?.cpu);
    job_bytes Bytes Job Sum "Read from and written to drives by the job."
        |s, at| Some(job(s, at)?.disk_bytes as f64);
    job_running Flag Job Sum "Whether the job is admitted."
        |s, at| Some(f64::from(u8::from(!job(s, at)?.waiting)));
    job_waiting Flag Job Sum "Whether the job is not admitted yet."
        |s, at| Some(f64::from(u8::from(job(s, at)?.waiting)));
    job_age Seconds Job Max "Time since the job arrived."
        |s, at| Some(job(s, at)?.age.seconds());
}

/// The page `docs/signals-and-controls.md`.
#[must_use]
pub fn page() -> String {
    let mut page = String::from(
        "# Signals and controls\n\n\
         This page is made from the tables in `crates/policy/src/contract` (`control.rs`, \
         `table.rs`); a test\ncompares it. After a change of a table run `EBB_WRITE_DOCS=1 cargo \
         test -p ebb-policy --test table`.\n\n\
         A signal that nobody senses is absent, never zero. *All* says how the values of all parts \
         become one\nfor the server.\n\n## Signals\n\n\
         | signal | of each | unit | all | what it is |\n|---|---|---|---|---|\n",
    );
    for row in SIGNALS {
        let SignalRow { name, unit, domain, aggregation, text, .. } = *row;
        let (domain, unit, all) = (domain.title(), unit.symbol(), aggregation.title());
        page.push_str(&format!("| `{name}` | {domain} | {unit} | {all} | {text} |\n"));
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
    page
}
