//! Mersenne Twister (Matsumoto and Nishimura 1998): the bits of PyTorch's CPU generator, and the draws of numpy's
//! legacy `RandomState`. It is in this crate because data of the paper's size take a billion draws, and this crate is
//! compiled with full optimisation, unlike the main one.

const N: usize = 624;
const M: usize = 397;

/// numpy's `RandomState(seed)`, PyTorch's `Generator().manual_seed(seed)`.
pub struct Mt19937 {
    state: [u32; N],
    /// The state, tempered.
    output: [u32; N],
    used: usize,
}

impl Mt19937 {
    /// Seeds with `init_genrand` of the authors' code, which both libraries use for an integer.
    pub fn new(seed: u32) -> Self {
        let mut state = [seed; N];
        for i in 1..N {
            let last = state[i - 1];
            state[i] = 1_812_433_253_u32.wrapping_mul(last ^ (last >> 30)).wrapping_add(i as u32);
        }
        Self { state, output: [0; N], used: N }
    }

    /// Returns the next word; PyTorch's `random()`.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        if self.used == N {
            self.refill();
        }
        self.used += 1;
        self.output[self.used - 1]
    }

    fn refill(&mut self) {
        let s = &mut self.state;
        for i in 0..N - M {
            s[i] = s[i + M] ^ twist(s[i], s[i + 1]);
        }
        for i in N - M..N - 1 {
            s[i] = s[i + M - N] ^ twist(s[i], s[i + 1]);
        }
        s[N - 1] = s[M - 1] ^ twist(s[N - 1], s[0]);
        self.output = s.map(temper);
        self.used = 0;
    }

    /// `random_sample()`: uniform on [0, 1) with 53 bits.
    pub fn random_sample(&mut self) -> f64 {
        let (high, low) = (self.next_u32() >> 5, self.next_u32() >> 6);
        (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
    }

    /// `randint(low, low + 2**31)`: one draw, 31 of its bits.
    pub fn randint_31_bits(&mut self, low: u32) -> u32 {
        low + (self.next_u32() & (u32::MAX >> 1))
    }

    /// `shuffle(row)`: from the last element down, each is swapped with one at or before it, whose index is drawn under
    /// a mask until it is in range. An index out of range swaps the element with itself, which costs less than the
    /// mispredicted branch of a retry.
    pub fn shuffle(&mut self, row: &mut [u32]) {
        let mut last = row.len().saturating_sub(1);
        while last > 0 {
            let mask = u32::MAX >> (last as u32).leading_zeros();
            let drawn = (self.next_u32() & mask) as usize;
            let accepted = drawn <= last;
            row.swap(last, if accepted { drawn } else { last });
            last -= usize::from(accepted);
        }
    }
}

#[inline]
fn twist(high: u32, low: u32) -> u32 {
    let joined = (high & 0x8000_0000) | (low & 0x7FFF_FFFF);
    (joined >> 1) ^ (0x9908_B0DF & (joined & 1).wrapping_neg())
}

#[inline]
fn temper(mut word: u32) -> u32 {
    word ^= word >> 11;
    word ^= (word << 7) & 0x9D2C_5680;
    word ^= (word << 15) & 0xEFC6_0000;
    word ^ (word >> 18)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ten_thousandth_draw_is_the_one_of_the_cpp_standard() {
        // [rand.predef] of the C++ standard: mt19937, seeded with 5489.
        let mut generator = Mt19937::new(5489);
        let last = (0..10_000).map(|_| generator.next_u32()).last();
        assert_eq!(last, Some(4_123_659_995));
    }
}
