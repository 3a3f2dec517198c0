//! Files of public reports, and what is right for each: the sums were counted by hand or by another
//! program.

use ebb_trace::stats::{Summary, summarise};
use ebb_trace::{OpenOptions, Reader, open_bytes};

/// What a file comes to, with the notes of its reader.
fn read(text: &str) -> (Summary, Reader) {
    let open = || open_bytes("t", text.as_bytes().to_vec(), &OpenOptions::default()).unwrap();
    let mut reader = open();
    let summary = summarise(&mut reader).unwrap();
    (summary, reader)
}

/// Reads, writes and flushes; bytes read and written; nanoseconds; the highest byte.
type Sums = ([u64; 3], [u64; 2], u64, u64);

fn sums(text: &str) -> Sums {
    let (summary, _) = read(text);
    let Summary {
        reads, writes, flushes, read_bytes, written_bytes, seconds, highest_byte, ..
    } = summary;
    let nanos = (seconds * 1e9).round() as u64;
    ([reads, writes, flushes], [read_bytes, written_bytes], nanos, highest_byte)
}

fn notes(text: &str) -> String {
    read(text).1.notes().join("\n")
}

fn refused(text: &str) -> String {
    let opened = open_bytes("t", text.as_bytes().to_vec(), &OpenOptions::default());
    opened.and_then(|mut reader| summarise(&mut reader)).unwrap_err().to_string()
}

/// The same with the line ends and the mark of other systems.
fn same_elsewhere(text: &str) {
    let elsewhere = format!("\u{feff}{}", text.replace('\n', "\r\n"));
    assert_eq!(sums(&elsewhere), sums(text), "{text}");
}

const DISKSIM: &str = "\
0.000 0 303567 7 0
1.130 0 303574 8 1
2.875 0 55590 16 0
15.500 0 131 8 1
18.250 0 4307312 64 1
";

#[test]
fn disksim_counts_in_sectors() {
    assert_eq!(sums(DISKSIM), ([3, 2, 0], [40_960, 11_776], 18_250_000, 2_205_376_512));
    assert!(notes(DISKSIM).contains("read as disksim: times in ms, blocks and sizes in sectors"));
    same_elsewhere(DISKSIM);
    // Not even behind what detection looks at.
    let aligned: String = (0..100).map(|at| format!("{at}.5 0 {} 4096 1\n", at * 4096)).collect();
    let error = refused(&format!("{aligned}101.5 0 303567 7 0\n"));
    assert!(error.starts_with("t:101: offset 303567 and size 7 are no whole sectors"), "{error}");
    assert!(error.contains("disksim") && error.contains("--columns"), "{error}");
}

#[test]
fn sizes_in_a_byte_format_are_whole_sectors() {
    for text in [
        "128166372003061629,hm,0,Read,383496192,8,413\n",
        "419,W,5613568,100,1577808144360767\n",
        "0,20941264,7,W,0.551706\n",
        "1455592061.1,0.000114,R,0,125116776448,16\n",
    ] {
        let error = refused(text);
        assert!(error.contains("no whole sectors") && error.contains("confirm bytes"), "{error}");
    }
}

const PATTERN: &str = "\
TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  P LAT(ms)
11.269319   kworker/u16:4  2784813 vda       W 113638304  8192   R    5.49
11.270254   kworker/u16:4  2784813 vda       W 114100936  425984 R    6.68
11.272153   kworker/u16:4  2784813 vda       W 114101768  212992 S    8.51
12.844246   agent          2807548 vda       R 24798464   4096   S    0.80
";

const NO_DISK: &str = "\
TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  LAT(ms)
0.000000    ?              0                 R 0          8         2.00
0.001500    dd             24852   sda       W 26236512   8192      3.00
0.003000    dd             24852   sda       W 26236528   8192      1.00
";

