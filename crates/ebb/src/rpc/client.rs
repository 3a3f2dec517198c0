//! Asking a daemon.

use std::io::{BufRead, BufReader, ErrorKind, IsTerminal, Read, Write, stderr};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use serde::de::DeserializeOwned;
use serde_json::Value;

use ebb_cli::{Usage, out};

use super::{Fault, code, protocol};

/// Longest answer that is read.
const MOST_ANSWER: u64 = 16 << 20;
/// Adding a large namespace takes its memory first.
const PATIENCE: Duration = Duration::from_secs(600);
/// So long nothing is said.
const SILENT: Duration = Duration::from_secs(5);

/// Whether a daemon can be asked at `socket`.
pub fn answers(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

/// Asks the daemon at `socket` once.
///
/// # Errors
/// When it cannot be reached, or says why it does not do it.
pub fn call<T: DeserializeOwned>(socket: &Path, method: &str, params: &Value) -> Result<T> {
    let name = socket.display();
    let stream = UnixStream::connect(socket).with_context(|| {
        format!(
            "nobody answers at {name}; is `ebb serve --control {name}` or `ebb run --control \
             {name}` running, and may you use its socket? (it is its user's and root's)"
        )
    })?;
    let line = exchange(&stream, &protocol::request(method, params, 1))
        .with_context(|| format!("no answer from {name}"))?;
    let outcome = protocol::outcome(&line, 1)
        .map_err(|error| anyhow!("what answers at {name} does not speak JSON-RPC 2.0: {error}"))?;
    let result = outcome.map_err(error)?;
    serde_json::from_value(result)
        .with_context(|| format!("what answers at {name} is of another version of Ebb"))
}

fn exchange(mut stream: &UnixStream, request: &str) -> std::io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(SILENT))?;
    // Who is refused is told so whether or not the request was read.
    let sent = stream.write_all(request.as_bytes());
    let mut line = Vec::new();
    let mut answer = BufReader::new(stream.take(MOST_ANSWER));
    if let Err(error) = answer.read_until(b'\n', &mut line) {
        if error.kind() != ErrorKind::WouldBlock {
            return Err(error);
        }
        if stderr().is_terminal() {
            let minutes = PATIENCE.as_secs() / 60;
            out::note(format_args!("no answer yet; it is waited for {minutes} minutes"));
        }
        stream.set_read_timeout(Some(PATIENCE))?;
        answer.read_until(b'\n', &mut line)?;
    }
    if line.is_empty() {
        sent?;
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line)
}

/// Wrong parameters are wrong usage; anything else failed.
fn error(fault: Fault) -> anyhow::Error {
    match fault.code {
        code::INVALID_PARAMS => Usage(fault.message).into(),
        _ => fault.into(),
    }
}
