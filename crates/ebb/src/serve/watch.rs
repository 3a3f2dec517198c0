//! Tells the operator when a device stalls or goes on, when an array loses a member or has all of
//! them again, and when a host fails to authenticate itself.

use std::sync::{Arc, Weak};

use anyhow::Context;
use ebb_dataplane::controller::{Failure, Subsystem};
use ebb_dataplane::device::Device;
use ebb_dataplane::transport::Service;

use super::status::{GroupView, PERIOD};
use crate::out;

/// What is said of a namespace whose device is stalled.
pub fn stalled(id: u32) -> String {
    format!(
        "namespace {id} is stalled: its device has requests and completes none; others are served, \
         look at the kernel's log for the device"
    )
}

/// A namespace and what was last told of it.
struct Watched {
    id: u32,
    index: usize,
    /// Not owned: dropping the last owner stops an array in order.
    device: Weak<dyn Device>,
    health: Option<String>,
    is_stalled: bool,
}

impl Watched {
    /// What to tell, if anything is new.
    fn look(&mut self, services: &[Arc<Service>]) -> Vec<String> {
        let mut news = Vec::new();
        let is_stalled = services.iter().any(|service| service.is_stalled(self.index));
        if std::mem::replace(&mut self.is_stalled, is_stalled) != is_stalled {
            let goes_on = || format!("namespace {} is not stalled any more", self.id);
            news.push(if is_stalled { stalled(self.id) } else { goes_on() });
        }
        let health = self.device.upgrade().and_then(|device| device.health());
        if let Some(text) = health.map(|health| health.to_string())
            && self.health.as_ref() != Some(&text)
        {
            news.push(format!("namespace {} is {text}", self.id));
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

/// Looks at a subsystem, served by `groups`, from a thread of its own. What is wrong at the start
/// is told at once.
///
/// # Errors
/// When the system refuses the thread.
pub fn start(subsystem: &Arc<Subsystem>, groups: &[GroupView]) -> anyhow::Result<()> {
    let watched = subsystem.namespaces().iter().enumerate().map(|(index, namespace)| {
        let well = namespace.device.health().filter(|health| health.is_well());
        let device = Arc::downgrade(&namespace.device);
        let health = well.map(|health| health.to_string());
        Watched { id: namespace.id, index, device, health, is_stalled: false }
    });
    let mut watched: Vec<_> = watched.collect();
    let services: Vec<_> = groups.iter().map(|group| group.service.clone()).collect();
    let mut door = Door { subsystem: Arc::downgrade(subsystem), last: 0 };
    let look = move || {
        loop {
            watched.iter_mut().flat_map(|one| one.look(&services)).for_each(out::note);
            door.look().into_iter().for_each(out::note);
            std::thread::sleep(PERIOD);
        }
    };
    let thread = std::thread::Builder::new().name("watch".to_owned()).spawn(look);
    thread.context(
        "cannot start the thread that watches devices and hosts; raise the thread limit",
    )?;
    Ok(())
}
