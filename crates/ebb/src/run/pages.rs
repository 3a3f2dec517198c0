//! What a run shows over HTTP.

use hyper::body::Bytes;

use super::board::Board;
use super::metrics::Scrape;
use super::status::Status;
use crate::metrics::{Format, Pages};

impl Pages for Board {
    fn metrics(&self, format: Format) -> Result<Bytes, std::fmt::Error> {
        self.text(format, |view| format.encode(Scrape(view)))
    }

    fn status(&self) -> serde_json::Result<String> {
        serde_json::to_string(&Status::of(&self.view()))
    }
}
