//! What a paper's declared fit (`fits/`) came to: computed by `ebb-lab fit`, kept in
//! `fits/results`, printed here.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::report::{Kind, Provenance, Report, Row, Verdict};

/// Results as `ebb-lab fit` wrote them, by paper.
const RESULTS: &[(&str, &str)] = &[
    ("eadc", include_str!("../../../../fits/results/eadc-e6.json")),
    ("pacer", include_str!("../../../../fits/results/pacer.json")),
    ("pacman", include_str!("../../../../fits/results/pacman.json")),
    ("sandman", include_str!("../../../../fits/results/sandman.json")),
];

#[derive(Deserialize)]
struct Fit {
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
    mean: f64,
    range: [f64; 2],
    verdict: Option<String>,
}

/// Adds the rows of the fits of `paper`, if it has any.
///
/// # Errors
/// A result that is none of `ebb-lab fit`.
pub fn add(report: &mut Report, paper: &str) -> Result<()> {
    for (_, text) in RESULTS.iter().filter(|(of, _)| *of == paper) {
        let fit: Fit = serde_json::from_str(text).with_context(|| format!("a fit of {paper}"))?;
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
            let verdict = row.verdict.map(|verdict| match verdict.as_str() {
                "outside" => Verdict::Outside,
                "inside the range" => Verdict::Inside,
                _ => Verdict::NotIdentified,
            });
            report.rows.push(Row { range: Some(row.range), verdict, ..found });
        }
        report.fits.push(fit.provenance);
    }
    Ok(())
}

fn named(name: &str, unit: &str) -> String {
    if unit.is_empty() { name.to_owned() } else { format!("{name}, {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A changed declaration takes a new run.
    #[test]
    fn results_are_of_their_declarations() {
        for (paper, text) in RESULTS {
            let fit: Fit = serde_json::from_str(text).unwrap();
            let file =
                format!("{}/../../{}", env!("CARGO_MANIFEST_DIR"), fit.provenance.declaration);
            let declared: toml::Table = std::fs::read_to_string(&file).unwrap().parse().unwrap();
            let names = |key: &str| -> Vec<String> {
                let tables = declared[key].as_array().unwrap().iter();
                tables.map(|table| table["name"].as_str().unwrap().to_owned()).collect()
            };
            let of = |names: Vec<&String>| names.into_iter().cloned().collect::<Vec<_>>();
            assert_eq!(of(fit.free.iter().map(|row| &row.name).collect()), names("free"), "{file}");
            let baseline = fit.baseline.iter().map(|row| &row.name).collect();
            assert_eq!(of(baseline), names("baseline"), "{file}");
            let predicted = fit.predictions.iter().map(|row| &row.name).collect();
            assert_eq!(of(predicted), names("prediction"), "{file}");
            let mut report = Report::default();
            add(&mut report, paper).unwrap();
            assert!(report.text().contains(&fit.provenance.declaration));
        }
    }
}
