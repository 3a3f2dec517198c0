//! `ebb sim` on a polled server: schedulers of reactors side by side over the same requests.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::{Result, anyhow};

use ebb_cli::input::Watch;
use ebb_cli::parallel::in_parallel;
use ebb_cli::progress::Progress;
use ebb_cli::text::{grouped, seconds};
use ebb_cli::{out, usage};
use ebb_policy::Settling;
use ebb_policy::reactor::{by_name, settles};
use ebb_policy::units::{Bytes, Nanos};
use ebb_record::latency::Latency;
use ebb_record::summary::{Experiment, SCHEMA};
use ebb_record::verdict::{self, Side};
use ebb_record::{RunSummary, Summary};
use ebb_trace::Workload;
use ebb_trace::generate::{BuildContext, WorkloadSpec};
use ebb_twin::hindsight::reactors;
use ebb_twin::reactor::{Load, Profile, Setup, Shown, Software, run};

use super::args::SimArgs;
use super::options::{self, DEFAULT_DURATION};
use super::outcome::Sla;
use super::parts::{Drawn, Parts, Repeats};
use super::plan::{Requests, requests};
use super::steady::{self, Work};
use super::summary::NONE_COUNTED;
use super::table;

/// Knows the requests that will come.
pub const CLAIRVOYANT: &str = "clairvoyant";
/// Room for offsets, which play no role here.
const CAPACITY: Bytes = Bytes(1 << 40);

/// The polled server that `--profile` names; `None` for another.
pub fn server(args: &SimArgs) -> Result<Option<Profile>> {
    let found = args.profile.as_deref().and_then(Profile::find);
    Ok(found.transpose()?)
}

/// Runs every scheduler and prints what came out.
pub fn simulate(args: &SimArgs, profile: &Profile, experiment: Option<Experiment>) -> Result<()> {
    let plan = Plan::new(args, profile)?;
    let progress = Progress::new(args.output.quiet);
    let bar = progress.bar("schedulers", Some(plan.names.len() as u64));
    let threads = plan.requests.threads(plan.names.len(), args.output.threads);
    let runs = in_parallel(plan.names.len(), threads, |index| {
        let shown = plan.run(&plan.names[index]).inspect_err(|_| plan.requests.go_on());
        bar.inc(1);
        shown
    })?;
    bar.finish_and_clear();
    let (runs, mut watches): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
    let summary = Summary { experiment, ..plan.summary(&runs, &watches.swap_remove(0)) };
    if args.output.json {
        return out::json(&summary);
    }
    let mut to = out::stdout();
    table::verdicts(&mut to, &summary)?;
    writeln!(to, "Simulated (digital twin) on {}\n{}", profile.name, profile.summary)?;
    writeln!(
        to,
        "{}, seed {}, {} requests in {} under {}",
        summary.workload,
        plan.seed,
        grouped(runs[0].answered as f64),
        seconds(runs[0].span.seconds()),
        plan.names[0]
    )?;
    table::print(&mut to, &summary)?;
    Ok(table::notes(&mut to, &summary, &[])?)
}

/// What is to be run.
struct Plan<'a> {
    profile: &'a Profile,
    names: Vec<String>,
    requests: Requests,
    duration: Nanos,
    warmup: Nanos,
    /// Whether it was stated.
    stated: bool,
    seed: u64,
    plf: f64,
}

impl<'a> Plan<'a> {
    fn new(args: &SimArgs, profile: &'a Profile) -> Result<Self> {
        refuse(args)?;
        options::contradictions(args)?;
        options::something_to_run(args)?;
        let names = match args.policies.is_empty() {
            true => vec!["static".to_owned()],
            false => args.policies.clone(),
        };
        for name in names.iter().filter(|name| *name != CLAIRVOYANT) {
            by_name(name, &profile.machine())
                .map_err(|error| usage(format!("--policy {name}: {error}")))?;
        }
        let requests = requests(args, &names)?;
        let own = match &requests {
            Requests::Traces { traces, .. } => traces.length(),
            Requests::Generated(spec) => spec.duration.or(Some(DEFAULT_DURATION)),
        };
        let unknown = || usage("a polled server runs for a stated time: give --duration, or --to");
        let duration = args.duration.or(own).ok_or_else(unknown)?;
        let settling = all_settling(&names, profile);
        let usual =
            Settling { after: Nanos(profile.coarse.0 * USUAL).min(settling.after), ..settling };
        let whole = if duration >= settling.enough() { settling } else { usual };
        let warmup = args.warmup.unwrap_or_else(|| whole.warmup(duration));
        options::something_counts(warmup, duration)?;
        let (stated, seed, plf) = (args.warmup.is_some(), args.seed, args.plf);
        Ok(Self { profile, names, requests, duration, warmup, stated, seed, plf })
    }

