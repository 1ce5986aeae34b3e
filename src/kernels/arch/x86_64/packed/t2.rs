//! 2-bit ternary codes, 32 rows interleaved: TQ2_0, and the rows of I2_S, TL1 and TL2.
//!
//! The bytes are those of [`crate::shared::packed::t2`]. A broadcast dword of activations meets a half, 16 rows, of a chunk.
//! Planes are not shifted down: each is masked where it lies, and its sum, a multiple of 4^s, is shifted instead.
//!
//! With one or two tokens every plane has its own accumulator and the bytes are read once. With some more,
//! the planes go one after another into the same accumulator (Horner: shift right by 2 between planes),
//! which leaves registers for 32 rows x 4 tokens. From 16 on, blocks are unpacked to bytes first ([`ternary_bytes`]).

#![allow(clippy::needless_range_loop, reason = "registers are indexed by plane, half and token alike")]

use std::arch::x86_64::*;
use std::mem::take;

use super::dwords::{add_lines, for_tokens};
use super::ternary_bytes::{self, TwoBits};
use super::ternary_sums::{Halves, PLANES, block_step, join, load, mask, row_step, store};
use super::{PrefetchDistance, with_prefetch};
use crate::arch::functions::functions;
use crate::proof::{Avx512, Proof};
pub(super) use crate::shared::packed::t2::{
    Act, BLOCK, ROWS, SCALES, UNIT, UNIT_BYTES, act_bytes_int8, act_bytes_q8_k, layouts, pack_rows, pack_tq2_0,
    whole_rows, with_scales,
};
use crate::shared::packed::{Call, Layout};

/// Tokens of a call: unpacked codes are used for all of them, whose sums stay in the first-level cache.
const TILE: usize = 128;
/// Tokens from which on unpacking pays.
const FROM: usize = 16;
/// Units whose sums stay in one set of accumulators when planes follow each other.
const SEGMENT: usize = 8;

pub(super) static LAYOUTS: &[Layout] = &layouts(Avx512::NEEDS, multiply_tq2_0, multiply_rows, TILE);

pub(super) fn multiply_tq2_0(call: Call<'_>) {
    let Call { group, acts, n, tokens, mut ahead, out, .. } = call.check(&LAYOUTS[0]);
    if tokens >= FROM {
        // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
        return unsafe { blocks_unpacked(group, acts, n, ahead, out) };
    }
    let act = act_bytes_q8_k(n);
    for (acts, out) in acts.chunks(4 * act).zip(out.chunks_mut(4 * ROWS)) {
        let ahead = take(&mut ahead);
        // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
        unsafe {
            match out.len() / ROWS {
                1 => with_prefetch!(ahead => blocks_once::<1>(group, acts, n, act, ahead, out)),
                2 => with_prefetch!(ahead => blocks_once::<2>(group, acts, n, act, ahead, out)),
                3 => blocks_by_planes::<3>(group, acts, n, act, ahead, out),
                _ => blocks_by_planes::<4>(group, acts, n, act, ahead, out),
            }
        }
    }
}

/// The product for types with one scale, whose planes lie the other way round.
pub(super) fn multiply_rows(call: Call<'_>) {
    let Call { group, acts, n, tokens, mut ahead, out, .. } = call.check(&LAYOUTS[3]);
    let act = act_bytes_int8(n);
    if tokens >= FROM {
        // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
        return unsafe { rows_unpacked(group, acts, act, ahead, out) };
    }
    for (acts, out) in acts.chunks(4 * act).zip(out.chunks_mut(4 * ROWS)) {
        let ahead = take(&mut ahead);
        // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
        unsafe {
            match out.len() / ROWS {
                1 => with_prefetch!(ahead => rows_once::<1>(group, acts, act, ahead, out)),
                2 => with_prefetch!(ahead => rows_once::<2>(group, acts, act, ahead, out)),
                3 => rows_by_planes::<3>(group, acts, act, ahead, out),
                _ => rows_by_planes::<4>(group, acts, act, ahead, out),
            }
        }
    }
}

/// # Safety
/// These instructions; lengths as [`Call::check`] has them.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn blocks_unpacked(group: &[u8], acts: &[u8], n: usize, ahead: usize, out: &mut [f32]) {
    // SAFETY: the caller has seen to it.
    unsafe { ternary_bytes::blocks(&TwoBits::<false>, group, acts, n, ahead, out) }
}

/// # Safety
/// These instructions; lengths as [`Call::check`] has them.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn rows_unpacked(group: &[u8], acts: &[u8], stride: usize, ahead: usize, out: &mut [f32]) {
    // SAFETY: the caller has seen to it.
    unsafe { ternary_bytes::rows(&TwoBits::<true>, group, acts, stride, ahead, out) }
}

/// Dword of activations for plane s of chunk c.
///
/// # Safety
/// The processor has AVX-512 F; `q` points at the 128 activations of a unit, `s` is below 4 and `c` below 8.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn broadcast<const REVERSED: bool>(q: *const u8, s: usize, c: usize) -> __m512i {
    let k = if REVERSED { 8 * (3 - s) + c } else { 8 * s + c };
    // SAFETY: the caller's unit has 32 dwords.
    _mm512_set1_epi32(unsafe { q.cast::<i32>().add(k).read_unaligned() })
}

