//! Settings that the operator holds for as long as Ebb acts: no policy asks for them, and they are
//! saved, read back and set back as any other.

use ebb_policy::units::{Nanos, Watts};

use crate::act::knob::{Knob, Place};
use crate::act::places::package_place;
use crate::act::steering::Notice;
use crate::find::cpus::Cpu;
use crate::find::drives::Drive;
use crate::find::energy::Zone;
use crate::find::layout::drives;
use crate::find::machine::Machine;
use crate::nvme::power_limit;

/// A disk that starts again and again wears out, and saves nothing.
const SHORTEST: Nanos = Nanos::from_secs(60);

/// No idle state takes so long to leave, and the kernel takes 32 bits of microseconds.
const LONGEST: Nanos = Nanos::from_secs(1);

/// What the operator holds.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Holds {
    /// Most that each processor package may draw in the long term (RAPL, constraint `long_term`).
    pub package_power: Option<Watts>,
    /// Most that each drive may draw that takes a limit (NVMe Base 2.3, Feature 23h).
    pub drive_power: Option<Watts>,
    /// Longest time that a CPU may take to leave an idle state
    /// (`Documentation/ABI/testing/sysfs-devices-power`).
    pub cpu_latency: Option<Nanos>,
    /// How the processors weigh power against speed where they choose frequencies by themselves
    /// (`Documentation/admin-guide/pm/intel_pstate.rst`, `amd-pstate.rst`).
    pub energy_preference: Option<String>,
    /// Time without I/O after which hard disks stop (runtime power management of SCSI disks).
    pub disk_standby: Option<Nanos>,
    /// Control groups of background work, which the policies let race.
    pub background: Vec<String>,
}

/// The places of all that is held.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Held {
    /// Held all the time.
    pub constant: Vec<Hold>,
    /// What they are the places of: those of parts that come later are held as well.
    pub of: Holds,
    /// What is left alone, and why.
    pub left: Vec<Notice>,
}

/// A number that limits, where the kernel has a word or a number of its own for all or nothing:
/// `n/a` is no wake-up at all (`pm_qos_resume_latency_us_show`), and 0 is no limit.
fn limit(text: &str) -> Option<u64> {
    match text {
        "n/a" => Some(0),
        text => text.parse().ok().filter(|limit| *limit > 0),
    }
}

/// The longest wake-up as the kernel takes it: in whole microseconds, and never longer than asked.
fn latency_text(latency: Nanos) -> String {
    match latency.0 / 1000 {
        0 => "n/a".to_owned(),
        micros => micros.to_string(),
    }
}

impl Held {
    /// Does without what would raise a limit found: of power, of the time to leave an idle state.
    pub fn keep_limits(&mut self, machine: &Machine) -> Vec<Notice> {
        let mut notices = Vec::new();
        let [package, _, latency, ..] = Place::HOLDS;
        self.constant.retain(|Hold { place, value }| {
            let limits = [package, latency].contains(&place.hold());
            let found = Knob::find(machine, place).and_then(|mut knob| knob.read(&machine.sys));
            let found = found.ok().filter(|_| limits);
            let lower = found.filter(|found| {
                limit(found).zip(limit(value)).is_some_and(|(found, asked)| found < asked)
            });
            let is_kept = lower.is_some();
            notices.extend(lower.map(|found| Notice {
                place: place.clone(),
                text: format!(
                    "it is '{found}', below '{value}': it is kept, unless machine.raise_limits is \
                     true"
                ),
            }));
            !is_kept
        });
        notices
    }

    /// What all packages are held to together.
    #[must_use]
    pub fn package_power(&self) -> Option<Watts> {
        let its = self.constant.iter().filter(|hold| hold.place.hold() == Place::HOLDS[0]);
        let micros = its.map(|hold| hold.value.parse::<f64>().unwrap_or_default());
        micros.reduce(|sum, one| sum + one).map(|micros| Watts(micros * 1e-6))
    }
}

/// A place and what is held there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Where.
    pub place: Place,
    /// What.
    pub value: String,
}

