//! 2-bit ternary codes for ARM: the bytes of [`crate::shared::packed::t2`], 16 of them being dword c of four rows.
//!
//! A register of activations in natural order holds dwords c .. c + 4 of a plane, which [`Dot::lane`] takes one by one.
//! Codes are masked where they lie but for those of plane 3, which are shifted down, because bytes are signed: sums of
//! planes 0 and 3 are plain, those of planes 1 and 2 are 4 and 16 times as large.
//!
//! With one token 16 rows have a register of sums for each weight, 12 in all, and bytes are read once. With more,
//! planes go one after another into the same sums (Horner: a shift right between them): 8 rows x 8 tokens or
//! 16 rows x 4 tokens.

#![allow(clippy::needless_range_loop, reason = "registers are indexed by plane, row and token alike")]

use std::arch::aarch64::*;

use super::super::dot::{Dot, halves, load};
use super::{FOUR, prefetch, store};
use crate::proof::{Dotprod, Neon, Proof};
use crate::shared::packed::t2::{Act, BLOCK, ROWS, SCALES, UNIT, UNIT_BYTES, layouts};
use crate::shared::packed::{Call, Layout, dword};

/// Tokens of a call: two of the largest tiles.
pub(super) const TILE: usize = 16;
/// Bytes from a chunk of a unit to the next.
pub(super) const CHUNK: usize = 4 * ROWS;
/// Units whose sums stay in one set of registers when planes follow each other.
const SEGMENT: usize = 8;

/// Integer sums of four rows with each of `T` tokens, for `R` times four rows.
type Sums<const R: usize, const T: usize> = [[int32x4_t; T]; R];

/// Where the activations of plane `s` start in those of a unit.
pub(super) const fn place<const REVERSED: bool>(s: usize) -> usize {
    if REVERSED { 32 * (3 - s) } else { 32 * s }
}

/// Plane `S` of codes: itself, or 4 or 16 times that for planes 1 and 2.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn plane<const S: usize>(codes: int8x16_t) -> int8x16_t {
    let codes = vreinterpretq_u8_s8(codes);
    vreinterpretq_s8_u8(match S {
        3 => vshrq_n_u8::<6>(codes),
        _ => vandq_u8(codes, vdupq_n_u8(3 << (2 * S))),
    })
}

/// The sums of planes 0 and 3, 1 and 2 of a unit and 16 rows, whose first code bytes are at `w`, for one token.
///
/// # Safety
/// The processor has the instructions of `D`; the unit is readable, and `q` points at its activations.
#[inline(always)]
unsafe fn add_unit_once<D: Dot, const REVERSED: bool>(w: *const u8, q: *const u8, sums: &mut Sums<4, 3>) {
    for quad in 0..2 {
        // SAFETY: four dwords of each plane of the unit's activations, and its chunks 4 quad .. 4 quad + 4.
        unsafe {
            let at = |s| q.add(place::<REVERSED>(s) + 16 * quad);
            let (q0, q1, q2, q3) = (load(at(0)), load(at(1)), load(at(2)), load(at(3)));
            macro_rules! chunk {
                ($c:literal) => {
                    for r in 0..4 {
                        let x = load(w.add(CHUNK * (4 * quad + $c) + 4 * FOUR * r));
                        sums[r][0] = D::lane::<$c>(sums[r][0], plane::<0>(x), q0);
                        sums[r][1] = D::lane::<$c>(sums[r][1], plane::<1>(x), q1);
                        sums[r][2] = D::lane::<$c>(sums[r][2], plane::<2>(x), q2);
                        sums[r][0] = D::lane::<$c>(sums[r][0], plane::<3>(x), q3);
                    }
                };
            }
            chunk!(0);
            chunk!(1);
            chunk!(2);
            chunk!(3);
        }
    }
}

/// The sum over planes of what [`add_unit_once`] adds up; the shifts are exact.
#[inline]
#[target_feature(enable = "neon")]
fn join([plain, fourfold, sixteenfold]: [int32x4_t; 3]) -> int32x4_t {
    vsraq_n_s32::<4>(vsraq_n_s32::<2>(plain, fourfold), sixteenfold)
}

