//! What `ebb ctl` orders of a run, and until when. Orders are taken between two cycles; they stand
//! over the configuration and its schedule, and are checked as those are.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use ebb_policy::units::Watts;
use serde_json::{Value, json};

use super::config::Config;
use super::events::Ordered;
use super::schedule::InEffect;
use crate::exit;
use crate::log::{self, Level};
use crate::rpc::{Fault, code};

/// So many may wait for a run at once; as many threads ask.
const WAITING: usize = 8;

/// What is ordered; nothing lets it be as configured again.
#[derive(Debug, Clone, PartialEq)]
pub enum Order {
    /// Give everything back as it was found, or act again.
    Pause(bool),
    /// Another `ssd_budget`.
    Budget(Option<Watts>),
    /// Another `server_budget`.
    ServerBudget(Option<Watts>),
    /// Another `plf`.
    Tolerance(Option<f64>),
    /// Another policy for the same controls.
    Policy(Option<String>),
    /// Messages of this level and above.
    Level(Option<Level>),
}

/// What is asked of a run.
#[derive(Debug)]
pub enum What {
    /// To do something, for so long at most.
    Order(Order, Option<Duration>),
    /// Whether everything is as it was set.
    Verify,
}

/// An answer.
pub type Reply = Result<Value, Fault>;

/// A question.
#[derive(Debug)]
pub struct Asked {
    /// What.
    pub what: What,
    /// Where the answer goes.
    pub reply: SyncSender<Reply>,
}

/// Something that stands.
#[derive(Debug, Clone, PartialEq)]
struct Standing<T> {
    value: T,
    until: Option<Instant>,
}

impl<T> Standing<T> {
    /// Ends what is over at `now`.
    fn expire(one: &mut Option<Self>, now: Instant) {
        *one = one.take().filter(|one| one.until.is_none_or(|until| now < until));
    }
}

/// All that stands.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Orders {
    pause: Option<Standing<()>>,
    budget: Option<Standing<Watts>>,
    server_budget: Option<Standing<Watts>>,
    plf: Option<Standing<f64>>,
    policy: Option<Standing<String>>,
    level: Option<Standing<Level>>,
}

impl Orders {
    /// With one more.
    pub fn with(&self, order: Order, until: Option<Instant>) -> Self {
        fn standing<T>(value: Option<T>, until: Option<Instant>) -> Option<Standing<T>> {
            value.map(|value| Standing { value, until })
        }
        let mut all = self.clone();
        match order {
            Order::Pause(is) => all.pause = standing(is.then_some(()), until),
            Order::Budget(budget) => all.budget = standing(budget, until),
            Order::ServerBudget(budget) => all.server_budget = standing(budget, until),
            Order::Tolerance(plf) => all.plf = standing(plf, until),
            Order::Policy(policy) => all.policy = standing(policy, until),
            Order::Level(level) => all.level = standing(level, until),
        }
        all
    }

    /// Whether everything is to be as it was found.
    pub fn is_paused(&self) -> bool {
        self.pause.is_some()
    }

    /// `config` as it is to be.
    pub fn over(&self, config: &Config) -> Config {
        let mut config = config.clone();
        if let Some(Standing { value, .. }) = &self.policy {
            config.policy.clone_from(value);
        }
        config.plf = self.plf.as_ref().map_or(config.plf, |plf| plf.value);
        let ordered = |budget: &Option<Standing<Watts>>| budget.as_ref().map(|one| one.value);
        config.ssd_budget = ordered(&self.budget).or(config.ssd_budget);
        config.server_budget = ordered(&self.server_budget).or(config.server_budget);
        config
    }

    /// What is in effect where `held` is by the configuration and its schedule.
    pub fn in_effect(&self, held: InEffect) -> InEffect {
        let server_budget = self.server_budget.as_ref().map(|one| one.value);
        InEffect {
            plf: self.plf.as_ref().map_or(held.plf, |plf| plf.value),
            ssd_budget: self.budget.as_ref().map(|one| one.value).or(held.ssd_budget),
            server_budget: server_budget.or(held.server_budget),
        }
    }

    /// The policy, where `configured` is by the configuration.
    pub fn policy<'a>(&'a self, configured: &'a str) -> &'a str {
        self.policy.as_ref().map_or(configured, |policy| &policy.value)
    }

    fn level(&self) -> Level {
        self.level.as_ref().map_or(Level::Info, |level| level.value)
    }

