//! The formats: one file each, with what its columns mean. `docs/formats.md` tells where each
//! comes from, what Ebb takes from it and what it passes over.

mod alibaba;
mod biosnoop;
mod blkparse;
mod columns;
mod darshan;
mod dates;
mod detect;
mod disksim;
mod doubt;
pub(crate) mod ebb_csv;
mod etw;
pub(crate) mod field;
mod fio;
mod fiu;
mod heading;
mod mqsim;
mod msr;
mod names;
pub(crate) mod parquet;
mod spc;
mod systor;
mod tencent;
pub(crate) mod vscsi;
mod vscsi_csv;

use std::fmt;
use std::str::FromStr;

use ebb_policy::units::Nanos;

use crate::request::Request;

pub use columns::{Columns, UnknownColumns};
pub(crate) use detect::{Detected, Nearest, detect, nearest};
pub(crate) use field::{Fault, Line, LineParser, Records};
pub use heading::words;

/// How many records a format whose rows are not in order of arrival is sorted within.
pub(crate) const WINDOW: usize = 65_536;

/// Bytes of a sector.
pub(crate) const SECTOR: u64 = 512;

/// Whether a request is of whole sectors.
pub(crate) fn in_sectors(request: &Request) -> bool {
    (request.offset | u64::from(request.bytes)).is_multiple_of(SECTOR)
}

/// A trace format by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// VMware SCSI traces, binary, version 1 or 2.
    Vscsi,
    /// MSR Cambridge, raw CSV.
    Msr,
    /// MSR Cambridge, cut form with blanks.
    MsrCut,
    /// MQSim ASCII.
    Mqsim,
    /// Tencent CBS as published.
    Tencent,
    /// Tencent CBS replayed on a drive, with latency.
    TencentReplay,
    /// Alibaba block traces.
    Alibaba,
    /// Storage Performance Council (UMass repository).
    Spc,
    /// fio I/O log, version 2 or 3.
    Fio,
    /// Text output of blkparse.
    Blkparse,
    /// Output of biosnoop.
    Biosnoop,
    /// Darshan DXT as CSV.
    Darshan,
    /// Ebb's own CSV.
    EbbCsv,
    /// Ebb's own form in Parquet.
    Parquet,
    /// DiskSim ASCII.
    Disksim,
    /// FIU's traces.
    Fiu,
    /// Virtual desktops of SYSTOR'17.
    Systor,
    /// VMware SCSI traces as libCacheSim's CSV.
    VscsiCsv,
    /// Windows event traces as text.
    Etw,
    /// Any delimited text, as [`Columns`] says; it is not chosen by name.
    Columns,
}

impl Format {
    /// All formats that can be chosen by name. New ones come last: inputs of the fuzzer name them
    /// by their place.
    pub const ALL: [Self; 19] = [
        Self::Vscsi,
        Self::Msr,
        Self::MsrCut,
        Self::Mqsim,
        Self::Tencent,
        Self::TencentReplay,
        Self::Alibaba,
        Self::Spc,
        Self::Fio,
        Self::Blkparse,
        Self::Biosnoop,
        Self::Darshan,
        Self::EbbCsv,
        Self::Parquet,
        Self::Disksim,
        Self::Fiu,
        Self::Systor,
        Self::VscsiCsv,
        Self::Etw,
    ];

