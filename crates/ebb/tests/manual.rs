//! Completions and manual pages, made from the command line's definition.

use std::fs;

use crate::common::{path, prints};

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = prints(&["completions", shell]);
        assert!(script.contains("ssd-budget"), "{shell}");
        // The others do not complete values.
        let values = ["bash", "fish", "zsh"].contains(&shell);
        assert_eq!(script.contains("msr-cut"), values, "{shell}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let to = path(folder.path(), "new/man1");
    prints(&["man", &to]);
    let read = |name: &str| fs::read_to_string(format!("{to}/{name}.1")).unwrap();
    for (name, word) in [
        ("ebb", "SUBCOMMANDS"),
        ("ebb-sim", "ssd\\-budget"),
        ("ebb-trace-convert", "output\\-format"),
        ("ebb-serve", "namespace"),
    ] {
        let page = read(name);
        assert!(page.contains(word) && page.contains(&format!(".TH {name} 1")), "{name}: {page}");
    }
}
