//! `ebb ctl`: changes a daemon at work, over its control socket.

mod print;
mod save;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{ArgGroup, Args, Subcommand};
use ebb_cli::out;
use ebb_policy::units::{Bytes, Nanos, Watts, parse_tolerance};
use serde_json::{Value, json};

use crate::log::Level;
use crate::rpc::{RUN, SERVE, client};

/// Options of `ebb ctl`.
///
/// Changes a running `ebb serve` or `ebb run` without a restart. Of `ebb serve`: hosts that are
/// connected see namespaces, paths and addresses change by themselves. Of `ebb run`: pause, resume,
/// budget, tolerance and policy stand over its configuration, for a time or until they are cleared.
/// What is changed lasts until the daemon ends; `ebb ctl save` keeps it, of `ebb serve`. Who may
/// use the control socket may do all of this: root and the daemon's user, and a group that `ebb
/// serve --control-group` names.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  ebb ctl status
  ebb ctl namespace add file:/srv/second.img,create,size=10GiB
  ebb ctl namespace resize 2 20GiB
  ebb ctl limit set nqn.2014-08.org.nvmexpress:uuid:UUID --iops 5000 --bytes-per-second 200MiB
  ebb ctl ana set 192.0.2.10:4420 inaccessible     (hosts go to another path)
  ebb ctl save                                     (into the file that the server started from)
  ebb ctl pause --for \"2 h\"                       (ebb run: everything as it was found)
  ebb ctl tolerance set 50% --for \"8 h\"
  ebb ctl --run status
docs/ctl.md has more.")]
pub struct CtlArgs {
    /// The daemon's control socket, as given to it with --control [default: the service's,
    /// /run/ebb-serve/serve.sock or /run/ebb/run.sock].
    #[arg(long, value_name = "PATH", global = true)]
    socket: Option<PathBuf>,

    /// Ask `ebb run` where both daemons can be asked: status, log-level.
    #[arg(long, global = true)]
    run: bool,

    /// Print JSON (docs/json-schema/ctl-1.json; of status, serve-status-1.json or
    /// run-status-1.json).
    #[arg(long, global = true)]
    json: bool,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what the daemon does, as `ebb status` does.
    Status,
    /// Let `ebb run` give everything back as it was found, until it is to resume.
    Pause {
        /// For so long at most, such as "2 h".
        #[arg(long = "for", value_name = "TIME")]
        time: Option<Nanos>,
    },
    /// Let `ebb run` act again.
    Resume,
    /// Of `ebb run`: the largest sum of all drives' power caps, or with --server the most that the
    /// whole server may draw.
    #[command(subcommand)]
    Budget(Budget),
    /// Of `ebb run`: the tolerated loss.
    #[command(subcommand)]
    Tolerance(Tolerance),
    /// Of `ebb run`: another policy for the same controls.
    #[command(subcommand)]
    Policy(Policy),
    /// Namespaces: list, add, remove, resize.
    #[command(subcommand)]
    Namespace(Namespace),
    /// Hosts that may connect: list, add, remove, disconnect.
    #[command(subcommand)]
    Host(Host),
    /// Addresses to listen on: list, add, remove.
    #[command(subcommand)]
    Listener(Listener),
    /// What a host may do in a second, on all its queues together.
    #[command(subcommand)]
    Limit(Limit),
    /// States of paths (ANA): hosts prefer, use or leave the paths by an address.
    #[command(subcommand)]
    Ana(Ana),
    /// The scheduler of the cores.
    #[command(subcommand)]
    Scheduler(Scheduler),
    /// What the daemon tells.
    #[command(subcommand)]
    LogLevel(LogLevel),
    /// Write the configuration that the server would start from as it is now.
    Save(save::SaveArgs),
}

#[derive(Debug, Subcommand)]
enum Namespace {
    /// List the namespaces, with their devices.
    List,
    /// Add a namespace; hosts find it by themselves.
    Add {
        /// As for `ebb serve --namespace`: null:SIZE, ram:SIZE, file:PATH, raid5:PATH,PATH,PATH or
        /// modelled:SIZE, with options.
        #[arg(value_name = "KIND:...")]
        device: String,
        /// Its number [default: the lowest that is free].
        #[arg(long, value_name = "NUMBER")]
        id: Option<u32>,
    },
    /// Remove a namespace, in use or not: what its device has ends, other commands are refused,
    /// then the device is flushed and closed.
    Remove {
        /// Its number.
        #[arg(value_name = "NUMBER")]
        id: u32,
    },
    /// Let a namespace grow, of any kind but raid5; none shrinks, as data would be lost.
    Resize {
        /// Its number.
        #[arg(value_name = "NUMBER")]
        id: u32,
        /// Its new size, such as 20GiB.
        #[arg(value_name = "SIZE")]
        size: Bytes,
    },
}

