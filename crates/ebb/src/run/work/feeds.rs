//! Feeds of the server's supplies: while one has no input the others must do.

use std::sync::Arc;

use ebb_cli::out;
use ebb_host::{Allowed, Feeds, Host};
use ebb_policy::units::Watts;

use super::effect::lower;
use super::{Work, check_budget};
use crate::run::config::Config;
use crate::run::events::{Event, Made};

/// What an operator should know of the feeds at the start: which alone allow less than this machine
/// can be held to, which supplies are not here, and which feeds have no input.
pub(super) fn remarks(
    config: &Config,
    host: &Host,
    feeds: &Feeds,
    allowed: Option<&Allowed>,
    budget: Option<Watts>,
) -> Vec<String> {
    let too_small = config.machine.feeds.iter().filter_map(|feed| {
        let why = check_budget(host, feed.limit).err()?;
        Some(format!("feed {} alone, {}: {}", feed.name, feed.limit, crate::exit::message(&why)))
    });
    let missing = feeds.missing().map(|(supply, feed)| {
        format!(
            "machine.feeds: supply {supply} of feed {feed} is not here and counts as one without \
             input; ebb probe lists those that are"
        )
    });
    let lost = allowed.map(|allowed| &*allowed.lost).filter(|lost| !lost.is_empty());
    let lost = lost.map(|lost| with_input(lost, config, budget));
    too_small.chain(missing).chain(lost).collect()
}

/// Which feeds have no input, and what the server may take then.
fn with_input(lost: &[String], config: &Config, budget: Option<Watts>) -> String {
    let budget = budget.unwrap_or_default();
    match lost {
        [] => format!("all feeds have input: the server up to {budget}"),
        lost if lost.len() == config.machine.feeds.len() => {
            format!("no feed has input, which cannot be: the server up to {budget}")
        }
        lost => format!("no input: feed {}: the server up to {budget}", lost.join(", ")),
    }
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
            let text = with_input(&is, &self.config, budget);
            out::note(&text);
            let at = self.host.now() + self.before;
            self.around.stream.tell(Event::Changed { at, text });
        }
        self.cycle.set_server_budget(budget);
        let Made { nth, policy, settings } = &*self.made;
        let mut settings = settings.clone();
        settings.server_budget = budget;
        self.made = Arc::new(Made { nth: *nth, policy: policy.clone(), settings });
        self.settings = self.in_words();
    }
}
