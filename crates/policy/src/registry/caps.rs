//! Policies that cap what others ask for, told from those ([`crate::Cycle::coordinated`]).

use super::{Settings, entry, make, stated};
use crate::topology::Topology;
use crate::{Policy, PolicyError, Steward};

/// The parts of `name`, `a+b`, that steer something, and those that cap what these ask for
/// ([`crate::Cycle::coordinated`]); `native` where there is none of the first.
///
/// # Errors
/// Unknown names.
pub fn split(name: &str) -> Result<(String, Option<String>), PolicyError> {
    let (mut policies, mut caps) = (Vec::new(), Vec::new());
    for part in name.split('+') {
        let owns = entry(stated::split(part).0)?.owns;
        let is_cap = owns.iter().any(|control| control.row().steward == Steward::Server);
        if is_cap { &mut caps } else { &mut policies }.push(part);
    }
    let policies = if policies.is_empty() { "native".to_owned() } else { policies.join("+") };
    Ok((policies, (!caps.is_empty()).then(|| caps.join("+"))))
}

/// Policies, and those that cap what they ask for.
pub type Both = (Box<dyn Policy>, Option<Box<dyn Policy>>);

/// The policies of `name`, `a+b`, and those of them that cap what the others ask for
/// ([`crate::Cycle::coordinated`]).
///
/// # Errors
/// As of [`make`].
pub fn both(name: &str, topology: &Topology, settings: &Settings) -> Result<Both, PolicyError> {
    let (policies, caps) = split(name)?;
    let caps = caps.map(|caps| make(&caps, topology, settings)).transpose()?;
    Ok((make(&policies, topology, settings)?, caps))
}
