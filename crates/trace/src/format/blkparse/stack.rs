//! Which events of a file are the arrivals: one request may be traced on each device of a stack (a
//! volume, the disk below it), and counts where it is seen at the top.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::format::SECTOR;
use crate::format::field::{self, Columns, shown};

type Device = Box<[u8]>;
/// A device and a sector of it. A flush has no sector and a partition does not remap it: its key is
/// the process in place of a device.
type Place = (Device, u64);

/// What the file has shown so far.
#[derive(Default)]
pub(super) struct Stack {
    queued: bool,
    issued: bool,
    by_issue: bool,
    /// Devices that had an arrival: what is remapped from them has been seen.
    seen: BTreeSet<Device>,
    /// Where remapped requests are to arrive, from which device that was seen, and how many.
    coming: HashMap<Place, (Device, u64)>,
    /// Those that have not arrived for as many others as are kept: forgotten next.
    older: HashMap<Place, (Device, u64)>,
    /// Arrivals that are those of a device above once more: here, there, how many.
    again: BTreeMap<(Device, Device), u64>,
    /// Requests by place and sectors that their device returned and that are to be issued again.
    returned: HashSet<(Device, u64, u64)>,
    /// Issues that are those of such requests.
    reissued: u64,
    /// What each process queued last on each device.
    last: HashMap<u32, Vec<Queued>>,
    /// Arrivals that are the rest of a request that was split.
    rests: u64,
}

/// Sectors of a device, and where the rest of them begins if they were split.
struct Queued {
    device: Device,
    start: u64,
    end: u64,
    rest: Option<u64>,
}

/// Devices that are kept in mind, and remapped or returned requests on their way.
const MOST: usize = 4096;
/// Devices of one process of which the last request is kept in mind.
const MOST_OF_PROCESS: usize = 16;

