//! Free flash and the write amplification that keeps it coming.

use std::sync::LazyLock;

use super::profile::GcProfile;

/// Entries of the victim table over the utilisation of the flash.
const TABLE: usize = 512;
/// Collection never gets worse than this, however little garbage there is.
const MAX_VALID: f64 = 0.98;
/// Write streams whose next address is remembered, to tell sequential from random writes.
const STREAMS: usize = 8;

/// Share of a victim block that is still valid under greedy collection of uniform random
/// writes, at utilisation `u` = valid / (valid + garbage).
///
/// The root `v` of `(1 - v) / -ln v = u` (Xiang and Kurkoski, "An improved analytic expression
/// for write amplification in NAND flash", ICNC 2012; the large-block limit of Desnoyers,
/// "Analytic modeling of SSD write performance", SYSTOR 2012). Write amplification is
/// `1 / (1 - v)`.
pub(super) fn victim_validity(u: f64) -> f64 {
    if u <= 0.0 {
        return 0.0;
    }
    let (mut low, mut high) = (1e-12_f64, 1.0 - 1e-9);
    for _ in 0..64 {
        let v = 0.5 * (low + high);
        // (1 - v) / -ln v grows with v, from 0 to 1.
        if (1.0 - v) / -v.ln() < u { low = v } else { high = v }
    }
    low.min(MAX_VALID)
}

/// Bytes moved per byte reclaimed, by utilisation; worked out once for all drives.
static MOVED: LazyLock<[f64; TABLE + 1]> = LazyLock::new(|| {
    std::array::from_fn(|i| {
        let v = victim_validity(i as f64 / TABLE as f64);
        v / (1.0 - v)
    })
});

/// The state of the flash, in bytes: valid + free + dirty + clean = capacity + spare.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    valid: f64,
    free: f64,
    /// Garbage scattered over blocks that also hold valid data.
    dirty: f64,
    /// Garbage that fills whole blocks: reclaimed by erasing alone.
    clean: f64,
    /// Logical space that holds nothing.
    unwritten: f64,
    /// Collection beside writes starts below this much free flash,
    high: f64,
    /// and grows to its full pace with this slope.
    per_range: f64,
    target: f64,
    streams: [u64; STREAMS],
    next_stream: usize,
}

impl Pool {
    pub(super) fn new(profile: &GcProfile, capacity: u64) -> Self {
        let capacity = capacity as f64;
        let valid = capacity * profile.filled;
        let spare = capacity * profile.over_provisioning;
        Self {
            valid,
            free: spare * profile.free + (capacity - valid),
            dirty: spare * (1.0 - profile.free),
            clean: 0.0,
            unwritten: capacity - valid,
            high: spare * profile.high,
            per_range: 1.0 / (spare * (profile.high - profile.low)),
            target: spare * profile.background_target,
            streams: [u64::MAX; STREAMS],
            next_stream: 0,
        }
    }

    /// Takes a host write; returns the bytes that collection moved for it.
    #[inline]
    pub(super) fn write(&mut self, offset: u64, bytes: u32) -> f64 {
        let sequential = self.continues_stream(offset, bytes);
        let bytes = f64::from(bytes);
        self.free -= bytes;
        let first = bytes.min(self.unwritten);
        self.unwritten -= first;
        self.valid += first;
        if sequential {
            self.clean += bytes - first
        } else {
            self.dirty += bytes - first
        }
        if self.free >= self.high {
            return 0.0;
        }
        let intensity = ((self.high - self.free) * self.per_range).min(1.0);
        self.reclaim(bytes * intensity)
    }

    /// Whether this write goes on where a recent one ended.
    #[inline]
    fn continues_stream(&mut self, offset: u64, bytes: u32) -> bool {
        let end = offset.wrapping_add(u64::from(bytes));
        if let Some(stream) = self.streams.iter_mut().find(|stream| **stream == offset) {
            *stream = end;
            return true;
        }
        self.streams[self.next_stream] = end;
        self.next_stream = (self.next_stream + 1) % STREAMS;
        false
    }

    /// Frees up to `wanted` bytes, whole blocks of garbage first; returns the bytes moved.
    pub(super) fn reclaim(&mut self, wanted: f64) -> f64 {
        let erased = wanted.min(self.clean);
        self.clean -= erased;
        self.free += erased;
        let rest = (wanted - erased).min(self.dirty);
        if rest <= 0.0 {
            return 0.0;
        }
        let moved = rest * self.moved_per_byte();
        self.dirty -= rest;
        self.free += rest;
        moved
    }

    /// Bytes that [`Pool::reclaim`] would move now.
    pub(super) fn cost_of(&self, wanted: f64) -> f64 {
        (wanted - self.clean).clamp(0.0, self.dirty) * self.moved_per_byte()
    }

    /// Bytes to move per byte reclaimed from scattered garbage, at today's utilisation.
    fn moved_per_byte(&self) -> f64 {
        let position = self.valid / (self.valid + self.dirty) * TABLE as f64;
        let index = (position as usize).min(TABLE - 1);
        let (low, high) = (MOVED[index], MOVED[index + 1]);
        low + (high - low) * (position - index as f64)
    }

    /// Forgets the data of a deallocated range.
    pub(super) fn trim(&mut self, bytes: u64) {
        let bytes = (bytes as f64).min(self.valid);
        self.valid -= bytes;
        self.unwritten += bytes;
        self.dirty += bytes;
    }

    /// Bytes that background collection may still usefully reclaim.
    pub(super) fn background_work(&self) -> f64 {
        (self.target - self.free).min(self.clean + self.dirty).max(0.0)
    }

    /// Free flash in bytes.
    pub(super) fn free(&self) -> f64 {
        self.free
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DriveFile;
    use proptest::prelude::*;

    fn profile() -> GcProfile {
        crate::drive::DriveProfile::builtin("pm1743").unwrap().gc
    }

    #[test]
    fn write_amplification_matches_the_published_value() {
        // Xiang and Kurkoski, abstract: over-provisioning 0.3 gives 2.36 (simulation: 2.35).
        let amplification = 1.0 / (1.0 - victim_validity(1.0 / 1.3));
        assert!((amplification - 2.36).abs() < 0.01, "{amplification}");
    }

    #[test]
    fn sequential_overwrites_cost_no_moves() {
        let capacity = 1 << 30;
        let mut pool = Pool::new(&GcProfile { filled: 1.0, free: 1.0, ..profile() }, capacity);
        let (mut moved, mut at) = (0.0, 0);
        for _ in 0..40_000 {
            moved += pool.write(at, 1 << 17);
            at = (at + (1 << 17)) % capacity;
        }
        // Only the start of each pass, whose address follows nothing, may cost a little.
        assert!(moved < 0.001 * 40_000.0 * f64::from(1 << 17), "{moved}");
    }

    proptest! {
        #[test]
        fn flash_is_conserved(
            writes in prop::collection::vec((0u64..1 << 20, 1u32..64, any::<bool>()), 1..400),
            filled in 0.0f64..=1.0,
        ) {
            let capacity = 1u64 << 24;
            let mut pool = Pool::new(&GcProfile { filled, ..profile() }, capacity);
            let all = |p: &Pool| p.valid + p.free + p.dirty + p.clean;
            let before = all(&pool);
            for (page, pages, trim) in writes {
                if trim { pool.trim(u64::from(pages) * 4096) }
                else { pool.write(page * 4096, pages * 4096); }
                prop_assert!((all(&pool) - before).abs() < 1.0);
                prop_assert!(pool.free > 0.0 && pool.dirty >= 0.0 && pool.clean >= 0.0);
            }
        }
    }
}
