//! The NVMe/TCP data plane: reactors and lightweight threads, the wire protocol, block devices.
//!
//! A plant for the schedulers of [`ebb_policy::reactor`].

pub mod chap;
pub mod controller;
pub mod device;
pub mod initiator;
pub mod reactor;
pub mod tls;
pub mod transport;
pub mod wire;
