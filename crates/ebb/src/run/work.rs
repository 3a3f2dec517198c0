//! The loop of `ebb run`: one cycle each period, until told to end.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ebb_host::{Capability, Fans, Fit, Host, Impossible, Report, State};
use ebb_policy::registry::{self, Settings};
use ebb_policy::units::Nanos;
use ebb_policy::{Control, Cycle, GroupSpec, Limits, Names, Policy};
use ebb_twin::Profile;
use jiff::Zoned;
use rustix::fs::{FileType, fstat};

use super::RunArgs;
use super::config::Config;
use super::estimate::{Core, Saved, Shadow, governed};
use super::latency::Latency;
use super::schedule::InEffect;
use super::served::{Served, Watched};
use super::signals::Signals;
use super::systemd::Systemd;
use super::told::Teller;
use crate::exit::usage;
use crate::{out, restore};

/// Time from one summary to the next.
const SUMMARY: Nanos = Nanos::from_secs(3600);

/// Parts that come do so one after the other, and their sensors later: once nothing has changed for
/// so long, all are taken in together.
const SETTLED: Duration = Duration::from_secs(3);

/// Why work has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was told to, or its time was over.
    Told,
    /// The machine has new parts, which policies have to be made for.
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
    /// When the last part came that only a new start can take in.
    new: Option<Instant>,
    /// The supervisor, of a worker; systemd is its matter then.
    supervisor: Option<UnixStream>,
    systemd: Systemd,
    state: Option<State>,
    /// Who only observes does it for a reader: a pipe, of which the other end can go.
    read: Option<OwnedFd>,
}

