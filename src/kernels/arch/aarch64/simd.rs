//! The float vectors of [`crate::simd`] on NEON.

use std::arch::aarch64::*;
use std::array::from_fn;
use std::ops::{Add, BitAnd, BitOr, Div, Mul, Neg, Sub};

use crate::simd::{LANES, Mask, Simd, Vector};

/// Floats of a register.
const FOUR: usize = 4;

/// The number that [`Vector::nearest`] adds; it then takes the sum apart, as `num::nearest_int` does.
const SHIFT: f32 = 12_582_912.0;
const MANTISSA: u32 = 0x007F_FFFF;
const MIDDLE: i32 = 0x0040_0000;

/// The proof that the processor has NEON.
#[derive(Clone, Copy)]
pub(super) struct Neon(());

impl Neon {
    /// Where the instruction set is enabled, it is there.
    #[inline]
    #[target_feature(enable = "neon")]
    pub(super) fn here() -> Neon {
        Neon(())
    }
}

/// Sixteen floats in four registers. There are none without a [`Neon`]: every vector is made from one.
#[derive(Clone, Copy)]
pub(super) struct Fours([float32x4_t; FOUR]);

/// Truth values of [`Fours`]: all bits of a lane or none.
#[derive(Clone, Copy)]
pub(super) struct FourMasks([uint32x4_t; FOUR]);

/// An expression of intrinsics on all quarters.
macro_rules! quarters {
    ($($v:ident = $of:expr),+; $body:expr) => {
        from_fn(|i| {
            $(let $v = $of.0[i];)+
            // SAFETY: NEON is there, for the operands were made from a `Neon`, which is the proof of it.
            unsafe { $body }
        })
    };
}

/// Methods of [`Fours`], an expression of intrinsics on a quarter of each operand.
macro_rules! fours {
    ($($name:ident($a:ident $(, $b:ident)?) -> $out:ident $body:block)*) => { $(
        #[inline(always)]
        fn $name(self $(, $b: Fours)?) -> $out {
            $out(quarters!($a = self $(, $b = $b)?; $body))
        }
    )* };
}

macro_rules! operators {
    ($($trait:ident $method:ident $type:ident $intrinsic:ident;)*) => { $(
        impl $trait for $type {
            type Output = $type;
            #[inline(always)]
            fn $method(self, o: $type) -> $type {
                $type(quarters!(a = self, b = o; $intrinsic(a, b)))
            }
        }
    )* };
}

operators! {
    Add add Fours vaddq_f32; Sub sub Fours vsubq_f32; Mul mul Fours vmulq_f32; Div div Fours vdivq_f32;
    BitAnd bitand FourMasks vandq_u32; BitOr bitor FourMasks vorrq_u32;
}

impl Neg for Fours {
    type Output = Fours;
    fours! { neg(a) -> Fours { vnegq_f32(a) } }
}

/// `num::nearest_int` of every lane.
#[inline]
#[target_feature(enable = "neon")]
fn nearest_int(v: float32x4_t) -> int32x4_t {
    let bits = vreinterpretq_u32_f32(vaddq_f32(v, vdupq_n_f32(SHIFT)));
    let mantissa = vreinterpretq_s32_u32(vandq_u32(bits, vdupq_n_u32(MANTISSA)));
    vsubq_s32(mantissa, vdupq_n_s32(MIDDLE))
}

/// The low bytes of sixteen numbers.
#[inline]
#[target_feature(enable = "neon")]
fn low_bytes(v: [uint32x4_t; FOUR]) -> uint8x16_t {
    let words = v.map(|v| vreinterpretq_u16_u32(v));
    let [low, high] = [vuzp1q_u16(words[0], words[1]), vuzp1q_u16(words[2], words[3])];
    vuzp1q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high))
}

impl Vector for Fours {
    type Mask = FourMasks;

    #[inline(always)]
    fn to_array(self) -> [f32; LANES] {
        let mut lanes = [0.0; LANES];
        for (to, four) in lanes.as_chunks_mut::<FOUR>().0.iter_mut().zip(self.0) {
            // SAFETY: NEON is there, for `self` was made from a `Neon`; four floats, no alignment is asked for.
            unsafe { vst1q_f32(to.as_mut_ptr(), four) };
        }
        lanes
    }
    #[inline(always)]
    fn to_codes(self) -> [u8; LANES] {
        let mut codes = [0; LANES];
        let numbers = quarters!(a = self; vcvtq_u32_f32(a));
        // SAFETY: NEON is there, for `self` was made from a `Neon`; sixteen bytes, no alignment is asked for.
        unsafe { vst1q_u8(codes.as_mut_ptr(), low_bytes(numbers)) };
        codes
    }
    #[inline(always)]
    fn lowest(self) -> (usize, f32) {
        let [a, b, c, d] = self.0;
        // SAFETY: NEON is there, for `self` was made from a `Neon`.
        let lowest = unsafe {
            // Of a quiet NaN and a number the instruction takes the number; operations give no NaN that is not quiet.
            let four = vminnmq_f32(vminnmq_f32(a, b), vminnmq_f32(c, d));
            vminvq_f32(vminnmq_f32(four, vdupq_n_f32(f32::MAX)))
        };
        let equal = quarters!(a = self; vceqq_f32(a, vdupq_n_f32(lowest)));
        // SAFETY: NEON is there, for `self` was made from a `Neon`.
        unsafe {
            // Half a byte for each lane.
            let equal = low_bytes(equal);
            let equal = vshrn_n_u16::<4>(vreinterpretq_u16_u8(equal));
            let equal = vget_lane_u64::<0>(vreinterpret_u64_u8(equal));
            (equal.trailing_zeros() as usize / 4 % LANES, lowest)
        }
    }
    #[inline(always)]
    fn or_below(self, o: Fours) -> Fours {
        // `FMIN` has another answer for zeros of two signs and for NaN.
        Fours(quarters!(a = self, b = o; vbslq_f32(vcltq_f32(a, b), a, b)))
    }
    #[inline(always)]
    fn select(mask: FourMasks, a: Fours, b: Fours) -> Fours {
        Fours(quarters!(m = mask, a = a, b = b; vbslq_f32(m, a, b)))
    }

