//! Files that are not read, by name and with what to do instead.

use crate::reports::Report;

/// Forms that are not read: how they begin, their names, and a command that undoes them.
const FOREIGN: [(&[u8], &str, &str); 15] = [
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
    let page = begins("<!doctype html") || begins("<html");
    page.then(|| "an HTML page, not a trace: look at what was downloaded".to_owned())
}

/// Data of other programs by their first bytes, and what to do with them.
const DATA: [(&[u8], &str, &str); 18] = [
    (b"DSv1", "a DataSeries file", "ds2txt prints it; read that with --columns"),
    (b"PERFILE2", "a recording of perf", "perf script prints it; record with blktrace instead"),
    (b"\x17\x08\x44tracing", "a recording of trace-cmd", "record with blktrace instead"),
    (b"\xc1\x1f\xfc\xc1", "a CTF trace (LTTng)", "babeltrace prints it"),
    (b"\xd4\xc3\xb2\xa1", "captured network packets", "there are no block requests in it"),
    (b"\xa1\xb2\xc3\xd4", "captured network packets", "there are no block requests in it"),
    (b"\x4d\x3c\xb2\xa1", "captured network packets", "there are no block requests in it"),
    (b"\xa1\xb2\x3c\x4d", "captured network packets", "there are no block requests in it"),
    (b"\x0a\x0d\x0d\x0a", "captured network packets", "there are no block requests in it"),
    (b"\x89HDF", "an HDF5 file", "write its table as Parquet or CSV, and read that with --columns"),
    (b"ARROW1", "an Arrow file", "write it as Parquet with Ebb's columns, or as CSV"),
    (b"Obj\x01", "an Avro file", "write it as Parquet with Ebb's columns, or as CSV"),
    (b"ORC", "an ORC file", "write it as Parquet with Ebb's columns, or as CSV"),
    (b"SQLite format 3", "a SQLite database", "export a table as CSV and read it with --columns"),
    // LCS_TRACE_START_MAGIC.
    (b"\xf0\xde\xbc\x9a\x78\x56\x34\x12", CACHES, DIGESTS),
    (b"\x7fELF", "a program", "look at what was named or downloaded"),
    (b"%PDF", "a PDF document", "look at what was named or downloaded"),
    (b"\x93NUMPY", "a NumPy array", "write it as CSV and read that with --columns"),
];

/// Text of other programs: by what stands in it or, behind `\n`, how a line begins; what it is, and
/// why it is no trace.
const TEXT: [(&[&str], &str, &str); 29] = [
    (
        &["\n# DXT, "],
        "the output of darshan-dxt-parser",
        "calls on files; as such Ebb reads them as CSV, with the heading: awk \
         'BEGIN {print \"start_s,end_s,rank,file_id,op,offset,length\"} /^# DXT, file_id:/ \
         {f = $4; sub(\",\", \"\", f)} /^ *X_POSIX/ {print $7 \",\" $8 \",\" $2 \",\" f \",\" \
         ($3 == \"read\" ? \"R\" : \"W\") \",\" $5 \",\" $6}' FILE | ebb … -",
    ),
    (&["avg-cpu:", "_read/s ", " r/s "], "a report of iostat", MEANS),
    (&["\nprocs -"], "the output of vmstat", MEANS),
    (&["(PDH-CSV "], "counters of perfmon or esxtop", MEANS),
    (&["\nAAA,progname,"], "a report of nmon", MEANS),
    (&["\n\"Dstat "], "a report of dstat", MEANS),
    (&["\nRESET\n"], "a report of atop", MEANS),
    (
        &[" operations slower than "],
        "calls on files (a BPF tool)",
        "its offsets are within files: BCC's biosnoop prints each request",
    ),
    (
        &["\n\"Time of Day\",\"Process Name\""],
        "events of Process Monitor",
        "its offsets are within files: xperf records the requests of disks",
    ),
    (
        &["D    BLOCK   SIZE "],
        "the output of DTrace's iosnoop",
        "it has no times without -t: with them, read it with --columns",
    ),
    (&["MB/sec "], "a report of vdbench", MEANS),
    (&["Total DISK READ", " be/4 "], "the output of iotop", MEANS),
    (&["= All Devices =", "\nQ2Q "], "a report of btt", "blkparse prints what it sums up"),
    (&["\n@"], "sums and histograms of bpftrace", "BCC's biosnoop prints each request"),
    (
        &["Attaching ", "Attached ", "TIME(ms) "],
        "the output of bpftrace",
        "its biosnoop prints neither sectors nor bytes: use BCC's",
    ),
    (&[": count "], "a histogram of a BPF tool", "BCC's biosnoop prints each request"),
    (&[" MAJ MIN "], "the output of biotop", "BCC's biosnoop prints each request"),
    (
        &["usertable "],
        "operations of YCSB",
        "its keys have no places on a device: record with blktrace",
    ),
    (&["fio version 1"], "a log of an old fio", "fio 2 and 3 write versions that have times"),
    (
        &["block_rq_", "block_bio_", "# tracer: ", "nvme_complete_rq", "scsi_dispatch_cmd"],
        KERNEL.0,
        KERNEL.1,
    ),
    (&[".OBJECT "], "a trace of an object store", "its objects have no places on a device"),
    (&["obj_id", "next_access_vtime"], CACHES, DIGESTS),
    (&[",get,", ",set,"], "requests to a cache (Twitter)", KEYS),
    (&["\nkey,op,"], "requests to a cache (CacheLib)", KEYS),
    (&["# block_id "], "requests to Tectonic", "its blocks have no places on a device"),
    (
        &["\nfilename,file_offset,"],
        "requests to files (Thesios)",
        "its offsets are within files; as such they can be read, with --columns \
         device,offset:bytes,-,-,-,-,op,-,-,-,-,size:bytes,-,time:s,...",
    ),
    (
        &["pread64(", "openat("],
        "system calls (strace)",
        "record requests below the page cache, with blktrace",
    ),
    (
        &["): R /", "): RO /", "): W /", "): CW", "): O /"],
        "the output of fatrace",
        "it has neither places nor sizes: record with blktrace",
    ),
    (&["\"fio version\""], "the JSON report of fio", "fio's write_iolog writes the requests"),
];
const KEYS: &str = "its keys have no places on a device";
const KERNEL: (&str, &str) =
    ("events of the kernel (ftrace, perf script)", "record with blktrace, or with BCC's biosnoop");
