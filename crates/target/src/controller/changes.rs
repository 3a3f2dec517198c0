//! What is changed while hosts use a subsystem. Controllers tell their hosts by events.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::allowance::{Allowance, Allowed};
use super::config::{ConfigError, Namespace};
use super::lock::lock;
use super::ports::{AnaState, Port};
use super::{Subsystem, Totals, check_nqn};

impl Subsystem {
    /// Checks a namespace that is to be added beside those there are.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check_namespace(&self, namespace: &Namespace) -> Result<(), ConfigError> {
        namespace.check(&self.spaces.all())?;
        if namespace.id as usize > self.places() {
            return Err(ConfigError::Number {
                field: "a namespace's identifier",
                value: namespace.id.into(),
                range: "at most the number of namespaces there may be, which was set at start",
            });
        }
        Ok(())
    }

    /// Adds a namespace. All groups must have a way to its device.
    ///
    /// # Errors
    /// As of [`Self::check_namespace`].
    pub(crate) fn add_namespace(&self, namespace: Namespace) -> Result<(), ConfigError> {
        self.check_namespace(&namespace)?;
        self.spaces.put(namespace);
        Ok(())
    }

    /// Hides a namespace from hosts; commands that were taken up go on.
    pub(crate) fn take_namespace(&self, id: u32) -> Option<Namespace> {
        self.spaces.take(id)
    }

    /// A namespace by its identifier.
    #[must_use]
    pub fn namespace(&self, id: u32) -> Option<Namespace> {
        self.spaces.get(id)
    }

    /// The device of namespace `id` has grown: hosts are to see it.
    pub fn grown(&self, id: u32) {
        self.spaces.grown(id);
    }

    /// Says where hosts reach it from now on; discovery controllers tell their hosts.
    pub fn set_ports(&self, ports: &[Port]) {
        self.ports.set(ports);
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Where hosts reach it.
    #[must_use]
    pub fn ports(&self) -> Vec<Port> {
        self.ports.all().into_iter().map(|(_, port)| port).collect()
    }

    fn port(&self, address: SocketAddr) -> Option<usize> {
        let ports = self.ports.all();
        let port = ports.iter().find(|(_, port)| port.address == address);
        port.map(|(number, _)| usize::from(*number))
    }

    /// Sets the ANA state of a group, or of all, for hosts that come by `address`; false where
    /// there is no such address or group.
    pub fn set_ana(&self, address: SocketAddr, group: Option<u32>, state: AnaState) -> bool {
        let groups = match group {
            Some(group) if group == 0 || group > self.spaces.most() => return false,
            Some(group) => group - 1..group,
            None => 0..self.spaces.most(),
        };
        let Some(port) = self.port(address) else { return false };
        groups.for_each(|group| self.ports.set_state(port, group as usize, state));
        true
    }

    /// The ANA state of a group for hosts that come by `address`.
    #[must_use]
    pub fn ana(&self, address: SocketAddr, group: u32) -> Option<AnaState> {
        let index = (group as usize).checked_sub(1).filter(|index| *index < self.places())?;
        Some(self.ports.state(self.port(address)?, index))
    }

    /// The ANA states of all paths to namespaces: by which address, to which.
    #[must_use]
    pub fn paths(&self) -> Vec<(SocketAddr, u32, AnaState)> {
        let ids = self.spaces.ids();
        let ports = self.ports.all();
        let paths = ports.iter().flat_map(|(number, port)| {
            let state = |id: &u32| self.ports.state((*number).into(), *id as usize - 1);
            ids.iter().map(move |id| (port.address, *id, state(id)))
        });
        paths.collect()
    }

    /// Who may connect without keys from now on; `None` for any. Who is there stays: see
    /// [`Self::expel`].
    ///
    /// # Errors
    /// A name that is none.
    pub fn set_allowed_hosts(&self, hosts: Option<Vec<String>>) -> Result<(), ConfigError> {
        hosts.iter().flatten().try_for_each(|host| check_nqn(host))?;
        *lock(&self.allowed) = hosts;
        Ok(())
    }

    /// Ends all controllers of a host; how many.
    pub fn expel(&self, host: &str) -> usize {
        let all = lock(&self.controllers).live.values().cloned().collect::<Vec<_>>();
        let its: Vec<_> = all.into_iter().filter(|one| one.host.nqn == host).collect();
        its.iter().for_each(|one| self.remove(one));
        its.len()
    }

    /// The hosts that have controllers, with how many each.
    #[must_use]
    pub fn connected(&self) -> BTreeMap<String, usize> {
        let mut hosts = BTreeMap::new();
        for one in lock(&self.controllers).live.values() {
            *hosts.entry(one.host.nqn.clone()).or_default() += 1;
        }
        hosts
    }

    /// Limits what a host may do in a second, on all its queues together, from now on.
    ///
    /// # Errors
    /// A name that is none.
    pub fn allow(&self, host: &str, allowed: Allowed) -> Result<(), ConfigError> {
        check_nqn(host)?;
        self.allowance(host).set(allowed);
        Ok(())
    }

    /// The hosts with limits of the operator's.
    #[must_use]
    pub fn allowed(&self) -> BTreeMap<String, Allowed> {
        let allowances = lock(&self.allowances);
        let set = allowances.iter().filter(|(_, one)| one.get() != Allowed::default());
        set.map(|(host, one)| (host.clone(), one.get())).collect()
    }

    /// Limits the bytes that a host may move in a second besides what [`Subsystem::allow`] says,
    /// until then; or no longer.
    ///
    /// # Errors
    /// A name that is none.
    pub fn lend(&self, host: &str, loan: Option<(u64, Instant)>) -> Result<(), ConfigError> {
        check_nqn(host)?;
        self.allowance(host).lend(loan);
        Ok(())
    }

    /// Ends what was lent until `now` at most.
    pub fn end_loans(&self, now: Instant) {
        lock(&self.allowances).values().for_each(|one| one.end_loan(now));
    }

    /// The bytes a second that are lent to hosts.
    #[must_use]
    pub fn lent(&self) -> BTreeMap<String, u64> {
        let allowances = lock(&self.allowances);
        allowances.iter().filter_map(|(host, one)| Some((host.clone(), one.lent()?))).collect()
    }

    /// What the hosts that have I/O queues did on them.
    #[must_use]
    pub fn done(&self) -> BTreeMap<String, Totals> {
        self.ledger.by_host()
    }

    /// What the queues of a host share. Of hosts that are gone, those with limits are kept.
    pub(super) fn allowance(&self, host: &str) -> Arc<Allowance> {
        let mut allowances = lock(&self.allowances);
        allowances.retain(|_, one| one.is_set() || Arc::strong_count(one) > 1);
        allowances.entry(host.to_owned()).or_default().clone()
    }
}
