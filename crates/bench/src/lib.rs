//! Load on storage: the initiator of NVMe/TCP.

pub mod initiator;
