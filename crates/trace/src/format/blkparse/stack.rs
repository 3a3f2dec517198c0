//! Which events of a file are the arrivals, and of which devices: one request may be traced on
//! each device of a stack (a volume, the disk below it).

use std::collections::{BTreeMap, BTreeSet};

use crate::format::field::{Columns, shown};

type Device = Box<[u8]>;

/// What the start of a file showed, and what became of it.
#[derive(Default)]
pub(super) struct Stack {
    /// Devices with queue events, at the start.
    queued: BTreeSet<Device>,
    /// Devices below each, by what was remapped (`A`), at the start.
    below: BTreeMap<Device, BTreeSet<Device>>,
    issued: bool,
    by_issue: bool,
    /// Devices whose requests come again below them, and how many were passed over.
    upper: BTreeMap<Device, u64>,
    /// Devices whose requests counted, and those of them that were found to come again.
    counted: BTreeSet<Device>,
    twice: BTreeSet<Device>,
    /// Where the last remapped request went, and from which device it came at first.
    way: (Device, Device),
}

/// Devices that are kept in mind.
const MOST: usize = 4096;

impl Stack {
    /// The action that is the arrival of a request.
    pub(super) fn arrival(&self) -> &'static [u8] {
        if self.by_issue { b"D" } else { b"Q" }
    }

    /// Takes note of an event at the start of the file.
    pub(super) fn foresee(&mut self, device: &[u8], action: &[u8], columns: Columns<'_>) {
        self.issued |= action == b"D";
        if action == b"Q" && self.queued.len() < MOST {
            self.queued.insert(device.into());
        }
        if action == b"A"
            && let Some(source) = source(columns)
            && self.below.len() < MOST
        {
            self.below.entry(source.into()).or_default().insert(device.into());
        }
    }

    /// Decides after the start of the file.
    pub(super) fn settle(&mut self) {
        self.by_issue = self.queued.is_empty() && self.issued;
        let comes_again = |device: &&Device| {
            let mut found = BTreeSet::from([(*device).clone()]);
            let mut open = vec![*device];
            while let Some(next) = open.pop() {
                for device in self.below.get(next).into_iter().flatten() {
                    if found.insert(device.clone()) {
                        open.push(device);
                    }
                }
            }
            found.remove(*device);
            found.iter().any(|device| self.queued.contains(device))
        };
        let upper = self.queued.iter().filter(comes_again);
        self.upper = upper.map(|device| (device.clone(), 0)).collect();
    }

    /// Whether the requests of a device count, which has just had one.
    pub(super) fn counts(&mut self, device: &[u8]) -> bool {
        if let Some(passed) = self.upper.get_mut(device) {
            *passed += 1;
            return false;
        }
        if self.counted.len() < MOST && !self.counted.contains(device) {
            self.counted.insert(device.into());
        }
        true
    }

    /// Takes note of an event that is no arrival.
    pub(super) fn see(&mut self, device: &[u8], action: &[u8], columns: Columns<'_>) {
        if action != b"A" || self.by_issue {
            return;
        }
        let Some(source) = source(columns) else { return };
        if *self.way.0 != *source {
            self.way.1 = source.into();
        }
        self.way.0 = device.into();
        if self.counted.contains(&self.way.1) && self.counted.contains(device) {
            self.twice.insert(self.way.1.clone());
        }
    }

    /// What to tell.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.by_issue {
            notes.push(
                "there are no queue events (Q): a request arrives here when it is issued to the \
                 device (D), after its time in the scheduler"
                    .to_owned(),
            );
        }
        for (device, passed) in self.upper.iter().filter(|(_, passed)| **passed > 0) {
            let device = shown(device);
            notes.push(format!(
                "{passed} requests of {device} are not counted: they come again as requests of \
                 the devices below it (remapped, A)"
            ));
        }
        for device in self.twice.iter().map(|device| shown(device)) {
            notes.push(format!(
                "warning: requests of {device} come again as requests of the devices below it \
                 (remapped, A), and both count; choose the devices when running blkparse"
            ));
        }
        notes
    }
}

/// The device that an event was remapped from: `W 4096 + 256 <- (253,0) 2048`.
fn source<'a>(mut columns: Columns<'a>) -> Option<&'a [u8]> {
    columns.find(|text| *text == b"<-")?;
    columns.next()?.strip_prefix(b"(")?.strip_suffix(b")")
}
