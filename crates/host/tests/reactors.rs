//! The frequency of the reactors' cores, which their own scheduler asks for.

use ebb_host::{Held, Leave, State, Stated};
use ebb_policy::units::Hertz;

use crate::acting::{Bench, changed};
use crate::tree::{Tree, intel};

/// CPUs 0 and 1 are `ebb serve`'s, 8 and 9 are their siblings, of the same frequency domains.
fn bench(tree: Tree, paces_reactors: bool, leave: Leave) -> Bench {
    let stated = Stated { reactors: vec![0, 1], paces_reactors, ..Stated::default() };
    Bench::stated(tree, &stated, leave, Held::default())
}

/// The limits of a domain in MHz.
fn limits(bench: &Bench, policy: u16) -> [u32; 2] {
    ["min", "max"].map(|which| {
        let folder = format!("sys/devices/system/cpu/cpufreq/policy{policy}");
        let khz: u32 = bench.tree.get(&format!("{folder}/scaling_{which}_freq")).parse().unwrap();
        khz / 1000
    })
}

const FOUND: [u32; 2] = [800, 3400];

fn saved(bench: &Bench, policy: u16) -> bool {
    let state = State::open(bench.state.path()).unwrap().load().unwrap().unwrap();
    let folder = format!("cpufreq/policy{policy}/");
    state.originals.iter().any(|one| one.place.to_string().contains(&folder))
}

#[test]
fn the_cores_of_the_reactors_alone_run_as_their_scheduler_asks() {
    let mut bench = bench(intel(), true, Leave::Restore);
    let before = bench.tree.settings();
    // The faster of two siblings decides. Nothing is asked for CPU 9: its core is released.
    let asked = |cpu| match cpu {
        0 | 1 => Some(0.5),
        8 => Some(0.75),
        2 => Some(0.3),
        _ => None,
    };
    bench.host.pace_reactors(asked);
    assert_eq!(limits(&bench, 0), [800, 2550]);
    for policy in 1..8 {
        assert_eq!(limits(&bench, policy), FOUND, "{policy}");
    }
    // A policy has the others, and these stay as their own scheduler asks.
    let mut request = bench.request();
    request.frequency.ask(0, Hertz(2.0e9), "test:");
    bench.apply(&request);
    assert_eq!([0, 1, 2, 7].map(|policy| limits(&bench, policy)[1]), [2550, 3400, 2000, 2000]);
    // Never below what the hardware can do, never above what was found.
    bench.host.pace_reactors(|_| Some(0.01));
    assert_eq!([0, 1].map(|policy| limits(&bench, policy)[1]), [800, 800]);
    bench.host.pace_reactors(|_| Some(1.5));
    assert_eq!([0, 1].map(|policy| limits(&bench, policy)), [FOUND; 2]);
    bench.host.pace_reactors(|_| Some(0.5));
    // Its server is gone.
    bench.host.pace_reactors(|_| None);
    assert_eq!([0, 1].map(|policy| limits(&bench, policy)), [FOUND; 2]);
    bench.host.pace_reactors(|_| Some(0.5));
    assert_eq!([0, 1].map(|policy| limits(&bench, policy)[1]), [1700, 1700]);
    bench.restore();
    assert_eq!(changed(&bench.tree, &before), Vec::<String>::new());
}

#[test]
fn a_limit_that_was_found_is_what_the_share_is_of() {
    let tree = intel();
    let folder = "sys/devices/system/cpu/cpufreq/policy0";
    tree.put(&format!("{folder}/scaling_max_freq"), 2_400_000);
    tree.put(&format!("{folder}/scaling_min_freq"), 2_000_000);
    let mut bench = bench(tree, true, Leave::Restore);
    bench.host.pace_reactors(|_| Some(0.5));
    assert_eq!(limits(&bench, 0), [1200, 1200], "the lowest gives way");
    bench.host.pace_reactors(|_| None);
    assert_eq!(limits(&bench, 0), [2000, 2400]);
}

/// A server that polls slowly would stay so for ever.
#[test]
fn reactors_are_set_back_whatever_is_to_be_left() {
    let mut bench = bench(intel(), true, Leave::Keep);
    bench.host.pace_reactors(|_| Some(0.5));
    let mut request = bench.request();
    request.frequency.ask(0, Hertz(2.0e9), "test:");
    bench.apply(&request);
    bench.restore();
    assert_eq!([0, 1, 2].map(|policy| limits(&bench, policy)[1]), [3400, 3400, 2000]);
}

#[test]
fn what_is_not_the_reactors_alone_is_not_set() {
    // CPU 1 shares its frequency with CPU 2.
    let tree = intel();
    std::fs::remove_dir_all(tree.path().join("sys/devices/system/cpu/cpufreq/policy2")).unwrap();
    tree.policy(1, "1 2 9 10", "intel_pstate", (800_000, 3_400_000));
    let mut shared = bench(tree, true, Leave::Restore);
    let remarks = shared.host.remarks(&[]);
    assert_eq!(remarks.len(), 1, "{remarks:?}");
    assert!(remarks[0].starts_with("CPUs 1-2,9-10 share a frequency"), "{remarks:?}");
    shared.host.pace_reactors(|_| Some(0.5));
    assert_eq!([0, 1].map(|policy| limits(&shared, policy)[1]), [1700, 3400]);
    assert_eq!([0, 1].map(|policy| saved(&shared, policy)), [true, false]);
    // Nobody says what their scheduler asks.
    let mut alone = bench(intel(), false, Leave::Restore);
    alone.host.pace_reactors(|_| Some(0.5));
    assert_eq!(limits(&alone, 0), FOUND);
    assert!(!saved(&alone, 0) && saved(&alone, 2));
}
