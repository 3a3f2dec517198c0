//! Keeps the house tidy: short lines, short functions, short files, no loose ends.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files git knows with this ending, and their text.
pub fn files(ending: &str) -> Vec<(String, String)> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git is installed");
    let names = String::from_utf8(output.stdout).expect("file names are UTF-8");
    let read = |name: &str| std::fs::read_to_string(root().join(name)).ok();
    names
        .lines()
        .filter(|name| name.ends_with(ending))
        .filter_map(|name| Some((name.to_owned(), read(name)?)))
        .collect()
}

fn complain(findings: &str) {
    assert!(findings.is_empty(), "\n{findings}");
}

#[test]
fn lines_and_files_are_short() {
    let mut findings = String::new();
    for (name, text) in files(".rs") {
        let lines = text.lines().count();
        if lines > 600 {
            let _ = writeln!(findings, "{name}: {lines} lines; split it where two ideas live");
        }
        for (number, line) in text.lines().enumerate() {
            if line.chars().count() > 100 {
                let _ = writeln!(findings, "{name}:{}: longer than 100 columns", number + 1);
            }
        }
    }
    complain(&findings);
}

#[test]
fn functions_fit_a_screen() {
    let mut findings = String::new();
    for (name, text) in files(".rs") {
        let mut open: Option<(usize, usize)> = None;
        for (number, line) in text.lines().enumerate() {
            let indent = line.len() - line.trim_start().len();
            let code = line.trim_start();
            let starts = ["fn ", "pub fn ", "pub(super) fn ", "pub(crate) fn ", "const fn "];
            if open.is_none() && starts.iter().any(|start| code.starts_with(start)) {
                open = Some((number, indent));
            }
            if let Some((from, at)) = open
                && indent == at
                && (code == "}" || code.ends_with(';') || code.ends_with('}'))
            {
                if number - from > 70 {
                    let length = number - from + 1;
                    let _ = writeln!(findings, "{name}:{}: a function of {length} lines", from + 1);
                }
                open = None;
            }
        }
    }
    complain(&findings);
}

#[test]
fn no_loose_ends() {
    let mut findings = String::new();
    let marks = ["TO".to_owned() + "DO", "FIX".to_owned() + "ME", "XX".to_owned() + "X"];
    for (name, text) in files(".rs").into_iter().chain(files(".toml")).chain(files(".md")) {
        for (number, line) in text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                let _ = writeln!(findings, "{name}:{}: {}", number + 1, line.trim());
            }
        }
    }
    complain(&findings);
}

#[test]
fn links_in_the_docs_lead_somewhere() {
    let mut findings = String::new();
    for (name, text) in files(".md") {
        let folder = root().join(&name);
        let folder = folder.parent().expect("a file has a folder");
        for link in text.split("](").skip(1) {
            let target = link.split([')', '#', ' ']).next().unwrap_or_default();
            let local = !target.is_empty() && !target.contains("://");
            if local && !folder.join(target).exists() {
                let _ = writeln!(findings, "{name}: no such file: {target}");
            }
        }
    }
    complain(&findings);
}

/// The words of each sentence of a page. Headings, items of lists and cells of tables end one; code
/// is left out.
fn sentences(text: &str) -> Vec<Vec<&str>> {
    let (mut all, mut open, mut fenced) = (Vec::new(), Vec::new(), false);
    for line in text.lines() {
        let told = line.trim();
        let fence = told.starts_with("```");
        fenced ^= fence;
        let numbered = told.split_once(". ").is_some_and(|(at, _)| at.parse::<u32>().is_ok());
        let item = ["- ", "* ", ": "].iter().any(|mark| told.starts_with(mark)) || numbered;
        let code = fence || fenced || (open.is_empty() && line.starts_with("    ") && !item);
        let table = told.starts_with('|');
        if code || item || table || told.is_empty() || told.starts_with('#') {
            all.push(std::mem::take(&mut open));
        }
        if code {
            continue;
        }
        for cell in told.split(if table { '|' } else { '\n' }) {
            for word in cell.split_whitespace() {
                open.extend(Some(word).filter(|word| word.contains(char::is_alphanumeric)));
                let end = word.trim_end_matches([')', '"', '*', '_', '`']);
                if end.ends_with(['.', '!', '?']) && !end.ends_with("...") {
                    all.push(std::mem::take(&mut open));
                }
            }
            if table {
                all.push(std::mem::take(&mut open));
            }
        }
    }
    all.push(open);
    all
}

#[test]
fn sentences_of_the_docs_are_short() {
    let counts = |text: &str| -> Vec<usize> {
        sentences(text).iter().map(Vec::len).filter(|&words| words > 0).collect()
    };
    assert_eq!(counts("One two.\nThree\nfour (five.) Six\n\n    ebb sim\n"), [2, 3, 1]);
    assert_eq!(counts("# A b\n- c d\n  e\n| f g | h |\n```\nno\n```\n"), [2, 3, 2, 1]);
    let mut findings = String::new();
    let pages = files(".md").into_iter();
    for (name, text) in pages.filter(|(name, _)| name != "CHANGELOG.md") {
        for sentence in sentences(&text).iter().filter(|words| words.len() > 42) {
            let start = sentence[..8].join(" ");
            let _ = writeln!(findings, "{name}: {} words: {start} …", sentence.len());
        }
    }
    complain(&findings);
}

/// The arrows of the house: who may depend on whom.
#[test]
fn crates_depend_only_downwards() {
    let allowed = [
        ("policy", &[][..]),
        ("nvme", &[][..]),
        ("trace", &["policy"][..]),
        ("record", &["policy", "trace"][..]),
        ("cli", &["policy", "record", "trace"][..]),
        ("twin", &["policy", "trace"][..]),
        ("host", &["nvme", "policy", "record"][..]),
        ("target", &["nvme", "policy"][..]),
        ("initiator", &["nvme"][..]),
        ("bench", &["cli", "host", "initiator", "nvme", "policy", "target", "trace", "twin"][..]),
        (
            "ebb",
            &[
                "bench",
                "cli",
                "host",
                "initiator",
                "nvme",
                "policy",
                "record",
                "target",
                "trace",
                "twin",
            ][..],
        ),
    ];
    let mut findings = String::new();
    for (name, allowed) in allowed {
        let path = root().join("crates").join(name).join("Cargo.toml");
        let text = std::fs::read_to_string(path).expect("every crate has a manifest");
        for line in text.lines() {
            if line == "[dev-dependencies]" {
                break;
            }
            let dependency = line.split([' ', '=', '.']).next().unwrap_or_default();
            if let Some(other) = dependency.strip_prefix("ebb-")
                && !allowed.contains(&other)
            {
                let _ = writeln!(findings, "{name} must not depend on {other}");
            }
        }
    }
    complain(&findings);
}
