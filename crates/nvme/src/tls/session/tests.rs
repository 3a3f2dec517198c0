use std::collections::VecDeque;

use super::super::{Hello, Key};
use super::*;

/// As s2n-tls reads: headers, then what they announce.
#[test]
fn only_so_many_records_are_read_in_one_go_however_they_come() {
    let record = |length: u16| {
        let [high, low] = length.to_be_bytes();
        [vec![23, 3, 3, high, low], vec![0; length.into()]].concat()
    };
    let wire = [record(22), record(0), record(300), record(1)].concat();
    for piece in [1, 3, 7, 1000] {
        let (mut records, mut at) = (Records { most: Some(3), ..Records::default() }, 0);
        while at < wire.len() {
            let count = records.room(piece.min(wire.len() - at));
            if count == 0 {
                break;
            }
            records.read(&wire[at..at + count]);
            at += count;
        }
        assert_eq!((records.ended, wire.len() - at), (3, record(1).len()), "{piece}");
    }
}

const SHORT: &str = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
const LONG: &str = "NVMeTLSkey-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKiss\
                    LS4vcSEgBQ==:";

fn psks(key: &str) -> Vec<Psk> {
    Key::parse(key)
        .unwrap()
        .psks("nqn.2026-11.org.example:host", "nqn.2026-11.org.example:sub")
        .collect()
}

/// An end of a wire in memory that takes `room` bytes at once.
#[derive(Default)]
struct End {
    input: VecDeque<u8>,
    output: VecDeque<u8>,
    room: usize,
}

impl Read for End {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self.input.len() {
            0 => Err(ErrorKind::WouldBlock.into()),
            _ => self.input.read(bytes),
        }
    }
}

impl Write for End {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.room.saturating_sub(self.output.len()));
        match count {
            0 => Err(ErrorKind::WouldBlock.into()),
            _ => self.output.write(&bytes[..count]),
        }
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A host and a target, and the wire between them.
struct Pair {
    host: Session,
    target: Session,
    ends: [End; 2],
}

impl Pair {
    fn carry(&mut self) {
        let [host, target] = &mut self.ends;
        target.input.append(&mut host.output);
        host.input.append(&mut target.output);
    }

    /// A host that offers `offered` to a target that has `psk`, as far as they get.
    fn meet(offered: &[Psk], psk: &Psk) -> io::Result<Self> {
        let end = || End { room: usize::MAX, ..End::default() };
        let mut host = Session::connect(offered)?;
        let mut ends = [end(), end()];
        host.handshake(&mut ends[0])?;
        let hello: Vec<u8> = ends[0].output.drain(..).collect();
        assert!(Hello::read(&hello).unwrap().is_some_and(|hello| hello.has(0, &offered[0])));
        let target = Session::accept(psk, hello)?;
        let mut pair = Self { host, target, ends };
        while !(pair.host.is_open() && pair.target.is_open()) {
            pair.target.handshake(&mut pair.ends[1])?;
            pair.carry();
            pair.host.handshake(&mut pair.ends[0])?;
            pair.carry();
        }
        Ok(pair)
    }
}

#[test]
fn both_hashes_and_all_identities_make_a_session() {
    for psk in psks(SHORT).iter().chain(&psks(LONG)) {
        let pair = Pair::meet(std::slice::from_ref(psk), psk).unwrap();
        let suite = match psk.hash {
            Hash::Sha256 => "TLS_AES_128_GCM_SHA256",
            _ => "TLS_AES_256_GCM_SHA384",
        };
        assert_eq!(pair.target.connection.cipher_suite().unwrap(), suite);
        assert_eq!(pair.host.connection.selected_key_exchange_group(), Some("secp256r1"));
    }
    // The target takes that of several which it has.
    let offered = [&psks(LONG)[..2], &psks(SHORT)[..1]].concat();
    Pair::meet(&offered, &offered[2]).unwrap();
}

#[test]
fn without_the_same_psk_there_is_none() {
    let psks = psks(SHORT);
    // The same identity, another key; and another identity.
    for other in [Psk { secret: vec![7; 32].into(), ..psks[0].clone() }, psks[1].clone()] {
        let error = Pair::meet(&psks[..1], &other).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
    }
}

/// Data of all lengths in both directions, over a wire that takes little at once.
#[test]
fn what_is_written_is_read_whatever_the_wire_takes() {
    let psk = &psks(LONG)[0];
    let mut pair = Pair::meet(std::slice::from_ref(psk), psk).unwrap();
    for (room, lengths) in [
        (7, &[1_usize, 24, 100][..]),
        (usize::MAX, &[24, 4096, 24, RECORD, 8, 3 * RECORD + 5]),
        (40 << 10, &[200 << 10, 1, RECORD - 1, 300 << 10]),
    ] {
        pair.ends[1].room = room;
        let pieces: Vec<Vec<u8>> = lengths
            .iter()
            .map(|length| (0..*length).map(|at| (at % 251) as u8).collect())
            .collect();
        let sent = pieces.concat();
        let (mut at, mut read) = (0, Vec::new());
        while read.len() < sent.len() {
            let slices: Vec<_> = match at {
                0 => pieces.iter().map(|piece| IoSlice::new(piece)).collect(),
                _ => vec![IoSlice::new(&sent[at..])],
            };
            let count = pair.target.write(&mut pair.ends[1], &slices);
            at += count.unwrap_or_else(|error| {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                0
            });
            assert!(pair.target.wire().output.len() <= OUTPUT + 2 * RECORD);
            let _ = pair.target.flush(&mut pair.ends[1]);
            pair.carry();
            let mut bytes = vec![0; 10_000];
            let (first, second) = bytes.split_at_mut(3000);
            let mut slices = [IoSliceMut::new(first), IoSliceMut::new(second)];
            match pair.host.read(&mut pair.ends[0], &mut slices) {
                Ok(count) => read.extend_from_slice(&bytes[..count]),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        assert!(read == sent && at == sent.len() && !pair.host.has_input());
    }
}

#[test]
fn an_end_is_told_and_changed_bytes_are_refused() {
    let psk = &psks(SHORT)[0];
    let mut pair = Pair::meet(std::slice::from_ref(psk), psk).unwrap();
    pair.host.write(&mut pair.ends[0], &[IoSlice::new(b"last")]).unwrap();
    pair.host.close(&mut pair.ends[0]);
    pair.carry();
    let mut bytes = [0; 16];
    let mut read =
        |pair: &mut Pair| pair.target.read(&mut pair.ends[1], &mut [IoSliceMut::new(&mut bytes)]);
    assert_eq!(read(&mut pair).unwrap(), 4);
    assert_eq!(read(&mut pair).unwrap(), 0);
    let mut pair = Pair::meet(std::slice::from_ref(psk), psk).unwrap();
    pair.host.write(&mut pair.ends[0], &[IoSlice::new(b"last")]).unwrap();
    *pair.ends[0].output.back_mut().unwrap() ^= 1;
    pair.carry();
    assert_eq!(read(&mut pair).unwrap_err().kind(), ErrorKind::InvalidData);
}
