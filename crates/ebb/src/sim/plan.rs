//! What is to be simulated: one server, one source of requests, several policies.

use std::iter;
use std::sync::Arc;

use anyhow::{Context, Result};

use ebb_cli::input::{Traces, Watch};
use ebb_cli::progress::Progress;
use ebb_cli::text::short;
use ebb_cli::usage;
use ebb_policy::registry::{self, Settings};
use ebb_policy::server::check_meter;
use ebb_policy::units::{Nanos, Watts};
use ebb_policy::{Limits, PERIOD, Policy, PolicyError, Settling};
use ebb_trace::generate::{Job, JobSpec, PartDevices, Rate, WorkloadSpec};
use ebb_trace::{Source, Workload};
use ebb_twin::faults::Faults;
use ebb_twin::profile::{Governor, Wait};
use ebb_twin::{AsHost, Change};

use super::args::SimArgs;
use super::change::Change as Stated;
use super::levers;
use super::maximum::maximum;
use super::options::{self, DEFAULT_DURATION, DEFAULT_PROFILE, Example};
use super::sampled::{self, Sample};
use crate::curve;
use crate::server::Server;

/// The policies that know the load (`hindsight.rs`), and what they find.
pub const FORETOLD: [(&str, &str); 4] = [
    ("clairvoyant-cores", "the best known cores and frequency within plf"),
    ("clairvoyant-caps", "the best known drive caps within --ssd-budget"),
    ("clairvoyant-fans", "the best known fan duties and frequencies until all is done, within plf"),
    ("clairvoyant-budget", "the best known limits of cores and drives within --server-budget"),
];

/// Whether a policy knows the load.
pub fn is_foretold(policy: &str) -> bool {
    FORETOLD.iter().any(|(name, _)| *name == policy)
}

/// Where requests come from; made anew for each run.
pub enum Requests {
    /// Trace files, perhaps folded onto the server.
    Traces { traces: Arc<Traces>, fold: bool, again: bool },
    /// A generator.
    Generated(Box<WorkloadSpec>),
}

/// A scenario: everything but the policy is the same in all its runs.
pub struct Plan {
    /// The server.
    pub server: Server,
    /// Names of the policies, the reference first.
    pub policies: Vec<String>,
    /// What the operator states.
    pub settings: Settings,
    /// The same from a time on, by time.
    pub changes: Vec<(Nanos, Settings)>,
    /// Where requests come from.
    pub requests: Requests,
    /// When to stop taking requests.
    pub duration: Option<Nanos>,
    /// Simulated but not counted.
    pub warmup: Nanos,
    /// The same as stated, before it was rounded.
    pub warmup_stated: Option<Nanos>,
    /// When all policies have settled, as far as that is known beforehand.
    pub settled: Settling,
    /// In what time a trace comes round that is played again and again; 0 where that is not known.
    pub round: Nanos,
    /// Seed of everything random.
    pub seed: u64,
    /// Injected faults.
    pub faults: Option<Faults>,
    /// What a host would sense, where that is played.
    pub senses: Option<AsHost>,
    /// Whether the guard's thermal limits hold.
    pub thermal_guard: bool,
    /// Whether the guard keeps the budget of the whole server.
    pub budget_guard: bool,
    /// Share of [`Plan::maximum`] that was asked for.
    pub pressure: Option<f64>,
    /// Most requests per second, where it was measured.
    pub maximum: Option<f64>,
    /// What of the load is simulated, where that is a share of it.
    pub sample: Option<Sample>,
    /// Whether this is the built-in example.
    pub example: bool,
}

impl Requests {
    /// How many runs to do at once, of so many; all of them where they read one pipe together.
    pub fn threads(&self, runs: usize, asked: Option<u16>) -> Option<u16> {
        match self {
            Self::Traces { traces, .. } if traces.flows() => u16::try_from(runs).ok(),
            _ => asked,
        }
    }

    /// A run has failed and may not have opened them.
    pub fn go_on(&self) {
        if let Self::Traces { traces, .. } = self {
            traces.go_on();
        }
    }
}

