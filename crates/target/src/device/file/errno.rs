//! What the kernel's errors are called on the wire.

use ebb_nvme::Status;
use rustix::io::Errno;

use super::super::Op;

/// Whether trying again soon may help.
pub(super) fn passing(errno: Errno) -> bool {
    matches!(errno, Errno::INTR | Errno::AGAIN | Errno::BUSY)
}

/// Whether the file system does not know the operation.
pub(super) fn unsupported(errno: Errno) -> bool {
    matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY)
}

/// Whether the medium failed: such errors reach user space as EIO, ENODATA, EREMOTEIO or EILSEQ
/// (`blk_errors[]` in the kernel's block layer).
pub(super) fn medium(errno: Errno) -> bool {
    matches!(errno, Errno::IO | Errno::NODATA | Errno::REMOTEIO | Errno::ILSEQ)
}

/// The status of a request that failed with `errno`.
pub(super) fn status(errno: Errno, op: Op) -> Status {
    match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Status::CAPACITY_EXCEEDED,
        Errno::ROFS | Errno::PERM | Errno::ACCESS | Errno::BADF => Status::READ_ONLY,
        _ if medium(errno) => match op {
            Op::Read { .. } => Status::UNRECOVERED_READ,
            _ => Status::WRITE_FAULT,
        },
        _ => Status::INTERNAL_ERROR,
    }
}
