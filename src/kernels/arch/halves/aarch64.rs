//! The lanes of [`crate::shared::halves`] in vectors, and conversions.

use std::arch::aarch64::*;
use std::arch::asm;

use crate::arch::doubles::{Doubles, NEON_ROWS, widening};
use crate::arch::functions::functions;
use crate::shared::halves::{F16Encoding, LINE, Line, SCALE};
use crate::{Isa, Level};

/// Four vectors of two.
pub struct Neon;

/// Vectors of a line.
const VECTORS: usize = 4;

impl Doubles for Neon {
    const ROWS: usize = NEON_ROWS;
    type Words = [uint64x2_t; VECTORS];
    type Sums = [float64x2_t; VECTORS];

    #[inline(always)]
    fn lines(rows: usize) -> usize {
        // Eight sums hide the latency of the additions, and more rows leave no room for two lines of words.
        match rows {
            1 | 2 => 2,
            _ => 1,
        }
    }

    functions! { [#[inline] #[target_feature(enable = "neon")]]
        zero() -> Self::Sums { [vdupq_n_f64(0.0); VECTORS] }
        words(p: *const Line) -> Self::Words {
            let p = p.cast::<u8>();
            // Bytes are read from any address.
            [0, 16, 32, 48].map(|at| vreinterpretq_u64_u8(vld1q_u8(p.add(at))))
        }
        no_words() -> Self::Words { [vdupq_n_u64(0); VECTORS] }
        prefetch(p: *const Line) -> () { prefetch(p.cast()) }
        field[const K: usize, const BRAIN: bool](words: Self::Words) -> Self::Sums {
            let mask = vdupq_n_u64(widening(BRAIN).1);
            words.map(|x| {
                let top = vreinterpretq_s64_u64(match K {
                    0 => vshlq_n_u64::<48>(x),
                    1 => vshlq_n_u64::<32>(x),
                    2 => vshlq_n_u64::<16>(x),
                    _ => x,
                });
                // The shift fills with the sign, of which the mask leaves one bit.
                let shifted = if BRAIN { vshrq_n_s64::<3>(top) } else { vshrq_n_s64::<6>(top) };
                vreinterpretq_f64_u64(vandq_u64(vreinterpretq_u64_s64(shifted), mask))
            })
        }
        add(acc: Self::Sums, w: Self::Sums, c: *const f64) -> Self::Sums {
            let c = vdupq_n_f64(*c);
            std::array::from_fn(|i| vfmaq_f64(acc[i], w[i], c))
        }
        load(p: *const f64) -> Self::Sums { std::array::from_fn(|i| vld1q_f64(p.add(2 * i))) }
        store(p: *mut f64, v: Self::Sums) -> () {
            for (i, v) in v.into_iter().enumerate() {
                vst1q_f64(p.add(2 * i), v)
            }
        }
        store_f32(p: *mut f32, v: Self::Sums) -> () {
            for (i, v) in v.as_chunks::<2>().0.iter().enumerate() {
                vst1q_f32(p.add(4 * i), vcvt_high_f32_f64(vcvt_f32_f64(v[0]), v[1]))
            }
        }
    }
}

/// Four values rounded to half floats. A NaN keeps its payload, which is not what the definition does.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn narrow_numbers(x: float32x4_t) -> uint16x4_t {
    let halves: uint16x4_t;
    // SAFETY: reads and writes the named registers and nothing else. The intrinsic needs a newer compiler.
    unsafe {
        asm!(
            "fcvtn {halves:v}.4h, {x:v}.4s",
            halves = lateout(vreg) halves,
            x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    halves
}

/// Four values rounded to half floats; the only NaN are those of the definition, which keeps nothing of them but the
/// sign.
#[inline]
#[target_feature(enable = "neon")]
fn narrow(x: float32x4_t) -> uint16x4_t {
    let halves = narrow_numbers(x);
    let number = vmovn_u32(vceqq_f32(x, x));
    let sign = vand_u16(halves, vdup_n_u16(0x8000));
    vbsl_u16(number, halves, vorr_u16(sign, vdup_n_u16(0x7E00)))
}

/// The first values of [`crate::shared::halves::coefficients`], and how many they are.
pub fn coefficients(isa: Isa, x: &[f32], out: &mut [f64]) -> usize {
    // SAFETY: `isa` proves that the processor has NEON, which every instruction set here includes but the portable one.
    if isa.has(Level::Neon) { unsafe { coefficients_neon(x, out) } } else { 0 }
}

/// Eight values as half floats; `None` where there is no instruction for it.
#[inline]
pub fn round(isa: Isa, x: &[f32; LINE]) -> Option<[u16; LINE]> {
    // SAFETY: `isa` proves that the processor has NEON, which every instruction set here includes but the portable one.
    isa.has(Level::Neon).then(|| unsafe { round_neon(x) })
}

/// [`crate::shared::halves::put_lane`] has no vectors of its own on this architecture.
pub fn put_lane(_: Isa, _: &[f32], _: &mut [Line], _: usize, _: F16Encoding) -> usize {
    0
}

/// [`crate::shared::halves::put_step`] has no vectors of its own on this architecture.
pub fn put_eight(_: Isa, _: &[f32; LINE], _: &mut Line, _: u32, _: u64, _: F16Encoding) -> bool {
    false
}

/// Eight half floats.
#[target_feature(enable = "neon")]
fn round_neon(x: &[f32; LINE]) -> [u16; LINE] {
    let mut halves = [0; LINE];
    for (x, halves) in x.as_chunks::<4>().0.iter().zip(halves.as_chunks_mut::<4>().0) {
        // SAFETY: four values on both sides.
        unsafe { vst1_u16(halves.as_mut_ptr(), narrow(vld1q_f32(x.as_ptr()))) }
    }
    halves
}

/// [`crate::shared::halves::coefficients`] of whole fours; how many values that were.
#[target_feature(enable = "neon")]
fn coefficients_neon(x: &[f32], out: &mut [f64]) -> usize {
    let (x, out) = (x.as_chunks::<4>().0, out.as_chunks_mut::<4>().0);
    for (x, out) in x.iter().zip(&mut *out) {
        // SAFETY: four values on both sides.
        unsafe {
            let x = widen(narrow(vld1q_f32(x.as_ptr())));
            let low = vmulq_n_f64(vcvt_f64_f32(vget_low_f32(x)), SCALE);
            vst1q_f64(out.as_mut_ptr(), low);
            vst1q_f64(out.as_mut_ptr().add(2), vmulq_n_f64(vcvt_high_f64_f32(x), SCALE));
        }
    }
    4 * x.len().min(out.len())
}

/// Four half floats as `f32`. A NaN becomes a quiet one.
#[inline]
#[target_feature(enable = "neon")]
pub(crate) fn widen(halves: uint16x4_t) -> float32x4_t {
    let floats;
    // SAFETY: reads and writes the named registers and nothing else. The intrinsic needs a newer compiler.
    unsafe {
        asm!(
            "fcvtl {floats:v}.4s, {halves:v}.4h",
            floats = lateout(vreg) floats,
            halves = in(vreg) halves,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    floats
}

/// Prefetches the cache line at `p`, which need not be there.
#[inline(always)]
pub(crate) fn prefetch(p: *const u8) {
    // SAFETY: a hint, which takes any address and has no effect where there is no memory. The intrinsic is not stable.
    unsafe {
        asm!("prfm pldl1keep, [{p}]", p = in(reg) p, options(readonly, nostack, preserves_flags));
    }
}