/// Adds plane `S` of some units, `R` times four rows whose first code bytes are at `w`; the units' activations start at
/// `q`.
///
/// # Safety
/// The processor has the instructions of `D`; the units and their activations are readable.
#[inline(always)]
unsafe fn add_plane<D: Dot, const REVERSED: bool, const S: usize, const R: usize, const T: usize>(
    w: *const u8,
    q: &[*const u8; T],
    units: usize,
    sums: &mut Sums<R, T>,
) {
    for quad in 0..2 * units {
        let at = place::<REVERSED>(S) + UNIT * (quad / 2) + 16 * (quad % 2);
        // SAFETY: four dwords of the plane's activations, and four of the eight chunks of unit quad / 2.
        unsafe {
            let y = q.map(|q| load(q.add(at)));
            macro_rules! chunk {
                ($c:literal) => {
                    for r in 0..R {
                        let x = load(w.add(CHUNK * (4 * quad + $c) + 4 * FOUR * r));
                        let x = plane::<S>(x);
                        for t in 0..T {
                            sums[r][t] = D::lane::<$c>(sums[r][t], x, y[t]);
                        }
                    }
                };
            }
            chunk!(0);
            chunk!(1);
            chunk!(2);
            chunk!(3);
        }
    }
}

/// The sums of some units, plane after plane.
///
/// # Safety
/// As for [`add_plane`].
#[inline(always)]
unsafe fn units<D: Dot, const REVERSED: bool, const R: usize, const T: usize>(
    w: *const u8,
    q: &[*const u8; T],
    units: usize,
) -> Sums<R, T> {
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [[vdupq_n_s32(0); T]; R];
        add_plane::<D, REVERSED, 2, R, T>(w, q, units, &mut sums);
        quarter(&mut sums);
        add_plane::<D, REVERSED, 1, R, T>(w, q, units, &mut sums);
        quarter(&mut sums);
        add_plane::<D, REVERSED, 0, R, T>(w, q, units, &mut sums);
        add_plane::<D, REVERSED, 3, R, T>(w, q, units, &mut sums);
        sums
    }
}

/// From one plane's multiples to those of the plane below.
#[inline]
#[target_feature(enable = "neon")]
fn quarter<const R: usize, const T: usize>(sums: &mut Sums<R, T>) {
    for sum in sums.as_flattened_mut() {
        *sum = vshrq_n_s32::<2>(*sum);
    }
}

/// `sum + isum * (dy * dw)`, every operation rounded by itself.
#[inline]
#[target_feature(enable = "neon")]
fn block_step(sum: float32x4_t, isum: int32x4_t, dy: f32, dw: float32x4_t) -> float32x4_t {
    let scale = vmulq_f32(vdupq_n_f32(dy), dw);
    vaddq_f32(sum, vmulq_f32(vcvtq_f32_s32(isum), scale))
}

/// One token and blocks with scales, as in TQ2_0.
///
/// # Safety
/// The processor has the instructions of `D`; `check` has compared the lengths.
#[inline(always)]
unsafe fn blocks_once<D: Dot>(group: &[u8], act: &[u8], n: usize, ahead: usize, out: &mut [f32]) {
    let act = Act::new(act, n);
    // SAFETY: every block of the group and of the activations is there, as the caller has checked.
    unsafe {
        let mut sums = [[vdupq_n_f32(0.0); 4]; 2];
        for (b, block) in group.chunks_exact(BLOCK).enumerate() {
            let block = block.as_ptr();
            prefetch(block, BLOCK, ahead);
            let start = vdupq_n_s32(-act.sums.add(b).read_unaligned());
            let dy = act.scales.add(b).read_unaligned();
            for (h, sums) in sums.iter_mut().enumerate() {
                let mut isum = [[vdupq_n_s32(0); 3]; 4];
                for isum in &mut isum {
                    isum[0] = start;
                }
                for u in 0..2 {
                    let w = block.add(SCALES + UNIT_BYTES * u + 64 * h);
                    add_unit_once::<D, false>(w, act.q.add(256 * b + UNIT * u), &mut isum);
                }
                for r in 0..4 {
                    let dw = halves(block.add(32 * h + 2 * FOUR * r));
                    sums[r] = block_step(sums[r], join(isum[r]), dy, dw);
                }
            }
        }
        for (&sum, out) in sums.as_flattened().iter().zip(out.chunks_exact_mut(FOUR)) {
            store(out, sum);
        }
    }
}

