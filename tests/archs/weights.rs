//! The weights of the small random models: the draws of the program that made them.
//!
//! llama.cpp's `test-llama-archs` fills each tensor with `std::normal_distribution<float>` over a
//! `std::mt19937` whose seed is mixed with the tensor's name. The standard leaves the distribution and the hash to
//! the library; these are libstdc++'s, with the single-precision logarithm of glibc.

/// Fills a tensor called `name` with draws from the normal distribution of this standard deviation.
pub fn fill(name: &str, seed: u64, deviation: f32, out: &mut [f32]) {
    let mut normal = Normal {
        source: Twister::new((seed ^ hash(name.as_bytes())) as u32),
        saved: None,
    };
    out.iter_mut()
        .for_each(|v| *v = normal.draw() * deviation + 0.0);
}

/// `std::hash<std::string>` of libstdc++ on 64-bit machines: MurmurHash64A with its own seed.
fn hash(bytes: &[u8]) -> u64 {
    const MUL: u64 = 0xc6a4_a793_5bd1_e995;
    let mix = |v: u64| v ^ (v >> 47);
    let mut hash = 0xc70f_6907 ^ (bytes.len() as u64).wrapping_mul(MUL);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let data = mix(u64::from_le_bytes(*word).wrapping_mul(MUL)).wrapping_mul(MUL);
        hash = (hash ^ data).wrapping_mul(MUL);
    }
    if !rest.is_empty() {
        let data = rest.iter().rev().fold(0, |v, &b| v << 8 | u64::from(b));
        hash = (hash ^ data).wrapping_mul(MUL);
    }
    mix(mix(hash).wrapping_mul(MUL))
}

/// The polar method in single precision. It makes two draws at a time; the first is kept for later.
struct Normal {
    source: Twister,
    saved: Option<f32>,
}

impl Normal {
    fn draw(&mut self) -> f32 {
        if let Some(value) = self.saved.take() {
            return value;
        }
        let (x, y, r2) = loop {
            let x = self.coordinate();
            let y = self.coordinate();
            let r2 = x * x + y * y;
            if r2 <= 1.0 && r2 != 0.0 {
                break (x, y, r2);
            }
        };
        let factor = (-2.0 * logf(r2) / r2).sqrt();
        self.saved = Some(x * factor);
        y * factor
    }

    /// Uniform in -1..1. `std::generate_canonical` keeps what would round to 1 below it.
    fn coordinate(&mut self) -> f32 {
        let unit = self.source.next() as f32 / 4_294_967_296.0;
        let unit = unit.min(1.0f32.next_down());
        (f64::from(2.0 * unit) - 1.0) as f32
    }
}

/// `std::mt19937`.
struct Twister {
    state: [u32; 624],
    used: usize,
}

impl Twister {
    fn new(seed: u32) -> Twister {
        let mut state = [seed; 624];
        for i in 1..624 {
            let last = state[i - 1];
            state[i] = (last ^ (last >> 30))
                .wrapping_mul(1_812_433_253)
                .wrapping_add(i as u32);
        }
        Twister { state, used: 624 }
    }

    fn next(&mut self) -> u32 {
        if self.used == 624 {
            self.refill();
        }
        let mut y = self.state[self.used];
        self.used += 1;
        y ^= y >> 11;
        y ^= y << 7 & 0x9d2c_5680;
        y ^= y << 15 & 0xefc6_0000;
        y ^ y >> 18
    }

    fn refill(&mut self) {
        for i in 0..624 {
            let y = self.state[i] & 0x8000_0000 | self.state[(i + 1) % 624] & 0x7fff_ffff;
            let odd = if y & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[i] = self.state[(i + 397) % 624] ^ y >> 1 ^ odd;
        }
        self.used = 0;
    }
}

/// glibc's `logf` of a positive normal number: a table of 16 intervals and a cubic, in double precision (the method
/// of Arm's optimized-routines), fused as the C library does it on processors with FMA.
fn logf(x: f32) -> f32 {
    /// For the middle c of each interval: 1/c and ln c.
    const TABLE: [(u64, u64); 16] = [
        (0x3ff661ec79f8f3be, 0xbfd57bf7808caade),
        (0x3ff571ed4aaf883d, 0xbfd2bef0a7c06ddb),
        (0x3ff49539f0f010b0, 0xbfd01eae7f513a67),
        (0x3ff3c995b0b80385, 0xbfcb31d8a68224e9),
        (0x3ff30d190c8864a5, 0xbfc6574f0ac07758),
        (0x3ff25e227b0b8ea0, 0xbfc1aa2bc79c8100),
        (0x3ff1bb4a4a1a343f, 0xbfba4e76ce8c0e5e),
        (0x3ff12358f08ae5ba, 0xbfb1973c5a611ccc),
        (0x3ff0953f419900a7, 0xbfa252f438e10c1e),
        (0x3ff0000000000000, 0x0000000000000000),
        (0x3fee608cfd9a47ac, 0x3faaa5aa5df25984),
        (0x3feca4b31f026aa0, 0x3fbc5e53aa362eb4),
        (0x3feb2036576afce6, 0x3fc526e57720db08),
        (0x3fe9c2d163a1aa2d, 0x3fcbc2860d224770),
        (0x3fe886e6037841ed, 0x3fd1058bc8a07ee1),
        (0x3fe767dcf5534862, 0x3fd4043057b6ee09),
    ];
    const LN2: f64 = f64::from_bits(0x3fe62e42fefa39ef);
    const C3: f64 = f64::from_bits(0xbfd00ea348b88334);
    const C2: f64 = f64::from_bits(0x3fd5575b0be00b6a);
    const C1: f64 = f64::from_bits(0xbfdffffef20a4123);
    if x == 1.0 {
        return 0.0;
    }
    let from = x.to_bits().wrapping_sub(0x3f33_0000);
    let exponent = from as i32 >> 23;
    let mantissa = f32::from_bits(x.to_bits().wrapping_sub(from & 0xff80_0000));
    let (inverse, log) = TABLE[(from >> 19) as usize % 16];
    let r = f64::from(mantissa).mul_add(f64::from_bits(inverse), -1.0);
    let y0 = f64::from(exponent).mul_add(LN2, f64::from_bits(log));
    let r2 = r * r;
    let y = C2.mul_add(r, C1);
    let y = C3.mul_add(r2, y);
    y.mul_add(r2, y0 + r) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_twister_is_the_standards() {
        let mut source = Twister::new(5489);
        let last = (0..10_000).map(|_| source.next()).last();
        assert_eq!(last, Some(4_123_659_995));
    }
}
