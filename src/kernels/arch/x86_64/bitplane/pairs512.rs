//! One token or a few, and packed rows. One token takes two rows at a time: they share the loads of the activations,
//! and one's chain of additions runs in the shadow of the other's. A few tokens share the codes of a row, as long as
//! these are in registers.

#![allow(clippy::needless_range_loop, reason = "registers are indexed by row, block and token alike")]

use std::arch::x86_64::*;

use super::super::packed::{PrefetchDistance, with_prefetch};
use super::packed512::{Run, prefetch_tables, table};
use super::rows512::Tables;
use super::sums;
use crate::shared::bitplane::Arrangement;
use crate::shared::bitplane::packed::{LINE, PAIR, PackedRows};

/// Rows whose lanes are added at once.
const BATCH: usize = 16;

/// Tokens whose lanes fit in the registers beside the tables.
const AT_ONCE: usize = 8;

/// All rows times a few rows of activations in the form of bytes; `[row][token]`.
///
/// # Safety
/// AVX-512 with VNNI, VBMI and GFNI. The lengths fit.
pub(crate) unsafe fn multiply(rows: &PackedRows<'_>, acts: &[u8], tokens: usize, out: &mut [f32]) {
    let ahead = rows.ahead;
    if tokens == 1 {
        // SAFETY: the caller says that the processor has the instructions and the lengths fit.
        return unsafe { by_width!(rows.width, B => with_prefetch!(ahead => one::<B, _>(rows, acts, out, ahead))) };
    }
    let stride = Arrangement::Bytes.act_bytes(rows.shape.columns);
    for first in (0..tokens).step_by(AT_ONCE) {
        let some = Some { acts: &acts[first * stride..], stride, first, count: (tokens - first).min(AT_ONCE), tokens };
        // SAFETY: the caller says that the processor has the instructions and the lengths fit.
        unsafe {
            by_width!(rows.width, B => match some.count {
                ..=2 => several::<B, 2>(rows, &some, out),
                3 => several::<B, 3>(rows, &some, out),
                4 => several::<B, 4>(rows, &some, out),
                5 => several::<B, 5>(rows, &some, out),
                6 => several::<B, 6>(rows, &some, out),
                _ => several::<B, AT_ONCE>(rows, &some, out),
            });
        }
    }
}

/// Some of the tokens.
struct Some<'a> {
    /// From the first of them on, each `stride` bytes after the one before.
    acts: &'a [u8],
    stride: usize,
    first: usize,
    count: usize,
    /// How many there are in all.
    tokens: usize,
}

/// # Safety
/// The processor has these features; rows have `B` planes, `acts` is one arranged row, and `out` has a place for each
/// row.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,gfni,avx2,fma,f16c")]
unsafe fn one<const B: usize, A: PrefetchDistance>(rows: &PackedRows<'_>, acts: &[u8], out: &mut [f32], ahead: A) {
    let scales = rows.scales.chunks(BATCH);
    let acts = [acts.as_ptr()];
    for ((i, out), scales) in out.chunks_mut(BATCH).enumerate().zip(scales) {
        let mut lanes = [_mm512_setzero_ps(); BATCH];
        let there = ((1u32 << out.len()) - 1) as u16;
        // SAFETY: the lengths fit, and lines and tables come in pairs of rows: a last single row has zeros at its side.
        unsafe {
            for r in (0..out.len()).step_by(PAIR) {
                let row = BATCH * i + r;
                if B < 8 {
                    [[lanes[r]], [lanes[r + 1]]] = lanes_of::<B, 2, 1, A>(rows, row, acts, ahead);
                } else {
                    // the tables of two would not fit in the registers
                    [[lanes[r]]] = lanes_of::<B, 1, 1, A>(rows, row, acts, ahead);
                    [[lanes[r + 1]]] = lanes_of::<B, 1, 1, A>(rows, row + 1, acts, ahead);
                }
            }
            let scales = _mm512_maskz_loadu_ps(there, scales.as_ptr());
            let sums = _mm512_mul_ps(scales, sums::sixteen(lanes));
            _mm512_mask_storeu_ps(out.as_mut_ptr(), there, sums);
        }
    }
}

