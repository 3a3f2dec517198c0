//! A kernel, a driver or a drive that says anything at all.

use ebb_host::{Contest, Held, Host, Layout, Leave, Report, State, Stated, restore};
use ebb_policy::registry::{Settings, make};
use ebb_policy::units::{Nanos, Watts};
use ebb_policy::{Control, Cycle, Limits};
use proptest::prelude::*;

use crate::tree::{amd, intel};

/// What a file might say: numbers out of range, words, nothing, what another file says.
fn says() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<u128>().prop_map(|number| number.to_string()),
        "[ -~\n\t]{0,40}",
        Just(String::new()),
        Just("0-65535".to_owned()),
        Just("nan inf -inf 1e308".to_owned()),
        proptest::collection::vec(any::<u64>(), 0..24).prop_map(|numbers| {
            let words: Vec<_> = numbers.iter().map(u64::to_string).collect();
            format!("8 0 nvme0n1 {}\ncpu0 {}", words.join(" "), words.join(" "))
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever the files say, before the start or between two cycles: no panic, what is in force
    /// is possible (the guard asserts it), and restoring ends.
    #[test]
    fn nothing_that_is_read_brings_it_down(
        is_intel in any::<bool>(),
        before in proptest::collection::vec((any::<prop::sample::Index>(), says()), 0..4),
        after in proptest::collection::vec((any::<prop::sample::Index>(), says()), 0..12),
    ) {
        let tree = if is_intel { intel() } else { amd() };
        let files: Vec<String> = tree.settings().into_iter().map(|(file, _)| file).collect();
        for (index, text) in &before {
            tree.put(&files[index.index(files.len())], text);
        }
        let found = ebb_host::Machine::found(ebb_host::Sys::new(tree.path()));
        prop_assume!(found.is_ok());
        let machine = tree.with_drives();
        let _ = Report::new(&machine, &Stated::default());
        let Ok((_, topology)) = Layout::new(&machine, &Stated::default(), Control::ALL) else {
            return Ok(());
        };
        prop_assume!(topology.groups[0].cores > 0);
        let mut host = Host::new(machine, &Stated::default(), Control::ALL).unwrap();
        let capped = topology.drives.iter().any(|drive| !drive.states.is_empty());
        let ssd_budget = capped.then_some(Watts(40.0));
        let settings = Settings { ssd_budget, ..Settings::default() };
        let policy = make("pacer+pacman+eadc", host.topology(), &settings).unwrap();
        let limits = Limits { ssd_budget, patience: Nanos(1), ..Limits::default() };
        let mut cycle = Cycle::new(host.topology(), policy, limits);
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(folder.path()).unwrap();
        let (held, leave) = (Held::default(), |_: Control| Leave::Restore);
        host.act(Control::ALL, held, leave, Contest::Reassert, &state).unwrap();
        for (index, text) in &after {
            tree.put(&files[index.index(files.len())], text);
            cycle.step(&mut host);
        }
        restore(host.machine(), &state, None).unwrap();
        prop_assert!(host.notices().len() < 200, "notices flood");
    }
}
