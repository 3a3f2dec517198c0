//! `ebb replay`: a trace or a pattern against real storage, metered (docs/replay.md).
//!
//! After the server emulator of "Towards Energy-Efficient Storage Servers" (section 3.1): all
//! requests are loaded first, then issued with their recorded time differences by several
//! processes at once, here threads, while a meter is read.

mod args;
mod content;
mod energy;
mod folder;
mod list;
mod machine;
mod modelled;
mod pattern;
mod plan;
mod repeat;
mod report;
mod requests;
mod stream;
mod tally;
pub mod target;
mod text;

use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

use ebb_host::{Machine, Sys};

pub use args::{Direction, Pattern, ReplayArgs};
use ebb_cli::progress::Progress;
use ebb_cli::{Interrupted, interrupt, out, usage};
use ebb_twin::Profile;
use energy::{Clock, Found, MeterKind, Sampler};
use folder::Folder;
pub use pattern::Shape;
use plan::{Plan, duration};
pub use report::Report;
use report::{EnergyReport, Medians, Repeat, TargetReport};

/// Runs `ebb replay`.
pub fn run(args: &ReplayArgs) -> Result<()> {
    if let Some(folder) = &args.runs.output {
        folder::check(folder)?;
    }
    interrupt::watch()?;
    let sys = Sys::default();
    let progress = Progress::new(args.quiet);
    let modelled = args.energy.meter_profile.as_deref().map(Profile::load).transpose()?;
    let plan = Plan::new(args, &sys)?;
    let machine = Machine::found(sys.clone()).ok();
    let about = machine::About::new(machine.as_ref(), &sys, &plan.target.file, &plan.place.kind);
    let mut notes = plan.target.notes.clone();
    let sampler = sampler(args, machine.as_ref(), &about, &mut notes)?;
    let filled = plan.target.fresh && plan.requests.reads();
    if filled {
        let bar = progress.bar("fill", Some(plan.target.bytes));
        repeat::fill(&plan, &bar)?;
        bar.finish_and_clear();
    }
    let folder = args.runs.output.as_ref();
    let folder = folder.map(|path| Folder::new(path, &plan, filled, &about, &sampler));
    let folder = folder.transpose()?;
    let work = Work {
        args,
        plan: &plan,
        sys: &sys,
        sampler: &sampler,
        folder: folder.as_ref(),
        modelled: modelled.as_ref(),
    };
    let repeats = work.repeats(&progress)?;
    told(&plan, &sampler, &mut notes);
    let report = Report {
        schema: 1,
        ebb: env!("CARGO_PKG_VERSION"),
        completed: repeats.len() == usize::from(args.runs.repeats)
            && repeats.iter().all(|repeat| repeat.complete),
        target: TargetReport::new(&plan, filled),
        replay: plan.what.clone(),
        requests: plan.requests.loaded.clone(),
        machine: about,
        median: Medians::new(&repeats),
        repeats,
        notes,
    };
    if let Some(folder) = &folder {
        folder.finish(&report)?;
    }
    match args.json {
        true => out::json(&report)?,
        false => out::print(text::text(&report))?,
    }
    if interrupt::asked() {
        return Err(Interrupted.into());
    }
    report.failure().map_or(Ok(()), |why| Err(anyhow!(why)))
}

/// All repeats of a replay.
struct Work<'a> {
    args: &'a ReplayArgs,
    plan: &'a Plan,
    sys: &'a Sys,
    sampler: &'a Sampler,
    folder: Option<&'a Folder>,
    modelled: Option<&'a Profile>,
}

impl Work<'_> {
    /// One after the other, to the last or to an interruption.
    fn repeats(&self, progress: &Progress) -> Result<Vec<Repeat>> {
        let mut repeats = Vec::new();
        let count = self.args.runs.repeats;
        for number in 1..=count {
            let caches = repeat::drop_caches(self.plan, self.args.runs.drop_caches, self.sys);
            rest(duration(self.args.runs.rest));
            if interrupt::asked() {
                break;
            }
            let label =
                if count == 1 { "replay".into() } else { format!("repeat {number}/{count}") };
            let bar = progress.bar(&label, Some(self.plan.requests.loaded.requests));
            let done = repeat::run(self.plan, &bar)?;
            bar.finish_and_clear();
            let mut repeat = Repeat::new(number, &done, &self.sampler.clock)?;
            repeat.caches = caches;
            let bytes = repeat.total.bytes;
            let taken = self.sampler.take(done.counted, done.end);
            repeat.energy = taken.iter().map(|taken| EnergyReport::new(taken, bytes)).collect();
            if let (Some(server), Some(name)) = (self.modelled, &self.args.energy.meter_profile) {
                repeat.energy.push(modelled::energy(server, name, self.plan, &done)?);
            }
            if let Some(folder) = self.folder {
                folder.repeat(self.plan, &repeat, &done.issued, self.sampler)?;
            }
            let failed = !repeat.errors.is_empty() && self.args.target.abort_on_error;
            repeats.push(repeat);
            if interrupt::asked() || failed {
                break;
            }
        }
        if repeats.is_empty() { Err(Interrupted.into()) } else { Ok(repeats) }
    }
}

