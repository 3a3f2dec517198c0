//! Requests, loaded before anything is issued, "so reading it will not interfere with the
//! experiment" (section 3.1 of the paper), and laid onto the target.

use std::collections::BTreeMap;

use anyhow::Result;
use schemars::JsonSchema;
use serde::Serialize;

use ebb_cli::input::FileReport;
use ebb_cli::{interrupt, usage};
use ebb_host::Sys;
use ebb_policy::units::Bytes;
use ebb_trace::{Op, Source};

use super::args::Beyond;
use super::content::BLOCK;
use super::pattern::Shape;
use crate::load::arrivals::{Arrivals, Schedule};

/// The longest request: each one in flight has a buffer.
const LONGEST: u64 = 1 << 30;

/// A request that waits for its time.
#[derive(Debug, Clone, Copy)]
pub struct Planned {
    /// When it is due, in nanoseconds since the start.
    pub at: u64,
    /// First byte, of its device until it is placed, then of the target.
    pub offset: u64,
    /// Length.
    pub bytes: u32,
    device: u16,
    /// What it does.
    pub op: Op,
}

/// What became of the requests on their way to the target.
#[derive(Debug, Default, Clone, Serialize, JsonSchema)]
pub struct Loaded {
    /// What became of the trace files.
    pub files: Vec<FileReport>,
    /// In each repeat.
    pub requests: u64,
    /// Bytes that they read.
    pub read_bytes: u64,
    /// Bytes that they write.
    pub write_bytes: u64,
    /// Of the trace, side by side on the target.
    pub devices: u64,
    /// Beyond the target, taken modulo.
    pub wrapped: u64,
    /// To whole blocks.
    pub widened: u64,
    /// What is not plain about the files of a workload.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// All requests of a replay.
#[derive(Debug, Default)]
pub struct Requests {
    /// Of each stream, in the order of their times.
    pub streams: Vec<Vec<Planned>>,
    /// What became of them.
    pub loaded: Loaded,
    /// How far each device reaches.
    extents: BTreeMap<u16, u64>,
}

/// Where the requests of a source go.
#[derive(Debug, Clone, Copy)]
pub enum Deal {
    /// All to this stream.
    To(usize),
    /// By their own streams to so many.
    Among(usize),
}

impl Requests {
    /// None, of so many streams.
    pub fn new(streams: usize) -> Self {
        Self { streams: vec![Vec::new(); streams], ..Self::default() }
    }

    /// Those of a pattern.
    pub fn pattern(shape: Shape) -> Self {
        let mut this = Self::new(shape.streams as usize);
        for (stream, to) in this.streams.iter_mut().enumerate() {
            let planned = |(op, offset)| {
                let bytes = shape.request as u32;
                Planned { at: 0, offset, bytes, device: 0, op }
            };
            to.extend(shape.stream(stream as u64).map(planned));
        }
        this.extents = BTreeMap::from([(0, shape.extent().unwrap_or(u64::MAX))]);
        this
    }

    /// Reads `source` to its end; `name` stands in errors.
    ///
    /// # Errors
    /// A trace that cannot be read, a request too long for any buffer, too many for the memory.
    pub fn read(&mut self, source: &mut dyn Source, deal: Deal, name: &str) -> Result<()> {
        let most = most_requests();
        let mut batch = Vec::new();
        let mut count: u64 = self.streams.iter().map(|stream| stream.len() as u64).sum();
        loop {
            batch.clear();
            source.fill(&mut batch)?;
            if batch.is_empty() {
                return Ok(());
            }
            if interrupt::asked() {
                return Err(ebb_cli::Interrupted.into());
            }
            count += batch.len() as u64;
            if count > most {
                return Err(usage(format!(
                    "{name}: more than {most} requests, which half of the free memory holds; \
                     replay a part of it with --from and --to"
                )));
            }
            for request in &batch {
                let bytes = u64::from(request.bytes);
                let moves = matches!(request.op, Op::Read | Op::Write);
                if bytes > LONGEST && moves {
                    let (bytes, most) = (Bytes(bytes), Bytes(LONGEST));
                    let reason = format!("a request of {bytes}, longer than the {most} possible");
                    return Err(usage(format!("{name}: {reason}")));
                }
                let stream = match deal {
                    Deal::To(stream) => stream,
                    Deal::Among(streams) => request.stream as usize % streams,
                };
                if request.op != Op::Flush {
                    self.extend(request.device, request.offset.saturating_add(bytes));
                }
                self.streams[stream].push(Planned {
                    at: request.at.0,
                    offset: request.offset,
                    bytes: request.bytes,
                    device: request.device,
                    op: request.op,
                });
            }
        }
    }

