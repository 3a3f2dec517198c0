//! The report: one self-contained HTML page with plots, summary and the log of decisions.
//!
//! The page holds the numbers as JSON and draws them with plotly.js, which stands in it too. A
//! content security policy forbids it any network. Text enters the page through the JSON and
//! `textContent` only, so that no name can become markup.

mod data;
mod series;

use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use plotly::Plot;

use super::plan::Plan;
use super::run::RunResult;
use super::summary::Summary;
use crate::exit::Unwritten;
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
    let done = || -> Result<()> {
        fs::create_dir_all(folder)?;
        let partial = folder.join("index.html.partial");
        let mut to = BufWriter::new(fs::File::create(&partial)?);
        render(&mut to, &data)?;
        to.into_inner().map_err(|error| error.into_error())?.sync_all()?;
        Ok(fs::rename(partial, &page)?)
    };
    done().with_context(|| Unwritten(page.display().to_string()))?;
    Ok(page)
}

/// Fills the places that the page's template marks.
fn render(to: &mut impl Write, data: &Data<'_>) -> Result<()> {
    let library = Plot::offline_js_sources();
    // Its second script typesets formulas, of which there are none.
    let library = library.split("</script>").next().unwrap_or_default();
    let library = library.split_once('>').map_or("", |(_, script)| script);
    let numbers = serde_json::to_string(data)?.replace('<', "\\u003c");
    for part in include_str!("page.html").split("<!--") {
        let (place, rest) = part.split_once("-->").unwrap_or(("", part));
        match place {
            "style" => to.write_all(include_bytes!("page.css"))?,
            "plotly" => to.write_all(library.as_bytes())?,
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
