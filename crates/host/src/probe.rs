//! What this machine can sense and steer, in the terms of the table of signals and controls.

mod budget;
mod cores;
mod drives;
mod idle_wake;
mod jobs;

use ebb_policy::registry::{ENTRIES, Entry};
use ebb_policy::table::SIGNALS;
use ebb_policy::{Control, Signal, Steward, Unit};
use schemars::JsonSchema;
use serde::Serialize;

use crate::act::groups;
use crate::find::chips::Of;
use crate::find::conflicts::{self, Conflict};
use crate::find::cpus::Arch;
use crate::find::drives::Drive;
use crate::find::fans::Fans;
use crate::find::hwmon::inlets;
use crate::find::layout::{self, Stated};
use crate::find::machine::Machine;
use crate::find::meters::Meters;
use crate::nvme::{Admin, Identity};
use crate::sense::crowd::runnable;
use crate::sense::run_queue::{PATH, RunQueues};
use crate::sense::sensors::waited;
use crate::sys::Absent;

/// One signal or control of one part.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Found {
    /// Its name in the table.
    pub name: &'static str,
    /// The part, such as a drive's identity; `None` of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<String>,
    /// Its unit.
    pub unit: &'static str,
    /// The kernel's file, below the root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Its value now; counters since the start of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Why it cannot be used, and what to do; `None` where it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// A policy and what it lacks here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Fit {
    /// The policy.
    pub policy: &'static str,
    /// Signals that it goes by, or all of its controls; none where it can run.
    pub lacks: Vec<&'static str>,
    /// Controls that it would do without.
    pub without: Vec<&'static str>,
    /// Parts of the server that it would leave alone, each with what it lacks there.
    #[serde(skip)]
    pub alone: Vec<String>,
}

/// Version 1. What this machine can sense and steer; `missing` says why something cannot be used.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "ebb probe --json")]
pub struct Report {
    /// Version of the JSON.
    #[schemars(extend("const" = 1))]
    pub schema: u32,
    /// Logical CPUs online.
    pub cpus: usize,
    /// Physical cores that policies have: not those that are isolated or of a cpuset partition.
    pub cores: usize,
    /// Which CPUs are none of theirs, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub apart: Option<String>,
    /// Sockets.
    pub sockets: u16,
    /// Signals, in the order of the table; one that no part has is there once, with the reason.
    pub signals: Vec<Found>,
    /// Controls likewise.
    pub controls: Vec<Found>,
    /// Which policies could run.
    pub policies: Vec<Fit>,
    /// Programs that set the same.
    pub conflicts: Vec<Conflict>,
}

impl Report {
    /// Of `machine`, with what is stated of it.
    #[must_use]
    pub fn new(machine: &Machine, stated: &Stated) -> Self {
        let jobs = &stated.jobs;
        let (fans, cores) = (Fans::found(machine, &stated.fans), layout::cores(machine, stated));
        let signals: Vec<_> = SIGNALS
            .iter()
            .flat_map(|row| {
                List::new(row.name, row.unit).of(|list| match jobs::is_signal(row.signal) {
                    true => jobs::signal(machine, jobs, row.signal, list),
                    false => signal(machine, &fans, stated, row.signal, list),
                })
            })
            .collect();
        let controls: Vec<_> = Control::ALL
            .iter()
            .flat_map(|one| {
                let row = one.row();
                List::new(row.name, row.unit).of(|list| match jobs::is_control(*one) {
                    true => jobs::control(machine, jobs, *one, list),
                    false => control(machine, &fans, stated, *one, list),
                })
            })
            .collect();
        let fit = |entry: &Entry| Fit::new(entry, &signals, &controls);
        Self {
            schema: 1,
            cpus: machine.cpus.cpus.len(),
            cores,
            apart: machine.cpus.apart_remark(|cpu| stated.names(cpu)),
            sockets: machine.cpus.sockets,
            policies: ENTRIES.iter().map(fit).collect(),
            conflicts: conflicts::found(&machine.sys),
            signals,
            controls,
        }
    }
}

/// The families of controls, with the signals without which nobody can steer them.
const FAMILIES: [(Steward, &str, &[Signal]); 4] = [
    (Steward::Cpu, "cores", &[Signal::Completed, Signal::CoresUtilisation]),
    (Steward::Ssd, "drives", &[Signal::DrivePower, Signal::DriveState]),
    (Steward::Cooling, "fans", &[Signal::SocketTemperature, Signal::FanSpeed]),
    (Steward::Server, "the whole server", &[Signal::Power]),
];