fn rest(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) = until.checked_duration_since(Instant::now()) {
        if interrupt::asked() {
            return;
        }
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
}

/// The meters that are there or asked for, at work.
fn sampler(
    args: &ReplayArgs,
    machine: Option<&Machine>,
    about: &machine::About,
    notes: &mut Vec<String>,
) -> Result<Sampler> {
    let asked = &args.energy;
    let every = duration(asked.sample);
    if every < Duration::from_millis(1) {
        return Err(usage("--sample: 1 ms at least is needed"));
    }
    let clock = Clock::new();
    let mut meters = Vec::new();
    if let Some(path) = &asked.meter_csv {
        meters.push(energy::file(path, asked.meter_accuracy, clock, every).map_err(usage)?);
    }
    if let Some(command) = &asked.meter_command {
        meters.push(energy::command(command, asked.meter_accuracy, clock, every));
    }
    let external = !meters.is_empty();
    let all = [MeterKind::Rapl, MeterKind::Hwmon, MeterKind::Nvme];
    let kinds = if asked.meters.is_empty() { &all[..] } else { &asked.meters };
    if let Some(machine) = machine {
        let nvme = about.drive.as_ref().and_then(|drive| drive.controller.as_deref());
        let mut found = Found::start(machine, kinds, nvme, clock, every);
        if let Some((kind, why)) = found.absent.first()
            && !asked.meters.is_empty()
        {
            let kind = format!("{kind:?}").to_lowercase();
            return Err(usage(format!("--meter {kind}: {why}; 'ebb probe' says what there is")));
        }
        if !external {
            let own = found.meters.iter_mut().filter(|meter| meter.about.name == "hwmon");
            own.for_each(|meter| meter.about.accuracy = asked.meter_accuracy);
        }
        meters.extend(found.meters);
        if meters.is_empty() && !kinds.contains(&MeterKind::None) && asked.meter_profile.is_none() {
            let why: Vec<_> = found.absent.into_iter().map(|(_, why)| why).collect();
            notes.push(format!(
                "no energy: {}; an external meter is read with --meter-csv or --meter-command",
                why.join("; ")
            ));
        }
    }
    if asked.meter_accuracy.is_some() && meters.iter().all(|meter| meter.about.accuracy.is_none()) {
        return Err(usage(
            "--meter-accuracy is for an external meter (--meter-csv, --meter-command) or the \
             server's own (--meter hwmon), and there is none",
        ));
    }
    let sampler = Sampler::new(clock, meters);
    sampler.ready().map_err(usage)?;
    Ok(sampler)
}

/// What people have to know of how requests came to the target and of its meters.
fn told(plan: &Plan, sampler: &Sampler, notes: &mut Vec<String>) {
    let loaded = &plan.requests.loaded;
    notes.extend(loaded.notes.iter().cloned());
    for file in &loaded.files {
        notes.extend(file.notes.iter().map(|note| format!("{}: {note}", file.file)));
    }
    let mut note = |count: u64, what: &str| {
        if count > 0 {
            notes.push(format!("{} {what}", ebb_cli::text::grouped(count as f64)));
        }
    };
    note(loaded.wrapped, "requests lay beyond the target and were wrapped (--beyond wrap)");
    note(loaded.widened, "requests were widened to whole blocks of the target");
    if loaded.devices > 1 {
        note(loaded.devices, "devices of the trace lie side by side on the target");
    }
    let malformed: u64 = loaded.files.iter().map(|file| file.malformed).sum();
    note(malformed, "malformed records were passed over (--lenient)");
    if let Some(path) = &plan.target.kept {
        notes.push(format!("kept: {}", path.display()));
    }
    let drift = sampler.clock.drift();
    if drift.abs() > 0.01 && sampler.meters().any(|about| about.external) {
        notes.push(format!(
            "warning: the time of day was set by {drift:.3} s meanwhile: times of an external \
             meter are off by as much"
        ));
    }
}
