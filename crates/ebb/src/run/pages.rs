//! What a run shows over HTTP.

use std::sync::LazyLock;

use ebb_record::live::Page;
use hyper::body::Bytes;
use tokio::sync::watch;

use super::board::{Board, Text};
use super::metrics::Scrape;
use super::status::Status;
use crate::metrics::{Format, Live, Pages};

impl Pages for Board {
    fn metrics(&self, format: Format) -> Result<Bytes, std::fmt::Error> {
        self.text(Text::Metrics(format), |view| format.encode(Scrape(view)))
    }

    fn status(&self) -> serde_json::Result<Bytes> {
        self.text(Text::Status, |view| serde_json::to_string(&Status::of(&view)))
    }

    fn live(&self) -> Option<&dyn Live> {
        Some(self)
    }
}

impl Live for Board {
    fn page(&self) -> &Page {
        /// Made for the first who asks.
        static PAGE: LazyLock<Page> = LazyLock::new(Page::make);
        &PAGE
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.told()
    }

    fn history(&self) -> serde_json::Result<Bytes> {
        serde_json::to_vec(&self.past()).map(Bytes::from)
    }

    fn lost(&self, count: u64) {
        self.lose(count);
    }
}
