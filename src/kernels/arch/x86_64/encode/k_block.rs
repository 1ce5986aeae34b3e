//! What the encoders of the K-quants share: super-blocks of 256 weights, rounding to a decided scale, and the
//! packing of codes.

use std::arch::x86_64::*;

use trine_formats::types::TypeId;

use super::super::chain::load8;
use super::super::quantize::{definition, finite_amax, pack32};
use super::vector::{Vector, columns, lanes, nearest_int};

/// Weights in a super-block.
pub(super) const BLOCK: usize = 256;

/// A row in pieces of a few blocks: weights, their importance, and where the blocks go.
pub(super) struct Blocks<'a> {
    pub x: &'a [f32],
    pub importance: Option<&'a [f32]>,
    pub out: &'a mut [u8],
    /// Bytes of a block.
    pub bytes: usize,
}

impl<'a> Blocks<'a> {
    /// The next `count` blocks, or those that are left; `None` at the end.
    pub fn take(&mut self, count: usize) -> Option<Blocks<'a>> {
        let left = (self.x.len() / BLOCK).min(self.out.len() / self.bytes);
        let count = count.min(left);
        if count == 0 {
            return None;
        }
        let (x, x_rest) = self.x.split_at(count * BLOCK);
        let (out, out_rest) = std::mem::take(&mut self.out).split_at_mut(count * self.bytes);
        let importance = self.importance.map(|w| {
            let (now, rest) = w.split_at(w.len().min(count * BLOCK));
            self.importance = Some(rest);
            now
        });
        (self.x, self.out) = (x_rest, out_rest);
        Some(Blocks {
            x,
            importance,
            out,
            bytes: self.bytes,
        })
    }

    /// The same blocks, to be taken apart twice.
    pub fn again(&mut self) -> Blocks<'_> {
        Blocks {
            x: self.x,
            importance: self.importance,
            out: &mut *self.out,
            bytes: self.bytes,
        }
    }

    /// Whether all values are finite, and there is an importance for each where there is one at all.
    pub fn is_ordinary(&self) -> bool {
        let importance = |w: &[f32]| w.len() == self.x.len() && is_finite(w);
        is_finite(self.x) && self.importance.is_none_or(importance)
    }

    /// Hands all blocks to the definition.
    pub fn define(self, ty: TypeId) {
        definition(ty)(self.x, self.importance, self.out);
    }
}

fn is_finite(x: &[f32]) -> bool {
    // SAFETY: kernels run only where their instruction set was detected.
    unsafe { finite_amax(x) }.is_some()
}

/// `w * sqrt(sigma2 + x * x)`.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
pub(super) unsafe fn weigh<V: Vector, const N: usize>(
    x: &[V::F; N],
    importance: &[V::F; N],
    sigma2: V::F,
) -> [V::F; N] {
    // SAFETY: as the caller says.
    unsafe {
        let mut w = *importance;
        for i in 0..N {
            let size = V::sqrt(V::add(sigma2, V::mul(x[i], x[i])));
            w[i] = V::mul(w[i], size);
        }
        w
    }
}

/// Sum of each lane, in element order from zero.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
pub(super) unsafe fn sums<V: Vector, const N: usize>(w: &[V::F; N]) -> [f32; 16] {
    // SAFETY: as the caller says.
    unsafe {
        let mut sum = V::splat(0.0);
        for &w in w {
            sum = V::add(sum, w);
        }
        lanes::<V>(sum)
    }
}

/// Sums of squares of up to eight blocks, each in element order.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn sums_of_squares(x: &[f32]) -> [f32; 8] {
    let blocks = x.as_chunks::<BLOCK>().0;
    let mut sum = _mm256_setzero_ps();
    for at in (0..BLOCK).step_by(8) {
        for v in columns(blocks, 0, at) {
            sum = _mm256_add_ps(sum, _mm256_mul_ps(v, v));
        }
    }
    let mut sums = [0.0; 8];
    // SAFETY: eight floats; the store asks for no alignment.
    unsafe { _mm256_storeu_ps(sums.as_mut_ptr(), sum) };
    sums
}

/// Codes `0..=top` of `(x + dm) / d`, 32 to a vector. With 16 elements the others are repeated.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn round_affine(x: &[f32; 32], d: [f32; 2], dm: [f32; 2], top: i32) -> __m256i {
    let (top, zero) = (_mm256_set1_epi32(top), _mm256_setzero_si256());
    let mut l = [zero; 4];
    for (k, (l, x)) in l.iter_mut().zip(x.as_chunks::<8>().0).enumerate() {
        let (d, dm) = (_mm256_set1_ps(d[k / 2]), _mm256_set1_ps(dm[k / 2]));
        let v = nearest_int(_mm256_div_ps(_mm256_add_ps(load8(x), dm), d));
        *l = _mm256_max_epi32(_mm256_min_epi32(v, top), zero);
    }
    pack32(l)
}

/// Codes `0..2 * half` of `x / d`, zero being `half`; each scale is that of 16 elements.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn round_symmetric(x: &[f32; 32], d: [f32; 2], half: i32) -> __m256i {
    let (low, high) = (_mm256_set1_epi32(-half), _mm256_set1_epi32(half - 1));
    let mut l = [low; 4];
    for (k, (l, x)) in l.iter_mut().zip(x.as_chunks::<8>().0).enumerate() {
        let v = nearest_int(_mm256_div_ps(load8(x), _mm256_set1_ps(d[k / 2])));
        *l = _mm256_max_epi32(_mm256_min_epi32(v, high), low);
    }
    _mm256_add_epi8(pack32(l), _mm256_set1_epi8(half as i8))
}

/// Four 2-bit codes to a byte, 32 elements apart. Only the low two bits are taken.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn pack_2bit(c: &[__m256i; 4]) -> __m256i {
    let three = _mm256_set1_epi8(3);
    let two = |v| _mm256_and_si256(v, three);
    let low = _mm256_or_si256(two(c[0]), _mm256_slli_epi16::<2>(two(c[1])));
    let high = _mm256_or_si256(
        _mm256_slli_epi16::<4>(two(c[2])),
        _mm256_slli_epi16::<6>(two(c[3])),
    );
    _mm256_or_si256(low, high)
}

/// Two 4-bit codes to a byte. Only the low four bits are taken.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn pack_nibbles(low: __m256i, high: __m256i) -> __m256i {
    let nibble = _mm256_set1_epi8(15);
    let high = _mm256_slli_epi16::<4>(_mm256_and_si256(high, nibble));
    _mm256_or_si256(_mm256_and_si256(low, nibble), high)
}

/// Codes made one by one.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn gather(codes: &[u8; 32]) -> __m256i {
    // SAFETY: 32 bytes; the load asks for no alignment.
    unsafe { _mm256_loadu_si256(codes.as_ptr().cast()) }
}
