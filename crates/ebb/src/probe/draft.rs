//! `ebb probe --profile`: this machine as a profile of the twin, so that `ebb sim` can say what
//! would be saved before anything is changed.

use std::fmt::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use ebb_host::{Cpus, Host, IdleState, Machine, Meter, Stated};
use ebb_policy::Control;
use ebb_policy::units::{Hertz, Nanos, Watts};
use ebb_twin::Profile;

use ebb_cli::{out, output, usage};

/// Whose numbers stand for what no machine says of itself.
const BASE: &str = "generic-1u";
/// Time for which the processors are measured, idle and then busy.
const MEASURED: Duration = Duration::from_secs(5);

/// No core sleeps that long before it has paid: a driver that says so means never.
const LONGEST: Nanos = Nanos::from_secs(3600);

/// Power of all packages.
#[derive(Debug, Clone, Copy)]
struct Measured {
    idle: Watts,
    busy: Watts,
}

/// Writes the profile, and the power states of the drives beside it; `measure` keeps all cores busy
/// for a while where their energy is counted.
pub fn write(machine: &Machine, file: &Path, measure: bool) -> Result<()> {
    output::check("--profile", file)?;
    let base = Profile::load(BASE)?;
    let measured = if measure { Some(measured(machine)?) } else { None };
    let states = file.with_extension("states.csv");
    let drives = drives(machine);
    let name = file.file_stem().map_or("here".to_owned(), |stem| plain(&stem.to_string_lossy()));
    let mut text = format!(
        "# Drafted by `ebb probe --profile` from what this machine says of itself. What it does\n\
         # not say is that of {BASE} and assumed: the work of a request, its way through the\n\
         # stages, the power of cores where it was not measured (`--measure`), RAID, cache, fans\n\
         # and power supplies.\n\
         name = \"{name}\"\n\
         summary = \"{} cores, {}; drafted from the machine, the rest {BASE}'s\"\n\
         base = \"{BASE}\"\n\n",
        machine.cpus.shared_cores().count(),
        drives.told(),
    );
    cpu(&mut text, &machine.cpus, &base, measured);
    stages(&mut text, machine.cpus.shared_cores().count() as u16, &base);
    drives.write(&mut text, &states);
    if let Some(csv) = &drives.states {
        output::write(&states, |to| Ok(std::io::Write::write_all(to, csv.as_bytes())?))?;
        out::note(format_args!("{}: the power states of the drives", states.display()));
    }
    output::write(file, |to| Ok(std::io::Write::write_all(to, text.as_bytes())?))?;
    // A draft that the twin does not take is no draft.
    Profile::load(&file.display().to_string()).context("the draft is not a profile")?;
    out::note(format_args!(
        "{0}: this machine as a profile; ebb sim --profile {0} --trace FILE says what would be \
         saved",
        file.display()
    ));
    Ok(())
}

fn cpu(text: &mut String, cpus: &Cpus, base: &Profile, measured: Option<Measured>) {
    text.push_str("[cpu]\n");
    let widest = cpus.policies.iter().max_by(|a, b| a.highest.0.total_cmp(&b.highest.0));
    if let Some(policy) = widest {
        let steps = if policy.steps.is_empty() {
            steps(policy.lowest, policy.highest)
        } else {
            policy.steps.clone()
        };
        let steps: Vec<_> =
            steps.iter().map(|hertz| format!("\"{} MHz\"", hertz.0 / 1e6)).collect();
        let _ = writeln!(text, "frequencies = [{}]", steps.join(", "));
    }
    let idle = idle(cpus.cpus.first().map(|cpu| &cpu.idle[..]).unwrap_or_default());
    if let Some(Measured { idle, busy }) = measured {
        let cores = cpus.shared_cores().count() as f64;
        let resting = base.cpu.idle_states.last().map_or(base.cpu.parked, |state| state.power);
        let uncore = Watts((idle.0 - resting.0 * cores).max(0.1));
        let dynamic = ((busy.0 - uncore.0) / cores - base.cpu.core_static.0).max(0.01);
        let _ = writeln!(text, "uncore = \"{:.2} W\"       # measured: {idle:.1} idle", uncore.0);
        let _ = writeln!(
            text,
            "core_dynamic = \"{dynamic:.3} W\" # measured: {busy:.1} with all cores busy"
        );
    }
    let mut least = Watts(f64::INFINITY);
    for (state, after) in &idle {
        // Its power is that of the assumed state with the nearest time to wake.
        let known = base.cpu.idle_states.iter();
        let nearest = known.min_by_key(|other| other.exit.0.abs_diff(state.exit.0));
        let power = nearest.map_or(base.cpu.parked, |state| state.power).min(least);
        least = power;
        let _ = writeln!(
            text,
            "\n[[cpu.idle_states]]\nname = \"{}\"\nafter = \"{after}\"\nexit = \"{}\"\n\
             power = \"{power}\" # assumed",
            plain(&state.name),
            state.exit
        );
    }
}

