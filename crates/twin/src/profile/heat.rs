//! What a profile says of heat, fans and vibration, checked against physics.

use super::Profile;
use super::check::{Wrong, wrong};
use crate::fan::Fans;
use crate::thermal::{EmergencySpec, SensorSpec, Thermal};
use crate::vibration::Vibration;

/// Highest place with servers that vendors allow: 10,000 ft (EADC Table III), rounded up.
const HIGHEST: f64 = 3100.0;

impl Profile {
    /// Checks `[thermal]`, `[fans]` and `[vibration]`.
    pub(super) fn possible_heat(&self) -> Result<(), Wrong> {
        match (&self.thermal, &self.fans) {
            (Some(thermal), Some(fans)) => {
                possible_thermal(thermal)?;
                possible_emergency(&thermal.emergency, self)?;
                possible_fans(fans)?;
                possible_curves(fans)?;
                if self.board.fans.0 != 0.0 {
                    let reason = "must be 0 W where [fans] models them, or they count twice";
                    return wrong("board", "fans", reason.into());
                }
            }
            (None, None) => {}
            (Some(_), None) => {
                return wrong("thermal", "inlet", "[thermal] needs [fans]: nothing cools".into());
            }
            (None, Some(_)) => {
                return wrong("fans", "count", "[fans] needs [thermal]: nothing to cool".into());
            }
        }
        self.possible_sockets()?;
        match (&self.vibration, &self.fans) {
            (None, _) => Ok(()),
            (Some(_), None) => wrong("vibration", "full_speed", "[vibration] needs [fans]".into()),
            (Some(Vibration { full_speed, external }), Some(_)) => {
                within("vibration", "full_speed", *full_speed, 0.0, 10.0)?;
                within("vibration", "external", *external, 0.0, 10.0)
            }
        }
    }

    /// Every stage lies on a socket that there is.
    fn possible_sockets(&self) -> Result<(), Wrong> {
        let sockets = self.sockets();
        for (index, stage) in self.stage.iter().enumerate() {
            if let Some(socket) = stage.socket
                && socket >= sockets
            {
                let reason =
                    format!("there is no socket {socket}: [thermal.socket] rows lists {sockets}");
                return Err(Wrong { table: "stage", index, key: "socket", reason });
            }
        }
        Ok(())
    }
}

/// A number that must lie in a range, ends included.
fn within(
    table: &'static str,
    key: &'static str,
    value: f64,
    least: f64,
    most: f64,
) -> Result<(), Wrong> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        wrong(table, key, format!("{value} is not in {least}..={most}"))
    }
}

/// A resistance, capacity or flow: physical only above 0.
fn above_zero(table: &'static str, key: &'static str, value: f64) -> Result<(), Wrong> {
    if value > 0.0 && value.is_finite() {
        Ok(())
    } else {
        wrong(table, key, format!("{value} is not physical: it must be above 0"))
    }
}

fn possible_thermal(thermal: &Thermal) -> Result<(), Wrong> {
    let Thermal { socket, drive, leakage, sensor, .. } = thermal;
    within("thermal", "inlet", thermal.inlet.0, -20.0, 60.0)?;
    within("thermal", "altitude_m", thermal.altitude_m, -500.0, HIGHEST)?;
    above_zero("thermal", "reference_flow_m3_s", thermal.reference_flow_m3_s)?;
    above_zero("thermal", "draught_m3_s", thermal.draught_m3_s)?;
    if socket.rows.is_empty() || socket.rows.len() > 16 || socket.rows.iter().any(|row| *row > 15) {
        let reason = "one row number from 0 to 15 for each of 1 to 16 sockets";
        return wrong("thermal.socket", "rows", reason.into());
    }
    above_zero("thermal.socket", "die_to_sink_k_per_w", socket.die_to_sink_k_per_w)?;
    above_zero("thermal.socket", "sink_to_air_k_per_w", socket.sink_to_air_k_per_w)?;
    above_zero("thermal.socket", "die_j_per_k", socket.die_j_per_k)?;
    above_zero("thermal.socket", "sink_j_per_k", socket.sink_j_per_k)?;
    within("thermal.socket", "start", socket.start.0, thermal.inlet.0, 150.0)?;
    if drive.rows == 0 {
        return wrong("thermal.drive", "rows", "must be 1 or more".into());
    }
    above_zero("thermal.drive", "to_air_k_per_w", drive.to_air_k_per_w)?;
    within("thermal.drive", "start", drive.start.0, thermal.inlet.0, 150.0)?;
    let Some(heat) = &drive.heat else {
        let reason = "this drive model has no table `heat`: state it, or j_per_k here".into();
        return wrong("thermal.drive", "j_per_k", reason);
    };
    if let Some((key, reason)) = heat.impossible() {
        return wrong("thermal.drive", key, reason);
    }
    within("thermal.leakage", "power", leakage.power.0, 0.0, 1000.0)?;
    within("thermal.leakage", "at", leakage.at.0, 0.0, 150.0)?;
    // Above a doubling in 7 K no published silicon; below 0 it would fall with heat.
    within("thermal.leakage", "per_kelvin", leakage.per_kelvin, 0.0, 0.1)?;
    possible_sensor(sensor)
}

