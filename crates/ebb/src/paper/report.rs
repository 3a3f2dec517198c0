//! Paper against twin: rows for the numbers a text states, curves for figures without any.

use std::fmt;

use anyhow::Result;
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, presets};
use ebb_cli::text::short;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::kind::Kind;
use super::span::Span;
use super::stated::{Fact, Stated};
use super::verdict::{Bound, Form, Verdict};

/// One number that the text states, or that stands beside them.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Row {
    /// Its place in what the paper states, such as `fig-13/pacer`; none in those of fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Figure, table or section.
    pub figure: String,
    /// With its unit.
    pub quantity: String,
    /// Null where the text states nothing.
    pub paper: Option<f64>,
    /// Null where the twin has no such number.
    pub twin: Option<f64>,
    /// Least and most over all that the text leaves open, and seeds; `twin` is the median. Of fits:
    /// 90 % ranges, and the mean or the central sample. Of arithmetic: over what rounds to the
    /// stated numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
    /// `paper` is a bound; absent where it is a value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// Outside: `paper`, as rounded, and the range do not meet. not-identified: they do, but the
    /// range is wider than a tenth of `paper`; where the text states percent less or more, of 1
    /// less or plus these. Of a bound: whether the whole range keeps it, or a part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Why it has none; absent where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Calibrated: the number set a constant of the model. as-stated: a result of one machine and
    /// one load, made as the text states them, with nothing fitted. stress: under a load harder
    /// than the paper's. reinterpreted: it stands beside another comparison than the one it was
    /// stated for. fitted: a result of the baseline, which open values were set to, or these
    /// values. predicted: a result of the treatment over all that is open. arithmetic: what follows
    /// from other numbers of the same text. modelled: the twin's alone.
    pub kind: Kind,
    /// `twin / paper - 1`, of what remains where they are percent saved or more; null where one of
    /// them is, or the paper's is a bound.
    pub deviation: Option<f64>,
    /// The row was computed beforehand; absent where it was not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(extend("const" = true))]
    pub kept: bool,
    /// That was with other sources than this binary's; absent where it was not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(extend("const" = true))]
    pub stale: bool,
}

impl Row {
    pub fn new(
        figure: &str,
        quantity: &str,
        paper: Option<f64>,
        twin: Option<f64>,
        kind: Kind,
    ) -> Self {
        let (figure, quantity) = (figure.to_owned(), quantity.to_owned());
        let both = paper.zip(twin);
        let deviation = both.and_then(|(paper, twin)| Form::of(&quantity).deviation(paper, twin));
        Self {
            id: None,
            figure,
            quantity,
            paper,
            twin,
            range: None,
            bound: None,
            verdict: None,
            note: None,
            kind,
            deviation,
            kept: false,
            stale: false,
        }
    }

    /// One whose number has a range, beside what the text states and what rounds to it.
    fn ranged(figure: &str, quantity: &str, paper: Option<Span>, found: Span, kind: Kind) -> Self {
        let verdict = paper.map(|paper| match found.meets(paper) {
            true => Verdict::Inside,
            false => Verdict::Outside,
        });
        let paper = paper.map(|paper| paper.middle);
        let row = Self::new(figure, quantity, paper, Some(found.middle), kind);
        Self { range: Some([found.low, found.high]), verdict, ..row }
    }

    /// For people: figure, quantity, what the text states, what the twin gives, deviation, kind.
    pub fn cells(&self) -> [String; 6] {
        let none = || "–".to_owned();
        let twin = self.twin.map_or_else(|| self.note.clone().unwrap_or_else(none), number);
        let range = self.range.filter(|[low, high]| number(*low) != number(*high));
        let range = range.map(|[low, high]| format!(" ({} to {})", number(low), number(high)));
        let paper = self.paper.map_or_else(none, stated);
        let paper = match self.bound {
            None => paper,
            Some(Bound::Most) => format!("≤ {paper}"),
            Some(Bound::Least) => format!("≥ {paper}"),
        };
        let verdict = self.verdict.map(|verdict| format!(", {}", verdict.name()));
        [
            self.figure.clone(),
            self.quantity.clone(),
            paper,
            twin + &range.unwrap_or_default(),
            self.deviation.map_or_else(none, percent),
            self.kind.name().to_owned() + &verdict.unwrap_or_default(),
        ]
    }
}

