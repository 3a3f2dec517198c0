//! Answering on a Unix socket, from a thread of its own: bounded in connections, bytes and time,
//! for peers that the kernel says are root, our own user, or of a group that was chosen.

use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use ebb_cli::usage;
use rustix::process::geteuid;
use serde_json::{Map, Value};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::UCred;
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, spawn_blocking, yield_now};
use tokio::time::{sleep, timeout};

use super::protocol::{self, MOST_REQUEST};
use super::{Fault, code};
use crate::log::{self, Level};

/// Connections at once; for more, the oldest that asks for nothing gives way.
const CONNECTIONS: usize = 32;
/// Those beyond, while all have a request under way: each is heard for one that waits for nothing.
const EXTRA: usize = 8;
/// Requests that are carried out at once, one of them only where it waits for nothing.
const WORKERS: usize = 5;
/// Threads that answering takes.
pub const THREADS: u64 = WORKERS as u64 + 1;
/// Descriptors that answering takes at most.
pub const DESCRIPTORS: u64 = (CONNECTIONS + EXTRA) as u64 + 8;
/// Time for the next request to come, and for an answer to be taken.
const IDLE: Duration = Duration::from_secs(60);
/// How nice the thread is: it must not take a reactor's time slices.
const NICE: i32 = 10;

/// What a daemon can be asked. Called from several threads at once, and may take its time.
pub trait Methods: Send + Sync + 'static {
    /// The names of all methods.
    fn names(&self) -> &'static [&'static str];

    /// Whether `method` may wait for others. What does not is always answered.
    fn waits(&self, method: &str) -> bool {
        method != "status"
    }

    /// Carries out a method, one of [`Self::names`].
    ///
    /// # Errors
    /// Why it did not, and what to do.
    fn call(&self, method: &str, params: Map<String, Value>) -> Result<Value, Fault>;
}

/// A socket that is removed when dropped.
pub struct Socket {
    path: PathBuf,
    listener: Option<UnixListener>,
    is_open_to_group: bool,
}

impl Drop for Socket {
    fn drop(&mut self) {
        // It may be gone, or another's by now: then it is not ours to complain.
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Socket {
    /// A socket at `path`, for root and our own user (mode 600), or for the members of `group` too
    /// (mode 660).
    ///
    /// # Errors
    /// When there is something else at `path`, or the system refuses.
    pub fn bind(path: &Path, group: Option<u32>) -> Result<Self> {
        let name = path.display();
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            return Err(usage(format!("{name} is another server's; choose another --control")));
        }
        let is_socket =
            |meta: std::fs::Metadata| std::os::unix::fs::FileTypeExt::is_socket(&meta.file_type());
        if path.symlink_metadata().is_ok_and(|meta| !is_socket(meta)) {
            return Err(usage(format!("{name} is there and no socket; choose another --control")));
        }
        // Made where nobody looks: it appears with its mode, in place of one that is left over.
        let new = PathBuf::from(format!("{name}.{}", std::process::id()));
        let make = || {
            let listener = UnixListener::bind(&new)?;
            if group.is_some() {
                chown(&new, None, group)?;
            }
            let mode = if group.is_some() { 0o660 } else { 0o600 };
            std::fs::set_permissions(&new, std::fs::Permissions::from_mode(mode))?;
            std::fs::rename(&new, path)?;
            listener.set_nonblocking(true)?;
            Ok::<_, io::Error>(listener)
        };
        let listener = make().inspect_err(|_| drop(std::fs::remove_file(&new)));
        let listener = listener.with_context(|| {
            format!("cannot make the control socket {name}; choose another place with --control")
        })?;
        let is_open_to_group = group.is_some();
        Ok(Self { path: path.to_owned(), listener: Some(listener), is_open_to_group })
    }

    /// What connects to it, for another protocol.
    pub fn take(&mut self) -> Option<UnixListener> {
        self.listener.take()
    }

    /// Answers by `methods` until the process ends.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn serve(&mut self, methods: Arc<dyn Methods>) -> Result<()> {
        let Some(listener) = self.listener.take() else { return Ok(()) };
        let runtime =
            Builder::new_current_thread().enable_all().max_blocking_threads(WORKERS).build()?;
        let waiting = Arc::new(Semaphore::new(WORKERS - 1));
        let door = Arc::new(Door { methods, waiting, is_open_to_group: self.is_open_to_group });
        let body = move || {
            // A lower priority is a wish: where it is forbidden, nothing is lost.
            let _ = rustix::process::setpriority_process(None, NICE);
            runtime.block_on(async move {
                if let Err(error) = accept(listener, door).await {
                    log::tell(Level::Error, format_args!("control has ended: {error}"));
                }
            });
        };
        std::thread::Builder::new().name("ebb-control".into()).spawn(body)?;
        Ok(())
    }
}

struct Door {
    methods: Arc<dyn Methods>,
    /// Workers for what may wait.
    waiting: Arc<Semaphore>,
    is_open_to_group: bool,
}

