//! Types with 32-element blocks for ARM: the bytes of [`crate::packed::block32`], where 16 of a line are four rows.
//!
//! Four rows are unpacked to eight registers of codes with a sign, which meet the dwords of a token's two registers of
//! activations. With more tokens they are unpacked once for all, and the tokens' sums stay in the first-level cache.

use std::arch::aarch64::*;

use super::super::dot::{Dot, halves, load};
use super::{FOUR, prefetch, store};
use crate::packed::block32::{Block32, PackedStep, RECORD, ROWS, layout};
use crate::packed::{Layout, check};

/// Four rows of a block: dword k of each in register k, their scales and their offsets.
struct Rows {
    codes: [int8x16_t; 8],
    dw: float32x4_t,
    mw: float32x4_t,
}

/// Rows `4 r .. 4 r + 4` of a block.
///
/// # Safety
/// The block is readable.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn unpack<B: Block32>(block: *const u8, r: usize) -> Rows {
    let mut codes = [vdupq_n_s8(0); 8];
    let nibble = vdupq_n_u8(15);
    for g in 0..B::LINES {
        // SAFETY: a packed block has `LINES` lines of 64 bytes.
        let line = unsafe { load(block.add(B::LINES_START + 64 * g + 4 * FOUR * r)) };
        if B::LINES == 8 {
            codes[g] = line;
        } else {
            let line = vreinterpretq_u8_s8(line);
            codes[g] = vreinterpretq_s8_u8(vandq_u8(line, nibble));
            codes[g + 4] = vreinterpretq_s8_u8(vshrq_n_u8::<4>(line));
        }
    }
    if let Some(table) = B::TABLE {
        // SAFETY: a table of 16 bytes.
        let table = unsafe { load(table.as_ptr()) };
        for c in &mut codes {
            *c = vqtbl1q_s8(table, vreinterpretq_u8_s8(*c));
        }
    }
    if B::FIFTH_AT.is_some() {
        // SAFETY: a packed block with fifth bits has 64 bytes of them.
        let fifth = unsafe { load(block.add(B::MASKS_START + 4 * FOUR * r)) };
        let fifth = vreinterpretq_u8_s8(fifth);
        for (g, c) in codes.iter_mut().enumerate() {
            let place = vshlq_u8(fifth, vdupq_n_s8(4 - g as i8));
            let bit = vandq_u8(place, vdupq_n_u8(16));
            *c = vorrq_s8(*c, vreinterpretq_s8_u8(bit));
        }
    }
    // SAFETY: a packed block has scales of 16 rows, and their offsets where there are any.
    let (dw, mw) = unsafe {
        let offsets = block.add(B::SCALE_BYTES * ROWS + 2 * FOUR * r);
        let mw = if B::OFFSETS > 0 {
            halves(offsets)
        } else {
            vdupq_n_f32(0.0)
        };
        (scales::<B>(block, r), mw)
    };
    Rows { codes, dw, mw }
}

/// The scales of rows `4 r .. 4 r + 4`.
///
/// # Safety
/// The block is readable.
#[inline]
#[target_feature(enable = "neon")]
unsafe fn scales<B: Block32>(block: *const u8, r: usize) -> float32x4_t {
    // SAFETY: a packed block starts with 16 scales.
    let at = unsafe { block.add(B::SCALE_BYTES * FOUR * r) };
    if B::SCALE_BYTES == 2 {
        // SAFETY: four half floats.
        return unsafe { halves(at) };
    }
    // Half of 2^(e - 127) as bits; the two smallest are denormal.
    // SAFETY: four exponents.
    let e = unsafe { at.cast::<u32>().read_unaligned() };
    let e = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(e)));
    let e = vmovl_u16(vget_low_u16(e));
    let normal = vshlq_n_u32::<23>(vsubq_u32(e, vdupq_n_u32(1)));
    let denormal = vshlq_u32(vdupq_n_u32(0x0020_0000), vreinterpretq_s32_u32(e));
    let small = vcltq_u32(e, vdupq_n_u32(2));
    vreinterpretq_f32_u32(vbslq_u32(small, denormal, normal))
}

/// The sums of four rows and one token with the terms of a block.
///
/// # Safety
/// The processor has the instructions of `D`; the record is readable.
#[inline(always)]
unsafe fn step<D: Dot, B: Block32>(
    sum: float32x4_t,
    rows: &Rows,
    record: *const u8,
) -> float32x4_t {
    // SAFETY: a record has 32 activations, a scale, a start and a sum.
    unsafe {
        let (low, high) = (load(record), load(record.add(16)));
        let dx = vdupq_n_f32(record.add(32).cast::<f32>().read_unaligned());
        let mut isum = vdupq_n_s32(record.add(36).cast::<i32>().read_unaligned());
        isum = D::lane::<0>(isum, rows.codes[0], low);
        isum = D::lane::<1>(isum, rows.codes[1], low);
        isum = D::lane::<2>(isum, rows.codes[2], low);
        isum = D::lane::<3>(isum, rows.codes[3], low);
        isum = D::lane::<0>(isum, rows.codes[4], high);
        isum = D::lane::<1>(isum, rows.codes[5], high);
        isum = D::lane::<2>(isum, rows.codes[6], high);
        isum = D::lane::<3>(isum, rows.codes[7], high);
        let isum = vcvtq_f32_s32(isum);
        let term = match B::STEP {
            PackedStep::SumFirst => vmulq_f32(vmulq_f32(isum, rows.dw), dx),
            PackedStep::ScaleFirst => vmulq_f32(vmulq_f32(rows.dw, dx), isum),
            PackedStep::PlusOffset => {
                let sx = vdupq_n_f32(record.add(40).cast::<f32>().read_unaligned());
                let product = vmulq_f32(vmulq_f32(rows.dw, dx), isum);
                vaddq_f32(product, vmulq_f32(rows.mw, sx))
            }
        };
        vaddq_f32(sum, term)
    }
}

