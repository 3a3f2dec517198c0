//! Starting and stopping a runtime.

use std::io;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64};
use std::sync::mpsc::{Receiver as Channel, Sender as Report, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use ebb_policy::cpus;
use ebb_policy::reactor::{Core, Machine, Placement, Scheduler};
use ebb_policy::units::Nanos;
use rustix::thread::{CpuSet, sched_setaffinity, set_current_timer_slack};

use super::clock::Clock;
use super::core::{Reactor, State};
use super::counters::ThreadCounters;
use super::door;
use super::helm::Helm;
use super::log::Log;
use super::pilot::Pilot;
use super::ring::ring;
use super::shared::{Lightweight, Post, Shared};
use super::snapshot::{Monitor, Snapshot};
use super::topology;
use super::wait::{Strategy, Waiter};
use super::{Error, Task};

/// What a runtime runs on and how.
pub struct Config {
    /// CPUs, one reactor each; the first is the main core.
    pub cpus: Vec<usize>,
    /// Who places the threads.
    pub scheduler: Box<dyn Scheduler>,
    /// How cores doze; `None` for the best this machine has.
    pub wait: Option<Strategy>,
    /// Time between coarse steps.
    pub coarse: Nanos,
    /// Where the topology is read from.
    pub sysfs: PathBuf,
    /// Allows several reactors on one CPU: slow, for trying out more cores than a machine has.
    pub share_cpus: bool,
}

impl Config {
    /// The defaults: coarse steps every second, dozing by the best means, the real topology.
    #[must_use]
    pub fn new(cpus: Vec<usize>, scheduler: Box<dyn Scheduler>) -> Self {
        Self {
            cpus,
            scheduler,
            wait: None,
            coarse: Nanos::from_secs(1),
            sysfs: topology::SYSFS.into(),
            share_cpus: false,
        }
    }
}

/// Reactors at work. Dropping it stops them too.
pub struct Runtime {
    shared: Arc<Shared>,
    reactors: Vec<JoinHandle<Reactor>>,
}

impl Runtime {
    /// Pins one reactor to each CPU and lets them poll `tasks`, numbered in this order, until
    /// [`Runtime::stop`].
    ///
    /// # Errors
    /// When a CPU cannot be used, the CPU lacks what was chosen for dozing, or the system refuses
    /// threads or files. No task has been polled then.
    pub fn start(config: Config, tasks: Vec<Box<dyn Task>>) -> Result<Self, Error> {
        check_cpus(&config)?;
        let threads = u16::try_from(tasks.len())
            .map_err(|_| Error::TooMany { what: "threads", count: tasks.len() })?;
        let machine = topology::machine(&config.sysfs, &config.cpus, threads)?;
        let strategy = config.wait.unwrap_or_else(Strategy::best);
        let clock = Clock::start();
        let waiter = Waiter::new(strategy, clock)?;

        let Config { cpus, scheduler, coarse, .. } = config;
        let means = Means { waiter, clock, strategy };
        let (shared, reactors) = build(&cpus, machine, scheduler, coarse, tasks, means)?;
        Self::launch(shared, reactors)
    }

    /// Starts the threads; they begin once all of them are where they belong.
    fn launch(shared: Arc<Shared>, reactors: Vec<Reactor>) -> Result<Self, Error> {
        let (report, reports) = channel();
        let mut gates = Vec::with_capacity(reactors.len());
        let mut handles = Vec::with_capacity(reactors.len());
        let mut failed = None;
        for reactor in reactors {
            let cpu = shared.post(reactor.core).cpu;
            let (open, gate) = channel();
            let report = report.clone();
            let body = move || begin(reactor, cpu, &report, &gate);
            match thread::Builder::new().name(format!("ebb-reactor-{cpu}")).spawn(body) {
                Ok(handle) => handles.push(handle),
                Err(source) => failed = Some(refused("start a thread", cpu)(source)),
            }
            gates.push(open);
        }
        drop(report);
        let failed = failed.or_else(|| reports.iter().take(handles.len()).find_map(Result::err));
        let runtime = Self { shared, reactors: handles };
        if let Some(error) = failed {
            runtime.shared.stop(); // the closed gates let the threads go
            drop(gates);
            drop(runtime);
            return Err(error);
        }
        for gate in gates {
            let _ = gate.send(()); // its thread has reported and waits
        }
        Ok(runtime)
    }

    /// What the runtime has done so far.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.monitor().snapshot()
    }

    /// Looks at this runtime from elsewhere, also after it has stopped.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        Monitor(Arc::clone(&self.shared))
    }

    /// Gives it another scheduler from elsewhere.
    #[must_use]
    pub fn helm(&self) -> Helm {
        Helm(Arc::clone(&self.shared))
    }

    /// The core whose reactor has ended before it was stopped: a task panicked there.
    #[must_use]
    pub fn failed(&self) -> Option<Core> {
        self.reactors.iter().position(JoinHandle::is_finished).map(|core| core as Core)
    }

    /// Stops the reactors and gives the tasks back in their order. A panic of a task goes on here.
    #[must_use]
    pub fn stop(mut self) -> Vec<Box<dyn Task>> {
        let mut threads = self.join();
        threads.sort_by_key(|thread| thread.index);
        threads.into_iter().map(|thread| thread.task).collect()
    }

    fn join(&mut self) -> Vec<Lightweight> {
        self.shared.stop();
        let ended: Vec<_> = self.reactors.drain(..).map(JoinHandle::join).collect();
        let mut threads = Vec::with_capacity(self.shared.threads.len());
        for reactor in ended {
            match reactor {
                Ok(mut reactor) => {
                    threads.append(&mut reactor.threads);
                    // Nobody sends any more: what was under way is in the rings.
                    while let Some(thread) = reactor.inbox.pop() {
                        threads.push(thread);
                    }
                }
                Err(panic) if !thread::panicking() => std::panic::resume_unwind(panic),
                Err(_) => {}
            }
        }
        threads
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.join();
    }
}