/// `T` tokens and blocks with scales; `R` times four rows at a time.
///
/// # Safety
/// The processor has the instructions of `D`; `check` has compared the lengths.
#[inline(always)]
unsafe fn blocks<D: Dot, const R: usize, const T: usize>(group: &[u8], acts: &[u8], n: usize, out: &mut [f32]) {
    let stride = acts.len() / T;
    let acts: [Act; T] = std::array::from_fn(|t| Act::new(&acts[t * stride..][..stride], n));
    for first in (0..ROWS).step_by(FOUR * R) {
        // SAFETY: every block of the group and of the activations is there, as the caller has checked.
        unsafe {
            let mut sums = [[vdupq_n_f32(0.0); T]; R];
            for (b, block) in group.chunks_exact(BLOCK).enumerate() {
                let block = block.as_ptr();
                let q = acts.map(|act| act.q.add(256 * b));
                let isum = units::<D, false, R, T>(block.add(SCALES + 4 * first), &q, 2);
                for r in 0..R {
                    let dw = halves(block.add(2 * (first + FOUR * r)));
                    for (t, act) in acts.iter().enumerate() {
                        let start = vdupq_n_s32(act.sums.add(b).read_unaligned());
                        let isum = vsubq_s32(isum[r][t], start);
                        let dy = act.scales.add(b).read_unaligned();
                        sums[r][t] = block_step(sums[r][t], isum, dy, dw);
                    }
                }
            }
            for r in 0..R {
                for t in 0..T {
                    store(&mut out[ROWS * t + first + FOUR * r..], sums[r][t]);
                }
            }
        }
    }
}

/// `((f32) D - (f32) S) / a` of four rows and one token.
#[inline]
#[target_feature(enable = "neon")]
pub(super) fn row_step(d: int32x4_t, act: &[u8]) -> float32x4_t {
    let a = f32::from_le_bytes(dword(act, 0));
    let sum = i32::from_le_bytes(dword(act, 1)) as f32;
    let difference = vsubq_f32(vcvtq_f32_s32(d), vdupq_n_f32(sum));
    vdivq_f32(difference, vdupq_n_f32(a))
}

/// One token and rows without block scales.
///
/// # Safety
/// The processor has the instructions of `D`; `check` has compared the lengths.
#[inline(always)]
unsafe fn rows_once<D: Dot>(group: &[u8], act: &[u8], ahead: usize, out: &mut [f32]) {
    // Half of the rows after the other, a segment at a time, which stays in the first-level cache.
    // SAFETY: every unit of the group and its activations are there, as the caller has checked.
    unsafe {
        let mut sums = [[[vdupq_n_s32(0); 3]; 4]; 2];
        for (i, part) in group.chunks(SEGMENT * UNIT_BYTES).enumerate() {
            prefetch(part.as_ptr(), part.len(), ahead);
            for (h, sums) in sums.iter_mut().enumerate() {
                for u in 0..part.len() / UNIT_BYTES {
                    let w = part.as_ptr().add(UNIT_BYTES * u + 64 * h);
                    let q = act.as_ptr().add(64 + UNIT * (SEGMENT * i + u));
                    add_unit_once::<D, true>(w, q, sums);
                }
            }
        }
        for (&sums, out) in sums.as_flattened().iter().zip(out.chunks_exact_mut(FOUR)) {
            store(out, row_step(join(sums), act));
        }
    }
}

