//! What a profile says of heat, fans and vibration, checked against physics.

use super::Profile;
use super::error::{Wrong, wrong};
use crate::fan::Fans;
use crate::thermal::{SensorSpec, Thermal};
use crate::vibration::Vibration;

/// Highest place with servers that vendors allow: 10,000 ft (EADC Table III), rounded up.
const HIGHEST: f64 = 3100.0;
/// Thermal resistance, K/W: from a cold plate to a bare chip without a heat sink.
const RESISTANCE: (f64, f64) = (1e-3, 100.0);
/// Heat capacity, J/K: from a thin die (a cm² of silicon 0.5 mm thick holds 0.08) to 100 kg of
/// copper.
const CAPACITY: (f64, f64) = (0.01, 4e4);
/// Air through a chassis or a fan, m³/s: from a fan of 10 mm to that of a whole row of racks.
const FLOW: (f64, f64) = (1e-5, 100.0);
/// Draught through standing fans, m³/s; the most is the flow of the fans.
const DRAUGHT: f64 = 1e-6;
/// Speed of a turning fan, rpm. The fastest of `fan_power_rpm.csv` comes to 29,500.
const SPEED: (f64, f64) = (10.0, 1e5);
/// Power of a fan at full speed, W: from one of a laptop to that of a rack's door.
const FAN_POWER: (f64, f64) = (0.01, 1000.0);
/// Most leakage of a socket at its trip, W: several times what any socket can be fed with.
const LEAKAGE: f64 = 5000.0;

