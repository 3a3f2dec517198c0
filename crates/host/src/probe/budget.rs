//! What a budget of the whole server limits.

use super::List;
use crate::find::machine::Machine;

/// Why groups are not limited.
pub(super) const NO_GROUPS: &str =
    "for a `server_budget`: name control groups that may be held back in machine.throttle";

/// Why best effort is not told apart.
pub(super) const NO_BEST_EFFORT: &str =
    "for a `server_budget`: name control groups for which nobody waits in machine.best_effort";

/// The packages whose power can be limited.
pub(super) fn packages(machine: &Machine, list: &mut List) -> &'static str {
    for package in machine.limited_packages() {
        let Some(limit) = package.limit(&machine.sys) else { continue };
        let path = format!("{}/{limit}", package.folder);
        let watts = machine.sys.number::<f64>(&path).map(|micros| micros * 1e-6);
        list.steer(machine, format!("socket{}", package.socket()), path, watts);
    }
    "no package has a power limit in sys/class/powercap"
}
