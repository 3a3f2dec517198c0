//! The first message of a host, as far as we must know it: which PSKs it offers, and whether it has
//! one of them (RFC 8446 4.1.2, 4.2.11). s2n-tls checks all of it again.

use std::ops::Range;

use thiserror::Error;

use super::Psk;
use super::key::expand_label;
use crate::chap::is_equal;

/// The most bytes of the first message with its records. Names and digests take under 1 KiB, key
/// shares against quantum computers 2 KiB.
pub const MOST_HELLO: usize = 8 << 10;
/// PSKs looked at of those that are offered: one name in all its forms, and another.
const MOST_OFFERS: usize = 8;
/// The record type of the handshake, and so the first byte of a connection with TLS. PDUs of hosts
/// begin with less.
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// The extension with the PSKs, which is the last one.
const PRE_SHARED_KEY: u16 = 41;

/// Whether a connection that begins with this byte has TLS.
#[must_use]
pub const fn begins(first: u8) -> bool {
    first == HANDSHAKE
}

/// Why bytes are not the first message of a host with a PSK.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Malformed {
    /// They are not TLS.
    #[error("it does not begin with TLS")]
    Record,
    /// They are not a ClientHello.
    #[error("its TLS begins with something that is no ClientHello")]
    Message,
    /// There are too many.
    #[error("its ClientHello is longer than {MOST_HELLO} bytes")]
    Length,
    /// There is no PSK in it.
    #[error("its ClientHello offers no pre-shared key; nvme connect needs --tls and a key")]
    NoPsk,
}

/// A PSK that a host offers.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Offer {
    identity: Range<usize>,
    binder: Range<usize>,
}

/// The first message of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    message: Vec<u8>,
    /// Where the binders begin, which are of all before.
    binders: usize,
    offers: Vec<Offer>,
}

impl Hello {
    /// From the records so far. `None`: there are more to come.
    ///
    /// # Errors
    /// When this is not, or will not be, the first message of a host with a PSK.
    pub fn read(records: &[u8]) -> Result<Option<Self>, Malformed> {
        let mut message = Vec::new();
        let mut rest = Reader { bytes: records, at: 0 };
        loop {
            let length = match message.as_slice() {
                [] => None,
                [CLIENT_HELLO] | [CLIENT_HELLO, _] | [CLIENT_HELLO, _, _] => None,
                [CLIENT_HELLO, a, b, c, ..] => {
                    Some(4 + u32::from_be_bytes([0, *a, *b, *c]) as usize)
                }
                _ => return Err(Malformed::Message),
            };
            if length.is_some_and(|length| length > MOST_HELLO) || rest.at > MOST_HELLO {
                return Err(Malformed::Length);
            }
            if let Some(length) = length.filter(|length| message.len() >= *length) {
                message.truncate(length);
                return Self::parse(message).map(Some);
            }
            match rest.bytes.get(rest.at..).unwrap_or_default() {
                [] | [HANDSHAKE] | [HANDSHAKE, 3] => {}
                [HANDSHAKE, 3, 0..=3, ..] => {}
                _ => return Err(Malformed::Record),
            }
            if records.len() > MOST_HELLO {
                return Err(Malformed::Length);
            }
            let Some(payload) = rest.record() else { return Ok(None) };
            if payload.is_empty() {
                return Err(Malformed::Record);
            }
            message.extend_from_slice(payload);
        }
    }

    fn parse(message: Vec<u8>) -> Result<Self, Malformed> {
        let (binders, offers) = offers(&message).ok_or(Malformed::Message)?;
        if offers.is_empty() {
            return Err(Malformed::NoPsk);
        }
        Ok(Self { message, binders, offers })
    }

    /// The identities of the PSKs that are offered, the preferred first.
    pub fn identities(&self) -> impl Iterator<Item = &[u8]> {
        self.offers.iter().map(|offer| &self.message[offer.identity.clone()])
    }

    /// Whether the host has `psk`, by the binder of the identity with this index (RFC 8446
    /// 4.2.11.2).
    #[must_use]
    pub fn has(&self, index: usize, psk: &Psk) -> bool {
        let Some(offer) = self.offers.get(index) else { return false };
        let hash = psk.hash;
        let expanded = |secret: &[u8], label: &[u8], context: &[u8]| {
            let info = expand_label(hash, label, context).unwrap_or_default();
            hash.keyed(secret, &[&info, &[1]])
        };
        let early = hash.keyed(&vec![0; hash.bytes()], &[&psk.secret]);
        let binder = expanded(&early, b"tls13 ext binder", &hash.digest(&[]));
        let finished = expanded(&binder, b"tls13 finished", &[]);
        let expected = hash.keyed(&finished, &[&hash.digest(&self.message[..self.binders])]);
        is_equal(&expected, &self.message[offer.binder.clone()])
    }
}

