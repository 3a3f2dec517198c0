//! Properties of a controller and the handshakes made through them (Base 3.1.3, 3.5, 3.6).
//!
//! A shutdown is complete only when every namespace has been flushed (Base 3.6.1: the host may cut
//! the power then), which whoever drives the admin queue does: [`AdminQueue::begin_flushes`].

use ebb_nvme::fabrics::PropertyAt;
use ebb_nvme::property::{
    CAP, CC, CRTO, CSTS, Configuration, READY_TIMEOUTS, VERSION, VS, capabilities, status,
};
use ebb_nvme::{Sqe, Status};

use super::AdminQueue;

/// CC and CSTS.
///
/// ```text
///          EN 1          SHN                 flushed
///  disabled ────► ready ─────► shutting down ───────► shut down
///     ▲   ◄──────   │ EN 0        │      │ not to be    │ EN 0
///     │             ▼ unsupp. CC  │ EN 0 ▼ flushed      │
///     │ EN 0      fatal           │    fatal            │
///     └───────────────────────────┴─────────────────────┘
/// ```
#[derive(Debug, Default)]
pub(super) struct Properties {
    configuration: Configuration,
    status: u32,
    /// EN was cleared, and what was under way then may be still.
    is_resetting: bool,
}

/// The flushes of a shutdown.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    /// To be begun.
    is_wanted: bool,
    /// Begun and not done, those of a shutdown that a reset has ended too.
    under_way: usize,
    has_failed: bool,
}

/// What a change of CC means for the rest of the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    None,
    Enabled,
    /// Reset by EN.
    Disabled,
    ShutDown,
}

impl Properties {
    pub fn is_ready(&self) -> bool {
        self.status & status::READY != 0 && !self.is_resetting
    }

    /// Whether a shutdown has begun.
    pub fn is_shut_down(&self) -> bool {
        self.status & status::SHUTDOWN != 0
    }

    /// All is flushed, or could not be: then the host must not take it for complete.
    fn flushed(&mut self, success: bool) {
        if self.status & status::SHUTDOWN != status::SHUTTING_DOWN {
            return; // A reset has ended it.
        }
        if success {
            self.status = self.status & !status::SHUTDOWN | status::SHUT_DOWN;
        } else {
            self.status |= status::FATAL;
        }
    }

    /// A new CC. `needs_sizes`: I/O queue entry sizes matter to this kind of controller.
    fn configure(&mut self, new: Configuration, needs_sizes: bool) -> Change {
        let old = std::mem::replace(&mut self.configuration, new);
        if self.is_resetting {
            return Change::None; // Its time comes with the end of the reset.
        }
        if old.is_enabled() && !new.is_enabled() {
            self.is_resetting = true;
            return Change::Disabled;
        }
        self.follow(old.is_enabled(), needs_sizes)
    }

    /// The reset has ended: nothing of before is under way.
    fn has_reset(&mut self, needs_sizes: bool) -> Change {
        (self.is_resetting, self.status) = (false, 0);
        self.follow(false, needs_sizes)
    }

    /// What CC says that it did not say before.
    fn follow(&mut self, was_enabled: bool, needs_sizes: bool) -> Change {
        let new = self.configuration;
        if new.asks_shutdown() && !self.is_shut_down() {
            self.status |= status::SHUTTING_DOWN;
            return Change::ShutDown;
        }
        if !was_enabled && new.is_enabled() {
            let fits = new.is_supported() && (!needs_sizes || new.has_entry_sizes());
            self.status = if fits { status::READY } else { status::FATAL };
            return if fits { Change::Enabled } else { Change::None };
        }
        Change::None
    }
}

impl AdminQueue {
    /// Property Get (Base 6.5): its value.
    pub(super) fn property_get(&mut self, sqe: &Sqe) -> Result<u64, Status> {
        self.settle();
        let at = PropertyAt::of(sqe);
        let (value, is_wide) = match at.offset {
            CAP => (capabilities(self.subsystem.config.max_queue_depth), true),
            VS => (VERSION.into(), false),
            CC => (self.properties.configuration.0.into(), false),
            CSTS => (self.properties.status.into(), false),
            CRTO => (READY_TIMEOUTS.into(), false),
            _ => return Err(Status::INVALID_FIELD),
        };
        (at.wide == Some(is_wide)).then_some(value).ok_or(Status::INVALID_FIELD)
    }

