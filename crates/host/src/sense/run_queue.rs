//! Time for which tasks that could run have waited for a CPU: `/proc/schedstat`
//! (`Documentation/scheduler/sched-stats.rst`). All tasks of the machine count, batch work as well.

use crate::sense::watched::Watched;
use crate::sys::{Absent, Sys};

/// Where it is.
pub const PATH: &str = "proc/schedstat";
/// Versions in which the lines of CPUs are alike: only those of domains differ.
const VERSIONS: std::ops::RangeInclusive<u32> = 15..=17;
/// `run_delay` among the numbers of a CPU, in ns.
const RUN_DELAY: usize = 7;

/// The run queues of all CPUs.
#[derive(Debug)]
pub struct RunQueues {
    file: Watched,
    /// By CPU number: time waited since the start of the machine, now and before.
    waited: Vec<(u64, u64)>,
    /// Whether both are known.
    known: (bool, bool),
}

impl RunQueues {
    /// Those of the machine.
    #[must_use]
    pub fn new(sys: &Sys) -> Self {
        Self { file: Watched::new(sys, PATH), waited: Vec::new(), known: (false, false) }
    }

    /// Why they cannot be told; `None` where they can.
    pub fn missing(&mut self) -> Option<String> {
        match self.file.text().map(lines) {
            Err(Absent::Missing(_)) => {
                Some("no /proc/schedstat: a kernel without CONFIG_SCHEDSTATS".to_owned())
            }
            Err(absent) => Some(absent.to_string()),
            Ok(None) => Some("/proc/schedstat has another version than 15 to 17".to_owned()),
            // A machine that has come up has waited somewhere.
            Ok(Some(mut lines)) => lines.all(|(_, waited)| waited == 0).then(|| {
                "/proc/schedstat counts no waiting: a kernel without CONFIG_SCHED_INFO".to_owned()
            }),
        }
    }

    /// Moves on to the end of this period.
    pub fn read(&mut self) {
        // A CPU that is offline waits for nothing, and goes on counting later.
        self.waited.iter_mut().for_each(|(now, before)| *before = *now);
        let mut any = false;
        if let Ok(Some(lines)) = self.file.text().map(lines) {
            for (cpu, waited) in lines {
                if cpu >= self.waited.len() {
                    self.waited.resize(cpu + 1, (waited, waited));
                }
                self.waited[cpu].0 = waited;
                any = true;
            }
        }
        self.known = (any, self.known.0);
    }

    /// What tasks have waited in this period on these CPUs, in ns; `None` where that is not known.
    pub fn waited(&self, cpus: impl Iterator<Item = u16>) -> Option<f64> {
        // One that went back was set anew.
        let since = |cpu| {
            let (now, before) = self.waited.get(usize::from(cpu)).copied().unwrap_or_default();
            now.saturating_sub(before) as f64
        };
        (self.known == (true, true)).then(|| cpus.map(since).sum())
    }
}

/// CPUs, and what was waited for each since the start; `None` where the version is not known.
fn lines(text: &str) -> Option<impl Iterator<Item = (usize, u64)> + '_> {
    let version = text.lines().next()?.strip_prefix("version ")?.trim().parse().ok()?;
    VERSIONS.contains(&version).then(|| {
        text.lines().filter_map(|line| {
            let (name, numbers) = line.strip_prefix("cpu")?.split_once(' ')?;
            let waited = numbers.split_ascii_whitespace().nth(RUN_DELAY)?;
            // No machine has more: one line cannot ask for all of the memory.
            let cpu = name.parse::<u16>().ok()?;
            Some((usize::from(cpu), waited.parse().ok()?))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_the_change_of_the_eighth_number() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        let put = |text: &str| std::fs::write(folder.path().join(PATH), text).unwrap();
        let mut queues = RunQueues::new(&Sys::new(folder.path()));
        assert!(queues.missing().unwrap().contains("CONFIG_SCHEDSTATS"));
        put("version 15\ntimestamp 4295\n\
             cpu0 1 0 3 4 5 6 700 1000 9\ndomain0 03 1 2 3\ncpu1 1 0 3 4 5 6 700 50 9\n");
        assert_eq!(queues.missing(), None);
        queues.read();
        assert_eq!(queues.waited(0..2), None, "no period yet");
        put("version 17\ntimestamp 4296\n\
             cpu0 1 0 3 4 5 6 700 1600 9\ndomain0 MC 03 1 2 3\ncpu1 1 0 3 4 5 6 700 80 9\n");
        queues.read();
        assert_eq!(queues.waited(0..2), Some(630.0));
        assert_eq!(queues.waited(1..2), Some(30.0));
        // One goes offline and comes back.
        put("version 17\ncpu0 1 0 3 4 5 6 700 1600 9\n");
        queues.read();
        assert_eq!(queues.waited(0..2), Some(0.0));
        put("version 17\ncpu0 1 0 3 4 5 6 700 1600 9\ncpu1 1 0 3 4 5 6 700 90 9\n");
        queues.read();
        assert_eq!(queues.waited(0..2), Some(10.0));
        put("version 18\ncpu0 1 0 3 4 5 6 700 1000 9\n");
        queues.read();
        assert_eq!(queues.waited(0..2), None);
        assert!(queues.missing().unwrap().contains("another version"));
        put("version 15\ncpu0 1 0 3 4 5 6 700 0 9\n");
        assert!(queues.missing().unwrap().contains("CONFIG_SCHED_INFO"));
    }
}
