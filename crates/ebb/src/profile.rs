//! `ebb profile`: what ships as TOML, to copy and change.

use anyhow::Result;
use clap::Args;

use ebb_cli::{out, usage};
use ebb_twin::drive::DriveProfile;
use ebb_twin::hdd::HddProfile;
use ebb_twin::{DriveFile, Profile, reactor};

use crate::exit::nearest;

/// Options of `ebb profile`.
///
/// Prints the file of a shipped server or drive model, every constant with its source, to copy and
/// change.
#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// A shipped server (`ebb sim --list`) or drive model
    name: String,
}

/// Name and text of all that ships.
fn shipped() -> impl Iterator<Item = (&'static str, &'static str)> {
    let drives = DriveProfile::SHIPPED.iter().chain(HddProfile::SHIPPED).copied();
    Profile::shipped().chain(reactor::Profile::shipped()).chain(drives)
}

/// The names of all that ships.
pub fn names() -> impl Iterator<Item = &'static str> {
    shipped().map(|(name, _)| name)
}

/// Prints it.
pub fn run(args: &ProfileArgs) -> Result<()> {
    let name = &args.name;
    if let Some((_, text)) = shipped().find(|(shipped, _)| shipped == name) {
        return out::print(text.trim_end());
    }
    let names: Vec<_> = names().collect();
    let meant = nearest(name, names.iter().copied())
        .map_or_else(String::new, |meant| format!("; did you mean '{meant}'?"));
    Err(usage(format!("profile '{name}': none ships; choose from {}{meant}", names.join(", "))))
}