#[derive(Debug, Subcommand)]
enum Host {
    /// List the hosts that are named, connected or limited.
    List,
    /// Let a host connect; from then on only hosts that are named may.
    Add {
        /// Its NQN.
        nqn: String,
        /// File with its key, as for `ebb serve --dhchap-key`; without any, its name is enough.
        #[arg(long, value_name = "FILE")]
        key: Option<PathBuf>,
        /// File with the target's key for it, as for `ebb serve --dhchap-ctrl-key`.
        #[arg(long, value_name = "FILE", requires = "key")]
        ctrl_key: Option<PathBuf>,
        /// File with its key for TLS, as for `ebb serve --tls-key`.
        #[arg(long, value_name = "FILE")]
        tls_key: Option<PathBuf>,
    },
    /// Let a host connect no more, and end its connections.
    Remove {
        /// Its NQN.
        nqn: String,
    },
    /// End a host's connections: it may connect again, with the keys it has now.
    Disconnect {
        /// Its NQN.
        nqn: String,
    },
}

#[derive(Debug, Subcommand)]
enum Listener {
    /// List the addresses, with the states of the paths by them.
    List,
    /// Listen on one more address.
    Add {
        /// Where.
        #[arg(value_name = "ADDRESS:PORT")]
        address: SocketAddr,
        /// For hosts with TLS alone, as `ebb serve --tls-listen`.
        #[arg(long)]
        tls: bool,
    },
    /// Do not listen on an address any more, and close the connections that came by it.
    Remove {
        /// Where.
        #[arg(value_name = "ADDRESS:PORT")]
        address: SocketAddr,
    },
}

#[derive(Debug, Subcommand)]
enum Limit {
    /// Limit a host. It is slowed down, not refused; `host list` shows limits.
    #[command(group(
        ArgGroup::new("most").args(["iops", "bytes_per_second"]).required(true).multiple(true)
    ))]
    Set {
        /// Its NQN.
        nqn: String,
        /// I/O commands a second, 10 at least.
        #[arg(long, value_name = "NUMBER")]
        iops: Option<u64>,
        /// Data a second, read and written, 64 KiB at least.
        #[arg(long, value_name = "SIZE")]
        bytes_per_second: Option<Bytes>,
    },
    /// Limit a host no more.
    Clear {
        /// Its NQN.
        nqn: String,
    },
}

