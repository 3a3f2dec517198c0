//! This server as a plant: what a cycle senses of it, and what it makes of what is given.

mod follow;
mod latency;
mod recall;

use std::time::Instant;

use ebb_policy::units::{Nanos, Watts};
use ebb_policy::{
    Applied, Control, InForce, Outcome, Plant, PowerModel, Signal, Signals, Steward, Topology,
};

use crate::act::acting::Acting;
use crate::act::contact::{Contact, PowerWatch, Trial, Verdict};
use crate::act::groups::lacks_cpuset;
use crate::act::hold::{Held, Hold, Holds};
use crate::act::idle_wake;
use crate::act::knob::Place;
use crate::act::lock;
use crate::act::originals::{Leave, Original, Originals, State};
use crate::act::owned::StateError;
use crate::act::places::{self, Unit};
use crate::act::steering::{Contest, Notice, Steering, Verified};
use crate::act::tasks::Tasks;
use crate::find::cpus::Policy;
use crate::find::layout::{DriveParts, Impossible, Layout, ParkBy, Stated};
use crate::find::machine::Machine;
use crate::find::parts::{Chips, Drives, Glance};
use crate::sense::crowd::Crowd;
use crate::sense::drive_watch::DriveWatch;
use crate::sense::jobs::Jobs;
use crate::sense::meter_lag::MeterLag;
use crate::sense::run_queue::RunQueues;
use crate::sense::sensors::Sensors;
use crate::sense::throttled::Throttled;

pub use follow::Followed;
pub use recall::Recalled;

/// A server.
#[derive(Debug)]
pub struct Host {
    machine: Machine,
    layout: Layout,
    topology: Topology,
    sensors: Sensors,
    /// What tasks wait for CPUs, and why that is not known.
    queues: RunQueues,
    unseen: Option<String>,
    drives: Vec<DriveWatch>,
    jobs: Jobs,
    throttled: Throttled,
    acting: Option<Acting>,
    /// What was given last, and who looks for a crowd that it is too little for.
    given: InForce,
    crowd: Crowd,
    /// What was stated and is steered.
    stated: Stated,
    owned: Vec<Control>,
    /// What the operator holds, and where it was held at the start.
    holds: (Holds, Vec<Place>),
    /// What there was when that was last looked at, and when each chip and drive came.
    glance: Glance,
    chips: Chips,
    came: Drives,
    /// CPUs that somebody else has taken offline.
    away: Vec<u16>,
    /// When drives that did not say what they are are asked again.
    asks_late: Nanos,
    /// Whether fans or sockets' sensors have come that were not there at the start.
    cooling: bool,
    /// Cores of each group without those.
    present: Vec<u16>,
    /// How late the meter of the whole server is.
    lag: MeterLag,
    /// Of the packages' power limit, where one is held.
    power: Option<(Watts, PowerWatch)>,
    /// When it was first sensed. What came before is no period in which anything could be missing.
    begun: Option<Instant>,
    now: Nanos,
}

impl Host {
    /// `machine` as the controls `owned` see it; nothing is changed.
    ///
    /// # Errors
    /// What is stated and cannot be.
    pub fn new(machine: Machine, stated: &Stated, owned: &[Control]) -> Result<Self, Impossible> {
        let (layout, mut topology) = Layout::new(&machine, stated, owned)?;
        topology.limitable.frequencies &= !machine.cpus.policies.is_empty();
        topology.limitable.cores &=
            layout.park_by != ParkBy::Cpuset || lacks_cpuset(&machine.sys).is_none();
        topology.limitable.packages &=
            layout.limits_packages && machine.limited_packages().next().is_some();
        let sensors = Sensors::new(&machine, &layout);
        let drives = layout.drives.iter().map(|drive| DriveWatch::new(&machine, drive)).collect();
        let jobs = Jobs::new(&machine, &layout);
        let throttled = Throttled::new(&machine, &layout);
        let chips = Chips::new(&machine.sys, &machine.chips);
        let mut queues = RunQueues::new(&machine.sys);
        let came = Drives::new(&machine.sys, layout.drives.iter().map(|parts| &parts.drive));
        Ok(Self {
            stated: stated.clone(),
            owned: owned.to_vec(),
            holds: Default::default(),
            // The first look finds what has changed since the machine was found.
            glance: Glance::default(),
            chips,
            came,
            away: Vec::new(),
            asks_late: Nanos::ZERO,
            cooling: false,
            present: layout.groups.iter().map(|cores| cores.len() as u16).collect(),
            given: InForce::new(&topology),
            crowd: Crowd::new(&machine),
            machine,
            layout,
            topology,
            sensors,
            unseen: queues.missing(),
            queues,
            drives,
            jobs,
            throttled,
            acting: None,
            lag: MeterLag::default(),
            power: None,
            begun: None,
            now: Nanos::ZERO,
        })
    }

