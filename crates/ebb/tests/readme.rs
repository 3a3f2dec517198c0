//! Every command of the README works as pasted; what takes long or serves on is checked to exist.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Commands that run to their end here; of others `--help` says whether the options are known.
const CHEAP: [&str; 4] = ["sim", "trace", "completions", "replay"];

/// The lines of code blocks that call `ebb`, without comments and redirections, continued lines
/// joined.
fn commands(text: &str) -> Vec<String> {
    let joined = text.replace("\\\n", " ");
    let code = joined.lines().filter_map(|line| line.strip_prefix("    "));
    let calls = code.filter_map(|line| line.trim().strip_prefix("ebb "));
    calls.map(|line| line.split(['#', '>']).next().unwrap_or(line).trim().to_owned()).collect()
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
fn every_command_works_as_pasted() {
    let (root, text) = (root(), readme());
    let commands = commands(&text);
    assert!(commands.len() > 5, "{commands:?}");
    let folder = tempfile::tempdir().unwrap();
    let elsewhere = folder.path().to_str().unwrap();
    for command in commands {
        let mut words = words(&command);
        // Nothing is written into the repository.
        for word in &mut words {
            *word = word.replace("/tmp", elsewhere);
        }
        let cheap = CHEAP.contains(&words[0].as_str());
        let help = (!cheap).then_some("--help");
        let mut ebb = Command::new(env!("CARGO_BIN_EXE_ebb"));
        let output = ebb.args(&words).args(help).current_dir(&root).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*error), (Some(0), ""), "ebb {command}");
    }
}