const NO_SECTOR: &str = "\
TIME(s)        COMM           PID    DISK    T  SECTOR    BYTES   LAT(ms)
0.000000000    jbd2/dm-8-44   446    sda     W  34898224  28672      0.26
0.002000000    jbd2/dm-8-44   446    sda     W  18446744073709551615 0          2.90
0.003000000    kworker/0:0    26852  sda     W  34898280  4096       0.10
";

#[test]
fn biosnoop_is_read_by_its_heading() {
    assert_eq!(sums(PATTERN), ([1, 3, 0], [4096, 647_168], 1_579_872_000, 58_420_318_208));
    assert_eq!(sums(NO_DISK), ([0, 2, 0], [0, 16_384], 3_500_000, 13_433_110_528));
    assert_eq!(read(NO_DISK).1.skipped().ignored, 1);
    let (counts, bytes, _, highest) = sums(NO_SECTOR);
    assert_eq!((counts, bytes, highest), ([0, 2, 1], [0, 32_768], 17_867_923_456));
    for text in [PATTERN, NO_DISK, NO_SECTOR] {
        same_elsewhere(text);
    }
}

#[test]
fn junk_is_refused_with_a_way_on() {
    let text = "\
TIME(s)     COMM           PID     DISK      T SECTOR     BYTES  LAT(ms)
0.000000    \u{1}              0       \u{1}         R 38654705664 1718091776138654.71
";
    let error = refused(text);
    assert!(error.starts_with("t:2: LAT(ms) is too large: '1718091776138654.71'"), "{error}");
    assert!(error.contains("--lenient"), "{error}");
}

#[test]
fn fiu_is_read() {
    let text = "\
329131208190249 4892 syslogd 904265560 8 W 6 0 531e779d39068ae5
329131208337444 4892 syslogd 904265568 8 W 6 0 e8c30e2d6e2ee6e0
329131229199180 2522 kjournald 509323304 8 R 6 0 f6cc5ac3a0e1e5f0
";
    assert_eq!(sums(text), ([1, 2, 0], [4096, 8192], 21_008_931, 462_983_974_912));
    same_elsewhere(text);
}

#[test]
fn issue_events_are_arrivals_where_there_are_no_others() {
    let text = "\
202,16   7    50007   675.722691803   661  D   W 95839968 + 80 [kswapd0]
202,16   7    50008   675.722990000     0  C   W 95839968 + 80 [0]
202,16   7    50009   675.730000000   700  D   R 1024 + 8 [java]
202,16   7    50010   675.731000000     0  C   R 1024 + 8 [0]
";
    assert_eq!(sums(text), ([1, 1, 0], [4096, 40_960], 7_308_197, 49_070_104_576));
    assert!(notes(text).contains("when it is issued"), "{}", notes(text));
    same_elsewhere(text);
}

#[test]
fn a_flush_ahead_of_a_write_does_not_hide_it() {
    let text = "\
  8,16   1        1     0.000000000   697  Q  WS 17574472752 + 8 [jbd2/sdb1-8]
  8,16   1        2     0.000100000   697  Q  FWFS 17574472760 + 8 [jbd2/sdb1-8]
  8,16   1        3     0.000200000   697  G  FWFS 17574472760 + 8 [jbd2/sdb1-8]
  8,16   1        4     0.000300000   697  Q  FWS [jbd2/sdb1-8]
";
    let (counts, bytes, _, highest) = sums(text);
    assert_eq!((counts, bytes, highest), ([0, 2, 1], [0, 8192], 8_998_130_057_216));
}

#[test]
fn a_device_with_queue_events_only_is_read() {
    let digits = ["000", "137", "274", "411", "548", "685"];
    let line = |(index, digits): (u64, &&str)| {
        let sector = 385_152 + 128 * index;
        format!("230,112  2  9  0.0360000{digits} 11721  Q   R {sector} + 128 [blkback.27.hdd]\n")
    };
    let text: String = (0..).zip(&digits).map(line).collect();
    let (counts, bytes, _, highest) = sums(&text);
    assert_eq!((counts, bytes, highest), ([6, 0, 0], [393_216, 0], 197_591_040));
}

