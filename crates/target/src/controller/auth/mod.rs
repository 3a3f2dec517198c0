//! Who gets in: DH-HMAC-CHAP on every queue of the hosts that have keys (Base 8.13.5), and
//! [TLS](secure) below it.
//!
//! An [`Authentication`] belongs to one queue. Its [`Transactions`](transaction) are a pure state
//! machine; what takes long goes to a thread of its own, the [`helper`], of which the subsystem
//! has one. Keys are read there, anew for each reply, so that a key that was revoked or added
//! counts from that moment on.

mod attempts;
mod helper;
mod secure;
#[cfg(test)]
mod tests;
mod transaction;
mod work;

pub use attempts::{Failure, Tally};
pub use secure::{Greeting, TlsKeys};

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ebb_nvme::chap::{Group, Hash, Key};
use ebb_nvme::tls::Session;
use ebb_policy::units::Nanos;

use self::attempts::Attempts;
use self::helper::{Helper, Pending};
use self::transaction::{Report, Transactions};
use self::work::Outcome;
use super::Subsystem;
use super::association::{Association, Claim};
use super::lock::lock;

/// Time for a host to authenticate itself, from Connect or its first message on.
const PATIENCE: Nanos = Nanos::from_secs(30);

/// The keys of a host.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    /// Its own, any of which will do.
    pub host: Vec<Key>,
    /// Ours, for hosts that want us to authenticate ourselves.
    pub controller: Option<Key>,
}

/// Where keys are kept.
pub trait Secrets: Send + Sync {
    /// Whether this host has keys and so must authenticate itself. Must not block.
    fn requires(&self, host: &str) -> bool;

    /// Whether any host has keys. Must not block.
    fn guards(&self) -> bool {
        true
    }

    /// Its keys as they are now.
    ///
    /// # Errors
    /// Why they cannot be had, for the log.
    fn keys(&self, host: &str) -> Result<Keys, String>;
}

/// How hosts authenticate themselves.
#[derive(Clone)]
pub struct Rules {
    /// The keys.
    pub secrets: Arc<dyn Secrets>,
    /// Hash functions, the preferred first.
    pub hashes: Vec<Hash>,
    /// Groups, the preferred first.
    pub groups: Vec<Group>,
}

impl Rules {
    /// The strongest hash function. Groups up to FFDHE-4096, of which the smallest takes a
    /// thirtieth of the largest's time; last the null group, which is as good with keys of random
    /// bytes, and which hosts may be limited to.
    #[must_use]
    pub fn new(secrets: Arc<dyn Secrets>) -> Self {
        Self {
            secrets,
            hashes: vec![Hash::Sha512, Hash::Sha384, Hash::Sha256],
            groups: vec![Group::F2048, Group::F3072, Group::F4096, Group::Null],
        }
    }
}

/// Called from another thread when an [`Authentication`] can go on.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// What a subsystem has for authentication.
pub(super) struct Access {
    rules: Option<Rules>,
    tls: Option<Arc<dyn TlsKeys>>,
    helper: Helper,
    attempts: Mutex<Attempts>,
    /// For what no reactor's time comes with.
    started: Instant,
}

impl Access {
    /// For hosts with keys of either kind; `None` where there are none.
    ///
    /// # Errors
    /// When the system refuses the helper.
    pub fn new(rules: Option<Rules>, tls: Option<Arc<dyn TlsKeys>>) -> io::Result<Option<Self>> {
        if rules.is_none() && tls.is_none() {
            return Ok(None);
        }
        let warms_up = tls.is_some();
        let helper = Helper::start(move || {
            if warms_up {
                // Who comes first learns why it fails, if it does.
                let _ = Session::warm_up();
            }
        })?;
        let attempts = Mutex::default();
        Ok(Some(Self { rules, tls, helper, attempts, started: Instant::now() }))
    }

    /// Whether this host must authenticate itself by DH-HMAC-CHAP.
    pub fn requires(&self, host: &str) -> bool {
        self.rules.as_ref().is_some_and(|rules| rules.secrets.requires(host))
    }

    /// Whether it has a key for TLS.
    pub fn has_tls(&self, host: &str) -> bool {
        self.tls.as_ref().is_some_and(|keys| keys.has(host))
    }

    fn now(&self) -> Nanos {
        Nanos(self.started.elapsed().as_nanos() as u64)
    }

