//! The network against physics: energy balance, steady state, monotony, bounds.

use ebb_policy::units::{Celsius, Hertz, Nanos, Watts};
use proptest::prelude::*;

use super::*;

/// Two sockets in a row and two rows of drives.
pub(crate) fn spec() -> Thermal {
    Thermal {
        inlet: Celsius(24.0),
        altitude_m: 0.0,
        reference_flow_m3_s: 0.1,
        draught_m3_s: 0.003,
        socket: SocketSpec {
            rows: vec![0, 1],
            die_to_sink_k_per_w: 0.15,
            sink_to_air_k_per_w: 0.16,
            die_j_per_k: 25.0,
            sink_j_per_k: 300.0,
            start: Celsius(24.0),
        },
        drive: Bays {
            rows: 2,
            to_air_k_per_w: 1.5,
            start: Celsius(24.0),
            j_per_k: None,
            throttle: None,
            throttle_full: None,
            throttle_floor: None,
            heat: Some(DriveHeat {
                j_per_k: 350.0,
                throttle: Some(Celsius(70.0)),
                throttle_full: Some(Celsius(80.0)),
                throttle_floor: 0.25,
            }),
        },
        leakage: Leakage { power: Watts(14.0), at: Celsius(67.0), per_kelvin: 0.045 },
        sensor: SensorSpec {
            lag: Nanos::from_secs(10),
            interval: Nanos::from_secs(1),
            step: Celsius(1.0),
            noise: Celsius(0.3),
        },
        emergency: EmergencySpec {
            at: Celsius(90.0),
            release: Celsius(85.0),
            frequency: Hertz(1.2e9),
            trip: Celsius(105.0),
            uncore_share: 0.1,
        },
    }
}

const DRIVES: usize = 8;

fn air(flow: f64) -> Air {
    Air::new(24.0, 0.0, flow, 0.003)
}

/// Temperatures, drives first.
fn temperatures(network: &Network) -> Vec<f64> {
    network.drives().iter().copied().chain(network.dies()).collect()
}

/// The network after `seconds` of constant heat, in steps of `step`.
fn run(flow: f64, drive: f64, sockets: [f64; 2], seconds: f64, step: f64) -> Network {
    let mut network = Network::new(&spec(), DRIVES);
    let heat = Heat { drives: &[drive; DRIVES], fans: 20.0, sockets: &sockets };
    for _ in 0..(seconds / step).round() as usize {
        network.step(&air(flow), &heat, step);
    }
    network
}

#[test]
fn the_steady_state_is_the_analytic_one() {
    let mut network = Network::new(&spec(), DRIVES);
    let heat = Heat { drives: &[10.0; DRIVES], fans: 20.0, sockets: &[80.0, 60.0] };
    let air = air(0.08);
    network.settle(&air, &heat);
    // By hand: each stream carries m c_p, each surface gives off C (1 - exp(-G / C)).
    let carries = air.density * 0.08f64.hypot(0.003) * 1006.0;
    let better = air.convection(0.1);
    let effective = |to_air: f64, share: f64| share * (1.0 - (-to_air / share).exp());
    let bay = effective(better / 1.5, carries / 4.0);
    assert!((network.drives()[0] - (24.0 + 10.0 / bay)).abs() < 1e-9);
    let behind = 24.0 + 40.0 / carries;
    assert!((network.drives()[7] - (behind + 10.0 / bay)).abs() < 1e-9);
    let before_sockets = 24.0 + (80.0 + 20.0) / carries;
    let sink = effective(better / 0.16, carries);
    let first = before_sockets + 80.0 / sink + 80.0 * 0.15;
    assert!((network.die(0) - first).abs() < 1e-9);
    let second = before_sockets + 80.0 / carries + 60.0 / sink + 60.0 * 0.15;
    assert!((network.die(1) - second).abs() < 1e-9);
    // All heat leaves.
    assert!((network.exhaust() - (24.0 + 240.0 / carries)).abs() < 1e-9);
}

#[test]
fn time_leads_to_the_steady_state() {
    let late = run(0.06, 9.0, [70.0, 90.0], 20_000.0, 1.0);
    let mut settled = Network::new(&spec(), DRIVES);
    let heat = Heat { drives: &[9.0; DRIVES], fans: 20.0, sockets: &[70.0, 90.0] };
    settled.settle(&air(0.06), &heat);
    for (a, b) in temperatures(&late).iter().zip(temperatures(&settled)) {
        assert!((a - b).abs() < 1e-3, "{a} {b}");
    }
}

#[test]
fn the_die_answers_in_seconds_and_its_sink_in_minutes() {
    let soon = run(0.06, 9.0, [90.0, 90.0], 5.0, 0.1).die(0);
    let late = run(0.06, 9.0, [90.0, 90.0], 120.0, 0.1).die(0);
    let end = run(0.06, 9.0, [90.0, 90.0], 3000.0, 0.1).die(0);
    assert!(soon > 24.0 + 0.5 * 90.0 * 0.15, "die over sink within seconds: {soon}");
    assert!(end - soon > 10.0 && end - late < 0.4 * (end - 24.0), "{soon} {late} {end}");
}

