//! Which way a command's data goes, and how much of it there is.

use ebb_nvme::command::{FABRICS, sgl};
use ebb_nvme::{Sqe, Status};

/// Bytes of data that always fit a capsule with an admin or fabrics command (TCP 3.3.2.1).
pub const ADMIN_IN_CAPSULE: u32 = 8 << 10;

/// Which way the data of a command goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// There is none.
    None,
    /// The host writes it.
    FromHost {
        /// Bytes.
        length: u32,
        /// It came with the command, rather than being asked for by R2T.
        in_capsule: bool,
    },
    /// The host reads it.
    ToHost {
        /// Bytes at most.
        length: u32,
    },
}

impl Direction {
    /// From the command's opcode, or type of fabrics command, and its SGL descriptor.
    ///
    /// # Errors
    /// When the command is fused, has no SGL, one of a kind or place that does not exist here, or
    /// more data than `max_transfer`, or in its capsule than `in_capsule`, bytes.
    pub fn of(sqe: &Sqe, max_transfer: u32, in_capsule: u32) -> Result<Self, Status> {
        // Bits 1:0: not fused. Bits 7:6 are 01b with fabrics: an SGL (Base Figure 87).
        if sqe.flags & 0xc3 != 0x40 {
            return Err(Status::INVALID_FIELD);
        }
        let is_fabrics = sqe.opcode == FABRICS;
        // Base 3.1.3.3 and Figure 374: bits 1:0 of the opcode or the type.
        let way = if is_fabrics { sqe.fabrics_type() } else { sqe.opcode } & 3;
        let length = sqe.sgl_length.get();
        if way == 0 || length == 0 {
            return Ok(Self::None);
        }
        if length > max_transfer {
            return Err(Status::INVALID_FIELD);
        }
        let from_host = way == 1;
        match sqe.sgl_identifier {
            sgl::TRANSPORT if from_host => Ok(Self::FromHost { length, in_capsule: false }),
            sgl::TRANSPORT if way == 2 => Ok(Self::ToHost { length }),
            sgl::IN_CAPSULE if from_host => {
                let most = if is_fabrics { ADMIN_IN_CAPSULE } else { in_capsule };
                if sqe.sgl_address.get() != 0 {
                    return Err(Status::SGL_OFFSET_INVALID); // ICDOFF is 0.
                }
                let fits = length <= most;
                let here = Self::FromHost { length, in_capsule: true };
                fits.then_some(here).ok_or(Status::DATA_SGL_LENGTH_INVALID)
            }
            sgl::TRANSPORT => Err(Status::INVALID_FIELD), // Both ways at once.
            _ => Err(Status::INVALID_SGL),
        }
    }

    /// Bytes the host gives.
    #[must_use]
    pub const fn from_host(self) -> u32 {
        if let Self::FromHost { length, .. } = self { length } else { 0 }
    }
    /// Bytes the host takes.
    #[must_use]
    pub const fn to_host(self) -> u32 {
        if let Self::ToHost { length } = self { length } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::FromBytes;

    use super::*;
    use ebb_nvme::command::{admin, fabrics, io};

    fn with(opcode: u8, identifier: u8, length: u32) -> Sqe {
        let mut sqe = Sqe::new(opcode, 1);
        sqe.sgl_identifier = identifier;
        sqe.sgl_length = length.into();
        sqe
    }

    #[test]
    fn opcodes_and_descriptors_say_where_data_goes() {
        let of = |sqe: &Sqe| Direction::of(sqe, 1 << 17, 4096);
        let length = 4096;
        let here = Direction::FromHost { length, in_capsule: true };
        assert_eq!(of(&with(io::WRITE, 0x01, length)), Ok(here));
        let asked = Direction::FromHost { length, in_capsule: false };
        assert_eq!(of(&with(io::WRITE, 0x5a, length)), Ok(asked));
        assert_eq!(of(&with(io::READ, 0x5a, length)), Ok(Direction::ToHost { length }));
        assert_eq!(of(&with(io::READ, 0x01, length)), Err(Status::INVALID_SGL));
        assert_eq!(of(&with(io::WRITE, 0x01, 4097)), Err(Status::DATA_SGL_LENGTH_INVALID));
        assert_eq!(of(&with(io::WRITE, 0x5a, 1 << 18)), Err(Status::INVALID_FIELD));
        assert_eq!(of(&with(io::FLUSH, 0x5a, 0)), Ok(Direction::None));
        assert_eq!(of(&with(admin::IDENTIFY, 0x40, length)), Err(Status::INVALID_SGL));
        let mut connect = with(FABRICS, 0x01, 1024);
        connect.nsid = u32::from(fabrics::CONNECT).into();
        let here = Direction::FromHost { length: 1024, in_capsule: true };
        assert_eq!(Direction::of(&connect, 4096, 0), Ok(here));
        let mut fused = with(io::WRITE, 0x01, length);
        fused.flags |= 1;
        assert_eq!(of(&fused), Err(Status::INVALID_FIELD));
        let mut shifted = with(io::WRITE, 0x01, length);
        shifted.sgl_address = 8.into();
        assert_eq!(of(&shifted), Err(Status::SGL_OFFSET_INVALID));
    }

    proptest! {
        #[test]
        fn no_entry_asks_for_more_than_the_limits(bytes: [u8; 64], fix: bool, most in 0_u32..9000) {
            let mut sqe = Sqe::read_from_bytes(&bytes).unwrap();
            if fix {
                (sqe.flags, sqe.sgl_identifier) = (0x40, if bytes[1] > 99 { 0x5a } else { 1 });
                sqe.sgl_length = (sqe.sgl_length.get() % 10_000).into();
                sqe.sgl_address = 0.into();
            }
            if let Ok(direction) = Direction::of(&sqe, 8192, most) {
                prop_assert!(direction.from_host() <= 8192 && direction.to_host() <= 8192);
                if let Direction::FromHost { length, in_capsule: true } = direction {
                    prop_assert!(length <= most.max(ADMIN_IN_CAPSULE));
                }
            }
        }
    }
}
