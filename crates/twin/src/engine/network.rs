//! The way between clients and server: each volume has a connection, all share a link.

use ebb_trace::{Op, Request};

use super::io::mix;
use crate::factors::{FACTORS, factors};
use crate::profile::{Network as Spec, Profile};

/// When connections and the link are free; each serves in order of arrival.
#[derive(Debug)]
pub(super) struct Network {
    spec: Spec,
    /// Factors on the time of a request at its connection, mean 1.
    variation: Vec<f32>,
    connections: Vec<u64>,
    /// The link, to the server and from it.
    link: [u64; 2],
}

impl Network {
    pub(super) fn new(profile: &Profile) -> Option<Self> {
        let spec = profile.network.clone()?;
        let connections = vec![0; usize::from(profile.drives.count)];
        Some(Self { variation: factors(spec.variation), spec, connections, link: [0; 2] })
    }

    /// When a request that is sent now is with the server; data to write comes with it.
    pub(super) fn arrival(&mut self, request: &Request, key: u32, now: u64) -> u64 {
        let bytes = if request.op == Op::Write { request.bytes } else { 0 };
        let sent = self.pass(0, bytes, now);
        let place = usize::from(request.device) % self.connections.len();
        let factor = self.variation[mix(key, 0x200) as usize % FACTORS];
        let time = (self.spec.connection.0 as f64 * f64::from(factor)) as u64;
        let free = &mut self.connections[place];
        *free = sent.max(*free) + time;
        *free
    }

    /// When an answer that is ready now is with the client; data that was read comes with it.
    pub(super) fn answer(&mut self, op: Op, bytes: u32, now: u64) -> u64 {
        if op == Op::Read { self.pass(1, bytes, now) } else { now }
    }

    /// A request takes the link on the way on which its data goes.
    fn pass(&mut self, way: usize, bytes: u32, now: u64) -> u64 {
        if bytes == 0 {
            return now;
        }
        let time = f64::from(bytes) / self.spec.link.0 as f64 * 1e9;
        let free = &mut self.link[way];
        *free = now.max(*free) + self.spec.request.0 + time as u64;
        *free
    }
}
