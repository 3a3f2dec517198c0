//! Paper against twin: rows for the numbers a text states, curves for figures without any.

use std::fmt;

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, presets};
use serde::{Deserialize, Serialize};

use super::span::Span;
use super::verdict::{Bound, Form, Verdict};
use crate::text::short;

/// Whether a number set the profile or only checks it. They never mix: no constant is chosen
/// because it moves a row of another kind than the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A component figure that set a constant of the profile.
    Calibrated,
    /// A result of one machine and one load, made as the text states them; what it leaves open is
    /// assumed, and nothing is fitted.
    AsStated,
    /// The same under a load that is harder than the paper's own.
    Stress,
    /// A stated number beside another comparison than the one it was stated for, because of what
    /// else the text says: a reading of the paper, which validates nothing.
    Reinterpreted,
    /// A result of the baseline, which values that the text leaves open were fitted to; or these.
    Fitted,
    /// A result of the treatment, over all that the baseline leaves open.
    Predicted,
    /// What follows from other numbers of the same text.
    Arithmetic,
    /// What no paper states: the twin's alone.
    Modelled,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Calibrated => "calibrated",
            Self::AsStated => "as stated",
            Self::Stress => "stress",
            Self::Reinterpreted => "reinterpreted",
            Self::Fitted => "fitted",
            Self::Predicted => "predicted",
            Self::Arithmetic => "arithmetic",
            Self::Modelled => "modelled",
        }
    }

    /// What it means, for people; kinds that every report explains have none.
    fn meaning(self) -> Option<&'static str> {
        match self {
            Self::Calibrated | Self::AsStated => None,
            Self::Stress => Some("a load harder than the paper's, so its number does not apply."),
            Self::Reinterpreted => Some(
                "the paper's number beside another comparison than stated, because other\n  \
                 parts of the text suggest it. It validates nothing.",
            ),
            Self::Fitted => Some(
                "a result of the baseline that open values were fitted to, or one of\n  \
                 these values.",
            ),
            Self::Predicted => Some(
                "follows from inputs and the fit; no value was set by it. The range is over\n  \
                 open values and seeds. Not identified: it contains the number, but is \
                 wider\n  than a tenth of it, or of what remains where percent less are stated.",
            ),
            Self::Arithmetic => {
                Some("follows from other numbers of the same text, within their rounding.")
            }
            Self::Modelled => Some("the twin's alone; the text states nothing."),
        }
    }
}

/// One number that the text states, or that stands beside them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// Figure, table or section.
    pub figure: String,
    /// What was measured, with its unit.
    pub quantity: String,
    /// What the paper states; null where it states nothing.
    pub paper: Option<f64>,
    /// What the twin gives; null where it has no such number.
    pub twin: Option<f64>,
    /// The least and the most that were found; `twin` is their median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<[f64; 2]>,
    /// Whether what the paper states is a bound, and no value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// Whether what the paper states is among them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Why it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// How the two are related.
    pub kind: Kind,
    /// `twin / paper - 1`, of what remains where they are percent saved or more; null where one of
    /// them is, or the paper's is a bound.
    pub deviation: Option<f64>,
    /// Whether it was computed beforehand, because it takes long.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
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
        let (range, bound, verdict, note, kept) = (None, None, None, None, false);
        Self { figure, quantity, paper, twin, range, bound, verdict, note, kind, deviation, kept }
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
}

/// One curve of the twin, where a figure has no stated number at each point.
#[derive(Debug, Clone, Serialize)]
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
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Provenance {
    /// The file that declares what is free, the baseline and what is predicted.
    pub declaration: String,
    /// Its last commit before the fit.
    commit: String,
    /// Points at which the baseline was simulated.
    points: u32,
    /// Samples of what it leaves open on which the policy ran.
    forecast: u32,
    /// Seeds of each prediction.
    prediction_seeds: Vec<u64>,
    /// What repeats it.
    command: String,
    /// How many of the stated rows single samples meet.
    #[serde(skip_serializing_if = "Option::is_none")]
    joint: Option<Joint>,
}

