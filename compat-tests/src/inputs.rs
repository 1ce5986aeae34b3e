//! Random inputs with fixed seeds: rows of floats of many kinds, and raw bytes.

use trine_formats::types::{Format, Part, TypeInfo};

/// SplitMix64 (Steele, Lea and Flood 2014): small, seedable, good enough to draw test inputs.
#[derive(Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator whose sequence depends on `seed` alone.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// A generator seeded by a name, so that tests do not share their inputs.
    pub fn named(name: &str) -> Rng {
        let fnv = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
        Rng(name.bytes().fold(0xcbf2_9ce4_8422_2325, fnv))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `0..n`.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u32 << 24) as f32
    }

    /// About normal with mean 0 and deviation 1: a sum of four uniform values.
    pub fn normal(&mut self) -> f32 {
        let b = self.bits();
        let sum: i32 = (0..4).map(|i| ((b >> (16 * i)) & 0xffff) as i32).sum();
        (sum - 2 * 0xffff) as f32 * (1.732_050_8 / 65536.0)
    }

    /// 2 to a power between `low` and `high`, both included.
    pub fn power_of_two(&mut self, low: i32, high: i32) -> f32 {
        let e = low + self.below((high - low + 1) as usize) as i32;
        f32::from_bits(((127 + e) as u32) << 23)
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let word = self.bits().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }

    /// `n` random bytes.
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        let mut out = vec![0; n];
        self.fill(&mut out);
        out
    }
}

/// A kind of row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Normal, as weights are.
    Normal,
    /// Normal around a mean of its own, so that minimum and maximum have one sign.
    Shifted,
    /// Normal with magnitudes spread over 24 powers of two.
    HeavyTails,
    /// Multiples of an eighth in a small range: many equal maxima and quotients that are exact ties.
    Ties,
    /// One value throughout.
    Constant,
    /// 0.0 and -0.0.
    Zeros,
    /// -g, -0.0, 0.0 and g.
    Ternary,
    /// Denormals.
    Denormals,
    /// Zeros with a few spikes.
    Spikes,
    /// Normal times 1e30: sums of squares overflow.
    Huge,
    /// Normal times 1e-30: squares vanish.
    Tiny,
    /// Normal with a few NaNs and infinities.
    NonFinite,
    /// Any bit pattern, but no NaN other than 0x7fc00000 and 0xffc00000, the ones that arithmetic makes.
    Bits,
    /// Any bit pattern: NaNs carry payloads.
    Payloads,
}

impl Kind {
    /// The kinds without NaN and infinity.
    pub const FINITE: [Kind; 11] = [
        Kind::Normal,
        Kind::Shifted,
        Kind::HeavyTails,
        Kind::Ties,
        Kind::Constant,
        Kind::Zeros,
        Kind::Ternary,
        Kind::Denormals,
        Kind::Spikes,
        Kind::Huge,
        Kind::Tiny,
    ];
    /// The kinds with NaN and infinity.
    pub const WILD: [Kind; 3] = [Kind::NonFinite, Kind::Bits, Kind::Payloads];
    /// The same without NaNs that carry payloads. Where two NaNs meet in one addition, which payload
    /// survives is the compiler's choice, and some encoders make a code of it.
    pub const PLAIN_NAN: [Kind; 2] = [Kind::NonFinite, Kind::Bits];

