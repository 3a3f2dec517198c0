//! What `ebb serve` answers to `ebb ctl`: docs/json-schema/ctl-1.json.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A change was made.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Done {
    /// Of commands that change something: what was changed.
    pub done: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Namespaces {
    /// Of `ebb ctl namespace list`.
    pub namespaces: Vec<Namespace>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Namespace {
    #[schemars(range(min = 1))]
    pub id: u32,
    pub bytes: u64,
    /// Bytes.
    pub block_size: u32,
    /// `leaving`: removed, and its device has not done what it was asked for.
    #[schemars(extend("enum" = ["serving", "leaving"]))]
    pub state: String,
    /// As given to --namespace.
    pub device: String,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Hosts {
    /// Of `ebb ctl host list`: whether any host may connect.
    pub any: bool,
    /// Those that are named, connected or limited.
    pub hosts: Vec<Host>,
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    pub nqn: String,
    /// How it gets in; `none`: it is connected or limited, and may not connect.
    #[schemars(extend("enum" = ["key", "TLS key", "name", "any", "none"]))]
    pub access: String,
    /// Its controllers now.
    pub controllers: usize,
    /// I/O commands a second at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Data a second at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// Data a second that a budget (ebb run) allows it for now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lent_bytes_per_second: Option<u64>,
    /// Reads and writes since the first of its queues; absent of a host without.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commands: Option<u64>,
    /// Data of those.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Listeners {
    /// Of `ebb ctl listener list`.
    pub listeners: Vec<Listener>,
}

#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Listener {
    /// ADDRESS:PORT.
    pub address: String,
    /// Absent without TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["offered", "required"]))]
    pub tls: Option<String>,
    /// ANA state of the path to each namespace, by its number.
    #[schemars(extend("patternProperties" = { "^\\d+$": {
        "enum": ["optimized", "non-optimized", "inaccessible", "change"]
    } }))]
    pub ana: BTreeMap<u32, String>,
}

/// The configuration that the server would start from as it is now.
#[derive(Debug, Serialize, Deserialize)]
pub struct Configuration {
    pub toml: String,
    /// The file that it was started from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}
