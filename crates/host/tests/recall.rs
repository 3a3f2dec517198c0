//! A crowd brings everything back between two cycles.

use ebb_host::{Held, Leave, ParkBy, Stated};
use ebb_policy::units::Hertz;
use ebb_policy::{Control, Outcome, Plant, Request, Signals};

use crate::acting::{Bench, parked};
use crate::tree::{Tree, intel};

const LIMIT: &str = "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq";

fn load(tree: &Tree, runnable: u32, in_flight: u32) {
    tree.put("proc/loadavg", format!("1.20 0.90 0.70 {runnable}/812 40112"));
    tree.put("sys/block/nvme0n1/inflight", format!("{in_flight:>8} {:>8}", 2));
    tree.put("sys/block/nvme1n1/inflight", "       0        0");
}

fn calm() -> Tree {
    let tree = intel();
    load(&tree, 2, 8);
    tree
}

/// Three of eight cores, slowed, to come back at 16 requests for each.
fn saving(bench: &Bench) -> Request {
    let mut request = bench.request();
    request.active_cores.ask(0, 3, "test:");
    request.frequency.ask(0, Hertz(1.2e9), "test:");
    request.recall.ask(0, 16, "test:");
    request
}

fn active(bench: &mut Bench) -> Option<u16> {
    let mut signals = Signals::new(bench.host.topology());
    bench.host.sense(&mut signals);
    signals.groups[0].active
}

#[test]
fn requests_or_tasks_that_crowd_bring_everything_back_at_once() {
    for (runnable, in_flight, comes) in [
        (2, 8 + 47, false),
        (2, 8 + 48, true),
        // Three cores with two threads each, and who looks.
        (7 + 47, 8, false),
        (7 + 48, 8, true),
        (7 + 20, 8 + 28, true),
    ] {
        let mut bench = Bench::new(calm());
        let before = bench.tree.settings();
        let request = saving(&bench);
        assert_eq!(bench.apply(&request).of(Control::Recall, 0), Outcome::Done);
        assert_eq!((active(&mut bench), bench.tree.get(LIMIT)), (Some(3), "1200000".to_owned()));
        assert!(bench.host.pace().is_some() && bench.host.look().is_none());
        load(&bench.tree, runnable, in_flight);
        let recalled = bench.host.look();
        assert_eq!(recalled.is_some(), comes, "{runnable} {in_flight}: {recalled:?}");
        let Some(recalled) = recalled else { continue };
        assert_eq!((parked(&bench.tree), bench.tree.get(LIMIT)), (vec![], "3400000".to_owned()));
        assert!(recalled.text.starts_with("recalled: "), "{}", recalled.text);
        for (told, what) in recalled.decisions.iter().zip([
            (Control::ActiveCores, Some(3.0), Some(8.0)),
            (Control::Frequency, Some(1.2e9), Some(3.4e9)),
        ]) {
            let (decision, outcome) = told;
            assert_eq!((decision.control, decision.from, decision.to), what);
            assert_eq!((decision.reason, *outcome), ("host:recalled", Outcome::Done));
        }
        assert_eq!(recalled.decisions.len(), 2);
        // Once is enough; the policy sees that it was.
        assert!(bench.host.pace().is_none() && bench.host.look().is_none());
        assert_eq!(active(&mut bench), Some(8));
        // A policy that parks on parks on, and is recalled again.
        load(&bench.tree, 2, 8);
        bench.apply(&request);
        assert_eq!((active(&mut bench), bench.tree.get(LIMIT)), (Some(3), "1200000".to_owned()));
        load(&bench.tree, 2, 800);
        assert!(bench.host.look().is_some());
        bench.restore();
        load(&bench.tree, 2, 8);
        let after = bench.tree.settings();
        let other = after.iter().filter(|file| !before.contains(file));
        assert_eq!(other.collect::<Vec<_>>(), Vec::<&(String, String)>::new());
    }
}

