//! Users' I/O as an `ebb serve` of this host counts it: each request, with its percentiles, where
//! the kernel only sums up what reaches the drives.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use ebb_host::Host;
use ebb_policy::units::Nanos;
use ebb_policy::{Applied, InForce, IoSignals, OpSignals, Percentiles, Plant, Signals};

use crate::out;
use crate::serve::{self, Status};

/// A server on the same host answers in a few milliseconds, on a busy one in tens of them. A cycle
/// waits no longer.
const DEADLINE: Duration = Duration::from_millis(200);

/// Asks one server, by a thread, so that one that hangs does not hold a cycle up.
#[derive(Debug)]
pub struct Served {
    address: SocketAddr,
    asks: SyncSender<()>,
    answers: Receiver<Result<Status>>,
    /// Whether an answer is still to come.
    is_late: bool,
    before: Option<Counts>,
    /// Why nothing is known, as it was told.
    trouble: Option<String>,
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
    count: u64,
    bytes: u64,
    seconds: f64,
    /// By upper end of a bucket in nanoseconds.
    times: BTreeMap<u64, u64>,
}

impl Served {
    /// The server whose metrics are at `address`.
    ///
    /// # Errors
    /// Where there is no thread to be had.
    pub fn new(address: SocketAddr) -> Result<Self> {
        let (asks, asked) = sync_channel(1);
        let (answer, answers) = sync_channel(1);
        let work = move || {
            for () in asked {
                if answer.send(serve::ask(address)).is_err() {
                    break;
                }
            }
        };
        let thread = thread::Builder::new().name("ebb served".to_owned());
        thread.spawn(work).context("no thread to ask ebb serve with")?;
        Ok(Self { address, asks, answers, is_late: false, before: None, trouble: None })
    }

    /// Fills in users' I/O of the period; nothing where the server does not say.
    fn read(&mut self, signals: &mut Signals) {
        let now = self.ask().map(|status| Counts::of(&status));
        let trouble = now.as_ref().err().cloned();
        if trouble != self.trouble {
            match &trouble {
                Some(why) => out::note(format_args!("users' I/O is not known: {why}")),
                None => out::note(format_args!("users' I/O is known again, from {}", self.address)),
            }
            self.trouble = trouble;
        }
        let before = std::mem::replace(&mut self.before, now.ok());
        let since = self.before.as_ref().zip(before.as_ref()).and_then(|(now, b)| now.since(b));
        signals.io = since.unwrap_or_default();
    }

    fn ask(&mut self) -> Result<Status, String> {
        let gone = || "nobody asks ebb serve any more".to_owned();
        if self.is_late {
            match self.answers.try_recv() {
                // Of a moment that has passed.
                Ok(_) => self.is_late = false,
                Err(TryRecvError::Empty) => return Err(self.no_answer()),
                Err(TryRecvError::Disconnected) => return Err(gone()),
            }
        }
        self.asks.send(()).map_err(|_| gone())?;
        match self.answers.recv_timeout(DEADLINE) {
            Ok(answer) => answer.map_err(|error| format!("{error:#}")),
            Err(RecvTimeoutError::Timeout) => {
                self.is_late = true;
                Err(self.no_answer())
            }
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
        }
    }

    fn no_answer(&self) -> String {
        format!("ebb serve at {} does not answer within {} ms", self.address, DEADLINE.as_millis())
    }
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
            op.count += kind.count;
            op.seconds += kind.sum_s;
            op.bytes += done.map(|done| done.bytes).sum::<u64>();
            for (end, count) in &kind.buckets {
                *op.times.entry(*end).or_default() += count;
            }
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
        let all = self.others.since(&before.others)?.plus(&reads).plus(&writes);
        let grown = self.in_flight.saturating_sub(before.in_flight);
        let OpSignals { completed, bytes, mean_latency, percentiles } = all.signals();
        Some(IoSignals {
            arrived: Some(all.count + grown),
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
        let old = |end: &u64| before.times.get(end).copied().unwrap_or_default();
        let times =
            self.times.iter().map(|(end, count)| Some((*end, count.checked_sub(old(end))?)));
        Some(Self {
            count: self.count.checked_sub(before.count)?,
            bytes: self.bytes.checked_sub(before.bytes)?,
            seconds: (self.seconds - before.seconds).max(0.0),
            times: times.collect::<Option<_>>()?,
        })
    }

    fn plus(mut self, other: &Self) -> Self {
        self.count += other.count;
        self.bytes += other.bytes;
        self.seconds += other.seconds;
        other.times.iter().for_each(|(end, count)| *self.times.entry(*end).or_default() += count);
        self
    }

    fn signals(&self) -> OpSignals {
        let all: u64 = self.times.values().sum();
        let at = |share: f64| {
            let rank = ((share * all as f64).ceil() as u64).max(1);
            let mut seen = 0;
            let reaches = |(end, count): (&u64, &u64)| {
                seen += count;
                (seen >= rank).then_some(Nanos(*end))
            };
            self.times.iter().find_map(reaches)
        };
        let percentiles = at(0.5).zip(at(0.99)).zip(at(0.999));
        OpSignals {
            completed: Some(self.count),
            bytes: Some(self.bytes),
            mean_latency: (self.count > 0)
                .then(|| Nanos::from_seconds(self.seconds / self.count as f64)),
            percentiles: percentiles.map(|((p50, p99), p999)| Percentiles { p50, p99, p999 }),
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
            served.read(signals);
        }
    }

    fn apply(&mut self, given: &InForce, applied: &mut Applied) {
        self.host.apply(given, applied);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(count: u64, seconds: f64, times: &[(u64, u64)]) -> Op {
        Op { count, bytes: 4096 * count, seconds, times: times.iter().copied().collect() }
    }

    #[test]
    fn a_period_is_the_change_of_the_server_s_counts() {
        let before = Counts { uptime: 1.0, reads: op(2, 1.0, &[(500, 2)]), ..Counts::default() };
        let reads = op(102, 1.2, &[(500, 2), (1000, 97), (9000, 3)]);
        let writes = op(4, 0.4, &[(2000, 4)]);
        let now = Counts { uptime: 1.5, reads, writes, in_flight: 3, ..Counts::default() };
        let io = now.since(&before).unwrap();
        assert_eq!((io.completed, io.arrived, io.in_flight), (Some(104), Some(107), Some(3)));
        assert_eq!(io.reads.mean_latency, Some(Nanos::from_millis(2)));
        let of = |op: OpSignals| op.percentiles.map(|p| (p.p50.0, p.p99.0, p.p999.0));
        assert_eq!(of(io.reads), Some((1000, 9000, 9000)));
        assert_eq!(of(io.writes), Some((2000, 2000, 2000)));
        assert_eq!(io.bytes, Some(104 * 4096));
        // It was started anew, and has already done more than before.
        let again = Counts { uptime: 0.5, ..now.clone() };
        assert_eq!(again.since(&before), None);
        let quiet = Counts { uptime: 2.0, ..now.clone() }.since(&now).unwrap();
        assert_eq!((quiet.completed, quiet.mean_latency), (Some(0), None));
        assert_eq!(quiet.percentiles, None);
    }
}
