//! `ebb completions` and `ebb man`: what shells and manuals know of the command line, made from it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::command::command;
use crate::exit::Unwritten;
use crate::{out, output};

/// Prints the completions for a shell.
pub fn completions(shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "ebb", &mut script);
    out::print(String::from_utf8_lossy(&script))
}

/// Writes a page for each command into `folder`, which is made if it is not there.
pub fn pages(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| Unwritten(folder.display().to_string()))?;
    let mut command = command();
    command.build();
    page(&command, "ebb", folder)
}

fn page(command: &Command, name: &str, folder: &Path) -> Result<()> {
    let titled = command.clone().display_name(name.to_owned());
    output::write(&folder.join(format!("{name}.1")), |to| Ok(Man::new(titled).render(to)?))?;
    let further = command.get_subcommands().filter(|further| further.get_name() != "help");
    for further in further.filter(|further| !further.is_hide_set()) {
        page(further, &format!("{name}-{}", further.get_name()), folder)?;
    }
    Ok(())
}
