//! `ebb run`: the policies on this server.

pub mod board;
pub mod config;
mod control;
mod desk;
pub mod estimate;
mod events;
mod history;
pub mod latency;
mod ledger;
mod loss;
mod metrics;
mod pages;
mod power;
mod recording;
mod remarks;
mod schedule;
pub mod sensors;
mod served;
mod share;
pub mod signals;
pub mod status;
pub mod supervisor;
mod systemd;
mod tenants;
mod told;
mod trial;
mod work;

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use ebb_cli::out::Journal;
use ebb_cli::{out, usage};
use ebb_host::{Machine, ParkBy, Parkable, State, Sys, conflicts, is_ours};
use ebb_policy::units::{Nanos, Watts, parse_tolerance};
use ebb_policy::{Control, registry};

use crate::metrics::http;
use crate::restore;
use crate::rpc::server::Socket;
use board::Board;
use config::Config;
use control::Asker;
use desk::Desk;
use events::{Event, Stream};
use ledger::Keeper;
use recording::Recorder;
use signals::Signals;
use work::{Around, Ended, Work};

/// A start with new parts that fails is tried again after this time; the supervisor hears of each.
const AGAIN: Duration = Duration::from_secs(5);

/// Options of `ebb run`.
///
/// Without `--apply` it observes: it senses, decides, says what it would do and what that would
/// save, and changes nothing. With it, it acts, and sets everything back at the end, however it
/// ends.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Configuration [default: /etc/ebb/ebb.toml, or the defaults if there is none].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Act. Every setting is saved before it is changed.
    #[arg(long)]
    apply: bool,
    /// Policy to run instead of the configuration's; `a+b` runs two together.
    #[arg(long, value_name = "NAME[+NAME]")]
    policy: Option<String>,
    /// Tolerated loss: how much the mean latency may rise, as 0.2 or 20%.
    #[arg(long, value_name = "SHARE", value_parser = parse_tolerance)]
    plf: Option<f64>,
    /// Largest sum of all drives' power caps, such as "224 W".
    #[arg(long, value_name = "POWER")]
    ssd_budget: Option<Watts>,
    /// Most that the whole server may draw at its meter, such as "300 W", for tide.
    #[arg(long, value_name = "POWER")]
    server_budget: Option<Watts>,
    /// Serve a live page, Prometheus metrics and the status over HTTP at this address, readable by
    /// anyone who reaches it [default: off; without an address: 127.0.0.1:9421].
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1,
        default_missing_value = "127.0.0.1:9421")]
    metrics: Option<SocketAddr>,
    /// Name by which clients may ask for them, besides IP addresses and localhost; repeatable.
    #[arg(long, value_name = "NAME")]
    metrics_name: Vec<String>,
    /// Unix socket by which `ebb ctl` orders this run; root and its user may use it [default: off;
    /// as a service, run.sock in its RuntimeDirectory].
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Keep a ledger of energy by the hour in this file, for `ebb report` [default: off; as a
    /// service, ledger.sqlite in its StateDirectory].
    #[arg(long, value_name = "FILE")]
    ledger: Option<PathBuf>,
    /// Record in this folder what is sensed and decided, for `ebb sim --recorded` [default: off].
    #[arg(long, value_name = "DIR")]
    record: Option<PathBuf>,
    /// End after this time [default: run until stopped].
    #[arg(long, value_name = "TIME")]
    duration: Option<Nanos>,
    /// Folder for the original settings.
    #[arg(long, value_name = "DIR", default_value = restore::STATE)]
    state: PathBuf,
    /// A copy of a machine's sys and proc under this folder.
    #[arg(long, value_name = "DIR", default_value = "/", hide = true)]
    root: PathBuf,
    #[command(flatten)]
    tell: told::Tell,
    /// The process that acts; its standard input is the supervisor.
    #[arg(long, hide = true)]
    worker: bool,
}

impl RunArgs {
    /// The configuration with what the command line says instead.
    fn config(&self) -> Result<Config> {
        let config = Config::changed(self.config.as_deref(), |config| self.change(config))?;
        if config.apply {
            let path = self.config.as_deref().unwrap_or(Path::new(config::FILE));
            // Root does what it says.
            is_ours(path).map_err(|error| usage(error.to_string()))?;
        }
        Ok(config)
    }

