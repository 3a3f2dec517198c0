//! `/etc/ebb/ebb.toml`: what the operator states.

mod machine;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Result;
use ebb_host::{Contest, Holds, Leave, Stated, StatedJob, check_groups};
use ebb_policy::cooling::Curve;
use ebb_policy::registry::{Settings, both, keeps_tail};
use ebb_policy::units::{Bytes, Nanos, Watts};
use ebb_policy::{Control, PERIOD, PolicyError, QosClass, Steward, Topology};
use ebb_twin::Profile;
use jiff::civil::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};
use toml::de::{DeTable, DeValue};

pub use machine::{Fan, Machine};

use ebb_cli::{output, usage};

use super::schedule::{InEffect, Span, are_budgets};
use super::share::{Written, some_tolerance, tolerance};
use super::trial;
use crate::metrics::names::Names;

/// Where it is.
pub const FILE: &str = "/etc/ebb/ebb.toml";
/// What `ebb config schema` prints.
pub const SCHEMA: &str = include_str!("../../../../docs/json-schema/config-1.json");
/// The shortest and the longest period: less costs more than it finds, more misses bursts.
const PERIODS: std::ops::RangeInclusive<Nanos> = Nanos::from_millis(100)..=Nanos::from_secs(10);
/// The least that a recording may take: hours, so that an incident is in it.
const LEAST_RECORD: Bytes = Bytes(16 << 20);

/// `/etc/ebb/ebb.toml`, read as JSON. Quantities are texts with their unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "ebb configuration")]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The policy, or several as `a+b`.
    pub policy: String,
    /// Act instead of observing.
    pub apply: bool,
    /// Tolerated rise of the mean latency.
    #[serde(deserialize_with = "tolerance")]
    #[schemars(with = "Written")]
    pub plf: f64,
    /// Tolerated rise of the 99th percentile of the latency; needs `serve`.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "some_tolerance")]
    #[schemars(with = "Written")]
    pub tail: Option<f64>,
    /// Most that the caps of all drives may sum to.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("examples" = ["224 W"]))]
    pub ssd_budget: Option<Watts>,
    /// Most that the whole server may draw at its meter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("examples" = ["224 W"]))]
    pub server_budget: Option<Watts>,
    /// File of `ebb characterise`: disk throughput by fan duty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curve: Option<PathBuf>,
    /// ADDRESS:PORT of the metrics of an `ebb serve` on this host: users' I/O is what it counts.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "address")]
    pub serve: Option<SocketAddr>,
    /// Its control socket, by which the hosts named in `machine.best_effort` are limited; by
    /// default /run/ebb-serve/serve.sock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serve_control: Option<PathBuf>,
    /// ADDRESS:PORT for the metrics of `ebb run` itself.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "address")]
    pub metrics: Option<SocketAddr>,
    /// Names by which clients may ask for them, besides IP addresses and localhost.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub metrics_name: Vec<String>,
    /// Socket by which `ebb ctl` orders this run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<PathBuf>,
    /// Socket of the live page; as a service /run/ebb/page.sock; none where it is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<PathBuf>,
    /// File with the ledger of energy by the hour; none where it is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ledger: Option<PathBuf>,
    /// Folder for a recording of what is sensed and decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record: Option<PathBuf>,
    /// Most that the recording takes; then its oldest part is deleted.
    #[schemars(with = "String", extend("examples" = ["1 GiB"]))]
    pub record_keep: Bytes,
    /// Time from one cycle to the next.
    #[schemars(with = "String", extend("examples" = ["500 ms"]))]
    pub period: Nanos,
    /// What to do where somebody else changes what Ebb has set.
    pub contest: Contest,
    /// The twin's profile whose cores stand for this machine's in estimates of power.
    pub profile: String,
    /// What the operator knows of the machine.
    pub machine: Machine,
    /// What to hold meanwhile.
    pub hold: Hold,
    /// What to leave behind.
    pub leave: Leaves,
    /// Random blocks in which everything is as found, to measure what is saved; none without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial: Option<trial::Stated>,
    /// Control groups that ebb may throttle.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub job: Vec<Job>,
    /// Other settings at certain times of the day.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub schedule: Vec<Span>,
}

