//! What `ebb serve` answers to `ebb ctl`: docs/json-schema/ctl-1.json.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A change was made.
#[derive(Debug, Serialize, Deserialize)]
pub struct Done {
    /// What, for people.
    pub done: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Namespaces {
    pub namespaces: Vec<Namespace>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Namespace {
    pub id: u32,
    pub bytes: u64,
    pub block_size: u32,
    /// `serving`, or `leaving`: removed, and its device is still at work.
    pub state: String,
    /// As given to --namespace.
    pub device: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Hosts {
    /// Whether others than these may connect.
    pub any: bool,
    pub hosts: Vec<Host>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Host {
    pub nqn: String,
    /// How it gets in: `key`, `name`, or `any` where nobody is kept out; `none` if it does not.
    pub access: String,
    /// Its controllers now.
    pub controllers: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// Data a second that somebody who keeps a budget allows it for now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lent_bytes_per_second: Option<u64>,
    /// Reads and writes on its queues since the first of them, and their data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commands: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Listeners {
    pub listeners: Vec<Listener>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Listener {
    pub address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<String>,
    /// ANA state by namespace.
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
