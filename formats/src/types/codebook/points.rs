//! A type of the IQ2 and IQ3 families, all of its codec.

use super::Unpacked;
use super::fit::{BlockFit, Kind, fit_block};
use crate::types::cells::{CELL, CellStep};
use crate::types::grid::whole;
use crate::types::integers::{Coding, IntegerForm, Sums};
use crate::types::k_block::{self, BLOCK, SuperBlocks, lane_sums};
use crate::types::lanes::{Portable, Simd};
use crate::types::num::f16_at;
use crate::types::type_info::size_only;
use crate::types::{Field, TypeId, TypeInfo, q8_k};

/// A type of the IQ2 and IQ3 families: points of `N` weights, `GROUPS` groups in a block of `BYTES` bytes, which begins
/// with its scale.
pub(in crate::types) trait Points<const N: usize, const GROUPS: usize, const BYTES: usize> {
    /// The unit of the weights of points, in steps.
    const UNIT: f32;

    /// A block taken apart.
    fn unpack(block: &[u8; BYTES]) -> Unpacked<GROUPS>;

    /// How the encoder searches.
    fn kind() -> &'static Kind<N>;

    /// Writes a fit into a block, all of it.
    fn write(fit: &BlockFit<GROUPS>, block: &mut [u8; BYTES]);
}

/// The registry's entry of a type.
pub(in crate::types) const fn info<
    T: Points<N, GROUPS, BYTES>,
    const N: usize,
    const GROUPS: usize,
    const BYTES: usize,
>(
    id: TypeId,
    name: &'static str,
    fields: &'static [Field],
) -> TypeInfo {
    TypeInfo {
        act: Some(TypeId::Q8_K),
        decode: Some(decode::<T, N, GROUPS, BYTES>),
        encode: Some(encode::<T, N, GROUPS, BYTES>),
        dot_ref: Some(dot_ref::<T, N, GROUPS, BYTES>),
        ..size_only(id, name, BLOCK, BYTES, fields)
    }
}

/// The scale of a group is `d * (0.5 + s)` times two units.
fn decode<T: Points<N, GROUPS, BYTES>, const N: usize, const GROUPS: usize, const BYTES: usize>(
    row: &[u8],
    out: &mut [f32],
) {
    k_block::decode_blocks(row, out, |block: &[u8; BYTES], y| {
        let d = f16_at(block, 0);
        let Unpacked { weights, scales } = T::unpack(block);
        let size = BLOCK / GROUPS;
        let groups = y.chunks_exact_mut(size).zip(weights.chunks_exact(size));
        for ((y, weights), s) in groups.zip(scales) {
            let scale = d * (0.5 + f32::from(s)) * (2.0 * T::UNIT);
            for (y, w) in y.iter_mut().zip(weights) {
                *y = scale * f32::from(*w);
            }
        }
    });
}

/// The encoder of a type, on any processor.
pub(in crate::types) fn encode<T: Points<N, GROUPS, BYTES>, const N: usize, const GROUPS: usize, const BYTES: usize>(
    x: &[f32],
    importance: Option<&[f32]>,
    row: &mut [u8],
) {
    encode_on::<_, T, N, GROUPS, BYTES>(Portable, x, importance, row);
}

/// The steps of a block's cells, for [`Cells::steps`](crate::types::cells::Cells::steps).
///
/// # Panics
/// When `block` is no whole block, or `steps` has not one place for each eight weights.
pub(in crate::types) fn steps<T: Points<N, GROUPS, BYTES>, const N: usize, const GROUPS: usize, const BYTES: usize>(
    block: &[u8],
    steps: &mut [CellStep],
) {
    let block = whole(block);
    let d = f16_at(block, 0);
    for (steps, s) in steps.chunks_exact_mut(BLOCK / CELL / GROUPS).zip(T::unpack(block).scales) {
        steps.fill(CellStep { scale: d * (0.5 + f32::from(s)) * (2.0 * T::UNIT), shift: 0.0 });
    }
}

/// Per block `acc += (dw * dx) * sum`, `sum` being `(2 s + 1) * weight * quant` over all weights, an exact integer; at
/// the end times the unit.
fn dot_ref<T: Points<N, GROUPS, BYTES>, const N: usize, const GROUPS: usize, const BYTES: usize>(
    w: &[u8],
    act: &[u8],
) -> f32 {
    let mut acc = 0.0f32;
    for (x, y) in q8_k::block_pairs::<BYTES>(w, act) {
        let Unpacked { weights, scales } = T::unpack(x);
        let scales = scales.map(|s| 2 * i32::from(s) + 1);
        let sums = lane_sums(&weights, q8_k::quants(y), &scales);
        let d = f16_at(x, 0) * q8_k::scale(y);
        acc += d * sums.iter().sum::<i32>() as f32;
    }
    T::UNIT * acc
}

/// A type as integers, whose weights have these levels.
pub(in crate::types) const fn integers<
    T: Points<N, GROUPS, BYTES>,
    const N: usize,
    const GROUPS: usize,
    const BYTES: usize,
>(
    levels: &'static [i8],
) -> IntegerForm {
    let sums = Sums::Whole { unit: 1.0, last: T::UNIT };
    IntegerForm::new(BLOCK / GROUPS, Coding::Table(levels), sums, |_, block, to| {
        let block = whole(block);
        let Unpacked { weights, scales } = T::unpack(block);
        to.set(&weights, f16_at(block, 0));
        to.set_scales(&scales.map(|s| 2 * s + 1));
    })
}

/// The encoder of a type on an instruction set.
#[inline(always)]
pub(in crate::types) fn encode_on<S, T, const N: usize, const GROUPS: usize, const BYTES: usize>(
    simd: S,
    x: &[f32],
    importance: Option<&[f32]>,
    row: &mut [u8],
) where
    S: Simd,
    T: Points<N, GROUPS, BYTES>,
{
    let kind = T::kind();
    let mut rows = SuperBlocks::<BYTES>::new(x, importance, row);
    while let Some(batch) = rows.suiting::<S>(1, kind.definition) {
        for (b, (x, block)) in batch.x.iter().zip(batch.out).enumerate() {
            let importance = batch.importance.map(|importance| &importance[b]);
            let fit = if GROUPS == BLOCK / 16 {
                fit_block::<S, N, 16, GROUPS>(simd, kind, x, importance)
            } else {
                fit_block::<S, N, 32, GROUPS>(simd, kind, x, importance)
            };
            T::write(&fit, block);
        }
    }
}
