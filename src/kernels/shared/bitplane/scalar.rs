//! The products in plain Rust.

use trine_formats::anyprec::{BLOCK, FixedLut, QuantizedActivations, dot_f32, dot_i16};
use trine_formats::types::num::f16_to_f32;

use super::act::{Arrangement, INT_BLOCK};
use super::rows::PlaneRows;

/// [`super::multiply`], once lengths were checked.
pub(crate) fn multiply(rows: &PlaneRows<'_>, form: Arrangement, acts: &[u8], tokens: usize, out: &mut [f32]) {
    let act = form.act_bytes(rows.columns);
    let mut codes = vec![0; rows.columns];
    let acts = acts.chunks_exact(act);
    if form == Arrangement::Floats {
        let acts: Vec<Vec<f32>> = acts.map(|a| floats(a, rows.columns)).collect();
        for (r, out) in out.chunks_exact_mut(tokens).enumerate() {
            let lut: Vec<f32> = rows.centroids(r).map(f16_to_f32).collect();
            let row: Vec<f32> = rows.look_up(r, &mut codes).entries().map(|e| lut[e]).collect();
            for (out, x) in out.iter_mut().zip(&acts) {
                *out = dot_f32(row.iter().copied(), x);
            }
        }
        return;
    }
    let acts: Vec<QuantizedActivations> = acts.map(|a| ints(form, a, rows.columns)).collect();
    for (r, out) in out.chunks_exact_mut(tokens).enumerate() {
        let lut = FixedLut::new(rows.centroids(r));
        let row = rows.look_up(r, &mut codes);
        let row: Vec<i16> = row.entries().map(|e| lut.centroids[e]).collect();
        for (out, x) in out.iter_mut().zip(&acts) {
            *out = dot_i16(row.iter().copied(), lut.scale, x);
        }
    }
}

fn floats(act: &[u8], columns: usize) -> Vec<f32> {
    let all = act.as_chunks().0.iter();
    all.take(columns).map(|&b| f32::from_le_bytes(b)).collect()
}

/// Back from the arrangement to the quants.
fn ints(form: Arrangement, act: &[u8], columns: usize) -> QuantizedActivations {
    let blocks = columns.div_ceil(BLOCK);
    let (ints, scales) = act.split_at(blocks * INT_BLOCK);
    let mut values = Vec::with_capacity(blocks * BLOCK);
    for block in ints.chunks_exact(INT_BLOCK) {
        let (first, second) = block.split_at(BLOCK);
        match form {
            Arrangement::Bytes => values.extend(first.iter().map(|&q| q as i8)),
            // the upper bytes are only signs
            _ => values.extend(
                first
                    .chunks_exact(4)
                    .zip(second.chunks_exact(4))
                    .flat_map(|(a, b)| [a[0], a[2], b[0], b[2]].map(|q| q as i8)),
            ),
        }
    }
    values.truncate(columns);
    QuantizedActivations { values, scales: floats(scales, blocks) }
}
