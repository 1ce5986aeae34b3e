//! Q6_K and Q3_K for AVX2: the bytes of [`k16`], eight rows at a time.
//!
//! As with few tokens on AVX-512: `maddubs` multiplies codes with activations, an addition takes back what the excess
//! of the codes over the weights makes of the activations, and one `madd` applies two scales.

use std::arch::x86_64::*;

use trine_formats::types::{Part, info};

use super::super::k16::{self, Acts, CodesOf16, Product, SCALE, act_bytes, at};
use super::super::lanes::{BLOCK, CHAINS, Q8_K, ROWS, TILE};
use super::super::{Ahead, with_ahead};
use super::lanes::{Kernel, PartSums, Tile, Token, VECTORS, by_lane, part_sum, shuffle_dwords};
use super::{broadcast_float, by_tokens, halves, load};
use crate::Isa;
use crate::packed::{Call, Layout};
use crate::proof::{Avx2, AvxVnni, Proof};

/// A type's codes, eight rows at a time.
pub(super) trait CodesOf16x8: CodesOf16 {
    /// The product for many tokens by AVX-VNNI, and how many these are at least.
    const BY_VNNI: (usize, Product);

    /// The scales of vector v, line g: 4g .. 4g + 3 as bytes.
    ///
    /// # Safety
    /// The block is readable; the processor has AVX2.
    unsafe fn bytes(block: *const u8, v: usize) -> [__m256i; 4];

    /// The codes of the units of a part.
    ///
    /// # Safety
    /// The eight rows of the part's lines are readable; the processor has AVX2.
    unsafe fn codes(part: *const u8) -> [__m256i; 8];
}

/// Bits of the mask from `a`, the others from `b`.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn select(mask: __m256i, a: __m256i, b: __m256i) -> __m256i {
    _mm256_or_si256(_mm256_and_si256(mask, a), _mm256_andnot_si256(mask, b))
}

pub(super) const fn layout<C: CodesOf16x8, P: Proof>() -> Layout {
    Layout { needs: P::NEEDS, arrange: arrange::<C>, multiply: multiply::<C, P>, ..k16::layout::<C>() }
}

fn arrange<C: CodesOf16>(isa: Isa, act: &[u8], n: usize, out: &mut [u8]) {
    assert_eq!(act.len(), n / BLOCK * Q8_K, "activation row");
    let _avx2 = Avx2::of(isa);
    let blocks = act.as_chunks::<Q8_K>().0;
    for (act, out) in blocks.iter().zip(out.chunks_exact_mut(C::ACT)) {
        let (quants, rest) = out.split_at_mut(BLOCK);
        let quants = &mut quants.as_chunks_mut().0[0];
        let codes = &act[info::Q8_K.at(Part::Codes)..].as_chunks().0[0];
        // SAFETY: `_avx2` proves these instructions.
        unsafe {
            by_lane(codes, quants);
            corrections::<C>(quants, &mut rest.as_chunks_mut().0[0]);
        }
        out[SCALE..][..4].copy_from_slice(&act[..4]);
        C::arrange(out);
    }
}

/// The sums of each two neighbours times what the codes of their unit exceed the weights by, negated.
#[target_feature(enable = "avx2")]
fn corrections<C: CodesOf16>(quants: &[u8; BLOCK], out: &mut [u8; BLOCK]) {
    // A dword per unit; a vector has one l.
    let mut excess = [[32u8; 4]; 8];
    excess[..C::LOW].fill([C::OFFSET as u8; 4]);
    for (q, out) in quants.chunks_exact(32).zip(out.chunks_exact_mut(32)) {
        // SAFETY: 32 bytes each.
        unsafe {
            let excess = load(excess.as_flattened().as_ptr());
            let sums = _mm256_maddubs_epi16(excess, load(q.as_ptr()));
            let negated = _mm256_sub_epi16(_mm256_setzero_si256(), sums);
            _mm256_storeu_si256(out.as_mut_ptr().cast(), negated);
        }
    }
}

fn multiply<C: CodesOf16x8, P: Proof>(call: Call<'_>) {
    let Call { group, acts, n, ahead, out, .. } = call.check(const { &layout::<C, P>() });
    let stride = act_bytes::<C>(n);
    for (acts, out) in acts.chunks(TILE * stride).zip(out.chunks_mut(TILE * ROWS)) {
        let acts = Acts { at: acts.as_ptr(), blocks: n / BLOCK, stride };
        let w = group.as_ptr();
        // SAFETY: `check` has seen the proof of these instructions and compared all lengths.
        unsafe {
            let (many, product) = C::BY_VNNI;
            match out.len() / ROWS {
                1 => with_ahead!(ahead => one::<C>(w, acts, ahead, out)),
                tokens if P::NEEDS == AvxVnni::NEEDS && tokens >= many => product(w, acts, out),
                _ => tile::<C>(w, acts, ahead, out),
            }
        }
    }
}

/// The power of two that chains' integers are multiplied with on the way.
const fn times<C: CodesOf16>() -> i32 {
    (32 / C::OFFSET).ilog2().cast_signed()
}

