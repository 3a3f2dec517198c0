//! What drives answer, byte by byte. Sections are those of the NVMe Base Specification 2.1.

use std::ops::RangeInclusive;

use ebb_nvme::identify::{Controller, PowerDescriptor};
use ebb_nvme::log::Smart;
use ebb_policy::PowerStateSpec;
use ebb_policy::units::{Celsius, Nanos, Watts};

/// Where a drive warns, in °C: it works at 50 by any maker's data sheet. Firmware says 0 °C or all
/// bits set where nobody has filled that in.
const LIMITS: RangeInclusive<f64> = 50.0..=150.0;
/// More than any drive draws: what a slot of PCI Express supplies (75 W, PCI Express Card
/// Electromechanical Specification); the largest form factor of drives has 70 W (E3.L 2T,
/// SFF-TA-1008).
const SLOT: Watts = Watts(75.0);
/// Zero kelvin.
const ZERO: f64 = 273.15;
/// Who a controller is (Identify Controller, 5.1.13.2.1).
#[derive(Debug, Clone, PartialEq)]
pub struct Identity {
    /// Serial number.
    pub serial: String,
    /// Model number.
    pub model: String,
    /// Its power states, by number; 0 W of one that says no power, or more than a drive can draw.
    pub states: Vec<PowerStateSpec>,
    /// The first of its states that says more than a drive can draw, and what it says.
    pub absurd: Option<(usize, Watts)>,
    /// What an idle drive draws in each of them, where it says so.
    pub idle: Vec<Option<Watts>>,
    /// Where it warns of its temperature (WCTEMP).
    pub warning: Option<Celsius>,
    /// Whether it takes a power limit (CTRATT bit 20, NVMe Base 2.3).
    pub limits_power: bool,
    /// Whether it can enter idle states by itself (APSTA).
    pub apst: bool,
}

impl Identity {
    /// Wake-ups of the idle states that it enters by itself, 0 of one that it does not state.
    pub fn idle_wakes(&self) -> Vec<Nanos> {
        let idle = self.states.iter().filter(|state| self.apst && !state.operational);
        idle.map(|state| state.exit).collect()
    }

    /// Its power states as caps: from one on that does not say its power (0, Figure 314), or says
    /// more than the one before (8.1.17 forbids that), nobody knows what they cap.
    pub fn caps(&self) -> Vec<PowerStateSpec> {
        let (mut says, mut most) = (true, Watts(f64::INFINITY));
        let cap = |state: &PowerStateSpec| {
            says &= state.max_power.0 > 0.0 && state.max_power <= most;
            most = state.max_power;
            PowerStateSpec { operational: state.operational && says, ..state.clone() }
        };
        self.states.iter().map(cap).collect()
    }

    /// What an operator should know of its power states.
    pub fn absurd_remark(&self) -> Option<String> {
        let (number, power) = self.absurd?;
        Some(format!(
            "its power state {number} says {power}, more than any drive draws (a slot supplies \
             {SLOT}): that state and those after it are no caps; see whether the drive's firmware \
             has an update, and state the most that it draws under [machine.drive_watts]"
        ))
    }

    /// The hottest that it may be: where it warns, if that is what a drive can have.
    pub fn hottest(&self) -> Option<Celsius> {
        self.warning.filter(|limit| LIMITS.contains(&limit.0))
    }

    /// Of an Identify Controller data structure.
    pub fn parse(data: &Controller) -> Self {
        let text =
            |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_matches(['\0', ' ']).to_owned();
        // NPSS is a number from 0, of at most 31.
        let descriptors = data.power.iter().take(usize::from(data.power_states) + 1);
        let mut states: Vec<_> = descriptors.clone().map(state).collect();
        let absurd = states.iter().position(|state| state.max_power > SLOT);
        let absurd = absurd.map(|number| (number, states[number].max_power));
        let all = states.iter_mut().filter(|state| state.max_power > SLOT);
        all.for_each(|state| state.max_power = Watts(0.0));
        let idle = descriptors.map(|one| scaled(one.idle_power.get(), one.idle_scale >> 6));
        Self {
            serial: text(&data.serial),
            model: text(&data.model),
            states,
            absurd,
            idle: idle.map(|power| power.filter(|power| *power <= SLOT)).collect(),
            warning: kelvin(data.warning_temperature.get()),
            limits_power: data.attributes.get() & 1 << 20 != 0,
            apst: data.power_transitions & 1 != 0,
        }
    }
}

