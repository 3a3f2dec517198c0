//! From a stream of bytes to PDUs: collects one header at a time, says where its data goes.

use ebb_nvme::pdu::{COMMON, CapsuleCmd, Common, DIGEST, Digests, Fatal, Frame, Kind};
use zerocopy::FromBytes;

/// The longest part before the data: PDO is one byte.
const MAX_HEAD: usize = 256;

/// The header of most PDUs.
const CAPSULE: usize = size_of::<CapsuleCmd>();

/// What the next bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Part of a header.
    Head,
    /// Data of the PDU: so many bytes are still to come.
    Data(usize),
    /// Part of the data digest.
    Digest,
}

/// The receiving half of a connection, without its socket.
#[derive(Debug)]
pub(super) struct Receiver {
    head: [u8; MAX_HEAD],
    have: usize,
    frame: Option<Frame>,
    stage: Stage,
    digest: u32,
    /// What was agreed upon.
    pub digests: Digests,
    max_data: usize,
}

impl Receiver {
    /// Expects PDUs with at most `max_data` bytes of data, at first without digests.
    pub fn new(max_data: usize) -> Self {
        Self {
            head: [0; MAX_HEAD],
            have: 0,
            frame: None,
            stage: Stage::Head,
            digest: 0,
            digests: Digests::default(),
            max_data,
        }
    }

    /// From now on PDUs may carry `max_data` bytes.
    pub fn set_max_data(&mut self, max_data: usize) {
        self.max_data = max_data;
    }

    /// What the next bytes are.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// The header last collected, up to the data.
    pub fn head(&self) -> &[u8] {
        &self.head[..self.have]
    }

    /// Whether a PDU has begun and not ended.
    pub fn is_inside(&self) -> bool {
        self.have > 0 || self.stage != Stage::Head
    }

    /// Takes bytes of a header from `input`. `Some` once it is complete and checked.
    ///
    /// # Errors
    /// When the header is not valid here.
    pub fn header(&mut self, input: &mut &[u8]) -> Result<Option<Frame>, Fatal> {
        if self.have == 0
            && let Some(head) = input.first_chunk::<CAPSULE>()
        {
            // Nearly always all of it is here; a copy of known length is a few instructions.
            self.head[..CAPSULE].copy_from_slice(head);
            self.have = COMMON;
            self.have = self.frame()?.data_start.min(CAPSULE);
            *input = &input[self.have..];
        }
        if !self.collect(input, COMMON) {
            return Ok(None);
        }
        let frame = self.frame()?;
        if !self.collect(input, frame.data_start) {
            return Ok(None);
        }
        frame.check_header(&self.head[..frame.data_start])?;
        if frame.data_length > 0 {
            (self.stage, self.digest) = (Stage::Data(frame.data_length), 0);
        }
        Ok(Some(frame))
    }

    /// Commands that `input`, the bytes that come next, holds at least the begin of, as the lengths
    /// in the headers say. A header cut within its first bytes hides what comes behind it.
    pub fn commands_in(&self, input: &[u8]) -> u32 {
        let frame = self.frame.as_ref();
        let digest = if frame.is_some_and(|frame| frame.data_digest) { DIGEST } else { 0 };
        let is_command = |kind| u32::from(kind == Kind::CapsuleCmd as u8);
        let (mut at, mut count) = match (self.stage, frame) {
            (Stage::Head, Some(frame)) => (frame.total - self.have, is_command(frame.kind as u8)),
            (Stage::Head, None) if self.have > 0 => return 0,
            (Stage::Head, None) => (0, 0),
            (Stage::Data(left), _) => (left + digest, 0),
            (Stage::Digest, _) => (DIGEST - self.have, 0),
        };
        while let Some((common, _)) =
            input.get(at..).and_then(|rest| Common::ref_from_prefix(rest).ok())
        {
            count += is_command(common.kind);
            at += (common.plen.get() as usize).max(COMMON);
        }
        count
    }

    /// Where the parts of the PDU are whose common header has been collected.
    fn frame(&mut self) -> Result<Frame, Fatal> {
        if let Some(frame) = self.frame {
            return Ok(frame);
        }
        let common = Common::read_from_prefix(&self.head).map_err(|_| Fatal::InvalidHeaderField(0));
        Ok(*self.frame.insert(Frame::of(&common?.0, self.digests, self.max_data)?))
    }

    /// Copies bytes until the header has `wanted`; whether it has.
    fn collect(&mut self, input: &mut &[u8], wanted: usize) -> bool {
        let take = wanted.saturating_sub(self.have).min(input.len());
        let (taken, rest) = input.split_at(take);
        self.head[self.have..self.have + take].copy_from_slice(taken);
        self.have += take;
        *input = rest;
        self.have >= wanted
    }

