//! The Mersenne Twister MT19937, seeded and read as numpy's `RandomState(seed).random_sample()` is.
//!
//! Source: Matsumoto and Nishimura, "Mersenne Twister", 1998; seeding after Knuth as in their revision of 2002.

const N: usize = 624;
const M: usize = 397;

/// The generator.
#[derive(Clone, Debug)]
pub struct Mt19937 {
    state: [u32; N],
    used: usize,
}

impl Mt19937 {
    /// Starts the stream of a seed.
    pub fn new(seed: u32) -> Mt19937 {
        let mut state = [seed; N];
        for i in 1..N {
            let previous = state[i - 1];
            state[i] = (previous ^ (previous >> 30)).wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        Mt19937 { state, used: N }
    }

    fn refill(&mut self) {
        for i in 0..N {
            let joined = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % N] & 0x7fff_ffff);
            let twist = if joined & 1 == 0 { 0 } else { 0x9908_b0df };
            self.state[i] = self.state[(i + M) % N] ^ (joined >> 1) ^ twist;
        }
        self.used = 0;
    }

    /// The next 32 bits.
    pub fn next_u32(&mut self) -> u32 {
        if self.used == N {
            self.refill();
        }
        let mut y = self.state[self.used];
        self.used += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    /// Uniform in [0, 1) with 53 bits.
    pub fn next_f64(&mut self) -> f64 {
        let high = f64::from(self.next_u32() >> 5);
        let low = f64::from(self.next_u32() >> 6);
        (high * 67_108_864.0 + low) / 9_007_199_254_740_992.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_outputs_are_the_published_ones() {
        // the 10000th output of the default seed, from the C++ standard [rand.predef]
        let mut mt = Mt19937::new(5489);
        let last = (0..10_000).map(|_| mt.next_u32()).last();
        assert_eq!(last, Some(4_123_659_995));
    }

    #[test]
    fn doubles_are_those_of_numpy() {
        // numpy.random.seed(S); x = numpy.random.random_sample(1000): the bits of x[0], x[1], x[2], x[999]
        let want = [
            (0, [0x3fe18fe1565f12a8, 0x3fe6e2d4cf608733, 0x3fe349d66b6e894b, 0x3fe5ab23e79781c2]),
            (1, [0x3fdab07d0ffa3c06, 0x3fe70ce5f3baf051, 0x3f1dfb906661c000, 0x3fe8c8848c20f7e2]),
            (42, [0x3fd7f8771e5f51ec, 0x3fee6c4068bbd654, 0x3fe76c7e8f1e6751, 0x3fdc8b5bcc2b9fae]),
            (u32::MAX, [0x3fb8fe69a3924820, 0x3fed323d824032b1, 0x3fe93fc6f61af3f9, 0x3fe1cfe321a42891]),
        ];
        for (seed, bits) in want {
            let mut mt = Mt19937::new(seed);
            let got: Vec<u64> = (0..1000).map(|_| mt.next_f64().to_bits()).collect();
            assert_eq!([got[0], got[1], got[2], got[999]], bits, "seed {seed}");
        }
    }
}
