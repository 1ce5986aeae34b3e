//! Scale alone: codes from zero upwards.

use super::{DESCENT_ROUNDS, GROUP_EPS};
use crate::types::num::nearest_int;

/// Weighted fit of one non-negative scale to values that should not be negative (the scales or the
/// minima of a super-block), with codes `0..=top`: picks the inverse scale of least squared error among
/// nine, then descends as [`fit_descent`] does. Codes of negative values wrap, as 8-bit codes do in the
/// reference.
///
/// Source: ggml `make_qp_quants`.
pub(in crate::types) fn fit_unsigned<const N: usize>(
    x: &[f32; N],
    w: &[f32; N],
    top: i32,
) -> (f32, [u8; N]) {
    let mut codes = [0; N];
    let max = x.iter().fold(0.0, |max, v| if max > *v { max } else { *v });
    if max < GROUP_EPS {
        return (0.0, codes);
    }
    let mut inverse = top as f32 / max;
    let scale = 1.0 / inverse;
    let mut best = 0.0;
    for (x, w) in x.iter().zip(w) {
        let diff = x - scale * f32::from(nearest_int(inverse * x) as u8);
        best += w * diff * diff;
    }
    for step in -4..=4 {
        if step == 0 {
            continue;
        }
        let inv = (0.1 * step as f32 + top as f32) / max;
        let scale = 1.0 / inv;
        let mut error = 0.0;
        for (x, w) in x.iter().zip(w) {
            let diff = x - scale * nearest_int(inv * x).min(top) as f32;
            error += w * diff * diff;
        }
        if error < best {
            best = error;
            inverse = inv;
        }
    }

    let (mut sum_lx, mut sum_l2) = (0.0, 0.0);
    for ((code, x), w) in codes.iter_mut().zip(x).zip(w) {
        let l = nearest_int(inverse * x).min(top);
        *code = l as u8;
        sum_lx += w * x * l as f32;
        sum_l2 += w * l as f32 * l as f32;
    }
    for _ in 0..DESCENT_ROUNDS {
        let mut changed = false;
        for ((code, x), w) in codes.iter_mut().zip(x).zip(w) {
            let l = f32::from(*code);
            let mut lx = sum_lx - w * x * l;
            let mut l2 = sum_l2 - w * l * l;
            if !(lx > 0.0 && l2 > 0.0) {
                continue;
            }
            let new = nearest_int(x * l2 / lx).min(top);
            if new == i32::from(*code) {
                continue;
            }
            lx += w * x * new as f32;
            l2 += w * new as f32 * new as f32;
            if lx * lx * sum_l2 > sum_lx * sum_lx * l2 {
                *code = new as u8;
                (sum_lx, sum_l2) = (lx, l2);
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    (if sum_l2 > 0.0 { sum_lx / sum_l2 } else { 0.0 }, codes)
}
