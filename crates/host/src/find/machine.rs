//! All that was found on this machine.

use std::collections::{BTreeMap, BTreeSet};

use crate::find::chips::{self, Of};
use crate::find::cpus::Cpus;
use crate::find::drives::Drive;
use crate::find::energy::Zone;
use crate::find::hwmon::Chip;
use crate::find::meters::Meters;
use crate::nvme::{Controllers, Patient};
use crate::sys::{Absent, Sys, by_number};

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
        let chips = Chip::found(&sys);
        Ok(Self {
            cpus: Cpus::found(&sys)?,
            drives: Drive::found(&sys),
            zones: Zone::found(&sys, &chips),
            chips,
            nvme: Controllers::default(),
            sys,
        })
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

    /// Energy counters of all sockets together; none where one of them has none.
    pub fn packages(&self) -> impl Iterator<Item = &Zone> {
        let is_whole = self.lacks_packages().is_none();
        self.zones.iter().filter(move |zone| is_whole && zone.is_package())
    }

    /// The packages that have a long-term power limit which is on.
    pub fn limited_packages(&self) -> impl Iterator<Item = &Zone> {
        let sys = &self.sys;
        self.packages().filter(|zone| zone.limit(sys).is_some() && !zone.is_unlimited(sys))
    }

    /// Why the energy counters that there are are not those of the processors, but of a part.
    #[must_use]
    pub fn lacks_packages(&self) -> Option<String> {
        let own = self.zones.iter().filter(|zone| zone.is_package()).map(Zone::socket);
        let own: BTreeSet<_> = own.collect();
        let (with, all) = (own.len(), usize::from(self.cpus.sockets));
        (with > 0 && with < all).then(|| {
            let own: Vec<_> = own.into_iter().collect();
            format!(
                "of {all} sockets {with} has a counter ({}): a part, which stands for no whole; \
                 see whether the firmware has turned it off for the others, or has an update",
                own.join(", ")
            )
        })
    }

    /// Energy counters that are listed and not used, and why.
    #[must_use]
    pub fn left_zones(&self) -> Vec<(String, String)> {
        let packages = self.zones.iter().filter(|zone| zone.is_package());
        let part = self.lacks_packages();
        let part = packages.filter_map(|zone| Some((zone.counter.clone(), part.clone()?)));
        let is_psys = self.packages().next().is_none();
        let is_bare = !self.zones.iter().any(Zone::is_package);
        part.chain(Zone::left(&self.sys, is_psys, is_bare)).collect()
    }

    /// What is not sensed of the machine, and why, but what its drives and fans say themselves.
    #[must_use]
    pub fn left(&self) -> Vec<(String, String)> {
        let mut all = self.cpus.left.clone();
        all.extend(self.left_zones());
        all.extend(self.wall_meters().left);
        all.extend(self.processor_meters().left);
        all
    }

    /// The meters of the whole server that it has.
    #[must_use]
    pub fn wall_meters(&self) -> Meters {
        Meters::of_server(&self.sys, &self.chips)
    }

    /// The meters of its processors, where nothing counts their energy.
    #[must_use]
    pub fn processor_meters(&self) -> Meters {
        match self.packages().next() {
            Some(_) => Meters::default(),
            None => Meters::of_processors(&self.sys, &self.chips, self.cpus.sockets),
        }
    }

    /// The sensors of each socket, as chip and input: the hottest of them is its temperature. None
    /// at all where there are fewer chips than sockets, each of one: which of them lacks one is not
    /// known.
    #[must_use]
    pub fn socket_sensors(&self) -> Vec<Vec<(usize, String)>> {
        let inputs = |at: usize| self.chips[at].socket_inputs(&self.sys);
        let is_cpu = |at: &usize| self.chips[*at].of == Of::Cpu && !inputs(*at).is_empty();
        let all: Vec<usize> = (0..self.chips.len()).filter(is_cpu).collect();
        let of_driver = |at: usize| -> Vec<usize> {
            let driver = |at: usize| chips::driver(&self.chips[at].name);
            all.iter().copied().filter(|other| driver(*other) == driver(at)).collect()
        };
        let sockets = usize::from(self.cpus.sockets).max(1);
        let is_shared = |chips: &[usize]| chips::is_shared(&self.chips[chips[0]].name);
        let mut drivers = all.iter().map(|at| of_driver(*at));
        let found = drivers.find(|chips| chips.len() >= sockets || is_shared(chips));
        let Some(mut chips) = found else {
            return Vec::new();
        };
        // Processors of several dies have a chip for each, in the order of their numbers.
        chips.sort_by_key(|at| self.chips[*at].device.as_deref().map(by_number));
        let own = |chips: &[usize]| -> Vec<(usize, String)> {
            let own = |at: usize| inputs(at).into_iter().map(move |one| (at, one.to_owned()));
            chips.iter().flat_map(|at| own(*at)).collect()
        };
        match chips.len() % sockets {
            0 if !is_shared(&chips) => chips.chunks(chips.len() / sockets).map(own).collect(),
            _ => self.by_label(own(&chips), sockets),
        }
    }

    /// `inputs` of all processors by the number in their labels, such as "Chip 8 Core 88" of
    /// ibmpowernv, in the order of sockets. Where that does not tell whose each is, the hottest of
    /// all stands for each socket.
    fn by_label(&self, inputs: Vec<(usize, String)>, sockets: usize) -> Vec<Vec<(usize, String)>> {
        let of = |(at, input): &(usize, String)| {
            let mut all = self.chips[*at].temperatures.iter();
            let (_, label) = all.find(|(one, _)| one == input)?;
            label.strip_prefix("Chip ")?.split_whitespace().next()?.parse::<u32>().ok()
        };
        let mut own: BTreeMap<Option<u32>, Vec<_>> = BTreeMap::new();
        for input in &inputs {
            own.entry(of(input)).or_default().push(input.clone());
        }
        match own.len() == sockets && !own.contains_key(&None) {
            true => own.into_values().collect(),
            false => vec![inputs; sockets],
        }
    }

    /// The chip of `drive`: that of its NVMe controller, before Linux 5.12 of the controller's PCI
    /// function, or of its SCSI device.
    #[must_use]
    pub fn drive_chip(&self, drive: &Drive) -> Option<&Chip> {
        let address = drive.controller_folder().map(|folder| format!("{folder}/address"));
        let devices = match &drive.controller {
            Some(controller) => [Some(controller.clone()), self.sys.text(address?).ok()],
            None => [self.sys.link(format!("sys/block/{}/device", drive.name)), None],
        };
        let is_its = |chip: &&Chip| chip.device.is_some() && devices.contains(&chip.device);
        self.chips.iter().filter(|chip| chip.of == Of::Drive).find(is_its)
    }
}