/// Adds one unit to the accumulators of each plane, which stay in registers.
///
/// # Safety
/// The processor has these features; `w` points at a unit, and each of `q` at its 128 activations.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn unit_once<const T: usize, const REVERSED: bool>(
    w: *const u8,
    q: [*const u8; T],
    ahead: impl PrefetchDistance,
    mut acc: [[Halves; PLANES]; T],
) -> [[Halves; PLANES]; T] {
    for c in 0..8 {
        let chunk = w.wrapping_add(128 * c);
        // SAFETY: a unit has 1024 bytes of codes and 128 activations per token.
        let w = unsafe { [load(chunk), load(chunk.add(64))] };
        for s in 0..PLANES {
            ahead.share(chunk, 128, s, PLANES);
            let planes = w.map(|w| _mm512_and_si512(w, mask(s)));
            for t in 0..T {
                // SAFETY: `q[t]` points at the 128 activations of the unit, which are 32 dwords.
                let q = unsafe { broadcast::<REVERSED>(q[t], s, c) };
                for h in 0..2 {
                    acc[t][s][h] = _mm512_dpbusd_epi32(acc[t][s][h], planes[h], q);
                }
            }
        }
    }
    acc
}

/// One plane of one unit for several tokens: `acc[t] += plane(w) * q[t]`, chunk by chunk.
///
/// In assembly, for the reason that [`super::dwords`] gives: 220 instead of 180 GMAC/s.
trait Plane<const T: usize> {
    /// # Safety
    /// AVX-512 F and VNNI; 1024 bytes at `w`, 32 at `q` and at every `stride` bytes after it for each token.
    unsafe fn add(w: *const u8, mask: __m512i, q: *const u8, stride: usize, acc: [Halves; T]) -> [Halves; T];
}

struct Tile;

macro_rules! load_plane {
    ($w0:literal, $w1:literal) => {
        concat!(
            "vpandd {w0}, {mask}, zmmword ptr [{w} + ",
            $w0,
            "]\n",
            "vpandd {w1}, {mask}, zmmword ptr [{w} + ",
            $w1,
            "]\n",
        )
    };
}

macro_rules! multiply {
    ($acc0:ident, $acc1:ident) => {
        concat!("vpdpbusd {", stringify!($acc0), "}, {w0}, {y}\n", "vpdpbusd {", stringify!($acc1), "}, {w1}, {y}\n",)
    };
}

macro_rules! plane_of_unit {
    ($tokens:literal, $sums:tt) => {
        impl Plane<$tokens> for Tile {
            functions! { [#[inline] #[target_feature(enable = "avx512f,avx512vnni")]]
                add(
                    w: *const u8,
                    mask: __m512i,
                    q: *const u8,
                    stride: usize,
                    acc: [Halves; $tokens]
                ) -> [Halves; $tokens] {
                    add_lines!(
                        zmm_reg, load_plane, multiply, {mask = in(zmm_reg) mask,}, (w, q, stride, acc),
                        [
                            ("0" "64" "0") ("128" "192" "4") ("256" "320" "8") ("384" "448" "12")
                            ("512" "576" "16") ("640" "704" "20") ("768" "832" "24") ("896" "960" "28")
                        ], $sums
                    )
                }
            }
        }
    };
}

for_tokens!(3 4 plane_of_unit);

/// The sums of `units` consecutive units, plane after plane from the top; three or four tokens whose
/// rows are `stride` bytes apart.
///
/// # Safety
/// The processor has these features; `units` units are readable at `w`, and their activations of each of `T` tokens at
/// `q`.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn units_by_planes<const T: usize, const REVERSED: bool>(
    w: *const u8,
    q: *const u8,
    stride: usize,
    units: usize,
    ahead: impl PrefetchDistance,
) -> [Halves; T]
where
    Tile: Plane<T>,
{
    let mut acc = [[_mm512_setzero_si512(); 2]; T];
    for s in (0..PLANES).rev() {
        let mask = mask(s);
        let first = if REVERSED { 32 * (3 - s) } else { 32 * s };
        for u in 0..units {
            // SAFETY: the caller has `units` units of codes and activations.
            unsafe {
                let (w, q) = (w.add(UNIT_BYTES * u), q.add(UNIT * u + first));
                ahead.share(w, UNIT_BYTES, s, PLANES);
                acc = Tile::add(w, mask, q, stride, acc);
            }
        }
        if s > 0 {
            for a in &mut acc {
                *a = [_mm512_srai_epi32::<2>(a[0]), _mm512_srai_epi32::<2>(a[1])];
            }
        }
    }
    acc
}

