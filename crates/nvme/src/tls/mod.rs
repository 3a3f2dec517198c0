//! TLS 1.3 with pre-shared keys (TCP 3.6.1): the keys, the first message of a host, and sessions.
//!
//! The protocol is s2n-tls's. rustls has no external PSKs. OpenSSL has them, but to build it takes
//! Perl and five minutes. Ours is what s2n-tls does not know: NVMe's keys and identities, and which
//! key a host means, which is decided before it costs a session.

mod hello;
mod key;
mod session;

pub use hello::{Hello, MOST_HELLO, Malformed, begins};
pub use key::{Derivation, Identity, Key, KeyError, Psk, Version};
pub use session::{MOST_SESSION, Session, Stream};

/// Whether the connections of a listener are over TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Security {
    /// If they begin with it.
    Offered,
    /// All are.
    Required,
}

/// Alerts (RFC 8446 6.2) that we send without a session.
pub mod alert {
    /// Something comes where nothing may.
    pub const UNEXPECTED_MESSAGE: u8 = 10;
    /// The first message is not one.
    pub const DECODE_ERROR: u8 = 50;
    /// Its key is not the host's, or there is no such host.
    pub const DECRYPT_ERROR: u8 = 51;
    /// Something failed here.
    pub const INTERNAL_ERROR: u8 = 80;
    /// There is no pre-shared key in it.
    pub const MISSING_EXTENSION: u8 = 109;

    /// The record of a fatal alert.
    #[must_use]
    pub fn record(description: u8) -> [u8; 7] {
        [21, 3, 3, 0, 2, 2, description]
    }
}