    /// The requests from their beginning, of which each device is one thread's.
    fn load(&self) -> Result<(Load, Watch)> {
        let spec = match &self.requests {
            Requests::Traces { traces, again, .. } => {
                let opened = if *again { traces.open_again(None) } else { traces.open(None) };
                let (source, watch) = opened?;
                return Ok((Load::Trace(source), watch));
            }
            Requests::Generated(spec) => spec,
        };
        let refused = |why: &str| usage(format!("--workload {}: {why}", spec.name));
        if spec.needs_maximum() {
            return Err(refused(
                "its rate is a share of a maximum; state --rate, such as \"200k\"",
            ));
        }
        if !spec.batch.is_empty() {
            return Err(refused("a polled server runs no jobs beside its reactors"));
        }
        let devices = self.profile.threads;
        let context = BuildContext { devices, capacity_bytes: CAPACITY.0, seed: self.seed };
        let spec = WorkloadSpec { duration: Some(self.duration), ..(**spec).clone() };
        match spec.build(&context)? {
            Workload::Open(source) => Ok((Load::Trace(source), Watch::default())),
            Workload::Closed(_) => Err(refused(
                "requests of a polled server come by the clock: choose a workload of [[arrivals]], \
                 such as on-off, or a --trace",
            )),
        }
    }

    fn run(&self, name: &str) -> Result<(Shown, Watch)> {
        let (load, watch) = self.load()?;
        if name == CLAIRVOYANT {
            let load = || -> Result<Load> { Ok(self.load()?.0) };
            let Self { profile, duration, warmup, seed, .. } = *self;
            let run = reactors::Run { profile, load: &load, duration, warmup, seed };
            let none = || {
                anyhow!(
                    "clairvoyant: no plan keeps p99 within {:.0} % of busy polling's",
                    100.0 * reactors::NEAR
                )
            };
            return Ok((run.clairvoyant()?.ok_or_else(none)?, watch));
        }
        let shown = run(Setup {
            profile: self.profile,
            scheduler: by_name(name, &self.profile.machine())?,
            load,
            software: Software::Target,
            duration: self.duration,
            warmup: self.warmup,
            seed: self.seed,
        })?;
        Ok((shown, watch))
    }

    fn summary(&self, shown: &[Shown], watch: &Watch) -> Summary {
        let sla = shown[0].mean_latency().map(|mean| Sla {
            mean: mean * 1e-3,
            windows: &shown[0].windows,
            factor: 1.0 + self.plf,
        });
        let other = "'other' is all that is neither CPU nor drive, as one number";
        let none = shown.iter().any(|one| one.latency.is_empty()).then_some(NONE_COUNTED);
        let behind = self.names.iter().zip(shown).filter_map(|(name, one)| behind(name, one));
        let notes = [Some(other), none].into_iter().flatten().map(str::to_owned);
        let notes = notes.chain(behind).collect();
        let line = |(name, one): (&String, &Shown)| {
            let unsettled = self.unsettled((name, one), &shown[0]);
            RunSummary { unsettled, ..self.line(name, one, sla) }
        };
        let runs: Vec<_> = self.names.iter().zip(shown).map(line).collect();
        let sides: Vec<Side<'_>> = runs.iter().filter_map(RunSummary::side).collect();
        Summary {
            schema: SCHEMA,
            simulated: true,
            profile: self.profile.name.clone(),
            workload: match &self.requests {
                Requests::Traces { traces, .. } => traces.names().join(", "),
                Requests::Generated(spec) => spec.name.clone(),
            },
            seed: Some(self.seed),
            warmup_seconds: self.warmup.seconds(),
            plf: self.plf,
            traces: watch.reports(),
            verdicts: verdict::all(&sides, self.plf),
            notes,
            runs,
            ..Summary::default()
        }
    }

    /// Why what a run drew in the mean is not what it comes to in a year.
    fn unsettled(&self, (name, shown): (&str, &Shown), first: &Shown) -> Option<String> {
        let all = all_settling(&self.names, self.profile);
        let own = settling(name, self.profile);
        let turn = match &self.requests {
            Requests::Generated(spec) => spec.turn(),
            Requests::Traces { .. } => (Nanos::ZERO, true),
        };
        let is_first = name == self.names[0];
        let repeats = Repeats { policy: Nanos::ZERO, load: turn.0 };
        let parts = || Parts::new(self.drawn(shown), self.drawn(first), repeats);
        let spans = (self.warmup, shown.span);
        let without = self.stated && self.warmup < all.after;
        let how = if without { " without --warmup" } else { "" };
        // More of a load that is too much shows nothing else.
        steady::other_work(&work(&self.names[0], first), None)
            .or_else(|| steady::turns(turn, shown.span, all, without))
            .or_else(|| steady::lacking(name, &own, spans, &(steady::enough(&all) + how)))
            .or_else(|| {
                let first = (!is_first).then(|| work(&self.names[0], first));
                steady::other_work(&work(name, shown), first)
            })
            .or_else(|| parts().filter(|_| !is_first)?.disagree(name))
    }

