use ebb_policy::reactor::CoreSpec;
use ebb_policy::units::Nanos;

use super::*;

fn zone(root: &Path, zone: &str, name: &str, energy: &str, range: Option<&str>) {
    let path = root.join(zone);
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("name"), format!("{name}\n")).unwrap();
    fs::write(path.join("energy_uj"), format!("{energy}\n")).unwrap();
    if let Some(range) = range {
        fs::write(path.join("max_energy_range_uj"), format!("{range}\n")).unwrap();
    }
}

fn set(root: &Path, zone: &str, energy: u64) {
    fs::write(root.join(zone).join("energy_uj"), energy.to_string()).unwrap();
}

fn energies(rapl: &Rapl) -> Vec<(String, f64, bool)> {
    rapl.energies()
        .map(|(domain, joules, readable)| (domain.to_owned(), joules, readable))
        .collect()
}

#[test]
fn domains_are_named_by_their_package_and_counted_once() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    zone(root, "intel-rapl:0", "package-0", "5", Some("1000"));
    zone(root, "intel-rapl:0:1", "dram", "7", Some("1000"));
    zone(root, "intel-rapl:1", "package-1", "9", Some("1000"));
    zone(root, "intel-rapl-mmio:0", "package-0", "5", Some("1000"));
    fs::create_dir(root.join("intel-rapl")).unwrap();
    fs::create_dir(root.join("dtpm")).unwrap();
    let names: Vec<_> = energies(&Rapl::open(root)).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["package-0", "package-0/dram", "package-1"]);
}

#[test]
fn a_wrap_goes_on_where_the_range_ends() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    zone(root, "intel-rapl:0", "package-0", "262143000000", Some("262143328850"));
    zone(root, "intel-rapl:1", "package-1", "500", None);
    let mut rapl = Rapl::open(root);
    assert_eq!(energies(&rapl)[0].1, 0.0, "the counter's past is not ours");
    set(root, "intel-rapl:0", 262_143_300_000);
    rapl.sample();
    set(root, "intel-rapl:0", 1_971_150);
    set(root, "intel-rapl:1", 400); // a step back of unknown size
    rapl.sample();
    // 0.3 J, then 0.02885 J to the end and 1.97115 J after it.
    assert!((energies(&rapl)[0].1 - 2.3).abs() < 1e-9);
    assert_eq!(energies(&rapl)[1].1, 0.0);
    set(root, "intel-rapl:1", 1_000_400);
    rapl.sample();
    assert_eq!(energies(&rapl)[1].1, 1.0);
}

#[test]
fn a_counter_that_vanishes_keeps_what_it_had() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    zone(root, "intel-rapl:0", "package-0", "0", Some("100000000"));
    let mut rapl = Rapl::open(root);
    set(root, "intel-rapl:0", 3_000_000);
    rapl.sample();
    fs::remove_file(root.join("intel-rapl:0/energy_uj")).unwrap();
    rapl.sample();
    assert_eq!(energies(&rapl), [("package-0".to_owned(), 3.0, false)]);
    // What it used meanwhile is unknown and not made up, nor is the new start taken for a wrap.
    set(root, "intel-rapl:0", 1_000_000);
    rapl.sample();
    set(root, "intel-rapl:0", 2_000_000);
    rapl.sample();
    assert_eq!(energies(&rapl), [("package-0".to_owned(), 4.0, true)]);
}

#[test]
fn nothing_readable_is_nothing_measured() {
    let root = tempfile::tempdir().unwrap();
    assert!(energies(&Rapl::open(&root.path().join("absent"))).is_empty());
    zone(root.path(), "intel-rapl:0", "package-0", "not a number", None);
    assert!(energies(&Rapl::open(root.path())).is_empty());
    // As where only root may read: it is there but does not open.
    fs::remove_file(root.path().join("intel-rapl:0/energy_uj")).unwrap();
    assert_eq!(Rapl::open(root.path()).forbidden, 1);
}

fn model(siblings: &[Option<u16>]) -> Model {
    let cores = siblings.iter().map(|sibling| CoreSpec { sibling: *sibling, node: 0 }).collect();
    Model::new(profile(None).unwrap(), &Machine { cores, threads: 1, wake: None })
}

fn totals(busy: u64, wasted: u64, asleep: [u64; 3]) -> CoreTotals {
    CoreTotals {
        busy: Nanos::from_secs(busy),
        wasted: Nanos::from_secs(wasted),
        asleep: asleep.map(Nanos::from_secs),
        ..CoreTotals::default()
    }
}

#[test]
fn each_state_draws_what_the_profile_says() {
    let power = profile(None).unwrap().power;
    let cases = [
        (totals(0, 10, [0, 0, 0]), power.core_active.0),
        (totals(10, 0, [0, 0, 0]), power.core_active.0 + power.core_serving.0 / 2.0),
        (totals(0, 0, [10, 0, 0]), power.core_doze.0),
        (totals(0, 0, [0, 4, 6]), power.core_c1.0),
        (totals(0, 5, [0, 5, 0]), (power.core_active.0 + power.core_c1.0) / 2.0),
    ];
    for (totals, watts) in cases {
        let mut model = model(&[None]);
        model.advance(&[totals]);
        assert!((model.joules()[0] - 10.0 * watts).abs() < 1e-9, "{totals:?}");
        model.advance(&[totals]);
        assert!((model.joules()[0] - 10.0 * watts).abs() < 1e-9, "no time, no energy");
    }
}

#[test]
fn a_physical_core_sleeps_only_while_both_siblings_do() {
    let power = profile(None).unwrap().power;
    let watts = |one, other| {
        let mut model = model(&[Some(1), Some(0)]);
        model.advance(&[one, other]);
        model.joules().iter().sum::<f64>() / 10.0
    };
    let (polling, dozing, blocked) =
        (totals(0, 10, [0; 3]), totals(0, 0, [10, 0, 0]), totals(0, 0, [0, 10, 0]));
    let is = |found: f64, watts: f64| assert!((found - watts).abs() < 1e-9, "{found} {watts}");
    is(watts(polling, polling), power.core_active.0);
    is(watts(polling, blocked), power.core_active.0);
    is(watts(dozing, blocked), power.core_doze.0);
    is(watts(blocked, blocked), power.core_c1.0);
}

#[test]
fn a_wrong_profile_names_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.toml");
    let text = include_str!("../../../twin/profiles/reactor/all-flash.toml");
    for (text, words) in [
        (text.replace("1.9 W", "-1.9 W"), "power.core_c1: must be from 0"),
        (text.replace("core_doze", "core_dose"), "core_doze"),
    ] {
        fs::write(&path, text).unwrap();
        let error = profile(Some(&path)).unwrap_err().to_string();
        assert!(error.contains("p.toml") && error.contains(words), "{error}");
    }
}
