//! Activations made ready for the one-chain kernels: quants aligned, scales as f32, offset corrections.

use std::arch::x86_64::*;

use trine_formats::types::{Part, info};

use super::codes::{Act, BlockCodes, BlockStep, load16, load32};

/// 32 quants as 8 dwords; dword g is quants `4g..4g + 4`, ready to be broadcast.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct I32x8(pub(super) [i32; 8]);

/// 32 quants widened to i16: dword g of the first half is quants (4g, 4g + 2), of the second (4g + 1, 4g + 3).
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct EvenOdd(pub(super) [[i32; 8]; 2]);

/// Activations of one call. A unit is what has one scale and one integer sum: a weight block, or for
/// nested types one activation block within it.
#[derive(Default)]
pub(super) struct Acts {
    /// [unit][vectors of a unit]
    pub(super) q: Vec<I32x8>,
    /// Like `q`; only filled where asked for.
    pub(super) wide: Vec<EvenOdd>,
    /// Scale of each unit.
    pub(super) d: Vec<f32>,
    /// The `s` of each Q8_1 unit.
    pub(super) s: Vec<f32>,
    /// `-OFFSET * sum(q)` of each unit.
    pub(super) correction: Vec<i32>,
    /// The 16 bsums of each Q8_K unit, as 8 pairs; for `MinusMins` only.
    pub(super) bsums: Vec<I32x8>,
}

/// Order of the units.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// One token; its units, then the first 8 again and again, so that 8 in a row can start anywhere.
    Periodic,
    /// All tokens of unit 0, then of unit 1, ...
    ByUnit,
}

/// Groups of 32 in a unit.
pub(super) const fn vectors<C: BlockCodes>() -> usize {
    if matches!(C::STEP, BlockStep::Nested) { 1 } else { C::SUBS }
}

impl Act {
    /// Bytes of a block and the offset of its quants.
    const fn geometry(self) -> (usize, usize) {
        match self {
            Act::Q8_0 => (34, 2),
            Act::Q8_1 => (36, 4),
            Act::Q8K => (info::Q8_K.bytes, info::Q8_K.at(Part::Codes)),
        }
    }

    pub(super) const fn bytes(self) -> usize {
        self.geometry().0
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn f16_at(b: &[u8], at: usize) -> f32 {
    let bits = i32::from(u16::from_le_bytes([b[at], b[at + 1]]));
    _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn sum_lanes(v: __m256i) -> i32 {
    let v = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256::<1>(v));
    let v = _mm_add_epi32(v, _mm_shuffle_epi32::<0b00_00_11_10>(v));
    let v = _mm_add_epi32(v, _mm_shuffle_epi32::<0b00_00_00_01>(v));
    _mm_cvtsi128_si32(v)
}

impl I32x8 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn get(&self) -> __m256i {
        // SAFETY: a vector is 32 bytes, aligned to 32.
        unsafe { _mm256_load_si256(std::ptr::from_ref(self).cast()) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn new(v: __m256i) -> I32x8 {
        let mut vector = I32x8([0; 8]);
        // SAFETY: a vector is 32 bytes, aligned to 32.
        unsafe { _mm256_store_si256((&raw mut vector).cast(), v) };
        vector
    }
}

impl EvenOdd {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn new(q: __m256i) -> EvenOdd {
        let even = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(q));
        let odd = _mm256_srai_epi16::<8>(q);
        EvenOdd([I32x8::new(even).0, I32x8::new(odd).0])
    }
}

impl Acts {
    /// Reads `tokens` activation rows of `units` units each.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn fill<C: BlockCodes>(&mut self, acts: &[u8], units: usize, tokens: usize, order: Order, wide: bool) {
        let (bytes, quants_at) = C::ACT.geometry();
        let vectors = const { vectors::<C>() };
        let extra = if order == Order::Periodic && units > 0 { 8 } else { 0 };
        let total = units * tokens + extra;
        self.q.resize(total * vectors, I32x8([0; 8]));
        self.d.resize(total, 0.0);
        self.correction.resize(total, 0);
        if C::ACT == Act::Q8_1 {
            self.s.resize(total, 0.0);
        }
        if C::STEP == BlockStep::MinusMins {
            self.bsums.resize(total, I32x8([0; 8]));
        }
        if wide {
            self.wide.resize(total * vectors, EvenOdd([[0; 8]; 2]));
        }
        for t in 0..tokens {
            for u in 0..units + extra {
                let b = &acts[(t * units + u % units) * bytes..][..bytes];
                let i = if order == Order::Periodic { u } else { u * tokens + t };
                let mut sums = _mm256_setzero_si256();
                for k in 0..vectors {
                    let q = load32(b, quants_at + 32 * k);
                    self.q[i * vectors + k] = I32x8::new(q);
                    if wide {
                        self.wide[i * vectors + k] = EvenOdd::new(q);
                    }
                    if C::OFFSET != 0 {
                        let pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
                        sums = _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
                    }
                }
                self.correction[i] = if C::OFFSET != 0 { -C::OFFSET * sum_lanes(sums) } else { 0 };
                self.d[i] = match C::ACT {
                    Act::Q8_0 | Act::Q8_1 => f16_at(b, 0),
                    Act::Q8K => f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
                };
                if C::ACT == Act::Q8_1 {
                    self.s[i] = f16_at(b, 2);
                }
                if C::STEP == BlockStep::MinusMins {
                    self.bsums[i] = {
                        const SUMS: usize = info::Q8_K.at(Part::Sums);
                        I32x8::new(_mm256_set_m128i(load16(b, SUMS + 16), load16(b, SUMS)))
                    };
                }
            }
        }
    }
}
