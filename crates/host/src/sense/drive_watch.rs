//! What NVMe drives say of themselves, asked at a pace that neither heats nor wakes them: one that
//! did nothing since it was last asked is left alone.

use ebb_policy::units::{Celsius, Nanos, Watts};
use ebb_policy::{DriveSignals, Origin, PowerState, Signal, Signals, Source};

use crate::act::knob::Place;
use crate::act::steering::Notice;
use crate::find::chips::TEMPERATURES;
use crate::find::layout::DriveParts;
use crate::find::machine::Machine;
use crate::find::meters::MOST;
use crate::nvme::{Admin, Health, Identity, POWER_MANAGEMENT, Patient};

/// Pace of questions for the power state and for the temperature. Composite temperatures move by
/// half a degree a second at most.
const PACE: Nanos = Nanos::from_secs(10);
/// Pace for drives that measure their power, over a second each time.
const METER: Nanos = Nanos::from_secs(1);
/// What a drive at rest draws that neither measures nor states it, as a share of its lowest cap.
/// Ours, assumed: a budget is kept by caps, whatever this is; it says which drive can spare watts.
const IDLE_SHARE: f64 = 0.5;

/// Over a second a drive draws no more than so many times what its fastest state says.
const MOST_FACTOR: f64 = 3.0;

/// One drive.
#[derive(Debug)]
pub struct DriveWatch {
    admin: Option<Patient>,
    identity: Option<Identity>,
    state: Option<(Nanos, PowerState)>,
    health: Option<(Nanos, Health)>,
    /// When it was last asked for either.
    asked: (Option<Nanos>, Option<Nanos>),
    /// When it last did anything.
    active: Nanos,
    /// That it says nonsense: what is yet to be told, and whether it was.
    notice: Option<Notice>,
    said: bool,
    /// The most bytes that it has moved in a second.
    fastest: f64,
}

impl DriveWatch {
    /// The drive `parts`; one that is no NVMe drive is not asked anything.
    #[must_use]
    pub fn new(machine: &Machine, parts: &DriveParts) -> Self {
        let controller = parts.drive.controller.as_ref().filter(|_| parts.identity.is_some());
        let admin = controller.and_then(|name| machine.open_nvme(name).ok());
        Self::asking(admin, parts.identity.clone())
    }

    fn asking(admin: Option<Patient>, identity: Option<Identity>) -> Self {
        Self {
            admin,
            identity,
            state: None,
            health: None,
            asked: (None, None),
            active: Nanos::ZERO,
            notice: None,
            said: false,
            fastest: 0.0,
        }
    }

