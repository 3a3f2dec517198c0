//! What a cycle senses: counters and their changes since the cycle before, temperatures, power.
//! Files stay open; nothing here wakes a drive that sleeps.

use ebb_policy::live::TICK;
use ebb_policy::units::{Bytes, Celsius, Hertz, Nanos, Watts};
use ebb_policy::{IoSignals, OpSignals, PressureSignals, Reading, Signal, Signals, Source};

use crate::act::knob::Place;
use crate::act::steering::Notice;
use crate::find::chips::{INLETS, TEMPERATURES};
use crate::find::cpus::{Cpu, IdleState};
use crate::find::drives::{Counters, Drive};
use crate::find::hwmon::inlets;
use crate::find::layout::{Core, DriveParts, Layout};
use crate::find::machine::Machine;
use crate::find::meters::{MOST, Meters};
use crate::find::parts::is_gone;
use crate::sense::energy::EnergyCounter;
use crate::sense::gauge::Gauge;
use crate::sense::meter_lag::MeterLag;
use crate::sense::turning::{Turning, fans};
use crate::sense::watched::Watched;
use crate::sys::Sys;

/// No clock is faster than so many times the highest that can be set.
const CLOCK: f64 = 2.0;
/// Of so many cores of a group the frequency is read, for they follow one request, and how often
/// they wake.
const SAMPLED: usize = 4;

/// Time since the start, for which a CPU was busy and at all, in ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Ticks {
    busy: u64,
    idle: u64,
    /// Idle as well, while a task that ran there waits for I/O.
    waiting: u64,
}

impl Ticks {
    /// A line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal; what guests
    /// took is in the first two.
    fn parse<'a>(fields: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut ticks = [0_u64; 8];
        for (tick, field) in ticks.iter_mut().zip(fields) {
            *tick = field.parse().ok()?;
        }
        let [user, nice, system, idle, waiting, rest @ ..] = ticks;
        let busy = [user, nice, system].into_iter().chain(rest).fold(0, u64::saturating_add);
        Some(Self { busy, idle, waiting })
    }

    /// Share of the time since `before`; `None` without any, or where a counter went back. That of
    /// waiting may (proc_stat(5)): no time is known of it then.
    fn share(self, before: Self) -> Option<f64> {
        let busy = self.busy.checked_sub(before.busy)?;
        let idle = self.idle.checked_sub(before.idle)?;
        let idle = idle.saturating_add(self.waiting.saturating_sub(before.waiting));
        let all = busy.saturating_add(idle);
        (all > 0).then(|| busy as f64 / all as f64)
    }
}

/// The sensors of one machine.
#[derive(Debug)]
pub struct Sensors {
    stat: Watched,
    diskstats: Watched,
    /// By CPU number: now and before.
    ticks: Vec<(Ticks, Ticks)>,
    /// CPUs of each core of each group.
    groups: Vec<Vec<Vec<u16>>>,
    frequencies: Vec<Vec<Watched>>,
    /// How often cores of each group have left each of their idle states.
    wakes: Vec<Vec<Counted>>,
    /// The highest frequency of any core.
    fastest: Hertz,
    drives: Vec<DriveSensor>,
    /// For CPUs, I/O and memory: time that some task has waited, in µs, and before.
    pressure: [(Watched, Option<u64>); 3],
    packages: Vec<EnergyCounter>,
    /// Meters of processors whose energy nothing counts.
    processors: Vec<Gauge>,
    wall: Vec<Gauge>,
    /// The hottest of each is its temperature.
    sockets: Vec<Vec<Gauge>>,
    /// The first that says something.
    inlets: Vec<Gauge>,
    notices: Vec<Notice>,
    /// The places of which something was said.
    told: Vec<Place>,
    fans: Vec<Turning>,
    /// That requests under way were miscounted was said.
    miscounted: bool,
}

/// The first threads of those cores of a group that are asked: the first ones, which are the last
/// to be parked.
fn asked<'a>(machine: &'a Machine, cores: &'a [Core]) -> impl Iterator<Item = &'a Cpu> {
    let cpus = &machine.cpus.cpus;
    let first = |core: &Core| cpus.iter().find(|cpu| cpu.number == core.cpus[0]);
    cores.iter().take(SAMPLED).filter_map(first)
}