impl Door {
    /// Whether a peer may ask. The socket's mode keeps others out already, and says who is of the
    /// group; this holds where somebody has changed the mode.
    fn admits(&self, peer: UCred) -> bool {
        self.is_open_to_group || peer.uid() == 0 || peer.uid() == geteuid().as_raw()
    }
}

/// A connection: its task, and whether its request is under way. Who does not read is idle.
struct Guest {
    task: AbortHandle,
    is_busy: Arc<AtomicBool>,
}

/// The connections there are, and those beyond; the oldest first.
#[derive(Default)]
struct Guests {
    list: Vec<Guest>,
    extra: Vec<Guest>,
}

impl Guests {
    /// Makes room for one more in the list, if there can be some.
    fn has_room(&mut self) -> bool {
        self.list.retain(|guest| !guest.task.is_finished());
        if self.list.len() < CONNECTIONS {
            return true;
        }
        let idle = self.list.iter().position(|guest| !guest.is_busy.load(Ordering::Relaxed));
        idle.map(|at| self.list.remove(at).task.abort()).is_some()
    }

    fn take_in(&mut self, stream: UnixStream, door: Arc<Door>) {
        let is_extra = !self.has_room();
        let is_busy = Arc::<AtomicBool>::default();
        let task = tokio::spawn(attend(stream, door, is_busy.clone(), is_extra)).abort_handle();
        let list = if is_extra { &mut self.extra } else { &mut self.list };
        list.push(Guest { task, is_busy });
        self.extra.retain(|guest| !guest.task.is_finished());
        if self.extra.len() > EXTRA {
            self.extra.remove(0).task.abort();
        }
    }
}

async fn accept(listener: UnixListener, door: Arc<Door>) -> io::Result<()> {
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let mut guests = Guests::default();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(Duration::from_millis(100)).await; // out of descriptors, perhaps not for long
            continue;
        };
        let refused = match stream.peer_cred() {
            Ok(peer) if door.admits(peer) => None,
            _ => Some(Fault::new(
                code::FORBIDDEN,
                "only root, the server's user and --control-group may ask; use one of them",
            )),
        };
        if let Some(fault) = refused {
            // As much as fits at once: nobody waits for who is refused.
            let line = protocol::answer(Err(fault), &Value::Null);
            let _ = stream.try_write(line.as_bytes());
            continue;
        }
        guests.take_in(stream, door.clone());
        // A turn for the others: who has said something is answered before it is the oldest.
        yield_now().await;
    }
}

/// One connection, a line at a time; one line if it is extra.
async fn attend(stream: UnixStream, door: Arc<Door>, is_busy: Arc<AtomicBool>, is_extra: bool) {
    let (from, mut to) = stream.into_split();
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut bounded = (&mut from).take(MOST_REQUEST as u64 + 1);
        match timeout(IDLE, bounded.read_until(b'\n', &mut line)).await {
            Ok(Ok(count)) if count > 0 => {}
            _ => return,
        }
        let is_whole = line.pop_if(|last| *last == b'\n').is_some();
        let reply = if line.len() > MOST_REQUEST {
            let text = format!("a request has at most {MOST_REQUEST} bytes");
            Some(protocol::answer(Err(Fault::new(code::INVALID_REQUEST, text)), &Value::Null))
        } else {
            is_busy.store(true, Ordering::Relaxed);
            let reply = respond(std::mem::take(&mut line), &door, is_extra).await;
            is_busy.store(false, Ordering::Relaxed);
            reply
        };
        if let Some(reply) = reply
            && !matches!(timeout(IDLE, to.write_all(reply.as_bytes())).await, Ok(Ok(())))
        {
            return;
        }
        if !is_whole || is_extra {
            return;
        }
    }
}

/// The answer to a line, if it wants one.
async fn respond(line: Vec<u8>, door: &Door, is_extra: bool) -> Option<String> {
    let request = match protocol::parse(&line) {
        Ok(request) => request,
        Err((fault, id)) => return Some(protocol::answer(Err(fault), &id)),
    };
    let (id, methods) = (request.id.clone(), door.methods.clone());
    let worker = match methods.waits(&request.method) {
        true if is_extra => {
            let full = Fault::new(code::BUSY, "too many requests are under way; try again later");
            return id.map(|id| protocol::answer(Err(full), &id));
        }
        true => door.waiting.clone().acquire_owned().await.ok(),
        false => None,
    };
    let work = move || {
        let _worker = worker; // Until it is done, even if nobody waits for the answer any more.
        log::tell(Level::Debug, format_args!("control: {}", request.method));
        if !methods.names().contains(&request.method.as_str()) {
            let text = format!(
                "there is no '{}'; there are {}",
                request.method,
                methods.names().join(", ")
            );
            return Err(Fault::new(code::METHOD_NOT_FOUND, text));
        }
        methods.call(&request.method, request.params)
    };
    let outcome = spawn_blocking(work).await.unwrap_or_else(|_| {
        Err(Fault::new(code::INTERNAL_ERROR, "the server failed; its log says where"))
    });
    id.map(|id| protocol::answer(outcome, &id))
}

#[cfg(test)]
mod tests;