/// `[[job]]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// Its control group, below /sys/fs/cgroup.
    pub cgroup: String,
    /// How much it matters.
    #[schemars(with = "String", extend("enum" = QosClass::ALL.map(|class| class.name())))]
    pub class: QosClass,
    /// What the operator calls it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// `[hold]`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Hold {
    /// Most that each processor package may draw in the long term.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("examples" = ["224 W"]))]
    pub package_power: Option<Watts>,
    /// Most that each drive may draw that takes a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("examples" = ["224 W"]))]
    pub drive_power: Option<Watts>,
    /// Longest time that a CPU may take to leave an idle state.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("examples" = ["100 us"]))]
    pub cpu_latency: Option<Nanos>,
    /// How processors weigh power against speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub energy_preference: Option<String>,
    /// Time without I/O after which hard disks stop.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("examples" = ["20 min"]))]
    pub disk_standby: Option<Nanos>,
    /// Control groups of background work.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub background: Vec<String>,
}

/// `[leave]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Leaves {
    /// Cores and frequencies.
    pub cpu: Leave,
    /// Drives' power states.
    pub ssd: Leave,
    /// Fans.
    pub cooling: Leave,
}

impl Leaves {
    /// What to leave of `control`.
    pub fn of(&self, control: Control) -> Leave {
        match control.row().steward {
            // The limits of the whole server are set in the cores' places.
            Steward::Cpu | Steward::Server => self.cpu,
            Steward::Ssd => self.ssd,
            Steward::Cooling => self.cooling,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            policy: "pacer".to_owned(),
            apply: false,
            plf: Settings::default().plf,
            tail: None,
            ssd_budget: None,
            server_budget: None,
            curve: None,
            serve: None,
            serve_control: None,
            metrics: None,
            metrics_name: Vec::new(),
            control: None,
            page: None,
            ledger: None,
            record: None,
            record_keep: Bytes(1 << 30),
            period: PERIOD,
            contest: Contest::default(),
            profile: "generic-1u".to_owned(),
            machine: Machine::default(),
            hold: Hold::default(),
            leave: Leaves::default(),
            trial: None,
            job: Vec::new(),
            schedule: Vec::new(),
        }
    }
}

fn address<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(from)?;
    let wrong = |_| format!("\"{text}\": write ADDRESS:PORT, such as 127.0.0.1:9091");
    text.parse().map(Some).map_err(wrong).map_err(de::Error::custom)
}

/// A file in a folder that systemd has made for the service, and names in `variable`.
fn of_service(variable: &str, file: &str) -> Option<PathBuf> {
    output::in_service(&std::env::var_os(variable)?, file)
}

/// What is wrong with a value, and the key that it stands under.
pub struct Wrong {
    key: String,
    pub error: anyhow::Error,
}

/// Says which key an error is about.
fn about(key: &str) -> impl Fn(anyhow::Error) -> Wrong {
    move |error| Wrong { key: key.to_owned(), error }
}

/// The line of `text` in which `key` stands, if it does; of an array its elements have numbers.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let table = DeTable::parse(text).ok()?;
    let mut at = DeValue::Table(table.into_inner());
    let mut start = None;
    for part in key.split('.') {
        at = match at {
            DeValue::Array(all) => all.into_iter().nth(part.parse().ok()?)?.into_inner(),
            DeValue::Table(table) => {
                let (name, value) = table.into_iter().find(|(name, _)| name.get_ref() == part)?;
                start = Some(name.span().start);
                value.into_inner()
            }
            _ => return None,
        };
    }
    Some(line_at(text, start?))
}

fn line_at(text: &str, byte: usize) -> usize {
    text.get(..byte).unwrap_or_default().matches('\n').count() + 1
}

impl Config {
    /// The one in `path`; without a path, the usual one, or the defaults where there is none.
    ///
    /// # Errors
    /// What is wrong with it, and in which line.
    pub fn load(path: Option<&Path>) -> Result<Self> {
        Self::changed(path, |_| Vec::new())
    }

