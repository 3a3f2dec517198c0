//! What `ebb serve` can be told, on the command line or in a TOML file of the same names.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};

use ebb_cli::output::in_service;
use ebb_cli::usage;
use ebb_nvme::tls::Security;
use ebb_policy::units::{Bytes, Nanos};
use ebb_target::controller::Port;
use ebb_target::reactor::topology;

use crate::log::Level;

/// Options of `ebb serve`.
#[derive(Debug, Default, Args)]
#[command(after_help = "Examples:
  ebb serve --namespace ram:256MiB
  ebb serve --cores 0-1 --namespace raid5:/srv/a.img,/srv/b.img,/srv/c.img
  nvme connect -t tcp -a 127.0.0.1 -s 4420 -n NQN    (the NQN that ebb serve prints)")]
pub struct ServeArgs {
    /// TOML file with these options by the same names; the command line overrides it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    #[command(flatten)]
    pub options: Options,
}

/// The options that a file may hold too.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Options {
    /// Address and port to listen on; repeatable [default: 127.0.0.1:4420].
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    pub listen: Vec<SocketAddr>,

    /// The same, for hosts with TLS alone; repeatable. Where hosts have keys for TLS, --listen
    /// offers it.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    pub tls_listen: Vec<SocketAddr>,

    /// CPUs to run on, one reactor each, the main one first, such as 0-1,4 [default: the first
    /// that this process may run on].
    #[arg(long, value_name = "LIST")]
    pub cores: Option<String>,

    /// Scheduler that places threads on cores and puts cores to sleep; `ebb serve --scheduler list`
    /// lists all [default: sandman-plus].
    #[arg(long, value_name = "NAME")]
    pub scheduler: Option<String>,

    /// A block device to serve; repeatable, numbered from 1, or NUMBER=KIND:...: null:SIZE,
    /// ram:SIZE, file:PATH, raid5:PATH,PATH,PATH, or modelled:SIZE[,drive=NAME] for memory as slow
    /// as the twin's model of an SSD.
    #[arg(long = "namespace", value_name = "KIND:...")]
    pub namespace: Vec<String>,

    /// NVMe qualified name of the subsystem [default: derived from this machine's id].
    #[arg(long, value_name = "NQN")]
    pub nqn: Option<String>,

    /// NQN of a host that may connect without a key; repeatable [default: any host, or none where
    /// hosts have keys].
    #[arg(long, value_name = "NQN")]
    pub allow_host: Vec<String>,

    /// A host that may connect over TLS, and the file with its key, which only the owner may read;
    /// repeatable. Read for each connection. Two keys, a line each, are valid both, to exchange
    /// one for the other.
    #[arg(long, value_name = "NQN=FILE")]
    pub tls_key: Vec<String>,

    /// A host that must authenticate itself by DH-HMAC-CHAP, and the file with its key, which only
    /// the owner may read; repeatable. Read for each connection. Two keys, a line each, are valid
    /// both, to exchange one for the other.
    #[arg(long, value_name = "NQN=FILE")]
    pub dhchap_key: Vec<String>,

    /// The file with the key by which the target authenticates itself to this host, if the host
    /// wants it to; repeatable.
    #[arg(long, value_name = "NQN=FILE")]
    pub dhchap_ctrl_key: Vec<String>,

    /// Hash functions for authentication, the preferred first [default: sha512,sha384,sha256].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub dhchap_hash: Vec<String>,

    /// Diffie-Hellman groups for authentication, the preferred first; there are ffdhe6144 and
    /// ffdhe8192 too [default: ffdhe2048,ffdhe3072,ffdhe4096,null].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub dhchap_group: Vec<String>,

    /// Lightweight threads, which carry the connections and move between cores, up to 4,096
    /// [default: 4 for each core].
    #[arg(long, value_name = "NUMBER")]
    pub threads: Option<u16>,

    /// Maximum concurrent connections, up to 65,535 [default: 1024].
    #[arg(long, value_name = "NUMBER")]
    pub max_connections: Option<u32>,

    /// Maximum I/O queues of one host [default: 64].
    #[arg(long, value_name = "NUMBER")]
    pub max_queues: Option<u16>,

    /// Maximum outstanding commands in one queue, up to 65,534 [default: 128].
    #[arg(long, value_name = "NUMBER")]
    pub queue_depth: Option<u16>,

    /// Maximum data of one command, a power of two [default: 128 KiB].
    #[arg(long, value_name = "SIZE")]
    pub max_transfer: Option<Bytes>,

    /// Maximum data sent together with a write's command [default: 8 KiB].
    #[arg(long, value_name = "SIZE")]
    pub in_capsule: Option<Bytes>,

    /// Buffers of each kind per thread, at least 4; those for data have the size of the largest
    /// transfer [default: 256].
    #[arg(long, value_name = "NUMBER")]
    pub buffers: Option<u32>,

    /// A device that has requests and completes none for so long is stalled: others go on without
    /// it [default: 500 ms].
    #[arg(long, value_name = "TIME")]
    pub stall_after: Option<Nanos>,

    /// Serve Prometheus metrics and the status over HTTP at this address, readable by anyone who
    /// reaches it [default: off; without an address: 127.0.0.1:9420].
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, value_parser = address,
        default_missing_value = "127.0.0.1:9420")]
    pub metrics: Option<SocketAddr>,

    /// Name by which clients may ask for the metrics, besides IP addresses and localhost;
    /// repeatable.
    #[arg(long, value_name = "NAME")]
    pub metrics_name: Vec<String>,

    /// Unix socket by which `ebb ctl` changes this server; root and the server's user may use it
    /// [default: off; as a service, serve.sock in its RuntimeDirectory].
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,

    /// Group whose members may use the control socket too, by its number.
    #[arg(long, value_name = "GID")]
    pub control_group: Option<u32>,

    /// What a host may do in a second, on all its queues together; repeatable.
    #[arg(long, value_name = "NQN,iops=N,bytes-per-second=SIZE")]
    pub limit: Vec<String>,

    /// State of the paths by an address, to all namespaces or one: optimized, non-optimized,
    /// inaccessible or change; repeatable [default: optimized].
    #[arg(long, value_name = "ADDRESS:PORT[/NAMESPACE]=STATE")]
    pub ana: Vec<String>,

    /// What is told on standard error: error, warning, info or debug [default: info].
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<Level>,

    /// TOML file with the power of a core by state, for modelled energy [default: all-flash].
    #[arg(long, value_name = "FILE")]
    pub power_profile: Option<PathBuf>,

    /// Folder of RAPL's energy counters [default: /sys/class/powercap].
    #[arg(long, value_name = "FOLDER")]
    pub powercap: Option<PathBuf>,
}

