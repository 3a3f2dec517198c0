//! The loop of `ebb run`: one cycle each period, until told to end.

mod effect;
mod feeds;
mod start;
mod trial;

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use ebb_cli::{out, usage};
use ebb_host::{Allowed, Feeds, Host, State, Verified, compare};
use ebb_policy::registry::{self, Settings};
use ebb_policy::units::{Nanos, Watts};
use ebb_policy::{Cycle, Limits};
use ebb_twin::Profile;
use serde_json::Value;

use self::effect::{Effect, in_words};
use self::start::{act, begun, known, pipe};
use self::trial::Trying;
use super::RunArgs;
use super::config::Config;
use super::desk::{self, Asked, Desk, Order, What};
use super::estimate::{Core, Saved, Shadow, governed};
use super::events::{self, Begun, Event, Made, Stream, Tick};
use super::latency::Latency;
use super::loss::Loss;
use super::remarks::{Remarks, parts};
use super::schedule::InEffect;
use super::served::{Served, Watched};
use super::signals::Signals;
use super::systemd::Systemd;
use crate::exit::{is_usage, message};
use crate::restore;
use crate::rpc::{Fault, code};
use crate::verify::Report;

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
    /// The machine has new parts, which policies have to be made for, or it is to pause or resume.
    Changed,
}

/// What outlives the parts of a machine.
pub struct Around<'a> {
    /// Who hears of it.
    pub stream: &'a Stream,
    /// Where orders come in.
    pub desk: &'a mut Desk,
    /// The start of the run.
    pub begun: Instant,
}

/// One run.
pub struct Work<'a> {
    args: &'a RunArgs,
    config: Config,
    host: Host,
    served: Option<Served>,
    cycle: Cycle,
    effect: Effect,
    feeds: Feeds,
    /// What they allow now.
    allowed: Option<Allowed>,
    trying: Option<Trying>,
    /// Until when everything is as found, for the trial.
    as_found: Option<Nanos>,
    around: Around<'a>,
    /// From the start of the run to that of these parts.
    before: Nanos,
    settings: Arc<events::Settings>,
    begun: Arc<Begun>,
    made: Arc<Made>,
    cycles: u64,
    core: Core,
    saved: Saved,
    loss: Loss,
    summed_up: Nanos,
    /// When the last part came that only a new start can take in.
    new: Option<Instant>,
    /// The supervisor, of a worker; systemd is its matter then.
    supervisor: Option<UnixStream>,
    systemd: Systemd,
    /// Where what was found is kept, of a worker.
    state: Option<State>,
    /// Whether it acts: it is a worker, and not to pause.
    acts: bool,
    /// Who only observes does it for a reader: a pipe, of which the other end can go.
    read: Option<OwnedFd>,
}

