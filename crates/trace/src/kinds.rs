//! Files of other programs: how they are known, and why they are no block traces.

/// Data of other programs by their first bytes, and what to do with them.
pub(crate) const DATA: &[(&[u8], &str, &str)] = &[
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
    (b"ARROW1", "an Arrow file", ROWS),
    (b"FEA1", "a Feather file", ROWS),
    (b"Obj\x01", "an Avro file", ROWS),
    (b"ORC", "an ORC file", ROWS),
    (
        b"MATLAB 5.0 MAT-file",
        "a file of MATLAB",
        "writematrix writes CSV: read that with --columns",
    ),
    (
        b"MATLAB 7.3 MAT-file",
        "a file of MATLAB",
        "writematrix writes CSV: read that with --columns",
    ),
    (b"X\n\0\0\0", "data of R", "write.csv(..., row.names = FALSE) writes CSV"),
    (b"RDX", "data of R", "write.csv(..., row.names = FALSE) writes CSV"),
    (b"\x80\x04\x95", "a pickle of Python", "to_csv(index=False) of pandas writes CSV"),
    (b"\x80\x05\x95", "a pickle of Python", "to_csv(index=False) of pandas writes CSV"),
    (b"<stata_dta>", "data of Stata", ROWS),
    (b"$FL2", "data of SPSS", ROWS),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Office document", "save its table as CSV"),
    (b"\xef\xbe\xed\xfe", "a recording of atop", "atopsar -r FILE -d prints loads of its disks"),
    (b"\0\0\0\x84\x50\x05\x26", "an archive of PCP", "pmrep prints its loads of disks"),
    (b"ElfFile\0", "an event log of Windows", "there are no block requests in it"),
    (b"LPKSHHRH", "a journal of systemd", "there are no block requests in it"),
    (b"SQLite format 3", "a SQLite database", "export a table as CSV and read it with --columns"),
    // LCS_TRACE_START_MAGIC.
    (b"\xf0\xde\xbc\x9a\x78\x56\x34\x12", CACHES, DIGESTS),
    (b"\x7fELF", "a program", LOOK),
    (b"%PDF", "a PDF document", LOOK),
    (b"%!PS", "a PostScript document", LOOK),
    (b"\x89PNG", "a picture", LOOK),
    (b"\xff\xd8\xff", "a picture", LOOK),
    (b"GIF8", "a picture", LOOK),
    (b"\xed\xab\xee\xdb", "a package", LOOK),
    (b"!<arch>", "a package or a library", LOOK),
    (b"QFI\xfb", "an image of a disk", LOOK),
    (b"\x93NUMPY", "a NumPy array", "write it as CSV and read that with --columns"),
];

/// Text of other programs: by what stands in it or, behind `\n`, how a line begins; what it is, and
/// why it is no trace.
pub(crate) const TEXT: &[(&[&str], &str, &str)] = &[
    (
        &["\n# DXT, "],
        "the output of darshan-dxt-parser",
        "calls on files; as such Ebb reads them as CSV, with the heading: awk \
         'BEGIN {print \"start_s,end_s,rank,file_id,op,offset,length\"} /^# DXT, file_id:/ \
         {f = $4; sub(\",\", \"\", f)} /^ *X_POSIX/ {print $7 \",\" $8 \",\" $2 \",\" f \",\" \
         ($3 == \"read\" ? \"R\" : \"W\") \",\" $5 \",\" $6}' FILE | ebb … -",
    ),
    (&["avg-cpu:", "_read/s ", " r/s ", ",r/s,w/s,"], "a report of iostat", MEANS),
    (&["\nprocs -"], "the output of vmstat", MEANS),
    (&["(PDH-CSV "], "counters of perfmon or esxtop", MEANS),
    (&["\nAAA,progname,"], "a report of nmon", MEANS),
    (&["\n\"Dstat ", "\n\"pcp-dstat "], "a report of dstat", MEANS),
    (&["\n# Collectl:", "-Disks-----", "\n#Date Time ["], "a report of collectl", MEANS),
    (&["operations     bandwidth"], "a report of zpool iostat", MEANS),
    (&["<sysstat", "DTD v3"], "a report of sadf in XML", SHAPED),
    (&["\nRESET\n"], "a report of atop", MEANS),
    (
        &[" operations slower than ", " operations that are slower than "],
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
    (&["MB/sec ", "<title>Vdbench"], "a report of vdbench", MEANS),
    (
        &["\nOp-Type,Op-Count,", "\nTimestamp,Op-Count,", "\n[OVERALL], RunTime"],
        "a report of a benchmark (COSBench, YCSB)",
        MEANS,
    ),
    (
        &["\tIozone:", "\n'Test Type,", "\nCommand Line: diskspd", " personality successfully"],
        "a report of a benchmark (Iozone, Iometer, DiskSpd, Filebench)",
        MEANS,
    ),
    (
        &["(g=0): rw=", "\n3;fio-", "\n5;fio-"],
        "a report of fio",
        "fio's write_iolog writes the requests",
    ),
    (&["\nioengine=", "\n[global]\n"], "a job of fio", "run it with write_iolog=FILE"),
    (
        &["\nidx\tthread\top\t"],
        "requests to an object store (warp)",
        "its objects have no places on a device",
    ),
    (
        &["\nHistogram: IO lengths"],
        "histograms of vscsiStats",
        "vscsiStats -t records the requests, which Ebb reads (vscsi)",
    ),
    (
        &["  RdData[", "  WrData["],
        "the output of macOS' fs_usage",
        "write time, D=, B= and the direction of its RdData and WrData as CSV, and read that with \
         --columns",
    ),
    (&["\n# HELP ", "\n# TYPE "], "metrics of Prometheus", SHAPED),
    (
        &[
            "\nsmartctl ",
            " MAJ:MIN ",
            "] Linux version ",
            " kernel: [",
            "Performance counter stats",
        ],
        "what a tool says of a machine",
        "there are no block requests in it",
    ),
    (&["\n<?xml "], "an XML document", "write its rows as CSV, and read that with --columns"),
    (&["/* CTF "], "the description of a CTF trace (LTTng)", "babeltrace prints the trace"),
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
    (
        &[".OBJECT ", "object id", "cacheKey"],
        "a trace of an object store",
        "its objects have no places on a device",
    ),
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
    (&[" HTTP/1.", " HTTP/2"], "the log of a web server", "it has no places on a device"),
];
const ROWS: &str = "write it as Parquet with Ebb's columns, or as CSV";
const LOOK: &str = "look at what was named or downloaded";
const SHAPED: &str = "the answer of Prometheus to a range query in JSON, iostat -xt and sadf -d \
                      can shape a generated load: [arrivals.shape.file] of a workload";
const KEYS: &str = "its keys have no places on a device";
pub(crate) const KERNEL: (&str, &str) =
    ("events of the kernel (ftrace, perf script)", "record with blktrace, or with BCC's biosnoop");
pub(crate) const CACHES: &str = "a trace of caches (libCacheSim)";
pub(crate) const DIGESTS: &str = "it has digests of objects in place of addresses";
const MEANS: &str = "it has means over time, no requests: record with blktrace";
pub(crate) const OF_DISKS: &str =
    "it has no loads of disks: those of iostat -xt and sar -d can shape a generated load";
pub(crate) const SHAPE: &str = "it has loads over time, no requests, and can shape a generated \
                                load: [arrivals.shape.file] of a workload";
