//! `[machine]`: what the operator knows of the machine.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use ebb_cli::usage;
use ebb_host::{Group, MIN_DUTY, ParkBy, StatedFan, StatedFeed};
use ebb_policy::CoreRole;
use ebb_policy::units::Watts;
use ebb_target::controller::check_nqn;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::run::share::{Written, ratio};

/// `[machine]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Machine {
    /// Cores of each group that are never parked.
    #[schemars(range(min = 1))]
    pub min_cores: u16,
    /// How cores are parked.
    pub park_by: ParkBy,
    /// Smallest duty at which all fans turn.
    #[serde(deserialize_with = "ratio")]
    #[schemars(with = "Written")]
    pub min_duty: f64,
    /// Whether frequencies, drives' idle states and `[hold]` may go above the limits found.
    pub raise_limits: bool,
    /// CPUs that `ebb serve` on this host runs on: no policy sets anything of their cores; with
    /// `serve`, they run at the frequency that their scheduler asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reactors: Option<String>,
    /// Control groups below /sys/fs/cgroup whose CPU time and rates a budget of the whole server
    /// may limit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub throttle: Vec<String>,
    /// Further such groups, and hosts of the `ebb serve` of `serve` by their NQN, for which nobody
    /// waits: they have what the budget and the others leave.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub best_effort: Vec<String>,
    /// The most that drives without power states draw, by model or identity: what they count in
    /// `ssd_budget`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "BTreeMap<String, String>")]
    pub drive_watts: BTreeMap<String, Watts>,
    /// Core groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<CoreGroup>,
    /// Feeds of the server's supplies; it is kept to what those with input allow.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub feeds: Vec<Feed>,
    /// The fans that Ebb may steer, as `ebb probe --fans` proposes them; without them those that
    /// are safe to take.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fans: Vec<Fan>,
}

/// `[[machine.fans]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fan {
    /// The chip's driver, such as "nct6798".
    pub chip: String,
    /// Its device, where two chips have one driver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// What steers it, such as "pwm2".
    #[schemars(regex(pattern = "^pwm[1-9][0-9]*$"))]
    pub pwm: String,
    /// What says how fast it turns, such as "fan2"; a list where it drives several fans.
    #[serde(default, skip_serializing_if = "Vec::is_empty", with = "one_or_more")]
    #[schemars(with = "one_or_more::Inputs")]
    pub tachometer: Vec<String>,
    /// What the operator calls it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub label: String,
}

/// `[[machine.feeds]]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Feed {
    /// What the operator calls it.
    pub name: String,
    /// Most that the server may take from it.
    #[schemars(with = "String", extend("examples" = ["200 W"]))]
    pub limit: Watts,
    /// The devices of the supplies that it feeds, as `ebb probe` lists them.
    #[schemars(length(min = 1))]
    pub supplies: Vec<String>,
}

/// `[[machine.groups]]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CoreGroup {
    /// What its cores do.
    #[schemars(
        with = "String",
        extend("enum" = ["front-end", "key-value", "resource-volume", "compute"])
    )]
    pub role: CoreRole,
    /// Its CPUs, such as "0-15,32-47".
    pub cpus: String,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            min_cores: 1,
            park_by: ParkBy::default(),
            min_duty: MIN_DUTY,
            raise_limits: false,
            reactors: None,
            throttle: Vec::new(),
            best_effort: Vec::new(),
            drive_watts: BTreeMap::new(),
            groups: Vec::new(),
            feeds: Vec::new(),
            fans: Vec::new(),
        }
    }
}

/// What hosts of `ebb serve` are called begins with this; control groups do not.
const HOST: &str = "nqn.";

impl Machine {
    /// The control groups for which nobody waits.
    pub fn best_effort_groups(&self) -> impl Iterator<Item = &String> {
        self.best_effort.iter().filter(|name| !name.starts_with(HOST))
    }

    /// The hosts of `ebb serve` for which nobody waits.
    pub fn best_effort_hosts(&self) -> impl Iterator<Item = &String> {
        self.best_effort.iter().filter(|name| name.starts_with(HOST))
    }

    /// The feeds as stated.
    pub fn stated_feeds(&self) -> Vec<StatedFeed> {
        let feed = |Feed { name, limit, supplies }: Feed| StatedFeed { name, limit, supplies };
        self.feeds.iter().cloned().map(feed).collect()
    }

