//! What a control group does (`Documentation/admin-guide/cgroup-v2.rst`).

use std::os::unix::fs::MetadataExt;

use ebb_policy::units::Nanos;

use crate::act::place::CGROUPS;
use crate::sense::watched::Watched;
use crate::sys::{Absent, Sys};

/// A control group by its path, whether it is there or not.
#[derive(Debug)]
pub struct Group {
    sys: Sys,
    folder: String,
    id: Option<u64>,
    events: Watched,
    cpu: Watched,
    io: Watched,
    /// Microseconds of CPU so far.
    used: Option<u64>,
}

impl Group {
    /// The one at `path` below the root group.
    #[must_use]
    pub fn new(sys: &Sys, path: &str) -> Self {
        let folder = format!("{CGROUPS}/{path}");
        let file = |name: &str| Watched::new(sys, &format!("{folder}/{name}"));
        Self {
            events: file("cgroup.events"),
            cpu: file("cpu.stat"),
            io: file("io.stat"),
            sys: sys.clone(),
            id: None,
            used: None,
            folder,
        }
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &str {
        &self.folder
    }

    /// What tells it from one of the same name before; `None` where there is none.
    #[must_use]
    pub fn id(&self) -> Option<u64> {
        self.id
    }

    /// Looks for it; whether it has come, gone or become another.
    pub fn look(&mut self) -> bool {
        let id = self.sys.path(&self.folder).metadata().ok().map(|folder| folder.ino());
        if id == self.id {
            return false;
        }
        let path = self.folder[CGROUPS.len() + 1..].to_owned();
        *self = Self { id, ..Self::new(&self.sys, &path) };
        true
    }

    /// The number of an event, such as whether it is `frozen`.
    pub fn event(&mut self, name: &str) -> Option<u64> {
        field(self.events.text().ok()?, name)
    }

    /// Whether it has tasks.
    pub fn is_populated(&mut self) -> bool {
        self.id.is_some() && self.event("populated") == Some(1)
    }

    /// Forgets what it has used so far.
    pub fn begin_anew(&mut self) {
        self.used = None;
    }

    /// How many cores it kept busy in the period since this was last asked.
    pub fn cores(&mut self, period: Nanos) -> Option<f64> {
        let used = self.cpu.text().ok().and_then(|text| field(text, "usage_usec"));
        let before = std::mem::replace(&mut self.used, used);
        let busy = used?.checked_sub(before?)?;
        (period > Nanos::ZERO).then(|| busy as f64 / period.micros())
    }

    /// What it has read and written so far, a line for each device.
    ///
    /// # Errors
    /// Why that is not known: the io controller is off, say.
    pub fn io(&mut self) -> Result<&str, Absent> {
        self.io.text()
    }
}

/// The number of `key` in lines of a key and a number.
#[must_use]
pub fn field(text: &str, key: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(name, _)| *name == key)?.1.trim().parse().ok()
}

/// What a group has read and written of a device so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moved {
    /// Bytes read and written.
    pub bytes: [u64; 2],
    /// Requests.
    pub requests: u64,
}

/// The device and what was read and written of each line such as
/// `8:0 rbytes=4096 wbytes=0 rios=1 wios=0 dbytes=0 dios=0`.
pub fn moved(text: &str) -> impl Iterator<Item = (&str, Moved)> {
    text.lines().map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let device = fields.next().unwrap_or_default();
        let mut moved = Moved::default();
        for (key, count) in fields.filter_map(|field| field.split_once('=')) {
            let count = count.parse().unwrap_or_default();
            match key {
                "rbytes" => moved.bytes[0] = count,
                "wbytes" => moved.bytes[1] = count,
                "rios" | "wios" => moved.requests = moved.requests.saturating_add(count),
                _ => {}
            }
        }
        (device, moved)
    })
}
