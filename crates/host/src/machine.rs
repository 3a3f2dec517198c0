//! All that was found on this machine.

use crate::cpus::Cpus;
use crate::drives::Drive;
use crate::energy::Zone;
use crate::hwmon::{Chip, Of};
use crate::sys::{Absent, Sys};

/// A server.
#[derive(Debug, Clone)]
pub struct Machine {
    /// The kernel's files.
    pub sys: Sys,
    /// Processors.
    pub cpus: Cpus,
    /// Drives.
    pub drives: Vec<Drive>,
    /// Energy counters.
    pub zones: Vec<Zone>,
    /// Temperatures, fans, power meters.
    pub chips: Vec<Chip>,
}

impl Machine {
    /// What is there; nothing is changed, and no drive is asked anything.
    ///
    /// # Errors
    /// Where the kernel does not even say which CPUs are online.
    pub fn found(sys: Sys) -> Result<Self, Absent> {
        Ok(Self {
            cpus: Cpus::found(&sys)?,
            drives: Drive::found(&sys),
            zones: Zone::found(&sys),
            chips: Chip::found(&sys),
            sys,
        })
    }

    /// Energy counters of whole sockets.
    pub fn packages(&self) -> impl Iterator<Item = &Zone> {
        self.zones.iter().filter(|zone| zone.is_package())
    }

    /// The chips of the processors, one for each socket.
    pub fn socket_chips(&self) -> impl Iterator<Item = &Chip> {
        self.chips.iter().filter(|chip| chip.of == Of::Cpu && !chip.temperatures.is_empty())
    }

    /// The chip of `drive`: that of its NVMe controller, or of its SCSI device.
    #[must_use]
    pub fn drive_chip(&self, drive: &Drive) -> Option<&Chip> {
        let scsi = self.sys.link(format!("sys/block/{}/device", drive.name));
        let device = drive.controller.clone().or(scsi)?;
        let is_its = |chip: &&Chip| chip.device.as_ref() == Some(&device);
        self.chips.iter().filter(|chip| chip.of == Of::Drive).find(is_its)
    }

    /// Fans that can be steered, with their chips.
    pub fn fans(&self) -> impl Iterator<Item = (&Chip, &str)> {
        self.chips.iter().flat_map(|chip| chip.pwms.iter().map(move |pwm| (chip, pwm.as_str())))
    }
}
