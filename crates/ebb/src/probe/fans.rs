//! `ebb probe --fans`: the fans of this machine as `[[machine.fans]]`, to be pasted into the
//! configuration.

use std::fmt::Write;
use std::io::{IsTerminal, stdin};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use ebb_cli::{out, usage};
use ebb_host::{Fan, Fans, Lock, Machine, State, sweep};
use ebb_policy::units::Nanos;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::restore;
use crate::run::config;

/// Options of `ebb probe --fans`.
#[derive(Debug, Args)]
pub struct FansArgs {
    /// Print the fans as [[machine.fans]], to paste into the configuration.
    #[arg(long, conflicts_with_all = ["json", "profile"])]
    fans: bool,
    /// Find out which tachometers follow which PWM: each fan in turn at full speed, at 60 % and at
    /// full speed again. Everything is restored at the end.
    #[arg(long, requires = "fans")]
    sweep: bool,
    /// Do not ask before the sweep.
    #[arg(long, requires = "sweep")]
    yes: bool,
    /// How long a fan is given to follow.
    #[arg(long, value_name = "TIME", default_value = "5 s", requires = "sweep")]
    settle: Nanos,
    /// Folder for the original settings during the sweep.
    #[arg(long, value_name = "DIR", default_value = restore::STATE, requires = "sweep")]
    state: PathBuf,
}

impl FansArgs {
    /// Whether that is asked for.
    pub fn is_given(&self) -> bool {
        self.fans
    }
}

/// Prints them; the sweep changes fans for a while.
pub fn run(args: &FansArgs, machine: &Machine) -> Result<()> {
    let fans = if args.sweep { swept(args, machine)? } else { Fans::found(machine, &[]) };
    out::print(text(machine, &fans)?)
}

fn swept(args: &FansArgs, machine: &Machine) -> Result<Fans> {
    if !args.yes {
        if !stdin().is_terminal() {
            return Err(usage("--sweep changes the speed of every fan: add --yes to agree"));
        }
        out::note("The sweep runs every fan at full speed and at 60 %. Go on? [y/N]");
        let mut answer = String::new();
        stdin().read_line(&mut answer).context("cannot read the answer")?;
        if !answer.trim().eq_ignore_ascii_case("y") {
            return Err(usage("nothing was changed"));
        }
    }
    let _lock = Lock::take(&machine.sys).context("nothing was changed")?;
    let state = State::open(&args.state).context("nothing was changed")?;
    restore::others(machine, &args.state)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, stop.clone()).context("cannot watch for signals")?;
    }
    let stopped = || stop.load(Ordering::Relaxed);
    let settle = Duration::from_nanos(args.settle.0);
    Ok(sweep(machine, &state, settle, &stopped, &mut |text| out::note(text))?)
}

fn text(machine: &Machine, fans: &Fans) -> Result<String> {
    let mut text = "# Fans that ebb may steer; for /etc/ebb/ebb.toml.\n".to_owned();
    let (ours, others): (Vec<_>, Vec<_>) =
        fans.fans.iter().chain(&fans.apart).partition(|fan| fan.left.is_none());
    for fan in ours {
        let doubt = fan.doubtful().map(|doubt| format!("# {doubt}\n")).unwrap_or_default();
        let _ = write!(text, "\n# {}\n{doubt}{}", now(machine, fan), table(machine, fan)?);
    }
    if !others.is_empty() {
        text.push_str("\n# Left alone. Remove the # before what ebb may steer all the same.\n");
    }
    for fan in others {
        let reason = fan.left.as_deref().unwrap_or_default();
        let _ = writeln!(text, "\n# {}: {reason}", now(machine, fan));
        for line in table(machine, fan)?.lines() {
            let _ = writeln!(text, "# {line}");
        }
    }
    Ok(text)
}

/// What it does at the moment.
fn now(machine: &Machine, fan: &Fan) -> String {
    let chip = &machine.chips[fan.chip];
    let duty = chip.duty(&machine.sys, &fan.pwm).map(|duty| format!("{:.0} %", duty * 100.0));
    let speed = match fan.speed(machine) {
        Some(Ok(speed)) => format!("{:.0} rpm", speed.0),
        _ => "no speed".to_owned(),
    };
    format!("{speed} at {}", duty.unwrap_or_else(|_| "an unknown duty".to_owned()))
}

fn table(machine: &Machine, fan: &Fan) -> Result<String> {
    let chip = &machine.chips[fan.chip];
    let stated = config::Fan {
        chip: chip.name.clone(),
        device: chip.device.clone(),
        pwm: fan.pwm.clone(),
        tachometer: fan.tachometers.clone(),
        label: fan.label.clone(),
    };
    Ok(format!("[[machine.fans]]\n{}", toml::to_string(&stated)?))
}
