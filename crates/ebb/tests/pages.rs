//! Pages that say how to add something hold: what they show is added to a copy, and that compiles.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Part of a text behind one mark and before another.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let rest = text.split_once(from).unwrap_or_else(|| panic!("no '{from}'")).1;
    rest.split_once(to).unwrap_or_else(|| panic!("no '{to}'")).0
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(&path, &to).unwrap();
        }
    }
}

/// Changes a file of the copy.
fn edit(path: &Path, change: impl FnOnce(String) -> String) {
    fs::write(path, change(fs::read_to_string(path).unwrap())).unwrap();
}

#[test]
fn the_policy_of_the_page_compiles_in_the_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/adding-a-policy.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let copied = folder.path().join("crates/policy");
    copy(&root.join("crates/policy"), &copied);
    for file in ["Cargo.toml", "Cargo.lock"] {
        fs::copy(root.join(file), folder.path().join(file)).unwrap();
    }
    let source = copied.join("src");
    let file = between(&page, "```rust\n", "// The file ends here.");
    fs::write(source.join("ssd/resting.rs"), file).unwrap();
    let lines = between(&page, "```text\nmod resting;", "```");
    edit(&source.join("ssd/mod.rs"), |text| format!("{text}mod resting;{lines}"));
    let entry = between(&page, "```text\n    Entry {", "```");
    edit(&source.join("registry.rs"), |text| {
        let (list, rest) = text.split_once("\n];\n").expect("the list of entries ends");
        format!("{list}\n    Entry {{{entry}];\n{rest}")
    });
    // A folder of its own that stays, so that dependencies are compiled once.
    let output = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--quiet", "--lib"])
        .current_dir(&copied)
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("pages"))
        .env("RUSTFLAGS", "-D warnings")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
