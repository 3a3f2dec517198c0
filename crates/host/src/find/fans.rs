//! Fans: which PWM drives which, and which of them are Ebb's to steer. `ebb probe`, `ebb run`, its
//! samples and profiles all count the fans that this finds.
//!
//! What the operator names in the configuration is what there is. Without that only fans of the
//! board: not those of a graphics card, a network card or a power supply, which cool what Ebb does
//! not sense; no pump; none without a tachometer that turns, for nobody would see it stop.

use std::path::Path;

use ebb_policy::units::Rpm;

use crate::find::chips::{self, COOLANT, Of};
use crate::find::hwmon::{Chip, fault, is_of};
use crate::find::machine::Machine;
use crate::sys::{Absent, Sys};

/// Drivers of liquid coolers: their fans follow the coolant.
const LIQUID: [&str; 9] = [
    "nzxtkraken2",
    "x53",
    "z53",
    "kraken2023",
    "kraken2023elite",
    "d5next",
    "leakshield",
    "gigabyte_waterforce",
    "rog_ryujin",
];
/// Words in the labels of fans of power supplies.
const SUPPLY: [&str; 3] = ["psu", "power supply", "pwr supply"];
/// Those of a graphics card's fan (dell-smm: "Video Fan"; alienware-wmi: "GPU Fan").
const GRAPHICS: [&str; 4] = ["gpu", "video", "graphics", "vga"];
/// Those of a chipset's fan (dell-smm: "Chipset Fan").
const CHIPSET: [&str; 2] = ["chipset", "pch"];
/// Classes of PCI functions that belong to a board and hold its sensors: memory, bridges, system
/// peripherals, communication and serial buses, signal processing (`include/linux/pci_ids.h`).
const BOARD: [&str; 6] = ["0x05", "0x06", "0x07", "0x08", "0x0c", "0x11"];

/// A fan as the operator names it: `[[machine.fans]]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StatedFan {
    /// The chip's driver, such as `nct6798`.
    pub chip: String,
    /// Its device, such as `nct6775.656`, where two chips have one driver.
    pub device: Option<String>,
    /// Such as `pwm2`.
    pub pwm: String,
    /// Such as `fan2`; several where one PWM drives several fans, none where nobody sees it turn.
    pub tachometers: Vec<String>,
    /// What the operator calls it.
    pub label: String,
}

/// One fan, or several that one PWM drives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fan {
    /// Its chip, by its place among all.
    pub chip: usize,
    /// Such as `pwm1`.
    pub pwm: String,
    /// Such as `fan1`: of each fan that it drives, as far as that is known.
    pub tachometers: Vec<String>,
    /// Those that turn and may be its own, for no PWM has their numbers: seen to stop alone.
    pub strays: Vec<String>,
    /// The chip's label of the fan, or the operator's.
    pub label: String,
    /// Why Ebb does not steer it; `None` where it may.
    pub left: Option<String>,
    /// Whether that is only that nobody knows which tachometer is its own.
    pub doubt: bool,
}

/// All fans of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fans {
    /// Those that are counted: `fan0` is the first of them.
    pub fans: Vec<Fan>,
    /// Those that are left alone.
    pub apart: Vec<Fan>,
    /// What the configuration names and is not here.
    pub missing: Vec<String>,
}

impl Fans {
    /// Those of `machine`, as `stated` in the configuration.
    #[must_use]
    pub fn found(machine: &Machine, stated: &[StatedFan]) -> Self {
        let all =
            machine.chips.iter().enumerate().flat_map(|(at, chip)| of_chip(machine, at, chip));
        let mut all: Vec<_> = all.collect();
        if stated.is_empty() {
            // One that is counted may still not be steered: one reason does not renumber the rest.
            let (apart, mut fans): (Vec<_>, _) =
                all.into_iter().partition(|fan| fan.left.is_some());
            fans.iter_mut().for_each(|fan| fan.check(machine));
            return Self { fans, apart, missing: Vec::new() };
        }
        let mut found = Self::default();
        for one in stated {
            let is_it = |fan: &Fan| {
                let chip = &machine.chips[fan.chip];
                let is_its = |stated: &str| is_of(&machine.sys, &chip.folder, stated);
                let of = one.device.as_deref().is_none_or(is_its);
                fan.pwm == one.pwm && chip.name == one.chip && of
            };
            let Some(at) = all.iter().position(is_it) else {
                let chip = chips::shown(&one.chip, &[one.device.as_deref().unwrap_or_default()]);
                found.missing.push(format!("{} of {chip}", one.pwm));
                continue;
            };
            let mut fan = all.remove(at);
            fan.tachometers.clone_from(&one.tachometers);
            fan.strays.clear();
            if !one.label.is_empty() {
                fan.label.clone_from(&one.label);
            }
            fan.left = settable(machine, &fan).or_else(|| lacks(machine, &fan));
            found.fans.push(fan);
        }
        let left = "the configuration names other fans ([[machine.fans]])";
        all.iter_mut().for_each(|fan| fan.left = Some(left.to_owned()));
        found.apart = all;
        found
    }
}

