//! What of the docs is made from the code: tests compare it, or write it with `EBB_WRITE_DOCS=1`.

use std::path::{Path, PathBuf};

/// The folder that `docs` and `studies` are in.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compares a file with what it should be, or writes it. `tests` are those that do.
pub fn compare(file: &Path, made: &str, tests: &str) {
    if std::env::var_os("EBB_WRITE_DOCS").is_some() {
        std::fs::write(file, made).unwrap();
    }
    assert!(
        std::fs::read_to_string(file).unwrap_or_default() == made,
        "{} is not what it is made from: run EBB_WRITE_DOCS=1 cargo test --workspace --locked \
         --bins -- {tests}",
        file.display()
    );
}

/// A table for a page: `head` as Markdown writes it, with the line below it.
pub fn table<const N: usize>(head: &str, rows: impl Iterator<Item = [String; N]>) -> String {
    rows.map(|row| format!("| {} |\n", row.join(" | "))).fold(head.into(), |a, b| a + &b)
}

/// A page with a table between its marks; none of a page that has no place for it.
pub fn with(page: &str, name: &str, made: &str) -> Option<String> {
    let marks = [format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->")];
    let (before, rest) = page.split_once(&marks[0])?;
    let (_, after) = rest.split_once(&marks[1])?;
    Some([before, &marks[0], made, &marks[1], after].concat())
}
