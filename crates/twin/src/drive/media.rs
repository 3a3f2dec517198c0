//! The flash units: each serves one page at a time and is free again at a known instant.

use super::profile::DriveProfile;
use super::spread::Spread;

/// Most units that one command is charged to; a longer one is bound by the link anyway.
const MAX_PAGES: u64 = 64;

#[derive(Debug, Clone, Copy)]
struct Unit {
    /// When it has finished everything accepted so far.
    free_at: u64,
    /// Page in its register; `u64::MAX` for none.
    page: u64,
}

/// What a read found in the units' registers, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sensed {
    /// When the first page was there.
    pub(super) first: u64,
    /// When the last page was there.
    pub(super) last: u64,
    /// Pages that had to be sensed.
    pub(super) pages: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Media {
    units: Box<[Unit]>,
    mask: u64,
    page_bytes: u32,
    stripe_shift: u32,
    /// Units by which each stripe is turned against the last, so that a stride of one stripe
    /// does not meet one unit only and a request shorter than a stripe meets none twice.
    turn: u64,
    page_shift: u32,
    latency: u64,
    spread: u64,
    register: u64,
    suspend: u64,
    partial_below: u32,
    partial_latency: u64,
    partial_spread: u64,
    random: Spread,
}

impl Media {
    pub(super) fn new(profile: &DriveProfile, random: Spread) -> Self {
        let units = profile.parallelism.units;
        let read = &profile.read;
        let partial = read.partial.as_ref();
        Self {
            units: vec![Unit { free_at: 0, page: u64::MAX }; units as usize].into(),
            mask: u64::from(units - 1),
            page_bytes: profile.parallelism.page.0 as u32,
            stripe_shift: units.trailing_zeros(),
            turn: u64::from(units / 8 + 1),
            page_shift: profile.parallelism.page.0.trailing_zeros(),
            latency: read.latency.0,
            spread: read.spread.0,
            register: read.register.0,
            suspend: read.suspend.0,
            partial_below: partial.map_or(0, |p| p.below.0.min(u64::from(u32::MAX)) as u32),
            partial_latency: partial.map_or(0, |p| p.latency.0),
            partial_spread: partial.map_or(0, |p| p.spread.0),
            random,
        }
    }

    /// Bytes of one page.
    pub(super) fn page_bytes(&self) -> u32 {
        self.page_bytes
    }

    /// Reads the pages of a range from `start` on. `programming`: a program operation may be in
    /// the way.
    #[inline]
    pub(super) fn read(
        &mut self,
        start: u64,
        offset: u64,
        bytes: u32,
        programming: bool,
    ) -> Sensed {
        let whole = bytes >= self.partial_below;
        let (latency, spread) = if whole {
            (self.latency, self.spread)
        } else {
            (self.partial_latency, self.partial_spread)
        };
        let suspend = if programming { self.random.below(self.suspend) } else { 0 };
        let first = offset >> self.page_shift;
        let last = offset.saturating_add(u64::from(bytes.max(1)) - 1) >> self.page_shift;
        let mut sensed = Sensed { first: u64::MAX, last: start, pages: 0 };
        for page in first..=last.min(first + MAX_PAGES - 1) {
            let turn = (page >> self.stripe_shift).wrapping_mul(self.turn);
            let unit = &mut self.units[(page.wrapping_add(turn) & self.mask) as usize];
            let time = if unit.page == page {
                self.register
            } else {
                sensed.pages += 1;
                unit.page = if whole { page } else { u64::MAX };
                latency + self.random.below(spread) + suspend
            };
            unit.free_at = unit.free_at.max(start) + time;
            sensed.first = sensed.first.min(unit.free_at);
            sensed.last = sensed.last.max(unit.free_at);
        }
        sensed
    }
}