/// The idle states that a core enters, and after which time each has paid: none that pays later
/// than a deeper one. Polling is no idle state, and one that is switched off is none either.
fn idle(all: &[IdleState]) -> Vec<(&IdleState, Nanos)> {
    let mut idle: Vec<(&IdleState, Nanos)> = Vec::new();
    for state in all.iter().filter(|state| state.exit > Nanos::ZERO && !state.disabled) {
        // Where nobody says, it has paid once it took as long as to wake.
        let after = state.residency.max(state.exit).max(Nanos(1000));
        if after > LONGEST {
            continue;
        }
        while idle.pop_if(|(_, shallower)| *shallower >= after).is_some() {}
        idle.push((state, after));
    }
    idle
}

/// A name of somebody else's as it can stand in TOML and CSV.
fn plain(name: &str) -> String {
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || " ._-".contains(*c);
    name.chars().filter(is_plain).collect()
}

/// Six frequencies from end to end; one where the ends are one.
fn steps(lowest: Hertz, highest: Hertz) -> Vec<Hertz> {
    let steps = (0..6).map(|n| lowest + (highest - lowest) * (f64::from(n) / 5.0));
    let mut steps: Vec<_> = steps.collect();
    steps.dedup();
    steps
}

/// The cores shared out to the stages as in the base, one each at least; one stage where there are
/// fewer cores than stages.
fn stages(text: &mut String, cores: u16, base: &Profile) {
    let all: u16 = base.stage.iter().map(|stage| stage.cores).sum();
    let one = usize::from(cores) < base.stage.len();
    let stages = if one { &base.stage[..1] } else { &base.stage[..] };
    let mut left = cores;
    for (index, stage) in stages.iter().enumerate() {
        let others = (stages.len() - index - 1) as u16;
        let share = (f64::from(cores) * f64::from(stage.cores) / f64::from(all)).round() as u16;
        let own = if others == 0 { left } else { share.clamp(1, left - others) };
        left -= own;
        let _ = writeln!(
            text,
            "\n[[stage]]\nrole = \"{}\"\ncores = {own}\nread_cycles = {:?}\nwrite_cycles = {:?}\n\
             cycles_per_kib = {:?}\nvariation = {:?}",
            stage.role.name().replace('_', "-"),
            stage.read_cycles,
            stage.write_cycles,
            stage.cycles_per_kib,
            stage.variation
        );
    }
}

/// Drives that can be one array: those of which there are most.
struct Drives {
    /// All that there are.
    all: usize,
    count: usize,
    rotational: bool,
    model: String,
    states: Option<String>,
}