/// Their frequencies.
fn clocks(machine: &Machine, cores: &[Core]) -> Vec<Watched> {
    let file = |cpu: &Cpu| {
        let policy = &machine.cpus.policies[cpu.policy?];
        Some(Watched::new(&machine.sys, &format!("{}/scaling_cur_freq", policy.folder)))
    };
    asked(machine, cores).filter_map(file).collect()
}

/// How often they have left their idle states.
fn wakes(machine: &Machine, cores: &[Core]) -> Vec<Counted> {
    let usage = |state: &IdleState| Watched::new(&machine.sys, &format!("{}/usage", state.folder));
    let counted = |cpu: &Cpu| Counted { files: cpu.idle.iter().map(usage).collect(), before: None };
    asked(machine, cores).map(counted).collect()
}

/// Counters of one kind.
#[derive(Debug)]
struct Counted {
    files: Vec<Watched>,
    before: Option<u64>,
}

impl Counted {
    /// By how much they have grown, all together, since they were last read.
    fn grown(&mut self) -> Option<u64> {
        let sum = self.files.iter_mut().map(|file| file.number::<u64>().ok());
        let now = sum.reduce(|sum, more| sum?.checked_add(more?)).flatten();
        let before = std::mem::replace(&mut self.before, now)?;
        now?.checked_sub(before)
    }
}

/// The block devices of one drive.
#[derive(Debug)]
struct DriveSensor {
    counted: Vec<String>,
    /// Their own counters, for a container's `/proc/diskstats` may lack them (lxcfs).
    own: Vec<Watched>,
    namespaces: u32,
    /// Of a hard disk; reading it does not wake it.
    runtime: Option<Watched>,
    now: Option<Counters>,
    before: Option<Counters>,
}

impl Sensors {
    /// Those of `machine`.
    #[must_use]
    pub fn new(machine: &Machine, layout: &Layout) -> Self {
        let sys = &machine.sys;
        let file = |path: String| Watched::new(sys, &path);
        let drive = |parts: &DriveParts| DriveSensor {
            counted: counted(&parts.drive),
            own: own(sys, &parts.drive),
            namespaces: parts.drive.namespaces,
            runtime: parts.drive.runtime_file().map(file),
            now: None,
            before: None,
        };
        let heat = |path: String| Gauge::new(sys, path, (1e3, "°C"), TEMPERATURES);
        let socket = |inputs: &Vec<(usize, String)>| -> Vec<Gauge> {
            inputs.iter().map(|(chip, input)| heat(machine.chips[*chip].file(input))).collect()
        };
        let inlets = inlets(sys, &machine.chips).into_iter().map(|(chip, input)| chip.file(input));
        let limits = layout.sockets.iter().flatten();
        let limits =
            limits.filter_map(|(chip, input)| machine.chips[*chip].false_limit(sys, input));
        let air = |path: String| Gauge::new(sys, path, (1e3, "°C"), INLETS);
        let (wall, processors) = (machine.wall_meters(), machine.processor_meters());
        let notice = |(path, text)| Notice { place: Place::File { path }, text };
        let power = |meters: &Meters| -> Vec<Gauge> {
            let watts = (1e6, "W");
            let is_told = |path: &String| !meters.sane().any(|sane| sane == path);
            let gauge = |path: &String| {
                Gauge::new(sys, path.clone(), watts, 0.0..=MOST.0).told(is_told(path))
            };
            meters.files.iter().map(gauge).collect()
        };
        Self {
            stat: Watched::new(sys, "proc/stat"),
            diskstats: Watched::new(sys, "proc/diskstats"),
            ticks: Vec::new(),
            groups: layout
                .groups
                .iter()
                .map(|cores| cores.iter().map(|core| core.cpus.clone()).collect())
                .collect(),
            frequencies: layout.groups.iter().map(|cores| clocks(machine, cores)).collect(),
            wakes: layout.groups.iter().map(|cores| wakes(machine, cores)).collect(),
            fastest: machine
                .cpus
                .policies
                .iter()
                .map(|policy| policy.highest)
                .fold(Hertz(0.0), |a, b| if b > a { b } else { a }),
            drives: layout.drives.iter().map(drive).collect(),
            pressure: PRESSURE.map(|name| (file(format!("proc/pressure/{name}")), None)),
            packages: machine.packages().map(|zone| EnergyCounter::new(sys, zone)).collect(),
            processors: power(&processors),
            wall: power(&wall),
            sockets: layout.sockets.iter().map(socket).collect(),
            inlets: inlets.map(air).collect(),
            told: Vec::new(),
            notices: machine.left().into_iter().chain(limits).map(notice).collect(),
            miscounted: false,
            fans: fans(machine, layout, sys),
        }
    }

