//! What is printed at the end, for people and as JSON (docs/json-schema/load-1.json).

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use anyhow::Result;

use ebb_cli::text;
use ebb_initiator::{Identity, describe};
use ebb_nvme::Status;

use super::meter::Meter;
use super::plan::{Pace, Plan};
use super::replay::TraceReport;
use super::session::Outage;
use super::verify::{Findings, Mismatch};
use super::{Ended, Measured};
use crate::latency::{LatencyReport, nanos};
use crate::measured::{NAMES, OpReport, table};

/// Version 1. Measured, not simulated. Latencies count from the intended start of each request.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "ebb load --json")]
pub struct Report {
    #[schemars(extend("const" = 1))]
    schema: u32,
    target: TargetReport,
    load: LoadReport,
    /// Whether everything planned was done.
    completed: bool,
    /// Why the load ended before its time.
    ended: Option<String>,
    /// Time counted: from the end of the warm-up to the planned end, or to the last answer if that
    /// is later.
    #[schemars(range(min = 0))]
    seconds: f64,
    total: OpReport,
    /// Operations that there were.
    #[schemars(extend("propertyNames" = { "enum": ["read", "write", "flush", "trim"] }))]
    by_op: BTreeMap<&'static str, OpReport>,
    /// Between bursts, in the first 10 ms of each, in the rest of each.
    bursts: Option<Bursts>,
    /// From the intended start to sending.
    send_delay_ns: Option<LatencyReport>,
    client_cpu: Cpu,
    errors: Vec<ErrorReport>,
    /// Commands cut off by a lost connection and not repeated.
    interrupted: u64,
    /// Requests that were due before the end and never sent.
    unsent: u64,
    /// Connections lost and made again.
    outages: Vec<OutageReport>,
    trace: Option<TraceReport>,
    verify: Option<Verified>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct TargetReport {
    address: String,
    /// NQN.
    subsystem: String,
    model: String,
    serial: String,
    firmware: String,
    namespaces: Vec<NamespaceReport>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct NamespaceReport {
    id: u32,
    /// Bytes.
    block_size: u32,
    /// Size.
    bytes: u64,
    /// Where the part in use begins.
    first_byte: u64,
    /// Its size.
    used_bytes: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
struct LoadReport {
    #[schemars(extend("enum" = ["closed", "open", "trace"]))]
    pace: &'static str,
    #[schemars(extend("enum" = ["read", "write", "rw", "randread", "randwrite", "randrw", null]))]
    rw: Option<String>,
    /// Share of reads.
    #[schemars(range(max = 1))]
    reads: Option<f64>,
    /// Bytes of a request.
    block_size: Option<u64>,
    /// Per connection and namespace in a closed loop, else the most per connection.
    queue_depth: usize,
    connections: u16,
    /// Of each thread; null where it may run anywhere.
    cores: Vec<Option<usize>>,
    threads: usize,
    #[schemars(extend("enum" = ["poll", "wait"]))]
    mode: &'static str,
    /// Requests per second between bursts.
    rate: Option<f64>,
    /// How many times as fast as recorded a trace is replayed.
    #[schemars(extend("exclusiveMinimum" = 0))]
    speed: Option<f64>,
    burst: Option<BurstReport>,
    header_digest: bool,
    data_digest: bool,
    seed: u64,
}

/// A higher rate at the end of each period.
#[derive(Debug, Serialize, JsonSchema)]
struct BurstReport {
    #[schemars(extend("exclusiveMinimum" = 0))]
    length_s: f64,
    #[schemars(extend("exclusiveMinimum" = 0))]
    period_s: f64,
    /// Requests per second in bursts.
    #[schemars(extend("exclusiveMinimum" = 0))]
    rate: f64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Bursts {
    between: Option<LatencyReport>,
    onset: Option<LatencyReport>,
    rest: Option<LatencyReport>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
struct Cpu {
    /// Processor time of the load's threads in the time counted.
    seconds: f64,
    ns_per_request: Option<f64>,
    /// Whether looking for completions in vain is in it.
    includes_polling: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ErrorReport {
    #[schemars(extend("enum" = ["read", "write", "flush", "trim"]))]
    op: &'static str,
    /// SCT.
    status_type: u8,
    /// SC.
    status_code: u8,
    what: String,
    count: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
struct OutageReport {
    /// Since the start of the load or sweep.
    at_seconds: f64,
    lasted_seconds: f64,
}

/// What `--verify` found.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Verified {
    /// Blocks read that were as written.
    right_blocks: u64,
    /// Read, but nothing was known of them.
    unknown_blocks: u64,
    /// Blocks read that were wrong.
    wrong_blocks: u64,
    /// Whether all that was written was read back at the end.
    read_back: bool,
    /// Requests that found another in flight on the same blocks.
    overlaps: u64,
    /// The first of them.
    mismatches: Vec<Mismatch>,
}

impl Verified {
    /// From what all threads found.
    pub fn new(findings: &Findings, read_back: bool) -> Self {
        Self {
            right_blocks: findings.right,
            unknown_blocks: findings.unknown,
            wrong_blocks: findings.wrong,
            read_back: read_back && findings.failed == 0,
            overlaps: 0,
            mismatches: findings.first.clone(),
        }
    }
}

fn errors(meter: &Meter) -> Vec<ErrorReport> {
    let one = |(&(op, field), &count): (&(u8, u16), &u64)| {
        let status = Status::from_field(field);
        ErrorReport {
            op: NAMES[usize::from(op)],
            status_type: status.kind,
            status_code: status.code,
            what: describe(status),
            count,
        }
    };
    meter.errors.iter().map(one).collect()
}

fn bursts(meter: &Meter) -> Option<Bursts> {
    let [between, onset, rest] = meter.phases.as_ref()?;
    let (between, onset, rest) = (between.report(), onset.report(), rest.report());
    Some(Bursts { between, onset, rest })
}

impl Report {
    /// From all that is known; without `measured` the load was never begun.
    pub fn new(
        plan: &Plan,
        identity: Identity,
        measured: Option<Measured>,
        ended: Option<Ended>,
        outages: &[Outage],
        verified: Option<Verified>,
    ) -> Result<Self> {
        let (meter, elapsed, trace) = match measured {
            Some(Measured { meter, elapsed, trace }) => (meter, elapsed, trace),
            None => (Meter::new(false)?, Duration::ZERO, None),
        };
        let seconds = elapsed.as_secs_f64();
        let (total, by_op) = meter.requests.report(seconds)?;
        let cpu = meter.cpu.as_secs_f64();
        let read_back = verified.as_ref().is_none_or(|verified| verified.read_back);
        let verified = verified.map(|v| Verified { overlaps: meter.overlaps, ..v });
        let closed = matches!(plan.pace, Pace::Closed);
        Ok(Self {
            schema: 1,
            target: target(plan, identity),
            load: load(plan),
            completed: ended.is_none() && read_back,
            ended: ended.map(|ended| ended.to_string()),
            seconds,
            by_op,
            bursts: bursts(&meter),
            send_delay_ns: if closed { None } else { meter.delay.report() },
            client_cpu: Cpu {
                seconds: cpu,
                ns_per_request: (total.requests > 0).then(|| cpu * 1e9 / total.requests as f64),
                includes_polling: !plan.wait,
            },
            total,
            errors: errors(&meter),
            interrupted: meter.interrupted,
            unsent: meter.unsent,
            outages: outages
                .iter()
                .map(|outage| OutageReport {
                    at_seconds: outage.at.as_secs_f64(),
                    lasted_seconds: outage.lasted.as_secs_f64(),
                })
                .collect(),
            trace,
            verify: verified,
        })
    }

    /// Why the run failed, if it did.
    pub fn failure(&self) -> Option<String> {
        if let Some(ended) = &self.ended {
            return Some(format!("{ended}; the results cover the time until then"));
        }
        if let Some(verify) = self.verify.as_ref().filter(|verify| verify.wrong_blocks > 0) {
            return Some(format!(
                "{} blocks read differ from what was written",
                verify.wrong_blocks
            ));
        }
        let failed: u64 = self.errors.iter().map(|error| error.count).sum();
        (failed > 0).then(|| format!("{failed} requests failed"))
    }
}

fn target(plan: &Plan, identity: Identity) -> TargetReport {
    let namespaces = plan.spaces.iter().map(|space| {
        let block = u64::from(space.namespace.block_size);
        NamespaceReport {
            id: space.namespace.id,
            block_size: space.namespace.block_size,
            bytes: space.namespace.bytes(),
            first_byte: space.first * block,
            used_bytes: space.blocks * block,
        }
    });
    TargetReport {
        address: plan.target.address.to_string(),
        subsystem: plan.target.subsystem.clone(),
        model: identity.model,
        serial: identity.serial,
        firmware: identity.firmware,
        namespaces: namespaces.collect(),
    }
}

fn load(plan: &Plan) -> LoadReport {
    let generated = !matches!(plan.pace, Pace::Trace(_));
    LoadReport {
        pace: match plan.pace {
            Pace::Closed => "closed",
            Pace::Open(_) => "open",
            Pace::Trace(_) => "trace",
        },
        rw: generated.then(|| format!("{:?}", plan.rw).to_lowercase()),
        reads: generated.then_some(plan.reads),
        block_size: generated.then_some(plan.bytes),
        queue_depth: plan.depth,
        connections: plan.connections,
        cores: plan.cores.clone(),
        threads: plan.cores.len(),
        mode: if plan.wait { "wait" } else { "poll" },
        rate: match &plan.pace {
            Pace::Open(schedule) => Some(schedule.rate),
            _ => None,
        },
        speed: match plan.pace {
            Pace::Trace(speed) => Some(speed),
            _ => None,
        },
        burst: match &plan.pace {
            Pace::Open(schedule) => schedule.burst.map(|burst| BurstReport {
                length_s: burst.length.seconds(),
                period_s: burst.period.seconds(),
                rate: burst.rate.0,
            }),
            _ => None,
        },
        header_digest: plan.target.digests.header,
        data_digest: plan.target.digests.data,
        seed: plan.seed,
    }
}

impl Report {
    /// For people.
    pub fn text(&self) -> String {
        let TargetReport { address, subsystem, model, .. } = &self.target;
        let about = format!("{address}  {subsystem}  {model}\n{}\n", self.heading());
        format!("{about}\n{}\n\n{}\n", self.table(), self.remarks().join("\n"))
    }

    fn heading(&self) -> String {
        let load = &self.load;
        let what = match (&load.rw, load.block_size) {
            (Some(rw), Some(size)) => format!("{rw} of {}", text::bytes(size as f64)),
            _ => "trace".to_owned(),
        };
        let mut pace = match (load.rate, load.speed) {
            (Some(rate), _) => format!("open loop at {}/s", text::short(rate)),
            (_, Some(1.0)) => "in real time".to_owned(),
            (_, Some(speed)) => format!("at {} times its speed", text::short(speed)),
            _ => "closed loop".to_owned(),
        };
        if let Some(BurstReport { length_s, period_s, rate }) = load.burst {
            let [length, period] = [length_s, period_s].map(text::seconds);
            pace += &format!(" and {}/s for {length} every {period}", text::short(rate));
        }
        let plural = if load.connections == 1 { "" } else { "s" };
        format!(
            "{what}, {pace}, {} connection{plural}, queue depth {}, {} thread{} ({}), seed {}, {}",
            load.connections,
            load.queue_depth,
            load.threads,
            if load.threads == 1 { "" } else { "s" },
            if load.mode == "poll" { "busy polling" } else { "waiting" },
            load.seed,
            text::seconds(self.seconds),
        )
    }

    fn table(&self) -> String {
        let bursts = self.bursts.iter().flat_map(|Bursts { between, onset, rest }| {
            [("between bursts", between), ("first 10 ms", onset), ("in bursts", rest)]
        });
        let bursts = bursts.filter_map(|(name, latency)| Some((name, latency.as_ref()?)));
        table(&self.total, &self.by_op, bursts)
    }

    fn remarks(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let cpu = &self.client_cpu;
        if let Some(each) = cpu.ns_per_request {
            let polling = if cpu.includes_polling { ", busy polling included" } else { "" };
            lines.push(format!("client CPU: {} per request{polling}", nanos(each)));
        }
        if let Some(delay) = &self.send_delay_ns {
            lines.push(format!(
                "sent after their time: median {}, p99 {}, at most {} (part of the latencies)",
                nanos(delay.p50 as f64),
                nanos(delay.p99 as f64),
                nanos(delay.max as f64)
            ));
        }
        for error in &self.errors {
            lines.push(format!("{} {}s failed: {}", error.count, error.op, error.what));
        }
        if self.unsent > 0 {
            lines.push(format!(
                "{} requests were due and could not even be sent: the target did not keep up, and \
                 the latencies are of those that were sent",
                self.unsent
            ));
        }
        if self.interrupted > 0 {
            lines.push(format!("{} requests were cut off and not repeated", self.interrupted));
        }
        for outage in &self.outages {
            lines.push(format!(
                "connection lost at {}, made again after {}",
                text::seconds(outage.at_seconds),
                text::seconds(outage.lasted_seconds)
            ));
        }
        if let Some(trace) = &self.trace {
            lines.push(format!(
                "trace: {} requests, {} folded onto the namespaces, {} widened to whole blocks, {} \
                 cut to the namespace",
                trace.requests, trace.folded, trace.aligned, trace.cut
            ));
            for file in &trace.files {
                lines.extend(file.notes.iter().map(|note| format!("{}: {note}", file.file)));
            }
        }
        if let Some(verify) = &self.verify {
            lines.extend(verify.lines());
        }
        lines
    }
}

impl Verified {
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "verify: {} blocks right, {} wrong, {} of unknown content; final read-back {}; {} \
             requests waited for another on the same blocks",
            self.right_blocks,
            self.wrong_blocks,
            self.unknown_blocks,
            if self.read_back { "done" } else { "NOT done" },
            self.overlaps
        )];
        for wrong in &self.mismatches {
            let Mismatch { namespace, lba, offset, what, expected, found } = wrong;
            lines.push(format!("  namespace {namespace}, LBA {lba}, byte {offset}: {what}"));
            lines.push(format!("    expected {expected}"));
            lines.push(format!("    found    {found}"));
        }
        lines
    }
}
