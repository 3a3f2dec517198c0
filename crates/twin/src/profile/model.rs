//! A drive model: an SSD or a hard disk.

use std::io::ErrorKind;
use std::path::Path;

use ebb_policy::DriveSpec;
use ebb_policy::units::{Bytes, Joules, Watts};

use crate::drive::DriveProfile;
use crate::drive_file::{DriveFile, DriveHeat};
use crate::hdd::HddProfile;

/// A drive model.
#[derive(Debug, Clone)]
pub enum DriveModel {
    /// An SSD: a `[drive]` table.
    Ssd(DriveProfile),
    /// A hard disk: an `[hdd]` table.
    Hdd(HddProfile),
}

impl DriveModel {
    /// The shipped model `name`, or else the one in the TOML file `name` in `folder`.
    ///
    /// # Errors
    /// When there is neither, or the file describes no drive that can work.
    pub fn find(name: &str, folder: &Path) -> Result<Self, String> {
        let ssd = DriveProfile::builtin(name).map(Self::Ssd);
        if let Some(model) = ssd.or_else(|| HddProfile::builtin(name).map(Self::Hdd)) {
            return Ok(model);
        }
        let text = ebb_trace::files::text(folder.join(name)).map_err(|error| {
            if error.kind() != ErrorKind::NotFound {
                return format!("{name}: {error}");
            }
            let names = DriveProfile::names().chain(HddProfile::names());
            let valid = names.collect::<Vec<_>>().join(", ");
            format!("unknown drive '{name}': neither a file nor one of {valid}")
        })?;
        let is_disk = text.lines().any(|line| line.trim_start().starts_with("[hdd]"));
        let model = if is_disk {
            HddProfile::from_toml(&text).map(Self::Hdd)
        } else {
            DriveProfile::from_toml(&text).map(Self::Ssd)
        };
        model.map_err(|reason| format!("{name}: {}", reason.trim_end()))
    }

    /// User capacity.
    #[must_use]
    pub fn capacity(&self) -> Bytes {
        match self {
            Self::Ssd(profile) => profile.capacity,
            Self::Hdd(profile) => profile.capacity,
        }
    }

    /// What heat does to it.
    #[must_use]
    pub fn heat(&self) -> Option<&DriveHeat> {
        match self {
            Self::Ssd(profile) => profile.heat.as_ref(),
            Self::Hdd(profile) => profile.heat.as_ref(),
        }
    }

    /// The power states, as policies see them.
    #[must_use]
    pub fn spec(&self) -> DriveSpec {
        match self {
            Self::Ssd(profile) => profile.spec(),
            Self::Hdd(profile) => profile.spec(),
        }
    }

    /// Power when ready for work, and what each GB read and written takes beyond that. A hard
    /// disk's work is in the first.
    pub(crate) fn demand(&self) -> (Watts, [Joules; 2]) {
        match self {
            Self::Ssd(profile) => {
                let work = [profile.read.energy_per_gb, profile.write.energy_per_gb];
                (profile.power.active.max(profile.power.ready), work)
            }
            Self::Hdd(profile) => (profile.spec().cap(0), [Joules(0.0); 2]),
        }
    }

    /// Power in the deepest rest that it enters by itself.
    pub(crate) fn least(&self) -> Watts {
        match self {
            Self::Ssd(profile) => {
                profile.idle.last().map_or(profile.power.ready, |idle| idle.power)
            }
            Self::Hdd(profile) => {
                profile.idle.last().map_or(profile.power.ready, |idle| idle.power)
            }
        }
    }

    /// The most bytes a second that it moves, either way.
    pub(crate) fn link(&self) -> Bytes {
        match self {
            Self::Ssd(profile) => profile.read.per_second.max(profile.write.per_second),
            Self::Hdd(profile) => profile.interface,
        }
    }

    /// The drive as policies set it ([`DriveProfile::in_steps`]).
    pub(crate) fn in_steps(self) -> Self {
        match self {
            Self::Ssd(profile) => Self::Ssd(profile.in_steps()),
            Self::Hdd(profile) => Self::Hdd(profile),
        }
    }

    /// What an SSD draws with nothing to do, before any idle state.
    #[must_use]
    pub fn ready(&self) -> Option<Watts> {
        match self {
            Self::Ssd(profile) => Some(profile.power.ready),
            Self::Hdd(_) => None,
        }
    }
}