    /// Becomes those of what has become of the machine: drives that were not there at the start
    /// have no signals of their own, but what they do is users' I/O as well. Counters go on.
    pub fn follow(&mut self, machine: &Machine, layout: &Layout, more: &[&Drive]) {
        let mut new = Self::new(machine, layout);
        new.drives.extend(more.iter().map(|drive| DriveSensor {
            counted: counted(drive),
            own: own(&machine.sys, drive),
            namespaces: drive.namespaces,
            runtime: None,
            now: None,
            before: None,
        }));
        for drive in &mut new.drives {
            let is_it = |old: &&DriveSensor| old.counted == drive.counted;
            drive.now = self.drives.iter().find(is_it).and_then(|old| old.now);
        }
        std::mem::swap(&mut new.ticks, &mut self.ticks);
        std::mem::swap(&mut new.pressure, &mut self.pressure);
        // What there is to say of its meters was said.
        new.notices = std::mem::take(&mut self.notices);
        new.told = std::mem::take(&mut self.told);
        *self = new;
    }

    /// Fills in what is known of the period that ends now; `active` cores of each group took work.
    pub fn read(&mut self, signals: &mut Signals, active: impl Fn(usize) -> u16) {
        self.read_cores(signals, active);
        self.read_drives(signals);
        self.read_pressure(signals);
        self.read_power(signals);
        self.read_cooling(signals);
    }

    /// Time for which these CPUs were busy in the period.
    #[must_use]
    pub fn busy(&self, cpus: impl Iterator<Item = u16>) -> Nanos {
        let ticks = cpus.filter_map(|cpu| self.ticks.get(usize::from(cpu)));
        let busy = ticks.map(|(now, before)| now.busy.saturating_sub(before.busy)).sum::<u64>();
        Nanos(busy.saturating_mul(TICK.0))
    }

    fn read_cores(&mut self, signals: &mut Signals, active: impl Fn(usize) -> u16) {
        let known = match self.stat.text() {
            Ok(text) => cpu_lines(text, &mut self.ticks),
            Err(_) => false,
        };
        let share = |cpu: u16| {
            let (now, before) = *self.ticks.get(usize::from(cpu)).filter(|_| known)?;
            now.share(before)
        };
        let period = signals.period;
        for (group, signal) in signals.groups.iter_mut().enumerate() {
            let active = active(group);
            signal.active = Some(active);
            let cores = self.groups[group].iter().take(usize::from(active));
            let (mut sum, mut count, mut busiest) = (0.0, 0_u32, None::<f64>);
            for share in cores.flatten().filter_map(|cpu| share(*cpu)) {
                (sum, count) = (sum + share, count + 1);
                busiest = Some(busiest.map_or(share, |most| most.max(share)));
            }
            signal.utilisation = (count > 0).then(|| sum / f64::from(count));
            signal.busiest = busiest;
            let files = self.frequencies[group].iter_mut().take(usize::from(active));
            let is_clock =
                |khz: &u64| (1.0..=self.fastest.0 * CLOCK).contains(&(*khz as f64 * 1e3));
            let read: Vec<u64> =
                files.filter_map(|file| file.number().ok()).filter(is_clock).collect();
            let mean = read.iter().sum::<u64>() as f64 / read.len() as f64;
            // Of parked ones too, for they may come back.
            let grown = self.wakes[group].iter_mut().map(Counted::grown).enumerate();
            let (sum, count) = grown
                .filter_map(|(core, grown)| grown.filter(|_| core < usize::from(active)))
                .fold((0, 0_u32), |(sum, count), grown| (sum + grown, count + 1));
            let second = f64::from(count) * period.seconds();
            signal.wakes = (second > 0.0).then(|| sum as f64 / second);
            signal.frequency = (!read.is_empty()).then_some(Hertz(mean * 1e3));
        }
    }