#[test]
fn hot_drives_slow_down_between_their_two_thresholds() {
    let drive = spec().drive;
    let factors = [60.0, 70.0, 75.0, 80.0, 95.0].map(|celsius| drive.factor(celsius));
    assert_eq!(factors, [1.0, 1.0, 0.625, 0.25, 0.25]);
    let never = Bays { heat: drive.heat.map(|heat| DriveHeat { throttle: None, ..heat }), ..drive };
    assert_eq!(never.factor(95.0), 1.0);
}

fn heats() -> impl Strategy<Value = (f64, [f64; 2])> {
    (0.0..25.0, [0.0..150.0, 0.0..150.0])
}

proptest! {
    #[test]
    fn energy_is_conserved(
        flow in 0.0..0.2, (drive, sockets) in heats(),
        steps in prop::collection::vec(0.001..100.0, 1..30),
    ) {
        let mut network = Network::new(&spec(), DRIVES);
        let before = network.stored();
        let heat = Heat { drives: &[drive; DRIVES], fans: 20.0, sockets: &sockets };
        let watts = drive * DRIVES as f64 + 20.0 + sockets.iter().sum::<f64>();
        let (mut given, mut left) = (0.0, 0.0);
        for seconds in steps {
            left += network.step(&air(flow), &heat, seconds);
            given += watts * seconds;
        }
        let kept = network.stored() - before;
        prop_assert!((given - left - kept).abs() <= 1e-6 * (given + 1.0), "{given} {left} {kept}");
    }

    #[test]
    fn nothing_gets_colder_than_the_inlet(
        flow in 0.0..0.2, (drive, sockets) in heats(), start in 24.0..100.0,
        steps in prop::collection::vec(0.001..1000.0, 1..30),
    ) {
        let mut hot = spec();
        hot.socket.start = Celsius(start);
        hot.drive.start = Celsius(start);
        let mut network = Network::new(&hot, DRIVES);
        let heat = Heat { drives: &[drive; DRIVES], fans: 20.0, sockets: &sockets };
        let mut settled = network.clone();
        settled.settle(&air(flow), &heat);
        // What is left of the start fades: it never lifts a node by more than the most it was
        // above its steady state anywhere.
        let settled = temperatures(&settled);
        let sinks = sockets.iter().enumerate().map(|(i, watts)| settled[DRIVES + i] - 0.15 * watts);
        let above = settled.iter().copied().chain(sinks).map(|end| start - end).fold(0.0, f64::max);
        for seconds in steps {
            network.step(&air(flow), &heat, seconds);
            for (celsius, end) in temperatures(&network).iter().zip(&settled) {
                prop_assert!(*celsius >= 24.0 - 1e-9, "{celsius}");
                prop_assert!(*celsius <= end + above + 1e-6, "{celsius} {end} {above}");
            }
        }
    }

    #[test]
    fn more_heat_is_hotter(
        flow in 0.005..0.2, (drive, sockets) in heats(), more in 1.0..3.0, seconds in 1.0..500.0,
    ) {
        let base = run(flow, drive, sockets, seconds, seconds / 100.0);
        let heated =
            run(flow, drive * more, sockets.map(|watts| watts * more), seconds, seconds / 100.0);
        for (base, heated) in temperatures(&base).iter().zip(temperatures(&heated)) {
            prop_assert!(heated >= base - 1e-9);
        }
    }

    // In the steady state only: on the way there more air warms what is cold and unused sooner.
    #[test]
    fn more_air_is_cooler_in_the_end(
        flow in 0.0..0.2, (drive, sockets) in heats(), more in 1.0..3.0,
    ) {
        let heat = Heat { drives: &[drive; DRIVES], fans: 20.0, sockets: &sockets };
        let settled = |flow| {
            let mut network = Network::new(&spec(), DRIVES);
            network.settle(&air(flow), &heat);
            temperatures(&network)
        };
        for (base, aired) in settled(flow).iter().zip(settled(flow * more)) {
            prop_assert!(aired <= base + 1e-9);
        }
    }

    #[test]
    fn the_step_hardly_matters(flow in 0.01..0.15, (drive, sockets) in heats()) {
        let coarse = run(flow, drive, sockets, 60.0, 0.1);
        let fine = run(flow, drive, sockets, 60.0, 0.01);
        for (coarse, fine) in temperatures(&coarse).iter().zip(temperatures(&fine)) {
            prop_assert!((coarse - fine).abs() < 0.15, "{coarse} {fine}");
        }
    }

    #[test]
    fn thin_air_is_hotter(flow in 0.01..0.15, (drive, sockets) in heats()) {
        let heat = Heat { drives: &[drive; DRIVES], fans: 20.0, sockets: &sockets };
        let at = |altitude| {
            let mut network = Network::new(&spec(), DRIVES);
            network.settle(&Air::new(24.0, altitude, flow, 0.003), &heat);
            temperatures(&network)
        };
        for (low, high) in at(0.0).iter().zip(at(3048.0)) {
            prop_assert!(high >= low - 1e-9);
        }
    }
}
