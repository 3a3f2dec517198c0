//! Sessions of s2n-tls between bytes: it never sees a socket. What it reads was put into
//! [`Wire::input`] before, what it writes waits in [`Wire::output`].
#![allow(unsafe_code)] // s2n-tls calls back with a pointer to the wire.

use std::ffi::{c_int, c_void};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::TcpStream;
use std::ptr::NonNull;
use std::sync::LazyLock;
use std::task::Poll;
use std::time::{Duration, Instant};

use s2n_tls::config::Config;
use s2n_tls::connection::Connection;
use s2n_tls::enums::{Blinding, Mode, PskHmac, Version};
use s2n_tls::error::{Error, ErrorType};
use s2n_tls::security::Policy;
use zeroize::Zeroizing;

use super::Psk;
use crate::chap::Hash;

/// TLS 1.3 alone, AES-128-GCM and AES-256-GCM, P-256, P-384 and P-521 (s2n-tls never renames a
/// policy, nor changes one). There is no certificate, ticket or early data as none is configured.
const POLICY: &str = "ELBSecurityPolicy-TLS13-1-3-FIPS-2023-04";
/// Bytes of plain text in a record.
const RECORD: usize = 16 << 10;
/// Bytes read from a socket at once.
const INPUT: usize = 32 << 10;
/// Bytes of a record's header; the last two are its length.
const HEADER: usize = 5;
/// Records without data that are read in one go, and what each costs its host, as if it had sent
/// so many bytes: a renewal of keys takes longer than a block.
const BARREN: u32 = 16;
const PRICE: i64 = 4 << 10;
/// Records without data that a peer may have sent ahead of what it may, which is one for so many
/// bytes of data. A sane one renews its keys after many GiB, if at all.
const MOST_BARREN: u32 = 256;
const BYTES_EACH: u64 = 1 << 20;
/// Encrypted bytes at which no more are made before the socket takes them.
const OUTPUT: usize = 64 << 10;
/// The most bytes of memory that a session takes: its wire, with a record that was begun, a record
/// on its way to be gathered, and s2n-tls's own (`tests/no_allocation.rs` measures 163 KiB in all).
pub const MOST_SESSION: usize = INPUT + OUTPUT + 2 * (RECORD + 512) + (96 << 10);

static CONFIG: LazyLock<Result<Config, String>> = LazyLock::new(|| {
    let config = || {
        let mut builder = Config::builder();
        builder.set_security_policy(&Policy::from_version(POLICY)?)?;
        builder.build()
    };
    config().map_err(|error: Error| error.to_string())
});

/// Bytes on their way from and to the peer.
#[derive(Default)]
struct Wire {
    input: Vec<u8>,
    /// Bytes of `input` that there are, and those of them that are read.
    filled: usize,
    taken: usize,
    output: Vec<u8>,
    /// Bytes of `output` that are sent.
    sent: usize,
    records: Records,
}

/// What of the records that s2n-tls has read is not told by what comes of them.
#[derive(Default)]
struct Records {
    /// The header being read: bytes of it that there are, and the length that it says.
    header: usize,
    length: [u8; 2],
    /// Bytes left of the record.
    left: usize,
    /// Records read to their end.
    ended: u32,
    /// How many may be; `None`: any.
    most: Option<u32>,
}

impl Records {
    /// How many bytes of those there are may be read now: none beyond the end of a record.
    fn room(&self, bytes: usize) -> usize {
        let is_between = self.header == 0 && self.left == 0;
        if is_between && self.most.is_some_and(|most| self.ended >= most) {
            return 0;
        }
        bytes.min(if self.left > 0 { self.left } else { HEADER - self.header })
    }

    fn read(&mut self, bytes: &[u8]) {
        if self.left > 0 {
            self.left -= bytes.len();
            self.ended += u32::from(self.left == 0);
            return;
        }
        for byte in bytes {
            if self.header >= HEADER - 2 {
                self.length[self.header + 2 - HEADER] = *byte;
            }
            self.header += 1;
        }
        if self.header == HEADER {
            (self.header, self.left) = (0, u16::from_be_bytes(self.length).into());
            self.ended += u32::from(self.left == 0);
        }
    }
}

