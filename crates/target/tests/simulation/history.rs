//! Whether what hosts read and wrote can have happened one after another: every block is an
//! atomic register (NVM 2.1.4), so each answer must fit some order of the commands that agrees
//! with time (linearizability).
//!
//! Nearly every value is written once. All that is known of a value, its write and the reads that
//! returned it, forms a cluster with two moments: the latest beginning and the first end of any of
//! its commands. If `a` ended first before `b` began last, some command of `a` came before one of
//! `b`, hence all of `a` before all of `b`. A block is linearizable exactly when no two clusters
//! come before each other so (Gibbons and Korach, *Testing shared memories*, 1997).

use std::collections::HashMap;

/// Bytes of a block.
pub const BLOCK: usize = 512;
/// A moment: later ones are larger. Commands begin and end at moments of their own.
pub type Moment = u64;
const NEVER: Moment = Moment::MAX;

/// Which block: index of the namespace, LBA.
pub type Place = (usize, u64);

/// What a block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// What a write with this tag put there; zero for zeros.
    Of(u64),
    /// Anything: it was deallocated (DLFEAT = 0).
    Undefined,
}

#[derive(Debug, Clone)]
struct Cluster {
    /// The command that wrote it.
    write: Moment,
    content: Content,
    last_begin: Moment,
    first_end: Moment,
    /// It did happen: acknowledged or read.
    certain: bool,
}

impl Cluster {
    /// Whether it certainly came before `other`.
    fn precedes(&self, other: &Self) -> bool {
        self.first_end < other.last_begin
    }
}

#[derive(Debug)]
struct Block {
    clusters: Vec<Cluster>,
    /// When the reads under way began.
    readers: Vec<Moment>,
}

impl Block {
    fn new() -> Self {
        let blank = Cluster {
            write: 0,
            content: Content::Of(0),
            last_begin: 0,
            first_end: 0,
            certain: true,
        };
        Self { clusters: vec![blank], readers: Vec::new() }
    }

    /// The clusters that a read of `value` between these moments can have seen, at most two, with
    /// what they become by it.
    fn seen(&self, value: u64, begin: Moment, end: Moment) -> Vec<(usize, Cluster)> {
        let fits = |content| content == Content::Of(value) || content == Content::Undefined;
        let mut seen = Vec::new();
        for (index, cluster) in self.clusters.iter().enumerate() {
            if !fits(cluster.content) {
                continue;
            }
            let mut with = cluster.clone();
            with.last_begin = with.last_begin.max(begin);
            with.first_end = with.first_end.min(end);
            with.certain = true;
            let contradicts = |(at, other): (usize, &Cluster)| {
                at != index && other.certain && other.precedes(&with) && with.precedes(other)
            };
            if !self.clusters.iter().enumerate().any(contradicts) {
                seen.push((index, with));
            }
        }
        seen
    }

    /// Forgets what no read can return any more.
    fn prune(&mut self, now: Moment) {
        let earliest = self.readers.iter().copied().min().unwrap_or(now);
        self.clusters = self.possible(earliest).cloned().collect();
    }

    /// What a read that begins at `earliest` or later can return.
    fn possible(&self, earliest: Moment) -> impl Iterator<Item = &Cluster> {
        let all = &self.clusters;
        all.iter().filter(move |old| {
            let hides = |new: &Cluster| {
                let is_other = !std::ptr::eq(*old, new);
                is_other && new.certain && new.first_end < earliest && old.precedes(new)
            };
            !all.iter().any(hides)
        })
    }
}

/// What happened to all blocks.
#[derive(Debug, Default)]
pub struct History {
    blocks: HashMap<Place, Block>,
    now: Moment,
    /// Blocks read and found right.
    pub read: u64,
}

impl History {
    fn tick(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    fn block(&mut self, place: Place) -> &mut Block {
        self.blocks.entry(place).or_insert_with(Block::new)
    }

    /// A command begins that writes `content` to these blocks. Its name from now on.
    pub fn begin_write(&mut self, places: impl Iterator<Item = Place>, content: Content) -> Moment {
        let write = self.tick();
        for place in places {
            let cluster =
                Cluster { write, content, last_begin: write, first_end: NEVER, certain: false };
            self.block(place).clusters.push(cluster);
        }
        write
    }

    /// `write` is answered or, as far as it was done at all, cannot be done any later.
    /// `certain`: with success.
    pub fn end_write(&mut self, places: impl Iterator<Item = Place>, write: Moment, certain: bool) {
        let now = self.tick();
        for place in places {
            let block = self.block(place);
            for cluster in block.clusters.iter_mut().filter(|one| one.write == write) {
                cluster.first_end = cluster.first_end.min(now);
                cluster.certain |= certain;
            }
            block.prune(now);
        }
    }

    /// A command begins that reads these blocks. Its name from now on.
    pub fn begin_read(&mut self, places: impl Iterator<Item = Place>) -> Moment {
        let begin = self.tick();
        places.for_each(|place| self.block(place).readers.push(begin));
        begin
    }

    /// `read` has not brought anything, and never will.
    pub fn abandon_read(&mut self, places: impl Iterator<Item = Place>, read: Moment) {
        for place in places {
            let readers = &mut self.block(place).readers;
            if let Some(at) = readers.iter().position(|begin| *begin == read) {
                readers.swap_remove(at);
            }
        }
    }

    /// `read` has brought `values`, one for each block. Says what is wrong with them.
    pub fn end_read(
        &mut self,
        places: impl Iterator<Item = Place> + Clone,
        read: Moment,
        values: impl Iterator<Item = u64>,
    ) -> Result<(), String> {
        self.abandon_read(places.clone(), read);
        let now = self.tick();
        for (place, value) in places.zip(values) {
            let block = self.block(place);
            let mut seen = block.seen(value, read, now);
            if seen.is_empty() {
                return Err(format!(
                    "block {} of namespace {} reads {value:#x} between {read} and {now}, which \
                     fits none of {:#?}",
                    place.1, place.0, block.clusters
                ));
            }
            // Of several it may have seen any, so nothing is learnt of one.
            if seen.len() == 1
                && let Some((index, cluster)) = seen.pop()
            {
                block.clusters[index] = cluster;
            }
            block.prune(now);
            self.read += 1;
        }
        Ok(())
    }

    /// Whether all of these blocks held nothing but `value` since `begin`.
    pub fn held_only(
        &self,
        mut places: impl Iterator<Item = Place>,
        begin: Moment,
        value: u64,
    ) -> bool {
        let holds = |place: Place| {
            let Some(block) = self.blocks.get(&place) else { return value == 0 };
            block.possible(begin).all(|one| one.content == Content::Of(value))
        };
        places.all(holds)
    }
}

/// Fills blocks from `lba` on with what tells writer and place.
pub fn fill(data: &mut [u8], tag: u64, lba: u64) {
    for (index, block) in data.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
        let step = mix(tag ^ mix(lba + index as u64));
        for (at, word) in block.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            *word = tag.wrapping_add(step.wrapping_mul(at as u64)).to_le_bytes();
        }
    }
}

