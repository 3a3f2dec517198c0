//! The NVMe/TCP target: reactors and lightweight threads, controllers, block devices.
//!
//! A plant for the schedulers of [`ebb_policy::reactor`].

pub mod controller;
pub mod device;
pub mod reactor;
pub mod transport;
