//! The activation encoders of [`super::quantize`], sixteen values at a time.

use std::arch::x86_64::*;

use trine_formats::types::TypeId;
use trine_formats::types::info;

use super::quantize::{encoders, f16_bytes};
use crate::scalar::{check_lengths, definition};

const INF_BITS: i32 = 0x7F80_0000;

/// Sixteen values.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(x: &[f32]) -> __m512 {
    let x = &x[..16];
    // SAFETY: sixteen values; no alignment is asked for.
    unsafe { _mm512_loadu_ps(x.as_ptr()) }
}

/// Integers within i8 to sixteen bytes.
#[inline]
#[target_feature(enable = "avx512f")]
fn store(to: &mut [u8], q: __m512i) {
    let to = &mut to[..16];
    // SAFETY: sixteen bytes; no alignment is asked for.
    unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(q)) }
}

/// The largest magnitude, if all values are finite.
#[inline]
#[target_feature(enable = "avx512f")]
fn finite_amax(x: &[f32]) -> Option<f32> {
    // The bits of magnitudes are ordered as integers, NaN above infinity.
    let mut most = _mm512_setzero_si512();
    for x in x.chunks_exact(16) {
        let bits = _mm512_and_si512(_mm512_castps_si512(load(x)), _mm512_set1_epi32(i32::MAX));
        most = _mm512_max_epi32(most, bits);
    }
    let most = _mm512_reduce_max_epi32(most);
    (most < INF_BITS).then(|| f32::from_bits(most.cast_unsigned()))
}

/// Scales of up to sixteen Q8_0 or Q8_1 blocks, their inverses and the half floats of the scales; a block
/// that is not plain has no finite inverse.
struct Scales {
    d: [f32; 16],
    inverse: [f32; 16],
    half: [u16; 16],
}

impl Scales {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn new(x: &[f32]) -> Scales {
        let mut amax = [0f32; 16];
        for (amax, x) in amax.iter_mut().zip(x.chunks_exact(32)) {
            *amax = finite_amax(x).unwrap_or(f32::NAN);
        }
        let d = _mm512_div_ps(load(&amax), _mm512_set1_ps(127.0));
        let not_zero = _mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(d, _mm512_setzero_ps());
        let inverse = _mm512_maskz_div_ps(not_zero, _mm512_set1_ps(1.0), d);
        let half = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(d);
        let mut scales = Scales { d: [0.0; 16], inverse: [0.0; 16], half: [0; 16] };
        // SAFETY: sixteen of each.
        unsafe {
            _mm512_storeu_ps(scales.d.as_mut_ptr(), d);
            _mm512_storeu_ps(scales.inverse.as_mut_ptr(), inverse);
            _mm256_storeu_si256(scales.half.as_mut_ptr().cast(), half);
        }
        scales
    }
}

