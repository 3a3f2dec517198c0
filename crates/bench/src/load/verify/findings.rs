//! What checking found.

use schemars::JsonSchema;
use serde::Serialize;

use ebb_initiator::describe;
use ebb_nvme::Status;
use ebb_trace::Op;

use super::Stamp;
use super::ledger::Known;
use crate::measured::NAMES;

/// Mismatches kept for the report.
const KEPT: usize = 10;
/// Bytes shown of each.
const SHOWN: usize = 16;

/// A block that is not as it must be.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Mismatch {
    /// Namespace.
    pub namespace: u32,
    /// Logical block address.
    pub lba: u64,
    /// First wrong byte of the namespace.
    pub offset: u64,
    /// What it is, in words.
    pub what: String,
    /// Hexadecimal.
    pub expected: String,
    /// Hexadecimal.
    pub found: String,
}

/// What one thread found.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    /// Blocks that were right.
    pub right: u64,
    /// Blocks that nothing was known of.
    pub unknown: u64,
    /// Blocks that were wrong.
    pub wrong: u64,
    /// The first of them.
    pub first: Vec<Mismatch>,
    /// Requests of fills and read-backs that failed.
    pub failed: u64,
    /// The first of them, in words.
    pub first_failure: Option<String>,
}

impl Findings {
    /// A request of a fill or read-back failed.
    pub fn fail(&mut self, op: Op, lba: u64, status: Status) {
        self.failed += 1;
        self.first_failure.get_or_insert_with(|| {
            format!("{} at LBA {lba}: {}", NAMES[op as usize], describe(status))
        });
    }

    /// Judges a block that was read; `stamp` is its newest generation.
    pub fn judge(&mut self, stamp: &Stamp, known: Known, block: &[u8]) {
        let claimed = Stamp::claimed(block);
        let own = claimed.filter(|claimed| {
            let generation = claimed.generation;
            let possible = known.oldest.max(1) <= generation && generation <= known.newest;
            let at_home = Stamp { generation: stamp.generation, ..*claimed } == *stamp;
            at_home && (possible || known.anything)
        });
        if own.is_some_and(|own| own.first_difference(block).is_none()) {
            self.right += 1;
            return;
        }
        let may_be_foreign = known.anything || known.oldest == 0;
        // Another block's data of this run is wrong even where anything else may be.
        let strayed = claimed.is_some_and(|claimed| {
            let elsewhere = (claimed.namespace, claimed.lba) != (stamp.namespace, stamp.lba);
            claimed.run == stamp.run && elsewhere && Stamp::read(block).is_some()
        });
        if may_be_foreign && !strayed {
            self.unknown += 1;
            return;
        }
        self.wrong += 1;
        if self.first.len() < KEPT {
            self.first.push(mismatch(stamp, known, block));
        }
    }

    /// Adds what another thread found.
    pub fn merge(&mut self, other: Self) {
        self.right += other.right;
        self.unknown += other.unknown;
        self.wrong += other.wrong;
        self.first.extend(other.first);
        self.first.truncate(KEPT);
        self.failed += other.failed;
        self.first_failure = self.first_failure.take().or(other.first_failure);
    }
}

fn mismatch(stamp: &Stamp, known: Known, block: &[u8]) -> Mismatch {
    let mut wanted = vec![0; block.len()];
    stamp.write(&mut wanted);
    let at = (0..block.len()).find(|at| block[*at] != wanted[*at]).unwrap_or(0);
    let end = (at + SHOWN).min(block.len());
    Mismatch {
        namespace: stamp.namespace,
        lba: stamp.lba,
        offset: stamp.lba * block.len() as u64 + at as u64,
        what: words(stamp, known, block, &wanted),
        expected: hex(&wanted[at..end]),
        found: hex(&block[at..end]),
    }
}

fn words(stamp: &Stamp, known: Known, block: &[u8], wanted: &[u8]) -> String {
    let Stamp { run, namespace, lba, .. } = *stamp;
    let generations = match (known.oldest.max(1), known.newest) {
        (oldest, newest) if oldest == newest => format!("generation {newest}"),
        (oldest, newest) => format!("generation {oldest} to {newest}"),
    };
    match Stamp::read(block) {
        Some(found) if found.run != run => {
            format!("{generations} should be here, but this is of another run: a lost write")
        }
        Some(found) if (found.namespace, found.lba) != (namespace, lba) => format!(
            "this is generation {} of LBA {} of namespace {}: a write or read went astray",
            found.generation, found.lba, found.namespace
        ),
        Some(found) => format!(
            "{generations} should be here, but this is generation {}: {}",
            found.generation,
            if found.generation < known.oldest { "a lost write" } else { "never sent" }
        ),
        None if block.iter().all(|byte| *byte == 0) => {
            format!("{generations} should be here, but this is zeros: a lost write")
        }
        None => {
            let wrong = block.iter().zip(wanted).filter(|(found, wanted)| found != wanted).count();
            format!("{wrong} of {} bytes differ from {generations}: damaged", block.len())
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(oldest: u32, newest: u32) -> Known {
        Known { newest, oldest, anything: false }
    }

    fn judged(known: Known, block: &[u8]) -> Findings {
        let mut findings = Findings::default();
        let stamp = Stamp { run: 1, namespace: 1, lba: 8, generation: known.newest };
        findings.judge(&stamp, known, block);
        findings
    }

    fn block(lba: u64, generation: u32, run: u64) -> Vec<u8> {
        let mut block = vec![0; 512];
        Stamp { run, namespace: 1, lba, generation }.write(&mut block);
        block
    }

    fn what(findings: &Findings) -> &str {
        assert_eq!((findings.wrong, findings.right, findings.unknown), (1, 0, 0));
        &findings.first[0].what
    }

    #[test]
    fn each_possible_generation_is_right() {
        assert_eq!(judged(known(3, 3), &block(8, 3, 1)).right, 1);
        assert_eq!(judged(known(2, 4), &block(8, 2, 1)).right, 1);
        assert_eq!(judged(known(0, 0), &[7; 512]).unknown, 1);
        assert_eq!(judged(known(0, 1), &block(8, 1, 1)).right, 1);
        assert_eq!(judged(known(0, 1), &[7; 512]).unknown, 1);
        let anything = Known { anything: true, ..known(5, 5) };
        assert_eq!(judged(anything, &[0; 512]).unknown, 1);
    }

    #[test]
    fn every_other_is_wrong_and_named() {
        assert!(
            what(&judged(known(3, 3), &block(8, 2, 1))).ends_with("generation 2: a lost write")
        );
        assert!(what(&judged(known(3, 3), &block(8, 4, 1))).ends_with("never sent"));
        assert!(what(&judged(known(3, 3), &block(8, 3, 2))).contains("another run"));
        assert!(what(&judged(known(3, 3), &[0; 512])).contains("zeros"));
        assert!(what(&judged(known(0, 0), &block(9, 1, 1))).contains("LBA 9"));
        let mut damaged = block(8, 3, 1);
        damaged[100] ^= 4;
        let findings = judged(known(3, 3), &damaged);
        assert!(what(&findings).starts_with("1 of 512 bytes differ"));
        let first = &findings.first[0];
        assert_eq!(first.offset, 8 * 512 + 100);
        assert_ne!(first.expected[..2], first.found[..2]);
        assert_eq!(first.expected[2..], first.found[2..]);
    }
}
