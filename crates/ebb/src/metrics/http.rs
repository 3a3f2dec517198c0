//! The metrics, the status and the live page over HTTP, and asking for the status.
//!
//! hyper on a single-threaded tokio: both are maintained and widely looked at, and unlike the
//! small servers and unlike a framework above it, hyper lets us bound the time and memory that a
//! stranger gets. All of it runs in one thread of its own that is pinned nowhere and gives way to
//! whoever has work.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use ebb_cli::out;
use http_body_util::channel::Channel;
use http_body_util::{BodyExt, Either, Empty, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt::set_socket_send_buffer_size;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{sleep, timeout};

use super::names::Names;
use super::{Format, Live, Pages, events};

/// Connections at once; for more, old ones are closed.
const CONNECTIONS: usize = 64;
/// Descriptors that serving them takes at most: a listener, an event loop, the connections.
pub const DESCRIPTORS: u64 = CONNECTIONS as u64 + 8;
/// Time for a request's header.
const HEADER: Duration = Duration::from_secs(5);
/// Time for a connection, which carries one request; events may go on.
const CONNECTION: Duration = Duration::from_secs(10);
/// Pages that read events at once; for more, old ones are closed.
const READERS: usize = 16;
/// Bytes that wait in the kernel for a peer: what waits longer is old, and is better left out.
const UNSENT: usize = 64 << 10;
/// Bytes of a request: no smaller buffer will do for hyper.
const REQUEST: usize = 8 << 10;
/// Largest status we read.
const STATUS: usize = 16 << 20;

/// How nice the thread is: it must not take the time slices of who works.
const NICE: i32 = 10;

/// Where clients connect, and by which names they may ask.
pub struct Listener {
    place: Place,
    names: Names,
}

enum Place {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl From<UnixListener> for Listener {
    /// For who may use the socket.
    fn from(listener: UnixListener) -> Self {
        Self { place: Place::Unix(listener), names: Names::default() }
    }
}

/// Listens on `address`, for who asks for an address, `localhost`, or one of `names`.
///
/// # Errors
/// When the address cannot be listened on, or a name is none.
pub fn bind(address: SocketAddr, names: &[String]) -> Result<(Listener, SocketAddr)> {
    let names = Names::new(names)?;
    let bind = || {
        let tcp = TcpListener::bind(address)?;
        tcp.set_nonblocking(true)?;
        let bound = tcp.local_addr()?;
        Ok::<_, io::Error>((Listener { place: Place::Tcp(tcp), names }, bound))
    };
    bind().with_context(|| {
        format!("cannot serve metrics on {address}; choose another with --metrics ADDRESS:PORT")
    })
}

/// Serves `pages` until the process ends.
///
/// # Errors
/// When the system refuses a thread.
pub fn start(listener: Listener, pages: Arc<dyn Pages>) -> Result<()> {
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

/// Who is there, the oldest first.
struct Guests {
    most: usize,
    all: Vec<(IpAddr, AbortHandle)>,
}

impl Guests {
    /// Nobody yet, and so many at most.
    fn new(most: usize) -> Self {
        Self { most, all: Vec::new() }
    }

    /// Adds the newest. Where there is no room, the oldest of the address that has most gives way:
    /// whoever opens many only displaces its own.
    fn admit(&mut self, from: IpAddr, task: AbortHandle) {
        self.all.retain(|(_, task)| !task.is_finished());
        let of = |at: &IpAddr| self.all.iter().filter(|(from, _)| from == at).count();
        let most = self.all.iter().map(|(from, _)| of(from)).max();
        if self.all.len() >= self.most
            && let Some(oldest) = self.all.iter().position(|(from, _)| Some(of(from)) == most)
        {
            self.all.remove(oldest).1.abort();
        }
        self.all.push((from, task));
    }
}

async fn accept(listener: Listener, pages: Arc<dyn Pages>) -> io::Result<()> {
    let Listener { place, names } = listener;
    let mut guests = Guests::new(CONNECTIONS);
    let readers = Arc::new(Mutex::new(Guests::new(READERS)));
    let guest = |from| {
        let (names, pages, readers) = (names.clone(), pages.clone(), readers.clone());
        Guest { from, names, pages, readers, events: OnceLock::new() }
    };
    let place = match place {
        Place::Tcp(tcp) => Either::Left(tokio::net::TcpListener::from_std(tcp)?),
        Place::Unix(unix) => Either::Right(tokio::net::UnixListener::from_std(unix)?),
    };
    loop {
        let come = match &place {
            Either::Left(tcp) => tcp.accept().await.map(|(stream, from)| {
                let from = from.ip();
                (from, begin(stream, guest(from)))
            }),
            Either::Right(unix) => unix.accept().await.map(|(stream, _)| {
                // All of one machine.
                let from = Ipv4Addr::LOCALHOST.into();
                (from, begin(stream, guest(from)))
            }),
        };
        let Ok((from, task)) = come else {
            sleep(Duration::from_millis(100)).await; // out of descriptors, perhaps not for long
            continue;
        };
        guests.admit(from, task);
        // A turn for the others: who has said something is answered long before it is the oldest.
        yield_now().await;
    }
}

/// Begins to serve a connection.
fn begin<S>(stream: S, guest: Guest) -> AbortHandle
where
    S: AsyncRead + AsyncWrite + AsFd + Unpin + Send + 'static,
{
    // Best effort: with a larger buffer a slow page only shows what is older.
    let _ = set_socket_send_buffer_size(&stream, UNSENT);
    tokio::spawn(serve(stream, guest)).abort_handle()
}

/// One connection, which carries one request.
async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, guest: Guest) {
    let answer = service_fn(|request| {
        let response = guest.answer(&request);
        async move { response }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADER).max_buf_size(REQUEST);
    http.keep_alive(false);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), answer));
    let reads_on = || guest.events.get().is_some_and(|events| !events.is_finished());
    // A stranger's mistakes are its own.
    while timeout(CONNECTION, connection.as_mut()).await.is_err() && reads_on() {}
}

