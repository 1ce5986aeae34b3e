//! Activation encoders. Blocks with a NaN, an infinity or so small a scale that its inverse is infinite
//! go to the type's own encoder; all others have products of at most about 127 in magnitude.

use std::arch::x86_64::*;

use trine_formats::types::TypeId;
use trine_formats::types::{Part, info};

use super::act::I32x8;
use super::chain::load8;
use crate::scalar::{check_lengths, definition};

const INF_BITS: i32 = 0x7F80_0000;

/// The largest magnitude, if all values are finite.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn finite_amax(x: &[f32]) -> Option<f32> {
    // The bits of magnitudes are ordered as integers, NaN above infinity.
    let mut most = _mm256_setzero_si256();
    for x in x.chunks_exact(8) {
        let bits = _mm256_and_si256(_mm256_castps_si256(load8(x)), _mm256_set1_epi32(i32::MAX));
        most = _mm256_max_epi32(most, bits);
    }
    let most = I32x8::new(most).0.into_iter().fold(0, i32::max);
    (most < INF_BITS).then(|| f32::from_bits(most.cast_unsigned()))
}

/// 32 integers within i8 to bytes, in order.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn pack32(v: [__m256i; 4]) -> __m256i {
    let words = _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    _mm256_permutevar8x32_epi32(words, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn store32(to: &mut [u8], v: __m256i) {
    let to = &mut to[..32];
    // SAFETY: `to` has 32 bytes; the store asks for no alignment.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), v) }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn f16_bytes(x: f32) -> [u8; 2] {
    let h = _mm_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm_set_ss(x));
    (_mm_cvtsi128_si32(h) as u16).to_le_bytes()
}

/// The quants of one Q8_0 or Q8_1 block and its scale; `None` when the block is not plain.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn q8_block(x: &[f32]) -> Option<(__m256i, f32)> {
    let d = finite_amax(x)? / 127.0;
    let id = if d == 0.0 { 0.0 } else { 1.0 / d };
    if !id.is_finite() {
        return None;
    }
    // Half away from zero: the largest float below a half, of the value's sign, then truncate.
    let (id, sign) = (_mm256_set1_ps(id), _mm256_set1_ps(-0.0));
    let almost_half = _mm256_set1_ps(0.499_999_97);
    let mut q = [_mm256_setzero_si256(); 4];
    for (q, x) in q.iter_mut().zip(x.chunks_exact(8)) {
        let v = _mm256_mul_ps(load8(x), id);
        let half = _mm256_or_ps(almost_half, _mm256_and_ps(v, sign));
        *q = _mm256_cvttps_epi32(_mm256_add_ps(v, half));
    }
    Some((pack32(q), d))
}

#[target_feature(enable = "avx2,fma,f16c")]
fn q8_0_blocks(x: &[f32], out: &mut [u8]) {
    for (x, out) in x.chunks_exact(32).zip(out.chunks_exact_mut(info::Q8_0.bytes)) {
        match q8_block(x) {
            Some((q, d)) => {
                out[..2].copy_from_slice(&f16_bytes(d));
                store32(&mut out[2..], q);
            }
            None => definition(TypeId::Q8_0)(x, None, out),
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn q8_1_blocks(x: &[f32], out: &mut [u8]) {
    for (x, out) in x.chunks_exact(32).zip(out.chunks_exact_mut(info::Q8_1.bytes)) {
        match q8_block(x) {
            Some((q, d)) => {
                let pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), q);
                let total = super::act::sum_lanes(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
                out[..2].copy_from_slice(&f16_bytes(d));
                out[2..4].copy_from_slice(&f16_bytes(total as f32 * d));
                store32(&mut out[4..], q);
            }
            None => definition(TypeId::Q8_1)(x, None, out),
        }
    }
}

/// The first element whose magnitude is `amax`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn first_extreme(x: &[f32], amax: f32) -> f32 {
    for x in x.chunks_exact(8) {
        let magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0), load8(x));
        let equal = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_EQ_OQ>(magnitude, _mm256_set1_ps(amax)));
        if equal != 0 {
            return x[equal.trailing_zeros() as usize];
        }
    }
    amax
}

#[target_feature(enable = "avx2,fma,f16c")]
fn q8_k_blocks(x: &[f32], out: &mut [u8]) {
    for (x, out) in x.chunks_exact(256).zip(out.chunks_exact_mut(info::Q8_K.bytes)) {
        let amax = finite_amax(x).unwrap_or(0.0);
        let inverse = -127.0 / first_extreme(x, amax);
        if amax == 0.0 || !inverse.is_finite() {
            definition(TypeId::Q8_K)(x, None, out);
            continue;
        }
        out[..4].copy_from_slice(&(1.0 / inverse).to_le_bytes());
        let inverse = _mm256_set1_ps(inverse);
        let mut sums = [0i16; 16];
        for (k, x) in x.chunks_exact(32).enumerate() {
            let mut q = [_mm256_setzero_si256(); 4];
            for (q, x) in q.iter_mut().zip(x.chunks_exact(8)) {
                // Ties to even, as the definition's addition of 1.5 * 2^23 rounds.
                *q = _mm256_cvtps_epi32(_mm256_mul_ps(inverse, load8(x)));
            }
            let q = pack32(q);
            store32(&mut out[info::Q8_K.at(Part::Codes) + 32 * k..], q);
            // Bytes plus 128 add up within each eight; each sixteen has 16 * 128 too much.
            let sad = _mm256_sad_epu8(_mm256_xor_si256(q, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
            let sad = I32x8::new(sad).0;
            sums[2 * k] = (sad[0] + sad[2] - 2048) as i16;
            sums[2 * k + 1] = (sad[4] + sad[6] - 2048) as i16;
        }
        for (to, sum) in out[info::Q8_K.at(Part::Sums)..].chunks_exact_mut(2).zip(sums) {
            to.copy_from_slice(&sum.to_le_bytes());
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
fn f16_values(x: &[f32], out: &mut [u8]) {
    for (x, out) in x.chunks(8).zip(out.chunks_mut(16)) {
        // The definition has one NaN; the conversion keeps payloads.
        if x.len() < 8 || finite_amax(x).is_none() {
            definition(TypeId::F16)(x, None, out);
            continue;
        }
        let h = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(load8(x));
        // SAFETY: chunks of eight values have 16 bytes, which `check_lengths` saw to; no alignment is asked for.
        unsafe { _mm_storeu_si128(out[..16].as_mut_ptr().cast(), h) }
    }
}

/// The encoders of an instruction set, and `encoder`, which finds that of an activation type where it is not just the
/// type's own.
macro_rules! encoders {
    ($($name:ident $act:ident $blocks:ident;)*) => {
        $(pub(super) fn $name(x: &[f32], out: &mut [u8]) {
            check_lengths(TypeId::$act, x, out);
            // SAFETY: `quantize_act` and `encode_rows` hand this out only for an `Isa` that includes the features.
            unsafe { $blocks(x, out) }
        })*

        pub(super) fn encoder(act: TypeId) -> Option<super::QuantizeAct> {
            match act {
                $(TypeId::$act => Some($name),)*
                _ => None,
            }
        }
    };
}
pub(super) use encoders;

encoders! { q8_0 Q8_0 q8_0_blocks; q8_1 Q8_1 q8_1_blocks; q8_k Q8_K q8_k_blocks; f16 F16 f16_values; }
