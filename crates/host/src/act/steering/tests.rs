use std::fs;

use super::*;
use crate::act::originals::Leave;
use crate::act::restore::restore;

const LIMIT: &str = "sys/fs/cgroup/some.slice/cpu.weight";

struct Bench {
    root: tempfile::TempDir,
    folder: tempfile::TempDir,
    steering: Steering,
}

impl Bench {
    fn new(contest: Contest) -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("sys/devices/system/cpu")).unwrap();
        fs::write(root.path().join("sys/devices/system/cpu/online"), "0\n").unwrap();
        fs::create_dir_all(root.path().join(LIMIT).parent().unwrap()).unwrap();
        fs::write(root.path().join(LIMIT), "9000\n").unwrap();
        let machine = Machine::found(Sys::new(root.path())).unwrap();
        let original = Original {
            place: Place::File { path: LIMIT.to_owned() },
            found: "9000".to_owned(),
            safe: "9000".to_owned(),
            leave: Leave::Restore,
            touched: false,
        };
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path()).unwrap();
        state.save("a", vec![original.clone()]).unwrap();
        let steering = Steering::new(&machine, vec![original], contest, state.clone());
        Self { root, folder, steering }
    }
    fn is(&self) -> String {
        fs::read_to_string(self.root.path().join(LIMIT)).unwrap().trim().to_owned()
    }
    fn saved(&self) -> Option<String> {
        let state = State::open(self.folder.path()).unwrap();
        Some(state.load().unwrap()?.originals.pop()?.found)
    }
    fn other(&self, value: &str) {
        fs::write(self.root.path().join(LIMIT), value).unwrap();
    }
    fn set(&mut self, value: Option<&str>, second: u64) -> Outcome {
        self.steering.set(0, value, Nanos::from_secs(second))
    }
    /// What it is after an end of this, in order or not.
    fn end(&mut self, in_order: bool) -> String {
        if in_order {
            self.steering.let_go(Nanos::from_secs(9)).unwrap();
        }
        let machine = Machine::found(Sys::new(self.root.path())).unwrap();
        restore(&machine, &State::open(self.folder.path()).unwrap(), None).unwrap();
        self.is()
    }
    fn check(&mut self, second: u64) -> Vec<String> {
        self.steering.check(4, Nanos::from_secs(second), |_| false);
        self.steering.notices().into_iter().map(|notice| notice.text).collect()
    }
}

#[test]
fn released_is_what_was_found() {
    let mut bench = Bench::new(Contest::Reassert);
    assert_eq!(bench.set(None, 0), Outcome::Done);
    assert_eq!(bench.set(Some("500"), 1), Outcome::Done);
    assert_eq!(bench.is(), "500");
    assert_eq!(bench.check(1), Vec::<String>::new());
    let as_set = Verified { compared: 1, ..Verified::default() };
    assert_eq!(bench.steering.verify(|_| false, Nanos::from_secs(1)), as_set);
    let asleep = Verified { unread: 1, ..Verified::default() };
    assert_eq!(bench.steering.verify(|_| true, Nanos::from_secs(1)), asleep);
    assert_eq!(bench.set(None, 2), Outcome::Done);
    assert_eq!(bench.is(), "9000");
    // From now on it is whoever's it was.
    bench.other("700");
    assert_eq!(bench.set(None, 3), Outcome::Done);
    assert_eq!((bench.check(3), bench.is()), (Vec::new(), "700".to_owned()));
}

/// A policy may ask for the very value that was found.
#[test]
fn what_was_set_to_what_was_found_is_released_too() {
    let mut bench = Bench::new(Contest::Reassert);
    assert_eq!(bench.set(Some("9000"), 0), Outcome::Done);
    assert!(bench.steering.is_set(0));
    assert_eq!(bench.set(None, 1), Outcome::Done);
    assert!(!bench.steering.is_set(0));
    bench.other("700");
    assert_eq!((bench.check(2), bench.is()), (Vec::new(), "700".to_owned()));
}

#[test]
fn a_reset_is_set_right_and_a_rival_is_left_alone() {
    let mut bench = Bench::new(Contest::Reassert);
    bench.set(Some("500"), 0);
    for second in [1, 100] {
        bench.other("9000");
        assert!(bench.check(second)[0].ends_with("from '500' to '9000'; it was set once more"));
        assert_eq!(bench.is(), "500");
    }
    bench.other("800");
    let verified = bench.steering.verify(|_| false, Nanos::from_secs(129));
    assert_eq!(verified.differing[0].text, "set to '500', is '800'");
    assert_eq!(bench.is(), "800", "it was only read");
    assert!(bench.check(130)[0].contains("theirs"));
    assert_eq!(bench.set(Some("400"), 131), Outcome::Changed);
    assert_eq!(bench.is(), "800");
    assert_eq!(bench.steering.failing(|_| false), 1);
    assert_eq!(bench.saved(), None, "no end sets it back");
    // An emergency takes it, and gives back what its owner has set.
    for second in [132, 133] {
        assert_eq!(bench.steering.insist(0, "100", Nanos::from_secs(second)), Outcome::Done);
        assert_eq!((bench.is(), bench.saved()), ("100".to_owned(), Some("800".to_owned())));
        bench.other("850");
    }
    assert_eq!(bench.check(133), Vec::<String>::new(), "no contest meanwhile");
    assert_eq!(bench.set(None, 134), Outcome::Done);
    bench.steering.leave(0);
    assert_eq!((bench.is(), bench.saved()), ("800".to_owned(), None));
}

