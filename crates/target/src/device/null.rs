//! A device that keeps nothing: what the rest of the path costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ebb_nvme::Status;

use super::instant::Instant;
use super::{Channel, Device, Error, Geometry, Io, Op, larger};

/// Reads zeros, forgets writes.
#[derive(Debug)]
pub struct Null {
    block_size: u32,
    blocks: Arc<AtomicU64>,
}

impl Null {
    /// Of this size.
    #[must_use]
    pub fn new(geometry: Geometry) -> Self {
        Self { block_size: geometry.block_size, blocks: Arc::new(geometry.blocks.into()) }
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
        Geometry { block_size: self.block_size, blocks: self.blocks.load(Ordering::Acquire) }
    }
    fn grow(&self, bytes: u64) -> Result<(), Error> {
        let blocks = larger(self.geometry(), bytes).map_err(|why| Error::unfit("null", why))?;
        self.blocks.fetch_max(blocks, Ordering::Release);
        Ok(())
    }
    fn describe(&self) -> String {
        "null: reads zeros, forgets writes".to_owned()
    }
    fn open(&self) -> std::io::Result<Box<dyn Channel>> {
        let (block_size, blocks) = (self.block_size, self.blocks.clone());
        let geometry = move || Geometry { block_size, blocks: blocks.load(Ordering::Acquire) };
        Ok(Box::new(Instant::new(move |io: &mut Io| run(io, geometry()))))
    }
}
