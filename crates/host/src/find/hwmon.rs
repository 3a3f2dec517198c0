//! Temperatures, fans and power meters (`Documentation/hwmon/sysfs-interface.rst`).

use std::ops::RangeInclusive;
use std::path::Path;

use ebb_policy::units::{Celsius, Rpm};

use crate::find::chips::{
    self, AIR, COOLANT, ELSEWHERE, FASTEST, INLETS, LIMITS, Of, TEMPERATURES,
};
use crate::find::identity::{AT, unplaced};
use crate::sys::{Absent, Sys};

/// Where Linux has its chips.
pub const CHIPS: &str = "sys/class/hwmon";

/// One chip. Its number changes from start to start; its name and device do not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chip {
    /// The folder of its files.
    pub folder: String,
    /// The driver's name, such as `coretemp`.
    pub name: String,
    /// What it belongs to.
    pub of: Of,
    /// The device, such as `nvme0` or `coretemp.1`.
    pub device: Option<String>,
    /// Temperature inputs, such as `temp1`, with their labels.
    pub temperatures: Vec<(String, String)>,
    /// Fans with a tachometer, such as `fan1`.
    pub fans: Vec<String>,
    /// Fans that can be steered, such as `pwm1`.
    pub pwms: Vec<String>,
    /// Power inputs, such as `power1`, with their labels.
    pub powers: Vec<(String, String)>,
}

/// Where the driver says whether the sensor of an input is broken or not connected.
pub(crate) fn fault_file(input: &str) -> String {
    format!("{}_fault", input.rsplit_once('_').map_or(input, |(input, _)| input))
}

/// That it says so of the file of an input.
pub(crate) fn fault(sys: &Sys, input: &str) -> Option<String> {
    let file = fault_file(input);
    let is_one = sys.number::<u32>(&file).is_ok_and(|fault| fault != 0);
    is_one.then(|| format!("a fault, by {}", file.rsplit('/').next().unwrap_or_default()))
}

/// The device of a chip, by a name that it has each time it comes: where it is plugged in stands
/// for the number of a bus, or of the coming of what is on it, both of which change.
fn device(sys: &Sys, hwmon: &str) -> Option<String> {
    let link = sys.link(format!("{hwmon}/device"))?;
    let place = || sys.path(format!("{hwmon}/device")).canonicalize().ok();
    // Bus, vendor, product, number (`0003:1E71:170E.0004`; `drivers/hid/hid-core.c`).
    if let Some(hid) = hid(&link) {
        let port = place().and_then(|place| file_name(place.parent()?));
        return Some(hid.to_owned() + &port.map(|port| format!("{AT}{port}")).unwrap_or_default());
    }
    // Bus and address (`3-0058`; `drivers/i2c/i2c-core-base.c`).
    if let Some((bus, address)) = link.split_once('-')
        && bus.parse::<u32>().is_ok()
        && let Some(bus) = place().and_then(|place| i2c_bus(&place))
    {
        return Some(format!("{address}{AT}{bus}"));
    }
    Some(link)
}

fn file_name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

/// The bus of a device on I²C: the device that has it, and which of its buses it is, through
/// multiplexers too. A driver registers the buses of a device in their order.
fn i2c_bus(device: &Path) -> Option<String> {
    let number = |path: &Path| file_name(path)?.strip_prefix("i2c-")?.parse::<u32>().ok();
    let mut which = Vec::new();
    let mut owner = None;
    for bus in device.ancestors().skip(1) {
        let (Some(own), Some(parent)) = (number(bus), bus.parent()) else { continue };
        let others = parent.read_dir().ok()?.flatten().filter_map(|one| number(&one.path()));
        which.insert(0, others.filter(|other| *other < own).count().to_string());
        owner = file_name(parent);
    }
    Some(format!("{}, bus {}", owner?, which.join(".")))
}

