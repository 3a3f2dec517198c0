//! What the parts of a plant are called.

use super::row::Domain;
use super::topology::{GroupSpec, Topology};

/// Names of the parts of a plant, for logs and columns: core groups by their role, those of one
/// role numbered; drives by their identity where it is known; the others by their place.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names {
    groups: Vec<String>,
    drives: Vec<Option<String>>,
}

impl Names {
    /// Those of `topology`.
    #[must_use]
    pub fn new(topology: &Topology) -> Self {
        let groups = &topology.groups;
        let named = |(index, group): (usize, &GroupSpec)| {
            let same = |other: &&GroupSpec| other.role == group.role;
            let role = group.role.name();
            match groups.iter().filter(same).count() {
                1 => role.to_owned(),
                _ => format!("{role}_{}", groups[..index].iter().filter(same).count() + 1),
            }
        };
        Self {
            groups: groups.iter().enumerate().map(named).collect(),
            drives: topology.drives.iter().map(|drive| drive.id.clone()).collect(),
        }
    }

    /// The name of the part at `index`; `None` for the server.
    #[must_use]
    pub fn of(&self, domain: Domain, index: u16) -> Option<String> {
        let known = match domain {
            Domain::CoreGroup => self.groups.get(usize::from(index)).cloned(),
            Domain::Drive => self.drives.get(usize::from(index)).cloned().flatten(),
            _ => None,
        };
        known.or_else(|| domain.part(index))
    }

    /// Those of the core groups.
    #[must_use]
    pub fn groups(&self) -> &[String] {
        &self.groups
    }
}
