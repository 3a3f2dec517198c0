//! What the status of a running server has, as JSON.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ebb_policy::units::Nanos;
use ebb_target::device;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::access::Access;

/// Version 1; also what GET /status at the metrics' address answers. Totals count from the start.
/// Everything was measured but what is called modelled.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "ebb status --json")]
pub struct Status {
    #[schemars(extend("const" = 1))]
    pub schema: u32,
    pub server: Server,
    /// Time that shares, rates and powers are taken over: about ten seconds, less at first.
    #[schemars(range(min = 0))]
    pub window_s: f64,
    #[schemars(length(min = 1))]
    pub cores: Vec<Core>,
    pub threads: Vec<Thread>,
    pub namespaces: Vec<Namespace>,
    /// The ways to namespaces; absent before version 0.2.
    #[serde(default)]
    pub paths: Vec<Path>,
    /// What hosts with limits may do in a second; absent before version 0.2.
    #[serde(default)]
    pub limits: Vec<Limit>,
    pub connections: Connections,
    /// Who gets in.
    #[serde(default)]
    pub access: Access,
    pub queues: Queues,
    pub rates: Rates,
    /// Time of I/O commands in the target, from the poll that takes a command up to the queueing of
    /// its answer; percentiles to an eighth above.
    pub service: Vec<Latency>,
    /// RAPL's domains where they can be read, else the model of the reactors' cores above the idle
    /// machine.
    pub energy: Vec<Energy>,
    /// Namespaces whose timing and power are modelled.
    pub drives: Vec<ModelledDrive>,
    pub shifts: Shifts,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Server {
    pub version: String,
    pub nqn: String,
    pub listen: Vec<SocketAddr>,
    pub scheduler: String,
    /// How cores doze on this machine.
    pub doze_by: String,
    #[schemars(range(min = 0))]
    pub uptime_s: f64,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct Core {
    /// From 0, the main one.
    pub core: u16,
    pub cpu: usize,
    /// Now.
    #[schemars(extend("enum" = ["polling", "dozing", "blocked", "napping"]))]
    pub state: String,
    /// How it was told to wait.
    #[schemars(extend("enum" = ["poll", "doze", "block", "nap"]))]
    pub wait: String,
    pub threads: u32,
    /// What the scheduler asks for, of the highest; `ebb run` sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1), extend("exclusiveMinimum" = 0))]
    pub frequency_requested_share: Option<f64>,
    /// Polls that found work.
    #[schemars(range(max = 1))]
    pub busy_share: f64,
    /// Polls that found none.
    #[schemars(range(max = 1))]
    pub wasted_share: f64,
    #[schemars(range(max = 1))]
    pub asleep_share: f64,
    pub busy_s: f64,
    pub wasted_s: f64,
    /// By kind of sleep.
    #[schemars(
        extend(
            "propertyNames" = { "enum": ["dozing", "blocked", "napping"] }, "required" = ["dozing",
            "blocked", "napping"]
        ),
        extend("additionalProperties" = { "type": "number", "minimum": 0 })
    )]
    pub asleep_s: BTreeMap<String, f64>,
    /// Times it fell asleep.
    #[schemars(
        extend(
            "propertyNames" = { "enum": ["dozing", "blocked", "napping"] }, "required" = ["dozing",
            "blocked", "napping"]
        )
    )]
    pub sleeps: BTreeMap<String, u64>,
    /// Files the kernel would not watch, which keep it polling.
    pub unwatched_files: u64,
    /// Modelled, above the idle machine.
    pub power_modelled_w: f64,
    /// Modelled, above the idle machine.
    pub energy_modelled_j: f64,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct Thread {
    pub thread: u16,
    #[schemars(extend("enum" = ["listener", "connections"]))]
    pub kind: String,
    pub core: u16,
    pub busy_share: f64,
    pub busy_s: f64,
    pub commands: u64,
    /// Commands that wait to be taken up.
    pub depth: u32,
    pub moves: u64,
    pub connections: u64,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Namespace {
    #[schemars(range(min = 1))]
    pub id: u32,
    pub bytes: u64,
    pub block_size: u32,
    #[schemars(
        extend(
            "propertyNames" = { "enum": ["read", "write", "flush", "write_zeroes", "deallocate",
            "compare"] }, "required" = ["read", "write", "flush", "write_zeroes", "deallocate",
            "compare"]
        )
    )]
    pub work: BTreeMap<String, Done>,
    /// Its device has requests and completes none; absent before version 0.2.
    #[serde(default)]
    pub stalled: bool,
    /// How an array is; null for a device without members.
    pub health: Option<Health>,
}

