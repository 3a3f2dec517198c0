//! Which policies have nothing to save with on this server's cores.

use ebb_policy::{Control, registry};
use ebb_twin::Profile;
use ebb_twin::profile::Wait;

use crate::server::Server;

/// Why a frequency cannot be chosen, or parking saves nothing; `None` where they can, and do.
struct Lacks {
    frequency: Option<&'static str>,
    parking: Option<&'static str>,
}

impl Lacks {
    fn new(server: &Server) -> Self {
        let topology = &server.topology;
        let parkable = |g: usize| topology.groups[g].cores > topology.groups[g].min_cores.max(1);
        let parking = match topology.io_groups().any(parkable) {
            false => Some("none of them can be parked"),
            true => {
                (!parking_saves(&server.profile)).then_some("idle ones draw what parked ones do")
            }
        };
        let frequency = (topology.frequencies.len() < 2).then_some("they have one frequency");
        Self { frequency, parking }
    }

    /// Of a control of the cores; `Err` of another control.
    fn of(&self, control: Control) -> Result<Option<&'static str>, Control> {
        match control {
            Control::Frequency => Ok(self.frequency),
            Control::ActiveCores | Control::Recall | Control::Background => Ok(self.parking),
            other => Err(other),
        }
    }
}

/// Whether a parked core draws less than an idle one in any of the states that it rests in.
fn parking_saves(profile: &Profile) -> bool {
    let cpu = &profile.cpu;
    let most = cpu.idle_states.iter().map(|state| state.power).reduce(|a, b| a.max(b));
    cpu.wait == Wait::Poll || most.is_none_or(|most| most > cpu.parked)
}

/// Why `part` of a policy has no lever on the cores; `None` where it has one, or wants none.
fn why(server: &Server, part: &str) -> Option<String> {
    let lacks = Lacks::new(server);
    let asked = registry::asked(part).ok()?;
    let of_cores = asked.iter().filter_map(|control| lacks.of(*control).ok());
    let mut reasons: Vec<&str> = of_cores.collect::<Option<_>>()?;
    reasons.sort_unstable_by_key(|reason| Some(*reason) != lacks.frequency);
    reasons.dedup();
    (!reasons.is_empty()).then(|| reasons.join(", and "))
}

/// The parts of `policy` that have no lever on the cores, in a sentence each.
pub fn notes(server: &Server, policy: &str) -> Vec<String> {
    let name = &server.profile.name;
    let parts = policy.split('+').filter_map(|part| Some((part, why(server, part)?)));
    let note = |(part, why)| {
        let all = registry::asked(part).unwrap_or_default();
        match all.iter().all(|control| *control == Control::Frequency) {
            true => format!("{part} has no effect on {name}'s cores: {why}"),
            false => format!("{part} can save nothing with {name}'s cores: {why}"),
        }
    };
    parts.map(note).collect()
}

/// Whether nothing that `policy` sets could save more under more load: idle states of drives save
/// less then.
pub fn is_idle(server: &Server, policy: &str) -> bool {
    let lacks = Lacks::new(server);
    let rest = |part: &str| {
        let asked = registry::asked(part).ok()?;
        let others = asked.iter().filter_map(|control| lacks.of(*control).err());
        Some(others.into_iter().all(|control| control == Control::IdleWake))
    };
    policy.split('+').all(|part| why(server, part).is_some() && rest(part) == Some(true))
}