    fn read_drives(&mut self, signals: &mut Signals) {
        for drive in &mut self.drives {
            drive.before = drive.now.take();
        }
        for (drive, signal) in self.drives.iter_mut().zip(&mut signals.drives) {
            let status = drive.runtime.as_mut().and_then(|file| file.text().ok());
            signal.standby = status.and_then(standby);
        }
        if let Ok(text) = self.diskstats.text() {
            disk_lines(text, &mut self.drives);
        }
        for drive in self.drives.iter_mut().filter(|drive| drive.now.is_none()) {
            let counters = drive
                .own
                .iter_mut()
                .map(|stat| Counters::parse(stat.text().ok()?.split_ascii_whitespace()));
            drive.now = counters.flatten().reduce(|sum, more| sum.plus(&more));
        }
        let mut sum = Some(Counters::default());
        for (at, drive) in self.drives.iter().enumerate() {
            let done = drive.now.zip(drive.before).and_then(|(now, before)| now.since(&before));
            if let Some(signal) = signals.drives.get_mut(at) {
                let share = |done: &Counters| {
                    let busy = done.busy.seconds() / signals.period.seconds();
                    (busy / f64::from(drive.namespaces)).min(1.0)
                };
                signal.utilisation = done.as_ref().map(share).filter(|_| signals.period.0 > 0);
                signal.time = done.as_ref().map(|done| done.read_time + done.write_time);
                signal.read_bytes = done.as_ref().map(|done| done.read_bytes);
                signal.written_bytes = done.as_ref().map(|done| done.written_bytes);
            }
            // One that has gone does nothing, and of one that has just come nothing is known yet.
            // Without one that is there nothing is known of all users' requests.
            let is_new = drive.now.is_some() && drive.before.is_none();
            match done {
                Some(done) => sum = sum.map(|sum| sum.plus(&done)),
                None if drive.counted.is_empty() || is_new => {}
                None => sum = None,
            }
        }
        let none = self.drives.iter().all(|drive| drive.now.is_none());
        let first = signals.period.0 == 0 || none;
        if sum.is_some_and(|sum| sum.miscounted) && !self.miscounted {
            self.miscounted = true;
            self.notices.push(Notice {
                place: Place::File { path: "proc/diskstats".to_owned() },
                text: "requests under way are miscounted (below 0): absent for as long as they \
                       are; an update of the kernel may mend it"
                    .to_owned(),
            });
        }
        signals.io = match sum {
            Some(sum) if !first => io(&sum, signals.io.in_flight),
            _ => IoSignals::default(),
        };
    }

    fn read_pressure(&mut self, signals: &mut Signals) {
        let period = signals.period.micros();
        let [cpu, io, memory] = self.pressure.each_mut().map(|(file, before)| {
            let now = file.text().ok().and_then(waited);
            let before = std::mem::replace(before, now);
            let waited = now?.checked_sub(before?)?;
            (period > 0.0).then(|| (waited as f64 / period).min(1.0))
        });
        signals.pressure = PressureSignals { cpu, io, memory };
    }

    fn read_power(&mut self, signals: &mut Signals) {
        let notices = &mut self.notices;
        let mut cpu = Some(Watts(0.0)).filter(|_| !self.packages.is_empty());
        for counter in &mut self.packages {
            let power = counter.power(signals.now, notices);
            cpu = cpu.and_then(|sum| Some(sum + power?));
        }
        signals.power.cpu = cpu.or_else(|| sum(&mut self.processors, notices));
        signals.power.total = sum(&mut self.wall, notices);
    }

    /// Says how old the power of the whole server is.
    pub fn date_power(&mut self, signals: &mut Signals, lag: &mut MeterLag) {
        let (now, power) = (signals.now, &signals.power);
        if let Some(text) = lag.see(now, power.cpu, power.total)
            && let Some(meter) = self.wall.first()
        {
            self.notices.push(Notice { place: meter.place(), text });
        }
        if power.total.is_some() {
            let source = signals.sources.of(Signal::Power, 0);
            signals.sources.set(Signal::Power, 0, Source { age: lag.age(), ..source });
        }
    }

