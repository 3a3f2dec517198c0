use super::*;

/// While CPUs come and go Linux changes one task after the other: what is seen once, or while
/// the CPUs online changed, is no binding.
#[test]
fn what_is_only_passing_is_no_binding() {
    let bound = |cpus: &str| Bound {
        task: 300,
        start: 7,
        cpus: cpus.to_owned(),
        now: cpus.to_owned(),
        changing: false,
        kernel: false,
        sure: true,
        group: None,
    };
    let all = |cpus: &str| BTreeMap::from([(300, bound(cpus))]);
    let (before, passing) = (all("4-7"), bound("0-3"));
    assert!(is_sure(&bound("4-7"), &before, None));
    assert!(!is_sure(&passing, &before, None));
    assert!(!is_sure(&passing, &before, Some(&all("0-2"))));
    assert!(is_sure(&passing, &before, Some(&all("0-3"))));
    assert!(!is_sure(&passing, &BTreeMap::new(), None));
}

/// A machine of eight CPUs with Linux 6.12 and tasks of one group.
struct Bench {
    root: tempfile::TempDir,
    tasks: Tasks,
}

impl Bench {
    fn new(bound: &[(u32, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        let tasks = Tasks::of(&Sys::new(root.path()), Vec::new(), false);
        let mut bench = Self { root, tasks };
        bench.put("proc/sys/kernel/osrelease", "6.12.9-1-amd64");
        bench.online("0-7");
        for (task, cpus) in bound {
            let stat = "(a) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 7 0 0";
            bench.put(&format!("proc/{task}/task/{task}/stat"), &format!("{task} {stat}"));
            bench.put(&format!("proc/{task}/cgroup"), "0::/a.service");
            bench.bind(*task, cpus);
        }
        bench.tasks = Tasks::of(&Sys::new(bench.root.path()), Vec::new(), false);
        bench
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn online(&self, cpus: &str) {
        self.put("sys/devices/system/cpu/online", cpus);
        self.put("sys/fs/cgroup/cpuset.cpus.effective", cpus);
        self.put("sys/fs/cgroup/a.service/cpuset.cpus.effective", cpus);
    }

    fn bind(&self, task: u32, cpus: &str) {
        self.put(&format!("proc/{task}/status"), &format!("Cpus_allowed_list:\t{cpus}"));
    }

    fn is(&self, task: u32) -> String {
        cpu_list(&self.tasks.sys.bound(&task.to_string()).unwrap())
    }
}

/// While CPUs come and go, tasks have what their group had a moment ago: nobody's wish.
#[test]
fn what_is_seen_after_a_cpu_came_or_went_binds_nobody() {
    let mut bench = Bench::new(&[(300, "5-6"), (301, "0-7")]);
    bench.tasks.look();
    bench.online("0-2,4-7");
    bench.bind(300, "0-2,4");
    bench.bind(301, "0-2,5");
    bench.tasks.look();
    bench.tasks.look();
    bench.online("0-7");
    // Linux has forgotten what the one was bound to.
    bench.bind(300, "0-7");
    bench.bind(301, "0-7");
    bench.tasks.settle(&[]).unwrap();
    assert_eq!([bench.is(300), bench.is(301)], ["5-6", "0-7"]);
}

/// Linux forgets a binding once the last of its CPUs goes, and what is not sure is not set back.
#[test]
fn of_what_is_not_sure_every_cpu_stays() {
    let mut bench = Bench::new(&[(300, "5-6")]);
    bench.tasks.look();
    bench.online("0-2,4-7");
    bench.put("proc/301/task/301/stat", "301 (a) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 8 0 0");
    bench.put("proc/301/cgroup", "0::/a.service");
    bench.bind(301, "1-2");
    bench.tasks.look();
    assert_eq!(bench.tasks.needed(), [vec![5, 6], vec![1], vec![2]].into());
}

/// A core that comes is online before the tasks of its group are told of it, one after the other.
#[test]
fn all_but_a_core_that_comes_is_no_binding() {
    let mut bench = Bench::new(&[(300, "0-6"), (301, "5-6"), (302, "0-7")]);
    bench.tasks.look();
    bench.bind(300, "0-7");
    bench.bind(301, "0-7");
    bench.tasks.settle(&[]).unwrap();
    assert_eq!([bench.is(300), bench.is(301)], ["0-7", "5-6"]);
    // One of its CPUs stays all the same.
    let mut bench = Bench::new(&[(300, "0-6")]);
    bench.tasks.look();
    assert_eq!(bench.tasks.needed(), [Vec::from_iter(0..7)].into());
}

/// Without CPUs that come and go what is seen twice is somebody's wish.
#[test]
fn what_is_bound_meanwhile_is_as_its_owner_wants_it() {
    let mut bench = Bench::new(&[(300, "5-6"), (301, "0-7")]);
    bench.tasks.look();
    bench.bind(300, "1");
    bench.bind(301, "2");
    bench.tasks.look();
    assert_eq!(bench.tasks.needed(), [vec![1], vec![2]].into());
    bench.tasks.settle(&[]).unwrap();
    assert_eq!([bench.is(300), bench.is(301)], ["1", "2"]);
}

/// A CPU that goes at this very moment is away for the task before the list of those online
/// is read again.
#[test]
fn a_cpu_that_is_away_is_not_a_binding_without_it() {
    let root = tempfile::tempdir().unwrap();
    let put = |path: &str, text: &str| {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    put("sys/devices/system/cpu/online", "0-7");
    put("sys/fs/cgroup/cpuset.cpus.effective", "0-7");
    put("proc/300/stat", "300 (a) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 7 0 0");
    put("proc/300/cgroup", "0::/a.service");
    put("proc/300/status", "Cpus_allowed_list:\t4,6-7");
    let known = Bound {
        task: 300,
        start: 7,
        cpus: "4-7".to_owned(),
        now: "4,6-7".to_owned(),
        changing: false,
        kernel: false,
        sure: true,
        group: None,
    };
    let before = BTreeMap::from([(300, known.clone())]);
    let mut tasks = Tasks::of(&Sys::new(root.path()), vec![known], false);
    put("sys/devices/system/cpu/online", "0-5,7");
    assert_eq!(tasks.sys.affinity("300").unwrap(), [4, 7]);
    let seen = tasks.one("300", "300", &before).unwrap();
    assert_eq!((&*seen.cpus, &*seen.now), ("4-7", "4,6-7"));
    put("proc/300/status", "Cpus_allowed_list:\t4,7");
    assert_eq!(tasks.one("300", "300", &before).unwrap().cpus, "4,7", "somebody's doing");
}
