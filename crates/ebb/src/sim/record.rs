//! What is kept of a run while it goes: a row per control period, the decisions.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufWriter, Write};

use ebb_policy::units::Nanos;
use ebb_policy::{Decision, Topology};
use ebb_twin::faults::FaultEvent;
use ebb_twin::hdd::Wear;
use ebb_twin::{Energy, Observer, Sample};

use super::decisions::{fault_line, line};
use super::heat;
use super::spool::Spool;
use crate::interrupt;
use crate::progress::Track;

/// Decisions kept in memory for the report: so many of the first, so many of the last.
const KEPT: usize = 1000;

/// Names of the columns of a row, in order, for a server.
#[derive(Debug, Clone)]
pub struct Columns {
    /// Names, with their units.
    pub names: Vec<String>,
    /// Core groups; four columns each.
    pub groups: Vec<String>,
    /// Columns of the thermal side.
    pub heat: usize,
    /// Drives; two columns each.
    pub drives: usize,
}

/// Columns before those of the core groups.
pub const FIXED: [&str; 18] = [
    "time_s",
    "period_s",
    "total_w",
    "cpu_w",
    "ssd_w",
    "memory_w",
    "nic_w",
    "fans_w",
    "other_w",
    "psu_loss_w",
    "arrived",
    "completed",
    "iops",
    "bytes_per_s",
    "latency_mean_us",
    "latency_max_us",
    "in_flight",
    "background_pending_bytes",
];

impl Columns {
    /// The columns of `topology`.
    pub fn new(topology: &Topology) -> Self {
        let groups = topology.group_names();
        let mut names: Vec<String> = FIXED.map(str::to_owned).to_vec();
        for group in &groups {
            for what in ["active_cores", "utilisation", "busiest", "frequency_hz"] {
                names.push(format!("{group}_{what}"));
            }
        }
        let thermal = heat::columns(topology);
        let heat = thermal.len();
        names.extend(thermal);
        for drive in 0..topology.drives.len() {
            names.push(format!("drive{drive}_state"));
            names.push(format!("drive{drive}_w"));
        }
        Self { names, groups, heat, drives: topology.drives.len() }
    }

    /// The place of a fixed column.
    pub fn fixed(name: &str) -> usize {
        FIXED.iter().position(|column| *column == name).unwrap_or(0)
    }

    /// The place of the first of a drive's two columns.
    pub fn drive(&self, drive: usize) -> usize {
        FIXED.len() + 4 * self.groups.len() + self.heat + 2 * drive
    }
}

/// The decisions of a run.
#[derive(Default)]
pub struct Log {
    /// How many there were.
    pub count: u64,
    /// How many by reason.
    pub reasons: BTreeMap<&'static str, u64>,
    /// The first ones.
    pub first: Vec<Decision>,
    /// The last of the others.
    pub last: VecDeque<Decision>,
    /// Injected faults in the order in which they began.
    pub faults: Vec<FaultEvent>,
    /// All decisions and faults as JSON lines, if asked for.
    pub file: Option<BufWriter<File>>,
    failed: Option<io::Error>,
}

impl Log {
    fn push(&mut self, policy: &str, groups: &[String], decision: &Decision) {
        self.count += 1;
        *self.reasons.entry(decision.reason).or_default() += 1;
        if self.first.len() < KEPT {
            self.first.push(*decision);
        } else {
            if self.last.len() == KEPT {
                self.last.pop_front();
            }
            self.last.push_back(*decision);
        }
        if let (Some(file), None) = (&mut self.file, &self.failed) {
            self.failed = writeln!(file, "{}", line(policy, groups, decision)).err();
        }
    }

    fn push_fault(&mut self, policy: &str, event: &FaultEvent, begins: bool) {
        if begins {
            self.faults.push(*event);
        }
        if let (Some(file), None) = (&mut self.file, &self.failed) {
            self.failed = writeln!(file, "{}", fault_line(policy, event, begins)).err();
        }
    }

    /// The file of all decisions; an error where one could not be written.
    pub fn take_file(&mut self) -> io::Result<Option<File>> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.file.take().map(|file| file.into_inner().map_err(|e| e.into_error())).transpose()
    }
}

