//! Types with 32-element blocks for ARM: the bytes of [`crate::shared::packed::block32`], where 16 of a line are four rows.
//!
//! Four rows are unpacked to eight registers of codes with a sign, which meet the dwords of a token's two registers of
//! activations. More tokens than one are taken in pairs by [`super::block32_tile`].

use std::arch::aarch64::*;

use super::super::dot::{Dot, load};
use super::block32_parts::{offsets, scales, unpack};
use super::block32_tile::{PAIRS, tile};
use super::pair;
use super::{FOUR, prefetch, store};
use crate::proof::{self, Dotprod, Neon, Proof};
use crate::shared::packed::block32::{self, Block32, PackedStep, RECORD, ROWS, act_bytes, layouts_of_block32};
use crate::shared::packed::{Call, Layout};

/// The sums of rows `4 r .. 4 r + 4` and one token with the terms of a block.
///
/// # Safety
/// The processor has the instructions of `D`; the block and the record are readable.
#[inline(always)]
unsafe fn step<D: Dot, B: Block32>(sum: float32x4_t, block: *const u8, r: usize, record: *const u8) -> float32x4_t {
    // SAFETY: a record has 32 activations, a scale, a start and a sum.
    unsafe {
        let codes = unpack::<B>(block, r);
        let dw = scales::<B>(block, r);
        let (low, high) = (load(record), load(record.add(16)));
        let dx = vdupq_n_f32(record.add(32).cast::<f32>().read_unaligned());
        let mut isum = vdupq_n_s32(record.add(36).cast::<i32>().read_unaligned());
        isum = D::lane::<0>(isum, codes[0], low);
        isum = D::lane::<1>(isum, codes[1], low);
        isum = D::lane::<2>(isum, codes[2], low);
        isum = D::lane::<3>(isum, codes[3], low);
        isum = D::lane::<0>(isum, codes[4], high);
        isum = D::lane::<1>(isum, codes[5], high);
        isum = D::lane::<2>(isum, codes[6], high);
        isum = D::lane::<3>(isum, codes[7], high);
        let isum = vcvtq_f32_s32(isum);
        let term = match B::STEP {
            PackedStep::SumFirst => vmulq_f32(vmulq_f32(isum, dw), dx),
            PackedStep::ScaleFirst => vmulq_f32(vmulq_f32(dw, dx), isum),
            PackedStep::PlusOffset => {
                let sx = vdupq_n_f32(record.add(40).cast::<f32>().read_unaligned());
                let product = vmulq_f32(vmulq_f32(dw, dx), isum);
                vaddq_f32(product, vmulq_f32(offsets::<B>(block, r), sx))
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
                *sum = step::<D, B>(*sum, block.as_ptr(), r, record.as_ptr());
            }
        }
        for (&sum, out) in sums.iter().zip(out.chunks_exact_mut(FOUR)) {
            store(out, sum);
        }
    }
}

/// The layouts with the kernels of one instruction set. Up to `$few` tokens are taken one after another where codes are
/// bytes, which need no unpacking: that takes fewer instructions than a tile.
macro_rules! layouts {
    ($module:ident, $proof:ident, $dot:ident, $pair:ty, $few:literal, $features:literal) => {
        pub(super) mod $module {
            use super::*;

            /// # Safety
            /// The processor has the features; the lengths are those that [`Call::check`] compares.
            #[target_feature(enable = $features)]
            unsafe fn product<B: Block32>(group: &[u8], acts: &[u8], stride: usize, ahead: usize, out: &mut [f32]) {
                let few = if B::LINES == 8 { $few } else { 1 };
                // SAFETY: this function has the features, and its caller has checked the lengths.
                unsafe {
                    match (out.len() / ROWS).div_ceil(2) {
                        _ if out.len() <= few * ROWS => {
                            for (act, out) in acts.chunks(stride).zip(out.chunks_mut(ROWS)) {
                                one::<$dot, B>(group, act, ahead, out);
                            }
                        }
                        1 => tile::<$pair, B, 1>(group, acts, stride, ahead, out),
                        2 => tile::<$pair, B, 2>(group, acts, stride, ahead, out),
                        3 => tile::<$pair, B, 3>(group, acts, stride, ahead, out),
                        _ => tile::<$pair, B, PAIRS>(group, acts, stride, ahead, out),
                    }
                }
            }

            fn multiply<B: Block32>(call: Call<'_>) {
                let Call { group, acts, n, ahead, out, .. } = call.check(const { &layout::<B>() });
                let stride = act_bytes(n);
                for (acts, out) in acts.chunks(2 * PAIRS * stride).zip(out.chunks_mut(2 * PAIRS * ROWS)) {
                    // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
                    unsafe { product::<B>(group, acts, stride, ahead, out) }
                }
            }

            const fn layout<B: Block32>() -> Layout {
                block32::layout::<B>(proof::$proof::NEEDS, multiply::<B>)
            }

            pub(in super::super) static LAYOUTS: &[Layout] = &layouts_of_block32!(layout);
        }
    };
}

layouts!(neon, Neon, Neon, pair::LanePair<Neon>, 1, "neon");
layouts!(dotprod, Dotprod, Dotprod, pair::LanePair<Dotprod>, 3, "neon,dotprod");
layouts!(i8mm, I8mm, Dotprod, pair::SmmlaPair, 3, "neon,dotprod,i8mm");
