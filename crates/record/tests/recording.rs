//! Recordings: what is written comes back to the bit and is decided again alike; what is cut,
//! changed or somebody else's is found.

use std::fs;
use std::path::{Path, PathBuf};

use ebb_policy::registry::{self, Settings};
use ebb_policy::units::{Bytes, Celsius, Nanos, Watts};
use ebb_policy::{Cycle, Limits, Reading};
use ebb_record::recording::{
    Again, Begun, Entry, Found, Frame, Header, Item, Made, Reader, RecordingError, Writer, again,
};
use tempfile::TempDir;

use crate::noise::{Noise, topology};

const POLICY: &str = "pacer-plus+pacman+eadc";
const BUDGET: Watts = Watts(100.0);

/// A run of that machine that is recorded.
struct Run {
    folder: TempDir,
    writer: Writer,
    cycle: Cycle,
    plant: Noise,
    number: u64,
    nth: u64,
    unix_s: f64,
}

fn settings() -> Settings {
    Settings { ssd_budget: Some(BUDGET), ..Settings::default() }
}

impl Run {
    fn start(nonsense: bool) -> Self {
        Self::kept(nonsense, Bytes(1 << 30))
    }

    fn kept(nonsense: bool, keep: Bytes) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let header = Header::new("1.2.3", Some("abcdef0123456789"));
        let writer = Writer::new(&folder.path().join("new/one"), keep, header).unwrap();
        let plant = Noise::new(nonsense);
        let cycle = cycle();
        let mut run = Self { folder, writer, cycle, plant, number: 0, nth: 0, unix_s: 1e9 };
        run.begin(0);
        run
    }

    fn folder(&self) -> PathBuf {
        self.folder.path().join("new/one")
    }

    /// The run begins anew.
    fn begin(&mut self, at: u64) {
        self.cycle = cycle();
        (self.number, self.nth) = (0, 0);
        self.writer.begun(begun(at)).unwrap();
        self.writer.made(Made::new(0, POLICY, &settings(), Vec::new())).unwrap();
    }

    /// Another policy, as by an order.
    fn change(&mut self, name: &str, budget: Watts) {
        self.nth += 1;
        let settings = Settings { ssd_budget: Some(budget), plf: 0.3, ..settings() };
        let policy = registry::make(name, &topology(), &settings).unwrap();
        self.cycle.change(policy, Some(budget)).unwrap();
        let orders = vec![format!("budget {budget}")];
        self.writer.made(Made::new(self.nth, name, &settings, orders)).unwrap();
    }

    /// Cycles of which none is recorded.
    fn lose(&mut self, cycles: u64) {
        for _ in 0..cycles {
            self.cycle.step(&mut self.plant);
        }
        self.number += cycles;
    }

    fn cycles(&mut self, cycles: u64) {
        for _ in 0..cycles {
            let cycled = self.cycle.step(&mut self.plant);
            let found = self.number.is_multiple_of(2).then(|| Found::of(cycled.signals));
            let found = found.as_ref();
            self.writer.frame(self.number, self.unix_s, Nanos(7), &cycled, found).unwrap();
            self.number += 1;
            self.unix_s += 0.5;
        }
    }

    fn again(&mut self) -> Again {
        self.writer.flush().unwrap();
        read(&self.folder()).unwrap()
    }
}

fn cycle() -> Cycle {
    let policy = registry::make(POLICY, &topology(), &settings()).unwrap();
    let limits = Limits { ssd_budget: Some(BUDGET), ..Limits::default() };
    Cycle::new(&topology(), policy, limits)
}

fn begun(at: u64) -> Begun {
    Begun {
        at: Nanos(at),
        unix_s: 1e9,
        topology: topology(),
        would: true,
        profile: "generic-1u".to_owned(),
        missing: Vec::new(),
        config: String::new(),
        governed: vec![None; 2],
        unseen: None,
    }
}