    /// The same with what `change` writes over it: the keys that it returns.
    ///
    /// # Errors
    /// See above; of what was written over, no line is wrong.
    pub fn changed(
        path: Option<&Path>,
        change: impl FnOnce(&mut Self) -> Vec<&'static str>,
    ) -> Result<Self> {
        let file = path.unwrap_or(Path::new(FILE));
        let text = match ebb_trace::files::text(file) {
            Err(error) if path.is_none() && error.kind() == std::io::ErrorKind::NotFound => {
                String::new()
            }
            read => read.map_err(|error| usage(format!("{}: {error}", file.display())))?,
        };
        let wrong = |error: toml::de::Error| {
            let line = line_at(&text, error.span().map_or(0, |span| span.start));
            usage(format!("{}: line {line}: {}", file.display(), error.message()))
        };
        let mut config: Self = toml::from_str(&text).map_err(wrong)?;
        let changed = change(&mut config);
        config.check().map_err(|Wrong { key, error }| {
            if changed.contains(&&*key) {
                return error;
            }
            let line = line_of(&text, &key).map(|line| format!(": line {line}"));
            error.context(format!("{}{}", file.display(), line.unwrap_or_default()))
        })?;
        Ok(config)
    }

    /// Whether it can be.
    ///
    /// # Errors
    /// What is wrong, and what would be right.
    pub fn check(&self) -> Result<(), Wrong> {
        let no = |key: &str, why: String| Err(about(key)(usage(format!("{key}{why}"))));
        let owned = ebb_policy::registry::owned(&self.policy).map_err(anyhow::Error::from);
        let owned = owned.map_err(about("policy"))?;
        if let Some((key, why)) = self.wrong_of_server(&owned) {
            return no(key, why);
        }
        if !PERIODS.contains(&self.period) {
            let (shortest, longest) = (PERIODS.start(), PERIODS.end());
            return no("period", format!(" = {}: write {shortest} to {longest}", self.period));
        }
        if self.machine.min_duty > 1.0 {
            let duty = self.machine.min_duty;
            return no("machine.min_duty", format!(" = {duty}: write a share up to 1"));
        }
        if let Some((drive, _)) = self.machine.drive_watts.iter().find(|(_, most)| most.0 <= 0.0) {
            let text = format!(" of \"{drive}\": the most that it draws is more than 0 W");
            return no("machine.drive_watts", text);
        }
        if self.machine.min_cores == 0 {
            return no("machine.min_cores", " = 0: a group keeps one core at least".to_owned());
        }
        if self.record_keep < LEAST_RECORD {
            let keep = self.record_keep;
            return no("record_keep", format!(" = {keep}: write {LEAST_RECORD} or more"));
        }
        let mut spans = self.schedule.iter().map(Span::check).enumerate();
        if let Some((at, (key, why))) = spans.find_map(|(at, is)| Some((at, is.err()?))) {
            return no(&format!("schedule.{at}.{key}"), why.to_owned());
        }
        Names::of(self.metrics, &self.metrics_name).map_err(about("metrics_name"))?;
        self.machine.check_fans().map_err(about("machine.fans"))?;
        self.machine.check_feeds().map_err(about("machine.feeds"))?;
        if self.tail.is_some() && !keeps_tail(&self.policy) {
            return no("tail", format!(": {} does not keep it; pacer does", self.policy));
        }
        if self.tail.is_some() && self.serve.is_none() {
            let why = ": the kernel counts no percentiles; an `ebb serve` on this host does: set \
                       serve to the address of its metrics, or leave tail out";
            return no("tail", why.to_owned());
        }
        if let Some((key, why)) = self.wrong_of_drives(&owned) {
            return no(&key, why);
        }
        let is_path = |group: &str| !group.split('/').any(|part| ["", ".", ".."].contains(&part));
        if let Some(group) = self.hold.background.iter().find(|group| !is_path(group)) {
            let why = "write its path below /sys/fs/cgroup, such as \"backup.slice\"";
            return no("hold.background", format!(": \"{group}\": {why}"));
        }
        if let Err((key, why)) = self.holds().check() {
            return no(&format!("hold.{key}"), why);
        }
        self.check_groups()?;
        if let Some(Err((key, why))) = self.trial.map(|trial| trial.check()) {
            return no(key, why);
        }
        if let Err((key, why)) = self.machine.check_hosts(self.serve.is_some()) {
            return no(key, why);
        }
        let profile = Profile::load(&self.profile).map_err(anyhow::Error::from);
        let profile = profile.map_err(about("profile"))?;
        self.check_parameters(&profile.topology()).map_err(about("policy"))?;
        self.curve().map_err(about("curve"))?;
        self.machine.reactors().map_err(about("machine.reactors"))?;
        self.stated().map_err(about("machine.groups")).map(drop)
    }

