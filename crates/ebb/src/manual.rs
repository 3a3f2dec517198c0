//! `ebb completions` and `ebb man`: what shells and manuals know of the command line, made from it.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use clap::builder::PossibleValuesParser;
use clap::{Arg, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use ebb_cli::{Unwritten, out, output};
use ebb_policy::{reactor, registry};
use ebb_trace::generate::BUILTIN;
use ebb_twin::{Profile, reactor as polled};

use crate::command::command;
use crate::{profile, sim};

/// Commands whose pages refer to one another.
const RELATED: [&[&str]; 3] = [
    &["run", "report", "restore", "probe", "config"],
    &["sim", "trace", "paper", "characterise", "profile"],
    &["serve", "status", "top", "ctl", "load", "replay", "scrub"],
];

/// What of the file system commands read and write, beside what options name.
const FILES: [(&str, &[(&str, &str)]); 6] = [
    ("run", &[CONFIGURATION, STATE, LEDGER, LOCK]),
    ("report", &[LEDGER]),
    ("restore", &[STATE, LOCK]),
    ("probe", &[CONFIGURATION, STATE]),
    ("config", &[CONFIGURATION]),
    ("serve", &[("/etc/ebb/serve.toml", "Options of ebb-serve.service.")]),
];
const CONFIGURATION: (&str, &str) =
    ("/etc/ebb/ebb.toml", "Configuration of ebb run; examples/ebb.toml lists all keys.");
const STATE: (&str, &str) = ("/var/lib/ebb", "Original values of the settings that Ebb changed.");
const LEDGER: (&str, &str) = ("/var/lib/ebb/ledger.sqlite", "Energy by the hour.");
const LOCK: (&str, &str) = ("/run/ebb", "The lock of the Ebb that acts, one per machine.");

/// Examples of commands whose help has none.
const EXAMPLES: [(&str, &[&str]); 11] = [
    (
        "sim",
        &[
            "ebb sim --profile generic-1u --workload rand-rw --policy native --policy pacer",
            "ebb sim --trace day.csv.gz --fold --loop --profile dorado-6000 --report report",
            "ebb sim --list",
        ],
    ),
    ("run", &["ebb run", "ebb run --apply --policy pacer+pacman --ssd-budget \"224 W\""]),
    ("report", &["ebb report --since monday"]),
    ("restore", &["ebb restore", "ebb restore --forget nvme3"]),
    ("probe", &["ebb probe", "ebb probe --profile here.toml --measure"]),
    (
        "trace",
        &[
            "ebb trace info day.csv.gz",
            "ebb trace convert day.csv.gz --output day.parquet --output-format parquet",
        ],
    ),
    ("paper", &["ebb paper pacman", "ebb paper pacman --run", "ebb paper eadc --figure 10 --json"]),
    ("profile", &["ebb profile generic-1u > mine.toml"]),
    ("load", &["ebb load --connect 127.0.0.1:4420 --rw randrw --queue-depth 32 --verify"]),
    ("status", &["ebb status 127.0.0.1:9420"]),
    ("top", &["ebb top", "ebb top --once 127.0.0.1:9421"]),
];

/// Prints the completions for a shell.
pub fn completions(shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut named(command(), shell), "ebb", &mut script);
    out::print(String::from_utf8_lossy(&script))
}

/// The command line with the values that have names. Where a file may stand, too, only for bash:
/// it completes files where no name fits.
fn named(command: Command, shell: Shell) -> Command {
    let own = command.get_name().to_owned();
    let names = move |arg: &Arg| -> Option<Vec<&'static str>> {
        let schedulers = || reactor::ENTRIES.iter().map(|entry| entry.name);
        let policies = || registry::ENTRIES.iter().map(|entry| entry.name);
        let or_file =
            arg.get_value_names().is_some_and(|names| names.iter().any(|n| n == "NAME|FILE"));
        if or_file && shell != Shell::Bash {
            return None;
        }
        Some(match (own.as_str(), arg.get_id().as_str()) {
            ("sim", "policies") => policies().chain(sim::bounds()).chain(schedulers()).collect(),
            ("run", "policy") => policies().collect(),
            ("serve", "scheduler") | ("set", "name") => schedulers().collect(),
            ("profile", "name") => profile::names().collect(),
            (_, "workload") if or_file => BUILTIN.iter().map(|workload| workload.name).collect(),
            (_, "profile") if or_file => Profile::names().chain(polled::Profile::names()).collect(),
            _ => return None,
        })
    };
    let command = command.mut_args(|arg| match names(&arg) {
        Some(names) => arg.value_parser(PossibleValuesParser::new(names)),
        None => arg,
    });
    command.mut_subcommands(|further| named(further, shell))
}

/// Writes a page for each command into `folder`, which is made if it is not there.
pub fn pages(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| Unwritten(folder.display().to_string()))?;
    let mut command = command().disable_help_subcommand(true);
    command.build();
    page(&command, &["ebb"], folder)
}

