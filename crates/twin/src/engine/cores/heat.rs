//! What heats the sockets.

use ebb_policy::units::{Nanos, Watts};

use super::{Cores, Group};
use crate::thermal::leakage::voltage;

impl Cores {
    /// Adds what a core of a group drew for `span` ns beyond a busy core's mean, as a share of
    /// its dynamic power.
    pub(in super::super) fn add_activity(&mut self, group: usize, span: u64, share: f64) {
        let dynamic = self.groups[group].busy_watts - self.cpu.core_static.0;
        let watt_ns = span as f64 * dynamic * share;
        self.watt_ns += watt_ns;
        self.groups[group].watt_ns += watt_ns;
    }

    /// Mean power of each socket over a period of `length` that is booked, from its cores and an
    /// even part of `uncore`; a group without a socket is spread evenly.
    pub(in super::super) fn socket_watts(
        &mut self,
        length: Nanos,
        uncore: Watts,
        sockets: &mut [f64],
    ) {
        let count = sockets.len().max(1) as f64;
        sockets.fill(uncore.0 / count);
        for group in &mut self.groups {
            let joules = std::mem::take(&mut group.watt_ns);
            let watts = if length > Nanos::ZERO { joules / length.0 as f64 } else { 0.0 };
            match group.stage.socket.and_then(|socket| sockets.get_mut(usize::from(socket))) {
                Some(socket) => *socket += watts,
                None => sockets.iter_mut().for_each(|socket| *socket += watts / count),
            }
        }
    }
    /// Voltage of a socket as a share of that at the highest frequency: mean over its cores.
    pub(in super::super) fn voltage(&self, socket: usize) -> f64 {
        let highest = self.cpu.frequencies.last().map_or(1.0, |f| f.0);
        let (mut sum, mut cores) = (0.0, 0.0);
        for Group { stage, frequency, .. } in &self.groups {
            if stage.socket.is_none_or(|own| usize::from(own) == socket) {
                let count = f64::from(stage.cores);
                sum += voltage(frequency.0 / highest, self.cpu.frequency_exponent) * count;
                cores += count;
            }
        }
        if cores > 0.0 { sum / cores } else { 1.0 }
    }
    /// The socket of a group.
    pub(in super::super) fn socket(&self, group: usize) -> Option<u16> {
        self.groups[group].stage.socket
    }
}