/// What a block's head says of eight rows.
pub(super) struct Head {
    pub(super) d: __m256,
    /// Scales 2J and 2J + 1 as i16, times what units before `LOW` lack.
    pub(super) scales: [__m256i; 8],
}

/// The head of vector v of block b, and where its parts are.
///
/// # Safety
/// The processor has AVX2 and F16C; the group has this block.
#[inline]
#[target_feature(enable = "avx2,f16c")]
pub(super) unsafe fn head<C: CodesOf16x8>(w: *const u8, b: usize, v: usize) -> (Head, *const u8) {
    let (d, block) = at::<C>(b);
    // SAFETY: the caller's group has this block.
    let (d, bytes) = unsafe { (halves(w.add(d + 16 * v)), C::bytes(w.add(block), v)) };
    let mut scales = [_mm256_setzero_si256(); 8];
    for (two, bytes) in scales.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        // The upper bytes of words, shifted down with their sign.
        let scales = |k: i8| shuffle_dwords(bytes, [-1, 2 * k, -1, 2 * k + 1]);
        *two = [0, 1].map(|k| _mm256_srai_epi16::<8>(scales(k)));
    }
    let shift = _mm_cvtsi32_si128(const { times::<C>() });
    for scales in &mut scales[..C::LOW] {
        *scales = _mm256_sll_epi16(*scales, shift);
    }
    (Head { d, scales }, w.wrapping_add(block + C::CODES + 32 * v))
}

/// Takes a chain a step further: its integer, less the power of two, times the scales.
#[inline]
#[target_feature(enable = "avx2")]
fn step<C: CodesOf16>(token: &mut Token, l: usize, sum: __m256i) {
    let shift = _mm_cvtsi32_si128(const { times::<C>() });
    token.step(l, _mm256_sra_epi32(sum, shift));
}

#[target_feature(enable = "avx2,f16c")]
unsafe fn one<C: CodesOf16x8>(w: *const u8, acts: Acts, ahead: impl Ahead, out: &mut [f32]) {
    let mut rows = [Token::new(), Token::new()];
    for b in 0..acts.blocks {
        // SAFETY: block b is there, of the activations too, as `check` saw.
        unsafe {
            let y = acts.at.add(C::ACT * b);
            let dy = broadcast_float(y.add(SCALE));
            let heads = [head::<C>(w, b, 0), head::<C>(w, b, 1)];
            for ((head, _), token) in heads.iter().zip(&mut rows) {
                token.d = _mm256_mul_ps(head.d, dy);
            }
            for l in 0..CHAINS {
                let part = 64 * C::PART_LINES * l;
                let from = w.wrapping_add(at::<C>(b).1 + C::BYTES / CHAINS * l);
                let part_bytes = const { C::BYTES.div_ceil(CHAINS) };
                for (v, ((head, parts), token)) in heads.iter().zip(&mut rows).enumerate() {
                    let ask = |j| ahead.share(from, part_bytes, 8 * v + j, 8 * VECTORS);
                    let codes = C::codes(parts.add(part));
                    let sum = part_sum::<true>(&head.scales, &codes, y.add(32 * l), ask);
                    step::<C>(token, l, sum);
                }
            }
        }
    }
    for (token, out) in rows.iter().zip(out.chunks_exact_mut(8)) {
        token.finish(out);
    }
}

#[target_feature(enable = "avx2,f16c")]
unsafe fn tile<C: CodesOf16x8>(w: *const u8, acts: Acts, ahead: usize, out: &mut [f32]) {
    let mut tile = Tile::new();
    for v in 0..VECTORS {
        let tile = tile.start(out.len() / ROWS);
        for b in 0..acts.blocks {
            // SAFETY: block b is there, of all activations too, as `check` saw.
            unsafe {
                let y = acts.at.add(C::ACT * b);
                let (head, parts) = head::<C>(w, b, v);
                for (t, token) in tile.iter_mut().enumerate() {
                    let dy = broadcast_float(y.add(acts.stride * t + SCALE));
                    token.d = _mm256_mul_ps(head.d, dy);
                }
                for l in 0..CHAINS {
                    let from = w.wrapping_add(at::<C>(b).1 + C::BYTES / CHAINS * l);
                    let part_bytes = const { C::BYTES.div_ceil(CHAINS) };
                    let codes = C::codes(parts.add(64 * C::PART_LINES * l));
                    by_tokens!(t in tile.len(), T => {
                        let y = y.add(acts.stride * t + 32 * l);
                        // The other half of the rows finds the lines in the cache.
                        let ahead = if v == 0 && t == 0 { ahead } else { 0 };
                        ahead.share(from, part_bytes, T, 1 + T);
                        let sums: [_; T] = Kernel::corrected(&head.scales, &codes, y, acts.stride);
                        for (t, (token, sum)) in tile[t..].iter_mut().zip(sums).enumerate() {
                            ahead.share(from, part_bytes, t, 1 + T);
                            step::<C>(token, l, sum);
                        }
                    });
                }
            }
        }
        for (token, out) in tile.iter().zip(out.chunks_exact_mut(ROWS)) {
            token.finish(&mut out[8 * v..]);
        }
    }
}
