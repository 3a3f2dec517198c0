//! Reports of loads over time that are no traces: which can be read as the shape of a load.

/// A report, by how it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Report {
    /// What `sadf -d` writes.
    Sadf,
    /// What iostat and sar print.
    Text,
    /// The same of iostat in JSON.
    Json,
    /// Prometheus' answer to a query.
    Prometheus,
}

/// How what `sadf -d` writes begins.
const SADF: &str = "# hostname;interval;timestamp;";
/// How iostat and sar name the column of devices.
pub(crate) const DEVICES: [&str; 3] = ["Device", "Device:", "DEV"];

impl Report {
    /// What a file is that begins with `head`: text by its first line or, where that is gone, by a
    /// heading.
    pub(crate) fn of(head: &str) -> Option<Self> {
        if head.starts_with(SADF) {
            Some(Self::Sadf)
        } else if head.starts_with("Linux ") || names_devices(head) {
            Some(Self::Text)
        } else if !head.trim_start().starts_with('{') {
            None
        } else if head.contains("\"sysstat\"") {
            Some(Self::Json)
        } else {
            head.contains("\"resultType\"").then_some(Self::Prometheus)
        }
    }

    /// Whether it is of devices, as far as its `head` shows.
    pub(crate) fn has_devices(self, head: &str) -> bool {
        self != Self::Text || names_devices(head)
    }

    /// What people call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sadf => "a report of sadf",
            Self::Text => "a report of iostat or sar",
            Self::Json => "a report of iostat in JSON",
            Self::Prometheus => "an answer of Prometheus",
        }
    }
}

fn names_devices(head: &str) -> bool {
    head.split_whitespace().any(|word| DEVICES.contains(&word))
}