/// A power state descriptor (Figure 314).
fn state(descriptor: &PowerDescriptor) -> PowerStateSpec {
    // MXPS: hundredths of a watt, or ten-thousandths.
    let unit = if descriptor.flags & 1 == 0 { 0.01 } else { 0.0001 };
    PowerStateSpec {
        max_power: Watts(f64::from(descriptor.max_power.get()) * unit),
        operational: descriptor.flags & 2 == 0,
        entry: Nanos::from_micros(descriptor.entry_latency.get().into()),
        exit: Nanos::from_micros(descriptor.exit_latency.get().into()),
    }
}

/// How a drive is (SMART / Health Information, 5.1.12.1.3).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Health {
    /// Critical warnings, a bit each.
    pub warnings: u8,
    /// Composite temperature.
    pub temperature: Option<Celsius>,
    /// Mean power of the last second, of drives that measure it.
    pub power: Option<Watts>,
}

impl Health {
    /// Of a log page.
    pub fn parse(page: &Smart) -> Self {
        Self {
            warnings: page.warning,
            temperature: kelvin(page.temperature.get()),
            power: scaled(page.interval_power.get(), page.interval_scale & 3),
        }
    }
}

/// A power limit as the feature has it: in hundredths of a watt.
pub fn power_limit(power: Watts) -> Option<u32> {
    let hundredths = (power.0 * 100.0).round();
    (1.0..=f64::from(u16::MAX)).contains(&hundredths).then_some(2 << 16 | hundredths as u32)
}

/// The power limit that the feature says; none where it says none.
pub fn limited(value: u32) -> Option<Watts> {
    scaled(value as u16, (value >> 16) as u8 & 3)
}

/// A temperature; zero where there is none.
fn kelvin(value: u16) -> Option<Celsius> {
    (value != 0).then(|| Celsius(f64::from(value) - ZERO))
}

