//! Control groups that the operator names: jobs, and those that may be throttled.

use ebb_policy::QosClass;

use crate::sys::Sys;

/// A control group that is a job for as long as it has tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatedJob {
    /// Its path below the root group, such as `batch.slice/scrub.service`.
    pub group: String,
    /// How much it matters.
    pub class: QosClass,
    /// What the operator calls it; empty where by its group.
    pub name: String,
}

/// What is known of a job that is no signal.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Seen {
    /// What tells this group from one of the same name before; `None` where there is none.
    pub group: Option<u64>,
    /// Whether it has tasks.
    pub present: bool,
    /// How many cores it kept busy in the period.
    pub cores: Option<f64>,
}

/// A control group that a budget of the whole server may hold back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Yielding {
    /// Its path below the root group.
    pub group: String,
    /// Whether nobody waits for it.
    pub best_effort: bool,
}

/// What a group that may be throttled used in a period.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Use {
    /// What tells it from one of the same name before; `None` where there is none.
    pub id: Option<u64>,
    /// Cores that it kept busy.
    pub cores: f64,
    /// Bytes a second read from and written to each drive.
    pub rates: Vec<[f64; 2]>,
    /// Requests to drives, and bytes of those.
    pub requests: u64,
    pub bytes: u64,
}

/// Groups in which systemd has what keeps the machine running.
const SYSTEM: [&str; 3] = ["init.scope", "system.slice", "user.slice"];

/// Whether all can be held back on any machine, each by itself.
///
/// # Errors
/// Which cannot, and what to write.
pub fn check_groups(groups: &[&str]) -> Result<(), (usize, String)> {
    for (at, group) in groups.iter().copied().enumerate() {
        let is_name = |part: &str| {
            let is_plain = !part.chars().any(char::is_control) && part.len() <= 255;
            !["", ".", ".."].contains(&part) && is_plain
        };
        let within = |other: &&&str| is_within(group, other) || is_within(other, group);
        let told = if !group.split('/').all(is_name) {
            "write its path below /sys/fs/cgroup, such as \"batch.slice/scrub.service\"".into()
        } else if SYSTEM.contains(&group) {
            "it has what keeps the machine running: write the group of one service in it".into()
        } else if let Some(other) = groups[..at].iter().find(within) {
            format!("it is, or shares tasks with, \"{other}\": write one of the two")
        } else {
            continue;
        };
        return Err((at, format!("\"{group}\": {told}")));
    }
    Ok(())
}

impl StatedJob {
    /// How it is called.
    #[must_use]
    pub fn title(&self) -> &str {
        if self.name.is_empty() { &self.group } else { &self.name }
    }
}

/// Whether a group is another one or below it.
fn is_within(group: &str, other: &str) -> bool {
    let below = group.strip_prefix(other);
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The one of `groups` that this process is in: it would hold itself back.
pub fn own<'a, T>(
    sys: &Sys,
    groups: impl IntoIterator<Item = (&'a String, T)>,
) -> Option<(&'a String, T)> {
    let text = sys.text("proc/self/cgroup").ok()?;
    let own = text.lines().find_map(|line| line.strip_prefix("0::/"))?;
    groups.into_iter().find(|(group, _)| is_within(own, group))
}

/// How systemd is told that a group needs a controller.
pub fn turn_on(group: &str, property: &str) -> String {
    let unit = group.rsplit('/').next().unwrap_or(group);
    format!("'systemctl set-property {unit} {property}' turns it on")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_a_job_is_named_with_what_to_write() {
        for (groups, at, says) in [
            (&["a.slice", "/b.slice"][..], 1, "below /sys/fs/cgroup"),
            (&["a.slice/../../etc"], 0, "below /sys/fs/cgroup"),
            (&[""], 0, "below /sys/fs/cgroup"),
            (&["a\nb"], 0, "below /sys/fs/cgroup"),
            (&["system.slice"], 0, "one service in it"),
            (&["a.slice/b.service", "a.slice"], 1, "\"a.slice/b.service\""),
            (&["a.slice", "a.slice"], 1, "write one of the two"),
        ] {
            let (which, error) = check_groups(groups).unwrap_err();
            assert!(which == at && error.contains(says), "{groups:?}: {error}");
        }
        let good = ["a.slice", "a.slice2", "system.slice/scrub.service"];
        assert_eq!(check_groups(&good), Ok(()));
    }

    #[test]
    fn nobody_holds_itself_still() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("proc/self")).unwrap();
        std::fs::write(root.path().join("proc/self/cgroup"), "0::/a.slice/ebb.service\n").unwrap();
        let sys = Sys::new(root.path());
        let groups = ["b.slice", "a.slice/ebb.service2", "a.slice"].map(str::to_owned);
        let of = |count: usize| own(&sys, groups[..count].iter().zip(0..)).map(|(_, at)| at);
        assert_eq!((of(3), of(2)), (Some(2), None));
    }
}
