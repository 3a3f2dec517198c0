//! Hosts that begin with TLS (TCP 3.6.1): which key each has, by the first message it sends.
//!
//! The key is found, and the answer to the message made, by the [helper](super::helper): files are
//! read there, and what strangers cause is bounded there. Who fails again and again waits for the
//! answer as with DH-HMAC-CHAP: attempts of both kinds are the [same](super::attempts).

use std::net::{IpAddr, Ipv4Addr};

use ebb_nvme::fabrics::DISCOVERY_NQN;
use ebb_nvme::tls::{Hello, Identity, Key, Session, alert};
use ebb_policy::units::Nanos;

use super::super::Subsystem;
use super::super::lock::lock;
use super::Wake;
use super::helper::Pending;

const NOWHERE: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
/// Whoever says no name.
const UNKNOWN: &str = "a host without a name";

/// Where the keys for TLS are kept.
pub trait TlsKeys: Send + Sync {
    /// Whether this host has keys. Must not block.
    fn has(&self, host: &str) -> bool;

    /// Whether any host has keys. Must not block.
    fn guards(&self) -> bool {
        true
    }

    /// Its keys as they are now, any of which will do.
    ///
    /// # Errors
    /// Why they cannot be had, for the log.
    fn keys(&self, host: &str) -> Result<Vec<Key>, String>;
}

/// Why there is no session, for the operator.
type Refused = String;

/// The key of a host being looked for.
pub struct Greeting {
    /// Who it says it is, by the first identity: what it fails at is on this name's account.
    host: String,
    begun: Nanos,
    found: Pending<Result<(Box<Session>, Identity), Refused>>,
}

impl Subsystem {
    /// Looks for the key by which a host at `from` has made `hello`, the content of `records`;
    /// `wake` is called when there is something to [take](Self::greeted).
    #[must_use]
    pub fn greet(
        &self,
        hello: Hello,
        records: Vec<u8>,
        from: Option<IpAddr>,
        wake: &Wake,
    ) -> Option<Greeting> {
        let (access, from) = (self.access.as_ref()?, from.unwrap_or(NOWHERE));
        let (keys, own) = (access.tls.clone()?, self.config.nqn.clone());
        let host = hello.identities().find_map(Identity::parse).map(|identity| identity.host);
        let host = host.unwrap_or_else(|| UNKNOWN.to_owned());
        let work = move || find(&hello, records, &*keys, &own);
        let found = access.helper.submit(work, from, wake);
        Some(Greeting { host, begun: access.now(), found })
    }

    /// The session with a host, and who it is, once its key is found; an alert for it if none is.
    /// To be asked again when woken, and once in a while.
    pub fn greeted(
        &self,
        greeting: &Greeting,
        from: Option<IpAddr>,
    ) -> Option<Result<(Box<Session>, Identity), u8>> {
        let (access, address) = (self.access.as_ref()?, from.unwrap_or(NOWHERE));
        if access.waits(&greeting.host, address, greeting.begun, access.now()) {
            return None;
        }
        Some(greeting.found.take()?.map_err(|why| {
            self.tls_failed(Some(&greeting.host), from, why);
            // One for all that may be wrong, so that names cannot be tried out by it.
            alert::DECRYPT_ERROR
        }))
    }

    /// A host has shown that it has its key, and so have we.
    pub fn tls_succeeded(&self, host: &str, from: Option<IpAddr>) {
        if let Some(access) = &self.access {
            lock(&access.attempts).succeeded(host, from.unwrap_or(NOWHERE));
        }
    }

    /// A host, if it said who it is, has not.
    pub fn tls_failed(&self, host: Option<&str>, from: Option<IpAddr>, why: String) {
        if let Some(access) = &self.access {
            let (host, now) = (host.unwrap_or(UNKNOWN), access.now());
            lock(&access.attempts).failed(host, from.unwrap_or(NOWHERE), why, now);
        }
    }
}

/// The session with whom `hello` comes from, as far as `records` go.
fn find(
    hello: &Hello,
    records: Vec<u8>,
    keys: &dyn TlsKeys,
    own: &str,
) -> Result<(Box<Session>, Identity), Refused> {
    let mut failed = "TLS with the identity of something else".to_owned();
    for (index, name) in hello.identities().enumerate() {
        let Some(identity) = Identity::parse(name) else { continue };
        let Identity { host, subsystem } = &identity;
        let keys = match subsystem == own || subsystem == DISCOVERY_NQN {
            false => Err(format!("TLS for subsystem {subsystem}, which is not here")),
            true if !keys.has(host) => Err("TLS, and it has no key here".to_owned()),
            true => keys.keys(host),
        };
        let keys = match keys {
            Ok(keys) => keys,
            Err(why) => {
                failed = why;
                continue;
            }
        };
        let mut psks = keys.iter().flat_map(|key| key.psks(host, subsystem));
        match psks.find(|psk| psk.identity.as_bytes() == name && hello.has(index, psk)) {
            Some(psk) => {
                let session = Session::accept(&psk, records).and_then(|mut session| {
                    session.negotiate()?;
                    Ok(Box::new(session))
                });
                return match session {
                    Ok(session) => Ok((session, identity.clone())),
                    Err(error) => Err(error.to_string()),
                };
            }
            None => failed = "TLS with another key".to_owned(),
        }
    }
    Err(failed)
}

impl std::fmt::Debug for Greeting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Greeting")
    }
}
