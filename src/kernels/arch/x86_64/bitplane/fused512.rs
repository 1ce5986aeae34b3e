//! One token: codes are looked up and multiplied in registers.

use std::arch::x86_64::*;

use super::super::packed::{PrefetchDistance, with_prefetch};
use super::rows512::{Sink, Tables, walk};
use super::{lut, packed512, sums};
use crate::shared::bitplane::packed::PackedRows;
use crate::shared::bitplane::{Arrangement, PlaneRows};

/// Rows whose scales are found before, and whose lanes are added after their products: both take long, but one does not
/// wait for the other.
const BATCH: usize = 16;

/// All rows times one row of activations.
///
/// # Safety
/// AVX-512 with VNNI, VBMI and GFNI. The lengths fit, groups are whole blocks, the form is for one token.
pub(super) unsafe fn multiply(rows: &PlaneRows<'_>, form: Arrangement, acts: &[u8], out: &mut [f32]) {
    // SAFETY: the caller says that the processor has the instructions and the lengths fit.
    unsafe {
        match form {
            Arrangement::Floats => by_width!(rows.width(), B => products::<B, Floats>(rows, acts, out)),
            _ => by_width!(rows.width(), B => products::<B, Ints>(rows, acts, out)),
        }
    }
}

/// # Safety
/// The processor has these features; `out` has a place for each row, and `acts` all blocks of a row.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,gfni,avx2,fma,f16c")]
unsafe fn products<const B: usize, P: Product>(rows: &PlaneRows<'_>, acts: &[u8], out: &mut [f32]) {
    for (i, out) in out.chunks_mut(BATCH).enumerate() {
        let first = BATCH * i;
        // SAFETY: `out` has one place for each row that is there, and the activations have all blocks; at most `BATCH`
        // products are stored, under a mask of as many bits.
        unsafe {
            let mut fixed = [None; BATCH];
            if !P::HALVES {
                for (r, fixed) in fixed.iter_mut().enumerate().take(out.len()) {
                    *fixed = Some(lut::fixed(rows, first + r));
                }
            }
            let mut lanes = [_mm512_setzero_ps(); BATCH];
            let mut scales = [1.0; BATCH];
            for r in 0..out.len() {
                // in registers, not in an array of all
                let mut product = P::new(acts, rows.columns);
                walk::<B, P>(rows, first + r, fixed[r], &mut product);
                lanes[r] = product.lanes();
                scales[r] = fixed[r].map_or(1.0, |f| f.scale);
            }
            let scales = _mm512_loadu_ps(scales.as_ptr());
            let sums = _mm512_mul_ps(scales, sums::sixteen(lanes));
            let there = ((1u32 << out.len()) - 1) as u16;
            _mm512_mask_storeu_ps(out.as_mut_ptr(), there, sums);
        }
    }
}

/// All packed rows times one row of activations in single precision.
///
/// # Safety
/// AVX-512 with VNNI, VBMI and GFNI. The lengths fit.
pub(super) unsafe fn packed_floats(rows: &PackedRows<'_>, acts: &[u8], out: &mut [f32]) {
    let ahead = rows.ahead;
    // SAFETY: the caller says that the processor has the instructions and the lengths fit.
    unsafe { by_width!(rows.width, B => with_prefetch!(ahead => packed_products::<B, _>(rows, acts, out, ahead))) }
}

/// # Safety
/// The processor has these features; `out` has a place for each row, and `acts` all blocks of a row.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,gfni,avx2,fma,f16c")]
unsafe fn packed_products<const B: usize, A: PrefetchDistance>(
    rows: &PackedRows<'_>,
    acts: &[u8],
    out: &mut [f32],
    ahead: A,
) {
    for (i, out) in out.chunks_mut(BATCH).enumerate() {
        // SAFETY: `out` has one place for each row that is there, and the activations have all blocks; at most `BATCH`
        // products are stored, under a mask of as many bits.
        unsafe {
            let mut lanes = [_mm512_setzero_ps(); BATCH];
            for (r, lanes) in lanes.iter_mut().enumerate().take(out.len()) {
                let mut product = Floats::new(acts, rows.shape.columns);
                packed512::walk::<B, Floats, A>(rows, BATCH * i + r, &mut product, ahead);
                *lanes = product.lanes();
            }
            let there = ((1u32 << out.len()) - 1) as u16;
            _mm512_mask_storeu_ps(out.as_mut_ptr(), there, sums::sixteen(lanes));
        }
    }
}

/// Lanes that add up.
trait Product: Sink {
    /// # Safety
    /// The processor has AVX-512 with VNNI and VBMI; `acts` is an arranged row of `columns` columns.
    unsafe fn new(acts: &[u8], columns: usize) -> Self;
    /// Sixteen lanes that are left to be added.
    ///
    /// # Safety
    /// The processor has AVX-512 with VNNI and VBMI.
    unsafe fn lanes(self) -> __m512;
}

struct Ints {
    x: *const __m512i,
    scales: *const f32,
    lanes: __m512,
}

impl Product for Ints {
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn new(acts: &[u8], columns: usize) -> Ints {
        Ints {
            x: acts.as_ptr().cast(),
            scales: acts[128 * columns.div_ceil(64)..].as_ptr().cast(),
            lanes: _mm512_setzero_ps(),
        }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn lanes(self) -> __m512 {
        self.lanes
    }
}

impl Sink for Ints {
    const HALVES: bool = false;
    /// The instruction multiplies unsigned bytes; the sums of the activations take back what that adds.
    const FLIP: u8 = 0x80;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx512vbmi")]
    unsafe fn block<const B: usize>(&mut self, t: &Tables, block: usize, codes: __m512i) {
        // SAFETY: the activations have two lines and a scale for each block of the row.
        unsafe {
            let x = _mm512_load_si512(self.x.add(2 * block));
            let sums = _mm512_load_si512(self.x.add(2 * block + 1));
            let scale = _mm512_set1_ps(self.scales.add(block).read());
            let upper = _mm512_dpbusd_epi32(sums, t.upper::<B>(codes), x);
            let sums = _mm512_slli_epi32::<8>(upper);
            let sums = _mm512_dpbusd_epi32(sums, t.lower::<B>(codes), x);
            self.lanes = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), scale, self.lanes);
        }
    }
}

struct Floats {
    x: *const f32,
    lanes: [__m512; 4],
    /// The block that is not whole, and how many weights it has.
    short: (usize, usize),
}

impl Product for Floats {
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn new(acts: &[u8], columns: usize) -> Floats {
        let short = match columns % 64 {
            0 => (usize::MAX, 0),
            rest => (columns / 64, rest),
        };
        Floats { x: acts.as_ptr().cast(), lanes: [_mm512_setzero_ps(); 4], short }
    }

    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn lanes(self) -> __m512 {
        sums::quarters(self.lanes)
    }
}

impl Sink for Floats {
    const HALVES: bool = true;
    const FLIP: u8 = 0;

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    unsafe fn block<const B: usize>(&mut self, t: &Tables, block: usize, codes: __m512i) {
        let mut weights = t.floats::<B>(codes);
        if block == self.short.0 {
            let mask = (1u64 << self.short.1) - 1;
            for (j, w) in weights.iter_mut().enumerate() {
                *w = _mm512_maskz_mov_ps((mask >> (16 * j)) as u16, *w);
            }
        }
        for (j, w) in weights.into_iter().enumerate() {
            // SAFETY: the activations are whole blocks.
            let x = unsafe { _mm512_load_ps(self.x.add(64 * block + 16 * j)) };
            self.lanes[j] = _mm512_fmadd_ps(w, x, self.lanes[j]);
        }
    }
}