    /// In words; times count from `begun`.
    pub fn shown(&self, begun: Instant) -> Vec<Ordered> {
        fn one<T>(
            standing: Option<&Standing<T>>,
            begun: Instant,
            text: impl Fn(&T) -> String,
        ) -> Option<Ordered> {
            let Standing { value, until } = standing?;
            let ends_s = until.map(|until| until.duration_since(begun).as_secs_f64());
            Some(Ordered { what: text(value), ends_s })
        }
        let all = [
            one(self.pause.as_ref(), begun, |()| "pause".to_owned()),
            one(self.budget.as_ref(), begun, |budget| format!("budget {budget}")),
            one(self.server_budget.as_ref(), begun, |budget| format!("server budget {budget}")),
            one(self.plf.as_ref(), begun, |plf| format!("tolerance {:.1} %", 100.0 * plf)),
            one(self.policy.as_ref(), begun, |policy| format!("policy {policy}")),
            one(self.level.as_ref(), begun, |level| format!("log level {}", level.name())),
        ];
        all.into_iter().flatten().collect()
    }
}

/// Where orders come in.
pub struct Desk {
    asked: Receiver<Asked>,
    /// What stands.
    orders: Orders,
    /// Who waits for a run to begin anew, and what is to be said then.
    waiting: VecDeque<(SyncSender<Reply>, String)>,
}

impl Desk {
    /// One, and who lays questions on it.
    pub fn new() -> (Self, SyncSender<Asked>) {
        let (to, asked) = sync_channel(WAITING);
        (Self { asked, orders: Orders::default(), waiting: VecDeque::new() }, to)
    }

    /// The next question.
    pub fn next(&self) -> Option<Asked> {
        self.asked.try_recv().ok()
    }

    /// What stands.
    pub fn orders(&self) -> &Orders {
        &self.orders
    }

    /// Takes what stands from now on.
    pub fn take(&mut self, orders: Orders) {
        if orders.level() != self.orders.level() {
            log::set(orders.level());
        }
        self.orders = orders;
    }

    /// Ends what is over; whether anything was.
    pub fn expire(&mut self, now: Instant) -> bool {
        let mut orders = self.orders.clone();
        Standing::expire(&mut orders.pause, now);
        Standing::expire(&mut orders.budget, now);
        Standing::expire(&mut orders.server_budget, now);
        Standing::expire(&mut orders.plf, now);
        Standing::expire(&mut orders.policy, now);
        Standing::expire(&mut orders.level, now);
        let is_other = orders != self.orders;
        self.take(orders);
        is_other
    }

    /// Answers once the run has begun anew.
    pub fn answer_later(&mut self, reply: SyncSender<Reply>, text: String) {
        self.waiting.push_back((reply, text));
    }

    /// Answers who waits for that: it is so, or why not.
    pub fn begun_anew(&mut self, outcome: Result<(), &anyhow::Error>) {
        for (reply, text) in self.waiting.drain(..) {
            let _ = reply.try_send(match outcome {
                Ok(()) => Ok(done(text)),
                Err(error) => Err(Fault::new(code::FAILED, exit::message(error))),
            });
        }
    }
}

/// A change was made, which the log tells too.
pub fn done(what: String) -> Value {
    log::tell(Level::Info, format_args!("control: {what}"));
    json!({ "done": what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_stand_over_the_configuration_until_they_end() {
        let (mut desk, _to) = Desk::new();
        let (config, now) = (Config::default(), Instant::now());
        let soon = now + Duration::from_secs(9);
        let orders = desk.orders().with(Order::Tolerance(Some(0.5)), Some(soon));
        let orders = orders.with(Order::Budget(Some(Watts(90.0))), None);
        desk.take(orders.with(Order::Policy(Some("ondemand".to_owned())), Some(soon)));
        let server_budget = None;
        let held = InEffect { plf: 0.2, ssd_budget: Some(Watts(200.0)), server_budget };
        let ordered = InEffect { plf: 0.5, ssd_budget: Some(Watts(90.0)), server_budget };
        assert_eq!(desk.orders().in_effect(held), ordered);
        assert_eq!(desk.orders().over(&config).policy, "ondemand");
        let shown = desk.orders().shown(now);
        assert_eq!(
            shown.iter().map(|one| one.ends_s).collect::<Vec<_>>(),
            [None, Some(9.0), Some(9.0)]
        );
        assert!(!desk.expire(now) && desk.expire(soon));
        let left = InEffect { plf: 0.2, ..ordered };
        assert_eq!(desk.orders().in_effect(held), left);
        assert_eq!(desk.orders().policy(&config.policy), config.policy);
        desk.take(desk.orders().with(Order::Budget(None), None));
        assert_eq!(desk.orders(), &Orders::default());
    }
}
