//! What the power inputs of chips measure, by chip and label, and which of them together are the
//! power of the server or of its processors.

use ebb_policy::units::Watts;

use crate::find::chips::{self, Of};
use crate::find::hwmon::{Chip, fault};
use crate::sys::Sys;

/// What a power input measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Measures {
    /// The whole server.
    Server,
    /// What a supply takes in: all supplies together are the server at the wall.
    Input,
    /// What a supply puts out: less than it takes in by its own loss.
    Output,
    /// A processor, or one of the rails that make it up.
    Cpu,
    /// Some other part; what a chip without a row measures.
    Part,
}

/// The least that a meter can say.
#[derive(Clone, Copy)]
enum Least {
    /// That of a server that runs.
    Running,
    /// The same, or nothing: a supply at rest.
    AtRest,
    /// Nothing.
    Any,
}

impl Least {
    fn allows(self, power: Watts) -> bool {
        match self {
            Self::Running => power >= LEAST,
            Self::AtRest => power >= LEAST || power == Watts(0.0),
            Self::Any => power >= Watts(0.0),
        }
    }
}

/// The power inputs of one driver.
struct Row {
    /// The kernel's driver.
    driver: &'static str,
    /// The names of its chips.
    chips: &'static [&'static str],
    /// Words in the labels of inputs, in lower case, and what those measure; the first that fits.
    /// One that ends in `#` is a whole label with a number.
    labels: &'static [(&'static str, Measures)],
    /// What an input with another label or none measures.
    others: Measures,
}

/// Meters of servers and processors, by how far they are to be believed: of each kind of meter the
/// first that answers is used.
const METERS: &[Row] = &[
    // One meter for the server; NVIDIA's Grace has one for each socket and part, named in
    // `power1_oem_info`.
    Row {
        driver: "acpi_power_meter",
        chips: &["power_meter"],
        labels: &[("cpu power socket", Measures::Cpu), ("socket", Measures::Part)],
        others: Measures::Server,
    },
    Row { driver: "ibmaem", chips: &["aem1", "aem2"], labels: &[], others: Measures::Server },
    Row {
        driver: "ibmpowernv",
        chips: &["ibmpowernv"],
        // "Chip 8" is a processor of POWER9, "Chip 8 Vdd" one of its rails
        // (`hw/occ-sensor.c` of OPAL's skiboot).
        labels: &[("system", Measures::Server), ("chip #", Measures::Cpu)],
        others: Measures::Part,
    },
    Row {
        driver: "occ (occ_p8_hwmon, occ_p9_hwmon)",
        chips: &["occ"],
        labels: &[("_system", Measures::Server), ("_proc", Measures::Cpu)],
        others: Measures::Part,
    },
    Row {
        driver: "macsmc_hwmon",
        chips: &["macsmc_hwmon"],
        labels: &[("total system power", Measures::Server)],
        others: Measures::Part,
    },
    // "power total" is what it puts out (`Documentation/hwmon/corsair-psu.rst`).
    Row { driver: "corsair-psu", chips: &["corsairpsu"], labels: &[], others: Measures::Output },
    Row {
        driver: "xgene-hwmon",
        chips: &["apm_xgene"],
        labels: &[("cpu power", Measures::Cpu)],
        others: Measures::Part,
    },
    // One for each socket (`drivers/platform/x86/amd/hsmp/hwmon.c`).
    Row { driver: "amd_hsmp", chips: &["amd_hsmp_hwmon"], labels: &[], others: Measures::Cpu },
    Row { driver: "fam15h_power", chips: &["fam15h_power"], labels: &[], others: Measures::Cpu },
    Row {
        driver: "zenpower",
        chips: &["zenpower"],
        labels: &[("svi2_p_", Measures::Cpu)],
        others: Measures::Part,
    },
];

/// Of supplies on PMBus: "pin", "pin1", "pout1" (`pmbus_core.c`), and what others write.
const SUPPLY: &[(&str, Measures)] = &[
    ("pin", Measures::Input),
    ("input", Measures::Input),
    ("pout", Measures::Output),
    ("output", Measures::Output),
];