impl<'a> Work<'a> {
    /// Looks for what is there, and gets ready to act where `state` is given; nothing is changed.
    pub fn new(
        args: &'a RunArgs,
        config: Config,
        supervisor: Option<UnixStream>,
        state: Option<State>,
        begun: Instant,
    ) -> Result<Self> {
        let owned = registry::owned(&config.policy)?;
        let impossible = |error: Impossible| usage(format!("{}: {error}", error.key()));
        let mut host = Host::new(args.machine()?, &config.stated()?, &owned).map_err(impossible)?;
        let held = config.at(Zoned::now().time());
        say_uncapped(&host, held.ssd_budget.is_some() && owned.contains(&Control::PowerState));
        let (policy, settings) = make(&config, held, &host)?;
        host.remarks(&owned).iter().for_each(out::note);
        let idle = registry::idle(&config.policy, host.topology(), &settings)?;
        for (part, reason) in &idle {
            out::note(format_args!("{part} sets nothing here: {reason}"));
        }
        fits(&host, &config, &idle)?;
        rights(&host, state.is_some());
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
            host.contact(state).iter().for_each(|t| out::note(format_args!("first contact: {t}")));
        }
        let would = state.is_none();
        let teller = Teller::new(&config.policy, host.topology(), would, args.tell, begun);
        let core = Core::new(&Profile::load(&config.profile)?);
        let served = config.serve.map(Served::new).transpose()?;
        let read = state.is_none().then(pipe).flatten();
        let (saved, summed_up) = (Saved::default(), Nanos::ZERO);
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
            new: None,
            systemd: Systemd::default(),
            supervisor,
            state,
            read,
        })
    }

    /// Runs until told to end, or the machine is another; sets everything back.
    pub fn run(mut self, signals: &mut Signals) -> Result<(Ended, Config)> {
        self.teller.summary(Nanos::ZERO, &parts(&self.host, &self.config))?;
        self.say_latency()?;
        let done = self.cycles(signals);
        let told = self.sum_up();
        let set_back = self.state.as_ref().map_or(Ok(()), |state| {
            // Where each place is may have changed with the machine.
            restore::all(&self.args.machine()?, state, None)
        });
        match (done?, set_back) {
            // What cannot be set back now stays saved: its device may be away. The next start, the
            // end and `ebb restore` try again.
            (Ended::Changed, Err(error)) => out::note(format_args!("{error:#}")),
            (Ended::Told, set_back) => {
                return told.and(set_back).map(|()| (Ended::Told, self.config));
            }
            (Ended::Changed, Ok(())) => {}
        }
        told.map(|()| (Ended::Changed, self.config))
    }

    fn cycles(&mut self, signals: &mut Signals) -> Result<Ended> {
        let mut next = Instant::now();
        loop {
            self.follow();
            if self.new.is_some_and(|came| came.elapsed() >= SETTLED) {
                out::note("the machine has new parts: starting again with them");
                return Ok(Ended::Changed);
            }
            self.once()?;
            let lasted = Nanos::from_seconds(signals.begun.elapsed().as_secs_f64());
            if self.args.duration.is_some_and(|duration| lasted >= duration) {
                return Ok(Ended::Told);
            }
            let period = Duration::from_nanos(self.config.period.0);
            next += period;
            // What was missed, asleep or stopped, is not made up for.
            next = next.max(Instant::now());
            while let Some(left) = next.checked_duration_since(Instant::now()) {
                // While cores are parked, a crowd is not to wait for the next cycle.
                let pace = self.host.pace().filter(|pace| *pace < left);
                if !self.wait(signals, pace.unwrap_or(left))? {
                    return Ok(Ended::Told);
                }
                if let Some(recalled) = pace.and_then(|_| self.host.look()) {
                    self.teller.recalled(&recalled)?;
                }
                if left.is_zero() {
                    break;
                }
            }
        }
    }

    /// Takes in what of the machine has gone, come back or got another name.
    fn follow(&mut self) {
        let Some(followed) = self.host.follow() else { return };
        followed.notes.iter().for_each(out::note);
        self.new = followed.is_new.then(Instant::now);
    }

    /// One cycle.
    fn once(&mut self) -> Result<()> {
        self.follow_schedule()?;
        let mut machine = Watched { host: &mut self.host, served: self.served.as_mut() };
        let mut natively = Vec::new();
        let cycled = if self.state.is_some() {
            self.cycle.step(&mut machine)
        } else {
            self.cycle.step(&mut Shadow { machine, natively: &mut natively })
        };
        let (host, signals) = (&self.host, cycled.signals);
        let found = |group| governed(host, group);
        self.saved.add(&self.core, host.topology(), &natively, found, signals);
        let now = cycled.signals.now;
        let (notices, failing) = (self.host.notices(), self.host.failing());
        self.teller.cycle(&cycled, &notices, failing)?;
        if let Some(text) = self.served.as_mut().and_then(|served| served.paced(&self.host)) {
            let would = if self.state.is_some() { "" } else { "would set " };
            self.teller.summary(now, &format!("{would}{text}"))?;
        }
        match &mut self.supervisor {
            // One that is gone is noticed while waiting.
            Some(supervisor) => drop(writeln!(supervisor, "{}", self.teller.state())),
            None => self.systemd.tell(&self.teller.state()),
        }
        if now.saturating_sub(self.summed_up) >= SUMMARY {
            self.sum_up()?;
            self.summed_up = now;
        }
        Ok(())
    }

    /// Says what users' latency is.
    fn say_latency(&self) -> Result<()> {
        let owned = registry::owned(&self.config.policy)?;
        match Latency::of(&self.config, &self.host).text(&owned) {
            Some(text) => self.teller.summary(self.host.now(), &text),
            None => Ok(()),
        }
    }

    fn sum_up(&self) -> Result<()> {
        let (looks, cost) = self.host.looks();
        if looks > 0 {
            let text = format!(
                "recall: looked for a crowd {looks} times, {:.0} us of CPU time each",
                cost.micros()
            );
            self.teller.summary(self.host.now(), &text)?;
        }
        let would = self.state.is_none();
        match self.saved.text(would, &self.config.profile) {
            Some(text) => self.teller.summary(self.host.now(), &text),
            None => Ok(()),
        }
    }

    /// Waits for at most `left`; whether to go on.
    fn wait(&mut self, signals: &mut Signals, left: Duration) -> Result<bool> {
        let goes_on = signals.wait(left, self.supervisor.as_ref(), self.read.as_ref())?;
        if signals.reload.swap(false, Ordering::Relaxed)
            && let Err(error) = self.reload()
        {
            out::note(format_args!("the configuration stays as it was: {error:#}"));
        }
        Ok(goes_on)
    }

    /// Takes a new configuration where that needs no new start.
    fn reload(&mut self) -> Result<()> {
        let config = self.args.config()?;
        let fixed = |config: &Config| {
            let Config { policy, machine, hold, leave, contest, job, .. } = config;
            let (owned, paces) = (registry::owned(policy).ok(), config.paces_reactors());
            (owned, paces, machine.clone(), hold.clone(), *leave, *contest, job.clone())
        };
        if fixed(&config) != fixed(&self.config) {
            return Err(usage(
                "policies for other controls, machine, hold, leave, contest, job and serve with \
                 machine.reactors need a new start (systemctl restart ebb)",
            ));
        }
        let held = config.at(Zoned::now().time());
        let (policy, _) = make(&config, held, &self.host)?;
        self.cycle.change(policy, held.ssd_budget)?;
        self.core = Core::new(&Profile::load(&config.profile)?);
        if config.serve != self.config.serve {
            self.served = config.serve.map(Served::new).transpose()?;
        }
        let is_other = config.serve != self.config.serve;
        (self.config, self.held) = (config, held);
        out::note("the configuration is taken");
        if is_other { self.say_latency() } else { Ok(()) }
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

/// Says what the policies cannot do without and this machine does not have, and what they go
/// without.
///
/// # Errors
/// Where none of them could do anything and it is to act.
fn fits(host: &Host, config: &Config, idle: &[(&str, &str)]) -> Result<()> {
    let report = Report::new(host.machine(), &config.stated()?);
    let parts = registry::names(&config.policy);
    let fits: Vec<_> =
        parts.filter_map(|part| report.policies.iter().find(|fit| fit.policy == part)).collect();
    for fit in &fits {
        let policy = fit.policy;
        if !fit.lacks.is_empty() {
            let missing = fit.lacks.join(", no ");
            out::note(format_args!("{policy}: this machine has no {missing}; ebb probe says why"));
        } else if !fit.alone.is_empty() {
            let alone = fit.alone.join(" and ");
            out::note(format_args!("{policy} leaves {alone} alone here; ebb probe says why"));
        }
    }
    let is_idle = |policy: &str| idle.iter().any(|(part, _)| *part == policy);
    let can = |fit: &&Fit| fit.lacks.is_empty() && !is_idle(fit.policy);
    if !fits.iter().any(can) {
        let policy = &config.policy;
        let nothing = format!("{policy} can do nothing here; ebb probe says what could");
        if config.apply {
            return Err(usage(nothing));
        }
        out::note(nothing);
    }
    Ok(())
}

/// Says which rights this process lacks to act, or to see, on the machine.
fn rights(host: &Host, acts: bool) {
    let nvme = host.machine().drives.iter().any(|drive| drive.controller.is_some());
    let is_needed = |one: &Capability| match one {
        Capability::SysAdmin => nvme,
        _ => acts,
    };
    for one in Capability::ALL.into_iter().filter(|one| is_needed(one) && !one.is_there()) {
        let (what, remedy) = (one.what_for(), one.remedy());
        out::note(format_args!("no {what}: {remedy}"));
    }
}

/// Says which drives no state caps, and what they count for in a budget.
fn say_uncapped(host: &Host, is_budgeted: bool) {
    for parts in host.layout().drives.iter().filter(|_| is_budgeted) {
        if let Some((most, why)) = parts.most() {
            let drive = parts.drive.id.as_ref().unwrap_or(&parts.drive.name);
            out::note(format_args!(
                "{drive} has no power states: it counts in ssd_budget with {most}, {why}"
            ));
        }
    }
}

/// What there is, for people: as `ebb probe` counts it, whatever the policy steers of it.
fn parts(host: &Host, config: &Config) -> String {
    let (topology, machine) = (host.topology(), host.machine());
    let capped = host.layout().drives.iter().filter(|parts| {
        let states = parts.identity.iter().flat_map(|identity| &identity.states);
        states.filter(|state| state.operational).count() > 1
    });
    let group = |(name, spec): (&String, &GroupSpec)| format!("{} cores of {name}", spec.cores);
    let names = Names::new(topology);
    let groups: Vec<_> = match &topology.groups[..] {
        [all] => vec![format!("{} cores", all.cores)],
        several => names.groups().iter().zip(several).map(group).collect(),
    };
    format!(
        "found {}; frequencies {}, drives {} ({} with power caps), fans {}, sockets {} ({} with \
         temperatures)",
        groups.join(", "),
        topology.frequencies.len(),
        topology.drives.len(),
        capped.count(),
        Fans::found(machine, &config.fans()).fans.len(),
        machine.cpus.sockets,
        machine.socket_sensors().len(),
    )
}

/// Standard output, where it is a pipe.
fn pipe() -> Option<OwnedFd> {
    let output = std::io::stdout().as_fd().try_clone_to_owned().ok()?;
    let kind = FileType::from_raw_mode(fstat(&output).ok()?.st_mode);
    (kind == FileType::Fifo).then_some(output)
}

fn make(config: &Config, held: InEffect, host: &Host) -> Result<(Box<dyn Policy>, Settings)> {
    let InEffect { plf, ssd_budget } = held;
    let (tail, curve) = (config.tail, config.curve()?);
    let settings = Settings { plf, tail, ssd_budget, server_budget: None, curve };
    let policy = Latency::of(config, host).policy(&config.policy);
    Ok((registry::make(&policy, host.topology(), &settings)?, settings))
}
