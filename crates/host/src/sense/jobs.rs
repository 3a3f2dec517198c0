//! What jobs do: control groups that the operator names as such
//! (`Documentation/admin-guide/cgroup-v2.rst`). A group is a job for as long as it has tasks.

use std::cmp::Reverse;

use ebb_policy::units::Nanos;
use ebb_policy::{JobSignals, Signals};

use crate::act::groups;
use crate::act::knob::{CGROUPS, Place};
use crate::act::steering::Notice;
use crate::act::tasks::Stat;
use crate::find::jobs::{Seen, StatedJob, turn_on};
use crate::find::layout::Layout;
use crate::find::machine::Machine;
use crate::sense::group::{self, Group};
use crate::sense::watched::Watched;
use crate::sys::{Absent, Sys};

/// Threads of a job that are asked where they run.
const ASKED: usize = 8;

/// The jobs of a machine.
#[derive(Debug)]
pub struct Jobs {
    sys: Sys,
    /// The drives, as groups count their I/O: what is stacked on them counts it once more.
    drives: Vec<String>,
    /// Sockets of CPUs.
    sockets: Vec<(u16, u16)>,
    jobs: Vec<Job>,
    seen: Vec<Seen>,
    notices: Vec<Notice>,
}

#[derive(Debug)]
struct Job {
    job: StatedJob,
    group: Group,
    seen: Seen,
    /// When it came, for all that is known.
    since: Option<Nanos>,
    freeze: Watched,
    /// Bytes so far.
    moved: Option<u64>,
    /// Whether it was said that its I/O is not known.
    told: bool,
}

impl Jobs {
    /// Those of `layout`.
    #[must_use]
    pub fn new(machine: &Machine, layout: &Layout) -> Self {
        let sys = &machine.sys;
        let jobs: Vec<_> = layout.jobs.iter().map(|job| Job::new(sys, job.clone())).collect();
        Self {
            drives: drives(machine),
            sockets: machine.cpus.cpus.iter().map(|cpu| (cpu.number, cpu.socket)).collect(),
            seen: vec![Seen::default(); jobs.len()],
            jobs,
            notices: Vec::new(),
            sys: sys.clone(),
        }
    }

    /// Takes in that drives have come or gone.
    pub fn follow(&mut self, machine: &Machine) {
        self.drives = drives(machine);
    }

    /// Fills in what is known of the period that ends now.
    pub fn read(&mut self, signals: &mut Signals) {
        let (now, period) = (signals.now, signals.period);
        let slots = self.jobs.iter_mut().zip(&mut self.seen).zip(&mut signals.jobs);
        for ((job, seen), signal) in slots {
            *signal = job.read(&self.sys, &self.drives, &self.sockets, (now, period));
            *seen = job.seen;
            if job.present_without_io() {
                let place = Place::File { path: format!("{}/io.stat", job.group.folder()) };
                let text = format!(
                    "it is missing: what {} reads and writes counts as nothing; {}",
                    job.job.group,
                    turn_on(&job.job.group, "IOWeight=100")
                );
                self.notices.push(Notice { place, text });
            }
        }
    }

    /// What else is known of each.
    #[must_use]
    pub fn seen(&self) -> &[Seen] {
        &self.seen
    }

    /// What an operator should know since this was last asked.
    pub fn notices(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.notices)
    }
}

impl Job {
    fn new(sys: &Sys, job: StatedJob) -> Self {
        let group = Group::new(sys, &job.group);
        Self {
            freeze: Watched::new(sys, &format!("{}/cgroup.freeze", group.folder())),
            seen: Seen::default(),
            since: None,
            moved: None,
            told: false,
            group,
            job,
        }
    }

    fn read(
        &mut self,
        sys: &Sys,
        drives: &[String],
        sockets: &[(u16, u16)],
        (now, period): (Nanos, Nanos),
    ) -> JobSignals {
        if self.group.look() {
            self.freeze = Watched::new(sys, &format!("{}/cgroup.freeze", self.group.folder()));
            (self.since, self.moved) = (None, None);
        }
        let present = self.group.is_populated();
        self.seen = Seen { group: self.group.id(), present, cores: None };
        if !present {
            (self.since, self.moved) = (None, None);
            self.group.begin_anew();
            return JobSignals::default();
        }
        let since = *self.since.get_or_insert(now);
        self.seen.cores = self.group.cores(period);
        let moved = self.group.io().ok().map(|text| moved(text, drives));
        let before = std::mem::replace(&mut self.moved, moved);
        let bytes = moved.zip(before).and_then(|(now, before)| now.checked_sub(before));
        let frozen = self.group.event("frozen") == Some(1);
        let waiting = frozen || self.freeze.text() == Ok("1");
        JobSignals {
            present,
            class: self.job.class,
            socket: socket(sys, &self.job.group, sockets),
            cpu: self.seen.cores.unwrap_or(0.0).min(1.0),
            disk_bytes: bytes.unwrap_or(0),
            waiting,
            age: now.saturating_sub(since),
            objective: None,
        }
    }

    /// Whether it is to be said now that its I/O is not known.
    fn present_without_io(&mut self) -> bool {
        let missing = self.seen.present && matches!(self.group.io(), Err(Absent::Missing(_)));
        missing && !std::mem::replace(&mut self.told, true)
    }
}

/// Bytes that were read from and written to `drives`; on all devices where no drive has a number.
pub fn moved(text: &str, drives: &[String]) -> u64 {
    let counts = |device: &str| drives.is_empty() || drives.iter().any(|drive| drive == device);
    let all = group::moved(text).filter(|(device, _)| counts(device));
    all.flat_map(|(_, moved)| moved.bytes).fold(0, u64::saturating_add)
}

