//! The namespaces and names of `ebb serve`.

use std::fs;

use ebb_target::controller::Namespace;
use ebb_target::device::{self, Spec};
use uuid::Uuid;

use crate::exit::usage;

/// Opens a device for each text, numbered from 1.
///
/// # Errors
/// When there is none, or one is not right.
pub fn namespaces(texts: &[String]) -> anyhow::Result<Vec<Namespace>> {
    if texts.is_empty() {
        return Err(usage("nothing to serve; add --namespace, such as --namespace ram:256MiB"));
    }
    let parse =
        |text: &String| text.parse::<Spec>().map_err(|error| usage(format!("--namespace {error}")));
    // All are read before the first is opened: a slip in the last leaves no file created.
    let specs: Vec<Spec> = texts.iter().map(parse).collect::<Result<_, _>>()?;
    let open = |(index, (spec, text)): (usize, (&Spec, &String))| {
        let id = index as u32 + 1;
        let uuid = identity(text, id);
        let nguid = *Uuid::new_v5(&uuid, b"nguid").as_bytes();
        let device = device::open(spec)?;
        Ok(Namespace { id, device, uuid: *uuid.as_bytes(), nguid, read_only: false })
    };
    specs.iter().zip(texts).enumerate().map(open).collect()
}

/// The same for as long as the data is: by machine and file; memory is new each time.
fn identity(text: &str, id: u32) -> Uuid {
    match text.split_once(':') {
        Some(("null" | "ram", _)) | None => Uuid::new_v4(),
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