impl Fit {
    /// A policy that steers several families can run where one of these can be steered: it does
    /// without the others. One control of a family is enough.
    fn new(entry: &Entry, signals: &[Found], controls: &[Found]) -> Self {
        let has = |found: &[Found], name: &str| {
            found.iter().any(|one| one.name == name && one.missing.is_none())
        };
        let (mut lacks, mut without, mut alone) = (Vec::new(), Vec::new(), Vec::new());
        let mut can = entry.owns.is_empty();
        for (family, name, needs) in FAMILIES {
            let own = entry.owns.iter().map(|control| control.row());
            let own: Vec<_> = own.filter(|row| row.steward == family).map(|row| row.name).collect();
            if own.is_empty() {
                continue;
            }
            let needs = needs.iter().map(|signal| SIGNALS[*signal as usize].name);
            let unknown: Vec<_> = needs.filter(|name| !has(signals, name)).collect();
            let unset: Vec<_> = own.iter().copied().filter(|name| !has(controls, name)).collect();
            let nothing_to_steer = unset.len() == own.len();
            let mut missing = unknown;
            missing.extend(unset.iter().filter(|_| nothing_to_steer));
            can |= missing.is_empty();
            if !missing.is_empty() {
                alone.push(format!("{name} (no {})", missing.join(", no ")));
            }
            lacks.extend(missing);
            without.extend(unset);
        }
        if can {
            lacks.clear();
        }
        Self { policy: entry.name, lacks, without, alone }
    }
}

/// The parts of one row.
struct List {
    name: &'static str,
    unit: &'static str,
    found: Vec<Found>,
}

impl List {
    fn new(name: &'static str, unit: Unit) -> Self {
        Self { name, unit: unit.symbol(), found: Vec::new() }
    }

    /// Fills it in; `missing` says why where no part has it.
    fn of(mut self, fill: impl FnOnce(&mut Self) -> &'static str) -> Vec<Found> {
        let missing = fill(&mut self);
        if self.found.is_empty() {
            self.add(None, None, None, Some(missing.to_owned()));
        }
        self.found
    }

    fn add(
        &mut self,
        of: Option<String>,
        path: Option<String>,
        value: Option<f64>,
        missing: Option<String>,
    ) {
        self.found.push(Found { name: self.name, of, unit: self.unit, path, value, missing });
    }

    /// What a file says.
    fn read(&mut self, of: Option<String>, path: String, value: Result<f64, Absent>) {
        let missing = value.as_ref().err().map(ToString::to_string);
        self.add(of, Some(path), value.ok(), missing);
    }

    /// What is here and cannot be used, and why.
    fn left(&mut self, left: impl IntoIterator<Item = (String, String)>) {
        for (path, why) in left {
            self.add(None, Some(path), None, Some(why));
        }
    }

    /// What a file says, and may be told.
    fn steer(&mut self, machine: &Machine, of: String, path: String, value: Result<f64, Absent>) {
        let denied = !machine.sys.is_writable(&path);
        self.read(Some(of), path, value);
        if let Some(last) = self.found.last_mut()
            && denied
            && last.missing.is_none()
        {
            let remedy = machine.sys.remedy(last.path.as_deref().unwrap_or_default());
            last.missing = Some(format!("not writable; {remedy}"));
        }
    }
}

const NO_FANS: &str = "no chip with pwm files; firmware or a management controller runs the fans";
const NO_PERCENTILES: &str = "the kernel counts no single requests; an `ebb serve` on this host \
                              counts its own: set `serve` in the configuration of ebb run";

const NO_CONTROLLER: &str = "no NVMe drive";

const NO_FREQUENCIES: &str =
    "no frequency domains in sys/devices/system/cpu/cpufreq: a virtual machine, or no driver";

fn drive_name(drive: &Drive) -> String {
    drive.id.clone().unwrap_or_else(|| drive.name.clone())
}

