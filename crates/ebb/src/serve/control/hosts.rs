//! Who gets in, and how much of the target each host may have.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use ebb_cli::usage;
use ebb_target::controller::{Allowed, Subsystem, check_nqn};
use serde::Deserialize;
use serde_json::{Value, to_value};

use super::super::access::Hosts;
use super::super::options::Options;
use super::{Control, Part, Running, done, replies, texts};

/// Limits are lent for no longer, in seconds.
const LONGEST_LOAN: f64 = 60.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Add {
    nqn: String,
    /// Files with its key, and with ours for it.
    key: Option<PathBuf>,
    ctrl_key: Option<PathBuf>,
    /// File with its key for TLS.
    tls_key: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    nqn: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loan {
    /// Bytes a second of each host; null ends what was lent.
    hosts: BTreeMap<String, Option<u64>>,
    seconds: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    nqn: String,
    iops: Option<u64>,
    bytes_per_second: Option<u64>,
}

/// Whether NQN=FILE is of this host.
fn is_of(text: &str, nqn: &str) -> bool {
    text.split_once('=').is_some_and(|(name, _)| name == nqn)
}

/// Whether any host has a key.
fn has_keys(options: &Options) -> bool {
    !options.dhchap_key.is_empty() || !options.tls_key.is_empty()
}

/// How a host gets in.
fn access(options: &Options, nqn: &str) -> &'static str {
    let named = !options.allow_host.is_empty() || has_keys(options);
    match () {
        () if options.dhchap_key.iter().any(|text| is_of(text, nqn)) => "key",
        () if options.tls_key.iter().any(|text| is_of(text, nqn)) => "TLS key",
        () if options.allow_host.iter().any(|name| name == nqn) => "name",
        () if named => "none",
        () => "any",
    }
}

/// The options without this host.
fn without(options: &Options, nqn: &str) -> Options {
    let mut options = options.clone();
    options.allow_host.retain(|name| name != nqn);
    options.dhchap_key.retain(|text| !is_of(text, nqn));
    options.tls_key.retain(|text| !is_of(text, nqn));
    options.dhchap_ctrl_key.retain(|text| !is_of(text, nqn));
    options
}

fn is_name(nqn: &str) -> Result<()> {
    check_nqn(nqn).map_err(|error| usage(error.to_string()))
}

/// Of the names that a configuration can have: there, a comma or '=' ends one.
fn checked(nqn: &str) -> Result<()> {
    is_name(nqn)?;
    if nqn.contains([',', '=']) {
        let why = "a name with a comma or '=' cannot be written into the configuration";
        return Err(usage(format!("host '{nqn}': {why}; give the host another one")));
    }
    Ok(())
}

impl Control {
    /// Lets those in that `change` names, whose files are read without the lock. What is `told`
    /// has the options before.
    fn admit(
        &self,
        change: impl FnOnce(&Running) -> Result<Options>,
        told: impl FnOnce(&Options, &Running) -> String,
    ) -> Result<Value> {
        let mut options = Options::default();
        let _apart = self.apart(|running| {
            options = change(running)?;
            Ok((Part::Access, String::new()))
        })?;
        let files = Hosts::of(&options)?;
        self.with(|running| {
            running.vault.set(files);
            let names = Some(options.allow_host.clone()).filter(|names| !names.is_empty());
            let set = running.subsystem().set_allowed_hosts(names);
            set.map_err(|error| usage(error.to_string()))?;
            let before = running.options.clone();
            // Others may have changed the rest meanwhile.
            let Options { allow_host, dhchap_key, dhchap_ctrl_key, tls_key, .. } = options;
            let rest = before.clone();
            running.options = Options { allow_host, dhchap_key, dhchap_ctrl_key, tls_key, ..rest };
            self.warn(running);
            Ok(done(told(&before, running)))
        })
    }

    pub(super) fn hosts(&self) -> Result<Value> {
        self.with(|running| {
            let options = &running.options;
            let names = options.allow_host.iter().map(String::as_str);
            let keys = options.dhchap_key.iter().chain(&options.tls_key);
            let keys = keys.filter_map(|text| text.split_once('='));
            let connected = running.subsystem().connected();
            let (lent, done) = (running.subsystem().lent(), running.subsystem().done());
            let limited = running.limits.keys().chain(lent.keys()).map(String::as_str);
            let all = names.chain(keys.map(|(name, _)| name)).chain(limited);
            let all = all.chain(connected.keys().map(String::as_str));
            let mut hosts = BTreeMap::new();
            for nqn in all {
                let limit = running.limits.get(nqn).copied().unwrap_or_default();
                hosts.entry(nqn).or_insert_with(|| replies::Host {
                    nqn: nqn.to_owned(),
                    access: access(options, nqn).to_owned(),
                    controllers: connected.get(nqn).copied().unwrap_or(0),
                    iops: limit.iops,
                    bytes_per_second: limit.bytes_per_second,
                    lent_bytes_per_second: lent.get(nqn).copied(),
                    commands: done.get(nqn).map(|done| done.reads + done.writes),
                    bytes: done.get(nqn).map(|done| done.bytes_read + done.bytes_written),
                });
            }
            let any = options.allow_host.is_empty() && !has_keys(options);
            let hosts = hosts.into_values().collect();
            Ok(to_value(replies::Hosts { any, hosts })?)
        })
    }

