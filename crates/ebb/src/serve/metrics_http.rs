//! The metrics and the status over HTTP, and asking for the status.
//!
//! hyper on a single-threaded tokio: both are maintained and widely looked at, and unlike the
//! small servers and unlike a framework above it, hyper lets us bound the time and memory that a
//! stranger gets. All of it runs in one thread of its own that is pinned nowhere and gives way to
//! the reactors.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HOST, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::metrics;
use super::status::{Observer, PERIOD, Status};

/// Connections at once; more are closed.
const CONNECTIONS: usize = 16;
/// Time for a request's header.
const HEADER: Duration = Duration::from_secs(5);
/// Time for a connection, which carries one request.
const CONNECTION: Duration = Duration::from_secs(10);
/// Bytes of a request: no smaller buffer will do for hyper.
const REQUEST: usize = 8 << 10;
/// Largest status we read.
const STATUS: usize = 16 << 20;

/// How nice the thread is: it must not take a reactor's time slices.
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

/// Serves what `observer` sees, until the process ends.
///
/// # Errors
/// When the system refuses a thread.
pub fn start(listener: TcpListener, observer: Observer) -> Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let body = move || {
        // As a courtesy; who forbids it is welcome to.
        let _ = rustix::process::setpriority_process(None, NICE);
        runtime.block_on(async move {
            let observer = Arc::new(observer);
            tokio::spawn(watch(observer.clone()));
            if let Err(error) = accept(listener, observer).await {
                eprintln!("the metrics are not served any more: {error}");
            }
        });
    };
    std::thread::Builder::new().name("ebb-metrics".into()).spawn(body)?;
    Ok(())
}

async fn watch(observer: Arc<Observer>) {
    loop {
        sleep(PERIOD).await;
        observer.sample();
    }
}

async fn accept(listener: TcpListener, observer: Arc<Observer>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(Duration::from_millis(100)).await; // out of descriptors, perhaps not for long
            continue;
        };
        let Ok(place) = room.clone().try_acquire_owned() else { continue };
        let observer = observer.clone();
        tokio::spawn(async move {
            let answer = service_fn(move |request| {
                let response = answer(&request, &observer);
                async move { response }
            });
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEADER).max_buf_size(REQUEST);
            http.keep_alive(false);
            // A stranger's mistakes are its own.
            let _ = timeout(CONNECTION, http.serve_connection(TokioIo::new(stream), answer)).await;
            drop(place);
        });
    }
}

fn answer(
    request: &Request<Incoming>,
    observer: &Observer,
) -> Result<Response<Full<Bytes>>, std::fmt::Error> {
    let reply = |code, kind: &'static str, text: String| {
        let mut response = Response::new(Full::new(text.into()));
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
            reply(StatusCode::OK, metrics::CONTENT_TYPE, metrics::encode(observer.status())?)
        }
        "/status" => {
            let json = serde_json::to_string(&observer.status()).map_err(|_| std::fmt::Error)?;
            reply(StatusCode::OK, "application/json", json)
        }
        _ => reply(StatusCode::NOT_FOUND, TEXT, "there are /metrics and /status\n".into()),
    })
}

/// Asks the server whose metrics are at `address` for its status.
///
/// # Errors
/// When it cannot be reached or does not answer as it should.
pub fn ask(address: SocketAddr) -> Result<Status> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(async { timeout(CONNECTION, get(address)).await });
    let json = answer
        .unwrap_or_else(|_| Err(anyhow!("no answer in {} s", CONNECTION.as_secs())))
        .with_context(|| {
        format!("no status from {address}; is `ebb serve --metrics {address}` running?")
    })?;
    serde_json::from_slice(&json)
        .with_context(|| format!("what answers at {address} is not an `ebb serve` of this version"))
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
