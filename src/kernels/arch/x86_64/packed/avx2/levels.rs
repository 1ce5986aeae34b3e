//! The types of [`levels`] for AVX2, eight rows at a time.
//!
//! A level is looked up with one shuffle for each 16 of them. Levels that lie close together, those of two and three
//! bits, are lifted until none is negative, which is what `maddubs` wants of its first factor; what that adds to a row
//! is the sums of the activations times the scales and is taken back before a block begins, together with what raised
//! groups have more. Other levels are too wide for that: there the sign goes to the activations. With one token it goes
//! the other way, from the activations to the levels, so that magnitudes are found once for all rows.

use std::arch::x86_64::*;

use trine_formats::types::{Part, info};

use super::super::super::grouped::GroupStep;
use super::super::ik_levels::layouts_of_ik_levels;
use super::super::levels::{self, Levels, UNITS, layouts_of_levels, mixed};
use super::super::ymm::Ymm;
use super::super::{PrefetchDistance, with_prefetch};
use super::level_lookup::{excess, levels_of, signed};
use crate::Isa;
use crate::arch::x86_64::prefetch;
use crate::arch::x86_64::rows::chains::Acts;
use crate::arch::x86_64::rows::lanes::{Lanes, by_tokens};
use crate::proof::{Avx2, Proof};
use crate::shared::packed::k_quants::{BLOCK, Q8_K, ROWS};
use crate::shared::packed::{Arrange, Call, Layout};

/// Vectors of eight of the 16 rows.
const VECTORS: usize = 2;
/// Tokens of a call.
const TILE: usize = 16;
/// Arranged activations of a block: the quants, the sums of each 16 of them as i16, the sums of each 32, the scale. Of
/// four sums of 16 the first and the third stand before the others, as the bytes of scales become words.
const SUMS_OF_16: usize = BLOCK;
const SUMS_OF_32: usize = SUMS_OF_16 + 32;
const SCALE: usize = SUMS_OF_32 + 16;
const ACT: usize = 320;

const fn layout<C: Levels>() -> Layout {
    let arrange: Arrange = if C::MIXED { arrange::<true> } else { arrange::<false> };
    levels::layout::<C, false>(Avx2::NEEDS, (act_bytes, arrange), multiply::<C>, TILE)
}

pub(in crate::arch::x86_64::packed) static LAYOUTS: &[Layout] = &layouts_of_levels!(layout);
/// Layouts of the types of ik_llama.cpp.
pub(in crate::arch::x86_64::packed) static OF_IK: &[Layout] = &layouts_of_ik_levels!(layout);

fn act_bytes(n: usize) -> usize {
    levels::act_bytes(n, ACT)
}

fn arrange<const MIXED: bool>(_: Isa, act: &[u8], n: usize, out: &mut [u8]) {
    assert_eq!(act.len(), n / BLOCK * Q8_K, "activation row");
    for (act, out) in act.as_chunks::<Q8_K>().0.iter().zip(out.chunks_exact_mut(ACT)) {
        let quants = &act[info::Q8_K.at(Part::Codes)..][..BLOCK];
        let (units, rest) = out.split_at_mut(BLOCK);
        for (j, unit) in units.as_chunks_mut::<32>().0.iter_mut().enumerate() {
            for (k, dword) in unit.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                *dword = [0, 1, 2, 3].map(|i| quants[if MIXED { mixed(j, k, i) } else { 32 * j + 4 * k + i }]);
            }
        }
        let sums = act[info::Q8_K.at(Part::Sums)..].as_chunks().0;
        let of_16: [i16; 16] = std::array::from_fn(|g| i16::from_le_bytes(sums[g]));
        let (to_16, rest) = rest.split_at_mut(SUMS_OF_32 - SUMS_OF_16);
        for (g, to) in to_16.as_chunks_mut().0.iter_mut().enumerate() {
            *to = of_16[g / 4 * 4 + [0, 2, 1, 3][g % 4]].to_le_bytes();
        }
        let (to_32, rest) = rest.split_at_mut(SCALE - SUMS_OF_32);
        for (to, [a, b]) in to_32.as_chunks_mut().0.iter_mut().zip(of_16.as_chunks().0) {
            *to = a.wrapping_add(*b).to_le_bytes();
        }
        rest[..4].copy_from_slice(&act[info::Q8_K.at(Part::Scale)..][..4]);
    }
}