    /// The name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Vscsi => "vscsi",
            Self::Msr => "msr",
            Self::MsrCut => "msr-cut",
            Self::Mqsim => "mqsim",
            Self::Tencent => "tencent",
            Self::TencentReplay => "tencent-replay",
            Self::Alibaba => "alibaba",
            Self::Spc => "spc",
            Self::Fio => "fio",
            Self::Blkparse => "blkparse",
            Self::Biosnoop => "biosnoop",
            Self::Darshan => "darshan",
            Self::EbbCsv => "ebb-csv",
            Self::Parquet => "parquet",
            Self::Disksim => "disksim",
            Self::Fiu => "fiu",
            Self::Systor => "systor",
            Self::VscsiCsv => "vscsi-csv",
            Self::Etw => "etw",
            Self::Columns => "columns",
        }
    }

    /// A parser of this format; `None` for the binary ones and what is said by columns.
    pub(crate) fn parser(self) -> Option<Box<dyn LineParser>> {
        Some(match self {
            Self::Vscsi | Self::Parquet | Self::Columns => return None,
            Self::Msr => Box::<msr::Msr>::default(),
            Self::MsrCut => Box::new(msr::MsrCut),
            Self::Mqsim => Box::new(mqsim::Mqsim),
            Self::Tencent => Box::<tencent::Tencent>::default(),
            Self::TencentReplay => Box::new(tencent::TencentReplay),
            Self::Alibaba => Box::<alibaba::Alibaba>::default(),
            Self::Spc => Box::new(spc::Spc),
            Self::Fio => Box::<fio::Fio>::default(),
            Self::Blkparse => Box::<blkparse::Blkparse>::default(),
            Self::Biosnoop => Box::<biosnoop::Biosnoop>::default(),
            Self::Darshan => Box::<darshan::Darshan>::default(),
            Self::EbbCsv => Box::<ebb_csv::EbbCsv>::default(),
            Self::Disksim => Box::new(disksim::Disksim),
            Self::Fiu => Box::<fiu::Fiu>::default(),
            Self::Systor => Box::<systor::Systor>::default(),
            Self::VscsiCsv => Box::<vscsi_csv::VscsiCsv>::default(),
            Self::Etw => Box::<etw::Etw>::default(),
        })
    }

    /// Whether the first line may be a heading: the format has none of its own, but people add one.
    pub(crate) const fn may_have_heading(self) -> bool {
        matches!(
            self,
            Self::Msr
                | Self::MsrCut
                | Self::Mqsim
                | Self::Tencent
                | Self::TencentReplay
                | Self::Alibaba
                | Self::Spc
                | Self::Disksim
                | Self::Fiu
                | Self::Systor
                | Self::Columns
        )
    }

    /// Its columns in the words of [`Columns`], where only custom says what their units are; of a
    /// block device, whose requests are whole sectors.
    pub(crate) const fn columns(self) -> Option<&'static str> {
        Some(match self {
            Self::Msr => "time:100ns,device,device,op,offset:bytes,size:bytes,latency:100ns",
            Self::MsrCut => "time:ms,device,offset:bytes,size:bytes,op:1=read",
            Self::Mqsim => "time:ns,device,offset:sectors,size:sectors,op:1=read",
            Self::Tencent => "time:s,offset:sectors,size:sectors,op:0=read,device",
            Self::TencentReplay => "-,latency:us,op:1=read,size:bytes,offset:bytes,time:ms,-",
            Self::Alibaba => "device,op,offset:bytes,size:bytes,time:us",
            Self::Spc => "device,offset:sectors,size:bytes,op,time:s,...",
            Self::Fiu => "time:ns,stream,-,offset:sectors,size:sectors,op,device,device,-",
            Self::Systor => "time:s,latency:s,op,device,offset:bytes,size:bytes",
            Self::VscsiCsv => "-,time:s,op:scsi,size:bytes,offset:sectors",
            _ => return None,
        })
    }

    /// The year in which its clock is 0, where that tells the date.
    pub(crate) const fn clock(self) -> Option<i16> {
        match self {
            Self::Msr => Some(1601),
            Self::Tencent | Self::Alibaba | Self::Systor => Some(1970),
            _ => None,
        }
    }

    /// Whether nothing in a file says that it is of this format but the look of its columns.
    pub(crate) const fn has_no_marks(self) -> bool {
        self.may_have_heading() && !matches!(self, Self::Columns)
    }

    /// The units of a format without marks.
    pub(crate) fn units(self) -> Option<String> {
        if self == Self::Disksim {
            return Some("times in ms, blocks and sizes in sectors of 512 bytes".to_owned());
        }
        let columns = self.columns().filter(|_| self.has_no_marks())?;
        let unit = |kind| columns.split(',').find_map(|all| all.strip_prefix(kind));
        let (time, offset, size) = (unit("time:")?, unit("offset:")?, unit("size:")?);
        Some(format!("times in {time}, offsets in {offset}, sizes in {size}"))
    }

    /// The resolution of its clock where it is so coarse that requests seem to come in bursts.
    #[must_use]
    pub fn tick(self) -> Option<Nanos> {
        matches!(self, Self::Tencent | Self::VscsiCsv).then_some(Nanos::from_secs(1))
    }

    /// Within how many records rows may be out of order: 0 where the format is in order of
    /// arrival, [`WINDOW`] where rows are written at completion, by several processors or ranks.
    pub(crate) const fn window(self) -> usize {
        match self {
            Self::Msr
            | Self::TencentReplay
            | Self::Blkparse
            | Self::Biosnoop
            | Self::Darshan
            | Self::Fiu
            | Self::Systor
            | Self::Etw
            | Self::Columns => WINDOW,
            _ => 0,
        }
    }

    /// All names, for messages.
    #[must_use]
    pub fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

/// A name that is no format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a trace format; there are {names}", names = Format::names())]
pub struct UnknownFormat(String);

impl FromStr for Format {
    type Err = UnknownFormat;
    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        let found = Self::ALL.into_iter().find(|format| format.name() == text);
        found.ok_or_else(|| UnknownFormat(text.to_owned()))
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_others_list_them() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
        let message = "vscsi2".parse::<Format>().unwrap_err().to_string();
        assert!(message.starts_with("'vscsi2' is not a trace format; there are vscsi, msr, "));
    }
}
