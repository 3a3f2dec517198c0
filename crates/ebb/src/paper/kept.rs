//! Rows of the figures that take longest, as `ebb paper NAME --full` printed them.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::Paper;
use super::report::{Report, Row};

#[derive(Deserialize)]
struct Kept {
    /// What computes the rows again.
    command: String,
    /// The commit of the code that did.
    commit: String,
    rows: Vec<Row>,
}

fn text(paper: Paper) -> Option<&'static str> {
    match paper {
        Paper::Pacer => Some(include_str!("../../../../studies/pacer/kept.json")),
        Paper::Pacman => Some(include_str!("../../../../studies/pacman/kept.json")),
        Paper::Sandman => Some(include_str!("../../../../studies/sandman/kept.json")),
        Paper::Eadc | Paper::StorageServers => None,
    }
}

/// Adds the kept rows of a paper, if it has any, each marked.
///
/// # Errors
/// Rows that are none of `ebb paper`.
pub fn add(report: &mut Report, paper: Paper) -> Result<()> {
    let Some(text) = text(paper) else { return Ok(()) };
    let Kept { command, commit, rows } =
        serde_json::from_str(text).with_context(|| format!("kept rows of {paper:?}"))?;
    report.rows.extend(rows.into_iter().map(|row| Row { kept: true, ..row }));
    report.kept = Some(format!("{command} (commit {commit})"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_paper_with_long_figures_has_kept_rows() {
        for paper in Paper::value_variants() {
            let mut report = paper.report().unwrap();
            add(&mut report, *paper).unwrap();
            assert_eq!(report.rows.is_empty(), paper.long().is_empty(), "{paper:?}");
            assert!(report.rows.iter().all(|row| row.kept), "{paper:?}");
        }
    }
}