fn multiply<C: Levels>(call: Call<'_>) {
    let Call { group, acts, n, ahead, out, .. } = call.check(const { &layout::<C>() });
    let stride = act_bytes(n);
    for (acts, out) in acts.chunks(TILE * stride).zip(out.chunks_mut(TILE * ROWS)) {
        let acts = Acts { at: acts.as_ptr(), blocks: n / BLOCK, stride };
        // SAFETY: `check` has seen the proof of these instructions and compared all lengths, and no portion has more than `TILE` tokens.
        unsafe {
            match out.len() / ROWS {
                1 => with_prefetch!(ahead => tile::<C, VECTORS, 1>(group.as_ptr(), acts, ahead, out)),
                _ => with_prefetch!(ahead => tile::<C, 1, TILE>(group.as_ptr(), acts, ahead, out)),
            }
        }
    }
}

/// True if products of up to `tokens` tokens take the magnitudes of activations, and their signs go to the levels: with
/// one token, whose magnitudes are of use for all rows. No level may be -128, whose sign cannot be changed.
const fn by_magnitudes<C: Levels>(tokens: usize) -> bool {
    tokens == 1 && signed::<C>() && C::VALUES.1 > 0 && C::VALUES.0[0] > -128
}

/// Products of four weights and activations that are added up in 16 bits before they meet their scale. A scale is of
/// four such at least, and activations are -127 at least.
const fn together<C: Levels>() -> usize {
    let (values, count) = C::VALUES;
    if signed::<C>() {
        return 1;
    }
    let largest = values[count - 1] as i32 + excess::<C>();
    let mut together = 4;
    while together * 2 * largest * 127 > i16::MAX as i32 {
        together /= 2;
    }
    together as usize
}

/// The products of a group with up to `TOKENS` tokens, `V` vectors of rows at a time: those of one token share its
/// activations.
///
/// # Safety
/// The processor has AVX2 and F16C; the group and the activations of as many tokens as there is room for in `out` are
/// readable.
#[target_feature(enable = "avx2,f16c")]
unsafe fn tile<C: Levels, const V: usize, const TOKENS: usize>(
    w: *const u8,
    acts: Acts,
    ahead: impl PrefetchDistance,
    out: &mut [f32],
) {
    let tokens = out.len() / ROWS;
    let mut sums = [[_mm256_setzero_ps(); TOKENS]; VECTORS];
    let blocks = w.wrapping_add(C::GROUP_HEAD);
    let mut magnitudes = [_mm256_setzero_si256(); UNITS];
    for b in 0..acts.blocks {
        let acts = Acts { at: acts.at.wrapping_add(ACT * b), ..acts };
        if const { by_magnitudes::<C>(TOKENS) } {
            for (j, magnitudes) in magnitudes.iter_mut().enumerate() {
                // SAFETY: as the caller says, the activations of block b are there.
                *magnitudes = _mm256_abs_epi8(unsafe { Ymm::load(acts.at.add(32 * j)) });
            }
        }
        let tokens = Tokens { acts, magnitudes: (&raw const magnitudes).cast(), count: tokens };
        for (i, sums) in sums.as_chunks_mut::<V>().0.iter_mut().enumerate() {
            // SAFETY: block b is there, of all activations too, as the caller says.
            unsafe {
                let block = blocks.add(C::BYTES_OF_GROUP * b);
                // A part of the block with each unit of these rows.
                let parts = const { UNITS * VECTORS / V };
                let prefetch = |j: usize, k| {
                    let from = block.wrapping_add(C::BYTES_OF_GROUP / parts * (UNITS * i + j));
                    ahead.share(from, const { C::BYTES_OF_GROUP.div_ceil(UNITS * VECTORS / V) }, k, 2);
                };
                let rows: [Rows; V] = std::array::from_fn(|v| Rows::new::<C>(w, block, V * i + v));
                match C::STEP {
                    GroupStep::Each => add_each::<C, V, TOKENS>(&rows, tokens, sums, prefetch),
                    _ => add_block::<C, V, TOKENS>(&rows, tokens, sums, prefetch),
                }
            }
        }
    }
    for (v, sums) in sums.iter().enumerate() {
        for (sum, out) in sums.iter().zip(out.chunks_exact_mut(ROWS)) {
            // SAFETY: this function has the instructions.
            unsafe { Ymm::store(&mut out[8 * v..], _mm256_mul_ps(_mm256_set1_ps(C::LAST), *sum)) };
        }
    }
}