impl Hold {
    /// Those of `holds` that are one: the files of a disk are held all or none. In their order,
    /// the delay first, for without it a disk would stop at once.
    pub fn units(holds: &[Self]) -> impl Iterator<Item = &[Self]> {
        holds.chunk_by(|one, other| match (&one.place, &other.place) {
            (Place::Disk { disk: one, .. }, Place::Disk { disk: other, .. }) => one == other,
            _ => false,
        })
    }
}

impl Holds {
    /// Whether any of it is of processors.
    #[must_use]
    pub fn are_of_cpus(&self) -> bool {
        self.package_power.is_some()
            || self.cpu_latency.is_some()
            || self.energy_preference.is_some()
    }

    /// Whether it can be held on any machine.
    ///
    /// # Errors
    /// The key of `[hold]` of what cannot be, and why.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let [package, drive, latency, _, standby] = Place::HOLDS;
        if let Some(power) = self.package_power.filter(|power| power.0 <= 0.0) {
            let why = "to some firmware that is no limit";
            return Err((package, format!(" = {power}: {why}; write more, such as \"150 W\"")));
        }
        if let Some(power) = self.drive_power.filter(|power| power_limit(*power).is_none()) {
            return Err((drive, format!(" = {power}: write 10 mW to 655 W")));
        }
        if let Some(asked) = self.cpu_latency.filter(|asked| *asked > LONGEST) {
            return Err((latency, format!(" = {asked}: write up to {LONGEST}")));
        }
        match self.disk_standby.filter(|standby| *standby < SHORTEST) {
            Some(asked) => Err((
                standby,
                format!(
                    " = {asked}: write {SHORTEST} or more; a disk that starts all the time wears \
                     out"
                ),
            )),
            None => Ok(()),
        }
    }

    /// Where they are held on `machine`.
    ///
    /// # Errors
    /// What is to be held and cannot be here.
    pub fn places(&self, machine: &Machine) -> Result<Held, String> {
        self.check().map_err(|(key, why)| key.to_owned() + &why)?;
        let mut all = self.package_limits(machine)?;
        all.extend(self.drive_limits(machine)?);
        let mut hold = |path: String, value: String| {
            all.push(Hold { place: Place::File { path }, value });
        };
        if let Some(latency) = self.cpu_latency {
            let file = |cpu: &Cpu| {
                let folder = "sys/devices/system/cpu";
                format!("{folder}/cpu{}/power/pm_qos_resume_latency_us", cpu.number)
            };
            let files: Vec<_> = machine.cpus.cpus.iter().map(file).collect();
            if !files.iter().any(|file| machine.sys.has(file)) {
                let why = "a kernel without CONFIG_PM, or a container";
                return Err(format!("cpu_latency: no CPU has pm_qos_resume_latency_us: {why}"));
            }
            files.into_iter().for_each(|file| hold(file, latency_text(latency)));
        }
        if let Some(preference) = &self.energy_preference {
            for path in preferences(machine, preference)? {
                hold(path, preference.clone());
            }
        }
        let (disks, left) = self.standby(machine)?;
        all.extend(disks);
        Ok(Held { constant: all, of: self.clone(), left })
    }

    /// Where disks are told to stop, and those that are not, with the reason.
    fn standby(&self, machine: &Machine) -> Result<(Vec<Hold>, Vec<Notice>), String> {
        let (mut all, mut left) = (Vec::new(), Vec::new());
        let Some(standby) = self.disk_standby else { return Ok((all, left)) };
        for disk in machine.drives.iter().filter(|drive| drive.rotational) {
            let id = match (theirs(disk), &disk.saved) {
                (None, Some(id)) => id,
                (why, _) => {
                    let text = format!("disk_standby: {}", why.unwrap_or("it has no name"));
                    let path = format!("sys/block/{}", disk.name);
                    left.push(Notice { place: Place::File { path }, text });
                    continue;
                }
            };
            let mut hold = |file: String, value: String| {
                all.push(Hold { place: Place::Disk { disk: id.clone(), file }, value });
            };
            let delay = (standby.0 / 1_000_000).to_string();
            hold("power/autosuspend_delay_ms".to_owned(), delay);
            // Without it the disk is idle to the kernel, and turns (Linux 6.6).
            let scsi = format!("sys/block/{}/device/scsi_disk", disk.name);
            for address in machine.sys.names(&scsi) {
                let stop = format!("{address}/manage_runtime_start_stop");
                if machine.sys.has(format!("{scsi}/{stop}")) {
                    hold(format!("scsi_disk/{stop}"), "1".to_owned());
                }
            }
            hold("power/control".to_owned(), "auto".to_owned());
        }
        // One that is away now may come.
        match left.first().filter(|_| all.is_empty()) {
            Some(Notice { place, text }) => Err(format!("{text} ({place})")),
            None => Ok((all, left)),
        }
    }

    fn package_limits(&self, machine: &Machine) -> Result<Vec<Hold>, String> {
        let Some(power) = self.package_power else { return Ok(Vec::new()) };
        let sys = &machine.sys;
        let zones: Vec<_> = machine.packages().filter(|zone| zone.limit(sys).is_some()).collect();
        if zones.is_empty() {
            let none = "no package here has a long-term power limit".to_owned();
            let why = machine.lacks_packages().unwrap_or(none);
            return Err(format!("package_power: {why}"));
        }
        if let Some(Zone { name, folder, .. }) = zones.iter().find(|zone| zone.is_unlimited(sys)) {
            return Err(format!(
                "package_power: the limits of {name} are turned off: write 1 to \
                 /{folder}/enabled, or see whether the firmware allows that"
            ));
        }
        let least = |zone: &&Zone| zone.least(sys, zone.power_limit(sys).unwrap_or_default());
        if let Some(zone) = zones.iter().find(|zone| power < least(zone)) {
            let least = Watts((least(zone).0 * 10.0).ceil() / 10.0);
            return Err(format!(
                "package_power = {power}: a tenth of what {} may draw is {least}, and cores stand \
                 at their lowest frequency long before that; write {least} or more",
                zone.name,
            ));
        }
        let value = format!("{:.0}", power.0 * 1e6);
        let hold = |zone: &&Zone| Hold { place: package_place(zone), value: value.clone() };
        Ok(zones.iter().map(hold).collect())
    }

    fn drive_limits(&self, machine: &Machine) -> Result<Vec<Hold>, String> {
        let Some(value) = self.drive_power.and_then(power_limit) else { return Ok(Vec::new()) };
        let takes = drives(machine)
            .into_iter()
            .filter(|parts| parts.identity.as_ref().is_some_and(|identity| identity.limits_power));
        let place = |drive: String| Place::PowerLimit { drive };
        let limits: Vec<_> = takes
            .filter_map(|parts| parts.drive.saved)
            .map(|id| Hold { place: place(id), value: value.to_string() })
            .collect();
        match limits.is_empty() {
            true => Err("drive_power: no drive here takes a power limit".to_owned()),
            false => Ok(limits),
        }
    }
}

