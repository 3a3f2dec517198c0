//! The finite-field Diffie-Hellman groups of RFC 7919, as DH-HMAC-CHAP uses them (Base 8.13.5).
//!
//! Exponents are as short as RFC 7919 allows, rounded up to 64 bits: breaking one takes as long as
//! breaking its group. Raising to them takes the same time whatever they are (`crypto-bigint`).

use std::io;

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use zeroize::Zeroizing;

use super::random;

/// A group, by its DHgID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// No Diffie-Hellman at all.
    Null = 0,
    /// FFDHE-2048.
    F2048 = 1,
    /// FFDHE-3072.
    F3072 = 2,
    /// FFDHE-4096.
    F4096 = 3,
    /// FFDHE-6144.
    F6144 = 4,
    /// FFDHE-8192.
    F8192 = 5,
}

impl Group {
    /// All of them, by their identifiers.
    pub const ALL: [Self; 6] =
        [Self::Null, Self::F2048, Self::F3072, Self::F4096, Self::F6144, Self::F8192];

    /// By its identifier.
    #[must_use]
    pub fn of(id: u8) -> Option<Self> {
        Self::ALL.get(usize::from(id)).copied()
    }

    /// Its name, as SPDK and nvmetcli write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::F2048 => "ffdhe2048",
            Self::F3072 => "ffdhe3072",
            Self::F4096 => "ffdhe4096",
            Self::F6144 => "ffdhe6144",
            Self::F8192 => "ffdhe8192",
        }
    }

    /// Bytes of its prime; none of the null group.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Null => 0,
            Self::F2048 => 256,
            Self::F3072 => 384,
            Self::F4096 => 512,
            Self::F6144 => 768,
            Self::F8192 => 1024,
        }
    }

    /// Bytes of an exponent: at least 225, 275, 325, 375 and 400 bits (RFC 7919, 5.2 and
    /// appendix A).
    const fn exponent(self) -> usize {
        match self {
            Self::Null => 0,
            Self::F2048 => 32,
            Self::F3072 => 40,
            Self::F4096 | Self::F6144 => 48,
            Self::F8192 => 56,
        }
    }

    /// What makes its prime one, the X of RFC 7919, appendix A.
    const fn addend(self) -> u64 {
        match self {
            Self::Null => 0,
            Self::F2048 => 560_316,
            Self::F3072 => 2_625_351,
            Self::F4096 => 5_736_041,
            Self::F6144 => 15_705_020,
            Self::F8192 => 10_965_728,
        }
    }

    const fn bits(self) -> u32 {
        8 * self.bytes() as u32
    }

    /// Its prime of b bits, 2^b - 2^(b-64) + (floor(2^(b-130) e) + X) 2^64 - 1, big-endian.
    fn prime(self) -> Box<[u8]> {
        let mut bytes = vec![0xff; self.bytes()];
        let middle = self.bytes().saturating_sub(16);
        let hex = |at: usize| u8::from_str_radix(&E[2 * at..2 * at + 2], 16).unwrap_or(0);
        // The 1 that is taken off at the end makes ones of the last 64 bits.
        let mut carry = self.addend().saturating_sub(1);
        for at in (0..middle).rev() {
            carry += u64::from(hex(at));
            bytes[8 + at] = carry as u8;
            carry >>= 8;
        }
        bytes.into()
    }

    /// `base` to the power of `exponent`, in the group.
    fn power(self, prime: &BoxedUint, base: BoxedUint, exponent: &[u8]) -> Option<Vec<u8>> {
        let modulus = BoxedMontyParams::new(Odd::new(prime.clone()).into_option()?);
        let bits = 8 * exponent.len() as u32;
        let exponent = Zeroizing::new(BoxedUint::from_be_slice(exponent, bits).ok()?);
        let power = BoxedMontyForm::new(base, &modulus).pow_bounded_exp(&exponent, bits);
        Some(Zeroizing::new(power.retrieve()).to_be_bytes().into_vec())
    }

    fn number(self, bytes: &[u8]) -> Option<BoxedUint> {
        BoxedUint::from_be_slice(bytes, self.bits()).ok()
    }
}

/// One side's exponent, and what it tells the other.
pub struct Pair {
    group: Group,
    exponent: Zeroizing<Vec<u8>>,
    /// The DH value, as long as the group's prime.
    pub public: Vec<u8>,
}

