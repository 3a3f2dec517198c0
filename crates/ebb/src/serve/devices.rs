//! The namespaces and names of `ebb serve`.

use std::fs;
use std::sync::Arc;

use ebb_target::controller::Namespace;
use ebb_target::device::{self, Device, Spec};
use uuid::Uuid;

use super::modelled::Modelled;
use crate::exit::usage;

/// What the texts after `--namespace` stand for.
pub struct Devices {
    /// Numbered from 1.
    pub namespaces: Vec<Namespace>,
    /// Those of them that are modelled drives.
    pub modelled: Vec<Arc<Modelled>>,
}

/// A text that was understood.
enum Kind {
    Real(Spec),
    Modelled(Arc<Modelled>),
}

impl Kind {
    fn parse(text: &str) -> anyhow::Result<Self> {
        if let Some(rest) = text.strip_prefix("modelled:") {
            return Ok(Self::Modelled(Arc::new(Modelled::parse(rest)?)));
        }
        let spec = text.parse().map_err(|error| usage(format!("--namespace {error}")))?;
        Ok(Self::Real(spec))
    }
}

/// Opens a device for each text.
///
/// # Errors
/// When there is none, or one is not right.
pub fn open(texts: &[String]) -> anyhow::Result<Devices> {
    if texts.is_empty() {
        return Err(usage("nothing to serve; add --namespace, such as --namespace ram:256MiB"));
    }
    // All are read before the first is opened: a slip in the last leaves no file created.
    let kinds = texts.iter().map(|text| Kind::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let mut devices = Devices { namespaces: Vec::new(), modelled: Vec::new() };
    for ((id, kind), text) in (1..).zip(kinds).zip(texts) {
        let device: Arc<dyn Device> = match kind {
            Kind::Real(spec) => device::open(&spec)?,
            Kind::Modelled(drive) => {
                devices.modelled.push(drive.clone());
                drive
            }
        };
        let uuid = identity(text, id);
        let nguid = *Uuid::new_v5(&uuid, b"nguid").as_bytes();
        let uuid = *uuid.as_bytes();
        devices.namespaces.push(Namespace { id, device, uuid, nguid, read_only: false });
    }
    Ok(devices)
}

/// The same for as long as the data is: by machine and file; memory is new each time.
fn identity(text: &str, id: u32) -> Uuid {
    match text.split_once(':') {
        Some(("null" | "ram" | "modelled", _)) | None => Uuid::new_v4(),
        Some(_) => Uuid::new_v5(&machine(), format!("namespace {id} {text}").as_bytes()),
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

/// Its serial number.
pub fn serial() -> String {
    format!("EBB{:016X}", machine().as_u64_pair().0)
}
