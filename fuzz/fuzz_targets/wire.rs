//! Any bytes as the stream of a peer: framing may refuse them but never panics, never finds a PDU
//! larger than allowed, and what it accepts can be cut into header, data and digests.
//!
//! The first byte chooses digests (bits 1:0) and the most data of a PDU (bits 7:2, in KiB).

#![no_main]

use ebb_nvme::fabrics::{Connect, ConnectData, PropertyAt, nqn};
use ebb_nvme::log::Request;
use ebb_nvme::pdu::{
    COMMON, CapsuleCmd, CapsuleResp, Common, DIGEST, Digests, Fatal, Frame, Initialize, Kind,
    MAX_HEADER, MAX_TERMINATE, Terminate, Transfer,
};
use ebb_nvme::{Cqe, Sqe, Status};
use ebb_target::controller::Direction;
use libfuzzer_sys::fuzz_target;
use zerocopy::FromBytes;

fuzz_target!(|input: &[u8]| {
    let Some((choice, mut stream)) = input.split_first() else { return };
    let digests = Digests::from_byte(choice & 3);
    let most = usize::from(choice >> 2) << 10;
    while stream.len() >= COMMON {
        let Ok((common, _)) = Common::read_from_prefix(stream) else { return };
        let frame = match Frame::of(&common, digests, most) {
            Ok(frame) => frame,
            Err(fatal) => return refused(fatal),
        };
        let header = frame.kind.header();
        let digest = |is_there| if is_there { DIGEST } else { 0 };
        assert!(header <= MAX_HEADER && header + digest(frame.header_digest) <= frame.data_start);
        assert!(frame.data_length <= most.max(MAX_TERMINATE));
        let end = frame.data_start + frame.data_length + digest(frame.data_digest);
        assert_eq!(end, frame.total, "the parts do not make the whole");
        assert!(frame.total >= COMMON, "a stream of such would never end");
        if stream.len() < frame.total {
            return;
        }
        let (pdu, rest) = stream.split_at(frame.total);
        if frame.check_header(&pdu[..frame.data_start]).is_ok() {
            headers(&frame, pdu);
        }
        stream = rest;
    }
});

fn refused(fatal: Fatal) {
    let (code, _) = fatal.code();
    assert!((1..=6).contains(&code));
}

/// Every reading of a header, and of the data that a Connect brings.
fn headers(frame: &Frame, pdu: &[u8]) {
    match frame.kind {
        Kind::IcReq | Kind::IcResp => drop(Initialize::read_from_prefix(pdu)),
        Kind::H2cTermReq | Kind::C2hTermReq => drop(Terminate::read_from_prefix(pdu)),
        Kind::H2cData | Kind::C2hData | Kind::R2t => drop(Transfer::read_from_prefix(pdu)),
        Kind::CapsuleResp => {
            let Ok((capsule, _)) = CapsuleResp::read_from_prefix(pdu) else { return };
            let Cqe { cid, .. } = capsule.cqe;
            let status = capsule.cqe.status();
            let again = Cqe::new(cid.get(), status, 0, 0).status();
            assert_eq!(status, Status::from_field(again.to_field()));
        }
        Kind::CapsuleCmd => {
            let Ok((capsule, _)) = CapsuleCmd::read_from_prefix(pdu) else { return };
            command(&capsule.sqe);
            let data = &pdu[frame.data_start..frame.data_start + frame.data_length];
            if let Ok((data, _)) = ConnectData::read_from_prefix(data) {
                for field in [&data.subsystem_nqn, &data.host_nqn] {
                    assert!(nqn(field).is_none_or(|name| name.len() <= 223));
                }
            }
        }
    }
}

fn command(sqe: &Sqe) {
    let _ = (Connect::of(sqe), PropertyAt::of(sqe));
    assert!(Request::of(sqe).bytes.is_multiple_of(4));
    if let Ok(direction) = Direction::of(sqe, 1 << 17, 4096) {
        assert!(direction.from_host().max(direction.to_host()) <= 1 << 17);
    }
}
