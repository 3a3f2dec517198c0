//! The sweep on this machine: idle hard disks are read at one fan duty after the other.
//!
//! Fans are set as by `ebb run --apply`: by a worker, whose supervisor sets everything back if it
//! is killed. Disks are only read, at random places: each read seeks, settles and follows a track,
//! which is what vibration disturbs; a stream, which seldom seeks, loses less
//! (docs/models/hdd.md, "Vibration").

mod bench;
mod disks;
mod reader;
mod report;
mod server;
mod steps;
mod sweep;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use ebb_cli::{out, usage};
use ebb_host::{Fan, Fans, Machine, State, Sys, conflicts, is_ours};
use ebb_policy::units::{Nanos, parse_ratio};
use rustix::process::geteuid;

use super::{CharacteriseArgs, duties};
use crate::run::config::{self, Config};
use crate::run::supervisor;
use crate::{curve, restore};
use bench::LOOK;
use disks::Disk;
pub use report::Report;
use server::Server;
use steps::{Head, Steps};
use sweep::Sweep;

/// Options of the sweep on this machine.
#[derive(Debug, Args)]
pub struct HereArgs {
    /// Measure on this machine: set its fans, read its idle hard disks. Everything is restored at
    /// the end
    #[arg(long)]
    here: bool,
    /// Hard disk to read, such as /dev/sda; may be repeated [default: all idle SATA and SAS disks]
    #[arg(long, value_name = "DEVICE", requires = "here")]
    disk: Vec<PathBuf>,
    /// Configuration that names the fans [default: /etc/ebb/ebb.toml, if there is one]
    #[arg(long, value_name = "FILE", requires = "here")]
    config: Option<PathBuf>,
    /// Lowest fan duty, as 0.2 or 20% [default: machine.min_duty of the configuration]
    #[arg(long, value_name = "SHARE", value_parser = parse_ratio, requires = "here")]
    from: Option<f64>,
    /// How long to wait for users' I/O to end before giving up
    #[arg(long, value_name = "TIME", default_value = "10 min", requires = "here")]
    wait: Nanos,
    /// Folder for the original settings
    #[arg(long, value_name = "DIR", default_value = restore::STATE, requires = "here")]
    state: PathBuf,
    /// A copy of a machine's sys, proc and dev under this folder.
    #[arg(long, value_name = "DIR", default_value = "/", hide = true, requires = "here")]
    root: PathBuf,
    /// The process that acts; its standard input is the supervisor.
    #[arg(long, hide = true, requires = "here")]
    worker: bool,
}

impl HereArgs {
    /// Whether that is asked for.
    pub fn is_given(&self) -> bool {
        self.here
    }

    /// Whether files stand for the machine's devices.
    fn is_copy(&self) -> bool {
        self.root != Path::new("/")
    }

    fn config(&self) -> Result<Config> {
        let path = self.config.as_deref().unwrap_or(Path::new(config::FILE));
        let config = Config::load(self.config.as_deref())?;
        // Root does what it says.
        is_ours(path).map_err(|error| usage(error.to_string()))?;
        Ok(config)
    }

    /// The lowest duty.
    fn least(&self, config: &Config) -> Result<f64> {
        let (least, turns) =
            (self.from.unwrap_or(config.machine.min_duty), config.machine.min_duty);
        let told = |why: &str| Err(usage(format!("--from {:.0}%: {why}", least * 100.0)));
        if least < turns {
            return told(&format!(
                "give at least machine.min_duty, {:.0}%, at which all fans turn",
                turns * 100.0
            ));
        }
        if least >= 1.0 { told("give less than full speed, 100%") } else { Ok(least) }
    }
}

/// Sweeps by a worker, and sets everything back whatever becomes of that.
pub fn run(args: &CharacteriseArgs) -> Result<()> {
    let here = &args.here;
    let machine =
        Machine::found(Sys::new(&here.root)).map_err(|absent| usage(absent.to_string()))?;
    if here.worker {
        return work(args, &machine);
    }
    if !here.is_copy() && !geteuid().is_root() {
        return Err(usage("--here sets fans and reads whole disks: run it as root"));
    }
    here.least(&here.config()?)?;
    for one in conflicts(&machine.sys).iter().filter(|one| one.sets.contains("fan")) {
        out::note(format_args!("{} sets {} too: {}", one.who(), one.sets, one.remedy));
    }
    // It says itself why it ended, unless it crashed.
    supervisor::supervise(&here.state, &machine, LOOK, &[1, 2, 130])
}

