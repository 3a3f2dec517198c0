//! How a partial stripe's new parity is worked out with the fewest bytes read.

use std::ops::Range;

use super::layout::Layout;

/// `to ^= from`, byte by byte.
pub(super) fn xor(to: &mut [u8], from: &[u8]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to ^= from);
}

/// Where new parity comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// The parity's member is missing: there is none.
    None,
    /// Old parity, old data and new data of what changes: read-modify-write.
    Modify,
    /// All data, with what is new in place of the old: reconstruct-write.
    Rebuild,
    /// As `Rebuild`, with a chunk that cannot be read taken from everything else.
    Recover,
}

/// The change of one stripe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) way: Way,
    /// The rows that change in some chunk, and so in the parity.
    pub(super) rows: Range<usize>,
    /// By role, the rows to read before.
    pub(super) reads: Vec<Range<usize>>,
    /// By role, the rows to write; none for the missing member.
    pub(super) writes: Vec<Range<usize>>,
}

/// The rows that the client bytes `range` of a stripe touch.
pub(super) fn rows(layout: &Layout, range: &Range<u64>) -> Range<usize> {
    let touched = (0..layout.members - 1)
        .map(|index| layout.rows_of(index, range))
        .filter(|rows| !rows.is_empty());
    touched.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end)).unwrap_or(0..0)
}

impl Plan {
    /// For the client bytes `range` of `stripe`. A member that is `missing` is neither read nor
    /// written; one that is `unread` could not be read.
    pub(super) fn new(
        layout: &Layout,
        stripe: u64,
        range: &Range<u64>,
        missing: Option<usize>,
        unread: Option<usize>,
    ) -> Self {
        let rows = rows(layout, range);
        let parity = layout.parity(stripe);
        let mut writes = vec![0..0; layout.members];
        for index in 0..layout.members - 1 {
            writes[layout.data_member(stripe, index)] = layout.rows_of(index, range);
        }
        writes[parity] = rows.clone();
        let unreadable = missing.or(unread);
        let (way, reads) = if missing == Some(parity) {
            (Way::None, vec![0..0; layout.members])
        } else {
            Self::least(&rows, parity, &writes, unreadable)
        };
        if let Some(missing) = missing {
            writes[missing] = 0..0;
        }
        Self { way, rows, reads, writes }
    }

    /// The way that reads least of those that read nothing unreadable.
    fn least(
        rows: &Range<usize>,
        parity: usize,
        writes: &[Range<usize>],
        unreadable: Option<usize>,
    ) -> (Way, Vec<Range<usize>>) {
        let modify: Vec<_> = writes.to_vec();
        let rebuild: Vec<_> = writes
            .iter()
            .enumerate()
            .map(|(role, write)| if role == parity || write == rows { 0..0 } else { rows.clone() })
            .collect();
        let possible =
            |reads: &[Range<usize>]| unreadable.is_none_or(|role| reads[role].is_empty());
        let cost = |reads: &[Range<usize>]| reads.iter().map(|read| read.len()).sum::<usize>();
        match (possible(&modify), possible(&rebuild)) {
            (true, true) if cost(&modify) < cost(&rebuild) => (Way::Modify, modify),
            (_, true) => (Way::Rebuild, rebuild),
            (true, false) => (Way::Modify, modify),
            (false, false) => {
                let all = (0..writes.len())
                    .map(|role| if Some(role) == unreadable { 0..0 } else { rows.clone() });
                (Way::Recover, all.collect())
            }
        }
    }

    /// The new parity of [`Plan::rows`]: `old` and `new` give the rows of each role that
    /// [`Plan::reads`] and the client's change name.
    pub(super) fn parity<'a>(
        &self,
        (parity, members): (usize, usize),
        old: impl Fn(usize) -> Option<&'a [u8]>,
        new: impl Fn(usize) -> (Range<usize>, &'a [u8]),
        to: &mut [u8],
    ) {
        to.fill(0);
        let mut lost = None;
        for role in (0..members).filter(|role| *role != parity || self.way == Way::Modify) {
            let (own, data) = if role == parity { (0..0, &[][..]) } else { new(role) };
            match old(role) {
                // With `Modify`, what is read of a role is what changes of it.
                Some(old) if self.way == Way::Modify => {
                    let start = if role == parity { 0 } else { own.start - self.rows.start };
                    xor(&mut to[start..start + old.len()], old);
                    xor(&mut to[start..start + data.len()], data);
                }
                Some(old) => {
                    let (from, to_) = (own.start - self.rows.start.min(own.start), data.len());
                    if to_ == 0 {
                        xor(to, old);
                        continue;
                    }
                    xor(&mut to[..from], &old[..from]);
                    xor(&mut to[from..from + to_], data);
                    xor(&mut to[from + to_..], &old[from + to_..]);
                }
                None if own == self.rows => xor(to, data),
                None => lost = Some((own, data)),
            }
        }
        if let (Way::Recover, Some((own, data))) = (self.way, lost) {
            self.recover((parity, members), &old, (own, data), to);
        }
    }

