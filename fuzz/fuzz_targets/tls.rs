//! The first bytes of a host that has no key, made up or a good message changed: it never counts as
//! one with a key, nothing panics, and where a message ends does not depend on what follows. And
//! keys and identities.
//!
//! The first byte chooses whether the others stand for themselves or change the good message.

#![no_main]

use std::sync::OnceLock;

use ebb_nvme::tls::{Hello, Identity, Key, MOST_HELLO, Psk, Session};
use libfuzzer_sys::fuzz_target;

const NQN: &str = "nqn.2026-01.org.example:ebb";
const HOST: &str = "nqn.2026-01.org.example:host";
const KEY: &str = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";

fn psks() -> &'static [Psk] {
    static PSKS: OnceLock<Vec<Psk>> = OnceLock::new();
    PSKS.get_or_init(|| Key::parse(KEY).expect("a key").psks(HOST, NQN).collect())
}

/// The message of a host with the first of the PSKs.
fn good() -> &'static [u8] {
    static GOOD: OnceLock<Vec<u8>> = OnceLock::new();
    GOOD.get_or_init(|| {
        let mut session = Session::connect(&psks()[..1]).expect("a session");
        let mut wire = Wire(Vec::new());
        assert!(!session.handshake(&mut wire).expect("a message"));
        wire.0
    })
}

/// Keeps what is sent.
struct Wire(Vec<u8>);

impl std::io::Read for Wire {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::WouldBlock.into())
    }
}

impl std::io::Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, input)) = input.split_first() else { return };
    if let Ok(key) = std::str::from_utf8(input).map(Key::parse).unwrap_or(Key::parse("")) {
        assert!(key.psks(HOST, NQN).all(|psk| [32, 48].contains(&psk.secret.len())));
    }
    if let Some(identity) = Identity::parse(input) {
        assert!(!identity.host.is_empty() && !identity.subsystem.is_empty());
    }
    let mut records = input.to_vec();
    if choice % 2 == 1 {
        // Bytes to change, and what by: one change at each place of three bytes.
        records = good().to_vec();
        for change in input.chunks_exact(3) {
            let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % records.len();
            records[at] ^= change[2];
        }
    }
    let read = Hello::read(&records);
    for end in [records.len() / 3, records.len().saturating_sub(1)] {
        match (Hello::read(&records[..end]), &read) {
            (Ok(Some(hello)), Ok(Some(whole))) => assert_eq!(&hello, whole),
            (Ok(Some(_)), _) => panic!("what follows changes a message"),
            (Err(why), _) => assert_eq!(read, Err(why)),
            (Ok(None), _) => {}
        }
    }
    match read {
        Ok(None) => assert!(records.len() <= MOST_HELLO),
        Ok(Some(hello)) => {
            let names = hello.identities().count();
            let whole = Hello::read(good()).ok().flatten();
            let has = psks().iter().any(|psk| (0..=names).any(|index| hello.has(index, psk)));
            assert!(!has || whole == Some(hello), "another message, and the same binder");
        }
        Err(_) => {}
    }
    // s2n-tls gets it too, from who has the key alone: nothing opens without its answer.
    if let Ok(mut session) = Session::accept(&psks()[0], records) {
        assert!(!session.negotiate().unwrap_or(false) && !session.is_open());
    }
});
