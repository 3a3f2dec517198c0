//! A fresh connection and what both sides agree on (TCP 3.3.1: ICReq, ICResp).

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::Error;
use crate::wire::pdu::{self, Common, Digests, Fatal, Frame, Initialize, Kind, Terminate};

/// A connection ready for capsules.
#[derive(Debug)]
pub(super) struct Link {
    pub stream: TcpStream,
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
    /// Connects and initialises a connection; non-blocking from then on.
    pub fn open(address: SocketAddr, wanted: Digests, timeout: Duration) -> Result<Self, Error> {
        let stream = TcpStream::connect_timeout(&address, timeout)
            .map_err(|source| Error::Connect { address, source })?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        let request = Initialize {
            common: pdu::common(Kind::IcReq, 0, Digests::default(), 0, 4),
            version: 0.into(),
            alignment: 0,
            digests: wanted.to_byte(),
            limit: 0.into(), // MAXR2T 1, less one
            reserved: [0; 112],
        };
        (&stream).write_all(request.as_bytes())?;
        let agreed = answer(&stream, wanted, timeout).map_err(|error| match error {
            Error::Violation(violation) => Error::Unsupported(format!(
                "{address}: what answers there does not speak NVMe/TCP as it should: {violation}"
            )),
            error => error,
        })?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, agreed })
    }
}

fn answer(stream: &TcpStream, wanted: Digests, timeout: Duration) -> Result<Agreed, Error> {
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

fn read(mut stream: &TcpStream, bytes: &mut [u8], timeout: Duration) -> Result<(), Error> {
    stream.read_exact(bytes).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => Error::Closed,
        ErrorKind::WouldBlock | ErrorKind::TimedOut => {
            Error::Timeout { command: "ICReq", after: timeout }
        }
        _ => Error::Socket(error),
    })
}
