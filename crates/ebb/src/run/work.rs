//! The loop of `ebb run`: one cycle each period, until told to end.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ebb_host::{Host, Impossible, Report, State};
use ebb_policy::registry::{self, Settings};
use ebb_policy::units::Nanos;
use ebb_policy::{Cycle, GroupSpec, Limits, Names, Policy};
use ebb_twin::Profile;
use jiff::Zoned;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use super::RunArgs;
use super::config::Config;
use super::estimate::{Core, Saved, Shadow};
use super::schedule::InEffect;
use super::served::{Served, Watched};
use super::systemd::Systemd;
use super::told::Teller;
use crate::exit::usage;
use crate::{out, restore};

/// Time from one summary to the next.
const SUMMARY: Nanos = Nanos::from_secs(3600);

/// Time from one look for new or lost parts to the next.
const LOOK: Nanos = Nanos::from_secs(10);

/// Why work has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was told to, or its time was over.
    Told,
    /// The machine has other parts now: a drive came or went, a CPU.
    Changed,
}

/// One run.
pub struct Work<'a> {
    args: &'a RunArgs,
    config: Config,
    host: Host,
    served: Option<Served>,
    cycle: Cycle,
    held: InEffect,
    teller: Teller,
    core: Core,
    saved: Saved,
    summed_up: Nanos,
    /// What there was at the start, and when that was last looked at.
    parts: (Vec<String>, Nanos),
    /// The supervisor, of a worker; systemd is its matter then.
    supervisor: Option<UnixStream>,
    systemd: Systemd,
    state: Option<State>,
}

impl<'a> Work<'a> {
    /// Looks for what is there, and gets ready to act where `state` is given; nothing is changed.
    pub fn new(
        args: &'a RunArgs,
        config: Config,
        supervisor: Option<UnixStream>,
        state: Option<State>,
    ) -> Result<Self> {
        let owned = registry::owned(&config.policy)?;
        let impossible = |error: Impossible| usage(format!("machine.groups: {error}"));
        let mut host = Host::new(args.machine()?, &config.stated()?, &owned).map_err(impossible)?;
        let held = config.at(Zoned::now().time());
        let (policy, settings) = make(&config, held, &host)?;
        host.remarks(&owned).iter().for_each(out::note);
        fits(&host, &config)?;
        for (part, reason) in registry::idle(&config.policy, host.topology(), &settings)? {
            out::note(format_args!("{part} sets nothing here: {reason}"));
        }
        let limits = Limits { ssd_budget: held.ssd_budget, ..Limits::default() };
        let cycle = Cycle::new(host.topology(), policy, limits);
        if let Some(state) = &state {
            let holds = config.holds().places(host.machine());
            let holds = holds.map_err(|wrong| usage(format!("hold.{wrong}")))?;
            let leave = |control| config.leave.of(control);
            let notices = host.act(&owned, holds, leave, config.contest, state);
            for notice in notices.context("nothing was changed")? {
                out::note(format_args!("{}: {}", notice.place, notice.text));
            }
        }
        let would = state.is_none();
        let teller = Teller::new(&config.policy, host.topology(), would, args.tell);
        let core = Core::new(&Profile::load(&config.profile)?);
        let served = config.serve.map(Served::new).transpose()?;
        let (saved, summed_up) = (Saved::default(), Nanos::ZERO);
        let parts = (host.parts(), Nanos::ZERO);
        Ok(Self {
            args,
            config,
            host,
            served,
            cycle,
            held,
            teller,
            core,
            saved,
            summed_up,
            parts,
            systemd: Systemd::default(),
            supervisor,
            state,
        })
    }

