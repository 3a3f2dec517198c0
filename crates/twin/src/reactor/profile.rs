//! A polled storage server as data; every constant of the shipped one has its source beside it.

use serde::Deserialize;
use serde::de::Error as _;
use toml::{Table, Value};

use ebb_policy::reactor::{Core, CoreSpec, Machine};
use ebb_policy::units::{Hertz, Nanos, Watts};

/// A server whose I/O is polled by reactors.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Name.
    pub name: String,
    /// One line for people.
    pub summary: String,
    /// Physical cores of two hyper-threads each, all given to reactors.
    pub physical_cores: u16,
    /// Lightweight threads.
    pub threads: u16,
    /// The coarse period.
    pub coarse: Nanos,
    /// What draws power.
    pub power: Power,
    /// What work costs.
    pub cost: Cost,
    /// What waking costs.
    pub wake: Wake,
    /// The drives.
    pub drive: Drive,
    /// The array, where one is used.
    pub raid: Raid,
}

/// Powers. Those of a core are of a physical one, above its share of [`Power::cpu_idle`].
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// Packages with every core in its deepest state.
    pub cpu_idle: Watts,
    /// Drives without commands.
    pub ssd_idle: Watts,
    /// The rest of the server then.
    pub others_idle: Watts,
    /// A core with a hyper-thread that polls.
    pub core_active: Watts,
    /// Added while both hyper-threads serve, half of it for one.
    pub core_serving: Watts,
    /// Both hyper-threads in shallow sleep, or one deeper.
    pub core_doze: Watts,
    /// Both in C1, or one deeper.
    pub core_c1: Watts,
    /// Both in C6.
    pub core_c6: Watts,
    /// Share of [`Power::core_active`] that does not depend on frequency.
    pub static_share: f64,
    /// The other share falls with frequency to this power.
    pub frequency_exponent: f64,
    /// Collateral power: watts of the rest of the server per watt of the packages above idle.
    pub others_per_cpu_watt: f64,
    /// What the drives draw above that at their peak.
    pub ssd_range: Watts,
    /// Commands per second at which all drives together draw their peak.
    pub ssd_peak_iops: f64,
}

/// Costs of work in cycles, and of looking for it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cost {
    /// Highest frequency.
    pub frequency: Hertz,
    /// Cycles to take a request up from the network.
    pub request_cycles: f64,
    /// Cycles to answer it.
    pub reply_cycles: f64,
    /// Cycles of one drive command.
    pub command_cycles: f64,
    /// Cycles of the parity of one partial-stripe write.
    pub parity_cycles: f64,
    /// Times as many where the kernel's stack does it.
    pub kernel_factor: f64,
    /// One empty round of a reactor.
    pub poll: Nanos,
    /// Added per thread on it.
    pub poll_thread: Nanos,
    /// Times as long beside a sibling that serves.
    pub sibling_busy: f64,
    /// Times as long beside a sibling that polls.
    pub sibling_polling: f64,
    /// One fine step on the main core.
    pub fine: Nanos,
    /// Handing a thread to another core.
    pub message: Nanos,
    /// Requests of one thread in a row.
    pub batch: u16,
}

/// What waking costs.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wake {
    /// From shallow sleep.
    pub doze: Nanos,
    /// Interrupt and context switch, on top of the idle state's exit.
    pub interrupt: Nanos,
    /// Entering a block.
    pub block: Nanos,
    /// Exit from C1.
    pub c1_exit: Nanos,
    /// Exit from C6.
    pub c6_exit: Nanos,
    /// Idle time from which on C6 pays; shorter expected ones stay in C1.
    pub c6_residency: Nanos,
    /// Time in C1 after which a core is sent to C6.
    pub tick: Nanos,
    /// End of a nap.
    pub nap: Nanos,
    /// Time until a new frequency is in force.
    pub frequency_lag: Nanos,
}

/// Drives and network, which are never short.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drive {
    /// Mean time of a read command.
    pub read: Nanos,
    /// Mean time of a write command.
    pub write: Nanos,
    /// Coefficient of variation of both (log-normal).
    pub variation: f64,
    /// Network and client.
    pub fabric: Nanos,
}

/// The array.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raid {
    /// Whether volumes are RAID-5: a write then reads old data and parity and writes both.
    pub used: bool,
    /// Drives of a RAID-5 volume; at least three.
    pub drives: u16,
}

/// A profile that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReactorProfileError {
    /// Not TOML of this form.
    #[error("{name}: {source}")]
    Toml {
        /// Profile.
        name: String,
        /// What the parser said, with the line.
        source: Box<toml::de::Error>,
    },
    /// A value out of its range.
    #[error("{name}: {field}: {valid}")]
    Value {
        /// Profile.
        name: String,
        /// Field.
        field: &'static str,
        /// What would be valid.
        valid: &'static str,
    },
}

