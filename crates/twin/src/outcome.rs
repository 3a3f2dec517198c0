//! What a run reports: samples while it goes, one outcome at its end.

use hdrhistogram::Histogram;

use ebb_policy::units::{Celsius, Joules, Nanos, Rpm, Watts};
use ebb_policy::{Cycled, QosClass, Signals};

use crate::faults::FaultEvent;
use crate::hdd::Wear;
use crate::windows::Windows;

/// Energy by component; they always add up to [`Energy::total`].
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Energy {
    /// Processor packages.
    pub cpu: Joules,
    /// Drives.
    pub ssd: Joules,
    /// Memory.
    pub memory: Joules,
    /// Network adapters.
    pub nic: Joules,
    /// Fans.
    pub fans: Joules,
    /// The rest of the board.
    pub other: Joules,
    /// Lost in the power supplies.
    pub psu_loss: Joules,
}

impl Energy {
    /// Names and values, in the order of reports.
    #[must_use]
    pub fn components(&self) -> [(&'static str, Joules); 7] {
        [
            ("cpu", self.cpu),
            ("ssd", self.ssd),
            ("memory", self.memory),
            ("nic", self.nic),
            ("fans", self.fans),
            ("other", self.other),
            ("psu_loss", self.psu_loss),
        ]
    }
    /// What the wall supplied.
    #[must_use]
    pub fn total(&self) -> Joules {
        self.components().iter().map(|(_, joules)| *joules).sum()
    }
}

/// One control period, as seen after the controls were set: its cycle, and what only the twin
/// knows.
#[derive(Debug)]
pub struct Sample<'a> {
    /// What the policy saw, what is in force from now on, and what became of it.
    pub cycled: Cycled<'a>,
    /// Energy of this period.
    pub energy: Energy,
    /// Length of this period; the last one of a run may be short.
    pub length: Nanos,
    /// Temperatures, fans and vibration as they are, where the profile models them.
    pub weather: Option<&'a Weather>,
    /// What all hard disks together did since the start of the run; nothing in SSDs.
    pub wear: Wear,
}

/// The thermal side of one control period: the truth behind the sensors. Temperatures and speeds
/// are those of its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Weather {
    /// Dies of the sockets.
    pub sockets: Vec<Celsius>,
    /// Whether the hardware slows each socket down from now on.
    pub throttled: Vec<bool>,
    /// Drives.
    pub drives: Vec<Celsius>,
    /// Fans.
    pub fan_speeds: Vec<Rpm>,
    /// Leakage in this period, part of the processors' energy.
    pub leakage: Joules,
    /// What the fans drew in this period.
    pub fans: Joules,
    /// Relative amplitude of vibration.
    pub vibration: f64,
    /// Air that leaves the server.
    pub exhaust: Celsius,
}

