//! What one hard disk model can do and what it draws, as read from a TOML `[hdd]` table.

use ebb_policy::units::{Bytes, Nanos, Watts};
use ebb_policy::{DriveSpec, PowerStateSpec};
use serde::{Deserialize, Serialize};

use super::seek::{Seek, SeekCurve};
use crate::drive_file::{DriveFile, DriveHeat};

/// One hard disk model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HddProfile {
    /// Short name, as used in server profiles.
    pub name: String,
    /// Where the numbers come from, in one line.
    pub source: String,
    /// User capacity.
    pub capacity: Bytes,
    /// Revolutions per minute.
    pub rpm: f64,
    /// Recording surfaces in use.
    pub heads: u32,
    /// Sustained bytes per second at the outer edge.
    pub outer_rate: Bytes,
    /// Sustained bytes per second at the inner edge.
    pub inner_rate: Bytes,
    /// Bytes per second of the interface.
    pub interface: Bytes,
    /// Electronics' time per command.
    pub overhead: Nanos,
    /// Commands among which the drive chooses the next (NCQ has 32).
    pub queue: u32,
    /// Bytes read ahead of a stream.
    pub read_ahead: Bytes,
    /// Movement of the heads.
    pub seek: Seek,
    /// Write cache.
    pub write_cache: WriteCache,
    /// Effect of vibration.
    pub retry: Retry,
    /// Power while it works or waits ready.
    pub power: HddPower,
    /// Power conditions it falls into by itself, shallowest first.
    #[serde(default)]
    pub idle: Vec<HddIdle>,
    /// What heat does to it; needed in servers with temperatures.
    pub heat: Option<DriveHeat>,
}

/// Write cache.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WriteCache {
    /// Writes are acknowledged from it.
    pub enabled: bool,
    /// Bytes it holds.
    pub size: Bytes,
    /// Separate writes it holds, all of them candidates for the next to be written out.
    pub writes: u32,
}

/// Effect of vibration (docs/models/hdd.md, "Vibration").
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retry {
    /// Threshold of a read fault over the head's root-mean-square displacement at amplitude 1.
    pub read_margin: f64,
    /// The same for writes.
    pub write_margin: f64,
    /// Independent instants in one pass over a track.
    pub samples: f64,
    /// Repetitions after which a pass succeeds in any case.
    pub limit: u32,
}

/// Power while the drive works or waits ready.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HddPower {
    /// Ready, with nothing to do, before any power condition.
    pub ready: Watts,
    /// Moving the heads and waiting for the platter, reading.
    pub random_read: Watts,
    /// The same, writing.
    pub random_write: Watts,
    /// Reading on track.
    pub sequential_read: Watts,
    /// Writing on track.
    pub sequential_write: Watts,
}

/// A power condition (T13 ACS-4, Extended Power Conditions): entered after a time without work
/// or on demand, left by the next command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HddIdle {
    /// Its name, such as `idle_b`.
    pub name: String,
    /// Idle time after which it is entered; only on demand when absent.
    #[serde(default)]
    pub after: Option<Nanos>,
    /// Power in it.
    pub power: Watts,
    /// Time to become ready again.
    pub recovery: Nanos,
    /// Power at first during recovery: the motor accelerates.
    pub recovery_peak: Watts,
    /// Share of `recovery` at that power; the rest is at `power.ready`.
    pub peak_share: f64,
    /// The heads are off the platters.
    #[serde(default)]
    pub unloaded: bool,
    /// The platters stand still.
    #[serde(default)]
    pub stopped: bool,
}

impl DriveFile for HddProfile {
    const TABLE: &'static str = "hdd";
    const SHIPPED: &'static [(&'static str, &'static str)] = &[
        ("es3-4tb", include_str!("../../profiles/drives/es3-4tb.toml")),
        ("exos-x18", include_str!("../../profiles/drives/exos-x18.toml")),
    ];

    fn name(&self) -> &str {
        &self.name
    }

    fn validate(&self) -> Result<(), String> {
        self.check_mechanics()?;
        self.check_power()?;
        if self.heat.as_ref().is_some_and(|heat| heat.throttle.is_some()) {
            return Err("heat.throttle: hard disks do not slow themselves down".to_owned());
        }
        DriveHeat::check(self.heat.as_ref())
    }
}

impl HddProfile {
    /// The power states, as policies see them: 0 works, the others are the power conditions
    /// that take time to leave, entered on demand.
    #[must_use]
    pub fn spec(&self) -> DriveSpec {
        let power = &self.power;
        let work = [power.random_write, power.sequential_read, power.sequential_write];
        let most = work.into_iter().fold(power.random_read, Watts::max);
        let state = |max_power, operational, exit| PowerStateSpec {
            max_power,
            operational,
            entry: Nanos::ZERO,
            exit,
        };
        let waiting = self.commanded().map(|idle| state(idle.power, false, idle.recovery));
        let states = [state(most, true, Nanos::ZERO)].into_iter().chain(waiting).collect();
        // The limit of disks that nothing is known of is that of nearline disks.
        DriveSpec { states, rotational: true, ..DriveSpec::default() }
    }

    /// Power conditions that a host can demand.
    pub(super) fn commanded(&self) -> impl Iterator<Item = &HddIdle> {
        self.idle.iter().filter(|idle| idle.recovery > Nanos::ZERO)
    }

