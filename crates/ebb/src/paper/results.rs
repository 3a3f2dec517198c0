//! Rows as an earlier run of `ebb paper` gave them: `studies/NAME/results.json`, which
//! `studies/keep.py` writes. What the text states is read anew.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::report::{Made, Report};
use super::span::Span;

/// The results of one paper.
#[derive(Deserialize)]
struct Results {
    runs: Vec<Made>,
    rows: Vec<Kept>,
}

#[derive(Deserialize)]
struct Kept {
    id: String,
    /// Null where the twin has no such number.
    twin: Option<f64>,
    range: Option<[f64; 2]>,
    note: Option<String>,
    /// Which of the runs.
    run: usize,
}

/// Adds the kept rows that were not computed now, each marked.
///
/// # Errors
/// A file that is none of `studies/keep.py`.
pub fn add(report: &mut Report, text: &str) -> Result<()> {
    let Results { runs, rows } = serde_json::from_str(text)?;
    for Kept { id, twin, range, note, run } in rows {
        if report.rows.iter().any(|row| row.id.as_deref() == Some(&*id)) {
            continue;
        }
        match (twin, range) {
            (Some(middle), Some([low, high])) => report.range(&id, Span { middle, low, high }),
            (Some(twin), None) => report.row(&id, twin),
            (None, _) => report.missing(&id, note.unwrap_or_default()),
        }?;
        report.keep(runs.get(run).with_context(|| format!("{id}: no run {run}"))?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::report::SOURCES;
    use super::super::stated::Stated;
    use super::*;

    fn kept(sources: &str) -> Report {
        let stated = "[a]\nfigure = \"Fig. 1\"\nkind = \"as-stated\"\n\
             one = { paper = 2.0, quantity = \"one, x\" }\n\
             two = { paper = 2.0, quantity = \"two, x\" }\n";
        let mut report = Report::new(Stated::read(stated).unwrap());
        report.row("a/two", 1.0).unwrap();
        let results = serde_json::json!({
            "runs": [{"command": "ebb x", "version": "0.1.0", "commit": "c", "sources": sources}],
            "rows": [
                {"id": "a/one", "twin": 3.0, "run": 0},
                {"id": "a/two", "twin": 3.0, "run": 0},
            ],
        });
        add(&mut report, &results.to_string()).unwrap();
        report
    }

    #[test]
    fn a_kept_row_stands_in_for_one_that_was_not_run() {
        let report = kept(SOURCES);
        let twin: Vec<_> = report.rows.iter().map(|row| (row.twin, row.kept)).collect();
        assert_eq!(twin, [(Some(1.0), false), (Some(3.0), true)]);
        assert_eq!(report.rows[1].deviation, Some(0.5), "of what the text states now");
        assert!(report.text().contains("as stated, kept"), "{}", report.text());
        assert!(!report.text().contains("stale"), "{}", report.text());
    }

    #[test]
    fn a_row_of_other_sources_is_stale() {
        let report = kept("other");
        assert!(report.text().contains("as stated, stale"), "{}", report.text());
        assert!(report.text().contains("`ebb x`"), "{}", report.text());
    }
}
