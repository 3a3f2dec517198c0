//! Users' I/O as an `ebb serve` of this host counts it: each request, with its percentiles, where
//! the kernel only sums up what reaches the drives.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use ebb_cli::out;
use ebb_host::{Host, Layout, Patience, cpu_list};
use ebb_policy::units::Nanos;
use ebb_policy::{
    Applied, BestEffortSignals, Control, InForce, IoSignals, OpSignals, Outcome, Percentiles,
    Plant, Signal, Signals, Source,
};
use ebb_target::transport::Distribution;

use super::config::Config;
use super::tenants::Tenants;
use crate::rpc;
use crate::serve::{self, Status};

/// A server on the same host answers in a few milliseconds, on a busy one in tens of them. A cycle
/// waits no longer.
const DEADLINE: Duration = Duration::from_millis(200);

/// One server.
#[derive(Debug)]
pub struct Served {
    address: SocketAddr,
    server: Patience<SocketAddr>,
    before: Option<Counts>,
    /// Why nothing is known, as it was told.
    trouble: Option<String>,
    /// The CPUs that it runs on and policies steer, as it was told.
    contested: Vec<usize>,
    /// The share of its highest frequency that its scheduler asks for each CPU now, and what was
    /// told of that.
    asked: BTreeMap<u16, f64>,
    paced: BTreeMap<u16, f64>,
    /// Its hosts for which nobody waits.
    tenants: Option<Tenants>,
}

/// What was done since the server's start.
#[derive(Debug, Clone, Default)]
struct Counts {
    uptime: f64,
    reads: Op,
    writes: Op,
    others: Op,
    in_flight: u64,
}

/// Requests of one kind.
#[derive(Debug, Clone, Default)]
struct Op {
    bytes: u64,
    times: Distribution,
}

impl Served {
    /// The server that `config` names, if it does.
    ///
    /// # Errors
    /// Where there is no thread to be had.
    pub fn of(config: &Config) -> Result<Option<Self>> {
        let Some(address) = config.serve else { return Ok(None) };
        let hosts: Vec<_> = config.machine.best_effort_hosts().cloned().collect();
        let socket = config.serve_control.clone().unwrap_or_else(|| rpc::SERVE.into());
        let tenants = (!hosts.is_empty()).then(|| Tenants::new(socket, &hosts)).transpose()?;
        let server = Patience::new("ebb served", address, DEADLINE);
        let server = server.context("no thread to ask ebb serve with")?;
        Ok(Some(Self {
            address,
            server,
            before: None,
            trouble: None,
            contested: Vec::new(),
            asked: BTreeMap::new(),
            paced: BTreeMap::new(),
            tenants,
        }))
    }

    /// Says which of the CPUs that the server runs on policies steer, too.
    fn say_contested(&mut self, status: &Status, layout: &Layout) {
        let steered = |cpu: &usize| {
            let cores = layout.groups.iter().flatten();
            cores.flat_map(|core| &core.cpus).any(|one| usize::from(*one) == *cpu)
        };
        let contested: Vec<_> = status.cores.iter().map(|core| core.cpu).filter(steered).collect();
        if contested != self.contested && !contested.is_empty() {
            let all: Vec<_> = status.cores.iter().map(|core| core.cpu.to_string()).collect();
            out::note(format_args!(
                "ebb serve runs on CPU {}, which the policy steers too: give it its cores, \
                 machine.reactors = \"{}\"",
                contested.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
                all.join(","),
            ));
        }
        self.contested = contested;
    }

