//! How a daemon of Ebb is asked and told from the same machine: JSON-RPC 2.0 over a Unix socket.
//! The [protocol] and the [client] are the same for all; what can be asked is a daemon's own
//! [`Methods`].

pub mod client;
pub mod protocol;
pub mod server;

/// Where the services have their sockets: `ebb run`, and `ebb serve`.
pub const RUN: &str = "/run/ebb/run.sock";
pub const SERVE: &str = "/run/ebb-serve/serve.sock";

pub use protocol::{Fault, code};
pub use server::Methods;