/// No server takes more: twice what the largest single ones are supplied with.
pub const MOST: Watts = Watts(20_000.0);
/// No server takes less, and no supply but one at rest.
const LEAST: Watts = Watts(1.0);
/// A supply whose input has less is without one: direct current begins at 36 V, alternating at 90.
pub const LEAST_VOLTS: f64 = 30.0;
/// Alternating current has at least that; what has less beside it is fed by what it feeds.
const MAINS_VOLTS: f64 = 90.0;

/// What becomes of a meter that says nonsense.
const UNUSED: &str = "not used";
/// What becomes of one that says 0 W where no other one is used.
const LATER: &str = "not used until it says something else";

fn is_like(word: &str, label: &str) -> bool {
    let Some(start) = word.strip_suffix('#') else { return label.contains(word) };
    label.trim().strip_prefix(start).is_some_and(|number| number.parse::<u32>().is_ok())
}

fn measures(chip: &Chip, label: &str) -> Measures {
    let label = label.to_ascii_lowercase();
    let of = |labels: &[(&str, Measures)]| {
        labels.iter().find(|(word, _)| is_like(word, &label)).map(|(_, measures)| *measures)
    };
    match METERS.iter().find(|row| row.chips.contains(&&*chip.name)) {
        Some(row) => of(row.labels).unwrap_or(row.others),
        // A supply that does not say which side an input is on is believed for neither.
        None if chip.of == Of::Supply => of(SUPPLY).unwrap_or(Measures::Output),
        None => Measures::Part,
    }
}

/// Meters that are added up, and those that are not, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Meters {
    /// Files that count, in microwatts, or may do so later.
    pub files: Vec<String>,
    /// Files that do not: why, and what to do.
    pub left: Vec<(String, String)>,
}

impl Meters {
    /// Files that say what can be, or cannot be read now.
    pub fn sane(&self) -> impl Iterator<Item = &String> {
        self.files.iter().filter(|file| !self.left.iter().any(|(left, _)| left == *file))
    }

    /// Those of the whole server: its own meter, or what all its supplies take in, for what one
    /// counts the other counts as well.
    #[must_use]
    pub fn of_server(sys: &Sys, chips: &[Chip]) -> Self {
        let mut several = Vec::new();
        let kinds = METERS.iter().map(|row| {
            let own = chips.iter().filter(|chip| row.chips.contains(&&*chip.name));
            let mut files = first_inputs(sys, own, Measures::Server);
            if let count @ 2.. = files.len() {
                // Feeds to be added, or the same watts twice: each would be the whole.
                let why = format!(
                    "{count} meters (driver {}), and nothing says what each of them measures: \
                     not used; the management controller or an external meter may know",
                    row.driver
                );
                several.extend(files.drain(..).map(|file| (file, why.clone())));
            }
            (row.driver, files, Least::Running)
        });
        let (at_wall, behind) = at_wall(sys, chips);
        let mut partial = Vec::new();
        let mut supplies = first_inputs(sys, at_wall.iter().copied(), Measures::Input);
        // What one takes in that says nothing of it is missing in the sum.
        if let Some(silent) = at_wall.iter().find(|chip| is_silent(sys, chip)) {
            let (name, place) = (&silent.name, &silent.folder);
            let why = format!("a part without {name} (/{place}), which takes in power too");
            partial.extend(supplies.drain(..).map(|file| (file, why.clone())));
        }
        let mut found = Self::first_of(sys, kinds.chain([("pmbus", supplies, Least::AtRest)]));
        found.left.extend(several.into_iter().chain(partial).chain(behind));
        for chip in at_wall {
            let mut sides = chip.powers.iter().map(|(input, label)| (input, measures(chip, label)));
            let output = sides.clone().find(|(_, side)| *side == Measures::Output);
            if let (None, Some((output, _))) =
                (sides.find(|(_, side)| *side == Measures::Input), output)
            {
                let driver = chips::driver(&chip.name).unwrap_or("unknown");
                let label = chip.powers.iter().find(|(input, _)| input == output);
                let says = match label.is_none_or(|(_, label)| label.is_empty()) {
                    true => "does not say which side of the supply it measures",
                    false => "says what the supply puts out and not what it takes in",
                };
                let why = format!(
                    "{} (driver {driver}) {says}: not at the wall; the management controller or an \
                     external meter may know",
                    chip.name
                );
                found.left.push((chip.power_file(sys, output), why));
            }
        }
        found
    }

