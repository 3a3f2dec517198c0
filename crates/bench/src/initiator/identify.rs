//! What controllers and namespaces say of themselves (Base Figures 275, 276; NVM Figure 97).

/// Bytes of every Identify data structure.
pub(super) const SIZE: usize = 4096;

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

pub(super) fn u16_at(data: &[u8], at: usize) -> u16 {
    data.get(at..at + 2).map_or(0, |bytes| u16::from_le_bytes([bytes[0], bytes[1]]))
}

pub(super) fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from(u16_at(data, at)) | u32::from(u16_at(data, at + 2)) << 16
}

pub(super) fn u64_at(data: &[u8], at: usize) -> u64 {
    u64::from(u32_at(data, at)) | u64::from(u32_at(data, at + 4)) << 32
}

/// A field of text, padded with spaces or ended by a zero; what is not printable is replaced.
pub(super) fn text(data: &[u8], at: usize, length: usize) -> String {
    let bytes = data.get(at..at + length).unwrap_or_default();
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    let text: String = bytes
        .iter()
        .map(|byte| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '?' })
        .collect();
    text.trim().to_owned()
}

impl Identity {
    /// From the data of Identify Controller; `page` is the smallest memory page in bytes.
    pub(super) fn parse(data: &[u8], page: u64) -> Self {
        let mdts = data.get(77).copied().unwrap_or(0);
        let capsule = (u32_at(data, 1792) as usize).saturating_mul(16);
        Self {
            serial: text(data, 4, 20),
            model: text(data, 24, 40),
            firmware: text(data, 64, 8),
            subsystem: text(data, 768, 256),
            most_bytes: (mdts > 0).then(|| page.checked_shl(mdts.into()).unwrap_or(u64::MAX)),
            in_capsule: capsule.saturating_sub(64),
            disconnect: u16_at(data, 1804) & 1 != 0,
        }
    }
}

impl Namespace {
    /// From the data of Identify Namespace; `None` when its format is not one Ebb can use: with
    /// metadata, or blocks of other than 512 bytes to 64 KiB.
    pub(super) fn parse(id: u32, data: &[u8]) -> Option<Self> {
        let flbas = data.get(26).copied()?;
        let format = usize::from(flbas & 0xf) | usize::from(flbas >> 5 & 3) << 4;
        let at = 128 + 4 * format;
        let (metadata, shift) = (u16_at(data, at), data.get(at + 2).copied()?);
        let known = metadata == 0 && (9..=16).contains(&shift);
        known.then(|| Self { id, block_size: 1 << shift, blocks: u64_at(data, 0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let identity = Identity::parse(&data, 4096);
        assert_eq!((identity.serial.as_str(), identity.most_bytes), ("S123?", Some(128 << 10)));
        assert_eq!((identity.in_capsule, identity.disconnect), (4096, true));
        data[77] = 255;
        assert_eq!(Identity::parse(&data, 4096).most_bytes, Some(u64::MAX));
    }
}
