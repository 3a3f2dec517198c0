//! The idle states that drives enter by themselves.

use super::{List, drive_name};
use crate::act::idle_wake;
use crate::act::place::TOLERANCE;
use crate::find::layout::drives;
use crate::find::machine::Machine;

/// The longest wake-up of the idle states that each drive may enter by itself.
pub(super) fn control(machine: &Machine, list: &mut List) {
    for parts in drives(machine).iter().filter(|parts| parts.drive.controller.is_some()) {
        let Some(folder) = parts.drive.controller_folder() else { continue };
        let (of, path) = (drive_name(&parts.drive), format!("{folder}/{TOLERANCE}"));
        if idle_wake::place(parts).is_none() {
            let missing = match &parts.identity {
                Some(_) => "it enters no idle state by itself (APSTA is 0)",
                None => "it cannot be asked for its idle states: power_state says why",
            };
            list.add(Some(of), Some(path), None, Some(missing.to_owned()));
            continue;
        }
        // Without a limit there is no value.
        match machine.sys.text(&path) {
            Ok(text) if text.parse::<u64>().is_err() => list.add(Some(of), Some(path), None, None),
            text => {
                let micros = text.map(|text| text.parse::<f64>().unwrap_or_default());
                list.steer(machine, of, path, micros.map(|us| us / 1e6));
            }
        }
    }
}
