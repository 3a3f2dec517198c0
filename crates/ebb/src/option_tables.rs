//! The tables of options, each in one page.

use std::path::Path;

use clap::{Arg, Command};

use crate::command::command;
use crate::docs::{compare, root, table, with};

/// Its names and values, as a command line has them.
fn name(arg: &Arg) -> String {
    let shown = arg.to_string().replace(['<', '>'], "");
    let short = arg.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
    match arg.is_positional() {
        true => format!("`{}`", shown.trim_start_matches('[').replace(']', "")),
        false => format!("{short}`{shown}`"),
    }
    .replace('|', "\\|")
}

/// Its help, with what clap adds to it.
fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help());
    let mut told = help.map(ToString::to_string).unwrap_or_default().replace('\n', " ");
    let mut pieces = told.split("docs/json-schema/");
    let first = pieces.next().unwrap_or_default().to_owned();
    told = pieces
        .filter_map(|piece| piece.split_once(".json"))
        .fold(first, |told, (name, rest)| format!("{told}[{name}](json-schema/{name}.json){rest}"));
    let takes = arg.get_num_args().is_none_or(|range| range.takes_values());
    let list = |all: Vec<String>| format!("`{}`", all.join("`, `"));
    let values = if arg.is_hide_possible_values_set() { vec![] } else { arg.get_possible_values() };
    let values: Vec<_> = values.iter().map(|value| value.get_name().to_owned()).collect();
    if takes && !values.is_empty() && values != ["true", "false"] {
        told += &format!(" [possible: {}]", list(values));
    }
    let default = arg.get_default_values().iter().map(|value| value.display().to_string());
    let default: Vec<_> = default.collect();
    if takes && !default.is_empty() && !arg.is_hide_default_value_set() {
        told += &format!(" [default: {}]", list(default));
    }
    told.replace('|', "\\|")
}

/// All options of a command by their headings, then those of its commands.
fn options(command: &Command, path: &str) -> String {
    let top = !path["ebb ".len()..].contains(' ');
    let own = command.get_arguments().filter(|arg| {
        let told = ["help", "version"].contains(&arg.get_id().as_str());
        !arg.is_hide_set() && !told && (top || !arg.is_global_set())
    });
    let all: Vec<_> = own.collect();
    let mut headings = Vec::new();
    for heading in all.iter().map(|arg| arg.get_help_heading()) {
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    headings.sort_by_key(Option::is_some);
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    if headings.first() != Some(&None) {
        headings.insert(0, None);
    }
    let mut made = Vec::new();
    // What has but further commands has said so by them.
    let says_nothing = !top && all.is_empty() && command.has_subcommands();
    for heading in headings.into_iter().filter(|_| !says_nothing) {
        let head = match heading {
            Some(heading) => format!("| {heading} | |\n|---|---|\n"),
            None => format!("| `{path}` | {about} |\n|---|---|\n"),
        };
        let of = all.iter().filter(|arg| arg.get_help_heading() == heading);
        made.push(table(&head, of.map(|arg| [name(arg), meaning(arg)])));
    }
    let further = command.get_subcommands().filter(|further| !further.is_hide_set());
    made.extend(further.map(|further| options(further, &format!("{path} {}", further.get_name()))));
    made.join("\n")
}

#[test]
fn every_command_has_its_table_of_options_in_one_page() {
    let mut command = command().disable_help_subcommand(true);
    command.build();
    let all = command.get_subcommands().filter(|of| !of.is_hide_set()).map(|of| {
        let path = format!("ebb {}", of.get_name());
        (format!("options of {path}"), options(of, &path))
    });
    let all: Vec<_> = all.collect();
    let mut placed = Vec::new();
    for entry in std::fs::read_dir(root().join("docs")).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_none_or(|ending| ending != "md") {
            continue;
        }
        placed.extend(fill(&file, &all));
    }
    placed.sort();
    let mut names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(placed, names, "a page of docs has the marks of each, and none twice");
}

/// The tables of a page, as they are made.
fn fill<'a>(file: &Path, all: &'a [(String, String)]) -> Vec<&'a str> {
    let mut page = std::fs::read_to_string(file).unwrap();
    let mut placed = Vec::new();
    for (name, made) in all {
        if let Some(filled) = with(&page, name, made) {
            (page, _) = (filled, placed.push(name.as_str()));
        }
    }
    let marks = page.matches("<!-- options of ").count();
    assert_eq!(marks, 2 * placed.len(), "{}: marks of no command, or twice", file.display());
    if !placed.is_empty() {
        compare(file, &page, "option_tables");
    }
    placed
}