/// `T` tokens and rows without block scales; `R` times four rows at a time.
///
/// # Safety
/// The processor has the instructions of `D`; `check` has compared the lengths.
#[inline(always)]
unsafe fn rows<D: Dot, const R: usize, const T: usize>(group: &[u8], acts: &[u8], out: &mut [f32]) {
    let stride = acts.len() / T;
    for first in (0..ROWS).step_by(FOUR * R) {
        // SAFETY: every unit of the group and its activations are there, as the caller has checked.
        unsafe {
            let mut total = [[vdupq_n_s32(0); T]; R];
            for (i, part) in group.chunks(SEGMENT * UNIT_BYTES).enumerate() {
                let q = acts.as_ptr().add(64 + UNIT * SEGMENT * i);
                let q = std::array::from_fn(|t| q.add(stride * t));
                let w = part.as_ptr().add(4 * first);
                let sums = units::<D, true, R, T>(w, &q, part.len() / UNIT_BYTES);
                for (total, sum) in total.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
                    *total = vaddq_s32(*total, *sum);
                }
            }
            for t in 0..T {
                for r in 0..R {
                    let y = row_step(total[r][t], &acts[stride * t..]);
                    store(&mut out[ROWS * t + first + FOUR * r..], y);
                }
            }
        }
    }
}

/// Calls `$kernel` for some tokens at a time, in turns as even as they can be.
macro_rules! in_turns {
    ($acts:expr, $out:expr, $tokens:expr, |$turn_acts:ident, $turn_out:ident| $once:expr, $many:ident::<$dot:ident>($($arg:expr),*)) => {{
        let stride = $acts.len() / $tokens.max(1);
        let (mut acts, mut out): (&[u8], &mut [f32]) = ($acts, $out);
        let mut left = $tokens;
        while left > 0 {
            let turn = left.div_ceil(left.div_ceil(8));
            let $turn_acts;
            let $turn_out;
            ($turn_acts, acts) = acts.split_at(stride * turn);
            ($turn_out, out) = out.split_at_mut(ROWS * turn);
            match turn {
                1 => $once,
                2 => $many::<$dot, 4, 2>($($arg),*),
                3 => $many::<$dot, 4, 3>($($arg),*),
                4 => $many::<$dot, 4, 4>($($arg),*),
                5 => $many::<$dot, 2, 5>($($arg),*),
                6 => $many::<$dot, 2, 6>($($arg),*),
                7 => $many::<$dot, 2, 7>($($arg),*),
                _ => $many::<$dot, 2, 8>($($arg),*),
            }
            left -= turn;
        }
    }};
}

/// The layouts with the kernels of one instruction set.
macro_rules! layouts {
    ($module:ident, $dot:ident, $features:literal) => {
        pub(super) mod $module {
            use super::*;

            /// # Safety
            /// The processor has the features; the lengths are those that [`Call::check`] compares.
            #[target_feature(enable = $features)]
            unsafe fn blocks_of(group: &[u8], acts: &[u8], n: usize, tokens: usize, ahead: usize, out: &mut [f32]) {
                // SAFETY: this function has the features, and its caller has checked the lengths.
                unsafe {
                    in_turns!(
                        acts,
                        out,
                        tokens,
                        |acts, out| blocks_once::<$dot>(group, acts, n, ahead, out),
                        blocks::<$dot>(group, acts, n, out)
                    );
                }
            }

            /// # Safety
            /// The processor has the features; the lengths are those that [`Call::check`] compares.
            #[target_feature(enable = $features)]
            unsafe fn rows_of(group: &[u8], acts: &[u8], tokens: usize, ahead: usize, out: &mut [f32]) {
                // SAFETY: this function has the features, and its caller has checked the lengths.
                unsafe {
                    in_turns!(
                        acts,
                        out,
                        tokens,
                        |acts, out| rows_once::<$dot>(group, acts, ahead, out),
                        rows::<$dot>(group, acts, out)
                    );
                }
            }

            pub(in super::super) fn multiply_blocks(call: Call<'_>) {
                let Call { group, acts, n, tokens, ahead, out, .. } = call.check(&LAYOUTS[0]);
                // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
                unsafe { blocks_of(group, acts, n, tokens, ahead, out) }
            }

            pub(in super::super) fn multiply_rows(call: Call<'_>) {
                let Call { group, acts, tokens, ahead, out, .. } = call.check(&LAYOUTS[3]);
                // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
                unsafe { rows_of(group, acts, tokens, ahead, out) }
            }

            pub(in super::super) static LAYOUTS: &[Layout] =
                &layouts($dot::NEEDS, multiply_blocks, multiply_rows, TILE);
        }
    };
}

layouts!(neon, Neon, "neon");
layouts!(dotprod, Dotprod, "neon,dotprod");
