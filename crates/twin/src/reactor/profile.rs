//! A polled storage server as data; every constant of the shipped one has its source beside it.

use serde::Deserialize;
use serde::de::Error as _;
use toml::de::{DeTable, Deserializer};
use toml::{Spanned, Table, Value};

use ebb_policy::reactor::{Core, CoreSpec, Machine};
use ebb_policy::units::{Hertz, Nanos, Watts};

use crate::profile::join;

/// Far from where virtual time and energies would overflow.
const LARGEST: f64 = 1e12;
const LONGEST: Nanos = Nanos::from_secs(3600);

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

/// What `text` says with all that its base says.
fn layers(text: &str) -> Result<Spanned<DeTable<'_>>, toml::de::Error> {
    let table = DeTable::parse(text)?;
    let span = table.span();
    let mut table = table.into_inner();
    let Some(base) = table.remove("base") else { return Ok(Spanned::new(span, table)) };
    let shipped = SHIPPED.iter().find(|(shipped, _)| base.get_ref().as_str() == Some(*shipped));
    let Some((_, below)) = shipped else {
        let valid = Profile::names().collect::<Vec<_>>().join(", ");
        return Err(toml::de::Error::custom(format!("base: choose from {valid}")));
    };
    Ok(Spanned::new(span, join(layers(below)?.into_inner(), table)))
}

/// Shipped profiles.
const SHIPPED: [(&str, &str); 2] = [
    ("all-flash", include_str!("../../profiles/reactor/all-flash.toml")),
    ("all-flash-raid5", include_str!("../../profiles/reactor/all-flash-raid5.toml")),
];

impl Profile {
    /// Name and TOML text of the shipped ones.
    pub fn shipped() -> impl Iterator<Item = (&'static str, &'static str)> {
        SHIPPED.iter().copied()
    }

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
        let text = ebb_trace::files::text(name).ok()?;
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
        let source = |mut error: toml::de::Error| {
            error.set_input(Some(text));
            ReactorProfileError::Toml { name: name.to_owned(), source: Box::new(error) }
        };
        let read = layers(text).and_then(|table| Self::deserialize(Deserializer::from(table)));
        let profile = read.map_err(source)?;
        match profile.wrong() {
            None => Ok(profile),
            Some((field, valid)) => {
                Err(ReactorProfileError::Value { name: name.to_owned(), field, valid })
            }
        }
    }

    /// A field out of its range, and the range.
    fn wrong(&self) -> Option<(&'static str, &'static str)> {
        let Self { power, cost, wake, drive, .. } = self;
        let positive = "must be above zero";
        let numbers = [
            (power.cpu_idle.0, "power.cpu_idle"),
            (power.ssd_idle.0, "power.ssd_idle"),
            (power.others_idle.0, "power.others_idle"),
            (power.core_active.0, "power.core_active"),
            (power.core_serving.0, "power.core_serving"),
            (power.core_doze.0, "power.core_doze"),
            (power.core_c1.0, "power.core_c1"),
            (power.core_c6.0, "power.core_c6"),
            (power.ssd_range.0, "power.ssd_range"),
            (power.ssd_peak_iops, "power.ssd_peak_iops"),
            (power.frequency_exponent, "power.frequency_exponent"),
            (power.others_per_cpu_watt, "power.others_per_cpu_watt"),
            (cost.frequency.0, "cost.frequency"),
            (cost.request_cycles, "cost.request_cycles"),
            (cost.reply_cycles, "cost.reply_cycles"),
            (cost.command_cycles, "cost.command_cycles"),
            (cost.parity_cycles, "cost.parity_cycles"),
            (cost.kernel_factor, "cost.kernel_factor"),
            (cost.sibling_busy, "cost.sibling_busy"),
            (cost.sibling_polling, "cost.sibling_polling"),
            (drive.variation, "drive.variation"),
        ];
        let times = [
            (self.coarse, "coarse"),
            (cost.poll, "cost.poll"),
            (cost.poll_thread, "cost.poll_thread"),
            (cost.fine, "cost.fine"),
            (cost.message, "cost.message"),
            (wake.doze, "wake.doze"),
            (wake.interrupt, "wake.interrupt"),
            (wake.block, "wake.block"),
            (wake.c1_exit, "wake.c1_exit"),
            (wake.c6_exit, "wake.c6_exit"),
            (wake.c6_residency, "wake.c6_residency"),
            (wake.tick, "wake.tick"),
            (wake.nap, "wake.nap"),
            (wake.frequency_lag, "wake.frequency_lag"),
            (drive.read, "drive.read"),
            (drive.write, "drive.write"),
            (drive.fabric, "drive.fabric"),
        ];
        let possible = |number: f64| (0.0..=LARGEST).contains(&number);
        let number = numbers.into_iter().find(|(number, _)| !possible(*number));
        if let Some((_, field)) = number {
            return Some((field, "must be from 0 to 10^12"));
        }
        if let Some((_, field)) = times.into_iter().find(|(time, _)| *time > LONGEST) {
            return Some((field, "must be at most an hour"));
        }
        let checks = [
            (self.physical_cores > 0, "physical_cores", positive),
            (self.threads > 0, "threads", positive),
            (self.coarse > Nanos::ZERO, "coarse", positive),
            (cost.frequency.0 > 0.0, "cost.frequency", positive),
            (cost.request_cycles > 0.0, "cost.request_cycles", positive),
            (cost.batch > 0, "cost.batch", positive),
            (cost.poll > Nanos::ZERO, "cost.poll", positive),
            (power.ssd_peak_iops > 0.0, "power.ssd_peak_iops", positive),
            ((0.0..=1.0).contains(&power.static_share), "power.static_share", "must be a share"),
            (self.raid.drives >= 3, "raid.drives", "RAID-5 needs at least three"),
        ];
        checks.into_iter().find(|(holds, ..)| !holds).map(|(_, field, valid)| (field, valid))
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
        let Wake { block, interrupt, c6_exit, .. } = self.wake;
        Machine {
            cores: (0..2 * self.physical_cores).map(core).collect(),
            threads: self.threads,
            wake: Some(block + interrupt + c6_exit),
        }
    }
}
