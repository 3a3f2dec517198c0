//! One command at a time on a queue, blocking.

use std::time::{Duration, Instant};

use ebb_nvme::Sqe;
use ebb_nvme::command::FABRICS;

use super::slot::Completion;
use super::{Direction, Error, Queue};

/// A Fabrics command of this type.
pub(super) fn fabric(kind: u8) -> Sqe {
    let mut sqe = Sqe::new(FABRICS, 0);
    sqe.nsid = u32::from(kind).into();
    sqe
}

/// Submits one command and waits for its answer, which must be success.
pub(super) fn exchange(
    queue: &mut Queue,
    command: &'static str,
    sqe: Sqe,
    direction: Direction,
    buffer: Vec<u8>,
    timeout: Duration,
) -> Result<Completion, Error> {
    let start = Instant::now();
    if !queue.command(sqe, direction, buffer, u64::MAX, start) {
        return Err(Error::Unsupported(format!("{command}: the queue is full")));
    }
    let mut done = Vec::with_capacity(1);
    loop {
        queue.poll(&mut done)?;
        if let Some(position) = done.iter().position(|completion| completion.tag == u64::MAX) {
            let completion = done.swap_remove(position);
            let status = completion.status;
            let done = status.is_success().then_some(completion);
            return done.ok_or(Error::Failed { command, status });
        }
        let left = timeout.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(Error::Timeout { command, after: timeout });
        }
        queue.wait(left)?;
    }
}
