//! What each sensor chip belongs to, by the name that its driver registers.

use std::ops::RangeInclusive;

/// What a chip belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// A processor.
    Cpu,
    /// A drive; reading it may wake it.
    Drive,
    /// A memory module.
    Memory,
    /// A graphics processor or an accelerator: what its fans cool nobody here senses.
    Gpu,
    /// A network adapter, its transceivers included.
    Nic,
    /// A power supply.
    Supply,
    /// The board, a management controller, a cooler.
    Board,
}

/// Chips of one driver.
struct Row {
    /// What they belong to.
    of: Of,
    /// The kernel's driver.
    driver: &'static str,
    /// The names it registers; one that ends in `*` stands for all that begin so.
    names: &'static [&'static str],
    /// Of a processor: words in the labels of the inputs that are for a whole one. Where no input
    /// has any of them, the hottest of all inputs is the processor's temperature.
    whole: &'static [&'static str],
    /// Whether its chips have inputs of all processors, and not each those of one.
    shared: bool,
}

const fn row(of: Of, driver: &'static str, names: &'static [&'static str]) -> Row {
    Row { of, driver, names, whole: &[], shared: false }
}

const fn cpu(
    driver: &'static str,
    names: &'static [&'static str],
    whole: &'static [&'static str],
) -> Row {
    Row { of: Of::Cpu, driver, names, whole, shared: false }
}

const fn firmware(
    driver: &'static str,
    names: &'static [&'static str],
    whole: &'static [&'static str],
) -> Row {
    Row { of: Of::Cpu, driver, names, whole, shared: true }
}

/// All that is known; what is not belongs to the board. Names from `drivers/hwmon` and, where it
/// says so, from the drivers of the devices. PMBus drivers register the name of their I²C device
/// with `_` for `-` (`pmbus_do_probe`).
const CHIPS: &[Row] = &[
    // Labels "Package id 0" or, before Linux 3.12, "Physical id 0", and "Core 3"; processors before
    // Sandy Bridge have cores alone.
    cpu("coretemp", &["coretemp"], &["package id", "physical id"]),
    // "Tctl" and "Tdie" since Linux 4.18; before it there is one input without a label.
    cpu("k10temp", &["k10temp"], &["tctl", "tdie"]),
    cpu("zenpower (zenpower3, zenpower5)", &["zenpower"], &["tctl", "tdie"]),
    cpu("k8temp", &["k8temp"], &[]),
    cpu("via-cputemp", &["via_cputemp"], &[]),
    cpu("xgene-hwmon", &["apm_xgene"], &["soc temperature"]),
    // The firmware names the inputs of these, and some are the board's.
    firmware("scpi-hwmon", &["scpi_sensors"], &FIRMWARE),
    firmware("scmi-hwmon", &["scmi_sensors"], &FIRMWARE),
    firmware("ibmpowernv", &["ibmpowernv"], &["core"]),
    // The thermal zones of device trees (`arch/arm64/boot/dts`), a chip each.
    firmware("thermal_hwmon", &ZONES, &[]),
    row(Of::Drive, "nvme", &["nvme"]),
    row(Of::Drive, "drivetemp", &["drivetemp"]),
    row(Of::Memory, "jc42", &["jc42"]),
    row(Of::Memory, "spd5118", &["spd5118"]),
    row(Of::Gpu, "amdgpu", &["amdgpu"]),
    row(Of::Gpu, "radeon", &["radeon"]),
    row(Of::Gpu, "nouveau", &["nouveau"]),
    row(Of::Gpu, "i915, xe", &["i915*", "xe", "xe_*"]),
    row(Of::Gpu, "habanalabs", &["habanalabs*"]),
    row(Of::Nic, "mlx5_core, mlxsw", &["mlx5*", "mlxsw*"]),
    row(Of::Nic, "bnxt_en, bnx2x, tg3", &["bnxt_en", "bnx2x", "tg3"]),
    row(Of::Nic, "igb, ixgbe, ice", &["i350bb", "igb", "ixgbe", "ice"]),
    row(Of::Nic, "nfp, be2net, sfc, cxgb4", &["nfp", "be2net", "sfc*", "cxgb4*"]),
    row(Of::Nic, "iwlwifi, ath, mt76", &["iwlwifi*", "ath1*", "mt7*"]),
    row(Of::Nic, "sfp", &["sfp*"]),
    // Supplies on PMBus; the first three of `pmbus` are Delta's, and the name alone is what boards
    // without a driver of their own say.
    row(Of::Supply, "pmbus", &["dps460", "dps650ab", "dps800", "pmbus"]),
    row(Of::Supply, "acbel-fsg032", &["acbel_fsg032"]),
    row(Of::Supply, "aps-379", &["aps_379"]),
    row(Of::Supply, "bel-pfe", &["pfe1100", "pfe3000"]),
    row(Of::Supply, "bpa-rs600", &["bpa_rs600", "bpd_rs600"]),
    row(Of::Supply, "crps", &["intel_crps185", "crps*"]),
    row(Of::Supply, "d1u74t", &["d1u74t"]),
    row(Of::Supply, "dps920ab", &["dps920ab"]),
    row(Of::Supply, "fsp-3y", &["ym2151e", "yh5151e"]),
    row(Of::Supply, "hac300s", &["hac300s"]),
    row(Of::Supply, "ibm-cffps", &["cffps*", "ibm_cffps*"]),
    row(Of::Supply, "inspur-ipsps", &["ipsps*"]),
    row(Of::Supply, "corsair-psu", &["corsairpsu"]),
];

