//! The flash units: each serves one page at a time and is free again at a known instant.

use super::profile::DriveProfile;
use super::spread::Spread;

/// Most units that one command is charged to; a longer one is bound by the link anyway.
const MAX_PAGES: u64 = 64;
/// 2^64 / golden ratio: scatters stripes over units without a table.
const SCATTER: u64 = 0x9E37_79B9_7F4A_7C15;

#[derive(Debug, Clone, Copy)]
struct Unit {
    /// When it has finished everything accepted so far.
    free_at: u64,
    /// Page in its register; `u64::MAX` for none.
    page: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Media {
    units: Box<[Unit]>,
    mask: u64,
    stripe_shift: u32,
    page_shift: u32,
    latency: u64,
    spread: u64,
    register: u64,
    suspend: u64,
    partial_below: u32,
    partial_latency: u64,
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
            stripe_shift: units.trailing_zeros(),
            page_shift: profile.parallelism.page.0.trailing_zeros(),
            latency: read.latency.0,
            spread: read.spread.0,
            register: read.register.0,
            suspend: read.suspend.0,
            partial_below: partial.map_or(0, |p| p.below.0.min(u64::from(u32::MAX)) as u32),
            partial_latency: partial.map_or(0, |p| p.latency.0),
            random,
        }
    }

    /// Reads the pages of a range; returns when the last is in the register, and how many
    /// were sensed. `programming`: a program operation may be in the way.
    #[inline]
    pub(super) fn read(
        &mut self,
        start: u64,
        offset: u64,
        bytes: u32,
        programming: bool,
    ) -> (u64, u64) {
        let whole = bytes >= self.partial_below;
        let sense = if whole { self.latency } else { self.partial_latency };
        let suspend = if programming { self.random.below(self.suspend) } else { 0 };
        let first = offset >> self.page_shift;
        let last = offset.saturating_add(u64::from(bytes.max(1)) - 1) >> self.page_shift;
        let mut end = start;
        let mut sensed = 0;
        for page in first..=last.min(first + MAX_PAGES - 1) {
            let scatter = (page >> self.stripe_shift).wrapping_mul(SCATTER) >> 32;
            let unit = &mut self.units[(page.wrapping_add(scatter) & self.mask) as usize];
            let time = if unit.page == page {
                self.register
            } else {
                sensed += 1;
                unit.page = if whole { page } else { u64::MAX };
                sense + self.random.below(self.spread) + suspend
            };
            unit.free_at = unit.free_at.max(start) + time;
            end = end.max(unit.free_at);
        }
        (end, sensed)
    }
}
