//! What a run goes by: the configuration at this time of the day, what is ordered, what the feeds
//! allow, and whether everything is as it was found for the trial.

use std::sync::Arc;

use ebb_host::Allowed;
use ebb_policy::units::{Nanos, Watts};
use jiff::Zoned;

use super::Around;
use crate::run::config::Config;
use crate::run::desk::Orders;
use crate::run::events;
use crate::run::schedule::InEffect;

/// What a run follows while everything is as it was found.
const NATIVE: &str = "native";

/// The lower of what the operator and the feeds allow.
pub(super) fn lower(budget: Option<Watts>, feeds: Option<&Allowed>) -> Option<Watts> {
    budget.into_iter().chain(feeds.map(|feeds| feeds.limit)).reduce(Watts::min)
}

/// What a run goes by at present.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Effect {
    pub policy: String,
    pub held: InEffect,
}

impl Effect {
    /// By the configuration, its schedule, and what is ordered.
    pub fn of(config: &Config, orders: &Orders) -> Self {
        let held = orders.in_effect(config.at(Zoned::now().time()));
        Self { policy: orders.policy(&config.policy).to_owned(), held }
    }

    /// The same within what the feeds allow.
    pub fn within(mut self, feeds: Option<&Allowed>) -> Self {
        self.held.server_budget = lower(self.held.server_budget, feeds);
        self
    }

    /// The same while everything is as it was found.
    pub fn tried(mut self, is: bool) -> Self {
        if is {
            NATIVE.clone_into(&mut self.policy);
        }
        self
    }
}

/// What is in effect, for whoever hears of it.
pub(super) fn in_words(
    now: &Effect,
    feeds: Option<&Allowed>,
    as_found_until: Option<Nanos>,
    around: &Around<'_>,
) -> Arc<events::Settings> {
    let Effect { policy, held: InEffect { plf, ssd_budget, server_budget } } = now.clone();
    Arc::new(events::Settings {
        policy,
        plf,
        ssd_budget,
        server_budget,
        lost_feeds: feeds.map(|feeds| feeds.lost.clone()).unwrap_or_default(),
        as_found_until,
        orders: around.desk.orders().shown(around.begun),
    })
}
