//! The weights of the small random models: the draws of the program that made them.
//!
//! llama.cpp's `test-llama-archs` fills each tensor with `std::normal_distribution<float>` over a
//! `std::mt19937` whose seed is mixed with the tensor's name. The standard leaves the distribution and the hash to
//! the library; these are libstdc++'s, with the single-precision logarithm of glibc.

use trine_kernels::math::logf;

/// Fills a tensor called `name` with draws from the normal distribution of this standard deviation.
pub fn fill(name: &str, seed: u64, deviation: f32, out: &mut [f32]) {
    // Every draw is its mean; drawing takes most of the time of whoever looks at shapes alone.
    if deviation == 0.0 {
        return out.fill(0.0);
    }
    let mut normal = Normal { source: Twister::new((seed ^ hash(name.as_bytes())) as u32), saved: None };
    out.iter_mut().for_each(|v| *v = normal.draw() * deviation + 0.0);
    // a state has to decay; the program looks for these letters wherever they stand
    if name.contains("ssm_a") {
        out.iter_mut().for_each(|v| *v = -v.abs());
    }
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
            state[i] = (last ^ (last >> 30)).wrapping_mul(1_812_433_253).wrapping_add(i as u32);
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
