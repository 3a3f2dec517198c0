//! *Native*: no power saving at all; the reference of both evaluations (PACER §V, (a)).

use crate::{Control, Policy, Request, Signals};

/// Leaves everything on.
#[derive(Debug, Default)]
pub struct Native;

impl Policy for Native {
    fn name(&self) -> &'static str {
        "native"
    }
    fn owns(&self) -> &[Control] {
        &[]
    }
    fn step(&mut self, _signals: &Signals, _request: &mut Request) {}
}