fn page(command: &Command, path: &[&str], folder: &Path) -> Result<()> {
    let name = path.join("-");
    output::write(&folder.join(format!("{name}.1")), |to| Ok(write(command, path, to)?))?;
    for further in shown(command) {
        page(further, &[path, &[further.get_name()]].concat(), folder)?;
    }
    Ok(())
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|further| !further.is_hide_set())
}

/// One page: what clap knows, then what it does not.
fn write(command: &Command, path: &[&str], to: &mut dyn Write) -> io::Result<()> {
    let mut titled = command.clone().display_name(path.join("-"));
    if command.get_overridden_usage().is_none() {
        titled = titled.override_usage(synopsis(command, path));
    }
    let man = Man::new(titled)
        .title(path.join("-"))
        .source(concat!("ebb ", env!("CARGO_PKG_VERSION")))
        .manual("Ebb");
    man.render_title(to)?;
    man.render_name_section(to)?;
    man.render_synopsis_section(to)?;
    man.render_description_section(to)?;
    man.render_options_section(to)?;
    if command.has_subcommands() {
        man.render_subcommands_section(to)?;
    }
    let mut rest = Roff::new();
    let top = path.get(1).copied().unwrap_or_default();
    exit_status(&mut rest, top);
    listed(&mut rest, "FILES", files(top));
    examples(&mut rest, command, path);
    see_also(&mut rest, command, path);
    rest.to_writer(to)
}

/// The command with all its options and their values.
fn synopsis(command: &Command, path: &[&str]) -> String {
    let mut words = vec![path.join(" ")];
    let (positional, options): (Vec<_>, Vec<_>) =
        command.get_arguments().filter(|arg| !arg.is_hide_set()).partition(|a| a.is_positional());
    for arg in options.into_iter().chain(positional) {
        let told = arg.to_string();
        let optional = !arg.is_required_set() && !told.starts_with('[');
        words.push(if optional { format!("[{told}]") } else { told });
    }
    if command.has_subcommands() {
        words.push("<COMMAND>".to_owned());
    }
    words.join(" ")
}

fn exit_status(roff: &mut Roff, command: &str) {
    let goes_on = ["run", "serve"].contains(&command);
    let mut codes = vec![
        ("0", if goes_on { "Done, also by SIGINT or SIGTERM." } else { "Done." }),
        ("1", "The work failed for a reason outside the input."),
        ("2", "Wrong usage or input."),
    ];
    if command == "serve" {
        codes.push(("3", "Not every namespace was flushed at the end."));
    }
    if !goes_on {
        codes.push(("130", "Interrupted by SIGINT or SIGTERM."));
    }
    listed(roff, "EXIT STATUS", &codes);
}

fn files(command: &str) -> &'static [(&'static str, &'static str)] {
    FILES.iter().find(|(name, _)| *name == command).map_or(&[], |(_, files)| files)
}

fn listed(roff: &mut Roff, heading: &str, items: &[(&str, &str)]) {
    if items.is_empty() {
        return;
    }
    roff.control("SH", [heading]);
    for (name, about) in items {
        roff.control("TP", []).text([bold(*name)]).text([roman(*about)]);
    }
}

/// Those of the help, or else those of this file.
fn examples(roff: &mut Roff, command: &Command, path: &[&str]) {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut lines: Vec<String> =
        help.lines().filter_map(|line| line.strip_prefix("  ")).map(str::to_owned).collect();
    if lines.is_empty() && path.len() == 2 {
        let own = EXAMPLES.iter().find(|(name, _)| path[1] == *name);
        lines = own.map_or_else(Vec::new, |(_, own)| own.iter().map(ToString::to_string).collect());
    }
    if lines.is_empty() {
        return;
    }
    roff.control("SH", ["EXAMPLES"]).control("nf", []);
    for line in lines {
        roff.text([roman(line)]);
    }
    roff.control("fi", []);
}

fn see_also(roff: &mut Roff, command: &Command, path: &[&str]) {
    let mut pages: Vec<String> =
        shown(command).map(|further| [path, &[further.get_name()]].concat().join("-")).collect();
    if let Some((_, above)) = path.split_last().filter(|(_, above)| !above.is_empty()) {
        pages.push(above.join("-"));
    }
    if let [_, name] = path {
        let group = RELATED.iter().find(|group| group.contains(name));
        let others =
            group.into_iter().flat_map(|group| group.iter()).filter(|other| *other != name);
        pages.extend(others.map(|other| format!("ebb-{other}")));
    }
    pages.sort();
    roff.control("SH", ["SEE ALSO"]);
    let last = pages.len().saturating_sub(1);
    for (at, page) in pages.into_iter().enumerate() {
        roff.text([bold(page), roman(if at == last { "(1)" } else { "(1)," })]);
    }
}