impl Wire {
    /// Sends what `socket` takes; whether that is all.
    fn drain(&mut self, socket: &mut impl Write) -> io::Result<bool> {
        while self.sent < self.output.len() {
            match socket.write(&self.output[self.sent..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_late(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        (self.output, self.sent) = (Vec::new(), 0);
        Ok(true)
    }

    /// Reads what `socket` has, once; false at the end of it.
    fn fill(&mut self, socket: &mut impl Read) -> io::Result<bool> {
        self.input.resize(INPUT, 0);
        (self.taken, self.filled) = (0, 0);
        loop {
            match socket.read(&mut self.input) {
                Ok(count) => {
                    self.filled = count;
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// A non-blocking socket has nothing now, or a blocking one has had nothing for too long.
fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

unsafe extern "C" fn receive(wire: *mut c_void, bytes: *mut u8, count: u32) -> c_int {
    // SAFETY: the session set this pointer to its wire, and nobody else uses it during a call.
    let wire = unsafe { &mut *wire.cast::<Wire>() };
    let rest = &wire.input[wire.taken..wire.filled];
    let count = wire.records.room(rest.len().min(count as usize));
    if count == 0 {
        // SAFETY: this thread's own.
        unsafe { *libc::__errno_location() = libc::EWOULDBLOCK };
        return -1;
    }
    // SAFETY: s2n-tls has room for so many bytes there.
    unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), bytes, count) };
    wire.records.read(&wire.input[wire.taken..wire.taken + count]);
    wire.taken += count;
    count as c_int
}

unsafe extern "C" fn send(wire: *mut c_void, bytes: *const u8, count: u32) -> c_int {
    // SAFETY: as above; s2n-tls has so many bytes there.
    let (wire, bytes) =
        unsafe { (&mut *wire.cast::<Wire>(), std::slice::from_raw_parts(bytes, count as usize)) };
    wire.output.extend_from_slice(bytes);
    count as c_int
}

/// One session.
pub struct Session {
    connection: Connection,
    /// Ours, and s2n-tls's while it is called.
    wire: NonNull<Wire>,
    is_open: bool,
    /// What reading took and did not bring: see [`Self::cost`].
    cost: i64,
    /// Records without data that the peer may still send, and bytes of data towards another.
    barren: u32,
    towards: u64,
}

// SAFETY: the wire belongs to the session alone; s2n-tls keeps nothing of a connection in a thread.
unsafe impl Send for Session {}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Session")
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: it came of a box, and s2n-tls is not called any more but to free.
        drop(unsafe { Box::from_raw(self.wire.as_ptr()) });
    }
}

fn broken(connection: &Connection, error: &Error) -> io::Error {
    let what = match (error.kind(), connection.alert()) {
        (ErrorType::Alert, Some(alert)) => format!("the other side sent TLS alert {alert}"),
        _ => format!("TLS: {} ({})", error.message(), error.name()),
    };
    io::Error::new(ErrorKind::InvalidData, what)
}

impl Session {
    /// That of a target with a host that has `psk`, which has sent `input` so far.
    ///
    /// # Errors
    /// When s2n-tls cannot be set up.
    pub fn accept(psk: &Psk, input: Vec<u8>) -> io::Result<Self> {
        let mut session = Self::new(Mode::Server, std::slice::from_ref(psk))?;
        let wire = session.wire();
        (wire.filled, wire.input) = (input.len(), input);
        Ok(session)
    }

    /// That of a host that offers `psks`.
    ///
    /// # Errors
    /// When s2n-tls cannot be set up.
    pub fn connect(psks: &[Psk]) -> io::Result<Self> {
        Self::new(Mode::Client, psks)
    }

    /// Answers a host of our own. The first answer of a process takes a hundred times as long as
    /// others, since libraries set themselves up for it.
    ///
    /// # Errors
    /// When s2n-tls cannot be set up.
    pub fn warm_up() -> io::Result<()> {
        let secret = Zeroizing::new(vec![0; 32]);
        let psk = Psk { identity: "warm-up".to_owned(), hash: Hash::Sha256, secret };
        let mut host = Self::connect(std::slice::from_ref(&psk))?;
        host.negotiate()?;
        let hello = host.wire().output.clone();
        Self::accept(&psk, hello)?.negotiate().map(drop)
    }

    fn new(mode: Mode, psks: &[Psk]) -> io::Result<Self> {
        let config = CONFIG.as_ref().map_err(|error| io::Error::other(error.clone()))?.clone();
        let wire = NonNull::from(Box::leak(Box::<Wire>::default()));
        let mut session = Self {
            connection: Connection::new(mode),
            wire,
            is_open: false,
            cost: 0,
            barren: MOST_BARREN,
            towards: 0,
        };
        match session.set_up(config, psks) {
            Ok(()) => Ok(session),
            Err(error) => Err(broken(&session.connection, &error)),
        }
    }

    fn set_up(&mut self, config: Config, psks: &[Psk]) -> Result<(), Error> {
        let wire = self.wire.as_ptr().cast::<c_void>();
        let connection = &mut self.connection;
        connection.set_config(config)?;
        // Waiting hides the time of a failed decryption where a cipher has padding: none of ours.
        connection.set_blinding(Blinding::SelfService)?;
        connection.set_receive_callback(Some(receive))?;
        connection.set_send_callback(Some(send))?;
        // SAFETY: the wire is there as long as the session, and so longer than calls to s2n-tls.
        unsafe { connection.set_receive_context(wire)?.set_send_context(wire)? };
        for psk in psks {
            let mut builder = s2n_tls::psk::Psk::builder()?;
            let hash = if psk.hash == Hash::Sha256 { PskHmac::SHA256 } else { PskHmac::SHA384 };
            builder.set_identity(psk.identity.as_bytes())?.set_secret(&psk.secret)?;
            builder.set_hmac(hash)?;
            connection.append_psk(&builder.build()?)?;
        }
        Ok(())
    }

    fn wire(&mut self) -> &mut Wire {
        // SAFETY: the session's alone, and s2n-tls is not being called.
        unsafe { self.wire.as_mut() }
    }

    /// Whether it may go both ways: both sides have shown that they have the PSK.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Goes on with the handshake as far as the input goes. Whether it has ended.
    ///
    /// # Errors
    /// Why it fails; an alert for the peer waits to be sent.
    pub fn negotiate(&mut self) -> io::Result<bool> {
        match self.connection.poll_negotiate() {
            Poll::Pending => Ok(false),
            Poll::Ready(Err(error)) => Err(broken(&self.connection, &error)),
            Poll::Ready(Ok(_)) => {
                let version = self.connection.actual_protocol_version();
                let is_right = version.is_ok_and(|version| version == Version::TLS13)
                    && self.connection.negotiated_psk_identity_length().is_ok_and(|one| one > 0);
                if !is_right {
                    return Err(io::Error::new(ErrorKind::InvalidData, "TLS without the PSK"));
                }
                self.is_open = true;
                Ok(true)
            }
        }
    }

    /// Goes on with the handshake, and reads from `socket` once for that. Whether it has ended.
    ///
    /// # Errors
    /// Why it fails, which the peer was told as far as the socket takes it.
    pub fn handshake(&mut self, mut socket: impl Read + Write) -> io::Result<bool> {
        if self.step(&mut socket)? {
            return Ok(true);
        }
        match self.wire().fill(&mut socket) {
            Ok(true) => {
                self.cost += self.wire().filled as i64;
                self.step(&mut socket)
            }
            Ok(false) => Err(ErrorKind::UnexpectedEof.into()),
            Err(error) if is_late(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn step(&mut self, socket: &mut impl Write) -> io::Result<bool> {
        let ended = self.negotiate();
        let drained = self.wire().drain(socket);
        ended.and_then(|ended| drained.map(|_| ended))
    }

    /// Reads from `socket` into all of `slices` or until it has no more; 0: the peer has ended it.
    /// Records with little in them, or nothing, are read no longer than others would be.
    ///
    /// # Errors
    /// Those of the socket, and what is no record of this session.
    pub fn read(
        &mut self,
        mut socket: impl Read + Write,
        slices: &mut [IoSliceMut<'_>],
    ) -> io::Result<usize> {
        let room: usize = slices.iter().map(|slice| slice.len()).sum();
        let (mut total, mut fills, mut is_barren) = (0, room / INPUT + 2, false);
        for slice in slices {
            let mut at = 0;
            while at < slice.len() {
                (self.wire().records.ended, self.wire().records.most) = (0, Some(BARREN));
                let polled = self.connection.poll_recv(&mut slice[at..]);
                self.count(&polled)?;
                match polled {
                    Poll::Ready(Ok(0)) => return Ok(total),
                    Poll::Ready(Ok(count)) => {
                        (at, total, is_barren) = (at + count, total + count, false);
                        continue;
                    }
                    Poll::Ready(Err(error)) => {
                        let _ = self.wire().drain(&mut socket); // An alert.
                        return Err(broken(&self.connection, &error));
                    }
                    Poll::Pending => {}
                }
                // What a renewal of keys asks for.
                self.wire().drain(&mut socket)?;
                let is_paused = self.wire().taken < self.wire().filled;
                let filled = match fills == 0 || is_barren || is_paused {
                    true => Err(ErrorKind::WouldBlock.into()),
                    false => self.wire().fill(&mut socket),
                };
                match filled {
                    Ok(true) => {
                        self.cost += self.wire().filled as i64;
                        (fills, is_barren) = (fills - 1, true);
                    }
                    Err(error) if total == 0 => return Err(error),
                    Ok(false) | Err(_) => return Ok(total),
                }
            }
        }
        Ok(total)
    }

    /// Counts the records that were read: how many had no data, and what the data was.
    fn count(&mut self, polled: &Poll<Result<usize, Error>>) -> io::Result<()> {
        let ended = self.wire().records.ended;
        let bytes = if let Poll::Ready(Ok(count)) = polled { *count } else { 0 };
        // One record brought what came, now or before.
        let barren = ended - u32::from(bytes > 0).min(ended);
        self.cost += PRICE * i64::from(barren) - bytes as i64;
        self.towards += bytes as u64;
        let earned = u32::try_from(self.towards / BYTES_EACH).unwrap_or(MOST_BARREN);
        self.towards %= BYTES_EACH;
        let left = self.barren.saturating_add(earned).min(MOST_BARREN).checked_sub(barren);
        self.barren = left.ok_or_else(|| {
            io::Error::new(ErrorKind::InvalidData, "TLS: too many records without data")
        })?;
        Ok(())
    }

    /// What reading has cost since this was last asked beyond the bytes that it brought: bytes of
    /// the wire, and a price for each record without data.
    pub fn cost(&mut self) -> u32 {
        let cost = u32::try_from(self.cost.max(0)).unwrap_or(u32::MAX);
        self.cost -= i64::from(cost);
        cost
    }

    /// Whether bytes have been read from the socket and not from here.
    #[must_use]
    pub fn has_input(&self) -> bool {
        // SAFETY: as below.
        let wire = unsafe { self.wire.as_ref() };
        wire.taken < wire.filled || self.connection.peek_len() > 0
    }

    /// Encrypts `slices` as long as `socket` takes what comes of it. Some may stay: see
    /// [`Self::flush`].
    ///
    /// # Errors
    /// Those of the socket; "would block" if nothing was taken.
    pub fn write(
        &mut self,
        mut socket: impl Read + Write,
        slices: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        if !self.wire().drain(&mut socket)? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let mut total = 0;
        let mut gathered = Vec::new();
        for slice in slices {
            let mut rest: &[u8] = slice;
            while !rest.is_empty() {
                if gathered.is_empty() && rest.len() >= RECORD {
                    self.encrypt(&rest[..RECORD])?;
                    (rest, total) = (&rest[RECORD..], total + RECORD);
                } else {
                    let (now, later) = rest.split_at(rest.len().min(RECORD - gathered.len()));
                    gathered.extend_from_slice(now);
                    rest = later;
                    if gathered.len() < RECORD {
                        continue;
                    }
                    self.encrypt(&gathered)?;
                    total += RECORD;
                    gathered.clear();
                }
                if self.wire().output.len() >= OUTPUT && !self.wire().drain(&mut socket)? {
                    return Ok(total);
                }
            }
        }
        self.encrypt(&gathered)?;
        self.wire().drain(&mut socket)?;
        Ok(total + gathered.len())
    }

    fn encrypt(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.connection.poll_send(bytes) {
                Poll::Ready(Ok(count)) => bytes = &bytes[count..],
                Poll::Ready(Err(error)) => return Err(broken(&self.connection, &error)),
                Poll::Pending => return Err(io::Error::other("the wire takes everything")),
            }
        }
        Ok(())
    }

    /// Sends what is encrypted.
    ///
    /// # Errors
    /// Those of the socket; "would block" if not all of it was sent.
    pub fn flush(&mut self, mut socket: impl Write) -> io::Result<()> {
        match self.wire().drain(&mut socket)? {
            true => Ok(()),
            false => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// Tells the peer that nothing follows, as far as `socket` takes it (RFC 8446 6.1).
    pub fn close(&mut self, mut socket: impl Write) {
        if self.is_open {
            let _ = self.connection.poll_shutdown_send();
        }
        let _ = self.wire().drain(&mut socket);
    }
}

/// A socket with a session over it.
#[derive(Debug)]
pub struct Stream {
    session: Session,
    socket: TcpStream,
}

impl Stream {
    /// The socket of a host, whose session is negotiated; it blocks meanwhile, for about `timeout`,
    /// which is that of the socket too.
    ///
    /// # Errors
    /// Those of the socket; "timed out"; and why the target refuses.
    pub fn connect(socket: TcpStream, psks: &[Psk], timeout: Duration) -> io::Result<Self> {
        let (mut session, start) = (Session::connect(psks)?, Instant::now());
        while !session.handshake(&socket)? {
            if start.elapsed() >= timeout {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        Ok(Self { session, socket })
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Whether bytes have been read from the socket and not from here.
    #[must_use]
    pub fn has_input(&self) -> bool {
        self.session.has_input()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.session.close(&self.socket);
    }
}

impl Read for Stream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.session.read(&self.socket, &mut [IoSliceMut::new(bytes)])
    }

    fn read_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.session.read(&self.socket, slices)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.session.write(&self.socket, &[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.session.write(&self.socket, slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.session.flush(&self.socket)
    }
}

#[cfg(test)]
mod tests;
