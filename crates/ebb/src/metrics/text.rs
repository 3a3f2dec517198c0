//! Metrics as text: OpenMetrics, or the older format of Prometheus, as the one who asks prefers.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

/// How the text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    Open,
    /// Prometheus 0.0.4.
    Prometheus,
}

impl Format {
    /// The one that a header `Accept` prefers (RFC 9110, 12.5.1); OpenMetrics where it does not
    /// care.
    pub fn of(accept: &str) -> Self {
        let weight = |kind: &str| {
            let is_its =
                |part: &&str| part.split(';').next().is_some_and(|name| name.trim() == kind);
            let stated = |part: &str| {
                let mut stated = part.split(';').filter_map(|it| it.trim().strip_prefix("q="));
                stated.next().map_or(Some(1.0), |q| q.trim().parse::<f64>().ok())
            };
            accept.split(',').filter(is_its).find_map(stated)
        };
        match (weight("application/openmetrics-text"), weight("text/plain")) {
            (None, Some(_)) => Self::Prometheus,
            (Some(open), Some(plain)) if plain > open => Self::Prometheus,
            _ => Self::Open,
        }
    }

    /// What it is, for HTTP.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Open => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// The text of what `collector` shows; names begin with `ebb_`.
    ///
    /// # Errors
    /// None: text goes to memory.
    pub fn encode(self, collector: impl Collector) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix("ebb");
        registry.register_collector(Box::new(collector));
        let mut text = String::new();
        text::encode(&mut text, &registry)?;
        Ok(if self == Self::Open { text } else { plain(&text) })
    }
}

/// OpenMetrics text in the older format: a counter's description has the name of its samples, and
/// there are no units and no end.
fn plain(text: &str) -> String {
    let lines: Vec<_> = text.lines().collect();
    let counter =
        |line: &str| Some(line.strip_prefix("# TYPE ")?.strip_suffix(" counter")?.to_owned());
    let counters: std::collections::BTreeSet<_> = lines.iter().filter_map(|l| counter(l)).collect();
    let mut plain = String::with_capacity(text.len());
    for line in lines {
        let about = ["# HELP ", "# TYPE "].into_iter().find(|about| line.starts_with(about));
        match about.and_then(|about| line[about.len()..].split_once(' ').map(|it| (about, it))) {
            Some((about, (name, rest))) => {
                let total = if counters.contains(name) { "_total" } else { "" };
                plain.extend([about, name, total, " ", rest, "\n"]);
            }
            None if line.starts_with('#') => {}
            None => plain.extend([line, "\n"]),
        }
    }
    plain
}

/// The labels of a row.
pub type Labels = Vec<(&'static str, String)>;

/// As they are written in code. Values may come from a machine's parts or from strangers; the
/// library writes them as they are, so what ends a value is escaped here (OpenMetrics 1.0, 5.1).
pub fn labels<const N: usize>(labels: [(&'static str, String); N]) -> Labels {
    let escaped = |value: String| match value.contains(['\\', '"', '\n']) {
        true => value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"),
        false => value,
    };
    labels.map(|(name, value)| (name, escaped(value))).into()
}

/// A metric before its rows.
pub struct Family<'a> {
    name: &'a str,
    help: &'a str,
    unit: Option<Unit>,
}

/// A metric without a unit.
pub const fn family<'a>(name: &'a str, help: &'a str) -> Family<'a> {
    Family { name, help, unit: None }
}

impl Family<'_> {
    /// With a unit, which its name ends with then.
    pub fn in_unit(self, unit: Unit) -> Self {
        Self { unit: Some(unit), ..self }
    }
}

/// A row of a histogram.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    /// Its labels.
    pub labels: Labels,
    /// Sum of all values.
    pub sum: f64,
    /// How many there were.
    pub count: u64,
    /// Ends of the buckets and how many are in each, not added up; the last end is `f64::MAX`.
    pub buckets: Vec<(f64, u64)>,
}

/// Writes families.
pub struct Writer<'a>(DescriptorEncoder<'a>);

impl<'a> Writer<'a> {
    /// Writes to `encoder`.
    pub fn new(encoder: DescriptorEncoder<'a>) -> Self {
        Self(encoder)
    }

    /// Counts, or sums that only grow.
    pub fn counts<N>(&mut self, family: &Family<'_>, rows: Vec<(Labels, N)>) -> fmt::Result
    where
        N: EncodeCounterValue,
    {
        let Family { name, help, unit } = family;
        let mut out = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Counter)?;
        rows.iter().try_for_each(|(labels, value)| {
            out.encode_family(labels)?.encode_counter::<NoLabelSet, _, f64>(value, None)
        })
    }

    /// Values that go up and down.
    pub fn gauges(&mut self, family: &Family<'_>, rows: Vec<(Labels, f64)>) -> fmt::Result {
        let Family { name, help, unit } = family;
        let mut out = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        rows.iter().try_for_each(|(labels, value)| out.encode_family(labels)?.encode_gauge(value))
    }

    /// Distributions.
    pub fn histograms(&mut self, family: &Family<'_>, rows: &[Histogram]) -> fmt::Result {
        let Family { name, help, unit } = family;
        let mut out = self.0.encode_descriptor(name, help, unit.as_ref(), MetricType::Histogram)?;
        rows.iter().try_for_each(|Histogram { labels, sum, count, buckets }| {
            out.encode_family(labels)?.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_chooses_the_format() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        for (accept, format) in [
            ("", Format::Open),
            ("*/*", Format::Open),
            (prometheus, Format::Open),
            ("text/plain", Format::Prometheus),
            ("text/html, text/plain;q=0.3", Format::Prometheus),
            (
                "text/plain;version=0.0.4;q=0.7, application/openmetrics-text; q=0.2",
                Format::Prometheus,
            ),
            ("text/plain;q=x, application/openmetrics-text", Format::Open),
        ] {
            assert_eq!(Format::of(accept), format, "{accept}");
        }
    }

    #[test]
    fn what_ends_a_value_is_escaped_once() {
        #[derive(Debug)]
        struct One;
        impl Collector for One {
            fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
                let drive = "SSD 2.5\" 480GB \\ A1\n".to_owned();
                let rows = vec![(labels([("drive", drive)]), 1.0)];
                Writer::new(encoder).gauges(&family("a", "A"), rows)
            }
        }
        for format in [Format::Open, Format::Prometheus] {
            let text = format.encode(One).unwrap();
            let row = text.lines().find(|line| line.starts_with("ebb_a{")).unwrap();
            assert_eq!(row, r#"ebb_a{drive="SSD 2.5\" 480GB \\ A1\n"} 1.0"#);
        }
    }

    #[test]
    fn a_counter_is_named_as_its_samples_in_the_older_format() {
        let open = "# HELP a_seconds Time.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\n\
                    a_seconds_total 1\n# HELP b B.\n# TYPE b gauge\nb{c=\"# d\"} 2\n# EOF\n";
        let older = "# HELP a_seconds_total Time.\n# TYPE a_seconds_total counter\n\
                     a_seconds_total 1\n# HELP b B.\n# TYPE b gauge\nb{c=\"# d\"} 2\n";
        assert_eq!(plain(open), older);
    }
}
