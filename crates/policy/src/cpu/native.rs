//! *Native*: no power saving at all; the reference of both evaluations (PACER §V, (a)).

use crate::{Controls, Policy, Signals};

/// Leaves everything on.
#[derive(Debug, Default)]
pub struct Native;

impl Policy for Native {
    fn name(&self) -> &'static str {
        "native"
    }
    fn step(&mut self, _signals: &Signals, _controls: &mut Controls) {}
}