    /// Writes what the command line says over `config`: the keys.
    fn change(&self, config: &mut Config) -> Vec<&'static str> {
        fn over<T>(key: &'static str, new: Option<T>, old: &mut T) -> Option<&'static str> {
            *old = new?;
            Some(key)
        }
        config.apply |= self.apply;
        let names = Some(self.metrics_name.clone()).filter(|names| !names.is_empty());
        let keys = [
            over("policy", self.policy.clone(), &mut config.policy),
            over("plf", self.plf, &mut config.plf),
            over("ssd_budget", self.ssd_budget.map(Some), &mut config.ssd_budget),
            over("server_budget", self.server_budget.map(Some), &mut config.server_budget),
            over("metrics", self.metrics.map(Some), &mut config.metrics),
            over("metrics_name", names, &mut config.metrics_name),
            over("control", self.control.clone().map(Some), &mut config.control),
            over("ledger", self.ledger.clone().map(Some), &mut config.ledger),
            over("record", self.record.clone().map(Some), &mut config.record),
        ];
        keys.into_iter().flatten().collect()
    }

    fn machine(&self) -> Result<Machine> {
        Machine::found(Sys::new(&self.root)).map_err(|absent| usage(absent.to_string()))
    }
}

/// Runs until told to end.
pub fn run(args: &RunArgs) -> Result<()> {
    let config = args.config()?;
    out::detach().context("no thread to write the log with")?;
    if args.worker {
        return work(args, &config, Some(&supervisor::of_worker()?));
    }
    let machine = args.machine()?;
    for one in conflicts(&machine.sys) {
        let (who, sets, remedy) = (one.who(), one.sets, one.remedy);
        out::note(format_args!("{who} sets {sets} too: {remedy}"));
    }
    parking(&machine, &config)?;
    if config.apply {
        if let Some(file) = &args.config
            && !file.metadata().is_ok_and(|file| file.is_file())
        {
            // The process that acts reads it, too, and again on SIGHUP.
            let file = file.display();
            return Err(usage(format!(
                "{file} can be read only once: --apply takes the configuration from a regular file"
            )));
        }
        let period = Duration::from_nanos(config.period.0);
        // It refuses to begin with 2.
        return supervisor::supervise(&args.state, &machine, period, &[2]);
    }
    work(args, &config, None)
}

/// Says what parked cores are kept from, and what not, where they are parked.
fn parking(machine: &Machine, config: &Config) -> Result<()> {
    if !registry::owned(&config.policy)?.into_iter().any(Control::parks) {
        return Ok(());
    }
    if config.machine.park_by == ParkBy::Offline {
        let remote = machine.drives.iter().filter(|drive| drive.is_remote());
        let remote = remote.map(|drive| &*drive.name).collect::<Vec<_>>().join(", ");
        if !remote.is_empty() {
            out::note(format_args!(
                "park_by = \"offline\": {remote} cannot connect again while CPUs are offline, for \
                 the kernel gives a queue to each; park_by = \"cpuset\" leaves them online"
            ));
        }
        return Ok(());
    }
    if let Some(why) = ebb_host::lacks_cpuset(&machine.sys) {
        out::note(format_args!("no core can be parked: {why}"));
        return Ok(());
    }
    let (free, kept): (Vec<_>, Vec<_>) =
        ebb_host::parkable(&machine.sys).into_iter().partition(|one| one.obstacle.is_some());
    let kept = kept.iter().map(|one| &*one.group).collect::<Vec<_>>().join(", ");
    if !kept.is_empty() {
        out::note(format_args!("tasks of {kept} are kept from parked cores"));
    }
    let groups = config.machine.stated_groups()?;
    let is_stated = |cpu: &u16| groups.iter().any(|group| group.cpus.contains(cpu));
    for Parkable { group, obstacle, apart, .. } in &free {
        let reason = obstacle.as_deref().unwrap_or_default();
        match apart.as_deref().filter(|own| !own.iter().any(is_stated)) {
            Some(own) => out::note(format_args!(
                "tasks of {group} use CPUs {}, none of which is parked: {reason}",
                ebb_host::cpu_list(own)
            )),
            None => out::note(format_args!("tasks of {group} may use parked cores: {reason}")),
        }
    }
    if let outside @ 1.. = ebb_host::outside(&machine.sys) {
        out::note(format_args!(
            "{outside} tasks of users in the root control group may use parked cores"
        ));
    }
    Ok(())
}