/// Bus, vendor and product of such a name.
fn hid(name: &str) -> Option<&str> {
    let own = unplaced(name).split('.').next()?;
    let parts: Vec<_> = own.split(':').collect();
    let is_hex = |part: &&str| part.len() == 4 && part.bytes().all(|b| b.is_ascii_hexdigit());
    (parts.len() == 3 && parts.iter().all(is_hex)).then_some(own)
}

/// Whether the chip in `folder` is of the `stated` device: by that name, by the kernel's of today,
/// or on USB by a number that it once had.
pub(crate) fn is_of(sys: &Sys, folder: &str, stated: &str) -> bool {
    let hwmon = folder.strip_suffix("/device").unwrap_or(folder);
    let own = device(sys, hwmon);
    let once = || {
        stated.contains('.') && hid(stated).is_some() && own.as_deref().and_then(hid) == hid(stated)
    };
    own.as_deref() == Some(stated)
        || sys.link(format!("{hwmon}/device")).as_deref() == Some(stated)
        || once()
}

impl Chip {
    /// Whether it is on USB.
    pub(crate) fn is_hid(&self) -> bool {
        self.device.as_deref().is_some_and(|device| hid(device).is_some())
    }

    /// All chips.
    #[must_use]
    pub fn found(sys: &Sys) -> Vec<Self> {
        let chips = sys.numbered(CHIPS, "hwmon").into_iter();
        chips.filter_map(|chip| Self::at(sys, &format!("{CHIPS}/{chip}"))).collect()
    }

    /// Its files are where its name is: drivers that say no name to the kernel, such as that of
    /// ACPI power meters before 2025, have all of them in the folder of the device, where
    /// libsensors looks for them too.
    pub(crate) fn at(sys: &Sys, hwmon: &str) -> Option<Self> {
        let folders = [hwmon.to_owned(), format!("{hwmon}/device")];
        let named = |folder: String| Some((sys.text(format!("{folder}/name")).ok()?, folder));
        let (name, folder) = folders.into_iter().find_map(named)?;
        let inputs = |prefix: &str, suffix: &str| -> Vec<String> {
            let names = sys.names(&folder).into_iter();
            let input = |name: String| {
                let input = name.strip_suffix(suffix)?.to_owned();
                let number = input.strip_prefix(prefix)?;
                let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
                (is_number && !number.is_empty()).then_some(input)
            };
            names.filter_map(input).collect()
        };
        let label = |input: String| {
            // The second is what ACPI power meters have.
            let text = |what| sys.text(format!("{folder}/{input}_{what}")).ok();
            let label = ["label", "oem_info"].into_iter().find_map(text);
            (input, label.unwrap_or_default())
        };
        // A battery's is not what the server takes (`Documentation/hwmon/acpi_power_meter.rst`).
        let is_battery = |input: &String| {
            sys.number::<u8>(format!("{folder}/{input}_is_battery")).is_ok_and(|is| is != 0)
        };
        let mut powers = inputs("power", "_average");
        for input in inputs("power", "_input") {
            if !powers.contains(&input) {
                powers.push(input);
            }
        }
        powers.retain(|input| !is_battery(input));
        Some(Self {
            of: chips::of(&name),
            device: device(sys, hwmon),
            temperatures: inputs("temp", "_input").into_iter().map(label).collect(),
            fans: inputs("fan", "_input"),
            pwms: inputs("pwm", ""),
            powers: powers.into_iter().map(label).collect(),
            folder,
            name,
        })
    }

    /// Whether it is still this chip that has its folder.
    pub(crate) fn is_there(&self, sys: &Sys) -> bool {
        let hwmon = self.folder.strip_suffix("/device").unwrap_or(&self.folder);
        let now = Self::at(sys, hwmon);
        now.is_some_and(|now| {
            now.folder == self.folder && now.name == self.name && now.device == self.device
        })
    }

    /// The file of what an input measures.
    #[must_use]
    pub fn file(&self, input: &str) -> String {
        format!("{}/{input}_input", self.folder)
    }

    /// A temperature.
    ///
    /// # Errors
    /// Why there is none: what a sensor says that is not connected is no temperature either.
    pub fn temperature(&self, sys: &Sys, input: &str) -> Result<Celsius, Absent> {
        self.celsius(sys, input, &TEMPERATURES)
    }

