//! What the keeper does for members that had no room: see [`super::space`].

use super::journal::Piece;
use super::keeper::Keeper;
use super::layout::PAGE;
use super::owed::Debt;
use super::segment::roles;
use crate::wire::Status;

impl Keeper {
    /// Takes transactions out of the journals that not all members could write.
    pub(super) fn void(&mut self) {
        let array = self.array.clone();
        for void in array.scarce.voids() {
            let (at, mut left) = (array.layout.slot(void.seq), void.roles);
            for role in roles(void.roles) {
                let health = array.health();
                if health.dead {
                    return;
                }
                let member = self.members[role].as_mut().filter(|_| health.failed != Some(role));
                let voided = member.map_or(Ok(()), |member| member.write(at, &[0; PAGE], true));
                match voided {
                    Err(status) => self.blame(role, status, "its journal could not be written"),
                    Ok(()) => left &= !(1 << role),
                }
                if voided.is_err_and(|status| status != Status::CAPACITY_EXCEEDED) {
                    left &= !(1 << role);
                }
            }
            let claim = array.scarce.voided(void.seq, left);
            if left == 0 {
                array.placed(void.seq);
                array.tell();
            }
            if let Some(claim) = claim {
                array.locks.release(&claim);
            }
        }
    }

    /// Puts in place what is owed where that is to be tried, and moves in the journal what is in
    /// the way of its tail.
    pub(super) fn pay(&mut self) {
        let array = self.array.clone();
        let health = array.health();
        if health.dead {
            return self.paying.clear();
        }
        if let Some(role) = health.failed {
            array.owed.forget(role).into_iter().for_each(|seq| array.placed(seq));
            array.scarce.has_room(role);
        }
        if let Some(end) = array.journal.crowded().filter(|_| array.owed.any()) {
            self.paying.extend(array.owed.stripes(end));
        }
        self.paying.sort_unstable();
        self.paying.dedup();
        while let Some(&stripe) = self.paying.last() {
            if !self.claimed(stripe) {
                return; // The mail says when.
            }
            self.pay_stripe(stripe);
            self.give_up_claim();
            self.paying.pop();
        }
    }

    fn pay_stripe(&mut self, stripe: u64) {
        let array = self.array.clone();
        let at = array.layout.chunk_at(stripe);
        for debt in array.owed.of(stripe) {
            let Some(member) = self.members[debt.role].as_mut() else { continue };
            match member.write(at + debt.start as u64, &debt.bytes, false) {
                Ok(()) => {
                    let done = array.owed.cut(debt.role, stripe, &debt.rows());
                    done.into_iter().for_each(|seq| array.placed(seq));
                }
                Err(Status::CAPACITY_EXCEEDED) => array.refused(debt.role, stripe, debt.rows()),
                Err(_) => array.fail(debt.role, "it could not be written"),
            }
        }
        for refusal in array.scarce.refusals() {
            if refusal.stripe == stripe && array.owed.roles() >> refusal.role & 1 == 0 {
                self.ask_again(refusal.role, at + refusal.rows.start as u64, refusal.rows.len());
            }
        }
        let debts = array.owed.of(stripe);
        let oldest = debts.iter().map(|debt| debt.seq).min();
        if let (Some(oldest), Some(end)) = (oldest, array.journal.crowded())
            && oldest < end
        {
            self.forward(stripe, debts);
        }
    }

    /// Gives a member what it has where it refused something. Who takes that has room again.
    fn ask_again(&mut self, role: usize, at: u64, bytes: usize) {
        let Some(member) = self.members[role].as_mut() else { return };
        let there = &mut self.sum[..bytes];
        let asked = match bytes {
            0 => Ok(()),
            _ => member.read(at, there).and_then(|()| member.write(at, there, false)),
        };
        if asked != Err(Status::CAPACITY_EXCEEDED) {
            self.array.scarce.has_room(role);
        }
    }

    /// Puts what is owed of a stripe into a slot of its own at the journal's end, so that the slots
    /// it was in become free. It is a transaction like others: the rows follow from those of the
    /// other members, one of which takes part so that no single journal is the only one to know.
    fn forward(&mut self, stripe: u64, debts: Vec<Debt>) {
        let array = self.array.clone();
        let Some(parts) = self.parts(stripe, &debts) else { return self.stalled = true };
        let Some(seq) = array.journal.begin_own() else { return self.stalled = true };
        let bits = parts.iter().fold(0, |bits, part| bits | 1u16 << part.role);
        let starts = parts.iter().map(|part| part.start).min().unwrap_or(0);
        let ends = parts.iter().map(|part| part.rows().end).max().unwrap_or(0);
        let mut took = 0u32;
        for part in parts {
            let own = part.rows();
            let own = if own.is_empty() { starts..starts } else { own };
            let run = array.journal_id;
            let piece =
                Piece { run, seq, stripe, rows: starts..ends, own, parts: bits, role: part.role };
            let mut slot = vec![0; PAGE];
            slot.extend_from_slice(&part.bytes);
            piece.encode(&mut slot);
            let Some(member) = self.members[part.role].as_mut() else { continue };
            match member.write(array.layout.slot(seq), &slot, true) {
                Ok(()) => took |= 1 << part.role,
                Err(Status::CAPACITY_EXCEEDED) => {
                    self.blame(part.role, Status::CAPACITY_EXCEEDED, "");
                    array.scarce.void(seq, took);
                    self.leave_claim(seq);
                    return self.void();
                }
                Err(_) => array.fail(part.role, "its journal could not be written"),
            }
        }
        if !array.health().dead {
            array.owed.moved(stripe, seq).into_iter().for_each(|old| array.placed(old));
        }
    }

    /// One part for each member that is owed something, from the first to the last of it, and an
    /// empty one for a member that is not.
    fn parts(&mut self, stripe: u64, debts: &[Debt]) -> Option<Vec<Debt>> {
        let array = self.array.clone();
        let mut parts = Vec::<Debt>::new();
        let mut other = None;
        for role in 0..self.members.len() {
            let own = debts.iter().filter(|debt| debt.role == role);
            let start = own.clone().map(|debt| debt.start).min();
            let Some((start, end)) = start.zip(own.map(|debt| debt.rows().end).max()) else {
                if array.missing(stripe) != Some(role) && array.scarce.short() >> role & 1 == 0 {
                    other = Some(role);
                }
                continue;
            };
            let mut bytes = vec![0; end - start];
            let at = array.layout.chunk_at(stripe) + start as u64;
            self.members[role].as_mut()?.read(at, &mut bytes).ok()?;
            array.owed.patch(role, stripe, &(start..end), &mut bytes);
            parts.push(Debt { role, stripe, start, bytes, seq: 0 });
        }
        let start = parts.first().map_or(0, |part| part.start);
        let empty = |role| Debt { role, stripe, start, bytes: Vec::new(), seq: 0 };
        parts.extend(other.map(empty));
        Some(parts)
    }
}
