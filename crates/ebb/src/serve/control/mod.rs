//! What `ebb ctl` can ask of `ebb serve`: looked up and changed on a thread of its own. Reactors
//! are told by what they look at anyway; none of them waits.

mod hosts;
mod namespaces;
mod paths;
pub mod replies;
mod saved;
#[cfg(test)]
mod tests;
mod texts;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ebb_cli::{out, usage};
use ebb_policy::reactor::{self as scheduling, Machine};
use ebb_target::controller::{Allowed, Subsystem};
use ebb_target::reactor::Helm;
use ebb_target::transport::{Doors, Fleet};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::access::{self, Vault};
use super::facts::Facts;
use super::options::Options;
use super::resources::Promised;
use super::status::Observer;
use super::{Server, devices};
use crate::exit;
use crate::log::{self, Level};
use crate::rpc::{Fault, Methods, code};

pub use paths::listen;

/// How long a group or a device is waited for, and the lock at the end.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// Between looks at what is waited for.
pub const LOOK: Duration = Duration::from_millis(10);

/// Namespaces that requests are at work on at once: fewer than there are workers.
const AT_WORK: usize = 2;

const ENDING: &str = "the server is ending";

/// Changes a server.
pub struct Control {
    /// `None` once the server ends. Held for changes that end by themselves: what may wait in the
    /// kernel, for a disk that hangs, is done [apart](Control::apart).
    running: Mutex<Option<Running>>,
    /// What requests are at work on without that lock; of a namespace, as it will be.
    apart: Mutex<BTreeMap<Part, String>>,
    facts: Arc<Facts>,
    observer: Arc<Observer>,
    machine: Machine,
    helm: Helm,
    promised: Promised,
    /// The file that the server was started from.
    file: Option<PathBuf>,
}

/// What is changed, one thing at a time.
struct Running {
    /// As they are now, but for what follows.
    options: Options,
    /// As given to --namespace.
    namespaces: BTreeMap<u32, String>,
    limits: BTreeMap<String, Allowed>,
    fleet: Fleet,
    doors: Arc<Doors>,
    vault: Arc<Vault>,
}

/// What one request at a time may be at work on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// Who gets in, with keys in files.
    Access,
    Namespace(u32),
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Access => f.write_str("who may connect"),
            Self::Namespace(id) => write!(f, "namespace {id}"),
        }
    }
}

/// A part that is this request's until it is dropped.
struct Apart<'a> {
    control: &'a Control,
    part: Part,
}

impl Drop for Apart<'_> {
    fn drop(&mut self) {
        self.control.at_work().remove(&self.part);
    }
}

impl Running {
    fn subsystem(&self) -> &Arc<Subsystem> {
        self.fleet.subsystem()
    }

    /// Whether it was started with TLS, for which memory is counted then.
    fn has_tls(&self) -> bool {
        self.doors.ports().iter().any(|port| port.security.is_some())
    }
}

/// Lets limits and paths be as `options` say.
///
/// # Errors
/// Names the option that is not right.
pub fn begin(options: &Options, subsystem: &Subsystem) -> Result<()> {
    for text in &options.limit {
        let (host, allowed) = texts::limit(text)?;
        subsystem.allow(&host, allowed).map_err(|error| usage(format!("--limit {error}")))?;
    }
    for text in &options.ana {
        let (address, group, state) = texts::path(text)?;
        if !subsystem.set_ana(address, group, state) {
            return Err(usage(format!(
                "--ana {text}: it does not --listen there, or not so many \
                                      namespaces are possible"
            )));
        }
    }
    Ok(())
}

/// Says what a scheduler needs besides.
pub fn note_governor(scheduler: &str) {
    if scheduler.ends_with("governor") {
        out::note(format_args!(
            "{scheduler}: only `ebb run` sets the frequencies it asks for (machine.reactors); \
             without it, cores poll at the one the system chooses"
        ));
    }
}

