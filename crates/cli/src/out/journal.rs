//! How important a line is, for systemd's journal where that reads it (`man 3 sd-daemon`). And
//! lines with fields, which it takes at a socket (<https://systemd.io/JOURNAL_NATIVE_PROTOCOL>).

use std::fmt::Display;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::OnceLock;

use rustix::fs::fstat;

/// How important a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// What failed.
    Error,
    /// What needs somebody to look.
    Warning,
    /// What an operator should know.
    Notice,
    /// What has changed.
    Info,
    /// All else.
    Debug,
}

/// Whether the journal reads standard output, and standard error.
static READS: OnceLock<[bool; 2]> = OnceLock::new();

impl Priority {
    /// What a line on standard output begins with; nothing where a person reads it.
    pub fn mark(self) -> &'static str {
        self.of(0)
    }

    /// The same of standard error.
    pub fn mark_error(self) -> &'static str {
        self.of(1)
    }

    fn of(self, stream: usize) -> &'static str {
        if reads()[stream] { self.sign() } else { "" }
    }

    fn sign(self) -> &'static str {
        match self {
            Self::Error => "<3>",
            Self::Warning => "<4>",
            Self::Notice => "<5>",
            Self::Info => "<6>",
            Self::Debug => "<7>",
        }
    }
}

fn reads() -> [bool; 2] {
    *READS.get_or_init(|| [is_read(&io::stdout()), is_read(&io::stderr())])
}

/// A field of a line, and its value.
pub type Field = (&'static str, String);

/// Takes lines with fields.
#[derive(Debug)]
pub struct Journal {
    from: UnixDatagram,
    socket: PathBuf,
}

impl Journal {
    /// The one at `socket`, if standard output goes to the journal.
    pub fn open(socket: PathBuf) -> Option<Self> {
        let from = UnixDatagram::unbound().ok().filter(|_| reads()[0])?;
        from.set_nonblocking(true).ok()?;
        Some(Self { from, socket })
    }

    /// Whether it has taken the line. It is not waited for, and may have been started anew.
    pub fn take(&self, priority: Priority, text: impl Display, fields: &[Field]) -> bool {
        let own = [
            ("MESSAGE", text.to_string()),
            ("PRIORITY", priority.sign()[1..2].to_owned()),
            ("SYSLOG_IDENTIFIER", "ebb".to_owned()),
        ];
        let mut data = Vec::new();
        own.iter().chain(fields).for_each(|field| encode(field, &mut data));
        self.from.send_to(&data, &self.socket).is_ok()
    }
}

/// A value of several lines has its length before it.
fn encode((name, value): &Field, to: &mut Vec<u8>) {
    to.extend_from_slice(name.as_bytes());
    if value.contains('\n') {
        to.push(b'\n');
        to.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        to.push(b'=');
    }
    to.extend_from_slice(value.as_bytes());
    to.push(b'\n');
}

/// Whether `stream` is the one that systemd has connected to its journal.
fn is_read(stream: &impl AsFd) -> bool {
    let Ok(told) = std::env::var("JOURNAL_STREAM") else { return false };
    fstat(stream).is_ok_and(|stat| told == format!("{}:{}", stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_with_line_ends_is_no_other_field() {
        let mut data = Vec::new();
        encode(&("MESSAGE", "drive\nPRIORITY=0".to_owned()), &mut data);
        encode(&("EBB_OF", "fan0".to_owned()), &mut data);
        let long = b"MESSAGE\n\x10\0\0\0\0\0\0\0drive\nPRIORITY=0\nEBB_OF=fan0\n";
        assert_eq!(data, long);
    }
}
