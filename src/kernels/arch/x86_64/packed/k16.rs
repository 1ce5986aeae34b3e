//! What Q6_K and Q3_K share: codes with an offset, in groups of 16 with a signed scale, 16 rows interleaved. The bytes
//! are those of [`crate::packed::k_quants::of_16`].
//!
//! With few tokens, `maddubs` multiplies codes with activations, an addition takes back what the excess of the codes
//! over the weights makes of the activations, and one `dpwssd` applies two scales. With more, a type may expand
//! its parts to products of weight and scale.

use std::arch::x86_64::*;
use std::mem::take;

use trine_formats::types::TypeId;
use trine_formats::types::{Part, info};

use super::lanes::{BLOCK, CHAINS, Q8_K, ROWS, TILE, Tile, broadcast, by_lane, dpwssd, finish, scales, step, store};
use super::{Ahead, asking_once, with_ahead};
use crate::Isa;
pub(super) use crate::packed::k_quants::of_16::{Layout16, at};
use crate::packed::k_quants::of_16::{group_bytes, pack};
use crate::packed::{Arranged, Call, Encoding, Layout};
use crate::proof::{Avx512, Proof};

/// Arranged activations of a block begin with the quants by lane and the sums of each two neighbours of them that share
/// a scale, i16, times what the codes of their unit exceed the weights by, negated.
pub(super) const CORRECTION: usize = 256;
/// Where the rest of them begins: the scale, then what the type wants.
pub(super) const SCALE: usize = 512;

/// A type's codes.
pub(super) trait CodesOf16: Layout16 {
    /// Units from `LOW` on are unpacked to `32 / OFFSET` times their codes.
    const LOW: usize;
    /// A product for many tokens, and how many these are at least.
    const EXPANDED: Option<(usize, Product)> = None;
    /// Bytes of a block of the arranged activations.
    const ACT: usize;

    /// Adds what the type wants beside the common to the arranged activations of a block.
    fn arrange(_block: &mut [u8]) {}

    /// The scales, line g: 4g .. 4g + 3 as bytes.
    ///
    /// # Safety
    /// The block is readable; the processor has AVX-512 F and BW.
    unsafe fn scales(block: *const u8) -> [__m512i; 4];

    /// The codes of the units of a part.
    ///
    /// # Safety
    /// The part is readable; the processor has AVX-512 F and BW.
    unsafe fn unpack(part: *const u8) -> [__m512i; 8];
}

/// The product of a group with up to [`TILE`] tokens.
///
/// # Safety
/// The group and the activations of as many tokens as there is room for in `out` are readable; the processor has the
/// instructions of the function.
pub(super) type Product = unsafe fn(w: *const u8, acts: Acts, out: &mut [f32]);

/// Arranged activations, and how they lie.
#[derive(Clone, Copy)]
pub(super) struct Acts {
    pub(super) at: *const u8,
    pub(super) blocks: usize,
    /// Bytes from token to token.
    pub(super) stride: usize,
}

pub(super) const fn layout<C: CodesOf16>() -> Layout {
    Layout {
        types: C::TYPES,
        needs: Avx512::NEEDS,
        name: C::NAME,
        dense: false,
        rows: ROWS,
        encoding: Encoding::Type(TypeId::Q8_K),
        group_bytes: group_bytes::<C>,
        pack: pack::<C>,
        acts: Arranged::Q8K(C::TYPES[0]),
        act_bytes: act_bytes::<C>,
        arrange: arrange::<C>,
        multiply: multiply::<C>,
        tile: TILE,
    }
}

/// An odd number of cache lines: rows of a tile then do not fall on the same few sets of the cache.
pub(super) fn act_bytes<C: CodesOf16>(n: usize) -> usize {
    let lines = n / BLOCK * (C::ACT / 64);
    64 * (lines | 1)
}

