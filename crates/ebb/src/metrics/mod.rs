//! What a daemon shows of itself: metrics as text and a status as JSON, over HTTP.

pub mod http;
pub mod text;

use hyper::body::Bytes;

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
    fn status(&self) -> serde_json::Result<String>;
}
