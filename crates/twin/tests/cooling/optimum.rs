//! The temperature that EADC finds is the one where fans and leakage together need least.
//! `operating_point.rs` asks the same of the server of Fig. 8, against runs with the fans held.

use super::*;
use ebb_policy::sense::SET_POINT;
use ebb_twin::fan::Fan;
use ebb_twin::thermal::{Air, Heat, Network};

/// Heat of the hottest die, and what processors and fans draw, with so many fans held at a duty for
/// long, the rest of them dead or at `rest`, and every core for jobs busy.
fn held(
    profile: &Profile,
    (turning, duty): (u16, f64),
    rest: Option<f64>,
    drives: f64,
) -> (f64, f64) {
    let (thermal, fans) = (profile.thermal.as_ref().unwrap(), profile.fans.as_ref().unwrap());
    let duty_of = |fan| if fan < turning { Some(duty) } else { rest };
    let all: Vec<_> =
        (0..fans.count).map(|fan| Fan::new(fans, duty_of(fan).unwrap_or(0.0))).collect();
    let powered = all.iter().zip(0..).filter(|(_, fan)| duty_of(*fan).is_some());
    let blown: f64 = powered.map(|(fan, _)| fans.power(fan.speed()).0).sum();
    let flow = fans.airflow(&all);
    let air = Air::new(thermal.inlet.0, thermal.altitude_m, flow, thermal.draught_m3_s);
    let cpu = &profile.cpu;
    let core = cpu.core_static.0 + cpu.core_dynamic.0;
    let idle = cpu.idle_states.last().unwrap().power.0;
    let busy: Vec<_> = profile
        .jobs
        .as_ref()
        .unwrap()
        .cores
        .iter()
        .map(|group| {
            let stages = profile.stage.iter().filter(|stage| stage.socket == Some(group.socket));
            let idle = idle * f64::from(stages.map(|stage| stage.cores).sum::<u16>());
            cpu.uncore.0 / 2.0 + core * f64::from(group.cores) + idle
        })
        .collect();
    let drives = vec![drives; usize::from(profile.drives.count)];
    let mut network = Network::new(thermal, drives.len());
    let mut leakage = 0.0;
    for _ in 0..400 {
        let leaks: Vec<_> =
            network.dies().map(|die| thermal.leakage.power(die.min(150.0), 1.0)).collect();
        leakage = leaks.iter().sum();
        let sockets: Vec<_> = busy.iter().zip(&leaks).map(|(busy, leak)| busy + leak).collect();
        network.settle(&air, &Heat { drives: &drives, fans: blown, sockets: &sockets });
    }
    (network.dies().fold(0.0, f64::max), busy.iter().sum::<f64>() + leakage + blown)
}

#[test]
fn it_finds_the_minimum_of_several_servers() {
    type Change = fn(&mut Profile);
    let refuse = |count: u16| -> Vec<_> {
        (0..count).map(|fan| fault(Fault::FanRefusing(fan), 0, 1_000_000)).collect()
    };
    let leaky: Change = |profile| profile.thermal.as_mut().unwrap().leakage.power.0 *= 1.4;
    let steep: Change = |profile| {
        let leakage = &mut profile.thermal.as_mut().unwrap().leakage;
        (leakage.per_kelvin, leakage.power.0) = (0.04, 40.0);
    };
    let small: Change = |profile| profile.fans.as_mut().unwrap().watts_per_rpm3 /= 5.0;
    let warm: Change = |profile| profile.thermal.as_mut().unwrap().inlet.0 = 30.0;
    let late: Change = |profile| {
        profile.thermal.as_mut().unwrap().sensor.lag = Nanos::from_secs(15);
    };
    // Or the set point would be met before the optimum.
    let cool: Change = |profile| profile.thermal.as_mut().unwrap().inlet.0 = 15.0;
    for (what, changes, faults) in [
        ("as it is", vec![], Vec::new()),
        ("leaky", vec![leaky], Vec::new()),
        ("steep leakage", vec![steep], Vec::new()),
        ("small fans", vec![small], Vec::new()),
        ("a warm inlet", vec![warm], Vec::new()),
        ("a late sensor", vec![late], Vec::new()),
        ("two fans dead", vec![cool], dead_fans(2, 0)),
        ("two dead, small", vec![cool, small], dead_fans(2, 0)),
        ("two dead, leaky", vec![cool, leaky], dead_fans(2, 0)),
        ("one that refuses", vec![cool], refuse(1)),
        ("half that refuse", vec![cool], refuse(3)),
    ] {
        let mut profile = server();
        changes.iter().for_each(|change| change(&mut profile));
        let (broken, jobs) = (faults.len() as u16, vec![always(); 15]);
        let dead = matches!(faults.first(), Some(FaultEvent { fault: Fault::FanDead(_), .. }));
        let scene = Scene { profile, curve: None, jobs, faults, seconds: 1500 };
        let seen = scene.run("eadc");
        // What refuses keeps the duty that the board gave it.
        let rest = (!dead).then(|| {
            let start = scene.profile.thermal.as_ref().unwrap().socket.start.0;
            scene.profile.fans.as_ref().unwrap().firmware_duty(Some(start), Some(35.0))
        });
        let drives = seen.outcome.energy.ssd.0 / 1500.0 / 8.0;
        let sweep = (20..=100).map(|percent| {
            held(&scene.profile, (6 - broken, f64::from(percent) * 0.01), rest, drives)
        });
        let below = sweep.filter(|(t, _)| *t <= SET_POINT.0 + 1.0);
        let (best, least) = below.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        let late = seen.between(900, 1500);
        let (heat, power) = (mean(late, |period| period.die), mean(late, |p| p.power.0));
        println!("{what}: {heat:.1} of {best:.1} °C, {power:.1} of {least:.1} W");
        assert!(power <= 1.01 * least, "{what}: {power} of {least} W at {heat} of {best} °C");
        // The curve is flat near its minimum, and EADC also moves jobs.
        assert!((heat - best).abs() <= 5.0, "{what}: {heat} of {best} °C");
        assert!(power >= 0.99 * least, "{what}: {power} W, less than the least of {least} W");
    }
}

#[test]
fn another_load_has_another_optimum() {
    let jobs = [vec![always(); 6], vec![busy(900, 100_000); 9]].concat();
    let seen = Scene { profile: server(), curve: None, jobs, faults: Vec::new(), seconds: 1800 }
        .run("eadc");
    let (light, heavy) = (seen.at(900).die, seen.last().die);
    assert!(heavy > light + 3.0, "{light} {heavy}");
}