    /// What an operator should know since this was last asked.
    pub fn notices(&mut self) -> Vec<Notice> {
        let mut notices = std::mem::take(&mut self.notices);
        // Once of each, however often the machine changes; that a chip has gone is said elsewhere.
        notices.retain(|Notice { place, .. }| {
            let has_gone = matches!(place, Place::File { path } if is_gone(path));
            !has_gone && !self.told.contains(place)
        });
        self.told.extend(notices.iter().map(|notice| notice.place.clone()));
        notices
    }

    fn read_cooling(&mut self, signals: &mut Signals) {
        let at = signals.now;
        let reading = |celsius: f64| Reading { at, temperature: Celsius(celsius) };
        let notices = &mut self.notices;
        let inlet = self.inlets.iter_mut().find_map(|file| file.read(notices));
        signals.cooling.inlet = inlet.map(reading);
        for (files, signal) in self.sockets.iter_mut().zip(&mut signals.cooling.sockets) {
            let read = files.iter_mut().filter_map(|file| file.read(notices));
            *signal = read.reduce(f64::max).map(reading);
        }
        for (turning, fan) in self.fans.iter_mut().zip(&mut signals.cooling.fans) {
            fan.duty = turning.duty.number::<u8>().ok().map(|duty| f64::from(duty) / 255.0);
            fan.speed = turning.speed(notices);
        }
    }
}

/// What meters say together; `None` where there are none, where one of them says nothing, and where
/// none measures anything.
fn sum(meters: &mut [Gauge], notices: &mut Vec<Notice>) -> Option<Watts> {
    let mut sum = Some(0.0);
    // Each is read, so that each is named that says nonsense.
    for meter in meters {
        let power = meter.read(notices);
        sum = sum.zip(power).map(|(sum, power)| sum + power);
    }
    sum.filter(|sum| *sum > 0.0).map(Watts)
}

/// Whether a disk is stopped, by its runtime power management
/// (`Documentation/ABI/testing/sysfs-devices-power`).
pub fn standby(status: &str) -> Option<bool> {
    match status {
        "suspended" | "suspending" => Some(true),
        "active" | "resuming" => Some(false),
        _ => None,
    }
}

/// What tasks wait for (`Documentation/accounting/psi.rst`).
pub const PRESSURE: [&str; 3] = ["cpu", "io", "memory"];