#[derive(Debug, Subcommand)]
enum Ana {
    /// Set the state of the paths by an address: all of them, or that to one namespace.
    #[command(override_usage = "ebb ctl ana set [OPTIONS] ADDRESS:PORT [NAMESPACE] STATE")]
    Set {
        /// The address, as `listener list` shows it.
        #[arg(value_name = "ADDRESS:PORT")]
        listener: SocketAddr,
        /// The number of a namespace, if only the path to that is meant; then the state: optimized,
        /// non-optimized, inaccessible, or change, which hosts expect to end within 30 s.
        #[arg(value_name = "STATE", num_args = 1..=2, required = true)]
        what: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
enum Scheduler {
    /// Let another scheduler take over, within a second; `ebb serve --scheduler list` has all.
    Set {
        /// Its name, with parameters if need be.
        name: String,
    },
}

#[derive(Debug, Subcommand)]
enum LogLevel {
    /// Tell messages of this level and above.
    Set {
        /// The level.
        level: Level,
        /// Of `ebb run`: for so long.
        #[arg(long = "for", value_name = "TIME")]
        time: Option<Nanos>,
    },
}

#[derive(Debug, Subcommand)]
enum Budget {
    /// Set it, instead of the configuration's and its schedule's.
    Set {
        /// Such as "200 W".
        power: Watts,
        /// The whole server's.
        #[arg(long)]
        server: bool,
        /// For so long.
        #[arg(long = "for", value_name = "TIME")]
        time: Option<Nanos>,
    },
    /// As configured again.
    Clear {
        /// The whole server's.
        #[arg(long)]
        server: bool,
    },
}

#[derive(Debug, Subcommand)]
enum Tolerance {
    /// Set it, instead of the configuration's and its schedule's.
    Set {
        /// How much the mean latency may rise, as 0.2 or 20%.
        #[arg(value_parser = parse_tolerance)]
        share: f64,
        /// For so long.
        #[arg(long = "for", value_name = "TIME")]
        time: Option<Nanos>,
    },
    /// As configured again.
    Clear,
}

#[derive(Debug, Subcommand)]
enum Policy {
    /// Set it, instead of the configuration's; it must steer the same controls.
    Set {
        /// A name, with parameters if need be; `a+b` for several.
        name: String,
        /// For so long.
        #[arg(long = "for", value_name = "TIME")]
        time: Option<Nanos>,
    },
    /// As configured again.
    Clear,
}

impl Command {
    /// Whether only `ebb run` can be asked so.
    fn is_of_run(&self) -> bool {
        let of_run =
            matches!(self, Self::Budget(_) | Self::Tolerance(_) | Self::Policy(_) | Self::Resume);
        of_run || matches!(self, Self::Pause { .. })
    }
}

/// Parameters of an order, for so long.
fn lasting(mut params: Value, time: Option<Nanos>) -> Value {
    if let (Some(params), Some(time)) = (params.as_object_mut(), time) {
        params.insert("for_s".to_owned(), time.seconds().into());
    }
    params
}

/// The method of a command for `ebb run`, with its parameters.
fn order(command: &Command) -> Option<(&'static str, Value)> {
    Some(match command {
        Command::Pause { time } => ("pause", lasting(json!({}), *time)),
        Command::Resume => ("resume", json!({})),
        Command::Budget(Budget::Set { power, server, time }) => {
            let method = if *server { "server-budget.set" } else { "budget.set" };
            (method, lasting(json!({ "watts": power.0 }), *time))
        }
        Command::Budget(Budget::Clear { server }) => {
            (if *server { "server-budget.clear" } else { "budget.clear" }, json!({}))
        }
        Command::Tolerance(Tolerance::Set { share, time }) => {
            ("tolerance.set", lasting(json!({ "share": share }), *time))
        }
        Command::Tolerance(Tolerance::Clear) => ("tolerance.clear", json!({})),
        Command::Policy(Policy::Set { name, time }) => {
            ("policy.set", lasting(json!({ "name": name }), *time))
        }
        Command::Policy(Policy::Clear) => ("policy.clear", json!({})),
        Command::LogLevel(LogLevel::Set { level, time }) => {
            ("log-level.set", lasting(json!({ "level": level }), *time))
        }
        _ => return None,
    })
}

/// A path that means the same to the server.
fn whole(path: &Option<PathBuf>) -> Result<Option<PathBuf>> {
    Ok(path.as_ref().map(std::path::absolute).transpose()?)
}

/// The method of a command, with its parameters.
fn method(command: &Command) -> Result<(&'static str, Value)> {
    if let Some(order) = order(command) {
        return Ok(order);
    }
    let nqn = |nqn: &String| json!({ "nqn": nqn });
    Ok(match command {
        Command::Status => ("status", json!({})),
        Command::Namespace(Namespace::List) => ("namespace.list", json!({})),
        Command::Namespace(Namespace::Add { device, id }) => {
            ("namespace.add", json!({ "device": device, "id": id }))
        }
        Command::Namespace(Namespace::Remove { id }) => ("namespace.remove", json!({ "id": id })),
        Command::Namespace(Namespace::Resize { id, size }) => {
            ("namespace.resize", json!({ "id": id, "bytes": size.0 }))
        }
        Command::Host(Host::List) => ("host.list", json!({})),
        Command::Host(Host::Add { nqn, key, ctrl_key, tls_key }) => {
            let (key, ctrl_key, tls_key) = (whole(key)?, whole(ctrl_key)?, whole(tls_key)?);
            let keys = json!({ "nqn": nqn, "key": key, "ctrl_key": ctrl_key, "tls_key": tls_key });
            ("host.add", keys)
        }
        Command::Host(Host::Remove { nqn: name }) => ("host.remove", nqn(name)),
        Command::Host(Host::Disconnect { nqn: name }) => ("host.disconnect", nqn(name)),
        Command::Listener(Listener::List) => ("listener.list", json!({})),
        Command::Listener(Listener::Add { address, tls }) => {
            ("listener.add", json!({ "address": address, "tls": tls }))
        }
        Command::Listener(Listener::Remove { address }) => {
            ("listener.remove", json!({ "address": address }))
        }
        Command::Limit(Limit::Set { nqn, iops, bytes_per_second }) => {
            let rate = bytes_per_second.map(|rate| rate.0);
            ("limit.set", json!({ "nqn": nqn, "iops": iops, "bytes_per_second": rate }))
        }
        Command::Limit(Limit::Clear { nqn: name }) => ("limit.clear", nqn(name)),
        Command::Ana(Ana::Set { listener, what }) => {
            let (namespace, state) = match &what[..] {
                [namespace, state] => {
                    let wrong = |_| {
                        ebb_cli::usage(format!(
                            "'{namespace}' is no namespace's number; write ebb ctl ana set \
                         ADDRESS:PORT [NAMESPACE] STATE"
                        ))
                    };
                    (Some(namespace.parse::<u32>().map_err(wrong)?), state)
                }
                what => (None, &what[0]),
            };
            ("ana.set", json!({ "address": listener, "namespace": namespace, "state": state }))
        }
        Command::Scheduler(Scheduler::Set { name }) => ("scheduler.set", json!({ "name": name })),
        _ => ("config.get", json!({})),
    })
}

/// Asks the server, and shows what it says.
pub fn run(args: &CtlArgs) -> Result<()> {
    let (method, params) = method(&args.command)?;
    let own = if args.run || args.command.is_of_run() { RUN } else { SERVE };
    let socket = args.socket.as_deref().unwrap_or(Path::new(own));
    let ask = || client::call::<Value>(socket, method, &params);
    let reply = match &args.command {
        Command::Save(to) => json!({ "done": save::run(to, serde_json::from_value(ask()?)?)? }),
        _ => ask()?,
    };
    if args.json {
        return out::json(&print::versioned(reply));
    }
    out::print(print::text(method, reply)?)
}
