//! Where a server's signals come from, and what its twin plays of that (`ebb sim --as-host`). Host
//! and twin take their paces from here; tests on either side hold them to the table.

use super::control::Control;
use super::signal::Signal;
use super::topology::Limitable;
use super::units::{Nanos, Watts};

/// Pace of questions to a drive for its power state and for its temperature. Composite temperatures
/// move by half a degree a second at most.
pub const PACE: Nanos = Nanos::from_secs(10);
/// Pace for drives that measure their power, over a second each time.
pub const METER: Nanos = Nanos::from_secs(1);
/// A tick of `/proc/stat`: Linux reports 100 a second on every architecture that servers have
/// (`USER_HZ`).
pub const TICK: Nanos = Nanos::from_millis(10);
/// How far `scaling_cur_freq` is from what was set where it is measured (APERF/MPERF).
pub const FREQUENCY_SPREAD: f64 = 0.002;
/// Step of meters of a server's power (ACPI, IPMI).
pub const METER_STEP: Watts = Watts(1.0);
/// How often it is looked whether parked cores are missed.
pub const WATCH: Nanos = Nanos::from_millis(4);

/// How a server knows some signals.
#[derive(Debug, Clone, Copy)]
pub struct Sense {
    /// Which.
    pub signals: &'static [Signal],
    /// Where they come from; `None` where no server has them.
    pub from: Option<&'static str>,
    /// How often; [`Nanos::ZERO`] is with each cycle.
    pub pace: Nanos,
    /// What the twin plays.
    pub played: &'static str,
}

/// How a control is set on a server.
#[derive(Debug, Clone, Copy)]
pub struct Act {
    /// Which.
    pub control: Control,
    /// By what; `None` where no server has it unless the operator says how.
    pub by: Option<&'static str>,
    /// What the twin plays.
    pub played: &'static str,
}

const fn known(
    signals: &'static [Signal],
    from: &'static str,
    pace: Nanos,
    played: &'static str,
) -> Sense {
    Sense { signals, from: Some(from), pace, played }
}

const fn unknown(signals: &'static [Signal]) -> Sense {
    Sense { signals, from: None, pace: Nanos::ZERO, played: "absent" }
}

const CYCLE: Nanos = Nanos::ZERO;

/// What the twin plays of limits on groups.
const THROTTLED: &str = "released; with `throttle` as it is";

