//! How much memory, and how many threads, may still be taken, as the system says.

use std::fs;
use std::path::Path;

/// This share of what can be had stays free: the rest of the process and its neighbours need some.
const SPARE: u64 = 16;

/// Bytes of memory that may be taken: 15/16 of what can be had without swapping, of the machine's
/// and of what every control group (version 2) around this process leaves it. `None` where the
/// system does not say.
#[must_use]
pub fn room() -> Option<u64> {
    available(Path::new("/")).map(|bytes| bytes - bytes / SPARE)
}

fn available(root: &Path) -> Option<u64> {
    machine(root).into_iter().chain(groups(root, memory_left)).min()
}

/// `MemAvailable` of proc(5): free, and what the kernel can give up.
fn machine(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Threads that may be started: what every control group around this process leaves (Linux,
/// cgroup-v2, "PID"). `None` where none has a limit.
#[must_use]
pub fn threads() -> Option<u64> {
    groups(Path::new("/"), threads_left)
}

/// The least of what the control group of this process and those around it have `left`.
fn groups(root: &Path, left: impl Fn(&Path) -> Option<u64>) -> Option<u64> {
    let own = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mount = root.join("sys/fs/cgroup");
    let inner = mount.join(own);
    let around = inner.ancestors().take_while(|group| group.starts_with(&mount));
    around.filter_map(left).min()
}

fn threads_left(group: &Path) -> Option<u64> {
    let read = |name| fs::read_to_string(group.join(name)).ok()?.trim().parse::<u64>().ok();
    Some(read("pids.max")?.saturating_sub(read("pids.current")?))
}

/// What one group leaves (Linux, cgroup-v2, "Memory"): its limit less what it uses and cannot give
/// up. `None` without a limit.
fn memory_left(group: &Path) -> Option<u64> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    let limit: u64 = read("memory.max")?.trim().parse().ok()?;
    let used: u64 = read("memory.current")?.trim().parse().ok()?;
    let stat = read("memory.stat").unwrap_or_default();
    let cache = stat.lines().find_map(|line| line.strip_prefix("inactive_file ")?.parse().ok());
    Some(limit.saturating_sub(used.saturating_sub(cache.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn system(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    const MEMINFO: (&str, &str) =
        ("proc/meminfo", "MemTotal:       2048 kB\nMemAvailable:   1000 kB\nBuffers: 1 kB\n");

    #[test]
    fn the_machine_alone() {
        assert_eq!(available(system(&[MEMINFO]).path()), Some(1000 << 10));
        assert_eq!(available(system(&[]).path()), None);
        assert!(room().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn every_group_around_the_process_counts() {
        let own = ("proc/self/cgroup", "0::/outer/inner\n");
        let unlimited = [
            MEMINFO,
            own,
            ("sys/fs/cgroup/outer/memory.max", "max\n"),
            ("sys/fs/cgroup/outer/inner/memory.max", "max\n"),
        ];
        assert_eq!(available(system(&unlimited).path()), Some(1000 << 10));
        let limited = [
            ("sys/fs/cgroup/outer/memory.max", "500000\n"),
            ("sys/fs/cgroup/outer/memory.current", "300000\n"),
            ("sys/fs/cgroup/outer/memory.stat", "anon 5\ninactive_file 100000\n"),
            ("sys/fs/cgroup/outer/inner/memory.max", "max\n"),
        ];
        let limited = [&unlimited[..2], &limited].concat();
        assert_eq!(available(system(&limited).path()), Some(300_000));
    }

    #[test]
    fn threads_are_bounded_by_the_group_that_leaves_least() {
        let own = ("proc/self/cgroup", "0::/outer/inner\n");
        assert_eq!(groups(system(&[own]).path(), threads_left), None);
        let limited = [
            own,
            ("sys/fs/cgroup/outer/inner/pids.max", "max\n"),
            ("sys/fs/cgroup/outer/pids.max", "100\n"),
            ("sys/fs/cgroup/outer/pids.current", "40\n"),
        ];
        assert_eq!(groups(system(&limited).path(), threads_left), Some(60));
    }
}
