//! Soft-max over the visible cells of a row of scores.

use std::ops::Range;

use super::pexp_all;
use crate::Isa;
use crate::arch::elements as native;
use crate::math::expf;
use crate::proof::{compiled_for, compiled_for_avx2};

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
    if !native::soft_max(isa, row, visible.clone(), scale) {
        compiled_for_avx2!(isa, plain(row: &mut [f32], visible: Range<usize>, scale: f32), plain);
    }
}

#[inline(always)]
fn plain(row: &mut [f32], visible: Range<usize>, scale: f32) {
    definition(row, visible, scale, None);
}

/// [`soft_max`] with one more cell of score `sink`, after its scale, whose probability nobody wants: it counts for the
/// maximum, and its exponential, which is libm's, is added to the total at last.
///
/// # Panics
/// When the row is not whole sixteens or the range is not within it.
pub fn soft_max_with_sink(isa: Isa, row: &mut [f32], visible: Range<usize>, scale: f32, sink: f32) {
    assert!(
        row.len().is_multiple_of(16) && visible.start <= visible.end && visible.end <= row.len(),
        "soft-max over {visible:?} of {}",
        row.len()
    );
    let sink = Some(sink);
    compiled_for!(isa, definition(row: &mut [f32], visible: Range<usize>, scale: f32, sink: Option<f32>));
}

#[inline(always)]
fn definition(row: &mut [f32], visible: Range<usize>, scale: f32, sink: Option<f32>) {
    row[..visible.start].fill(0.0);
    row[visible.end..].fill(0.0);
    let seen = &mut row[visible.clone()];
    seen.iter_mut().for_each(|v| *v = *v * scale + 0.0);
    let max = seen.iter().copied().fold(f32::NEG_INFINITY, |m, v| if v > m { v } else { m });
    let max = sink.map_or(max, |sink| if max > sink { max } else { sink });
    seen.iter_mut().for_each(|v| *v -= max);
    pexp_all(seen);
    let mut total = row.chunks_exact(4).fold(0f64, |t, e| t + f64::from((e[0] + e[1]) + (e[2] + e[3])));
    if let Some(sink) = sink {
        total += f64::from(expf(sink - max));
    }
    let inverse = (1.0 / total) as f32;
    row[visible].iter_mut().for_each(|e| *e *= inverse);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::pexp;
    use crate::testing::{Random, isas, same};

    fn formula(row: &mut [f32], visible: Range<usize>, scale: f32) {
        let mut e = vec![0f32; row.len()];
        let w = |i: usize| row[i] * scale + 0.0;
        let max = visible.clone().map(w).fold(f32::NEG_INFINITY, |m, v| if v > m { v } else { m });
        for i in visible.clone() {
            e[i] = pexp(w(i) - max);
        }
        let total = e.chunks(4).fold(0f64, |t, e| t + f64::from((e[0] + e[1]) + (e[2] + e[3])));
        let inverse = (1.0 / total) as f32;
        row.fill(0.0);
        for i in visible {
            row[i] = e[i] * inverse;
        }
    }

    #[test]
    fn a_sink_takes_its_share_of_the_total() {
        let mut random = Random(0x5147);
        for sink in [-40.0, -0.5, 0.25, 7.0] {
            let scores: Vec<f32> = (0..32).map(|_| random.float()).collect();
            let e: Vec<f32> = {
                let max = scores[3..30].iter().fold(sink, |m: f32, v| m.max(v * 0.5 + 0.0));
                let e = scores.iter().map(|v| pexp((v * 0.5 + 0.0) - max));
                let mut e: Vec<f32> = e.chain([expf(sink - max)]).collect();
                e[..3].fill(0.0);
                e[30..32].fill(0.0);
                e
            };
            let fours = e[..32].chunks(4);
            let total = fours.fold(0f64, |t, e| t + f64::from((e[0] + e[1]) + (e[2] + e[3])));
            let inverse = (1.0 / (total + f64::from(e[32]))) as f32;
            for isa in isas() {
                let mut row = scores.clone();
                soft_max_with_sink(isa, &mut row, 3..30, 0.5, sink);
                for (y, e) in row.iter().zip(&e) {
                    assert_eq!(y.to_bits(), (e * inverse).to_bits(), "{isa} {sink}");
                }
            }
        }
    }

    #[test]
    fn every_instruction_set_gives_the_bits_of_the_formula() {
        let mut random = Random(0x50F7);
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e-40, 3e38, -3e38, -95.0, -1000.0];
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