impl Fans {
    /// What is not steered, by reason, and what nobody watches.
    #[must_use]
    pub fn remarks(&self, machine: &Machine) -> Vec<String> {
        let counted = self.fans.iter().enumerate();
        let counted = counted.map(|(at, fan)| (format!("fan{at} ({})", fan.name(machine)), fan));
        let counted: Vec<(String, &Fan)> = counted.collect();
        let mut reasons: Vec<(String, String)> = Vec::new();
        let all = counted.iter().map(|(name, fan)| (name.clone(), *fan));
        for (name, fan) in all.chain(self.apart.iter().map(|fan| (fan.name(machine), fan))) {
            let Some(left) = &fan.left else { continue };
            match reasons.iter_mut().find(|(reason, _)| reason == left) {
                Some((_, names)) => names.push_str(&format!(", {name}")),
                None => reasons.push((left.clone(), name)),
            }
        }
        let left =
            reasons.into_iter().map(|(reason, names)| format!("{names}: left alone, {reason}"));
        let missing = self.missing.iter().map(|name| {
            format!("machine.fans: {name} is not here; ebb probe --fans shows what is")
        });
        let blind =
            counted.iter().filter(|(_, fan)| fan.left.is_none() && fan.tachometers.is_empty());
        let blind =
            blind.map(|(name, _)| format!("{name}: no tachometer, nobody would see it stop"));
        let strays = counted.iter().filter(|(_, fan)| fan.left.is_none());
        let strays = strays.filter_map(|(name, fan)| Some(format!("{name}: {}", fan.doubtful()?)));
        left.chain(missing).chain(blind).chain(strays).collect()
    }

    /// How fast all turn, and the file that says so: the counted fans by their numbers, other
    /// tachometers by their chip.
    pub(crate) fn speeds(&self, machine: &Machine) -> Vec<(String, String, Result<Rpm, Absent>)> {
        let mut all = Vec::new();
        let mut taken = Vec::new();
        for (number, fan) in self.fans.iter().enumerate() {
            let Some((file, speed)) = fan.slowest(machine) else { continue };
            all.push((format!("fan{number}"), file, speed));
            taken.extend(fan.tachometers.iter().map(|input| (fan.chip, input.as_str())));
        }
        for (at, chip) in machine.chips.iter().enumerate() {
            let of = chips::shown(&chip.name, &[chip.device.as_deref().unwrap_or_default()]);
            let others = chip.fans.iter().filter(|fan| !taken.contains(&(at, fan.as_str())));
            let one = |fan: &String| {
                (format!("{fan} of {of}"), chip.file(fan), chip.speed(&machine.sys, fan))
            };
            all.extend(others.map(one));
        }
        all
    }
}

impl Fan {
    /// How a person would find it.
    #[must_use]
    pub fn name(&self, machine: &Machine) -> String {
        let chip = &machine.chips[self.chip];
        let device = chip.device.as_deref().unwrap_or_default();
        format!("{} of {}", self.pwm, chips::shown(&chip.name, &[device, &self.label]))
    }

    /// How fast it turns, and the file that says so: the slowest of the fans that it drives does,
    /// so that one that stands still is seen. `None` where it has no tachometer.
    fn slowest(&self, machine: &Machine) -> Option<(String, Result<Rpm, Absent>)> {
        let chip = &machine.chips[self.chip];
        let all = self.tachometers.iter();
        let read = all.map(|input| (chip.file(input), chip.speed(&machine.sys, input)));
        // One that says nothing is the slowest.
        let speed = |one: &Result<Rpm, Absent>| one.as_ref().map_or(-1.0, |speed| speed.0);
        read.min_by(|(_, a), (_, b)| speed(a).total_cmp(&speed(b)))
    }

    /// How fast it turns, by the slowest of the fans that it drives; still where one stands still
    /// that may be its own. `None` where it has no tachometer.
    #[must_use]
    pub fn speed(&self, machine: &Machine) -> Option<Result<Rpm, Absent>> {
        let (_, speed) = self.slowest(machine)?;
        let turns = |input: &String| machine.chips[self.chip].speed(&machine.sys, input);
        let stands = self.strays.iter().any(|input| turns(input) == Ok(Rpm(0.0)));
        Some(if stands { Ok(Rpm(0.0)) } else { speed })
    }

