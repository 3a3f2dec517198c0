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
/// The names of Ebb's processes: the command, and the supervisor that it starts as.
const EBB: [&str; 2] = ["ebb", "exe"];
/// Clock ticks of a second, in which the kernel tells CPU time (USER_HZ).
const TICKS: f64 = 100.0;
/// New threads of Ebb are looked for once in so many looks.
const FIND_EVERY: u32 = 5;
/// The most that is left out of later work, s: the kernel counts work by ticks, a thread's exactly.
const MOST_OWED: f64 = 0.1;

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
    /// Ticks with work and without.
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
    ebb: Ebb,
}

impl Kernel {
    /// Of this machine, on whose CPUs work takes `slower` times as long as on real ones.
    pub fn open(slower: f64) -> Result<Self, Error> {
        let device = OpenOptions::new().read(true).write(true).open(DEVICE)?;
        let count = std::thread::available_parallelism()?.get();
        let socket = |cpu| -> Result<usize, Error> {
            let file = format!("{CPUS}/cpu{cpu}/topology/physical_package_id");
            Ok(std::fs::read_to_string(file)?.trim().parse()?)
        };
        let sockets: Vec<_> = (0..count).map(socket).collect::<Result<_, _>>()?;
        let ebb = Ebb::new(slower, sockets.len());
        let mut kernel = Self { device, sockets, last: Vec::new(), ebb };
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
        self.ebb.look();
        let before = std::mem::replace(&mut self.last, now);
        let cpus = self.sockets.iter().zip(&self.last).zip(before).zip(&mut self.ebb.owed);
        let work = |(((socket, now), before), owed): (((&usize, &Counted), Counted), &mut f64)| {
            let busy = now.times.map(|(busy, rest)| {
                let (was_busy, was_rest) = before.times.unwrap_or((busy, rest));
                let (busy, rest) = ((busy - was_busy).max(0.0), (rest - was_rest).max(0.0));
                let left_out = owed.min(busy / TICKS);
                *owed = (*owed - left_out).min(MOST_OWED);
                self.ebb.left_out += left_out;
                let own = busy - left_out * TICKS;
                if busy + rest > 0.0 { own / (busy + rest) } else { 0.0 }
            });
            let share = |(name, total): &(String, f64)| {
                let was = before.idle.iter().find(|(own, _)| own == name).map_or(*total, |x| x.1);
                (name.clone(), ((total - was) / seconds.max(1e-3)).clamp(0.0, 1.0))
            };
            Work { socket: *socket, busy, idle: now.idle.iter().map(share).collect() }
        };
        Ok(cpus.map(work).collect())
    }

    /// CPU time of Ebb that did not count as work so far, s.
    pub fn left_out(&self) -> f64 {
        self.ebb.left_out
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

/// What Ebb itself takes of the CPUs. On emulated ones the same work takes it many times as long as
/// on the real server that this stands for; only as much as there counts as work. What this program
/// takes is no server's work.
struct Ebb {
    slower: f64,
    /// Ticks of the threads so far, and what share of them is left out, by their files.
    threads: HashMap<String, (f64, f64)>,
    looks: u32,
    /// Seconds still to leave out, by CPU.
    owed: Vec<f64>,
    left_out: f64,
}

impl Ebb {
    fn new(slower: f64, cpus: usize) -> Self {
        let owed = vec![0.0; cpus];
        let mut new = Self { slower, threads: HashMap::new(), looks: 0, owed, left_out: 0.0 };
        new.look();
        new.owed.fill(0.0);
        new
    }

    /// Adds what its threads took since the last look.
    fn look(&mut self) {
        if self.slower <= 1.0 {
            return;
        }
        if self.looks.is_multiple_of(FIND_EVERY) {
            self.threads.retain(|file, _| std::fs::exists(file).unwrap_or(false));
            let left_out = 1.0 - 1.0 / self.slower;
            let ebb = processes().filter(|process| {
                let name = std::fs::read_to_string(format!("{process}/comm")).unwrap_or_default();
                EBB.contains(&name.trim_end())
            });
            let ebb = ebb.flat_map(threads).map(|file| (file, left_out));
            for (file, share) in ebb.chain(threads("/proc/self".to_owned()).map(|file| (file, 1.0)))
            {
                self.threads.entry(file).or_insert((0.0, share));
            }
        }
        self.looks += 1;
        for (file, (last, share)) in &mut self.threads {
            let Some((ticks, cpu)) = ticks(file) else { continue };
            if let Some(owed) = self.owed.get_mut(cpu) {
                *owed += (ticks - *last) / TICKS * *share;
            }
            *last = ticks;
        }
    }
}

/// The folders of all processes.
fn processes() -> impl Iterator<Item = String> {
    folders("/proc").filter(|path| path.ends_with(|last: char| last.is_ascii_digit()))
}

/// The files of a process' threads.
fn threads(process: String) -> impl Iterator<Item = String> {
    folders(&format!("{process}/task")).map(|task| format!("{task}/stat"))
}

fn folders(path: &str) -> impl Iterator<Item = String> + use<> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().display().to_string())
}

/// Ticks that a thread took so far, and the CPU it ran on last (proc_pid_stat(5), fields 14, 15
/// and 39).
fn ticks(file: &str) -> Option<(f64, usize)> {
    let text = std::fs::read_to_string(file).ok()?;
    let fields: Vec<_> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    Some((field(14)? + field(15)?, fields.get(39 - 3)?.parse().ok()?))
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