    /// Whether the policies' parameters are in their ranges, which are those of any server; budgets
    /// that a server cannot keep are its own.
    fn check_parameters(&self, topology: &Topology) -> Result<()> {
        let settings = Settings { plf: self.plf, tail: self.tail, ..Settings::default() };
        for part in self.policy.split('+') {
            if let Err(error @ PolicyError::Parameter { .. }) = both(part, topology, &settings) {
                return Err(usage(format!("policy = \"{}\": {error}", self.policy)));
            }
        }
        Ok(())
    }

    /// Whether jobs and what may be throttled are groups of their own.
    fn check_groups(&self) -> Result<(), Wrong> {
        let jobs = self.job.iter().map(|job| &*job.cgroup);
        let throttle = &self.machine.throttle;
        let groups = throttle.iter().chain(self.machine.best_effort_groups());
        let all: Vec<_> = jobs.chain(groups.map(|of| &**of)).collect();
        check_groups(&all).map_err(|(at, wrong)| match at.checked_sub(self.job.len()) {
            None => about(&format!("job.{at}.cgroup"))(usage(format!("job: cgroup = {wrong}"))),
            Some(at) => {
                let key =
                    ["machine.best_effort", "machine.throttle"][usize::from(at < throttle.len())];
                about(key)(usage(format!("{key}: {wrong}")))
            }
        })
    }

    /// Every budget of the whole server, at whatever time of the day.
    pub fn server_budgets(&self) -> impl Iterator<Item = Watts> {
        let spans = self.schedule.iter().filter_map(Span::server_budget);
        self.server_budget.into_iter().chain(spans)
    }

    /// What is no budget, or wrong with that of the drives.
    fn wrong_of_drives(&self, owned: &[Control]) -> Option<(String, String)> {
        if let Err((key, why)) = are_budgets(self.ssd_budget, self.server_budget) {
            return Some((key.to_owned(), why.to_owned()));
        }
        let policy = &self.policy;
        let budgeted = match self.schedule.iter().position(Span::has_budget) {
            _ if self.ssd_budget.is_some() => Some("ssd_budget".to_owned()),
            at => at.map(|at| format!("schedule.{at}.ssd_budget")),
        };
        let caps = owned.contains(&Control::PowerState);
        match budgeted {
            Some(key) if !caps => {
                Some((key, format!(": {policy} does not keep it; {policy}+pacman does")))
            }
            None if owned == [Control::PowerState] => {
                let why = "sets nothing without ssd_budget, such as \"224 W\"";
                Some(("policy".to_owned(), format!(" = \"{policy}\" {why}")))
            }
            _ => None,
        }
    }

    /// What is wrong with the budget of the whole server.
    fn wrong_of_server(&self, owned: &[Control]) -> Option<(&'static str, String)> {
        let policy = &self.policy;
        let is_capping = owned.iter().any(|control| control.row().steward == Steward::Server);
        let slows = owned.contains(&Control::FrequencyLimit);
        if is_capping && !slows && self.machine.throttle.is_empty() {
            let why = "limits CPU time: name the control groups in machine.throttle that it may \
                       limit, or use tide, which does without";
            return Some(("policy", format!(" = \"{policy}\" {why}")));
        }
        let is_budgeted = self.server_budgets().next().is_some();
        let keeps = |key| Some((key, format!(": {policy} does not keep it; {policy}+tide does")));
        match (is_capping, is_budgeted, self.machine.feeds.is_empty()) {
            (true, false, true) => {
                let why = "limits nothing without server_budget, such as \"300 W\"";
                Some(("policy", format!(" = \"{policy}\" {why}")))
            }
            (false, true, _) => keeps("server_budget"),
            (false, false, false) => keeps("machine.feeds"),
            _ => None,
        }
    }

    /// What holds at the local time `now`.
    pub fn at(&self, now: Time) -> InEffect {
        let Self { plf, ssd_budget, server_budget, .. } = *self;
        let usual = InEffect { plf, ssd_budget, server_budget };
        InEffect::at(usual, &self.schedule, now)
    }

