//! What a heading says of columns, against what a format has there.

use super::field;

/// Words by which a column is known, and the one that [`super::Columns`] has for it: the first that
/// a name has decides.
const WORDS: [(&str, &[&str]); 7] = [
    ("latency", &["latency", "lat", "response", "elapsed", "duration", "service", "wait"]),
    ("stream", &["pid", "process", "thread", "tid"]),
    ("size", &["size", "len", "length", "nbytes", "count"]),
    (
        "op",
        &["op", "rw", "type", "opcode", "iotype", "operation", "action", "write", "read", "kind"],
    ),
    ("offset", &["offset", "lba", "lbn", "sector", "block", "blkno", "addr", "address", "start"]),
    ("device", &["device", "dev", "disk", "volume", "vol", "lun", "asu", "host", "hostname"]),
    ("time", &["time", "ts", "timestamp", "date", "datetime", "arrival"]),
];
/// Units that a name ends with, by the words of [`super::Columns`].
const UNITS: [(&str, &[&str]); 7] = [
    ("s", &["s", "sec", "secs", "seconds"]),
    ("ms", &["ms", "msec", "millis", "milliseconds"]),
    ("us", &["us", "usec", "micros", "microseconds"]),
    ("ns", &["ns", "nsec", "nanos", "nanoseconds"]),
    ("bytes", &["bytes", "byte"]),
    ("sectors", &["sectors", "blocks"]),
    ("KiB", &["kib", "kb"]),
];

/// What a column holds and in which unit, as far as its name says.
type Named = (Option<&'static str>, Option<&'static str>);

/// Why a heading and the `columns` of a format contradict each other, and the columns as the
/// heading has them, in the format's units where it names none.
pub(super) fn contradiction(heading: &[u8], columns: &str) -> Option<(String, String)> {
    let names: Vec<String> =
        field::columns(heading).map(|name| String::from_utf8_lossy(name).into()).collect();
    let held: Vec<(&str, Option<&str>)> = columns.split(',').map(parts).collect();
    let odd = names.iter().zip(&held).find(|(name, (kind, unit))| {
        let (named, in_unit) = named(name);
        let other = named.is_some_and(|named| named != *kind && !["-", "..."].contains(kind));
        let differs = unit.zip(in_unit).is_some_and(|(unit, named)| unit != named);
        other || (named == Some(*kind) && differs)
    });
    let (name, (kind, unit)) = odd?;
    let unit = unit.map(|unit| format!(" in {unit}")).unwrap_or_default();
    let said = names.iter().map(|name| {
        let (Some(kind), unit) = named(name) else { return "-".to_owned() };
        let known = held.iter().find(|(held, _)| *held == kind);
        let unit = unit.or_else(|| known.and_then(|(_, unit)| *unit));
        unit.map_or_else(|| kind.to_owned(), |unit| format!("{kind}:{unit}"))
    });
    let said = said.collect::<Vec<_>>().join(",");
    Some((format!("its heading has '{name}' in the place of {kind}{unit}"), said))
}

fn parts(column: &str) -> (&str, Option<&str>) {
    column.split_once(':').map_or((column, None), |(kind, unit)| (kind, Some(unit)))
}

fn named(name: &str) -> Named {
    let words = words(name);
    let find = |all: &[(&'static str, &[&str])], word: &str| {
        all.iter().find(|(_, words)| words.contains(&word)).map(|(known, _)| *known)
    };
    let kind = WORDS.iter().find(|(_, known)| words.iter().any(|w| known.contains(&w.as_str())));
    let kind = kind.map(|(kind, _)| *kind);
    let unit = words.last().and_then(|word| find(&UNITS, word));
    let has = |word: &str| words.iter().any(|known| known == word);
    match (kind, unit) {
        (Some("op"), _) if has("write") && !has("read") => (kind, Some("0=read")),
        (Some("op"), _) if has("read") && !has("write") => (kind, Some("1=read")),
        (Some("op" | "device" | "stream"), _) => (kind, None),
        // A number of bytes or sectors is a size.
        (None, Some("bytes" | "sectors" | "KiB")) => (Some("size"), unit),
        _ => (kind, unit),
    }
}

/// The words of a name, in small letters: `first_lba`, `firstLba`, `First LBA (sectors)`.
#[must_use]
pub fn words(name: &str) -> Vec<String> {
    let mut apart = String::new();
    let mut was_small = false;
    for letter in name.chars() {
        let divides = !letter.is_alphanumeric();
        if was_small && letter.is_uppercase() {
            apart.push(' ');
        }
        was_small = letter.is_lowercase();
        apart.push(if divides { ' ' } else { letter.to_ascii_lowercase() });
    }
    apart.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Format;
    use super::*;

    #[test]
    fn names_are_held_against_a_formats_columns() {
        for (heading, format, said) in [
            (
                "ts_us,lba,len,is_write,dev",
                Format::Tencent,
                Some("time:us,offset:sectors,size:sectors,op:0=read,device"),
            ),
            (
                "timestamp_ms,offset,size,write,disk",
                Format::Tencent,
                Some("time:ms,offset:sectors,size:sectors,op:0=read,device"),
            ),
            (
                "time,size,offset,op,dev",
                Format::Tencent,
                Some("time:s,size:sectors,offset:sectors,op:0=read,device"),
            ),
            (
                "asu,lba_bytes,size,op,time_ms",
                Format::Spc,
                Some("device,offset:bytes,size:bytes,op,time:ms"),
            ),
            (
                "device_id,opcode,offset_sectors,length_sectors,timestamp_ms",
                Format::Alibaba,
                Some("device,op,offset:sectors,size:sectors,time:ms"),
            ),
            (
                "time,is_read,size,lba,dev",
                Format::Mqsim,
                Some("time:ns,op:1=read,size:sectors,offset:sectors,device"),
            ),
            ("ts,lba,len,rw,dev", Format::Tencent, None),
            ("Timestamp,Offset,Size,IOType,VolumeID", Format::Tencent, None),
            ("device_id,opcode,offset,length,timestamp", Format::Alibaba, None),
            ("Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime", Format::Msr, None),
            ("Timestamp,Response,IOType,LUN,Offset,Size", Format::Systor, None),
            ("version,time,op,size,lbn", Format::VscsiCsv, None),
            ("a,b,c,d,e", Format::Tencent, None),
        ] {
            let found = contradiction(heading.as_bytes(), format.columns().unwrap());
            assert_eq!(found.as_ref().map(|(_, said)| said.as_str()), said, "{heading}");
            if let Some((_, said)) = found {
                assert!(said.parse::<super::super::Columns>().is_ok(), "{said}");
            }
        }
    }
}