/// What the policies, traces, twin and experiments of this binary were made from.
pub const SOURCES: &str = env!("EBB_SOURCES");

/// An earlier run of `ebb paper`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Made {
    /// What repeats it.
    command: String,
    /// Of `ebb`.
    version: String,
    commit: String,
    /// As above; its rows are stale where the two differ.
    sources: String,
}

impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { command, version, commit, .. } = self;
        write!(f, "`{command}` of {version} (commit {commit})")
    }
}

/// One curve of the twin, where a figure has no stated number at each point.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct Curve {
    /// Figure.
    pub figure: &'static str,
    /// What the curve shows.
    pub series: String,
    /// What the points are at.
    pub x: Vec<f64>,
    /// Their values.
    pub y: Vec<f64>,
}

/// Where rows come from that were not computed now.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Provenance {
    /// The file.
    pub declaration: String,
    /// Its last one before the fit.
    commit: String,
    /// At which the baseline was simulated.
    points: u32,
    /// Samples of what the baseline leaves open on which predictions ran.
    forecast: u32,
    /// Seeds of each prediction.
    prediction_seeds: Vec<u64>,
    /// What repeats it.
    command: String,
    /// How many of the rows with a stated number single samples meet; absent where it was not
    /// computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    joint: Option<Joint>,
}

/// The stated rows that single samples of a fit meet.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Joint {
    /// Rows with a stated number.
    rows: u32,
    /// Samples.
    draws: u32,
    /// Samples that meet all rows.
    all: u32,
    /// Rows that the best sample meets.
    best: u32,
}

impl fmt::Display for Joint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rows, draws, all, best } = self;
        match all {
            0 => write!(f, "None of {draws} samples meets all {rows} rows; the best meets {best}."),
            _ => write!(f, "{all} of {draws} samples meet all {rows} rows."),
        }
    }
}

impl fmt::Display for Provenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { declaration, points, forecast, command, .. } = self;
        let commit = self.commit.get(..12).unwrap_or(&self.commit);
        writeln!(
            f,
            "Computed beforehand, by {command}: fitted and predicted rows of {declaration} (commit \
             {commit}).\n  {points} points were simulated; predictions ran on {forecast} samples \
             of what the baseline leaves open.",
        )?;
        self.joint.as_ref().map_or(Ok(()), |joint| writeln!(f, "  {joint}"))
    }
}

/// Version 6. Numbers of a paper beside those of the twin. Against version 5: rows have `id` and
/// may be `stale`; `version`, `sources` and the runs that kept rows are of.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "ebb paper NAME --json")]
pub struct Report {
    /// Version of this form.
    #[schemars(extend("const" = 6))]
    schema: u32,
    /// One for every number that the text states, and those that stand beside them.
    pub rows: Vec<Row>,
    /// The twin's own curves, where a figure states no number.
    pub curves: Vec<Curve>,
    /// Where fitted and predicted rows come from that were computed beforehand, by ebb-lab fit;
    /// absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fits: Vec<Provenance>,
    /// An interruption left out the rest; absent where it did not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schemars(extend("const" = true))]
    pub interrupted: bool,
    /// The earlier runs that kept rows are of; absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Made>,
    /// Of `ebb`.
    version: &'static str,
    /// A digest of what this binary's policies, traces and twin were made from.
    sources: &'static str,
    /// What the text states.
    #[serde(skip)]
    pub stated: Stated,
}

impl Report {
    /// Nothing run yet, of what a paper states.
    pub fn new(stated: Stated) -> Self {
        Self {
            schema: 6,
            rows: Vec::new(),
            curves: Vec::new(),
            fits: Vec::new(),
            interrupted: false,
            kept: Vec::new(),
            version: env!("CARGO_PKG_VERSION"),
            sources: SOURCES,
            stated,
        }
    }

