//! NVMe by its specifications: PDUs, queue entries, logs, features, and how hosts prove who they
//! are.
//!
//! Clauses cited are those of the NVM Express TCP Transport Specification 1.0 ("TCP"), the NVMe
//! Base Specification 2.0 ("Base") and the NVM Command Set Specification 1.0 ("NVM").
//!
//! What each request passes through is `#[inline]`: target and initiator are other crates.

/// A structure as it goes over the wire, byte for byte.
macro_rules! wire_struct {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ty,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
        #[derive(zerocopy::KnownLayout, zerocopy::Unaligned)]
        #[repr(C)]
        pub struct $name { $($(#[$field_doc])* pub $field: $kind,)* }
    };
}

pub mod auth;
pub mod chap;
pub mod command;
pub mod fabrics;
pub mod feature;
pub mod identify;
pub mod keys;
pub mod log;
pub mod pdu;
pub mod property;
pub mod status;
pub mod tls;

pub use command::{Cqe, Sqe};
pub use status::Status;