/// Watches a run.
pub trait Observer {
    /// What is sensed, before policy and guard see it; as broken telemetry would, one may falsify
    /// it.
    fn sensed(&mut self, _signals: &mut Signals) {}
    /// Before the first request, what the policy asks for then.
    fn opened(&mut self, _cycled: &Cycled<'_>) {}
    /// After each control period.
    fn sample(&mut self, _sample: &Sample<'_>) {}
    /// Each injected fault, when it begins (`true`) and when it ends.
    fn fault(&mut self, _event: &FaultEvent, _begins: bool) {}
}

/// Watches nothing.
#[derive(Debug, Default)]
pub struct Unobserved;
impl Observer for Unobserved {}

/// What a part of the load came to.
#[derive(Debug, Clone)]
pub struct PartTotal {
    /// Its requests completed.
    pub requests: u64,
    /// Bytes that they read and wrote.
    pub bytes: u64,
    /// Latency from when a client meant to send a request to its answer, in nanoseconds; of those
    /// that came in the time counted.
    pub latency: Histogram<u64>,
    /// Sum of latencies, for an exact mean.
    pub latency_sum: u128,
}

impl PartTotal {
    /// Nothing yet; its histogram is like another one.
    pub(crate) fn new(like: &Histogram<u64>) -> Self {
        Self { requests: 0, bytes: 0, latency: Histogram::new_from(like), latency_sum: 0 }
    }

    /// Exact mean latency in nanoseconds; 0 without requests.
    #[must_use]
    pub fn mean_latency(&self) -> f64 {
        mean(self.latency_sum, &self.latency)
    }
}

/// Mean of what `histogram` holds, whose sum is known exactly; 0 of nothing.
fn mean(sum: u128, histogram: &Histogram<u64>) -> f64 {
    if histogram.is_empty() { 0.0 } else { sum as f64 / histogram.len() as f64 }
}

/// What a part of a run came to, counted by itself.
#[derive(Debug, Clone)]
pub struct Spell {
    /// Energy by component.
    pub energy: Energy,
    /// Core time by what cores did.
    pub cores: CoreTime,
    /// Requests that arrived in it.
    pub requests: u64,
    /// Of these, reads.
    pub reads: u64,
    /// Bytes that they read and wrote.
    pub bytes: u64,
    /// Sum of their latencies, ns.
    pub latency_sum: u64,
    /// Their latencies, ns; grows with the longest.
    pub latency: Histogram<u32>,
}

/// What a run came to.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Requests completed in the time counted, whenever they came.
    pub requests: u64,
    /// Of these, reads.
    pub reads: u64,
    /// Bytes read and written by users.
    pub bytes: u64,
    /// Time simulated, from the start (after warm-up) to the last completion or the end asked for.
    pub span: Nanos,
    /// When the run ended, since its start: warm-up included, as in the times of jobs.
    pub end: Nanos,
    /// When the last request came, or the end asked for: until [`Outcome::end`] only what waited
    /// then was served.
    pub asked: Nanos,
    /// Energy by component.
    pub energy: Energy,
    /// Largest mean power of any one control period.
    pub peak: Watts,
    /// Latency from when a client meant to send a request to its answer, in nanoseconds; of those
    /// that came in the time counted.
    pub latency: Histogram<u64>,
    /// Sum of latencies, for an exact mean.
    pub latency_sum: u128,
    /// The same window by window.
    pub windows: Windows,
    /// Those asked for, in the order of time.
    pub spells: Vec<Spell>,
    /// The parts of the load, in its order, where it has several.
    pub parts: Vec<PartTotal>,
    /// Time during which the drives' measured power was over the SSD budget.
    pub over_budget: Nanos,
    /// Core time by what cores did.
    pub cores: CoreTime,
    /// Drive by drive.
    pub drives: Vec<DriveTotal>,
    /// Background bytes done.
    pub background_done: u64,
    /// Background bytes left over.
    pub background_pending: u64,
    /// Largest sum of the drives' power caps at any instant; a state change under way counts
    /// with the larger of its two caps.
    pub most_capped: Watts,
    /// Temperatures, fans, throttling; `None` where the profile does not model them.
    pub thermal: Option<ThermalTotals>,
    /// Jobs, in the order of the workload.
    pub jobs: Vec<JobTotal>,
    /// How the server switched itself off before the end, if it did; all else is up to then.
    pub trip: Option<Trip>,
}

/// A die got so hot that the server switched itself off.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error(
    "thermal trip: socket {socket} reached {temperature:.1} at {seconds:.1} s and the server \
     switched itself off; it needs more airflow (fans, a cooler inlet, a lower altitude) or less \
     load",
    seconds = .at.seconds()
)]
pub struct Trip {
    /// Which socket.
    pub socket: u16,
    /// When.
    pub at: Nanos,
    /// Of its die.
    pub temperature: Celsius,
}

/// What the thermal side of a run came to.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ThermalTotals {
    /// Hottest die at the end of any period.
    pub hottest_socket: Celsius,
    /// Hottest drive at the end of any period.
    pub hottest_drive: Celsius,
    /// Leakage, part of [`Energy::cpu`].
    pub leakage: Joules,
    /// Socket time slowed down by the hardware's emergency throttling, all sockets together.
    pub socket_throttled: Nanos,
    /// Drive time slowed down by the drives themselves, all drives together.
    pub drive_throttled: Nanos,
    /// Time that the sums below are over.
    pub span: Nanos,
    /// Hottest die of each period, °C s.
    socket_sum: f64,
    /// Mean duty of the fans, s.
    duty_sum: f64,
    /// Relative amplitude, s.
    vibration_sum: f64,
}

impl ThermalTotals {
    /// Adds a period.
    pub(crate) fn add(&mut self, weather: &Weather, duty: f64, length: Nanos) {
        let hottest = |all: &[Celsius]| all.iter().copied().fold(Celsius(0.0), Celsius::max);
        let seconds = length.seconds();
        let socket = hottest(&weather.sockets);
        self.hottest_socket = self.hottest_socket.max(socket);
        self.hottest_drive = self.hottest_drive.max(hottest(&weather.drives));
        self.leakage += weather.leakage;
        self.span += length;
        self.socket_sum += socket.0 * seconds;
        self.duty_sum += duty * seconds;
        self.vibration_sum += weather.vibration * seconds;
    }
    fn mean(&self, sum: f64) -> f64 {
        if self.span > Nanos::ZERO { sum / self.span.seconds() } else { 0.0 }
    }
    /// Hottest die, mean over time.
    #[must_use]
    pub fn mean_socket(&self) -> Celsius {
        Celsius(self.mean(self.socket_sum))
    }
    /// Duty of the fans, mean over fans and time.
    #[must_use]
    pub fn mean_duty(&self) -> f64 {
        self.mean(self.duty_sum)
    }
    /// Relative amplitude of vibration, mean over time.
    #[must_use]
    pub fn mean_vibration(&self) -> f64 {
        self.mean(self.vibration_sum)
    }
}

