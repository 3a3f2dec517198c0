//! The table of signals. A signal is one row of [`signals!`]: what it is called, what it is of, how
//! it is read and, where it may be old, until when it is worth something and how it is made absent.

use super::row::Domain;

/// Hands the rows of all signals to a macro.
macro_rules! signals {
    ($use:ident) => {
        $use! {
            Arrived arrived Count Server None "Users' requests that arrived in the period."
                |s, _| Some(s.io.arrived? as f64);
            Completed completed Count Server None "Users' requests that completed in the period."
                |s, _| Some(s.io.completed? as f64);
            Bytes bytes Bytes Server None "Read and written by completed requests."
                |s, _| Some(s.io.bytes? as f64);
            LatencyMean latency_mean Seconds Server None "Mean latency of completed requests."
                |s, _| Some(s.io.mean_latency?.seconds());
            LatencyP50 latency_p50 Seconds Server None "Median latency of completed requests."
                |s, _| Some(s.io.percentiles?.p50.seconds());
            LatencyP99 latency_p99 Seconds Server None "99th percentile of latency."
                |s, _| Some(s.io.percentiles?.p99.seconds());
            LatencyP999 latency_p999 Seconds Server None "99.9th percentile of latency."
                |s, _| Some(s.io.percentiles?.p999.seconds());
            LatencyMax latency_max Seconds Server None "Largest latency of completed requests."
                |s, _| Some(s.io.max_latency?.seconds());
            Reads reads Count Server None "Reads that completed in the period."
                |s, _| Some(s.io.reads.completed? as f64);
            ReadBytes read_bytes Bytes Server None "Read by completed requests."
                |s, _| Some(s.io.reads.bytes? as f64);
            ReadLatencyMean read_latency_mean Seconds Server None "Mean latency of reads."
                |s, _| Some(s.io.reads.mean_latency?.seconds());
            ReadLatencyP50 read_latency_p50 Seconds Server None "Median latency of reads."
                |s, _| Some(s.io.reads.percentiles?.p50.seconds());
            ReadLatencyP99 read_latency_p99 Seconds Server None
                "99th percentile of the latency of reads."
                |s, _| Some(s.io.reads.percentiles?.p99.seconds());
            ReadLatencyP999 read_latency_p999 Seconds Server None "The same, 99.9th."
                |s, _| Some(s.io.reads.percentiles?.p999.seconds());
            Writes writes Count Server None "Writes that completed in the period."
                |s, _| Some(s.io.writes.completed? as f64);
            WrittenBytes written_bytes Bytes Server None "Written by completed requests."
                |s, _| Some(s.io.writes.bytes? as f64);
            WriteLatencyMean write_latency_mean Seconds Server None "Mean latency of writes."
                |s, _| Some(s.io.writes.mean_latency?.seconds());
            WriteLatencyP50 write_latency_p50 Seconds Server None "Median latency of writes."
                |s, _| Some(s.io.writes.percentiles?.p50.seconds());
            WriteLatencyP99 write_latency_p99 Seconds Server None
                "99th percentile of the latency of writes."
                |s, _| Some(s.io.writes.percentiles?.p99.seconds());
            WriteLatencyP999 write_latency_p999 Seconds Server None "The same, 99.9th."
                |s, _| Some(s.io.writes.percentiles?.p999.seconds());
            InFlight in_flight Count Server None
                "Users' requests in the system at the end of the period."
                |s, _| Some(s.io.in_flight? as f64);
            BestEffortRequests best_effort_requests Count Server None
                "Completed requests for which nobody waits."
                |s, _| Some(s.best_effort.requests? as f64);
            BestEffortBytes best_effort_bytes Bytes Server None "Bytes of those."
                |s, _| Some(s.best_effort.bytes? as f64);
            BackgroundPending background_pending Bytes Server None
                "Background work that waits to be done."
                |s, _| Some(s.background_pending? as f64);
            Power power Watts Server None "Of the whole server at the wall."
                |s, _| Some(s.power.total?.0), until POWER |s, _at| s.power.total;
            CpuPower cpu_power Watts Server None "Of the processor packages."
                |s, _| Some(s.power.cpu?.0), until POWER |s, _at| s.power.cpu;
            SsdPower ssd_power Watts Server None "Of all drives."
                |s, _| Some(s.power.ssd?.0), until POWER |s, _at| s.power.ssd;
            FanPower fan_power Watts Server None "Of all fans."
                |s, _| Some(s.power.fans?.0), until POWER |s, _at| s.power.fans;
            ServerBudget server_budget Watts Server None
                "Most that the whole server may draw, as the operator states it."
                |s, _| Some(s.server_budget?.0);
            CpuPressure cpu_pressure Share Server None
                "Share of the period in which a task waited for a CPU."
                |s, _| s.pressure.cpu;
            IoPressure io_pressure Share Server None
                "Share of the period in which a task waited for I/O."
                |s, _| s.pressure.io;
            MemoryPressure memory_pressure Share Server None
                "Share of the period in which a task waited for memory."
                |s, _| s.pressure.memory;
            InletTemperature inlet_temperature Celsius Server None "Of the air at the inlet."
                |s, _| Some(s.cooling.inlet?.temperature.0);
            CoresActive cores_active Count CoreGroup Sum "Cores that take new work."
                |s, at| Some(f64::from(s.groups.get(at)?.active?));
            CoresUtilisation cores_utilisation Share CoreGroup Mean
                "Share of the time spent on useful work, not polling."
                |s, at| s.groups.get(at)?.utilisation;
            CoresBusiest cores_busiest Share CoreGroup Max "The same of the busiest core."
                |s, at| s.groups.get(at)?.busiest;
            CoresWakes cores_wakes PerSecond CoreGroup Mean
                "Times that an active core left an idle state."
                |s, at| s.groups.get(at)?.wakes;
            CoresFrequency cores_frequency Hertz CoreGroup Mean
                "Frequency at the end of the period."
                |s, at| Some(s.groups.get(at)?.frequency?.0);
            SocketTemperature socket_temperature Celsius Socket Max "Hottest sensor of the socket."
                |s, at| Some(s.cooling.sockets.get(at)?.as_ref()?.temperature.0);
            DrivePower drive_power Watts Drive Sum "Mean power."
                |s, at| Some(s.drives.get(at)?.power?.0),
                until DRIVE_POWER |s, at| s.drives[at].power;
            DriveState drive_state Index Drive None "NVMe power state, as the drive reports it."
                |s, at| Some(f64::from(s.drives.get(at)?.state?)),
                until DRIVE_STATE |s, at| s.drives[at].state;
            DriveTemperature drive_temperature Celsius Drive Max "Composite temperature."
                |s, at| Some(s.drives.get(at)?.temperature?.0),
                until DRIVE_TEMPERATURE |s, at| s.drives[at].temperature;
            DriveUtilisation drive_utilisation Share Drive Mean
                "Share of the period in which it had a command to serve."
                |s, at| s.drives.get(at)?.utilisation;
            DriveTime drive_time Seconds Drive Sum
                "Time that all of its commands took in the period, added up."
                |s, at| Some(s.drives.get(at)?.time?.seconds());
            DriveReadBytes drive_read_bytes Bytes Drive Sum "Read from it, for whatever purpose."
                |s, at| Some(s.drives.get(at)?.read_bytes? as f64);
            DriveWrittenBytes drive_written_bytes Bytes Drive Sum
                "Written to it, for whatever purpose."
                |s, at| Some(s.drives.get(at)?.written_bytes? as f64);
            DriveStandby drive_standby Flag Drive Sum
                "Whether the operating system has stopped the hard disk."
                |s, at| Some(f64::from(u8::from(s.drives.get(at)?.standby?)));
            FanReportedDuty fan_reported_duty Share Fan Mean
                "PWM duty as the fan's controller reports it."
                |s, at| s.cooling.fans.get(at)?.duty, until FAN |s, at| s.cooling.fans[at].duty;
            FanSpeed fan_speed Rpm Fan Mean "By the tachometer."
                |s, at| Some(s.cooling.fans.get(at)?.speed?.0),
                until FAN |s, at| s.cooling.fans[at].speed;
            JobCpu job_cpu Share Job Sum "Share of the period for which the job kept a core busy."
                |s, at| Some(job(s, at)?.cpu);
            JobBytes job_bytes Bytes Job Sum "Read from and written to drives by the job."
                |s, at| Some(job(s, at)?.disk_bytes as f64);
            JobRunning job_running Flag Job Sum "Whether the job is admitted."
                |s, at| Some(f64::from(u8::from(!job(s, at)?.waiting)));
            JobWaiting job_waiting Flag Job Sum "Whether the job is not admitted yet."
                |s, at| Some(f64::from(u8::from(job(s, at)?.waiting)));
            JobAge job_age Seconds Job Max "Time since the job arrived."
                |s, at| Some(job(s, at)?.age.seconds());
        }
    };
}
pub(super) use signals;

macro_rules! kinds {
    ($($kind:ident $name:ident $unit:ident $domain:ident $aggregation:ident $text:literal
       |$signals:pat_param, $at:pat_param| $read:expr
       $(, until $limit:ident |$old:ident, $part:ident| $value:expr)?;)*) => {
        /// A signal, whatever part it is of.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Signal {
            $(#[doc = $text] $kind,)*
        }

        impl Signal {
            /// Every signal, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// What it is there once for.
            #[must_use]
            pub const fn domain(self) -> Domain {
                match self {
                    $(Self::$kind => Domain::$domain,)*
                }
            }
        }
    };
}
signals!(kinds);