fn read(folder: &Path) -> Result<Again, RecordingError> {
    again(&mut Reader::open(folder).unwrap())
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> =
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

/// All entries of a folder that can be read.
fn entries(folder: &Path) -> Vec<Entry> {
    let entry = |item: Result<Item, RecordingError>| match item.unwrap() {
        Item::Entry(entry) => entry,
        Item::Cut(cut) => panic!("{cut:?}"),
    };
    Reader::open(folder).unwrap().map(entry).collect()
}

#[test]
fn decided_again_all_is_the_same_to_the_bit() {
    let mut run = Run::start(true);
    run.cycles(700);
    run.change("pacer-plus+pacman(alpha=0.5)+eadc", Watts(80.0));
    run.cycles(300);
    run.writer.note(Nanos(5), "sdb left").unwrap();
    run.change(POLICY, Watts(90.0));
    // At the border of two blocks as well.
    run.writer.flush().unwrap();
    run.change(POLICY, Watts(150.0));
    run.cycles(200);
    run.begin(9);
    run.cycles(333);
    let told = run.again();
    assert_eq!((told.cycles, told.same, told.runs), (1533, 1533, 2), "{told:?}");
    assert_eq!((told.other, told.unknown, &told.first), (0, 0, &None));
    assert_eq!((told.gaps.1, told.cuts.1, told.policies.len()), (0, 0, 2));
    assert_eq!(told.versions.into_iter().collect::<Vec<_>>(), ["1.2.3 (abcdef012345)"]);
    assert_eq!(told.span, Some([1e9, 1e9 + 0.5 * 1532.0]));
    // It had something to decide, and was told nonsense.
    let frames = entries(&run.folder()).into_iter().filter_map(|entry| match entry {
        Entry::Frame(frame) => Some(frame),
        _ => None,
    });
    let frames: Vec<_> = frames.collect();
    let nonsense = frames.iter().filter_map(|frame| frame.signals.groups[0].utilisation);
    assert!(nonsense.clone().any(|share| share.to_bits() == 0x7ff8_dead_beef_0001));
    assert!(frames.iter().any(|frame| frame.native.is_some()));
    assert!(frames.iter().any(|frame| !frame.refused.is_empty()));
    let decided = frames.iter().filter(|frame| (1..20).contains(&frame.given.len())).count();
    assert!(decided > 50, "{decided}");
}

/// What a block says of itself is in its names.
#[test]
fn the_first_cycle_of_a_block_has_names() {
    let mut run = Run::start(false);
    run.cycles(3);
    run.writer.flush().unwrap();
    let bytes = fs::read(&files(&run.folder())[0]).unwrap();
    let raw = zstd::decode_all(&bytes[..]).unwrap();
    let has = |text: &str| raw.windows(text.len()).filter(|at| *at == text.as_bytes()).count();
    for once in ["ebb-recording", "written_bytes", "late", "power_state", "ssd_power"] {
        assert!(has(once) >= 1, "{once}");
    }
    assert_eq!(has("busiest"), 1 + 2 * 2, "in the header, and of each group as it is and was");
}

#[test]
fn another_decision_is_found_with_what_and_why() {
    let mut run = Run::start(false);
    run.cycles(300);
    run.writer.flush().unwrap();
    let change = |of: fn(&mut Frame)| {
        let mut changed = None;
        let folder = rewritten(&run.folder(), |entry| {
            if let Entry::Frame(frame) = entry
                && frame.number >= 150
                && changed.is_none()
                && !frame.given.is_empty()
            {
                of(frame);
                changed = Some(frame.number);
            }
        });
        let told = read(folder.path()).unwrap();
        assert_eq!(told.same + told.other, 300);
        let first = told.first.clone().unwrap();
        assert_eq!(Some(first.number), changed);
        (told, first)
    };
    let (_, first) = change(|frame| frame.given[0].reason = "pacer:whim".to_owned());
    assert_eq!(first.recorded.reason, "pacer:whim");
    assert!(first.control.is_some() && first.again.reason != "pacer:whim", "{first:?}");
    let (_, first) = change(|frame| {
        frame.given[0].asked = Some(frame.given[0].asked.unwrap_or_default().next_up());
    });
    assert_eq!(first.recorded.reason, first.again.reason);
    // What is given stands until it changes, the rest is of one cycle.
    let (told, first) = change(|frame| frame.emergency = true);
    assert_eq!((told.other, first.control), (1, None));
}

#[test]
fn another_signal_decides_otherwise() {
    let mut run = Run::start(false);
    run.cycles(300);
    run.writer.flush().unwrap();
    let folder = rewritten(&run.folder(), |entry| {
        if let Entry::Frame(frame) = entry
            && frame.number == 100
        {
            let hot = |reading: &mut Reading| reading.temperature = Celsius(92.0);
            frame.signals.cooling.sockets.iter_mut().flatten().for_each(hot);
        }
    });
    let told = read(folder.path()).unwrap();
    assert!(told.other > 0, "{told:?}");
    let first = told.first.unwrap();
    assert!(first.number >= 100 && first.recorded != first.again, "{first:?}");
}

/// The recording in `folder` with each entry changed.
fn rewritten(folder: &Path, mut change: impl FnMut(&mut Entry)) -> TempDir {
    let mut raw = Vec::new();
    for mut entry in entries(folder) {
        change(&mut entry);
        raw.extend(rmp_serde::to_vec(&entry).unwrap());
    }
    let to = tempfile::tempdir().unwrap();
    fs::write(to.path().join("00000001.ebb.zst"), zstd::bulk::compress(&raw, 1).unwrap()).unwrap();
    to
}

#[test]
fn what_is_lost_is_a_gap_and_the_next_start_is_decided_again() {
    let mut run = Run::start(false);
    run.cycles(100);
    run.lose(7);
    run.cycles(50);
    run.begin(1);
    run.cycles(20);
    let told = run.again();
    assert_eq!((told.same, told.other, told.unknown), (120, 0, 50));
    assert_eq!((told.gaps.0[0].cycles, told.gaps.1), (Some(7), 1));
}

/// Wherever it is cut, all blocks before are there; wherever a byte is other, that block is left
/// out and named, or it was no byte that says anything.
#[test]
fn what_is_cut_or_damaged_costs_its_block_and_is_said() {
    let mut run = Run::start(false);
    run.cycles(390);
    run.writer.flush().unwrap();
    let file = &files(&run.folder())[0];
    let bytes = fs::read(file).unwrap();
    // Of a minute each.
    let whole = [0, 120, 240, 360, 390];
    let step = (bytes.len() / 150).max(1);
    for length in (1..bytes.len()).step_by(step) {
        fs::write(file, &bytes[..length]).unwrap();
        let told = read(&run.folder()).unwrap();
        assert!(whole.contains(&told.same) && told.same < 390, "{length}: {told:?}");
        assert_eq!((told.other, told.unknown), (0, 0), "{length}");
        let is_between = told.cuts.1 == 0;
        assert!(is_between || told.cuts.0[0].file.ends_with(".ebb.zst"), "{told:?}");
    }
    for at in (0..bytes.len()).step_by(step) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        fs::write(file, damaged).unwrap();
        let told = read(&run.folder()).unwrap();
        assert!(told.cuts.1 >= 1 || told.same == 390, "{at}: {told:?}");
        assert_eq!(told.other, 0, "{at}: {told:?}");
        assert_eq!(told.same + told.unknown, told.cycles);
    }
    fs::write(file, &bytes).unwrap();
    assert_eq!(read(&run.folder()).unwrap().same, 390);
}