impl<'a> Work<'a> {
    /// Looks for what is there, and gets ready to act where `state` is given and no pause is
    /// ordered; nothing is changed.
    pub fn new(
        args: &'a RunArgs,
        config: Config,
        supervisor: Option<UnixStream>,
        state: Option<State>,
        around: Around<'a>,
    ) -> Result<Self> {
        let owned = registry::owned(&config.policy)?;
        let profile = Profile::load(&config.profile)?;
        let mut host = known(args.machine()?, &config, &owned, &profile)?;
        let effect = Effect::of(&config, around.desk.orders());
        for budget in config.server_budgets().chain(effect.held.server_budget) {
            check_budget(&host, budget)?;
        }
        let mut feeds = Feeds::new(config.machine.stated_feeds());
        let allowed = feeds.read(&host.machine().sys);
        if let Some(allowed) = allowed.as_ref().filter(|allowed| allowed.lost.is_empty()) {
            check_budget(&host, allowed.limit).context("machine.feeds")?;
        }
        let now = effect.clone().within(allowed.as_ref());
        let held = now.held;
        let ((policy, caps), made) = make(&config, &now, &host, 0)?;
        let acts = state.is_some() && !around.desk.orders().is_paused();
        let mut remarks = Remarks::of(&host, &config, held, &made.settings, acts)?;
        let InEffect { ssd_budget, server_budget, .. } = held;
        feeds::remarks(&config, &host, &feeds, allowed.as_ref(), server_budget)
            .into_iter()
            .for_each(|text| remarks.say(text));
        let limits = Limits { ssd_budget, server_budget, ..Limits::default() };
        let cycle = Cycle::new(host.topology(), policy, limits).capped(caps)?;
        if let Some(state) = state.as_ref().filter(|_| acts) {
            act(&mut host, &config, &owned, state, &mut remarks)?;
        }
        let before = Nanos::from_seconds(around.begun.elapsed().as_secs_f64());
        let begun = Begun { at: before, would: !acts, ..begun(&host, &config, remarks)? };
        let begun = Arc::new(begun);
        around.stream.tell(Event::Begun(begun.clone()));
        let core = Core::new(&profile);
        let served = Served::of(&config)?;
        let read = state.is_none().then(pipe).flatten();
        let (saved, summed_up) = (Saved::default(), Nanos::ZERO);
        Ok(Self {
            args,
            host,
            served,
            cycle,
            settings: in_words(&now, allowed.as_ref(), None, &around),
            effect,
            feeds,
            allowed,
            trying: config.trial.filter(|_| acts).map(Trying::new),
            as_found: None,
            around,
            before,
            begun,
            made: Arc::new(made),
            cycles: 0,
            core,
            saved,
            loss: Loss::default(),
            summed_up,
            config,
            new: None,
            systemd: Systemd::default(),
            supervisor,
            state,
            acts,
            read,
        })
    }

    /// Answers who waits for this run to begin.
    pub fn begun_anew(&mut self) {
        self.around.desk.begun_anew(Ok(()));
    }

    /// Runs until told to end, or the machine is another; sets everything back.
    pub fn run(mut self, signals: &mut Signals) -> Result<(Ended, Config)> {
        self.say(parts(&self.host, &self.config));
        self.say_latency()?;
        let done = self.cycles(signals);
        self.sum_up();
        if let Err(error) = self.host.let_go() {
            out::note(error);
        }
        let set_back = self.state.as_ref().map_or(Ok(()), |state| {
            // Where each place is may have changed with the machine.
            restore::all(&self.args.machine()?, state, None)
        });
        let ended = done?;
        match (ended, set_back) {
            // What cannot be set back now stays saved: its device may be away. The next start, the
            // end and `ebb restore` try again.
            (Ended::Changed, Err(error)) => {
                out::note(format_args!("{error:#}"));
                self.around.desk.begun_anew(Err(&error));
            }
            (Ended::Told, set_back) => set_back?,
            (Ended::Changed, Ok(())) => {}
        }
        Ok((ended, self.config))
    }

