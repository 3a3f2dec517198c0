//! Files that are not read, by name and with what to do instead.

use serde::de::IgnoredAny;

use crate::kinds::{CACHES, DATA, DIGESTS, KERNEL, OF_DISKS, SHAPE, TEXT};
use crate::reports::Report;

/// Forms that are not read: how they begin, their names, and a command that undoes them.
const FOREIGN: [(&[u8], &str, &str); 20] = [
    (b"\xfd7zXZ\0", "compressed with xz", "xz -dc"),
    (b"BZh", "compressed with bzip2", "bzip2 -dc"),
    (b"PK\x03\x04", "a zip archive", "unzip -p"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "7z e -so"),
    (b"\x04\x22\x4d\x18", "compressed with lz4", "lz4 -dc"),
    // Its older form, without a frame.
    (b"\x02\x21\x4c\x18", "compressed with lz4", "lz4 -dc"),
    // LZMA alone: properties of all encoders, and a dictionary of whole 64 KiB.
    (b"\x5d\0\0", "compressed with lzma", "xz -dc"),
    (b"\x1f\x9d", "compressed with compress", "uncompress -c"),
    (b"Rar!", "a rar archive", "unrar p -inul"),
    (b"LZIP", "compressed with lzip", "lzip -dc"),
    (b"\x89LZO\0", "compressed with lzop", "lzop -dc"),
    (b"\xff\x06\0\0sNaPpY", "compressed with snappy", "snzip -dc"),
    (b"\x78\x9c", "compressed with zlib", "pigz -dc"),
    (b"\x78\xda", "compressed with zlib", "pigz -dc"),
    // BLK_IO_TRACE_MAGIC and version 7, on machines of either byte order.
    (b"\x07\x74\x61\x65", "a binary trace of blktrace", "blkparse -i"),
    (b"\x65\x61\x74\x07", "a binary trace of blktrace", "blkparse -i"),
    (b"\xff\xfe\0\0", "text in UTF-32", "iconv -f UTF-32 -t UTF-8"),
    (b"\0\0\xfe\xff", "text in UTF-32", "iconv -f UTF-32 -t UTF-8"),
    (b"\xff\xfe", "text in UTF-16", "iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "text in UTF-16", "iconv -f UTF-16 -t UTF-8"),
];

/// What the bytes are, if they are something known that is not read, and what to do about it.
pub(crate) fn packed(head: &[u8]) -> Option<String> {
    // The mark of a tar archive stands in the header of its first member.
    let tar = head.get(257..262) == Some(b"ustar");
    if let Some(what) = document(head) {
        return Some(what);
    }
    let known = FOREIGN.iter().find(|(magic, ..)| head.starts_with(magic));
    let (what, command) = match known {
        Some((_, what, command)) => (*what, *command),
        None if tar => ("a tar archive", "tar -xOf"),
        None => match wide(head) {
            Some(found) => found,
            None => return instead(head),
        },
    };
    Some(format!(
        "{what}, which Ebb does not read (it reads gzip and zstd); unpack it first, or pipe it in: \
         {command} FILE | ebb … -"
    ))
}

/// Documents that are zip archives, by the names of their first members, and what to do with them.
fn document(head: &[u8]) -> Option<String> {
    const MEMBERS: [(&str, &str, &str); 4] = [
        ("[Content_Types].xml", "an Office document", "save its table as CSV"),
        ("application/vnd.oasis.", "an Office document", "save its table as CSV"),
        (".npy", "arrays of NumPy", "write them as CSV, and read that with --columns"),
        ("META-INF/", "a program of Java", "look at what was named or downloaded"),
    ];
    let names = String::from_utf8_lossy(head.strip_prefix(b"PK\x03\x04")?);
    let (_, what, why) = MEMBERS.iter().find(|(member, ..)| names.contains(member))?;
    Some(format!("{what}, not a block trace: {why}"))
}

/// UTF-16 and UTF-32 without their mark, and what undoes them: of each two or four bytes one is not
/// 0, always the same.
fn wide(head: &[u8]) -> Option<(&'static str, &'static str)> {
    let is_one = |width: usize, place: usize| {
        let mut letters = head.chunks_exact(width);
        let is_letter = |letter: &[u8]| (0..width).all(|at| (letter[at] > 0) == (at == place));
        letters.len() > 3 && letters.all(is_letter)
    };
    let all = [
        (2, 0, "text in UTF-16", "iconv -f UTF-16LE -t UTF-8"),
        (2, 1, "text in UTF-16", "iconv -f UTF-16BE -t UTF-8"),
        (4, 0, "text in UTF-32", "iconv -f UTF-32LE -t UTF-8"),
        (4, 3, "text in UTF-32", "iconv -f UTF-32BE -t UTF-8"),
    ];
    let found = all.into_iter().find(|(width, place, ..)| is_one(*width, *place));
    found.map(|(.., what, command)| (what, command))
}

/// What stands in place of a trace that was not had.
fn instead(head: &[u8]) -> Option<String> {
    let text = head.trim_ascii_start();
    let begins = |with: &str| {
        text.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with.as_bytes()))
    };
    if begins("version https://git-lfs") {
        return Some("a Git LFS pointer, not the file it stands for: git lfs pull".to_owned());
    }
    // FILE_MAGIC and FORMAT_MAGIC of sysstat's sa.h, on machines of either byte order.
    if matches!(head, [0x96, 0xd5, _, 0x21, ..] | [0xd5, 0x96, 0x21, _, ..]) {
        let what = "a binary file of sar: sadf -d FILE -- -d prints its loads of disks";
        return Some(format!("{what}; {SHAPE}"));
    }
    let lines = text.split(|byte| *byte == b'\r').count();
    if lines > 2 && text.is_ascii() && !text.contains(&b'\n') && !text.contains(&0) {
        let how = "tr '\\r' '\\n' <FILE | ebb … -";
        return Some(format!("text whose lines end with a carriage return alone: {how}"));
    }
    let page = begins("<!doctype html") || begins("<html");
    page.then(|| "an HTML page, not a trace: look at what was downloaded".to_owned())
}

