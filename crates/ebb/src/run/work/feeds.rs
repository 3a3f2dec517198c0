//! Feeds of the server's supplies: while one has no input the others must do.

use std::sync::Arc;

use ebb_host::Allowed;
use ebb_policy::units::Watts;

use super::effect::lower;
use super::{Work, check_budget};
use crate::out;
use crate::run::config::Config;
use crate::run::events::{Event, Made};

/// Which feeds alone allow less than this machine can be held to.
pub(super) fn too_small(config: &Config, host: &ebb_host::Host) -> Vec<String> {
    let told = |feed: &crate::run::config::Feed| {
        let why = check_budget(host, feed.limit).err()?;
        Some(format!("feed {} alone, {}: {}", feed.name, feed.limit, crate::exit::message(&why)))
    };
    config.machine.feeds.iter().filter_map(told).collect()
}

impl Work<'_> {
    /// Goes by what the feeds allow now. Policies go on with another budget.
    pub(super) fn follow_feeds(&mut self) {
        let now = self.feeds.read(&self.host.machine().sys);
        if now == self.allowed {
            return;
        }
        let names = |allowed: &Option<Allowed>| {
            allowed.as_ref().map(|allowed| allowed.lost.clone()).unwrap_or_default()
        };
        let (was, is) = (names(&self.allowed), names(&now));
        self.allowed = now;
        let budget = lower(self.effect.held.server_budget, self.allowed.as_ref());
        if was != is {
            self.tell_feeds(&is, budget);
        }
        self.cycle.set_server_budget(budget);
        let Made { nth, policy, settings } = &*self.made;
        let mut settings = settings.clone();
        settings.server_budget = budget;
        self.made = Arc::new(Made { nth: *nth, policy: policy.clone(), settings });
        self.settings = self.in_words();
    }

    fn tell_feeds(&self, lost: &[String], budget: Option<Watts>) {
        let budget = budget.unwrap_or_default();
        let text = match lost {
            [] => format!("all feeds have input: the server up to {budget}"),
            lost if lost.len() == self.config.machine.feeds.len() => {
                format!("no feed has input, which cannot be: the server up to {budget}")
            }
            lost => format!("no input: feed {}: the server up to {budget}", lost.join(", ")),
        };
        out::note(&text);
        let at = self.host.now() + self.before;
        self.around.stream.tell(Event::Changed { at, text });
    }
}
