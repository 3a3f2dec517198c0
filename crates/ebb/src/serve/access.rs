//! Who gets in: keys of hosts in files, and what to say where nobody is kept out.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use ebb_cli::usage;
use ebb_nvme::chap::{Group, Hash};
use ebb_nvme::keys;
use ebb_nvme::tls::{self, Security};
use ebb_target::controller::{Failure, Keys, Port, Rules, Secrets, Subsystem, TlsKeys, check_nqn};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::options::Options;

/// Who gets in, for the status.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Access {
    /// Whether there are hosts that must authenticate themselves.
    pub authentication: bool,
    /// Listeners with TLS 1.3.
    #[serde(default)]
    pub tls: Vec<Secured>,
    /// What is wrong and what to do, where others than this machine get in without.
    pub warning: Option<String>,
    /// Authentications, one for each queue and each time again.
    pub succeeded: u64,
    pub failed: u64,
    /// The last ones, oldest first.
    pub failures: Vec<Refused>,
}

/// A listener with TLS.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Secured {
    /// ADDRESS:PORT.
    pub listen: SocketAddr,
    /// It takes nothing else.
    pub required: bool,
}

/// A host that failed to authenticate itself.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Refused {
    #[schemars(range(min = 0))]
    pub at_s: f64,
    /// NQN, as whoever failed says.
    pub host: String,
    pub address: IpAddr,
    pub why: String,
}

impl Access {
    /// To a subsystem.
    pub fn of(subsystem: Option<&Subsystem>, warning: Option<String>) -> Self {
        let tally = subsystem.and_then(Subsystem::authentications);
        let failures = subsystem.map(|subsystem| subsystem.failures_since(0)).unwrap_or_default();
        let refused = |failure: Failure| {
            let Failure { at, host, address, why, .. } = failure;
            Refused { at_s: at.seconds(), host, address, why }
        };
        let ports = subsystem.map(Subsystem::ports).unwrap_or_default();
        let secured = |Port { address, security }: Port| {
            Some(Secured { listen: address, required: security? == Security::Required })
        };
        Self {
            authentication: tally.is_some(),
            tls: ports.into_iter().filter_map(secured).collect(),
            warning,
            succeeded: tally.map_or(0, |tally| tally.succeeded),
            failed: tally.map_or(0, |tally| tally.failed),
            failures: failures.into_iter().map(refused).collect(),
        }
    }
}

/// What is said of a listener's TLS.
pub const fn words(required: bool) -> &'static str {
    if required { "TLS required" } else { "TLS offered" }
}

/// Keys that a host may have at once: an old one and a new one.
const KEYS: usize = 2;

/// Where the keys of a host are, and that of the target for it.
#[derive(Clone, Default)]
struct Files {
    host: PathBuf,
    controller: Option<PathBuf>,
}

impl Files {
    fn keys(&self) -> Result<Keys, String> {
        let host = keys::read(&self.host, KEYS)?;
        let own = |path: &PathBuf| keys::read(path, 1);
        let controller = self.controller.as_ref().map(own).transpose()?;
        let controller = controller.and_then(|mut keys| keys.pop());
        if controller.as_ref().is_some_and(|key| host.iter().any(|other| other.is_same(key))) {
            return Err(format!(
                "{}: the target's key is the host's too; make another with nvme gen-dhchap-key",
                self.host.display()
            ));
        }
        Ok(Keys { host, controller })
    }
}

/// The files of all hosts that have keys, by how they show them.
pub struct Hosts {
    chap: BTreeMap<String, Files>,
    tls: BTreeMap<String, PathBuf>,
}

impl Hosts {
    /// The files that `options` name, all of which can be read.
    ///
    /// # Errors
    /// Names the option, or the file, that is not right.
    pub fn of(options: &Options) -> Result<Self> {
        Ok(Self { chap: chap_files(options)?, tls: tls_files(options)? })
    }
}

/// Where they are while the server runs.
pub struct Vault(Mutex<Hosts>);