fn drives(machine: &Machine) -> Drives {
    // The layout has the namespaces of a controller as one drive, and asks who it is.
    let host = Host::new(machine.clone(), &Stated::default(), &[Control::PowerState]);
    let parts = host.map(|host| host.layout().drives.clone()).unwrap_or_default();
    let disks = parts.iter().filter(|parts| parts.drive.rotational).count();
    let rotational = disks * 2 > parts.len();
    let same: Vec<_> = parts.iter().filter(|p| p.drive.rotational == rotational).collect();
    let first = same.iter().find_map(|parts| Some((parts, parts.identity.as_ref()?)));
    let model = first.map(|(_, identity)| plain(&identity.model)).unwrap_or_default();
    let states = first.map(|(_, identity)| {
        let mut csv = "model,ps,operational,max_power_w,entry_lat_us,exit_lat_us\n".to_owned();
        for (ps, state) in identity.states.iter().enumerate() {
            let (entry, exit) = (state.entry.micros(), state.exit.micros());
            let operational = u8::from(state.operational);
            let watts = state.max_power.0;
            let _ = writeln!(csv, "{model},{ps},{operational},{watts},{entry},{exit}");
        }
        csv
    });
    Drives { all: parts.len(), count: same.len(), rotational, model, states }
}

impl Drives {
    /// How many, for people.
    fn told(&self) -> String {
        match self.all == self.count {
            true => format!("{} drives", self.all),
            false => format!("{} drives, of which {} of one kind", self.all, self.count),
        }
    }

    fn write(&self, text: &mut String, states: &Path) {
        if self.count == 0 {
            return;
        }
        let raid = if self.count < 3 { "none" } else { "raid5" };
        let base = if self.rotational { "exos-x18" } else { "generic-nvme" };
        let _ = writeln!(
            text,
            "\n[layout]\nraid = \"{raid}\" # assumed\n\n[drives]\ncount = {}\n\
             model = \"{base}\" # assumed",
            self.count
        );
        if self.states.is_some() {
            let file =
                states.file_name().map(|name| name.display().to_string()).unwrap_or_default();
            let _ = writeln!(
                text,
                "power_states = {{ file = \"{file}\", model = \"{}\" }}",
                self.model
            );
        }
    }
}

/// Power of the packages as the machine is, and with every core busy.
fn measured(machine: &Machine) -> Result<Measured> {
    if machine.packages().next().is_none() {
        let why =
            machine.left_zones().into_iter().next().map(|(path, why)| format!("{path}: {why}"));
        let none = "no energy counters of packages in sys/class/powercap; modprobe intel_rapl_msr";
        return Err(usage(format!("--measure: {}", why.unwrap_or_else(|| none.to_owned()))));
    }
    out::note(format_args!("measuring: {MEASURED:?} as it is, {MEASURED:?} with all cores busy"));
    let idle = packages(machine)?;
    let stop = AtomicBool::new(false);
    let busy = thread::scope(|scope| {
        for _ in 0..machine.cpus.cpus.len() {
            scope.spawn(|| {
                let mut value = 1.0_f64;
                while !stop.load(Ordering::Relaxed) {
                    (0..1000)
                        .for_each(|_| value = std::hint::black_box(value).mul_add(1.000_1, 0.1));
                }
            });
        }
        let busy = packages(machine);
        stop.store(true, Ordering::Relaxed);
        busy
    })?;
    Ok(Measured { idle, busy })
}

fn packages(machine: &Machine) -> Result<Watts> {
    let begun = Instant::now();
    let mut meters: Vec<_> = machine.packages().map(|zone| (zone, Meter::new(zone))).collect();
    let read = |meters: &mut Vec<(&ebb_host::Zone, Meter)>| -> Result<Option<Watts>> {
        let now = Nanos(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
        let mut sum = Some(Watts(0.0));
        for (zone, meter) in meters {
            let power = meter.power(now, zone.read(&machine.sys).map_err(anyhow::Error::from)?);
            let power = power.filter(|power| power.0 > 0.0);
            sum = sum.and_then(|sum| Some(sum + power?));
        }
        Ok(sum)
    };
    read(&mut meters)?;
    thread::sleep(MEASURED);
    read(&mut meters)?.context("the energy counters of the packages stand still")
}