    /// Runs until told to end, or the machine is another; sets everything back.
    pub fn run(mut self) -> Result<Ended> {
        self.teller.summary(0.0, &parts(&self.host))?;
        let done = self.cycles();
        let told = self.sum_up();
        let set_back = self.state.as_ref().map_or(Ok(()), |state| {
            // Where each place is may have changed with the machine.
            restore::all(&self.args.machine()?, state, None)
        });
        match (done?, set_back) {
            // What cannot be set back now stays saved: its device may be away. The next start, the
            // end and `ebb restore` try again.
            (Ended::Changed, Err(error)) => out::note(format_args!("{error:#}")),
            (Ended::Told, set_back) => return told.and(set_back).map(|()| Ended::Told),
            (Ended::Changed, Ok(())) => {}
        }
        told.map(|()| Ended::Changed)
    }

    fn cycles(&mut self) -> Result<Ended> {
        let mut signals = Signals::watch().context("cannot watch for signals")?;
        let mut next = Instant::now();
        let mut now = Nanos::ZERO;
        loop {
            now = self.once()?.max(now);
            if self.args.duration.is_some_and(|duration| now >= duration) {
                return Ok(Ended::Told);
            }
            if self.is_other(now) {
                out::note("parts of the machine have changed: starting again");
                return Ok(Ended::Changed);
            }
            let period = Duration::from_nanos(self.config.period.0);
            next += period;
            // What was missed, asleep or stopped, is not made up for.
            next = next.max(Instant::now());
            while let Some(left) = next.checked_duration_since(Instant::now()) {
                if !self.wait(&mut signals, left)? {
                    return Ok(Ended::Told);
                }
                if left.is_zero() {
                    break;
                }
            }
        }
    }

    fn is_other(&mut self, now: Nanos) -> bool {
        let (parts, looked) = &mut self.parts;
        if now.saturating_sub(*looked) < LOOK {
            return false;
        }
        *looked = now;
        *parts != self.host.parts()
    }

    /// One cycle; the time at its end.
    fn once(&mut self) -> Result<Nanos> {
        self.follow_schedule()?;
        let mut machine = Watched { host: &mut self.host, served: self.served.as_mut() };
        let cycled = if self.state.is_some() {
            self.cycle.step(&mut machine)
        } else {
            self.cycle.step(&mut Shadow { machine })
        };
        self.saved.add(&self.core, &self.host, cycled.signals);
        let now = cycled.signals.now;
        let (notices, failing) = (self.host.notices(), self.host.failing());
        self.teller.cycle(&cycled, &notices, failing)?;
        match &mut self.supervisor {
            // One that is gone is noticed while waiting.
            Some(supervisor) => drop(writeln!(supervisor, "{}", self.teller.state())),
            None => self.systemd.tell(&self.teller.state()),
        }
        if now.saturating_sub(self.summed_up) >= SUMMARY {
            self.sum_up()?;
            self.summed_up = now;
        }
        Ok(now)
    }

    fn sum_up(&self) -> Result<()> {
        let would = self.state.is_none();
        match self.saved.text(would, &self.config.profile) {
            Some(text) => self.teller.summary(self.host.now().seconds(), &text),
            None => Ok(()),
        }
    }

    /// Waits for at most `left`; whether to go on.
    fn wait(&mut self, signals: &mut Signals, left: Duration) -> Result<bool> {
        let mut files = vec![PollFd::from_borrowed_fd(signals.wake.as_fd(), PollFlags::IN)];
        if let Some(supervisor) = &self.supervisor {
            files.push(PollFd::from_borrowed_fd(supervisor.as_fd(), PollFlags::IN));
        }
        let left = Timespec::try_from(left).context("a period that is no time")?;
        match poll(&mut files, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait"),
        }
        if files.get(1).is_some_and(|file| !file.revents().is_empty()) {
            out::note("the supervisor is gone; setting all back");
            return Ok(false);
        }
        // Any byte there only ends the waiting.
        let _ = signals.wake.read(&mut [0; 16]);
        if signals.reload.swap(false, Ordering::Relaxed)
            && let Err(error) = self.reload()
        {
            out::note(format_args!("the configuration stays as it was: {error:#}"));
        }
        Ok(!signals.end.load(Ordering::Relaxed))
    }

