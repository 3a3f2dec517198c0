//! What is sensed of drives but by their controllers.

use ebb_policy::Signal;

use super::List;
use crate::find::drives::Drive;
use crate::find::machine::Machine;
use crate::sense::sensors::standby;
use crate::sys::Absent;

/// Whether the operating system has stopped each hard disk.
pub(super) fn stopped(machine: &Machine, list: &mut List) -> &'static str {
    for drive in &machine.drives {
        let Some(path) = drive.runtime_file() else { continue };
        let is = machine.sys.text(&path).and_then(|status| {
            let stopped = standby(&status).map(|is| f64::from(u8::from(is)));
            stopped.ok_or_else(|| machine.sys.nonsense(&path, &status, "a known state"))
        });
        list.read(Some(super::drive_name(drive)), path, is);
    }
    "no hard disk"
}

/// One signal of a drive.
pub(super) fn signal(machine: &Machine, drive: &Drive, signal: Signal, list: &mut List) {
    let of = Some(super::drive_name(drive));
    if signal == Signal::DriveTemperature {
        // Not read here: each reading is a command to the drive, and may wake it.
        let path = machine
            .drive_chip(drive)
            .and_then(|chip| chip.temperatures.first().map(|(input, _)| chip.file(input)));
        let why = match (&drive.controller, drive.is_sata_or_sas()) {
            (Some(_), _) => "no chip: a kernel without CONFIG_NVME_HWMON; ebb run asks the drive",
            (None, true) => "no chip; modprobe drivetemp for SATA",
            (None, false) => "no chip: it says no temperature to the kernel",
        };
        let missing = path.is_none().then(|| why.to_owned());
        return list.add(of, path, None, missing);
    }
    let counters = drive.counters(&machine.sys);
    let value = counters.map(|counters| match signal {
        Signal::DriveReadBytes => counters.read_bytes as f64,
        Signal::DriveWrittenBytes => counters.written_bytes as f64,
        _ => 0.0,
    });
    let value_of = |value: Result<f64, Absent>| match (signal, value) {
        (Signal::DriveUtilisation | Signal::DriveTime, Ok(_)) => (None, None),
        (_, Ok(value)) => (Some(value), None),
        (_, Err(absent)) => (None, Some(absent.to_string())),
    };
    let (value, missing) = value_of(value);
    list.add(of, Some(drive.counters_file()), value, missing);
}
