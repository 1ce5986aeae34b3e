//! The float vectors of [`crate::simd`] on AVX2 and on AVX-512.

use std::arch::x86_64::*;
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Sub};

use crate::simd::{LANES, Mask, Simd, Vector};

/// The number that [`Vector::nearest`] adds; it then takes the sum apart, as `num::nearest_int` does.
const SHIFT: f32 = 12_582_912.0;
const MANTISSA: i32 = 0x007F_FFFF;
const MIDDLE: i32 = 0x0040_0000;

/// The proof that the processor has AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

/// The proof that the processor has AVX-512 F, BW, VL, DQ and VNNI, and AVX2 with it.
#[derive(Clone, Copy)]
pub(super) struct Avx512(());

impl Avx2 {
    /// Where the instruction set is enabled, it is there.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) fn here() -> Avx2 {
        Avx2(())
    }
}

impl Avx512 {
    /// Where the instruction set is enabled, it is there.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
    pub(super) fn here() -> Avx512 {
        Avx512(())
    }
}

/// Sixteen floats in two registers. There are none without an [`Avx2`]: every vector is made from one.
#[derive(Clone, Copy)]
pub(super) struct Eights([__m256; 2]);

/// Truth values of [`Eights`]: all bits of a lane or none.
#[derive(Clone, Copy)]
pub(super) struct EightMasks([__m256; 2]);

/// Sixteen floats in a register. There are none without an [`Avx512`]: every vector is made from one.
#[derive(Clone, Copy)]
pub(super) struct Sixteen(__m512);

/// Truth values of [`Sixteen`].
#[derive(Clone, Copy)]
pub(super) struct SixteenMask(__mmask16);

/// An expression of intrinsics on both halves.
macro_rules! halves {
    ($($v:ident = $of:expr),+; $body:expr) => {
        // SAFETY: AVX2 is there, for the operands were made from an `Avx2`, which is the proof of it.
        unsafe {[
            { $(let $v = $of.0[0];)+ $body },
            { $(let $v = $of.0[1];)+ $body },
        ]}
    };
}

/// An expression of intrinsics on whole vectors.
macro_rules! whole {
    ($body:expr) => {
        // SAFETY: AVX-512 is there, for the operands were made from an `Avx512`, which is the proof of it.
        unsafe { $body }
    };
}

/// Methods of [`Eights`], an expression of intrinsics on a half of each operand.
macro_rules! eights {
    ($($name:ident($a:ident $(, $b:ident)?) -> $out:ident $body:block)*) => { $(
        #[inline(always)]
        fn $name(self $(, $b: Eights)?) -> $out {
            $out(halves!($a = self $(, $b = $b)?; $body))
        }
    )* };
}

/// Methods of [`Sixteen`], an expression of intrinsics on whole operands.
macro_rules! sixteens {
    ($($name:ident($a:ident $(, $b:ident)?) -> $out:ident $body:block)*) => { $(
        #[inline(always)]
        fn $name(self $(, $b: Sixteen)?) -> $out {
            let $a = self.0;
            $(let $b = $b.0;)?
            $out(whole!($body))
        }
    )* };
}

macro_rules! operators {
    ($($trait:ident $method:ident $halves:ident $eight:ident $(; $sixteen:ident)?)*) => { $(
        impl $trait for $halves {
            type Output = $halves;
            #[inline(always)]
            fn $method(self, o: $halves) -> $halves {
                $halves(halves!(a = self, b = o; $eight(a, b)))
            }
        }

        $(
            impl $trait for Sixteen {
                type Output = Sixteen;
                #[inline(always)]
                fn $method(self, o: Sixteen) -> Sixteen {
                    Sixteen(whole!($sixteen(self.0, o.0)))
                }
            }
        )?
    )* };
}

operators! {
    Add add Eights _mm256_add_ps; _mm512_add_ps
    Sub sub Eights _mm256_sub_ps; _mm512_sub_ps
    Mul mul Eights _mm256_mul_ps; _mm512_mul_ps
    Div div Eights _mm256_div_ps; _mm512_div_ps
    BitAnd bitand EightMasks _mm256_and_ps
    BitOr bitor EightMasks _mm256_or_ps
}

