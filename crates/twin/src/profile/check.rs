//! Reading a profile, and refusing one that could not exist.

use std::io::ErrorKind;

use ebb_policy::CoreRole;
use ebb_policy::units::Nanos;

use super::base::Layers;
use super::error::{ProfileError, Wrong, wrong};
use super::{Declared, DriveModel, Port, Profile, RateLimit, Stage, Wait};
use crate::drive::DriveProfile;
use crate::drive_file::DriveFile;

macro_rules! shipped {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../profiles/", $name, ".toml")))),+]
    };
}

/// The shipped profiles.
const SHIPPED: &[(&str, &str)] = shipped![
    "asg-1115s",
    "dorado-6000",
    "dorado-6000-fig-7",
    "pass-10",
    "rocksdb-2288h",
    "generic-1u",
    "thermal-1u",
    "converged-1u",
    "asg-1115s-thermal",
    "dorado-6000-thermal",
    "eadc-q",
    "eadc-e2",
    "eadc-e4",
    "eadc-e6",
    "eadc-lab",
    "backup-36",
    "pc-i5-4460",
    "cubietruck-a20",
    "cm5-nvme",
    "rock-5c-nvme",
    "silver-980pro",
    "hp-mbwu",
];

impl Profile {
    /// Name and TOML text of the shipped profiles.
    pub fn shipped() -> impl Iterator<Item = (&'static str, &'static str)> {
        SHIPPED.iter().copied()
    }