    /// What has changed of the frequencies of the reactors' cores, in words.
    pub fn paced(&mut self, host: &Host) -> Option<String> {
        let (layout, policies) = (host.layout(), &host.machine().cpus.policies);
        let its = policies.iter().filter(|_| layout.paces_reactors);
        let its = its.filter(|policy| layout.is_reactors(policy)).flat_map(|policy| &policy.cpus);
        let slowed = |cpu: &u16| Some((*cpu, *self.asked.get(cpu)?)).filter(|(_, at)| *at < 1.0);
        let now: BTreeMap<_, _> = its.filter_map(slowed).collect();
        if now == self.paced {
            return None;
        }
        let shares: BTreeSet<_> = now.values().map(|share| percent(*share)).collect();
        let of = |percent_: &u64| {
            let its = now.iter().filter(|(_, share)| percent(**share) == *percent_);
            let cpus: Vec<_> = its.map(|(cpu, _)| *cpu).collect();
            format!("CPUs {} at up to {percent_} %", cpu_list(&cpus))
        };
        let slowed: Vec<_> = shares.iter().map(of).collect();
        self.paced = now;
        Some(match &slowed[..] {
            [] => "reactors: frequencies as found".to_owned(),
            slowed => format!("reactors: {} of their frequency", slowed.join(", ")),
        })
    }

    /// Fills in users' I/O of the period; nothing where the server does not say.
    fn read(&mut self, signals: &mut Signals, host: &mut Host) {
        let status = match self.server.ask(|address| serve::ask(*address)) {
            Ok(status) => status.map_err(|error| format!("{error:#}")),
            Err(silence) => Err(format!("ebb serve at {}: {silence}", self.address)),
        };
        let trouble = status.as_ref().err().cloned();
        if trouble != self.trouble {
            match &trouble {
                Some(why) => out::note(format_args!("users' I/O is not known: {why}")),
                None => out::note(format_args!("users' I/O is known again, from {}", self.address)),
            }
            self.trouble = trouble;
        }
        if let Ok(status) = &status {
            self.say_contested(status, host.layout());
        }
        self.asked = status.as_ref().map(asked).unwrap_or_default();
        let now = status.ok().map(|status| Counts::of(&status));
        let before = std::mem::replace(&mut self.before, now);
        let since = self.before.as_ref().zip(before.as_ref()).and_then(|(now, b)| now.since(b));
        signals.io = since.unwrap_or_default();
        // What control groups do here for which nobody waits, the server does not see.
        let add = |to: &mut Option<u64>, more: Option<u64>| {
            *to = to.map(|count| count + more.unwrap_or_default());
        };
        let BestEffortSignals { requests, bytes } = signals.best_effort;
        add(&mut signals.io.arrived, requests);
        add(&mut signals.io.completed, requests);
        add(&mut signals.io.bytes, bytes);
        self.tenants.iter_mut().for_each(|tenants| tenants.read(signals, host));
        // Nothing of it is the host's any more.
        for of in [Signal::LatencyMean, Signal::ReadLatencyMean, Signal::WriteLatencyMean] {
            signals.sources.set(of, 0, Source::default());
        }
    }
}

fn percent(share: f64) -> u64 {
    (100.0 * share).round() as u64
}

/// The share of its highest frequency that is asked for each CPU.
fn asked(status: &Status) -> BTreeMap<u16, f64> {
    let of = |core: &serve::Core| {
        let share = core.frequency_requested_share.filter(|share| *share > 0.0)?;
        Some((u16::try_from(core.cpu).ok()?, share))
    };
    status.cores.iter().filter_map(of).collect()
}

impl Counts {
    fn of(status: &Status) -> Self {
        let mut counts = Self {
            uptime: status.server.uptime_s,
            in_flight: status.queues.devices,
            ..Self::default()
        };
        for kind in &status.service {
            let done = status.namespaces.iter().filter_map(|one| one.work.get(&kind.kind));
            let op = match kind.kind.as_str() {
                "read" => &mut counts.reads,
                "write" => &mut counts.writes,
                _ => &mut counts.others,
            };
            op.bytes += done.map(|done| done.bytes).sum::<u64>();
            let buckets: Vec<_> =
                kind.buckets.iter().map(|(end, count)| (Nanos(*end), *count)).collect();
            let seconds = Nanos::from_seconds;
            op.times += &Distribution::of(&buckets, seconds(kind.sum_s), seconds(kind.max_s));
        }
        counts
    }