fn signal(
    machine: &Machine,
    fans: &Fans,
    stated: &Stated,
    signal: Signal,
    list: &mut List,
) -> &'static str {
    use Signal as S;
    match signal {
        S::Arrived
        | S::Completed
        | S::Bytes
        | S::LatencyMean
        | S::InFlight
        | S::Reads
        | S::ReadBytes
        | S::ReadLatencyMean
        | S::Writes
        | S::WrittenBytes
        | S::WriteLatencyMean => {
            counted(machine, stated.served.as_deref(), signal, list);
            "no drive with counters in sys/block"
        }
        S::LatencyP50
        | S::LatencyP99
        | S::LatencyP999
        | S::LatencyMax
        | S::ReadLatencyP50
        | S::ReadLatencyP99
        | S::ReadLatencyP999
        | S::WriteLatencyP50
        | S::WriteLatencyP99
        | S::WriteLatencyP999 => {
            let by = stated.served.clone().filter(|_| signal != S::LatencyMax);
            by.into_iter().for_each(|by| list.add(Some(by), None, None, None));
            NO_PERCENTILES
        }
        S::ServerBudget => budget::supplies(machine, list),
        S::BestEffortRequests | S::BestEffortBytes => budget::NO_BEST_EFFORT,
        S::BackgroundPending => "nothing on this host reports pending background work",
        S::Power | S::CpuPower | S::FanPower => power(machine, signal, list),
        S::CpuPressure => pressure(machine, "cpu", list),
        S::IoPressure => pressure(machine, "io", list),
        S::MemoryPressure => pressure(machine, "memory", list),
        S::InletTemperature | S::SocketTemperature | S::FanReportedDuty | S::FanSpeed => {
            heat(machine, fans, signal, list)
        }
        S::CoresActive
        | S::CoresUtilisation
        | S::CoresBusiest
        | S::CoresWakes
        | S::CoresFrequency => cores::signal(machine, stated, signal, list),
        S::DriveState | S::DrivePower | S::SsdPower => {
            controllers(machine, list, |_| None);
            NO_CONTROLLER
        }
        S::DriveTemperature
        | S::DriveUtilisation
        | S::DriveTime
        | S::DriveReadBytes
        | S::DriveWrittenBytes => {
            for drive in &machine.drives {
                drives::signal(machine, drive, signal, list);
            }
            "no drive in sys/block"
        }
        S::DriveStandby => drives::stopped(machine, list),
        S::JobCpu | S::JobBytes | S::JobRunning | S::JobWaiting | S::JobAge => jobs::NONE,
    }
}

/// What the chips say of air, sockets and fans.
fn heat(machine: &Machine, fans: &Fans, signal: Signal, list: &mut List) -> &'static str {
    match signal {
        Signal::InletTemperature => {
            for (chip, input) in inlets(&machine.sys, &machine.chips) {
                let value = chip.air(&machine.sys, input).map(|t| t.0);
                list.read(None, chip.file(input), value);
            }
            "no chip has a temperature labelled inlet, intake or ambient"
        }
        Signal::SocketTemperature => sockets(machine, list),
        Signal::FanReportedDuty => {
            for (number, fan) in fans.fans.iter().enumerate() {
                let chip = &machine.chips[fan.chip];
                let value = chip.duty(&machine.sys, &fan.pwm);
                list.read(Some(format!("fan{number}")), chip.duty_file(&fan.pwm), value);
            }
            NO_FANS
        }
        _ => {
            for (of, file, speed) in fans.speeds(machine) {
                list.read(Some(of), file, speed.map(|speed| speed.0));
            }
            "no chip with a tachometer; firmware or a management controller runs the fans"
        }
    }
}

/// What all drives' counters sum to.
fn counted(machine: &Machine, served: Option<&str>, signal: Signal, list: &mut List) {
    if let Some(by) = served {
        return list.add(Some(by.to_owned()), None, None, None);
    }
    let counters: Vec<_> =
        machine.drives.iter().filter_map(|drive| drive.counters(&machine.sys).ok()).collect();
    if counters.is_empty() {
        return;
    }
    let sum = |of: fn(&crate::find::drives::Counters) -> f64| counters.iter().map(of).sum::<f64>();
    let (reads, writes) = (sum(|c| c.reads as f64), sum(|c| c.writes as f64));
    let (read, written) = (sum(|c| c.read_bytes as f64), sum(|c| c.written_bytes as f64));
    let read_time = sum(|c| c.read_time.seconds());
    let write_time = sum(|c| c.write_time.seconds());
    let value = match signal {
        Signal::Arrived | Signal::Completed => reads + writes,
        Signal::Bytes => read + written,
        Signal::LatencyMean => (read_time + write_time) / (reads + writes).max(1.0),
        Signal::Reads => reads,
        Signal::ReadBytes => read,
        Signal::ReadLatencyMean => read_time / reads.max(1.0),
        Signal::Writes => writes,
        Signal::WrittenBytes => written,
        Signal::WriteLatencyMean => write_time / writes.max(1.0),
        _ => sum(|c| c.in_flight as f64),
    };
    let miscounted = signal == Signal::InFlight && counters.iter().any(|c| c.miscounted);
    let missing = miscounted.then(|| "the kernel has miscounted them (below 0)".to_owned());
    let value = Some(value).filter(|_| !miscounted);
    list.add(None, Some("sys/block/*/stat".to_owned()), value, missing);
    if signal == Signal::LatencyMean {
        let missing = RunQueues::new(&machine.sys).missing();
        list.add(Some("CPUs".to_owned()), Some(PATH.to_owned()), None, missing);
    }
}

