//! The cryptography of DH-HMAC-CHAP, which both sides of a connection compute (Base 8.13.5; 8.3.4.5
//! in Base 2.2).
//!
//! RustCrypto's `hmac` and `sha2`, and its `crypto-bigint` for the groups: maintained, permissive,
//! pure Rust, and constant in time where secrets are concerned, which `num-bigint` is not.

mod group;
mod key;

pub use group::{Group, Pair};
pub(crate) use key::decode;
pub use key::{Key, KeyError};

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use hmac::digest::Digest;
use hmac::{EagerHash, Hmac, KeyInit, Mac};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Sha256, Sha384, Sha512};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// A hash function, by its HashID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hash {
    /// SHA-256.
    Sha256 = 1,
    /// SHA-384.
    Sha384 = 2,
    /// SHA-512.
    Sha512 = 3,
}

impl Hash {
    /// All of them, by their identifiers.
    pub const ALL: [Self; 3] = [Self::Sha256, Self::Sha384, Self::Sha512];

    /// By its identifier.
    #[must_use]
    pub fn of(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|hash| *hash as u8 == id)
    }

    /// Its name, as SPDK and the kernel write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
        }
    }

    /// Bytes of a hash, and so of a challenge and a response.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// HMAC of all `parts` together.
    pub(crate) fn keyed(self, key: &[u8], parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
        fn of<H: EagerHash>(key: &[u8], parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
            // It fails for no length of key.
            let Ok(mut mac) = Hmac::<H>::new_from_slice(key) else { return Zeroizing::default() };
            parts.iter().for_each(|part| mac.update(part));
            Zeroizing::new(mac.finalize().into_bytes().to_vec())
        }
        match self {
            Self::Sha256 => of::<Sha256>(key, parts),
            Self::Sha384 => of::<Sha384>(key, parts),
            Self::Sha512 => of::<Sha512>(key, parts),
        }
    }

    pub(crate) fn digest(self, data: &[u8]) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(match self {
            Self::Sha256 => Sha256::digest(data).to_vec(),
            Self::Sha384 => Sha384::digest(data).to_vec(),
            Self::Sha512 => Sha512::digest(data).to_vec(),
        })
    }
}

/// What the responses of a transaction depend on besides key and challenge.
pub struct Terms<'a> {
    /// The hash function agreed upon.
    pub hash: Hash,
    /// T_ID.
    pub transaction: u16,
    /// NQN of the host.
    pub host: &'a str,
    /// NQN of the subsystem.
    pub subsystem: &'a str,
    /// The secret that both have by Diffie-Hellman; `None` with the null group.
    pub secret: Option<&'a [u8]>,
}

impl Terms<'_> {
    /// What the host answers to `challenge`, which came with sequence number `sequence` (Base
    /// 8.13.5.4).
    #[must_use]
    pub fn host_response(&self, key: &Key, challenge: &[u8], sequence: u32) -> Vec<u8> {
        self.response(key, challenge, sequence, b"HostHost", [self.host, self.subsystem])
    }

    /// What the controller answers to the host's (Base 8.13.5.5).
    #[must_use]
    pub fn controller_response(&self, key: &Key, challenge: &[u8], sequence: u32) -> Vec<u8> {
        self.response(key, challenge, sequence, b"Controller", [self.subsystem, self.host])
    }

    fn response(
        &self,
        key: &Key,
        challenge: &[u8],
        sequence: u32,
        role: &[u8],
        [own, other]: [&str; 2],
    ) -> Vec<u8> {
        let augmented = self.secret.map(|secret| {
            let key = self.hash.digest(secret);
            self.hash.keyed(&key, &[challenge])
        });
        let challenge = augmented.as_ref().map_or(challenge, |augmented| augmented.as_slice());
        let parts = [
            challenge,
            &sequence.to_le_bytes(),
            &self.transaction.to_le_bytes(),
            &[0], // SC_C: no secure channel.
            role,
            own.as_bytes(),
            &[0],
            other.as_bytes(),
        ];
        self.hash.keyed(&key.transformed(own), &parts).to_vec()
    }
}

