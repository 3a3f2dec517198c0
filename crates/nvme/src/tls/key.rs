//! Configured PSKs in the format of `nvme gen-tls-key`, and the PSKs of TLS that come of them (TCP
//! 3.6.1): `NVMeTLSkey-1:xx:base64 of the key and its CRC-32:`.

use std::fmt;

use base64ct::{Base64, Encoding};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::chap::{self, Hash};
use crate::fabrics::check_nqn;

/// What a key begins with.
const PREFIX: &str = "NVMeTLSkey-1:";
/// Said by the digest of an identity after the names.
const SALT: &str = "NVMe-over-Fabrics";

/// Why a text is no key. It says nothing of the text itself, which may be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum KeyError {
    /// It has other parts.
    #[error("it does not have the form NVMeTLSkey-1:xx:...:, as nvme gen-tls-key prints it")]
    Form,
    /// A transformation that does not exist.
    #[error("its transformation is not one of 00 (none), 01 or 02 (SHA-256, 384)")]
    Transformation,
    /// Not base64, or a character was lost.
    #[error(transparent)]
    Content(chap::KeyError),
    /// Another length.
    #[error("its key has not the bytes of its transformation: 32 with 01, 48 with 02")]
    Length,
}

/// A configured PSK.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// Of the length of the key: what it is transformed by, and that of the cipher suite.
    hash: Hash,
    /// Whether the retained PSK is another.
    is_transformed: bool,
    bytes: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key") // And nothing else, ever.
    }
}

/// The version of an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// With the names of both.
    Zero,
    /// And with a digest of them and the key.
    One,
}

/// How a PSK is expanded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Derivation {
    /// HKDF-Expand-Label of RFC 8446 7.1, as the specification says.
    Rfc8446,
    /// Without the lengths of label and context, and with that of the output in the order of the
    /// machine: nvme-cli before 2.15, and later with `--compat`.
    Compat,
}

/// Who a host is, and what it wants to reach, by the identity of its PSK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// NQN of the host.
    pub host: String,
    /// NQN of the subsystem.
    pub subsystem: String,
}

impl Identity {
    /// What an identity names, if it is one of NVMe.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(text).ok()?.split(' ');
        let is_known = ["NVMe0R01", "NVMe0R02", "NVMe1R01", "NVMe1R02"].contains(&parts.next()?);
        let is_name = |name: &&str| check_nqn(name).is_ok();
        let mut name = || parts.next().filter(is_name).map(str::to_owned);
        let identity = Self { host: name()?, subsystem: name()? };
        is_known.then_some(identity)
    }
}

/// A PSK of TLS and its identity.
#[derive(Clone)]
pub struct Psk {
    /// What the host names it by.
    pub identity: String,
    /// Of the cipher suite.
    pub hash: Hash,
    /// The key.
    pub secret: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Psk({})", self.identity)
    }
}

impl Key {
    /// From a line of a file; blanks around it do not matter.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let (digits, bytes) =
            chap::decode(text, PREFIX, &[32, 48]).map_err(|error| match error {
                chap::KeyError::Form => KeyError::Form,
                chap::KeyError::Length => KeyError::Length,
                error => KeyError::Content(error),
            })?;
        let hash = match bytes.len() {
            32 => Hash::Sha256,
            48 => Hash::Sha384,
            _ => return Err(KeyError::Length),
        };
        let is_transformed = match digits {
            "00" => false,
            "01" | "02" if digits.ends_with(['1', '2'][usize::from(hash == Hash::Sha384)]) => true,
            "01" | "02" => return Err(KeyError::Length),
            _ => return Err(KeyError::Transformation),
        };
        Ok(Self { hash, is_transformed, bytes })
    }

    /// All that come of it for a host and a subsystem.
    pub fn psks(&self, host: &str, subsystem: &str) -> impl Iterator<Item = Psk> {
        use {Derivation as D, Version as V};
        let all = [(V::One, D::Rfc8446), (V::One, D::Compat), (V::Zero, D::Rfc8446)];
        let all = all.into_iter().chain([(V::Zero, D::Compat)]);
        all.filter_map(move |(version, derivation)| self.psk(version, derivation, host, subsystem))
    }

    /// What comes of it. `None` where names are too long for the derivation.
    #[must_use]
    pub fn psk(
        &self,
        version: Version,
        derivation: Derivation,
        host: &str,
        subsystem: &str,
    ) -> Option<Psk> {
        let (hash, id) = (self.hash, self.hash as u8);
        let retained = match self.is_transformed {
            true => expanded(hash, derivation, &self.bytes, b"tls13 HostNQN", host.as_bytes())?,
            false => self.bytes.clone(),
        };
        let (identity, context) = match version {
            Version::Zero => {
                let identity = format!("NVMe0R{id:02} {host} {subsystem}");
                (identity.clone(), identity)
            }
            Version::One => {
                let names = format!("{host} {subsystem} {SALT}");
                let digest = Base64::encode_string(&hash.keyed(&retained, &[names.as_bytes()]));
                let identity = format!("NVMe1R{id:02} {host} {subsystem} {digest}");
                (identity, format!("{id:02} {digest}"))
            }
        };
        let label = b"tls13 nvme-tls-psk";
        let secret = expanded(hash, derivation, &retained, label, context.as_bytes())?;
        Some(Psk { identity, hash, secret })
    }
}

