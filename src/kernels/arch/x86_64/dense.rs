//! The tile of a dense product in 256-bit registers: eight of them hold the sums.

use std::arch::x86_64::{
    __m256, _mm256_add_ps, _mm256_loadu_ps, _mm256_mul_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_storeu_ps,
};

/// Rows of a tile.
const ROWS: usize = 4;
/// Floats of a register.
const LANES: usize = 8;
/// Columns of a tile.
const COLUMNS: usize = 2 * LANES;

/// The tile of [`crate::gemm`]; products are rounded before they are added.
#[target_feature(enable = "avx2")]
pub(crate) fn tile(a: &[f32], b: &[f32]) -> [[f32; COLUMNS]; ROWS] {
    let mut sums = [[_mm256_setzero_ps(); 2]; ROWS];
    for (a, b) in a.as_chunks::<ROWS>().0.iter().zip(b.as_chunks::<COLUMNS>().0) {
        let (low, high) = b.split_at(LANES);
        // SAFETY: both halves of a line have eight floats, and no alignment is asked for.
        let b: [__m256; 2] = unsafe { [_mm256_loadu_ps(low.as_ptr()), _mm256_loadu_ps(high.as_ptr())] };
        for (sums, &a) in sums.iter_mut().zip(a) {
            let a = _mm256_set1_ps(a);
            sums[0] = _mm256_add_ps(sums[0], _mm256_mul_ps(a, b[0]));
            sums[1] = _mm256_add_ps(sums[1], _mm256_mul_ps(a, b[1]));
        }
    }
    let mut out = [[0f32; COLUMNS]; ROWS];
    for (row, sums) in out.iter_mut().zip(sums) {
        let (low, high) = row.split_at_mut(LANES);
        // SAFETY: both halves of a row have eight floats, and no alignment is asked for.
        unsafe {
            _mm256_storeu_ps(low.as_mut_ptr(), sums[0]);
            _mm256_storeu_ps(high.as_mut_ptr(), sums[1]);
        }
    }
    out
}