    /// Those of the processors of `sockets`, where nothing counts their energy: what fewer chips
    /// measure is a part.
    #[must_use]
    pub fn of_processors(sys: &Sys, chips: &[Chip], sockets: u16) -> Self {
        let mut part = Vec::new();
        let kinds = METERS.iter().map(|row| {
            let own = chips.iter().filter(|chip| row.chips.contains(&&*chip.name));
            let files = own.map(|chip| -> Vec<String> {
                let of = |(_, label): &&(String, String)| measures(chip, label) == Measures::Cpu;
                let own = chip.powers.iter().filter(of);
                own.map(|(input, _)| chip.power_file(sys, input)).collect()
            });
            let files: Vec<_> = files.filter(|files| !files.is_empty()).collect();
            let is_shared = row.chips.iter().any(|name| chips::is_shared(name));
            let (each, files) = (files.len(), files.concat());
            // One chip with inputs of all processors has one of each.
            let is_whole = if is_shared { files.len() } else { each } >= usize::from(sockets);
            if is_whole {
                return (row.driver, files, Least::Any);
            }
            let why = format!(
                "driver {} measures fewer than {sockets} sockets: a part, which stands for no \
                 whole",
                row.driver
            );
            part.extend(files.into_iter().map(|file| (file, why.clone())));
            (row.driver, Vec::new(), Least::Any)
        });
        let mut found = Self::first_of(sys, kinds);
        found.left.extend(part);
        found
    }