#[test]
fn nothing_is_looked_at_while_nothing_is_parked_or_nobody_asks() {
    let mut bench = Bench::new(calm());
    let mut request = bench.request();
    request.recall.ask(0, 16, "test:");
    let mut parks = saving(&bench);
    parks.recall.release(0);
    for idle in [&request, &parks, &bench.request()] {
        bench.apply(idle);
        load(&bench.tree, 900, 900);
        assert!(bench.host.pace().is_none() && bench.host.look().is_none());
        assert_eq!(bench.host.looks().0, 0);
        load(&bench.tree, 2, 8);
    }
    bench.apply(&saving(&bench));
    bench.host.look();
    assert_eq!(bench.host.looks().0, 1);
    bench.apply(&request);
    bench.host.look();
    assert_eq!((bench.host.pace(), bench.host.looks().0), (None, 1));
}

#[test]
fn what_the_machine_has_for_it_is_listed() {
    let of = |tree: &Tree| {
        let report = ebb_host::Report::new(&tree.machine(), &Stated::default());
        let plus = report.policies.iter().find(|fit| fit.policy == "pacer-plus").unwrap();
        let recall = report.controls.into_iter().find(|one| one.name == "recall").unwrap();
        (recall.missing.is_none(), plus.without.contains(&"recall"))
    };
    assert_eq!(of(&calm()), (true, false));
    assert_eq!(of(&intel()), (false, true));
}

/// A deep queue at the drives and batch work wait as much with all cores: only more is a crowd.
#[test]
fn what_is_usual_is_no_crowd() {
    let mut bench = Bench::new(calm());
    load(&bench.tree, 300, 512);
    bench.apply(&saving(&bench));
    assert_eq!(bench.host.look(), None);
    load(&bench.tree, 300, 512 + 40);
    assert_eq!(bench.host.look(), None);
    load(&bench.tree, 300, 512 + 48);
    assert!(bench.host.look().is_some());
    // What a period brings slowly is usual in the next one.
    let mut bench = Bench::new(calm());
    let request = saving(&bench);
    for more in [0, 40, 80, 120] {
        bench.apply(&request);
        load(&bench.tree, 2, 8 + more);
        for _ in 0..3 {
            assert_eq!(bench.host.look(), None, "{more}");
        }
    }
}

#[test]
fn heat_keeps_its_ceiling_and_a_kernel_without_a_load_is_refused() {
    let mut bench = Bench::new(calm());
    let mut request = saving(&bench);
    request.frequency_cap.ask(0, Hertz(2.0e9), "test:");
    bench.apply(&request);
    load(&bench.tree, 2, 800);
    assert!(bench.host.look().is_some());
    assert_eq!(bench.tree.get(LIMIT), "2000000");
    let tree = intel();
    let mut bench = Bench::new(tree);
    let request = saving(&bench);
    assert_eq!(bench.apply(&request).of(Control::Recall, 0), Outcome::Refused);
    assert_eq!(bench.host.pace(), None);
}

#[test]
fn cores_that_are_offline_come_back_as_well() {
    let tree = calm();
    let online = |cpu: u16| format!("sys/devices/system/cpu/cpu{cpu}/online");
    for cpu in 1..16 {
        tree.put(&online(cpu), u8::from(cpu != 15));
    }
    tree.put("proc/sys/kernel/osrelease", "6.12.9-1-amd64");
    let stated = Stated { park_by: ParkBy::Offline, ..Stated::default() };
    let mut bench = Bench::stated(tree, &stated, Leave::Restore, Held::default());
    bench.apply(&saving(&bench));
    let offline =
        |bench: &Bench| (1..16).filter(|cpu| bench.tree.get(&online(*cpu)) == "0").count();
    assert_eq!(offline(&bench), 10);
    load(&bench.tree, 2, 800);
    assert!(bench.host.look().is_some());
    assert_eq!(offline(&bench), 1, "what somebody else has taken offline stays so");
    assert_eq!(bench.tree.get(LIMIT), "3400000");
}
