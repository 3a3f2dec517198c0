//! Where users' latency comes from, and what is done where it does not show the CPUs.

use std::borrow::Cow;

use ebb_host::Host;
use ebb_policy::registry::ENTRIES;
use ebb_policy::{Control, Steward};

use super::config::Config;

/// Where no latency shows what waits for CPUs, cores are kept from more utilisation than this.
/// Ours: what comes at random to a CPU that is busy for half of the time takes no more than twice
/// as long as its work does (M/M/1: 1 / (1 - u)).
const UNSEEN: f64 = 0.5;
/// The parameter that bounds it, and to what: frequencies come in steps, and the nearest one may be
/// a twentieth too low.
const BOUND: &str = "max_utilisation";
const AIM: f64 = 0.45;

/// A source of users' latency, the best first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Latency {
    /// What an `ebb serve` on this host counts of each request.
    Served,
    /// At the drives, with what is waited and lost on the CPUs.
    BlockAndCpu,
    /// At the drives alone, and why.
    Block(String),
}

impl Latency {
    /// The one in use.
    pub fn of(config: &Config, host: &Host) -> Self {
        match (config.serve, host.cpus_unseen()) {
            (Some(_), _) => Self::Served,
            (None, None) => Self::BlockAndCpu,
            (None, Some(why)) => Self::Block(why.to_owned()),
        }
    }

    /// Why no latency shows what waits for CPUs.
    pub fn unseen(&self) -> Option<String> {
        match self {
            Self::Block(why) => Some(why.clone()),
            Self::Served | Self::BlockAndCpu => None,
        }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::BlockAndCpu => "block+cpu",
            Self::Block(_) => "block",
        }
    }

    /// `policy` as it is to run by this latency. What the operator states stays.
    pub fn policy<'a>(&self, policy: &'a str) -> Cow<'a, str> {
        if !matches!(self, Self::Block(_)) {
            return policy.into();
        }
        let bounded = |part: &'a str| {
            let part = part.trim();
            let (name, stated) = part.split_once('(').unwrap_or((part, ")"));
            let takes = |name: &str| {
                let entry = ENTRIES.iter().find(|entry| entry.name == name.trim());
                entry.is_some_and(|entry| entry.takes.contains(&BOUND))
            };
            if !takes(name) || stated.contains(BOUND) {
                return part.to_owned();
            }
            let more = if stated == ")" { "" } else { ", " };
            format!("{name}({BOUND}={AIM}{more}{stated}")
        };
        policy.split('+').map(bounded).collect::<Vec<_>>().join("+").into()
    }

    /// For whoever steers cores by it.
    pub fn text(&self, owned: &[Control]) -> Option<String> {
        let is_needed = owned.iter().any(|control| control.row().steward == Steward::Cpu);
        let text = match self {
            Self::Served => "served: what ebb serve counts of each request".to_owned(),
            Self::BlockAndCpu => "block+cpu: at the drives (diskstats), with what tasks wait for \
                                  CPUs (schedstat) and lose on slower ones (modelled)"
                .to_owned(),
            Self::Block(why) => format!(
                "block: at the drives alone, which does not show what parked or slowed cores cost \
                 ({why}); cores are kept to {:.0} % utilisation instead, and plf is not promised",
                100.0 * UNSEEN
            ),
        };
        is_needed.then(|| format!("users' latency is {text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_bounded_where_nothing_shows_them() {
        let block = Latency::Block(String::new());
        for (policy, bounded) in [
            ("pacer", "pacer(max_utilisation=0.45)"),
            ("pacer(gamma=2) + eadc", "pacer(max_utilisation=0.45, gamma=2)+eadc"),
            ("pacer-plus+pacman(alpha=1)", "pacer-plus(max_utilisation=0.45)+pacman(alpha=1)"),
            ("pacer(max_utilisation=0.6)", "pacer(max_utilisation=0.6)"),
            ("ondemand", "ondemand"),
        ] {
            assert_eq!(block.policy(policy), bounded);
            assert_eq!(Latency::Served.policy(policy), policy);
            ebb_policy::registry::owned(bounded).unwrap();
        }
    }
}
