//! The channel of devices that have nothing to wait for.

use ebb_nvme::Status;

use super::{Channel, Done, Io};

/// Does each request as it is submitted; the next poll hands it back.
pub(super) struct Instant<F> {
    run: F,
    done: Vec<Done>,
}

impl<F: FnMut(&mut Io) -> Status + Send> Instant<F> {
    pub(super) fn new(run: F) -> Self {
        Self { run, done: Vec::new() }
    }
}

impl<F: FnMut(&mut Io) -> Status + Send> Channel for Instant<F> {
    fn submit(&mut self, mut io: Io) {
        let status = (self.run)(&mut io);
        self.done.push(io.done(status));
    }

    fn poll(&mut self, done: &mut Vec<Done>) -> usize {
        let count = self.done.len();
        done.append(&mut self.done);
        count
    }
}
