//! Connections with TLS, or that may have it: whether one has, its handshake, and its bytes (TCP
//! 3.6.1). Those of listeners without TLS are sockets and nothing else.
//!
//! ```text
//!        no TLS, and it is not required
//!  First ------------------------------> Plain
//!    | TLS         whole message         key found          Finished
//!    +---> Hello ----------------> Key ------------> Answer ---------> Open
//! ```

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use ebb_nvme::tls::{self, Hello, Identity, Malformed, Security, Session, alert};

use crate::controller::{Greeting, Subsystem};

/// Has a group look at the connection of this number.
pub(super) type Tell = Arc<dyn Fn(usize) + Send + Sync>;

/// Who a host is by its key, once it has shown that.
pub type Identified = Arc<OnceLock<Identity>>;

/// A connection of a [`Sockets`](super::Sockets).
pub enum Stream {
    /// Of a listener without TLS.
    Plain(TcpStream),
    /// Of one with it.
    Guarded(Box<Guarded>),
}

impl Stream {
    /// The socket.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Guarded(guarded) => &guarded.socket,
        }
    }

    pub(super) fn identified(&self) -> Option<Identified> {
        match self {
            Self::Plain(_) => None,
            Self::Guarded(guarded) => Some(guarded.identified.clone()),
        }
    }

    /// What reading has cost since this was last asked beyond the bytes that it brought, as bytes;
    /// and whether there is more of which the system does not tell.
    pub(super) fn rest(&mut self) -> (u32, bool) {
        match self {
            Self::Plain(_) => (0, false),
            Self::Guarded(guarded) => match &mut guarded.stage {
                Stage::Open(session) => (session.cost(), session.has_input()),
                Stage::Answer(session, _) => (session.cost(), false),
                _ => (std::mem::take(&mut guarded.cost), false),
            },
        }
    }

    /// Its group has this number for it.
    pub(super) fn is_called(&self, index: usize) {
        if let Self::Guarded(guarded) = self {
            guarded.index.store(index, Ordering::Relaxed);
        }
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(bytes),
            Self::Guarded(guarded) => guarded.read(&mut [IoSliceMut::new(bytes)]),
        }
    }

    fn read_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read_vectored(slices),
            Self::Guarded(guarded) => guarded.read(slices),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Guarded(guarded) => guarded.write(&[IoSlice::new(bytes)]),
        }
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write_vectored(slices),
            Self::Guarded(guarded) => guarded.write(slices),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Guarded(guarded) => guarded.flush(),
        }
    }
}

/// Where a connection stands.
enum Stage {
    /// Nothing has come.
    First,
    /// Records of the host's first message.
    Hello(Vec<u8>),
    /// The key that it was made with is being looked for.
    Key(Greeting),
    /// The host must show that it has it.
    Answer(Box<Session>, Identity),
    /// Data, as TLS has it.
    Open(Box<Session>),
    /// Data, as it is.
    Plain,
    /// Refused.
    Over,
}

/// A connection that has, or may have, TLS.
pub struct Guarded {
    socket: TcpStream,
    security: Security,
    stage: Stage,
    from: Option<IpAddr>,
    /// Bytes of the first message read.
    cost: u32,
    identified: Identified,
    subsystem: Arc<Subsystem>,
    tell: Tell,
    /// Its number in its group.
    index: Arc<AtomicUsize>,
}

impl Drop for Guarded {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Open(mut session) => session.close(&self.socket),
            Stage::Answer(_, identity) => {
                let why = "TLS, and does not end the handshake".to_owned();
                self.subsystem.tls_failed(Some(&identity.host), self.from, why);
            }
            _ => {}
        }
    }
}

impl Guarded {
    pub(super) fn new(
        socket: TcpStream,
        security: Security,
        subsystem: Arc<Subsystem>,
        tell: Tell,
    ) -> Self {
        Self {
            from: socket.peer_addr().ok().map(|address| address.ip()),
            socket,
            security,
            stage: Stage::First,
            cost: 0,
            identified: Identified::default(),
            subsystem,
            tell,
            index: Arc::default(),
        }
    }

    fn read(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        loop {
            match &mut self.stage {
                Stage::Open(session) => return session.read(&self.socket, slices),
                Stage::Plain => return (&self.socket).read_vectored(slices),
                _ => {}
            }
            if !self.advance()? {
                return Ok(0);
            }
        }
    }

