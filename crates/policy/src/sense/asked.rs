//! What is known of a drive between one question and the next: the pace at which drives are asked,
//! which neither heats nor wakes them, and what their power is taken for meanwhile. A server asks
//! its drives by this, and so does its twin (`ebb sim --as-host`).
//!
//! A drive that did nothing since it was last asked is left alone.

use crate::live::{METER, PACE};
use crate::topology::{PowerState, PowerStateSpec};
use crate::units::{Celsius, Nanos, Watts};
use crate::{DriveSignals, Origin, Signal, Signals, Source};

/// What a drive at rest draws that neither measures nor states it, as a share of its lowest cap.
/// Ours, assumed: a budget is kept by caps, whatever this is; it says which drive can spare watts.
const IDLE_SHARE: f64 = 0.5;

/// What a drive's health log says of heat and power.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DriveHealth {
    /// Composite temperature.
    pub temperature: Option<Celsius>,
    /// Mean power of the last second, of drives that measure it.
    pub power: Option<Watts>,
}

/// A drive that can be asked.
pub trait Answers {
    /// The power state in force.
    fn state(&mut self) -> Option<PowerState>;
    /// Its health log.
    fn health(&mut self) -> Option<DriveHealth>;
}

/// What one drive was asked, and said.
#[derive(Debug, Clone)]
pub struct Asked {
    states: Vec<PowerStateSpec>,
    /// Power at rest in each state, where it is stated.
    idle: Vec<Option<Watts>>,
    state: Option<(Nanos, PowerState)>,
    health: Option<(Nanos, DriveHealth)>,
    /// When it was last asked for either.
    asked: (Option<Nanos>, Option<Nanos>),
    /// When it last did anything.
    active: Nanos,
}

impl Asked {
    /// A drive with these states and powers at rest, of which nothing is known yet.
    #[must_use]
    pub fn new(states: Vec<PowerStateSpec>, idle: Vec<Option<Watts>>) -> Self {
        Self { states, idle, state: None, health: None, asked: (None, None), active: Nanos::ZERO }
    }

    /// Whether it did something lately: a question wakes no drive that is awake.
    #[must_use]
    pub fn is_awake(&self, now: Nanos) -> bool {
        now.saturating_sub(self.active) < PACE
    }

    /// A state that was written and read back at `at`.
    pub fn took(&mut self, at: Nanos, state: PowerState) {
        if self.state.is_none_or(|(read, _)| read < at) {
            self.state = Some((at, state));
        }
    }

    /// Asks `drive` what is due, and fills in what is known of it as drive `at`, of which what it
    /// did in the period is filled in.
    pub fn read(&mut self, signals: &mut Signals, at: usize, drive: Option<&mut dyn Answers>) {
        let now = signals.now;
        if signals.drives[at].utilisation.is_some_and(|share| share > 0.0) {
            self.active = now;
        }
        if let Some(drive) = drive {
            self.ask(now, drive);
        }
        let age = |at: Option<Nanos>| at.map_or(Nanos::ZERO, |at| now.saturating_sub(at));
        let measured = |at| Source { age: age(at), origin: Origin::Measured };
        let period = signals.period;
        let sources = &mut signals.sources;
        let signal = &mut signals.drives[at];
        signal.state = self.state.map(|(_, state)| state);
        sources.set(Signal::DriveState, at, measured(self.state.map(|(at, _)| at)));
        signal.temperature = self.health.and_then(|(_, health)| health.temperature);
        let health = measured(self.health.map(|(at, _)| at));
        sources.set(Signal::DriveTemperature, at, health);
        let metered = self.health.and_then(|(_, health)| health.power);
        if metered.is_some() && health.age <= METER {
            signal.power = metered;
            sources.set(Signal::DrivePower, at, health);
            return;
        }
        // One that rests is as it was when it was last asked, after it had come to rest.
        let rests = self.rests_since_asked().then_some(metered).flatten();
        signal.power = rests.or_else(|| self.model(signal, period));
        let source = Source { age: Nanos::ZERO, origin: Origin::Modelled };
        sources.set(Signal::DrivePower, at, source);
    }