/// How the log of Sysinternals' DiskMon names its columns.
const DISKMON: &str = "Time\tDuration (s)\tDisk\tRequest\tSector\tLength";

/// What a file is that fits no format, if it is of a known other kind, and what to do about it.
pub(crate) fn other(name: &str, head: &[u8]) -> Option<String> {
    let text = format!("\n{}", String::from_utf8_lossy(head));
    if text.contains(DISKMON) {
        let columns = "-,time:s,latency:s,device,op,offset:sectors,size:sectors";
        return Some(format!("a log of DiskMon: read it with --columns {columns}"));
    }
    let has = |marks: &[&str]| marks.iter().any(|mark| text.contains(mark));
    let data = DATA.iter().find(|(magic, ..)| head.starts_with(magic));
    let (what, why) = if let Some((_, what, why)) = data {
        (*what, *why)
    } else if let Some(report) = Report::of(&text[1..]) {
        match report.has_devices(&text) {
            true => (report.name(), SHAPE),
            false => ("a report of sysstat", OF_DISKS),
        }
    } else if let Some((_, what, why)) = TEXT.iter().find(|(marks, ..)| has(marks)) {
        (*what, *why)
    } else if name.contains("oracleGeneral") {
        (CACHES, DIGESTS)
    } else if let Some(reason) = rows(head, false) {
        return Some(reason);
    } else if text.lines().skip(1).take(2).all(is_ftrace) {
        KERNEL
    } else if text.lines().skip(1).take(2).all(is_event) && text.lines().nth(1).is_some() {
        (
            "blkparse's output in a form of its own (-f)",
            "print the default form, or choose the rows of one action: --columns \
             ...,=Q,... with =Q in the place of the action, and what the other columns are",
        )
    } else if name.ends_with(".etl") && head.contains(&0) {
        ("a Windows event trace", "xperf -i FILE -o out.csv -a dumper prints what Ebb reads (etw)")
    } else if is_json(&text) {
        (
            "JSON of a kind that Ebb does not know",
            "write its rows as CSV, and read that with --columns",
        )
    } else if is_binary(head) {
        (
            "binary data of a kind that Ebb does not know",
            "export it as text, and read that with --columns",
        )
    } else {
        return None;
    };
    Some(format!("{what}, not a block trace: {why}"))
}

