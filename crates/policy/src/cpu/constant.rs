//! One frequency and one share of the cores throughout: what a policy that follows the load has to
//! beat, and how a measurement keeps a server still.

use crate::cpu::closest;
use crate::topology::Topology;
use crate::units::Hertz;
use crate::{Policy, PolicyError, Request, Signals};

const NAME: &str = "constant";

/// The setting; what was not stated stays released.
#[derive(Debug, Clone)]
pub struct Constant {
    frequency: Option<Hertz>,
    /// Of each group.
    cores: Option<Vec<u16>>,
}

impl Constant {
    /// All cores at the available frequency that is closest to `ghz`, and in each group so large a
    /// share of them that takes work, rounded up.
    ///
    /// # Errors
    /// A frequency that is not above 0, a share outside (0, 1].
    pub fn new(
        topology: &Topology,
        ghz: Option<f64>,
        cores: Option<f64>,
    ) -> Result<Self, PolicyError> {
        if let Some(ghz) = ghz {
            PolicyError::unless(ghz > 0.0, "ghz", ghz, "above 0")?;
        }
        if let Some(share) = cores {
            let valid = "a share of the cores, above 0 and at most 1";
            PolicyError::unless(share > 0.0 && share <= 1.0, "cores", share, valid)?;
        }
        let of = |share: f64| {
            let count = |cores: u16| (share * f64::from(cores)).ceil() as u16;
            topology.groups.iter().map(|group| count(group.cores).max(group.min_cores)).collect()
        };
        Ok(Self {
            frequency: ghz.map(|ghz| closest(&topology.frequencies, Hertz(ghz * 1e9))),
            cores: cores.map(of),
        })
    }
}

impl Policy for Constant {
    fn name(&self) -> &'static str {
        NAME
    }

    fn step(&mut self, _signals: &Signals, request: &mut Request) {
        if let Some(frequency) = self.frequency {
            (0..request.frequency.len())
                .for_each(|group| request.frequency.ask(group, frequency, "constant:stated"));
        }
        for (group, cores) in self.cores.iter().flatten().enumerate() {
            request.active_cores.ask(group, *cores, "constant:stated");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{CoreRole, GroupSpec};

    #[test]
    fn it_asks_for_what_was_stated_and_for_nothing_else() {
        let group =
            |cores| GroupSpec { role: CoreRole::FrontEnd, cores, min_cores: 2, socket: None };
        let topology = Topology {
            groups: vec![group(8), group(3)],
            frequencies: [1.0e9, 1.5e9, 2.0e9].map(Hertz).to_vec(),
            ..Topology::default()
        };
        let asked = |ghz, cores| {
            let mut request = Request::new(&topology);
            let mut policy = Constant::new(&topology, ghz, cores).unwrap();
            policy.step(&Signals::new(&topology), &mut request);
            [0, 1].map(|group| (request.frequency.get(group), request.active_cores.get(group)))
        };
        assert_eq!(asked(None, None), [(None, None); 2]);
        assert_eq!(asked(Some(1.8), None), [(Some(Hertz(2.0e9)), None); 2]);
        assert_eq!(asked(None, Some(0.3)), [(None, Some(3)), (None, Some(2))]);
        for (ghz, cores) in [(Some(0.0), None), (None, Some(0.0)), (None, Some(1.1))] {
            assert!(Constant::new(&topology, ghz, cores).is_err());
        }
    }
}