    /// Names of the shipped profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|(name, _)| *name)
    }

    /// The TOML text of a shipped profile, to copy and change.
    #[must_use]
    pub fn shipped_text(name: &str) -> Option<&'static str> {
        SHIPPED.iter().find(|(shipped, _)| *shipped == name).map(|(_, text)| *text)
    }

    /// A shipped profile by name, or else the one in the file of that path.
    ///
    /// # Errors
    /// When there is neither, or the text is not a possible server.
    pub fn load(name: &str) -> Result<Self, ProfileError> {
        if let Some(text) = Self::shipped_text(name) {
            return Self::parse(text, name);
        }
        let text = ebb_trace::files::text(name).map_err(|source| match source.kind() {
            ErrorKind::NotFound => {
                let valid = Self::names().collect::<Vec<_>>().join(", ");
                ProfileError::Unknown { name: name.to_owned(), valid }
            }
            _ => ProfileError::Unread { name: name.to_owned(), source },
        })?;
        Self::parse(&text, name)
    }

    /// Reads a profile from TOML; `origin` names it in errors.
    ///
    /// # Errors
    /// When the text is not TOML, has unknown or missing keys, or states an impossible server.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ProfileError> {
        let layers = Layers::read(text, origin)?;
        let mut profile = layers.merge()?;
        let found = profile.find_drive(&layers).and_then(|()| profile.possible());
        found.map_err(|wrong| layers.locate(wrong))?;
        Ok(profile)
    }

    /// Finds the drive model: a shipped one, or the one in a file beside the text that names it,
    /// with the power states of another drive if it says so.
    fn find_drive(&mut self, layers: &Layers) -> Result<(), Wrong> {
        let model = &self.drives.model;
        let unknown = |reason| Wrong { table: "drives", index: 0, key: "model", reason };
        let base = DriveModel::find(model, layers.folder_of("drives", "model")).map_err(unknown)?;
        let declared = |reason| Wrong { table: "drives", index: 0, key: "power_states", reason };
        let model = match (&self.drives.power_states, base) {
            (None, base) => base,
            (Some(Declared { file, model }), DriveModel::Ssd(base)) => {
                let file = layers.folder_of("drives", "power_states").join(file);
                let composed = DriveProfile::compose(&file, model, &base);
                DriveModel::Ssd(composed.map_err(|error| declared(error.to_string()))?)
            }
            (Some(_), DriveModel::Hdd(_)) => {
                let reason = "are those of NVMe drives: a hard disk has its own, leave them out";
                return Err(declared(reason.to_owned()));
            }
        };
        if let Some(thermal) = &mut self.thermal {
            thermal.drive.inherit(model.heat());
        }
        self.model = Some(self.behind_port(model)?.in_steps());
        Ok(())
    }

    /// The drive as it is seen through its port.
    fn behind_port(&self, model: DriveModel) -> Result<DriveModel, Wrong> {
        let refuse = |reason: String| Wrong { table: "drives", index: 0, key: "port", reason };
        match (self.drives.port, model) {
            (None, model) => Ok(model),
            (Some(Port { read, write }), DriveModel::Ssd(mut drive)) => {
                drive.read.per_second = drive.read.per_second.min(read);
                drive.write.per_second = drive.write.per_second.min(write);
                drive.validate().map_err(refuse)?;
                Ok(DriveModel::Ssd(drive))
            }
            (Some(_), DriveModel::Hdd(_)) => {
                Err(refuse("is that of SSDs: a hard disk is slower than any, leave it out".into()))
            }
        }
    }

    /// Checks every value; the first impossible one is the error.
    fn possible(&self) -> Result<(), Wrong> {
        self.possible_magnitudes()?;
        self.possible_cpu()?;
        self.possible_limits()?;
        if self.stage.is_empty() {
            return wrong("", "stage", "at least one [[stage]] is needed".into());
        }
        for (index, stage) in self.stage.iter().enumerate() {
            stage.possible().map_err(|wrong| Wrong { index, ..wrong })?;
        }
        self.possible_jobs()?;
        self.possible_drives()?;
        self.possible_board()?;
        self.possible_heat()
    }

    fn possible_jobs(&self) -> Result<(), Wrong> {
        let Some(jobs) = &self.jobs else { return Ok(()) };
        if !(1..=1024).contains(&jobs.slots) {
            return wrong("jobs", "slots", format!("{} is not in 1..=1024", jobs.slots));
        }
        if jobs.cores.is_empty() {
            return wrong("jobs", "slots", "at least one [[jobs.cores]] is needed".into());
        }
        for (index, group) in jobs.cores.iter().enumerate() {
            let table = "jobs.cores";
            if !(1..=1024).contains(&group.cores) {
                let reason = format!("{} is not in 1..=1024", group.cores);
                return Err(Wrong { table, index, key: "cores", reason });
            }
            if jobs.cores[..index].iter().any(|other| other.socket == group.socket) {
                let reason = format!("socket {} has its cores already", group.socket);
                return Err(Wrong { table, index, key: "socket", reason });
            }
        }
        Ok(())
    }

    fn possible_cpu(&self) -> Result<(), Wrong> {
        let cpu = &self.cpu;
        if cpu.frequencies.first().is_none_or(|lowest| lowest.0 <= 0.0) {
            return wrong("cpu", "frequencies", "at least one, above 0 Hz, is needed".into());
        }
        if cpu.frequencies.windows(2).any(|pair| pair[0] >= pair[1]) {
            return wrong("cpu", "frequencies", "must rise from one to the next".into());
        }
        if let Some(share) = cpu.uncore_share.filter(|share| !(0.0..=0.9).contains(share)) {
            return wrong("cpu", "uncore_share", format!("{share} is not in 0..=0.9"));
        }
        if !(0.0..=1.0).contains(&cpu.poll_share) {
            return wrong("cpu", "poll_share", format!("{} is not in 0..=1", cpu.poll_share));
        }
        if !(0.5..=4.0).contains(&cpu.frequency_exponent) {
            return wrong("cpu", "frequency_exponent", "must lie in 0.5..=4".into());
        }
        if cpu.wait == Wait::Sleep && cpu.idle_states.is_empty() {
            return wrong("cpu", "wait", "\"sleep\" needs at least one [[cpu.idle_states]]".into());
        }
        for (index, pair) in cpu.idle_states.windows(2).enumerate() {
            if pair[0].after >= pair[1].after || pair[0].power < pair[1].power {
                let reason = "deeper states must come later and draw no more".into();
                let (table, index) = ("cpu.idle_states", index + 1);
                return Err(Wrong { table, index, key: "after", reason });
            }
        }
        Ok(())
    }

    fn possible_limits(&self) -> Result<(), Wrong> {
        let cpu = &self.cpu;
        if cpu.stopped_saving > cpu.uncore {
            return wrong("cpu", "stopped_saving", "is more than uncore".into());
        }
        if cpu.power_limit.is_some_and(|limit| limit.0 <= 0.0) {
            return wrong("cpu", "power_limit", "must be above 0 W".into());
        }
        if !(0.1..=1.0).contains(&cpu.limit_share) {
            return wrong("cpu", "limit_share", format!("{} is not in 0.1..=1", cpu.limit_share));
        }
        if !(0.0..1.0).contains(&cpu.random_order) {
            let reason = format!("{} is not from 0 to below 1", cpu.random_order);
            return wrong("cpu", "random_order", reason);
        }
        if let Some(quota) = cpu.quota
            && !(0.001..=1e5).contains(&quota)
        {
            return wrong("cpu", "quota", format!("{quota} cores are not in 0.001..=100000"));
        }
        if cpu.quota_period < Nanos::from_millis(1) {
            return wrong("cpu", "quota_period", format!("{} is below 1 ms", cpu.quota_period));
        }
        if let Some(network) = &self.network {
            if network.link.0 < 1_000_000 {
                return wrong("network", "link", "must be at least 1 MB per second".into());
            }
            if !(0.0..=3.0).contains(&network.variation) {
                return wrong("network", "variation", "is not in 0..=3".into());
            }
        }
        if self.board.memory_bandwidth.is_some_and(|rate| rate.0 < 1_000_000) {
            return wrong("board", "memory_bandwidth", "must be at least 1 MB per second".into());
        }
        if let Some(RateLimit { iops, bytes }) = self.drives.limit
            && (iops.is_some_and(|iops| !(1.0..=1e9).contains(&iops))
                || bytes.is_some_and(|bytes| bytes.0 < 1000))
        {
            return wrong("drives", "limit", "at least 1 command and 1 kB per second".into());
        }
        Ok(())
    }

    fn possible_drives(&self) -> Result<(), Wrong> {
        let (count, least) = (usize::from(self.drives.count), self.layout.raid.parity() + 1);
        if count < least || count > 1024 {
            let reason = format!("{count} drives: this layout takes {least} to 1024");
            return wrong("drives", "count", reason);
        }
        if self.drives.queue_depth == 0 {
            return wrong("drives", "queue_depth", "must be 1 or more".into());
        }
        let chunk = self.layout.chunk;
        if chunk.0 < 512 || chunk.0 > 1 << 30 || !chunk.0.is_power_of_two() {
            let reason = format!("{chunk} is not a power of two from 512 B to 1 GiB");
            return wrong("layout", "chunk", reason);
        }
        if let Some(background) = &self.background {
            let task = background.task;
            if task.0 < 512 || task.0 > 1 << 30 {
                let reason = format!("{task} is not between 512 B and 1 GiB");
                return wrong("background", "task", reason);
            }
            let per_byte = background.per_written_byte;
            if !(0.0..=100.0).contains(&per_byte) {
                let reason = format!("{per_byte} is not in 0..=100");
                return wrong("background", "per_written_byte", reason);
            }
        }
        Ok(())
    }

    fn possible_board(&self) -> Result<(), Wrong> {
        let curve = &self.psu.efficiency;
        let in_range = |(load, eff): &(f64, f64)| *load >= 0.0 && *eff > 0.0 && *eff <= 1.0;
        let rising = curve.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if curve.is_empty() || !curve.iter().all(in_range) || !rising {
            let reason = "points [load, efficiency] with rising load, efficiency above 0 up to 1";
            return wrong("psu", "efficiency", reason.into());
        }
        if self.psu.rated.0 <= 0.0 {
            return wrong("psu", "rated", "must be above 0 W".into());
        }
        Ok(())
    }
}