impl Neg for Eights {
    type Output = Eights;
    eights! { neg(a) -> Eights { _mm256_xor_ps(_mm256_set1_ps(-0.0), a) } }
}

impl Neg for Sixteen {
    type Output = Sixteen;
    sixteens! { neg(a) -> Sixteen { _mm512_xor_ps(_mm512_set1_ps(-0.0), a) } }
}

/// `num::nearest_int` of every lane.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn nearest_int(v: __m256) -> __m256i {
    let bits = _mm256_castps_si256(_mm256_add_ps(v, _mm256_set1_ps(SHIFT)));
    let mantissa = _mm256_and_si256(bits, _mm256_set1_epi32(MANTISSA));
    _mm256_sub_epi32(mantissa, _mm256_set1_epi32(MIDDLE))
}

/// The same on AVX-512.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn nearest_int_16(v: __m512) -> __m512i {
    let bits = _mm512_castps_si512(_mm512_add_ps(v, _mm512_set1_ps(SHIFT)));
    let mantissa = _mm512_and_si512(bits, _mm512_set1_epi32(MANTISSA));
    _mm512_sub_epi32(mantissa, _mm512_set1_epi32(MIDDLE))
}

const TO_NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

impl Vector for Eights {
    type Mask = EightMasks;

    #[inline(always)]
    fn to_array(self) -> [f32; LANES] {
        let mut lanes = [0.0; LANES];
        for (to, half) in lanes.as_chunks_mut::<8>().0.iter_mut().zip(self.0) {
            // SAFETY: AVX2 is there, for `self` was made from an `Avx2`; eight floats, no alignment is asked for.
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), half) };
        }
        lanes
    }
    #[inline(always)]
    fn to_codes(self) -> [u8; LANES] {
        let mut codes = [0; LANES];
        let [low, high] = halves!(a = self; _mm256_cvttps_epi32(a));
        // SAFETY: AVX2 is there, for `self` was made from an `Avx2`; sixteen bytes, no alignment is asked for.
        unsafe {
            // Dwords 0-3, 8-11, 4-7, 12-15, which are brought in order before they become bytes.
            let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(low, high));
            let [low, high] = [_mm256_castsi256_si128(words), _mm256_extracti128_si256::<1>(words)];
            _mm_storeu_si128(codes.as_mut_ptr().cast(), _mm_packus_epi16(low, high));
        }
        codes
    }
    #[inline(always)]
    fn lowest(self) -> (usize, f32) {
        // SAFETY: AVX2 is there, for `self` was made from an `Avx2`.
        unsafe {
            // Of a NaN and another number the instruction takes the second.
            let most = _mm256_set1_ps(f32::MAX);
            let [low, high] = self.0;
            let eight = _mm256_min_ps(low, _mm256_min_ps(high, most));
            let four = _mm256_min_ps(eight, _mm256_permute2f128_ps::<0x01>(eight, eight));
            let two = _mm256_min_ps(four, _mm256_permute_ps::<0b01_00_11_10>(four));
            let one = _mm256_min_ps(two, _mm256_permute_ps::<0b10_11_00_01>(two));
            let equal = |half| _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_EQ_OQ>(half, one));
            let lane = (equal(low) | equal(high) << 8).trailing_zeros() as usize;
            (lane % LANES, _mm256_cvtss_f32(one))
        }
    }
    #[inline(always)]
    fn select(mask: EightMasks, a: Eights, b: Eights) -> Eights {
        Eights(halves!(m = mask, a = a, b = b; _mm256_blendv_ps(b, a, m)))
    }

    eights! {
        sqrt(a) -> Eights { _mm256_sqrt_ps(a) }
        abs(a) -> Eights { _mm256_andnot_ps(_mm256_set1_ps(-0.0), a) }
        or_below(a, b) -> Eights { _mm256_min_ps(a, b) }
        or_above(a, b) -> Eights { _mm256_max_ps(a, b) }
        nearest(a) -> Eights { _mm256_cvtepi32_ps(nearest_int(a)) }
        nearest_u8(a) -> Eights { _mm256_cvtepi32_ps(_mm256_and_si256(nearest_int(a), _mm256_set1_epi32(255))) }
        round(a) -> Eights { _mm256_round_ps::<TO_NEAREST>(a) }
        gt(a, b) -> EightMasks { _mm256_cmp_ps::<_CMP_GT_OQ>(a, b) }
        ge(a, b) -> EightMasks { _mm256_cmp_ps::<_CMP_GE_OQ>(a, b) }
        eq(a, b) -> EightMasks { _mm256_cmp_ps::<_CMP_EQ_OQ>(a, b) }
        ne(a, b) -> EightMasks { _mm256_cmp_ps::<_CMP_NEQ_UQ>(a, b) }
    }
}