    /// What an operator should know since this was last asked.
    pub fn notice(&mut self) -> Option<Notice> {
        self.notice.take()
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

    /// Fills in what is known of drive `at`.
    pub fn read(&mut self, signals: &mut Signals, at: usize) {
        let now = signals.now;
        if signals.drives[at].utilisation.is_some_and(|share| share > 0.0) {
            self.active = now;
        }
        self.ask(now);
        let age = |at: Option<Nanos>| at.map_or(Nanos::ZERO, |at| now.saturating_sub(at));
        let measured = |at| Source { age: age(at), origin: Origin::Measured };
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
        signal.power = rests.or_else(|| self.model(signal, signals.period));
        let source = Source { age: Nanos::ZERO, origin: Origin::Modelled };
        sources.set(Signal::DrivePower, at, source);
    }

    /// Whether it did nothing in the second before it was last asked for its health, nor since.
    fn rests_since_asked(&self) -> bool {
        self.health.is_some_and(|(asked, _)| asked >= self.active + METER)
    }

    /// Asks what is due. A drive that did nothing since it was last asked is left alone.
    fn ask(&mut self, now: Nanos) {
        let Some(admin) = &mut self.admin else { return };
        let due = |last: Option<Nanos>, pace| last.is_none_or(|l| now.saturating_sub(l) >= pace);
        let active = self.active;
        let worked = |last: Option<Nanos>, after: Nanos| last.is_none_or(|l| l < active + after);
        if due(self.asked.0, PACE) && worked(self.asked.0, Nanos::ZERO) {
            self.asked.0 = Some(now);
            let state = admin.feature(POWER_MANAGEMENT).ok();
            self.state = state.map(|value| (now, (value & 0x1f) as PowerState));
        }
        let meters = self.health.is_some_and(|(_, health)| health.power.is_some());
        // What a meter says is the mean of a second: once more after one of rest.
        let (pace, after) = if meters { (METER, METER) } else { (PACE, Nanos::ZERO) };
        if due(self.asked.1, pace) && worked(self.asked.1, after) {
            self.asked.1 = Some(now);
            let health = admin.health().ok();
            self.health = health.map(|health| (now, self.believed(health)));
        }
    }

    /// Without what no drive can say: it is absent, and named once.
    fn believed(&mut self, health: Health) -> Health {
        let identity = self.identity.as_ref();
        let most =
            identity.and_then(|identity| identity.states.first()).map(|state| state.max_power);
        let most = most.filter(|most| most.0 > 0.0).map_or(MOST, |most| most * MOST_FACTOR);
        let power = health.power.filter(|power| (0.0..=most.0).contains(&power.0));
        let is_heat = |heat: &Celsius| TEMPERATURES.contains(&heat.0);
        let temperature = health.temperature.filter(is_heat);
        let odd = (power != health.power, temperature != health.temperature);
        if odd != (false, false) && !std::mem::replace(&mut self.said, true) {
            let drive = identity.map(|identity| format!("{} {}", identity.model, identity.serial));
            self.notice = Some(Notice {
                place: Place::PowerState { drive: drive.unwrap_or_default() },
                text: format!(
                    "its log says {:?} and {:?}, which cannot be: absent until it says something \
                     else; see whether the drive's firmware has an update",
                    health.power, health.temperature
                ),
            });
        }
        Health { power, temperature, ..health }
    }

    /// Power of a drive that does not measure it: from what it draws when idle up to the maximum
    /// of its state. How much of that it uses is what it moves of the most that it was ever seen to
    /// move, and no more than the share of time in which it had something to do: a single request
    /// in flight keeps it busy all the time, and does not use it up.
    fn model(&mut self, signal: &DriveSignals, period: Nanos) -> Option<Watts> {
        let busy = signal.utilisation?;
        let bytes = signal.read_bytes.zip(signal.written_bytes);
        let rate = bytes.map(|(read, written)| (read + written) as f64 / period.seconds());
        let used = rate.filter(|rate| rate.is_finite() && *rate > 0.0).map_or(busy, |rate| {
            self.fastest = self.fastest.max(rate);
            busy.min(rate / self.fastest)
        });
        let identity = self.identity.as_ref()?;
        let state = usize::from(self.state.map_or(0, |(_, state)| state));
        let most = identity.states.get(state).map(|state| state.max_power)?;
        let operational = identity.states.iter().filter(|state| state.operational);
        let lowest = operational.map(|state| state.max_power).reduce(Watts::min)?;
        let stated = identity.idle.get(state).copied().flatten();
        let idle = stated.unwrap_or(lowest * IDLE_SHARE).min(most);
        Some(idle + (most - idle) * used)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::{Arc, Mutex};

    use ebb_policy::registry::{self, Settings};
    use ebb_policy::{
        Applied, Control, Cycle, DriveSpec, InForce, IoSignals, Limits, Outcome, Plant,
        PowerStateSpec, Topology,
    };

    use super::*;
    use crate::sys::Absent;

    const PERIOD: Nanos = Nanos::from_millis(500);
    const DRIVES: usize = 16;

    /// What a drive is and does, as it alone knows.
    #[derive(Debug, Clone, Copy, Default)]
    struct Truth {
        state: u32,
        busy: bool,
        meters: bool,
        asked: u32,
    }

    #[derive(Debug)]
    struct Fake(Arc<Mutex<Truth>>);

    impl Admin for Fake {
        fn feature(&mut self, _: u8) -> Result<u32, Absent> {
            let mut truth = self.0.lock().unwrap();
            truth.asked += 1;
            Ok(truth.state)
        }
        fn set_feature(&mut self, _: u8, value: u32) -> Result<(), Absent> {
            self.0.lock().unwrap().state = value;
            Ok(())
        }
        fn identify(&mut self) -> Result<Identity, Absent> {
            Ok(identity())
        }
        fn health(&mut self) -> Result<Health, Absent> {
            let mut truth = self.0.lock().unwrap();
            truth.asked += 1;
            let cap = identity().states[truth.state as usize].max_power;
            let power = if truth.busy { cap } else { Watts(5.0) };
            Ok(Health { warnings: 0, temperature: None, power: truth.meters.then_some(power) })
        }
    }

    fn identity() -> Identity {
        let state = |watts: f64| PowerStateSpec {
            max_power: Watts(watts),
            operational: true,
            entry: Nanos::ZERO,
            exit: Nanos::ZERO,
        };
        Identity {
            serial: String::new(),
            model: String::new(),
            idle: vec![None; 5],
            warning: None,
            limits_power: false,
            apst: false,
            states: [25.0, 21.0, 18.0, 14.0, 9.0].map(state).to_vec(),
        }
    }

    /// Drives that are asked as a host asks them, in virtual time.
    struct Server {
        truths: Vec<Arc<Mutex<Truth>>>,
        watches: Vec<DriveWatch>,
        now: Nanos,
        /// Of every drive after each period.
        states: Vec<Vec<u32>>,
    }

    impl Server {
        fn new(meters: bool) -> Self {
            let truth = |_| Arc::new(Mutex::new(Truth { meters, ..Truth::default() }));
            let truths: Vec<_> = (0..DRIVES).map(truth).collect();
            let watch = |truth: &Arc<Mutex<Truth>>| {
                let admin = Patient::new(PathBuf::from("drive"), Box::new(Fake(truth.clone())));
                DriveWatch::asking(Some(admin.unwrap()), Some(identity()))
            };
            let watches = truths.iter().map(watch).collect();
            Self { truths, watches, now: Nanos::ZERO, states: Vec::new() }
        }
        fn topology() -> Topology {
            let states = identity().states;
            let drive = DriveSpec { id: None, states, limit: None, rotational: false };
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
                let states = self.truths.iter().map(|truth| truth.lock().unwrap().state);
                self.states.push(states.collect());
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
                self.truths[drive].lock().unwrap().busy = busy;
                let signal = &mut signals.drives[drive];
                signal.utilisation = Some(f64::from(u8::from(busy)));
                signal.read_bytes = Some(if busy { 1 << 30 } else { 0 });
                signal.written_bytes = Some(0);
                self.watches[drive].read(signals, drive);
            }
        }
        fn apply(&mut self, given: &InForce, applied: &mut Applied) {
            for drive in 0..DRIVES {
                let state = given.state(drive);
                self.truths[drive].lock().unwrap().state = u32::from(state);
                self.watches[drive].took(self.now, state);
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
                let of = |states: &[u32]| states.iter().sum::<u32>() as f64 / 8.0;
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
            asked.push(server.truths[0].lock().unwrap().asked);
        }
        // Busy up to 30 s, from 60 s on again.
        assert_eq!(asked[70], asked[110], "at rest");
        assert!(asked[10] < asked[40], "busy");
        let at_rest = signals.drives[0].power;
        assert_eq!(at_rest, Some(Watts(5.0)), "as it was measured at rest");
    }
}
