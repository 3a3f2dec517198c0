//! Namespaces that come, go and grow.

use anyhow::{Result, bail};
use ebb_dataplane::controller::Namespace;
use ebb_dataplane::transport::{ChangeError, Removed};
use ebb_policy::units::Bytes;
use serde::Deserialize;
use serde_json::{Value, to_value};

use super::super::devices;
use super::super::resources::Promised;
use super::{Control, Running, done, replies};
use crate::exit::usage;
use crate::log::{self, Level};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Add {
    device: String,
    id: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remove {
    id: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    id: u32,
    bytes: u64,
}

impl Running {
    /// The lowest number that no namespace has.
    fn free(&mut self) -> Result<u32> {
        let leaving = self.fleet.leaving();
        let subsystem = self.subsystem();
        let is_free = |id: &u32| subsystem.namespace(*id).is_none() && !leaving.contains(id);
        let most = subsystem.places();
        let free = (1..=most as u32).find(is_free);
        free.ok_or_else(|| {
            usage(format!(
                "there are {most} namespaces, which is the most; remove \
                                          one first"
            ))
        })
    }

    /// The number, where no namespace has it.
    fn vacant(&self, id: u32) -> Result<u32> {
        match self.subsystem().namespace(id) {
            None => Ok(id),
            Some(_) => Err(usage(format!("namespace {id} is there; choose another number"))),
        }
    }

    /// Whether hosts keep what they are promised once namespace `id` is what `text` stands for.
    fn fits(&self, id: u32, text: &str, promised: Promised) -> Result<()> {
        let others = self.namespaces.iter().filter(|(other, _)| **other != id);
        let others = others.map(|(_, text)| devices::memory(text));
        promised.leave_memory(others.fold(devices::memory(text), u64::saturating_add))
    }
}

/// What makes no sense is wrong usage.
fn told(error: ChangeError) -> anyhow::Error {
    match error {
        ChangeError::Config(_) | ChangeError::None(_) | ChangeError::Size(_) => {
            usage(error.to_string())
        }
        _ => error.into(),
    }
}

impl Control {
    pub(super) fn namespaces(&self) -> Result<Value> {
        self.with(|running| {
            let leaving = running.fleet.leaving();
            let text = |id: u32| running.namespaces.get(&id).cloned().unwrap_or_default();
            let row = |one: Namespace| {
                let geometry = one.device.geometry();
                replies::Namespace {
                    id: one.id,
                    bytes: geometry.bytes(),
                    block_size: geometry.block_size,
                    state: "serving".to_owned(),
                    device: text(one.id),
                }
            };
            let gone = |id: u32| replies::Namespace {
                id,
                bytes: 0,
                block_size: 0,
                state: "leaving".to_owned(),
                device: text(id),
            };
            let serving = running.subsystem().namespaces().into_iter().map(row);
            let mut namespaces: Vec<_> = serving.chain(leaving.into_iter().map(gone)).collect();
            namespaces.sort_by_key(|one| one.id);
            Ok(to_value(replies::Namespaces { namespaces })?)
        })
    }

    pub(super) fn add_namespace(&self, Add { device: text, id }: Add) -> Result<Value> {
        let id = self.with(|running| {
            let id = id.map_or_else(|| running.free(), Ok)?;
            running.fits(id, &text, self.promised)?;
            running.vacant(id)
        })?;
        // Taking memory may last: nobody waits for it.
        let (namespace, drive) = devices::open(&text, id)?;
        self.with(|running| {
            running.vacant(id)?;
            running.fits(id, &text, self.promised)?;
            self.promised.leave_files(&*namespace.device, self.facts.groups.len())?;
            let bytes = Bytes(namespace.device.geometry().bytes());
            let drives = &self.facts.drives;
            drive.map_or(Ok(()), |drive| drives.add(id, drive))?;
            running.fleet.add(namespace).inspect_err(|_| drives.remove(id)).map_err(told)?;
            running.namespaces.insert(id, text.clone());
            Ok(done(format!("namespace {id} was added: {text}, {bytes}")))
        })
    }

    pub(super) fn remove_namespace(&self, Remove { id }: Remove) -> Result<Value> {
        self.with(|running| {
            let removed = running.fleet.remove(id).map_err(told)?;
            self.facts.drives.remove(id);
            if removed != Removed::Waiting {
                running.namespaces.remove(&id);
            }
            Ok(done(match removed {
                Removed::Closed => {
                    format!("namespace {id} was removed; its device was flushed and is closed")
                }
                Removed::Unflushed(status) => {
                    let text = format!(
                        "namespace {id} was removed; ITS DEVICE COULD NOT BE FLUSHED ({status:?}): \
                         check what is on it"
                    );
                    log::tell(Level::Error, &text);
                    text
                }
                Removed::Waiting => format!(
                    "namespace {id} was removed: hosts see it no more; its device has not done \
                     what it was asked for and is closed when it has"
                ),
            }))
        })
    }

    pub(super) fn resize_namespace(&self, Resize { id, bytes }: Resize) -> Result<Value> {
        self.with(|running| {
            let before = running.subsystem().namespace(id).map(|one| one.device.geometry().bytes());
            if before == Some(bytes) {
                bail!("namespace {id} has {} already", Bytes(bytes));
            }
            let text = running.namespaces.get(&id).map(|text| devices::resized(text, bytes));
            text.iter().try_for_each(|text| running.fits(id, text, self.promised))?;
            running.fleet.resize(id, bytes).map_err(told)?;
            running.namespaces.extend(text.map(|text| (id, text)));
            Ok(done(format!("namespace {id} has {}", Bytes(bytes))))
        })
    }
}
