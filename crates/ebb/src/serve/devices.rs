//! The namespaces and names of `ebb serve`.

use std::fs;
use std::sync::Arc;

use ebb_cli::progress::Progress;
use ebb_cli::usage;
use ebb_policy::units::Bytes;
use ebb_target::controller::{MAX_NAMESPACES, Namespace};
use ebb_target::device::{self, Device, Spec};
use uuid::Uuid;

use super::modelled::{self, Drives, Modelled};

/// What the texts after `--namespace` stand for.
pub struct Devices {
    /// Numbered from 1.
    pub namespaces: Vec<Namespace>,
    /// Those of them that are modelled drives.
    pub drives: Arc<Drives>,
}

/// A device, and the modelled drive that it is, if it is one.
type Opened = (Arc<dyn Device>, Option<Arc<Modelled>>);

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

    /// Opens it, calling `taken` with the memory it has taken.
    fn open(self, taken: &(dyn Fn(u64) + Sync)) -> Result<Opened, device::Error> {
        Ok(match self {
            Self::Real(spec) => (device::open_watched(&spec, taken)?, None),
            Self::Modelled(parts) => {
                let drive = Arc::new(Modelled::open(*parts, taken)?);
                (drive.clone(), Some(drive))
            }
        })
    }
}

/// A text after `--namespace` without its number, and the number: what stands before `=`, or the
/// next one after `last`.
pub fn numbered(text: &str, last: u32) -> anyhow::Result<(u32, &str)> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    match text.split_once('=').filter(|(number, _)| is_number(number)) {
        None => Ok((last + 1, text)),
        Some((number, rest)) => match number.parse() {
            Ok(number) if (1..=MAX_NAMESPACES).contains(&number) => Ok((number, rest)),
            _ => {
                Err(usage(format!("--namespace {text}: the number must be 1 to {MAX_NAMESPACES}")))
            }
        },
    }
}

/// What is to be opened, all of it understood.
pub struct Plan<'a> {
    /// With their numbers.
    texts: Vec<(u32, &'a str)>,
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
        let mut all = Vec::new();
        for text in texts {
            all.push(numbered(text, all.last().map_or(0, |(number, _)| *number))?);
        }
        let kinds = all.iter().map(|(_, text)| Kind::parse(text)).collect::<Result<_, _>>()?;
        Ok(Self { texts: all, kinds })
    }

    /// The largest number of a namespace.
    pub fn largest(&self) -> u32 {
        self.texts.iter().map(|(number, _)| *number).max().unwrap_or(0)
    }

    /// Memory in bytes that opening them takes at once.
    pub fn memory(&self) -> u64 {
        self.kinds.iter().map(Kind::memory).fold(0, u64::saturating_add)
    }

    /// Opens a device for each text; shows on a terminal how far taking memory is.
    ///
    /// # Errors
    /// When one cannot be opened, or modelled drives differ in what one controller has once.
    pub fn open(self, progress: &Progress) -> anyhow::Result<Devices> {
        let bar = progress.bar("taking memory", Some(self.memory()));
        let taken = |bytes| bar.inc(bytes);
        let mut devices = Devices { namespaces: Vec::new(), drives: Arc::default() };
        for (kind, (id, text)) in self.kinds.into_iter().zip(self.texts) {
            let (device, drive) = kind.open(&taken)?;
            drive.map_or(Ok(()), |drive| devices.drives.add(id, drive))?;
            devices.namespaces.push(namespace(text, id, device));
        }
        bar.finish_and_clear();
        Ok(devices)
    }
}

/// A namespace that stands on the device of `text`.
fn namespace(text: &str, id: u32, device: Arc<dyn Device>) -> Namespace {
    let uuid = identity(text, id, &*device);
    let nguid = *Uuid::new_v5(&uuid, b"nguid").as_bytes();
    Namespace { id, device, uuid: *uuid.as_bytes(), nguid, read_only: false }
}

/// Memory in bytes that what a text stands for takes at once; one that is not right takes none.
/// Looks at no file.
pub fn memory(text: &str) -> u64 {
    let spec = match text.strip_prefix("modelled:") {
        Some(rest) => modelled::split(rest).1,
        None => text.parse::<Spec>(),
    };
    spec.map_or(0, |spec| spec.memory())
}

/// Opens a namespace of a server at work, and the modelled drive that it is, if it is one.
///
/// # Errors
/// When the text is not right, or its device cannot be opened.
pub fn open(text: &str, id: u32) -> anyhow::Result<(Namespace, Option<Arc<Modelled>>)> {
    let (device, drive) = Kind::parse(text)?.open(&|_| {})?;
    Ok((namespace(text, id, device), drive))
}

/// The text of a namespace that has grown to so many `bytes`.
pub fn resized(text: &str, bytes: u64) -> String {
    let size = Bytes(bytes).to_string().replace(' ', "");
    match text.split_once(':') {
        Some((kind @ ("ram" | "null" | "modelled"), rest)) => {
            let mut parts: Vec<_> = rest.split(',').collect();
            // Of a modelled drive, its name may stand before.
            let stands = parts.iter_mut().find(|part| !part.starts_with("drive="));
            stands.into_iter().for_each(|part| *part = &size);
            format!("{kind}:{}", parts.join(","))
        }
        _ => {
            let option = |part: &str| match part.starts_with("size=") {
                true => format!("size={size}"),
                false => part.to_owned(),
            };
            text.split(',').map(option).collect::<Vec<_>>().join(",")
        }
    }
}

/// A text by which a namespace that exists is opened again: an array is made once.
pub fn again(text: &str) -> String {
    if !text.starts_with("raid5:") || text.contains("ram:") {
        return text.to_owned();
    }
    let once = |part: &&str| !(matches!(*part, "create" | "rebuild") || part.starts_with("size="));
    text.split(',').filter(once).collect::<Vec<_>>().join(",")
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
    fn numbers_and_sizes_of_texts_are_told_from_the_rest() {
        let number = |text| numbered(text, 4).map_err(|error| error.to_string());
        assert_eq!(number("file:/a=b"), Ok((5, "file:/a=b")));
        assert_eq!(number("7=file:/a,size=1MiB"), Ok((7, "file:/a,size=1MiB")));
        for wrong in ["0=ram:1MiB", "1025=ram:1MiB", "99999999999=ram:1MiB"] {
            assert!(number(wrong).unwrap_err().contains("1 to 1024"), "{wrong}");
        }
        assert_eq!(resized("ram:1MiB,lazy", 3 << 20), "ram:3MiB,lazy");
        assert_eq!(resized("ram:1MiB", 1000), "ram:1000B");
        assert_eq!(resized("modelled:1MiB,drive=x", 3 << 20), "modelled:3MiB,drive=x");
        assert_eq!(resized("modelled:drive=x,1MiB,lazy", 3 << 20), "modelled:drive=x,3MiB,lazy");
        assert_eq!(resized("file:/a,create,size=1MiB", 5 << 10), "file:/a,create,size=5KiB");
        assert_eq!(resized("file:/a", 5 << 10), "file:/a");
        assert_eq!(
            again("raid5:/a,/b,/c,create,size=1MiB,chunk=64KiB"),
            "raid5:/a,/b,/c,chunk=64KiB"
        );
        assert_eq!(again("file:/a,create,size=1MiB"), "file:/a,create,size=1MiB");
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
