//! Hosts that begin with TLS (TCP 3.6.1): which key each has, by the first message it sends.
//!
//! The key is found, and the answer to the message made, by the [helper](super::helper): files are
//! read there, and what strangers cause is bounded there. Guessing a key is hopeless, so failures
//! do not make the next attempt wait, which could be that of the host whose name was used.

use std::net::{IpAddr, Ipv4Addr};

use super::super::Subsystem;
use super::super::association::lock;
use super::Wake;
use super::helper::Pending;
use crate::tls::{Hello, Identity, Key, Session, alert};
use crate::wire::fabrics::DISCOVERY_NQN;

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

/// Why there is no session: to be told to the host, and to the operator.
struct Refused {
    alert: u8,
    host: Option<String>,
    why: String,
}

/// The key of a host being looked for.
pub struct Greeting(Pending<Result<(Box<Session>, Identity), Refused>>);

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
        let access = self.access.as_ref()?;
        let (keys, own) = (access.tls.clone()?, self.config.nqn.clone());
        let work = move || find(&hello, records, &*keys, &own);
        Some(Greeting(access.helper.submit(work, from.unwrap_or(NOWHERE), wake)))
    }

    /// The session with a host, and who it is, once its key is found; an alert for it if none is.
    pub fn greeted(
        &self,
        greeting: &Greeting,
        from: Option<IpAddr>,
    ) -> Option<Result<(Box<Session>, Identity), u8>> {
        Some(greeting.0.take()?.map_err(|Refused { alert, host, why }| {
            self.tls_failed(host.as_deref(), from, why);
            alert
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
    // One alert for all that may be wrong, so that names cannot be tried out by it.
    let refused = |host: Option<&str>, why: String| Refused {
        alert: alert::DECRYPT_ERROR,
        host: host.map(str::to_owned),
        why,
    };
    let mut failed = refused(None, "TLS with the identity of something else".to_owned());
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
                failed = refused(Some(host), why);
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
                    Err(error) => Err(refused(Some(host), error.to_string())),
                };
            }
            None => failed = refused(Some(host), "TLS with another key".to_owned()),
        }
    }
    Err(failed)
}

impl std::fmt::Debug for Greeting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Greeting")
    }
}
