//! Options that several commands share.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

use ebb_policy::units::Nanos;
use ebb_trace::{Columns, Format, OpenOptions};

/// How to read a trace.
#[derive(Debug, Default, Clone, Copy, Args)]
pub struct Reading {
    /// Format of the trace [default: detected].
    #[arg(long, value_name = "NAME", value_parser = formats(), hide_possible_values = true)]
    pub format: Option<Format>,

    /// What the columns of a delimited text hold, with units, instead of a format:
    /// time:ms,device,offset:sectors,size:bytes,op:1=read,- for example.
    #[arg(long, value_name = "LIST", conflicts_with = "format")]
    pub columns: Option<Columns>,

    /// Skip malformed records and count them [default: the first one ends the command].
    #[arg(long)]
    pub lenient: bool,
}

impl Reading {
    /// The same for the reader.
    pub fn options(&self) -> OpenOptions {
        OpenOptions { format: self.format, columns: self.columns, lenient: self.lenient }
    }
}

/// Formats by name, so that shells complete them and a near miss is told.
pub fn formats() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(Format::name)).try_map(|name| name.parse::<Format>())
}

/// What to change on the way from a trace.
#[derive(Debug, Default, Clone, Args)]
pub struct Changes {
    /// Replay faster by this factor, or slower if below 1.
    #[arg(long, value_name = "FACTOR")]
    pub rate_scale: Option<f64>,

    /// Skip requests before this time of the trace.
    #[arg(long, value_name = "TIME")]
    pub from: Option<Nanos>,

    /// Skip requests at or after this time of the trace.
    #[arg(long, value_name = "TIME")]
    pub to: Option<Nanos>,
}

/// The command line as a shell takes it.
pub fn command_line() -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./+,:=%@".contains(c);
    let quoted = |word: String| match !word.is_empty() && word.chars().all(plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    let given = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    std::iter::once("ebb".to_owned()).chain(given.map(quoted)).collect::<Vec<_>>().join(" ")
}
