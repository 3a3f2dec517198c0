//! The transport against peers on real sockets: well-behaved, clumsy and hostile ones.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod greedy;
mod hostile;
mod peer;
mod polite;
mod server;
mod shutdown;
