//! Interrupt-driven I/O, as the kernel's own stack does it: a core that finds nothing blocks at
//! once and the kernel wakes it (slides, "Linux: classic interrupts").

use super::{Core, Placement, Scheduler, Wait};
use crate::units::Nanos;

/// Every core blocks without spinning; threads stay where they are.
#[derive(Debug, Clone, Copy, Default)]
pub struct Interrupt;

impl Scheduler for Interrupt {
    fn name(&self) -> &'static str {
        "interrupt"
    }

    fn start(&mut self, placement: &mut Placement) {
        for core in 0..placement.machine().cores.len() {
            placement.set_wait(core as Core, Wait::Block { spin: Nanos::ZERO }, "interrupt:always");
        }
    }
}