    /// Property Set (Base 6.6): of CC alone; there is nothing else to set without PCIe.
    pub(super) fn property_set(&mut self, sqe: &Sqe) -> Result<(), Status> {
        let at = PropertyAt::of(sqe);
        if at.offset != CC || at.wide != Some(false) {
            return Err(Status::INVALID_FIELD);
        }
        self.settle();
        let needs_sizes = self.is_io();
        let new = Configuration(sqe.cdw(12));
        let change = self.properties.configure(new, needs_sizes);
        self.follow(change);
        self.settle();
        Ok(())
    }

    fn follow(&mut self, change: Change) {
        match change {
            Change::Enabled => self.association.enable(),
            Change::Disabled => {
                self.association.end_queues();
                self.flushes.is_wanted = false;
                self.reset();
            }
            Change::ShutDown => {
                self.association.end_queues();
                self.flushes.is_wanted = self.is_io();
                self.conclude();
            }
            Change::None => {}
        }
    }

    /// Ends a reset once nothing of before is under way (Base 3.7.2).
    pub(super) fn settle(&mut self) {
        if self.properties.is_resetting && self.association.is_quiet() {
            let change = self.properties.has_reset(self.is_io());
            self.follow(change);
        }
    }

    /// The namespaces, by their index, that must be flushed now for a shutdown; each flush ends
    /// with [`AdminQueue::flushed`]. To be asked after each command and each flush, and now and
    /// then: what was under way must have ended before (Base 3.6.1).
    pub fn begin_flushes(&mut self) -> Vec<usize> {
        self.settle();
        // Those of a shutdown that a reset has ended come first, so that a host that goes on
        // shutting down and starting again has no more under way than one that does it once.
        let may = self.flushes.is_wanted && self.flushes.under_way == 0;
        if !may || !self.association.is_quiet() {
            return Vec::new();
        }
        self.flushes.is_wanted = false;
        self.flushes.has_failed = false;
        let all: Vec<_> = self.subsystem.spaces.ids().iter().map(|id| *id as usize - 1).collect();
        self.flushes.under_way += all.len();
        self.conclude();
        all
    }

    /// A flush of [`AdminQueue::begin_flushes`] is done.
    pub fn flushed(&mut self, status: Status) {
        self.flushes.under_way = self.flushes.under_way.saturating_sub(1);
        self.flushes.has_failed |= !status.is_success();
        self.conclude();
    }

    fn conclude(&mut self) {
        if !self.flushes.is_wanted && self.flushes.under_way == 0 {
            self.properties.flushed(!self.flushes.has_failed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENABLE: u32 = 0x0046_0001;

    #[test]
    fn controllers_become_ready_shut_down_and_start_again() {
        let mut properties = Properties::default();
        let mut set = |value| {
            let change = properties.configure(Configuration(value), true);
            let ended = (change == Change::Disabled).then(|| properties.has_reset(true));
            assert!(ended.is_none_or(|change| change == Change::None));
            (change, properties.status)
        };
        assert_eq!(set(ENABLE), (Change::Enabled, status::READY));
        assert_eq!(set(ENABLE), (Change::None, status::READY));
        let shutting = status::READY | status::SHUTTING_DOWN;
        assert_eq!(set(ENABLE | 1 << 14), (Change::ShutDown, shutting));
        assert_eq!(set(ENABLE | 1 << 14), (Change::None, shutting));
        assert_eq!(set(0), (Change::Disabled, 0));
        assert_eq!(set(1), (Change::None, status::FATAL)); // no entry sizes
        assert_eq!(set(ENABLE & !1), (Change::Disabled, 0));
        assert_eq!(set(ENABLE | 1 << 7), (Change::None, status::FATAL)); // pages of 8 KiB
        assert_eq!(set(0), (Change::Disabled, 0));
        assert_eq!(set(ENABLE), (Change::Enabled, status::READY));
    }
}
