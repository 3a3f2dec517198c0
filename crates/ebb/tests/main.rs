//! The tests of the whole command, and of the repository, in one program: linking many takes longer
//! than running them.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod authentication;
mod best_known;
mod characterise;
mod circles;
mod common;
mod ctl;
mod dependencies;
mod errors;
mod experiment;
mod files;
mod inputs;
mod interrupt;
mod latency;
mod load;
mod manual;
mod package;
mod pages;
mod paper;
mod paper_here;
mod paper_storage_servers;
#[path = "../../initiator/tests/peer/mod.rs"]
mod peer;
mod pipes;
mod polled;
mod power_limit;
mod probe;
mod profile;
mod qos;
mod readme;
mod replay;
mod restore;
mod run;
mod sampled;
mod scrub;
mod serve;
mod serve_limits;
mod sim;
mod steady;
mod tidy;
mod tls;
mod trace;
#[allow(dead_code, reason = "the host's tests use the rest")]
#[path = "../../host/tests/tree.rs"]
mod tree;
mod trip;
mod watching;
mod year;