/// A way to a namespace.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Path {
    pub listen: SocketAddr,
    #[schemars(range(min = 1))]
    pub namespace: u32,
    /// ANA state.
    #[schemars(extend("enum" = ["optimized", "non-optimized", "inaccessible", "change"]))]
    pub state: String,
}

/// What a host may do in a second.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Limit {
    pub host: String,
    /// I/O commands.
    #[schemars(range(min = 1))]
    pub iops: Option<u64>,
    #[schemars(range(min = 1))]
    pub bytes_per_second: Option<u64>,
    /// Bytes a second that a budget (`ebb run`) allows it for now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub lent_bytes_per_second: Option<u64>,
}

/// How an array is.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// One more failure loses data.
    pub degraded: bool,
    /// Too many members failed: nothing is written.
    pub read_only: bool,
    /// Members that are not used, by name.
    pub failed: Vec<String>,
    /// The member that is being rebuilt.
    pub rebuilding: Option<String>,
    /// How much of it is done.
    #[schemars(range(min = 0, max = 1))]
    pub rebuilt_share: Option<f64>,
    /// What is wrong and what to do.
    pub text: String,
}

impl From<device::Health> for Health {
    fn from(health: device::Health) -> Self {
        Self {
            degraded: health.is_degraded(),
            read_only: health.read_only,
            text: health.to_string(),
            failed: health.failed.into_iter().map(|failed| failed.name).collect(),
            rebuilt_share: health.rebuilding.as_ref().map(|it| it.done as f64 / it.of as f64),
            rebuilding: health.rebuilding.map(|it| it.name),
        }
    }
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Done {
    /// Answered.
    pub commands: u64,
    /// Of those that succeeded.
    pub bytes: u64,
    /// Of those answered.
    pub errors: u64,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Connections {
    pub open: u64,
    pub limit: u32,
    pub accepted: u64,
    /// Closed for being too many.
    pub refused: u64,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Queues {
    /// Commands that wait for threads to take them up.
    pub network: u64,
    /// Requests that the devices have not completed.
    pub devices: u64,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct Rates {
    pub io_per_s: f64,
    pub bytes_per_s: f64,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct Latency {
    #[schemars(
        extend("enum" = ["read", "write", "flush", "write_zeroes", "deallocate", "compare"])
    )]
    pub kind: String,
    pub count: u64,
    pub sum_s: f64,
    pub p50_s: f64,
    pub p99_s: f64,
    pub p999_s: f64,
    pub max_s: f64,
    /// Upper end in nanoseconds and how many, of those that are not empty, since the start.
    pub buckets: Vec<(u64, u64)>,
    /// For the metrics: upper ends and counts.
    #[serde(skip)]
    pub octaves: Vec<(Option<Nanos>, u64)>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("minimum" = 0))]
pub struct Energy {
    #[schemars(extend("enum" = ["measured", "modelled"]))]
    pub source: String,
    /// RAPL's name, such as package-0 or package-0/dram, or `cores` for the model of our cores.
    pub domain: String,
    pub energy_j: f64,
    /// Null while the counter cannot be read.
    pub power_w: Option<f64>,
    /// What the model stands on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
}

/// A namespace whose timing and power are those of the twin's model of a drive.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct ModelledDrive {
    #[schemars(range(min = 1))]
    pub namespace: u32,
    pub drive: String,
    pub power_state: u8,
    /// The power limit set (Feature 23h); absent while none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub power_limit_w: Option<f64>,
    pub power_modelled_w: f64,
    #[schemars(range(min = 0))]
    pub energy_modelled_j: f64,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Shifts {
    pub total: u64,
    /// Changes of frequencies that the scheduler asked for; the server itself sets none.
    pub unmet_frequency_requests: u64,
    /// The last twenty, oldest first.
    pub last: Vec<Change>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    #[schemars(range(min = 0))]
    pub at_s: f64,
    pub what: String,
    /// Scheduler:why.
    pub reason: String,
}

#[cfg(test)]
crate::schema::written!("serve-status-1", Status);