impl Plan {
    /// The scenario of a command line.
    pub fn new(args: &SimArgs) -> Result<Self> {
        options::contradictions(args)?;
        sampled::contradictions(args)?;
        let example = options::is_example(args);
        let profile = if example { Example::PROFILE } else { DEFAULT_PROFILE };
        let mut server = Server::load(args.profile.as_deref().unwrap_or(profile))?;
        if let Some(governor) = args.governor {
            server.profile.cpu.governor = governor;
        }
        let ssd_budget = args.ssd_budget;
        let mut policies = args.policies.clone();
        if example {
            policies = Example::POLICIES.map(str::to_owned).to_vec();
        } else if policies.is_empty() {
            policies = vec!["native".to_owned()];
        }
        if args.curve.is_some() && !policies.iter().any(|name| uses_curve(name)) {
            return Err(usage(format!(
                "--curve is for eadc and eadc-plus; of --policy {} none uses it",
                policies.join(", ")
            )));
        }
        if args.tail.is_some() && !policies.iter().any(|name| registry::keeps_tail(name)) {
            return Err(usage(format!(
                "--tail is for pacer and its variants; of --policy {} none keeps it",
                policies.join(", ")
            )));
        }
        let curve = args.curve.as_deref().map(curve::read).transpose()?;
        let (tail, server_budget) = (args.tail, args.server_budget);
        let settings = Settings { plf: args.plf, tail, ssd_budget, server_budget, curve };
        let changes = changes(&args.change, &settings);
        if let Some(how) = args.as_host {
            server.topology.limitable = ebb_policy::live::limitable(how.throttle, how.throttle);
        }
        for settings in iter::once(&settings).chain(changes.iter().map(|(_, settings)| settings)) {
            // A wrong name is told even where nothing says yet what to run.
            check_policies(&policies, &server, settings)?;
        }
        options::something_to_run(args)?;
        let requests = requests(args, &policies)?;
        let campaign = if args.faults_wide { Faults::wide } else { Faults::seeded };
        let mut plan = Self {
            duration: args.duration.or_else(|| length(args, &requests, example)),
            settings,
            changes,
            requests,
            policies,
            server,
            warmup: args.warmup.map_or(Nanos::ZERO, whole_periods),
            warmup_stated: args.warmup,
            settled: Settling::AT_ONCE,
            round: Nanos::ZERO,
            seed: args.seed,
            faults: args.faults.map(|seed| campaign(seed).until(args.faults_until)),
            senses: args.as_host,
            thermal_guard: !args.no_thermal_guard,
            budget_guard: !args.no_budget_guard,
            pressure: args.workload.pressure.or(example.then_some(Example::PRESSURE)),
            maximum: None,
            sample: None,
            example,
        };
        if args.sampled.is_none() {
            plan.settle()?;
        }
        plan.check()?;
        Ok(plan)
    }

    fn check_times(&self) -> Result<()> {
        if let (Some(end), Some((at, _))) = (self.duration, self.changes.last())
            && *at >= end
        {
            return Err(usage(format!(
                "--change at {at} comes after a duration of {end}: state it earlier, or give a \
                 longer --duration"
            )));
        }
        self.duration.map_or(Ok(()), |duration| options::something_counts(self.warmup, duration))
    }

    fn check_senses(&self) -> Result<()> {
        let polls = self.server.profile.cpu.wait == Wait::Poll;
        if polls && self.senses.is_some_and(|senses| !senses.served) {
            return Err(usage(format!(
                "the cores of profile '{}' poll: to Linux they are busy all the time, and `ebb \
                 run` leaves them alone unless `ebb serve` tells their load: --as-host served",
                self.server.profile.name
            )));
        }
        Ok(())
    }

    /// Refuses what no run could do, before any run starts.
    fn check(&self) -> Result<()> {
        self.check_times()?;
        if self.faults.is_some() && self.server.profile.thermal.is_none() {
            return Err(usage(format!(
                "--faults breaks sensors and fans, which profile '{}' does not model: choose one \
                 with a [thermal] section, such as thermal-1u",
                self.server.profile.name
            )));
        }
        self.check_senses()?;
        if self.maximum.is_none() && self.needs_maximum() {
            return Ok(()); // Built and checked once the maximum is known.
        }
        if let Requests::Traces { traces, fold, .. } = &self.requests {
            return traces.check(fold.then(|| self.server.volumes()));
        }
        self.workload().map(|_| ())
    }

    /// Who caps what the policies of `name` ask for, where that is any of its parts.
    pub fn coordinator(&self, name: &str) -> Result<Option<Box<dyn Policy>>> {
        let (_, coordinators) = registry::split(name)?;
        coordinators.map(|part| made(&part, &self.server, &self.settings)).transpose()
    }

    /// Makes the policy `name` for the server.
    pub fn policy(&self, name: &str) -> Result<Box<dyn Policy>> {
        policy(name, &self.server, &self.settings)
    }

