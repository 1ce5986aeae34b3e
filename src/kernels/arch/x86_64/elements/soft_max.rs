//! Soft-max in vectors.

use std::arch::x86_64::*;
use std::ops::Range;

use super::exp::pexp16;
use crate::{Isa, Level};

/// [`crate::elements::soft_max`]; true where this was done.
pub fn soft_max(isa: Isa, row: &mut [f32], visible: Range<usize>, scale: f32) -> bool {
    let there = isa.has(Level::Avx512);
    if there {
        // SAFETY: `isa` proves that the processor has AVX-512.
        unsafe { soft_max_avx512(row, visible, scale) };
    }
    there
}

/// Whole sixteens of the row.
///
/// # Panics
/// When the row ends before the sixteen in which the range does.
#[target_feature(enable = "avx512f,avx512dq")]
fn soft_max_avx512(row: &mut [f32], visible: Range<usize>, scale: f32) {
    let first = visible.start / 16 * 16;
    let end = visible.end.next_multiple_of(16);
    row[..first].fill(0.0);
    row[end..].fill(0.0);
    let p = row.as_mut_ptr();
    // The visible lanes of the sixteen cells from `i`.
    let mask = |i: usize| -> __mmask16 {
        let below = (1u32 << (visible.end - i).min(16)) - 1;
        let before = (1u32 << visible.start.saturating_sub(i)) - 1;
        (below & !before) as u16
    };
    // SAFETY: whole sixteens of the row throughout, which does not end before `end`, or it could not be cut there.
    unsafe {
        let factor = _mm512_set1_ps(scale);
        let mut max = _mm512_set1_ps(f32::NEG_INFINITY);
        for i in (first..end).step_by(16) {
            let w = _mm512_mul_ps(_mm512_loadu_ps(p.add(i)), factor);
            let w = _mm512_add_ps(w, _mm512_setzero_ps());
            _mm512_storeu_ps(p.add(i), w);
            // The second where the first is not a number.
            max = _mm512_mask_max_ps(max, mask(i), w, max);
        }
        let max = _mm512_set1_ps(_mm512_reduce_max_ps(max));
        let mut total = 0f64;
        for i in (first..end).step_by(16) {
            let e = pexp16(_mm512_sub_ps(_mm512_loadu_ps(p.add(i)), max));
            let e = _mm512_maskz_mov_ps(mask(i), e);
            _mm512_storeu_ps(p.add(i), e);
            let pairs = _mm512_add_ps(e, _mm512_permute_ps::<0b10_11_00_01>(e));
            let fours = _mm512_add_ps(pairs, _mm512_permute_ps::<0b01_00_11_10>(pairs));
            let sums = _mm512_castps512_ps128(_mm512_maskz_compress_ps(0x1111, fours));
            let mut groups = [0f64; 4];
            _mm256_storeu_pd(groups.as_mut_ptr(), _mm256_cvtps_pd(sums));
            for group in groups {
                total += group;
            }
        }
        let inverse = _mm512_set1_ps((1.0 / total) as f32);
        for i in (first..end).step_by(16) {
            let e = _mm512_loadu_ps(p.add(i));
            _mm512_storeu_ps(p.add(i), _mm512_maskz_mul_ps(mask(i), e, inverse));
        }
    }
}