    /// Whether each feed has supplies of its own.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub fn check_feeds(&self) -> Result<()> {
        let mut names = BTreeSet::new();
        let mut supplies = BTreeSet::new();
        for Feed { name, limit, supplies: own } in &self.feeds {
            let told = if name.is_empty() || !names.insert(name) {
                "each needs a name of its own"
            } else if limit.0 <= 0.0 {
                "its limit must be more than 0 W"
            } else if own.is_empty() {
                "name the devices of its supplies; ebb probe lists them"
            } else if !own.iter().all(|one| supplies.insert(one)) {
                "a supply has one feed"
            } else {
                continue;
            };
            return Err(usage(format!("machine.feeds: \"{name}\": {told}")));
        }
        Ok(())
    }

    /// Whether hosts are named so that they can be held back.
    ///
    /// # Errors
    /// The key of what is wrong, and what would be right.
    pub fn check_hosts(&self, has_server: bool) -> Result<(), (&'static str, String)> {
        let mut hosts: Vec<_> = self.best_effort_hosts().collect();
        hosts.sort_unstable();
        let told = |host: &String, why: &str| format!(": \"{host}\" {why}");
        if let Some(host) = self.throttle.iter().find(|name| name.starts_with(HOST)) {
            let why = "is a host of ebb serve: such can be in machine.best_effort alone";
            return Err(("machine.throttle", told(host, why)));
        }
        let wrong = |host: &&&String| check_nqn(host).is_err();
        let why = match (hosts.iter().find(wrong), hosts.windows(2).find(|two| two[0] == two[1])) {
            (Some(host), _) => told(host, "is no NVMe qualified name (NQN)"),
            (_, Some(two)) => told(two[0], "is there twice"),
            _ if has_server || hosts.is_empty() => return Ok(()),
            _ => told(hosts[0], "is a host of ebb serve: say with serve where its metrics are"),
        };
        Err(("machine.best_effort", why))
    }

    /// The CPUs that `ebb serve` runs on.
    ///
    /// # Errors
    /// A text that is no list.
    pub fn reactors(&self) -> Result<Vec<u16>> {
        let list = self.reactors.as_deref();
        Ok(list.map(|list| cpus("machine.reactors", list)).transpose()?.unwrap_or_default())
    }

    /// The CPUs of each group.
    ///
    /// # Errors
    /// A text that is no list.
    pub fn stated_groups(&self) -> Result<Vec<Group>> {
        let group = |group: &CoreGroup| {
            let cpus = cpus("machine.groups: cpus", &group.cpus)?;
            Ok(Group { role: group.role, cpus })
        };
        let groups: Vec<_> = self.groups.iter().map(group).collect::<Result<_>>()?;
        let mut all: Vec<_> = groups.iter().flat_map(|group| &group.cpus).collect();
        all.sort_unstable();
        match all.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(usage(format!("machine.groups: CPU {} is in two groups", pair[0]))),
            None => Ok(groups),
        }
    }

    /// The fans as stated.
    pub fn stated_fans(&self) -> Vec<StatedFan> {
        let fan = |Fan { chip, device, pwm, tachometer, label }: Fan| StatedFan {
            chip,
            device,
            pwm,
            tachometers: tachometer,
            label,
        };
        self.fans.iter().cloned().map(fan).collect()
    }

    pub fn check_fans(&self) -> Result<()> {
        let is = |name: &str, prefix: &str| {
            let number = name.strip_prefix(prefix).unwrap_or_default();
            number.parse::<u8>().is_ok_and(|number| number > 0)
        };
        let fans = &self.fans;
        for (at, fan) in fans.iter().enumerate() {
            let Fan { chip, device, pwm, tachometer, .. } = fan;
            let same =
                |other: &Fan| (&other.chip, &other.device, &other.pwm) == (chip, device, pwm);
            let mut inputs = tachometer.iter().enumerate();
            let wrong =
                inputs.find(|(at, input)| !is(input, "fan") || tachometer[..*at].contains(input));
            let told = match wrong {
                _ if !is(pwm, "pwm") => format!("pwm = \"{pwm}\": write such as \"pwm2\""),
                Some((_, input)) if is(input, "fan") => format!("{input} of {pwm} is there twice"),
                Some((_, input)) => format!("tachometer = \"{input}\": write such as \"fan2\""),
                _ if fans[..at].iter().any(same) => format!("{pwm} of {chip} is there twice"),
                _ => continue,
            };
            return Err(usage(format!("machine.fans: {told}")));
        }
        Ok(())
    }
}

/// One text, or a list of them.
mod one_or_more {
    use schemars::JsonSchema;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(untagged, expecting = "write such as \"fan2\" or [\"fan1\", \"fan2\"]")]
    #[schemars(rename = "Inputs")]
    pub enum Inputs {
        One(#[schemars(regex(pattern = "^fan[1-9][0-9]*$"))] String),
        Several(#[schemars(inner(regex(pattern = "^fan[1-9][0-9]*$")))] Vec<String>),
    }

    pub fn serialize<S: Serializer>(all: &[String], to: S) -> Result<S::Ok, S::Error> {
        match all {
            [one] => one.serialize(to),
            several => several.serialize(to),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
        Ok(match Inputs::deserialize(from)? {
            Inputs::One(one) => vec![one],
            Inputs::Several(several) => several,
        })
    }
}

fn cpus(key: &str, list: &str) -> Result<Vec<u16>> {
    let cpus = ebb_host::cpus(list).filter(|cpus| !cpus.is_empty());
    cpus.ok_or_else(|| usage(format!("{key} = \"{list}\": write such as \"0-15\"")))
}
