//! Where hosts reach the server, and which paths they may use.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use ebb_cli::usage;
use ebb_nvme::tls::Security;
use ebb_target::controller::{AnaState, MAX_PORTS, Port, Subsystem};
use ebb_target::transport::Doors;
use serde::Deserialize;
use serde_json::{Value, to_value};

use super::{Control, done, replies, texts};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
    address: SocketAddr,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct New {
    address: SocketAddr,
    /// For hosts with TLS alone.
    #[serde(default)]
    tls: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ana {
    address: SocketAddr,
    namespace: Option<u32>,
    state: String,
}

/// Listens on one more address; where that is.
///
/// # Errors
/// When it cannot, or listens on as many as it may.
pub fn listen(doors: &Doors, port: Port) -> Result<SocketAddr> {
    let address = port.address;
    if doors.ports().len() >= MAX_PORTS {
        return Err(usage(format!(
            "cannot listen on {address}: {MAX_PORTS} addresses are the most"
        )));
    }
    doors.open(port).with_context(|| {
        format!("cannot listen on {address}; choose another with --listen ADDRESS:PORT")
    })
}

/// The states of all paths by an address, by namespace.
fn states(subsystem: &Subsystem, address: SocketAddr) -> Vec<(u32, AnaState)> {
    let its = subsystem.paths().into_iter().filter(|(by, ..)| *by == address);
    its.map(|(_, id, state)| (id, state)).collect()
}

/// As --ana has it, for all paths that are not optimized.
pub(super) fn options(subsystem: &Subsystem) -> Vec<String> {
    let others = subsystem.paths().into_iter();
    let others = others.filter(|(.., state)| *state != AnaState::Optimized);
    others.map(|(address, id, state)| format!("{address}/{id}={}", state.name())).collect()
}

impl Control {
    pub(super) fn listeners(&self) -> Result<Value> {
        self.with(|running| {
            let subsystem = running.subsystem();
            let row = |Port { address, security }: Port| {
                let named = |(id, state): (u32, AnaState)| (id, state.name().to_owned());
                let ana = states(subsystem, address).into_iter().map(named).collect();
                let required = security.map(|security| security == Security::Required);
                let tls = required.map(|required| if required { "required" } else { "offered" });
                replies::Listener { address: address.to_string(), tls: tls.map(str::to_owned), ana }
            };
            let listeners = subsystem.ports().into_iter().map(row).collect();
            Ok(to_value(replies::Listeners { listeners })?)
        })
    }

    pub(super) fn add_listener(&self, New { address, tls }: New) -> Result<Value> {
        self.with(|running| {
            let security = match (tls, running.has_tls()) {
                (true, true) => Some(Security::Required),
                (false, has_tls) => has_tls.then_some(Security::Offered),
                (true, false) => {
                    return Err(usage(format!(
                        "cannot listen on {address} with TLS: the server was started without; \
                         start it with --tls-key"
                    )));
                }
            };
            let address = listen(&running.doors, Port { address, security })?;
            running.subsystem().set_ports(&running.doors.ports());
            self.warn(running);
            Ok(done(format!("listening on {address}")))
        })
    }

    pub(super) fn remove_listener(&self, Place { address }: &Place) -> Result<Value> {
        self.with(|running| {
            let ports = running.doors.ports();
            if !ports.iter().any(|port| port.address == *address) {
                return Err(usage(format!("it does not listen on {address}")));
            }
            if ports.len() == 1 {
                return Err(usage(format!(
                    "{address} is the last address: no host could come any more; add another first"
                )));
            }
            running.doors.close(*address);
            running.subsystem().set_ports(&running.doors.ports());
            running.fleet.close(*address)?;
            self.warn(running);
            Ok(done(format!(
                "not listening on {address} any more; the connections that came by it are closed"
            )))
        })
    }

    pub(super) fn set_ana(&self, Ana { address, namespace, state }: &Ana) -> Result<Value> {
        let state = texts::state(state)?;
        self.with(|running| {
            if let Some(id) = namespace
                && running.subsystem().namespace(*id).is_none()
            {
                return Err(usage(format!("there is no namespace {id}")));
            }
            if !running.subsystem().set_ana(*address, *namespace, state) {
                return Err(usage(format!(
                    "it does not listen on {address}; ebb ctl listener list shows where it does"
                )));
            }
            let what =
                namespace.map_or("all namespaces".to_owned(), |id| format!("namespace {id}"));
            Ok(done(format!("{what} by {address}: {}", state.name())))
        })
    }
}