    fn drawn<'b>(&self, shown: &'b Shown) -> Drawn<'b> {
        let (mean, span) = (shown.power(), shown.span);
        Drawn { mean, span, joules: &shown.periods, slot: self.profile.coarse }
    }

    fn line(&self, name: &str, shown: &Shown, sla: Option<Sla<'_>>) -> RunSummary {
        let (seconds, total) = (shown.span.seconds(), shown.energy.total().0);
        let parts = [
            ("total", total),
            ("cpu", shown.energy.cpu.0),
            ("ssd", shown.energy.ssd.0),
            ("other", shown.energy.others.0),
        ];
        let none = ["memory", "nic", "fans", "psu_loss"].map(|part| (part, 0.0));
        let power = &self.profile.power;
        let all = f64::from(2 * self.profile.physical_cores) * seconds;
        let (busy, idle) = (shown.served.seconds(), shown.asleep.seconds());
        let mut line = RunSummary {
            policy: name.to_owned(),
            requests: Some(shown.answered),
            reads: Some(shown.reads),
            bytes: Some(shown.bytes),
            seconds,
            energy_joules: parts.into_iter().chain(none).collect(),
            mean_watts: Some(shown.power().0),
            peak_watts: Some(shown.peak.0),
            iops: Some(shown.answered as f64 / seconds),
            iops_per_watt: Some(shown.answered as f64 / total),
            bytes_per_joule: Some(shown.bytes as f64 / total),
            latency_us: Latency::new(&shown.latency, shown.mean_latency().unwrap_or(0.0)),
            most_capped_watts: Some((power.ssd_idle + power.ssd_range).0),
            core_seconds: BTreeMap::from([
                ("busy", busy),
                ("polling", (all - busy - idle).max(0.0)),
                ("idle", idle),
                ("parked", 0.0),
            ]),
            background_bytes: BTreeMap::from([("done", 0), ("pending", 0)]),
            decisions: shown.moves,
            ..RunSummary::default()
        };
        if let Some(sla) = sla {
            sla.judge(&mut line, &shown.windows);
        }
        line
    }
}

/// Coarse periods that are left out of runs that are too short to show what is settled.
const USUAL: u64 = 20;

/// When a scheduler has settled. Who knows the future chooses once.
fn settling(name: &str, profile: &Profile) -> Settling {
    let periods = if name == CLAIRVOYANT { USUAL } else { settles(name).into() };
    Settling { after: Nanos(profile.coarse.0 * periods), ..Settling::AT_ONCE }
}

/// When all have.
fn all_settling(names: &[String], profile: &Profile) -> Settling {
    names.iter().map(|name| settling(name, profile)).fold(Settling::AT_ONCE, Settling::and)
}

fn work<'a>(policy: &'a str, shown: &Shown) -> Work<'a> {
    let (answered, arrived) = (shown.answered as f64, shown.arrived as f64);
    let behind = if arrived > 0.0 { 1.0 - answered / arrived } else { 0.0 };
    Work { policy, iops: answered / shown.span.seconds(), behind }
}

/// What to say of a load that is more than the server serves.
fn behind(name: &str, shown: &Shown) -> Option<String> {
    work(name, shown).is_behind().then(|| {
        format!(
            "under {name} the server fell behind: of {} requests that came it answered {}. \
             Latencies grow as long as that lasts; a lower --rate is a load that it can serve",
            grouped(shown.arrived as f64),
            grouped(shown.answered as f64)
        )
    })
}

/// What a polled server has nothing for.
fn refuse(args: &SimArgs) -> Result<()> {
    let given = [
        ("--ssd-budget", args.ssd_budget.is_some()),
        ("--server-budget", args.server_budget.is_some()),
        ("--change", !args.change.is_empty()),
        ("--curve", args.curve.is_some()),
        ("--tail", args.tail.is_some()),
        ("--faults", args.faults.is_some()),
        ("--sampled", args.sampled.is_some()),
        ("--pressure", args.workload.pressure.is_some()),
        ("--timeseries", args.output.timeseries.is_some()),
        ("--report", args.output.report.is_some()),
        ("--decisions", args.output.decisions.is_some()),
    ];
    match given.into_iter().find(|(_, given)| *given) {
        None => Ok(()),
        Some((option, _)) => Err(usage(format!("{option} is not for polled servers"))),
    }
}
