//! The host side of NVMe/TCP in user space: what `ebb load` and the tests speak to a target with.
//!
//! [`Controller`] is an association: the admin queue, blocking. [`Queue`] is one I/O queue on a
//! connection of its own: non-blocking, and free of allocation once it is warm. Whatever a target
//! sends is checked against what was asked of it; what does not fit ends the connection with an
//! [`Error`] that says why.

mod auth;
mod controller;
mod discovery;
mod error;
mod exchange;
mod identify;
mod link;
mod outbox;
mod queue;
mod receive;
mod slot;

pub use auth::{Secrets, Transaction};
pub use controller::{Controller, Host, Target, Tls};
pub use discovery::{Subsystem, discover};
pub use error::{Error, Violation, describe};
pub use identify::{Identity, Namespace};
pub use queue::{Direction, Op, Queue, Refused, Request};
pub use slot::Completion;
