//! What a server is: what stays, and what `ebb ctl` changes.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use ebb_target::controller::{Namespace, Subsystem};
use ebb_target::transport::{Counters, Service};

use super::modelled::Drives;

/// A group from outside.
pub struct GroupView {
    pub counters: Arc<Counters>,
    pub service: Arc<Service>,
}

pub struct Facts {
    pub nqn: String,
    /// Not owned: dropping the last owner stops its devices in order.
    pub subsystem: Weak<Subsystem>,
    /// Namespaces there may be.
    pub places: usize,
    pub connections_limit: u32,
    /// The listener's count of refused connections.
    pub refused: Arc<AtomicU64>,
    pub groups: Vec<GroupView>,
    /// Namespaces that are modelled drives.
    pub drives: Arc<Drives>,
    pub told: Mutex<Told>,
}

/// What is shown and changes.
#[derive(Default)]
pub struct Told {
    pub scheduler: String,
    /// What to tell where nobody is kept out.
    pub warning: Option<String>,
}

impl Facts {
    /// Changes what is shown.
    pub fn tell(&self, change: impl FnOnce(&mut Told)) {
        change(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub fn scheduler(&self) -> String {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).scheduler.clone()
    }

    pub fn warning(&self) -> Option<String> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).warning.clone()
    }

    /// Where it listens.
    pub fn listen(&self) -> Vec<SocketAddr> {
        let ports = self.subsystem.upgrade().map(|subsystem| subsystem.ports());
        ports.unwrap_or_default().into_iter().map(|port| port.address).collect()
    }

    /// The namespaces there are. Not to be kept, as they own their devices.
    pub fn namespaces(&self) -> Vec<Namespace> {
        self.subsystem.upgrade().map(|subsystem| subsystem.namespaces()).unwrap_or_default()
    }
}
