//! `--verify`: blocks that say what they are, and the proof that they are read as written.

mod findings;
mod ledger;
mod pattern;

pub use findings::{Findings, Mismatch};
pub use ledger::{Ledger, Outcome};
pub use pattern::Stamp;

use ebb_cli::random::scatter;

use super::plan::{Plan, Space};

/// All that is known of the data, shared by all threads.
#[derive(Debug)]
pub struct Verifier {
    /// Told apart from the data of every other run.
    run: u64,
    ledgers: Vec<Ledger>,
    spaces: Vec<Space>,
}

impl Verifier {
    /// Nothing is known yet.
    pub fn new(plan: &Plan) -> Self {
        // The seed alone would take blocks of an earlier run with the same seed for its own.
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let run = scatter(scatter(plan.seed) ^ now.as_nanos() as u64);
        let ledgers = plan.spaces.iter().map(|s| Ledger::new(s.first, s.blocks)).collect();
        Self { run, ledgers, spaces: plan.spaces.clone() }
    }

    /// What is known of a space.
    pub fn ledger(&self, space: u16) -> &Ledger {
        &self.ledgers[usize::from(space)]
    }

    fn stamp(&self, space: u16, lba: u64, generation: u32) -> Stamp {
        let namespace = self.spaces[usize::from(space)].namespace.id;
        Stamp { run: self.run, namespace, lba, generation }
    }

    /// Fills the buffer of a write; its blocks must be held for writing.
    pub fn fill(&self, space: u16, lba: u64, buffer: &mut [u8]) {
        let size = self.spaces[usize::from(space)].namespace.block_size as usize;
        for (block, lba) in buffer.chunks_exact_mut(size).zip(lba..) {
            let generation = self.ledger(space).next(lba);
            self.stamp(space, lba, generation).write(block);
        }
    }

    /// Checks what was read; its blocks must be held for reading.
    pub fn check(&self, space: u16, lba: u64, buffer: &[u8], findings: &mut Findings) {
        let size = self.spaces[usize::from(space)].namespace.block_size as usize;
        for (block, lba) in buffer.chunks_exact(size).zip(lba..) {
            let known = self.ledger(space).known(lba);
            let stamp = self.stamp(space, lba, known.newest);
            findings.judge(&stamp, known, block);
        }
    }
}