impl Stage {
    fn possible(&self) -> Result<(), Wrong> {
        if self.role == CoreRole::Compute {
            let reason = "cores that run jobs are no stage of a request: see [[jobs.cores]]";
            return wrong("stage", "role", reason.into());
        }
        if self.cores == 0 || self.min_cores == 0 || self.min_cores > self.cores {
            let reason = format!(
                "{} cores, of which at least {} stay active: both must be 1 or more, the second \
                 no larger than the first",
                self.cores, self.min_cores
            );
            return wrong("stage", "cores", reason);
        }
        let cycles = [
            ("read_cycles", self.read_cycles),
            ("write_cycles", self.write_cycles),
            ("cycles_per_kib", self.cycles_per_kib),
        ];
        for (key, value) in cycles {
            if !(0.0..=1e12).contains(&value) {
                return wrong("stage", key, format!("{value} is not in 0..=1e12"));
            }
        }
        if !(0.0..=3.0).contains(&self.variation) {
            return wrong("stage", "variation", format!("{} is not in 0..=3", self.variation));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_profile_is_possible_and_described() {
        for name in Profile::names() {
            let profile = Profile::load(name).unwrap();
            assert_eq!(profile.name, name);
            assert!(profile.summary.len() > 20);
        }
    }

    /// The error for `generic-1u` with `from` replaced by `to`.
    fn refuse(from: &str, to: &str) -> String {
        let text = Profile::shipped_text("generic-1u").unwrap();
        assert!(text.contains(from), "{from}");
        Profile::parse(&text.replacen(from, to, 1), "my.toml").unwrap_err().to_string()
    }

    #[test]
    fn an_impossible_value_is_refused_with_its_line() {
        for (from, to, says) in [
            ("cores = 4", "cores = 0", "1 or more"),
            ("uncore = \"45 W\"", "uncore = \"-45 W\"", "negative"),
            ("poll_share = 0.6", "poll_share = 1.6", "0..=1"),
            ("count = 8", "count = 1", "2 to 1024"),
            ("\"1.2 GHz\", \"1.6 GHz\"", "\"1.6 GHz\", \"1.2 GHz\"", "rise"),
            ("model = \"generic-nvme\"", "model = \"floppy\"", "pm1743"),
            ("after = \"600 us\"", "after = \"2 us\"", "later"),
            ("[0.05, 0.82]", "[0.05, 1.82]", "efficiency"),
            ("chunk = \"64 KiB\"", "chunk = \"65 KiB\"", "power of two"),
            ("block = \"4 KiB\"", "block = \"0 KiB\"", "512 B"),
            ("steady = \"20 MiB\"", "steady = \"999999999 MiB\"", "above 100 GiB"),
            ("task_cycles = 400000.0", "task_cycles = 1e300", "0..=1e12"),
            ("unpark_latency = \"200 us\"", "unpark_latency = \"7200 s\"", "above 3600 s"),
            ("\"1.2 GHz\"", "\"1.2 Hz\"", "1.2 Hz is not from"),
        ] {
            let message = refuse(from, to);
            assert!(message.contains(says), "{message}");
            assert!(message.starts_with("my.toml:"), "{message}");
        }
    }

    #[test]
    fn the_line_is_that_of_the_right_table() {
        let text = Profile::shipped_text("generic-1u").unwrap();
        let second = text.match_indices("variation = 0.4").nth(1).unwrap().0;
        let mut broken = text.to_owned();
        broken.replace_range(second..second + 15, "variation = 9.0");
        let line = text[..second].lines().count() + 1;
        let message = Profile::parse(&broken, "my.toml").unwrap_err().to_string();
        assert!(message.starts_with(&format!("my.toml:{line}: variation: 9")), "{message}");
    }

    #[test]
    fn drives_take_the_power_states_that_another_declares() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let head = "model,family,capacity_gb,firmware,ps,operational,max_power_w,active_power_w,\
                    rrl,rrt,rwl,rwt,entry_lat_us,exit_lat_us,source\n";
        let rows = "X1,x,3841,F,0,1,25,,0,0,0,0,100,100,y\nX1,x,3841,F,1,1,12,,1,1,1,1,100,100,y\n";
        std::fs::write(at("states.csv"), format!("{head}{rows}")).unwrap();
        let text = Profile::shipped_text("generic-1u").unwrap();
        let with = |model: &str| {
            let key = format!(
                "count = 8\npower_states = {{ file = \"states.csv\", model = \"{model}\" }}"
            );
            std::fs::write(at("my.toml"), text.replacen("count = 8", &key, 1)).unwrap();
            Profile::load(at("my.toml").to_str().unwrap())
        };
        let topology = with("X1").unwrap().topology();
        assert_eq!((topology.drives[0].cap(0).0, topology.drives[0].cap(1).0), (25.0, 12.0));
        let refused = with("X2").unwrap_err().to_string();
        assert!(refused.contains("X2") && refused.contains("my.toml:"), "{refused}");
    }

    #[test]
    fn a_drive_that_takes_a_power_limit_has_its_steps_for_states() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let drive = include_str!("../../profiles/drives/generic-nvme.toml");
        let limited = drive.replacen("[drive]\n", "[drive]\npower_limit = true\n", 1);
        std::fs::write(at("drive.toml"), limited).unwrap();
        let own = Profile::load("generic-1u").unwrap();
        let model = format!("model = \"{}\"", own.drives.model);
        let text = Profile::shipped_text("generic-1u").unwrap();
        let text = text.replacen(&model, "model = \"drive.toml\"", 1);
        std::fs::write(at("my.toml"), text).unwrap();
        let profile = Profile::load(at("my.toml").to_str().unwrap()).unwrap();
        let drive = &profile.topology().drives[0];
        let own = &own.topology().drives[0];
        let watts = (own.cap(0) - own.cap(u8::MAX)).0;
        assert_eq!(drive.operational().len(), watts.ceil() as usize + 1);
        assert_eq!((drive.cap(0), drive.cap(u8::MAX)), (own.cap(0), own.cap(u8::MAX)));
    }

