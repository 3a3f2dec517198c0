//! All that was found on this machine.

use std::collections::BTreeSet;

use crate::find::cpus::Cpus;
use crate::find::drives::{BLOCKS, Drive, has_hardware};
use crate::find::energy::Zone;
use crate::find::hwmon::{Chip, Of};
use crate::nvme::{Controllers, Patient};
use crate::sys::{Absent, Sys, cpu_list};

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
    /// NVMe controllers.
    pub nvme: Controllers,
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
            nvme: Controllers::default(),
            sys,
        })
    }

    /// What there is at the moment, in names alone: CPUs, drives, chips, frequency domains. Once
    /// it is another, the rest has to be found anew. CPUs that are `parked` count as there.
    #[must_use]
    pub fn parts(sys: &Sys, parked: &[u16]) -> Vec<String> {
        let online = sys.cpus("sys/devices/system/cpu/online").unwrap_or_default();
        let online: BTreeSet<_> = online.iter().chain(parked).copied().collect();
        let online = cpu_list(&Vec::from_iter(online));
        let folders = ["sys/class/hwmon", "sys/class/powercap", "sys/devices/system/cpu/cpufreq"];
        // Arrays, loops, remote images and the like come and go without a drive behind them.
        let blocks = sys.names(BLOCKS).into_iter().filter(|name| has_hardware(sys, name));
        let names = folders.into_iter().flat_map(|folder| sys.names(folder));
        std::iter::once(online).chain(blocks).chain(names).collect()
    }

    /// The start of the machine that it runs since; `None` where the kernel does not say.
    #[must_use]
    pub fn boot(&self) -> Option<String> {
        self.sys.text("proc/sys/kernel/random/boot_id").ok()
    }

    /// Opens an NVMe controller, such as `nvme0`.
    ///
    /// # Errors
    /// Where there is none, or we may not use it.
    pub fn open_nvme(&self, controller: &str) -> Result<Patient, Absent> {
        self.nvme.open(&self.sys, controller)
    }

    /// Energy counters of whole sockets.
    pub fn packages(&self) -> impl Iterator<Item = &Zone> {
        self.zones.iter().filter(|zone| zone.is_package())
    }

    /// The files of meters of the whole server: ACPI's, or those of its power supplies. The chips
    /// of parts have their own names.
    #[must_use]
    pub fn wall_meters(&self) -> Vec<String> {
        // One kind alone: what a meter of the board counts, a supply counts as well.
        let kinds = ["power_meter", "acpi_power_meter", "pmbus"];
        let of = |kind: &str| -> Vec<String> {
            let chips = self.chips.iter().filter(|chip| chip.name == kind);
            let file = |chip: &Chip| Some(chip.power_file(&self.sys, chip.powers.first()?));
            chips.filter_map(file).collect()
        };
        kinds.into_iter().map(of).find(|files| !files.is_empty()).unwrap_or_default()
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
