//! Rows with groups that are not whole blocks, looked up weight by weight.

use trine_formats::anyprec::FixedLut;
use trine_formats::types::num::f16_to_f32;

use crate::shared::bitplane::{Arrangement, PlaneRows};

/// Row `row` in [`Arrangement::Words`]; its scale.
pub(super) fn words(rows: &PlaneRows<'_>, row: usize, memory: &mut [u8]) -> f32 {
    let lut = FixedLut::new(rows.centroids(row));
    let mut codes = vec![0; rows.columns];
    memory[..Arrangement::Words.act_bytes(rows.columns)].fill(0);
    for (i, entry) in rows.look_up(row, &mut codes).entries().enumerate() {
        let at = i / 64 * 128 + i % 4 / 2 * 64 + i % 64 / 4 * 4 + i % 2 * 2;
        memory[at..at + 2].copy_from_slice(&lut.centroids[entry].to_le_bytes());
    }
    lut.scale
}

/// Row `row` in [`Arrangement::Floats`], zeros after it.
pub(super) fn floats(rows: &PlaneRows<'_>, row: usize, memory: &mut [u8]) {
    let lut: Vec<f32> = rows.centroids(row).map(f16_to_f32).collect();
    let mut codes = vec![0; rows.columns];
    let (weights, rest) = memory.split_at_mut(4 * rows.columns);
    let outs = weights.as_chunks_mut().0.iter_mut();
    for (out, entry) in outs.zip(rows.look_up(row, &mut codes).entries()) {
        *out = lut[entry].to_le_bytes();
    }
    rest.fill(0);
}