    /// Its parts, as policies see them.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Takes in what the machine draws, part by part, and how late its meter is as far as that is
    /// stated, before policies are made.
    pub fn set_power(&mut self, power: PowerModel, lag: Nanos) {
        self.topology.power = Some(power);
        self.lag = MeterLag::new(lag);
    }

    /// How late the meter of the whole server is.
    #[must_use]
    pub fn meter_lag(&self) -> Nanos {
        self.lag.age()
    }

    /// Which part of the machine each of them is.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// What an operator should know before it starts: fans that are left alone, ceilings of
    /// frequencies, drives that are capped by a limit.
    #[must_use]
    pub fn remarks(&self, owned: &[Control]) -> Vec<String> {
        let owns = |control| owned.contains(&control);
        let mut remarks = self.layout.fans.remarks(&self.machine);
        if owned.iter().any(|one| one.is_of_cores() && !one.parks()) {
            let raises = self.layout.raise_limits;
            remarks.extend(self.machine.cpus.ceilings(raises));
        }
        if owned.iter().any(|one| one.is_of_cores()) {
            remarks.extend(self.machine.cpus.apart_remark(|cpu| self.stated.names(cpu)));
        }
        if owns(Control::IdleWake) && !self.layout.raise_limits {
            remarks.extend(idle_wake::off(&self.machine, &self.layout));
        }
        if owns(Control::PowerState) {
            remarks.extend(self.layout.drives.iter().filter_map(DriveParts::limit_remark));
            remarks.extend(self.layout.drives.iter().filter_map(DriveParts::absurd_remark));
        }
        if owns(Control::FanDuty) {
            remarks.extend(self.layout.drives.iter().filter_map(DriveParts::heat_remark));
        }
        remarks.extend(self.limits(owned));
        if !self.layout.throttle.is_empty() {
            remarks.extend(self.layout.drives.iter().filter_map(DriveParts::rates_remark));
        }
        remarks.extend(self.layout.reactor_remark(&self.machine.cpus.policies));
        remarks.extend(self.layout.job_remarks(&self.topology));
        remarks
    }

    /// By what a budget of the whole server is kept here, for people.
    fn limits(&self, owned: &[Control]) -> Option<String> {
        let all = [
            (Control::CoreLimit, "cores"),
            (Control::FrequencyLimit, "clocks"),
            (Control::PackageLimit, "the packages' power"),
            (Control::CpuTime, "CPU time"),
            (Control::ReadRate, "rates of drives"),
        ];
        let mut of_budgets = owned.iter().filter(|one| one.row().steward == Steward::Server);
        of_budgets.next()?;
        let names = |has: bool| {
            let its = all.iter().filter(|(control, _)| owned.contains(control));
            let its = its.filter(|(control, _)| control.is_in(&self.topology) == has);
            its.map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
        };
        let (here, missing) = (names(true), names(false));
        let missing = match missing.is_empty() {
            true => String::new(),
            false => format!("; not by {missing} (docs/policies/budget.md)"),
        };
        Some(format!("the budget of the whole server is kept by {here}{missing}"))
    }