/// Works until told to end, on whatever the machine has become; acts where there is a supervisor.
fn work(args: &RunArgs, config: &Config, supervisor: Option<&UnixStream>) -> Result<()> {
    let mut signals = Signals::watch().context("cannot watch for signals")?;
    let metrics = config.metrics.map(|at| http::bind(at, &config.metrics_name)).transpose()?;
    let socket = config.control().map(|path| Socket::bind(&path, None));
    let mut socket = socket.transpose()?;
    let mut page = config.page().map(|path| Socket::bind(&path, None)).transpose()?;
    let board = Board::new();
    let journal = Journal::open(args.root.join("run/systemd/journal/socket"));
    let stream = Stream::default().with(told::Teller::new(args.tell, journal));
    let stream = stream.and_then(|stream| stream.with(board.clone()));
    let stream = stream.and_then(|stream| match config.ledger() {
        Some(file) => stream.with(Keeper::new(file)),
        None => Ok(stream),
    });
    let stream = stream.and_then(|stream| match &config.record {
        Some(folder) => stream.with(Recorder::new(folder, config.record_keep)?),
        None => Ok(stream),
    });
    let stream = stream.context("no thread to tell events with")?;
    let (mut desk, to) = Desk::new();
    if let Some(socket) = &mut socket {
        let control = Asker::new(board.clone(), to, signals.waker()?);
        socket.serve(Arc::new(control))?;
    }
    if let Some(listener) = page.as_mut().and_then(Socket::take) {
        http::start(listener.into(), Arc::new(board.clone()))?;
    }
    if let Some((listener, address)) = metrics {
        http::start(listener, Arc::new(board))?;
        let metrics = format!("metrics on http://{address}/metrics");
        for text in [metrics, format!("live page on http://{address}/")] {
            stream.tell(Event::Summary { at: Nanos::ZERO, text });
        }
    }
    let mut config = config.clone();
    let mut trouble: Option<String> = None;
    for start in 0.. {
        let socket = supervisor.map(UnixStream::try_clone).transpose()?;
        let state = supervisor.map(|_| State::open(&args.state)).transpose()?;
        let around = Around { stream: &stream, desk: &mut desk, begun: signals.begun };
        match Work::new(args, config.clone(), socket, state, around) {
            Ok(mut work) => {
                work.begun_anew();
                let (ended, last) = work.run(&mut signals)?;
                if ended == Ended::Told {
                    break;
                }
                (config, trouble) = (last, None);
            }
            Err(error) if start == 0 => return Err(error),
            // Everything is as it was found, and the machine may become another one again.
            Err(error) => {
                desk.begun_anew(Err(&error));
                let error = format!("{error:#}; it is tried again every {AGAIN:?}");
                if trouble.as_ref() != Some(&error) {
                    out::note(&error);
                }
                if let Some(mut supervisor) = supervisor {
                    let _ = writeln!(supervisor, "waiting: {error}");
                }
                trouble = Some(error);
                if !signals.wait(AGAIN, supervisor, None)? {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a configuration and report errors with their line.
    Check {
        /// The file.
        #[arg(value_name = "FILE", default_value = config::FILE)]
        file: PathBuf,
    },
    /// Print the configuration with all defaults filled in.
    Show {
        /// The file [default: /etc/ebb/ebb.toml, or the defaults if there is none].
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Print its JSON schema.
    Schema,
}

/// Does it.
pub fn configuration(command: &ConfigCommand) -> Result<()> {
    match command {
        ConfigCommand::Check { file } => {
            Config::load(Some(file))?;
            out::print(format_args!("{}: good\n", file.display()))
        }
        ConfigCommand::Show { file } => {
            out::print(toml::to_string(&Config::load(file.as_deref())?)?)
        }
        ConfigCommand::Schema => out::print(config::SCHEMA),
    }
}
