//! Where the climate meets the engine: the period's powers go in, leakage, fan power and readings
//! come out, and what got too hot slows down.

use ebb_policy::GroupControl;
use ebb_policy::units::{Joules, Nanos};

use super::Engine;
use crate::outcome::Observer;

impl Engine<'_> {
    /// Lets the climate go through the period of `length` ns that ends now, under the controls in
    /// force. Returns leakage and the fans' energy where the profile models them.
    pub(super) fn pass_weather(
        &mut self,
        length: u64,
        observer: &mut dyn Observer,
    ) -> Option<(Joules, Joules)> {
        let climate = self.climate.as_mut()?;
        let signals = &mut self.pilot.signals;
        let uncore = self.profile.cpu.uncore;
        self.cores.socket_watts(Nanos(length), uncore, climate.socket_watts());
        let voltage = |socket| self.cores.voltage(socket);
        let fans = self.pilot.controls.fans();
        climate.step(self.now, length, voltage, &signals.drives, fans);
        for (event, begins) in &climate.news {
            observer.fault(event, *begins);
        }
        climate.sense(&mut signals.cooling, &mut signals.drives);
        self.array.throttle(Nanos(self.now), climate.drive_factors());
        self.array.set_vibration(self.now, climate.weather.vibration);
        Some((climate.weather.leakage, climate.weather.fans))
    }

    /// What is asked of a group, as its sockets take it: never above their ceilings nor, in an
    /// emergency, above the hardware's frequency; as it was where they refuse.
    pub(super) fn in_force(&self, group: usize, mut control: GroupControl) -> GroupControl {
        let (Some(climate), Some(thermal)) = (&self.climate, &self.profile.thermal) else {
            return control;
        };
        let sockets = match self.cores.socket(group) {
            Some(socket) => socket..socket + 1,
            None => 0..self.profile.sockets(),
        };
        if sockets.clone().any(|socket| climate.refuses_frequency(socket)) {
            control.frequency = self.cores.frequency(group);
        } else {
            for cap in &self.pilot.controls.frequency_caps()
                [usize::from(sockets.start)..usize::from(sockets.end)]
            {
                control.frequency = control.frequency.min(*cap);
            }
        }
        if sockets.clone().any(|socket| climate.throttled(socket)) {
            control.frequency = control.frequency.min(thermal.emergency.frequency);
        }
        control
    }
}
