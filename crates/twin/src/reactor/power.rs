//! Power of the cores by state, integrated; and what else the server draws with them.

use ebb_policy::reactor::{FULL_SPEED, Speed};
use ebb_policy::units::{Joules, Nanos};

use super::profile::Power;

/// What a hyper-thread does, as far as power is concerned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum State {
    /// Polls or serves.
    Active,
    /// In C1 this share of the time, between naps' ends.
    Nap(f64),
    /// In shallow sleep.
    Doze,
    /// Blocked, clock stopped.
    C1,
    /// Blocked, power off.
    C6,
}

impl State {
    /// Share of the time at rest.
    fn rest(self) -> f64 {
        match self {
            Self::Active => 0.0,
            Self::Nap(share) => share,
            Self::Doze | Self::C1 | Self::C6 => 1.0,
        }
    }
}

/// One physical core.
#[derive(Debug, Clone, Copy)]
struct Physical {
    states: [State; 2],
    speed: [Speed; 2],
    watts: f64,
    since: Nanos,
    joules: f64,
}

/// Meters every physical core.
#[derive(Debug)]
pub(super) struct Meter {
    power: Power,
    cores: Vec<Physical>,
}

impl Meter {
    pub fn new(power: &Power, physical: usize) -> Self {
        let watts = power.core_active.0;
        let states = [State::Active; 2];
        let speed = [FULL_SPEED; 2];
        let core = Physical { states, speed, watts, since: Nanos::ZERO, joules: 0.0 };
        Self { power: power.clone(), cores: vec![core; physical] }
    }

    /// A physical core rests only while both hyper-threads do, as deep as the shallower one.
    fn watts(&self, core: &Physical) -> f64 {
        let power = &self.power;
        // Siblings share a clock: the faster one's.
        let speed = core.speed[0].max(core.speed[1]);
        let f = f64::from(speed) / f64::from(FULL_SPEED);
        let dynamic = (1.0 - power.static_share) * f.powf(power.frequency_exponent);
        let active = power.core_active.0 * (power.static_share + dynamic);
        let depth = |state: State| match state {
            State::Active | State::Nap(_) | State::C1 => 1,
            State::Doze => 0,
            State::C6 => 2,
        };
        let resting = match depth(core.states[0]).min(depth(core.states[1])) {
            0 => power.core_doze.0,
            1 => power.core_c1.0,
            _ => power.core_c6.0,
        };
        // Naps of siblings are independent of one another.
        let rest = core.states[0].rest() * core.states[1].rest();
        active * (1.0 - rest) + resting * rest
    }

    fn update(&mut self, physical: usize, now: Nanos, change: impl FnOnce(&mut Physical)) {
        let mut core = self.cores[physical];
        core.joules += core.watts * (now - core.since).seconds();
        core.since = now;
        change(&mut core);
        core.watts = self.watts(&core);
        self.cores[physical] = core;
    }

    pub fn state(&self, core: usize) -> State {
        self.cores[core / 2].states[core % 2]
    }

    pub fn set_state(&mut self, core: usize, now: Nanos, state: State) {
        if self.state(core) != state {
            self.update(core / 2, now, |physical| physical.states[core % 2] = state);
        }
    }

    pub fn set_speed(&mut self, core: usize, now: Nanos, speed: Speed) {
        self.update(core / 2, now, |physical| physical.speed[core % 2] = speed);
    }

    pub fn speed(&self, core: usize) -> Speed {
        let [a, b] = self.cores[core / 2].speed;
        a.max(b)
    }

    /// Energy of all cores above the packages' idle until `now`.
    pub fn energy(&mut self, now: Nanos) -> f64 {
        for physical in 0..self.cores.len() {
            self.update(physical, now, |_| {});
        }
        self.cores.iter().map(|core| core.joules).sum()
    }
}

/// Energy by component.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Energy {
    /// Processor packages.
    pub cpu: Joules,
    /// Drives.
    pub ssd: Joules,
    /// The rest of the server: fans, memory, network, conversion.
    pub others: Joules,
}

impl Energy {
    /// What the server drew.
    #[must_use]
    pub fn total(&self) -> Joules {
        self.cpu + self.ssd + self.others
    }

    /// Of a span: energy of the cores above idle, time served by all hyper-threads, commands.
    pub(super) fn of(power: &Power, span: Nanos, cores: f64, served: Nanos, commands: u64) -> Self {
        let serving = power.core_serving.0 / 2.0 * served.seconds();
        let above = cores + serving;
        let cpu = power.cpu_idle * span + Joules(above);
        let others = power.others_idle * span + Joules(above * power.others_per_cpu_watt);
        let per_command = power.ssd_range.0 / power.ssd_peak_iops;
        let ssd = power.ssd_idle * span + Joules(per_command * commands as f64);
        Self { cpu, ssd, others }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Profile;
    use super::*;

    const SECOND: Nanos = Nanos::from_secs(1);

    /// Watts of one physical core with its hyper-threads in these states.
    fn watts(states: [State; 2], speed: Speed) -> f64 {
        let power = Profile::all_flash().unwrap().power;
        let mut meter = Meter::new(&power, 1);
        for (core, state) in states.into_iter().enumerate() {
            meter.set_state(core, Nanos::ZERO, state);
            meter.set_speed(core, Nanos::ZERO, speed);
        }
        meter.energy(SECOND)
    }

    #[test]
    fn a_physical_core_rests_only_while_both_siblings_do() {
        use State::{Active, C1, C6, Doze, Nap};
        let power = Profile::all_flash().unwrap().power;
        for states in [[Active, Active], [Active, Doze], [C6, Active]] {
            assert_eq!(watts(states, FULL_SPEED), power.core_active.0);
        }
        assert_eq!(watts([Doze, Doze], FULL_SPEED), power.core_doze.0);
        assert_eq!(watts([Doze, C6], FULL_SPEED), power.core_doze.0);
        assert_eq!(watts([C1, C6], FULL_SPEED), power.core_c1.0);
        assert_eq!(watts([C6, C6], FULL_SPEED), power.core_c6.0);
        // Half the time each, a quarter of it together.
        let quarter = (3.0 * power.core_active.0 + power.core_c1.0) / 4.0;
        assert!((watts([Nap(0.5), Nap(0.5)], FULL_SPEED) - quarter).abs() < 1e-12);
    }

    #[test]
    fn frequency_lowers_active_power_and_not_that_of_sleep() {
        assert!(watts([State::Active; 2], 500) < 0.5 * watts([State::Active; 2], FULL_SPEED));
        assert_eq!(watts([State::C1; 2], 500), watts([State::C1; 2], FULL_SPEED));
    }

    #[test]
    fn the_slides_table_comes_back() {
        let power = Profile::all_flash().unwrap().power;
        let idle = Energy::of(&power, SECOND, 0.0, Nanos::ZERO, 0);
        assert_eq!(idle.total(), Joules(412.0));
        let light = Energy::of(&power, SECOND, 110.0, Nanos::ZERO, 0);
        assert!((light.total().0 - 716.0).abs() < 0.5, "{light:?}");
        let served = Nanos::from_secs(32);
        let peak = Energy::of(&power, SECOND, 110.0, served, power.ssd_peak_iops as u64);
        assert!((peak.total().0 - 940.0).abs() < 2.0, "{peak:?}");
    }
}