    /// Takes a new configuration where that needs no new start.
    fn reload(&mut self) -> Result<()> {
        let config = self.args.config()?;
        let fixed = |config: &Config| {
            let Config { policy, machine, hold, leave, contest, .. } = config;
            (registry::owned(policy).ok(), machine.clone(), hold.clone(), *leave, *contest)
        };
        if fixed(&config) != fixed(&self.config) {
            return Err(usage(
                "policies for other controls, machine, hold, leave and contest need a new start \
                 (systemctl restart ebb)",
            ));
        }
        let held = config.at(Zoned::now().time());
        let (policy, _) = make(&config, held, &self.host)?;
        self.cycle.change(policy, held.ssd_budget)?;
        self.core = Core::new(&Profile::load(&config.profile)?);
        if config.serve != self.config.serve {
            self.served = config.serve.map(Served::new).transpose()?;
        }
        (self.config, self.held) = (config, held);
        out::note("the configuration is taken");
        Ok(())
    }

    fn follow_schedule(&mut self) -> Result<()> {
        if self.config.schedule.is_empty() {
            return Ok(());
        }
        let held = self.config.at(Zoned::now().time());
        if held != self.held {
            let (policy, _) = make(&self.config, held, &self.host)?;
            self.cycle.change(policy, held.ssd_budget)?;
            self.held = held;
        }
        Ok(())
    }
}

/// Says what the policies cannot do without and this machine does not have.
///
/// # Errors
/// Where none of them could do anything.
fn fits(host: &Host, config: &Config) -> Result<()> {
    let report = Report::new(host.machine(), &config.fans());
    let parts = registry::names(&config.policy);
    let fits: Vec<_> =
        parts.filter_map(|part| report.policies.iter().find(|fit| fit.policy == part)).collect();
    for fit in &fits {
        if !fit.lacks.is_empty() {
            let (policy, missing) = (fit.policy, fit.lacks.join(", no "));
            out::note(format_args!("{policy}: this machine has no {missing}; ebb probe says why"));
        }
    }
    if config.apply && fits.iter().all(|fit| !fit.lacks.is_empty()) {
        let policy = &config.policy;
        return Err(usage(format!("{policy} can do nothing here; ebb probe says what could")));
    }
    Ok(())
}

/// What there is, for people.
fn parts(host: &Host) -> String {
    let topology = host.topology();
    let capped = topology.drives.iter().filter(|drive| drive.operational().len() > 1).count();
    let group = |(name, spec): (&String, &GroupSpec)| format!("{} cores of {name}", spec.cores);
    let names = Names::new(topology);
    let groups: Vec<_> = match &topology.groups[..] {
        [all] => vec![format!("{} cores", all.cores)],
        several => names.groups().iter().zip(several).map(group).collect(),
    };
    format!(
        "found {}; frequencies {}, drives {} ({capped} with power caps), fans {}, sockets with \
         temperatures {}",
        groups.join(", "),
        topology.frequencies.len(),
        topology.drives.len(),
        topology.fans.len(),
        topology.sockets
    )
}

/// Signals, and a socket that wakes who waits for them.
struct Signals {
    end: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
    wake: UnixStream,
}

impl Signals {
    fn watch() -> std::io::Result<Self> {
        let (wake, waker) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let (end, reload) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        for (signal, told) in [(SIGTERM, &end), (SIGINT, &end), (SIGHUP, &reload)] {
            flag::register(signal, told.clone())?;
            low_level::pipe::register(signal, waker.try_clone()?)?;
        }
        Ok(Self { end, reload, wake })
    }
}

fn make(config: &Config, held: InEffect, host: &Host) -> Result<(Box<dyn Policy>, Settings)> {
    let InEffect { plf, ssd_budget } = held;
    let settings = Settings { plf, ssd_budget, curve: config.curve()? };
    Ok((registry::make(&config.policy, host.topology(), &settings)?, settings))
}