    /// Adds the chunk that could not be read: its rows are the sum of all old ones, except where
    /// they are new.
    fn recover<'a>(
        &self,
        (_, members): (usize, usize),
        old: &impl Fn(usize) -> Option<&'a [u8]>,
        (own, data): (Range<usize>, &[u8]),
        to: &mut [u8],
    ) {
        let mut chunk = vec![0; self.rows.len()];
        (0..members).filter_map(old).for_each(|old| xor(&mut chunk, old));
        if !data.is_empty() {
            let start = own.start - self.rows.start;
            chunk[start..start + data.len()].copy_from_slice(data);
        }
        xor(to, &chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHUNK: usize = 8;

    proptest! {
        /// Whatever is missing, parity afterwards is the sum of the data afterwards.
        #[test]
        fn parity_is_the_sum_of_the_data(
            members in 3..7usize,
            stripe in 0..20u64,
            (a, b) in (0..48u64, 0..48u64),
            gone in prop::option::of((0..7usize, any::<bool>())),
            seed in any::<u8>(),
        ) {
            let layout = Layout { members, chunk: CHUNK as u64, block: 1, slots: 1, stripes: 20 };
            let (a, b) = (a % layout.stripe_bytes(), b % layout.stripe_bytes());
            let range = a.min(b)..a.max(b) + 1;
            let byte = |n: usize| (n as u8).wrapping_mul(167).wrapping_add(seed).rotate_left(3);
            let parity = layout.parity(stripe);
            let mut before: Vec<Vec<u8>> =
                (0..members).map(|m| (0..CHUNK).map(|r| byte(m * 50 + r)).collect()).collect();
            let sum = |chunks: &[Vec<u8>]| {
                let mut total = vec![0; CHUNK];
                (0..members).filter(|m| *m != parity).for_each(|m| xor(&mut total, &chunks[m]));
                total
            };
            before[parity] = sum(&before);
            let mut after = before.clone();
            for index in 0..members - 1 {
                let member = layout.data_member(stripe, index);
                for row in layout.rows_of(index, &range) {
                    after[member][row] ^= 0x5a;
                }
            }
            after[parity] = sum(&after);
            let gone = gone.filter(|(role, _)| *role < members);
            let missing = gone.filter(|(_, missing)| *missing).map(|(role, _)| role);
            let unread = gone.filter(|(_, missing)| !*missing).map(|(role, _)| role);
            let plan = Plan::new(&layout, stripe, &range, missing, unread);
            if let Some((role, _)) = gone {
                prop_assert!(plan.reads[role].is_empty());
            }
            if missing == Some(parity) {
                return Ok(());
            }
            let all = Plan::new(&layout, stripe, &range, None, None).writes;
            let old = |role: usize| {
                let read = plan.reads[role].clone();
                (!read.is_empty()).then(|| &before[role][read])
            };
            let new = |role: usize| (all[role].clone(), &after[role][all[role].clone()]);
            let mut got = vec![0; plan.rows.len()];
            plan.parity((parity, members), old, new, &mut got);
            prop_assert_eq!(&got, &after[parity][plan.rows.clone()]);
        }
    }

    #[test]
    fn whole_stripes_read_nothing_and_small_writes_read_two() {
        let layout = Layout { members: 5, chunk: 64, block: 1, slots: 1, stripes: 9 };
        let read = |range: Range<u64>| {
            let plan = Plan::new(&layout, 0, &range, None, None);
            plan.reads.iter().filter(|read| !read.is_empty()).count()
        };
        assert_eq!([read(0..256), read(0..8), read(0..192), read(60..68)], [0, 2, 1, 3]);
    }
}
