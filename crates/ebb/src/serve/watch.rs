//! Tells the operator when a device stalls or goes on, and when an array loses a member or has all
//! of them again.

use std::sync::{Arc, Weak};

use anyhow::Context;
use ebb_dataplane::controller::Namespace;
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

/// Looks at `namespaces`, served by `groups`, from a thread of its own. What is wrong at the start
/// is told at once.
///
/// # Errors
/// When the system refuses the thread.
pub fn start(namespaces: &[Namespace], groups: &[GroupView]) -> anyhow::Result<()> {
    let watched = namespaces.iter().enumerate().map(|(index, namespace)| {
        let well = namespace.device.health().filter(|health| health.is_well());
        let device = Arc::downgrade(&namespace.device);
        let health = well.map(|health| health.to_string());
        Watched { id: namespace.id, index, device, health, is_stalled: false }
    });
    let mut watched: Vec<_> = watched.collect();
    let services: Vec<_> = groups.iter().map(|group| group.service.clone()).collect();
    let look = move || {
        loop {
            watched.iter_mut().flat_map(|one| one.look(&services)).for_each(out::note);
            std::thread::sleep(PERIOD);
        }
    };
    let thread = std::thread::Builder::new().name("health".to_owned()).spawn(look);
    thread.context("cannot start the thread that watches devices; raise the thread limit")?;
    Ok(())
}