    pub(super) fn add_host(&self, Add { nqn, key, ctrl_key, tls_key }: Add) -> Result<Value> {
        checked(&nqn)?;
        let mut files = key.iter().chain(&ctrl_key).chain(&tls_key);
        if let Some(path) = files.find(|path| !path.is_absolute()) {
            return Err(usage(format!("{}: give the whole path", path.display())));
        }
        let change = |running: &Running| {
            let mut options = without(&running.options, &nqn);
            let pair = |path: &PathBuf| format!("{nqn}={}", path.display());
            if tls_key.is_some() && !running.has_tls() {
                return Err(usage(format!(
                    "host {nqn} has a key for TLS, and the server was started without: it needs \
                     memory for that; start it with --tls-key"
                )));
            }
            if key.is_none() && tls_key.is_none() {
                options.allow_host.push(nqn.clone());
            }
            options.dhchap_key.extend(key.iter().map(pair));
            options.dhchap_ctrl_key.extend(ctrl_key.iter().map(pair));
            options.tls_key.extend(tls_key.iter().map(pair));
            Ok(options)
        };
        let has_key = key.is_some() || tls_key.is_some();
        let how = if has_key { "with its key" } else { "without a key" };
        let others = "; from now on only hosts that are named may connect, those that are \
                      connected stay";
        self.admit(change, |before, _| {
            let is_first = access(before, &nqn) == "any";
            format!("host {nqn} may connect {how}{}", if is_first { others } else { "" })
        })
    }

    pub(super) fn remove_host(&self, Named { nqn }: &Named) -> Result<Value> {
        let change = |running: &Running| {
            if !matches!(access(&running.options, nqn), "key" | "TLS key" | "name") {
                return Err(usage(format!(
                    "host {nqn} is not named; ebb ctl host list shows who is"
                )));
            }
            let options = without(&running.options, nqn);
            if access(&options, nqn) == "any" {
                return Err(usage(format!(
                    "{nqn} is the last host that is named: without it anyone could connect; name \
                     another first with ebb ctl host add"
                )));
            }
            Ok(options)
        };
        self.admit(change, |_, running| {
            let count = running.subsystem().expel(nqn);
            format!("host {nqn} may not connect any more; {}", ended(count))
        })
    }

    pub(super) fn disconnect_host(&self, Named { nqn }: &Named) -> Result<Value> {
        is_name(nqn)?;
        let count = self.subsystem()?.expel(nqn);
        Ok(done(format!("host {nqn}: {}", ended(count))))
    }

    pub(super) fn set_limit(&self, limit: Limit) -> Result<Value> {
        let Limit { nqn, iops, bytes_per_second } = limit;
        checked(&nqn)?;
        let allowed = Allowed { iops, bytes_per_second };
        texts::check(allowed)?;
        self.with(|running| {
            allow(running.subsystem(), &nqn, allowed)?;
            let text = texts::of_limit(&nqn, allowed);
            running.limits.insert(nqn, allowed);
            Ok(done(format!("limited: {text}")))
        })
    }

    pub(super) fn clear_limit(&self, Named { nqn }: &Named) -> Result<Value> {
        self.with(|running| {
            allow(running.subsystem(), nqn, Allowed::default())?;
            Ok(done(match running.limits.remove(nqn) {
                Some(_) => format!("host {nqn} has no limit any more"),
                None => format!("host {nqn} had no limit"),
            }))
        })
    }

    /// Limits hosts for a while besides what the operator says: whoever keeps a budget asks for it
    /// again and again, and nothing has to be taken back when he is gone.
    pub(super) fn lend_limits(&self, Loan { hosts, seconds }: Loan) -> Result<Value> {
        if !(0.0..=LONGEST_LOAN).contains(&seconds) {
            return Err(usage(format!("seconds must be 0 to {LONGEST_LOAN}")));
        }
        for (nqn, rate) in &hosts {
            is_name(nqn)?;
            let allowed = Allowed { iops: None, bytes_per_second: *rate };
            rate.map_or(Ok(()), |_| texts::check(allowed))?;
        }
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        self.with(|running| {
            for (nqn, rate) in &hosts {
                let lent = running.subsystem().lend(nqn, rate.map(|rate| (rate, until)));
                lent.map_err(|error| usage(error.to_string()))?;
            }
            let done = format!("{} hosts", hosts.len());
            Ok(to_value(replies::Done { done })?)
        })
    }
}

fn allow(subsystem: &Subsystem, nqn: &str, allowed: Allowed) -> Result<()> {
    subsystem.allow(nqn, allowed).map_err(|error| usage(error.to_string()))
}

fn ended(count: usize) -> String {
    match count {
        0 => "it was not connected".to_owned(),
        1 => "its controller was ended".to_owned(),
        _ => format!("its {count} controllers were ended"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_a_configuration_cannot_have_are_refused() {
        for (tail, may) in [("a", true), ("a,iops=99", false), ("a=b", false), ("q\"'", true)] {
            let name = format!("nqn.2026-11.org.example:{tail}");
            assert!(is_name(&name).is_ok(), "{name}");
            assert_eq!(checked(&name).is_ok(), may, "{name}");
        }
    }
}
