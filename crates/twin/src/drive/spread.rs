//! The small deterministic variation of media latency.

/// A multiplicative congruential generator (Steele and Vigna's 64-bit multiplier); its upper
/// bits are good enough to spread latencies.
#[derive(Debug, Clone)]
pub(crate) struct Spread(u64);

impl Spread {
    pub(crate) fn new(seed: u64) -> Self {
        // The state must be odd; neighbouring seeds must not give neighbouring sequences.
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31) | 1)
    }

    /// Uniform in `0..limit` (0 for 0), for limits below 2^32.
    #[inline]
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0xD134_2543_DE82_EF95);
        ((self.0 >> 32) * limit) >> 32
    }
}