impl Profile {
    /// Checks `[thermal]`, `[fans]` and `[vibration]`.
    pub(super) fn possible_heat(&self) -> Result<(), Wrong> {
        match (&self.thermal, &self.fans) {
            (Some(thermal), Some(fans)) => {
                possible_thermal(thermal)?;
                self.possible_rows(thermal)?;
                possible_emergency(thermal, self)?;
                possible_leakage(thermal)?;
                possible_fans(fans)?;
                possible_draught(thermal, fans)?;
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

    /// No row of bays is empty.
    fn possible_rows(&self, thermal: &Thermal) -> Result<(), Wrong> {
        let (rows, drives) = (thermal.drive.rows, self.drives.count);
        if (1..=drives).contains(&rows) {
            return Ok(());
        }
        wrong("thermal.drive", "rows", format!("{rows} is not in 1..={drives}, one drive in each"))
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

fn positive(table: &'static str, key: &'static str, value: f64) -> Result<(), Wrong> {
    if value > 0.0 {
        return Ok(());
    }
    wrong(table, key, format!("{value} is not physical: it must be above 0"))
}

/// A resistance, capacity or flow: physical only above 0, and in the range of what is built.
fn physical(
    table: &'static str,
    key: &'static str,
    value: f64,
    (least, most): (f64, f64),
) -> Result<(), Wrong> {
    positive(table, key, value)?;
    if (least..=most).contains(&value) {
        return Ok(());
    }
    let reason = format!("{value:e} is not physical: nothing built lies outside {least}..={most}");
    wrong(table, key, reason)
}

fn possible_thermal(thermal: &Thermal) -> Result<(), Wrong> {
    let Thermal { leakage, sensor, .. } = thermal;
    within("thermal", "inlet", thermal.inlet.0, -20.0, 60.0)?;
    within("thermal", "altitude_m", thermal.altitude_m, -500.0, HIGHEST)?;
    physical("thermal", "reference_flow_m3_s", thermal.reference_flow_m3_s, FLOW)?;
    possible_socket(thermal)?;
    possible_bays(thermal)?;
    within("thermal.leakage", "power", leakage.power.0, 0.0, 1000.0)?;
    within("thermal.leakage", "at", leakage.at.0, 0.0, 150.0)?;
    // Above a doubling in 7 K no published silicon; below 0 it would fall with heat.
    within("thermal.leakage", "per_kelvin", leakage.per_kelvin, 0.0, 0.1)?;
    possible_sensor(sensor)
}

fn possible_socket(thermal: &Thermal) -> Result<(), Wrong> {
    let socket = &thermal.socket;
    if socket.rows.is_empty() || socket.rows.len() > 16 || socket.rows.iter().any(|row| *row > 15) {
        let reason = "one row number from 0 to 15 for each of 1 to 16 sockets";
        return wrong("thermal.socket", "rows", reason.into());
    }
    for (key, value, range) in [
        ("die_to_sink_k_per_w", socket.die_to_sink_k_per_w, RESISTANCE),
        ("sink_to_air_k_per_w", socket.sink_to_air_k_per_w, RESISTANCE),
        ("die_j_per_k", socket.die_j_per_k, CAPACITY),
        ("sink_j_per_k", socket.sink_j_per_k, CAPACITY),
    ] {
        physical("thermal.socket", key, value, range)?;
    }
    within("thermal.socket", "start", socket.start.0, thermal.inlet.0, 150.0)
}

fn possible_bays(thermal: &Thermal) -> Result<(), Wrong> {
    let drive = &thermal.drive;
    physical("thermal.drive", "to_air_k_per_w", drive.to_air_k_per_w, RESISTANCE)?;
    within("thermal.drive", "start", drive.start.0, thermal.inlet.0, 150.0)?;
    let Some(heat) = &drive.heat else {
        let reason = "this drive model has no table `heat`: state it, or j_per_k here".into();
        return wrong("thermal.drive", "j_per_k", reason);
    };
    if let Some((key, reason)) = heat.impossible() {
        return wrong("thermal.drive", key, reason);
    }
    match heat.throttle {
        Some(throttle) if throttle <= thermal.inlet => {
            let reason = format!(
                "drives slow down from {throttle} on, which is not above the inlet, {}: they \
                 always would",
                thermal.inlet
            );
            wrong("thermal.drive", "throttle", reason)
        }
        _ => Ok(()),
    }
}

/// Heat and leakage feed each other up to the trip, not beyond what numbers can hold.
fn possible_leakage(thermal: &Thermal) -> Result<(), Wrong> {
    let trip = thermal.emergency.trip;
    let most = thermal.leakage.power(trip.0, 1.0);
    if most <= LEAKAGE {
        return Ok(());
    }
    let reason = format!(
        "a socket would leak {most:.3e} W at its trip, {trip}: at most {LEAKAGE} W is physical"
    );
    wrong("thermal.leakage", "power", reason)
}

/// What remains when every fan stands is less than what they give.
fn possible_draught(thermal: &Thermal, fans: &Fans) -> Result<(), Wrong> {
    let full = f64::from(fans.count) * fans.airflow_m3_s;
    physical("thermal", "draught_m3_s", thermal.draught_m3_s, (DRAUGHT, full))
}

fn possible_sensor(sensor: &SensorSpec) -> Result<(), Wrong> {
    let table = "thermal.sensor";
    let (least, most) = (0.1, 60.0);
    within(table, "interval", sensor.interval.seconds(), least, most)?;
    within(table, "lag", sensor.lag.seconds(), 0.0, 120.0)?;
    within(table, "step", sensor.step.0, 0.0, 10.0)?;
    within(table, "noise", sensor.noise.0, 0.0, 10.0)
}

fn possible_emergency(thermal: &Thermal, profile: &Profile) -> Result<(), Wrong> {
    let (table, emergency, inlet) = ("thermal.emergency", &thermal.emergency, thermal.inlet);
    within(table, "at", emergency.at.0, 40.0, 150.0)?;
    if emergency.release > emergency.at {
        let reason = format!("{} is above `at`, {}", emergency.release, emergency.at);
        return wrong(table, "release", reason);
    }
    if emergency.release <= inlet {
        let reason = format!(
            "{} is not above the inlet, {inlet}: no die gets so cold, and once throttled it would \
             stay so",
            emergency.release
        );
        return wrong(table, "release", reason);
    }
    if emergency.trip <= emergency.at {
        let reason = format!("{} is not above `at`, {}", emergency.trip, emergency.at);
        return wrong(table, "trip", reason);
    }
    within(table, "trip", emergency.trip.0, 0.0, 200.0)?;
    if thermal.socket.start >= emergency.trip {
        let reason = format!(
            "{} is not below the trip, {}: the server would be off",
            thermal.socket.start, emergency.trip
        );
        return wrong("thermal.socket", "start", reason);
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
    let positive =
        table.iter().all(|(duty, rpm)| *duty >= 0.0 && (SPEED.0..=SPEED.1).contains(rpm));
    if table.len() < 2 || !rising || !positive || table.last().is_some_and(|last| last.0 != 1.0) {
        let reason = "two or more points [duty, rpm], out of order or out of range: both must \
                      rise from one to the next, the last duty is 1.0, speeds are from 10 to \
                      100000 rpm";
        return wrong("fans", "pwm_to_rpm", reason.into());
    }
    // It starts again at the first point's duty: stalling above that, it never would.
    within("fans", "stall_duty", fans.stall_duty, 0.0, table[0].0)?;
    within("fans", "floor", fans.floor.0, 0.0, 100.0)?;
    possible_power(fans)?;
    within("fans", "inertia", fans.inertia.seconds(), 0.0, 60.0)?;
    physical("fans", "airflow_m3_s", fans.airflow_m3_s, FLOW)?;
    within("fans", "backflow", fans.backflow, 0.0, 1.0)
}

/// Told as the power at full speed: nobody can read what that leaves per cube of rpm.
fn possible_power(fans: &Fans) -> Result<(), Wrong> {
    let (key, per_cube, top) = ("watts_per_rpm3", fans.watts_per_rpm3, fans.top());
    positive("fans", key, per_cube)?;
    let (power, (least, most)) = (per_cube * top.0.powi(3), FAN_POWER);
    if (least..=most).contains(&power) {
        return Ok(());
    }
    let reason = format!(
        "{per_cube:e} is not physical: a fan would draw {power:.3e} W at {top}, and nothing built \
         lies outside {least} to {most} W"
    );
    wrong("fans", key, reason)
}

/// The firmware's curves: duty never falls with temperature, and that of the sockets keeps the
/// fans turning; that of the drives only adds to it.
fn possible_curves(fans: &Fans) -> Result<(), Wrong> {
    let turns = fans.spec().min_duty;
    let curves = [
        ("firmware", &fans.firmware, 1, turns),
        ("firmware_drives", &fans.firmware_drives, 0, 0.0),
    ];
    for (key, curve, fewest, least) in curves {
        let rising = curve.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        // A temperature that is no number is in no range.
        let points = curve
            .iter()
            .all(|(celsius, duty)| (-50.0..=200.0).contains(celsius) && (0.0..=1.0).contains(duty));
        if curve.len() < fewest || !rising || !points {
            let reason = "points [°C, duty] with a rising temperature from -50 to 200 and a duty \
                          from 0 to 1 that never falls";
            return wrong("fans", key, reason.into());
        }
        if let Some((_, duty)) = curve.first().filter(|(_, duty)| *duty < least) {
            let reason =
                format!("a duty of {duty} does not start a fan that stands: {least} or more does");
            return wrong("fans", key, reason);
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
        let told = place.and_then(|(line, _)| line.parse::<usize>().ok());
        assert!(told.is_some_and(|told| told.abs_diff(line) <= 1), "line {line}: {message}");
        message
    }

    #[test]
    fn unphysical_values_are_refused_with_file_line_and_reason() {
        for (from, to, says) in [
            ("die_to_sink_k_per_w = 0.12", "die_to_sink_k_per_w = -0.12", "not physical"),
            ("die_j_per_k = 20.0", "die_j_per_k = 0.0", "not physical"),
            ("draught_m3_s = 0.002", "draught_m3_s = 0.0", "not physical"),
            ("draught_m3_s = 0.002", "draught_m3_s = 0.2", "nothing built"),
            ("die_to_sink_k_per_w = 0.12", "die_to_sink_k_per_w = 1e-300", "nothing built"),
            ("sink_to_air_k_per_w = 0.2", "sink_to_air_k_per_w = 1e308", "nothing built"),
            ("sink_to_air_k_per_w = 0.2", "sink_to_air_k_per_w = 5e-324", "nothing built"),
            ("sink_j_per_k = 250.0", "sink_j_per_k = 1e308", "nothing built"),
            ("die_j_per_k = 20.0", "die_j_per_k = 1e-9", "nothing built"),
            ("to_air_k_per_w = 2.0", "to_air_k_per_w = inf", "nothing built"),
            ("reference_flow_m3_s = 0.1", "reference_flow_m3_s = 1e-300", "nothing built"),
            ("airflow_m3_s = 0.0237", "airflow_m3_s = 1e308", "nothing built"),
            ("airflow_m3_s = 0.0237", "airflow_m3_s = 1e-320", "nothing built"),
            ("watts_per_rpm3 = 1.2108e-11", "watts_per_rpm3 = 1e308", "nothing built"),
            ("watts_per_rpm3 = 1.2108e-11", "watts_per_rpm3 = 1e-320", "nothing built"),
            ("watts_per_rpm3 = 1.2108e-11", "watts_per_rpm3 = 1e-5", "1.158e7 W at 10500 rpm"),
            ("watts_per_rpm3 = 1.2108e-11", "watts_per_rpm3 = 1e-16", "outside 0.01 to 1000 W"),
            ("[1.0, 10500.0]", "[1.0, 1e9]", "10 to 100000 rpm"),
            ("[0.2, 2000.0]", "[0.2, 1e-9]", "10 to 100000 rpm"),
            ("power = \"8 W\"", "power = \"990 W\"", "a socket would leak"),
            ("trip = \"105 C\"", "trip = \"900 C\"", "not in"),
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
            ("firmware = [[45.0, 0.2]", "firmware = [[45.0, 0.02]", "does not start a fan"),
            ("firmware = [[45.0, 0.2]", "firmware = [[45.0, 0.19]", "does not start a fan"),
            ("firmware = [[45.0, 0.2], [60.0, 0.4], [80.0, 1.0]]", "firmware = [[nan, 0.2]]", "°C"),
            (
                "firmware_drives = [[45.0, 0.2], [65.0, 1.0]]",
                "firmware_drives = [[inf, 1.0]]",
                "°C",
            ),
            ("release = \"85 C\"", "release = \"-30 C\"", "not above the inlet"),
            ("release = \"85 C\"", "release = \"25 C\"", "not above the inlet"),
            ("start = \"45 C\"", "start = \"105 C\"", "not below the trip"),
            ("rows = 1", "rows = 0", "not in 1..="),
            ("rows = 1", "rows = 60000", "not in 1..="),
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
            (
                "throttle = \"25 C\"\nthrottle_full = \"65 C\"\n",
                format!("my.toml:{}: throttle", line + 1),
                "not above the inlet",
            ),
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