/// HKDF-Extract without a salt, and HKDF-Expand to the length of the hash: its first block.
fn expanded(
    hash: Hash,
    derivation: Derivation,
    key: &[u8],
    label: &[u8],
    context: &[u8],
) -> Option<Zeroizing<Vec<u8>>> {
    let extracted = hash.keyed(&vec![0; hash.bytes()], &[key]);
    let info = match derivation {
        Derivation::Rfc8446 => expand_label(hash, label, context)?,
        Derivation::Compat => [&(hash.bytes() as u16).to_le_bytes(), label, context].concat(),
    };
    Some(hash.keyed(&extracted, &[&info, &[1]]))
}

/// HkdfLabel (RFC 8446 7.1) for as many bytes as the hash has; `label` with its prefix.
pub(super) fn expand_label(hash: Hash, label: &[u8], context: &[u8]) -> Option<Vec<u8>> {
    let length = |bytes: &[u8]| u8::try_from(bytes.len()).ok().map(|length| [length]);
    let bytes = (hash.bytes() as u16).to_be_bytes();
    Some([&bytes[..], &length(label)?, label, &length(context)?, context].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "nqn.2026-11.org.example:host";
    const SUBSYSTEM: &str = "nqn.2026-11.org.example:sub";
    /// Made by Python: `base64.b64encode(key + zlib.crc32(key).to_bytes(4, "little"))` with `key =
    /// bytes(range(n))`.
    const SHORT: &str = "NVMeTLSkey-1:01:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    const PLAIN: &str = "NVMeTLSkey-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:";
    const LONG: &str = "NVMeTLSkey-1:02:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygp\
                        KissLS4vcSEgBQ==:";

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn psk(key: &str, version: Version, derivation: Derivation) -> (String, String) {
        let psk = Key::parse(key).unwrap().psk(version, derivation, HOST, SUBSYSTEM).unwrap();
        let names = format!("{HOST} {SUBSYSTEM}");
        (psk.identity.replace(&names, "*"), hex(&psk.secret))
    }

    /// Computed in Python by `hmac` and `hashlib` alone:
    ///
    /// ```python
    /// def psk(key, hh, version, compat):
    ///     h = {32: "sha256", 48: "sha384"}[len(key)]; n = len(key)
    ///     mac = lambda k, m: hmac.new(k, m, h).digest()
    ///     info = lambda l, c: (struct.pack("<H", n) + l + c if compat else
    ///         struct.pack(">H", n) + bytes([len(l)]) + l + bytes([len(c)]) + c)
    ///     hkdf = lambda k, l, c: mac(mac(bytes(n), k), info(l, c) + b"\1")
    ///     retained = hkdf(key, b"tls13 HostNQN", host) if hh else key
    ///     id = b"NVMe%dR0%d %s %s" % (version, 1 + (n == 48), host, sub); context = id
    ///     if version:
    ///         d = base64.b64encode(mac(retained, host + b" " + sub + b" NVMe-over-Fabrics"))
    ///         id += b" " + d; context = b"0%d %s" % (1 + (n == 48), d)
    ///     return id, hkdf(retained, b"tls13 nvme-tls-psk", context)
    /// ```
    const VECTORS: [(&str, Version, Derivation, &str, &str); 10] = {
        use {Derivation as D, Version as V};
        [
            (
                SHORT,
                V::Zero,
                D::Rfc8446,
                "NVMe0R01 *",
                "e5ae8bba8c831ed92ef82c6185e947a88f9f2c0df48f7d4a5080862e13980ae8",
            ),
            (
                SHORT,
                V::Zero,
                D::Compat,
                "NVMe0R01 *",
                "2c9fe313dc21fbf5a01f2cf987a445c1e675891a8cc322d37475e1aaf2d72460",
            ),
            (
                SHORT,
                V::One,
                D::Rfc8446,
                "NVMe1R01 * 3FJLeizTaZXcv0Jlo6T+6oPxvJz8TND/lfAQJKn6nQk=",
                "0211169e4f5853d60ce2c7c8a2cd579e5dd1f4036c0ec3e1d284c00692bfd354",
            ),
            (
                SHORT,
                V::One,
                D::Compat,
                "NVMe1R01 * 3LshJzmX5hvOt2rg2PQ4+U+YGNKF4eMLVChZ7LlAYf4=",
                "be270404da018aa7649ff9cf10f485cacd42f5833ed6391f4be028e6e855efdb",
            ),
            (
                PLAIN,
                V::Zero,
                D::Rfc8446,
                "NVMe0R01 *",
                "877f5002bbc5304dd8bc45fba49d227908296bdf7af619648e2609f8afa44db0",
            ),
            (
                PLAIN,
                V::One,
                D::Rfc8446,
                "NVMe1R01 * Nl9g1J0Pt33ZV9HMvqqUDMK3TpRk7GoL592Gd/JmYEM=",
                "0dbb3768d0ff0f6d4a99b1b4de11b998a97bc8a9272ffbe4aa6fbc76535d8e4a",
            ),
            (
                PLAIN,
                V::One,
                D::Compat,
                "NVMe1R01 * Nl9g1J0Pt33ZV9HMvqqUDMK3TpRk7GoL592Gd/JmYEM=",
                "f741ee84e3e6fda047aa28a147f9611d06a05d7ee765ebf446830b662a4caf1a",
            ),
            (
                LONG,
                V::Zero,
                D::Rfc8446,
                "NVMe0R02 *",
                "5da87d61d28340aa42b38dd11bfe062bbf90a4dbbc4e29bb54fb602609088b8f\
                 b063345185964cff411b4e88886a0d81",
            ),
            (
                LONG,
                V::One,
                D::Rfc8446,
                "NVMe1R02 * Mg3Igai5Q8/LEDETP3EMDf9g+kgKOYwSbJCOc6i+TLZgBBEX4WXI48PI+UuijoP5",
                "e8f1781c494ef2695cced67c2805c675db5881fdd5178e8cb33973de335522ee\
                 6c4254cb40e8e1a712fc79ff69b27397",
            ),
            (
                LONG,
                V::One,
                D::Compat,
                "NVMe1R02 * Pvp/uoWZmryYNxT0vQZe9Wdj94aos68WhJldcRjTnzZ9cGTlF+YLz9UNEvQzST6h",
                "4343380c7c76ab43976bff84dd7213556c7450f0ebbad6a286fe5f9cfe25da67\
                 fd5deaa431760fd63fabe5b9e7127a94",
            ),
        ]
    };

    #[test]
    fn keys_are_derived_as_the_specification_says_and_as_old_tools_did() {
        for (key, version, derivation, identity, secret) in VECTORS {
            let expected = (identity.to_owned(), secret.to_owned());
            assert_eq!(psk(key, version, derivation), expected);
        }
    }

    /// The tests of Linux's `drivers/nvme/common` (KUnit `nvme-auth`), which begin at a retained
    /// PSK.
    #[test]
    fn linux_derives_the_same() {
        for (hash, retained, digest, secret) in [
            (
                Hash::Sha256,
                "1733c59fa7f48fcf37f5f26fc4ff0268ad4f78e030f4f3b0bfd1d47e7bb1447a",
                "OldoKuTfKddMuyCznAZojkWD7P4D9/AtzDzLimtOxqI=",
                "3c17da628474a04d2247c4cab47968c915388193f7c071bd9489cc3666cd7cc8",
            ),
            (
                Hash::Sha384,
                "f14b2dd3234c459694d3bc63f8968bd6b37c2c6de849e22e11874900\
                 1ce4bbe8640b9e3a748cb11ce4b1d71d359cce39",
                "cffMWk8TSS7HOQebjgYEIkrPrjWPV4JE5cdPB8WhEvY4JBW5YynKyv66XscN4A9n",
                "2774753233537b3fa50eb7d16a8e43457d85f4906c005b2236616c5d80939d08\
                 98fff15bb8b77119d2be0aac423e7590",
            ),
        ] {
            let byte = |at| u8::from_str_radix(&retained[at..at + 2], 16).unwrap();
            let bytes = (0..retained.len()).step_by(2).map(byte).collect::<Vec<_>>().into();
            let key = Key { hash, is_transformed: false, bytes };
            let psk = key.psk(Version::One, Derivation::Rfc8446, "hostnqn", "subsysnqn").unwrap();
            assert!(psk.identity.ends_with(&format!(" hostnqn subsysnqn {digest}")));
            assert_eq!((hex(&psk.secret), psk.hash), (secret.to_owned(), hash));
        }
    }

    #[test]
    fn names_beyond_what_a_label_takes_have_no_psk() {
        let (long, key) = ("n".repeat(223), Key::parse(SHORT).unwrap());
        let versions: Vec<_> = key.psks(&long, SUBSYSTEM).map(|psk| psk.identity).collect();
        // The second version's context is a digest; the old derivation takes any length.
        assert!(versions.iter().filter(|text| text.starts_with("NVMe1")).count() == 2);
        assert!(key.psk(Version::Zero, Derivation::Rfc8446, &long, SUBSYSTEM).is_none());
    }

    #[test]
    fn what_is_no_key_is_refused_with_the_reason() {
        let cut = format!("{}:", &SHORT[..SHORT.len() - 5]);
        for (text, why) in [
            ("", KeyError::Form),
            ("DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:", KeyError::Form),
            (SHORT.trim_end_matches(':'), KeyError::Form),
            ("NVMeTLSkey-1::", KeyError::Form),
            (&SHORT.replacen(":01:", ":03:", 1), KeyError::Transformation),
            (&SHORT.replacen(":01:", ":02:", 1), KeyError::Length),
            (&LONG.replacen(":02:", ":01:", 1), KeyError::Length),
            (&SHORT.replacen("AAEC", "A*EC", 1), KeyError::Content(chap::KeyError::Base64)),
            (&SHORT.replacen("AAEC", "AAEB", 1), KeyError::Content(chap::KeyError::Checksum)),
            (&cut, KeyError::Length),
            ("NVMeTLSkey-1:01::", KeyError::Length),
        ] {
            assert_eq!(Key::parse(text).err(), Some(why), "{text}");
        }
        assert_eq!(Key::parse(&format!(" {LONG}\n")), Key::parse(LONG));
        assert_eq!(format!("{:?}", Key::parse(LONG).unwrap()), "Key");
    }

    #[test]
    fn identities_name_a_host_and_a_subsystem() {
        let parsed = Identity { host: HOST.into(), subsystem: SUBSYSTEM.into() };
        for psk in Key::parse(LONG).unwrap().psks(HOST, SUBSYSTEM) {
            assert_eq!(Identity::parse(psk.identity.as_bytes()), Some(parsed.clone()));
        }
        let named = |host: &str| format!("NVMe1R01 {host} {SUBSYSTEM} digest");
        assert_eq!(Identity::parse(named(HOST).as_bytes()), Some(parsed));
        let signs = ["\n<3>", "\u{1b}[2J", "\u{a0}", "\u{85}"];
        let names = signs.map(|sign| named(&format!("{HOST}{sign}")));
        let others = ["", "NVMe0R01", &format!("NVMe0R01 {HOST}"), &named("host"), "x y z"];
        let others = others.map(str::to_owned).into_iter().chain(names);
        for text in others.chain([named(HOST).replace("1R", "2R")]) {
            assert_eq!(Identity::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Identity::parse(b"NVMe0R01 \xff sub"), None);
    }
}