    /// What was done since `before`; nothing where the server has begun anew.
    fn since(&self, before: &Self) -> Option<IoSignals> {
        if self.uptime <= before.uptime {
            return None;
        }
        let reads = self.reads.since(&before.reads)?;
        let writes = self.writes.since(&before.writes)?;
        let mut all = self.others.since(&before.others)?;
        for op in [&reads, &writes] {
            all.bytes += op.bytes;
            all.times += &op.times;
        }
        let grown = self.in_flight.saturating_sub(before.in_flight);
        let OpSignals { completed, bytes, mean_latency, percentiles } = all.signals();
        Some(IoSignals {
            arrived: completed.map(|completed| completed + grown),
            completed,
            bytes,
            mean_latency,
            max_latency: None,
            percentiles,
            in_flight: Some(self.in_flight),
            reads: reads.signals(),
            writes: writes.signals(),
        })
    }
}

impl Op {
    fn since(&self, before: &Self) -> Option<Self> {
        let bytes = self.bytes.checked_sub(before.bytes)?;
        Some(Self { bytes, times: self.times.since(&before.times)? })
    }

    fn signals(&self) -> OpSignals {
        let (count, at) = (self.times.count(), |share| self.times.quantile(share));
        OpSignals {
            completed: Some(count),
            bytes: Some(self.bytes),
            mean_latency: (count > 0).then(|| Nanos(self.times.sum().0 / count)),
            percentiles: (count > 0).then(|| Percentiles {
                p50: at(0.5),
                p99: at(0.99),
                p999: at(0.999),
            }),
        }
    }
}

/// The machine, and where users' I/O is counted.
pub struct Watched<'a> {
    /// The machine.
    pub host: &'a mut Host,
    /// The server; without one what reaches the drives is what is known of users' I/O.
    pub served: Option<&'a mut Served>,
}

impl Plant for Watched<'_> {
    fn sense(&mut self, signals: &mut Signals) {
        self.host.sense(signals);
        if let Some(served) = &mut self.served {
            served.read(signals, self.host);
        }
    }

    fn apply(&mut self, given: &InForce, applied: &mut Applied) {
        self.host.apply(given, applied);
        if let Some(served) = &mut self.served {
            let limited = served.tenants.as_mut().map(|tenants| tenants.limit(self.host));
            if let Some(outcome) = limited.filter(|outcome| *outcome != Outcome::Done) {
                applied.set(Control::BestEffortRate, 0, outcome);
            }
            self.host.pace_reactors(|cpu| served.asked.get(&cpu).copied());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of buckets by their upper ends in nanoseconds, and all times in microseconds.
    fn op(buckets: &[(u64, u64)], micros: u64) -> Op {
        let buckets: Vec<_> = buckets.iter().map(|(end, count)| (Nanos(*end), *count)).collect();
        let times = Distribution::of(&buckets, Nanos::from_micros(micros), Nanos(1 << 30));
        Op { bytes: 4096 * times.count(), times }
    }

    #[test]
    fn a_period_is_the_change_of_the_server_s_counts() {
        let reads = op(&[(512, 2)], 1);
        let before = Counts { uptime: 1.0, reads, ..Counts::default() };
        let reads = op(&[(512, 2), (1024, 97), (9216, 3)], 201);
        let writes = op(&[(2048, 4)], 8);
        let now = Counts { uptime: 1.5, reads, writes, in_flight: 3, ..Counts::default() };
        let io = now.since(&before).unwrap();
        assert_eq!((io.completed, io.arrived, io.in_flight), (Some(104), Some(107), Some(3)));
        assert_eq!(io.reads.mean_latency, Some(Nanos::from_micros(2)));
        let of = |op: OpSignals| op.percentiles.map(|p| (p.p50.0, p.p99.0, p.p999.0));
        assert_eq!(of(io.reads), Some((1024, 9216, 9216)));
        assert_eq!(of(io.writes), Some((2048, 2048, 2048)));
        assert_eq!(io.bytes, Some(104 * 4096));
        // It was started anew, and has already done more than before.
        let again = Counts { uptime: 0.5, ..now.clone() };
        assert_eq!(again.since(&before), None);
        let quiet = Counts { uptime: 2.0, ..now.clone() }.since(&now).unwrap();
        assert_eq!((quiet.completed, quiet.mean_latency), (Some(0), None));
        assert_eq!(quiet.percentiles, None);
    }
}