    fn extend(&mut self, device: u16, end: u64) {
        let extent = self.extents.entry(device).or_default();
        *extent = end.max(*extent);
    }

    /// How much of a target they need, with their devices side by side.
    pub fn extent(&self) -> u64 {
        self.extents.values().map(|extent| whole(*extent)).fold(0, u64::saturating_add)
    }

    /// The longest read or write.
    pub fn longest(&self) -> u32 {
        let moves = |request: &&Planned| matches!(request.op, Op::Read | Op::Write);
        self.streams.iter().flatten().filter(moves).map(|request| request.bytes).max().unwrap_or(0)
    }

    /// Whether any of them changes the target.
    pub fn writes(&self) -> bool {
        self.streams.iter().flatten().any(|request| matches!(request.op, Op::Write | Op::Trim))
    }

    /// Whether any of them reads it.
    pub fn reads(&self) -> bool {
        self.streams.iter().flatten().any(|request| request.op == Op::Read)
    }

    /// Gives them the times of a schedule instead of their own.
    pub fn schedule(&mut self, schedule: &Schedule, seed: u64) {
        let of = self.streams.len();
        for (index, stream) in self.streams.iter_mut().enumerate() {
            let mut arrivals = Arrivals::new(schedule, index, of, seed);
            for request in stream {
                request.at = arrivals.next().0.0;
                arrivals.step();
            }
        }
    }

    /// Lays them onto a target of so many bytes, in whole blocks of it.
    ///
    /// # Errors
    /// Requests beyond its end, unless they are to be wrapped; a request longer than it.
    pub fn place(&mut self, bytes: u64, block: u64, beyond: Beyond) -> Result<()> {
        let mut bases = BTreeMap::new();
        let mut base = 0_u64;
        for (device, extent) in &self.extents {
            bases.insert(*device, base);
            base = base.saturating_add(whole(*extent));
        }
        let size = bytes / block.max(BLOCK) * block.max(BLOCK);
        let extent = self.extent();
        self.loaded.devices = bases.len() as u64;
        let loaded = &mut self.loaded;
        for request in self.streams.iter_mut().flatten().filter(|r| r.op != Op::Flush) {
            let base = bases.get(&request.device).copied().unwrap_or(0);
            let wanted = request.offset.saturating_add(base);
            let length = u64::from(request.bytes);
            let mut first = wanted / block * block;
            let end = wanted.saturating_add(length).checked_next_multiple_of(block);
            let mut long = end.unwrap_or(u64::MAX) - first;
            loaded.widened += u64::from(first != wanted || long != length);
            if end.is_none_or(|end| end > bytes) {
                if beyond == Beyond::Refuse {
                    return Err(refused(request, Bytes(bytes), extent));
                }
                loaded.wrapped += 1;
                let wrapped = if size > 0 { wanted % size } else { 0 };
                first = wrapped / block * block;
                long = (wrapped + length).next_multiple_of(block) - first;
                // What would cross the end moves to just before it.
                first = first.min(size.saturating_sub(long) / block * block);
            }
            if long > bytes || u32::try_from(long).is_err() {
                let (long, bytes) = (Bytes(long), Bytes(bytes));
                return Err(usage(format!("a request of {long} does not fit a target of {bytes}")));
            }
            (request.offset, request.bytes) = (first, long as u32);
        }
        self.count();
        Ok(())
    }

