//! Admin commands through the kernel (`include/uapi/linux/nvme_ioctl.h`). The one module of this
//! crate with `unsafe` in it.
//!
//! # Soundness
//! `NVME_IOCTL_ADMIN_CMD` reads and writes one `struct nvme_admin_cmd`, which [`Command`] is, bit
//! for bit (72 bytes, checked when compiled), and writes at most `data_len` bytes to `addr`. The
//! two are set together, from one buffer that is borrowed until the call returns. The kernel holds
//! no reference to either after that.
#![allow(unsafe_code)]

use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;

use ebb_nvme::command::admin;
use ebb_nvme::identify::{Controller, cns};
use ebb_nvme::{feature, log};
use rustix::io::Errno;
use rustix::ioctl::{self, Ioctl as Call, IoctlOutput, Opcode};
use zerocopy::{FromZeros, IntoBytes};

use crate::capability::Capability;
use crate::nvme::{Admin, Health, Identity};
use crate::patience::Silence;
use crate::sys::{Absent, Sys};

/// `struct nvme_admin_cmd`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
struct Command {
    opcode: u8,
    flags: u8,
    reserved: u16,
    nsid: u32,
    cdw2: u32,
    cdw3: u32,
    metadata: u64,
    addr: u64,
    metadata_len: u32,
    data_len: u32,
    cdw10: u32,
    cdw11: u32,
    cdw12: u32,
    cdw13: u32,
    cdw14: u32,
    cdw15: u32,
    timeout_ms: u32,
    result: u32,
}

const _: () = assert!(size_of::<Command>() == 72);

/// All namespaces.
const ALL: u32 = u32::MAX;

/// One call with its command and the buffer that the answer goes to.
struct Submit<'a> {
    command: Command,
    _data: &'a mut [u8],
}

// SAFETY: see the module.
unsafe impl Call for Submit<'_> {
    /// The NVMe status, and the command's result.
    type Output = (i32, u32);
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        ioctl::opcode::read_write::<Command>(b'N', 0x41)
    }

    fn as_ptr(&mut self) -> *mut core::ffi::c_void {
        (&raw mut self.command).cast()
    }

    unsafe fn output_from_ptr(
        status: IoctlOutput,
        command: *mut core::ffi::c_void,
    ) -> rustix::io::Result<Self::Output> {
        // SAFETY: what `as_ptr` gave, which the kernel has filled in.
        let command = unsafe { &*command.cast::<Command>() };
        Ok((status, command.result))
    }
}

/// A controller of this machine.
#[derive(Debug)]
pub struct Ioctl {
    path: PathBuf,
    device: File,
}

impl Ioctl {
    /// The controller `name`, such as `nvme0`.
    ///
    /// # Errors
    /// Where there is none, or we may not use it.
    pub fn open(sys: &Sys, name: &str) -> Result<Self, Absent> {
        let path = sys.path(format!("dev/{name}"));
        match File::open(&path) {
            Ok(device) => Ok(Self { path, device }),
            // `nvme_dev_open`: the controller is not live.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Err(Absent::Silent { path, silence: Silence::Resets })
            }
            Err(error) => Err(Absent::new(path, &error)),
        }
    }

    fn submit(&self, command: Command, data: &mut [u8]) -> Result<u32, Absent> {
        let command = Command {
            addr: if data.is_empty() { 0 } else { data.as_mut_ptr() as u64 },
            data_len: data.len() as u32,
            ..command
        };
        let opcode = command.opcode;
        // SAFETY: see the module.
        let done = unsafe { ioctl::ioctl(&self.device, Submit { command, _data: data }) };
        let failed = |error: String| Absent::Failed { path: self.path.clone(), error };
        match done {
            Ok((0, result)) => Ok(result),
            // Path Related Status (NVMe Base 2.1, Figure 98): one that was opened before.
            Ok((status, _)) if status & 0x700 == 0x300 => {
                Err(Absent::Silent { path: self.path.clone(), silence: Silence::Resets })
            }
            Ok((status, _)) => Err(failed(format!(
                "admin command {opcode:#04x} ended with status {:#05x}",
                status & 0x7ff
            ))),
            Err(Errno::ACCESS | Errno::PERM) => {
                Err(failed(format!("not permitted; {}", Capability::SysAdmin.remedy())))
            }
            Err(error) => Err(Absent::new(self.path.clone(), &error.into())),
        }
    }
}

impl Admin for Ioctl {
    fn feature(&mut self, feature: u8) -> Result<u32, Absent> {
        let cdw10 = u32::from(feature);
        self.submit(Command { opcode: admin::GET_FEATURES, cdw10, ..Command::default() }, &mut [])
    }

    fn set_feature(&mut self, feature: u8, value: u32) -> Result<(), Absent> {
        let (cdw10, cdw11) = (u32::from(feature), value);
        // nvme-cli 3 has a power limit in dword 13. What is read back tells what was taken.
        let cdw13 = if feature == feature::POWER_LIMIT { value } else { 0 };
        let command =
            Command { opcode: admin::SET_FEATURES, cdw10, cdw11, cdw13, ..Command::default() };
        self.submit(command, &mut []).map(drop)
    }

    fn identify(&mut self) -> Result<Identity, Absent> {
        let mut data = Controller::new_zeroed();
        let cdw10 = cns::CONTROLLER.into();
        let command = Command { opcode: admin::IDENTIFY, cdw10, ..Command::default() };
        self.submit(command, data.as_mut_bytes())?;
        Ok(Identity::parse(&data))
    }

    fn health(&mut self) -> Result<Health, Absent> {
        let mut page = log::Smart::new_zeroed();
        // NUMDL counts dwords from 0.
        let cdw10 = u32::from(log::id::SMART) | (size_of::<log::Smart>() as u32 / 4 - 1) << 16;
        let command =
            Command { opcode: admin::GET_LOG_PAGE, nsid: ALL, cdw10, ..Command::default() };
        self.submit(command, page.as_mut_bytes())?;
        Ok(Health::parse(&page))
    }
}
