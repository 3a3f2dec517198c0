//! Who gets in: keys of hosts in files, and what to say where nobody is kept out.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use ebb_dataplane::chap::{Group, Hash};
use ebb_dataplane::controller::{Keys, Rules, Secrets, check_nqn};

use super::options::Options;
use crate::exit::usage;
use crate::keys;

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

/// The files of all hosts that have keys.
#[derive(Default)]
pub struct Vault(Mutex<BTreeMap<String, Files>>);

impl Vault {
    fn files(&self) -> MutexGuard<'_, BTreeMap<String, Files>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The files that `options` name, all of which can be read.
    ///
    /// # Errors
    /// Names the option, or the file, that is not right.
    pub fn read(options: &Options) -> Result<Self> {
        Ok(Self(Mutex::new(files(options)?)))
    }

    /// From now on those that `options` name, all of which can be read.
    ///
    /// # Errors
    /// As of [`Self::read`]; nothing has changed then.
    pub fn update(&self, options: &Options) -> Result<()> {
        *self.files() = files(options)?;
        Ok(())
    }
}

impl Secrets for Vault {
    fn requires(&self, host: &str) -> bool {
        self.files().contains_key(host)
    }

    fn guards(&self) -> bool {
        !self.files().is_empty()
    }

    fn keys(&self, host: &str) -> Result<Keys, String> {
        let files = self.files().get(host).cloned();
        files.ok_or("it has no key")?.keys()
    }
}

/// The files of each host that has keys.
fn files(options: &Options) -> Result<BTreeMap<String, Files>> {
    let mut all = BTreeMap::<String, Files>::new();
    for text in &options.dhchap_key {
        let (host, path) = pair("--dhchap-key", text)?;
        let files = Files { host: path.to_owned(), controller: None };
        if all.insert(host.to_owned(), files).is_some() {
            return Err(usage(format!(
                "--dhchap-key {text}: this host has a file already; put both keys into one, a line \
                 each"
            )));
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

/// What to tell where others than this machine reach `listen` and some hosts need no key.
pub fn warning(options: &Options, listen: &[SocketAddr]) -> Option<String> {
    let open: Vec<String> = listen
        .iter()
        .filter(|address| !address.ip().to_canonical().is_loopback())
        .map(ToString::to_string)
        .collect();
    let has_key = |host: &String| {
        let of = |text: &String| text.split_once('=').is_some_and(|(name, _)| name == host);
        options.dhchap_key.iter().any(of)
    };
    let who = match options.allow_host.iter().filter(|host| !has_key(host)).count() {
        0 if !options.dhchap_key.is_empty() => return None,
        0 => "anyone",
        _ => "anyone with the name of a host that has no key",
    };
    (!open.is_empty()).then(|| {
        format!(
            "NO AUTHENTICATION: {who} who reaches {} may read and write all namespaces; give hosts \
             keys with --dhchap-key, or listen on loopback",
            open.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_kept_out_is_told_of() {
        let warn = |listen: &[&str], allow: &[&str], keys: &[&str]| {
            let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
            let listen: Vec<_> = listen.iter().map(|text| text.parse().unwrap()).collect();
            let options =
                Options { allow_host: texts(allow), dhchap_key: texts(keys), ..Options::default() };
            warning(&options, &listen)
        };
        let local = ["127.0.0.1:4420", "[::1]:4420", "[::ffff:127.0.0.2]:4420"];
        let (a, b) = ("nqn.2026-01.org.example:a", "nqn.2026-01.org.example:b");
        let key = "nqn.2026-01.org.example:a=/etc/ebb/a.key";
        assert_eq!(warn(&local, &[], &[]), None);
        let all = warn(&["127.0.0.1:1", "0.0.0.0:4420", "[::]:4421"], &[], &[]).unwrap();
        assert!(all.contains("anyone who reaches 0.0.0.0:4420, [::]:4421 may"), "{all}");
        let named = warn(&["10.0.0.1:4420"], &[a, b], &[key]).unwrap();
        assert!(named.contains("a host that has no key who reaches 10.0.0.1:4420"), "{named}");
        assert_eq!(warn(&["10.0.0.1:4420"], &[a], &[key]), None);
        assert_eq!(warn(&["10.0.0.1:4420"], &[], &[key]), None);
    }
}
