//! What a daemon shows of itself: metrics as text and a status as JSON, over HTTP.

mod events;
pub mod http;
pub mod names;
pub mod text;

use ebb_record::live::Page;
use hyper::body::Bytes;
use tokio::sync::watch;

pub use text::Format;

/// What is shown. Asked from the thread that serves it, which waits for nothing else.
pub trait Pages: Send + Sync + 'static {
    /// The metrics.
    ///
    /// # Errors
    /// None: text goes to memory.
    fn metrics(&self, format: Format) -> Result<Bytes, std::fmt::Error>;

    /// The status, as JSON.
    ///
    /// # Errors
    /// None: text goes to memory.
    fn status(&self) -> serde_json::Result<Bytes>;

    /// What a page shows live; nothing of who has none.
    fn live(&self) -> Option<&dyn Live> {
        None
    }
}

/// A page, and what it goes on to show.
pub trait Live: Send + Sync {
    /// The page.
    fn page(&self) -> &Page;

    /// Tells of each change of the status by a number, one more each time.
    fn changes(&self) -> watch::Receiver<u64>;

    /// What was until now, as JSON.
    ///
    /// # Errors
    /// None: text goes to memory.
    fn history(&self) -> serde_json::Result<Bytes>;

    /// So many changes went by a page that reads too slowly.
    fn lost(&self, count: u64);
}