#[test]
fn who_is_to_yield_yields_and_who_is_to_tell_tells_once() {
    let mut bench = Bench::new(Contest::Yield);
    bench.set(Some("500"), 0);
    bench.other("800");
    assert!(bench.check(1)[0].contains("theirs"));
    assert_eq!(bench.is(), "800");
    let mut bench = Bench::new(Contest::Alarm);
    bench.set(Some("500"), 0);
    bench.other("800");
    assert!(bench.check(1)[0].contains("left so"));
    assert_eq!((bench.check(2), bench.is()), (Vec::new(), "800".to_owned()));
}

#[test]
fn what_refuses_is_told_once_and_tried_again() {
    let mut bench = Bench::new(Contest::Reassert);
    let path = bench.root.path().join(LIMIT);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(bench.set(Some("500"), 0), Outcome::Refused);
    assert!(bench.steering.notices()[0].text.contains("Is a directory"));
    assert_eq!(bench.set(Some("500"), 6), Outcome::Refused);
    assert_eq!(bench.steering.notices(), []);
    fs::remove_dir(&path).unwrap();
    fs::write(&path, "9000").unwrap();
    assert_eq!(bench.set(Some("500"), 8), Outcome::Refused, "not before its time");
    assert_eq!(bench.set(Some("500"), 12), Outcome::Done);
    assert_eq!((bench.is(), bench.steering.failing(|_| false)), ("500".to_owned(), 0));
}

/// A control group that ends and begins anew a thousand times is one place.
#[test]
fn a_place_that_comes_back_is_held_once() {
    let mut bench = Bench::new(Contest::Reassert);
    let original = bench.steering.original(0).clone();
    bench.steering.disown(0).unwrap();
    let gone = |_: &Place| Err(Absent::Missing(LIMIT.into()));
    let taken = bench.steering.adopt(vec![original], gone).unwrap();
    assert_eq!((taken, bench.steering.count()), (vec![0], 1));
}

/// What no restart could set back is not written.
#[test]
#[should_panic(expected = "cpu.weight cannot be \"NaN\"")]
fn what_a_place_cannot_be_is_not_written() {
    Bench::new(Contest::Reassert).set(Some("NaN"), 0);
}

/// What an end does where this one was killed, and in order.
#[test]
fn what_others_set_stays_where_ebb_has_not_set_it() {
    for in_order in [false, true] {
        let mut bench = Bench::new(Contest::Reassert);
        bench.other("700");
        assert_eq!((bench.check(1), bench.end(in_order)), (Vec::new(), "700".to_owned()));
        // Nor is it what was found once Ebb sets it.
        let mut bench = Bench::new(Contest::Reassert);
        bench.other("700");
        assert_eq!(bench.set(Some("500"), 1), Outcome::Done);
        let [told] = &bench.check(1)[..] else { panic!("once") };
        assert!(told.contains("from '9000' to '700' before ebb set it"), "{told}");
        assert_eq!(
            (bench.saved(), bench.end(in_order)),
            (Some("700".to_owned()), "700".to_owned())
        );
        // It is theirs again once it is released.
        let mut bench = Bench::new(Contest::Reassert);
        bench.set(Some("500"), 1);
        bench.set(None, 2);
        bench.other("700");
        assert_eq!(bench.end(in_order), if in_order { "700" } else { "9000" });
    }
}

/// Nothing is set that could not be set back after a kill, but for an emergency; it is said once.
#[test]
fn what_cannot_be_put_on_disk_is_set_in_an_emergency_alone() {
    let mut bench = Bench::new(Contest::Reassert);
    let file = bench.folder.path().join("originals.json");
    fs::write(&file, "broken").unwrap();
    for second in [1, 2, 7] {
        assert_eq!(bench.set(Some("500"), second), Outcome::Refused);
        assert_eq!(
            (bench.check(second).len(), bench.is()),
            (usize::from(second == 1), "9000".into())
        );
    }
    assert_eq!(bench.steering.insist(0, "500", Nanos::from_secs(8)), Outcome::Done);
    assert_eq!(bench.is(), "500");
    assert!(bench.steering.let_go(Nanos::from_secs(9)).is_err());
    assert_eq!(bench.is(), "9000");
}