/// Whose a disk is that is not told to stop: the kernel would say so to what is behind it.
fn theirs(disk: &Drive) -> Option<&'static str> {
    if disk.is_volume {
        return Some("it is a volume of a RAID controller, all of whose disks would stop");
    }
    if !disk.is_sata_or_sas() {
        return Some("it is not on SATA or SAS: what is behind it may be an array that others use");
    }
    // One path would stop the disk under the others, one logical unit the whole.
    (disk.devices.len() > 1).then_some("it has several block devices, and each would stop it")
}

/// The file of each frequency domain for a preference, which all of them must have.
fn preferences(machine: &Machine, preference: &str) -> Result<Vec<String>, String> {
    let mut files = Vec::new();
    for policy in &machine.cpus.policies {
        let available = format!("{}/energy_performance_available_preferences", policy.folder);
        let Ok(available) = machine.sys.text(available) else { continue };
        if !available.split_whitespace().any(|one| one == preference) {
            // amd-pstate offers no other word then.
            let why = match &*policy.governor {
                "performance" if available == "performance" => {
                    "the governor performance takes no other word than performance; choose \
                     powersave first"
                        .to_owned()
                }
                _ => format!("write one of {available}"),
            };
            return Err(format!("energy_preference = \"{preference}\": {why}"));
        }
        files.push(format!("{}/energy_performance_preference", policy.folder));
    }
    match files.is_empty() {
        true => Err("energy_preference: no processor here takes one; it needs the driver \
                     intel_pstate with HWP, or amd-pstate in active mode"
            .to_owned()),
        false => Ok(files),
    }
}