/// A power in the unit of its scale: none where it is not reported.
fn scaled(value: u16, scale: u8) -> Option<Watts> {
    let unit = match scale {
        1 => 0.0001,
        2 => 0.01,
        _ => return None,
    };
    Some(Watts(f64::from(value) * unit)).filter(|power| power.0 > 0.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use zerocopy::FromBytes;

    use super::*;

    /// Bytes of the specification's structures, so that the layout of ours is tested as well.
    const IDENTIFY: usize = 4096;
    const HEALTH: usize = 512;
    const STATES: usize = 2048;
    const STATE: usize = 32;

    fn identity(bytes: &[u8; IDENTIFY]) -> Identity {
        Identity::parse(&Controller::read_from_bytes(bytes).unwrap())
    }

    fn health(bytes: &[u8; HEALTH]) -> Health {
        Health::parse(&Smart::read_from_bytes(bytes).unwrap())
    }

    /// As a Samsung PM9A3 answers: five states, of which two do no I/O.
    fn drive() -> [u8; IDENTIFY] {
        let mut bytes = [0; IDENTIFY];
        bytes[4..24].copy_from_slice(b"S64GNE0R100001      ");
        bytes[24..64].copy_from_slice(b"SAMSUNG MZQL23T8HCLS-00A07              ");
        bytes[263] = 2;
        bytes[265] = 1;
        bytes[266..268].copy_from_slice(&345_u16.to_le_bytes());
        for (number, (power, flags, entry, exit)) in
            [(1300_u16, 0, 70_u32, 70_u32), (800, 0, 70, 70), (35_000, 3, 5000, 10_000)]
                .into_iter()
                .enumerate()
        {
            let at = STATES + number * STATE;
            bytes[at..at + 2].copy_from_slice(&power.to_le_bytes());
            bytes[at + 3] = flags;
            bytes[at + 4..at + 8].copy_from_slice(&entry.to_le_bytes());
            bytes[at + 8..at + 12].copy_from_slice(&exit.to_le_bytes());
        }
        bytes[STATES + 16..STATES + 18].copy_from_slice(&350_u16.to_le_bytes());
        bytes[STATES + 18] = 2 << 6;
        bytes
    }

    #[test]
    fn an_identity_is_read_as_the_specification_has_it() {
        let found = identity(&drive());
        assert_eq!(found.serial, "S64GNE0R100001");
        assert_eq!(found.model, "SAMSUNG MZQL23T8HCLS-00A07");
        assert_eq!(found.warning, Some(Celsius(345.0 - ZERO)));
        let states: Vec<_> =
            found.states.iter().map(|state| (state.max_power.0, state.operational)).collect();
        assert_eq!(states, [(13.0, true), (8.0, true), (3.5, false)]);
        assert_eq!(found.states[2].exit, Nanos::from_millis(10));
        assert_eq!(found.idle, [Some(Watts(3.5)), None, None]);
        assert!(found.apst && !identity(&[0; IDENTIFY]).apst);
    }

    /// With the one all fans would be at full speed for ever, with the other none for the drive.
    #[test]
    fn a_limit_that_no_drive_has_is_none() {
        for (kelvin, hottest) in
            [(0, None), (273, None), (u16::MAX, None), (345, Some(72.0)), (358, Some(85.0))]
        {
            let mut bytes = drive();
            bytes[266..268].copy_from_slice(&kelvin.to_le_bytes());
            let found = identity(&bytes).hottest().map(|limit| limit.0.round());
            assert_eq!(found, hottest, "{kelvin} K");
        }
    }

    /// What a drive that says 0 W draws there, it does not say.
    #[test]
    fn a_state_that_does_not_say_its_power_caps_nothing() {
        let mut bytes = drive();
        let caps = |bytes: &[u8; IDENTIFY]| {
            let caps = identity(bytes).caps();
            caps.iter().map(|state| state.operational).collect::<Vec<_>>()
        };
        assert_eq!(caps(&bytes), [true, true, false]);
        bytes[STATES + STATE..STATES + STATE + 2].copy_from_slice(&1301_u16.to_le_bytes());
        assert_eq!(caps(&bytes), [true, false, false], "more than the first");
        bytes[STATES + STATE..STATES + STATE + 2].fill(0);
        assert_eq!(caps(&bytes), [true, false, false]);
        assert!(identity(&bytes).states[1].operational, "it does I/O all the same");
    }

    /// 655.35 W are all bits set. Neither does a budget count with that, nor is it a cap.
    #[test]
    fn a_state_of_more_than_any_drive_draws_says_nothing() {
        let mut bytes = drive();
        bytes[STATES..STATES + 2].fill(0xff);
        bytes[STATES + 16..STATES + 18].fill(0xff);
        let found = identity(&bytes);
        assert_eq!(found.states[0].max_power, Watts(0.0));
        assert_eq!(found.states[1].max_power, Watts(8.0));
        assert!(found.caps().iter().all(|state| !state.operational));
        assert_eq!(found.idle[0], None);
        let remark = found.absurd_remark().unwrap();
        assert!(remark.starts_with("its power state 0 says 655.35 W, more than any"), "{remark}");
        assert!(remark.contains("[machine.drive_watts]"), "{remark}");
        // E3.L and cards are large, and believed.
        for (hundredths, believed) in [(4000_u16, true), (7000, true), (7600, false)] {
            bytes[STATES..STATES + 2].copy_from_slice(&hundredths.to_le_bytes());
            assert_eq!(identity(&bytes).absurd.is_none(), believed, "{hundredths}");
        }
        // In the finer scale all bits set are 6.5 W.
        bytes[STATES..STATES + 2].fill(0xff);
        bytes[STATES + 3] = 1;
        assert_eq!(identity(&bytes).absurd, None);
    }

    #[test]
    fn health_is_read_as_the_specification_has_it() {
        let mut bytes = [0; HEALTH];
        assert_eq!(health(&bytes).temperature, None);
        assert_eq!(health(&bytes).power, None);
        bytes[1..3].copy_from_slice(&311_u16.to_le_bytes());
        bytes[240..242].copy_from_slice(&725_u16.to_le_bytes());
        bytes[242] = 2;
        let found = health(&bytes);
        assert_eq!(found.temperature, Some(Celsius(311.0 - ZERO)));
        assert_eq!(found.power, Some(Watts(7.25)));
    }

    proptest! {
        #[test]
        fn no_answer_panics(bytes in proptest::collection::vec(any::<u8>(), IDENTIFY)) {
            let bytes: [u8; IDENTIFY] = bytes.try_into().unwrap();
            let found = identity(&bytes);
            prop_assert!((1..=32).contains(&found.states.len()));
            let mut page = [0; HEALTH];
            page.copy_from_slice(&bytes[..HEALTH]);
            let _ = health(&page);
        }
    }
}
