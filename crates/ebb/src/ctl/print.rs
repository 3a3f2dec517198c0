//! What a server has answered, for people and as JSON.

use std::fmt::Write;

use anyhow::Result;
use comfy_table::Table;
use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use ebb_cli::text;
use serde_json::{Value, from_value};

use crate::serve::control::replies::{
    Done, Host, Hosts, Listener, Listeners, Namespace, Namespaces,
};
use crate::status;

/// The answer with the version of its schema.
pub fn versioned(mut reply: Value) -> Value {
    if let Some(object) = reply.as_object_mut() {
        object.entry("schema").or_insert(1.into());
    }
    reply
}

/// The answer of a method for people.
pub fn text(method: &str, reply: Value) -> Result<String> {
    Ok(match method {
        "status" => status::text(reply)?,
        "namespace.list" => namespaces(from_value(reply)?),
        "host.list" => hosts(from_value(reply)?),
        "listener.list" => listeners(from_value(reply)?),
        _ => {
            let Done { done } = from_value(reply)?;
            done + "\n"
        }
    })
}

fn table<const N: usize>(header: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_HORIZONTAL_ONLY).set_header(header).add_rows(rows);
    format!("{table}\n")
}

fn namespaces(reply: Namespaces) -> String {
    let row = |one: Namespace| {
        let size = text::bytes(one.bytes as f64);
        let block = format!("{} B", one.block_size);
        [one.id.to_string(), size, block, one.state, text::printable(&one.device)]
    };
    table(["namespace", "size", "blocks", "state", "device"], reply.namespaces.into_iter().map(row))
}

fn hosts(reply: Hosts) -> String {
    let row = |host: Host| {
        let none = || "–".to_owned();
        let rate = host.bytes_per_second.into_iter().chain(host.lent_bytes_per_second).min();
        let rate = rate.map(|rate| format!("{}/s", text::bytes(rate as f64)));
        let iops = host.iops.map(|iops| text::grouped(iops as f64));
        let controllers = host.controllers.to_string();
        let (iops, rate) = (iops.unwrap_or_else(none), rate.unwrap_or_else(none));
        [text::printable(&host.nqn), host.access, controllers, iops, rate]
    };
    let header = ["host", "gets in by", "controllers", "I/O/s at most", "data at most"];
    let any = match reply.any {
        true => "any host may connect: none is named\n",
        false => "only hosts that are named may connect\n",
    };
    any.to_owned() + &table(header, reply.hosts.into_iter().map(row))
}

fn listeners(reply: Listeners) -> String {
    let row = |one: Listener| {
        let mut states = String::new();
        for (id, state) in &one.ana {
            let _ = write!(states, "{}{id} {state}", if states.is_empty() { "" } else { ", " });
        }
        [one.address, one.tls.unwrap_or_default(), states]
    };
    table(["address", "TLS", "paths to namespaces"], reply.listeners.into_iter().map(row))
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;

    use super::*;

    #[derive(JsonSchema)]
    #[schemars(untagged, inline)]
    #[expect(dead_code, reason = "its schema is what is wanted")]
    enum Reply {
        Done(Done),
        Namespaces(Namespaces),
        Hosts(Hosts),
        Listeners(Listeners),
    }

    /// Of `ebb ctl status`: serve-status-1.json or run-status-1.json.
    #[derive(JsonSchema)]
    #[schemars(title = "ebb ctl --json")]
    #[expect(dead_code, reason = "its schema is what is wanted")]
    struct Versioned {
        #[schemars(extend("const" = 1))]
        schema: u32,
        #[schemars(flatten)]
        reply: Reply,
    }

    crate::schema::written!("ctl-1", Versioned);
}
