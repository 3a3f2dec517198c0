//! What a paper's declared fit came to: computed by `ebb-lab fit`, kept in `results` of its study,
//! printed here.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::kind::Kind;
use super::report::{Provenance, Report, Row};
use super::span::Span;
use super::verdict::{Bound, Form, Verdict};

/// Results as `ebb-lab fit` wrote them, by paper.
const RESULTS: &[(&str, &str)] = &[
    ("eadc", include_str!("../../../../studies/eadc/results/fit.json")),
    ("pacer", include_str!("../../../../studies/pacer/results/fit.json")),
    ("pacer", include_str!("../../../../studies/pacer/results/fig-7.json")),
    ("pacman", include_str!("../../../../studies/pacman/results/fit.json")),
    ("sandman", include_str!("../../../../studies/sandman/results/fit.json")),
];

#[derive(Deserialize)]
struct Fit {
    name: String,
    #[serde(flatten)]
    provenance: Provenance,
    free: Vec<Free>,
    baseline: Vec<Fitted>,
    predictions: Vec<Predicted>,
}

#[derive(Deserialize)]
struct Free {
    name: String,
    unit: String,
    region: [f64; 2],
    central: f64,
}

#[derive(Deserialize)]
struct Fitted {
    name: String,
    source: String,
    unit: String,
    paper: f64,
    central: f64,
    region: [f64; 2],
}

#[derive(Deserialize)]
struct Predicted {
    name: String,
    source: String,
    unit: String,
    /// None for a policy that no text has.
    paper: Option<f64>,
    uncertainty: f64,
    rounding: f64,
    bound: Option<Bound>,
    mean: f64,
    range: [f64; 2],
}

impl Predicted {
    /// By the rule that holds for every paper; ratios of a fit are of what remains.
    fn judged(&self) -> Option<Verdict> {
        let paper = Span::stated(self.paper?, self.uncertainty.max(self.rounding));
        let [low, high] = self.range;
        let found = Span { middle: self.mean, low, high };
        Some(match self.bound {
            Some(bound) => bound.judge(paper, found),
            None => Form::Plain.judge(paper, found),
        })
    }
}

/// Adds the rows of the fits of `paper`, if it has any.
///
/// # Errors
/// A result that is none of `ebb-lab fit`.
pub fn add(report: &mut Report, paper: &str) -> Result<()> {
    let own = || RESULTS.iter().filter(|(of, _)| *of == paper);
    for (_, text) in own() {
        let fit: Fit = serde_json::from_str(text).with_context(|| format!("a fit of {paper}"))?;
        // Of several servers each row says whose it is.
        let server = if own().count() > 1 { fit.name.as_str() } else { "" };
        let named = |name: &str, unit: &str| named(server, name, unit);
        for free in fit.free {
            let quantity = named(&format!("open: {}", free.name), &free.unit);
            let row = Row::new("fit", &quantity, None, Some(free.central), Kind::Fitted);
            report.rows.push(Row { range: Some(free.region), ..row });
        }
        for row in fit.baseline {
            let (paper, quantity) = (Some(row.paper), named(&row.name, &row.unit));
            let fitted = Row::new(&row.source, &quantity, paper, Some(row.central), Kind::Fitted);
            report.rows.push(Row { range: Some(row.region), ..fitted });
        }
        for row in fit.predictions {
            let kind = if row.paper.is_some() { Kind::Predicted } else { Kind::Modelled };
            let quantity = named(&row.name, &row.unit);
            let found = Row::new(&row.source, &quantity, row.paper, Some(row.mean), kind);
            let (range, bound, verdict) = (Some(row.range), row.bound, row.judged());
            let deviation = if bound.is_some() { None } else { found.deviation };
            report.rows.push(Row { range, bound, verdict, deviation, ..found });
        }
        report.fits.push(fit.provenance);
    }
    Ok(())
}

/// What a row is called, with the fit that it is of and its unit.
pub fn named(server: &str, name: &str, unit: &str) -> String {
    let server = if server.is_empty() { String::new() } else { format!("{server}: ") };
    let unit = if unit.is_empty() { String::new() } else { format!(", {unit}") };
    format!("{server}{name}{unit}")
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::super::Paper;
    use super::super::stated::Fact;
    use super::*;

    /// What is stated, as `ebb-lab` takes it: percent as what remains, to six digits.
    fn remaining(fact: &Fact<'_>) -> f64 {
        let paper = fact.paper.unwrap().middle;
        let ratio = match Form::of(fact.quantity) {
            Form::Plain if fact.quantity.contains(", %") => paper / 100.0,
            form => form.ratio(Span::exact(paper)).middle,
        };
        format!("{ratio:.6}").parse().unwrap()
    }

    /// A changed declaration takes a new run, and so does a changed number that it names.
    #[test]
    fn results_are_of_their_declarations() {
        for (paper, text) in RESULTS {
            let fit: Fit = serde_json::from_str(text).unwrap();
            let file =
                format!("{}/../../{}", env!("CARGO_MANIFEST_DIR"), fit.provenance.declaration);
            let declared: toml::Table = std::fs::read_to_string(&file).unwrap().parse().unwrap();
            let stated = Paper::from_str(paper, false).unwrap().report().unwrap().stated;
            let rows = |key: &str| -> Vec<(String, Option<f64>)> {
                let number = |row: &toml::Value| match row.get("stated") {
                    Some(id) => Some(remaining(&stated.fact(id.as_str().unwrap()).unwrap())),
                    None => row.get("paper").map(|paper| paper.clone().try_into().unwrap()),
                };
                let tables = declared[key].as_array().unwrap().iter();
                tables.map(|row| (row["name"].as_str().unwrap().into(), number(row))).collect()
            };
            let free = fit.free.iter().map(|row| (row.name.clone(), None)).collect::<Vec<_>>();
            assert_eq!(free, rows("free"), "{file}");
            let fitted = fit.baseline.iter().map(|row| (row.name.clone(), Some(row.paper)));
            assert_eq!(fitted.collect::<Vec<_>>(), rows("baseline"), "{file}");
            let predicted = fit.predictions.iter().map(|row| (row.name.clone(), row.paper));
            assert_eq!(predicted.collect::<Vec<_>>(), rows("prediction"), "{file}");
            let told: serde_json::Value = serde_json::from_str(text).unwrap();
            for (row, told) in fit.predictions.iter().zip(told["predictions"].as_array().unwrap()) {
                let lab: Option<Verdict> = serde_json::from_value(told["verdict"].clone()).unwrap();
                assert_eq!(row.judged(), lab, "{}: the lab has another rule", row.name);
            }
            let mut report = Paper::from_str(paper, false).unwrap().report().unwrap();
            add(&mut report, paper).unwrap();
            assert!(report.text().contains(&fit.provenance.declaration));
        }
    }
}