fn arrange<C: CodesOf16>(isa: Isa, act: &[u8], n: usize, out: &mut [u8]) {
    assert_eq!(act.len(), n / BLOCK * Q8_K, "activation row");
    let _avx512 = Avx512::of(isa);
    let blocks = act.as_chunks::<Q8_K>().0;
    for (act, out) in blocks.iter().zip(out.chunks_exact_mut(C::ACT)) {
        // SAFETY: `_avx512` proves these instructions.
        unsafe { arrange_block::<C>(act, out) };
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
fn arrange_block<C: CodesOf16>(act: &[u8; Q8_K], out: &mut [u8]) {
    let lines = out.as_chunks_mut().0;
    // A dword per unit; a line has two l.
    let low_units = _cvtu32_mask16(((1 << C::LOW) - 1) * 0x101);
    let offset = i32::from(C::OFFSET) * 0x0101_0101;
    let excess = _mm512_mask_set1_epi32(_mm512_set1_epi8(32), low_units, offset);
    for (i, q) in by_lane(&act[info::Q8_K.at(Part::Codes)..].as_chunks().0[0]).into_iter().enumerate() {
        store(&mut lines[i], q);
        let sums = _mm512_maddubs_epi16(excess, q);
        let correction = _mm512_sub_epi16(_mm512_setzero_si512(), sums);
        store(&mut lines[CORRECTION / 64 + i], correction);
    }
    out[SCALE..][..4].copy_from_slice(&act[..4]);
    C::arrange(out);
}

fn multiply<C: CodesOf16>(call: Call<'_>) {
    let Call { group, acts, n, mut ahead, out, .. } = call.check(const { &layout::<C>() });
    let stride = act_bytes::<C>(n);
    for (acts, out) in acts.chunks(TILE * stride).zip(out.chunks_mut(TILE * ROWS)) {
        let acts = Acts { at: acts.as_ptr(), blocks: n / BLOCK, stride };
        let w = group.as_ptr();
        let ahead = take(&mut ahead);
        // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
        unsafe {
            match (out.len() / ROWS, C::EXPANDED) {
                (1, _) => with_ahead!(ahead => one::<C>(w, acts, ahead, out)),
                (tokens, Some((many, product))) if tokens >= many => product(w, acts, out),
                _ => tile::<C>(w, acts, ahead, out),
            }
        }
    }
}

/// Byte shuffles: bytes 0 and 1, or 2 and 3 of each dword become the upper bytes of its i16.
#[inline]
#[target_feature(enable = "avx512f")]
fn pairs() -> [__m512i; 2] {
    [
        _mm512_broadcast_i32x4(_mm_setr_epi8(-1, 0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13)),
        _mm512_broadcast_i32x4(_mm_setr_epi8(-1, 2, -1, 3, -1, 6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15)),
    ]
}

/// Scales 2J and 2J + 1 as i16, from those of [`CodesOf16::scales`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn pair_scales(scales: [__m512i; 4]) -> [__m512i; 8] {
    let mut all = [_mm512_setzero_si512(); 8];
    for (two, scales) in all.as_chunks_mut::<2>().0.iter_mut().zip(scales) {
        *two = pairs().map(|p| _mm512_srai_epi16::<8>(_mm512_shuffle_epi8(scales, p)));
    }
    all
}

/// What a block's head says.
struct Head {
    d: __m512,
    /// Scales 2J and 2J + 1 as i16, times what units before `LOW` lack.
    scales: [__m512i; 8],
}

/// The head of block b, and where its parts are.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn head<C: CodesOf16>(w: *const u8, b: usize) -> (Head, *const u8) {
    let (d, block) = at::<C>(b);
    // SAFETY: the caller's group has this block.
    let (d, block) = unsafe { (scales(w.add(d)), w.add(block)) };
    // SAFETY: `block` is a whole block of the group, and this function has the features that `scales` asks for.
    let mut scales = pair_scales(unsafe { C::scales(block) });
    for scales in &mut scales[..C::LOW] {
        *scales = _mm512_sll_epi16(*scales, times::<C>());
    }
    (Head { d, scales }, block.wrapping_add(C::CODES))
}

