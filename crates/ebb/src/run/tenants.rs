//! Hosts of an `ebb serve` for which nobody waits: what they move, and how much of that a budget
//! leaves them. A limit is lent by the server for some seconds and asked for anew each period, so
//! that nothing stays behind however this process ends.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use ebb_cli::out;
use ebb_host::{Host, Patience};
use ebb_policy::units::Nanos;
use ebb_policy::{Outcome, Signals};
use ebb_target::controller::LEAST_BYTES_PER_SECOND;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::rpc::client;
use crate::serve::{self, Hosts};

/// A cycle waits no longer for the server.
const DEADLINE: Duration = Duration::from_millis(200);
/// A limit ends after so many periods without another one, and not before this.
const PERIODS: u64 = 4;
const SHORTEST: Nanos = Nanos::from_secs(5);
/// The server takes no higher limit.
const MOST: f64 = (1_u64 << 40) as f64;

/// Hosts of one server.
#[derive(Debug)]
pub struct Tenants {
    socket: PathBuf,
    server: Patience<PathBuf>,
    /// Each, with its commands and bytes since its first queue, where it has any.
    hosts: Vec<(String, Option<(u64, u64)>)>,
    /// When that was, and when the server last answered at all.
    seen: Nanos,
    heard: Nanos,
    now: Nanos,
    period: Nanos,
    /// Whether any has a limit now.
    lent: bool,
    /// Why nothing is known or done, as it was told.
    trouble: Option<String>,
}

impl Tenants {
    /// The hosts of these names at the server with this control socket.
    ///
    /// # Errors
    /// Where there is no thread to be had.
    pub fn new(socket: PathBuf, names: &[String]) -> Result<Self> {
        let server = Patience::new("ebb tenants", socket.clone(), DEADLINE);
        let server = server.context("no thread to ask ebb serve with")?;
        let hosts = names.iter().map(|name| (name.clone(), None)).collect();
        let zero = Nanos::ZERO;
        let (seen, heard, now, period) = (zero, zero, zero, zero);
        Ok(Self { socket, server, hosts, seen, heard, now, period, lent: false, trouble: None })
    }

    /// Adds what they did in the period to what nobody waits for, and tells `host` of it.
    pub fn read(&mut self, signals: &mut Signals, host: &mut Host) {
        (self.now, self.period) = (signals.now, signals.period);
        // Who answers late this time tells all of it the next time.
        let Some(Hosts { hosts, .. }) = self.ask("host.list", json!({})) else { return };
        let span = signals.now.saturating_sub(self.seen).seconds().max(1e-9);
        self.seen = signals.now;
        let done = |one: serve::Host| Some((one.nqn, (one.commands?, one.bytes?)));
        let done: BTreeMap<_, _> = hosts.into_iter().filter_map(done).collect();
        let moved = |(name, before): &mut (String, Option<(u64, u64)>)| {
            let now = done.get(name).copied();
            let then = std::mem::replace(before, now)?;
            Some((now?.0.checked_sub(then.0)?, now?.1.checked_sub(then.1)?))
        };
        // One that comes, or comes back, has done nothing yet.
        let moved: Vec<_> =
            self.hosts.iter_mut().map(|one| moved(one).unwrap_or_default()).collect();
        host.hosts_used(moved.iter().map(|(_, bytes)| *bytes as f64 / span));
        let add = |to: &mut Option<u64>, of: fn(&(u64, u64)) -> u64| {
            *to = Some(to.unwrap_or_default() + moved.iter().map(of).sum::<u64>());
        };
        add(&mut signals.best_effort.requests, |(commands, _)| *commands);
        add(&mut signals.best_effort.bytes, |(_, bytes)| *bytes);
    }

    /// Has the server limit them as `host` says.
    pub fn limit(&mut self, host: &Host) -> Outcome {
        let rate = |rate: f64| rate.clamp(LEAST_BYTES_PER_SECOND as f64, MOST) as u64;
        let rates: Vec<_> = host.hosts_given().map(|given| given.map(rate)).collect();
        let lends = rates.iter().any(Option::is_some);
        if !std::mem::replace(&mut self.lent, lends) && !lends {
            return Outcome::Done;
        }
        let names = self.hosts.iter().map(|(name, _)| name);
        let hosts: BTreeMap<_, _> = names.zip(rates).collect();
        let seconds = self.lasts().seconds();
        let done = self.ask::<Value>("limit.lend", json!({ "hosts": hosts, "seconds": seconds }));
        // Late is not refused, for as long as what was lent before lasts.
        match done {
            None if self.trouble.is_some() => Outcome::Refused,
            _ => Outcome::Done,
        }
    }

    /// For how long a limit is lent.
    fn lasts(&self) -> Nanos {
        Nanos(self.period.0 * PERIODS).max(SHORTEST)
    }

    /// What the server answers; that it does not is told once.
    fn ask<T: DeserializeOwned + Send + 'static>(
        &mut self,
        method: &'static str,
        params: Value,
    ) -> Option<T> {
        let answer = self.server.ask(move |socket| client::call::<T>(socket, method, &params));
        let silent = self.now.saturating_sub(self.heard) > self.lasts();
        let answer = match answer {
            Ok(answer) => answer.map_err(|error| format!("{error:#}")),
            Err(_) if !silent => return None,
            Err(silence) => Err(format!("ebb serve at {}: {silence}", self.socket.display())),
        };
        if answer.is_ok() {
            self.heard = self.now;
        }
        let trouble = answer.as_ref().err().cloned();
        if trouble != self.trouble {
            match &trouble {
                Some(why) => out::note(format_args!("hosts of ebb serve are not limited: {why}")),
                None => out::note("hosts of ebb serve can be limited again"),
            }
            self.trouble = trouble;
        }
        answer.ok()
    }
}