    /// That nobody knows whether it drives further fans.
    #[must_use]
    pub fn doubtful(&self) -> Option<String> {
        (!self.strays.is_empty()).then(|| {
            format!(
                "it may drive {} as well, and counts as stopped where one of them stops: ebb \
                 probe --fans --sweep finds out, and [[machine.fans]] says so",
                self.strays.join(", ")
            )
        })
    }

    /// Sees whether one of the board could be set back, and whether its tachometer is a guess.
    fn check(&mut self, machine: &Machine) {
        self.left = settable(machine, self);
        if self.left.is_none() && is_guess(&machine.chips[self.chip]) {
            self.doubt = true;
            self.left = Some(format!(
                "that {} is its tachometer is a guess: ebb probe --fans --sweep finds out, and \
                 [[machine.fans]] says so",
                self.tachometers.first().map_or("none", String::as_str)
            ));
        }
    }

    /// The file of its mode, which not every chip has.
    #[must_use]
    pub fn mode_file(&self, machine: &Machine) -> Option<String> {
        let file = format!("{}_enable", machine.chips[self.chip].duty_file(&self.pwm));
        machine.sys.has(&file).then_some(file)
    }
}

/// The number in a name such as `pwm2`.
fn number(name: &str) -> &str {
    name.trim_start_matches(|c: char| !c.is_ascii_digit())
}

/// The fans of one chip, each with the reason for which it is no server's fan.
fn of_chip(machine: &Machine, at: usize, chip: &Chip) -> Vec<Fan> {
    let label = |tachometer: &Option<String>| {
        let file = |fan: &String| format!("{}/{fan}_label", chip.folder);
        let text = tachometer.as_ref().and_then(|fan| machine.sys.text(file(fan)).ok());
        text.unwrap_or_default()
    };
    let (tachometers, strays) = (pairs(chip), strays(machine, chip));
    let fans = chip.pwms.iter().zip(tachometers).map(|(pwm, tachometer)| {
        let (label, pwm) = (label(&tachometer), pwm.clone());
        let tachometers = tachometer.into_iter().collect();
        Fan { chip: at, pwm, tachometers, strays: strays.clone(), label, left: None, doubt: false }
    });
    let foreign = foreign(machine, chip);
    fans.map(|mut fan| {
        let no_server_s = foreign.or_else(|| labelled(&fan));
        let unseen = unseen(machine, chip, &fan);
        (fan.doubt, fan.left) =
            (no_server_s.is_none() && unseen.is_some(), no_server_s.or(unseen).map(str::to_owned));
        fan
    })
    .collect()
}

/// The tachometer of each PWM: the one of its number, or, as a guess, the one of its place.
fn pairs(chip: &Chip) -> Vec<Option<String>> {
    let own = |pwm: &String| chip.fans.iter().find(|fan| number(fan) == number(pwm)).cloned();
    if is_guess(chip) {
        return chip.fans.iter().cloned().map(Some).collect();
    }
    chip.pwms.iter().map(own).collect()
}

/// The tachometers that turn and whose numbers no PWM has: each is of a fan that nothing steers, or
/// of a wall of fans that one of the PWMs drives.
fn strays(machine: &Machine, chip: &Chip) -> Vec<String> {
    let is_own = |fan: &String| chip.pwms.iter().any(|pwm| number(pwm) == number(fan));
    let turns = |fan: &String| chip.speed(&machine.sys, fan).is_ok_and(|speed| speed.0 > 0.0);
    if is_guess(chip) {
        return Vec::new();
    }
    chip.fans.iter().filter(|fan| !is_own(fan) && turns(fan)).cloned().collect()
}

/// Whether a chip has as many tachometers as PWMs, and they are numbered otherwise: then equal
/// numbers say nothing either.
fn is_guess(chip: &Chip) -> bool {
    let has_own = |pwm: &String| chip.fans.iter().any(|fan| number(fan) == number(pwm));
    chip.fans.len() == chip.pwms.len() && !chip.pwms.iter().all(has_own)
}

