//! The initiator against peers, in one program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod initiator;
mod peer;