/// Where the binders begin, and what is offered; nothing where there is no such extension.
fn offers(message: &[u8]) -> Option<(usize, Vec<Offer>)> {
    let mut hello = Reader { bytes: message, at: 4 };
    hello.skip(2 + 32)?; // Version, random.
    hello.list8()?; // Session.
    hello.list16()?; // Cipher suites.
    hello.list8()?; // Compression.
    if hello.at == message.len() {
        return Some((0, Vec::new()));
    }
    let mut extensions = hello.list16()?;
    if hello.at != message.len() {
        return None;
    }
    while !extensions.is_empty() {
        let kind = extensions.number16()?;
        let extension = extensions.list16()?;
        if kind == PRE_SHARED_KEY {
            return if extensions.is_empty() { offered(extension) } else { None };
        }
    }
    Some((0, Vec::new()))
}

fn offered(mut extension: Reader<'_>) -> Option<(usize, Vec<Offer>)> {
    let mut identities = extension.list16()?;
    let start = extension.at;
    let mut binders = extension.list16()?;
    let mut offers = Vec::new();
    while !identities.is_empty() {
        let identity = identities.list16()?.range();
        identities.skip(4)?; // Age.
        let binder = binders.list8()?.range();
        if offers.len() < MOST_OFFERS {
            offers.push(Offer { identity, binder });
        }
    }
    (binders.is_empty() && extension.is_empty()).then_some((start, offers))
}