impl Mask for EightMasks {
    #[inline(always)]
    fn any(self) -> bool {
        let [low, high] = halves!(a = self; _mm256_movemask_ps(a));
        low | high != 0
    }
    #[inline(always)]
    fn all(self) -> bool {
        let [low, high] = halves!(a = self; _mm256_movemask_ps(a));
        low & high == 0xFF
    }
}

impl Vector for Sixteen {
    type Mask = SixteenMask;

    #[inline(always)]
    fn to_array(self) -> [f32; LANES] {
        let mut lanes = [0.0; LANES];
        // SAFETY: AVX-512 is there, for `self` was made from an `Avx512`; sixteen floats, no alignment is asked for.
        unsafe { _mm512_storeu_ps(lanes.as_mut_ptr(), self.0) };
        lanes
    }
    #[inline(always)]
    fn to_codes(self) -> [u8; LANES] {
        let mut codes = [0; LANES];
        // SAFETY: AVX-512 is there, for `self` was made from an `Avx512`; sixteen bytes, no alignment is asked for.
        unsafe {
            let bytes = _mm512_cvtepi32_epi8(_mm512_cvttps_epi32(self.0));
            _mm_storeu_si128(codes.as_mut_ptr().cast(), bytes);
        }
        codes
    }
    #[inline(always)]
    fn lowest(self) -> (usize, f32) {
        // SAFETY: AVX-512 is there, for `self` was made from an `Avx512`.
        unsafe {
            // Of a NaN and another number the instruction takes the second.
            let all = _mm512_min_ps(self.0, _mm512_set1_ps(f32::MAX));
            let eight = _mm512_min_ps(all, _mm512_shuffle_f32x4::<0b01_00_11_10>(all, all));
            let four = _mm512_min_ps(eight, _mm512_shuffle_f32x4::<0b10_11_00_01>(eight, eight));
            let two = _mm512_min_ps(four, _mm512_permute_ps::<0b01_00_11_10>(four));
            let one = _mm512_min_ps(two, _mm512_permute_ps::<0b10_11_00_01>(two));
            let equal = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(self.0, one);
            (equal.trailing_zeros() as usize % LANES, _mm512_cvtss_f32(one))
        }
    }
    #[inline(always)]
    fn select(mask: SixteenMask, a: Sixteen, b: Sixteen) -> Sixteen {
        Sixteen(whole!(_mm512_mask_blend_ps(mask.0, b.0, a.0)))
    }

    sixteens! {
        sqrt(a) -> Sixteen { _mm512_sqrt_ps(a) }
        abs(a) -> Sixteen { _mm512_andnot_ps(_mm512_set1_ps(-0.0), a) }
        or_below(a, b) -> Sixteen { _mm512_min_ps(a, b) }
        or_above(a, b) -> Sixteen { _mm512_max_ps(a, b) }
        nearest(a) -> Sixteen { _mm512_cvtepi32_ps(nearest_int_16(a)) }
        nearest_u8(a) -> Sixteen {
            let byte = _mm512_and_si512(nearest_int_16(a), _mm512_set1_epi32(255));
            _mm512_cvtepi32_ps(byte)
        }
        round(a) -> Sixteen { _mm512_roundscale_ps::<TO_NEAREST>(a) }
        gt(a, b) -> SixteenMask { _mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b) }
        ge(a, b) -> SixteenMask { _mm512_cmp_ps_mask::<_CMP_GE_OQ>(a, b) }
        eq(a, b) -> SixteenMask { _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b) }
        ne(a, b) -> SixteenMask { _mm512_cmp_ps_mask::<_CMP_NEQ_UQ>(a, b) }
    }
}