#[test]
fn a_restart_begins_a_new_file_and_the_oldest_go() {
    let keep = Bytes(1_200_000);
    let mut run = Run::kept(false, keep);
    run.cycles(240);
    let first = files(&run.folder());
    assert_eq!(first.len(), 1);
    fs::write(run.folder().join("notes.txt"), "the operator's").unwrap();
    run.writer = Writer::new(&run.folder(), keep, Header::new("1.2.3", None)).unwrap();
    run.begin(1);
    run.cycles(240);
    assert!(files(&run.folder())[1].ends_with("00000002.ebb.zst"));
    run.cycles(120 * 40);
    let told = run.again();
    let left = files(&run.folder());
    let sum: u64 = left.iter().map(|file| file.metadata().unwrap().len()).sum();
    assert!(sum <= keep.0 && sum > keep.0 / 2, "{sum}");
    assert!(!left.contains(&first[0]) && run.folder().join("notes.txt").exists());
    // The start of the run is gone, and with it what the policy remembered.
    assert!(told.same == 0 && told.unknown == told.cycles && told.cycles > 0, "{told:?}");
    assert_eq!((told.gaps.1, told.gaps.0[0].cycles), (1, None));
}

#[test]
fn other_versions_are_refused_and_say_which_is_needed() {
    let mut run = Run::start(false);
    run.cycles(5);
    run.writer.flush().unwrap();
    for (change, says) in [
        (0, "recorded by Ebb 1.2.3 (abcdef012345), in form 2 where this one reads form 1"),
        (1, "which has other signals: decide again with that version"),
        (2, "which has other controls"),
        (3, "as \"tar\""),
    ] {
        let folder = rewritten(&run.folder(), |entry| {
            if let Entry::Header(header) = entry {
                match change {
                    0 => header.version = 2,
                    1 => header.signals.swap(0, 1),
                    2 => header.controls.truncate(3),
                    _ => header.format = "tar".to_owned(),
                }
            }
        });
        let error = read(folder.path()).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("00000001.ebb.zst"), "{error}");
    }
    let empty = tempfile::tempdir().unwrap();
    let error = Reader::open(empty.path()).err().unwrap().to_string();
    assert!(error.contains("ebb run --record"), "{error}");
}