const CACHES: &str = "a trace of caches (libCacheSim)";
const DIGESTS: &str = "it has digests of objects in place of addresses";
const MEANS: &str = "it has means over time, no requests: record with blktrace";
const OF_DISKS: &str = "it has no loads of disks: those of iostat -xt and sar -d can shape a \
                        generated load";
const SHAPE: &str = "it has loads over time, no requests, and can shape a generated load: \
                     [arrivals.shape.file] of a workload";

/// What a file is that fits no format, if it is of a known other kind, and what to do about it.
pub(crate) fn other(name: &str, head: &[u8]) -> Option<String> {
    let text = format!("\n{}", String::from_utf8_lossy(head));
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
    } else if text.trim_start().starts_with(['{', '[']) {
        (
            "JSON of a kind that Ebb does not know",
            "write its rows as CSV, and read that with --columns",
        )
    } else if head.contains(&0) {
        (
            "binary data of a kind that Ebb does not know",
            "export it as text, and read that with --columns",
        )
    } else {
        return None;
    };
    Some(format!("{what}, not a block trace: {why}"))
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
        let mut tar = vec![b'x'; 257];
        tar.extend_from_slice(b"ustar\x0000");
        assert!(refused(&tar).contains("a tar archive"));
    }

    #[test]
    fn what_stands_in_place_of_a_trace_is_named_with_the_remedy() {
        let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n";
        assert!(refused(pointer.as_bytes()).contains("git lfs pull"));
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

    #[test]
    fn other_kinds_are_named_with_the_reason() {
        for (magic, what, why) in DATA {
            let error = refused(&[magic, &[0; 300][..]].concat());
            assert!(error.contains(what) && error.contains(why), "{error}");
        }
        for (text, said) in [
            ("Linux 6.1.0 (a)  11/25/2026  _x86_64_ (8 CPU)\n\nDevice r/s\n", "iostat or sar"),
            ("# hostname;interval;timestamp;DEV;tps\nh;9;2026-11-25 00:10:01 UTC;sda;1\n", "sadf"),
            ("{\"status\":\"success\",\"data\":{\"resultType\":\"matrix\"}}", "Prometheus"),
            ("Attaching 4 probes...\nTIME(ms) DISK COMM PID LAT(ms)\n", "use BCC's"),
            ("dd 12 [001] 1.5: block:block_rq_issue: 8,0 W 4096 () 8 + 8 [dd]\n", "perf script"),
            ("1219008 REST.PUT.OBJECT 8d4fcda3d675bac9 1056\n", "an object store"),
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
            (
                "@usecs:\n[4, 8)                 1 |@          |\n",
                "sums and histograms of bpftrace",
            ),
            ("10:00:00   1234 be/4 root        0.00 B/s    4.00 K/s  0.00 % dd\n", "iotop"),
            ("10:00:00.123456 dd(1234): R /var/log/syslog\n", "fatrace"),
            ("\u{1}\0\u{2}\0\0", "binary data"),
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
        ] {
            let error = refused(text.as_bytes());
            assert!(error.contains(said) && error.contains("not a block trace"), "{error}");
        }
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
        assert_eq!(other("x", b"nothing known\n"), None);
    }
}