impl Vault {
    fn files(&self) -> MutexGuard<'_, Hosts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As of [`Hosts::of`].
    ///
    /// # Errors
    /// As of [`Hosts::of`].
    pub fn read(options: &Options) -> Result<Self> {
        Ok(Self(Mutex::new(Hosts::of(options)?)))
    }

    /// From now on those of `hosts`.
    pub fn set(&self, hosts: Hosts) {
        *self.files() = hosts;
    }
}

impl Secrets for Vault {
    fn requires(&self, host: &str) -> bool {
        self.files().chap.contains_key(host)
    }

    fn guards(&self) -> bool {
        !self.files().chap.is_empty()
    }

    fn keys(&self, host: &str) -> Result<Keys, String> {
        let files = self.files().chap.get(host).cloned();
        files.ok_or("it has no key")?.keys()
    }
}

impl TlsKeys for Vault {
    fn has(&self, host: &str) -> bool {
        self.files().tls.contains_key(host)
    }

    fn guards(&self) -> bool {
        !self.files().tls.is_empty()
    }

    fn keys(&self, host: &str) -> Result<Vec<tls::Key>, String> {
        let file = self.files().tls.get(host).cloned();
        keys::read_tls(&file.ok_or("it has no key")?, KEYS)
    }
}

/// The file of each host that has a key for TLS.
fn tls_files(options: &Options) -> Result<BTreeMap<String, PathBuf>> {
    let mut files = BTreeMap::new();
    for text in &options.tls_key {
        let (host, path) = pair("--tls-key", text)?;
        keys::read_tls(path, KEYS).map_err(usage)?;
        if files.insert(host.to_owned(), path.to_owned()).is_some() {
            return Err(twice("--tls-key", text));
        }
    }
    match options.tls_listen.first().filter(|_| files.is_empty()) {
        Some(address) => Err(usage(format!(
            "--tls-listen {address}: no host has a key for TLS; give one with --tls-key NQN=FILE"
        ))),
        None => Ok(files),
    }
}

fn twice(option: &str, text: &str) -> anyhow::Error {
    usage(format!(
        "{option} {text}: this host has a file already; put both keys into one, a line each"
    ))
}

/// The files of each host that has keys for DH-HMAC-CHAP.
fn chap_files(options: &Options) -> Result<BTreeMap<String, Files>> {
    let mut all = BTreeMap::<String, Files>::new();
    for text in &options.dhchap_key {
        let (host, path) = pair("--dhchap-key", text)?;
        let files = Files { host: path.to_owned(), controller: None };
        if all.insert(host.to_owned(), files).is_some() {
            return Err(twice("--dhchap-key", text));
        }
    }
    for text in &options.dhchap_ctrl_key {
        let (host, path) = pair("--dhchap-ctrl-key", text)?;
        let files = all.get_mut(host).ok_or_else(|| {
            usage(format!("--dhchap-ctrl-key {text}: the host needs a key too, with --dhchap-key"))
        })?;
        files.controller = Some(path.to_owned());
    }
    all.values().try_for_each(|files| files.keys().map(drop)).map_err(usage)?;
    Ok(all)
}

/// How hosts authenticate themselves that have keys in `vault`.
///
/// # Errors
/// Names the option that is not right.
pub fn rules(options: &Options, vault: Arc<Vault>) -> Result<Rules> {
    let mut rules = Rules::new(vault);
    let hashes = Hash::ALL.map(|hash| (hash.name(), hash));
    let groups = Group::ALL.map(|group| (group.name(), group));
    chosen("--dhchap-hash", &options.dhchap_hash, &hashes, &mut rules.hashes)?;
    chosen("--dhchap-group", &options.dhchap_group, &groups, &mut rules.groups)?;
    Ok(rules)
}

/// The two parts of NQN=FILE.
fn pair<'a>(option: &str, text: &'a str) -> Result<(&'a str, &'a Path)> {
    let wrong = |why: &str| usage(format!("{option} {text}: {why}"));
    let (host, path) = text.split_once('=').ok_or_else(|| wrong("write NQN=FILE"))?;
    check_nqn(host).map_err(|error| wrong(&error.to_string()))?;
    Ok((host, Path::new(path)))
}

