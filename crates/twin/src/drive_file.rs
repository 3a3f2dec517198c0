//! Files of drive models: one TOML table each; some ship with the twin.

use serde::de::DeserializeOwned;

use ebb_policy::units::Celsius;
use serde::{Deserialize, Serialize};

/// A drive model that is read from a file with one table.
pub trait DriveFile: Sized + DeserializeOwned {
    /// Name of the table.
    const TABLE: &'static str;
    /// Name and text of the shipped ones; each file gives the source of every constant.
    const SHIPPED: &'static [(&'static str, &'static str)];

    /// Short name, as used in server profiles.
    fn name(&self) -> &str;

    /// Checks that the numbers describe a drive that can work.
    ///
    /// # Errors
    /// The first key that does not, at the beginning of the text, with what would be valid.
    fn validate(&self) -> Result<(), String>;

    /// The shipped model `name`.
    #[must_use]
    fn builtin(name: &str) -> Option<Self> {
        let (_, text) = Self::SHIPPED.iter().find(|(shipped, _)| *shipped == name)?;
        // A test parses every shipped file, so none fails here.
        Self::from_toml(text).ok()
    }

    /// Names of the shipped models.
    fn names() -> impl Iterator<Item = &'static str> {
        Self::SHIPPED.iter().map(|(name, _)| *name)
    }

    /// Reads a file that holds the one table.
    ///
    /// # Errors
    /// What the TOML reader or [`DriveFile::validate`] found, with the line.
    fn from_toml(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(transparent)]
        struct File<T>(std::collections::BTreeMap<String, T>);
        let File(mut tables) =
            toml::from_str::<File<Self>>(text).map_err(|error| error.to_string())?;
        let table = Self::TABLE;
        let model = tables.remove(table).ok_or_else(|| format!("no table [{table}]"))?;
        if let Some(other) = tables.keys().next() {
            return Err(format!("unknown table [{other}]: only [{table}] belongs here"));
        }
        model.validate().map_err(|error| {
            let key = error.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '.').next();
            let line = line_of_path(text, &format!("{table}.{}", key.unwrap_or_default()));
            format!("line {line}: drive '{}': {error}", model.name())
        })?;
        Ok(model)
    }
}

/// What heat does to a drive: a table `heat` of its model. How well the air gets at it is the
/// server's matter ([`crate::thermal::Bays`]).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DriveHeat {
    /// Heat capacity, J/K.
    pub j_per_k: f64,
    /// Where it begins to slow itself down (NVMe: TMT1, or WCTEMP); never, when absent.
    pub throttle: Option<Celsius>,
    /// Where it has slowed down as far as it goes (NVMe: TMT2, or CCTEMP); needed with `throttle`.
    pub throttle_full: Option<Celsius>,
    /// Share of its power budget for work that is left there.
    #[serde(default = "floor")]
    pub throttle_floor: f64,
}

const fn floor() -> f64 {
    DriveHeat::FLOOR
}

impl DriveHeat {
    /// Heat capacities that a drive can have, J/K: from a gram to a hundred kilogrammes at 0.9
    /// kJ/(kg K).
    const CAPACITY: std::ops::RangeInclusive<f64> = 0.9..=9e4;
    /// What is left to a hot drive where nothing else is known: assumed.
    pub const FLOOR: f64 = 0.25;

    /// Share of its power budget for work that a drive at this temperature allows itself.
    #[must_use]
    pub fn factor(&self, celsius: f64) -> f64 {
        let (Some(from), Some(to)) = (self.throttle, self.throttle_full) else { return 1.0 };
        let way = ((celsius - from.0) / (to.0 - from.0)).clamp(0.0, 1.0);
        1.0 - way * (1.0 - self.throttle_floor)
    }

    /// The first key that cannot be, and why.
    pub(crate) fn impossible(&self) -> Option<(&'static str, String)> {
        let Self { j_per_k, throttle, throttle_full, throttle_floor } = self;
        if !Self::CAPACITY.contains(j_per_k) {
            let (least, most) = (Self::CAPACITY.start(), Self::CAPACITY.end());
            let reason = format!("{j_per_k} is not physical: a drive holds {least} to {most} J/K");
            return Some(("j_per_k", reason));
        }
        let rising = match (throttle, throttle_full) {
            (None, None) => true,
            (Some(from), Some(to)) => from.0 > 0.0 && to > from && to.0 <= 150.0,
            _ => false,
        };
        if !rising {
            let reason = "throttle and throttle_full go together, the second the hotter, from 0 to \
                          150 C";
            return Some(("throttle_full", reason.to_owned()));
        }
        let possible = *throttle_floor > 0.0 && *throttle_floor <= 1.0;
        (!possible).then(|| ("throttle_floor", format!("{throttle_floor} is not in 0 to 1")))
    }

    /// Checks the table of a drive, if it has one.
    pub(crate) fn check(heat: Option<&Self>) -> Result<(), String> {
        match heat.and_then(Self::impossible) {
            Some((key, reason)) => Err(format!("heat.{key}: {reason}")),
            None => Ok(()),
        }
    }
}

/// Where `key` is set in the `index`th table named `table`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// The line of the key, from 1.
    Key(usize),
    /// The key is absent: the line of the table.
    Table(usize),
    /// The table is absent.
    Nowhere,
}

impl Place {
    /// The line, or the first one.
    pub(crate) fn line(self) -> usize {
        match self {
            Self::Key(line) | Self::Table(line) => line,
            Self::Nowhere => 1,
        }
    }
}

/// Looks `key` up in the TOML `text`; the table at the top has no name.
pub(crate) fn place_of(text: &str, table: &str, index: usize, key: &str) -> Place {
    let (mut current, mut seen) = ("", 0);
    let mut place = Place::Nowhere;
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.starts_with('[') && line.ends_with(']') {
            current = line.trim_matches(['[', ']']).trim();
            if current == table {
                seen += 1;
                if seen <= index + 1 {
                    place = Place::Table(number + 1);
                }
            }
        } else if current == table
            && (table.is_empty() || seen == index + 1)
            && line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('='))
        {
            return Place::Key(number + 1);
        }
    }
    place
}

/// The line of a dotted path to a table, or to a key in one; else that of what it lies in.
fn line_of_path(text: &str, path: &str) -> usize {
    if let Place::Table(line) = place_of(text, path, 0, "") {
        return line;
    }
    let (table, key) = path.rsplit_once('.').unwrap_or(("", path));
    place_of(text, table, 0, key).line()
}