#[test]
fn fio_logs_may_lack_openings_and_have_other_syncs() {
    let text = "fio version 3 iolog\n100 /dev/nvme0n1 read 1000 4096\n";
    assert_eq!(sums(text), ([1, 0, 0], [4096, 0], 0, 5096));
    let text = "\
fio version 3 iolog
0 /dev/sdb add
0 /dev/sdb open
8 /dev/sdb write 0 16384
20 /dev/sdb sync_file_range 0 16384
25 /dev/sdb syncfs 0 0
30 /dev/sdb read 0 4096
40 /dev/sdb close
";
    assert_eq!(sums(text), ([1, 1, 2], [4096, 16_384], 22_000, 16_384));
    same_elsewhere(text);
}

/// libCacheSim's CSV has the seconds of its binary trace: 5633898 there is 5633898368802 µs.
#[test]
fn libcachesims_csv_counts_seconds() {
    let text = "\
version,time,op,size,lbn
1,5633898,2a,512,42932745
1,5633899,2a,512,42932746
1,5633899,28,6656,40409911
1,5633900,2a,6144,31954535
";
    assert_eq!(sums(text), ([1, 3, 0], [6656, 7168], 2_000_000_000, 21_981_566_464));
    same_elsewhere(text);
}

const STACK: &str = "\
253,0    1        1     0.000000000  4321  Q   W 2048 + 256 [dd]
  8,2    1        2     0.000001000  4321  A   W 4096 + 256 <- (253,0) 2048
  8,0    1        3     0.000001500  4321  A   W 1054720 + 256 <- (8,2) 4096
  8,0    1        4     0.000002000  4321  Q   W 1054720 + 256 [dd]
  8,0    1        5     0.000003000  4321  G   W 1054720 + 256 [dd]
  8,0    1        6     0.000004000  4321  D   W 1054720 + 256 [dd]
  8,0    1        7     0.002000000     0  C   W 1054720 + 256 [0]
253,0    1        8     0.002001000     0  C   W 2048 + 256 [0]
";

#[test]
fn a_volume_and_the_disk_below_it_count_once() {
    assert_eq!(sums(STACK), ([0, 1, 0], [0, 131_072], 0, (2048 + 256) * 512));
    assert!(notes(STACK).starts_with("1 requests of 8,0 are not counted"), "{}", notes(STACK));
    same_elsewhere(STACK);
}

#[test]
fn units_and_times_that_were_taken_are_said() {
    let tencent = "1538323200,12910952,128,0,1063\n1538323200,8,8,1,1063\n";
    let said = notes(tencent);
    assert!(said.contains("read as tencent: times in s, offsets in sectors, sizes in sectors"));
    assert!(said.contains("whole ticks of 1 s: requests of one are spread"), "{said}");
    assert!(notes("0,R,4096,4096,1577808144360767\n").contains("read as alibaba: times in us"));
    let marked = "8,0 1 1 0.1 9 Q R 0 + 1 [x]\n";
    assert_eq!(notes(marked), "");
    let fio =
        |wait: &str| format!("fio version 2 iolog\na add\na read 0 512\n{wait}a read 512 512\n");
    assert!(notes(&fio("")).contains("has no times: everything arrives at once"));
    assert!(notes(&fio("a wait 1000\n")).contains("ms since its start"));
}

/// In files of Linux 4.3 to 4.11: `dd bs=1M`, whose sectors were issued and completed once.
#[test]
fn split_requests_count_once() {
    let text = "\
  8,0    1        1     0.000000000  1000  Q   W 0 + 2048 [dd]
  8,0    1        2     0.000001000  1000  X   W 0 / 1024 [dd]
  8,0    1        3     0.000002000  1000  Q   W 1024 + 1024 [dd]
  8,0    1        4     0.000003000  1000  G   W 0 + 1024 [dd]
  8,0    1        5     0.000004000  1000  D   W 0 + 1024 [dd]
  8,0    1        6     0.000005000  1000  D   W 1024 + 1024 [dd]
dd (1000)
 Reads Queued:           0,        0KiB  Writes Queued:           2,     1024KiB
";
    assert_eq!(sums(text), ([0, 1, 0], [0, 1 << 20], 0, 1 << 20));
    assert!(notes(text).contains("the rest of requests that were split"), "{}", notes(text));
    same_elsewhere(text);
}

