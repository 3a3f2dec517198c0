//! The report: one self-contained HTML page with plots, summary and the log of decisions.
//!
//! The page holds the numbers as JSON and draws them with uPlot (MIT), which stands in it too. A
//! content security policy forbids it any network. Text enters the page through the JSON and
//! `textContent` only, so that no name can become markup.

mod data;
mod series;

use std::io::{self, Write};

use ebb_policy::Topology;
use serde::Serialize;

use crate::column::Columns;
use crate::recorder::Recorded;
use crate::summary::Summary;
use data::Data;

/// What the page says of itself.
#[derive(Debug, Clone, Default, Serialize)]
pub struct About {
    /// Version of Ebb.
    pub version: &'static str,
    /// The command line, quoted for a shell.
    pub command: String,
    /// When the page was made, seconds since 1970.
    pub made_unix_s: u64,
    /// The server, in a line.
    pub profile_summary: String,
    /// Time at the start that is not counted in the summary.
    pub warmup_s: f64,
}

/// Writes the page of `runs` on a server with `topology`.
///
/// # Errors
/// When rows cannot be read back, or `to` cannot be written.
pub fn write<'a>(
    to: &mut impl Write,
    about: &About,
    topology: &Topology,
    columns: &Columns,
    summary: &Summary,
    runs: impl Iterator<Item = &'a mut Recorded>,
) -> io::Result<()> {
    let data = Data::new(about, topology, columns, summary, runs)?;
    let numbers = serde_json::to_string(&data)?.replace('<', "\\u003c");
    for part in include_str!("page.html").split("<!--") {
        let (place, rest) = part.split_once("-->").unwrap_or(("", part));
        match place {
            "style" => to.write_all(include_bytes!("page.css"))?,
            "library-style" => to.write_all(include_bytes!("uplot/uPlot.min.css"))?,
            "library" => to.write_all(include_bytes!("uplot/uPlot.iife.min.js"))?,
            "data" => to.write_all(numbers.as_bytes())?,
            "script" => {
                to.write_all(include_bytes!("shared.js"))?;
                to.write_all(include_bytes!("charts.js"))?;
                to.write_all(include_bytes!("page.js"))?;
            }
            _ => {}
        }
        to.write_all(rest.as_bytes())?;
    }
    Ok(())
}
