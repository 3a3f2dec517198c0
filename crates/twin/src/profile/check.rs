//! Reading a profile, and refusing one that could not exist.

use std::path::Path;

use super::Profile;
use crate::drive::DriveProfile;

/// Why a profile was refused.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// No shipped profile or file has this name.
    #[error("unknown profile '{name}': not a shipped one ({valid}) and not a readable file")]
    Unknown {
        /// As asked for.
        name: String,
        /// Names of the shipped profiles.
        valid: String,
    },
    /// Not TOML, or not a profile; the message carries line and column.
    #[error("{origin}: {source}")]
    Syntax {
        /// File or shipped profile.
        origin: String,
        /// What the parser said, with the line.
        source: Box<toml::de::Error>,
    },
    /// A value that cannot be.
    #[error("{origin}:{line}: {key}: {reason}")]
    Value {
        /// File or shipped profile.
        origin: String,
        /// Line of the key, from 1.
        line: usize,
        /// The key.
        key: &'static str,
        /// What is wrong and what would be valid.
        reason: String,
    },
}

macro_rules! shipped {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../profiles/", $name, ".toml")))),+]
    };
}

/// The shipped profiles.
const SHIPPED: &[(&str, &str)] = shipped!["asg-1115s", "dorado-6000", "pass-10", "generic-1u"];

impl Profile {
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
        let text = std::fs::read_to_string(Path::new(name)).map_err(|_| {
            let valid = Self::names().collect::<Vec<_>>().join(", ");
            ProfileError::Unknown { name: name.to_owned(), valid }
        })?;
        Self::parse(&text, name)
    }

    /// Reads a profile from TOML; `origin` names it in errors.
    ///
    /// # Errors
    /// When the text is not TOML, has unknown or missing keys, or states an impossible server.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ProfileError> {
        let profile: Self = toml::from_str(text).map_err(|source| ProfileError::Syntax {
            origin: origin.to_owned(),
            source: Box::new(source),
        })?;
        profile.possible().map_err(|(key, reason)| ProfileError::Value {
            origin: origin.to_owned(),
            line: line_of(text, key),
            key,
            reason,
        })?;
        Ok(profile)
    }

    /// Checks every value; the first impossible one as (key, reason).
    fn possible(&self) -> Result<(), (&'static str, String)> {
        self.possible_cpu()?;
        self.possible_power()?;
        if self.stage.is_empty() {
            return Err(("stage", "at least one stage is needed".into()));
        }
        for stage in &self.stage {
            if stage.cores == 0 || stage.min_cores == 0 || stage.min_cores > stage.cores {
                let reason = format!(
                    "{} cores, of which at least {} stay active: both must be 1 or more",
                    stage.cores, stage.min_cores
                );
                return Err(("cores", reason));
            }
            let cycles = [stage.read_cycles, stage.write_cycles, stage.cycles_per_kib];
            if cycles.iter().any(|c| !c.is_finite() || *c < 0.0) {
                return Err(("read_cycles", "cycles must be 0 or more".into()));
            }
            if !(0.0..=3.0).contains(&stage.variation) {
                return Err(("variation", format!("{} is not in 0..=3", stage.variation)));
            }
        }
        let count = usize::from(self.drives.count);
        if count <= self.layout.raid.parity() || count > 1024 {
            let least = self.layout.raid.parity() + 1;
            return Err(("count", format!("{count} drives: this layout takes {least} to 1024")));
        }
        if DriveProfile::builtin(&self.drives.model).is_none() {
            let valid = DriveProfile::names().collect::<Vec<_>>().join(", ");
            let reason = format!("unknown drive '{}'; choose from: {valid}", self.drives.model);
            return Err(("model", reason));
        }
        if self.drives.queue_depth == 0 {
            return Err(("queue_depth", "must be 1 or more".into()));
        }
        if self.layout.chunk.0 < 512 || !self.layout.chunk.0.is_power_of_two() {
            return Err(("chunk", format!("{} is not a power of two from 512 B", self.layout.chunk)));
        }
        Ok(())
    }

    fn possible_cpu(&self) -> Result<(), (&'static str, String)> {
        let cpu = &self.cpu;
        if cpu.frequencies.is_empty() || cpu.frequencies[0].0 <= 0.0 {
            return Err(("frequencies", "at least one frequency above 0 is needed".into()));
        }
        if cpu.frequencies.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(("frequencies", "must rise from one to the next".into()));
        }
        if !(0.0..=1.0).contains(&cpu.poll_share) {
            return Err(("poll_share", format!("{} is not in 0..=1", cpu.poll_share)));
        }
        if !(0.5..=4.0).contains(&cpu.frequency_exponent) {
            return Err(("frequency_exponent", "must lie in 0.5..=4".into()));
        }
        let rising = |pair: &[super::IdleState]| {
            pair[0].after < pair[1].after && pair[0].power >= pair[1].power
        };
        if !cpu.idle_states.windows(2).all(rising) {
            let reason = "deeper states must come later and draw no more".into();
            return Err(("idle_states", reason));
        }
        if cpu.wait == super::Wait::Sleep && cpu.idle_states.is_empty() {
            return Err(("wait", "\"sleep\" needs idle_states".into()));
        }
        Ok(())
    }

    fn possible_power(&self) -> Result<(), (&'static str, String)> {
        let watts = [
            ("uncore", self.cpu.uncore),
            ("core_static", self.cpu.core_static),
            ("core_dynamic", self.cpu.core_dynamic),
            ("parked", self.cpu.parked),
            ("memory", self.board.memory),
            ("nic", self.board.nic),
            ("fans", self.board.fans),
            ("other", self.board.other),
        ];
        for (key, value) in watts {
            if value.0 < 0.0 {
                return Err((key, format!("{value} is negative")));
            }
        }
        let curve = &self.psu.efficiency;
        let in_range = |(load, eff): &(f64, f64)| *load >= 0.0 && *eff > 0.0 && *eff <= 1.0;
        if curve.is_empty()
            || !curve.iter().all(in_range)
            || curve.windows(2).any(|pair| pair[0].0 >= pair[1].0)
        {
            let reason = "points (load, efficiency) with rising load and efficiency in 0..=1";
            return Err(("efficiency", reason.into()));
        }
        if self.psu.rated.0 <= 0.0 {
            return Err(("rated", "must be above 0 W".into()));
        }
        Ok(())
    }
}

/// The first line on which `key` is set, for messages; 1 when it is not.
fn line_of(text: &str, key: &str) -> usize {
    let sets = |line: &str| {
        let line = line.trim_start().trim_start_matches('[');
        line.strip_prefix(key).is_some_and(|rest| rest.starts_with([' ', '=', ']', '.']))
    };
    text.lines().position(sets).map_or(1, |index| index + 1)
}