/// The activations of a block, of some tokens. Those of one token have magnitudes where products are [`by_magnitudes`].
#[derive(Clone, Copy)]
struct Tokens {
    acts: Acts,
    magnitudes: *const u8,
    count: usize,
}

/// Eight rows of a block, vector v of them, and their scales.
#[derive(Clone, Copy)]
struct Rows {
    d: __m256,
    block: *const u8,
    v: usize,
}

impl Rows {
    /// Vector v of the rows of a block of the group at `w`.
    ///
    /// # Safety
    /// The processor has AVX2 and F16C; group and block are readable.
    #[inline(always)]
    unsafe fn new<C: Levels>(w: *const u8, block: *const u8, v: usize) -> Rows {
        // SAFETY: eight floats, or as many half floats.
        let d = unsafe {
            match C::HEAD {
                0 => Ymm::halves(block.add(16 * v)),
                _ => Ymm::load_floats(w.add(32 * v).cast()),
            }
        };
        Rows { d, block, v }
    }

    /// The levels of unit j.
    ///
    /// # Safety
    /// The processor has AVX2; the block is readable.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn levels<C: Levels>(self, j: usize) -> [__m256i; 8] {
        // SAFETY: the caller's block has this unit.
        unsafe { levels_of::<C>(self.block.add(C::CODES + 64 * C::UNIT_LINES * j + 32 * self.v)) }
    }
}

/// The scales that the units of a block share, for eight rows.
struct Head {
    /// The scales of pairs of groups as i16: of each unit, or of two units where a scale is of 32 weights.
    scales: [__m256i; UNITS],
    /// Factors of the sums of the activations of both groups.
    corrections: [__m256i; UNITS],
}

/// Units whose scales are the same.
const fn units_of_scales<C: Levels>() -> usize {
    if C::OF_16 { 1 } else { 2 }
}

impl Head {
    /// The head of vector v of the rows.
    ///
    /// # Safety
    /// The processor has AVX2; the block is readable.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn new<C: Levels>(block: *const u8, v: usize) -> Head {
        let mut scales = [_mm256_setzero_si256(); UNITS];
        let mut corrections = [_mm256_setzero_si256(); UNITS];
        for line in 0..C::SCALE_LINES {
            // SAFETY: the caller's block has this line.
            let bytes = unsafe { Ymm::load(block.add(C::SCALES + 64 * line + 32 * v)) };
            // The upper bytes of words: the first and the third scale of the line, then the others.
            for (h, words) in [_mm256_slli_epi16::<8>(bytes), bytes].into_iter().enumerate() {
                let both = match (C::RAISED, C::ODD) {
                    (0, _) => _mm256_srai_epi16::<8>(words),
                    (_, true) => _mm256_or_si256(_mm256_srai_epi16::<8>(words), _mm256_set1_epi16(1)),
                    (_, false) => _mm256_srai_epi16::<9>(words),
                };
                let mut factor = _mm256_set1_epi16(-excess::<C>() as i16);
                if C::RAISED != 0 {
                    // The bit of a raised group, moved down to 1, times what it is raised by.
                    let raised = _mm256_and_si256(words, _mm256_set1_epi16(0x0100));
                    let raised = _mm256_mulhi_epi16(raised, _mm256_set1_epi16(C::RAISED << 8));
                    factor = _mm256_add_epi16(factor, raised);
                }
                scales[2 * line + h] = both;
                corrections[2 * line + h] = _mm256_mullo_epi16(both, factor);
            }
        }
        Head { scales, corrections }
    }
}

