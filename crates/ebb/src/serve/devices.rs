//! The namespaces and names of `ebb serve`.

use std::fs;
use std::sync::Arc;

use ebb_dataplane::controller::Namespace;
use ebb_dataplane::device::{self, Device, Spec};
use uuid::Uuid;

use super::modelled::{self, Modelled};
use crate::exit::usage;
use crate::progress::Progress;

/// Namespaces that are modelled drives, with their numbers.
pub type ModelledDrives = Vec<(u32, Arc<Modelled>)>;

/// What the texts after `--namespace` stand for.
pub struct Devices {
    /// Numbered from 1.
    pub namespaces: Vec<Namespace>,
    /// Those of them that are modelled drives.
    pub modelled: ModelledDrives,
}

/// A text that was understood.
enum Kind {
    Real(Spec),
    Modelled(Box<modelled::Parts>),
}

impl Kind {
    fn parse(text: &str) -> anyhow::Result<Self> {
        if let Some(rest) = text.strip_prefix("modelled:") {
            return Ok(Self::Modelled(Box::new(modelled::Parts::parse(rest)?)));
        }
        let spec = text.parse().map_err(|error| usage(format!("--{error}")))?;
        Ok(Self::Real(spec))
    }

    /// Memory in bytes that it takes at once.
    fn memory(&self) -> u64 {
        match self {
            Self::Real(spec) => spec.memory(),
            Self::Modelled(parts) => parts.memory.memory(),
        }
    }
}

/// What is to be opened, all of it understood.
pub struct Plan<'a> {
    texts: &'a [String],
    kinds: Vec<Kind>,
}

impl<'a> Plan<'a> {
    /// Reads the texts. All are read before the first is opened: a slip in the last leaves no file
    /// created.
    ///
    /// # Errors
    /// When there is none, or one is not right.
    pub fn read(texts: &'a [String]) -> anyhow::Result<Self> {
        if texts.is_empty() {
            return Err(usage("nothing to serve; add --namespace, such as --namespace ram:256MiB"));
        }
        let kinds = texts.iter().map(|text| Kind::parse(text)).collect::<Result<_, _>>()?;
        Ok(Self { texts, kinds })
    }

    /// Memory in bytes that opening them takes at once.
    pub fn memory(&self) -> u64 {
        self.kinds.iter().map(Kind::memory).fold(0, u64::saturating_add)
    }

    /// Opens a device for each text; shows on a terminal how far taking memory is.
    ///
    /// # Errors
    /// When one cannot be opened.
    pub fn open(self, progress: &Progress) -> anyhow::Result<Devices> {
        let bar = progress.bar("taking memory", Some(self.memory()));
        let taken = |bytes| bar.inc(bytes);
        let mut devices = Devices { namespaces: Vec::new(), modelled: Vec::new() };
        for ((id, kind), text) in (1..).zip(self.kinds).zip(self.texts) {
            let device: Arc<dyn Device> = match kind {
                Kind::Real(spec) => device::open_watched(&spec, &taken)?,
                Kind::Modelled(parts) => {
                    let drive = Arc::new(Modelled::open(*parts, &taken)?);
                    devices.modelled.push((id, drive.clone()));
                    drive
                }
            };
            let uuid = identity(text, id, &*device);
            let nguid = *Uuid::new_v5(&uuid, b"nguid").as_bytes();
            let uuid = *uuid.as_bytes();
            devices.namespaces.push(Namespace { id, device, uuid, nguid, read_only: false });
        }
        bar.finish_and_clear();
        Ok(devices)
    }
}

/// The same for as long as the data is, whatever options it is opened with: by array, or by machine
/// and file; memory is new each time.
fn identity(text: &str, id: u32, device: &dyn Device) -> Uuid {
    let (kind, rest) = text.split_once(':').unwrap_or_default();
    let path = rest.split(',').next().unwrap_or_default();
    let named = |space: &Uuid, name: String| Uuid::new_v5(space, name.as_bytes());
    match (kind, device.identity()) {
        ("raid5", Some(array)) if !text.contains("ram:") => {
            named(&Uuid::from_bytes(array), format!("namespace {id}"))
        }
        ("file", _) => named(&machine(), format!("namespace {id} file:{path}")),
        _ => Uuid::new_v4(),
    }
}

/// Identifies this machine without telling its id (machine-id(5) asks for that).
fn machine() -> Uuid {
    let id = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("ebb {}", id.trim()).as_bytes())
}

/// The subsystem's name where none is given.
pub fn default_nqn() -> String {
    format!("nqn.2014-08.org.nvmexpress:uuid:{}", machine())
}

/// The serial number of the subsystem of that name: one machine may have several.
pub fn serial(nqn: &str) -> String {
    format!("EBB{:016X}", Uuid::new_v5(&machine(), nqn.as_bytes()).as_u64_pair().0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uuids(texts: &[&str]) -> Vec<[u8; 16]> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        Plan::read(&texts)
            .unwrap()
            .open(&Progress::new(true))
            .unwrap()
            .namespaces
            .iter()
            .map(|namespace| namespace.uuid)
            .collect()
    }

    #[test]
    fn subsystems_of_one_machine_have_serial_numbers_of_their_own() {
        assert_eq!(serial("nqn.a"), serial("nqn.a"));
        assert_ne!(serial("nqn.a"), serial("nqn.b"));
        assert!(serial("nqn.a").len() <= 20);
    }

    #[test]
    fn namespaces_keep_their_names_whatever_options_they_are_opened_with() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let [file, a, b, c] = ["file", "a", "b", "c"].map(path);
        let first = [
            format!("file:{file},create,size=1MiB"),
            format!("raid5:{a},{b},{c},create,size=32MiB,journal=16"),
        ];
        let again = [format!("file:{file}"), format!("raid5:{c},{b},{a},degraded")];
        // Where there is no io_uring, there is nothing to ask.
        if device::open(&first[0].parse().unwrap()).is_err() {
            return;
        }
        let before = uuids(&[&first[0], &first[1]]);
        std::fs::remove_file(&b).unwrap();
        assert_eq!(uuids(&[&again[0], &again[1]]), before);
        assert_ne!(before[0], before[1]);
        let twice = ["ram:1MiB", "ram:1MiB"];
        assert_ne!(uuids(&twice), uuids(&twice), "memory is new each time");
    }
}