fn power(machine: &Machine, signal: Signal, list: &mut List) -> &'static str {
    match signal {
        Signal::Power => {
            meters(machine, machine.wall_meters(), list);
            "no meter of the whole server among the chips (the psys counter of RAPL is none: what \
             it counts is each board's own choice); a management controller may have one"
        }
        Signal::CpuPower => {
            // A counter of energy; its change is the power.
            for zone in machine.packages() {
                let missing = zone.read(&machine.sys).err().map(|absent| absent.to_string());
                list.add(Some(zone.name.clone()), Some(zone.counter.clone()), None, missing);
            }
            list.left(machine.left_zones());
            meters(machine, machine.processor_meters(), list);
            hints(machine).1
        }
        _ => "no meter of the fans",
    }
}

/// What meters say, and why some of them do not count.
fn meters(machine: &Machine, found: Meters, list: &mut List) {
    for path in found.sane().cloned() {
        let value = machine.sys.number::<u64>(&path).map(|micros| micros as f64 / 1e6);
        list.read(None, path, value);
    }
    list.left(found.left);
}

/// The hottest sensor of each socket, and the sensors of processors that say nonsense.
fn sockets(machine: &Machine, list: &mut List) -> &'static str {
    for (socket, inputs) in machine.socket_sensors().iter().enumerate() {
        let read = inputs.iter().map(|(chip, input)| {
            let chip = &machine.chips[*chip];
            (chip.file(input), chip.temperature(&machine.sys, input).map(|read| read.0))
        });
        let heat = |value: &Result<f64, Absent>| value.as_ref().map_or(f64::MIN, |value| *value);
        let hottest = read.max_by(|(_, a), (_, b)| heat(a).total_cmp(&heat(b)));
        let Some((path, value)) = hottest else { continue };
        list.read(Some(format!("socket{socket}")), path, value);
    }
    for chip in machine.chips.iter().filter(|chip| chip.of == Of::Cpu) {
        for input in chip.of_sockets() {
            if let Err(absent @ Absent::Nonsense { .. }) = chip.temperature(&machine.sys, input) {
                let of = chip.device.clone().unwrap_or_else(|| chip.name.clone());
                list.add(Some(of), Some(chip.file(input)), None, Some(absent.to_string()));
            }
        }
    }
    match machine.chips.iter().any(|chip| chip.of == Of::Cpu) {
        true => "fewer chips of processors than sockets: which socket lacks one is not known",
        false => hints(machine).0,
    }
}

/// What to do where a processor's temperature or power is not there, by its architecture.
fn hints(machine: &Machine) -> (&'static str, &'static str) {
    match machine.cpus.arch {
        Arch::X86 => (
            "no chip of a processor; modprobe coretemp (Intel) or k10temp (AMD)",
            "no energy counters of packages in sys/class/powercap; modprobe intel_rapl_msr (AMD: \
             Linux 5.8 or later)",
        ),
        Arch::Arm => (
            "no chip of a processor; on Arm the firmware has to offer one: modprobe xgene_hwmon \
             (Ampere), scmi_hwmon or scpi_hwmon",
            "no energy counters of packages and no meter of a processor; on Arm the firmware has \
             to offer one: modprobe xgene_hwmon (Ampere), acpi_power_meter (Grace)",
        ),
        Arch::Other => (
            "no chip of a processor among those known here",
            "no energy counters of packages in sys/class/powercap and no meter of a processor",
        ),
    }
}

