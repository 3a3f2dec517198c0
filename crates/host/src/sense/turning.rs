//! How fast fans turn.

use ebb_policy::units::Rpm;

use crate::act::steering::Notice;
use crate::find::chips::FASTEST;
use crate::find::fans::Fan;
use crate::find::layout::Layout;
use crate::find::machine::Machine;
use crate::sense::gauge::Gauge;
use crate::sense::watched::Watched;
use crate::sys::Sys;

/// One PWM: its duty, and the tachometers of the fans that it drives, or may drive.
#[derive(Debug)]
pub struct Turning {
    /// Its duty.
    pub duty: Watched,
    own: Vec<Gauge>,
    strays: Vec<Gauge>,
}

impl Turning {
    /// As [`Fan::speed`] says.
    pub fn speed(&mut self, notices: &mut Vec<Notice>) -> Option<Rpm> {
        // Each is read, so that each is named that says nonsense.
        let read = |gauge: &mut Gauge| gauge.read(notices).map(Rpm);
        let own = self.own.iter_mut().map(read);
        let slowest = own.reduce(|one, other| one.zip(other).map(|(a, b)| a.min(b)))?;
        let mut strays = self.strays.iter_mut().map(|gauge| gauge.read(notices));
        if strays.any(|speed| speed == Some(0.0)) { Some(Rpm(0.0)) } else { slowest }
    }
}

/// All that are counted.
pub fn fans(machine: &Machine, layout: &Layout, sys: &Sys) -> Vec<Turning> {
    let fan = |fan: &Fan| {
        let chip = &machine.chips[fan.chip];
        let turns = |path: String| Gauge::new(sys, path, (1.0, "rpm"), 0.0..=f64::from(FASTEST));
        let gauges =
            |inputs: &[String]| inputs.iter().map(|input| turns(chip.file(input))).collect();
        let duty = Watched::new(sys, &chip.duty_file(&fan.pwm));
        Turning { duty, own: gauges(&fan.tachometers), strays: gauges(&fan.strays) }
    };
    layout.fans.fans.iter().map(fan).collect()
}
