//! Soft-max over the visible cells of a row of scores.

use std::ops::Range;

use super::pexp_all;
use crate::Isa;

/// Scores to probabilities, not yet rounded to half floats; what is not visible becomes 0.
///
/// `w = score * scale + 0`, `e = pexp(w - max w)`; the total in `f64` over groups of four cells counted from the
/// start of the row, each group summed in `f32` as `(e0 + e1) + (e2 + e3)` with 0 for what is not visible;
/// `e * f32(1 / total)`.
///
/// # Panics
/// When the row is not whole sixteens or the range is not within it.
pub fn soft_max(isa: Isa, row: &mut [f32], visible: Range<usize>, scale: f32) {
    assert!(
        row.len().is_multiple_of(16) && visible.start <= visible.end && visible.end <= row.len(),
        "soft-max over {visible:?} of {}",
        row.len()
    );
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an `Isa` is only made for what the processor has; the range was checked.
        Isa::Avx512 => unsafe { avx512(row, visible, scale) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Isa::Avx2 => unsafe { avx2(row, visible, scale) },
        _ => definition(row, visible, scale),
    }
}

#[inline(always)]
fn definition(row: &mut [f32], visible: Range<usize>, scale: f32) {
    row[..visible.start].fill(0.0);
    row[visible.end..].fill(0.0);
    let seen = &mut row[visible.clone()];
    seen.iter_mut().for_each(|v| *v = *v * scale + 0.0);
    let max = seen
        .iter()
        .copied()
        .fold(f32::NEG_INFINITY, |m, v| if v > m { v } else { m });
    seen.iter_mut().for_each(|v| *v -= max);
    pexp_all(seen);
    let total = row
        .chunks_exact(4)
        .fold(0f64, |t, e| t + f64::from((e[0] + e[1]) + (e[2] + e[3])));
    let inverse = (1.0 / total) as f32;
    row[visible].iter_mut().for_each(|e| *e *= inverse);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2(row: &mut [f32], visible: Range<usize>, scale: f32) {
    definition(row, visible, scale);
}

/// # Safety
/// AVX-512 F and DQ; a row of whole sixteens with the range in it.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn avx512(row: &mut [f32], visible: Range<usize>, scale: f32) {
    use std::arch::x86_64::*;

    use super::exp::pexp16;

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
    // SAFETY: whole sixteens of the row throughout.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::pexp;
    use crate::testing::{Random, isas, same};

    fn formula(row: &mut [f32], visible: Range<usize>, scale: f32) {
        let mut e = vec![0f32; row.len()];
        let w = |i: usize| row[i] * scale + 0.0;
        let max = visible
            .clone()
            .map(w)
            .fold(f32::NEG_INFINITY, |m, v| if v > m { v } else { m });
        for i in visible.clone() {
            e[i] = pexp(w(i) - max);
        }
        let total = e
            .chunks(4)
            .fold(0f64, |t, e| t + f64::from((e[0] + e[1]) + (e[2] + e[3])));
        let inverse = (1.0 / total) as f32;
        row.fill(0.0);
        for i in visible {
            row[i] = e[i] * inverse;
        }
    }

    #[test]
    fn every_instruction_set_gives_the_bits_of_the_formula() {
        let mut random = Random(0x50F7);
        let special = [
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            -0.0,
            1e-40,
            3e38,
            -3e38,
            -95.0,
            -1000.0,
        ];
        for case in 0..600 {
            let n = 16 * (1 + random.below(12));
            let begin = random.below(n);
            let visible = begin..begin + 1 + random.below(n - begin);
            let spread = [1.0, 10.0, 60.0][case % 3];
            let mut row: Vec<f32> = (0..n).map(|_| random.float() * spread).collect();
            for _ in 0..[0, 0, 1, 4][case % 4] {
                row[random.below(n)] = special[random.below(special.len())];
            }
            let mut expected = row.clone();
            formula(&mut expected, visible.clone(), 0.3);
            for isa in isas() {
                let mut got = row.clone();
                soft_max(isa, &mut got, visible.clone(), 0.3);
                for (i, (a, b)) in got.iter().zip(&expected).enumerate() {
                    assert!(same(*a, *b), "{isa} {visible:?} cell {i}: {a:e}, not {b:e}");
                }
            }
        }
    }
}
