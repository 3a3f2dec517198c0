//! The kernel's side: `/dev/ebb-hw`, what its CPUs do, where they are.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};

use ebb_policy::units::{Hertz, Watts};

use crate::Error;

/// Where the module's values are.
const DEVICE: &str = "/dev/ebb-hw";
/// Where Linux describes its CPUs.
const CPUS: &str = "/sys/devices/system/cpu";

/// What was commanded.
pub struct Commands(HashMap<String, u64>);

impl Commands {
    fn value(&self, key: &str) -> u64 {
        self.0.get(key).copied().unwrap_or(0)
    }
    /// Frequency of a CPU.
    pub fn frequency(&self, cpu: usize) -> Hertz {
        Hertz(self.value(&format!("frequency{cpu}")) as f64 * 1e3)
    }
    /// Most power of a socket.
    pub fn limit(&self, socket: usize) -> Watts {
        Watts(self.value(&format!("limit{socket}")) as f64 * 1e-6)
    }
    /// Duty of a fan, from 0; `None` where the board's own control has it.
    pub fn duty(&self, fan: usize) -> Option<f64> {
        match self.value(&format!("pwm{}_enable", fan + 1)) {
            0 => Some(1.0),
            1 => Some(self.value(&format!("pwm{}", fan + 1)) as f64 / 255.0),
            _ => None,
        }
    }
}

/// What a CPU did since the last look.
#[derive(Debug, Clone, Default)]
pub struct Work {
    /// Its socket.
    pub socket: usize,
    /// Share of the time with work; `None` of one that is offline.
    pub busy: Option<f64>,
    /// Shares of the time in idle states, by name.
    pub idle: Vec<(String, f64)>,
}

/// What CPUs have counted since the start.
#[derive(Debug, Clone, Default)]
struct Counted {
    /// Seconds with work and without, by the kernel's ticks.
    times: Option<(f64, f64)>,
    /// Seconds in each idle state.
    idle: Vec<(String, f64)>,
}

/// The kernel.
pub struct Kernel {
    device: File,
    /// Sockets of the CPUs; one that is offline keeps what it had.
    sockets: Vec<usize>,
    last: Vec<Counted>,
}

impl Kernel {
    /// Of this machine.
    pub fn open() -> Result<Self, Error> {
        let device = OpenOptions::new().read(true).write(true).open(DEVICE)?;
        let count = std::thread::available_parallelism()?.get();
        let socket = |cpu| -> Result<usize, Error> {
            let file = format!("{CPUS}/cpu{cpu}/topology/physical_package_id");
            Ok(std::fs::read_to_string(file)?.trim().parse()?)
        };
        let sockets = (0..count).map(socket).collect::<Result<_, _>>()?;
        let mut kernel = Self { device, sockets, last: Vec::new() };
        kernel.last = kernel.counted()?;
        Ok(kernel)
    }

    /// Its CPUs.
    pub fn cpus(&self) -> usize {
        self.sockets.len()
    }

    /// What is commanded now.
    pub fn commands(&mut self) -> Result<Commands, Error> {
        let mut text = String::new();
        self.device.rewind()?;
        self.device.read_to_string(&mut text)?;
        let pair = |line: &str| {
            let (key, value) = line.split_once(' ')?;
            Some((key.to_owned(), value.parse().ok()?))
        };
        Ok(Commands(text.lines().filter_map(pair).collect()))
    }

    /// Tells what is sensed, lines of `KEY VALUE`.
    pub fn tell(&mut self, lines: &str) -> Result<(), Error> {
        Ok(self.device.write_all(lines.as_bytes())?)
    }

    /// What each CPU did since the last call, `seconds` ago.
    pub fn work(&mut self, seconds: f64) -> Result<Vec<Work>, Error> {
        let now = self.counted()?;
        let before = std::mem::replace(&mut self.last, now);
        let cpus = self.sockets.iter().zip(&self.last).zip(before);
        let work = |((socket, now), before): ((&usize, &Counted), Counted)| {
            let busy = now.times.map(|(busy, rest)| {
                let (was_busy, was_rest) = before.times.unwrap_or((busy, rest));
                let (busy, rest) = ((busy - was_busy).max(0.0), (rest - was_rest).max(0.0));
                if busy + rest > 0.0 { busy / (busy + rest) } else { 0.0 }
            });
            let share = |(name, total): &(String, f64)| {
                let was = before.idle.iter().find(|(own, _)| own == name).map_or(*total, |x| x.1);
                (name.clone(), ((total - was) / seconds.max(1e-3)).clamp(0.0, 1.0))
            };
            Work { socket: *socket, busy, idle: now.idle.iter().map(share).collect() }
        };
        Ok(cpus.map(work).collect())
    }

    fn counted(&self) -> Result<Vec<Counted>, Error> {
        let stat = std::fs::read_to_string("/proc/stat")?;
        let mut all = vec![Counted::default(); self.sockets.len()];
        for line in stat.lines() {
            let mut words = line.split_whitespace();
            let cpu = words.next().and_then(|word| word.strip_prefix("cpu")?.parse().ok());
            let Some(own) = cpu.and_then(|cpu: usize| all.get_mut(cpu)) else { continue };
            // user nice system idle iowait irq softirq
            let ticks: Vec<f64> = words.take(7).filter_map(|word| word.parse().ok()).collect();
            let rest = ticks.iter().skip(3).take(2).sum::<f64>();
            own.times = Some((ticks.iter().sum::<f64>() - rest, rest));
        }
        for (cpu, own) in all.iter_mut().enumerate() {
            own.idle = idle_states(cpu);
        }
        Ok(all)
    }
}

/// Seconds that a CPU has spent in each idle state.
fn idle_states(cpu: usize) -> Vec<(String, f64)> {
    let folders = (0..).map(|state| format!("{CPUS}/cpu{cpu}/cpuidle/state{state}"));
    let state = |folder: String| {
        let read = |file| std::fs::read_to_string(format!("{folder}/{file}")).ok();
        Some((read("name")?.trim().to_owned(), read("time")?.trim().parse::<f64>().ok()? * 1e-6))
    };
    folders.map_while(state).collect()
}
