//! Sixteen rows in single precision on AVX2: what a code adds is looked up in a table of four floats.

use std::arch::x86_64::*;

use trine_formats::widely::CHUNK;

use super::super::packed::PrefetchDistance;
use crate::Floats;
use crate::shared::widely::tables::{COLUMN, Outputs, SUMS, finish};
use crate::shared::widely::{ROWS, Unit, lane_words};

/// The products of a unit and the row of activations that the tables are made of.
#[target_feature(enable = "avx2,fma")]
pub(super) fn multiply(unit: &Unit<'_>, tables: &[f32], ahead: impl PrefetchDistance, out: &mut Outputs) {
    let (shape, streams) = (unit.shape, unit.shape.streams());
    let mut lanes = Floats::scratch(CHUNK * streams * SUMS);
    let size = (streams, shape.chunks(), lane_words(shape));
    table_sums_avx2(size, unit.weights, ahead, tables, &mut lanes);
    finish(unit, &mut lanes, out);
}

/// `rr`, `ri`, `ir` and `ii` of all lanes and streams of sixteen rows, `[lane][stream][accumulator][row]`. `weights` are
/// `[lane][stream][word][row]` with `words` words for `chunks` chunks, `tables` `[lane][chunk]` of [`COLUMN`] floats.
#[target_feature(enable = "avx2")]
fn table_sums_avx2(
    (streams, chunks, words): (usize, usize, usize),
    weights: &[u8],
    ahead: impl PrefetchDistance,
    tables: &[f32],
    out: &mut [f32],
) {
    let lane_tables = tables.chunks_exact(chunks * COLUMN);
    let lane_weights = weights.chunks_exact(streams * words * 4 * ROWS);
    let lane_sums = out.chunks_exact_mut(streams * SUMS);
    for ((tables, weights), out) in lane_tables.zip(lane_weights).zip(lane_sums) {
        let streams = weights.chunks_exact(words * 4 * ROWS);
        for (weights, out) in streams.zip(out.as_chunks_mut().0) {
            lane_sums_avx2(weights, ahead, tables, out);
        }
    }
}

/// Sums of one lane and stream. A function of its own, so that nothing but its sums takes registers.
#[inline(never)]
#[target_feature(enable = "avx2")]
fn lane_sums_avx2(weights: &[u8], ahead: impl PrefetchDistance, tables: &[f32], out: &mut [f32; SUMS]) {
    // of rows 0 to 7 and of rows 8 to 15
    let mut sums = [[_mm256_setzero_ps(); 2]; 4];
    let columns = tables.chunks(CHUNK * COLUMN);
    for (codes, columns) in weights.chunks_exact(4 * ROWS).zip(columns) {
        // SAFETY: the codes of sixteen rows are 64 bytes, and a column has four tables of four floats.
        unsafe {
            ahead.line(codes.as_ptr());
            let codes = codes.as_ptr().cast::<__m256i>();
            let mut low = _mm256_loadu_si256(codes);
            let mut high = _mm256_loadu_si256(codes.add(1));
            for column in columns.as_chunks::<COLUMN>().0 {
                for (k, sums) in sums.iter_mut().enumerate() {
                    let table = column.as_ptr().add(4 * k).cast::<__m128>();
                    let table = _mm256_broadcast_ps(&*table);
                    // two bits of a code choose one of the four floats
                    sums[0] = _mm256_add_ps(sums[0], _mm256_permutevar_ps(table, low));
                    sums[1] = _mm256_add_ps(sums[1], _mm256_permutevar_ps(table, high));
                }
                // the next chunk's codes
                low = _mm256_srli_epi32::<2>(low);
                high = _mm256_srli_epi32::<2>(high);
            }
        }
    }
    for (sums, out) in sums.iter().flatten().zip(out.as_chunks_mut::<8>().0) {
        // SAFETY: eight floats.
        unsafe { _mm256_storeu_ps(out.as_mut_ptr(), *sums) };
    }
}
