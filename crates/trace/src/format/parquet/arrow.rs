//! Units of durations: Parquet has no type for them, and Arrow's libraries write plain numbers. The
//! schema that they put beside it says the units (`Message.fbs` and `Schema.fbs` of Arrow).

use base64ct::{Base64, Encoding};

/// The key under which the schema stands.
pub(super) const KEY: &str = "ARROW:schema";
/// `Type.Duration`, `MessageHeader.Schema`.
const DURATION: u8 = 18;
const SCHEMA: u8 = 1;
/// `TimeUnit`.
const UNITS: [&str; 4] = ["s", "ms", "us", "ns"];

/// Names of the columns that are durations, and their units; none of what is no such schema.
pub(super) fn durations(schema: &str) -> Vec<(String, &'static str)> {
    let bytes = Base64::decode_vec(schema).unwrap_or_default();
    // The length of a message stands before it, since Arrow 0.15 behind four bytes of ones.
    let start = if bytes.starts_with(&[0xff; 4]) { 8 } else { 4 };
    let columns = || {
        let message = At(&bytes, start).follow()?;
        let schema = message.field(2)?.follow().filter(|_| message.is(1, SCHEMA))?;
        schema.field(1)?.follow()
    };
    let duration = |column: At<'_>| {
        let name = column.field(0)?.follow()?.text()?;
        let unit = column.field(3)?.follow()?.field(0);
        // Milliseconds are the default, which is not written.
        let unit = unit.map_or(Some(1), |unit| unit.number::<2>());
        Some((name, UNITS.get(unit?).copied()?)).filter(|_| column.is(2, DURATION))
    };
    columns().into_iter().flat_map(|all| all.items()).filter_map(duration).collect()
}

/// A place in a buffer of FlatBuffers.
#[derive(Clone, Copy)]
struct At<'a>(&'a [u8], usize);

impl<'a> At<'a> {
    /// The number of so many bytes there.
    fn number<const BYTES: usize>(self) -> Option<usize> {
        let bytes = self.0.get(self.1..)?.first_chunk::<BYTES>()?;
        Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    fn plus(self, bytes: usize) -> Option<Self> {
        Some(Self(self.0, self.1.checked_add(bytes)?))
    }

    /// What the offset there leads to.
    fn follow(self) -> Option<Self> {
        self.plus(self.number::<4>()?)
    }

    /// A field of the table there; `None` of one that is not written.
    fn field(self, number: usize) -> Option<Self> {
        let back = self.number::<4>()? as u32 as i32;
        let kinds = i64::try_from(self.1).ok()? - i64::from(back);
        let kinds = Self(self.0, usize::try_from(kinds).ok()?);
        let place = 4 + 2 * number;
        let offset = kinds.plus(place).filter(|_| kinds.number::<2>() > Some(place))?;
        self.plus(offset.number::<2>().filter(|offset| *offset > 0)?)
    }

    fn is(self, field: usize, value: u8) -> bool {
        self.field(field).and_then(|at| at.number::<1>()) == Some(value.into())
    }

    /// The tables of the vector there.
    fn items(self) -> impl Iterator<Item = Self> + use<'a> {
        let count = self.number::<4>().unwrap_or_default().min(self.0.len() / 4);
        (1..=count).filter_map(move |at| self.plus(4 * at)?.follow())
    }

    fn text(self) -> Option<String> {
        let (length, start) = (self.number::<4>()?, self.plus(4)?.1);
        let text = self.0.get(start..start.checked_add(length)?)?;
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

/// As pyarrow writes a column `at_ns` of `duration("us")`, and one of `int64`.
#[cfg(test)]
pub(super) const MICROS: &str = concat!(
    "/////3gAAAAQAAAAAAAKAAwABgAFAAgACgAAAAABBAAMAAAACAAIAAAABAAIAAAABAAAAA",
    "EAAAAUAAAAEAAUAAgABgAHAAwAAAAQABAAAAAAAAESEAAAABwAAAAEAAAAAAAAAAUAAABh",
    "dF9ucwAGAAgABgAGAAAAAAACAAAAAAA="
);
#[cfg(test)]
pub(super) const PLAIN: &str = concat!(
    "/////4AAAAAQAAAAAAAKAAwABgAFAAgACgAAAAABBAAMAAAACAAIAAAABAAIAAAABAAAAA",
    "EAAAAUAAAAEAAUAAgABgAHAAwAAAAQABAAAAAAAAECEAAAACAAAAAEAAAAAAAAAAUAAABh",
    "dF9ucwAAAAgADAAIAAcACAAAAAAAAAFAAAAAAAAAAA=="
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_duration_says_its_unit() {
        assert_eq!(durations(MICROS), [("at_ns".to_owned(), "us")]);
        assert_eq!(durations(PLAIN), []);
        assert_eq!(durations("no schema"), []);
    }

    proptest! {
        #[test]
        fn no_schema_panics(at in 0_usize..128, byte in any::<u8>(), end in 0_usize..128) {
            let mut bytes = Base64::decode_vec(MICROS).unwrap();
            bytes[at] = byte;
            let _ = durations(&Base64::encode_string(&bytes[..end]));
            let _ = durations(&Base64::encode_string(&bytes));
        }
    }
}