impl Pair {
    /// A fresh one. Takes milliseconds: 1 with FFDHE-2048, 30 with FFDHE-8192.
    ///
    /// # Errors
    /// When the system has no random numbers, or the group is the null group.
    pub fn new(group: Group) -> io::Result<Self> {
        let mut exponent = Zeroizing::new(vec![0; group.exponent()]);
        random(&mut exponent)?;
        Self::of(group, exponent).ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    fn of(group: Group, exponent: Zeroizing<Vec<u8>>) -> Option<Self> {
        let prime = group.number(&group.prime())?;
        let public = group.power(&prime, group.number(&[2])?, &exponent)?;
        Some(Self { group, exponent, public })
    }

    /// The secret shared with whom the DH value `theirs` comes from, as long as the group's prime.
    /// `None` for a value that leaks it: 0, 1, p - 1 and above (RFC 7919, 5.1), or no value.
    ///
    /// Takes as long as [`Pair::new`].
    #[must_use]
    pub fn shared(&self, theirs: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (group, one) = (self.group, BoxedUint::one_with_precision(self.group.bits()));
        let theirs = group.number(theirs)?;
        let prime = group.number(&group.prime())?;
        let is_safe = theirs > one && theirs < prime.wrapping_sub(&one);
        is_safe.then(|| group.power(&prime, theirs, &self.exponent).map(Zeroizing::new)).flatten()
    }
}

/// Euler's number times 2^8062 in hexadecimal digits: the longest prime's, whose beginning is
/// that of the others'.
const E: &str = "\
    ADF85458A2BB4A9AAFDC5620273D3CF1D8B9C583CE2D3695A9E13641146433FBCC939DCE249B3EF97D2F\
    E363630C75D8F681B202AEC4617AD3DF1ED5D5FD65612433F51F5F066ED0856365553DED1AF3B557135E\
    7F57C935984F0C70E0E68B77E2A689DAF3EFE8721DF158A136ADE73530ACCA4F483A797ABC0AB182B324\
    FB61D108A94BB2C8E3FBB96ADAB760D7F4681D4F42A3DE394DF4AE56EDE76372BB190B07A7C8EE0A6D70\
    9E02FCE1CDF7E2ECC03404CD28342F619172FE9CE98583FF8E4F1232EEF28183C3FE3B1B4C6FAD733BB5\
    FCBC2EC22005C58EF1837D1683B2C6F34A26C1B2EFFA886B4238611FCFDCDE355B3B6519035BBC34F4DE\
    F99C023861B46FC9D6E6C9077AD91D2691F7F7EE598CB0FAC186D91CAEFE130985139270B4130C93BC43\
    7944F4FD4452E2D74DD364F2E21E71F54BFF5CAE82AB9C9DF69EE86D2BC522363A0DABC521979B0DEADA\
    1DBF9A42D5C4484E0ABCD06BFA53DDEF3C1B20EE3FD59D7C25E41D2B669E1EF16E6F52C3164DF4FB7930\
    E9E4E58857B6AC7D5F42D69F6D187763CF1D5503400487F55BA57E31CC7A7135C886EFB4318AED6A1E01\
    2D9E6832A907600A918130C46DC778F971AD0038092999A333CB8B7A1A1DB93D7140003C2A4ECEA9F98D\
    0ACC0A8291CDCEC97DCF8EC9B55A7F88A46B4DB5A851F44182E1C68A007E5E0DD9020BFD64B645036C7A\
    4E677D2C38532A3A23BA4442CAF53EA63BB454329B7624C8917BDD64B1C0FD4CB38E8C334C701C3ACDAD\
    0657FCCFEC719B1F5C3E4E46041F388147FB4CFDB477A52471F7A9A96910B855322EDB6340D8A00EF092\
    350511E30ABEC1FFF9E3A26E7FB29F8C183023C3587E38DA0077D9B4763E4E4B94B2BBC194C6651E77CA\
    F992EEAAC0232A281BF6B3A739C1226116820AE8DB5847A67CBEF9C9091B462D538CD72B03746AE77F5E\
    62292C311562A846505DC82DB854338AE49F5235C95B91178CCF2DD5CACEF403EC9D1810C6272B045B3B\
    71F9DC6B80D63FDD4A8E9ADB1E6962A69526D43161C1A41D570D7938DAD4A40E329CCFF46AAA36AD004C\
    F600C8381E425A31D951AE64FDB23FCEC9509D43687FEB69EDD1CC5E0B8CC3BDF64B10EF86B63142A3AB\
    8829555B2F747C932665CB2C0F1CC01BD70229388839D2AF05E454504AC78B7582822846C0BA35C35F5C\
    59160CC046FD8251541FC68C9C86B022BB7099876A460E7451A8A93109703FEE1C217E6C3826E52C51AA\
    691E0E423CFC99E9E31650C1217B624816CDAD9A95F9D5B8019488D9C0A0A1FE3075A577E23183F81D4A\
    3F2FA4571EFC8CE0BA8A4FE8B6855DFE72B0A66EDED2FBABFBE58A30FAFABE1C5D71A87E2F741EF8C1FE\
    86FEA6BBFDE530677F0D97D11D49F7A8443D0822E506A9F4614E011E2A94838FF88CD68C8BB7C51EEF6D";

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Made by Python: the primes by their formula from e as a series, found to be safe primes by
    /// Miller-Rabin, their beginnings and ends compared with RFC 7919's; then
    /// `hashlib.sha256(p.to_bytes(bits // 8)).hexdigest()`.
    #[test]
    fn primes_are_those_of_rfc_7919() {
        let digests = [
            "9cd3b7f336872f46c09428d1bbc19877a4d440512cda8d1c1cf0cd6e33698966",
            "0eaf67db3a839156d5013494a5318a772b5697d270d721f37f092efc69ea5a17",
            "4648414224ac881b3d0dc59b466f96d06a558278776807797ecf1f66ff397b3e",
            "227ac9066b3ddd9e193670cda2388fa884f65ba0cf98b742d1fe77a6687c79c7",
            "770b14efaf6f049929c523113b3fa99a8d11dab1b18af3609590122075d19833",
        ];
        for (group, digest) in Group::ALL.into_iter().skip(1).zip(digests) {
            assert_eq!(hex(&Sha256::digest(group.prime())), digest, "{group:?}");
        }
    }

