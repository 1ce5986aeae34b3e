//! Floats side by side, for searches that run one chain of operations on several groups of weights.
//!
//! Every operation is the scalar one in each lane, rounded separately, so that a lane's bits do not depend on
//! its neighbours or on the width.

use std::arch::x86_64::*;

use super::super::chain::load8;

/// The most lanes there are.
pub(super) const MAX_LANES: usize = 16;

/// Vectors of floats on an instruction set.
///
/// # Safety
/// All functions ask for the instruction set; pointers are to as many floats as there are lanes.
pub(super) trait Vector {
    /// Floats in a vector.
    const LANES: usize;
    /// The floats.
    type F: Copy;
    /// Truth values.
    type M: Copy;

    unsafe fn splat(v: f32) -> Self::F;
    unsafe fn load(p: *const f32) -> Self::F;
    unsafe fn store(p: *mut f32, v: Self::F);
    /// Eight lanes and, where there are more, the next eight.
    unsafe fn join(low: __m256, high: __m256) -> Self::F;
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn div(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sqrt(a: Self::F) -> Self::F;
    unsafe fn abs(a: Self::F) -> Self::F;
    unsafe fn neg(a: Self::F) -> Self::F;
    /// `if a < b { a } else { b }`.
    unsafe fn or_below(a: Self::F, b: Self::F) -> Self::F;
    /// `if a > b { a } else { b }`.
    unsafe fn or_above(a: Self::F, b: Self::F) -> Self::F;
    /// Nearest integer, ties to even: the value of `num::nearest_int` within its range, but for the sign of 0.
    unsafe fn round(a: Self::F) -> Self::F;
    /// `num::nearest_int` of anything, as a float.
    unsafe fn nearest(a: Self::F) -> Self::F;
    /// The same, of which only the low eight bits are kept.
    unsafe fn nearest_u8(a: Self::F) -> Self::F;
    unsafe fn gt(a: Self::F, b: Self::F) -> Self::M;
    unsafe fn ge(a: Self::F, b: Self::F) -> Self::M;
    unsafe fn eq(a: Self::F, b: Self::F) -> Self::M;
    /// True when either is NaN.
    unsafe fn ne(a: Self::F, b: Self::F) -> Self::M;
    unsafe fn and(a: Self::M, b: Self::M) -> Self::M;
    unsafe fn or(a: Self::M, b: Self::M) -> Self::M;
    /// `if m { a } else { b }`.
    unsafe fn select(m: Self::M, a: Self::F, b: Self::F) -> Self::F;
    /// Whether one lane is true.
    unsafe fn any(m: Self::M) -> bool;
    /// Whether all lanes are.
    unsafe fn all(m: Self::M) -> bool;
}

/// What [`Vector::nearest`] adds and then takes apart.
const SHIFT: f32 = 12_582_912.0;
const MANTISSA: i32 = 0x007F_FFFF;
const MIDDLE: i32 = 0x0040_0000;

/// Eight lanes.
pub(super) struct Eight;
/// Sixteen lanes.
pub(super) struct Sixteen;

macro_rules! operations {
    ($features:literal: $($name:ident($($arg:ident: $ty:ident),*) -> $out:ty = $body:expr;)*) => { $(
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn $name($($arg: Self::$ty),*) -> $out {
            $body
        }
    )* };
}

impl Vector for Eight {
    const LANES: usize = 8;
    type F = __m256;
    type M = __m256;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn splat(v: f32) -> __m256 {
        _mm256_set1_ps(v)
    }
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(p: *const f32) -> __m256 {
        // SAFETY: the caller has eight there.
        unsafe { _mm256_loadu_ps(p) }
    }
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn store(p: *mut f32, v: __m256) {
        // SAFETY: as above.
        unsafe { _mm256_storeu_ps(p, v) }
    }
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn join(low: __m256, _: __m256) -> __m256 {
        low
    }
    operations! { "avx2,fma,f16c":
        add(a: F, b: F) -> __m256 = _mm256_add_ps(a, b);
        sub(a: F, b: F) -> __m256 = _mm256_sub_ps(a, b);
        mul(a: F, b: F) -> __m256 = _mm256_mul_ps(a, b);
        div(a: F, b: F) -> __m256 = _mm256_div_ps(a, b);
        sqrt(a: F) -> __m256 = _mm256_sqrt_ps(a);
        abs(a: F) -> __m256 = _mm256_andnot_ps(_mm256_set1_ps(-0.0), a);
        neg(a: F) -> __m256 = _mm256_xor_ps(_mm256_set1_ps(-0.0), a);
        or_below(a: F, b: F) -> __m256 = _mm256_min_ps(a, b);
        or_above(a: F, b: F) -> __m256 = _mm256_max_ps(a, b);
        round(a: F) -> __m256 = _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
        nearest(a: F) -> __m256 = _mm256_cvtepi32_ps(nearest_int(a));
        nearest_u8(a: F) -> __m256 = _mm256_cvtepi32_ps(_mm256_and_si256(nearest_int(a), _mm256_set1_epi32(255)));
        gt(a: F, b: F) -> __m256 = _mm256_cmp_ps::<_CMP_GT_OQ>(a, b);
        ge(a: F, b: F) -> __m256 = _mm256_cmp_ps::<_CMP_GE_OQ>(a, b);
        eq(a: F, b: F) -> __m256 = _mm256_cmp_ps::<_CMP_EQ_OQ>(a, b);
        ne(a: F, b: F) -> __m256 = _mm256_cmp_ps::<_CMP_NEQ_UQ>(a, b);
        and(a: M, b: M) -> __m256 = _mm256_and_ps(a, b);
        or(a: M, b: M) -> __m256 = _mm256_or_ps(a, b);
        select(m: M, a: F, b: F) -> __m256 = _mm256_blendv_ps(b, a, m);
        any(m: M) -> bool = _mm256_movemask_ps(m) != 0;
        all(m: M) -> bool = _mm256_movemask_ps(m) == 0xff;
    }
}

/// `num::nearest_int` of every lane.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn nearest_int(v: __m256) -> __m256i {
    let bits = _mm256_castps_si256(_mm256_add_ps(v, _mm256_set1_ps(SHIFT)));
    let mantissa = _mm256_and_si256(bits, _mm256_set1_epi32(MANTISSA));
    _mm256_sub_epi32(mantissa, _mm256_set1_epi32(MIDDLE))
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn nearest_int_16(v: __m512) -> __m512i {
    let bits = _mm512_castps_si512(_mm512_add_ps(v, _mm512_set1_ps(SHIFT)));
    let mantissa = _mm512_and_si512(bits, _mm512_set1_epi32(MANTISSA));
    _mm512_sub_epi32(mantissa, _mm512_set1_epi32(MIDDLE))
}

impl Vector for Sixteen {
    const LANES: usize = 16;
    type F = __m512;
    type M = __mmask16;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn splat(v: f32) -> __m512 {
        _mm512_set1_ps(v)
    }
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn load(p: *const f32) -> __m512 {
        // SAFETY: the caller has sixteen there.
        unsafe { _mm512_loadu_ps(p) }
    }
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn store(p: *mut f32, v: __m512) {
        // SAFETY: as above.
        unsafe { _mm512_storeu_ps(p, v) }
    }
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    unsafe fn join(low: __m256, high: __m256) -> __m512 {
        _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high)
    }
    operations! { "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni":
        add(a: F, b: F) -> __m512 = _mm512_add_ps(a, b);
        sub(a: F, b: F) -> __m512 = _mm512_sub_ps(a, b);
        mul(a: F, b: F) -> __m512 = _mm512_mul_ps(a, b);
        div(a: F, b: F) -> __m512 = _mm512_div_ps(a, b);
        sqrt(a: F) -> __m512 = _mm512_sqrt_ps(a);
        abs(a: F) -> __m512 = _mm512_andnot_ps(_mm512_set1_ps(-0.0), a);
        neg(a: F) -> __m512 = _mm512_xor_ps(_mm512_set1_ps(-0.0), a);
        or_below(a: F, b: F) -> __m512 = _mm512_min_ps(a, b);
        or_above(a: F, b: F) -> __m512 = _mm512_max_ps(a, b);
        round(a: F) -> __m512 = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a);
        nearest(a: F) -> __m512 = _mm512_cvtepi32_ps(nearest_int_16(a));
        nearest_u8(a: F) -> __m512 = _mm512_cvtepi32_ps(_mm512_and_si512(nearest_int_16(a), _mm512_set1_epi32(255)));
        gt(a: F, b: F) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b);
        ge(a: F, b: F) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(a, b);
        eq(a: F, b: F) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b);
        ne(a: F, b: F) -> __mmask16 = _mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(a, b);
        and(a: M, b: M) -> __mmask16 = a & b;
        or(a: M, b: M) -> __mmask16 = a | b;
        select(m: M, a: F, b: F) -> __m512 = _mm512_mask_blend_ps(m, b, a);
        any(m: M) -> bool = m != 0;
        all(m: M) -> bool = m == 0xffff;
    }
}

