//! The report: one self-contained HTML page with plots, summary and the log of decisions.
//!
//! The page holds the numbers as JSON and draws them with uPlot (MIT), which stands in it too. A
//! content security policy forbids it any network. Text enters the page through the JSON and
//! `textContent` only, so that no name can become markup.

mod data;
mod series;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::plan::Plan;
use super::run::RunResult;
use super::summary::Summary;
use crate::exit::Unwritten;
use crate::output;
use data::Data;

/// Name of the page in its folder.
const PAGE: &str = "index.html";

/// Writes the page into `folder` and returns its path. The page appears under its name only when
/// it is complete.
pub fn write(
    folder: &Path,
    plan: &Plan,
    summary: &Summary,
    results: &mut [RunResult],
) -> Result<PathBuf> {
    let data = Data::new(plan, summary, results)?;
    let page = folder.join(PAGE);
    fs::create_dir_all(folder).with_context(|| Unwritten(page.display().to_string()))?;
    output::write(&page, |to| render(to, &data))?;
    Ok(page)
}

/// Fills the places that the page's template marks.
fn render(to: &mut impl Write, data: &Data<'_>) -> Result<()> {
    let numbers = serde_json::to_string(data)?.replace('<', "\\u003c");
    for part in include_str!("page.html").split("<!--") {
        let (place, rest) = part.split_once("-->").unwrap_or(("", part));
        match place {
            "style" => to.write_all(include_bytes!("page.css"))?,
            "library-style" => to.write_all(include_bytes!("uplot/uPlot.min.css"))?,
            "library" => to.write_all(include_bytes!("uplot/uPlot.iife.min.js"))?,
            "data" => to.write_all(numbers.as_bytes())?,
            "script" => {
                to.write_all(include_bytes!("charts.js"))?;
                to.write_all(include_bytes!("page.js"))?;
            }
            _ => {}
        }
        to.write_all(rest.as_bytes())?;
    }
    Ok(())
}
