//! Random numbers: the same for the same seed.

use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;

/// The finaliser of SplitMix64 (Steele et al., OOPSLA 2014): a bijection that scatters bits.
#[inline]
pub const fn scatter(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// Scattered bits of a text.
pub fn text(text: &str, seed: u64) -> u64 {
    text.bytes().fold(scatter(seed), |bits, byte| scatter(bits ^ u64::from(byte)))
}

/// A stream of random numbers.
#[derive(Debug)]
pub struct Random(Pcg64Mcg);

impl Random {
    /// The stream of this purpose.
    pub fn new(seed: u64, purpose: u64) -> Self {
        let high = scatter(scatter(seed) ^ purpose);
        Self(Pcg64Mcg::new((u128::from(high) << 64) | u128::from(scatter(high))))
    }
    /// Any number.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }
    /// A number below `bound`: Lemire's multiplication (TOMACS 2019) without its rejection step,
    /// the bias is at most `bound` / 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }
    /// Whether an event of this probability happens.
    #[inline]
    pub fn happens(&mut self, probability: f64) -> bool {
        ((self.bits() >> 11) as f64) < probability * (1_u64 << 53) as f64
    }
    /// An exponential number of mean 1.
    pub fn gap(&mut self) -> f64 {
        Exp1.sample(&mut self.0)
    }
}

/// Data to write where nothing is verified: nothing that could be compressed.
pub fn noise(seed: u64, purpose: u32, length: usize) -> Vec<u8> {
    let mut random = Random::new(seed, u64::from(purpose) << 32);
    let mut bytes = Vec::with_capacity(length.next_multiple_of(8));
    while bytes.len() < length {
        bytes.extend_from_slice(&random.bits().to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