    /// Whether it did nothing in the second before it was last asked for its health, nor since.
    fn rests_since_asked(&self) -> bool {
        self.health.is_some_and(|(asked, _)| asked >= self.active + METER)
    }

    /// Asks what is due. A drive that did nothing since it was last asked is left alone.
    fn ask(&mut self, now: Nanos, drive: &mut dyn Answers) {
        let due = |last: Option<Nanos>, pace| last.is_none_or(|l| now.saturating_sub(l) >= pace);
        let active = self.active;
        let worked = |last: Option<Nanos>, after: Nanos| last.is_none_or(|l| l < active + after);
        if due(self.asked.0, PACE) && worked(self.asked.0, Nanos::ZERO) {
            self.asked.0 = Some(now);
            self.state = drive.state().map(|state| (now, state));
        }
        let meters = self.health.is_some_and(|(_, health)| health.power.is_some());
        // What a meter says is the mean of a second: once more after one of rest.
        let (pace, after) = if meters { (METER, METER) } else { (PACE, Nanos::ZERO) };
        if due(self.asked.1, pace) && worked(self.asked.1, after) {
            self.asked.1 = Some(now);
            self.health = drive.health().map(|health| (now, health));
        }
    }

    /// Power of a drive that does not measure it: from what it draws when idle up to the maximum of
    /// its state. How much of that it uses is the utilisation of a server in whose queue so many
    /// are on average, `n / (1 + n)` (M/M/1): a single command at a time keeps a drive busy and
    /// does not use it up.
    fn model(&self, signal: &DriveSignals, period: Nanos) -> Option<Watts> {
        let outstanding = signal.time.map(|time| time.seconds() / period.seconds());
        let known = outstanding.filter(|outstanding| outstanding.is_finite());
        let outstanding = known.or(signal.utilisation)?;
        let used = outstanding / (1.0 + outstanding);
        let state = usize::from(self.state.map_or(0, |(_, state)| state));
        let most = self.states.get(state).map(|state| state.max_power)?;
        let operational = self.states.iter().filter(|state| state.operational);
        let lowest = operational.map(|state| state.max_power).reduce(Watts::min)?;
        let stated = self.idle.get(state).copied().flatten();
        let idle = stated.unwrap_or(lowest * IDLE_SHARE).min(most);
        Some(idle + (most - idle) * used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{self, Settings};
    use crate::topology::{DriveSpec, Topology};
    use crate::{Applied, Control, Cycle, InForce, IoSignals, Limits, Outcome, Plant};

    const PERIOD: Nanos = Nanos::from_millis(500);
    const DRIVES: usize = 16;

    /// What a drive is and does, as it alone knows.
    #[derive(Debug, Clone, Copy, Default)]
    struct Truth {
        state: PowerState,
        busy: bool,
        meters: bool,
        asked: u32,
    }

    impl Answers for Truth {
        fn state(&mut self) -> Option<PowerState> {
            self.asked += 1;
            Some(self.state)
        }
        fn health(&mut self) -> Option<DriveHealth> {
            self.asked += 1;
            let cap = states()[usize::from(self.state)].max_power;
            let power = if self.busy { cap } else { Watts(5.0) };
            Some(DriveHealth { temperature: None, power: self.meters.then_some(power) })
        }
    }

    fn states() -> Vec<PowerStateSpec> {
        let state = |watts: f64| PowerStateSpec {
            max_power: Watts(watts),
            operational: true,
            entry: Nanos::ZERO,
            exit: Nanos::ZERO,
        };
        [25.0, 21.0, 18.0, 14.0, 9.0].map(state).to_vec()
    }

    /// Drives that are asked as a host asks them, in virtual time.
    struct Server {
        truths: Vec<Truth>,
        asked: Vec<Asked>,
        now: Nanos,
        /// Of every drive after each period.
        states: Vec<Vec<PowerState>>,
    }

    impl Server {
        fn new(meters: bool) -> Self {
            let truths = vec![Truth { meters, ..Truth::default() }; DRIVES];
            let asked = vec![Asked::new(states(), vec![None; 5]); DRIVES];
            Self { truths, asked, now: Nanos::ZERO, states: Vec::new() }
        }
        fn topology() -> Topology {
            let drive = DriveSpec { states: states(), ..DriveSpec::default() };
            Topology { drives: vec![drive; DRIVES], ..Topology::default() }
        }
        /// Halves of the drives are busy in turn, for half a minute each.
        fn is_busy(&self, drive: usize) -> bool {
            let half = usize::from(self.now.0 / Nanos::from_secs(30).0 % 2 == 1);
            drive / (DRIVES / 2) == half
        }
        fn run(mut self, policy: &str, seconds: u64) -> Self {
            let settings = Settings { ssd_budget: Some(Watts(224.0)), ..Settings::default() };
            let topology = Self::topology();
            let policy = registry::make(policy, &topology, &settings).unwrap();
            let limits = Limits { ssd_budget: settings.ssd_budget, ..Limits::default() };
            let mut cycle = Cycle::new(&topology, policy, limits);
            for _ in 0..seconds * 2 {
                cycle.step(&mut self);
                self.states.push(self.truths.iter().map(|truth| truth.state).collect());
            }
            self
        }
    }

    impl Plant for Server {
        fn sense(&mut self, signals: &mut Signals) {
            self.now += PERIOD;
            (signals.now, signals.period) = (self.now, PERIOD);
            signals.io = IoSignals { arrived: Some(0), completed: Some(0), ..Default::default() };
            for drive in 0..DRIVES {
                let busy = self.is_busy(drive);
                self.truths[drive].busy = busy;
                let signal = &mut signals.drives[drive];
                signal.utilisation = Some(f64::from(u8::from(busy)));
                signal.time = Some(if busy { Nanos(32 * PERIOD.0) } else { Nanos::ZERO });
                signal.read_bytes = Some(if busy { 1 << 30 } else { 0 });
                signal.written_bytes = Some(0);
                self.asked[drive].read(signals, drive, Some(&mut self.truths[drive]));
            }
        }
        fn apply(&mut self, given: &InForce, applied: &mut Applied) {
            for drive in 0..DRIVES {
                let state = given.state(drive);
                self.truths[drive].state = state;
                self.asked[drive].took(self.now, state);
                applied.set(Control::PowerState, drive, Outcome::Done);
            }
        }
    }

    /// 16 drives under 224 W. One uniform cap of 14 W fits; busy drives can have more once others
    /// rest. Whether drives measure their power or not, none is capped at 9 W while it is busy.
    #[test]
    fn watts_move_to_the_drives_that_are_busy() {
        for meters in [true, false] {
            let sspc = Server::new(meters).run("sspc", 120);
            assert!(sspc.states.iter().flatten().all(|state| *state == 3), "{:?}", sspc.states);
            let pacman = Server::new(meters).run("pacman", 120);
            // At the end of each half minute.
            for (half, end) in [29, 59, 89, 119].into_iter().enumerate() {
                let states = &pacman.states[2 * end];
                let (first, second) = states.split_at(DRIVES / 2);
                let (busy, idle) = if half % 2 == 0 { (first, second) } else { (second, first) };
                let of =
                    |states: &[u8]| states.iter().map(|state| f64::from(*state)).sum::<f64>() / 8.0;
                assert!(of(busy) < 3.0 && of(idle) > 3.0, "meters {meters}, {end} s: {states:?}");
            }
        }
    }

    #[test]
    fn a_drive_at_rest_is_asked_once_more_and_then_left_alone() {
        let mut server = Server::new(true);
        let mut signals = Signals::new(&Server::topology());
        let mut asked = Vec::new();
        for _ in 0..200 {
            server.sense(&mut signals);
            asked.push(server.truths[0].asked);
        }
        // Busy up to 30 s, from 60 s on again.
        assert_eq!(asked[70], asked[110], "at rest");
        assert!(asked[10] < asked[40], "busy");
        let at_rest = signals.drives[0].power;
        assert_eq!(at_rest, Some(Watts(5.0)), "as it was measured at rest");
    }
}
