//! An experiment as a file: options of `ebb sim` by their names, in TOML. They become words of a
//! command line, so that both say the same, are checked alike and are refused alike.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use anyhow::Result;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, FromArgMatches};
use toml::de::{DeTable, DeValue};

use ebb_cli::usage;
use ebb_record::summary::Experiment;
use ebb_trace::files;

use super::args::{GENERATED, OUTPUT, SimArgs, TRACES};
use crate::exit::nearest;

/// An option of the file.
struct Stated<'a> {
    arg: &'a Arg,
    name: String,
    line: usize,
    values: Vec<String>,
}

/// The options of the command line that `words` is and, where it does not say them, those of the
/// experiment that it names; and what was taken from that.
pub fn read(
    command: &clap::Command,
    words: impl Iterator<Item = OsString>,
    given: &ArgMatches,
    path: &Path,
) -> Result<(SimArgs, Experiment)> {
    let file = path.display();
    let text = files::text(path).map_err(|error| usage(format!("{file}: {error}")))?;
    let sim = command.find_subcommand("sim").ok_or_else(|| usage("no command 'sim'"))?;
    let mut stated = parse(sim, &text).map_err(|error| usage(format!("{file}{error}")))?;
    stated.retain(|option| !overruled(sim, given, option.arg));
    let option = |option: &Stated<'_>| {
        let name = format!("--{}", option.name);
        let word = |value: &String| match value.as_str() {
            "" => name.clone(),
            value => format!("{name}={value}"),
        };
        option.values.iter().map(word).collect::<Vec<_>>()
    };
    let all = words.chain(stated.iter().flat_map(option).map(OsString::from));
    let matches = command.clone().try_get_matches_from(all);
    let args = matches.and_then(|matches| match matches.subcommand_matches("sim") {
        Some(matches) => SimArgs::from_arg_matches(matches),
        None => Ok(SimArgs::default()),
    });
    let args = args.map_err(|error| {
        let told = error.to_string();
        let reason = told.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
        let about = stated.iter().find(|option| told.contains(&format!("--{} ", option.name)));
        let line = about.map_or(String::new(), |option| format!(":{}", option.line));
        usage(format!("{file}{line}: {}", reason.trim()))
    })?;
    let options: BTreeMap<_, _> =
        stated.into_iter().map(|option| (option.name, option.values)).collect();
    Ok((args, Experiment { file: file.to_string(), options }))
}

/// Whether the command line says `arg` itself, or what contradicts it.
fn overruled(sim: &clap::Command, given: &ArgMatches, arg: &Arg) -> bool {
    let is_given =
        |other: &Arg| given.value_source(other.get_id().as_str()) == Some(ValueSource::CommandLine);
    let against = |other: &Arg| {
        let own = |one, two| arg.get_help_heading() == Some(one) && other.get_id() == two;
        let conflicts = |one: &Arg, two: &Arg| {
            sim.get_arg_conflicts_with(one).iter().any(|arg| arg.get_id() == two.get_id())
        };
        conflicts(arg, other)
            || conflicts(other, arg)
            || own(GENERATED, "files")
            || own(TRACES, "workload")
    };
    is_given(arg) || sim.get_arguments().any(|other| is_given(other) && against(other))
}

/// The options that `text` states, or what is wrong with it, after the file's name.
fn parse<'a>(sim: &'a clap::Command, text: &str) -> Result<Vec<Stated<'a>>, String> {
    let line =
        |at: usize| text[..at].lines().count().max(1) + usize::from(text[..at].ends_with('\n'));
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(String::new(), |span| format!(":{}", line(span.start)));
        format!("{at}: {}", error.message())
    })?;
    let may = |arg: &&Arg| {
        let output = arg.get_help_heading() == Some(OUTPUT);
        !output && !["experiment", "help"].contains(&arg.get_id().as_str())
    };
    let named = |arg: &&Arg, name: &str| arg.get_long() == Some(name);
    let mut stated = Vec::new();
    for (key, value) in table.get_ref() {
        let (name, line) = (key.get_ref().to_string(), line(key.span().start));
        let Some(arg) = sim.get_arguments().filter(may).find(|arg| named(arg, &name)) else {
            let names = sim.get_arguments().filter(may).filter_map(Arg::get_long);
            let meant = match nearest(&name, names) {
                Some(meant) => format!("did you mean '{meant}'?"),
                None => "'ebb sim --help' lists them, but for output".to_owned(),
            };
            return Err(format!(":{line}: no option '{name}'; {meant}"));
        };
        let flag = !arg.get_action().takes_values();
        let values = values(value.get_ref(), flag)
            .ok_or_else(|| format!(":{line}: '{name}' {}", expected(flag)))?;
        stated.push(Stated { arg, name, line, values });
    }
    Ok(stated)
}

fn expected(flag: bool) -> &'static str {
    if flag { "is true or false" } else { "is a text, a number or a list of these" }
}

/// As words of a command line; an empty one is a flag.
fn values(value: &DeValue<'_>, flag: bool) -> Option<Vec<String>> {
    match value {
        DeValue::Boolean(so) if flag => Some(vec![String::new(); usize::from(*so)]),
        _ if flag => None,
        DeValue::String(text) if !text.is_empty() => Some(vec![text.to_string()]),
        DeValue::Integer(number) => Some(vec![number.to_string()]),
        DeValue::Float(number) => Some(vec![number.to_string()]),
        DeValue::Array(all) => {
            let each = |value: &toml::Spanned<DeValue<'_>>| match value.get_ref() {
                DeValue::Array(_) => None,
                value => values(value, false)?.pop(),
            };
            all.iter().map(each).collect()
        }
        _ => None,
    }
}