/// Seconds for which some task has waited; their change is the pressure.
fn pressure(machine: &Machine, name: &str, list: &mut List) -> &'static str {
    let path = format!("proc/pressure/{name}");
    let missing = match machine.sys.text(&path) {
        Ok(text) => waited(&text).is_none().then(|| "no line of what some tasks waited".to_owned()),
        Err(Absent::Missing(_)) => return "a kernel without PSI; boot it with psi=1",
        Err(absent) => Some(absent.to_string()),
    };
    list.add(None, Some(path), None, missing);
    ""
}

/// NVMe controllers by what they say of themselves; `missing` says what one lacks.
fn controllers(machine: &Machine, list: &mut List, missing: impl Fn(&Identity) -> Option<String>) {
    for drive in &machine.drives {
        let Some(name) = &drive.controller else { continue };
        let identity = machine.open_nvme(name).and_then(|mut controller| controller.identify());
        let missing = match &identity {
            Ok(identity) => missing(identity),
            Err(absent) => Some(absent.to_string()),
        };
        list.add(Some(drive_name(drive)), Some(format!("dev/{name}")), None, missing);
    }
}

fn control(
    machine: &Machine,
    fans: &Fans,
    stated: &Stated,
    control: Control,
    list: &mut List,
) -> &'static str {
    let sys = &machine.sys;
    match control {
        Control::ActiveCores | Control::CoreLimit => {
            let lacks = groups::lacks_cpuset(sys);
            if lacks.is_none() {
                cores::active(machine, stated, list);
            }
            lacks.unwrap_or(groups::NO_HIERARCHY)
        }
        Control::Frequency | Control::FrequencyCap | Control::FrequencyLimit => {
            for policy in &machine.cpus.policies {
                let path = format!("{}/scaling_max_freq", policy.folder);
                let value = sys.number(&path).map(|khz: u64| khz as f64 * 1e3);
                let of = policy.folder.rsplit('/').next().unwrap_or_default().to_owned();
                match policy.set_by_hand() {
                    None => list.steer(machine, of, path, value),
                    Some(why) => list.add(Some(of), Some(path), value.ok(), Some(why.to_owned())),
                }
            }
            list.left(machine.cpus.left.clone());
            NO_FREQUENCIES
        }
        Control::PowerState => {
            controllers(machine, list, |identity| {
                let caps = identity.caps();
                let operational = caps.iter().filter(|state| state.operational);
                let one = || "it has one operational power state alone".to_owned();
                (operational.count() < 2).then(|| identity.absurd_remark().unwrap_or_else(one))
            });
            NO_CONTROLLER
        }
        Control::FanDuty => {
            let counted = fans.fans.iter().enumerate();
            let counted = counted.map(|(number, fan)| (format!("fan{number}"), fan));
            let apart = fans.apart.iter().map(|fan| (fan.name(machine), fan));
            for (of, fan) in counted.chain(apart) {
                let chip = &machine.chips[fan.chip];
                let path = chip.duty_file(&fan.pwm);
                match fan.left.clone() {
                    None => list.steer(machine, of, path, chip.duty(sys, &fan.pwm)),
                    left => list.add(Some(of), Some(path), chip.duty(sys, &fan.pwm).ok(), left),
                }
            }
            NO_FANS
        }
        Control::Recall => recall(machine, list),
        Control::IdleWake => {
            idle_wake::control(machine, list);
            NO_CONTROLLER
        }
        Control::Background => "nothing says which control groups do background work",
        Control::JobShare | Control::JobSocket | Control::Admit => jobs::NONE,
        Control::PackageLimit => budget::packages(machine, list),
        Control::CpuTime | Control::CpuPeriod | Control::ReadRate | Control::WriteRate => {
            budget::NO_GROUPS
        }
        Control::BestEffortRate => budget::NO_BEST_EFFORT,
    }
}

/// What a burst is told by.
fn recall(machine: &Machine, list: &mut List) -> &'static str {
    let (sys, path) = (&machine.sys, "proc/loadavg".to_owned());
    let read = sys.text(&path).and_then(|text| {
        let count = runnable(&text).map(|count| count as f64);
        count.ok_or_else(|| sys.nonsense(&path, &text, "a load with runnable tasks"))
    });
    if !matches!(read, Err(Absent::Missing(_))) {
        list.read(Some("all".to_owned()), path, read);
    }
    "no /proc/loadavg: nothing says how many tasks wait"
}