/// What one job came to.
#[derive(Debug, Clone, PartialEq)]
pub struct JobTotal {
    /// Its name.
    pub name: String,
    /// How much it matters.
    pub class: QosClass,
    /// When it arrived, since the start of the run.
    pub arrived: Nanos,
    /// When it was admitted; `None` if never.
    pub started: Option<Nanos>,
    /// When it was done; `None` if the run ended before.
    pub ended: Option<Nanos>,
    /// Time for which it kept a core busy.
    pub cpu: Nanos,
    /// Bytes read from and written to drives.
    pub disk_bytes: u64,
    /// Time for which it did nothing but wait for drives: the study's I/O wait.
    pub disk_wait: Nanos,
    /// Time lost to shares below 1 and to frequencies below the highest.
    pub throttled: Nanos,
    /// Time from arrival to end that was promised.
    pub objective: Option<Nanos>,
    /// What the whole server drew by the end of it, of what the run counts; `None` if the run
    /// ended before.
    pub energy: Option<Joules>,
}

impl JobTotal {
    /// From arrival to end.
    #[must_use]
    pub fn delay(&self) -> Option<Nanos> {
        self.ended.map(|ended| ended - self.arrived)
    }

    /// Whether the promise was kept by `end`, [`Outcome::end`]; `None` without one, or when the run
    /// ended too early to tell.
    #[must_use]
    pub fn met(&self, end: Nanos) -> Option<bool> {
        let objective = self.objective?;
        match self.delay() {
            Some(delay) => Some(delay <= objective),
            None => (end > self.arrived + objective).then_some(false),
        }
    }
}

impl Energy {
    /// Adds another period's energy.
    pub(crate) fn add(&mut self, other: &Self) {
        self.cpu += other.cpu;
        self.ssd += other.ssd;
        self.memory += other.memory;
        self.nic += other.nic;
        self.fans += other.fans;
        self.other += other.other;
        self.psu_loss += other.psu_loss;
    }
}

/// What one drive came to. Users' requests are counted where each device is one drive.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DriveTotal {
    /// Users' requests completed.
    pub requests: u64,
    /// Users' bytes read and written.
    pub bytes: u64,
    /// Energy.
    pub energy: Joules,
    /// What wore its mechanics; nothing in an SSD.
    pub wear: Wear,
}

/// Core-seconds by state, all cores together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoreTime {
    /// Working.
    pub busy: Nanos,
    /// Polling without work.
    pub polling: Nanos,
    /// In an idle state.
    pub idle: Nanos,
    /// Parked.
    pub parked: Nanos,
}

impl CoreTime {
    /// Adds another period's core time.
    pub(crate) fn add(&mut self, other: Self) {
        self.busy += other.busy;
        self.polling += other.polling;
        self.idle += other.idle;
        self.parked += other.parked;
    }
}

impl Outcome {
    /// Nothing yet.
    pub(crate) fn empty(latency: Histogram<u64>, drives: usize) -> Self {
        Self {
            requests: 0,
            reads: 0,
            bytes: 0,
            span: Nanos::ZERO,
            end: Nanos::ZERO,
            asked: Nanos::ZERO,
            energy: Energy::default(),
            peak: Watts(0.0),
            latency,
            latency_sum: 0,
            windows: Windows::default(),
            spells: Vec::new(),
            parts: Vec::new(),
            over_budget: Nanos::ZERO,
            cores: CoreTime::default(),
            drives: vec![DriveTotal::default(); drives],
            background_done: 0,
            background_pending: 0,
            most_capped: Watts(0.0),
            thermal: None,
            jobs: Vec::new(),
            trip: None,
        }
    }
    /// What wore the mechanics of all hard disks together.
    #[must_use]
    pub fn wear(&self) -> Wear {
        self.drives.iter().map(|drive| drive.wear).sum()
    }
    /// Exact mean latency in nanoseconds; 0 without requests.
    #[must_use]
    pub fn mean_latency(&self) -> f64 {
        mean(self.latency_sum, &self.latency)
    }
    /// Mean power over the run.
    #[must_use]
    pub fn mean_power(&self) -> Watts {
        self.energy.total() / self.span
    }
    /// Requests completed per second.
    #[must_use]
    pub fn iops(&self) -> f64 {
        self.requests as f64 / self.span.seconds()
    }
    /// By how much longer the server takes than requests come, as a share of the time counted: by
    /// what waits at the end less what waited when counting began. Above 0 the queue grows.
    #[must_use]
    pub fn falls_behind(&self) -> f64 {
        let waited = (self.requests as f64 - self.latency.len() as f64) / self.iops().max(1e-9);
        (self.end.saturating_sub(self.asked).seconds() - waited) / self.span.seconds().max(1e-9)
    }
}