impl ServeArgs {
    /// What was asked for: the command line's options, then the file's.
    ///
    /// # Errors
    /// When the file cannot be read or is not right.
    pub fn merged(self) -> anyhow::Result<Options> {
        let Some(path) = self.config else { return Ok(self.options) };
        let text = ebb_trace::files::text(&path)
            .map_err(|error| usage(format!("cannot read {}: {error}", path.display())))?;
        Ok(self.options.or(parse(&path, &text)?))
    }
}

/// An address for --listen and the like.
///
/// # Errors
/// What one looks like.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "write an IP address and a port, such as 127.0.0.1:4420".to_owned())
}

fn parse(path: &Path, text: &str) -> anyhow::Result<Options> {
    toml::from_str(text).map_err(|error| usage(format!("{}: {error}", path.display())))
}

impl Options {
    fn or(self, file: Self) -> Self {
        let list = |own: Vec<_>, file| if own.is_empty() { file } else { own };
        Self {
            listen: if self.listen.is_empty() { file.listen } else { self.listen },
            tls_listen: if self.tls_listen.is_empty() { file.tls_listen } else { self.tls_listen },
            cores: self.cores.or(file.cores),
            scheduler: self.scheduler.or(file.scheduler),
            namespace: list(self.namespace, file.namespace),
            nqn: self.nqn.or(file.nqn),
            allow_host: list(self.allow_host, file.allow_host),
            tls_key: list(self.tls_key, file.tls_key),
            dhchap_key: list(self.dhchap_key, file.dhchap_key),
            dhchap_ctrl_key: list(self.dhchap_ctrl_key, file.dhchap_ctrl_key),
            dhchap_hash: list(self.dhchap_hash, file.dhchap_hash),
            dhchap_group: list(self.dhchap_group, file.dhchap_group),
            threads: self.threads.or(file.threads),
            max_connections: self.max_connections.or(file.max_connections),
            max_queues: self.max_queues.or(file.max_queues),
            queue_depth: self.queue_depth.or(file.queue_depth),
            max_transfer: self.max_transfer.or(file.max_transfer),
            in_capsule: self.in_capsule.or(file.in_capsule),
            buffers: self.buffers.or(file.buffers),
            stall_after: self.stall_after.or(file.stall_after),
            metrics: self.metrics.or(file.metrics),
            metrics_name: list(self.metrics_name, file.metrics_name),
            control: self.control.or(file.control),
            control_group: self.control_group.or(file.control_group),
            limit: list(self.limit, file.limit),
            ana: list(self.ana, file.ana),
            log_level: self.log_level.or(file.log_level),
            power_profile: self.power_profile.or(file.power_profile),
            powercap: self.powercap.or(file.powercap),
        }
    }

