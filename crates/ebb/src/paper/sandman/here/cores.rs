//! Which CPUs the target gets and which the load.

use anyhow::{Context, Result};

use ebb_policy::reactor::Machine;
use ebb_target::reactor::topology;

use ebb_cli::usage;

/// CPUs of the target and of the load.
///
/// # Errors
/// When there are too few, or what was asked for is no list, not allowed or has a CPU twice.
pub fn divide(target: Option<&str>, load: Option<&str>) -> Result<(Vec<usize>, Vec<usize>)> {
    let allowed = topology::allowed().context("cannot read which CPUs this process may use")?;
    if let [_] | [] = allowed[..] {
        let only = allowed.first().map_or(String::new(), |cpu| format!(", {cpu}"));
        return Err(usage(format!(
            "--here takes two CPUs, one for the target and one for the load, and this process may \
             use only one{only}; without --here the evaluation runs in the twin"
        )));
    }
    let target = target.map(|text| list("--cores", text, &allowed)).transpose()?;
    let load = load.map(|text| list("--load-cores", text, &allowed)).transpose()?;
    let others = |taken: &[usize]| {
        allowed.iter().copied().filter(|cpu| !taken.contains(cpu)).collect::<Vec<_>>()
    };
    let (target, load) = match (target, load) {
        (Some(target), Some(load)) => (target, load),
        (Some(target), None) => (target.clone(), others(&target)),
        (None, Some(load)) => (others(&load), load),
        (None, None) => {
            halves(&topology::machine(topology::SYSFS.as_ref(), &allowed, 0)?, &allowed)
        }
    };
    if let Some(both) = target.iter().find(|cpu| load.contains(cpu)) {
        return Err(usage(format!("--cores and --load-cores both name CPU {both}")));
    }
    if target.is_empty() || load.is_empty() {
        return Err(usage("--cores and --load-cores: the other needs a CPU too"));
    }
    Ok((target, load))
}

fn list(option: &str, text: &str, allowed: &[usize]) -> Result<Vec<usize>> {
    let wrong = |why: String| usage(format!("{option} {text}: {why}"));
    let cpus = ebb_policy::cpus::list(text).filter(|cpus| !cpus.is_empty());
    let cpus = cpus.ok_or_else(|| wrong("must be CPUs such as 0-1,4".into()))?;
    if let Some(cpu) = cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        return Err(wrong(format!("this process may not run on CPU {cpu}")));
    }
    match (1..cpus.len()).find(|at| cpus[..*at].contains(&cpus[*at])) {
        Some(at) => Err(wrong(format!("CPU {} is named twice", cpus[at]))),
        None => Ok(cpus),
    }
}

/// Half of the physical cores each, hyper-threads together; the halves of a single one.
fn halves(machine: &Machine, cpus: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let mut cores: Vec<Vec<usize>> = Vec::new();
    for (index, spec) in machine.cores.iter().enumerate() {
        let with = spec.sibling.map(usize::from).filter(|sibling| *sibling < index);
        let mate = with.and_then(|mate| cores.iter_mut().find(|core| core.contains(&cpus[mate])));
        match mate {
            Some(core) => core.push(cpus[index]),
            None => cores.push(vec![cpus[index]]),
        }
    }
    if let [only] = &mut cores[..] {
        let rest = only.split_off(1);
        return (only.clone(), rest);
    }
    let rest = cores.split_off(cores.len() / 2);
    (cores.concat(), rest.concat())
}

#[cfg(test)]
mod tests {
    use ebb_policy::reactor::CoreSpec;

    use super::*;

    fn machine(siblings: &[Option<u16>]) -> Machine {
        let cores = siblings.iter().map(|sibling| CoreSpec { sibling: *sibling, node: 0 });
        Machine { cores: cores.collect(), threads: 0, wake: None }
    }

    #[test]
    fn hyper_threads_stay_together_where_there_are_two_cores() {
        let four = machine(&[Some(2), Some(3), Some(0), Some(1)]);
        assert_eq!(halves(&four, &[4, 5, 6, 7]), (vec![4, 6], vec![5, 7]));
        assert_eq!(halves(&machine(&[None; 3]), &[0, 1, 2]), (vec![0], vec![1, 2]));
        assert_eq!(halves(&machine(&[Some(1), Some(0)]), &[0, 1]), (vec![0], vec![1]));
    }
}
