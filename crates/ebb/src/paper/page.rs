//! The tables of the studies' pages are those of their results.

use clap::ValueEnum;
use std::path::Path;

use super::Paper;
use super::report::{Report, Row};

/// A table for a page.
fn table<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let head =
        "| figure | quantity | paper | twin | deviation | kind |\n|---|---|---:|---:|---:|---|\n";
    rows.map(|row| format!("| {} |\n", row.cells().join(" | "))).fold(head.into(), |a, b| a + &b)
}

/// The page with the tables of these results.
fn page(page: &str, report: &Report) -> String {
    let runs: String = report.kept.iter().map(|made| format!("* {made}\n")).collect();
    let of_runs = |row: &&Row| row.id.is_some();
    let kept = table(report.rows.iter().filter(of_runs));
    let kept = format!("{kept}\nRows of these runs, seed 1:\n\n{runs}");
    let fits = table(report.rows.iter().filter(|row| row.id.is_none()));
    let mut page = page.to_owned();
    for (name, made) in [("rows", kept), ("fit", fits)] {
        let marks = [format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->")];
        let place = page
            .split_once(&marks[0])
            .and_then(|(before, rest)| Some((before, rest.split_once(&marks[1])?.1)));
        if let Some((before, after)) = place {
            page = [before, &marks[0], &made, &marks[1], after].concat();
        }
    }
    page
}

#[test]
fn the_tables_of_the_pages_are_the_results() {
    for paper in Paper::value_variants() {
        let path = format!("studies/{}/README.md", paper.study());
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(&path);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains("<!-- rows: begin -->"), "{path} has no place for its rows");
        let made = page(&text, &paper.kept().unwrap());
        if std::env::var_os("EBB_WRITE_DOCS").is_some() {
            std::fs::write(&file, &made).unwrap();
        }
        let told = std::fs::read_to_string(&file).unwrap();
        assert!(
            told == made,
            "{path} is not what results.json and stated.toml say: run EBB_WRITE_DOCS=1 cargo test \
             --workspace --locked --bins -- paper::page"
        );
    }
}

/// Every row that a study states was run once.
#[test]
fn the_results_have_every_row() {
    for paper in Paper::value_variants() {
        let report = paper.kept().unwrap();
        let found: Vec<_> = report.rows.iter().filter_map(|row| row.id.clone()).collect();
        let shown = report.stated.ids().into_iter().filter(|id| !id.starts_with("given/"));
        let missing: Vec<_> = shown.filter(|id| !found.contains(id)).collect();
        assert!(missing.is_empty(), "{paper:?}: {missing:?}");
    }
}
