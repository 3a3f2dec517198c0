//! What goes over the wire: NVMe/TCP PDUs, submission and completion queue entries.
//!
//! Clauses cited are those of the NVM Express TCP Transport Specification 1.0 ("TCP"), the NVMe
//! Base Specification 2.0 ("Base") and the NVM Command Set Specification 1.0 ("NVM").

pub mod auth;
pub mod command;
pub mod fabrics;
pub mod feature;
pub mod identify;
pub mod log;
pub mod pdu;
pub mod property;
pub mod status;

pub use command::{Cqe, Sqe};
pub use status::Status;
