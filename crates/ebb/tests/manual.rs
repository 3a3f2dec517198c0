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
fn names_of_policies_servers_workloads_and_schedulers_are_completed() {
    for (shell, names) in [
        ("bash", &["pacman-plus", "clairvoyant-caps", "dorado-6000", "fio-servers", "sandman"][..]),
        ("fish", &["pacman-plus", "clairvoyant-caps", "sandman"][..]),
        ("zsh", &["pacman-plus", "clairvoyant-caps", "sandman"][..]),
    ] {
        let script = prints(&["completions", shell]);
        for name in names {
            assert!(script.contains(name), "{shell}: {name}");
        }
    }
    // They are offered only: parameters and sums of policies are still taken.
    prints(&["sim", "--policy", "pacer(alpha=0.5)+pacman", "--help"]);
}

#[test]
fn pages_tell_values_codes_files_and_one_another() {
    let folder = tempfile::tempdir().unwrap();
    prints(&["man", &path(folder.path(), "")]);
    let read = |name: &str| {
        fs::read_to_string(folder.path().join(format!("{name}.1"))).unwrap().replace('\\', "")
    };
    for (name, words) in [
        ("ebb-run", &["[--config <FILE>]", "/etc/ebb/ebb.toml", "/var/lib/ebb", "ebb-restore"][..]),
        ("ebb-sim", &["EXAMPLES", "ebb sim --list", "130", "ebb-trace"][..]),
        ("ebb-serve", &["Not every namespace was flushed", "ebb-ctl", "EXAMPLES"][..]),
        ("ebb-trace-info", &["ebb-trace", "<FILE>..."][..]),
    ] {
        let page = read(name);
        for word in ["EXIT STATUS", "SEE ALSO"].iter().chain(words) {
            assert!(page.contains(word), "{name}: {word}\n{page}");
        }
    }
    // Every page that another refers to is there.
    for entry in fs::read_dir(folder.path()).unwrap() {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap().replace('\\', "");
        let also = text.split("SH \"SEE ALSO\"").nth(1).unwrap();
        for page in also.split("fB").skip(1).filter_map(|part| part.split("fR").next()) {
            assert!(folder.path().join(format!("{page}.1")).exists(), "{page}");
        }
    }
    assert!(!read("ebb").contains("ebb-help"));
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
