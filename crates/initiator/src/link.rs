//! A fresh connection and what both sides agree on (TCP 3.3.1: ICReq, ICResp).

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use ebb_nvme::pdu::{self, Common, Digests, Fatal, Frame, Initialize, Kind, Terminate};
use ebb_nvme::tls::{Psk, Stream};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::Error;

/// A connection, with TLS or without.
#[derive(Debug)]
pub(super) enum Line {
    Plain(TcpStream),
    Secured(Box<Stream>),
}

impl Line {
    pub fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Secured(stream) => stream.socket(),
        }
    }

    /// Whether there is something to read that the socket does not tell of.
    pub fn has_input(&self) -> bool {
        matches!(self, Self::Secured(stream) if stream.has_input())
    }

    pub fn read_vectored(&mut self, slices: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read_vectored(slices),
            Self::Secured(stream) => stream.read_vectored(slices),
        }
    }

    pub fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write_vectored(slices),
            Self::Secured(stream) => stream.write_vectored(slices),
        }
    }

    /// Sends what was written; false: not all of it.
    pub fn flush(&mut self) -> io::Result<bool> {
        let flushed = match self {
            Self::Plain(_) => Ok(()),
            Self::Secured(stream) => stream.flush(),
        };
        match flushed {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            flushed => flushed.map(|()| true),
        }
    }
}

/// A connection ready for capsules.
#[derive(Debug)]
pub(super) struct Link {
    pub stream: Line,
    pub agreed: Agreed,
}

/// What both sides agreed on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Agreed {
    /// Digests on every PDU.
    pub digests: Digests,
    /// Alignment in bytes of the data we send (CPDA).
    pub alignment: usize,
    /// Most bytes of data in one H2CData.
    pub max_h2c: usize,
}

impl Agreed {
    /// The least that any target agrees to.
    pub fn least(digests: Digests) -> Self {
        Self { digests, alignment: 4, max_h2c: LEAST_H2C }
    }
}

/// TCP 3.6.2.3: MAXH2CDATA is at least 4096.
const LEAST_H2C: usize = 4096;
/// TCP 3.6.2.3: CPDA is at most 31, that is 128 bytes.
const MOST_CPDA: u8 = 31;

impl Link {
    /// Connects and initialises a connection, over TLS if there are `psks`; non-blocking from then
    /// on.
    pub fn open(
        address: SocketAddr,
        psks: &[Psk],
        wanted: Digests,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let stream = TcpStream::connect_timeout(&address, timeout)
            .map_err(|source| Error::Connect { address, source })?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        let mut stream = secured(stream, psks, timeout)?;
        let request = Initialize {
            common: pdu::common(Kind::IcReq, 0, Digests::default(), 0, 4),
            version: 0.into(),
            alignment: 0,
            digests: wanted.to_byte(),
            limit: 0.into(), // MAXR2T 1, less one
            reserved: [0; 112],
        };
        write(&mut stream, request.as_bytes())?;
        let agreed = answer(&mut stream, wanted, timeout).map_err(|error| match error {
            Error::Violation(violation) => Error::Unsupported(format!(
                "{address}: what answers there does not speak NVMe/TCP as it should: {violation}"
            )),
            error => error,
        })?;
        stream.socket().set_nonblocking(true)?;
        Ok(Self { stream, agreed })
    }
}

/// The connection with its session, if there is to be one.
fn secured(socket: TcpStream, psks: &[Psk], timeout: Duration) -> Result<Line, Error> {
    if psks.is_empty() {
        return Ok(Line::Plain(socket));
    }
    let stream = Stream::connect(socket, psks, timeout).map_err(|error| match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            Error::Timeout { command: "the TLS handshake", after: timeout }
        }
        _ => Error::Insecure(error),
    })?;
    Ok(Line::Secured(Box::new(stream)))
}

fn write(stream: &mut Line, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let count = stream.write_vectored(&[IoSlice::new(rest)])?;
        rest = &rest[count..];
    }
    Ok(())
}

fn answer(stream: &mut Line, wanted: Digests, timeout: Duration) -> Result<Agreed, Error> {
    let mut response = Initialize::new_zeroed();
    let bytes = response.as_mut_bytes();
    read(stream, &mut bytes[..pdu::COMMON], timeout)?;
    let common = Common::read_from_bytes(&bytes[..pdu::COMMON]).unwrap_or(Common::new_zeroed());
    let frame = Frame::of(&common, Digests::default(), 0).map_err(super::Violation::from)?;
    if frame.kind == Kind::C2hTermReq {
        let size = size_of::<Terminate>();
        read(stream, &mut bytes[pdu::COMMON..size], timeout)?;
        let reason = Terminate::read_from_bytes(&bytes[..size]).unwrap_or(Terminate::new_zeroed());
        let (status, information) = (reason.status.get(), reason.information.get());
        return Err(Error::Terminated { status, information });
    }
    if frame.kind != Kind::IcResp {
        return Err(super::Violation::Frame(Fatal::Sequence).into());
    }
    read(stream, &mut bytes[pdu::COMMON..], timeout)?;
    agree(&response, wanted)
}

fn agree(response: &Initialize, wanted: Digests) -> Result<Agreed, Error> {
    let digests = Digests::from_byte(response.digests);
    let max_h2c = response.limit.get() as usize;
    let unsupported = |offset| Err(super::Violation::Frame(Fatal::Unsupported(offset)).into());
    if response.version.get() != 0 {
        return unsupported(8);
    }
    if response.alignment > MOST_CPDA {
        return unsupported(10);
    }
    if max_h2c < LEAST_H2C || !max_h2c.is_multiple_of(4) {
        return unsupported(12);
    }
    if digests != wanted {
        let name = |on| if on { "on" } else { "off" };
        return Err(Error::Unsupported(format!(
            "header and data digests were asked to be {} and {}, but the target wants {} and {}; \
             change --digest",
            name(wanted.header),
            name(wanted.data),
            name(digests.header),
            name(digests.data),
        )));
    }
    Ok(Agreed { digests, alignment: (usize::from(response.alignment) + 1) * 4, max_h2c })
}

fn read(stream: &mut Line, bytes: &mut [u8], timeout: Duration) -> Result<(), Error> {
    let (mut at, start) = (0, Instant::now());
    while at < bytes.len() {
        match stream.read_vectored(&mut [IoSliceMut::new(&mut bytes[at..])]) {
            Ok(0) => return Err(Error::Closed),
            Ok(count) => at += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                // TLS may have something that is no data.
                if start.elapsed() >= timeout {
                    return Err(Error::Timeout { command: "ICReq", after: timeout });
                }
            }
            Err(error) => return Err(Error::Socket(error)),
        }
    }
    Ok(())
}
