//! Scrubbing: whether the parity of each stripe fits its data.
//!
//! One parity tells that a stripe is wrong, not which of its chunks is: without checksums nothing
//! can. A chunk that cannot be read is known to be the wrong one, and follows from the others.

use std::ops::Range;

use super::keeper::Keeper;
use super::plan::xor;

/// What is wrong with a stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// The parity does not fit the data in these bytes of the chunks; which chunk is wrong cannot
    /// be decided.
    Mismatch(Range<u64>),
    /// These members, by role, cannot read their chunks. One of them follows from the others.
    Unreadable(Vec<usize>),
}

/// A stripe that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Which stripe.
    pub stripe: u64,
    /// The bytes of the array that it holds.
    pub bytes: Range<u64>,
    /// What is wrong.
    pub fault: Fault,
    /// It was mended.
    pub mended: bool,
}

/// The outcome of a look at one stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Checked {
    /// All chunks can be read, and the parity fits.
    Right,
    /// It does not.
    Wrong(Finding),
    /// A member is missing, failed or not rebuilt so far: there is nothing to compare with.
    Incomplete,
    /// Somebody else works on it: to be looked at again after [`Keeper::run_once`].
    Later,
}

impl Keeper {
    /// Stripes of the array.
    #[must_use]
    pub fn stripes(&self) -> u64 {
        self.array.layout.stripes
    }

    /// Bytes that looking at a stripe reads, of all members.
    #[must_use]
    pub fn bytes_per_check(&self) -> u64 {
        self.array.layout.chunk * self.array.layout.members as u64
    }

    /// Looks at a stripe. `mends`: a chunk that cannot be read is written anew from the others, and
    /// parity that does not fit is made to fit the data as it is.
    ///
    /// # Panics
    /// When there is no such stripe.
    pub fn check(&mut self, stripe: u64, mends: bool) -> Checked {
        assert!(stripe < self.stripes(), "stripe {stripe} of {}", self.stripes());
        if self.array.health().dead || self.array.missing(stripe).is_some() {
            return Checked::Incomplete;
        }
        if !self.claimed(stripe) {
            return Checked::Later;
        }
        let checked = self.compare(stripe, mends);
        self.give_up_claim();
        checked
    }

    fn compare(&mut self, stripe: u64, mends: bool) -> Checked {
        let layout = self.array.layout;
        let (at, chunk) = (layout.chunk_at(stripe), layout.chunk as usize);
        let mut unreadable = Vec::new();
        self.sum.fill(0);
        for (role, member) in self.members.iter_mut().enumerate() {
            let read = member.as_mut().map(|member| member.read(at, &mut self.part));
            if read.is_none_or(|read| read.is_err()) {
                unreadable.push(role);
                continue;
            }
            self.array.patch(role, stripe, &(0..chunk), &mut self.part);
            xor(&mut self.sum, &self.part);
        }
        let wrong = |byte: &u8| *byte != 0;
        let (fault, mended) = match (unreadable[..].first(), unreadable.len()) {
            (None, _) => {
                let Some(first) = self.sum.iter().position(wrong) else { return Checked::Right };
                let last = self.sum.iter().rposition(wrong).unwrap_or(first);
                let fault = Fault::Mismatch(first as u64..last as u64 + 1);
                (fault, mends && self.fit_parity(stripe))
            }
            // The sum of the others is what it should hold.
            (Some(role), 1) => {
                let mended = mends && self.rewrite(*role, at);
                (Fault::Unreadable(unreadable), mended)
            }
            _ => (Fault::Unreadable(unreadable), false),
        };
        let bytes = stripe * layout.stripe_bytes()..(stripe + 1) * layout.stripe_bytes();
        Checked::Wrong(Finding { stripe, bytes, fault, mended })
    }

    /// Adds what does not fit to the parity.
    fn fit_parity(&mut self, stripe: u64) -> bool {
        let (role, at) = (self.array.layout.parity(stripe), self.array.layout.chunk_at(stripe));
        let read = self.members[role].as_mut().map(|member| member.read(at, &mut self.part));
        if read.is_none_or(|read| read.is_err()) {
            return false;
        }
        xor(&mut self.sum, &self.part);
        self.rewrite(role, at)
    }

    /// Writes the sum to a member, and sees that it is there.
    fn rewrite(&mut self, role: usize, at: u64) -> bool {
        let Some(member) = &mut self.members[role] else { return false };
        let written = member.write(at, &self.sum, true);
        written.and_then(|()| member.read(at, &mut self.part)).is_ok() && self.part == self.sum
    }
}
