//! One token and packed rows, two at a time: they share the loads of the activations, and one's chain of additions runs in
//! the shadow of the other's.

use std::arch::x86_64::*;

use super::packed512::{Run, table};
use super::rows512::Tables;
use super::sums;
use crate::kernels::bitplane::packed::{PAIR, PackedRows};

/// Rows whose lanes are added at once.
const BATCH: usize = 16;

/// All rows times one row of activations in the form of bytes.
///
/// # Safety
/// AVX-512 with VNNI, VBMI and GFNI. The lengths fit.
pub(in crate::kernels) unsafe fn multiply(rows: &PackedRows<'_>, acts: &[u8], out: &mut [f32]) {
    macro_rules! by_width {
        ($($width:literal)*) => {
            match rows.width {
                // SAFETY: as the caller promises.
                $($width => unsafe { products::<$width>(rows, acts, out) },)*
                _ => unreachable!("checked before"),
            }
        };
    }
    by_width!(1 2 3 4 5 6 7 8)
}

#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,gfni,avx2,fma,f16c"
)]
unsafe fn products<const B: usize>(rows: &PackedRows<'_>, acts: &[u8], out: &mut [f32]) {
    let scales = rows.scales.chunks(BATCH);
    for ((i, out), scales) in out.chunks_mut(BATCH).enumerate().zip(scales) {
        let mut lanes = [_mm512_setzero_ps(); BATCH];
        let there = ((1u32 << out.len()) - 1) as u16;
        // SAFETY: as the caller promises; a last single row has zeros at its side.
        unsafe {
            for r in (0..out.len()).step_by(PAIR) {
                let row = BATCH * i + r;
                if B < 8 {
                    [lanes[r], lanes[r + 1]] = lanes_of::<B, 2>(rows, row, acts);
                } else {
                    // the tables of two would not fit in the registers
                    [lanes[r]] = lanes_of::<B, 1>(rows, row, acts);
                    [lanes[r + 1]] = lanes_of::<B, 1>(rows, row + 1, acts);
                }
            }
            let scales = _mm512_maskz_loadu_ps(there, scales.as_ptr());
            let sums = _mm512_mul_ps(scales, sums::sixteen(lanes));
            _mm512_mask_storeu_ps(out.as_mut_ptr(), there, sums);
        }
    }
}

/// Lanes of `R` rows that are left to be added.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,gfni,avx2,fma,f16c"
)]
unsafe fn lanes_of<const B: usize, const R: usize>(
    rows: &PackedRows<'_>,
    row: usize,
    acts: &[u8],
) -> [__m512; R] {
    let (blocks, groups) = (rows.shape.blocks(), rows.shape.groups);
    let mut lanes = [_mm512_setzero_ps(); R];
    // SAFETY: as the caller promises; the activations have two lines and a scale for each block.
    unsafe {
        let mut x = acts.as_ptr().cast::<__m512i>();
        let mut scales = x.add(2 * blocks * groups).cast::<f32>();
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
                for k in 0..4 {
                    let (x, scale) = (x.add(2 * k), scales.add(k).read());
                    block::<B, R>(&tables, &codes, k, x, scale, &mut lanes);
                }
                x = x.add(8);
                scales = scales.add(4);
            }
            let rest = blocks % 4;
            if rest > 0 {
                for r in 0..R {
                    codes[r] = run[r].four::<B>(blocks / 4, rest > 2);
                }
                for k in 0..3 {
                    if k < rest {
                        let (x, scale) = (x.add(2 * k), scales.add(k).read());
                        block::<B, R>(&tables, &codes, k, x, scale, &mut lanes);
                    }
                }
                x = x.add(2 * rest);
                scales = scales.add(rest);
            }
        }
    }
    lanes
}

/// Adds the products of block `k` of four to the lanes of each row.
///
/// # Safety
/// `x` has two lines.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx512vbmi")]
unsafe fn block<const B: usize, const R: usize>(
    tables: &[Tables; R],
    codes: &[[__m512i; 4]; R],
    k: usize,
    x: *const __m512i,
    scale: f32,
    lanes: &mut [__m512; R],
) {
    // SAFETY: as the caller promises.
    let (x, sums) = unsafe { (_mm512_load_si512(x), _mm512_load_si512(x.add(1))) };
    let scale = _mm512_set1_ps(scale);
    for r in 0..R {
        let upper = _mm512_dpbusd_epi32(sums, tables[r].upper::<B>(codes[r][k]), x);
        let sums = _mm512_slli_epi32::<8>(upper);
        let sums = _mm512_dpbusd_epi32(sums, tables[r].lower::<B>(codes[r][k]), x);
        lanes[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), scale, lanes[r]);
    }
}