#[test]
fn zone_appends_are_data() {
    let rows = [
        "259,1    3        1     0.000000000  4001  Q  ZA 524288 + 256 [fio]",
        "259,1    3        2     0.000001000  4001  G  ZA 524288 + 256 [fio]",
        "259,1    3        3     0.000004000  4001  D  ZA 524288 + 256 [fio]",
        "259,1    3        4     0.000900000     0  C  ZA 524288 + 256 [0]",
        "259,1    3        5     0.001000000  4002  Q   W 1048576 + 8 [fio]",
        "259,1    3        6     0.001001000  4002 ZP   N [fio]",
        "259,1    3        6     0.002000000  4003  Q  ZR 524288 + 0 [blkzone]",
        "259,1    3        7     0.003000000  4001  Q   R 524288 + 8 [fio]",
    ];
    let right = ([1, 2, 0], [4096, 131_072 + 4096], 3_000_000, (1_048_576 + 8) * 512);
    assert_eq!(sums(&rows.join("\n")), right);
    let without: Vec<&str> = rows.into_iter().filter(|row| !row.contains("ZP")).collect();
    assert_eq!(sums(&without.join("\n")), right);
}

#[test]
fn rows_that_move_nothing_are_passed_over_and_counted() {
    for text in [
        "fio version 3 iolog\n0 a add\n1 a read 0 0\n2 a write 0 4096\n3 a trim 0 0\n\
         4 a read 0 512\n",
        "1538323200,128,0,0,1063\n1538323200,0,8,1,1063\n1538323201,8,0,1,7\n1538323201,8,1,0,7\n",
        "0,1,0,W,0.5\n0,1,4096,W,0.5\n0,1,0,R,0.5\n0,1,512,R,0.7\n",
        "0.5 0 1000 0 1\n0.6 0 1001 8 0\n0.6 0 1001 0 1\n1.5 0 1001 1 1\n",
    ] {
        let (summary, reader) = read(text);
        assert_eq!((summary.reads, summary.writes, summary.trims), (1, 1, 0), "{text}");
        assert_eq!((summary.read_bytes, summary.written_bytes), (512, 4096), "{text}");
        let said = reader.notes().join("\n");
        assert!(said.contains("2 reads, writes and trims of 0 bytes were passed over"), "{said}");
    }
    let error = refused("0,1,0,W,0.5\n0,1,0,R,0.5\n");
    assert!(
        error.ends_with("no request in it; 2 records are of another kind, 2 of them of size 0")
    );
    let error = refused("0,1,512,R,0.5\n0,1,-512,R,0.5\n");
    assert!(error.starts_with("t:2: size is negative: '-512'"), "{error}");
}

#[test]
fn messages_and_last_lines_of_newer_tools_are_known() {
    let text = "\
  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
  8,0    3        0     0.000002500   697 1a3,1  m   N bfq697S insert_request
  8,0    3        6     0.200000000   697  Q   R 1024 + 16 [cat]
";
    assert_eq!(sums(text), ([1, 1, 0], [8192, 4096], 200_000_000, 223_498 * 512));
    let text = "\
Tracing block I/O. Ctrl-C to end.
STARTs          ENDs            COMM         PID    TYPE DEV      BLOCK        BYTES     LATms
5982800.302061  5982800.302679  supervise    1809   W    202,1    17039600     4096       0.62
5982800.302423  5982800.302842  supervise    1809   W    202,1    17039608     4096       0.42

Ending tracing...
";
    assert_eq!(sums(text), ([0, 2, 0], [0, 8192], 362_000, 17_039_616 * 512));
}

