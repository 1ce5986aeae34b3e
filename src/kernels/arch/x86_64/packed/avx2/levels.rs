//! The types of [`levels`] for AVX2, eight rows at a time.
//!
//! A level is looked up with one shuffle for each 16 of them. Levels that lie close together, those of two and three
//! bits, are lifted until none is negative, which is what `maddubs` wants of its first factor; what that adds to a row
//! is the sums of the activations times the scales and is taken back before a block begins, together with what raised
//! groups have more. Other levels are too wide for that: there the sign goes to the activations.

use std::arch::x86_64::*;

use trine_formats::types::{Part, info};

use super::super::super::grouped::GroupStep;
use super::super::ik_levels::layouts_of_ik_levels;
use super::super::levels::{self, Levels, UNITS, layouts_of_levels};
use super::super::ymm::{Ymm, shuffle_dwords};
use super::super::{PrefetchDistance, with_prefetch};
use crate::Isa;
use crate::arch::x86_64::rows::chains::Acts;
use crate::arch::x86_64::rows::lanes::{Lanes, by_tokens};
use crate::proof::{Avx2, Proof};
use crate::shared::packed::k_quants::{BLOCK, Q8_K, ROWS};
use crate::shared::packed::{Call, Layout};

/// Vectors of eight of the 16 rows.
const VECTORS: usize = 2;
/// Tokens of a call.
const TILE: usize = 16;
/// Arranged activations of a block: the quants, the sums of each 16 of them as i16, the scale.
const SUMS: usize = BLOCK;
const SCALE: usize = SUMS + 32;
const ACT: usize = 320;

const fn layout<C: Levels>() -> Layout {
    levels::layout::<C>(Avx2::NEEDS, (act_bytes, arrange), multiply::<C>, TILE)
}

pub(in crate::arch::x86_64::packed) static LAYOUTS: &[Layout] = &layouts_of_levels!(layout);
/// Layouts of the types of ik_llama.cpp.
pub(in crate::arch::x86_64::packed) static OF_IK: &[Layout] = &layouts_of_ik_levels!(layout);

fn act_bytes(n: usize) -> usize {
    levels::act_bytes(n, ACT)
}

fn arrange(_: Isa, act: &[u8], n: usize, out: &mut [u8]) {
    assert_eq!(act.len(), n / BLOCK * Q8_K, "activation row");
    for (act, out) in act.as_chunks::<Q8_K>().0.iter().zip(out.chunks_exact_mut(ACT)) {
        out[..SUMS].copy_from_slice(&act[info::Q8_K.at(Part::Codes)..][..BLOCK]);
        out[SUMS..SCALE].copy_from_slice(&act[info::Q8_K.at(Part::Sums)..][..32]);
        out[SCALE..][..4].copy_from_slice(&act[info::Q8_K.at(Part::Scale)..][..4]);
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
                1 => with_prefetch!(ahead => tile::<C, 1>(group.as_ptr(), acts, ahead, out)),
                _ => with_prefetch!(ahead => tile::<C, TILE>(group.as_ptr(), acts, ahead, out)),
            }
        }
    }
}

/// True if levels keep their sign, because products of lifted ones do not fit 16 bits, or there is no table of them.
const fn signed<C: Levels>() -> bool {
    let (values, count) = C::VALUES;
    count == 0
        || matches!(C::STEP, GroupStep::Each)
        || 2 * 127 * (values[count - 1] as i32 - values[0] as i32) > i16::MAX as i32
}