/// Codes are looked up once for `T` tokens; when there are fewer, the last one is taken again.
///
/// # Safety
/// The processor has these features; rows have `B` planes, `some` has at most `T` tokens, and `out` has a place for
/// each row and token.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,gfni,avx2,fma,f16c")]
unsafe fn several<const B: usize, const T: usize>(rows: &PackedRows<'_>, some: &Some<'_>, out: &mut [f32]) {
    let acts = std::array::from_fn(|t| some.acts[t.min(some.count - 1) * some.stride..].as_ptr());
    let (batch, tokens) = (BATCH / T / PAIR * PAIR, some.first..some.first + some.count);
    for (i, out) in out.chunks_mut(batch * some.tokens).enumerate() {
        let mut lanes = [_mm512_setzero_ps(); BATCH];
        let mut sums = [0.0; BATCH];
        let outs = out.chunks_exact_mut(some.tokens).enumerate();
        for r in (0..outs.len()).step_by(PAIR) {
            // SAFETY: the lengths fit, and lines and tables come in pairs of rows: a last single row has zeros at its
            // side.
            let pair = unsafe { lanes_of::<B, PAIR, T, _>(rows, batch * i + r, acts, rows.ahead) };
            lanes[T * r..][..PAIR * T].copy_from_slice(pair.as_flattened());
        }
        // SAFETY: room for sixteen.
        unsafe { _mm512_storeu_ps(sums.as_mut_ptr(), sums::sixteen(lanes)) };
        for (r, out) in outs {
            let scale = rows.scales[batch * i + r];
            for (out, sum) in out[tokens.clone()].iter_mut().zip(&sums[T * r..]) {
                *out = scale * sum;
            }
        }
    }
}

/// Lanes of `R` rows and `T` tokens that are left to be added; prefetches at the distance `ahead` behind the rows.
///
/// # Safety
/// The processor has these features; rows have `B` planes, rows `row .. row + R` are there, a last single one with
/// zeros at its side, and each of `acts` points at an arranged row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,gfni,avx2,fma,f16c")]
unsafe fn lanes_of<const B: usize, const R: usize, const T: usize, A: PrefetchDistance>(
    rows: &PackedRows<'_>,
    row: usize,
    acts: [*const u8; T],
    ahead: A,
) -> [[__m512; T]; R] {
    let (blocks, groups) = (rows.shape.blocks(), rows.shape.groups);
    let mut lanes = [[_mm512_setzero_ps(); T]; R];
    // SAFETY: the caller says that the rows are there; each row of activations has two lines and a scale for each
    // block.
    unsafe {
        let mut place = BlockOffset { lines: 0, scale: 2 * LINE * blocks * groups };
        for group in 0..groups {
            let mut run = [Run::new::<B>(rows, row, group); R];
            let mut tables = [table::<B>(rows, row, group); R];
            for r in 1..R {
                run[r] = Run::new::<B>(rows, row + r, group);
                tables[r] = table::<B>(rows, row + r, group);
            }
            let mut codes = [[_mm512_setzero_si512(); 4]; R];
            for i in 0..blocks / 4 {
                for r in 0..R {
                    codes[r] = run[r].four::<B>(i, true);
                }
                prefetch_tables::<B, R>(rows, (row, group), i, ahead);
                for k in 0..4 {
                    run[0].prefetch::<B, R>(i, k, ahead);
                    block::<B, R, T>(&tables, &codes, k, acts, place, &mut lanes);
                }
                place = place.after(4);
            }
            let rest = blocks % 4;
            if rest > 0 {
                for r in 0..R {
                    codes[r] = run[r].four::<B>(blocks / 4, rest > 2);
                }
                for k in 0..3 {
                    if k < rest {
                        block::<B, R, T>(&tables, &codes, k, acts, place, &mut lanes);
                    }
                }
                place = place.after(rest);
            }
        }
    }
    lanes
}

/// Offsets of a block in a row of activations, bytes: the same for all tokens, whose rows are then one register each.
#[derive(Clone, Copy)]
struct BlockOffset {
    lines: usize,
    scale: usize,
}

impl BlockOffset {
    fn after(self, blocks: usize) -> BlockOffset {
        BlockOffset { lines: self.lines + 2 * LINE * blocks, scale: self.scale + 4 * blocks }
    }
}

/// Adds the products of block `k` of four to the lanes of each row and token.
///
/// # Safety
/// The activations have the block: two lines and a scale.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx512vbmi")]
unsafe fn block<const B: usize, const R: usize, const T: usize>(
    tables: &[Tables; R],
    codes: &[[__m512i; 4]; R],
    k: usize,
    acts: [*const u8; T],
    place: BlockOffset,
    lanes: &mut [[__m512; T]; R],
) {
    let zero = _mm512_setzero_si512();
    let mut weights = [(zero, zero); R];
    for r in 0..R {
        let code = codes[r][k];
        weights[r] = (tables[r].upper::<B>(code), tables[r].lower::<B>(code));
    }
    for t in 0..T {
        // SAFETY: the caller says that each row of activations has two lines and a scale for the block.
        let (x, sums, scale) = unsafe {
            let x = acts[t].add(place.lines).cast::<__m512i>().add(2 * k);
            let scale = acts[t].add(place.scale).cast::<f32>().add(k).read();
            (_mm512_load_si512(x), _mm512_load_si512(x.add(1)), _mm512_set1_ps(scale))
        };
        for r in 0..R {
            let (upper, lower) = weights[r];
            let sums = _mm512_slli_epi32::<8>(_mm512_dpbusd_epi32(sums, upper, x));
            let sums = _mm512_cvtepi32_ps(_mm512_dpbusd_epi32(sums, lower, x));
            lanes[r][t] = _mm512_fmadd_ps(sums, scale, lanes[r][t]);
        }
    }
}
