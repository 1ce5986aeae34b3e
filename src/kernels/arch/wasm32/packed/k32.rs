//! Q4_K and Q5_K: the bytes of [`crate::shared::packed::k_quants::of_32`].

use std::arch::wasm32::*;

use super::dot::{FOUR, Words, halves, load, words};
use super::k_quants::{Head, Unpack, layout, spread};
use crate::shared::packed::Layout;
use crate::shared::packed::k_quants::BLOCK;
use crate::shared::packed::k_quants::of_32::{CODES, DMIN, Layout32, Q4K, Q5K, SCALES, bytes, pack};

/// A type's codes.
trait CodesOf32: Layout32 {
    /// The codes of four rows of a part, unit by unit; line p of the part is `line(p)`.
    fn unpack(line: impl Fn(usize) -> v128) -> [v128; 8];
}

impl CodesOf32 for Q4K {
    #[inline(always)]
    fn unpack(line: impl Fn(usize) -> v128) -> [v128; 8] {
        std::array::from_fn(|s| v128_and(u16x8_shr(line(s / 2), 4 * (s as u32 % 2)), u8x16_splat(15)))
    }
}

impl CodesOf32 for Q5K {
    #[inline(always)]
    fn unpack(line: impl Fn(usize) -> v128) -> [v128; 8] {
        let rest = line(4);
        std::array::from_fn(|s| {
            let q = line(s / 2);
            if s % 2 == 0 {
                return v128_and(q, u8x16_splat(0x1F));
            }
            // Three bits, and behind them two.
            let high = v128_and(u16x8_shr(q, 3), u8x16_splat(0x1C));
            v128_or(high, v128_and(u16x8_shr(rest, (s - 1) as u32), u8x16_splat(3)))
        })
    }
}

/// A type of this file.
struct Of32<C>(C);

impl<C: CodesOf32> Unpack for Of32<C> {
    const LAYOUT: Layout = layout::<Of32<C>>(C::TYPES, C::NAME, |n| n / BLOCK * bytes::<C>(), pack::<C>);
    const MINIMA: bool = true;

    fn at(b: usize) -> (usize, usize) {
        (b * bytes::<C>(), b * bytes::<C>())
    }

    #[inline(always)]
    unsafe fn head(d: *const u8, block: *const u8, r: usize) -> Head {
        // SAFETY: a block has d, dmin and three lines of packed scales of 16 rows.
        let (d, dmin, [a, b, c]) = unsafe {
            let lines = [0, 1, 2].map(|k| load(block.add(SCALES + 64 * k + 4 * FOUR * r)));
            (halves(d.add(2 * FOUR * r)), halves(block.add(DMIN + 2 * FOUR * r)), lines)
        };
        let (low6, low4) = (u8x16_splat(0x3F), u8x16_splat(0x0F));
        let upper = |v| v128_and(u16x8_shr(v, 2), u8x16_splat(0x30));
        let scales = [v128_and(a, low6), v128_or(v128_and(c, low4), upper(a))];
        let mins = [v128_and(b, low6), v128_or(v128_and(u16x8_shr(c, 4), low4), upper(b))];
        let of_four = |v: v128| [spread::<0, 0>(v), spread::<1, 1>(v), spread::<2, 2>(v), spread::<3, 3>(v)].map(words);
        let ([s0, s1, s2, s3], [s4, s5, s6, s7]) = (of_four(scales[0]), of_four(scales[1]));
        let of_two = |v: v128| [spread::<0, 1>(v), spread::<2, 3>(v)].map(words);
        let ([m0, m1], [m2, m3]) = (of_two(mins[0]), of_two(mins[1]));
        Head { d, dmin, scales: [s0, s1, s2, s3, s4, s5, s6, s7], mins: [m0, m1, m2, m3] }
    }

    #[inline(always)]
    unsafe fn codes(block: *const u8, l: usize, r: usize) -> [Words; 8] {
        // SAFETY: a block has eight parts, of as many lines as its type has.
        let line = |p: usize| unsafe { load(block.add(CODES + C::PART * l + 64 * p + 4 * FOUR * r)) };
        C::unpack(line).map(words)
    }
}

pub(super) static LAYOUTS: &[Layout] = &[<Of32<Q4K> as Unpack>::LAYOUT, <Of32<Q5K> as Unpack>::LAYOUT];
