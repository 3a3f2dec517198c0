//! The answers to the commands of one queue: data where it is, then how it went.

use ebb_nvme::pdu::{self, CapsuleResp, Kind, flag};
use ebb_nvme::{Cqe, Sqe, Status};
use zerocopy::IntoBytes;

use super::super::context::Context;
use super::super::send::Sender;
use super::super::service::Answered;
use super::super::slots::Payload;
use super::Commands;
use crate::controller::{Plan, Queue};
use crate::device::{Buffer, Op};

impl Commands {
    /// Answers a read with bytes where they are, or a write whose data is `here`, if the device has
    /// its blocks in memory.
    pub(super) fn at_once(
        &mut self,
        sqe: &Sqe,
        plan: Plan,
        length: u32,
        here: Option<&[u8]>,
        sender: &mut Sender,
        context: &mut Context<'_>,
    ) -> bool {
        let Plan::Device { namespace, op, lba, blocks } = plan else { return false };
        let loan = match (op, here) {
            (Op::Read { .. }, _) if !self.digests.data => {
                let Some(loan) = context.channels.lend(namespace, lba, blocks) else {
                    return false;
                };
                Some(loan)
            }
            (Op::Write { .. }, Some(data)) if context.channels.store(namespace, lba, data) => None,
            _ => return false,
        };
        self.count();
        self.charge(length, context.now);
        if let Some(Queue::Io(io)) = &self.queue {
            io.account(sqe, &plan, Status::SUCCESS);
        }
        self.timed.extend(Answered::of(&plan, length, Status::SUCCESS, context.now));
        let cid = sqe.cid.get();
        let Some(loan) = loan else {
            self.answer(Cqe::new(cid, Status::SUCCESS, 0, self.head()), sender);
            return true;
        };
        self.put_transfer(cid, self.read_flags(), length as usize, sender);
        sender.put_loan(loan);
        self.conclude_read(cid, sender);
        true
    }

    /// Answers an I/O command.
    pub(super) fn complete(&mut self, index: u16, sender: &mut Sender) {
        let Some(slot) = self.slots.remove(index) else { return };
        assert_eq!(slot.pending, 0, "a command is answered when the device is done with it");
        let success = slot.status.is_success();
        if let (Some(Queue::Io(io)), Some(plan)) = (&self.queue, &slot.plan) {
            io.account(&slot.sqe, plan, slot.status);
        }
        let plan = slot.plan.as_ref();
        self.timed
            .extend(plan.and_then(|plan| Answered::of(plan, slot.length, slot.status, slot.since)));
        let is_read = matches!(slot.plan, Some(Plan::Device { op: Op::Read { .. }, .. }));
        match slot.payload {
            Payload::Pooled(buffer) if is_read && success => self.read(slot.cid, buffer, sender),
            _ => self.answer(Cqe::new(slot.cid, slot.status, 0, self.head()), sender),
        }
    }

    /// Answers a read: its data, and success.
    fn read(&mut self, cid: u16, buffer: Buffer, sender: &mut Sender) {
        self.put_data(cid, self.read_flags(), buffer, sender);
        self.conclude_read(cid, sender);
    }

    /// Success comes with the data (TCP 3.6.2.6, SUCCESS) unless the queue head must be told too.
    fn read_flags(&self) -> u8 {
        flag::LAST | if self.head.is_none() { flag::SUCCESS } else { 0 }
    }

    /// What follows the data of a read.
    fn conclude_read(&mut self, cid: u16, sender: &mut Sender) {
        if self.head.is_some() {
            self.answer(Cqe::new(cid, Status::SUCCESS, 0, self.head()), sender);
        } else {
            self.answered += 1;
        }
    }

    /// The header of `length` bytes of data of command `cid`.
    fn put_transfer(&self, cid: u16, flags: u8, length: usize, sender: &mut Sender) {
        let header = pdu::Transfer {
            common: pdu::common(Kind::C2hData, flags, self.digests, length, self.alignment),
            cid: cid.into(),
            tag: 0.into(),
            offset: 0.into(),
            length: (length as u32).into(),
            reserved: 0.into(),
        };
        sender.put(|out| pdu::put_header(out, header.as_bytes()));
    }

    /// Sends data of command `cid`.
    pub(super) fn put_data(&self, cid: u16, flags: u8, buffer: Buffer, sender: &mut Sender) {
        let digest = self.digests.data.then(|| crc32c::crc32c(&buffer));
        self.put_transfer(cid, flags, buffer.len(), sender);
        sender.put_data(buffer);
        if let Some(digest) = digest {
            sender.put(|out| out.extend_from_slice(&digest.to_le_bytes()));
        }
    }

    /// Sends a copy of data of command `cid`.
    pub(super) fn put_bytes(&self, cid: u16, flags: u8, bytes: &[u8], sender: &mut Sender) {
        self.put_transfer(cid, flags, bytes.len(), sender);
        sender.put(|out| {
            out.extend_from_slice(bytes);
            if self.digests.data {
                out.extend_from_slice(&crc32c::crc32c(bytes).to_le_bytes());
            }
        });
    }

    /// Sends a response capsule.
    pub(in super::super) fn answer(&mut self, cqe: Cqe, sender: &mut Sender) {
        self.answered += 1;
        let common = pdu::common(Kind::CapsuleResp, 0, self.digests, 0, 4);
        sender.put(|out| pdu::put_header(out, CapsuleResp { common, cqe }.as_bytes()));
    }
}