/// Time for which some task has waited since the start, in µs:
/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=1234`.
pub fn waited(text: &str) -> Option<u64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split_ascii_whitespace().find_map(|field| field.strip_prefix("total="))?.parse().ok()
}

/// Moves the ticks of all CPUs on; whether the text has any.
fn cpu_lines(text: &str, ticks: &mut Vec<(Ticks, Ticks)>) -> bool {
    let mut any = false;
    // Those that are not listed are offline: no tick passes for them.
    ticks.iter_mut().for_each(|(now, before)| *before = *now);
    for line in text.lines() {
        let mut fields = line.split_ascii_whitespace();
        // CPUs come first.
        let Some(name) = fields.next().and_then(|name| name.strip_prefix("cpu")) else { break };
        let Ok(cpu) = name.parse::<u16>() else { continue };
        let cpu = usize::from(cpu);
        if cpu >= ticks.len() {
            ticks.resize(cpu + 1, Default::default());
        }
        if let Some(new) = Ticks::parse(fields) {
            ticks[cpu].0 = new;
            any = true;
        }
    }
    any
}

/// What the kernel calls a drive's block devices there: sysfs has `!` for `/`.
fn counted(drive: &Drive) -> Vec<String> {
    drive.counted.iter().map(|name| name.replace('!', "/")).collect()
}

/// The counters that a drive's block devices have themselves.
fn own(sys: &Sys, drive: &Drive) -> Vec<Watched> {
    let stat = |name: &String| Watched::new(sys, &format!("sys/block/{name}/stat"));
    drive.counted.iter().map(stat).collect()
}

/// Finds the drives' counters in `/proc/diskstats`: numbers of the device, its name, its counters.
fn disk_lines(text: &str, drives: &mut [DriveSensor]) {
    for line in text.lines() {
        let mut fields = line.split_ascii_whitespace();
        let Some(name) = fields.nth(2) else { continue };
        let Some(drive) = drives.iter_mut().find(|drive| drive.counted.iter().any(|n| n == name))
        else {
            continue;
        };
        let Some(counters) = Counters::parse(fields) else { continue };
        drive.now = Some(drive.now.map_or(counters, |sum| sum.plus(&counters)));
    }
}

/// What all drives did as users' I/O: what went to the drives is what is known of it. `before` was
/// under way at the end of the period before.
fn io(done: &Counters, before: Option<u64>) -> IoSignals {
    let op = |completed: u64, bytes: Bytes, time: Nanos| OpSignals {
        completed: Some(completed),
        bytes: Some(bytes.0),
        mean_latency: (completed > 0).then(|| Nanos(time.0 / completed.max(1))),
        percentiles: None,
    };
    let completed = done.reads.saturating_add(done.writes);
    let bytes = done.read_bytes.saturating_add(done.written_bytes);
    let time = done.read_time.0.saturating_add(done.write_time.0);
    let all = op(completed, Bytes(bytes), Nanos(time));
    let in_flight = (!done.miscounted).then_some(done.in_flight);
    // What was miscounted hides what has arrived and was not completed.
    let grown = in_flight.zip(before).map_or(0, |(now, before)| now.saturating_sub(before));
    IoSignals {
        arrived: Some(completed.saturating_add(grown)),
        completed: all.completed,
        bytes: all.bytes,
        mean_latency: all.mean_latency,
        max_latency: None,
        percentiles: None,
        in_flight,
        reads: op(done.reads, Bytes(done.read_bytes), done.read_time),
        writes: op(done.writes, Bytes(done.written_bytes), done.write_time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utilisation_is_the_change_of_ticks() {
        let mut ticks = Vec::new();
        let first = "cpu  9 9 9 9\ncpu0 100 0 0 900 0 0 0 0 0 0\ncpu2 0 0 0 10 90 0 0 0\nintr 1 2";
        assert!(cpu_lines(first, &mut ticks));
        let second = "cpu0 140 5 5 940 10 0 0 0 7 0\ncpu2 0 0 0 10 90 0 0 0\nintr 3";
        assert!(cpu_lines(second, &mut ticks));
        let share = |cpu: usize| ticks[cpu].0.share(ticks[cpu].1);
        assert_eq!(share(0), Some(0.5), "waiting for I/O is idle");
        assert_eq!(share(1), None, "not online");
        assert_eq!(share(2), None, "no tick has passed");
        assert!(!cpu_lines("nonsense", &mut ticks));
    }

    #[test]
    fn counters_that_go_back_are_no_share() {
        let before = Ticks { busy: 5, idle: 4, waiting: 50 };
        assert_eq!(Ticks { busy: 4, idle: 8, ..before }.share(before), None);
        assert_eq!(Ticks { busy: 6, idle: 3, ..before }.share(before), None);
        let back = Ticks { busy: 6, idle: 7, waiting: 0 };
        assert_eq!(back.share(before), Some(0.25), "that of waiting for I/O may");
    }

    #[test]
    fn a_drive_is_the_sum_of_its_namespaces() {
        let counted = ["nvme0n1", "nvme0n2"].map(str::to_owned).to_vec();
        let mut drives = [DriveSensor {
            counted,
            own: Vec::new(),
            namespaces: 2,
            runtime: None,
            now: None,
            before: None,
        }];
        let text = " 259 0 nvme0n1 7 0 8 14 1 0 8 2 1 9 9 0 0 0 0\n\
                    259 1 nvme0n1p1 7 0 8 14 1 0 8 2 1 9 9\n\
                    259 2 nvme0n2 3 0 8 6 0 0 0 0 2 4 4 0\nshort\n8 0 sda 1 1 1 1 1 1 1 1 1 1 1";
        disk_lines(text, &mut drives);
        let sum = drives[0].now.unwrap();
        assert_eq!((sum.reads, sum.writes, sum.in_flight), (10, 1, 3));
        let io = io(&sum, Some(1));
        assert_eq!((io.completed, io.arrived), (Some(11), Some(13)));
        assert_eq!(io.reads.mean_latency, Some(Nanos::from_millis(2)));
    }
}
