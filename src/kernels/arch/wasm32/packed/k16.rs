//! Q6_K and Q3_K: the bytes of [`crate::shared::packed::k_quants::of_16`].

use std::arch::wasm32::*;

use super::dot::{FOUR, Words, ZERO, both, halves, load, signed_words, words};
use super::k_quants::{Head, Unpack, layout, spread};
use crate::shared::packed::Layout;
use crate::shared::packed::k_quants::of_16::{self, Layout16, Q3K, Q6K, group_bytes, pack};

/// A type's codes.
trait CodesOf16: Layout16 {
    /// The scales of four rows, register g: 4g .. 4g + 3 as bytes with a sign. `line(k)` is line k of the block.
    fn scales(line: impl Fn(usize) -> v128) -> [v128; 4];

    /// The codes of four rows of a part, unit by unit. `line(k)` is line k of the part.
    fn unpack(line: impl Fn(usize) -> v128) -> [v128; 8];
}

/// The bits of `mask` of `v`, shifted down: what comes over from the byte above is not among them.
#[inline(always)]
fn down(v: v128, shift: u32, mask: u8) -> v128 {
    v128_and(u16x8_shr(v, shift), u8x16_splat(mask))
}

/// The bits of `mask` of `v`, shifted up.
#[inline(always)]
fn up(v: v128, shift: u32, mask: u8) -> v128 {
    v128_and(u16x8_shl(v, shift), u8x16_splat(mask))
}

impl CodesOf16 for Q6K {
    #[inline(always)]
    fn scales(line: impl Fn(usize) -> v128) -> [v128; 4] {
        [line(0), line(1), line(2), line(3)]
    }

    #[inline(always)]
    fn unpack(line: impl Fn(usize) -> v128) -> [v128; 8] {
        let lines = [0, 1, 2, 3, 4, 5].map(line);
        let own = lines.map(|v| v128_and(v, u8x16_splat(0x3F)));
        let rest = |k: usize| {
            let upper = v128_or(down(lines[k], 2, 0x30), down(lines[k + 1], 4, 0x0C));
            v128_or(upper, down(lines[k + 2], 6, 0x03))
        };
        [own[0], own[1], own[2], own[3], own[4], own[5], rest(0), rest(3)]
    }
}

impl CodesOf16 for Q3K {
    #[inline(always)]
    fn scales(line: impl Fn(usize) -> v128) -> [v128; 4] {
        let [a, b, c] = [0, 1, 2].map(line);
        let join = |low, high| i8x16_sub(v128_or(low, high), u8x16_splat(32));
        [
            join(down(a, 0, 0x0F), up(c, 4, 0x30)),
            join(down(b, 0, 0x0F), up(c, 2, 0x30)),
            join(down(a, 4, 0x0F), down(c, 0, 0x30)),
            join(down(b, 4, 0x0F), down(c, 2, 0x30)),
        ]
    }

    #[inline(always)]
    fn unpack(line: impl Fn(usize) -> v128) -> [v128; 8] {
        let [a, b, c] = [0, 1, 2].map(line);
        let (low, high) = (|v| down(v, 0, 7), |v| down(v, 3, 7));
        let six = v128_or(down(a, 5, 6), down(b, 7, 1));
        let seven = v128_or(down(b, 4, 4), down(c, 6, 3));
        [low(a), low(b), low(c), high(a), high(b), high(c), six, seven]
    }
}

/// A type of this file.
struct Of16<C>(C);

impl<C: CodesOf16> Unpack for Of16<C> {
    const LAYOUT: Layout = layout::<Of16<C>>(C::TYPES, C::NAME, group_bytes::<C>, pack::<C>);
    const MINIMA: bool = false;

    fn at(b: usize) -> (usize, usize) {
        of_16::at::<C>(b)
    }

    #[inline(always)]
    unsafe fn head(d: *const u8, block: *const u8, r: usize) -> Head {
        // SAFETY: a block has d of 16 rows, and begins with its lines of scales.
        let line = |k: usize| unsafe { load(block.add(64 * k + 4 * FOUR * r)) };
        let [a, b, c, e] = C::scales(line).map(|v| [spread::<0, 1>(v), spread::<2, 3>(v)].map(signed_words));
        // SAFETY: the same.
        let d = unsafe { halves(d.add(2 * FOUR * r)) };
        let scales = [a[0], a[1], b[0], b[1], c[0], c[1], e[0], e[1]];
        Head { d, dmin: f32x4_splat(0.0), scales, mins: [ZERO; 4] }
    }

    #[inline(always)]
    unsafe fn codes(block: *const u8, l: usize, r: usize) -> [Words; 8] {
        // SAFETY: a block has eight parts, of as many lines as its type has.
        let line = |k: usize| unsafe { load(block.add(C::CODES + 64 * (C::PART_LINES * l + k) + 4 * FOUR * r)) };
        let offset = [i16x8_splat(C::OFFSET); 2];
        C::unpack(line).map(|codes| both(words(codes), offset, |a, b| i16x8_sub(a, b)))
    }
}

pub(super) static LAYOUTS: &[Layout] = &[<Of16<Q6K> as Unpack>::LAYOUT, <Of16<Q3K> as Unpack>::LAYOUT];