/// The stated rows that single samples of a fit meet.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Joint {
    /// Rows with a stated number.
    rows: u32,
    /// Samples.
    draws: u32,
    /// Those that meet all rows.
    all: u32,
    /// Rows that the best one meets.
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

/// All that one paper's evaluation came to.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Version of this form.
    schema: u32,
    /// Stated numbers.
    pub rows: Vec<Row>,
    /// The twin's own curves.
    pub curves: Vec<Curve>,
    /// The fits that fitted and predicted rows come from, where they were computed beforehand.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fits: Vec<Provenance>,
    /// Whether an interruption left out the rest; absent where it did not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub interrupted: bool,
    /// What computed the rows that were kept.
    #[serde(skip)]
    pub kept: Option<String>,
}

impl Default for Report {
    fn default() -> Self {
        let (rows, curves, fits) = (Vec::new(), Vec::new(), Vec::new());
        Self { schema: 5, rows, curves, fits, interrupted: false, kept: None }
    }
}

impl Report {
    /// Adds a number that set the profile.
    pub fn calibrated(&mut self, figure: &str, quantity: &str, paper: f64, twin: f64) {
        self.row(figure, quantity, paper, twin, Kind::Calibrated);
    }
    /// Adds a result of the machine and load as stated, with nothing fitted.
    pub fn as_stated(&mut self, figure: &str, quantity: &str, paper: f64, twin: f64) {
        self.row(figure, quantity, paper, twin, Kind::AsStated);
    }
    /// Adds a result under a load harder than the paper's.
    pub fn stress(&mut self, figure: &str, quantity: &str, paper: f64, twin: f64) {
        self.row(figure, quantity, paper, twin, Kind::Stress);
    }
    /// Adds a number beside another comparison than the one it was stated for.
    pub fn reinterpreted(&mut self, figure: &str, quantity: &str, paper: f64, twin: f64) {
        self.row(figure, quantity, paper, twin, Kind::Reinterpreted);
    }
    /// Adds a number to compare that the twin does not have, and why.
    pub fn missing(&mut self, figure: &str, quantity: &str, paper: f64, note: String) {
        let row = Row::new(figure, quantity, Some(paper), None, Kind::AsStated);
        self.rows.push(Row { note: Some(note), ..row });
    }
    /// Adds a result of the baseline, or a value that was fitted to them.
    pub fn fitted(&mut self, figure: &str, quantity: &str, paper: Option<Span>, found: Span) {
        self.rows.push(Row::ranged(figure, quantity, paper, found, Kind::Fitted));
    }
    /// Adds a result of the treatment, which the text writes in this form.
    pub fn predicted(
        &mut self,
        figure: &str,
        quantity: &str,
        form: Form,
        paper: Span,
        found: Span,
    ) {
        let row = Row::ranged(figure, quantity, Some(paper), found, Kind::Predicted);
        self.rows.push(Row { verdict: Some(form.judge(paper, found)), ..row });
    }
    /// Adds a result beside a bound that the text states, such as "within 5 %".
    pub fn at_most(&mut self, figure: &str, quantity: &str, paper: f64, twin: f64) {
        let row = Row::new(figure, quantity, Some(paper), Some(twin), Kind::AsStated);
        let verdict = Some(Bound::Most.judge(Span::exact(paper), Span::exact(twin)));
        self.rows.push(Row { bound: Some(Bound::Most), verdict, deviation: None, ..row });
    }
    /// Adds what follows from other numbers of the text, beside what it states.
    pub fn arithmetic(&mut self, figure: &str, quantity: &str, paper: Option<Span>, found: Span) {
        self.rows.push(Row::ranged(figure, quantity, paper, found, Kind::Arithmetic));
    }
    /// Adds what no paper states.
    pub fn modelled(&mut self, figure: &str, quantity: &str, found: Span) {
        self.rows.push(Row::ranged(figure, quantity, None, found, Kind::Modelled));
    }
    fn row(&mut self, figure: &str, quantity: &str, paper: f64, twin: f64, kind: Kind) {
        self.rows.push(Row::new(figure, quantity, Some(paper), Some(twin), kind));
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
            let none = || "–".to_owned();
            let twin = row.twin.map_or_else(|| row.note.clone().unwrap_or_else(none), number);
            let range = row.range.filter(|[low, high]| number(*low) != number(*high));
            let range = range.map(|[low, high]| format!(" ({} to {})", number(low), number(high)));
            let twin = twin + &range.unwrap_or_default();
            let deviation = row.deviation.map_or_else(none, percent);
            let paper = row.paper.map_or_else(none, stated);
            let paper = match row.bound {
                None => paper,
                Some(Bound::Most) => format!("≤ {paper}"),
                Some(Bound::Least) => format!("≥ {paper}"),
            };
            let verdict = row.verdict.map(|verdict| format!(", {}", verdict.name()));
            let kept = if row.kept { ", kept" } else { "" };
            let kind = row.kind.name().to_owned() + &verdict.unwrap_or_default() + kept;
            table.add_row([&row.figure, &row.quantity, &paper, &twin, &deviation, &kind]);
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
        if let Some(command) = &self.kept {
            text.push_str(&format!("\nKept, for they take longest: rows of {command}.\n"));
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
fn stated(value: f64) -> String {
    if value.abs() >= 1000.0 && value.fract() == 0.0 { format!("{value}") } else { number(value) }
}

/// Three significant digits, without an exponent.
fn number(value: f64) -> String {
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

    #[test]
    fn json_follows_the_published_schema() {
        let schema = include_str!("../../../../docs/json-schema/paper-5.json");
        let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
        let mut report = Report::default();
        report.calibrated("Table I", "CPU at its peak, W", 210.0, 209.0);
        report.as_stated("Fig. 5", "x", 2.0, 1.5);
        report.stress("Fig. 5", "x, in bursts", 2.0, 3.5);
        report.reinterpreted("Fig. 5", "y", 2.0, 1.5);
        report.missing("Fig. 7", "z", 2.0, "no saving".into());
        report.fitted("Fig. 8", "open", None, Span::stated(2.0, 1.0));
        let (less, plain) = (Form::Less, Form::Plain);
        report.predicted("Fig. 8", "a", less, Span::stated(85.0, 0.5), Span::stated(80.0, 2.0));
        report.predicted("Fig. 8", "b", plain, Span::exact(2.0), Span::stated(2.0, 1.0));
        report.at_most("Fig. 8", "e", 5.0, 3.0);
        report.arithmetic("Fig. 8", "c", Some(Span::exact(2.0)), Span::exact(2.0));
        report.modelled("today", "d", Span::exact(2.0));
        report.curve("Fig. 6", "y over x".into(), &[(0.0, 1.0), (1.0, 2.0)]);
        let json = serde_json::to_value(&report).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        assert!(validator.is_valid(&json), "{json}");
    }

    #[test]
    fn the_deviation_is_relative_to_the_paper() {
        let mut report = Report::default();
        report.as_stated("Fig. 5", "x", 2.0, 1.5);
        assert_eq!(report.rows[0].deviation, Some(-0.25));
        assert!(report.text().contains("-25.0 %"), "{}", report.text());
    }

    #[test]
    fn a_number_of_another_comparison_or_none_at_all_cannot_be_taken_for_a_validation() {
        let mut report = Report::default();
        report.reinterpreted("Fig. 10", "over full fans", 60.0, 55.0);
        report.missing("Fig. 10", "over JETC, x", 1.8, "no saving".into());
        let text = report.text();
        let line = |what: &str| text.lines().find(|line| line.contains(what)).unwrap();
        assert!(line("over full fans").trim_end().ends_with("reinterpreted"), "{text}");
        assert!(line("over JETC").contains("no saving"), "{text}");
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["rows"][0]["kind"], "reinterpreted");
        assert!(json["rows"][1]["twin"].is_null() && json["rows"][1]["deviation"].is_null());
        assert_eq!(json["rows"][1]["note"], "no saving");
    }

    #[test]
    fn a_bound_that_holds_has_no_deviation() {
        let mut report = Report::default();
        report.at_most("Bursts", "p99 over polling's, %", 5.0, 3.1);
        let text = report.text();
        assert!(text.contains("≤ 5.00") && text.contains("as stated, inside"), "{text}");
        assert!(!text.contains("-38"), "{text}");
    }
}
