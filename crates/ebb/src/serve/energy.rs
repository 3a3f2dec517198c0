//! Energy: read from RAPL where the machine has it, and modelled from what the cores did.
//!
//! The two are never mixed: every number says `measured` or `modelled`.

use std::fs;
use std::path::{Path, PathBuf};

use ebb_policy::reactor::Machine;
use ebb_target::reactor::CoreTotals;
use ebb_twin::reactor::{Power, Profile};

use ebb_cli::usage;

/// Where the kernel shows RAPL (Documentation/power/powercap/powercap.rst).
pub const POWERCAP: &str = "/sys/class/powercap";

/// One RAPL domain.
#[derive(Debug)]
struct Zone {
    path: PathBuf,
    domain: String,
    /// The counter wraps after this many microjoules; unknown is zero.
    range: u64,
    /// The last reading, if it could be read.
    last: Option<u64>,
    microjoules: u64,
}

/// The energy counters of the processor packages.
#[derive(Debug)]
pub struct Rapl {
    zones: Vec<Zone>,
    /// Domains that are there and must not be read.
    pub forbidden: usize,
}

impl Rapl {
    /// The domains below `root` that can be read.
    pub fn open(root: &Path) -> Self {
        let mut rapl = Self { zones: Vec::new(), forbidden: 0 };
        let Ok(entries) = fs::read_dir(root) else { return rapl };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            // Not intel-rapl-mmio:*, which shows the packages a second time.
            let is_zone = |name: &str| name.starts_with("intel-rapl:");
            let Some(file) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if !is_zone(file) {
                continue;
            }
            let Some(domain) = domain(root, file) else { continue };
            match fs::read_to_string(path.join("energy_uj")).map(|text| number(&text)) {
                Ok(Some(now)) => {
                    let range = read(&path.join("max_energy_range_uj")).unwrap_or(0);
                    rapl.zones.push(Zone { path, domain, range, last: Some(now), microjoules: 0 });
                }
                Ok(None) => {}
                Err(_) => rapl.forbidden += 1,
            }
        }
        rapl
    }

    /// Looks at the counters: at least once each time they can wrap, which takes minutes.
    pub fn sample(&mut self) {
        for zone in &mut self.zones {
            let now = read(&zone.path.join("energy_uj"));
            if let (Some(last), Some(now)) = (zone.last, now) {
                // Without a known range a step back tells nothing.
                let wrapped = || zone.range.saturating_sub(last).saturating_add(now);
                let more = match now.checked_sub(last) {
                    Some(more) => more,
                    None if zone.range > 0 => wrapped(),
                    None => 0,
                };
                zone.microjoules = zone.microjoules.saturating_add(more);
            }
            zone.last = now;
        }
    }

    /// Each domain, its energy in joules since the start, and whether it can still be read. What
    /// a domain used while it could not be read is missing.
    pub fn energies(&self) -> impl Iterator<Item = (&str, f64, bool)> {
        let joules = |zone: &Zone| zone.microjoules as f64 / 1e6;
        self.zones.iter().map(move |zone| (&*zone.domain, joules(zone), zone.last.is_some()))
    }
}

fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

fn read(path: &Path) -> Option<u64> {
    number(&fs::read_to_string(path).ok()?)
}

/// `package-0` for `intel-rapl:0`, `package-0/dram` for `intel-rapl:0:1`.
fn domain(root: &Path, file: &str) -> Option<String> {
    let name = |zone: &str| {
        let name = fs::read_to_string(root.join(zone).join("name")).ok()?;
        Some(name.trim().to_owned())
    };
    let own = name(file)?;
    match file.rsplit_once(':') {
        Some((parent, _)) if parent.contains(':') => Some(format!("{}/{own}", name(parent)?)),
        _ => Some(own),
    }
}