    /// Whether any host has keys: else all get in who are not kept out by name.
    pub fn guards(&self) -> bool {
        self.rules.as_ref().is_some_and(|rules| rules.secrets.guards())
            || self.tls.as_ref().is_some_and(|keys| keys.guards())
    }

    pub fn tally(&self) -> Tally {
        lock(&self.attempts).tally()
    }

    /// Whether an attempt that began at `begun` has to wait for any answer.
    fn waits(&self, host: &str, address: IpAddr, begun: Nanos, now: Nanos) -> bool {
        now < lock(&self.attempts).not_before(host, address, begun, now)
    }

    pub fn failures(&self, number: u64) -> Vec<Failure> {
        lock(&self.attempts).failures(number)
    }
}

/// The authentication of one queue's host.
pub struct Authentication {
    subsystem: Arc<Subsystem>,
    association: Arc<Association>,
    /// The number of an I/O queue, to be taken with success.
    claim: Option<Arc<Claim>>,
    address: IpAddr,
    transactions: Transactions,
    pending: Option<Pending<Outcome>>,
    /// When the transaction began.
    begun: Nanos,
    /// When the host must be done.
    deadline: Option<Nanos>,
    /// When it was last heard of.
    heard: Nanos,
}

impl Drop for Authentication {
    fn drop(&mut self) {
        self.transactions.abandon();
        self.report(self.heard);
    }
}

impl Authentication {
    pub(super) fn new(
        subsystem: Arc<Subsystem>,
        association: Arc<Association>,
        claim: Option<Arc<Claim>>,
        now: Nanos,
    ) -> Self {
        Self {
            subsystem,
            association,
            claim,
            address: Ipv4Addr::UNSPECIFIED.into(),
            transactions: Transactions::default(),
            pending: None,
            begun: now,
            deadline: Some(now + PATIENCE),
            heard: now,
        }
    }

    fn host(&self) -> &str {
        &self.association.host.nqn
    }

    /// The host came from this address.
    pub fn came_from(&mut self, address: IpAddr) {
        self.address = address;
    }

    /// Whether the host may use the queue.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.transactions.is_authenticated()
            && self.claim.as_ref().is_none_or(|claim| claim.is_taken())
    }

    /// False once it failed or took too long: the connection must close.
    #[must_use]
    pub fn alive(&self, now: Nanos) -> bool {
        !self.transactions.is_over() && self.deadline.is_none_or(|deadline| now < deadline)
    }

    /// Takes a message from the host. What has to be done for it is done elsewhere; then `wake` is
    /// called.
    pub fn send(&mut self, message: &[u8], now: Nanos, wake: &Wake) {
        self.heard = now;
        self.collect(now);
        let Some(access) = &self.subsystem.access else { return };
        let Some(rules) = &access.rules else { return };
        if !self.transactions.is_under_way() {
            self.begun = now;
            self.deadline = self.deadline.or(Some(now + PATIENCE));
        }
        if let Some(work) = self.transactions.send(message, rules) {
            let (secrets, host) = (rules.secrets.clone(), self.host().to_owned());
            let subsystem = self.subsystem.config.nqn.clone();
            let work = move || work.run(&*secrets, &host, &subsystem);
            self.pending = Some(access.helper.submit(work, self.address, wake));
        }
        self.report(now);
    }

    /// The message that the host is to have next. `None` while there is none: to be asked again
    /// when woken, and once in a while.
    pub fn receive(&mut self, now: Nanos) -> Option<Vec<u8>> {
        self.collect(now);
        let access = self.subsystem.access.as_ref()?;
        if access.waits(self.host(), self.address, self.begun, now) {
            return None;
        }
        let message = self.transactions.receive();
        self.report(now);
        message
    }

    fn collect(&mut self, now: Nanos) {
        if let Some(outcome) = self.pending.as_ref().and_then(Pending::take) {
            self.pending = None;
            self.transactions.done(outcome);
            self.report(now);
        }
    }

    fn report(&mut self, now: Nanos) {
        let report = self.transactions.take_report();
        let (host, address) = (self.host(), self.address);
        let Some(access) = &self.subsystem.access else { return };
        match report {
            Some(Report::Succeeded) => {
                self.association.prove();
                lock(&access.attempts).succeeded(host, address);
                // Where another connection was faster, this one ends.
                let is_its = self.claim.as_ref().is_none_or(|claim| claim.take());
                self.deadline = (!is_its).then_some(now);
            }
            Some(Report::Failed(why)) => {
                lock(&access.attempts).failed(host, address, why.into_owned(), now);
            }
            None => {}
        }
    }
}