/// The float step of a block, `sum + d * isum` with all scales in the integer, for each token. `prefetch(j, k)` is
/// called twice in unit j.
///
/// # Safety
/// The processor has AVX2 and F16C; the block and the activations of all tokens are readable.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn add_block<C: Levels, const V: usize, const TOKENS: usize>(
    rows: &[Rows; V],
    tokens: Tokens,
    sums: &mut [[__m256; TOKENS]; V],
    prefetch: impl Fn(usize, usize),
) {
    let acts = tokens.acts;
    let mut isums = [[_mm256_setzero_si256(); V]; TOKENS];
    // SAFETY: as the caller says.
    unsafe {
        let heads: [Head; V] = std::array::from_fn(|v| Head::new::<C>(rows[v].block, rows[v].v));
        for (t, isums) in isums[..tokens.count].iter_mut().enumerate() {
            for (isum, head) in isums.iter_mut().zip(&heads) {
                *isum = start_of::<C>(head, acts.at.add(acts.stride * t));
            }
        }
        for j in 0..UNITS {
            let scales = heads.each_ref().map(|head| head.scales[j / const { units_of_scales::<C>() }]);
            prefetch(j, 0);
            let levels = rows.map(|rows| rows.levels::<C>(j));
            prefetch(j, 1);
            by_tokens!(t in tokens.count, 4, T => {
                add_unit::<C, V, TOKENS, T>(&levels, &scales, tokens, (t, j), &mut isums[t..t + T]);
            });
        }
        for (t, isums) in isums[..tokens.count].iter().enumerate() {
            let dy = Ymm::broadcast_float(acts.at.add(acts.stride * t + SCALE));
            for (v, isum) in isums.iter().enumerate() {
                sums[v][t] = Ymm::step(sums[v][t], _mm256_mul_ps(rows[v].d, dy), *isum);
            }
        }
    }
}

/// The number that a block's integer starts at: the excess of lifted levels, negated, and that of raised groups.
///
/// # Safety
/// The processor has AVX2; the activations of the block are readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn start_of<C: Levels>(head: &Head, y: *const u8) -> __m256i {
    let mut all = _mm256_setzero_si256();
    if excess::<C>() == 0 && C::RAISED == 0 {
        return all;
    }
    let sums = if C::OF_16 { SUMS_OF_16 } else { SUMS_OF_32 };
    for (i, correction) in head.corrections[..2 * C::SCALE_LINES].iter().enumerate() {
        // SAFETY: a dword has two sums, and each line of scales has two dwords.
        let pair = unsafe { Ymm::broadcast(y.add(sums + 4 * i)) };
        all = _mm256_add_epi32(all, _mm256_madd_epi16(*correction, pair));
    }
    all
}