    #[test]
    fn a_port_narrows_the_drive_and_never_widens_it() {
        let base = Profile::shipped_text("generic-1u").unwrap();
        let with = |port: &str| {
            let text = base.replacen("count = 8", &format!("count = 8\nport = {port}"), 1);
            Profile::parse(&text, "my.toml")
        };
        let own = Profile::load("generic-1u").unwrap().drive().unwrap();
        let slow = with("{ read = \"200 MB\", write = \"45 MB\" }").unwrap().drive().unwrap();
        assert_eq!((slow.read.per_second.0, slow.write.per_second.0), (200_000_000, 45_000_000));
        let wide = with("{ read = \"99 GB\", write = \"99 GB\" }").unwrap().drive().unwrap();
        assert_eq!(wide, own);
        let refused = with("{ read = \"1 kB\", write = \"45 MB\" }").unwrap_err().to_string();
        assert!(refused.contains("my.toml:") && refused.contains("1 MB"), "{refused}");
    }

    #[test]
    fn syntax_errors_and_unknown_keys_name_the_line() {
        for (from, to) in [("uncore = ", "uncorn = "), ("\"45 W\"", "\"45 V\""), ("[psu]", "[psu")]
        {
            let message = refuse(from, to);
            assert!(message.contains("my.toml") && message.contains("line"), "{message}");
        }
        let unknown = Profile::load("no-such").unwrap_err().to_string();
        assert!(unknown.contains("dorado-6000"), "{unknown}");
    }
}
