//! Secrets of DH-HMAC-CHAP in the format of `nvme gen-dhchap-key` (Base 8.13.5.8):
//! `DHHC-1:xx:base64 of the key and its CRC-32:`.

use std::fmt;

use base64ct::{Base64, Encoding};
use thiserror::Error;
use zeroize::Zeroizing;

use super::Hash;

/// What a secret begins with.
const PREFIX: &str = "DHHC-1:";
/// Bytes of the CRC behind the key.
const CRC: usize = 4;
/// Said by the transformation after the name of whom the key belongs to.
const SALT: &[u8] = b"NVMe-over-Fabrics";

/// Why a text is no secret. It says nothing of the text itself, which may be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum KeyError {
    /// It has other parts.
    #[error("it does not have the form DHHC-1:xx:...:, as nvme gen-dhchap-key prints it")]
    Form,
    /// A transformation that does not exist.
    #[error("its transformation is not one of 00 (none), 01, 02 or 03 (SHA-256, 384, 512)")]
    Transformation,
    /// Not base64.
    #[error("its third part is not base64")]
    Base64,
    /// Another length.
    #[error("its key does not have 32, 48 or 64 bytes")]
    Length,
    /// The checksum is wrong.
    #[error("its checksum is wrong: a character was lost or changed")]
    Checksum,
}

/// A key of a host, or of a controller for one.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// What it is transformed by; `None` for not at all.
    hash: Option<Hash>,
    bytes: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key") // And nothing else, ever.
    }
}

impl Key {
    /// From a secret; blanks around it do not matter.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let (digits, bytes) = decode(text, PREFIX, &[32, 48, 64])?;
        let hash = match digits {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            "03" => Some(Hash::Sha512),
            _ => return Err(KeyError::Transformation),
        };
        Ok(Self { hash, bytes })
    }

    /// Whether both are of the same bytes, whatever they are transformed by: what must not serve
    /// both ways (Base 8.13.5.7).
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }

    /// What responses are keyed by, of the key of `owner`.
    pub(super) fn transformed(&self, owner: &str) -> Zeroizing<Vec<u8>> {
        match self.hash {
            None => self.bytes.clone(),
            Some(hash) => hash.keyed(&self.bytes, &[owner.as_bytes(), SALT]),
        }
    }
}

/// The two digits and the key, of one of the `lengths`, of a text that begins with `prefix`:
/// `xx:base64 of the key and its CRC-32:`.
pub(crate) fn decode<'a>(
    text: &'a str,
    prefix: &str,
    lengths: &[usize],
) -> Result<(&'a str, Zeroizing<Vec<u8>>), KeyError> {
    let rest = text.trim().strip_prefix(prefix).ok_or(KeyError::Form)?;
    let (digits, rest) = rest.split_once(':').ok_or(KeyError::Form)?;
    let base64 = rest.strip_suffix(':').ok_or(KeyError::Form)?;
    let bytes = Base64::decode_vec(base64).map_err(|_| KeyError::Base64)?;
    let mut bytes = Zeroizing::new(bytes);
    let length = bytes.len().checked_sub(CRC).filter(|length| lengths.contains(length));
    let length = length.ok_or(KeyError::Length)?;
    if crc32fast::hash(&bytes[..length]).to_le_bytes() != bytes[length..] {
        return Err(KeyError::Checksum);
    }
    bytes.truncate(length);
    Ok((digits, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by Python, as nvme-cli's `nvme_gen_dhchap_key` does it: `base64.b64encode(key +
    /// zlib.crc32(key).to_bytes(4, "little"))` with `key = bytes(range(n))`.
    const SECRETS: [&str; 3] = [
        "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+KfiaR:",
        "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vcSEgBQ\
         ==:",
        "DHHC-1:00:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8gISIjJCUmJygpKissLS4vMDEyMz\
         Q1Njc4OTo7PD0+P4zODhA=:",
    ];

    #[test]
    fn secrets_are_read_whatever_their_length_and_transformation() {
        for (secret, length) in SECRETS.into_iter().zip([32_u8, 48, 64]) {
            let key = Key::parse(secret).unwrap();
            assert_eq!(*key.bytes, (0..length).collect::<Vec<_>>());
            for (digits, hash) in [("01", Hash::Sha256), ("02", Hash::Sha384), ("03", Hash::Sha512)]
            {
                let text = format!(" {}\n", secret.replacen(":00:", &format!(":{digits}:"), 1));
                let other = Key::parse(&text).unwrap();
                assert_eq!((other.hash, other.bytes.len()), (Some(hash), length.into()));
                assert!(other.is_same(&key) && other != key);
            }
        }
        // The specification's example, and secrets that nvme-cli made for others.
        for (secret, length) in [
            ("DHHC-1:00:ia6zGodOr4SEG0Zzaw398rpY0wqipUWj4jWjUh4HWUz6aQ2n:", 32),
            ("DHHC-1:01:vYcm5QemILkz5zSIeZidb4nPGcxongu2l/OaWMRgM9iIk/2A:", 32),
            (
                "DHHC-1:02:Hi9ha9idssh3FgURRbfMUvOY7NlHiApDCmHhmIRCdhdlNQwebHEt\
                 /7DHoag3SmCHFvei/Q==:",
                48,
            ),
            (
                "DHHC-1:03:6EKZcEL86u4vzTE8sCETvskE3pLKE+qOorl9QxrRfLvfOEQ5GvqC\
                 zM41U8fFVAz1cs+T14PjSpd1J641rfeCC1x2VNg=:",
                64,
            ),
        ] {
            assert_eq!(Key::parse(secret).unwrap().bytes.len(), length);
        }
    }

    #[test]
    fn what_is_no_secret_is_refused_with_the_reason() {
        let good = SECRETS[0];
        let changed = good.replacen("AAEC", "AAEB", 1);
        let cut = format!("{}:", &good[..good.len() - 5]);
        for (text, why) in [
            ("", KeyError::Form),
            ("secret", KeyError::Form),
            (good.trim_end_matches(':'), KeyError::Form),
            ("DHHC-1:", KeyError::Form),
            ("DHHC-1::", KeyError::Form),
            (&good.replacen(":00:", ":04:", 1), KeyError::Transformation),
            (&good.replacen(":00:", ":0:", 1), KeyError::Transformation),
            (&good.replacen("AAEC", "A*EC", 1), KeyError::Base64),
            (&good.replacen("AAEC", "AA:C", 1), KeyError::Base64),
            ("DHHC-1:00::", KeyError::Length),
            ("DHHC-1:00:AAEC:", KeyError::Length),
            (&cut, KeyError::Length),
            (&changed, KeyError::Checksum),
        ] {
            assert_eq!(Key::parse(text).err(), Some(why), "{text}");
        }
    }

    #[test]
    fn a_key_is_never_shown() {
        let key = Key::parse(SECRETS[0]).unwrap();
        assert_eq!(format!("{key:?}"), "Key");
    }
}