impl Stack {
    /// The action that is the arrival of a request.
    pub(super) fn arrival(&self) -> &'static [u8] {
        if self.by_issue { b"D" } else { b"Q" }
    }

    /// Takes note of an action at the start of the file.
    pub(super) fn foresee(&mut self, action: &[u8]) {
        self.issued |= action == b"D";
        self.queued |= action == b"Q";
    }

    /// Decides after the start of the file.
    pub(super) fn settle(&mut self) {
        self.by_issue = self.issued && !self.queued;
    }

    /// Whether an arrival counts: none does that was seen before, on a device above or on this one
    /// before it was returned.
    pub(super) fn counts(&mut self, device: &[u8], process: u32, sector: u64, bytes: u64) -> bool {
        if self.by_issue
            && !self.returned.is_empty()
            && self.returned.remove(&(device.into(), sector, bytes / SECTOR))
        {
            self.reissued += 1;
            return false;
        }
        if !self.seen.contains(device) && self.seen.len() < MOST {
            self.seen.insert(device.into());
        }
        if !self.by_issue && self.is_rest(device, process, sector, sector + bytes / SECTOR) {
            self.rests += 1;
            return false;
        }
        let Some(above) = self.arrived(place(device, process, sector, bytes)) else { return true };
        *self.again.entry((device.into(), above)).or_default() += 1;
        false
    }

    /// The device that was seen above what arrives at a place now.
    fn arrived(&mut self, place: Place) -> Option<Device> {
        for coming in [&mut self.coming, &mut self.older] {
            if let Some((above, count)) = coming.get_mut(&place) {
                let above = above.clone();
                *count -= 1;
                if *count == 0 {
                    coming.remove(&place);
                }
                return Some(above);
            }
        }
        None
    }

    /// Whether what a process queues is the rest of what it queued before and was split: Linux
    /// 4.3 to 4.11 trace that once more.
    fn is_rest(&mut self, device: &[u8], process: u32, start: u64, end: u64) -> bool {
        if self.last.len() == MOST && !self.last.contains_key(&process) {
            self.last.clear();
        }
        let all = self.last.entry(process).or_default();
        let Some(last) = all.iter_mut().find(|last| *last.device == *device) else {
            if all.len() == MOST_OF_PROCESS {
                all.clear();
            }
            all.push(Queued { device: device.into(), start, end, rest: None });
            return false;
        };
        let is_rest = last.rest == Some(start) && last.end == end;
        (last.start, last.end, last.rest) = (start, end, None);
        is_rest
    }

    /// `W 0 / 1024`: what begins at the first number was cut at the second.
    fn split(&mut self, device: &[u8], process: u32, mut columns: Columns<'_>) {
        let Some((start, at)) = extent(&mut columns) else { return };
        let all = self.last.get_mut(&process).into_iter().flatten();
        for last in all.filter(|last| *last.device == *device) {
            if last.start <= start && at < last.end {
                last.rest = Some(at);
            }
        }
    }

    /// Takes note of an event that is no arrival.
    pub(super) fn see(&mut self, device: &[u8], process: u32, action: &[u8], columns: Columns<'_>) {
        match action {
            b"A" => self.remapped(device, process, columns),
            b"R" if self.by_issue => self.returned(device, columns),
            b"X" => self.split(device, process, columns),
            _ => {}
        }
    }

    /// `W 4096 + 256 [0]`: the device was busy and has the request issued once more. A flush has
    /// no sectors.
    fn returned(&mut self, device: &[u8], mut columns: Columns<'_>) {
        if self.returned.len() == MOST {
            self.returned.clear();
        }
        let (sector, sectors) = extent(&mut columns).unwrap_or_default();
        self.returned.insert((device.into(), sector, sectors));
    }

    /// `W 4096 + 256 <- (253,0) 2048`.
    fn remapped(&mut self, device: &[u8], process: u32, columns: Columns<'_>) {
        let Some(Remap { to, sectors, from, sector }) = remap(columns) else { return };
        let above = self.seen.get(from).cloned();
        // A partition has no arrivals of its own.
        let Some(above) = above.or_else(|| self.arrived((from.into(), sector))) else { return };
        if self.coming.len() == MOST {
            self.older = std::mem::take(&mut self.coming);
        }
        let place = place(device, process, to, sectors);
        self.coming.entry(place).or_insert((above, 0)).1 += 1;
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
        if self.reissued > 0 {
            notes.push(format!(
                "{} issues (D) are not counted: their requests were returned (R) and issued again",
                self.reissued
            ));
        }
        if self.rests > 0 {
            notes.push(format!(
                "{} queue events (Q) are not counted: they are the rest of requests that were \
                 split (X)",
                self.rests
            ));
        }
        for ((device, above), count) in &self.again {
            let (device, above) = (shown(device), shown(above));
            notes.push(format!(
                "{count} requests of {device} are not counted: they are those of {above} once \
                 more (remapped, A); for what a disk got, run blkparse on its files alone"
            ));
        }
        notes
    }
}

fn place(device: &[u8], process: u32, sector: u64, size: u64) -> Place {
    match size {
        0 => (process.to_string().into_bytes().into(), 0),
        _ => (device.into(), sector),
    }
}

/// Where a request went, its sectors, and where it came from.
struct Remap<'a> {
    to: u64,
    sectors: u64,
    from: &'a [u8],
    sector: u64,
}

/// What stands behind the action of a remapping.
fn remap<'a>(mut columns: Columns<'a>) -> Option<Remap<'a>> {
    let (to, sectors) = extent(&mut columns)?;
    columns.next().filter(|text| *text == b"<-")?;
    let from = columns.next()?.strip_prefix(b"(")?.strip_suffix(b")")?;
    let sector = field::unsigned(columns.next()?, "").ok()?;
    Some(Remap { to, sectors, from, sector })
}

/// The first sector and how many: behind the kind, and behind the plus.
fn extent(columns: &mut Columns<'_>) -> Option<(u64, u64)> {
    let mut number = || field::unsigned(columns.nth(1)?, "").ok();
    Some((number()?, number()?))
}
