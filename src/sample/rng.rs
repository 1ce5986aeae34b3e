//! The random numbers of the reference sampler: MT19937 and 53-bit uniform doubles.

/// The 32-bit Mersenne Twister of Matsumoto and Nishimura (1998), C++'s `std::mt19937`.
#[derive(Clone)]
pub struct Mt19937 {
    state: [u32; Self::N],
    next: usize,
}

impl Mt19937 {
    const N: usize = 624;
    const M: usize = 397;

    /// A generator with the standard seeding (`init_genrand`).
    pub fn new(seed: u32) -> Mt19937 {
        let mut state = [seed; Self::N];
        for i in 1..Self::N {
            let last = state[i - 1];
            state[i] = (last ^ (last >> 30)).wrapping_mul(1_812_433_253).wrapping_add(i as u32);
        }
        Mt19937 { state, next: Self::N }
    }

    fn twist(&mut self) {
        for i in 0..Self::N {
            let joined = (self.state[i] & 0x8000_0000) | (self.state[(i + 1) % Self::N] & 0x7fff_ffff);
            let odd = if joined & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[i] = self.state[(i + Self::M) % Self::N] ^ (joined >> 1) ^ odd;
        }
        self.next = 0;
    }

    /// The next 32 bits.
    pub fn next_u32(&mut self) -> u32 {
        if self.next == Self::N {
            self.twist();
        }
        let mut y = self.state[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    /// A whole number below `n`, above 0, as libstdc++'s `uniform_int_distribution` of 0 to n - 1 draws it (Lemire
    /// 2019): the upper half of a product, drawn again where its lower half would favour some numbers.
    pub fn next_below(&mut self, n: u32) -> u32 {
        let draw = |rng: &mut Mt19937| u64::from(rng.next_u32()) * u64::from(n);
        let mut product = draw(self);
        if (product as u32) < n {
            let threshold = n.wrapping_neg() % n;
            while (product as u32) < threshold {
                product = draw(self);
            }
        }
        (product >> 32) as u32
    }

    /// A float in [0, 1) as libstdc++'s `uniform_real_distribution<float>` draws it: one word, rounded.
    pub fn next_f32(&mut self) -> f32 {
        let x = self.next_u32() as f32 / 4_294_967_296.0;
        x.min(1.0f32.next_down())
    }

    /// A double in [0, 1) as libstdc++'s `uniform_real_distribution<double>` draws it: two words, the
    /// low one first, rounded once to 53 bits.
    pub fn next_f64(&mut self) -> f64 {
        const TWO_32: f64 = 4_294_967_296.0;
        let low = f64::from(self.next_u32());
        let high = f64::from(self.next_u32());
        let x = (low + high * TWO_32) / (TWO_32 * TWO_32);
        x.min(1.0f64.next_down())
    }
}

#[cfg(test)]
mod tests {
    use super::Mt19937;

    /// The C++ standard gives the 10000th value of a default-seeded generator ([rand.predef]).
    #[test]
    fn ten_thousandth_value() {
        let mut rng = Mt19937::new(5489);
        let last = (0..10_000).map(|_| rng.next_u32()).last();
        assert_eq!(last, Some(4_123_659_995));
    }
}