/// Whether a zero or more than one byte in twenty is no letter that text has.
fn is_binary(head: &[u8]) -> bool {
    let odd = head.iter().filter(|byte| matches!(byte, 1..=8 | 14..=26 | 28..=31)).count();
    head.contains(&0) || odd * 20 > head.len()
}

/// Whether a text begins with values in JSON, the last of which may be cut.
fn is_json(text: &str) -> bool {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>();
    let is_one = |value: Option<serde_json::Result<_>>| match value {
        Some(Ok(IgnoredAny)) => Some(true),
        Some(Err(error)) => error.is_eof().then_some(true),
        None => Some(false),
    };
    let begins = text.trim_start().starts_with(['{', '[']);
    // The second one, for `[1]` may stand before a text as well.
    begins && is_one(values.next()) == Some(true) && is_one(values.next()).is_some()
}

/// What a file is that is known by all the first of its rows, though they may fit a format without
/// marks; `whole` says that nothing follows `head`.
pub(crate) fn rows(head: &[u8], whole: bool) -> Option<String> {
    let end = memchr::memrchr(b'\n', head).filter(|_| !whole).unwrap_or(head.len());
    let text = String::from_utf8_lossy(&head[..end]);
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    let all = |is_one: fn(&str) -> bool| lines().next().is_some() && lines().all(is_one);
    let (what, why) = if all(is_fio_log) {
        (
            "a log of fio's latencies, rates or bandwidths",
            "its requests are in what write_iolog writes; latencies with log_offset=1 can be read \
             with --columns time:ms,latency:ns,op:0=read,size:bytes,offset:bytes,...",
        )
    } else if all(|line| line.trim().parse::<u64>().is_ok()) {
        ("a list of numbers, as of blocks or objects", "it has neither times nor sizes")
    } else if all(is_diskstats) {
        ("a copy of /proc/diskstats", "it has counters since the start: record with blktrace")
    } else {
        return None;
    };
    Some(format!("{what}, not a block trace: {why}"))
}

/// `500, 81920, 0, 4096, 0, 0x4002`: ms, value, direction, size and more, a blank behind each comma
/// and the priority perhaps in hexadecimal.
fn is_fio_log(line: &str) -> bool {
    let number = |column: &str| {
        let hex = column.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        column.parse().ok().or(hex)
    };
    let columns: Vec<_> = line.split(", ").map(|column| number(column.trim())).collect();
    (4..=7).contains(&columns.len())
        && columns.iter().all(Option::is_some)
        && matches!(columns[2], Some(0..=2))
}

/// `8 0 sda 100 0 800 50 300 0 2400 75 2 100 125`: numbers of the device, its name, counters.
fn is_diskstats(line: &str) -> bool {
    let columns = || line.split_whitespace().enumerate();
    columns().count() >= 14
        && columns().all(|(at, column)| (at == 2) != column.parse::<u64>().is_ok())
}

/// `dd-1234 [001] 4283.123456: 8,0 Q W 2048 + 8 [dd]`: a processor, and a time with a colon.
fn is_ftrace(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let number = |word: &str| word.strip_prefix('[')?.strip_suffix(']')?.parse::<u16>().ok();
    words.any(|word| number(word).is_some())
        && words.any(|word| word.strip_suffix(':').is_some_and(|time| time.parse::<f64>().is_ok()))
}