    /// The temperature of the air at the inlet.
    ///
    /// # Errors
    /// Why there is none.
    pub fn air(&self, sys: &Sys, input: &str) -> Result<Celsius, Absent> {
        self.celsius(sys, input, &INLETS)
    }

    fn celsius(
        &self,
        sys: &Sys,
        input: &str,
        good: &RangeInclusive<f64>,
    ) -> Result<Celsius, Absent> {
        let file = self.file(input);
        let celsius = sys.number::<i64>(&file)? as f64 / 1e3;
        if let Some(fault) = fault(sys, &file) {
            return Err(sys.nonsense(file, &fault, "what a good sensor says"));
        }
        if !good.contains(&celsius) {
            return Err(sys.nonsense(file, &format!("{celsius} °C"), "what a good sensor says"));
        }
        Ok(Celsius(celsius))
    }

    /// Where the hardware slows itself down by this input; `None` where the chip does not say.
    #[must_use]
    pub fn throttle(&self, sys: &Sys, input: &str) -> Option<Celsius> {
        self.limit(sys, input).map(|(_, limit)| limit).filter(|limit| self.can_be(*limit))
    }

    /// The file of that limit, and why it is not used, where it is none that a processor can have.
    pub(crate) fn false_limit(&self, sys: &Sys, input: &str) -> Option<(String, String)> {
        let (file, limit) = self.limit(sys, input).filter(|(_, limit)| !self.can_be(*limit))?;
        let why = format!(
            "{} °C is no limit of a processor: not used, so that no limit of this sensor is known; \
             an update of the firmware may mend it",
            limit.0
        );
        Some((file, why))
    }

    fn can_be(&self, limit: Celsius) -> bool {
        let limits = if self.of == Of::Cpu { &LIMITS } else { &TEMPERATURES };
        limits.contains(&limit.0)
    }

    fn limit(&self, sys: &Sys, input: &str) -> Option<(String, Celsius)> {
        let file = format!("{}/{input}_crit", self.folder);
        let limit = Celsius(sys.number::<i64>(&file).ok()? as f64 / 1e3);
        Some((file, limit))
    }

    /// A fan's speed.
    ///
    /// # Errors
    /// Why there is none.
    pub fn speed(&self, sys: &Sys, fan: &str) -> Result<Rpm, Absent> {
        let file = self.file(fan);
        let speed = sys.number::<u32>(&file)?;
        if let Some(fault) = fault(sys, &file) {
            return Err(sys.nonsense(file, &fault, "what a good sensor says"));
        }
        if speed > FASTEST {
            return Err(sys.nonsense(file, &speed.to_string(), "what a good sensor says"));
        }
        Ok(Rpm(f64::from(speed)))
    }

    /// A fan's PWM duty, 0 to 1.
    ///
    /// # Errors
    /// Why there is none.
    pub fn duty(&self, sys: &Sys, pwm: &str) -> Result<f64, Absent> {
        Ok(f64::from(sys.number::<u8>(self.duty_file(pwm))?) / 255.0)
    }

    /// Its file.
    #[must_use]
    pub fn duty_file(&self, pwm: &str) -> String {
        format!("{}/{pwm}", self.folder)
    }

    /// The file of a power input: the mean where the chip has it, unless that cannot be read and
    /// the other can.
    #[must_use]
    pub fn power_file(&self, sys: &Sys, power: &str) -> String {
        let (mean, now) = (format!("{}/{power}_average", self.folder), self.file(power));
        let reads = |file: &str| sys.number::<i64>(file).is_ok();
        let uses_mean = reads(&mean) || (sys.has(&mean) && !reads(&now));
        if uses_mean { mean } else { now }
    }