    /// Adds what the twin gives beside what the text states in this row.
    ///
    /// # Errors
    /// An unknown row; as of the next two.
    pub fn row(&mut self, id: &str, twin: f64) -> Result<()> {
        let Fact { figure, quantity, kind, paper, bound } = self.stated.fact(id)?;
        let row = Row::new(figure, quantity, paper.map(|paper| paper.middle), Some(twin), kind);
        let row = match (bound, paper) {
            (Some(bound), Some(paper)) => {
                let verdict = Some(bound.judge(paper, Span::exact(twin)));
                Row { bound: Some(bound), verdict, deviation: None, ..row }
            }
            _ => row,
        };
        self.rows.push(Row { id: Some(id.to_owned()), ..row });
        Ok(())
    }

    /// The same of a result with its range.
    pub fn range(&mut self, id: &str, found: Span) -> Result<()> {
        let Fact { figure, quantity, kind, paper, .. } = self.stated.fact(id)?;
        let row = Row::ranged(figure, quantity, paper, found, kind);
        let verdict = match paper {
            Some(paper) if kind == Kind::Predicted => Some(Form::of(quantity).judge(paper, found)),
            _ => row.verdict,
        };
        self.rows.push(Row { id: Some(id.to_owned()), verdict, ..row });
        Ok(())
    }

    /// The same of a number that the twin does not have, and why.
    pub fn missing(&mut self, id: &str, note: String) -> Result<()> {
        let Fact { figure, quantity, kind, paper, .. } = self.stated.fact(id)?;
        let row = Row::new(figure, quantity, paper.map(|paper| paper.middle), None, kind);
        self.rows.push(Row { id: Some(id.to_owned()), note: Some(note), ..row });
        Ok(())
    }

    /// Marks the last row as one of an earlier run.
    pub fn keep(&mut self, made: &Made) {
        if let Some(row) = self.rows.last_mut() {
            (row.kept, row.stale) = (true, made.sources != SOURCES);
        }
        if !self.kept.contains(made) {
            self.kept.push(made.clone());
        }
    }

    /// Adds a curve from (x, y) points.
    pub fn curve(&mut self, figure: &'static str, series: String, points: &[(f64, f64)]) {
        let (x, y) = points.iter().copied().unzip();
        self.curves.push(Curve { figure, series, x, y });
    }

    /// What people must know of the kinds of rows that are not in every report.
    pub fn reading(&self) -> String {
        let mut told: Vec<Kind> = Vec::new();
        for Row { kind, .. } in &self.rows {
            if !told.contains(kind) {
                told.push(*kind);
            }
        }
        let lines = told.iter().filter_map(|kind| Some((kind.name(), kind.meaning()?)));
        lines.map(|(name, meaning)| format!("{name}: {meaning}\n")).collect()
    }

    /// For people: one line a number, then one line a curve.
    pub fn text(&self) -> String {
        let mut table = Table::new();
        table
            .load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()))
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_header(["figure", "quantity", "paper", "twin", "deviation", "kind"]);
        if table.width().is_none() {
            table.set_width(110);
        }
        for row in &self.rows {
            let mut cells = row.cells();
            cells[5] += match (row.stale, row.kept) {
                (true, _) => ", stale",
                (false, true) => ", kept",
                (false, false) => "",
            };
            table.add_row(cells);
        }
        for column in 2..5 {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let mut text = table.to_string();
        for fit in &self.fits {
            text.push_str(&format!("\n{fit}"));
        }
        for made in &self.kept {
            let stale = match made.sources == SOURCES {
                true => "",
                false => "\n  Stale: policies, traces, twin or experiments have changed since.",
            };
            text.push_str(&format!("\nKept: rows of {made}.{stale}"));
        }
        if !self.curves.is_empty() {
            text.push_str("\n\nThe twin's curves where the figure states no number:\n");
        }
        for curve in &self.curves {
            let points = curve.x.iter().zip(&curve.y);
            let points: Vec<_> =
                points.map(|(x, y)| format!("{}: {}", short(*x), number(*y))).collect();
            text.push_str(&format!(
                "{}  {}\n    {}\n",
                curve.figure,
                curve.series,
                points.join("  ")
            ));
        }
        text
    }
}

/// As the paper prints it: whole thousands are not rounded.
pub fn stated(value: f64) -> String {
    if value.abs() >= 1000.0 && value.fract() == 0.0 { format!("{value}") } else { number(value) }
}