/// Reads the structures of RFC 8446 3, and never beyond its bytes.
#[derive(Clone, Copy)]
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn is_empty(&self) -> bool {
        self.at == self.bytes.len()
    }

    fn range(&self) -> Range<usize> {
        self.at..self.bytes.len()
    }

    /// The next `count` bytes, and those before them so that positions are the same.
    fn part(&mut self, count: usize) -> Option<Self> {
        let at = self.at;
        let bytes = self.bytes.get(..at.checked_add(count)?)?;
        self.at += count;
        Some(Self { bytes, at })
    }

    fn skip(&mut self, count: usize) -> Option<()> {
        self.part(count).map(drop)
    }

    fn number8(&mut self) -> Option<u8> {
        let part = self.part(1)?;
        part.bytes.get(part.at).copied()
    }

    fn number16(&mut self) -> Option<u16> {
        Some(u16::from_be_bytes([self.number8()?, self.number8()?]))
    }

    fn list8(&mut self) -> Option<Self> {
        let length = self.number8()?;
        self.part(length.into())
    }

    fn list16(&mut self) -> Option<Self> {
        let length = self.number16()?;
        self.part(length.into())
    }

    /// The content of the next record, if it is all there.
    fn record(&mut self) -> Option<&'a [u8]> {
        let mut ahead = *self;
        ahead.skip(3)?; // Type, version.
        let payload = ahead.list16()?;
        *self = ahead;
        payload.bytes.get(payload.range())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Key;
    use super::*;
    use crate::chap::Hash;

    /// What OpenSSL 3.0 sends: `openssl s_client -tls1_3 -psk_identity ... -psk ... -groups X25519
    /// -ciphersuites TLS_AES_128_GCM_SHA256 -sigalgs ECDSA+SHA256`, with the PSK of [`key`].
    const OPENSSL: &str = "\
        1603010149010001450303524b7df7f918df52c58a87291746b2c8d379b119bbd4df8176bc4ccd80\
        52dbcb20bb6017d2c8ba52710615c01b040abdfbb0a26eadb70ab79a8b07a6cdf5d0609600041301\
        00ff010000f8000b000403000102000a00040002001d002300000016000000170000000d00040002\
        0403002b0003020304002d00020101003300260024001d002038fedbd05d0a63004b933c9a412b50\
        01939a7d3f626fd312743df1d2a3bc4a33002900990074006e4e564d6531523031206e716e2e3230\
        32362d31312e6f72672e6578616d706c653a686f7374206e716e2e323032362d31312e6f72672e65\
        78616d706c653a7375622033464a4c65697a54615a586376304a6c6f36542b366f5078764a7a3854\
        4e442f6c6641514a4b6e366e516b3d00000000002120238d9378b04c920d0085e8113f75ddab4f06\
        a6625e3f86c8f2c125f1d141bca4";

    fn openssl() -> Vec<u8> {
        let byte = |at| u8::from_str_radix(&OPENSSL[at..at + 2], 16).unwrap();
        (0..OPENSSL.len()).step_by(2).map(byte).collect()
    }

    /// The PSKs of the same key for both names.
    fn psks() -> Vec<Psk> {
        let key = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
        let [host, subsystem] =
            ["host", "sub"].map(|name| format!("nqn.2026-11.org.example:{name}"));
        Key::parse(key).unwrap().psks(&host, &subsystem).collect()
    }

    fn record(message: &[u8]) -> Vec<u8> {
        [&[22, 3, 1][..], &(message.len() as u16).to_be_bytes(), message].concat()
    }

    #[test]
    fn a_host_shows_that_it_has_its_psk() {
        let hello = Hello::read(&openssl()).unwrap().unwrap();
        let psks = psks();
        let names: Vec<&[u8]> = hello.identities().collect();
        assert_eq!(names, [psks[0].identity.as_bytes()]);
        let has: Vec<bool> = psks.iter().map(|psk| hello.has(0, psk)).collect();
        assert_eq!(has, [true, false, false, false]);
        assert!(!hello.has(1, &psks[0]));
        let longer = Psk { hash: Hash::Sha384, ..psks[0].clone() };
        assert!(!hello.has(0, &longer));
    }

    /// In records of any length, and whatever comes behind it.
    #[test]
    fn records_may_come_in_any_pieces() {
        let whole = openssl();
        let hello = Hello::read(&whole).unwrap().unwrap();
        for size in [1, 2, 3, 4, 100, 511] {
            let pieces: Vec<u8> = hello.message.chunks(size).flat_map(record).collect();
            assert_eq!(Hello::read(&pieces), Ok(Some(hello.clone())));
            for end in (0..pieces.len()).step_by(17) {
                assert_eq!(Hello::read(&pieces[..end]), Ok(None));
            }
            let more = [&pieces[..], &[20, 3, 3, 0, 1, 1]].concat();
            assert_eq!(Hello::read(&more), Ok(Some(hello.clone())));
        }
    }

    #[test]
    fn what_is_no_first_message_is_refused() {
        let whole = openssl();
        let message = &whole[5..];
        let changed = |at: usize, byte: u8| {
            let mut copy = message.to_vec();
            copy[at] = byte;
            record(&copy)
        };
        let huge = [&[22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc][..], &[0; 9000]].concat();
        let slow = [22, 3, 1, 0, 1, 1].repeat(4000);
        let empty = [22, 3, 1, 0, 0];
        // A hello without extensions, and one without PSKs.
        let bare = [&[1, 0, 0, 41, 3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0]].concat();
        let other = [&[1, 0, 0, 47, 3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0]].concat();
        let other = [&other[..], &[0, 4, 0, 43, 0, 0]].concat();
        for (bytes, why) in [
            (&[0, 0, 128, 0][..], Malformed::Record),
            (&[22, 2], Malformed::Record),
            (&[22, 3, 4, 0], Malformed::Record),
            (&[22, 3, 1, 0, 4, 2, 0, 0, 0], Malformed::Message),
            (&empty, Malformed::Record),
            (&huge, Malformed::Length),
            (&slow, Malformed::Length),
            (&record(&bare), Malformed::NoPsk),
            (&record(&other), Malformed::NoPsk),
            (&changed(38, 255), Malformed::Message),
        ] {
            assert_eq!(Hello::read(bytes), Err(why), "{:?}", &bytes[..4.min(bytes.len())]);
        }
    }

    proptest! {
        #[test]
        fn nothing_read_makes_it_fail_in_another_way(
            change in prop::collection::vec((0_usize..334, any::<u8>()), 1..8),
            cut in 0_usize..400,
        ) {
            let mut records = openssl();
            for (at, byte) in change {
                if let Some(changed) = records.get_mut(at) {
                    *changed = byte;
                }
            }
            records.truncate(cut);
            if let Ok(Some(hello)) = Hello::read(&records) {
                for index in 0..hello.identities().count() + 1 {
                    prop_assert!(psks()[1..].iter().all(|psk| !hello.has(index, psk)));
                }
            }
        }
    }
}
