//! Tells the operator when an array loses a member, or has all of them again.

use std::sync::{Arc, Weak};

use anyhow::Context;
use ebb_dataplane::controller::Namespace;
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

/// Looks at the health of `namespaces` from a thread of its own, if there is any to look at. What
/// is wrong at the start is told at once.
///
/// # Errors
/// When the system refuses the thread.
pub fn start(namespaces: &[Namespace]) -> anyhow::Result<()> {
    let watched = namespaces.iter().filter_map(|namespace| {
        let health = namespace.device.health()?;
        let told = if health.is_well() { health.to_string() } else { String::new() };
        Some(Watched { id: namespace.id, device: Arc::downgrade(&namespace.device), told })
    });
    let mut watched: Vec<_> = watched.collect();
    if watched.is_empty() {
        return Ok(());
    }
    let look = move || {
        loop {
            watched.iter_mut().filter_map(Watched::look).for_each(out::note);
            std::thread::sleep(PERIOD);
        }
    };
    let thread = std::thread::Builder::new().name("health".to_owned()).spawn(look);
    thread.context("cannot start the thread that watches arrays; raise the thread limit")?;
    Ok(())
}