    /// Policies of this plan that have nothing to set, each once, and why; and what they lack.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.thermal_guard {
            notes.push("the guard's thermal limits are off (--no-thermal-guard)".to_owned());
        }
        if !self.budget_guard {
            notes.push("the guard's limit of the whole server is off (--no-budget-guard)".into());
        }
        if self.senses.is_some() {
            notes.push("policies sense and act as on a server (--as-host)".to_owned());
        }
        if self.server.profile.cpu.governor != Governor::Performance {
            notes.push("below what policies ask for schedutil chooses the frequency".to_owned());
        }
        if self.changes.iter().any(|(_, settings)| settings.plf != self.settings.plf) {
            notes.push("verdicts are by the tolerance of the start".to_owned());
        }
        if let Requests::Generated(spec) = &self.requests {
            notes.extend(spec.notes());
        }
        if let Some(stated) = self.warmup_stated.filter(|stated| *stated != self.warmup) {
            notes.push(format!(
                "a warm-up of {} is left out instead of {stated}: whole periods of {PERIOD}",
                self.warmup
            ));
        }
        let profile = &self.server.profile;
        let eadc = |name: &String| uses_curve(name);
        let disks = profile.drive().is_none() && profile.vibration.is_some();
        if disks && self.settings.curve.is_none() && self.policies.iter().any(eadc) {
            notes.push(format!(
                "eadc was given no --curve and takes the disks not to feel the fans; `ebb \
                 characterise --profile {} --out curve.toml` measures one",
                profile.name
            ));
        }
        if let Some(budget) = self.settings.ssd_budget {
            let drives = self.server.topology.drives.iter();
            let most: Watts = drives.map(|drive| drive.cap(0)).sum();
            if most <= budget {
                notes.push(format!(
                    "the budget limits nothing: the drives draw {} W at most",
                    short(most.0)
                ));
            }
        }
        let levers = |name: &String| levers::notes(&self.server, name).into_iter();
        for note in self.policies.iter().flat_map(|name| levers(name).chain(self.idle(name))) {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        notes
    }

    /// The parts of a policy that set nothing under any of the settings of a run, and why.
    fn idle(&self, name: &str) -> Vec<String> {
        let server = &self.server;
        let idle = |settings| registry::idle(name, &server.topology, settings).unwrap_or_default();
        let later: Vec<_> = self.changes.iter().map(|(_, settings)| idle(settings)).collect();
        let stays = |part| later.iter().all(|idle| idle.iter().any(|(other, _)| *other == part));
        let note = |(part, why)| format!("{part} sets nothing on {}: {why}", server.profile.name);
        let always = idle(&self.settings).into_iter().filter(|(part, _)| stays(*part));
        always.map(note).collect()
    }

    /// What changes in the course of a run of the policy `name`.
    pub fn changes(&self, name: &str) -> Result<Vec<Change>> {
        let before = iter::once(&self.settings).chain(self.changes.iter().map(|(_, after)| after));
        let change = |(before, (at, settings)): (&Settings, &(Nanos, Settings))| {
            // A policy of which nothing changes goes on.
            let same = Settings { server_budget: settings.server_budget, ..before.clone() };
            let anew = (same != *settings).then(|| policy(name, &self.server, settings));
            Ok(Change {
                at: *at,
                policy: anew.transpose()?,
                ssd_budget: settings.ssd_budget,
                limit: enforced(name, settings),
                server_budget: settings.server_budget.filter(|_| name != "native"),
            })
        };
        before.zip(&self.changes).map(change).collect()
    }

    /// What the guard enforces on the policy `name`: nothing but the server's own bounds on
    /// native, which is the uncapped reference.
    pub fn limits(&self, name: &str) -> Limits {
        let usual = if self.thermal_guard { Limits::default() } else { Limits::without_heat() };
        Limits {
            ssd_budget: enforced(name, &self.settings),
            server_budget: self.settings.server_budget.filter(|_| name != "native"),
            budget_guard: self.budget_guard,
            ..usual
        }
    }

    /// The requests, from their beginning.
    pub fn workload(&self) -> Result<(Workload, Watch)> {
        match &self.requests {
            Requests::Traces { traces, fold, again } => {
                let onto = fold.then(|| self.server.volumes());
                let opened = if *again { traces.open_again(onto) } else { traces.open(onto) };
                let (source, watch) = opened?;
                let source: Box<dyn Source> = match &self.sample {
                    Some(sample) => Box::new(sample.of(source)),
                    None => source,
                };
                Ok((Workload::Open(source), watch))
            }
            Requests::Generated(spec) => {
                let context = self.server.context(spec, self.seed);
                if let Some(sample) = &self.sample {
                    return Ok((spec.excerpt(&context, sample.pieces())?, Watch::default()));
                }
                // Nothing is made up beyond the end.
                let spec = WorkloadSpec { duration: self.duration, ..(**spec).clone() };
                Ok((spec.build(&context)?, Watch::default()))
            }
        }
    }

    /// The jobs beside them.
    pub fn jobs(&self) -> Result<Vec<Job>> {
        match &self.requests {
            Requests::Traces { .. } => Ok(Vec::new()),
            Requests::Generated(spec) => {
                Ok(spec.batch_jobs(&self.server.context(spec, self.seed))?)
            }
        }
    }

    /// How long a run takes on its clock, where that is known before.
    pub fn length(&self) -> Option<Nanos> {
        self.duration.or_else(|| match &self.requests {
            Requests::Traces { traces, .. } => traces.length(),
            Requests::Generated(_) => None,
        })
    }

    /// A name of the requests, for headings.
    pub fn workload_name(&self) -> String {
        match &self.requests {
            Requests::Traces { traces, .. } => traces.names().join(", "),
            Requests::Generated(spec) => spec.name.clone(),
        }
    }

    /// Whether requests wait for the answers to others.
    pub fn is_closed(&self) -> bool {
        matches!(&self.requests, Requests::Generated(spec) if spec.is_closed())
    }

    /// The parts that are closed loops where others come by the clock, for headings.
    pub fn closed_parts(&self) -> Vec<&str> {
        let Requests::Generated(spec) = &self.requests else { return Vec::new() };
        let is_closed = |job: &&JobSpec| {
            job.rate == Rate::Max || job.stages.iter().any(|stage| stage.rate == Rate::Max)
        };
        let (closed, timed): (Vec<&JobSpec>, Vec<_>) = spec.jobs.iter().partition(is_closed);
        let others = spec.rocksdb.iter().map(|part| part.name.as_str());
        let others = others.chain(spec.readers.iter().map(|part| part.name.as_str()));
        let closed = closed.into_iter().map(|part| part.name.as_str()).chain(others);
        if timed.is_empty() { Vec::new() } else { closed.collect() }
    }

    /// Whether a request waits for one of the load's threads before it is sent.
    pub fn has_threads(&self) -> bool {
        matches!(&self.requests, Requests::Generated(spec) if !spec.jobs.is_empty())
    }

    /// Whether a trace is folded onto the server; `None` without a trace.
    pub fn folds(&self) -> Option<bool> {
        match self.requests {
            Requests::Traces { fold, .. } => Some(fold),
            Requests::Generated(_) => None,
        }
    }

    /// The parts of a generated load that has several, and whether each has drives of its own.
    pub fn parts(&self) -> (Vec<PartDevices>, bool) {
        let Requests::Generated(spec) = &self.requests else { return (Vec::new(), false) };
        let drives = self.server.profile.drives.count;
        let mut parts = spec.parts(drives);
        if parts.len() < 2 {
            parts.clear();
        }
        let mut sorted: Vec<_> = parts.iter().map(|part| (part.first, part.count)).collect();
        sorted.sort_unstable();
        let apart = sorted.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0);
        (parts, apart && self.server.volumes().0 == drives)
    }

    fn needs_maximum(&self) -> bool {
        let Requests::Generated(spec) = &self.requests else { return false };
        self.pressure.is_some() || spec.needs_maximum()
    }

    /// Measures what the server can do at most, where a rate is a share of it.
    pub fn measure(&mut self, progress: &Progress) -> Result<()> {
        if !self.needs_maximum() {
            return Ok(());
        }
        let Requests::Generated(spec) = &mut self.requests else { return Ok(()) };
        let most = maximum(&self.server, spec, self.seed, progress)?;
        let spec = spec.as_mut();
        *spec = match self.pressure {
            Some(share) => spec.clone().with_rate(share * most),
            None => spec.clone().with_maximum(most),
        };
        self.maximum = Some(most);
        self.workload().map(|_| ())
    }

    /// The budgets that drives are held against, one after the other.
    pub fn ssd_budgets(&self) -> impl Iterator<Item = Watts> {
        let settings = iter::once(&self.settings).chain(self.changes.iter().map(|(_, s)| s));
        settings.filter_map(|settings| settings.ssd_budget)
    }

    /// The budget that drives are held against at the start.
    pub fn ssd_budget(&self) -> Option<Watts> {
        self.settings.ssd_budget
    }
}