impl Control {
    /// Of `server`, started with `options`, in part from `file`.
    pub fn new(
        server: &Server,
        options: Options,
        file: Option<PathBuf>,
        observer: Arc<Observer>,
    ) -> Self {
        let fleet = Fleet::new(server.subsystem.clone(), server.stewards.clone(), PATIENCE);
        // All of it was read once: nothing is wrong with it.
        let (mut namespaces, mut last) = (BTreeMap::new(), 0);
        for (id, text) in options.namespace.iter().filter_map(|text| {
            let (id, text) = devices::numbered(text, last).ok()?;
            last = id;
            Some((id, text))
        }) {
            namespaces.insert(id, text.to_owned());
        }
        let limits = options.limit.iter().filter_map(|text| texts::limit(text).ok()).collect();
        let running = Running {
            options,
            namespaces,
            limits,
            fleet,
            doors: server.doors.clone(),
            vault: server.vault.clone(),
        };
        Self {
            running: Mutex::new(Some(running)),
            apart: Mutex::default(),
            facts: server.facts.clone(),
            observer,
            machine: server.machine.clone(),
            helm: server.runtime.helm(),
            promised: server.audit.promised(),
            file: file.and_then(|file| file.canonicalize().ok()),
        }
    }

    /// Changes nothing more. The groups, with the namespaces that are leaving them; `None` where a
    /// change does not end within `patience`.
    pub fn end(&self, patience: Duration) -> Option<Fleet> {
        let start = Instant::now();
        let mut running = loop {
            match self.running.try_lock() {
                Ok(running) => break running,
                Err(TryLockError::Poisoned(error)) => break error.into_inner(),
                Err(TryLockError::WouldBlock) if start.elapsed() >= patience => return None,
                Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK),
            }
        };
        running.take().map(|running| running.fleet)
    }

    /// Lets this request alone be at work on the part that `choose` gives, without the lock. Where
    /// as many are at work as may be, it is refused at once, and others find a worker.
    fn apart(
        &self,
        choose: impl FnOnce(&mut Running) -> Result<(Part, String)>,
    ) -> Result<Apart<'_>> {
        let part = self.with(|running| {
            let (part, text) = choose(running)?;
            let mut apart = self.at_work();
            let namespaces = apart.keys().filter(|part| **part != Part::Access).count();
            let is_full = part != Part::Access && namespaces >= AT_WORK;
            if is_full || apart.contains_key(&part) {
                let busy: Vec<_> = apart.keys().map(ToString::to_string).collect();
                bail!(
                    "requests under way have not ended with {}; if their disk hangs, look at the \
                     kernel's log; else try again",
                    busy.join(" and ")
                );
            }
            apart.insert(part, text);
            Ok(part)
        })?;
        Ok(Apart { control: self, part })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Running) -> Result<T>) -> Result<T> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(running) = running.as_mut() else { bail!(ENDING) };
        act(running)
    }

    fn at_work(&self) -> MutexGuard<'_, BTreeMap<Part, String>> {
        self.apart.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a request is at work on a namespace.
    pub fn is_at_work(&self, id: u32) -> bool {
        self.at_work().contains_key(&Part::Namespace(id))
    }

    /// For what needs no lock.
    fn subsystem(&self) -> Result<Arc<Subsystem>> {
        self.facts.subsystem.upgrade().context(ENDING)
    }

    /// What to tell of who gets in, after a change of it.
    fn warn(&self, running: &Running) {
        let warning = access::warning(&running.options, &running.subsystem().ports());
        let before = self.facts.warning();
        if let Some(warning) = warning.as_ref().filter(|warning| before.as_ref() != Some(warning)) {
            log::tell(Level::Warning, warning);
        }
        self.facts.tell(|told| told.warning = warning);
    }

    fn set_scheduler(&self, name: &str) -> Result<Value> {
        let scheduler =
            scheduling::by_name(name, &self.machine).map_err(|error| usage(error.to_string()))?;
        let plain = scheduler.name().to_owned();
        self.with(|running| {
            self.helm.give(scheduler);
            let start = Instant::now();
            while !self.helm.is_taken() {
                if start.elapsed() > PATIENCE {
                    bail!("the main core did not take it; look at its status");
                }
                std::thread::sleep(LOOK);
            }
            running.options.scheduler = Some(name.to_owned());
            self.facts.tell(|told| told.scheduler = plain);
            note_governor(name);
            Ok(done(format!("scheduler {name} has taken over")))
        })
    }

    fn set_log_level(&self, level: Level) -> Result<Value> {
        self.with(|running| {
            log::set(level);
            running.options.log_level = Some(level);
            Ok(done(format!("messages of level {} and above are told", level.name())))
        })
    }

    fn dispatch(&self, method: &str, params: Map<String, Value>) -> Result<Value> {
        match method {
            "status" => {
                empty(params)?;
                Ok(serde_json::to_value(self.observer.status())?)
            }
            "namespace.list" => empty(params).and_then(|()| self.namespaces()),
            "namespace.add" => self.add_namespace(read(params)?),
            "namespace.remove" => self.remove_namespace(read(params)?),
            "namespace.resize" => self.resize_namespace(read(params)?),
            "host.list" => empty(params).and_then(|()| self.hosts()),
            "host.add" => self.add_host(read(params)?),
            "host.remove" => self.remove_host(&read(params)?),
            "host.disconnect" => self.disconnect_host(&read(params)?),
            "limit.set" => self.set_limit(read(params)?),
            "limit.clear" => self.clear_limit(&read(params)?),
            "limit.lend" => self.lend_limits(read(params)?),
            "listener.list" => empty(params).and_then(|()| self.listeners()),
            "listener.add" => self.add_listener(read(params)?),
            "listener.remove" => self.remove_listener(&read(params)?),
            "ana.set" => self.set_ana(&read(params)?),
            "scheduler.set" => {
                let Name { name } = read(params)?;
                self.set_scheduler(&name)
            }
            "log-level.set" => {
                let LevelOf { level } = read(params)?;
                self.set_log_level(level)
            }
            _ => empty(params).and_then(|()| self.configuration()),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Name {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LevelOf {
    level: Level,
}

/// Parameters of a method.
fn read<T: DeserializeOwned>(params: Map<String, Value>) -> Result<T> {
    serde_json::from_value(Value::Object(params)).map_err(|error| usage(error.to_string()))
}

/// A method without parameters.
fn empty(params: Map<String, Value>) -> Result<()> {
    match params.keys().next() {
        None => Ok(()),
        Some(name) => Err(usage(format!("it takes no parameters, not '{name}'"))),
    }
}

/// A change was made, which the log tells too.
fn done(what: String) -> Value {
    log::tell(Level::Info, format_args!("control: {what}"));
    json!({ "done": what })
}

impl Methods for Control {
    fn names(&self) -> &'static [&'static str] {
        &[
            "status",
            "namespace.list",
            "namespace.add",
            "namespace.remove",
            "namespace.resize",
            "host.list",
            "host.add",
            "host.remove",
            "host.disconnect",
            "limit.set",
            "limit.clear",
            "limit.lend",
            "listener.list",
            "listener.add",
            "listener.remove",
            "ana.set",
            "scheduler.set",
            "log-level.set",
            "config.get",
        ]
    }

    fn waits(&self, method: &str) -> bool {
        !matches!(method, "status" | "host.disconnect")
    }

    fn call(&self, method: &str, params: Map<String, Value>) -> Result<Value, Fault> {
        self.dispatch(method, params).map_err(|error| {
            let code = if exit::is_usage(&error) { code::INVALID_PARAMS } else { code::FAILED };
            Fault::new(code, exit::message(&error))
        })
    }
}