/// The tag a block was filled with; what is wrong if it was not, here, and as a whole.
pub fn tag_of(block: &[u8; BLOCK], lba: u64) -> Result<u64, String> {
    let words = block.as_chunks::<8>().0;
    let tag = u64::from_le_bytes(words[0]);
    let step = if tag == 0 { 0 } else { mix(tag ^ mix(lba)) };
    let is_whole = words.iter().enumerate().all(|(at, word)| {
        u64::from_le_bytes(*word) == tag.wrapping_add(step.wrapping_mul(at as u64))
    });
    is_whole
        .then_some(tag)
        .ok_or_else(|| format!("block {lba} begins with {tag:#x} and is torn or not its own"))
}

fn mix(value: u64) -> u64 {
    let value = (value ^ value >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value ^ value >> 29
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = (0, 7);

    fn one() -> impl Iterator<Item = Place> + Clone {
        std::iter::once(PLACE)
    }

    struct Player(History);

    impl Player {
        fn write(&mut self, tag: u64) -> Moment {
            self.0.begin_write(one(), Content::Of(tag))
        }
        fn written(&mut self, write: Moment) {
            self.0.end_write(one(), write, true);
        }
        fn reads(&mut self, read: Moment, tag: u64) -> bool {
            self.0.end_read(one(), read, std::iter::once(tag)).is_ok()
        }
        fn read(&mut self, tag: u64) -> bool {
            let read = self.0.begin_read(one());
            self.reads(read, tag)
        }
    }

    #[test]
    fn what_cannot_have_happened_is_told_from_what_can() {
        let mut player = Player(History::default());
        assert!(player.read(0));
        let (first, second) = (player.write(1), player.write(2));
        let early = player.0.begin_read(one());
        player.written(first);
        player.written(second);
        assert!(player.reads(early, 0), "it may have come before both");
        let later = player.0.begin_read(one());
        assert!(!player.read(0), "older than two acknowledged writes");
        assert!(player.read(1), "both were under way at once: any may be the last");
        assert!(!player.read(2), "then 2 came before 1, which was read after it");
        assert!(player.reads(later, 1));
    }

    #[test]
    fn a_lost_write_and_one_that_comes_back_are_seen() {
        let mut player = Player(History::default());
        let (write, failed) = (player.write(1), player.write(2));
        player.written(write);
        player.0.end_write(one(), failed, false);
        assert!(player.read(1), "2 failed and may not have happened");
        let third = player.write(3);
        player.written(third);
        assert!(!player.read(1) && !player.read(2), "3 was acknowledged");
        assert!(player.read(3));
    }

    #[test]
    fn a_failed_write_once_read_has_happened() {
        let mut player = Player(History::default());
        let failed = player.write(2);
        player.0.end_write(one(), failed, false);
        assert!(player.read(2));
        assert!(!player.read(0), "2 was read before");
    }

    #[test]
    fn deallocated_blocks_hold_anything_until_they_are_written() {
        let mut player = Player(History::default());
        let gone = player.0.begin_write(one(), Content::Undefined);
        player.written(gone);
        assert!(player.read(99) && player.read(0));
        let write = player.write(5);
        player.written(write);
        assert!(!player.read(99) && player.read(5));
        assert!(player.0.held_only(one(), player.0.now, 5));
    }

    #[test]
    fn blocks_tell_where_they_belong_and_whether_they_are_whole() {
        let mut data = [0; 2 * BLOCK];
        fill(&mut data, 77, 5);
        let block = |at: usize| *data.as_chunks::<BLOCK>().0.get(at).unwrap();
        assert_eq!((tag_of(&block(0), 5), tag_of(&block(1), 6)), (Ok(77), Ok(77)));
        assert!(tag_of(&block(1), 5).is_err());
        let mut torn = block(0);
        torn[400..].fill(0);
        assert!(tag_of(&torn, 5).is_err());
        assert_eq!(tag_of(&[0; BLOCK], 9), Ok(0));
    }
}
