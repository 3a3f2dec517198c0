//! Temperatures, fans and power meters (`Documentation/hwmon/sysfs-interface.rst`).

use ebb_policy::units::{Celsius, Rpm, Watts};

use crate::sys::{Absent, Sys};

/// Where Linux has its chips.
const ROOT: &str = "sys/class/hwmon";

/// What a chip belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// A processor.
    Cpu,
    /// A drive; reading it may wake it.
    Drive,
    /// The board, a power supply, a management controller.
    Board,
}

/// One chip. Its number changes from start to start; its name and device do not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chip {
    /// Its folder.
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
    /// Power inputs, such as `power1`.
    pub powers: Vec<String>,
}

impl Chip {
    /// All chips.
    #[must_use]
    pub fn found(sys: &Sys) -> Vec<Self> {
        let chips = sys.numbered(ROOT, "hwmon").into_iter();
        chips.filter_map(|chip| Self::at(sys, format!("{ROOT}/{chip}"))).collect()
    }

    fn at(sys: &Sys, folder: String) -> Option<Self> {
        let name = sys.text(format!("{folder}/name")).ok()?;
        let of = match name.as_str() {
            "coretemp" | "k10temp" | "zenpower" | "scpi_sensors" | "xgene" => Of::Cpu,
            "nvme" | "drivetemp" => Of::Drive,
            _ => Of::Board,
        };
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
            let label = sys.text(format!("{folder}/{input}_label"));
            (input, label.unwrap_or_default())
        };
        let powers = ["_average", "_input"].map(|suffix| inputs("power", suffix));
        Some(Self {
            of,
            device: sys.link(format!("{folder}/device")),
            temperatures: inputs("temp", "_input").into_iter().map(label).collect(),
            fans: inputs("fan", "_input"),
            pwms: inputs("pwm", ""),
            powers: powers.into_iter().find(|inputs| !inputs.is_empty()).unwrap_or_default(),
            folder,
            name,
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
    /// Why there is none.
    pub fn temperature(&self, sys: &Sys, input: &str) -> Result<Celsius, Absent> {
        Ok(Celsius(sys.number::<i64>(self.file(input))? as f64 / 1e3))
    }

    /// Where the hardware slows itself down by this input; `None` where the chip does not say.
    #[must_use]
    pub fn throttle(&self, sys: &Sys, input: &str) -> Option<Celsius> {
        let file = format!("{}/{input}_crit", self.folder);
        let limit = sys.number::<i64>(file).ok().filter(|limit| *limit > 0)?;
        Some(Celsius(limit as f64 / 1e3))
    }

    /// A fan's speed.
    ///
    /// # Errors
    /// Why there is none.
    pub fn speed(&self, sys: &Sys, fan: &str) -> Result<Rpm, Absent> {
        Ok(Rpm(f64::from(sys.number::<u32>(self.file(fan))?)))
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

    /// The file of a power input: the mean where the chip has it.
    #[must_use]
    pub fn power_file(&self, sys: &Sys, power: &str) -> String {
        let mean = format!("{}/{power}_average", self.folder);
        if sys.has(&mean) { mean } else { self.file(power) }
    }

    /// A power.
    ///
    /// # Errors
    /// Why there is none.
    pub fn power(&self, sys: &Sys, power: &str) -> Result<Watts, Absent> {
        Ok(Watts(sys.number::<u64>(self.power_file(sys, power))? as f64 * 1e-6))
    }

    /// The input for a whole socket: Intel's package, AMD's control or die temperature, else the
    /// first.
    #[must_use]
    pub fn socket_input(&self) -> Option<&str> {
        let is_it = |(_, label): &&(String, String)| {
            label.starts_with("Package") || label == "Tctl" || label == "Tdie"
        };
        let found = self.temperatures.iter().find(is_it);
        found.or(self.temperatures.first()).map(|(input, _)| input.as_str())
    }

    /// The input of the air at the inlet, by its label.
    #[must_use]
    pub fn inlet_input(&self) -> Option<&str> {
        let is_it = |(_, label): &&(String, String)| {
            let label = label.to_ascii_lowercase();
            ["inlet", "ambient", "intake"].iter().any(|word| label.contains(word))
        };
        self.temperatures.iter().find(is_it).map(|(input, _)| input.as_str())
    }
}