/// What cores wait by.
#[derive(Clone, Copy)]
pub(super) struct Means {
    pub waiter: Waiter,
    pub clock: Clock,
    pub strategy: Strategy,
}

/// The reactors with their tasks where the scheduler starts them, and what they share.
pub(super) fn build(
    cpus: &[usize],
    machine: Machine,
    mut scheduler: Box<dyn Scheduler>,
    coarse: Nanos,
    tasks: Vec<Box<dyn Task>>,
    Means { waiter, clock, strategy }: Means,
) -> Result<(Arc<Shared>, Vec<Reactor>), Error> {
    let mut placement = Placement::even(machine);
    scheduler.start(&mut placement);
    let count = tasks.len();
    let (mut posts, mut ends) = (Vec::with_capacity(cpus.len()), Vec::with_capacity(cpus.len()));
    for (&cpu, &wait) in cpus.iter().zip(placement.waits()) {
        let (door, gate) = door::pair().map_err(refused("open event files", cpu))?;
        let (sender, inbox) = ring(count);
        posts.push(Post::new(cpu, door, sender, wait));
        ends.push((gate, inbox, wait));
    }
    let owned = tasks.iter().zip(placement.core_of());
    let shared = Arc::new(Shared {
        clock,
        strategy,
        posts: posts.into(),
        homes: placement.core_of().iter().map(|&core| AtomicU16::new(core)).collect(),
        threads: owned.map(|(task, core)| ThreadCounters::new(task.waiting(), *core)).collect(),
        stop: AtomicBool::new(false),
        log: Mutex::new(Log::new()),
        next: Mutex::default(),
        has_next: AtomicBool::new(false),
        unmet_speeds: AtomicU64::new(0),
    });
    let reactor = |(core, (gate, inbox, wait))| Reactor {
        core: core as Core,
        shared: Arc::clone(&shared),
        inbox,
        gate,
        waiter,
        pilot: None,
        threads: Vec::with_capacity(count),
        state: State::new(wait),
    };
    let mut reactors: Vec<_> = ends.into_iter().enumerate().map(reactor).collect();
    for (index, mut task) in tasks.into_iter().enumerate() {
        task.begin(clock);
        let core = usize::from(placement.core_of()[index]);
        reactors[core].threads.push(Lightweight::new(index as u16, task));
    }
    reactors[0].pilot = Some(Pilot::new(scheduler, placement, coarse));
    Ok((shared, reactors))
}

/// The life of a reactor's thread.
fn begin(
    reactor: Reactor,
    cpu: usize,
    report: &Report<Result<(), Error>>,
    gate: &Channel<()>,
) -> Reactor {
    // The starter outlives the report; without it the gate is closed too.
    let _ = report.send(settle(cpu).map_err(refused("pin a thread", cpu)));
    match gate.recv() {
        Ok(()) => reactor.run(),
        Err(_) => reactor,
    }
}

/// Pins the calling thread and lets its timers be exact: 50 µs of slack would blur naps.
pub(super) fn settle(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)?;
    set_current_timer_slack(NonZeroU64::new(1))?;
    Ok(())
}

fn check_cpus(config: &Config) -> Result<(), Error> {
    let cpus = &config.cpus;
    if cpus.is_empty() {
        return Err(Error::NoCpu);
    }
    if cpus.len() > usize::from(u16::MAX) {
        return Err(Error::TooMany { what: "CPUs", count: cpus.len() });
    }
    usable(cpus)?;
    let twice = |(index, cpu): (usize, &usize)| cpus[..index].contains(cpu).then_some(*cpu);
    match cpus.iter().enumerate().find_map(twice) {
        Some(cpu) if !config.share_cpus => Err(Error::Twice { cpu }),
        _ => Ok(()),
    }
}

/// Checks that this process may run on all of `cpus`.
pub(super) fn usable(cpus: &[usize]) -> Result<(), Error> {
    let allowed = topology::allowed().map_err(|source| Error::Refused {
        what: "read the affinity",
        cpu: cpus[0],
        source,
    })?;
    match cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        Some(&cpu) => Err(Error::NotAllowed { cpu, allowed: cpus::text(&allowed) }),
        None => Ok(()),
    }
}

fn refused(what: &'static str, cpu: usize) -> impl Fn(io::Error) -> Error {
    move |source| Error::Refused { what, cpu, source }
}