/// # Safety
/// The processor has these features; there are `T` tokens, and the lengths are those that [`Call::check`] compares.
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn blocks_once<const T: usize>(
    group: &[u8],
    acts: &[u8],
    n: usize,
    act_bytes: usize,
    ahead: impl PrefetchDistance,
    out: &mut [f32],
) {
    let acts: [Act; T] = std::array::from_fn(|t| Act::new(&acts[t * act_bytes..][..act_bytes], n));
    let mut sums = [[_mm512_setzero_ps(); 2]; T];
    for (b, block) in group.chunks_exact(BLOCK).enumerate() {
        ahead.line(block.as_ptr());
        let mut acc = [[[_mm512_setzero_si512(); 2]; PLANES]; T];
        // SAFETY: block b of the group and of the activations are there, as `check` saw.
        unsafe {
            for t in 0..T {
                let start = _mm512_set1_epi32(-acts[t].sums.add(b).read_unaligned());
                acc[t][0] = [start; 2];
            }
            for u in 0..2 {
                let w = block.as_ptr().add(SCALES + u * UNIT_BYTES);
                let q = std::array::from_fn(|t| acts[t].q.add(256 * b + UNIT * u));
                acc = unit_once::<T, false>(w, q, ahead, acc);
            }
            for t in 0..T {
                let dy = _mm512_set1_ps(acts[t].scales.add(b).read_unaligned());
                for h in 0..2 {
                    let scales = block.as_ptr().add(32 * h);
                    sums[t][h] = block_step(sums[t][h], join(&acc[t], h), dy, scales);
                }
            }
        }
    }
    store(&sums, out);
}

/// # Safety
/// The processor has these features; there are `T` tokens, and the lengths are those that [`Call::check`] compares.
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn blocks_by_planes<const T: usize>(
    group: &[u8],
    acts: &[u8],
    n: usize,
    act_bytes: usize,
    ahead: usize,
    out: &mut [f32],
) where
    Tile: Plane<T>,
{
    let acts: [Act; T] = std::array::from_fn(|t| Act::new(&acts[t * act_bytes..][..act_bytes], n));
    let mut sums = [[_mm512_setzero_ps(); 2]; T];
    for (b, block) in group.chunks_exact(BLOCK).enumerate() {
        ahead.line(block.as_ptr());
        // SAFETY: block b of the group and of the activations are there, as `check` saw.
        unsafe {
            let (w, q) = (block.as_ptr().add(SCALES), acts[0].q.add(256 * b));
            let acc = units_by_planes::<T, false>(w, q, act_bytes, 2, ahead);
            for t in 0..T {
                let sum = _mm512_set1_epi32(acts[t].sums.add(b).read_unaligned());
                let dy = _mm512_set1_ps(acts[t].scales.add(b).read_unaligned());
                for h in 0..2 {
                    let isum = _mm512_sub_epi32(acc[t][h], sum);
                    let scales = block.as_ptr().add(32 * h);
                    sums[t][h] = block_step(sums[t][h], isum, dy, scales);
                }
            }
        }
    }
    store(&sums, out);
}

/// # Safety
/// The processor has these features; there are `T` tokens, and the lengths are those that [`Call::check`] compares.
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn rows_once<const T: usize>(
    group: &[u8],
    acts: &[u8],
    act_bytes: usize,
    ahead: impl PrefetchDistance,
    out: &mut [f32],
) {
    let mut acc = [[[_mm512_setzero_si512(); 2]; PLANES]; T];
    for u in 0..group.len() / UNIT_BYTES {
        // SAFETY: unit u of the group and of the activations are there, as `check` saw.
        unsafe {
            let w = group.as_ptr().add(u * UNIT_BYTES);
            let q = std::array::from_fn(|t| acts.as_ptr().add(t * act_bytes + 64 + UNIT * u));
            acc = unit_once::<T, true>(w, q, ahead, acc);
        }
    }
    let mut sums = [[_mm512_setzero_ps(); 2]; T];
    for t in 0..T {
        let act = &acts[t * act_bytes..];
        sums[t] = [row_step(join(&acc[t], 0), act), row_step(join(&acc[t], 1), act)];
    }
    store(&sums, out);
}

/// # Safety
/// The processor has these features; there are `T` tokens, and the lengths are those that [`Call::check`] compares.
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn rows_by_planes<const T: usize>(group: &[u8], acts: &[u8], act_bytes: usize, ahead: usize, out: &mut [f32])
where
    Tile: Plane<T>,
{
    let mut total = [[_mm512_setzero_si512(); 2]; T];
    for (i, part) in group.chunks(SEGMENT * UNIT_BYTES).enumerate() {
        // SAFETY: the units of the part and their activations are there, as `check` saw.
        let acc = unsafe {
            let (first, units) = (64 + UNIT * SEGMENT * i, part.len() / UNIT_BYTES);
            let q = acts.as_ptr().add(first);
            units_by_planes::<T, true>(part.as_ptr(), q, act_bytes, units, ahead)
        };
        for t in 0..T {
            for h in 0..2 {
                total[t][h] = _mm512_add_epi32(total[t][h], acc[t][h]);
            }
        }
    }
    let mut sums = [[_mm512_setzero_ps(); 2]; T];
    for t in 0..T {
        let act = &acts[t * act_bytes..];
        sums[t] = [row_step(total[t][0], act), row_step(total[t][1], act)];
    }
    store(&sums, out);
}