    /// The first kind of which any meter says something and none says nonsense, by driver, files,
    /// and the least that each of them can say. Where there is none, that of which a meter may say
    /// something later, be it in place of 0 W, as some say when a machine starts. Of several meters
    /// all are needed: a sum without one is a part.
    fn first_of(
        sys: &Sys,
        kinds: impl Iterator<Item = (&'static str, Vec<String>, Least)>,
    ) -> Self {
        let (mut left, mut silent) = (Vec::new(), Vec::new());
        // Of kinds that say nothing but 0 W: all meters, and those that say it.
        let mut zeros: Vec<(&str, Vec<String>, Vec<String>)> = Vec::new();
        for (driver, files, least) in kinds {
            let all = files.clone();
            let (mut sum, mut unknown) = (Watts(0.0), None);
            let (mut good, mut wrong, mut unread) = (Vec::new(), Vec::new(), Vec::new());
            for file in files {
                if let Some(fault) = fault(sys, &file) {
                    unknown = Some(file.clone());
                    left.push((file, format!("its driver (driver {driver}) reports {fault}")));
                    continue;
                }
                match sys.number::<i64>(&file).map(|micros| Watts(micros as f64 / 1e6)) {
                    Ok(power) if least.allows(power) && power <= MOST => {
                        sum += power;
                        good.push(file);
                    }
                    Ok(power) => {
                        // One at rest takes in nothing.
                        unknown = unknown.or_else(|| (power.0 != 0.0).then(|| file.clone()));
                        wrong.push((file, power));
                    }
                    Err(_) => unread.push(file),
                }
            }
            if sum <= Watts(0.0) && unknown.is_none() {
                good.extend(wrong.into_iter().map(|(file, _)| file));
                zeros.extend((!all.is_empty()).then_some((driver, all, good)));
                if silent.is_empty() {
                    silent = unread;
                }
                continue;
            }
            let said = |(file, power)| (file, nonsense(driver, power, UNUSED));
            left.extend(wrong.into_iter().map(said));
            if let Some(unknown) = unknown {
                let why = format!("a part without /{unknown}, which stands for no whole");
                left.extend(good.into_iter().chain(unread).map(|file| (file, why.clone())));
                continue;
            }
            // What cannot be read now is missing in the sum, which is absent until it can.
            good.append(&mut unread);
            // Those of a kind that is asked first are not: this one answers.
            let why = |file: &String| sys.number::<i64>(file).err().map(|why| why.to_string());
            left.extend(
                silent.into_iter().filter_map(|file: String| Some((file.clone(), why(&file)?))),
            );
            left.extend(zeros.into_iter().flat_map(|(driver, _, said)| zero(driver, said, UNUSED)));
            return Self { files: good, left };
        }
        for (driver, all, said) in zeros {
            let fate = if silent.is_empty() { LATER } else { UNUSED };
            left.extend(zero(driver, said, fate));
            if silent.is_empty() {
                silent = all;
            }
        }
        Self { files: silent, left }
    }
}

/// Whether a supply takes in power and says nothing of how much: it puts some out, or has voltage
/// at its input and says of neither side what it is.
fn is_silent(sys: &Sys, chip: &Chip) -> bool {
    let of = |side: Measures| {
        let mut own = chip.powers.iter().filter(move |(_, label)| measures(chip, label) == side);
        own.next().map(|(input, _)| sys.number::<i64>(chip.power_file(sys, input)).unwrap_or(0))
    };
    chip.of == Of::Supply
        && of(Measures::Input).is_none()
        && of(Measures::Output).map_or_else(|| volts_in(sys, chip).is_some(), |power| power > 0)
}

/// What a supply has at its input; `None` where that is not known, or nothing.
fn volts_in(sys: &Sys, chip: &Chip) -> Option<f64> {
    let input = chip.volts_in(sys).filter(|_| chip.of == Of::Supply)?;
    let millivolts: i64 = sys.number(chip.file(&input)).ok()?;
    Some(millivolts as f64 / 1e3).filter(|volts| *volts > 0.0)
}

/// The chips that may measure at the wall, and the inputs of others with the reason: on PMBus are
/// converters of the board as well as supplies, by the same names (`pmbus.rst`), and the voltage
/// that they take in tells them apart. One of 0 V is a supply whose feed is off.
fn at_wall<'a>(sys: &Sys, chips: &'a [Chip]) -> (Vec<&'a Chip>, Vec<(String, String)>) {
    let volts = |chip: &Chip| volts_in(sys, chip);
    let has_mains = chips.iter().filter_map(volts).any(|volts| volts >= MAINS_VOLTS);
    let least = if has_mains { MAINS_VOLTS } else { LEAST_VOLTS };
    let (behind, at_wall): (Vec<_>, Vec<_>) =
        chips.iter().partition(|chip| volts(chip).is_some_and(|volts| volts < least));
    let why = |chip: &Chip| {
        let volts = volts(chip).unwrap_or_default();
        let why = format!(
            "{} takes in {volts} V: a converter behind the supplies, not at the wall; the \
             management controller or an external meter may know",
            chip.name
        );
        Some((input_file(sys, chip)?, why))
    };
    let left = behind.into_iter().filter_map(why).collect();
    (at_wall, left)
}

/// The file of what a supply takes in.
pub(crate) fn input_file(sys: &Sys, chip: &Chip) -> Option<String> {
    first_inputs(sys, std::iter::once(chip), Measures::Input).pop()
}

/// One input of each chip that measures `what`: of several, such as the feeds of a supply and their
/// sum, the first is not counted again.
fn first_inputs<'a>(
    sys: &Sys,
    chips: impl Iterator<Item = &'a Chip>,
    what: Measures,
) -> Vec<String> {
    let file = |chip: &Chip| {
        let mut own = chip.powers.iter().filter(|(_, label)| measures(chip, label) == what);
        own.next().map(|(input, _)| chip.power_file(sys, input))
    };
    chips.filter_map(file).collect()
}

/// Why a reading is no power, and what becomes of its meter.
fn nonsense(driver: &str, power: Watts, fate: &str) -> String {
    format!(
        "{} W cannot be (driver {driver}): {fate}; an update of the firmware may mend it, the \
         management controller or an external meter may know",
        power.0
    )
}

/// The same of meters that say 0 W.
fn zero(driver: &str, files: Vec<String>, fate: &str) -> Vec<(String, String)> {
    files.into_iter().map(|file| (file, nonsense(driver, Watts(0.0), fate))).collect()
}
