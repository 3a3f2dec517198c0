//! What is made of the journal when an array is assembled.
//!
//! A transaction goes to its place only when all its parts are durable in the journals, or all
//! but one whose member failed. So:
//!
//! * If at most one part is unknown, because it was torn or its member is missing, that part
//!   follows from the others: it is put into its journal, and the transaction is carried out,
//!   whole, whether or not it had begun to go to its place.
//! * If more are unknown, it had not begun: the stripe is as before, and the transaction is
//!   forgotten. Nobody was told that it was done.
//!
//! Transactions of the same rows are in the order of their numbers, as rows are held from before
//! the number is given until all is in place. Doing it again does no harm.
//!
//! So a change that a later one of the same rows followed was whole: a member without its part of
//! it lost what it had said was durable. It is an older copy, or cannot be read.

use std::collections::{BTreeMap, HashMap};

use ebb_nvme::Status;

use super::Error;
use super::journal::Piece;
use super::keeper::broken;
use super::layout::{Layout, PAGE};
use super::plan::xor;
use super::superblock::{State, Superblock};
use super::wait::Member;

/// The parts in the journals that may not be in place, by transaction.
pub(super) type Changes = BTreeMap<u64, Vec<Piece>>;

/// Looks for what `from`, the oldest superblock in use, does not say to be in place.
pub(super) fn scan(members: &mut [Option<Member>], from: &Superblock) -> Changes {
    let layout = from.layout;
    let mut found = Changes::new();
    for number in 0..layout.slots {
        for (role, member) in members.iter_mut().enumerate() {
            // A slot that cannot be read is as good as torn.
            let bytes = member.as_mut().and_then(|member| slot(member, &layout, number));
            let Some(piece) = bytes.and_then(|bytes| Piece::decode(&bytes, layout.chunk)) else {
                continue;
            };
            let ours = piece.run == from.now.run
                && piece.role == role
                && piece.seq % layout.slots == number
                && piece.stripe < layout.stripes
                && piece.is_in_blocks(layout.block)
                && u32::from(piece.parts) >> layout.members == 0;
            // A slot is used again only after all members know a later tail.
            let known = from.tail..from.tail.saturating_add(layout.slots);
            if ours && known.contains(&piece.seq) {
                found.entry(piece.seq).or_default().push(piece);
            }
        }
    }
    found
}

/// The members that lost their part of a change that was whole.
pub(super) fn outdated(changes: &Changes) -> Vec<usize> {
    let mut later = HashMap::<u64, Vec<&Piece>>::new();
    let mut roles = Vec::new();
    for pieces in changes.values().rev() {
        let Some(first) = pieces.first() else { continue };
        let later = later.entry(first.stripe).or_default();
        let meets =
            |other: &&Piece| other.rows.start < first.rows.end && first.rows.start < other.rows.end;
        if later.iter().any(meets) {
            let parts = (0..u16::BITS as usize).filter(|role| first.parts >> role & 1 == 1);
            roles.extend(parts.filter(|role| pieces.iter().all(|piece| piece.role != *role)));
        }
        later.push(first);
    }
    roles
}

/// Header and rows; the header alone where nothing was ever written.
fn slot(member: &mut Member, layout: &Layout, seq: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; PAGE];
    member.read(layout.slot(seq), &mut bytes).ok()?;
    if bytes.iter().any(|byte| *byte != 0) {
        bytes.resize(PAGE + layout.chunk as usize, 0);
        member.read(layout.slot(seq) + PAGE as u64, &mut bytes[PAGE..]).ok()?;
    }
    Some(bytes)
}

/// The members to recover on, by role; `None` for those that cannot be used.
pub(super) struct Recovery<'a> {
    pub(super) members: &'a mut [Option<Member>],
    pub(super) names: &'a [String],
    pub(super) superblock: &'a Superblock,
}