    /// The input of the voltage that a supply takes in, such as `in1` ("vin" and "vin1" in
    /// `drivers/hwmon/pmbus/pmbus_core.c`, "v_in +12V" and others in drivers of their own).
    #[must_use]
    pub(crate) fn volts_in(&self, sys: &Sys) -> Option<String> {
        let is_it = |input: &String| {
            let label = sys.text(format!("{}/{input}_label", self.folder)).unwrap_or_default();
            let label = label.to_ascii_lowercase();
            ["vin", "v_in", "input"].iter().any(|word| label.contains(word))
        };
        let inputs = sys.names(&self.folder).into_iter().filter(|name| name.starts_with("in"));
        let inputs = inputs.filter_map(|name| name.strip_suffix("_label").map(str::to_owned));
        inputs.into_iter().find(is_it)
    }

    /// The inputs of a processor, good or not: of a chip that has other parts' as well, those that
    /// its labels tell apart, else those that are not said to be of something else.
    pub fn of_sockets(&self) -> impl Iterator<Item = &str> {
        self.own_inputs().map(|(input, _)| input.as_str())
    }

    fn own_inputs(&self) -> impl Iterator<Item = &(String, String)> {
        let is_whole = |(_, label): &(String, String)| chips::is_whole(&self.name, label);
        let is_shared = chips::is_shared(&self.name);
        let tells = is_shared && self.temperatures.iter().any(is_whole);
        self.temperatures.iter().filter(move |one| match tells {
            true => is_whole(one),
            false => !is_shared || !chips::is_no_cpu(&one.1),
        })
    }

    /// The inputs of a processor, the hottest of which is its temperature: those for a whole one
    /// (Intel's package, AMD's control and die temperature), else all of them. Those that say
    /// nonsense are left out, and those that cannot be read where any can.
    #[must_use]
    pub fn socket_inputs(&self, sys: &Sys) -> Vec<&str> {
        let read = |(input, _): &(String, String)| self.temperature(sys, input);
        let mut good: Vec<_> = self.own_inputs().map(|one| (one, read(one).map(|_| ()))).collect();
        good.retain(|(_, read)| !matches!(read, Err(Absent::Nonsense { .. })));
        if good.iter().any(|(_, read)| read.is_ok()) {
            good.retain(|(_, read)| read.is_ok());
        }
        let good: Vec<_> = good.into_iter().map(|(one, _)| one).collect();
        let is_whole = |(_, label): &&&(String, String)| chips::is_whole(&self.name, label);
        let whole: Vec<_> = good.iter().filter(is_whole).copied().collect();
        let mut inputs = if whole.is_empty() { good } else { whole };
        let is_true = |(_, label): &(String, String)| !chips::is_for_control(label);
        if inputs.iter().any(|input| is_true(input)) {
            inputs.retain(|input| is_true(input));
        }
        inputs.into_iter().map(|(input, _)| input.as_str()).collect()
    }

    /// The inputs of the air at the server's inlet, by their labels, and how sure each is of that
    /// kind, 0 being the surest; other parts have air of their own. Firmware has the inputs of the
    /// board in one chip with those of processors.
    fn inlets(&self) -> impl Iterator<Item = (usize, &str)> {
        let has_air = self.of == Of::Board || chips::is_shared(&self.name);
        let all = self.temperatures.iter().filter(move |_| has_air);
        all.filter_map(|(input, label)| {
            let label = label.to_ascii_lowercase();
            let word = AIR.iter().position(|word| label.contains(word))?;
            let is_other = ELSEWHERE.iter().chain(&COOLANT).any(|word| label.contains(word));
            (!is_other).then_some((word, input.as_str()))
        })
    }
}

/// The inputs of the air at the server's inlet: the surest first, but those that say sense now
/// before any that do not.
pub fn inlets<'a>(sys: &Sys, chips: &'a [Chip]) -> Vec<(&'a Chip, &'a str)> {
    let of = |chip: &'a Chip| chip.inlets().map(move |(word, input)| (word, chip, input));
    let mut all: Vec<_> = chips.iter().flat_map(of).collect();
    all.sort_by_key(|(word, chip, input)| (chip.air(sys, input).is_err(), *word));
    all.into_iter().map(|(_, chip, input)| (chip, input)).collect()
}