    /// Begins to act: what the controls `owned` are set to now is on disk when this returns, and
    /// nothing was changed yet. What cannot be read cannot be set back, and is not steered; the
    /// reasons come back.
    ///
    /// # Errors
    /// Where it cannot be saved; then nothing may be steered.
    pub fn act(
        &mut self,
        owned: &[Control],
        mut holds: Held,
        leave: impl Fn(Control) -> Leave,
        contest: Contest,
        state: &State,
    ) -> Result<Vec<Notice>, StateError> {
        let places = holds.constant.iter().map(|hold| hold.place.clone());
        self.holds = (holds.of.clone(), places.collect());
        let raises = self.layout.raise_limits;
        let mut unreadable = std::mem::take(&mut holds.left);
        if !raises {
            unreadable.extend(holds.keep_limits(&self.machine));
        }
        let units = places::units(&self.machine, &self.layout, &self.topology, owned);
        let held = Hold::units(&holds.constant)
            .map(|holds| Unit::held(holds.iter().map(|hold| &hold.place)));
        let mut found = Vec::new();
        for unit in units.into_iter().chain(held) {
            match unit.originals(&self.machine, &leave) {
                Ok(originals) => found.extend(originals),
                Err(notice) => unreadable.push(notice),
            }
        }
        let known: Vec<_> = found.iter().map(|original| original.place.clone()).collect();
        let boot = self.machine.boot().unwrap_or_default();
        let Originals { originals: all, tasks, .. } = state.save(&boot, found)?;
        lock::remember(&self.machine.sys, state.path())?;
        // What an earlier start has steered and this one does not is still to be set back, at the
        // end.
        let steered: Vec<Original> =
            all.into_iter().filter(|original| known.contains(&original.place)).collect();
        let steering = Steering::new(&self.machine, steered, contest, state.clone());
        let root = self.layout.park_by == ParkBy::Offline;
        let tasks = Tasks::of(&self.machine.sys, tasks, root);
        self.acting =
            Some(Acting::new(&self.machine, &self.layout, steering, tasks, &holds, state));
        self.power = holds.package_power().map(|limit| (limit, PowerWatch::default()));
        Ok(unreadable)
    }

    /// Tries each kind of control once on this start of the machine and its parts, and does without
    /// what is refused. What was tried comes back; on later starts what does not work alone.
    #[must_use]
    pub fn contact(&mut self, state: &State) -> Vec<Trial> {
        let Some(acting) = &mut self.acting else { return Vec::new() };
        let boot = std::iter::once(self.machine.boot().unwrap_or_default());
        let of: Vec<_> = boot.chain(acting.places()).collect();
        let works = |trial: &Trial| trial.verdict == Verdict::Works;
        let known = Contact::load(state, &of);
        let is_known = known.is_some();
        let contact = known.unwrap_or_else(|| {
            let trials = acting.contact(&self.machine, &self.topology);
            // Where that fails an end sets back more than it has to.
            let _ = acting.let_go(self.now);
            Contact { of, trials }
        });
        contact.save(state);
        acting.refuse(&contact);
        contact.trials.into_iter().filter(|trial| !is_known || !works(trial)).collect()
    }

    /// What steered the frequency of the first core of `group` when the machine was found.
    #[must_use]
    pub fn governor(&self, group: usize) -> Option<&Policy> {
        let cpu = self.layout.groups.get(group)?.first()?.cpus.first()?;
        self.machine.cpus.policies.iter().find(|policy| policy.cpus.contains(cpu))
    }

