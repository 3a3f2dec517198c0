//! Tells the operator when a device stalls or goes on, when an array loses a member or has all of
//! them again, and when a host fails to authenticate itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use anyhow::Context;
use ebb_target::controller::{Failure, Namespace, Subsystem};

use super::facts::Facts;
use super::status::{Observer, PERIOD};
use crate::log::{self, Level};

/// What is said of a namespace whose device is stalled.
pub fn stalled(id: u32) -> String {
    format!(
        "namespace {id} is stalled: its device has requests and completes none; others are served, \
         look at the kernel's log for the device"
    )
}

/// What was last told of a namespace.
#[derive(Default)]
struct Watched {
    health: Option<String>,
    is_stalled: bool,
}

impl Watched {
    /// What to tell, if anything is new.
    fn look(&mut self, namespace: &Namespace, facts: &Facts) -> Vec<String> {
        let (mut news, id) = (Vec::new(), namespace.id);
        let services = facts.groups.iter().map(|group| &group.service);
        let is_stalled = services.into_iter().any(|service| service.is_stalled(id as usize - 1));
        if std::mem::replace(&mut self.is_stalled, is_stalled) != is_stalled {
            let goes_on = || format!("namespace {id} is not stalled any more");
            news.push(if is_stalled { stalled(id) } else { goes_on() });
        }
        let health = namespace.device.health();
        let is_first = self.health.is_none();
        if let Some(text) = health.as_ref().map(ToString::to_string)
            && self.health.as_ref() != Some(&text)
        {
            // What is well from the start needs no telling.
            let is_news = !is_first || health.is_some_and(|health| !health.is_well());
            news.extend(is_news.then(|| format!("namespace {id} is {text}")));
            self.health = Some(text);
        }
        news
    }
}

/// Failed authentications that are told of at once; of more, how many.
const AT_ONCE: usize = 5;

/// The authentications of a subsystem.
struct Door {
    subsystem: Weak<Subsystem>,
    /// The failure that was told of last.
    last: u64,
}

impl Door {
    /// What to tell of the failures since the last look.
    fn look(&mut self) -> Vec<String> {
        let failures = self.subsystem.upgrade().map(|one| one.failures_since(self.last));
        let failures = failures.unwrap_or_default();
        let Some(Failure { number, .. }) = failures.last() else { return Vec::new() };
        let count = number - self.last;
        self.last = *number;
        let text = |failure: &Failure| {
            let Failure { host, address, why, .. } = failure;
            format!("{host} at {address} failed to authenticate itself: {why}")
        };
        let told: Vec<String> = failures.iter().rev().take(AT_ONCE).rev().map(text).collect();
        let more = count.saturating_sub(told.len() as u64);
        let more =
            (more > 0).then(|| format!("{more} more hosts failed to authenticate themselves"));
        more.into_iter().chain(told).collect()
    }
}

/// Looks at a server from a thread of its own, for those who are told and for `observer`. What is
/// wrong at the start is told at once.
///
/// # Errors
/// When the system refuses the thread.
pub fn start(facts: Arc<Facts>, observer: Option<Arc<Observer>>) -> anyhow::Result<()> {
    let mut watched = BTreeMap::<u32, Watched>::new();
    let mut door = Door { subsystem: facts.subsystem.clone(), last: 0 };
    let look = move || {
        loop {
            let namespaces = facts.namespaces();
            watched.retain(|id, _| namespaces.iter().any(|namespace| namespace.id == *id));
            let news = namespaces.iter().flat_map(|namespace| {
                watched.entry(namespace.id).or_default().look(namespace, &facts)
            });
            news.for_each(|text| log::tell(Level::Warning, text));
            drop(namespaces);
            door.look().into_iter().for_each(|text| log::tell(Level::Warning, text));
            std::thread::sleep(PERIOD);
            let subsystem = facts.subsystem.upgrade();
            subsystem.iter().for_each(|subsystem| subsystem.end_loans(Instant::now()));
            observer.iter().for_each(|observer| observer.sample());
        }
    };
    let thread = std::thread::Builder::new().name("watch".to_owned()).spawn(look);
    thread.context(
        "cannot start the thread that watches devices and hosts; raise the thread limit",
    )?;
    Ok(())
}