    fn check_mechanics(&self) -> Result<(), String> {
        let need = |valid: bool, error: &str| if valid { Ok(()) } else { Err(error.to_owned()) };
        need((1_000.0..=30_000.0).contains(&self.rpm), "rpm must lie in 1000 to 30000")?;
        need((1..=64).contains(&self.heads), "heads must lie in 1 to 64")?;
        need(self.capacity.0 >= 1 << 30, "capacity must be at least 1 GiB")?;
        let (outer, inner) = (self.outer_rate.0, self.inner_rate.0);
        let rates = inner >= 1_000_000 && inner <= outer && outer <= self.interface.0;
        need(rates, "inner_rate: need 1 MB <= inner_rate <= outer_rate <= interface")?;
        need((1..=256).contains(&self.queue), "queue must lie in 1 to 256")?;
        let cache = &self.write_cache;
        let holds = !cache.enabled || (1..=4096).contains(&cache.writes) && cache.size.0 >= 1 << 20;
        need(holds, "write_cache: an enabled one needs 1 to 4096 writes and 1 MiB or more")?;
        let seek = &self.seek;
        let period = Nanos::from_seconds(60.0 / self.rpm);
        let switch = seek.switch > Nanos::ZERO && seek.switch < period;
        need(switch, "seek.switch must be above 0 and below a revolution")?;
        let curve = SeekCurve::new(seek, 1).is_some();
        need(curve, "seek: no rising curve has these track_to_track, average and full_stroke")?;
        let Retry { read_margin, write_margin, samples, limit } = self.retry;
        let margins = read_margin > 0.0 && write_margin > 0.0;
        need(margins, "retry: read_margin and write_margin must be above 0")?;
        need((1.0..=1000.0).contains(&samples), "retry.samples must lie in 1 to 1000")?;
        need((1..=1000).contains(&limit), "retry.limit must lie in 1 to 1000")
    }

    fn check_power(&self) -> Result<(), String> {
        let HddPower { ready, random_read, random_write, sequential_read, sequential_write } =
            self.power;
        let work = [random_read, random_write, sequential_read, sequential_write];
        if ready.0 <= 0.0 || work.iter().any(|power| *power < ready) {
            return Err("power: need 0 < ready <= every power of work".to_owned());
        }
        if self.idle.len() > 31 {
            return Err("idle: at most 31 power conditions".to_owned());
        }
        let mut last = (Nanos::ZERO, ready, Nanos::ZERO);
        for idle in &self.idle {
            let name = &idle.name;
            let after = idle.after.unwrap_or(last.0);
            if after < last.0 || idle.power > last.1 || idle.recovery < last.2 {
                return Err(format!(
                    "idle '{name}': deeper conditions must come later, draw no more and take no \
                     less time to leave"
                ));
            }
            let peak = idle.power.0 >= 0.0 && idle.recovery_peak >= ready;
            if !peak || !(0.0..=1.0).contains(&idle.peak_share) {
                return Err(format!(
                    "idle '{name}': need power >= 0, recovery_peak >= power.ready, peak_share in \
                     0 to 1"
                ));
            }
            last = (after, idle.power, idle.recovery);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shipped_profile_is_valid_and_reads_back() {
        for &(name, text) in HddProfile::SHIPPED {
            let parsed = HddProfile::from_toml(text).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(parsed.name, name);
            assert_eq!(HddProfile::builtin(name), Some(parsed));
        }
        assert_eq!(HddProfile::builtin("floppy"), None);
    }

    #[test]
    fn impossible_disks_are_refused_with_the_key_and_what_is_valid() {
        let refused = |change: fn(&mut HddProfile)| {
            let mut profile = HddProfile::builtin("es3-4tb").unwrap();
            change(&mut profile);
            profile.validate().unwrap_err()
        };
        assert!(refused(|p| p.rpm = 0.0).contains("rpm must lie in"));
        assert!(refused(|p| p.inner_rate = Bytes(1 << 40)).contains("inner_rate"));
        assert!(refused(|p| p.seek.average = p.seek.full_stroke).contains("no rising curve"));
        assert!(refused(|p| p.seek.switch = Nanos::from_millis(20)).contains("seek.switch"));
        assert!(refused(|p| p.retry.write_margin = -1.0).contains("write_margin"));
        assert!(refused(|p| p.power.random_read = Watts(1.0)).contains("ready"));
        assert!(refused(|p| p.idle.swap(0, 2)).contains("deeper conditions"));
        assert!(refused(|p| p.idle[1].peak_share = 2.0).contains("peak_share"));
        let text = HddProfile::from_toml("[hdd]\nrmp = 7200\n").unwrap_err();
        assert!(text.contains("line 2") && text.contains("rmp"), "{text}");
    }

    #[test]
    fn policies_see_one_working_state_and_the_power_conditions() {
        let spec = HddProfile::builtin("es3-4tb").unwrap().spec();
        assert_eq!((spec.operational().len(), spec.states.len()), (1, 4));
        assert_eq!(spec.cap(0), Watts(11.86));
        assert!(spec.states.windows(2).all(|pair| pair[0].max_power > pair[1].max_power));
    }
}
