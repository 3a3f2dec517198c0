//! What a budget of the whole server limits.

use super::List;
use crate::find::chips::Of;
use crate::find::machine::Machine;
use crate::sense::feeds;

/// Why groups are not limited.
pub(super) const NO_GROUPS: &str =
    "for a `server_budget`: name control groups that may be held back in machine.throttle";

/// Why best effort is not told apart.
pub(super) const NO_BEST_EFFORT: &str =
    "for a `server_budget`: name control groups for which nobody waits in machine.best_effort";

/// The supplies of the server, to be named as feeds.
pub(super) fn supplies(machine: &Machine, list: &mut List) -> &'static str {
    for chip in machine.chips.iter().filter(|chip| chip.of == Of::Supply) {
        let Some(device) = &chip.device else { continue };
        let input = feeds::input(&machine.sys, chip).unwrap_or_default();
        let number = |number: Option<f64>, unit| number.map(|number| format!("{number:.0} {unit}"));
        let now = [number(input.volts, "V"), number(input.watts, "W")];
        let now: Vec<_> = now.into_iter().flatten().collect();
        let now = if now.is_empty() { "its input is not known".into() } else { now.join(", ") };
        let told = format!("a supply for machine.feeds: {now}; the budget itself is stated");
        let of = format!("{device} ({})", chip.name);
        list.add(Some(of), Some(chip.folder.clone()), None, Some(told));
    }
    "it is stated: `server_budget`"
}

/// The packages whose power can be limited.
pub(super) fn packages(machine: &Machine, list: &mut List) -> &'static str {
    for (at, package) in machine.limited_packages().enumerate() {
        let Some(limit) = package.limit(&machine.sys) else { continue };
        let path = format!("{}/{limit}", package.folder);
        let watts = machine.sys.number::<f64>(&path).map(|micros| micros * 1e-6);
        list.steer(machine, format!("socket{at}"), path, watts);
    }
    "no package has a power limit in sys/class/powercap"
}