/// Whether two responses are the same, in a time that does not tell where they differ.
#[must_use]
pub fn is_equal(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

/// Fills `bytes` with the system's random numbers.
///
/// # Errors
/// When it has none.
pub fn random(bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A fresh challenge and its sequence number, which begins anywhere, goes up by one and is never 0
/// (Base 8.13.5.3).
///
/// # Errors
/// When the system has no random numbers.
pub fn challenge(hash: Hash) -> io::Result<(Vec<u8>, u32)> {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let mut challenge = vec![0; hash.bytes()];
    random(&mut challenge)?;
    let mut first = [0; 4];
    random(&mut first)?;
    let next = |last: u32| match last {
        0 => u32::from_le_bytes(first).max(1),
        last => last.checked_add(1).unwrap_or(1),
    };
    let update = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
    Ok((challenge, next(update.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555";
    const SUBSYSTEM: &str = "nqn.2026-11.org.example:storage";
    /// The example of the specification, with each transformation.
    const SECRET: &str = "DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:";

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Of the kernel's own test of its authentication (drivers/nvme/common/tests/auth_kunit.c):
    /// HMAC of C1 and C2 with keys and challenges that count up and down.
    #[test]
    fn hmacs_are_those_of_the_kernel() {
        for (hash, expected) in [
            (Hash::Sha256, "1733c59fa7f48fcf37f5f26fc4ff0268ad4f78e030f4f3b0bfd1d47e7bb1447a"),
            (
                Hash::Sha384,
                "f14b2dd3234c459694d3bc63f8968bd6b37c2c6de849e22e118749001ce4bbe8\
                 640b9e3a748cb11ce4b1d71d359cce39",
            ),
            (
                Hash::Sha512,
                "9c9f089a618b47d2d75f4b6c28070424487b445dd96e70c4c09b55e8b6000152\
                 a3363c3454043f38f0b85036ded40655350aa87b8b6a282b5c1acae16233dd5b",
            ),
        ] {
            let count = hash.bytes() as u8;
            let key: Vec<u8> = (0..count).map(|at| b'A' + at).collect();
            let up: Vec<u8> = (0..count).collect();
            let down: Vec<u8> = up.iter().map(|at| 0xff - at).collect();
            assert_eq!(hex(&hash.keyed(&key, &[&up, &down])), expected, "{hash:?}");
        }
    }

    /// Made by Python's hashlib and hmac from the text of the specification: challenge bytes count
    /// up from 0, the sequence number is 12345678h, the transaction BEEFh, the secret by
    /// Diffie-Hellman 256 bytes that count up, the key the specification's example;
    /// without and with that secret, the host's response and the controller's.
    #[test]
    fn responses_are_those_of_another_implementation() {
        let secret: Vec<u8> = (0..=255).collect();
        for (hash, digits, expected) in [
            (
                Hash::Sha256,
                "00",
                [
                    "9f610aa2bb87f706d0c730c7f7277c66448405397f6ec931a0ec08e7c18bf7a0",
                    "dee85a8f0fc52e3d97fec77b50776aa18f846f3752e7f00df6704fa714a659fb",
                    "077745c905aaf08ad7ea5375f89bd66f3b06fef76a98880339fd6db8c64a4211",
                    "e25cbc84d63427c39b7ae4904e257e26a1382983bdbc75785b861e9affbc2de4",
                ],
            ),
            (
                Hash::Sha384,
                "03",
                [
                    "75da4b50c28fd1149d195ee538d95efc8ad81927f828f557572a8b4c7524ac51\
                     b9cada97d49643c7ad44a8183ad488ad",
                    "0f2703b1da32fd7f3013bf0f7b07c71bf547ac17608c81a4f567081f3e88c455\
                     95a4ef5fe00aef996cbf41bd5657b863",
                    "f206b95ca90e327f647ee3aaf7129fbd83e01cd7ff46f47eedd2db81ddc31e6a\
                     3db0e8ca4b9eeed11882c8efd8fc9770",
                    "6c92912743e736123f4230c6dd64e55d603fa781491664432f0f2f41758513e6\
                     e178df9a197e3995c698545ddec695db",
                ],
            ),
            (
                Hash::Sha512,
                "02",
                [
                    "5c8fe57b0c2986cc47e021531d92e521753efb5d432e1e7647b75a2256fb61cf\
                     0e867fa08ab1666c06bb08baa1f3fc3089933f9e7c2e2bbd916e251976d071ed",
                    "fafb3a5f1d03768ce00430bd740f5249d0d9e45968c9e102aaf6deb916125fe8\
                     82c05db69f9dd1b6e33106a2f4eebd661a7434dce716d4178127fed5e781e21a",
                    "3e68db0fa2931f7637f0a755109cc3089c446d8a9323b149b6b74560700af8e6\
                     5ac0e93d02a47ad414276104d619e33b29e58c322baf7f37c1a4814ca8447443",
                    "e1bf85de8056df30fc60bb8b56fb5ee0e24cbc92cc1b7e4bb93f229847722331\
                     0b790eaf756cfffcc05086fb8b4cc90450fdf8f43e2d859d821ef23de0c63a37",
                ],
            ),
            (
                Hash::Sha256,
                "01",
                [
                    "34e0c0aa7daa1a941e3226bb0ab6e236ab7520adc011eb021f5f4e4f4364bb00",
                    "a5015e781ad73e70345317ba1b29ae312133704609dd304e1ead9c45e8462fea",
                    "4050366b91b539ac9f60bcd1e76851014ff036577f79ccee1bb7555451233dd3",
                    "d1611054e1179d06c33cfea689b48cecb75c9f33e121c576267f653c22641e1e",
                ],
            ),
        ] {
            let key = Key::parse(&SECRET.replacen(":00:", &format!(":{digits}:"), 1)).unwrap();
            let challenge: Vec<u8> = (0..hash.bytes() as u8).collect();
            let responses = [None, Some(secret.as_slice())].into_iter().flat_map(|secret| {
                let (host, subsystem) = (HOST, SUBSYSTEM);
                let terms = Terms { hash, transaction: 0xbeef, host, subsystem, secret };
                [
                    terms.host_response(&key, &challenge, 0x1234_5678),
                    terms.controller_response(&key, &challenge, 0x1234_5678),
                ]
            });
            assert_eq!(responses.map(|one| hex(&one)).collect::<Vec<_>>(), expected, "{hash:?}");
        }
    }

    #[test]
    fn sequence_numbers_go_up_and_challenges_differ() {
        let (one, first) = challenge(Hash::Sha384).unwrap();
        let (other, second) = challenge(Hash::Sha384).unwrap();
        assert!(one.len() == 48 && one != other);
        // Other tests draw from the same sequence.
        assert!(first != 0 && second != 0 && second.wrapping_sub(first) < 1 << 20);
    }

    #[test]
    fn comparing_takes_all_of_both() {
        assert!(is_equal(b"ab", b"ab"));
        assert!(!is_equal(b"ab", b"ac") && !is_equal(b"ab", b"a") && !is_equal(b"", b"a"));
    }
}