/// Every signal once.
pub const SENSES: &[Sense] = {
    use Signal::*;
    &[
        known(
            &[Arrived, Completed, Bytes, Reads, ReadBytes, Writes, WrittenBytes, InFlight],
            "`/proc/diskstats`: commands of all drives, background work too",
            CYCLE,
            "commands of the drives",
        ),
        known(
            &[LatencyMean, ReadLatencyMean, WriteLatencyMean],
            "the same, from the block layer to the drive's answer, and what tasks lose on CPUs \
             (`/proc/schedstat`, `/proc/stat`); with `serve` of its clients",
            CYCLE,
            "commands at the drives and waiting for cores; with `served` the requests' own",
        ),
        Sense {
            signals: &[
                LatencyP50,
                LatencyP99,
                LatencyP999,
                LatencyMax,
                ReadLatencyP50,
                ReadLatencyP99,
                ReadLatencyP999,
                WriteLatencyP50,
                WriteLatencyP99,
                WriteLatencyP999,
            ],
            from: None,
            pace: CYCLE,
            played: "absent; with `served` the requests' own",
        },
        known(
            &[BestEffortRequests, BestEffortBytes],
            "`io.stat` of the groups of `machine.best_effort`; `ebb serve` of its hosts",
            CYCLE,
            "as it is",
        ),
        unknown(&[BackgroundPending]),
        known(&[Power], "a wall meter", CYCLE, "rounded to 1 W"),
        known(&[CpuPower], "RAPL", CYCLE, "as it is"),
        known(&[SsdPower], "the sum of the drives'", CYCLE, "the same sum"),
        unknown(&[FanPower]),
        known(&[ServerBudget], "the operator", CYCLE, "as it is"),
        known(
            &[CpuPressure, IoPressure, MemoryPressure],
            "`/proc/pressure`",
            CYCLE,
            "absent: the twin has no tasks",
        ),
        known(
            &[InletTemperature, SocketTemperature],
            "hwmon",
            CYCLE,
            "its sensors, with lag and steps",
        ),
        known(&[CoresActive], "what was set", CYCLE, "as it is"),
        known(
            &[CoresUtilisation, CoresBusiest],
            "`/proc/stat`, where a core that polls is busy: those are left out of groups",
            CYCLE,
            "of the busiest core in ticks of 10 ms",
        ),
        known(&[CoresWakes], "`usage` of the idle states of four cores", CYCLE, "as it is"),
        known(
            &[CoresFrequency],
            "`scaling_cur_freq` of four cores",
            CYCLE,
            "up to 0.2 % from what was set",
        ),
        known(
            &[DrivePower],
            "health log of drives that measure it; else modelled by state and the time of commands",
            METER,
            "asked by the same code; `meters` says that they measure it, `idle-power` that they \
             state it at rest",
        ),
        known(
            &[DriveState, DriveTemperature],
            "what was written and read back; Get Features, health log; never at rest",
            PACE,
            "asked by the same code",
        ),
        known(
            &[DriveUtilisation, DriveTime, DriveReadBytes, DriveWrittenBytes],
            "`/proc/diskstats`",
            CYCLE,
            "as it is",
        ),
        known(
            &[DriveStandby],
            "`power/runtime_status`",
            CYCLE,
            "absent: the twin's disks do not stop",
        ),
        known(&[FanReportedDuty, FanSpeed], "hwmon", CYCLE, "as it is"),
        known(
            &[JobCpu, JobBytes, JobRunning, JobWaiting, JobAge],
            "control groups that `[[job]]` names",
            CYCLE,
            "as it is",
        ),
    ]
};

/// What of a server can be limited; `throttles` says that the operator names control groups whose
/// CPU time and rates may be, `best_effort` that nobody waits for some of them.
#[must_use]
pub const fn limitable(throttles: bool, best_effort: bool) -> Limitable {
    Limitable {
        cores: true,
        frequencies: true,
        packages: true,
        time: throttles,
        rates: throttles,
        best_effort,
    }
}

/// Every control once.
pub const ACTS: &[Act] = {
    use Control::*;
    const fn act(control: Control, by: &'static str, played: &'static str) -> Act {
        Act { control, by: Some(by), played }
    }
    &[
        act(ActiveCores, "`cpuset.cpus` of slices, or CPUs offline", "as it is"),
        act(Frequency, "`scaling_max_freq`, a ceiling for the governor found", "as it is"),
        act(
            Recall,
            "a watcher that looks every 4 ms while cores are parked or slowed, more rarely where \
             few are",
            "looked for every 4 ms, by the twin's own queues",
        ),
        act(PowerState, "Feature 02h", "as it is"),
        act(
            IdleWake,
            "`pm_qos_latency_tolerance_us`",
            "as found, as without `machine.raise_limits`",
        ),
        Act { control: Background, by: None, played: "refused" },
        act(FanDuty, "hwmon", "as it is"),
        act(FrequencyCap, "`scaling_max_freq`", "as it is"),
        act(JobShare, "`cpu.max`", "as it is"),
        act(JobSocket, "`cpuset.cpus`", "as it is"),
        act(Admit, "`cgroup.freeze` of noncritical jobs that come", "as it is"),
        act(CoreLimit, "as `active_cores`", "as it is"),
        act(FrequencyLimit, "as `frequency_hz`", "as it is"),
        act(PackageLimit, "the `long_term` limit of RAPL", "as it is"),
        act(CpuTime, "`cpu.max` of the groups of `machine.throttle`", THROTTLED),
        act(CpuPeriod, "the same", THROTTLED),
        act(ReadRate, "`io.max` of these groups", THROTTLED),
        act(WriteRate, "the same", THROTTLED),
        act(
            BestEffortRate,
            "`io.max` of the groups of `machine.best_effort`; `ebb serve` limits its hosts",
            THROTTLED,
        ),
    ]
};
