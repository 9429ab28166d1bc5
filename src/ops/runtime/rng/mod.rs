//! Randomness as a value: every number is a function of (seed, purpose, index, position).
//!
//! No state is carried along, so a resumed run, a run on more threads and a model with one more layer all see the same
//! numbers. The generator is Philox4x32-10 (Salmon et al. 2011), with integer arithmetic only, so that a GPU can
//! produce the same bits.

pub mod mt19937;

use sha2::{Digest, Sha256};

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Ten rounds of Philox4x32: 128 random bits for a 128-bit counter under a 64-bit key.
#[inline(always)]
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let a = u64::from(MULTIPLIERS[0]) * u64::from(counter[0]);
        let b = u64::from(MULTIPLIERS[1]) * u64::from(counter[2]);
        counter = [(b >> 32) as u32 ^ counter[1] ^ key[0], b as u32, (a >> 32) as u32 ^ counter[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// A stream of random numbers for one purpose and one index (an example, a step, ...).
#[derive(Clone, Debug)]
pub struct Rng {
    key: [u32; 2],
    index: u64,
    block: u64,
    buffer: [u32; 4],
    used: usize,
}

impl Rng {
    /// Returns the stream of `purpose` (a name such as `init/embed.tok`) under `seed`, at `index`.
    pub fn new(seed: u64, purpose: &str, index: u64) -> Self {
        Self { key: Self::key(seed, purpose), index, block: 0, buffer: [0; 4], used: 4 }
    }

    /// Returns the Philox key of (seed, purpose): the first bytes of a SHA-256.
    pub fn key(seed: u64, purpose: &str) -> [u32; 2] {
        let digest = Sha256::new().chain_update(seed.to_le_bytes()).chain_update(purpose).finalize();
        let word = |i: usize| u32::from_le_bytes([0, 1, 2, 3].map(|b| digest[4 * i + b]));
        [word(0), word(1)]
    }

    /// Returns the stream of the same purpose at another index, without hashing again.
    pub fn at(&self, index: u64) -> Self {
        Self { key: self.key, index, block: 0, buffer: [0; 4], used: 4 }
    }

    /// Returns this stream from a word on, a multiple of four.
    pub fn from_word(&self, word: usize) -> Self {
        assert!(word.is_multiple_of(4), "the generator makes four words at a time");
        Self { key: self.key, index: self.index, block: word as u64 / 4, buffer: [0; 4], used: 4 }
    }

    /// 32 uniform bits.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        if self.used == 4 {
            let (b, i) = (self.block, self.index);
            let counter = [b as u32, (b >> 32) as u32, i as u32, (i >> 32) as u32];
            self.buffer = philox(counter, self.key);
            self.block += 1;
            self.used = 0;
        }
        self.used += 1;
        self.buffer[self.used - 1]
    }

    /// Uniform on [0, 1) with 53 bits.
    #[inline]
    pub fn uniform(&mut self) -> f64 {
        let (high, low) = (self.next_u32() >> 5, self.next_u32() >> 6);
        (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
    }

    /// Uniform on 0 .. bound (bound > 0), without bias (Lemire 2019).
    #[inline]
    pub fn below(&mut self, bound: u32) -> u32 {
        let threshold = bound.wrapping_neg() % bound;
        loop {
            let wide = u64::from(self.next_u32()) * u64::from(bound);
            if wide as u32 >= threshold {
                return (wide >> 32) as u32;
            }
        }
    }

    /// Shuffles `items`, fewer than 2^32 (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u32 + 1) as usize;
            items.swap(last, other);
        }
    }

    /// Returns a pair of independent standard normals (Box and Muller 1958).
    #[inline]
    pub fn normals(&mut self) -> (f64, f64) {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        let (sin, cos) = (std::f64::consts::TAU * self.uniform()).sin_cos();
        (radius * cos, radius * sin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_published_known_answers() {
        // Random123 distribution, kat_vectors: philox4x32 10 rounds.
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }

    #[test]
    fn purposes_and_indices_are_different_streams() {
        let draw = |s: u64, p: &str, i| Rng::new(s, p, i).next_u32();
        assert_ne!(draw(1, "a", 0), draw(1, "b", 0));
        assert_ne!(draw(1, "a", 0), draw(1, "a", 1));
        assert_ne!(draw(1, "a", 0), draw(2, "a", 0));
        assert_eq!(draw(1, "a", 7), Rng::new(1, "a", 0).at(7).next_u32());
    }

    #[test]
    fn a_stream_continues_from_any_block() {
        let mut rng = Rng::new(1, "a", 5);
        let words: Vec<u32> = (0..40).map(|_| rng.next_u32()).collect();
        let mut later = rng.from_word(24);
        assert_eq!((24..40).map(|_| later.next_u32()).collect::<Vec<_>>(), words[24..]);
    }

    #[test]
    fn normals_have_mean_zero_and_variance_one() {
        let mut rng = Rng::new(3, "test", 0);
        let n = 100_000;
        let (mut sum, mut square) = (0.0, 0.0);
        for _ in 0..n {
            let (a, b) = rng.normals();
            sum += a + b;
            square += a * a + b * b;
        }
        let n = f64::from(2 * n);
        assert!((sum / n).abs() < 0.01, "mean {}", sum / n);
        assert!((square / n - 1.0).abs() < 0.02, "variance {}", square / n);
    }

    #[test]
    fn below_stays_below_and_reaches_every_value() {
        let mut rng = Rng::new(4, "test", 0);
        let mut seen = [0u32; 7];
        for _ in 0..7000 {
            seen[rng.below(7) as usize] += 1;
        }
        assert!(seen.iter().all(|&c| (800..1200).contains(&c)), "{seen:?}");
    }
}