/// Three significant digits, without an exponent.
pub fn number(value: f64) -> String {
    // Rounded first: 0.9996 is 1.00.
    let rounded = format!("{value:.2e}").parse().unwrap_or(value);
    if rounded == 0.0 || !rounded.is_finite() {
        return format!("{rounded}");
    }
    let digits = (2 - rounded.abs().log10().floor() as i32).clamp(0, 6);
    format!("{rounded:.*}", digits as usize)
}

/// With its sign, unless it rounds to nothing.
fn percent(deviation: f64) -> String {
    let percent = (1000.0 * deviation).round() / 10.0;
    if percent == 0.0 { "0.0 %".to_owned() } else { format!("{percent:+.1} %") }
}

#[cfg(test)]
crate::schema::written!("paper-6", Report);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let cases = [
            (1.234, "1.23"),
            (1234.5, "1230"),
            (0.05678, "0.0568"),
            (0.99962, "1.00"),
            (0.0, "0"),
            (-2.5, "-2.50"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn deviations_have_a_sign_unless_there_is_none() {
        let cases = [(0.1234, "+12.3 %"), (-0.05, "-5.0 %"), (-0.0001, "0.0 %"), (0.0, "0.0 %")];
        for (value, text) in cases {
            assert_eq!(percent(value), text);
        }
    }

    fn report() -> Report {
        let stated = Stated::read(
            "[a]\nfigure = \"Fig. 5\"\nkind = \"as-stated\"\n\
             plain = { paper = 2.0, quantity = \"x\" }\n\
             full-fans = { paper = 60.0, kind = \"reinterpreted\", quantity = \"y\" }\n\
             most = { paper = 5.0, bound = \"most\", quantity = \"p99 over polling's, %\" }\n\
             less = { paper = 85.0, half = 0.5, kind = \"predicted\", quantity = \"W saved, %\" }\n\
             open = { kind = \"fitted\", quantity = \"open\" }\n",
        );
        Report::new(stated.unwrap())
    }

    #[test]
    fn json_follows_the_published_schema() {
        let schema = include_str!("../../../../docs/json-schema/paper-6.json");
        let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
        let mut report = report();
        report.row("a/plain", 1.5).unwrap();
        report.row("a/full-fans", 55.0).unwrap();
        report.row("a/most", 3.0).unwrap();
        report.range("a/less", Span::stated(80.0, 2.0)).unwrap();
        report.range("a/open", Span::stated(2.0, 1.0)).unwrap();
        report.missing("a/plain", "no saving".into()).unwrap();
        report.curve("Fig. 6", "y over x".into(), &[(0.0, 1.0), (1.0, 2.0)]);
        let json = serde_json::to_value(&report).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        assert!(validator.is_valid(&json), "{json}");
    }

    #[test]
    fn the_deviation_is_relative_to_the_paper() {
        let mut report = report();
        report.row("a/plain", 1.5).unwrap();
        assert_eq!(report.rows[0].deviation, Some(-0.25));
        assert!(report.text().contains("-25.0 %"), "{}", report.text());
    }

    #[test]
    fn percent_saved_are_predicted_by_what_remains() {
        let mut report = report();
        report.range("a/less", Span::stated(85.0, 2.0)).unwrap();
        assert_eq!(report.rows[0].verdict, Some(Verdict::NotIdentified));
    }

    #[test]
    fn a_number_of_another_comparison_or_none_at_all_cannot_be_taken_for_a_validation() {
        let mut report = report();
        report.row("a/full-fans", 55.0).unwrap();
        report.missing("a/plain", "no saving".into()).unwrap();
        let text = report.text();
        let line = |what: &str| text.lines().find(|line| line.contains(what)).unwrap();
        assert!(line(" y ").trim_end().ends_with("reinterpreted"), "{text}");
        assert!(line(" x ").contains("no saving"), "{text}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["rows"][0]["kind"], "reinterpreted");
        assert!(json["rows"][1]["twin"].is_null() && json["rows"][1]["deviation"].is_null());
        assert_eq!(json["rows"][1]["note"], "no saving");
    }

    #[test]
    fn a_bound_that_holds_has_no_deviation() {
        let mut report = report();
        report.row("a/most", 3.1).unwrap();
        let text = report.text();
        assert!(text.contains("≤ 5.00") && text.contains("as stated, inside"), "{text}");
        assert!(!text.contains("-38"), "{text}");
    }
}
