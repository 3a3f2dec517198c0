//! The tables of the studies' pages are those of their results.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde_json::Value;

use super::report::{Provenance, Report, number, stated};
use super::verdict::Verdict;
use super::{Paper, fits};
use crate::docs::{self, table};

/// The rows of a paper.
fn rows(report: &Report) -> String {
    let runs: String = report.kept.iter().map(|made| format!("* {made}\n")).collect();
    let of_runs = report.rows.iter().filter(|row| row.id.is_some());
    let head =
        "| figure | quantity | paper | twin | deviation | kind |\n|---|---|---:|---:|---:|---|\n";
    let kept = table(head, of_runs.map(super::report::Row::cells));
    format!("{kept}\nRows of these runs, seed 1:\n\n{runs}")
}

fn text<'a>(row: &'a Value, key: &str) -> &'a str {
    row[key].as_str().unwrap_or_default()
}

/// What a row is called, with its unit.
fn name(row: &Value) -> String {
    fits::named("", text(row, "name"), text(row, "unit"))
}

fn each<'a>(fit: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    fit[key].as_array().unwrap().iter()
}

/// Both ends of a range.
fn range(row: &Value) -> String {
    let [low, high] = [0, 1].map(|end| number(row[end].as_f64().unwrap()));
    if low == high { low } else { format!("{low} to {high}") }
}

/// What a text states or somebody measured, with its uncertainty.
fn paper(row: &Value) -> String {
    let Some(paper) = row["paper"].as_f64() else { return "–".to_owned() };
    let bound = match row["bound"].as_str() {
        None => "",
        Some("most") => "≤ ",
        Some(_) => "≥ ",
    };
    format!("{bound}{}", stated(paper))
}

/// Open values, baseline and predictions of a fit that `ebb-lab fit` wrote.
fn fit(fit: &Value) -> String {
    let open = each(fit, "free").map(|free| {
        let declared = range(&Value::from([free["low"].clone(), free["high"].clone()].to_vec()));
        [name(free), declared, number(free["central"].as_f64().unwrap()), range(&free["region"])]
    });
    let head = "| left open | declared | central | 90 % of the fit |\n|---|---:|---:|---:|\n";
    let open = table(head, open);
    let rows = if fit["baseline"][0].get("left_out").is_some() { left_out } else { predicted };
    let made: Provenance = serde_json::from_value(fit.clone()).unwrap();
    format!("{open}\n{}\n{made}", rows(fit))
}

fn predicted(fit: &Value) -> String {
    let fitted = each(fit, "baseline").map(|row| {
        let central = number(row["central"].as_f64().unwrap());
        [central, range(&row["region"]), "–".to_owned(), "fitted".to_owned()]
    });
    let predictions = each(fit, "predictions").map(|row| {
        let verdict: Option<Verdict> = serde_json::from_value(row["verdict"].clone()).unwrap();
        let verdict = verdict.map_or("", Verdict::name).to_owned();
        let mean = number(row["mean"].as_f64().unwrap());
        [mean, range(&row["range"]), range(&row["seeds"]), verdict]
    });
    let rows = each(fit, "baseline").chain(each(fit, "predictions"));
    let rows = rows.zip(fitted.chain(predictions)).map(|(row, [mean, range, seeds, verdict])| {
        [text(row, "source").to_owned(), name(row), paper(row), mean, range, seeds, verdict]
    });
    table(
        "| figure | quantity | paper | twin | 90 % range | over seeds | verdict |\n\
         |---|---|---:|---:|---:|---:|---|\n",
        rows,
    )
}

/// The rows of a measured server, each predicted from the others.
fn left_out(fit: &Value) -> String {
    let share = |error: f64| format!("{:+.1} %", 100.0 * error);
    let mut errors: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for row in each(fit, "baseline") {
        let found = errors.entry(text(row, "value")).or_default();
        found.extend(row["left_out"]["error"].as_f64());
    }
    let means = errors.iter().map(|(value, errors)| {
        let sum: f64 = errors.iter().map(|error| error.abs()).sum();
        let most = errors.iter().fold(0.0, |most: f64, error| most.max(error.abs()));
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let count = errors.len();
        [format!("`{value}`"), count.to_string(), percent(sum / count as f64), percent(most)]
    });
    let means = table(
        "| error of the rows left out | rows | mean | largest |\n|---|---:|---:|---:|\n",
        means,
    );
    let rows = each(fit, "baseline").map(|row| {
        let out = &row["left_out"];
        let number_of = |value: &Value| value.as_f64().map_or("–".to_owned(), number);
        let range = out["range"].as_array().map_or("–".to_owned(), |_| range(&out["range"]));
        let error = out["error"].as_f64().map_or("–".to_owned(), share);
        let fitted = number_of(&row["central"]);
        [text(row, "source").to_owned(), name(row), paper(row), fitted, range, error]
    });
    let rows = table(
        "| source | row | measured | fitted | 90 % range, left out | error, left out |\n\
         |---|---|---:|---:|---:|---:|\n",
        rows,
    );
    format!("{means}\n{rows}")
}

fn folders(of: &Path) -> Vec<PathBuf> {
    let found = std::fs::read_dir(of).into_iter().flatten().map(|entry| entry.unwrap().path());
    found.filter(|path| path.is_dir()).collect()
}

#[test]
fn the_tables_of_the_pages_are_the_results() {
    let studies = docs::root().join("studies");
    let both = folders(&studies).into_iter().chain(folders(&studies.join("servers")));
    for folder in both.filter(|folder| !folder.ends_with("servers")) {
        let mut tables = Vec::new();
        let of = |paper: &&Paper| folder.ends_with(paper.study());
        if let Some(paper) = Paper::value_variants().iter().find(of) {
            tables.push(("rows".to_owned(), rows(&paper.kept().unwrap())));
        }
        for entry in std::fs::read_dir(folder.join("results")).into_iter().flatten() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            let results = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            tables.push((name, fit(&results)));
        }
        let file = folder.join("README.md");
        let kept = std::fs::read_to_string(&file).unwrap();
        let made = tables.iter().fold(kept, |page, (name, made)| {
            let placed = docs::with(&page, name, made);
            placed.unwrap_or_else(|| panic!("{} has no place for {name}", file.display()))
        });
        docs::compare(&file, &made, "paper::page");
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
