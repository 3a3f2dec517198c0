//! Every command of the README and the docs that a reader may paste is known, and those that take
//! seconds and need no root work as pasted.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tidy::files;

/// Commands that run to their end here; of others `--help` says whether the options are known.
const CHEAP: [&str; 8] =
    ["sim", "trace", "completions", "replay", "profile", "config", "probe", "characterise"];

/// Pages whose commands made the numbers beside them, which takes long.
const RECORDS: [&str; 3] = ["docs/policies/", "docs/benchmarks.md", "studies/"];

/// What only a reader has: files and places, a measurement, what `ebb-lab fit` and scripts made.
const READERS: [&str; 9] =
    ["FILE", "/srv", "/dev", "/etc", "probe wake", "fitted/", "--here", "at-265", "fio_lat.log"];

/// A line of a code block that calls `ebb`.
#[derive(Debug)]
struct Call {
    page: String,
    /// As a reader pastes it, continued lines joined.
    line: String,
}

impl Call {
    /// Its words without comments, redirections and what is optional. Of a line that explains the
    /// command behind two blanks, the command alone.
    fn words(&self) -> Vec<String> {
        let line = self.line.trim_start_matches("sudo ").trim_start_matches("ebb ");
        let explained = line.split_once("   ").is_some_and(|(_, rest)| !rest.contains('#'));
        let line = if explained { line.split("  ").next().unwrap_or(line) } else { line };
        let line = line.split(['#', '>', '[', '|']).next().unwrap_or(line);
        let words = words(line);
        let told = |word: &String| word.chars().all(|letter| letter.is_ascii_lowercase());
        if explained { words.into_iter().take_while(told).collect() } else { words }
    }

    /// Whether it is run, and not only looked at.
    fn runs(&self) -> bool {
        let words = self.words();
        let ends = words[0] == "run" && words.contains(&"--duration".to_owned());
        let explained = self.line.contains("   ") && !self.line.contains('#');
        (ends || CHEAP.contains(&&*words[0]))
            && !explained
            && !self.line.starts_with("sudo")
            && !self.line.contains("# takes minutes")
            // The first needs a configuration, the second is a test of its own.
            && !["ebb config check", "ebb sim"].contains(&&*self.line)
            && !READERS.iter().any(|other| self.line.contains(other))
            && !RECORDS.iter().any(|page| self.page.starts_with(page))
    }
}

/// All pages for readers.
fn calls() -> Vec<Call> {
    let pages = files(".md").into_iter().filter(|(name, _)| name != "CHANGELOG.md");
    pages.flat_map(|(page, text)| calls_of(&page, &text)).collect()
}

fn calls_of(page: &str, text: &str) -> Vec<Call> {
    let joined: Vec<_> = text.split("\\\n").map(str::trim_start).collect();
    let joined = joined.join(" ");
    let mut fenced = false;
    let mut calls = Vec::new();
    for line in joined.lines() {
        fenced ^= line.trim_start().starts_with("```");
        let code = fenced || line.starts_with("    ");
        let line = line.trim();
        if code && line.trim_start_matches("sudo ").starts_with("ebb ") {
            calls.push(Call { page: page.to_owned(), line: line.to_owned() });
        }
    }
    calls
}

/// As a shell splits it: only double quotes are used.
fn words(command: &str) -> Vec<String> {
    let parts = command.split('"').enumerate();
    let word = |(index, part): (usize, &str)| match index % 2 {
        1 => vec![part.to_owned()],
        _ => part.split_whitespace().map(str::to_owned).collect(),
    };
    parts.flat_map(word).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn readme() -> String {
    std::fs::read_to_string(root().join("README.md")).unwrap()
}

/// Its words, however its lines are broken.
fn flowing<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_first_simulation_prints_what_the_readme_says() {
    let text = readme();
    let after = text.split("cargo run --release -- sim\n").nth(1).unwrap();
    let shown = after.lines().skip(1).map_while(|line| line.strip_prefix("    "));
    let shown = flowing(shown);
    assert!(shown.contains("would save"), "{shown}");
    let output = Command::new(env!("CARGO_BIN_EXE_ebb")).arg("sim").output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let printed = flowing(printed.lines());
    assert!(printed.starts_with(&shown), "README: {shown}\nebb sim: {printed}");
}

#[test]
fn every_command_of_the_pages_is_known() {
    let calls = calls();
    assert!(calls.len() > 50, "{calls:?}");
    let mut wrong = Vec::new();
    for call in &calls {
        let mut ebb = Command::new(env!("CARGO_BIN_EXE_ebb"));
        let output = ebb.args(call.words()).arg("--help").output().unwrap();
        if output.status.code() != Some(0) {
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            wrong.push(format!("{}: {}\n{error}", call.page, call.line));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The commands below these words, and their options, as `--help` lists them.
fn options(words: &[String], found: &mut Vec<String>) {
    let help = Command::new(env!("CARGO_BIN_EXE_ebb")).args(words).arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let first = |line: &str| Some(line.split_whitespace().next()?.to_owned());
    let below = help.split("\nCommands:\n").nth(1).unwrap_or_default().lines();
    let below = below.take_while(|line| !line.is_empty());
    let names = below.filter(|line| !line.starts_with("   ")).filter_map(first);
    for name in names.filter(|name| name != "help") {
        options(&[words, &[name]].concat(), found);
    }
    let lines = help.lines().filter(|line| line.starts_with("  "));
    let long = lines.filter_map(|line| {
        let line = line.trim_start();
        let line = if line.starts_with("--") { line } else { line.split_once(", ")?.1 };
        first(line).filter(|name| name.starts_with("--"))
    });
    found.extend(long.map(|name| name.trim_matches([',', '`']).to_owned()));
}

#[test]
fn every_option_stands_in_a_page() {
    let pages: String = files(".md").into_iter().map(|(_, text)| text).collect();
    let mut found = Vec::new();
    options(&[], &mut found);
    assert!(found.len() > 200, "{found:?}");
    let stands =
        |name: &str| ["`", " ", "["].iter().any(|mark| pages.contains(&[mark, name].concat()));
    found.retain(|name| !stands(name));
    assert!(found.is_empty(), "no page has {found:?}");
}

#[test]
fn commands_work_as_pasted() {
    let folder = tempfile::tempdir().unwrap();
    for there in ["examples", "studies"] {
        symlink(root().join(there), folder.path().join(there)).unwrap();
    }
    let binary = Path::new(env!("CARGO_BIN_EXE_ebb")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let mut run: Vec<String> = Vec::new();
    for call in calls().into_iter().filter(Call::runs) {
        // Nothing is written but into this folder; the same command of another page is the same.
        let line = call.line.replace("/tmp", folder.path().to_str().unwrap());
        if run.contains(&line) {
            continue;
        }
        let output = Command::new("sh")
            .args(["-c", &line])
            .current_dir(folder.path())
            .env("PATH", &path)
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{}: {}\n{error}", call.page, call.line);
        run.push(line);
    }
    assert!(run.len() > 15, "{run:?}");
}
