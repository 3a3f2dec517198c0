//! The transport against peers on real sockets: well-behaved, clumsy and hostile ones.

mod announced;
mod auth;
mod changes;
mod events;
mod greedy;
mod hostile;
mod peer;
mod polite;
mod server;
mod shutdown;
mod tls;
