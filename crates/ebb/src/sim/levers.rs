//! Which policies have nothing to save with on this server.

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

/// Whether `part` of a policy sets idle states of drives alone, and no drive has one to choose.
fn lacks_drives(server: &Server, part: &str) -> bool {
    asks_only(part, Control::IdleWake)
        && server.topology.drives.iter().all(|drive| drive.idle_wakes.is_empty())
}

/// Whether `part` of a policy sets nothing else.
fn asks_only(part: &str, control: Control) -> bool {
    registry::asked(part)
        .is_ok_and(|all| !all.is_empty() && all.iter().all(|asked| *asked == control))
}

/// The parts of `policy` that have no lever on what they set, in a sentence each.
pub fn notes(server: &Server, policy: &str) -> Vec<String> {
    let name = &server.profile.name;
    let note = |part| match why(server, part) {
        Some(why) if asks_only(part, Control::Frequency) => {
            Some(format!("{part} has no effect on {name}'s cores: {why}"))
        }
        Some(why) => Some(format!("{part} can save nothing with {name}'s cores: {why}")),
        None => lacks_drives(server, part).then(|| {
            format!("{part} has no effect on {name}'s drives: none has an idle state to choose")
        }),
    };
    policy.split('+').filter_map(note).collect()
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
    let idle = |part| why(server, part).is_some() && rest(part) == Some(true);
    policy.split('+').all(|part| idle(part) || lacks_drives(server, part))
}
