//! `ebb status`: what a daemon does, asked by its metrics or its control socket.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use ebb_cli::out;
use serde_json::{Value, json};

use crate::metrics::http;
use crate::rpc::{RUN, client};
use crate::run;
use crate::serve::{self, address, status_text};

/// Why a status cannot be read.
pub const OTHER: &str = "what answers is of another version of Ebb";

/// Which daemon is asked.
#[derive(Debug, Args)]
pub struct Daemon {
    /// Address of the daemon's metrics, as given to it with --metrics.
    #[arg(value_name = "ADDRESS:PORT", value_parser = address)]
    address: Option<SocketAddr>,

    /// The daemon's control socket, as given to it with --control.
    #[arg(long, value_name = "PATH", conflicts_with = "address")]
    socket: Option<PathBuf>,
}

impl Daemon {
    /// Asks it for its status.
    ///
    /// # Errors
    /// When it does not answer as a daemon of Ebb does.
    pub fn ask(&self) -> Result<Value> {
        let own = client::answers(Path::new(RUN)).then(|| RUN.into());
        let socket = self.socket.clone().or_else(|| own.filter(|_| self.address.is_none()));
        if let Some(socket) = socket {
            return client::call(&socket, "status", &json!({}));
        }
        let address = self.address.unwrap_or_else(|| ([127, 0, 0, 1], 9420).into());
        let json = http::ask(address).with_context(|| {
            format!(
                "no status from {address}; is `ebb run` or `ebb serve` with --metrics {address} \
                 running?"
            )
        })?;
        serde_json::from_slice(&json)
            .with_context(|| format!("what answers at {address} is no Ebb"))
    }
}

/// Options of `ebb status`.
///
/// Shows what a running `ebb run` or `ebb serve` does: what is in force, why and since when.
/// Without an address it asks the `ebb run` that is the service here or, where there is none, the
/// `ebb serve` at 127.0.0.1:9420.
#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    daemon: Daemon,

    /// Print JSON (docs/json-schema/run-status-1.json, serve-status-1.json).
    #[arg(long)]
    json: bool,
}

/// Shows it.
pub fn show(args: &StatusArgs) -> Result<()> {
    let status = args.daemon.ask()?;
    if args.json { out::json(&status) } else { out::print(text(status)?) }
}

/// A status of either daemon for people.
///
/// # Errors
/// Where it is of another version.
pub fn text(status: Value) -> Result<String> {
    Ok(match status["daemon"] == "run" {
        true => run::status::text(&serde_json::from_value(status).context(OTHER)?),
        false => {
            let status: serve::Status = serde_json::from_value(status).context(OTHER)?;
            status_text::text(&status)
        }
    })
}