    /// Made by Python: `pow(2, x, p)` and `pow(pow(2, y, p), x, p)`, with x all bytes A7h and y all
    /// bytes 5Ch, each as long as an exponent of the group; SHA-256 of both.
    #[test]
    fn powers_are_those_of_another_implementation() {
        let expected = [
            (
                "7975fd4cf8dcc71ae0b48584837520610df19b2350f0f38edf359aef83371e4c",
                "c1356bd08fb3a1d17e4015b78dbdb24ed4c0e30ae56e661c0b195578bbbeb90c",
            ),
            (
                "fa987ad63880caf81db771d3ec48f26f3743c889b82bd1dccee538e7616a4709",
                "c3ea996b1d0e126115ab4186d5ad5f3a46d1da6460faafc911955bc4e456ba30",
            ),
            (
                "579a5fbbb4ab59581bb7c3ad7bca4974b3eb400b6fbb402a504d409f249e98f1",
                "617ff26ac3049d95e6af9f184c6a30f56ee39016cd128e6aecb89b31235e6c83",
            ),
            (
                "d4f2aa3446b354f92fae2b76ef688627e71c1561e6ccf4ecb97d266f0ac87509",
                "5e158fd6bf28a6dfe7b46e015a1c8736710b35351958346e734de3ebeb425dbd",
            ),
            (
                "de1464816217466dd4feb04ae1b1dc5308b836f02f4baa52c30dd0831bed4ac6",
                "6588ffd675933dcbf2e3b3cf6679e07e8f997efcc19ec424888c349424c676c7",
            ),
        ];
        for (group, (public, shared)) in Group::ALL.into_iter().skip(1).zip(expected) {
            let pair =
                |byte| Pair::of(group, Zeroizing::new(vec![byte; group.exponent()])).unwrap();
            let (ours, theirs) = (pair(0xa7), pair(0x5c));
            assert_eq!(hex(&Sha256::digest(&ours.public)), public, "{group:?}");
            let secret = ours.shared(&theirs.public).unwrap();
            assert_eq!(hex(&Sha256::digest(&secret)), shared, "{group:?}");
            assert_eq!(secret, theirs.shared(&ours.public).unwrap());
        }
    }

    #[test]
    fn values_that_would_leak_the_secret_are_refused() {
        let pair = Pair::new(Group::F2048).unwrap();
        let prime = Group::F2048.prime();
        let mut last = prime.clone();
        last[255] -= 1; // p - 1.
        let above = vec![0xff; 256];
        let long = vec![1; 257];
        for bad in [&[][..], &[0], &[1], &[0; 256], &last, &prime, &above, &long] {
            assert!(pair.shared(bad).is_none(), "{}", bad.len());
        }
        // Leading zeros may be missing: SPDK leaves them out.
        assert_eq!(pair.shared(&[2]).unwrap(), pair.shared(&[0, 2]).unwrap());
        assert_eq!(*pair.shared(&[2]).unwrap(), pair.public);
        last[255] -= 1;
        assert!(pair.shared(&last).is_some());
        assert_ne!(Pair::new(Group::F2048).unwrap().public, pair.public);
        assert!(Pair::new(Group::Null).is_err());
    }
}
