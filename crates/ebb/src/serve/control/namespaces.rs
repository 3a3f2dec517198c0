//! Namespaces that come, go and grow.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use ebb_cli::usage;
use ebb_policy::units::Bytes;
use ebb_target::controller::Namespace;
use ebb_target::transport::{ChangeError, Fleet, Removed};
use serde::Deserialize;
use serde_json::{Value, to_value};

use super::super::devices;
use super::{Control, Part, Running, done, replies};
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
    /// The lowest number that no namespace has or is about to have.
    fn free(&mut self, is_coming: impl Fn(u32) -> bool) -> Result<u32> {
        let leaving = self.fleet.leaving();
        let subsystem = self.subsystem();
        let is_free = |id: &u32| {
            subsystem.namespace(*id).is_none() && !leaving.contains(id) && !is_coming(*id)
        };
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

    /// The namespace of this number.
    fn there(&self, id: u32) -> Result<Namespace> {
        self.subsystem().namespace(id).ok_or_else(|| told(ChangeError::None(id)))
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
    /// Whether hosts keep what they are promised once namespace `id` is what `text` stands for.
    fn fits(&self, running: &Running, id: u32, text: &str) -> Result<()> {
        let coming = self.at_work();
        let coming = coming.iter().map(|(part, text)| (*part, text.as_str()));
        let there = running.namespaces.iter();
        let there = there.map(|(id, text)| (Part::Namespace(*id), text.as_str()));
        let mut all: BTreeMap<_, _> = there.chain(coming).collect();
        all.insert(Part::Namespace(id), text);
        let memory = all.into_values().map(devices::memory);
        self.promised.leave_memory(memory.fold(0, u64::saturating_add))
    }

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
        let mut number = 0;
        let _apart = self.apart(|running| {
            number = id.map_or_else(|| running.free(|id| self.is_at_work(id)), Ok)?;
            self.fits(running, number, &text)?;
            running.vacant(number)?;
            Ok((Part::Namespace(number), text.clone()))
        })?;
        let id = number;
        let (namespace, drive) = devices::open(&text, id)?;
        let _closed_apart = namespace.device.clone();
        self.with(|running| {
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
        let mut device = None;
        let _apart = self.apart(|running| {
            device = Some(running.there(id)?.device);
            Ok((Part::Namespace(id), running.namespaces.get(&id).cloned().unwrap_or_default()))
        })?;
        let removed = self.with(|running| {
            let removed = running.fleet.remove(id).map_err(told)?;
            self.facts.drives.remove(id);
            if removed != Removed::Waiting {
                running.namespaces.remove(&id);
            }
            Ok(removed)
        })?;
        drop(device); // Closed apart.
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
    }

    pub(super) fn resize_namespace(&self, Resize { id, bytes }: Resize) -> Result<Value> {
        let (subsystem, mut text) = (self.subsystem()?, String::new());
        let _apart = self.apart(|running| {
            if running.there(id)?.device.geometry().bytes() == bytes {
                bail!("namespace {id} has {} already", Bytes(bytes));
            }
            let before = running.namespaces.get(&id).map_or("", String::as_str);
            text = devices::resized(before, bytes);
            self.fits(running, id, &text)?;
            Ok((Part::Namespace(id), text.clone()))
        })?;
        Fleet::resize(&subsystem, id, bytes).map_err(told)?;
        self.with(|running| {
            running.namespaces.insert(id, text);
            Ok(done(format!("namespace {id} has {}", Bytes(bytes))))
        })
    }
}