fn work(args: &CharacteriseArgs, machine: &Machine) -> Result<()> {
    let here = &args.here;
    let supervisor = supervisor::of_worker()?;
    let config = here.config()?;
    let least = here.least(&config)?;
    let fans = fans(machine, &config)?;
    let kept = args.out.as_deref().map(steps::beside);
    let known = kept.as_deref().map(Steps::head).transpose()?.flatten();
    let known = known.as_ref().map(|head| &head.disks[..]);
    let disks = disks::choose(here, machine, known)?;
    let mut all: Vec<f64> = duties(least, args.step).collect();
    // The first again at the end: what else has changed meanwhile shows there.
    all.push(1.0);
    let head = Head {
        schema: steps::SCHEMA,
        disks: disks.iter().map(|disk| disk.id.clone()).collect(),
        fans: fans.iter().map(|fan| fan.name(machine)).collect(),
        from: least,
        step: args.step,
        pause_ns: args.pause.0,
        seed: args.seed,
    };
    let mut steps = Steps::open(kept.as_deref(), head, &all)?;
    let say = |text: String| {
        if !args.quiet {
            out::note(text);
        }
    };
    say(announce(&disks, &steps, all.len()));
    let sweep = Sweep {
        duties: &all,
        pause: Duration::from_nanos(args.pause.0),
        wait: Duration::from_nanos(here.wait.0),
        disks: &disks.iter().map(|disk| disk.drive.name.clone()).collect::<Vec<_>>(),
        say: &say,
    };
    let state = State::open(&here.state).context("nothing was changed")?;
    let mut server = Server::new(machine, &state, fans, &disks, args.seed, supervisor)?;
    let done = sweep.run(&mut server, &mut steps);
    if let (Err(_), Some(kept), some @ 1..) = (&done, &kept, steps.done().len()) {
        let (all, kept) = (all.len(), kept.display());
        out::note(format_args!(
            "{some} of {all} measurements are kept in {kept}: the same command goes on there"
        ));
    }
    done?;
    tell(args, &Report::new(&disks, &steps), &steps)
}

/// Prints what was measured, and writes the curve through it where it is one.
fn tell(args: &CharacteriseArgs, report: &Report<'_>, steps: &Steps) -> Result<()> {
    match args.json {
        true => out::json(report)?,
        false => out::print(report.text())?,
    }
    if let Some(refused) = &report.refused {
        let remedy = steps.path().map(|path| format!("; remove {} first", path.display()));
        let remedy = remedy.unwrap_or_default();
        return Err(anyhow!("no curve can be made of it: {refused} (--pause){remedy}"));
    }
    if let Some(path) = &args.out {
        curve::write(path, report.source(), report.points())?;
        steps.remove()?;
    }
    Ok(())
}

/// The fans that may be steered, as for `ebb run`.
fn fans(machine: &Machine, config: &Config) -> Result<Vec<Fan>> {
    let fans = Fans::found(machine, &config.machine.stated_fans());
    let remarks = fans.remarks(machine);
    let ours: Vec<_> = fans.fans.into_iter().filter(|fan| fan.left.is_none()).collect();
    if !ours.is_empty() {
        return Ok(ours);
    }
    let remarks: String = remarks.iter().map(|remark| format!("\n  {remark}")).collect();
    Err(usage(format!(
        "no fan here that ebb may steer: name some as [[machine.fans]] (ebb probe --fans shows \
         all){remarks}"
    )))
}

fn announce(disks: &[Disk], steps: &Steps, all: usize) -> String {
    let names: Vec<_> = disks.iter().map(|disk| disk.drive.name.as_str()).collect();
    let done = match steps.done().len() {
        0 => String::new(),
        done => format!(", {done} of them are kept from before"),
    };
    format!("reads of {} at {all} fan speeds{done}", names.join(", "))
}