/// What device trees call the zones of processors.
const ZONES: [&str; 8] = [
    "cpu*",
    "ap_cpu*",
    "cluster*",
    "core_cluster*",
    "bigcore*",
    "littlecore*",
    "package_thermal",
    "soc_thermal",
];

/// What firmware calls the inputs of processors.
const FIRMWARE: [&str; 6] = ["cpu", "core", "cluster", "soc", "big", "little"];

fn find(name: &str) -> Option<&'static Row> {
    let name = name.replace('-', "_");
    let is = |known: &&'static str| match known.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == **known,
    };
    CHIPS.iter().find(|row| row.names.iter().any(is))
}

/// What the chip `name` belongs to.
pub fn of(name: &str) -> Of {
    find(name).map_or(Of::Board, |row| row.of)
}

/// The driver of the chip `name`, where it is known.
pub fn driver(name: &str) -> Option<&'static str> {
    find(name).map(|row| row.driver)
}

/// How a person would find the chip `name` or something of it: with what tells it `apart` from
/// others, where that is known.
pub fn shown(name: &str, apart: &[&str]) -> String {
    let apart: Vec<_> = apart.iter().filter(|one| !one.is_empty()).copied().collect();
    match apart.join(", ") {
        none if none.is_empty() => name.to_owned(),
        apart => format!("{name} ({apart})"),
    }
}

/// Whether the chips of the driver of `name` have inputs of all processors: which input is of which
/// is not known.
pub fn is_shared(name: &str) -> bool {
    find(name).is_some_and(|row| row.shared)
}

/// Whether `label` is of a temperature that is for the control of fans alone where there is a true
/// one: on some processors it is 10 to 49 K above that (`Documentation/hwmon/k10temp.rst`).
pub fn is_for_control(label: &str) -> bool {
    label.eq_ignore_ascii_case("tctl")
}

/// Whether `label` of the chip `name`, of a processor, is of an input for a whole one.
pub fn is_whole(name: &str, label: &str) -> bool {
    let label = label.to_ascii_lowercase();
    find(name).is_some_and(|row| row.whole.iter().any(|word| label.contains(word)))
}

/// Whether `label` is of air, of a coolant, or of a part that is no processor.
pub fn is_no_cpu(label: &str) -> bool {
    let label = label.to_ascii_lowercase();
    let mut words = AIR.iter().chain(&COOLANT).chain(&ELSEWHERE).filter(|word| **word != "cpu");
    words.any(|word| label.contains(word))
}

/// What a sensor can say, in °C. One that is not connected says 255, -128 or the like, one that is
/// not powered 0: a processor is warmer than the air.
pub const TEMPERATURES: RangeInclusive<f64> = 1.0..=150.0;

/// Where a processor slows itself down, in °C: 70 is the least that drivers say of one.
pub const LIMITS: RangeInclusive<f64> = 60.0..=150.0;

/// Words in the labels of the air at the inlet, the surest first.
pub const AIR: [&str; 3] = ["inlet", "intake", "ambient"];
/// Words in the labels of air elsewhere.
pub const ELSEWHERE: [&str; 14] = [
    "outlet",
    "exhaust",
    "psu",
    "power supply",
    "dimm",
    "gpu",
    "cpu",
    "drive",
    "hdd",
    "nvme",
    "pch",
    "chipset",
    "vrm",
    "pcie",
];
/// Words in the labels of what moves a coolant, or is in one.
pub const COOLANT: [&str; 5] = ["pump", "water", "coolant", "liquid", "w_flow"];

/// Air in which a server can run, in °C.
pub const INLETS: RangeInclusive<f64> = -40.0..=70.0;

/// No fan turns faster, in 1/min: the fastest ones of one rack unit reach 38,000. A tachometer that
/// saw one pulse or noise says more, one that answers with all bits set 65,535.
pub const FASTEST: u32 = 60_000;