/// The power of physical cores above the idle machine's: what the twin's polled server has.
///
/// # Errors
/// When the file `path`, a reactor profile, cannot be read or is not right.
pub fn profile(path: Option<&Path>) -> anyhow::Result<Profile> {
    let Some(path) = path else { return Ok(Profile::all_flash()?) };
    let file = path.display().to_string();
    let unread = |error| usage(format!("--power-profile {file}: {error}"));
    let text = ebb_trace::files::text(path).map_err(unread)?;
    Profile::parse(&file, &text).map_err(|error| usage(error.to_string()))
}

/// Shares of a time.
#[derive(Debug, Clone, Copy, Default)]
struct Shares {
    serving: f64,
    doze: f64,
    /// Blocked or napping. The kernel may go deeper than C1, so this is an upper bound.
    stopped: f64,
}

impl Shares {
    /// A hyper-thread that is not ours or not there.
    const ABSENT: Self = Self { serving: 0.0, doze: 0.0, stopped: 1.0 };

    /// Between two readings, and the seconds between them.
    fn between(before: &CoreTotals, now: &CoreTotals) -> (Self, f64) {
        let since = |now: ebb_policy::units::Nanos, before: ebb_policy::units::Nanos| {
            now.0.saturating_sub(before.0) as f64 / 1e9
        };
        let busy = since(now.busy, before.busy);
        let wasted = since(now.wasted, before.wasted);
        let [doze, block, nap] =
            std::array::from_fn(|way| since(now.asleep[way], before.asleep[way]));
        let time = busy + wasted + doze + block + nap;
        let share = |part: f64| if time > 0.0 { part / time } else { 0.0 };
        let shares = Self { serving: share(busy), doze: share(doze), stopped: share(block + nap) };
        (shares, time)
    }
}

/// The modelled energy of each of our cores.
#[derive(Debug)]
pub struct Model {
    profile: Profile,
    siblings: Vec<Option<usize>>,
    before: Vec<CoreTotals>,
    joules: Vec<f64>,
}

impl Model {
    /// Nothing used yet.
    pub fn new(profile: Profile, machine: &Machine) -> Self {
        let siblings: Vec<_> =
            machine.cores.iter().map(|core| core.sibling.map(usize::from)).collect();
        let cores = siblings.len();
        Self {
            profile,
            siblings,
            before: vec![CoreTotals::default(); cores],
            joules: vec![0.0; cores],
        }
    }

    /// The profile's name.
    pub fn profile(&self) -> &str {
        &self.profile.name
    }

    /// Joules of each core above the idle machine's; siblings share theirs equally.
    pub fn joules(&self) -> &[f64] {
        &self.joules
    }

    /// Adds what the cores used since the last call. Siblings are taken to be independent of one
    /// another meanwhile: a physical core sleeps only while both do, as the shallower one.
    pub fn advance(&mut self, totals: &[CoreTotals]) {
        let parts: Vec<(Shares, f64)> = self
            .before
            .iter()
            .zip(totals)
            .map(|(before, now)| Shares::between(before, now))
            .collect();
        for (core, (shares, time)) in parts.iter().enumerate() {
            let sibling = self.siblings[core].and_then(|sibling| parts.get(sibling));
            let other = sibling.map_or(Shares::ABSENT, |(shares, _)| *shares);
            let part = if sibling.is_some() { 0.5 } else { 1.0 };
            self.joules[core] += part * watts(&self.profile.power, shares, &other) * time;
        }
        self.before.copy_from_slice(totals);
    }
}

/// Mean power of a physical core whose hyper-threads do this.
fn watts(power: &Power, one: &Shares, other: &Shares) -> f64 {
    let stopped = one.stopped * other.stopped;
    let asleep = (one.doze + one.stopped) * (other.doze + other.stopped);
    power.core_active.0 * (1.0 - asleep)
        + power.core_doze.0 * (asleep - stopped)
        + power.core_c1.0 * stopped
        + power.core_serving.0 / 2.0 * (one.serving + other.serving)
}

#[cfg(test)]
#[path = "energy_tests.rs"]
mod tests;