fn possible_sensor(sensor: &SensorSpec) -> Result<(), Wrong> {
    let table = "thermal.sensor";
    let (least, most) = (0.1, 60.0);
    within(table, "interval", sensor.interval.seconds(), least, most)?;
    within(table, "lag", sensor.lag.seconds(), 0.0, 120.0)?;
    within(table, "step", sensor.step.0, 0.0, 10.0)?;
    within(table, "noise", sensor.noise.0, 0.0, 10.0)
}

fn possible_emergency(emergency: &EmergencySpec, profile: &Profile) -> Result<(), Wrong> {
    let table = "thermal.emergency";
    within(table, "at", emergency.at.0, 40.0, 150.0)?;
    if emergency.release > emergency.at {
        let reason = format!("{} is above `at`, {}", emergency.release, emergency.at);
        return wrong(table, "release", reason);
    }
    if emergency.trip <= emergency.at {
        let reason = format!("{} is not above `at`, {}", emergency.trip, emergency.at);
        return wrong(table, "trip", reason);
    }
    let highest = profile.cpu.frequencies.last().copied().unwrap_or_default();
    if emergency.frequency.0 <= 0.0 || emergency.frequency > highest {
        let reason = format!("{} is not above 0 Hz and up to {highest}", emergency.frequency);
        return wrong(table, "frequency", reason);
    }
    within(table, "uncore_share", emergency.uncore_share, 0.0, 0.9)
}

fn possible_fans(fans: &Fans) -> Result<(), Wrong> {
    if !(1..=64).contains(&fans.count) {
        return wrong("fans", "count", format!("{} is not in 1..=64", fans.count));
    }
    let table = &fans.pwm_to_rpm;
    let rising = table.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1);
    let positive = table.iter().all(|(duty, rpm)| *duty >= 0.0 && *rpm > 0.0 && *rpm < 1e5);
    if table.len() < 2 || !rising || !positive || table.last().is_some_and(|last| last.0 != 1.0) {
        let reason = "two or more points [duty, rpm], out of order or out of range: both must \
                      rise from one to the next, the last duty is 1.0";
        return wrong("fans", "pwm_to_rpm", reason.into());
    }
    // It starts again at the first point's duty: stalling above that, it never would.
    within("fans", "stall_duty", fans.stall_duty, 0.0, table[0].0)?;
    within("fans", "floor", fans.floor.0, 0.0, 100.0)?;
    above_zero("fans", "watts_per_rpm3", fans.watts_per_rpm3)?;
    let most = fans.spec().max_power;
    if most.0 > 1000.0 {
        let reason = format!("{most:.0} for one fan at full speed: no server fan draws that");
        return wrong("fans", "watts_per_rpm3", reason);
    }
    within("fans", "inertia", fans.inertia.seconds(), 0.0, 60.0)?;
    above_zero("fans", "airflow_m3_s", fans.airflow_m3_s)?;
    within("fans", "backflow", fans.backflow, 0.0, 1.0)
}