    /// Fills `x` with a row of this kind.
    pub fn fill(self, rng: &mut Rng, x: &mut [f32]) {
        let scale = rng.power_of_two(-12, 6) * (1.0 + rng.unit());
        let shift = rng.normal() * 4.0;
        match self {
            Kind::Normal => x.fill_with(|| rng.normal() * scale),
            Kind::Shifted => x.fill_with(|| (rng.normal() + shift) * scale),
            Kind::HeavyTails => x.fill_with(|| rng.normal() * rng.power_of_two(-20, 4)),
            Kind::Ties => {
                let step = rng.power_of_two(-8, 3);
                let range = [3, 8, 15, 16, 31, 127, 254][rng.below(7)];
                x.fill_with(|| (rng.below(2 * range + 1) as f32 - range as f32) * step);
            }
            Kind::Constant => x.fill(rng.normal() * scale),
            Kind::Zeros => x.fill_with(|| [0.0, -0.0][rng.below(2)]),
            Kind::Ternary => x.fill_with(|| [-scale, -0.0, 0.0, scale][rng.below(4)]),
            Kind::Denormals => {
                x.fill_with(|| {
                    let bits = rng.bits() as u32;
                    let magnitude = (bits & 0x007f_ffff) >> rng.below(23);
                    f32::from_bits(bits & 0x8000_0000 | magnitude)
                });
            }
            Kind::Spikes => {
                x.fill(0.0);
                for _ in 0..1 + rng.below(4) {
                    let at = rng.below(x.len());
                    x[at] = rng.normal() * scale;
                }
            }
            Kind::Huge => x.fill_with(|| rng.normal() * 1e30),
            Kind::Tiny => x.fill_with(|| rng.normal() * 1e-30),
            Kind::NonFinite => {
                x.fill_with(|| rng.normal() * scale);
                for _ in 0..1 + rng.below(x.len() / 64 + 2) {
                    let at = rng.below(x.len());
                    let bits = [0x7fc0_0000, 0xffc0_0000, 0x7f80_0000, 0xff80_0000];
                    x[at] = f32::from_bits(bits[rng.below(4)]);
                }
            }
            Kind::Bits => x.fill_with(|| {
                let bits = rng.bits() as u32;
                let is_nan = f32::from_bits(bits).is_nan();
                f32::from_bits(if is_nan { bits & 0x8000_0000 | 0x7fc0_0000 } else { bits })
            }),
            Kind::Payloads => x.fill_with(|| f32::from_bits(rng.bits() as u32)),
        }
    }
}

/// Rows of `columns` floats, each of a kind sampled from `kinds` (one half of them of the first kind).
pub fn rows(rng: &mut Rng, kinds: &[Kind], rows: usize, columns: usize) -> Vec<f32> {
    let mut out = vec![0.0; rows * columns];
    for row in out.chunks_mut(columns) {
        let kind = kinds[rng.below(2 * kinds.len()).saturating_sub(kinds.len())];
        kind.fill(rng, row);
    }
    out
}

/// Importances of `columns` columns: positive, with zeros and outliers, or all equal.
pub fn importance(rng: &mut Rng, columns: usize) -> Vec<f32> {
    let mut out = vec![0.0; columns];
    match rng.below(8) {
        0 => out.fill(1.0),
        1 => out.fill(0.0),
        2 => out.fill_with(|| rng.unit() * rng.power_of_two(-20, 10)),
        3 => out.fill_with(|| [0.0, rng.unit()][rng.below(2)]),
        _ => out.fill_with(|| rng.unit() + 1e-3),
    }
    out
}

/// Gives the floats of a row of random bytes exponents below that of one, and of one where they have no mantissa: sums
/// of its products are numbers.
///
/// # Panics
/// The row has not the bytes before its blocks that its type has.
pub fn tame(info: &TypeInfo, row: &mut [u8]) {
    let (head, blocks) = row.split_at_mut(info.head);
    let last = |bytes: &mut [u8], keep: u8, set: u8| {
        if let Some(byte) = bytes.last_mut() {
            *byte = *byte & keep | set;
        }
    };
    match info.row_scale() {
        None => {}
        Some(Format::F16) => last(head, 0xbb, 0),
        Some(_) => last(&mut head[..4], 0x80, 0x3c),
    }
    for block in blocks.chunks_exact_mut(info.bytes) {
        for field in info.fields.iter().filter(|f| matches!(f.part, Part::Scale | Part::Min | Part::Value)) {
            let at = &mut block[field.at..];
            match field.format {
                Format::F16 => last(&mut at[..2], 0xbb, 0),
                Format::Bf16 => last(&mut at[..2], 0x80, 0x3c),
                Format::F32 => last(&mut at[..4], 0x80, 0x3c),
                Format::E8m0 => last(&mut at[..1], 7, 120),
                // The nibbles of a half float are the upper ones of four words.
                Format::F16Nibbles => last(&mut at[..8], 0xbf, 0),
                _ => {}
            }
        }
    }
}
