//! What NVMe drives say of themselves, asked at the pace of [`Asked`].

use ebb_nvme::feature;
use ebb_policy::sense::{Answers, Asked, DriveHealth};
use ebb_policy::units::{Celsius, Nanos};
use ebb_policy::{PowerState, Signals};

use crate::act::knob::Place;
use crate::act::steering::Notice;
use crate::find::chips::TEMPERATURES;
use crate::find::layout::DriveParts;
use crate::find::machine::Machine;
use crate::find::meters::MOST;
use crate::nvme::{Admin, Cap, Identity, POWER_LIMIT_BITS, POWER_STATE_BITS, Patient};

/// Over a second a drive draws no more than so many times what its fastest state says.
const MOST_FACTOR: f64 = 3.0;

/// One drive.
#[derive(Debug)]
pub struct DriveWatch {
    asked: Asked,
    drive: Option<Drive>,
}

/// A drive that can be asked.
#[derive(Debug)]
struct Drive {
    admin: Patient,
    identity: Option<Identity>,
    cap: Cap,
    /// That it says nonsense: what is yet to be told, and whether it was.
    notice: Option<Notice>,
    said: bool,
}

impl DriveWatch {
    /// The drive `parts`; one that is no NVMe drive is not asked anything.
    #[must_use]
    pub fn new(machine: &Machine, parts: &DriveParts) -> Self {
        let controller = parts.drive.controller.as_ref().filter(|_| parts.identity.is_some());
        let admin = controller.and_then(|name| machine.open_nvme(name).ok());
        let identity = parts.identity.clone();
        let cap = parts.cap();
        let of = |identity: &Identity| (cap.states(identity), cap.idle(identity));
        let (states, idle) = identity.as_ref().map(of).unwrap_or_default();
        let drive = |admin| Drive { admin, identity, cap, notice: None, said: false };
        Self { asked: Asked::new(states, idle), drive: admin.map(drive) }
    }

    /// What an operator should know since this was last asked.
    pub fn notice(&mut self) -> Option<Notice> {
        self.drive.as_mut()?.notice.take()
    }

    /// Whether it did something lately: a question wakes no drive that is awake.
    #[must_use]
    pub fn is_awake(&self, now: Nanos) -> bool {
        self.asked.is_awake(now)
    }

    /// A state that was written and read back at `at`.
    pub fn took(&mut self, at: Nanos, state: PowerState) {
        self.asked.took(at, state);
    }

    /// Fills in what is known of drive `at`.
    pub fn read(&mut self, signals: &mut Signals, at: usize) {
        let drive = self.drive.as_mut().map(|drive| drive as &mut dyn Answers);
        self.asked.read(signals, at, drive);
    }
}

impl Answers for Drive {
    fn state(&mut self) -> Option<PowerState> {
        let (feature, bits) = match self.cap {
            Cap::State => (feature::POWER_MANAGEMENT, POWER_STATE_BITS),
            Cap::Limit(_) => (feature::POWER_LIMIT, POWER_LIMIT_BITS),
        };
        Some(self.cap.state(self.admin.feature(feature).ok()? & bits))
    }

    /// Without what no drive can say: it is absent, and named once.
    fn health(&mut self) -> Option<DriveHealth> {
        let health = self.admin.health().ok()?;
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
        Some(DriveHealth { temperature, power })
    }
}