/// Whether one of the policies of `a+b` takes the disks' curve.
fn uses_curve(name: &str) -> bool {
    registry::names(name).any(|part| part.starts_with("eadc"))
}

/// The budget that the guard enforces on the policy `name`.
fn enforced(name: &str, settings: &Settings) -> Option<Watts> {
    settings.ssd_budget.filter(|_| name != "native")
}

/// The settings from each change on.
fn changes(stated: &[Stated], start: &Settings) -> Vec<(Nanos, Settings)> {
    let mut stated: Vec<_> = stated.iter().collect();
    stated.sort_by_key(|change| change.at);
    let mut settings = start.clone();
    let mut next = |change: &Stated| {
        settings = change.applied(&settings);
        (change.at, settings.clone())
    };
    stated.into_iter().map(&mut next).collect()
}

/// The policies of `name` but those that cap the others.
fn policy(name: &str, server: &Server, settings: &Settings) -> Result<Box<dyn Policy>> {
    let (policies, _) = registry::split(name).with_context(|| format!("--policy {name}"))?;
    made(&policies, server, settings)
}

fn made(name: &str, server: &Server, settings: &Settings) -> Result<Box<dyn Policy>> {
    registry::make(name, &server.topology, settings).with_context(|| format!("--policy {name}"))
}