impl Recovery<'_> {
    /// Carries out what is in the journals, durably; returns how many changes.
    pub(super) fn run(mut self, changes: &Changes) -> Result<u64, Error> {
        let mut replayed = 0;
        for pieces in changes.values() {
            replayed += u64::from(self.replay(pieces)?);
        }
        for (role, member) in self.members.iter_mut().enumerate() {
            if let Some(member) = member {
                member.flush().map_err(|status| broken(&self.names[role], "flushed", status))?;
            }
        }
        Ok(replayed)
    }

    fn layout(&self) -> Layout {
        self.superblock.layout
    }

    /// Whether a role's rows of this stripe cannot be read or written.
    fn missing(&self, role: usize, stripe: u64) -> bool {
        let rebuilding = self.superblock.states[role] == State::Rebuilding;
        self.members[role].is_none() || rebuilding && stripe >= self.superblock.rebuilt
    }

    /// Carries a transaction out, if enough of it is known.
    fn replay(&mut self, pieces: &[Piece]) -> Result<bool, Error> {
        let Some(first) = pieces.first() else { return Ok(false) };
        let (stripe, members) = (first.stripe, self.layout().members);
        // Of a member that does not hold the stripe, only the rows in the journal are known.
        let known = |role: usize| {
            let mut pieces = pieces.iter().filter(|piece| piece.role == role);
            pieces.any(|piece| !self.missing(role, stripe) || piece.own == first.rows)
        };
        let mut unknown = (0..members).filter(|role| {
            !known(*role) && (first.parts >> role & 1 == 1 || self.missing(*role, stripe))
        });
        let (torn, more) = (unknown.next(), unknown.next().is_some());
        if more {
            return Ok(false);
        }
        let mut parts = Vec::new();
        for piece in pieces {
            let layout = self.layout();
            let member = self.members[piece.role].as_mut();
            let bytes = member.and_then(|member| slot(member, &layout, piece.seq));
            let bytes = bytes.filter(|bytes| bytes.len() > PAGE);
            let Some(mut bytes) = bytes else {
                let name = &self.names[piece.role];
                return Err(broken(name, "read", Status::UNRECOVERED_READ));
            };
            bytes.truncate(PAGE + piece.own.len());
            parts.push((piece.clone(), bytes));
        }
        if let Some(torn) = torn.filter(|torn| !self.missing(*torn, stripe)) {
            let part = self.restore(torn, first, &parts)?;
            parts.push(part);
        }
        let at = self.layout().chunk_at(stripe);
        for (piece, bytes) in parts.iter().filter(|(piece, _)| !piece.own.is_empty()) {
            self.write(piece.role, at + piece.own.start as u64, &bytes[PAGE..], false)?;
        }
        Ok(true)
    }

    /// The part that was torn: its rows are the sum of all the others'. It goes to the journal
    /// first, for another member may fail before everything is in place.
    fn restore(
        &mut self,
        torn: usize,
        first: &Piece,
        parts: &[(Piece, Vec<u8>)],
    ) -> Result<(Piece, Vec<u8>), Error> {
        let rows = first.rows.clone();
        let at = self.layout().chunk_at(first.stripe) + rows.start as u64;
        let (mut slot, mut old) = (vec![0; PAGE + rows.len()], vec![0; rows.len()]);
        for role in (0..self.layout().members).filter(|role| *role != torn) {
            let read = self.members[role].as_mut().map(|member| member.read(at, &mut old));
            if let Some(Err(status)) = read {
                return Err(broken(&self.names[role], "read", status));
            }
            if let Some((piece, bytes)) = parts.iter().find(|(piece, _)| piece.role == role) {
                let own = piece.own.start - rows.start..piece.own.end - rows.start;
                old[own].copy_from_slice(&bytes[PAGE..]);
            }
            xor(&mut slot[PAGE..], &old);
        }
        let piece = Piece { role: torn, own: rows, ..first.clone() };
        piece.encode(&mut slot);
        self.write(torn, self.layout().slot(piece.seq), &slot, true)?;
        Ok((piece, slot))
    }

    fn write(&mut self, role: usize, at: u64, data: &[u8], durable: bool) -> Result<(), Error> {
        let member = self.members[role].as_mut();
        let written = member.map_or(Ok(()), |member| member.write(at, data, durable));
        written.map_err(|status| broken(&self.names[role], "written", status))
    }
}