impl BitAnd for SixteenMask {
    type Output = SixteenMask;
    #[inline(always)]
    fn bitand(self, o: SixteenMask) -> SixteenMask {
        SixteenMask(self.0 & o.0)
    }
}

impl BitOr for SixteenMask {
    type Output = SixteenMask;
    #[inline(always)]
    fn bitor(self, o: SixteenMask) -> SixteenMask {
        SixteenMask(self.0 | o.0)
    }
}

impl Mask for SixteenMask {
    #[inline(always)]
    fn any(self) -> bool {
        self.0 != 0
    }
    #[inline(always)]
    fn all(self) -> bool {
        self.0 == !0
    }
}

/// Eight rows of eight to columns.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn transpose(rows: &[&[f32; 8]; 8]) -> [__m256; 8] {
    let mut r = [_mm256_setzero_ps(); 8];
    for (r, row) in r.iter_mut().zip(rows) {
        // SAFETY: eight floats; no alignment is asked for.
        *r = unsafe { _mm256_loadu_ps(row.as_ptr()) };
    }
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

impl Simd for Avx2 {
    type F = Eights;
    const IS_TOTAL: bool = false;
    const AT_ONCE: usize = 1;

    #[inline(always)]
    fn splat(self, v: f32) -> Eights {
        // SAFETY: `self` is the proof that AVX2 is there.
        Eights([unsafe { _mm256_set1_ps(v) }; 2])
    }

    #[inline(always)]
    fn load(self, v: &[f32; LANES]) -> Eights {
        let [low, high] = [&v[..8], &v[8..]];
        // SAFETY: `self` is the proof that AVX2 is there; eight floats each, no alignment is asked for.
        Eights(unsafe { [_mm256_loadu_ps(low.as_ptr()), _mm256_loadu_ps(high.as_ptr())] })
    }

    #[inline(always)]
    fn columns(self, rows: [&[f32; 8]; LANES]) -> [Eights; 8] {
        let [low, high] = rows.as_chunks().0 else {
            unreachable!("sixteen rows are two times eight");
        };
        // SAFETY: `self` is the proof that AVX2 is there.
        let (low, high) = unsafe { (transpose(low), transpose(high)) };
        let mut columns = [Eights([low[0]; 2]); 8];
        for i in 0..8 {
            columns[i] = Eights([low[i], high[i]]);
        }
        columns
    }
}

impl Simd for Avx512 {
    type F = Sixteen;
    const IS_TOTAL: bool = false;
    const AT_ONCE: usize = 2;

    #[inline(always)]
    fn splat(self, v: f32) -> Sixteen {
        // SAFETY: `self` is the proof that AVX-512 is there.
        Sixteen(unsafe { _mm512_set1_ps(v) })
    }

    #[inline(always)]
    fn load(self, v: &[f32; LANES]) -> Sixteen {
        // SAFETY: `self` is the proof that AVX-512 is there; sixteen floats, no alignment is asked for.
        Sixteen(unsafe { _mm512_loadu_ps(v.as_ptr()) })
    }

    #[inline(always)]
    fn columns(self, rows: [&[f32; 8]; LANES]) -> [Sixteen; 8] {
        let [low, high] = rows.as_chunks().0 else {
            unreachable!("sixteen rows are two times eight");
        };
        // SAFETY: `self` is the proof that AVX-512 is there, and with it AVX2.
        let (low, high) = unsafe { (transpose(low), transpose(high)) };
        let mut columns = [self.splat(0.0); 8];
        for i in 0..8 {
            // SAFETY: `self` is the proof that AVX-512 is there.
            columns[i] = Sixteen(unsafe { _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low[i]), high[i]) });
        }
        columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;
    use crate::simd::tests::check;
    use crate::testing::isas;

    #[test]
    fn lanes_do_what_scalars_do() {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn avx2() {
            check(Avx2::here());
        }
        #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
        fn avx512() {
            check(Avx512::here());
        }
        for isa in isas() {
            match isa.vectors() {
                // SAFETY: an `Isa` of this level is the proof that the processor has AVX2, FMA and F16C.
                Level::Avx2 => unsafe { avx2() },
                // SAFETY: an `Isa` of this level is the proof that the processor has AVX-512, and AVX2 with it.
                Level::Avx512 => unsafe { avx512() },
                _ => {}
            }
        }
    }
}