/// Watches one run.
pub struct Recorder {
    policy: String,
    track: Track,
    groups: Vec<String>,
    rows: Option<(Spool, Vec<f64>)>,
    log: Log,
    completed: u64,
    /// What hard disks had done by the end of the last period.
    wear: Wear,
}

impl Recorder {
    /// A recorder for one run; keeps rows and all decisions as asked.
    pub fn new(
        policy: &str,
        topology: &Topology,
        track: Track,
        rows: bool,
        decisions: bool,
    ) -> io::Result<Self> {
        let columns = Columns::new(topology);
        let width = columns.names.len();
        let file = if decisions { Some(BufWriter::new(tempfile::tempfile()?)) } else { None };
        Ok(Self {
            policy: policy.to_owned(),
            track,
            groups: columns.groups,
            rows: if rows { Some((Spool::new(width)?, Vec::with_capacity(width))) } else { None },
            log: Log { file, ..Log::default() },
            completed: 0,
            wear: Wear::default(),
        })
    }

    /// What was kept.
    pub fn finish(self) -> (Option<Spool>, Log) {
        self.track.finish();
        (self.rows.map(|(spool, _)| spool), self.log)
    }
}

impl Observer for Recorder {
    fn sample(&mut self, sample: &Sample<'_>) {
        self.completed += sample.signals.io.completed.unwrap_or(0);
        interrupt::leave_if_asked();
        self.track.reached(sample.signals.now, self.completed);
        if let Some((spool, row)) = &mut self.rows {
            row.clear();
            fill(row, sample, &sample.wear.since(&self.wear));
            self.wear = sample.wear;
            spool.push(row);
        }
    }

    fn decision(&mut self, decision: &Decision) {
        self.log.push(&self.policy, &self.groups, decision);
    }

    fn fault(&mut self, event: &FaultEvent, begins: bool) {
        self.log.push_fault(&self.policy, event, begins);
    }
}

/// One row, in the order of [`Columns`]; `wear` is this period's.
fn fill(row: &mut Vec<f64>, sample: &Sample<'_>, wear: &Wear) {
    let Sample { signals, energy, length, .. } = sample;
    let some = |value: Option<u64>| value.map_or(f64::NAN, |value| value as f64);
    let micros = |value: Option<Nanos>| value.map_or(f64::NAN, Nanos::micros);
    let seconds = length.seconds();
    let io = &signals.io;
    row.extend([signals.now.seconds(), seconds, watts(energy, seconds)]);
    row.extend(energy.components().map(|(_, joules)| joules.0 / seconds));
    row.extend([some(io.arrived), some(io.completed)]);
    row.extend([some(io.completed) / seconds, some(io.bytes) / seconds]);
    row.extend([micros(io.mean_latency), micros(io.max_latency), some(io.in_flight)]);
    row.push(some(signals.background_pending));
    for group in &signals.groups {
        row.push(f64::from(group.active));
        row.push(group.utilisation.unwrap_or(f64::NAN));
        row.push(group.busiest.unwrap_or(f64::NAN));
        row.push(group.frequency.map_or(f64::NAN, |frequency| frequency.0));
    }
    heat::fill(row, sample, wear);
    for drive in &signals.drives {
        row.push(drive.state.map_or(f64::NAN, f64::from));
        row.push(drive.power.map_or(f64::NAN, |power| power.0));
    }
}

fn watts(energy: &Energy, seconds: f64) -> f64 {
    energy.total().0 / seconds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;

    #[test]
    fn every_column_has_one_name_and_one_place() {
        for name in ["dorado-6000", "asg-1115s", "thermal-1u"] {
            let topology = Server::load(name).unwrap().topology;
            let columns = Columns::new(&topology);
            let mut names = columns.names.clone();
            names.sort();
            names.dedup();
            assert_eq!(names.len(), columns.names.len());
            let last = columns.drive(topology.drives.len() - 1);
            assert!(columns.names[last].ends_with("_state"));
            assert_eq!(last + 2, columns.names.len());
            assert_eq!(columns.names[Columns::fixed("ssd_w")], "ssd_w");
        }
    }
}
