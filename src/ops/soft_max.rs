//! Soft-max over all of a row.

use crate::math::{expf, pexp};

/// Soft-max over a whole row (ggml `ggml_vec_soft_max_f32`): groups of four by the 4-lane exponential, each summed in
/// `f32` as `(e0 + e1) + (e2 + e3)`; what is left of the row by libm's, one by one; the total in `f64`.
pub fn soft_max(row: &mut [f32]) {
    let max = row.iter().fold(f32::NEG_INFINITY, |m, &v| if v > m { v } else { m });
    let mut total = 0f64;
    let (groups, rest) = row.as_chunks_mut::<4>();
    for e in groups {
        e.iter_mut().for_each(|v| *v = pexp(*v - max));
        total += f64::from((e[0] + e[1]) + (e[2] + e[3]));
    }
    for v in rest {
        *v = expf(*v - max);
        total += f64::from(*v);
    }
    let inverse = (1.0 / total) as f32;
    row.iter_mut().for_each(|e| *e *= inverse);
}
