//! How large the numbers of a profile may be: generous for any server, and far from where virtual
//! time (64 bits of nanoseconds) or energies would overflow.

use ebb_policy::units::{Bytes, Hertz, Nanos, Watts};

use super::Profile;
use super::error::{Wrong, wrong};

/// Longest latency or delay.
const TIME: Nanos = Nanos::from_secs(3600);
/// Slowest and fastest core.
const FREQUENCY: (Hertz, Hertz) = (Hertz(1e6), Hertz(1e12));
/// Most power of one part.
const POWER: Watts = Watts(1e6);
/// Most cycles of one request: a quarter of an hour at 1 GHz.
const CYCLES: f64 = 1e12;
/// Most bytes of a cache: 1 PiB.
const BYTES: Bytes = Bytes(1 << 50);
/// Smallest and largest block of a cache.
const BLOCK: (Bytes, Bytes) = (Bytes(512), Bytes(1 << 30));
/// Most background work per second: as much as a memory bus carries.
const STEADY: Bytes = Bytes(100 << 30);

impl Profile {
    /// Checks every magnitude.
    pub(super) fn possible_magnitudes(&self) -> Result<(), Wrong> {
        let cpu = &self.cpu;
        let within = |f: &Hertz| (FREQUENCY.0..=FREQUENCY.1).contains(f);
        if let Some(f) = cpu.frequencies.iter().find(|f| !within(f)) {
            let reason = format!("{f} is not from {} to {}", FREQUENCY.0, FREQUENCY.1);
            return wrong("cpu", "frequencies", reason);
        }
        time("", 0, "fabric_latency", self.fabric_latency)?;
        time("cpu", 0, "unpark_latency", cpu.unpark_latency)?;
        time("cpu", 0, "frequency_latency", cpu.frequency_latency)?;
        time("cpu", 0, "resume", cpu.resume)?;
        time("cpu", 0, "quota_period", cpu.quota_period)?;
        time("cpu", 0, "limit_latency", cpu.limit_latency)?;
        time("board", 0, "meter_lag", self.board.meter_lag)?;
        time("board", 0, "meter_window", self.board.meter_window)?;
        for (index, stage) in self.stage.iter().enumerate() {
            time("stage", index, "contention", stage.contention)?;
        }
        if let Some(network) = &self.network {
            time("network", 0, "request", network.request)?;
            time("network", 0, "connection", network.connection)?;
        }
        for (index, state) in cpu.idle_states.iter().enumerate() {
            time("cpu.idle_states", index, "after", state.after)?;
            time("cpu.idle_states", index, "exit", state.exit)?;
            power("cpu.idle_states", index, "power", state.power)?;
        }
        if let Some(jobs) = &self.jobs {
            time("jobs", 0, "migration", jobs.migration)?;
        }
        for (key, watts) in [
            ("uncore", cpu.uncore),
            ("uncore_dynamic", cpu.uncore_dynamic),
            ("stopped_saving", cpu.stopped_saving),
            ("core_static", cpu.core_static),
            ("core_dynamic", cpu.core_dynamic),
            ("parked", cpu.parked),
        ] {
            power("cpu", 0, key, watts)?;
        }
        let board = &self.board;
        for (key, watts) in [
            ("memory", board.memory),
            ("memory_per_gbps", board.memory_per_gbps),
            ("nic", board.nic),
            ("nic_per_gbps", board.nic_per_gbps),
            ("fans", board.fans),
            ("other", board.other),
        ] {
            power("board", 0, key, watts)?;
        }
        self.possible_memories()
    }

    fn possible_memories(&self) -> Result<(), Wrong> {
        if let Some(background) = &self.background {
            let cycles = background.task_cycles;
            if !(0.0..=CYCLES).contains(&cycles) {
                let reason = format!("{cycles} is not in 0..={CYCLES:e}");
                return wrong("background", "task_cycles", reason);
            }
            if background.steady > STEADY {
                let reason = format!("{} is above {STEADY}", background.steady);
                return wrong("background", "steady", reason);
            }
        }
        let Some(cache) = &self.cache else { return Ok(()) };
        let block = cache.block;
        if !(BLOCK.0..=BLOCK.1).contains(&block) || !block.0.is_power_of_two() {
            let reason = format!("{block} is not a power of two from {} to {}", BLOCK.0, BLOCK.1);
            return wrong("cache", "block", reason);
        }
        for (key, bytes) in [("size", cache.size), ("write_buffer", cache.write_buffer)] {
            if bytes > BYTES {
                return wrong("cache", key, format!("{bytes} is above {BYTES}"));
            }
        }
        Ok(())
    }
}

fn time(table: &'static str, index: usize, key: &'static str, time: Nanos) -> Result<(), Wrong> {
    if time <= TIME {
        return Ok(());
    }
    Err(Wrong { table, index, key, reason: format!("{time} is above {TIME}") })
}

fn power(table: &'static str, index: usize, key: &'static str, power: Watts) -> Result<(), Wrong> {
    if power.0 < 0.0 {
        return Err(Wrong { table, index, key, reason: format!("{power} is negative") });
    }
    if power <= POWER {
        return Ok(());
    }
    Err(Wrong { table, index, key, reason: format!("{power} is above {POWER}") })
}