/// How far levels are lifted, 0 where they keep their sign.
const fn excess<C: Levels>() -> i32 {
    if signed::<C>() { 0 } else { -(C::VALUES.0[0] as i32) }
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

/// The levels as they are looked up, sixteen by sixteen.
const fn table<C: Levels>() -> [[i8; 16]; 2] {
    let mut lifted = [[0; 16]; 2];
    let mut i = 0;
    while i < C::VALUES.1 {
        lifted[i / 16][i % 16] = (C::VALUES.0[i] as i32 + excess::<C>()) as i8;
        i += 1;
    }
    lifted
}

/// The products of a group with up to `TOKENS` tokens.
///
/// # Safety
/// The processor has AVX2 and F16C; the group and the activations of as many tokens as there is room for in `out` are
/// readable.
#[target_feature(enable = "avx2,f16c")]
unsafe fn tile<C: Levels, const TOKENS: usize>(
    w: *const u8,
    acts: Acts,
    ahead: impl PrefetchDistance,
    out: &mut [f32],
) {
    let tokens = out.len() / ROWS;
    let mut sums = [[_mm256_setzero_ps(); TOKENS]; VECTORS];
    let blocks = w.wrapping_add(C::GROUP_HEAD);
    for b in 0..acts.blocks {
        let acts = Acts { at: acts.at.wrapping_add(ACT * b), ..acts };
        for (v, sums) in sums.iter_mut().enumerate() {
            // SAFETY: block b is there, of all activations too, as the caller says.
            unsafe {
                let block = blocks.add(C::BYTES_OF_GROUP * b);
                // Half a block with the first eight rows and half with the others.
                let from = block.wrapping_add(C::BYTES_OF_GROUP / VECTORS * v);
                let prefetch = |j: usize, i| {
                    const { assert!(UNITS * VECTORS == 16) };
                    let from = from.wrapping_add(C::BYTES_OF_GROUP / 16 * j);
                    ahead.share(from, const { C::BYTES_OF_GROUP.div_ceil(16) }, i, 2);
                };
                let d = match C::HEAD {
                    0 => Ymm::halves(block.add(16 * v)),
                    _ => Ymm::load_floats(w.add(32 * v).cast()),
                };
                let head = Head::new::<C>(d, block, v);
                let units = block.add(C::CODES + 32 * v);
                match C::STEP {
                    GroupStep::Each => add_each::<C>(&head, units, acts, &mut sums[..tokens], prefetch),
                    _ => add_block::<C, TOKENS>(&head, units, acts, &mut sums[..tokens], prefetch),
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

/// A block's head for eight rows.
struct Head {
    d: __m256,
    /// The scales of the first and the second half of each unit, twice as i16.
    scales: [[__m256i; 2]; UNITS],
    /// Factors of the sums of the activations of both halves of each unit.
    corrections: [__m256i; UNITS],
}

impl Head {
    /// The head of vector v, whose rows have these `d`.
    ///
    /// # Safety
    /// The processor has AVX2; the block is readable.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn new<C: Levels>(d: __m256, block: *const u8, v: usize) -> Head {
        let mut scales = [[_mm256_setzero_si256(); 2]; UNITS];
        let mut corrections = [_mm256_setzero_si256(); UNITS];
        for (j, (unit, correction)) in scales.iter_mut().zip(&mut corrections).enumerate() {
            let (line, first) = match C::OF_16 {
                true => (j / 2, 2 * (j % 2)),
                false => (j / 4, j % 4),
            };
            // SAFETY: the caller's block has this line.
            let bytes = unsafe { Ymm::load(block.add(C::SCALES + 64 * line + 32 * v)) };
            // The upper bytes of words, shifted down with their sign.
            let twice = |byte: usize| {
                let byte = byte as i8;
                _mm256_srai_epi16::<8>(shuffle_dwords(bytes, [-1, byte, -1, byte]))
            };
            *unit = match C::OF_16 {
                true => [twice(first), twice(first + 1)],
                false => [twice(first); 2],
            };
            let mut factor = _mm256_set1_epi16(-excess::<C>() as i16);
            if C::RAISED != 0 {
                let one = _mm256_set1_epi16(1);
                let raised = _mm256_and_si256(_mm256_blend_epi16::<0b1010_1010>(unit[0], unit[1]), one);
                factor = _mm256_add_epi16(factor, _mm256_mullo_epi16(raised, _mm256_set1_epi16(C::RAISED)));
                *unit = match C::ODD {
                    true => unit.map(|scale| _mm256_or_si256(scale, one)),
                    false => unit.map(|scale| _mm256_srai_epi16::<1>(scale)),
                };
            }
            let both = _mm256_blend_epi16::<0b1010_1010>(unit[0], unit[1]);
            *correction = _mm256_mullo_epi16(both, factor);
        }
        Head { d, scales, corrections }
    }
}

/// The levels of a unit, a dword of four weights of each row after the other.
///
/// # Safety
/// The processor has AVX2; the eight rows of the unit's lines are readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn levels_of<C: Levels>(unit: *const u8) -> [__m256i; 8] {
    // SAFETY: the caller's unit has these lines.
    let line = |i: usize| unsafe { Ymm::load(unit.add(64 * i)) };
    let masked = |line, mask: i8| _mm256_and_si256(line, _mm256_set1_epi8(mask));
    let codes = match C::UNIT_LINES {
        2 => {
            let [a, b] = [line(0), line(1)];
            let two = |line| masked(line, 3);
            [
                two(a),
                two(b),
                two(_mm256_srli_epi16::<2>(a)),
                two(_mm256_srli_epi16::<2>(b)),
                two(_mm256_srli_epi16::<4>(a)),
                two(_mm256_srli_epi16::<4>(b)),
                two(_mm256_srli_epi16::<6>(a)),
                two(_mm256_srli_epi16::<6>(b)),
            ]
        }
        3 => {
            let [a, b, c] = [line(0), line(1), line(2)];
            let upper = |line| masked(line, 0xC0u8.cast_signed());
            let left = _mm256_or_si256(
                _mm256_or_si256(upper(a), _mm256_srli_epi16::<2>(upper(b))),
                _mm256_srli_epi16::<4>(upper(c)),
            );
            let low = |line| masked(line, 7);
            let middle = |line| masked(_mm256_srli_epi16::<3>(line), 7);
            [
                low(a),
                low(b),
                low(c),
                middle(a),
                middle(b),
                middle(c),
                low(_mm256_srli_epi16::<5>(left)),
                low(_mm256_srli_epi16::<2>(left)),
            ]
        }
        4 | 5 => {
            let [a, b, c, d] = [line(0), line(1), line(2), line(3)];
            let low = |line| masked(line, 15);
            let high = |line| masked(_mm256_srli_epi16::<4>(line), 15);
            [low(a), low(b), low(c), low(d), high(a), high(b), high(c), high(d)]
        }
        _ => return [line(0), line(1), line(2), line(3), line(4), line(5), line(6), line(7)],
    };
    let [first, second] = const { table::<C>() };
    // SAFETY: 16 bytes.
    let table = |levels: [i8; 16]| unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(levels.as_ptr().cast())) };
    let levels = codes.map(|codes| _mm256_shuffle_epi8(table(first), codes));
    if C::UNIT_LINES < 5 {
        return levels;
    }
    let others = codes.map(|codes| _mm256_shuffle_epi8(table(second), codes));
    // The fifth bit of each dword in the highest place of its bytes.
    let fifth = line(4);
    let fifth = [
        _mm256_slli_epi16::<7>(fifth),
        _mm256_slli_epi16::<6>(fifth),
        _mm256_slli_epi16::<5>(fifth),
        _mm256_slli_epi16::<4>(fifth),
        _mm256_slli_epi16::<3>(fifth),
        _mm256_slli_epi16::<2>(fifth),
        _mm256_slli_epi16::<1>(fifth),
        fifth,
    ];
    std::array::from_fn(|k| _mm256_blendv_epi8(levels[k], others[k], fifth[k]))
}

/// The float step of a block, `sum + d * isum` with all scales in the integer, for each token. `prefetch(j, i)` is
/// called twice in unit j.
///
/// # Safety
/// The processor has AVX2 and F16C; the units are readable, and the activations of the block for all `sums`.
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn add_block<C: Levels, const TOKENS: usize>(
    head: &Head,
    units: *const u8,
    acts: Acts,
    sums: &mut [__m256],
    prefetch: impl Fn(usize, usize),
) {
    let tokens = sums.len();
    let mut isums = [_mm256_setzero_si256(); TOKENS];
    // SAFETY: as the caller says.
    unsafe {
        for (t, isum) in isums[..tokens].iter_mut().enumerate() {
            *isum = start_of::<C>(head, acts.at.add(acts.stride * t + SUMS));
        }
        for (j, scales) in head.scales.iter().enumerate() {
            prefetch(j, 0);
            let levels = levels_of::<C>(units.add(64 * C::UNIT_LINES * j));
            prefetch(j, 1);
            by_tokens!(t in tokens, 4, T => {
                let y = acts.at.add(acts.stride * t + 32 * j);
                let isums = &mut isums[t..t + T];
                add_unit::<C, T>(&levels, scales, y, acts.stride, isums);
            });
        }
        for (t, (sum, isum)) in sums.iter_mut().zip(&isums).enumerate() {
            let d = Ymm::broadcast_float(acts.at.add(acts.stride * t + SCALE));
            let product = _mm256_mul_ps(_mm256_mul_ps(head.d, d), _mm256_cvtepi32_ps(*isum));
            *sum = _mm256_add_ps(*sum, product);
        }
    }
}

/// The number that a block's integer starts at: the excess of lifted levels, negated, and that of raised groups.
///
/// # Safety
/// The processor has AVX2; the sums of the activations are readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn start_of<C: Levels>(head: &Head, sums: *const u8) -> __m256i {
    let mut all = _mm256_setzero_si256();
    if excess::<C>() == 0 && C::RAISED == 0 {
        return all;
    }
    for (j, correction) in head.corrections.iter().enumerate() {
        // SAFETY: a dword has the two sums of a unit.
        let pair = unsafe { Ymm::broadcast(sums.add(4 * j)) };
        all = _mm256_add_epi32(all, _mm256_madd_epi16(*correction, pair));
    }
    all
}

/// Adds a unit's products times scales to the integers of `T` tokens, whose activations are `stride` bytes apart.
///
/// # Safety
/// The processor has AVX2; 32 activations of each token are readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn add_unit<C: Levels, const T: usize>(
    levels: &[__m256i; 8],
    scales: &[__m256i; 2],
    y: *const u8,
    stride: usize,
    isums: &mut [__m256i],
) {
    let together = const { together::<C>() };
    let mut sums: [__m256i; T] = std::array::from_fn(|t| isums[t]);
    for first in (0..8).step_by(together) {
        let mut pairs = [_mm256_setzero_si256(); T];
        for (i, levels) in levels[first..][..together].iter().enumerate() {
            let magnitudes = if signed::<C>() { _mm256_abs_epi8(*levels) } else { *levels };
            for (t, pairs) in pairs.iter_mut().enumerate() {
                // SAFETY: the caller's activations have eight dwords.
                let y = unsafe { Ymm::broadcast(y.add(stride * t + 4 * (first + i))) };
                let y = if signed::<C>() { _mm256_sign_epi8(y, *levels) } else { y };
                let products = _mm256_maddubs_epi16(magnitudes, y);
                *pairs = match i {
                    0 => products,
                    _ => _mm256_add_epi16(*pairs, products),
                };
            }
        }
        for (sum, pairs) in sums.iter_mut().zip(pairs) {
            *sum = _mm256_add_epi32(*sum, _mm256_madd_epi16(pairs, scales[first / 4]));
        }
    }
    isums.copy_from_slice(&sums);
}