    fn cycles(&mut self, signals: &mut Signals) -> Result<Ended> {
        let mut next = Instant::now();
        let mut planned = next;
        loop {
            self.follow();
            if self.new.is_some_and(|came| came.elapsed() >= SETTLED) {
                out::note("the machine has new parts: starting again with them");
                return Ok(Ended::Changed);
            }
            if self.follow_settings()? {
                return Ok(Ended::Changed);
            }
            self.once(planned.elapsed())?;
            let lasted = Nanos::from_seconds(signals.begun.elapsed().as_secs_f64());
            if self.args.duration.is_some_and(|duration| lasted >= duration) {
                return Ok(Ended::Told);
            }
            let period = Duration::from_nanos(self.config.period.0);
            planned = next + period;
            // What was missed, asleep or stopped, is not made up for.
            next = planned.max(Instant::now());
            while let Some(left) = next.checked_duration_since(Instant::now()) {
                // While cores are parked, a crowd is not to wait for the next cycle.
                let pace = self.host.pace().filter(|pace| *pace < left);
                if !self.wait(signals, pace.unwrap_or(left))? {
                    return Ok(Ended::Told);
                }
                if self.obey() {
                    return Ok(Ended::Changed);
                }
                if let Some(recalled) = pace.and_then(|_| self.host.look()) {
                    self.around.stream.tell(Event::Recalled(recalled));
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
        let at = self.host.now() + self.before;
        for text in followed.notes {
            out::note(&text);
            self.around.stream.tell(Event::Changed { at, text });
        }
        self.new = followed.is_new.then(Instant::now);
    }

    /// One cycle.
    fn once(&mut self, late: Duration) -> Result<()> {
        let mut machine = Watched { host: &mut self.host, served: self.served.as_mut() };
        let (mut natively, mut found, mut latency) = (Vec::new(), None, None);
        let cycled = if self.acts {
            self.cycle.step(&mut machine)
        } else {
            self.cycle.step(&mut Shadow {
                machine,
                natively: &mut natively,
                found: &mut found,
                latency: &mut latency,
            })
        };
        let (host, signals) = (&self.host, cycled.signals);
        let by = |group| governed(host, group);
        self.saved.add(&self.core, host.topology(), &natively, by, signals);
        self.loss.add(latency, signals);
        let policy = &self.effect.policy;
        let trying = self.trying.as_mut();
        let tried = trying.and_then(|trying| trial::see(trying, policy, self.before, signals));
        let now = cycled.signals.now;
        let (notices, failing) = (self.host.notices(), self.host.failing());
        let would = !self.acts;
        let state = match (cycled.native, failing, would) {
            _ if self.around.desk.orders().is_paused() => events::State::Paused,
            (Some(reason), ..) => events::State::Native(reason),
            (None, _, true) => events::State::Observing,
            (None, 0, false) => events::State::Acting,
            (None, failing, false) => events::State::Degraded(failing),
        };
        let in_words = format!("{}: {state}", self.settings.policy);
        self.around.stream.tell(Event::Tick(Box::new(Tick {
            begun: self.begun.clone(),
            number: self.cycles,
            made: self.made.clone(),
            at: now + self.before,
            // Before 1970 there was no Ebb.
            unix_s: SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs_f64(),
            settings: self.settings.clone(),
            signals: cycled.signals.clone(),
            found,
            in_force: cycled.in_force.clone(),
            applied: cycled.applied.clone(),
            state,
            notices,
            late: Nanos::from_seconds(late.as_secs_f64()),
            saving: self.saved.range(would),
            saved: self.saved.last(would),
            loss: self.loss.share(),
        })));
        tried.into_iter().for_each(|tried| self.around.stream.tell(tried));
        self.cycles += 1;
        if let Some(text) = self.served.as_mut().and_then(|served| served.paced(&self.host)) {
            self.say(format!("{}{text}", if would { "would set " } else { "" }));
        }
        match &mut self.supervisor {
            // One that is gone is noticed while waiting.
            Some(supervisor) => drop(writeln!(supervisor, "{in_words}")),
            None => self.systemd.tell(&in_words),
        }
        if now.saturating_sub(self.summed_up) >= SUMMARY {
            self.sum_up();
            self.summed_up = now;
        }
        Ok(())
    }

    /// Says something of the run as a whole.
    fn say(&self, text: String) {
        self.around.stream.tell(Event::Summary { at: self.host.now() + self.before, text });
    }

    /// Says what users' latency is.
    fn say_latency(&self) -> Result<()> {
        let owned = registry::owned(&self.config.policy)?;
        let text = Latency::of(&self.config, &self.host).text(&owned);
        text.into_iter().for_each(|text| self.say(text));
        Ok(())
    }

    fn sum_up(&self) {
        let (looks, cost) = self.host.looks();
        if looks > 0 {
            self.say(format!(
                "recall: looked for a crowd {looks} times, {:.0} us of CPU time each",
                cost.micros()
            ));
        }
        let text = self.saved.text(!self.acts, &self.config.profile);
        text.into_iter().for_each(|text| self.say(text));
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
            let Config { policy, machine, hold, leave, contest, job, trial, .. } = config;
            let (owned, paces) = (registry::owned(policy).ok(), config.paces_reactors());
            let told = (machine.clone(), hold.clone(), *leave, *contest, job.clone(), *trial);
            let Config { control, page, ledger, record, record_keep, .. } = config.clone();
            let places = (control, page, ledger, record, record_keep);
            // Who keeps a budget of the server knows what it draws from the start on.
            let is_budgeted =
                config.server_budgets().next().is_some() || !config.machine.feeds.is_empty();
            let budgeted = is_budgeted.then(|| config.profile.clone());
            (owned, paces, told, config.metrics, places, budgeted)
        };
        if fixed(&config) != fixed(&self.config) {
            return Err(usage(
                "policies for other controls, machine, hold, leave, contest, job, trial, metrics, \
                 control, page, ledger, record, serve with machine.reactors and profile with \
                 server_budget need a new start (systemctl restart ebb)",
            ));
        }
        let orders = self.around.desk.orders().clone();
        orders.over(&config).check().map_err(|wrong| wrong.error)?;
        for budget in config.server_budgets() {
            check_budget(&self.host, budget)?;
        }
        let effect = Effect::of(&config, &orders);
        self.change(&config, effect)?;
        self.core = Core::new(&Profile::load(&config.profile)?);
        let server = |config: &Config| (config.serve, config.serve_control.clone());
        let is_other = server(&config) != server(&self.config);
        if is_other {
            self.served = Served::of(&config)?;
        }
        self.config = config;
        out::note("the configuration is taken");
        if is_other { self.say_latency() } else { Ok(()) }
    }

    /// Goes on by what is in effect now: by the schedule, and by orders that stand. Whether the run
    /// has to begin anew.
    fn follow_settings(&mut self) -> Result<bool> {
        self.follow_feeds();
        self.follow_trial()?;
        let desk = &mut self.around.desk;
        let was = desk.orders().is_paused();
        let is_over = desk.expire(Instant::now());
        if desk.orders().is_paused() != was {
            return Ok(true);
        }
        if is_over || !self.config.schedule.is_empty() {
            let effect = Effect::of(&self.config, desk.orders());
            if is_over || effect != self.effect {
                self.change(&self.config.clone(), effect)?;
            }
        }
        Ok(self.obey())
    }

    /// Goes by `effect` from the next cycle on.
    fn change(&mut self, config: &Config, effect: Effect) -> Result<()> {
        effect.held.server_budget.map_or(Ok(()), |budget| check_budget(&self.host, budget))?;
        self.try_again();
        self.go_by(config, effect)
    }

    /// Likewise, of what was checked.
    fn go_by(&mut self, config: &Config, effect: Effect) -> Result<()> {
        let now = effect.clone().within(self.allowed.as_ref()).tried(self.as_found.is_some());
        let ((policy, _), made) = make(config, &now, &self.host, self.made.nth + 1)?;
        self.cycle.change(policy, now.held.ssd_budget)?;
        // Who keeps the budget of the server goes on, and with another budget.
        self.cycle.set_server_budget(now.held.server_budget);
        self.made = Arc::new(made);
        self.effect = effect;
        self.settings = self.in_words();
        Ok(())
    }

    /// What it goes by, for whoever hears of it.
    fn in_words(&self) -> Arc<events::Settings> {
        in_words(&self.in_force(), self.allowed.as_ref(), self.as_found, &self.around)
    }

    /// What is in effect now, all told.
    fn in_force(&self) -> Effect {
        let effect = self.effect.clone().within(self.allowed.as_ref());
        effect.tried(self.as_found.is_some())
    }

    /// Does what was asked meanwhile; whether the run has to begin anew for that.
    fn obey(&mut self) -> bool {
        while let Some(Asked { what, reply }) = self.around.desk.next() {
            let done = match what {
                What::Verify => self.verify(),
                What::Order(order, time) => match self.order(&order, time) {
                    Ok(text) if matches!(order, Order::Pause(_)) => {
                        self.around.desk.answer_later(reply, text);
                        return true;
                    }
                    ordered => ordered.map(desk::done),
                },
            };
            let failed = |error: anyhow::Error| {
                let code = if is_usage(&error) { code::INVALID_PARAMS } else { code::FAILED };
                Fault::new(code, message(&error))
            };
            // Who does not wait any more has been told so.
            let _ = reply.try_send(done.map_err(failed));
        }
        false
    }

    /// Whether everything is as it was set; of who sets nothing, as it was found.
    fn verify(&mut self) -> Result<Value> {
        let report = match (self.host.verify(), &self.state) {
            (Some(verified), _) => Report::new("set", verified),
            (None, Some(state)) => Report::new("found", compare(self.host.machine(), state)?),
            (None, None) => Report::new("found", Verified::default()),
        };
        Ok(serde_json::to_value(report)?)
    }

    /// Lets an order stand, if a configuration could say the same; says what then is.
    fn order(&mut self, order: &Order, time: Option<Duration>) -> Result<String> {
        let until = time.map(|time| Instant::now() + time);
        let orders = self.around.desk.orders().with(order.clone(), until);
        let text = match order {
            Order::Pause(is) => {
                let is_paused = self.around.desk.orders().is_paused();
                if self.supervisor.is_none() {
                    bail!("it only observes: everything is as it was found already");
                }
                if *is == is_paused {
                    bail!("it is {} already", if is_paused { "paused" } else { "at work" });
                }
                let (paused, acts) = ("paused: everything is as it was found", "it acts again");
                (if *is { paused } else { acts }).to_owned()
            }
            Order::Level(_) => "the log level is changed".to_owned(),
            Order::Budget(_) | Order::ServerBudget(_) | Order::Tolerance(_) | Order::Policy(_) => {
                let config = orders.over(&self.config);
                config.check().map_err(|wrong| wrong.error)?;
                if registry::owned(&config.policy)? != registry::owned(&self.config.policy)? {
                    return Err(usage(format!(
                        "{} steers other controls than {}: that needs a new start",
                        config.policy, self.config.policy
                    )));
                }
                let effect = Effect::of(&self.config, &orders);
                let Effect { policy, held } = effect.clone();
                let InEffect { plf, ssd_budget, server_budget } = held;
                self.change(&self.config.clone(), effect)?;
                let budget = ssd_budget.map(|budget| format!(", drives' caps up to {budget}"));
                let server = server_budget.map(|budget| format!(", the server up to {budget}"));
                let budgets = budget.unwrap_or_default() + &server.unwrap_or_default();
                format!("policy {policy}, tolerated loss {:.1} %{budgets}", 100.0 * plf)
            }
        };
        self.around.desk.take(orders);
        self.settings = self.in_words();
        let time = time.map(|time| format!("; for {}", Nanos::from_seconds(time.as_secs_f64())));
        Ok(text + &time.unwrap_or_default())
    }
}

/// The policies that are in effect, and those that cap them, the `nth` of this run.
fn make(config: &Config, effect: &Effect, host: &Host, nth: u64) -> Result<(registry::Both, Made)> {
    let InEffect { plf, ssd_budget, server_budget } = effect.held;
    let (tail, curve) = (config.tail, config.curve()?);
    let settings = Settings { plf, tail, ssd_budget, server_budget, curve };
    let policy = Latency::of(config, host).policy(&effect.policy).into_owned();
    let made = registry::both(&policy, host.topology(), &settings)?;
    Ok((made, Made { nth, policy, settings }))
}

/// Refuses a budget of the whole server that this one cannot be held to.
fn check_budget(host: &Host, budget: Watts) -> Result<()> {
    ebb_policy::server::check_meter(host.meter_lag()).context("server_budget")?;
    ebb_policy::check_server_budget(host.topology(), budget).context("server_budget")
}