/// Rows of eight to columns.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn transpose(r: [__m256; 8]) -> [__m256; 8] {
    let mut pairs = r;
    for i in 0..4 {
        pairs[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        pairs[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    let mut fours = pairs;
    for i in [0, 4] {
        let p = &pairs[i..i + 4];
        fours[i] = _mm256_shuffle_ps::<0b01_00_01_00>(p[0], p[2]);
        fours[i + 1] = _mm256_shuffle_ps::<0b11_10_11_10>(p[0], p[2]);
        fours[i + 2] = _mm256_shuffle_ps::<0b01_00_01_00>(p[1], p[3]);
        fours[i + 3] = _mm256_shuffle_ps::<0b11_10_11_10>(p[1], p[3]);
    }
    let mut out = fours;
    for i in 0..4 {
        out[i] = _mm256_permute2f128_ps::<0x20>(fours[i], fours[i + 4]);
        out[i + 4] = _mm256_permute2f128_ps::<0x31>(fours[i], fours[i + 4]);
    }
    out
}

/// Consecutive groups of `N` floats side by side: lane `k` of `tile[i]` is element `i` of group `k`. Groups
/// that `x` does not have are zero.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
pub(super) unsafe fn tile<V: Vector, const N: usize>(x: &[f32]) -> [V::F; N] {
    const { assert!(N.is_multiple_of(8)) };
    let groups = x.as_chunks::<N>().0;
    // SAFETY: the caller has the instruction set.
    unsafe {
        let mut tile = [V::splat(0.0); N];
        for at in (0..N).step_by(8) {
            let low = columns(groups, 0, at);
            let high = if V::LANES > 8 {
                columns(groups, 8, at)
            } else {
                low
            };
            for i in 0..8 {
                tile[at + i] = V::join(low[i], high[i]);
            }
        }
        tile
    }
}

/// Elements `at` to `at + 8` of eight groups, side by side.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn columns<const N: usize>(groups: &[[f32; N]], first: usize, at: usize) -> [__m256; 8] {
    let mut rows = [_mm256_setzero_ps(); 8];
    for (k, row) in rows.iter_mut().enumerate() {
        if let Some(group) = groups.get(first + k) {
            *row = load8(&group[at..at + 8]);
        }
    }
    transpose(rows)
}

/// The lanes of a vector.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
pub(super) unsafe fn lanes<V: Vector>(v: V::F) -> [f32; MAX_LANES] {
    let mut lanes = [0.0; MAX_LANES];
    // SAFETY: the caller has the instruction set, and no vector is longer.
    unsafe { V::store(lanes.as_mut_ptr(), v) };
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Isa, Level};
    use trine_formats::types::num;

    /// # Safety
    /// The processor has the instruction set.
    unsafe fn check<V: Vector>() {
        let values = [
            0.0,
            -0.0,
            0.5,
            -0.5,
            1.5,
            -2.5,
            0.49999997,
            4194303.0,
            -4194303.0,
            4194304.0,
            1e30,
            -1e30,
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            4194302.5,
        ];
        for v in values {
            let int = num::nearest_int(v);
            // SAFETY: as the caller says.
            let (nearest, low, round) = unsafe {
                let v = V::splat(v);
                (
                    lanes::<V>(V::nearest(v))[V::LANES - 1],
                    lanes::<V>(V::nearest_u8(v))[0],
                    lanes::<V>(V::round(v))[1],
                )
            };
            assert_eq!(nearest.to_bits(), (int as f32).to_bits(), "{v}");
            assert_eq!(low, f32::from(int as u8), "{v}");
            if v.abs() <= 4194303.0 {
                assert_eq!(round, int as f32, "{v}");
            }
        }
        let x: Vec<f32> = (0..16 * 13).map(|i| i as f32).collect();
        // SAFETY: as the caller says.
        let tile = unsafe { tile::<V, 16>(&x) };
        for (i, v) in tile.into_iter().enumerate() {
            // SAFETY: as the caller says.
            let lanes = unsafe { lanes::<V>(v) };
            for (k, &lane) in lanes[..V::LANES].iter().enumerate() {
                assert_eq!(lane, x.get(16 * k + i).copied().unwrap_or(0.0));
            }
        }
    }

    #[test]
    fn lanes_do_what_scalars_do() {
        if Isa::detect().has(Level::Avx2) {
            // SAFETY: just detected.
            unsafe { check::<Eight>() };
        }
        if Isa::detect().has(Level::Avx512) {
            // SAFETY: just detected.
            unsafe { check::<Sixteen>() };
        }
    }
}
