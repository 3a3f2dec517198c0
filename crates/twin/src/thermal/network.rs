//! The network: drives, then fans, then sockets in one stream of air, each with its heat
//! capacity, its resistance to the air, and the air that those before it have warmed.
//!
//! Backward Euler. Air flows one way, so that the implicit equations are solved exactly, node
//! after node along the stream: stable at any step, no temperature ever leaves the range that
//! the inlet, the past and the heat span, and what goes in either stays or leaves with the air.

use super::{Air, SocketSpec, Thermal};

/// Heat given off, W.
#[derive(Debug, Clone, Copy)]
pub struct Heat<'a> {
    /// Each drive.
    pub drives: &'a [f64],
    /// All fans together; it warms the air before the sockets.
    pub fans: f64,
    /// Each socket, leakage included.
    pub sockets: &'a [f64],
}

/// One socket.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Socket {
    row: u16,
    /// °C.
    die: f64,
    sink: f64,
}

/// All heat capacities of a server.
#[derive(Debug, Clone)]
pub struct Network {
    spec: Thermal,
    /// °C, row after row.
    drives: Vec<f64>,
    /// Drives of one row.
    per_row: usize,
    sockets: Vec<Socket>,
    /// Rows of sockets.
    rows: u16,
    exhaust: f64,
}

impl Network {
    /// `drives` drives and the profile's sockets at their starting temperatures.
    #[must_use]
    pub fn new(spec: &Thermal, drives: usize) -> Self {
        let start = spec.socket.start.0;
        let socket = |row: &u16| Socket { row: *row, die: start, sink: start };
        Self {
            drives: vec![spec.drive.start.0; drives],
            per_row: drives.div_ceil(usize::from(spec.drive.rows.max(1))).max(1),
            sockets: spec.socket.rows.iter().map(socket).collect(),
            rows: spec.socket.rows.iter().max().map_or(0, |last| last + 1),
            exhaust: spec.inlet.0,
            spec: spec.clone(),
        }
    }

    /// Drives, °C.
    #[must_use]
    pub fn drives(&self) -> &[f64] {
        &self.drives
    }
    /// Dies, °C.
    pub fn dies(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        self.sockets.iter().map(|socket| socket.die)
    }
    /// One die, °C.
    #[must_use]
    pub fn die(&self, socket: usize) -> f64 {
        self.sockets[socket].die
    }
    /// Air that leaves, °C.
    #[must_use]
    pub fn exhaust(&self) -> f64 {
        self.exhaust
    }
    /// Heat stored above 0 °C, J.
    #[must_use]
    pub fn stored(&self) -> f64 {
        let SocketSpec { die_j_per_k, sink_j_per_k, .. } = self.spec.socket;
        let sockets = self.sockets.iter();
        let sockets: f64 = sockets.map(|s| die_j_per_k * s.die + sink_j_per_k * s.sink).sum();
        self.spec.drive.j_per_k() * self.drives.iter().sum::<f64>() + sockets
    }

    /// Lets `seconds` pass; returns the heat that left with the air, in joules.
    pub fn step(&mut self, air: &Air, heat: &Heat<'_>, seconds: f64) -> f64 {
        self.stream(air, heat, 1.0 / seconds) * seconds
    }
    /// Goes to the steady state of constant heat.
    pub fn settle(&mut self, air: &Air, heat: &Heat<'_>) {
        self.stream(air, heat, 0.0);
    }

    /// Solves the implicit step along the stream; `rate` is the inverse of its length, 0 for the
    /// steady state. Returns the heat that leaves, W.
    fn stream(&mut self, air: &Air, heat: &Heat<'_>, rate: f64) -> f64 {
        let carries = air.carries();
        let better = air.convection(self.spec.reference_flow_m3_s);
        let mut celsius = air.inlet;
        let to_air = better / self.spec.drive.to_air_k_per_w;
        let stays = self.spec.drive.j_per_k() * rate;
        for (drives, heat) in
            self.drives.chunks_mut(self.per_row).zip(heat.drives.chunks(self.per_row))
        {
            let conductance = conductance(to_air, carries / drives.len() as f64);
            let mut given = 0.0;
            for (drive, heat) in drives.iter_mut().zip(heat) {
                *drive = (stays * *drive + heat + conductance * celsius) / (stays + conductance);
                given += conductance * (*drive - celsius);
            }
            celsius += given / carries;
        }
        celsius += heat.fans / carries;
        let to_air = better / self.spec.socket.sink_to_air_k_per_w;
        for row in 0..self.rows {
            celsius += self.socket_row(row, heat, celsius, to_air, carries, rate) / carries;
        }
        self.exhaust = celsius;
        carries * (celsius - air.inlet)
    }

    /// The sockets of one row in air of `celsius`; returns the heat they give off, W.
    fn socket_row(
        &mut self,
        row: u16,
        heat: &Heat<'_>,
        celsius: f64,
        to_air: f64,
        carries: f64,
        rate: f64,
    ) -> f64 {
        let spec = &self.spec.socket;
        let abreast = self.sockets.iter().filter(|socket| socket.row == row).count();
        let conductance = conductance(to_air, carries / abreast.max(1) as f64);
        let inner = 1.0 / spec.die_to_sink_k_per_w;
        let (die_stays, sink_stays) = (spec.die_j_per_k * rate, spec.sink_j_per_k * rate);
        let mut given = 0.0;
        for (socket, heat) in self.sockets.iter_mut().zip(heat.sockets) {
            if socket.row != row {
                continue;
            }
            // The die's equation, die = held + passed * sink, put into that of the sink.
            let held = (die_stays * socket.die + heat) / (die_stays + inner);
            let passed = inner / (die_stays + inner);
            socket.sink = (sink_stays * socket.sink + inner * held + conductance * celsius)
                / (sink_stays + inner * (1.0 - passed) + conductance);
            socket.die = held + passed * socket.sink;
            given += conductance * (socket.sink - celsius);
        }
        given
    }
}

/// Conductance from a surface to the air that enters, W/K: the surface's own `to_air` against
/// its share of the stream, which cannot get warmer than the surface (effectiveness of a heat
/// exchanger with one constant side, 1 - exp(-NTU)).
fn conductance(to_air: f64, carries: f64) -> f64 {
    carries * -(-to_air / carries).exp_m1()
}
