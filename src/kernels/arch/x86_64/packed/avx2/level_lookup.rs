//! Levels of [`super::levels`] by their codes, with shuffles.

use std::arch::x86_64::*;

use super::super::super::grouped::GroupStep;
use super::super::levels::Levels;
use super::super::ymm::Ymm;
use crate::arch::x86_64::rows::lanes::Lanes;

/// True if levels keep their sign, because products of lifted ones do not fit 16 bits, or there is no table of them.
pub(super) const fn signed<C: Levels>() -> bool {
    let (values, count) = C::VALUES;
    count == 0
        || matches!(C::STEP, GroupStep::Each)
        || 2 * 127 * (values[count - 1] as i32 - values[0] as i32) > i16::MAX as i32
}

/// How far levels are lifted, 0 where they keep their sign.
pub(super) const fn excess<C: Levels>() -> i32 {
    if signed::<C>() { 0 } else { -(C::VALUES.0[0] as i32) }
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

/// The levels of a unit, a dword of four weights of each row after the other.
///
/// # Safety
/// The processor has AVX2; the eight rows of the unit's lines are readable.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn levels_of<C: Levels>(unit: *const u8) -> [__m256i; 8] {
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
