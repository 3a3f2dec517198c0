//! The meters that the machine itself has.

use std::time::{Duration, Instant};

use clap::ValueEnum;

use ebb_host::{Absent, Admin, Machine, Meter, Meters, Zone};
use ebb_policy::units::Nanos;

use super::integral::Curve;
use super::sampler::{About, Clock, Running, Sink};

/// NVMe drives tell the mean power of the last second.
const NVME: Duration = Duration::from_secs(1);

/// Meters of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MeterKind {
    /// Energy counters of processors (RAPL, powercap).
    Rapl,
    /// Meters of the server: ACPI's or those of its power supplies.
    Hwmon,
    /// The power that the target's NVMe drive measures.
    Nvme,
    /// None.
    None,
}

/// The meters found, and why others are not there.
pub struct Found {
    /// At work.
    pub meters: Vec<Running>,
    /// By kind.
    pub absent: Vec<(MeterKind, String)>,
}

impl Found {
    /// Starts the meters of these kinds, of `machine` and of its NVMe controller `nvme`.
    pub fn start(
        machine: &Machine,
        kinds: &[MeterKind],
        nvme: Option<&str>,
        clock: Clock,
        every: Duration,
    ) -> Self {
        let mut found = Self { meters: Vec::new(), absent: Vec::new() };
        for kind in kinds {
            let started = match kind {
                MeterKind::Rapl => rapl(machine, clock, every),
                MeterKind::Hwmon => hwmon(machine, clock, every),
                MeterKind::Nvme => drive(machine, nvme, clock),
                MeterKind::None => continue,
            };
            match started {
                Ok(meter) => found.meters.push(meter),
                Err(why) => found.absent.push((*kind, why)),
            }
        }
        found
    }
}

/// Calls `read` again and again until the sink is over.
fn pace(sink: &Sink, every: Duration, mut read: impl FnMut(&Sink) -> Result<(), Absent>) {
    let mut next = Instant::now();
    while !sink.is_over() {
        if let Err(absent) = read(sink) {
            sink.skip(&absent.to_string(), "");
        }
        next += every;
        while !sink.is_over()
            && let Some(left) = next.checked_duration_since(Instant::now())
        {
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
        next = next.max(Instant::now());
    }
}

/// Whole sockets; their parts are in them.
fn rapl(machine: &Machine, clock: Clock, every: Duration) -> Result<Running, String> {
    let zones: Vec<Zone> = machine.packages().cloned().collect();
    let sys = machine.sys.clone();
    let Some(first) = zones.first() else {
        let why =
            machine.left_zones().into_iter().next().map(|(file, why)| format!("{file}: {why}"));
        return Err(why.unwrap_or_else(|| "no energy counters here".to_owned()));
    };
    first.read(&sys).map_err(|absent| absent.to_string())?;
    let names: Vec<_> = zones.iter().map(|zone| zone.name.clone()).collect();
    let about = About {
        name: "rapl",
        of: format!("processors, by their energy counters ({})", names.join(", ")),
        accuracy: None,
        external: false,
    };
    let mut meters: Vec<_> = zones.into_iter().map(|zone| (Meter::new(&zone), zone)).collect();
    let (mut joules, mut last) = (0.0, None::<Nanos>);
    let read = move |sink: &Sink| {
        let at = clock.now();
        let now = Nanos((at * 1e9) as u64);
        let mut watts = Some(0.0);
        for (meter, zone) in &mut meters {
            let power = meter.power(now, zone.read(&sys)?).filter(|power| power.0 > 0.0);
            watts = watts.zip(power).map(|(sum, power)| sum + power.0);
        }
        if let Some(last) = last.replace(now) {
            let Some(watts) = watts else {
                sink.skip("a counter stands still or went back", "");
                return Ok(());
            };
            joules += watts * (now.saturating_sub(last)).seconds();
        }
        sink.push(at, joules);
        Ok(())
    };
    let sink = Sink::new(Curve::Energy(Vec::new()));
    Ok(Running::start(about, sink, move |sink| pace(sink, every, read)))
}

/// The server at its plug or behind its power supplies.
fn hwmon(machine: &Machine, clock: Clock, every: Duration) -> Result<Running, String> {
    let found = machine.wall_meters();
    let first = found.sane().next().cloned();
    let Meters { files, left } = found;
    let sys = machine.sys.clone();
    let Some(first) = first else {
        let why = left.into_iter().next().map(|(file, why)| format!("{file}: {why}"));
        return Err(why.unwrap_or_else(|| "no meter of the server here".to_owned()));
    };
    sys.number::<u64>(first).map_err(|absent| absent.to_string())?;
    let about = About {
        name: "hwmon",
        of: format!("server, by its own meter ({})", files.join(", ")),
        accuracy: None,
        external: false,
    };
    let read = move |sink: &Sink| {
        let mut micros = 0.0;
        for file in &files {
            micros += sys.number::<u64>(file)? as f64;
        }
        sink.push(clock.now(), micros * 1e-6);
        Ok(())
    };
    let sink = Sink::new(Curve::Power(Vec::new()));
    Ok(Running::start(about, sink, move |sink| pace(sink, every, read)))
}

/// The drive of the target.
fn drive(machine: &Machine, nvme: Option<&str>, clock: Clock) -> Result<Running, String> {
    let controller = nvme.ok_or("the target is not on an NVMe drive")?;
    let mut admin = machine.open_nvme(controller).map_err(|absent| absent.to_string())?;
    let health = admin.health().map_err(|absent| absent.to_string())?;
    if health.power.is_none() {
        return Err(format!("{controller} does not measure its power"));
    }
    let about = About {
        name: "nvme",
        of: format!("drive {controller}, by its own meter"),
        accuracy: None,
        external: false,
    };
    let read = move |sink: &Sink| {
        let power = admin.health()?.power;
        match power {
            // The mean of the second before.
            Some(power) => {
                sink.push(clock.now() - NVME.as_secs_f64() / 2.0, power.0);
            }
            None => sink.skip("no power told", ""),
        }
        Ok(())
    };
    let sink = Sink::new(Curve::Power(Vec::new()));
    Ok(Running::start(about, sink, move |sink| pace(sink, NVME, read)))
}