    /// To the next stage; false where the host has ended it.
    fn advance(&mut self) -> io::Result<bool> {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::First => {
                let mut first = [0];
                match self.socket.peek(&mut first) {
                    Ok(0) => return Ok(false),
                    Ok(_) if tls::begins(first[0]) => Stage::Hello(Vec::new()),
                    Ok(_) if self.security == Security::Offered => Stage::Plain,
                    Ok(_) => return Err(self.refuse(None, Malformed::Record.to_string())),
                    Err(error) => return self.stay(Stage::First, error),
                }
            }
            Stage::Hello(records) => return self.hello(records),
            Stage::Key(greeting) => return self.key(greeting),
            Stage::Answer(mut session, identity) => match session.handshake(&self.socket) {
                Ok(false) => {
                    let stage = Stage::Answer(session, identity);
                    return self.stay(stage, ErrorKind::WouldBlock.into());
                }
                Ok(true) => {
                    self.subsystem.tls_succeeded(&identity.host, self.from);
                    let _ = self.identified.set(identity);
                    Stage::Open(session)
                }
                Err(error) => {
                    self.subsystem.tls_failed(Some(&identity.host), self.from, error.to_string());
                    return Err(error);
                }
            },
            Stage::Over => return Err(ErrorKind::PermissionDenied.into()),
            stage => stage,
        };
        Ok(true)
    }

    fn stay(&mut self, stage: Stage, error: io::Error) -> io::Result<bool> {
        self.stage = stage;
        Err(error)
    }

    /// Reads the first message.
    fn hello(&mut self, mut records: Vec<u8>) -> io::Result<bool> {
        let mut bytes = [0; 2048];
        match (&self.socket).read(&mut bytes) {
            Ok(0) => return Ok(false),
            Ok(count) => {
                self.cost += count as u32;
                records.extend_from_slice(&bytes[..count]);
            }
            Err(error) => return self.stay(Stage::Hello(records), error),
        }
        self.stage = match Hello::read(&records) {
            Ok(None) => Stage::Hello(records),
            Ok(Some(hello)) => {
                let (tell, index) = (self.tell.clone(), self.index.clone());
                let wake = Arc::new(move || tell(index.load(Ordering::Relaxed)));
                match self.subsystem.greet(hello, records, self.from, &(wake as _)) {
                    Some(greeting) => Stage::Key(greeting),
                    None => return Err(self.refuse(Some(alert::INTERNAL_ERROR), "TLS".to_owned())),
                }
            }
            Err(why) => {
                let alert = match why {
                    Malformed::NoPsk => alert::MISSING_EXTENSION,
                    _ => alert::DECODE_ERROR,
                };
                return Err(self.refuse(Some(alert), why.to_string()));
            }
        };
        Ok(true)
    }

    /// Looks whether the key is found. Until then the host has nothing to send.
    fn key(&mut self, greeting: Greeting) -> io::Result<bool> {
        let late = match (&self.socket).read(&mut [0]) {
            Ok(0) => return Ok(false),
            Ok(_) => {
                let why = "TLS that goes on before it is answered".to_owned();
                return Err(self.refuse(Some(alert::UNEXPECTED_MESSAGE), why));
            }
            Err(error) => error,
        };
        match self.subsystem.greeted(&greeting, self.from) {
            None => return self.stay(Stage::Key(greeting), late),
            Some(Ok((session, identity))) => self.stage = Stage::Answer(session, identity),
            Some(Err(description)) => {
                let _ = (&self.socket).write(&alert::record(description));
                return Err(ErrorKind::PermissionDenied.into());
            }
        }
        Ok(true)
    }

    /// Tells the host, if that is TLS, and the operator.
    fn refuse(&mut self, description: Option<u8>, why: String) -> io::Error {
        if let Some(description) = description {
            let _ = (&self.socket).write(&alert::record(description));
        }
        self.subsystem.tls_failed(None, self.from, why);
        ErrorKind::PermissionDenied.into()
    }

    fn write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &mut self.stage {
            Stage::Open(session) => session.write(&self.socket, slices),
            Stage::Plain => (&self.socket).write_vectored(slices),
            // Nobody has asked for anything yet: the end of one that took too long.
            _ => Err(ErrorKind::PermissionDenied.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.stage {
            Stage::Open(session) => session.flush(&self.socket),
            _ => Ok(()),
        }
    }
}