    /// What is stated of the machine.
    ///
    /// # Errors
    /// CPUs that are no list.
    pub fn stated(&self) -> Result<Stated> {
        let Machine { min_cores, park_by, min_duty, raise_limits, .. } = self.machine;
        let (groups, reactors) = (self.machine.stated_groups()?, self.machine.reactors()?);
        let (fans, jobs) = (self.machine.stated_fans(), self.jobs());
        Ok(Stated {
            groups,
            reactors,
            paces_reactors: self.paces_reactors(),
            min_cores,
            min_duty,
            park_by,
            raise_limits,
            fans,
            jobs,
            throttle: self.machine.throttle.clone(),
            best_effort: self.machine.best_effort_groups().cloned().collect(),
            best_effort_hosts: self.machine.best_effort_hosts().cloned().collect(),
            drive_watts: self.machine.drive_watts.clone(),
            holds_drive_power: self.hold.drive_power.is_some(),
            holds_package_power: self.hold.package_power.is_some(),
            served: self.serve.map(|address| format!("ebb serve at {address}")),
        })
    }

    /// Whether the reactors' cores run at the frequency that their scheduler asks for.
    pub fn paces_reactors(&self) -> bool {
        self.serve.is_some() && self.machine.reactors.is_some()
    }

    /// Where the control socket is, if there is one.
    pub fn control(&self) -> Option<PathBuf> {
        let own = || of_service("RUNTIME_DIRECTORY", "run.sock");
        self.control.clone().or_else(own)
    }

    /// Where the live page's socket is, if there is one.
    pub fn page(&self) -> Option<PathBuf> {
        let own = || of_service("RUNTIME_DIRECTORY", "page.sock");
        self.page.clone().or_else(own).filter(|path| !path.as_os_str().is_empty())
    }

    /// Where the ledger is, if there is one.
    pub fn ledger(&self) -> Option<PathBuf> {
        let own = || of_service("STATE_DIRECTORY", "ledger.sqlite");
        self.ledger.clone().or_else(own).filter(|path| !path.as_os_str().is_empty())
    }

    /// The jobs as stated.
    pub fn jobs(&self) -> Vec<StatedJob> {
        let job = |Job { cgroup: group, class, name }: Job| StatedJob { group, class, name };
        self.job.iter().cloned().map(job).collect()
    }

    /// What is held.
    pub fn holds(&self) -> Holds {
        let hold = self.hold.clone();
        Holds {
            package_power: hold.package_power,
            drive_power: hold.drive_power,
            cpu_latency: hold.cpu_latency,
            energy_preference: hold.energy_preference,
            disk_standby: hold.disk_standby,
            background: hold.background,
        }
    }

    /// The curve of the disks.
    ///
    /// # Errors
    /// A file that is none.
    pub fn curve(&self) -> Result<Option<Curve>> {
        self.curve.as_deref().map(crate::curve::read).transpose()
    }
}

#[cfg(test)]
crate::schema::written!("config-1", Config, as read);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_explains_every_key_and_is_the_default() {
        let text = include_str!("../../../../examples/ebb.toml");
        // Those without a default stand there as comments.
        let shown: Config = toml::from_str(text).unwrap();
        assert_eq!(shown, Config::default());
        let all = text.lines().map(|line| line.trim_start_matches("# "));
        let all: String = all.filter(|line| line.contains('=') || line.starts_with('[')).fold(
            String::new(),
            |mut text, line| {
                text.push_str(line);
                text.push('\n');
                text
            },
        );
        let all: Config = toml::from_str(&all).unwrap();
        assert!(all.tail.is_some() && all.ssd_budget.is_some() && all.server_budget.is_some());
        assert!(
            all.curve.is_some()
                && all.serve.is_some()
                && all.metrics.is_some()
                && !all.metrics_name.is_empty()
                && all.control.is_some()
                && all.page.is_some()
                && all.ledger.is_some()
                && all.record.is_some()
        );
        assert!(!all.machine.groups.is_empty() && !all.schedule.is_empty());
        assert!(all.machine.reactors.is_some() && !all.machine.throttle.is_empty());
        assert!(!all.machine.best_effort.is_empty());
        assert!(!all.machine.fans.is_empty() && !all.job.is_empty());
        assert!(!all.machine.feeds.is_empty() && all.trial.is_some());
        assert!(all.hold.energy_preference.is_some());
    }
}