type Body = Either<Full<Bytes>, Channel<Bytes>>;
const TEXT: &str = "text/plain; charset=utf-8";
const MISDIRECTED: &str = "ask by IP address or as localhost; --metrics-name allows other names\n";

fn reply(code: StatusCode, kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn whole(text: impl Into<Bytes>) -> Body {
    Either::Left(Full::new(text.into()))
}

/// Who has connected.
struct Guest {
    from: IpAddr,
    /// By which it may ask.
    names: Names,
    pages: Arc<dyn Pages>,
    /// All who read events.
    readers: Arc<Mutex<Guests>>,
    /// Tells it events, if it reads them.
    events: OnceLock<AbortHandle>,
}

impl Guest {
    fn answer(&self, request: &Request<Incoming>) -> Result<Response<Body>, std::fmt::Error> {
        if !self.names.admit(request.uri(), request.headers()) {
            return Ok(reply(StatusCode::MISDIRECTED_REQUEST, TEXT, whole(MISDIRECTED)));
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut refused = reply(StatusCode::METHOD_NOT_ALLOWED, TEXT, whole("only GET\n"));
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Ok(refused);
        }
        Ok(match (request.uri().path(), self.pages.live()) {
            ("/metrics", _) => {
                let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
                let format = Format::of(accept.unwrap_or_default());
                reply(StatusCode::OK, format.content_type(), whole(self.pages.metrics(format)?))
            }
            ("/status", _) => {
                let json = self.pages.status().map_err(|_| std::fmt::Error)?;
                reply(StatusCode::OK, "application/json", whole(json))
            }
            ("/", Some(live)) => page(live),
            ("/events", Some(live)) => {
                let body = match request.method() {
                    &Method::HEAD => whole(""),
                    _ => self.events(live),
                };
                reply(StatusCode::OK, "text/event-stream", body)
            }
            (_, live) => {
                let more = live.map_or("", |_| "/, /events, ");
                let text = format!("there are {more}/metrics and /status\n");
                reply(StatusCode::NOT_FOUND, TEXT, whole(text))
            }
        })
    }

    /// Events for as long as they are read, and there is room for who reads.
    fn events(&self, live: &dyn Live) -> Body {
        let (to, body) = Channel::new(1);
        let task = tokio::spawn(events::tell(to, self.pages.clone(), live.changes()));
        let mut readers = self.readers.lock().unwrap_or_else(PoisonError::into_inner);
        readers.admit(self.from, task.abort_handle());
        let _ = self.events.set(task.abort_handle());
        Either::Right(body)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.events.get().into_iter().for_each(AbortHandle::abort);
    }
}

fn page(live: &dyn Live) -> Response<Body> {
    let page = live.page();
    let mut reply = reply(StatusCode::OK, "text/html; charset=utf-8", whole(page.html.clone()));
    if let Ok(policy) = HeaderValue::from_str(&page.policy) {
        reply.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    }
    reply.headers_mut().insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    reply
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
        let mut guests = Guests::new(CONNECTIONS);
        let mut come = |from| {
            let task = runtime.spawn(std::future::pending::<()>());
            guests.admit(from, task.abort_handle());
            assert!(guests.all.len() <= CONNECTIONS);
            let of_other = guests.all.iter().filter(|(at, _)| *at == other).count();
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