/// One token.
///
/// # Safety
/// The processor has the instructions of `D`; `check` has compared the lengths.
#[inline(always)]
unsafe fn one<D: Dot, B: Block32>(group: &[u8], act: &[u8], ahead: usize, out: &mut [f32]) {
    // SAFETY: whole blocks and whole records.
    unsafe {
        let mut sums = [vdupq_n_f32(0.0); ROWS / FOUR];
        for (block, record) in group.chunks_exact(B::PACKED).zip(act.chunks_exact(RECORD)) {
            prefetch(block.as_ptr(), B::PACKED, ahead);
            for (r, sum) in sums.iter_mut().enumerate() {
                let rows = unpack::<B>(block.as_ptr(), r);
                *sum = step::<D, B>(*sum, &rows, record.as_ptr());
            }
        }
        for (&sum, out) in sums.iter().zip(out.chunks_exact_mut(FOUR)) {
            store(out, sum);
        }
    }
}

/// Several tokens, whose arranged rows are `stride` bytes apart.
///
/// # Safety
/// The processor has the instructions of `D`; `check` has compared the lengths.
#[inline(always)]
unsafe fn many<D: Dot, B: Block32>(group: &[u8], acts: &[u8], stride: usize, out: &mut [f32]) {
    out.fill(0.0);
    for (b, block) in group.chunks_exact(B::PACKED).enumerate() {
        for r in 0..ROWS / FOUR {
            // SAFETY: a whole block; a whole record and four floats of every token.
            unsafe {
                let rows = unpack::<B>(block.as_ptr(), r);
                for (act, out) in acts.chunks_exact(stride).zip(out.chunks_exact_mut(ROWS)) {
                    let record = &act[RECORD * b..][..RECORD];
                    let out = &mut out[FOUR * r..][..FOUR];
                    let sum = vld1q_f32(out.as_ptr());
                    store(out, step::<D, B>(sum, &rows, record.as_ptr()));
                }
            }
        }
    }
}

/// The layouts with the kernels of one instruction set.
macro_rules! layouts {
    ($module:ident, $dot:ident, $features:literal) => {
        pub(super) mod $module {
            use super::super::super::dot::$dot;
            use super::*;
            use crate::packed::block32::{Iq4Nl, Mxfp4, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};

            #[target_feature(enable = $features)]
            unsafe fn product<B: Block32>(
                group: &[u8],
                acts: &[u8],
                tokens: usize,
                ahead: usize,
                out: &mut [f32],
            ) {
                // SAFETY: this function has the features, and its caller has checked the lengths.
                unsafe {
                    match tokens {
                        1 => one::<$dot, B>(group, acts, ahead, out),
                        _ => many::<$dot, B>(group, acts, acts.len() / tokens.max(1), out),
                    }
                }
            }

            fn multiply<B: Block32>(
                group: &[u8],
                acts: &[u8],
                n: usize,
                tokens: usize,
                ahead: usize,
                out: &mut [f32],
            ) {
                check(
                    const { &layout::<B>("32-blocks x16", "", multiply::<B>) },
                    group,
                    acts,
                    n,
                    tokens,
                    out,
                );
                // SAFETY: `layouts` hands the layout out only for an `Isa` with these instructions; `check` has
                // compared all lengths.
                unsafe { product::<B>(group, acts, tokens, ahead, out) }
            }

            pub(in super::super) static Q8_0_X16: Layout =
                layout::<Q8_0>("q8_0 x16", "q8_0 bias 0", multiply::<Q8_0>);
            pub(in super::super) static Q4_0_X16: Layout =
                layout::<Q4_0>("q4_0 x16", "q8_0 bias 8", multiply::<Q4_0>);
            pub(in super::super) static Q4_1_X16: Layout =
                layout::<Q4_1>("q4_1 x16", "q8_1", multiply::<Q4_1>);
            pub(in super::super) static Q5_0_X16: Layout =
                layout::<Q5_0>("q5_0 x16", "q8_0 bias 16", multiply::<Q5_0>);
            pub(in super::super) static Q5_1_X16: Layout =
                layout::<Q5_1>("q5_1 x16", "q8_1", multiply::<Q5_1>);
            pub(in super::super) static IQ4_NL_X16: Layout =
                layout::<Iq4Nl>("iq4_nl x16", "q8_0 bias 0", multiply::<Iq4Nl>);
            pub(in super::super) static MXFP4_X16: Layout =
                layout::<Mxfp4>("mxfp4 x16", "q8_0 bias 12", multiply::<Mxfp4>);
        }
    };
}

layouts!(neon, Neon, "neon");
layouts!(dotprod, Dotprod, "neon,dotprod");
