//! The metrics and the status over HTTP, and asking for the status.
//!
//! hyper on a single-threaded tokio: both are maintained and widely looked at, and unlike the
//! small servers and unlike a framework above it, hyper lets us bound the time and memory that a
//! stranger gets. All of it runs in one thread of its own that is pinned nowhere and gives way to
//! whoever has work.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CONTENT_TYPE, HOST, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{sleep, timeout};

use super::{Format, Pages};
use crate::out;

/// Connections at once; for more, old ones are closed.
const CONNECTIONS: usize = 64;
/// Descriptors that serving them takes at most: a listener, an event loop, the connections.
pub const DESCRIPTORS: u64 = CONNECTIONS as u64 + 8;
/// Time for a request's header.
const HEADER: Duration = Duration::from_secs(5);
/// Time for a connection, which carries one request.
const CONNECTION: Duration = Duration::from_secs(10);
/// Bytes of a request: no smaller buffer will do for hyper.
const REQUEST: usize = 8 << 10;
/// Largest status we read.
const STATUS: usize = 16 << 20;

/// How nice the thread is: it must not take the time slices of who works.
const NICE: i32 = 10;

/// Listens on `address`.
///
/// # Errors
/// When the address cannot be listened on.
pub fn bind(address: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let bind = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        Ok::<_, io::Error>((listener, bound))
    };
    bind().with_context(|| {
        format!("cannot serve metrics on {address}; choose another with --metrics ADDRESS:PORT")
    })
}

/// Serves `pages` until the process ends.
///
/// # Errors
/// When the system refuses a thread.
pub fn start(listener: TcpListener, pages: Arc<dyn Pages>) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let body = move || {
        // A lower priority is a wish: where it is forbidden, nothing is lost.
        let _ = rustix::process::setpriority_process(None, NICE);
        runtime.block_on(async move {
            if let Err(error) = accept(listener, pages).await {
                out::note(format_args!("the metrics are not served any more: {error}"));
            }
        });
    };
    std::thread::Builder::new().name("ebb-metrics".into()).spawn(body)?;
    Ok(())
}

/// The connections there are, the oldest first.
#[derive(Default)]
struct Guests(Vec<(IpAddr, AbortHandle)>);

impl Guests {
    /// Adds the newest. Where there is no room, the oldest of the address that has most gives way:
    /// whoever opens many only displaces its own.
    fn admit(&mut self, from: IpAddr, task: AbortHandle) {
        self.0.retain(|(_, task)| !task.is_finished());
        let of = |at: &IpAddr| self.0.iter().filter(|(from, _)| from == at).count();
        let most = self.0.iter().map(|(from, _)| of(from)).max();
        if self.0.len() >= CONNECTIONS
            && let Some(oldest) = self.0.iter().position(|(from, _)| Some(of(from)) == most)
        {
            self.0.remove(oldest).1.abort();
        }
        self.0.push((from, task));
    }
}

async fn accept(listener: TcpListener, pages: Arc<dyn Pages>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut guests = Guests::default();
    loop {
        let Ok((stream, from)) = listener.accept().await else {
            sleep(Duration::from_millis(100)).await; // out of descriptors, perhaps not for long
            continue;
        };
        let task = tokio::spawn(serve(stream, pages.clone()));
        guests.admit(from.ip(), task.abort_handle());
        // A turn for the others: who has said something is answered long before it is the oldest.
        yield_now().await;
    }
}

/// One connection, which carries one request.
async fn serve(stream: TcpStream, pages: Arc<dyn Pages>) {
    let answer = service_fn(move |request| {
        let response = answer(&request, &*pages);
        async move { response }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER).max_buf_size(REQUEST);
    http.keep_alive(false);
    // A stranger's mistakes are its own.
    let _ = timeout(CONNECTION, http.serve_connection(TokioIo::new(stream), answer)).await;
}

fn answer(
    request: &Request<Incoming>,
    pages: &dyn Pages,
) -> Result<Response<Full<Bytes>>, std::fmt::Error> {
    let reply = |code, kind: &'static str, text: Bytes| {
        let mut response = Response::new(Full::new(text));
        *response.status_mut() = code;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    };
    const TEXT: &str = "text/plain; charset=utf-8";
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = reply(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET\n".into());
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return Ok(refused);
    }
    Ok(match request.uri().path() {
        "/metrics" => {
            let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
            let format = Format::of(accept.unwrap_or_default());
            reply(StatusCode::OK, format.content_type(), pages.metrics(format)?)
        }
        "/status" => {
            let json = pages.status().map_err(|_| std::fmt::Error)?;
            reply(StatusCode::OK, "application/json", json.into())
        }
        _ => reply(StatusCode::NOT_FOUND, TEXT, "there are /metrics and /status\n".into()),
    })
}

/// Asks the server whose metrics are at `address` for its status, as JSON.
///
/// # Errors
/// When it cannot be reached or does not answer as it should.
pub fn ask(address: SocketAddr) -> Result<Bytes> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(async { timeout(CONNECTION, get(address)).await });
    answer.unwrap_or_else(|_| Err(anyhow!("no answer in {} s", CONNECTION.as_secs())))
}

async fn get(address: SocketAddr) -> Result<Bytes> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let request = Request::get("/status").header(HOST, address.to_string());
    let response = sender.send_request(request.body(Empty::<Bytes>::new())?).await?;
    if response.status() != StatusCode::OK {
        bail!("it answers {}", response.status());
    }
    let body = Limited::new(response.into_body(), STATUS).collect().await;
    Ok(body.map_err(|error| anyhow!("{error}"))?.to_bytes())
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinHandle;

    use super::*;

    #[test]
    fn who_opens_many_displaces_its_own() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let _inside = runtime.enter();
        let [crowd, other] = ["10.0.0.1", "10.0.0.2"].map(|at| at.parse::<IpAddr>().unwrap());
        let mut guests = Guests::default();
        let mut come = |from| {
            let task = runtime.spawn(std::future::pending::<()>());
            guests.admit(from, task.abort_handle());
            assert!(guests.0.len() <= CONNECTIONS);
            let of_other = guests.0.iter().filter(|(at, _)| *at == other).count();
            (of_other, task)
        };
        let tasks: Vec<_> = (0..CONNECTIONS).map(|_| come(crowd).1).collect();
        assert_eq!(come(other).0, 1, "the newest gets in");
        (0..10 * CONNECTIONS).for_each(|_| assert_eq!(come(crowd).0, 1, "and stays"));
        // Each turn runs a part of the tasks that were told to end.
        (0..100).for_each(|_| runtime.block_on(yield_now()));
        assert!(tasks.iter().all(JoinHandle::is_finished), "the oldest ones gave way");
    }
}
