//! A device that keeps nothing: what the rest of the path costs.

use super::instant::Instant;
use super::{Channel, Device, Geometry, Io, Op};
use crate::wire::Status;

/// Reads zeros, forgets writes.
#[derive(Debug, Clone, Copy)]
pub struct Null {
    geometry: Geometry,
}

impl Null {
    /// Of this size.
    #[must_use]
    pub fn new(geometry: Geometry) -> Self {
        Self { geometry }
    }
}

fn run(io: &mut Io, geometry: Geometry) -> Status {
    if let Err(status) = io.range(geometry) {
        return status;
    }
    if matches!(io.op, Op::Read { .. })
        && let Some(buffer) = &mut io.buffer
    {
        buffer.fill(0);
    }
    Status::SUCCESS
}

impl Device for Null {
    fn geometry(&self) -> Geometry {
        self.geometry
    }
    fn describe(&self) -> String {
        "null: reads zeros, forgets writes".to_owned()
    }
    fn open(&self) -> std::io::Result<Box<dyn Channel>> {
        let geometry = self.geometry;
        Ok(Box::new(Instant::new(move |io: &mut Io| run(io, geometry))))
    }
}
