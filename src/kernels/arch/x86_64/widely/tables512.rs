//! Sixteen rows in single precision on AVX-512, as [`super::tables256`] has them, in one register; two streams share
//! the tables that they look up in, and their eight sums are as many as additions wait for one another.

use std::arch::x86_64::*;

use trine_formats::widely::CHUNK;

use super::super::packed::PrefetchDistance;
use crate::Floats;
use crate::shared::widely::tables::{COLUMN, Outputs, SUMS, finish};
use crate::shared::widely::{ROWS, Unit, lane_words};
use crate::{Isa, Level};

/// The products of a unit and the row of activations that the tables are made of.
#[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) fn multiply(unit: &Unit<'_>, tables: &[f32], ahead: impl PrefetchDistance, out: &mut Outputs) {
    let (shape, streams) = (unit.shape, unit.shape.streams());
    let mut lanes = Floats::scratch(CHUNK * streams * SUMS);
    let lane_tables = tables.chunks_exact(shape.chunks() * COLUMN);
    // the numbers of streams are even: those of U and as many of W
    let pair = 2 * lane_words(shape) * 4 * ROWS;
    let pairs = unit.weights.chunks_exact(pair);
    let sums = lanes.as_chunks_mut::<{ 2 * SUMS }>().0;
    for (i, (weights, sums)) in pairs.zip(sums).enumerate() {
        let Some(tables) = lane_tables.clone().nth(i / (streams / 2)) else {
            continue;
        };
        lane_sums(weights, ahead, tables, sums);
    }
    finish(unit, &mut lanes, out);
}

/// [`crate::shared::widely::tables::arrange`]; true where this was done.
pub(crate) fn arrange(isa: Isa, chunks: usize, re: &[[u8; 4]], im: &[[u8; 4]], out: &mut [f32]) -> bool {
    let there = isa.has(Level::Avx512);
    if there {
        // SAFETY: `isa` proves that the processor has AVX-512.
        unsafe { arrange_avx512(chunks, re, im, out) };
    }
    there
}

/// The tables of a column are a vector.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn arrange_avx512(chunks: usize, re: &[[u8; 4]], im: &[[u8; 4]], out: &mut [f32]) {
    // of rr, ri, ir, ii four floats each
    const REAL_PARTS: __mmask16 = 0b0000_1100_0000_0011;
    const IMAGINARY_PARTS: __mmask16 = 0b1100_0000_0011_0000;
    const NEGATIVE: __mmask16 = 0b0100_0100_0001_0001;
    let sign = _mm512_set1_ps(-0.0);
    for (lane, out) in out.chunks_exact_mut(chunks * COLUMN).enumerate() {
        let parts = re[lane..].iter().zip(&im[lane..]).step_by(CHUNK);
        for ((&re, &im), out) in parts.zip(out.as_chunks_mut::<COLUMN>().0) {
            let [re, im] = [re, im].map(|x| _mm512_set1_ps(f32::from_le_bytes(x)));
            let column = _mm512_maskz_mov_ps(REAL_PARTS, re);
            let column = _mm512_mask_mov_ps(column, IMAGINARY_PARTS, im);
            let column = _mm512_mask_xor_ps(column, NEGATIVE, column, sign);
            // SAFETY: sixteen floats.
            unsafe { _mm512_storeu_ps(out.as_mut_ptr(), column) };
        }
    }
}

/// `rr`, `ri`, `ir` and `ii` of one lane of two streams of sixteen rows, `[stream][accumulator][row]`, of words
/// `[stream][word][row]`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn lane_sums(weights: &[u8], ahead: impl PrefetchDistance, tables: &[f32], out: &mut [f32; 2 * SUMS]) {
    let mut sums = [[_mm512_setzero_ps(); 4]; 2];
    let (first, second) = weights.split_at(weights.len() / 2);
    let words = first.as_chunks::<{ 4 * ROWS }>().0.iter();
    let words = words.zip(second.as_chunks::<{ 4 * ROWS }>().0);
    let columns = tables.chunks(CHUNK * COLUMN);
    for ((first, second), columns) in words.zip(columns) {
        // SAFETY: the codes of sixteen rows are 64 bytes, and a column has four tables of four floats.
        unsafe {
            ahead.line(first.as_ptr());
            let mut codes = [first, second].map(|codes| _mm512_loadu_si512(codes.as_ptr().cast()));
            for column in columns.as_chunks::<COLUMN>().0 {
                let table = |k: usize| {
                    let table = column.as_ptr().add(4 * k);
                    _mm512_broadcast_f32x4(_mm_loadu_ps(table))
                };
                let tables = [table(0), table(1), table(2), table(3)];
                for (codes, sums) in codes.iter_mut().zip(&mut sums) {
                    for (table, sum) in tables.into_iter().zip(sums) {
                        // two bits of a code choose one of the four floats
                        *sum = _mm512_add_ps(*sum, _mm512_permutevar_ps(table, *codes));
                    }
                    // the next chunk's codes
                    *codes = _mm512_srli_epi32::<2>(*codes);
                }
            }
            ahead.line(second.as_ptr());
        }
    }
    for (sums, out) in sums.as_flattened().iter().zip(out.as_chunks_mut::<ROWS>().0) {
        // SAFETY: sixteen floats.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), *sums) };
    }
}