    fn count(&mut self) {
        let sum = |op: Op| -> u64 {
            let all = self.streams.iter().flatten().filter(|request| request.op == op);
            all.map(|request| u64::from(request.bytes)).sum()
        };
        let (read, write) = (sum(Op::Read), sum(Op::Write));
        (self.loaded.read_bytes, self.loaded.write_bytes) = (read, write);
        self.loaded.requests = self.streams.iter().map(|stream| stream.len() as u64).sum();
    }
}

/// In whole blocks.
fn whole(extent: u64) -> u64 {
    extent.checked_next_multiple_of(BLOCK).unwrap_or(u64::MAX)
}

fn refused(request: &Planned, bytes: Bytes, extent: u64) -> anyhow::Error {
    let Planned { offset, bytes: length, device, .. } = request;
    usage(format!(
        "a request of device {device} at {offset}, {length} bytes long, lies beyond the {bytes} of \
         the target; the requests reach over {}: take a larger target, or let offsets wrap with \
         --beyond wrap",
        Bytes(extent)
    ))
}

/// As many as half of the free memory holds.
fn most_requests() -> u64 {
    let text = Sys::default().text("proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map_or(u64::MAX, |kib| kib * 1024 / 2 / size_of::<Planned>() as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use ebb_trace::{OpenOptions, open_bytes};

    use super::*;

    const HEADING: &str = "at_ns,op,offset,bytes,device,stream,latency_ns\n";

    fn requests(lines: &str, streams: usize) -> Requests {
        let text = format!("{HEADING}{lines}").into_bytes();
        let mut source = open_bytes("trace", text, &OpenOptions::default()).unwrap();
        let mut requests = Requests::new(streams);
        requests.read(&mut source, Deal::Among(streams), "trace").unwrap();
        requests
    }

    fn places(requests: &Requests) -> Vec<(u64, u32)> {
        requests.streams.iter().flatten().map(|r| (r.offset, r.bytes)).collect()
    }

    #[test]
    fn devices_lie_side_by_side_and_streams_are_kept_apart() {
        let lines = "0,R,0,4096,7,0,\n10,W,8192,4096,7,1,\n20,R,4096,512,3,0,\n30,F,0,0,3,2,\n";
        let mut requests = requests(lines, 2);
        assert_eq!(requests.extent(), 8192 + 12_288);
        assert!(requests.writes() && requests.reads());
        requests.place(1 << 20, 512, Beyond::Refuse).unwrap();
        let of = |stream: usize| -> Vec<_> {
            requests.streams[stream].iter().map(|r| (r.at, r.offset, r.bytes)).collect()
        };
        assert_eq!(of(0), [(0, 8192, 4096), (20, 4096, 512), (30, 0, 0)]);
        assert_eq!(of(1), [(10, 16_384, 4096)]);
        assert_eq!((requests.loaded.devices, requests.loaded.widened), (2, 0));
        assert_eq!((requests.loaded.read_bytes, requests.loaded.write_bytes), (4608, 4096));
    }

    #[test]
    fn what_is_no_whole_block_is_widened_and_told() {
        let mut requests = requests("0,R,100,10,0,0,\n1,R,4000,200,0,0,\n", 1);
        requests.place(1 << 20, 4096, Beyond::Refuse).unwrap();
        assert_eq!(places(&requests), [(0, 4096), (0, 8192)]);
        assert_eq!(requests.loaded.widened, 2);
    }

    #[test]
    fn requests_beyond_the_target_are_refused_with_a_remedy() {
        let mut requests = requests("0,R,1048576,4096,5,0,\n", 1);
        let error = requests.place(1 << 20, 512, Beyond::Refuse).unwrap_err().to_string();
        assert!(
            error.contains("device 5 at 1048576") && error.contains("--beyond wrap"),
            "{error}"
        );
    }

    proptest! {
        /// Wherever they were recorded: wrapped requests lie on the target, whole blocks of it.
        #[test]
        fn wrapped_requests_lie_on_the_target(
            all in proptest::collection::vec((any::<u64>(), 1_u32..100_000, 0_u16..4), 1..40),
            blocks in 40_u64..1000, block in prop_oneof![Just(512_u64), Just(4096)],
        ) {
            let line = |(offset, bytes, device): &(u64, u32, u16)| {
                format!("0,R,{},{bytes},{device},0,\n", offset >> 1)
            };
            let mut requests = requests(&all.iter().map(line).collect::<String>(), 1);
            let bytes = blocks * 4096;
            requests.place(bytes, block, Beyond::Wrap).unwrap();
            for (offset, length) in places(&requests) {
                let length = u64::from(length);
                prop_assert!(offset.is_multiple_of(block) && length.is_multiple_of(block));
                prop_assert!(offset + length <= bytes);
            }
        }
    }
}
