//! The servers of the EADC study: the profiles meet what they were calibrated on.

use ebb_policy::units::Rpm;
use ebb_twin::Profile;
use ebb_twin::thermal::{Air, Heat, Network};

/// Power of a disk while its server is fully busy; it only warms the air a little.
const DISK: f64 = 8.0;

/// Steady state with all fans at `speed` and so much of each socket's cores and uncore: die
/// temperature, leakage of all sockets, fan power. `None` where heat and leakage feed each other
/// without end.
fn steady(profile: &Profile, speed: f64, socket: f64) -> Option<(f64, f64, f64)> {
    let (thermal, fans) = (profile.thermal.as_ref().unwrap(), profile.fans.as_ref().unwrap());
    let count = f64::from(fans.count);
    let flow = count * fans.airflow_m3_s * speed / fans.top().0;
    let air = Air::new(thermal.inlet.0, thermal.altitude_m, flow, thermal.draught_m3_s);
    let blown = fans.power(Rpm(speed)).0 * count;
    let drives = vec![DISK; usize::from(profile.drives.count)];
    let mut network = Network::new(thermal, drives.len());
    for _ in 0..400 {
        let leakage = thermal.leakage.power(network.die(0), 1.0);
        let sockets = vec![socket + leakage; thermal.socket.rows.len()];
        network.settle(&air, &Heat { drives: &drives, fans: blown, sockets: &sockets });
        if network.die(0) > 150.0 {
            return None;
        }
    }
    let leakage: f64 = network.dies().map(|die| thermal.leakage.power(die, 1.0)).sum();
    Some((network.die(0), leakage, blown))
}

/// Cores and uncore of one socket at full load.
fn full_load(profile: &Profile) -> f64 {
    let cores: u16 = profile.stage.iter().map(|stage| stage.cores).sum();
    let jobs: u16 = profile.jobs.iter().flat_map(|jobs| &jobs.cores).map(|group| group.cores).sum();
    let cpu = &profile.cpu;
    let each = cpu.core_static + cpu.core_dynamic;
    (cpu.uncore.0 + each.0 * f64::from(cores + jobs)) / f64::from(profile.sockets())
}

#[test]
fn fans_and_sockets_draw_what_table_v_says() {
    for (name, fans, tdp) in [
        ("eadc-q", 60.0, 80.0),
        ("eadc-e2", 60.0, 100.0),
        ("eadc-e4", 200.0, 100.0),
        ("eadc-e6", 300.0, 100.0),
    ] {
        let profile = Profile::load(name).unwrap();
        let spec = profile.fans.as_ref().unwrap();
        let most = spec.spec().max_power.0 * f64::from(spec.count);
        assert!((most - fans).abs() < 0.01 * fans, "{name}: fans {most} W");
        let thermal = profile.thermal.as_ref().unwrap();
        let socket = full_load(&profile) + thermal.leakage.power(67.0, 1.0);
        assert!((socket - tdp).abs() < 0.01 * tdp, "{name}: socket {socket} W");
        let hot = thermal.leakage.power(100.0, 1.0);
        let share = hot / (hot + full_load(&profile));
        assert!((0.39..=0.41).contains(&share), "{name}: leakage {share} of the socket");
    }
}

#[test]
fn leakage_and_fan_power_are_least_near_67_degrees_and_2400_rpm() {
    let profile = Profile::load("eadc-lab").unwrap();
    let load = full_load(&profile);
    let sum = |rpm: f64| steady(&profile, rpm, load).map_or(f64::INFINITY, |(_, l, f)| l + f);
    let speeds = (84..=420).map(|step| f64::from(step) * 10.0);
    let best = speeds.min_by(|a, b| sum(*a).total_cmp(&sum(*b))).unwrap();
    let (celsius, ..) = steady(&profile, best, load).unwrap();
    assert!((best - 2400.0).abs() <= 100.0, "{best} rpm");
    assert!((celsius - 67.0).abs() <= 1.0, "{celsius} °C");
}

/// The hottest die at full load, fans at full speed, air of `inlet` °C.
fn hottest(name: &str, inlet: f64) -> f64 {
    let mut profile = Profile::load(name).unwrap();
    if let Some(thermal) = &mut profile.thermal {
        thermal.inlet.0 = inlet;
    }
    let top = profile.fans.as_ref().unwrap().top().0;
    steady(&profile, top, full_load(&profile)).map_or(f64::INFINITY, |(die, ..)| die)
}

#[test]
fn heat_sinks_are_sized_by_the_rule_and_e2_is_under_provisioned() {
    for name in ["eadc-q", "eadc-e4"] {
        let celsius = hottest(name, 35.0);
        assert!((celsius - 85.0).abs() <= 2.0, "{name}: {celsius} °C");
    }
    assert!(hottest("eadc-e2", 25.0) > 90.0, "{}", hottest("eadc-e2", 25.0));
    assert!(hottest("eadc-e6", 35.0) < 80.0, "{}", hottest("eadc-e6", 35.0));
}
