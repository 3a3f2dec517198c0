//! Hyper-thread siblings and NUMA nodes from sysfs
//! (`Documentation/ABI/stable/sysfs-devices-system-cpu`).

use std::fs;
use std::io;
use std::path::Path;

use ebb_policy::cpus::list;
use ebb_policy::reactor::{Core, CoreSpec, Machine};
use rustix::thread::{CpuSet, sched_getaffinity};

use super::Error;

/// Where Linux describes its CPUs.
pub const SYSFS: &str = "/sys/devices/system/cpu";

/// The machine of reactors on `cpus`, main one first, with this many lightweight threads. How long
/// they take to wake is not measured.
///
/// `root` is [`SYSFS`] or a tree like it. Where it does not tell siblings or nodes, as in many
/// containers, a CPU has no sibling and is on node 0.
///
/// # Errors
/// When a CPU does not exist, or a file says something that is not a list of CPUs.
pub fn machine(root: &Path, cpus: &[usize], threads: u16) -> Result<Machine, Error> {
    let cores = cpus.iter().map(|&cpu| {
        let folder = root.join(format!("cpu{cpu}"));
        if !folder.is_dir() {
            return Err(Error::NoSuchCpu { cpu, root: root.to_owned() });
        }
        let sibling = sibling(&folder, cpu, cpus)?;
        Ok(CoreSpec { sibling, node: node(&folder)? })
    });
    Ok(Machine { cores: cores.collect::<Result<_, _>>()?, threads, wake: None })
}

/// The one of `cpus` that shares a physical core with `cpu`. Where more than two do (POWER), they
/// are paired in order, so that the relation stays symmetric.
fn sibling(folder: &Path, cpu: usize, cpus: &[usize]) -> Result<Option<Core>, Error> {
    let topology = folder.join("topology");
    let names = ["core_cpus_list", "thread_siblings_list"]; // the second up to Linux 5.2
    let read = |name: &&str| {
        let file = topology.join(name);
        match fs::read_to_string(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            read => Some((file, read)),
        }
    };
    let Some((file, read)) = names.iter().find_map(read) else { return Ok(None) };
    let text = read.map_err(|source| Error::Read { file: file.clone(), source })?;
    let together =
        list(&text).ok_or_else(|| Error::Topology { file, text: text.trim().to_owned() })?;
    let ours: Vec<usize> = together.into_iter().filter(|cpu| cpus.contains(cpu)).collect();
    let Some(place) = ours.iter().position(|other| *other == cpu) else { return Ok(None) };
    let beside = ours.get(place ^ 1);
    Ok(beside.and_then(|other| cpus.iter().position(|cpu| cpu == other)).map(|core| core as Core))
}

/// The CPU's folder has a link `nodeN` to its node.
fn node(folder: &Path) -> Result<u16, Error> {
    let failed = |source| Error::Read { file: folder.to_owned(), source };
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("node"));
        if let Some(node) = number.and_then(|number| number.parse().ok()) {
            return Ok(node);
        }
    }
    Ok(0)
}

/// The CPUs this process may run on, in order.
///
/// # Errors
/// When the kernel does not tell.
pub fn allowed() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPUs with their list of siblings and their node.
    fn tree(cpus: &[(usize, &str, u16)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (cpu, siblings, node) in cpus {
            let folder = root.path().join(format!("cpu{cpu}"));
            fs::create_dir_all(folder.join("topology")).unwrap();
            fs::write(folder.join("topology/core_cpus_list"), format!("{siblings}\n")).unwrap();
            fs::create_dir(folder.join(format!("node{node}"))).unwrap();
        }
        root
    }

    fn specs(root: &Path, cpus: &[usize]) -> Vec<(Option<Core>, u16)> {
        let machine = machine(root, cpus, 3).unwrap();
        assert_eq!(machine.threads, 3);
        machine.cores.iter().map(|core| (core.sibling, core.node)).collect()
    }

    #[test]
    fn siblings_are_ours_and_indexed_by_our_order() {
        let root = tree(&[(0, "0,4", 0), (1, "1,5", 1), (4, "0,4", 0), (5, "1,5", 1)]);
        assert_eq!(specs(root.path(), &[4, 1, 0]), [(Some(2), 0), (None, 1), (Some(0), 0)]);
    }

    #[test]
    fn four_threads_to_a_core_are_paired() {
        let root = tree(&[(0, "0-3", 0), (1, "0-3", 0), (2, "0-3", 0), (3, "0-3", 0)]);
        let specs = specs(root.path(), &[0, 1, 2, 3]);
        let siblings: Vec<_> = specs.iter().map(|(sibling, _)| *sibling).collect();
        assert_eq!(siblings, [Some(1), Some(0), Some(3), Some(2)]);
    }

    #[test]
    fn what_sysfs_does_not_tell_is_absent_and_what_is_wrong_is_named() {
        let root = tree(&[(0, "0-zero", 0)]);
        fs::create_dir(root.path().join("cpu7")).unwrap();
        assert_eq!(specs(root.path(), &[7]), [(None, 0)]);
        let wrong = machine(root.path(), &[0], 1).unwrap_err().to_string();
        assert!(wrong.contains("core_cpus_list") && wrong.contains("0-zero"), "{wrong}");
        let missing = machine(root.path(), &[9], 1).unwrap_err().to_string();
        assert!(missing.contains("cpu 9"), "{missing}");
    }

    #[test]
    fn this_machine_has_a_topology() {
        let root = Path::new(SYSFS);
        if root.is_dir() {
            assert_eq!(machine(root, &[0], 1).unwrap().cores.len(), 1);
        }
    }
}