/// The power of two that chains' integers are multiplied with on the way.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn times<C: CodesOf16>() -> __m128i {
    _mm_cvtsi32_si128(const { (32 / C::OFFSET).ilog2() }.cast_signed())
}

/// The integer of a chain: codes times activations times scales. `ask(j)` is called eight times on the way.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn lane_sum<C: CodesOf16>(h: &Head, codes: &[__m512i; 8], y: *const u8, ask: impl Fn(usize)) -> __m512i {
    let mut sum = [_mm512_setzero_si512(); 2];
    for (j, (codes, scales)) in codes.iter().zip(&h.scales).enumerate() {
        ask(j);
        // SAFETY: the caller's activations have eight dwords, and as many corrections.
        let (y, correction) = unsafe { (broadcast(y.add(4 * j)), broadcast(y.add(CORRECTION + 4 * j))) };
        let sums = _mm512_add_epi16(_mm512_maddubs_epi16(*codes, y), correction);
        sum[j % 2] = dpwssd(sum[j % 2], sums, *scales);
    }
    _mm512_sra_epi32(_mm512_add_epi32(sum[0], sum[1]), times::<C>())
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn one<C: CodesOf16>(w: *const u8, acts: Acts, ahead: impl Ahead, out: &mut [f32]) {
    let mut chains = [_mm512_setzero_ps(); CHAINS];
    for b in 0..acts.blocks {
        // SAFETY: block b is there, of the activations too, as `check` saw.
        unsafe {
            let y = acts.at.add(C::ACT * b);
            let block = w.add(at::<C>(b).1);
            let (h, parts) = head::<C>(w, b);
            let dy = _mm512_castsi512_ps(broadcast(y.add(SCALE)));
            let d = _mm512_mul_ps(h.d, dy);
            for (l, chain) in chains.iter_mut().enumerate() {
                let part = parts.add(64 * C::PART_LINES * l);
                let codes = C::unpack(part);
                let from = block.wrapping_add(C::BYTES / CHAINS * l);
                let ask = |j| ahead.share(from, const { C::BYTES.div_ceil(CHAINS) }, j, 8);
                *chain = step(*chain, d, lane_sum::<C>(&h, &codes, y.add(32 * l), ask));
            }
        }
    }
    finish(_mm512_setzero_ps(), chains, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn tile<C: CodesOf16>(w: *const u8, acts: Acts, ahead: usize, out: &mut [f32]) {
    let mut tile = Tile::new();
    let tile = tile.start(out.len() / ROWS);
    for b in 0..acts.blocks {
        // SAFETY: block b is there, of all activations too, as `check` saw.
        unsafe {
            let y = acts.at.add(C::ACT * b);
            let (h, parts) = head::<C>(w, b);
            for (t, token) in tile.iter_mut().enumerate() {
                let dy = _mm512_castsi512_ps(broadcast(y.add(acts.stride * t + SCALE)));
                token.d = _mm512_mul_ps(h.d, dy);
            }
            for l in 0..CHAINS {
                let codes = C::unpack(parts.add(64 * C::PART_LINES * l));
                let from = w.wrapping_add(at::<C>(b).1 + C::BYTES / CHAINS * l);
                let mut ask = Some(|j| ahead.share(from, const { C::BYTES.div_ceil(CHAINS) }, j, 8));
                for (t, token) in tile.iter_mut().enumerate() {
                    let y = y.add(acts.stride * t + 32 * l);
                    let sum = asking_once!(ask, ahead => lane_sum::<C>(&h, &codes, y, ask));
                    token.chains[l] = step(token.chains[l], token.d, sum);
                }
            }
        }
    }
    for (token, out) in tile.iter().zip(out.chunks_exact_mut(ROWS)) {
        finish(token.minus, token.chains, out);
    }
}