/// Those of `all` that are named, if any are.
fn chosen<T: Copy>(
    option: &str,
    names: &[String],
    all: &[(&str, T)],
    into: &mut Vec<T>,
) -> Result<()> {
    let find = |name: &String| {
        let found = all.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
        found.ok_or_else(|| {
            let known: Vec<_> = all.iter().map(|(known, _)| *known).collect();
            usage(format!("{option} {name}: must be one of {}", known.join(", ")))
        })
    };
    if !names.is_empty() {
        *into = names.iter().map(find).collect::<Result<_>>()?;
    }
    Ok(())
}

/// What to tell where others than this machine reach `ports` and some hosts need no key.
pub fn warning(options: &Options, ports: &[Port]) -> Option<String> {
    let is_open = |port: &&Port| {
        let is_local = port.address.ip().to_canonical().is_loopback();
        port.security != Some(Security::Required) && !is_local
    };
    let open = ports.iter().filter(is_open);
    let open: Vec<String> = open.map(|port| port.address.to_string()).collect();
    let has_key = |host: &String| {
        let of = |text: &String| text.split_once('=').is_some_and(|(name, _)| name == host);
        options.dhchap_key.iter().any(of)
    };
    let is_named = !options.dhchap_key.is_empty() || !options.tls_key.is_empty();
    let who = match options.allow_host.iter().filter(|host| !has_key(host)).count() {
        0 if is_named => return None,
        0 => "anyone",
        _ => "anyone with the name of a host that needs no key",
    };
    (!open.is_empty()).then(|| {
        format!(
            "NO AUTHENTICATION: {who} who reaches {} may read and write all namespaces; give hosts \
             keys with --tls-key or --dhchap-key, or listen on loopback",
            open.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_kept_out_is_told_of() {
        let warn_of = |security, listen: &[&str], allow: &[&str], keys: [&[&str]; 2]| {
            let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
            let listen =
                listen.iter().map(|text| Port { address: text.parse().unwrap(), security });
            let options = Options {
                allow_host: texts(allow),
                dhchap_key: texts(keys[0]),
                tls_key: texts(keys[1]),
                ..Options::default()
            };
            warning(&options, &listen.collect::<Vec<_>>())
        };
        let warn = |listen: &[&str], allow: &[&str], keys: &[&str]| {
            warn_of(None, listen, allow, [keys, &[]])
        };
        let local = ["127.0.0.1:4420", "[::1]:4420", "[::ffff:127.0.0.2]:4420"];
        let (a, b) = ("nqn.2026-01.org.example:a", "nqn.2026-01.org.example:b");
        let key = "nqn.2026-01.org.example:a=/etc/ebb/a.key";
        assert_eq!(warn(&local, &[], &[]), None);
        let all = warn(&["127.0.0.1:1", "0.0.0.0:4420", "[::]:4421"], &[], &[]).unwrap();
        assert!(all.contains("anyone who reaches 0.0.0.0:4420, [::]:4421 may"), "{all}");
        let named = warn(&["10.0.0.1:4420"], &[a, b], &[key]).unwrap();
        assert!(named.contains("a host that needs no key who reaches 10.0.0.1:4420"), "{named}");
        assert_eq!(warn(&["10.0.0.1:4420"], &[a], &[key]), None);
        assert_eq!(warn(&["10.0.0.1:4420"], &[], &[key]), None);
        let (offered, required) = (Some(Security::Offered), Some(Security::Required));
        assert_eq!(warn_of(offered, &["10.0.0.1:4420"], &[], [&[], &[key]]), None);
        let named = warn_of(offered, &["10.0.0.1:4420"], &[a], [&[], &[key]]).unwrap();
        assert!(named.contains("a host that needs no key"), "it may come without TLS: {named}");
        assert_eq!(warn_of(required, &["10.0.0.1:4420"], &[a], [&[], &[key]]), None);
    }
}