/// What `text` says with all that its base says, and whether it has one.
fn layers(text: &str) -> Result<(Table, bool), toml::de::Error> {
    let mut table: Table = text.parse()?;
    let Some(base) = table.remove("base") else { return Ok((table, false)) };
    let shipped = SHIPPED.iter().find(|(shipped, _)| base.as_str() == Some(*shipped));
    let Some((_, below)) = shipped else {
        let valid = Profile::names().collect::<Vec<_>>().join(", ");
        return Err(toml::de::Error::custom(format!("base = {base}: choose from {valid}")));
    };
    Ok((join(layers(below)?.0, table), true))
}

/// `below` with what `above` sets.
fn join(mut below: Table, above: Table) -> Table {
    for (key, value) in above {
        let value = match (below.remove(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => Value::Table(join(below, above)),
            (_, value) => value,
        };
        below.insert(key, value);
    }
    below
}

/// Shipped profiles.
const SHIPPED: [(&str, &str); 2] = [
    ("all-flash", include_str!("../../profiles/reactor/all-flash.toml")),
    ("all-flash-raid5", include_str!("../../profiles/reactor/all-flash-raid5.toml")),
];

impl Profile {
    /// The names of the shipped ones.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|(name, _)| *name)
    }

    /// The shipped profile of Sandman's server.
    ///
    /// # Errors
    /// None in a release: a test reads it.
    pub fn all_flash() -> Result<Self, ReactorProfileError> {
        Self::parse(SHIPPED[0].0, SHIPPED[0].1)
    }

    /// A shipped profile by name, or that in the file of this path; `None` where neither is the
    /// profile of a polled server.
    ///
    /// # Errors
    /// One that is, and cannot be used.
    pub fn find(name: &str) -> Option<Result<Self, ReactorProfileError>> {
        if let Some((_, text)) = SHIPPED.iter().find(|(shipped, _)| *shipped == name) {
            return Some(Self::parse(name, text));
        }
        let text = std::fs::read_to_string(name).ok()?;
        let table: Table = text.parse().ok()?;
        let base = table.get("base").and_then(Value::as_str);
        let polled =
            table.contains_key("threads") || base.is_some_and(|b| Self::names().any(|n| n == b));
        polled.then(|| Self::parse(name, &text))
    }

    /// Reads a profile, which may say only in what it differs from its `base`, a shipped one.
    ///
    /// # Errors
    /// Text that is not of this form, and values out of range.
    pub fn parse(name: &str, text: &str) -> Result<Self, ReactorProfileError> {
        let read = || {
            let table = layers(text)?;
            // A whole one is read as text, so that an error has its line.
            if table.1 { table.0.try_into() } else { toml::from_str(text) }
        };
        let source =
            |error| ReactorProfileError::Toml { name: name.to_owned(), source: Box::new(error) };
        let profile: Self = read().map_err(source)?;
        profile.check(name)
    }

    fn check(self, name: &str) -> Result<Self, ReactorProfileError> {
        let profile = self;
        let positive = "must be above zero";
        let checks = [
            (profile.physical_cores > 0, "physical_cores", positive),
            (profile.threads > 0, "threads", positive),
            (profile.coarse > Nanos::ZERO, "coarse", positive),
            (profile.cost.frequency.0 > 0.0, "cost.frequency", positive),
            (profile.cost.request_cycles > 0.0, "cost.request_cycles", positive),
            (profile.cost.batch > 0, "cost.batch", positive),
            (profile.cost.poll > Nanos::ZERO, "cost.poll", positive),
            (profile.power.ssd_peak_iops > 0.0, "power.ssd_peak_iops", positive),
            (profile.drive.variation >= 0.0, "drive.variation", "must not be negative"),
            (profile.raid.drives >= 3, "raid.drives", "RAID-5 needs at least three"),
        ];
        match checks.into_iter().find(|(holds, ..)| !holds) {
            None => Ok(profile),
            Some((_, field, valid)) => {
                Err(ReactorProfileError::Value { name: name.to_owned(), field, valid })
            }
        }
    }

    /// Seconds that a request keeps a hyper-thread with nothing beside it busy.
    #[must_use]
    pub fn work(&self, write: bool) -> f64 {
        let cost = &self.cost;
        let rounds = if self.raid.used && write { 1.0 } else { 0.0 };
        let reads = rounds * f64::from(self.raid.drives - 2).min(2.0);
        let commands = if rounds > 0.0 { reads + 2.0 } else { 1.0 };
        let cycles = cost.request_cycles + cost.reply_cycles + rounds * cost.parity_cycles;
        (cycles + commands * cost.command_cycles) / cost.frequency.0
    }

    /// What schedulers see: cores 2k and 2k+1 are siblings, core 0 is the main one.
    #[must_use]
    pub fn machine(&self) -> Machine {
        let core = |core: Core| CoreSpec { sibling: Some(core ^ 1), node: 0 };
        Machine { cores: (0..2 * self.physical_cores).map(core).collect(), threads: self.threads }
    }
}
