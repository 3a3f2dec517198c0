//! Tells the operator when an array loses a member, or has all of them again, and when a host
//! fails to authenticate itself.

use std::sync::{Arc, Weak};

use anyhow::Context;
use ebb_dataplane::controller::{Failure, Subsystem};
use ebb_dataplane::device::Device;

use super::status::PERIOD;
use crate::out;

/// A namespace that can do without a part of its device.
struct Watched {
    id: u32,
    /// Not owned: dropping the last owner stops an array in order.
    device: Weak<dyn Device>,
    told: String,
}

impl Watched {
    /// What to tell, if anything is new.
    fn look(&mut self) -> Option<String> {
        let text = self.device.upgrade()?.health()?.to_string();
        if text == self.told {
            return None;
        }
        self.told = text;
        Some(format!("namespace {} is {}", self.id, self.told))
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

/// Looks at a subsystem from a thread of its own, if there is anything to look at. What is wrong at
/// the start is told at once.
///
/// # Errors
/// When the system refuses the thread.
pub fn start(subsystem: &Arc<Subsystem>) -> anyhow::Result<()> {
    let watched = subsystem.namespaces().iter().filter_map(|namespace| {
        let health = namespace.device.health()?;
        let told = if health.is_well() { health.to_string() } else { String::new() };
        Some(Watched { id: namespace.id, device: Arc::downgrade(&namespace.device), told })
    });
    let mut watched: Vec<_> = watched.collect();
    let mut door = Door { subsystem: Arc::downgrade(subsystem), last: 0 };
    if watched.is_empty() && subsystem.authentications().is_none() {
        return Ok(());
    }
    let look = move || {
        loop {
            watched.iter_mut().filter_map(Watched::look).for_each(out::note);
            door.look().into_iter().for_each(out::note);
            std::thread::sleep(PERIOD);
        }
    };
    let thread = std::thread::Builder::new().name("watch".to_owned()).spawn(look);
    thread.context("cannot start the thread that watches; raise the thread limit")?;
    Ok(())
}