/// The firmware's curves: duty never falls with temperature.
fn possible_curves(fans: &Fans) -> Result<(), Wrong> {
    let curves = [("firmware", &fans.firmware, 1), ("firmware_drives", &fans.firmware_drives, 0)];
    for (key, curve, least) in curves {
        let rising = curve.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        let duties = curve.iter().all(|(_, duty)| (0.0..=1.0).contains(duty));
        if curve.len() < least || !rising || !duties {
            let reason = "points [°C, duty] with rising temperature and a duty from 0 to 1 that \
                          never falls";
            return wrong("fans", key, reason.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error for `thermal-1u` with `from` replaced by `to`.
    fn refuse(from: &str, to: &str) -> String {
        let text = Profile::shipped_text("thermal-1u").unwrap();
        assert!(text.contains(from), "{from}");
        let broken = text.replacen(from, to, 1);
        let line = text[..text.find(from).unwrap()].lines().count() + 1;
        let message = Profile::parse(&broken, "my.toml").unwrap_err().to_string();
        let place = message.strip_prefix("my.toml:").and_then(|rest| rest.split_once(':'));
        let told: usize = place.unwrap().0.parse().unwrap();
        assert!(told.abs_diff(line) <= 1, "line {line}: {message}");
        message
    }

    #[test]
    fn unphysical_values_are_refused_with_file_line_and_reason() {
        for (from, to, says) in [
            ("die_to_sink_k_per_w = 0.12", "die_to_sink_k_per_w = -0.12", "not physical"),
            ("die_j_per_k = 20.0", "die_j_per_k = 0.0", "not physical"),
            ("draught_m3_s = 0.002", "draught_m3_s = 0.0", "not physical"),
            ("to_air_k_per_w = 2.0", "to_air_k_per_w = nan", "not physical"),
            ("altitude_m = 0.0", "altitude_m = 9000.0", "not in"),
            ("per_kelvin = 0.045", "per_kelvin = -0.045", "not in"),
            ("release = \"85 C\"", "release = \"95 C\"", "above `at`"),
            ("trip = \"105 C\"", "trip = \"80 C\"", "not above `at`"),
            ("interval = \"1 s\"", "interval = \"0 s\"", "not in"),
            ("[0.2, 2000.0]", "[0.2, 12000.0]", "rise from one to the next"),
            ("[1.0, 10500.0]", "[0.9, 10500.0]", "the last duty is 1.0"),
            ("stall_duty = 0.05", "stall_duty = 0.3", "0.3 is not in 0..=0.2"),
            ("stall_duty = 0.05", "stall_duty = 2.0", "2 is not in 0..=0.2"),
            ("stall_duty = 0.05", "stall_duty = nan", "NaN is not in"),
            ("watts_per_rpm3 = 1.2108e-11", "watts_per_rpm3 = -1e-11", "not physical"),
            ("firmware = [[45.0, 0.2]", "firmware = [[99.0, 0.2]", "never falls"),
            ("full_speed = 1.0", "full_speed = -1.0", "not in"),
            ("rows = [0, 0]", "rows = []", "1 to 16 sockets"),
            ("fans = \"0 W\"", "fans = \"40 W\"", "count twice"),
        ] {
            let message = refuse(from, to);
            assert!(message.contains(says), "{message}");
        }
    }

    #[test]
    fn the_server_may_state_the_drives_heat_and_is_held_to_physics_too() {
        let with = |lines: &str| {
            let text = Profile::shipped_text("thermal-1u").unwrap();
            let (before, after) = text.split_once("[thermal.drive]").unwrap();
            let text = format!("{before}[thermal.drive]\n{lines}{after}");
            Profile::parse(&text, "my.toml").map(|profile| profile.thermal.unwrap().drive.heat)
        };
        let own = with("throttle = \"60 C\"\nthrottle_full = \"65 C\"\n").unwrap().unwrap();
        assert_eq!((own.j_per_k, own.factor(60.0), own.factor(65.0)), (150.0, 1.0, 0.25));
        assert_eq!(with("j_per_k = 900.0\n").unwrap().unwrap().j_per_k, 900.0);
        let line = 1 + Profile::shipped_text("thermal-1u")
            .unwrap()
            .lines()
            .take_while(|line| !line.starts_with("[thermal.drive]"))
            .count();
        for (lines, place, says) in [
            ("j_per_k = 0.0\n", format!("my.toml:{}: j_per_k", line + 1), "not physical"),
            ("throttle = \"60 C\"\n", format!("my.toml:{line}: throttle_full"), "together"),
            ("throttle_floor = 2.0\n", format!("my.toml:{}: throttle_floor", line + 1), "0 to 1"),
        ] {
            let message = with(lines).unwrap_err().to_string();
            assert!(message.starts_with(&place) && message.contains(says), "{message}");
        }
    }

    #[test]
    fn a_section_without_the_one_it_needs_is_refused() {
        let text = Profile::shipped_text("thermal-1u").unwrap();
        let (before, fans) = text.split_once("\n[fans]").unwrap();
        let (_, after) = fans.split_once("\n[").unwrap();
        let without = format!("{before}\n[{after}");
        let message = Profile::parse(&without, "my.toml").unwrap_err().to_string();
        assert!(message.contains("nothing cools"), "{message}");
        let plain = Profile::shipped_text("generic-1u").unwrap();
        let shaking = format!("{plain}\n[vibration]\nfull_speed = 1.0\n");
        let message = Profile::parse(&shaking, "my.toml").unwrap_err().to_string();
        assert!(message.contains("[vibration] needs [fans]"), "{message}");
    }
}