    /// Where the control socket is, if there is one.
    pub fn control(&self) -> Option<PathBuf> {
        let own = || in_service(&std::env::var_os("RUNTIME_DIRECTORY")?, "serve.sock");
        self.control.clone().or_else(own)
    }

    /// Where to listen, and how.
    pub fn ports(&self) -> Vec<Port> {
        let mut open = self.listen.clone();
        if open.is_empty() && self.tls_listen.is_empty() {
            open.push((Ipv4Addr::LOCALHOST, 4420).into());
        }
        let security = (!self.tls_key.is_empty()).then_some(Security::Offered);
        let open = open.into_iter().map(|address| Port { address, security });
        let security = Some(Security::Required);
        open.chain(self.tls_listen.iter().map(|address| Port { address: *address, security }))
            .collect()
    }

    /// The CPUs to run on.
    ///
    /// # Errors
    /// When they are not a list of different CPUs, or the kernel names none.
    pub fn cpus(&self) -> anyhow::Result<Vec<usize>> {
        let Some(text) = self.cores.as_deref() else {
            return Ok(topology::allowed()?.into_iter().take(1).collect());
        };
        let cpus = ebb_policy::cpus::list(text).filter(|cpus| !cpus.is_empty());
        cpus.ok_or_else(|| usage(format!("--cores {text}: must be CPUs such as 0-1,4")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_goes_before_the_file() {
        let file = "cores = \"2-3\"\nqueue-depth = 32\nmax-transfer = \"64 KiB\"\n\
                    namespace = [\"ram:1MiB\"]\nlisten = [\"127.0.0.1:0\"]";
        let file = parse(Path::new("x.toml"), file).unwrap();
        let own = Options { cores: Some("1".into()), ..Options::default() };
        let both = own.or(file);
        assert_eq!(both.cpus().unwrap(), [1]);
        assert_eq!((both.queue_depth, both.max_transfer), (Some(32), Some(Bytes(64 << 10))));
        assert_eq!(both.namespace, ["ram:1MiB"]);
        assert_eq!(both.ports(), [SocketAddr::from(([127, 0, 0, 1], 0)).into()]);
    }

    #[test]
    fn a_wrong_file_names_itself_and_the_line() {
        let error = parse(Path::new("x.toml"), "cores = \"0\"\ncroes = 1").unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("x.toml") && text.contains("line 2"), "{text}");
    }
}