    fours! {
        sqrt(a) -> Fours { vsqrtq_f32(a) }
        abs(a) -> Fours { vabsq_f32(a) }
        or_above(a, b) -> Fours { vbslq_f32(vcgtq_f32(a, b), a, b) }
        nearest(a) -> Fours { vcvtq_f32_s32(nearest_int(a)) }
        nearest_u8(a) -> Fours { vcvtq_f32_s32(vandq_s32(nearest_int(a), vdupq_n_s32(255))) }
        round(a) -> Fours { vrndnq_f32(a) }
        gt(a, b) -> FourMasks { vcgtq_f32(a, b) }
        ge(a, b) -> FourMasks { vcgeq_f32(a, b) }
        eq(a, b) -> FourMasks { vceqq_f32(a, b) }
        ne(a, b) -> FourMasks { vmvnq_u32(vceqq_f32(a, b)) }
    }
}

impl Mask for FourMasks {
    #[inline(always)]
    fn any(self) -> bool {
        let [a, b, c, d] = self.0;
        // SAFETY: NEON is there, for `self` was made from a `Neon`.
        unsafe { vmaxvq_u32(vorrq_u32(vorrq_u32(a, b), vorrq_u32(c, d))) != 0 }
    }
    #[inline(always)]
    fn all(self) -> bool {
        let [a, b, c, d] = self.0;
        // SAFETY: NEON is there, for `self` was made from a `Neon`.
        unsafe { vminvq_u32(vandq_u32(vandq_u32(a, b), vandq_u32(c, d))) != 0 }
    }
}

/// Four rows of four to columns.
#[inline]
#[target_feature(enable = "neon")]
fn transpose(rows: [float32x4_t; FOUR]) -> [float32x4_t; FOUR] {
    let pairs = |a, b| [vtrn1q_f32(a, b), vtrn2q_f32(a, b)].map(|v| vreinterpretq_f64_f32(v));
    let ([a, b], [c, d]) = (pairs(rows[0], rows[1]), pairs(rows[2], rows[3]));
    [vtrn1q_f64(a, c), vtrn1q_f64(b, d), vtrn2q_f64(a, c), vtrn2q_f64(b, d)].map(|v| vreinterpretq_f32_f64(v))
}

impl Simd for Neon {
    type F = Fours;
    const IS_TOTAL: bool = false;
    const AT_ONCE: usize = 1;

    #[inline(always)]
    fn splat(self, v: f32) -> Fours {
        // SAFETY: `self` is the proof that NEON is there.
        Fours([unsafe { vdupq_n_f32(v) }; FOUR])
    }

    #[inline(always)]
    fn load(self, v: &[f32; LANES]) -> Fours {
        let fours = v.as_chunks::<FOUR>().0;
        // SAFETY: `self` is the proof that NEON is there; four floats each, no alignment is asked for.
        Fours(from_fn(|i| unsafe { vld1q_f32(fours[i].as_ptr()) }))
    }

    #[inline(always)]
    fn columns(self, rows: [&[f32; 8]; LANES]) -> [Fours; 8] {
        let mut columns = [self.splat(0.0); 8];
        for (quarter, rows) in rows.as_chunks::<FOUR>().0.iter().enumerate() {
            for half in 0..2 {
                // SAFETY: `self` is the proof that NEON is there; four floats from the first or the fifth of eight on,
                // no alignment is asked for.
                let four = unsafe { transpose(rows.map(|row| vld1q_f32(row.as_ptr().add(FOUR * half)))) };
                for (column, four) in columns[FOUR * half..].iter_mut().zip(four) {
                    column.0[quarter] = four;
                }
            }
        }
        columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::tests::check;

    #[test]
    fn lanes_do_what_scalars_do() {
        #[target_feature(enable = "neon")]
        fn neon() {
            check(Neon::here());
        }
        // SAFETY: every processor of this architecture that runs a program with a standard library has NEON.
        unsafe { neon() }
    }
}
