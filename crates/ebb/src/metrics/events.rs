//! Server-sent events (HTML, 9.2): what was until now, then the status after each change.
//!
//! Each event is whole, and one waits for a page at most. What comes while that one is not read is
//! lost to the page, and counted; the next one says all there is to say.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::channel::{SendError, Sender};
use hyper::body::{Bytes, Frame};
use tokio::sync::watch;
use tokio::time::timeout;

use super::{Live, Pages};

/// After so long without news a comment says that somebody is there; who has gone is noticed by it.
const QUIET: Duration = Duration::from_secs(15);

/// Tells events until it is stopped, or nothing changes any more.
pub async fn tell(mut to: Sender<Bytes>, pages: Arc<dyn Pages>, mut changes: watch::Receiver<u64>) {
    if let Some(live) = pages.live() {
        // An error says that the reader has gone.
        let _ = all(&mut to, &*pages, live, &mut changes).await;
    }
}

async fn all(
    to: &mut Sender<Bytes>,
    pages: &dyn Pages,
    live: &dyn Live,
    changes: &mut watch::Receiver<u64>,
) -> Result<(), SendError> {
    let mut told = *changes.borrow_and_update();
    to.send_data(event("history", live.history())).await?;
    to.send_data(event("status", pages.status())).await?;
    loop {
        match timeout(QUIET, changes.changed()).await {
            Err(_) => drop(to.try_send(Frame::data(Bytes::from_static(b": no news\n\n")))),
            Ok(Err(_)) => return Ok(()),
            Ok(Ok(())) => {
                let now = *changes.borrow_and_update();
                let went_by = now.saturating_sub(told + 1);
                told = now;
                let is_lost = to.try_send(Frame::data(event("status", pages.status()))).is_err();
                live.lost(went_by + u64::from(is_lost));
            }
        }
    }
}

/// One event; JSON has no line ends.
fn event(name: &str, json: serde_json::Result<Bytes>) -> Bytes {
    let mut event = format!("event: {name}\ndata: ").into_bytes();
    event.extend_from_slice(&json.unwrap_or_default());
    event.extend_from_slice(b"\n\n");
    event.into()
}
