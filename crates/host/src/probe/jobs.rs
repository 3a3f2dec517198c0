//! The control groups that are jobs.

use ebb_policy::{Control, Signal};

use super::List;
use crate::act::groups::CGROUPS;
use crate::act::jobs::{CPUSET, FREEZE, QUOTA, WAITS, sockets, stays};
use crate::find::jobs::{StatedJob, turn_on};
use crate::find::machine::Machine;
use crate::sense::group::field;
use crate::sense::jobs::{drives, moved};
use crate::sys::Absent;

/// Why there are none.
pub(super) const NONE: &str = "no jobs: name control groups in [[job]] of the configuration";

/// Whether a signal is of jobs.
pub(super) fn is_signal(signal: Signal) -> bool {
    use Signal as S;
    matches!(signal, S::JobCpu | S::JobBytes | S::JobRunning | S::JobWaiting | S::JobAge)
}

/// Whether a control is of jobs.
pub(super) fn is_control(control: Control) -> bool {
    matches!(control, Control::JobShare | Control::JobSocket | Control::Admit)
}

/// What each job says. A group that is not there now is a job that has not come.
pub(super) fn signal(
    machine: &Machine,
    jobs: &[StatedJob],
    signal: Signal,
    list: &mut List,
) -> &'static str {
    let sys = &machine.sys;
    for job in jobs {
        let (of, file) = (Some(job.title().to_owned()), file_of(signal));
        let path = format!("{CGROUPS}/{}/{file}", job.group);
        let there = sys.has(format!("{CGROUPS}/{}", job.group));
        let text = sys.text(&path);
        // CPU time and age are known from one reading to the next alone.
        let value = text.as_ref().ok().and_then(|text| match signal {
            Signal::JobBytes => Some(moved(text, &drives(machine)) as f64),
            Signal::JobRunning => {
                let is = |key| field(text, key) == Some(1);
                Some(f64::from(u8::from(is("populated") && !is("frozen"))))
            }
            Signal::JobWaiting => Some(f64::from(u8::from(field(text, "frozen") == Some(1)))),
            _ => None,
        });
        let missing = match text {
            Err(Absent::Missing(_)) if there && signal == Signal::JobBytes => {
                Some(format!("no {file}; {}", turn_on(&job.group, "IOWeight=100")))
            }
            Err(absent) if there => Some(absent.to_string()),
            _ => None,
        };
        list.add(of, Some(path), value, missing);
    }
    NONE
}

fn file_of(signal: Signal) -> &'static str {
    match signal {
        Signal::JobCpu => "cpu.stat",
        Signal::JobBytes => "io.stat",
        _ => "cgroup.events",
    }
}

/// What can be set of each job.
pub(super) fn control(
    machine: &Machine,
    jobs: &[StatedJob],
    control: Control,
    list: &mut List,
) -> &'static str {
    let sys = &machine.sys;
    for job in jobs {
        let of = job.title().to_owned();
        let file = match control {
            Control::Admit => FREEZE,
            Control::JobSocket => CPUSET,
            _ => QUOTA,
        };
        let path = format!("{CGROUPS}/{}/{file}", job.group);
        let there = sys.has(format!("{CGROUPS}/{}", job.group));
        let missing = match control {
            Control::Admit if job.class != WAITS => Some(format!(
                "of class {}: only {} jobs are held back",
                job.class.name(),
                WAITS.name()
            )),
            _ if !there => None,
            Control::JobShare if !sys.has(&path) => {
                Some(format!("no {file}; {}", turn_on(&job.group, "CPUWeight=100")))
            }
            Control::JobSocket => stays(sys, &job.group, &sockets(machine)),
            _ => None,
        };
        match missing {
            None if there => list.steer(machine, of, path, Ok(1.0)),
            missing => list.add(Some(of), Some(path), None, missing),
        }
    }
    NONE
}