/// `8,0 Q 0.000000000 R 223490 8 dd`: a device by its numbers, and an action of blkparse.
fn is_event(line: &str) -> bool {
    let is_device = |word: &str| {
        word.split_once(',').is_some_and(|(major, minor)| {
            major.parse::<u16>().is_ok() && minor.parse::<u32>().is_ok()
        })
    };
    let has = |wanted: &dyn Fn(&str) -> bool| line.split_whitespace().any(wanted);
    has(&is_device) && has(&|word| word.len() == 1 && "QGIDCMAXPU".contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpenOptions, Source, open_bytes};

    const LINES: &str = "419,W,5613568,4096,1577808144360767\n419,R,0,512,1577808144360769\n";

    fn refused(text: &[u8]) -> String {
        let opened = open_bytes("trace", text.to_vec(), &OpenOptions::default());
        opened.map(|reader| reader.format()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_not_read_is_named_with_what_undoes_it() {
        for (magic, what, command) in FOREIGN {
            let error = refused(&[magic, &[1; 300]].concat());
            assert!(error.contains(what) && error.contains(command), "{error}");
        }
        for (member, said) in [
            ("[Content_Types].xml", "save its table as CSV"),
            ("mimetypeapplication/vnd.oasis.opendocument.spreadsheet", "save its table as CSV"),
            ("arr_0.npy", "arrays of NumPy"),
            ("trace.csv", "unzip -p"),
        ] {
            let error = refused(format!("PK\x03\x04\x14\0\x06\0{member}\0").as_bytes());
            assert!(error.contains(said), "{error}");
        }
        let mut tar = vec![b'x'; 257];
        tar.extend_from_slice(b"ustar\x0000");
        assert!(refused(&tar).contains("a tar archive"));
    }

    #[test]
    fn what_stands_in_place_of_a_trace_is_named_with_the_remedy() {
        let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n";
        assert!(refused(pointer.as_bytes()).contains("git lfs pull"));
        assert!(refused(LINES.replace('\n', "\r").as_bytes()).contains("tr '\\r' '\\n'"));
        assert!(refused(b"\n<!DOCTYPE HTML>\n<html>\n").contains("an HTML page"));
        let wide = |bytes: fn(u16) -> [u8; 2]| LINES.encode_utf16().flat_map(bytes).collect();
        let (little, big): (Vec<_>, Vec<_>) = (wide(u16::to_le_bytes), wide(u16::to_be_bytes));
        assert!(refused(&little).contains("iconv -f UTF-16LE"));
        assert!(refused(&big).contains("iconv -f UTF-16BE"));
        let widest: Vec<_> =
            LINES.chars().flat_map(|letter| u32::from(letter).to_le_bytes()).collect();
        assert!(refused(&widest).contains("iconv -f UTF-32LE"));
        assert!(refused(b"\x96\xd5\x75\x21\x0c\x05").contains("sadf -d FILE -- -d prints"));
    }

    /// How files of other kinds begin, and what is said of them.
    const KINDS: &[(&str, &str)] = &[
        ("Linux 6.1.0 (a)  11/25/2026  _x86_64_ (8 CPU)\n\nDevice r/s\n", "iostat or sar"),
        ("# hostname;interval;timestamp;DEV;tps\nh;9;2026-11-25 00:10:01 UTC;sda;1\n", "sadf"),
        ("\"pcp-dstat 6.0 CSV Output\"\n\"Author:\",\"x\"\n", "dstat"),
        ("# Collectl:   V4.3.1-1\n>>> 1795614910.001 <<<\n", "collectl"),
        ("#<---CPU---><----------Disks----------->\n#cpu KBRead Reads\n 1 0 0\n", "collectl"),
        ("<?xml version=\"1.0\"?>\n<sysstat>\n<host>\n", "sadf in XML"),
        ("<?xml version=\"1.0\"?>\n<svg>\n", "an XML document"),
        ("Op-Type,Op-Count,Byte-Count\nread,100,100\n", "COSBench"),
        ("[OVERALL], RunTime(ms), 1000\n[READ], Operations, 100\n", "YCSB"),
        ("job1: (g=0): rw=randread, bs=(R) 4096B-4096B\nfio-3.33\n", "write_iolog"),
        ("[global]\nioengine=libaio\n", "a job of fio"),
        ("127.0.0.1 - - [30/Nov/2026:15:04:05 +0000] \"GET / HTTP/1.1\" 200 1\n", "web"),
        ("Histogram: IO lengths of commands\n512,0\n", "vscsiStats -t"),
        ("# HELP a b\n# TYPE a counter\na{d=\"sda\"} 1\n", "Prometheus"),
        ("[    0.000000] Linux version 6.1.0-18-amd64\n", "a tool says"),
        (
            "Tracing block device I/O... Hit Ctrl-C to end.\n^C\n usecs : count distribution\n",
            "BPF",
        ),
        ("/* CTF 1.8 */\ntypealias integer\n", "babeltrace"),
        ("{\"status\":\"success\",\"data\":{\"resultType\":\"matrix\"}}", "Prometheus"),
        ("Attaching 4 probes...\nTIME(ms) DISK COMM PID LAT(ms)\n", "use BCC's"),
        ("dd 12 [001] 1.5: block:block_rq_issue: 8,0 W 4096 () 8 + 8 [dd]\n", "perf script"),
        ("1219008 REST.PUT.OBJECT 8d4fcda3d675bac9 1056\n", "an object store"),
        ("# timestamp (ms), op type [Put:0], object id, size\n0,1,A,8371\n", "an object store"),
        ("openat(AT_FDCWD, \"/etc/passwd\", O_RDONLY) = 3\n", "strace"),
        ("TIME(ms) DISK COMM PID LAT(ms)\n611 nvme0n1 bash 4179 10\n", "bpftrace"),
        ("Tracing block device I/O... Hit Ctrl-C.\n\n usecs : count distribution\n", "BPF"),
        ("PID COMM D MAJ MIN DISK I/O Kbytes AVGms\n1 cksum R 8 0 sda 3 2 3.39\n", "biotop"),
        ("READ usertable user85170976 [ <all fields>]\n", "YCSB"),
        ("fio version 1 iolog\nsda\n", "an old fio"),
        ("[{\"ts\": 1, \"op\": \"R\"}]\n", "JSON"),
        ("0,q:q:1:8WTfjZU14ee,17,213,4,get,0\n", "a cache (Twitter)"),
        ("time,obj_id,obj_size\n0,1,4096\n", "libCacheSim"),
        ("# block_id io_offset io_size op_time\n4196 0 8 1568246400.1 get 1\n", "Tectonic"),
        ("filename,file_offset,application\nabc,4096,bigtable\n", "Thesios"),
        ("Device             tps    kB_read/s    kB_wrtn/s\nsda 1.00 2.00 3.00\n", "of iostat"),
        ("Device            r/s     rkB/s\nsda  1.00 2.00\n", "of iostat"),
        ("device     r/s   w/s     kr/s\nada0  10  20  100.0\n", "it has means over time"),
        ("8,0 Q 0.0 R 223490 8 dd\n8,0 D 0.1 R 223490 8 dd\n", "=Q"),
        ("# DXT, file_id: 79, file_name: /f\n X_POSIX 0 write 0 0 4096 0.01 0.02\n", "awk"),
        ("500, 81920, 1, 0, 0\n1000, 81912, 1, 0, 0\n", "op:0=read"),
        ("1, 10666, 1, 8192, 0x0000\n2, 10666, 0, 8192, 0x4002\n", "op:0=read"),
        ("# tracer: blk\n#\n  dd-1234  [001]   100.0:   8,0    Q   R 2 + 8 [dd]\n", "ftrace"),
        ("\"(PDH-CSV 4.0) (UTC)(0)\",\"\\\\h\\Reads/sec\"\n\"11/29\",\"1\"\n", "perfmon"),
        ("AAA,progname,nmon\nDISKXFER,T0001,5.0\n", "nmon"),
        ("procs -----------memory----------\n r  b   swpd\n", "vmstat"),
        ("   8       0 sda 100 0 800 50 300 0 2400 75 2 100 125\n", "/proc/diskstats"),
        ("==================== All Devices ====================\n", "btt"),
        ("Nov 25, 2026  interval        i/o   MB/sec   bytes   read\n", "vdbench"),
        ("@usecs:\n[4, 8)                 1 |@          |\n", "sums and histograms of bpftrace"),
        ("10:00:00   1234 be/4 root        0.00 B/s    4.00 K/s  0.00 % dd\n", "iotop"),
        ("10:00:00.123456 dd(1234): R /var/log/syslog\n", "fatrace"),
        ("\u{1}\0\u{2}\0\0", "binary data"),
        ("\n\u{10}\u{8}\u{1}\u{12}\u{5}hello", "binary data"),
        ("\"Dstat 0.7.3 CSV output\"\n\"Author:\",\"x\"\n", "dstat"),
        ("RESET\nDSK h 1764029405 2026/11/25 00:10:05 600 sda 4 100\n", "atop"),
        ("Tracing ext4 operations slower than 10 ms\nTIME COMM PID T\n", "within files"),
        ("\"Time of Day\",\"Process Name\",\"PID\"\n\"1:00\",\"a\",\"1\"\n", "xperf"),
        ("key,op,size,op_count,key_size\n1668757755,SET,82,1,40\n", "CacheLib"),
        ("# time, object, size, next_access_vtime\n0, 7414061, 237, 1\n", "libCacheSim"),
        ("42932745\n42932746\n42932747\n", "a list of numbers"),
        ("Linux 5.15.0 (a) 11/25/2026\n\n11:40:01 PM UID PID kB_rd/s\n", "no loads of disks"),
        ("  dd-1234  [001]  4283.123456:   8,0    Q   W 2048 + 8 [dd]\n", "ftrace"),
        ("500, 81920, 0, 4096, 0, 0\n1000, 81920, 1, 4096, 0, 0\n", "op:0=read"),
    ];

    #[test]
    fn other_kinds_are_named_with_the_reason() {
        for (magic, what, why) in DATA {
            let error = refused(&[magic, &[0; 300][..]].concat());
            assert!(error.contains(what) && error.contains(why), "{error}");
        }
        for &(text, said) in KINDS {
            let error = refused(text.as_bytes());
            assert!(error.contains(said) && error.contains("not a block trace"), "{error}");
        }
        let diskmon = format!("#\t{DISKMON}\n0\t0.5\t0.001\t0\tWrite\t16\t8\n");
        assert!(refused(diskmon.as_bytes()).contains("a log of DiskMon"));
        let thesios = "filename,file_offset,application,c_time,io_zone,redundancy_type,op_type,\
            service_class,from_flash_cache,cache_hit,request_io_size_bytes,disk_io_size_bytes,\
            response_io_size_bytes,start_time,disk_time\nabc,4096,bigtable,1704067200.0,WARM,\
            REPLICATED,READ,LATENCY_SENSITIVE,0,0,100,8192,100,1704067200.5,0.004\n";
        let error = refused(thesios.as_bytes());
        let columns = error.split("--columns ").nth(1).unwrap().parse().ok();
        let options = OpenOptions { columns, ..OpenOptions::default() };
        let mut all = Vec::new();
        open_bytes("t", thesios.into(), &options).unwrap().fill(&mut all).unwrap();
        assert_eq!((all[0].offset, all[0].bytes), (4096, 8192));
        assert!(other("x.oracleGeneral.bin", &[1; 24]).unwrap().contains("libCacheSim"));
        assert!(other("x.etl", &[0; 24]).unwrap().contains("xperf"));
        for text in ["nothing known\n", "[server]\nname = 1\n", "[1.5] a b\n"] {
            assert_eq!(other("x", text.as_bytes()), None, "{text}");
        }
    }
}