/// The numbers of all drives, such as `259:0`.
pub fn drives(machine: &Machine) -> Vec<String> {
    let names = machine.drives.iter().flat_map(|drive| &drive.devices);
    names.filter_map(|name| machine.sys.text(format!("sys/block/{name}/dev")).ok()).collect()
}

/// The socket that most threads of a group ran on last, the first of several. Where there is none
/// to ask, that of the first CPU that the group may use: of its own list, or of the nearest group
/// above it that has one.
fn socket(sys: &Sys, group: &str, sockets: &[(u16, u16)]) -> u16 {
    let of = |cpu: u16| Some(sockets.iter().find(|(one, _)| *one == cpu)?.1);
    if sockets.iter().all(|(_, socket)| *socket == sockets[0].1) {
        return sockets.first().map_or(0, |(_, socket)| *socket);
    }
    let threads = groups::threads(sys, group, ASKED);
    let on: Vec<_> = threads.iter().filter_map(|task| of(Stat::of(sys, task)?.cpu)).collect();
    let count = |socket: u16| on.iter().filter(|other| **other == socket).count();
    if let Some(most) = on.iter().copied().max_by_key(|one| (count(*one), Reverse(*one))) {
        return most;
    }
    let mut group = Some(group);
    while let Some(name) = group {
        if let Ok(cpus) = sys.cpus(format!("{CGROUPS}/{name}/cpuset.cpus.effective")) {
            return cpus.first().and_then(|cpu| of(*cpu)).unwrap_or(0);
        }
        group = name.rsplit_once('/').map(|(above, _)| above);
    }
    0
}

#[cfg(test)]
mod tests {
    use ebb_policy::{QosClass, Topology};

    use super::*;

    #[test]
    fn a_job_is_what_its_group_does_in_a_period() {
        let root = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| {
            let file = root.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        };
        let of = |file: &str, text: &str| put(&format!("{CGROUPS}/b.slice/x.service/{file}"), text);
        put("sys/devices/system/cpu/online", "0-3");
        put("sys/devices/system/cpu/cpu2/topology/physical_package_id", "1");
        put(&format!("{CGROUPS}/b.slice/cpuset.cpus.effective"), "2-3");
        let machine = Machine::found(Sys::new(root.path())).unwrap();
        let (group, class) = ("b.slice/x.service".to_owned(), QosClass::Sensitive);
        let jobs = vec![StatedJob { group, class, name: String::new() }];
        let layout = Layout { jobs, ..Layout::default() };
        let mut jobs = Jobs::new(&machine, &layout);
        let mut second = 0;
        let mut read = |jobs: &mut Jobs| {
            let topology = Topology { jobs: 1, ..Topology::default() };
            let mut signals = Signals::new(&topology);
            second += 2;
            (signals.now, signals.period) = (Nanos::from_secs(second), Nanos::from_secs(2));
            jobs.read(&mut signals);
            (signals.jobs[0], jobs.seen()[0].cores)
        };
        assert_eq!(read(&mut jobs), (JobSignals::default(), None), "there is no group");
        of("cgroup.events", "populated 0\nfrozen 0\n");
        of("cpu.stat", "usage_usec 7000000\nuser_usec 1\n");
        assert_eq!(read(&mut jobs).0, JobSignals::default(), "nor any task");
        of("cgroup.events", "populated 1\nfrozen 0\n");
        let (job, cores) = read(&mut jobs);
        assert!(job.present && !job.waiting && job.age == Nanos::ZERO && job.class == class);
        assert_eq!((job.cpu, cores, job.disk_bytes), (0.0, None, 0), "nothing is known yet");
        assert_eq!(job.socket, 1);
        assert_eq!(jobs.notices().len(), 1, "its I/O is not counted");
        of("cpu.stat", "usage_usec 7500000\nuser_usec 1\n");
        of("io.stat", "8:0 rbytes=4096 wbytes=512\n");
        let (job, cores) = read(&mut jobs);
        assert_eq!((job.cpu, cores, job.age), (0.25, Some(0.25), Nanos::from_secs(2)));
        of("cpu.stat", "usage_usec 14500000\nuser_usec 1\n");
        of("io.stat", "8:0 rbytes=8192 wbytes=512\n");
        let (job, cores) = read(&mut jobs);
        assert_eq!((job.cpu, cores, job.disk_bytes), (1.0, Some(3.5), 4096));
        of("cgroup.freeze", "1");
        assert!(read(&mut jobs).0.waiting);
        std::fs::remove_dir_all(root.path().join(CGROUPS).join("b.slice/x.service")).unwrap();
        assert_eq!(read(&mut jobs), (JobSignals::default(), None));
        of("cgroup.events", "populated 1\nfrozen 0\n");
        of("cpu.stat", "usage_usec 5\n");
        let (job, cores) = read(&mut jobs);
        assert!(job.present && cores.is_none() && job.age == Nanos::ZERO, "another one");
        assert_eq!(jobs.notices(), [], "it was said");
    }

    #[test]
    fn only_what_reaches_drives_counts() {
        let text = "259:0 rbytes=4096 wbytes=512 rios=1 wios=1 dbytes=9 dios=1\n\
                    253:0 rbytes=4096 wbytes=512 rios=1 wios=1 dbytes=9 dios=1\n8:0 \n";
        assert_eq!(moved(text, &["259:0".to_owned(), "8:0".to_owned()]), 4608);
        assert_eq!(moved(text, &[]), 9216);
        assert_eq!(group::field("populated 1\nfrozen 0\n", "frozen"), Some(0));
        assert_eq!(group::field("populated 1\n", "frozen"), None);
    }
}