/// Of strangers: refused or decided, whatever it is.
#[test]
fn what_cannot_have_been_recorded_is_refused() {
    let mut run = Run::start(false);
    run.cycles(30);
    run.writer.flush().unwrap();
    type Change = fn(&mut Entry);
    let changes: &[Change] = &[
        |entry| {
            if let Entry::Begun(begun) = entry {
                begun.topology.frequencies.clear();
            }
        },
        |entry| {
            if let Entry::Begun(begun) = entry {
                begun.topology.groups[1].min_cores = 9;
            }
        },
        |entry| {
            if let Entry::Begun(begun) = entry {
                begun.topology.fans[0].min_duty = f64::NAN;
            }
        },
        |entry| {
            if let Entry::Made(made) = entry {
                made.policy = "pacer+pacer".to_owned();
            }
        },
        |entry| {
            if let Entry::Made(made) = entry {
                made.curve = Some(vec![(0.0, 2.0)]);
            }
        },
        |entry| {
            if let Entry::Begun(begun) = entry {
                begun.governed.pop();
            }
        },
        |entry| {
            if let Entry::Frame(frame) = entry {
                frame.signals.drives.pop();
            }
        },
        |entry| {
            if let Entry::Frame(frame) = entry {
                frame.signals.now = Nanos(u64::MAX);
            }
        },
        |entry| {
            if let Entry::Frame(frame) = entry {
                frame.signals.io.reads.bytes = Some(u64::MAX);
            }
        },
        |entry| {
            if let Entry::Frame(frame) = entry {
                frame.given.iter_mut().for_each(|given| given.part = 4000);
            }
        },
        |entry| {
            if let Entry::Frame(frame) = entry {
                frame.sources.iter_mut().for_each(|source| source.signal = 255);
            }
        },
    ];
    for (which, change) in changes.iter().enumerate() {
        let folder = rewritten(&run.folder(), change);
        let error = read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("no recording of this Ebb"), "{which}: {error}");
    }
}

/// A few bytes of what stands in a block are other, and its checksum is right.
#[test]
fn whatever_stands_in_a_block_is_refused_or_decided() {
    let mut run = Run::start(true);
    run.cycles(20);
    run.change("pacer+pacman", Watts(80.0));
    run.cycles(10);
    run.writer.flush().unwrap();
    let raw = zstd::decode_all(&fs::read(&files(&run.folder())[0]).unwrap()[..]).unwrap();
    let (mut random, folder) = (Noise::new(false), tempfile::tempdir().unwrap());
    let (mut refused, mut decided) = (0, 0);
    for _ in 0..400 {
        let mut changed = raw.clone();
        for _ in 0..1 + random.next() % 4 {
            let at = random.next() as usize % changed.len();
            changed[at] = random.next() as u8;
        }
        let packed = zstd::bulk::compress(&changed, 1).unwrap();
        fs::write(folder.path().join("00000001.ebb.zst"), packed).unwrap();
        match read(folder.path()) {
            Ok(told) => {
                assert_eq!(told.same + told.other + told.unknown, told.cycles);
                decided += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(refused > 0 && decided > 100, "{refused} {decided}");
}

/// An hour at 2 Hz: `cargo test --release -p ebb-record -- --ignored --nocapture an_hour`.
#[test]
#[ignore = "measures"]
fn an_hour() {
    let mut run = Run::start(false);
    let begun = std::time::Instant::now();
    run.lose(7200);
    let alone = begun.elapsed();
    run.begin(1);
    let begun = std::time::Instant::now();
    run.cycles(7200);
    run.writer.flush().unwrap();
    let (recorded, folder) = (begun.elapsed(), run.folder());
    let size: u64 = files(&folder).iter().map(|file| file.metadata().unwrap().len()).sum();
    let begun = std::time::Instant::now();
    let told = read(&folder).unwrap();
    println!(
        "16 cores, 8 drives, 7,200 cycles: {size} bytes; a cycle {:?}, recorded {:?} more, \
         decided again {:?}",
        alone / 7200,
        recorded.saturating_sub(alone) / 7200,
        begun.elapsed() / 7200
    );
    assert_eq!((told.same, told.cycles), (7200, 7200));
    assert!(size < 10_000_000);
}