    /// The bytes at `data`, the next ones of the PDU's data, have been put where they belong.
    pub fn took(&mut self, data: &[u8]) {
        let Stage::Data(left) = self.stage else { return };
        let Some(frame) = self.frame else { return };
        if frame.data_digest {
            self.digest = crc32c::crc32c_append(self.digest, data);
        }
        self.stage = match left - data.len() {
            0 if frame.data_digest => {
                self.have = 0;
                Stage::Digest
            }
            0 => Stage::Head,
            left => Stage::Data(left),
        };
    }

    /// Takes bytes of the data digest from `input`. `Some` once it is complete: whether it is
    /// right.
    pub fn data_digest(&mut self, input: &mut &[u8]) -> Option<bool> {
        if !self.collect(input, DIGEST) {
            return None;
        }
        self.stage = Stage::Head;
        Some(self.digest.to_le_bytes() == self.head[..DIGEST])
    }

    /// The PDU is dealt with; the next byte begins another.
    pub fn next(&mut self) {
        (self.have, self.frame, self.stage) = (0, None, Stage::Head);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use zerocopy::IntoBytes;

    use super::*;
    use ebb_nvme::Sqe;
    use ebb_nvme::pdu::{self, Kind, Transfer};

    fn pdus(digests: Digests) -> Vec<Vec<u8>> {
        let capsule = |data| {
            let common = pdu::common(Kind::CapsuleCmd, 0, digests, data, 4);
            let mut bytes = Vec::new();
            pdu::put_header(&mut bytes, CapsuleCmd { common, sqe: Sqe::new(1, 7) }.as_bytes());
            bytes.resize(bytes.len() + data, 3);
            bytes
        };
        let common = pdu::common(Kind::H2cData, 0, digests, 900, 4);
        let zero = <Transfer as zerocopy::FromZeros>::new_zeroed();
        let mut transfer = Vec::new();
        pdu::put_header(&mut transfer, Transfer { common, ..zero }.as_bytes());
        transfer.resize(transfer.len() + 900, 4);
        vec![capsule(0), transfer, capsule(512), capsule(0)]
    }

    /// Wherever the stream is cut, the commands that are still to be taken are known.
    #[test]
    fn commands_are_counted_before_they_are_taken() {
        for header in [false, true] {
            let digests = Digests { header, data: false };
            let mut receiver = Receiver::new(4096);
            receiver.digests = digests;
            let (stream, mut commands) = (pdus(digests).concat(), 3);
            for at in 0..stream.len() {
                let is_hidden = (1..COMMON).contains(&receiver.have) && receiver.frame.is_none();
                let expected = if is_hidden { 0 } else { commands };
                assert_eq!(receiver.commands_in(&stream[at..]), expected, "{digests:?} at {at}");
                let mut input = &stream[at..=at];
                match receiver.stage() {
                    Stage::Data(_) => receiver.took(input),
                    _ => match receiver.header(&mut input).unwrap() {
                        Some(frame) => commands -= u32::from(frame.kind == Kind::CapsuleCmd),
                        None => continue,
                    },
                }
                if receiver.stage() == Stage::Head {
                    receiver.next();
                }
            }
            assert_eq!(commands, 0);
        }
    }

    proptest! {
        /// Wherever the stream is cut, headers and data come out the same.
        #[test]
        fn cuts_change_nothing(
            header: bool,
            pieces in prop::collection::vec(1_usize..200, 40),
        ) {
            let digests = Digests { header, data: false };
            let mut receiver = Receiver::new(4096);
            receiver.digests = digests;
            let expected = pdus(digests);
            let stream = expected.concat();
            let (mut at, mut got, mut pdu) = (0, Vec::new(), Vec::new());
            let mut sizes = pieces.into_iter().cycle();
            while at < stream.len() {
                let end = stream.len().min(at + sizes.next().unwrap());
                let mut input = &stream[at..end];
                at = end;
                while !input.is_empty() {
                    match receiver.stage() {
                        Stage::Data(left) => {
                            let (data, rest) = input.split_at(left.min(input.len()));
                            receiver.took(data);
                            pdu.extend_from_slice(data);
                            input = rest;
                        }
                        _ => match receiver.header(&mut input).unwrap() {
                            Some(_) => pdu.extend_from_slice(receiver.head()),
                            None => continue,
                        },
                    }
                    if receiver.stage() == Stage::Head {
                        receiver.next();
                        got.push(std::mem::take(&mut pdu));
                    }
                }
            }
            prop_assert_eq!(got, expected);
        }
    }
}
