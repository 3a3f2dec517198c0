//! What NVMe drives say of themselves, asked at a pace that neither heats nor wakes them: one that
//! did nothing since it was last asked is left alone.

use ebb_policy::units::{Celsius, Nanos, Watts};
use ebb_policy::{Origin, PowerState, Signal, Signals, Source};

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
    /// Whether it did anything since.
    busy: bool,
    /// When it last did anything.
    active: Nanos,
    /// That it says nonsense: what is yet to be told, and whether it was.
    notice: Option<Notice>,
    said: bool,
}

impl DriveWatch {
    /// The drive `parts`; one that is no NVMe drive is not asked anything.
    #[must_use]
    pub fn new(machine: &Machine, parts: &DriveParts) -> Self {
        let controller = parts.drive.controller.as_ref().filter(|_| parts.identity.is_some());
        Self {
            admin: controller.and_then(|name| machine.open_nvme(name).ok()),
            identity: parts.identity.clone(),
            state: None,
            health: None,
            asked: (None, None),
            busy: true,
            active: Nanos::ZERO,
            notice: None,
            said: false,
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

    /// Fills in what is known of drive `at`.
    pub fn read(&mut self, signals: &mut Signals, at: usize) {
        let now = signals.now;
        if signals.drives[at].utilisation.is_some_and(|share| share > 0.0) {
            (self.busy, self.active) = (true, now);
        }
        if self.busy {
            self.ask(now);
        }
        let age = |at: Option<Nanos>| at.map_or(Nanos::ZERO, |at| now.saturating_sub(at));
        let measured = |at| Source { age: age(at), origin: Origin::Measured };
        let sources = &mut signals.sources;
        let signal = &mut signals.drives[at];
        signal.state = self.state.map(|(_, state)| state);
        sources.set(Signal::DriveState, at, measured(self.state.map(|(at, _)| at)));
        signal.temperature = self.health.and_then(|(_, health)| health.temperature);
        let health = measured(self.health.map(|(at, _)| at));
        sources.set(Signal::DriveTemperature, at, health);
        signal.power = self.health.and_then(|(_, health)| health.power);
        sources.set(Signal::DrivePower, at, health);
        if signal.power.is_none() {
            signal.power = signal.utilisation.and_then(|share| self.model(share));
            let source = Source { age: Nanos::ZERO, origin: Origin::Modelled };
            sources.set(Signal::DrivePower, at, source);
        }
    }

    fn ask(&mut self, now: Nanos) {
        let Some(admin) = &mut self.admin else { return };
        let due = |last: Option<Nanos>, pace| last.is_none_or(|l| now.saturating_sub(l) >= pace);
        if due(self.asked.0, PACE) {
            self.asked.0 = Some(now);
            let state = admin.feature(POWER_MANAGEMENT).ok();
            self.state = state.map(|value| (now, (value & 0x1f) as PowerState));
            self.busy = false;
        }
        let meters = self.health.is_some_and(|(_, health)| health.power.is_some());
        if due(self.asked.1, if meters { METER } else { PACE }) {
            self.asked.1 = Some(now);
            let health = admin.health().ok();
            self.health = health.map(|health| (now, self.believed(health)));
            self.busy = false;
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
    /// of its state, by the share of time in which it had something to do. Where it does not state
    /// an idle power, the lowest cap stands for it: too much rather than too little.
    fn model(&self, share: f64) -> Option<Watts> {
        let identity = self.identity.as_ref()?;
        let state = usize::from(self.state.map_or(0, |(_, state)| state));
        let most = identity.states.get(state).map(|state| state.max_power)?;
        let operational = identity.states.iter().filter(|state| state.operational);
        let lowest = operational.map(|state| state.max_power).reduce(Watts::min)?;
        let idle = identity.idle.get(state).copied().flatten().unwrap_or(lowest).min(most);
        Some(idle + (most - idle) * share)
    }
}