/// Refuses a policy that is unknown or given twice, and a budget that the drives cannot keep.
fn check_policies(policies: &[String], server: &Server, settings: &Settings) -> Result<()> {
    for (index, name) in policies.iter().enumerate() {
        if policies[..index].contains(name) {
            return Err(usage(format!("--policy {name} is given twice: once is enough")));
        }
    }
    if let Some(budget) = settings.ssd_budget {
        let lowest = server.topology.lowest_drive_budget();
        if budget < lowest {
            let drives = server.topology.drives.len();
            let error = PolicyError::Budget { budget, lowest, drives };
            return Err(anyhow::Error::from(error).context("--ssd-budget"));
        }
    }
    if let Some(budget) = settings.server_budget {
        ebb_policy::check_server_budget(&server.topology, budget).context("--server-budget")?;
        check_meter(server.profile.board.meter_lag).context("--server-budget")?;
    }
    let causal = policies.iter().filter(|name| !is_foretold(name));
    causal.into_iter().try_for_each(|name| made(name, server, settings).map(|_| ()))
}

/// Where the requests come from that the options name, for runs under `policies`.
pub fn requests(args: &SimArgs, policies: &[String]) -> Result<Requests> {
    let input = &args.trace;
    if !input.files.is_empty() {
        let traces = Traces::new(input.files.clone(), input.reading, input.changes.clone())?;
        // Those that know the future read it first, and so does who draws windows.
        let again =
            args.sampled.is_some() || policies.iter().any(|name| name.starts_with("clairvoyant"));
        let traces = Arc::new(traces.for_runs(policies.len(), again || input.again)?);
        return Ok(Requests::Traces { traces, fold: input.fold, again: input.again });
    }
    let name = args.workload.workload.as_deref().unwrap_or(Example::WORKLOAD);
    let spec = options::workload(name, &args.workload)?;
    if let Some(share) = args.workload.pressure {
        if !(share > 0.0 && share <= 10.0) {
            return Err(usage(format!(
                "--pressure {}% is out of range: above 0% and up to 1000%",
                share * 100.0
            )));
        }
        if spec.jobs.is_empty() && spec.arrivals.is_empty() {
            return Err(usage(format!(
                "--pressure has no meaning for workload '{name}', whose rate follows from what \
                 it computes: leave it out, or choose a workload of jobs or arrivals"
            )));
        }
    }
    Ok(Requests::Generated(Box::new(spec)))
}

/// A time rounded up to control periods, as the twin rounds its warm-up.
pub fn whole_periods(time: Nanos) -> Nanos {
    Nanos(time.0.div_ceil(PERIOD.0).saturating_mul(PERIOD.0))
}

/// How long the load is where the command line does not say.
fn length(args: &SimArgs, requests: &Requests, example: bool) -> Option<Nanos> {
    match (args.sampled, requests) {
        (None, _) => duration(requests, example),
        (Some(_), Requests::Traces { .. }) => None,
        (Some(_), Requests::Generated(spec)) => spec.duration,
    }
}

/// How long to run where the command line does not say.
fn duration(requests: &Requests, example: bool) -> Option<Nanos> {
    match requests {
        _ if example => Some(Example::DURATION),
        Requests::Traces { .. } => None,
        Requests::Generated(spec) => {
            let ends = spec.duration.is_some()
                || (spec.jobs.is_empty() && spec.readers.is_empty() && spec.arrivals.is_empty());
            if ends { spec.duration } else { Some(DEFAULT_DURATION) }
        }
    }
}