/// Why no fan of a chip is a server's: whom its device belongs to.
fn foreign(machine: &Machine, chip: &Chip) -> Option<&'static str> {
    let class = pci_class(&machine.sys, &chip.folder);
    let class = class.as_deref().unwrap_or_default();
    let has_drm = machine.sys.has(format!("{}/device/drm", chip.folder));
    if chip.of == Of::Gpu || has_drm || class.starts_with("0x03") {
        return Some("a graphics card's: it cools what ebb does not sense");
    }
    if chip.of == Of::Nic || class.starts_with("0x02") {
        return Some("a network card's: it cools what ebb does not sense");
    }
    if !class.is_empty() && !BOARD.iter().any(|board| class.starts_with(board)) {
        return Some("an add-in card's: it cools what ebb does not sense");
    }
    if chip.of == Of::Supply || !chip.powers.is_empty() {
        return Some(
            "a power supply's, a card's or a hub's: its chip measures power as well; \
             [[machine.fans]] can name one of the server",
        );
    }
    if LIQUID.contains(&chip.name.as_str()) {
        return Some("a liquid cooler's: it follows the coolant");
    }
    chip.is_hid().then_some(
        "a cooler's or a hub's on USB: what hangs there may be a pump; [[machine.fans]] can name a \
         fan",
    )
}

/// Why one fan of a board's chip is no server's, by its label.
fn labelled(fan: &Fan) -> Option<&'static str> {
    let label = fan.label.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| label.contains(word));
    let is_aio =
        label.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word.starts_with("aio"));
    if has(&COOLANT) || is_aio {
        return Some("a pump's, by its label");
    }
    if has(&GRAPHICS) {
        return Some("a graphics card's, by its label: it cools what ebb does not sense");
    }
    if has(&CHIPSET) {
        return Some("a chipset's, by its label: it cools what ebb does not sense");
    }
    has(&SUPPLY).then_some("a power supply's, by its label")
}

/// Why nobody would see it stop.
fn unseen(machine: &Machine, chip: &Chip, fan: &Fan) -> Option<&'static str> {
    let Some(tachometer) = fan.tachometers.first() else {
        return Some("no tachometer has its number: nobody would see it stop");
    };
    match chip.speed(&machine.sys, tachometer) {
        Ok(speed) if speed.0 > 0.0 => None,
        Ok(_) => Some("its tachometer reads 0: nothing turns there"),
        Err(_) if fault(&machine.sys, &chip.file(tachometer)).is_some() => {
            Some("its tachometer has a fault: nobody would see it stop")
        }
        Err(_) => Some("its tachometer cannot be read: nobody would see it stop"),
    }
}

/// That the tachometer which the operator names is not there.
fn lacks(machine: &Machine, fan: &Fan) -> Option<String> {
    let known = &machine.chips[fan.chip].fans;
    let missing = fan.tachometers.iter().find(|one| !known.contains(one))?;
    Some(format!("its chip has no {missing}: ebb probe --fans shows what there is"))
}

/// Why a fan could not be set back: its mode and its duty are one thing.
fn settable(machine: &Machine, fan: &Fan) -> Option<String> {
    let chip = &machine.chips[fan.chip];
    let is_like = |one: &&Chip| (&one.name, &one.device) == (&chip.name, &chip.device);
    if machine.chips.iter().filter(is_like).count() > 1 {
        return Some("two chips have this name and device: nothing tells them apart".to_owned());
    }
    let (sys, mode) = (&machine.sys, fan.mode_file(machine));
    // One switch may be that of all fans, such as dell-smm's, which can only be written.
    let modes = match &mode {
        Some(mode) => vec![mode.clone()],
        None => {
            let all = chip.pwms.iter().map(|pwm| format!("{}_enable", chip.duty_file(pwm)));
            all.filter(|file| sys.has(file)).collect()
        }
    };
    let mut files = std::iter::once(chip.duty_file(&fan.pwm)).chain(modes);
    let unset = files.find_map(|file| sys.settable(&file).err());
    let unread = || chip.duty(sys, &fan.pwm).err();
    let unknown = || mode.and_then(|mode| sys.number::<u8>(mode).err());
    Some(unset.or_else(unread).or_else(unknown)?.to_string())
}

/// The class of the PCI function that a chip is part of, such as `0x030000`.
fn pci_class(sys: &Sys, folder: &str) -> Option<String> {
    let root = &sys.path("").canonicalize().ok()?;
    let device = sys.path(format!("{folder}/device")).canonicalize();
    let device = device.or_else(|_| sys.path(folder).canonicalize()).ok()?;
    let above = device.ancestors().map_while(|above| above.strip_prefix(root).ok());
    let class = |above: &Path| sys.text(above.join("class")).ok().filter(|it| it.starts_with("0x"));
    above.into_iter().find_map(class)
}
