//! Random streams that stay the same from release to release.

use rand_distr::{Distribution, Exp1};
use rand_pcg::Pcg64Mcg;

/// The finaliser of SplitMix64 (Steele et al., OOPSLA 2014): a bijection that scatters bits.
pub(super) const fn scatter(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The stream of random numbers of one purpose: seed, part of the workload, thread.
pub(super) fn stream(seed: u64, part: u64, index: u64) -> Pcg64Mcg {
    let high = scatter(scatter(scatter(seed) ^ part) ^ index);
    Pcg64Mcg::new((u128::from(high) << 64) | u128::from(scatter(high)))
}

/// Takes a number below `below` out of the uniform `bits` and leaves the rest of their
/// randomness in them: Lemire's multiplication without its rejection step (TOMACS 2019); the bias
/// is at most `below` / 2^64.
#[inline]
pub(super) const fn carve(bits: &mut u64, below: u64) -> u64 {
    let product = (*bits as u128) * (below as u128);
    *bits = product as u64;
    (product >> 64) as u64
}

/// A probability as a threshold for [`happens`].
pub(super) fn threshold(probability: f64) -> u64 {
    (probability.clamp(0.0, 1.0) * CERTAIN as f64).round() as u64
}

const CERTAIN: u64 = 1 << 24;

/// Whether an event of this threshold happens; uses 24 of the bits.
#[inline]
pub(super) const fn happens(bits: &mut u64, threshold: u64) -> bool {
    carve(bits, CERTAIN) < threshold
}

/// A uniform number in [0, 1).
pub(super) fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

/// An exponential number of mean 1: the gap between two arrivals of a Poisson process.
#[inline]
pub(super) fn gap(rng: &mut Pcg64Mcg) -> f64 {
    Exp1.sample(rng)
}

#[cfg(test)]
mod tests {
    use rand_pcg::rand_core::Rng;

    use super::*;

    /// Numbers that must never change: a seed in a paper's table means these requests for ever.
    #[test]
    fn streams_are_pinned() {
        let mut rng = stream(7, 0, 0);
        let first: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(first, PINNED, "{first:x?}");
        assert_ne!(stream(7, 0, 1).next_u64(), stream(7, 1, 0).next_u64());
    }
    const PINNED: [u64; 3] = [0x708a_eb55_f955_8ca2, 0xebea_c802_8e22_0f98, 0xd61f_34e4_8c4a_6e54];

    #[test]
    fn carving_stays_below_its_bound_and_is_uniform() {
        let mut rng = stream(1, 2, 3);
        let mut counts = [0_u32; 5];
        let mut yes = 0;
        for _ in 0..100_000 {
            let mut bits = rng.next_u64();
            counts[carve(&mut bits, 5) as usize] += 1;
            yes += u32::from(happens(&mut bits, threshold(0.7)));
        }
        assert!(counts.iter().all(|&count| (19_500..20_500).contains(&count)), "{counts:?}");
        assert!((69_400..70_600).contains(&yes), "{yes}");
        assert!((0..1000).all(|_| happens(&mut rng.next_u64(), threshold(1.0))));
        assert!((0..1000).all(|_| !happens(&mut rng.next_u64(), threshold(0.0))));
    }
}