    /// When it was last sensed, since the start.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Time since it was first sensed.
    fn since(&mut self) -> Nanos {
        let now = Instant::now();
        let since = now.duration_since(*self.begun.get_or_insert(now));
        Nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Lets the reactors' cores run at up to the share of the ceiling found that `asked` says of
    /// each CPU. Of what it says nothing is released, with all CPUs of its frequency domain.
    pub fn pace_reactors(&mut self, asked: impl Fn(u16) -> Option<f64>) {
        if let Some(acting) = &mut self.acting {
            acting.pace_reactors(asked, self.now);
        }
    }

    /// Hears how many bytes a second each of [`Layout::hosts`] moved.
    pub fn hosts_used(&mut self, used: impl Iterator<Item = f64>) {
        if let Some(acting) = &mut self.acting {
            acting.hosts_used(used);
        }
    }

    /// How many bytes a second each of them may move; nothing of a machine that is only observed.
    pub fn hosts_given(&self) -> impl Iterator<Item = Option<f64>> {
        self.acting.iter().flat_map(|acting| acting.hosts_given())
    }

    /// Whether it acts.
    #[must_use]
    pub fn is_acting(&self) -> bool {
        self.acting.is_some()
    }

    /// What an operator should know since this was last asked.
    pub fn notices(&mut self) -> Vec<Notice> {
        let mut notices = self.sensors.notices();
        notices.extend(self.jobs.notices());
        notices.extend(self.drives.iter_mut().filter_map(DriveWatch::notice));
        notices.extend(self.acting.as_mut().map(Acting::notices).unwrap_or_default());
        notices
    }

    /// Puts on disk which settings an end is to write: not those that Ebb has not set.
    ///
    /// # Errors
    /// Where that cannot be written; then an end writes settings like those that it has set, too.
    pub fn let_go(&mut self) -> Result<(), StateError> {
        self.acting.as_mut().map_or(Ok(()), |acting| acting.let_go(self.now))
    }

    /// Compares all places that are set with what they say now, but those of drives that sleep;
    /// nothing is changed. `None` of who does not act.
    pub fn verify(&mut self) -> Option<Verified> {
        let Self { acting, drives, now, .. } = self;
        let sleeps = |drive: usize| !drives[drive].is_awake(*now);
        Some(acting.as_mut()?.verify(*now, sleeps))
    }

    /// How many places do not take what they are given, or are somebody else's.
    #[must_use]
    pub fn failing(&self) -> usize {
        self.acting.as_ref().map_or(0, Acting::failing)
    }
}

impl Host {
    /// As [`Plant::sense`], at a time that the caller says.
    pub fn sense_at(&mut self, now: Nanos, signals: &mut Signals) {
        signals.period = now.saturating_sub(signals.now);
        signals.now = now;
        self.now = now;
        let all = |group: usize| self.present[group];
        match &self.acting {
            Some(acting) => self.sensors.read(signals, |group| acting.active(group)),
            None => self.sensors.read(signals, all),
        }
        self.jobs.read(signals);
        self.add_cpus(signals);
        // Only who keeps a budget by the meter needs to know how late it is.
        if self.owned.iter().any(|control| control.row().steward == Steward::Server) {
            self.sensors.date_power(signals, &mut self.lag);
        }
        if let Some(acting) = &mut self.acting {
            acting.sensed(&signals.cooling.fans);
            acting.seen(self.jobs.seen());
            let see = |(limit, watch): &mut (Watts, PowerWatch)| {
                watch.see(*limit, signals.power.cpu, now)
            };
            self.power.as_mut().and_then(see).into_iter().for_each(|text| acting.note_power(text));
        }
        for (at, drive) in self.drives.iter_mut().enumerate() {
            drive.read(signals, at);
        }
        let uses = self.throttled.read(signals);
        if let Some(acting) = &mut self.acting {
            acting.used(&self.machine, uses, signals);
        }
        let here = || (0..self.drives.len()).filter(|at| self.came.has(*at));
        let drives = here().map(|at| signals.drives[at].power);
        signals.power.ssd = drives.sum::<Option<_>>().filter(|_| here().next().is_some());
        let sources = here().map(|at| signals.sources.of(Signal::DrivePower, at));
        // As good as the worst of them.
        if let Some(source) = sources.max_by_key(|source| (source.origin, source.age)) {
            signals.sources.set(Signal::SsdPower, 0, source);
        }
    }
}

impl Plant for Host {
    fn sense(&mut self, signals: &mut Signals) {
        let now = self.since();
        self.sense_at(now, signals);
    }

    fn apply(&mut self, given: &InForce, applied: &mut Applied) {
        let Some(acting) = &mut self.acting else { return };
        let sleeps = |drive: usize| !self.drives[drive].is_awake(self.now);
        let mut tell = |control: Control, part: usize, outcome: Outcome| {
            applied.set(control, part, outcome);
        };
        acting.apply(given, self.now, sleeps, &mut tell);
        for (at, drive) in self.drives.iter_mut().enumerate() {
            acting.power_state(at).into_iter().for_each(|(read, state)| drive.took(read, state));
        }
        self.begin_watch(given, applied);
    }
}