/// Adds the products of unit j times scales to the integers of `T` of `TOKENS` tokens, from token t on.
///
/// # Safety
/// The processor has AVX2; the activations of these tokens are readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn add_unit<C: Levels, const V: usize, const TOKENS: usize, const T: usize>(
    levels: &[[__m256i; 8]; V],
    scales: &[__m256i; V],
    tokens: Tokens,
    (t, j): (usize, usize),
    isums: &mut [[__m256i; V]],
) {
    let together = const { together::<C>() };
    let y = tokens.acts.at.wrapping_add(tokens.acts.stride * t + 32 * j);
    // The rows of many tokens lie too far apart for the processor to do that by itself.
    if const { TOKENS > 1 } && j < ACT / 64 {
        for t in 0..T {
            prefetch::line_to_first(y.wrapping_add(tokens.acts.stride * t + ACT + 32 * j));
        }
    }
    let mut sums: [[__m256i; V]; T] = std::array::from_fn(|t| isums[t]);
    for first in (0..8).step_by(together) {
        let mut pairs = [[_mm256_setzero_si256(); V]; T];
        for k in first..first + together {
            for (t, pairs) in pairs.iter_mut().enumerate() {
                // SAFETY: the caller's activations of a unit have eight dwords.
                let y = unsafe { Ymm::broadcast(y.add(tokens.acts.stride * t + 4 * k)) };
                let magnitudes = match const { by_magnitudes::<C>(TOKENS) } {
                    // SAFETY: as many magnitudes.
                    true => unsafe { Ymm::broadcast(tokens.magnitudes.add(32 * j + 4 * k)) },
                    false => y,
                };
                for (pairs, levels) in pairs.iter_mut().zip(levels) {
                    let products = if const { by_magnitudes::<C>(TOKENS) } {
                        _mm256_maddubs_epi16(magnitudes, _mm256_sign_epi8(levels[k], y))
                    } else if signed::<C>() {
                        _mm256_maddubs_epi16(_mm256_abs_epi8(levels[k]), _mm256_sign_epi8(y, levels[k]))
                    } else {
                        _mm256_maddubs_epi16(levels[k], y)
                    };
                    *pairs = if k == first { products } else { _mm256_add_epi16(*pairs, products) };
                }
            }
        }
        for (sums, pairs) in sums.iter_mut().zip(pairs) {
            for ((sum, pairs), scales) in sums.iter_mut().zip(pairs).zip(scales) {
                *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, *scales));
            }
        }
    }
    isums.copy_from_slice(&sums);
}

/// The float steps of a block, `sum + (d * scale) * isum` for each unit in turn, for each token.
///
/// # Safety
/// As [`add_block`]; there are three bytes more before the scales of the block.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn add_each<C: Levels, const V: usize, const TOKENS: usize>(
    rows: &[Rows; V],
    tokens: Tokens,
    sums: &mut [[__m256; TOKENS]; V],
    prefetch: impl Fn(usize, usize),
) {
    let acts = tokens.acts;
    let ones = [_mm256_set1_epi16(1); V];
    for j in 0..UNITS {
        // SAFETY: as the caller says.
        unsafe {
            let scales = rows.map(|rows| {
                // Read three bytes further to the front, byte 0 of a dword is its highest.
                let at = C::SCALES + 64 * (j / 4) + j % 4 + 32 * rows.v;
                let line = Ymm::load(rows.block.wrapping_add(at).wrapping_sub(3));
                _mm256_cvtepi32_ps(_mm256_srai_epi32::<24>(line))
            });
            prefetch(j, 0);
            let levels = rows.map(|rows| rows.levels::<C>(j));
            prefetch(j, 1);
            by_tokens!(t in tokens.count, 4, T => {
                let mut isums = [[_mm256_setzero_si256(); V]; T];
                add_unit::<C, V, TOKENS, T>(&levels, &ones, tokens, (t, j), &mut isums);
                for (i, isums) in isums.iter().enumerate() {
                    let dy = Ymm::broadcast_float(acts.at.add(acts.stride * (t + i) + SCALE));
                    for (v, isum) in isums.iter().enumerate() {
                        let d = _mm256_mul_ps(_mm256_mul_ps(rows[v].d, dy), scales[v]);
                        sums[v][t + i] = Ymm::step(sums[v][t + i], d, *isum);
                    }
                }
            });
        }
    }
}
