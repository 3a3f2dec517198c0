//! Cores: how many there are for policies, their frequencies, and what parks them.

use ebb_policy::Signal;

use super::{List, NO_FREQUENCIES};
use crate::act::cpusets::{self, Parkable};
use crate::act::groups::{self, CGROUPS};
use crate::act::tasks::usual;
use crate::find::cpus::shared;
use crate::find::layout::{self, Stated};
use crate::find::machine::Machine;

/// What is known of the cores.
pub(super) fn signal(
    machine: &Machine,
    stated: &Stated,
    signal: Signal,
    list: &mut List,
) -> &'static str {
    let all = Some("all".to_owned());
    match signal {
        Signal::CoresActive => {
            let path = "sys/devices/system/cpu/online".to_owned();
            list.add(all, Some(path), Some(layout::cores(machine, stated) as f64), None);
        }
        Signal::CoresFrequency => {
            for policy in &machine.cpus.policies {
                let path = format!("{}/scaling_cur_freq", policy.folder);
                let value = machine.sys.number(&path).map(|khz: u64| khz as f64 * 1e3);
                list.read(policy.folder.rsplit('/').next().map(str::to_owned), path, value);
            }
            list.left(machine.cpus.left.clone());
        }
        // Times since the start; their change is the utilisation.
        _ => {
            let missing = machine.sys.text("proc/stat").err().map(|absent| absent.to_string());
            list.add(all, Some("proc/stat".to_owned()), None, missing);
        }
    }
    NO_FREQUENCIES
}

/// All cores, and the control groups that parked ones would be kept from.
pub(super) fn active(machine: &Machine, stated: &Stated, list: &mut List) {
    let sys = &machine.sys;
    let switch = format!("{CGROUPS}/cgroup.subtree_control");
    list.steer(machine, "all".to_owned(), switch, Ok(layout::cores(machine, stated) as f64));
    if let Some(all) = list.found.last_mut().filter(|_| groups::below_root(sys).is_empty()) {
        all.missing =
            Some("no control group below sys/fs/cgroup has tasks: none to restrict".into());
    }
    let usual = shared(sys, &usual(sys)).len();
    for Parkable { group, cpus, obstacle, .. } in cpusets::parkable(sys) {
        let path = format!("{CGROUPS}/{group}/cpuset.cpus");
        let count = if cpus.is_empty() { usual } else { cpus.len() };
        list.add(Some(group), Some(path), Some(count as f64), obstacle);
    }
    if let outside @ 1.. = groups::outside(sys) {
        let why = format!("no list keeps its {outside} tasks of users from parked cores");
        list.add(Some("root group".to_owned()), None, None, Some(why));
    }
}
