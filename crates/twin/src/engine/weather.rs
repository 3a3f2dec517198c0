//! Where the climate meets the engine: the period's powers go in, leakage, fan power and readings
//! come out, and what got too hot slows down.

use ebb_policy::units::{Joules, Nanos, Watts};
use ebb_policy::{GroupSetting, Signals};

use super::Engine;

impl Engine<'_> {
    /// Lets the climate go through the period of `length` ns that ends now, under the controls in
    /// force, `uncore` being the packages' mean power outside the cores. Returns leakage and the
    /// fans' energy where the profile models them.
    pub(super) fn pass_weather(
        &mut self,
        length: u64,
        uncore: Watts,
        signals: &mut Signals,
    ) -> Option<(Joules, Joules)> {
        let climate = self.climate.as_mut()?;
        self.cores.socket_watts(Nanos(length), uncore, climate.socket_watts());
        let voltage = |socket| self.cores.voltage(socket);
        let fans = &self.in_force.fan_duty;
        climate.step(self.now, length, voltage, &signals.drives, fans);
        climate.sense(&mut signals.cooling, &mut signals.drives);
        self.array.throttle(Nanos(self.now), climate.drive_factors());
        self.array.set_vibration(self.now, climate.weather.vibration);
        Some((climate.weather.leakage, climate.weather.fans))
    }

    /// What of the setting `asked` the sockets of a group take: never above their ceilings nor, in
    /// an emergency, above the hardware's frequency; as it was where they refuse, which is told.
    pub(super) fn takes(&self, group: usize, asked: GroupSetting) -> (GroupSetting, bool) {
        let mut setting = asked;
        let (Some(climate), Some(thermal)) = (&self.climate, &self.profile.thermal) else {
            return (setting, false);
        };
        let sockets = match self.cores.socket(group) {
            Some(socket) => socket..socket + 1,
            None => 0..self.profile.sockets(),
        };
        let refused = sockets.clone().any(|socket| climate.refuses_frequency(socket));
        if refused {
            setting.frequency = self.cores.frequency(group);
        } else {
            let ceiling = self.in_force.ceiling(self.cores.socket(group));
            setting.frequency = setting.frequency.min(ceiling);
        }
        if sockets.clone().any(|socket| climate.throttled(socket)) {
            setting.frequency = setting.frequency.min(thermal.emergency.frequency);
        }
        (setting, refused)
    }
}