const ETW: &str = "\
BeginHeader
  DiskRead,  TimeStamp, Process Name ( PID), ThreadID, IrpPtr, ByteOffset, IOSize
EndHeader
DiskRead,  1382, System (   4),  88, 0xfff, 0x1000, 0x00001000, 382, 1, 0x0, 155, Normal
DiskRead,  9001382, System (   4),  88, 0xfff, 0x1000, 0x00001000, 382, 1, 0x0, 155, Normal
";
const TWO_QUEUED: &str = "\
  8,0    3        1     0.000000000   697  Q   W 223490 + 8 [kjournald]
  8,0    3        3     9.000000000   697  Q   R 1024 + 8 [cat]
";
const TOTALS: &str = "\
CPU3 (sda):
 Reads Queued:           1,        4KiB\t Writes Queued:           1,        4KiB
Events (sda): 2 entries
";
const CALLS: &str = "\
start_s,end_s,rank,file_id,op,offset,length
0.1,0.2,0,0,R,0,512
9.1,9.2,0,0,R,0,512
0.1,0.2,1,0,R,0,512
";

#[test]
fn several_runs_in_one_file_are_not_laid_over_each_other() {
    let run = format!("{TWO_QUEUED}{TOTALS}");
    for (text, line) in [(ETW, 9), (&run, 6), (NO_DISK, 7), (CALLS, 6)] {
        sums(text);
        let error = refused(&text.repeat(2));
        assert!(error.starts_with(&format!("t:{line}: another run begins here")), "{error}");
    }
    // The next part of the same run is none.
    let (all, rows) = NO_SECTOR.split_at(NO_SECTOR.find("0.003").unwrap());
    let heading = &all[..=all.find('\n').unwrap()];
    assert_eq!(sums(&format!("{all}{heading}{rows}")), sums(NO_SECTOR));
}

#[test]
fn a_clock_that_was_set_is_told() {
    let said = notes(&TWO_QUEUED.repeat(2));
    assert!(said.contains("rows are up to 9.0 s earlier than rows above them"), "{said}");
    assert!(!notes(CALLS).contains("earlier"), "ranks are listed one by one");
    let slow = "128166372203061629,hm,0,Read,512,512,1\n\
                128166372003061629,hm,0,Read,512,512,201000000\n";
    assert!(!notes(slow).contains("earlier"), "late by its latency");
}

#[test]
fn a_heading_in_a_comment_is_evidence() {
    for (heading, rows) in [
        ("asu,lba_bytes,size_sectors,op,time_ms", "0,20941264,8192,W,551.706\n"),
        ("time_s device offset size read", "22.810 0 2205343744 4096 1\n"),
        ("arrival_s disk lba_bytes size_bytes is_write", "22.810 0 22053437 4097 1\n"),
        ("timestamp_ms,offset,size,is_read,volume", "1538323200,12910952,128,0,1063\n"),
    ] {
        for mark in ["", "# ", "# of a tool\n#"] {
            let error = refused(&format!("{mark}{heading}\n{rows}"));
            assert!(error.contains("its heading has"), "{error}");
        }
    }
    sums("# written by one of our tools\n22.810 0 2205343744 4096 1\n");
}

#[test]
fn what_is_odd_about_requests_is_said() {
    let inquiry = format!("{NO_DISK}0.004000    udevd          300     sda       R 8  36  1.00\n");
    assert!(notes(&inquiry).contains("1 requests have no whole sectors"), "{}", notes(&inquiry));
    assert!(!notes(NO_DISK).contains("sectors"));
    let error = refused("  8,0    3        5     0.100004000     0  C   W 223490 + 8 [0]\n");
    let columns = error.split("--columns ").nth(1).unwrap().parse().ok();
    let options = OpenOptions { columns, ..OpenOptions::default() };
    let text = "  8,0    3        5     0.100004000     0  C   W 223490 + 8 [0]\n";
    let mut reader = open_bytes("t", text.into(), &options).unwrap();
    assert_eq!(summarise(&mut reader).unwrap().written_bytes, 4096);
}