/// The float steps of a block, `sum + (d * scale) * isum` for each unit in turn, for each token.
///
/// # Safety
/// As [`add_block`].
#[inline]
#[target_feature(enable = "avx2,f16c")]
unsafe fn add_each<C: Levels>(
    head: &Head,
    units: *const u8,
    acts: Acts,
    sums: &mut [__m256],
    prefetch: impl Fn(usize, usize),
) {
    let tokens = sums.len();
    for (j, [scale, _]) in head.scales.iter().enumerate() {
        let scale = _mm256_cvtepi32_ps(_mm256_srai_epi32::<16>(*scale));
        // SAFETY: as the caller says.
        unsafe {
            prefetch(j, 0);
            let levels = levels_of::<C>(units.add(64 * C::UNIT_LINES * j));
            prefetch(j, 1);
            let magnitudes = levels.map(|levels| _mm256_abs_epi8(levels));
            by_tokens!(t in tokens, 4, T => {
                let of_tokens = acts.at.add(acts.stride * t);
                let y = of_tokens.add(32 * j);
                let isums: [_; T] = signed_unit(&levels, &magnitudes, y, acts.stride);
                for (i, (sum, isum)) in sums[t..].iter_mut().zip(isums).enumerate() {
                    let d = Ymm::broadcast_float(of_tokens.add(acts.stride * i + SCALE));
                    let d = _mm256_mul_ps(_mm256_mul_ps(head.d, d), scale);
                    *sum = _mm256_add_ps(*sum, _mm256_mul_ps(d, _mm256_cvtepi32_ps(isum)));
                }
            });
        }
    }
}

/// The integers of a unit without its scale, for `T` tokens whose activations are `stride` bytes apart.
///
/// # Safety
/// The processor has AVX2; 32 activations of each token are readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn signed_unit<const T: usize>(
    levels: &[__m256i; 8],
    magnitudes: &[__m256i; 8],
    y: *const u8,
    stride: usize,
) -> [__m256i; T] {
    let mut sums = [_mm256_setzero_si256(); T];
    for (k, (levels, magnitudes)) in levels.iter().zip(magnitudes).enumerate() {
        for (t, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's activations have eight dwords.
            let y = unsafe { Ymm::broadcast(y.add(stride * t + 4 * k)) };
            // At most 2 * 127 * 127 in magnitude, which fits 16 bits.
            let pairs = _mm256_maddubs_epi16(*magnitudes, _mm256_sign_epi8(y, *levels));
            let fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
            *sum = _mm256_add_epi32(*sum, fours);
        }
    }
    sums
}
