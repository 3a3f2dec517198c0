//! What controllers and namespaces say of themselves (Base Figures 275, 276; NVM Figure 97).

use ebb_nvme::identify as wire;

/// A controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// SN.
    pub serial: String,
    /// MN.
    pub model: String,
    /// FR.
    pub firmware: String,
    /// SUBNQN.
    pub subsystem: String,
    /// MDTS: most bytes of one command; `None` without a limit.
    pub most_bytes: Option<u64>,
    /// IOCCSZ: most bytes of data in an I/O command capsule.
    pub in_capsule: usize,
    /// OFCS bit 0: whether an I/O queue can be ended by a Disconnect command.
    pub disconnect: bool,
}

/// A namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespace {
    /// NSID.
    pub id: u32,
    /// Bytes in a block.
    pub block_size: u32,
    /// NSZE: blocks.
    pub blocks: u64,
}

impl Namespace {
    /// Size in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block_size as u64)
    }
}

/// A field of text, padded with spaces or ended by a zero; what is not printable is replaced.
pub(super) fn text(bytes: &[u8]) -> String {
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let text: String = bytes
        .iter()
        .map(|byte| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '?' })
        .collect();
    text.trim().to_owned()
}

impl Identity {
    /// From the data of Identify Controller; `page` is the smallest memory page in bytes.
    pub(super) fn parse(data: &wire::Controller, page: u64) -> Self {
        let mdts = data.max_transfer;
        let capsule = (data.command_capsule.get() as usize).saturating_mul(16);
        Self {
            serial: text(&data.serial),
            model: text(&data.model),
            firmware: text(&data.firmware),
            subsystem: text(&data.subsystem_nqn),
            most_bytes: (mdts > 0).then(|| page.checked_shl(mdts.into()).unwrap_or(u64::MAX)),
            in_capsule: capsule.saturating_sub(64),
            disconnect: data.fabric_commands.get() & 1 != 0,
        }
    }
}

impl Namespace {
    /// From the data of Identify Namespace; `None` when its format is not one Ebb can use: with
    /// metadata, or blocks of other than 512 bytes to 64 KiB.
    pub(super) fn parse(id: u32, data: &[u8]) -> Option<Self> {
        let flbas = data.get(26).copied()?;
        let format = usize::from(flbas & 0xf) | usize::from(flbas >> 5 & 3) << 4;
        // LBAF: the size of metadata in two bytes, the block size by its logarithm.
        let &[low, high, shift, _] = data.get(128 + 4 * format..)?.first_chunk()?;
        let known = (low, high) == (0, 0) && (9..=16).contains(&shift);
        let blocks = u64::from_le_bytes(*data.first_chunk()?);
        known.then(|| Self { id, block_size: 1 << shift, blocks })
    }
}

#[cfg(test)]
mod tests {
    use ebb_nvme::identify::SIZE;
    use zerocopy::FromBytes;

    use super::*;

    fn identity(data: &[u8]) -> Identity {
        Identity::parse(&wire::Controller::read_from_bytes(data).unwrap(), 4096)
    }

    #[test]
    fn namespaces_are_read_where_the_specification_puts_them() {
        let mut data = [0; SIZE];
        data[..8].copy_from_slice(&77_u64.to_le_bytes());
        data[26] = 1;
        data[128 + 4 + 2] = 12;
        let namespace = Namespace::parse(3, &data).unwrap();
        assert_eq!(namespace, Namespace { id: 3, block_size: 4096, blocks: 77 });
        data[128 + 4] = 8; // metadata
        assert_eq!(Namespace::parse(3, &data), None);
        data[128 + 4] = 0;
        data[128 + 4 + 2] = 40;
        assert_eq!(Namespace::parse(3, &data), None);
    }

    #[test]
    fn controllers_are_read_and_their_text_made_printable() {
        let mut data = [0; SIZE];
        data[4..24].copy_from_slice(b"S123\x07               ");
        data[77] = 5;
        data[1792..1796].copy_from_slice(&260_u32.to_le_bytes());
        data[1804] = 1;
        let found = identity(&data);
        assert_eq!((found.serial.as_str(), found.most_bytes), ("S123?", Some(128 << 10)));
        assert_eq!((found.in_capsule, found.disconnect), (4096, true));
        data[77] = 255;
        assert_eq!(identity(&data).most_bytes, Some(u64::MAX));
    }
}