/// The quants of one block.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn q8_block(x: &[f32], inverse: f32) -> [__m512i; 2] {
    // Half away from zero: the largest float below a half, of the value's sign, then truncate.
    let (inverse, sign) = (_mm512_set1_ps(inverse), _mm512_set1_ps(-0.0));
    let almost_half = _mm512_set1_ps(0.499_999_97);
    let mut q = [_mm512_setzero_si512(); 2];
    for (q, x) in q.iter_mut().zip(x.chunks_exact(16)) {
        let v = _mm512_mul_ps(load(x), inverse);
        let half = _mm512_or_ps(almost_half, _mm512_and_ps(v, sign));
        *q = _mm512_cvttps_epi32(_mm512_add_ps(v, half));
    }
    q
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512dq")]
fn q8_0_blocks(x: &[f32], out: &mut [u8]) {
    for (x, out) in x.chunks(16 * 32).zip(out.chunks_mut(16 * info::Q8_0.bytes)) {
        let scales = Scales::new(x);
        let blocks = x.chunks_exact(32).zip(out.chunks_exact_mut(info::Q8_0.bytes));
        for (i, (x, out)) in blocks.enumerate() {
            if !scales.inverse[i].is_finite() {
                definition(TypeId::Q8_0)(x, None, out);
                continue;
            }
            let q = q8_block(x, scales.inverse[i]);
            out[..2].copy_from_slice(&scales.half[i].to_le_bytes());
            store(&mut out[2..], q[0]);
            store(&mut out[18..], q[1]);
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512dq")]
fn q8_1_blocks(x: &[f32], out: &mut [u8]) {
    for (x, out) in x.chunks(16 * 32).zip(out.chunks_mut(16 * info::Q8_1.bytes)) {
        let scales = Scales::new(x);
        let blocks = x.chunks_exact(32).zip(out.chunks_exact_mut(info::Q8_1.bytes));
        for (i, (x, out)) in blocks.enumerate() {
            if !scales.inverse[i].is_finite() {
                definition(TypeId::Q8_1)(x, None, out);
                continue;
            }
            let q = q8_block(x, scales.inverse[i]);
            let total = _mm512_reduce_add_epi32(_mm512_add_epi32(q[0], q[1]));
            out[..2].copy_from_slice(&scales.half[i].to_le_bytes());
            out[2..4].copy_from_slice(&f16_bytes(total as f32 * scales.d[i]));
            store(&mut out[4..], q[0]);
            store(&mut out[20..], q[1]);
        }
    }
}

/// The first element whose magnitude is `amax`.
#[inline]
#[target_feature(enable = "avx512f")]
fn first_extreme(x: &[f32], amax: f32) -> f32 {
    let amax_16 = _mm512_set1_ps(amax);
    for x in x.chunks_exact(16) {
        let equal = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(_mm512_abs_ps(load(x)), amax_16);
        if equal != 0 {
            return x[equal.trailing_zeros() as usize];
        }
    }
    amax
}

#[target_feature(enable = "avx512f,avx512bw")]
fn q8_k_blocks(x: &[f32], out: &mut [u8]) {
    for (x, out) in x.chunks_exact(256).zip(out.chunks_exact_mut(info::Q8_K.bytes)) {
        let amax = finite_amax(x).unwrap_or(0.0);
        let inverse = -127.0 / first_extreme(x, amax);
        if amax == 0.0 || !inverse.is_finite() {
            definition(TypeId::Q8_K)(x, None, out);
            continue;
        }
        let (d, rest) = out.split_at_mut(4);
        let (quants, sums) = rest.split_at_mut(256);
        d.copy_from_slice(&(1.0 / inverse).to_le_bytes());
        let inverse = _mm512_set1_ps(inverse);
        let parts = x.chunks_exact(64).zip(quants.chunks_exact_mut(64));
        for ((x, quants), sums) in parts.zip(sums.chunks_exact_mut(8)) {
            let mut q = [_mm_setzero_si128(); 4];
            for (q, x) in q.iter_mut().zip(x.chunks_exact(16)) {
                // Ties to even, as the definition's addition of 1.5 * 2^23 rounds.
                *q = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(_mm512_mul_ps(inverse, load(x))));
            }
            let low = _mm256_set_m128i(q[1], q[0]);
            let high = _mm256_set_m128i(q[3], q[2]);
            let q = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high);
            // Bytes plus 128 add up within each eight; each sixteen has 16 * 128 too much.
            let biased = _mm512_xor_si512(q, _mm512_set1_epi8(-128));
            let eights = _mm512_sad_epu8(biased, _mm512_setzero_si512());
            let both = _mm512_add_epi64(eights, _mm512_permutex_epi64::<0b10_11_00_01>(eights));
            let sums_16 = _mm512_sub_epi64(both, _mm512_set1_epi64(2048));
            let four = _mm512_cvtepi64_epi16(_mm512_maskz_compress_epi64(0x55, sums_16));
            // SAFETY: 64 quants, eight bytes of sums; no alignment is asked for.
            unsafe {
                _mm512_storeu_si512(quants.as_mut_ptr().cast(), q);
                _mm_storel_epi64(sums.as_mut_ptr().cast(), four);
            }
        }
    }
}

#[target_feature(enable = "avx512f")]
fn f16_values(x: &[f32], out: &mut [u8]) {
    for (x, out) in x.chunks(16).zip(out.chunks_mut(32)) {
        // The definition has one NaN; the conversion keeps payloads.
        if x.len() < 16 || _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(load(x), load(x)) != 0 {
            definition(TypeId::F16)(x, None, out);
            continue;
        }
        let h = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(load(x));
        // SAFETY: sixteen values have 32 bytes, which `check_lengths` saw to; no alignment is asked for.
        unsafe { _mm256_storeu_si256(out[..32].as_mut_ptr().cast(), h) }
    }
}

encoders! { q8_0 Q8_0 q8_0_blocks; q8_1 Q8_1 q8_1_blocks; q8_k Q8_K q8_k_blocks; f16 F16 f16_values; }
