//! F16, BF16, F32: f32 products added up in f64 in column order, lanes = rows.
//!
//! Rows are transposed eight columns at a time into panels of `[column][8 rows]`; a tile of rows x tokens
//! keeps its f64 sums in registers over a block of columns. The product of two f16 is exact, so for
//! F16 a fused multiply-add in f64 rounds just where the definition does.
//!
//! Columns beyond `n` are zeros on both sides. They add +0 to a sum that started at +0, which is never -0.

use std::arch::x86_64::*;
use std::cell::RefCell;

use trine_formats::types::TypeId;

use super::chain::{Avx2, Avx512, load8};
use super::panel::transpose8;
use super::wide::{Sums, Wide};
use crate::arch::rows::{Call, RowKernel, compiled_for_both, row_kernels};

/// Columns of one block.
const COLUMN_BLOCK: usize = 128;
/// Groups of eight rows, and tokens, whose sums are kept between blocks of columns.
const GROUPS: usize = 8;
const TOKENS: usize = 96;

/// A float weight type; activations are of the same type.
pub(super) trait Float {
    const TYPE: TypeId;
    const BYTES: usize;
    /// Products are exact, so they may be fused with the add.
    const EXACT: bool;

    /// Eight consecutive values.
    ///
    /// # Safety
    /// The processor has AVX2, FMA and F16C, and `b` has eight values.
    unsafe fn load(b: &[u8]) -> __m256;
}

pub(super) struct F16;
pub(super) struct Bf16;
pub(super) struct F32;

impl Float for F16 {
    const TYPE: TypeId = TypeId::F16;
    const BYTES: usize = 2;
    const EXACT: bool = true;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(b: &[u8]) -> __m256 {
        _mm256_cvtph_ps(super::codes::load16(b, 0))
    }
}

impl Float for Bf16 {
    const TYPE: TypeId = TypeId::BF16;
    const BYTES: usize = 2;
    const EXACT: bool = false;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(b: &[u8]) -> __m256 {
        let wide = _mm256_cvtepu16_epi32(super::codes::load16(b, 0));
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
    }
}

impl Float for F32 {
    const TYPE: TypeId = TypeId::F32;
    const BYTES: usize = 4;
    const EXACT: bool = false;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load(b: &[u8]) -> __m256 {
        _mm256_castsi256_ps(super::codes::load32(b, 0))
    }
}

/// Eight lanes.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct Eight([f32; 8]);

/// Buffers of the float kernels.
#[derive(Default)]
struct Scratch {
    /// `[group][column]`
    panel: Vec<Eight>,
    /// `[token][column]`, as f64 where products are exact
    exact: Vec<f64>,
    /// `[token][column]`
    plain: Vec<f32>,
    /// `[group][token]`
    sums: Vec<Sums>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Eight values of a row from column `k` on; zeros beyond the row.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn eight<F: Float>(row: &[u8], k: usize) -> __m256 {
    let rest = &row[k * F::BYTES..];
    if let Some(b) = rest.get(..8 * F::BYTES) {
        // SAFETY: `b` has eight values.
        unsafe { F::load(b) }
    } else {
        let mut padded = [0; 32];
        padded[..rest.len()].copy_from_slice(rest);
        // SAFETY: 32 bytes are at least eight values.
        unsafe { F::load(&padded) }
    }
}

impl Scratch {
    /// Transposes columns `k..k + columns` of the rows in `w`; lanes without a row repeat the last one.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn fill_panel<F: Float>(&mut self, w: &[u8], n: usize, k: usize, columns: usize) {
        let row_bytes = n * F::BYTES;
        let rows = w.len() / row_bytes;
        for group in 0..rows.div_ceil(8) {
            let mut lanes: [&[u8]; 8] = [&[]; 8];
            for (lane, row) in lanes.iter_mut().enumerate() {
                *row = &w[(group * 8 + lane).min(rows - 1) * row_bytes..][..row_bytes];
            }
            let panel = &mut self.panel[group * COLUMN_BLOCK..][..columns];
            for (i, panel) in panel.chunks_exact_mut(8).enumerate() {
                let mut rows = [_mm256_setzero_si256(); 8];
                for (v, row) in rows.iter_mut().zip(lanes) {
                    *v = _mm256_castps_si256(eight::<F>(row, k + 8 * i));
                }
                for (to, column) in panel.iter_mut().zip(transpose8(rows)) {
                    super::chain::store8(&mut to.0, _mm256_castsi256_ps(column));
                }
            }
        }
    }

    /// Columns `k..k + columns` of the activation rows.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    fn fill_acts<F: Float>(&mut self, acts: &[u8], n: usize, k: usize, columns: usize) {
        for (t, row) in acts.chunks_exact(n * F::BYTES).enumerate() {
            for i in (0..columns).step_by(8) {
                let x = eight::<F>(row, k + i);
                if F::EXACT {
                    let to = &mut self.exact[t * COLUMN_BLOCK + i..][..8];
                    let high = _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(x));
                    // SAFETY: `to` has eight f64; the stores ask for no alignment.
                    unsafe {
                        _mm256_storeu_pd(to.as_mut_ptr(), _mm256_cvtps_pd(_mm256_castps256_ps128(x)));
                        _mm256_storeu_pd(to[4..].as_mut_ptr(), high);
                    }
                } else {
                    super::chain::store8(&mut self.plain[t * COLUMN_BLOCK + i..], x);
                }
            }
        }
    }

    /// `G` groups from `group` on, `T` tokens from `t` on, over the columns of a block.
    ///
    /// # Safety
    /// The processor has the features of `L`, which include AVX2, FMA and F16C.
    #[inline(always)]
    unsafe fn tile<F: Float, L: Wide, const G: usize, const T: usize>(
        &mut self,
        group: usize,
        t: usize,
        columns: usize,
    ) {
        // Plain loops throughout: closures given to `map` or `from_fn` are not inlined across features.
        let mut panel: [&[Eight]; G] = [&[]; G];
        for (g, panel) in panel.iter_mut().enumerate() {
            *panel = &self.panel[(group + g) * COLUMN_BLOCK..][..columns];
        }
        let mut exact: [&[f64]; T] = [&[]; T];
        let mut plain: [&[f32]; T] = [&[]; T];
        for i in 0..T {
            if F::EXACT {
                exact[i] = &self.exact[(t + i) * COLUMN_BLOCK..][..columns];
            } else {
                plain[i] = &self.plain[(t + i) * COLUMN_BLOCK..][..columns];
            }
        }
        // SAFETY: the caller has the features of `L`, which include AVX2, FMA and F16C.
        unsafe {
            let mut acc = [[L::zero(); T]; G];
            for (g, acc) in acc.iter_mut().enumerate() {
                for (i, acc) in acc.iter_mut().enumerate() {
                    *acc = L::load(&self.sums[(group + g) * TOKENS + t + i]);
                }
            }
            for k in 0..columns {
                if F::EXACT {
                    let mut w = [L::zero(); G];
                    for g in 0..G {
                        w[g] = L::widen(load8(&panel[g][k].0));
                    }
                    for i in 0..T {
                        for g in 0..G {
                            acc[g][i] = L::fma(acc[g][i], w[g], exact[i][k]);
                        }
                    }
                } else {
                    for i in 0..T {
                        let x = _mm256_set1_ps(plain[i][k]);
                        for g in 0..G {
                            let product = _mm256_mul_ps(load8(&panel[g][k].0), x);
                            acc[g][i] = L::add(acc[g][i], L::widen(product));
                        }
                    }
                }
            }
            for (g, acc) in acc.into_iter().enumerate() {
                for (i, acc) in acc.into_iter().enumerate() {
                    L::store(&mut self.sums[(group + g) * TOKENS + t + i], acc);
                }
            }
        }
    }

    /// All tokens for `G` groups.
    ///
    /// # Safety
    /// The processor has the features of `L`, which include AVX2, FMA and F16C.
    #[inline(always)]
    unsafe fn tiles<F: Float, L: Wide, const G: usize, const T: usize>(
        &mut self,
        group: usize,
        tokens: usize,
        columns: usize,
    ) {
        let mut t = 0;
        // SAFETY: this function asks its caller for the same features.
        unsafe {
            while t + T <= tokens {
                self.tile::<F, L, G, T>(group, t, columns);
                t += T;
            }
            while t + 4 <= tokens {
                self.tile::<F, L, G, 4>(group, t, columns);
                t += 4;
            }
            match tokens - t {
                3 => self.tile::<F, L, G, 3>(group, t, columns),
                2 => self.tile::<F, L, G, 2>(group, t, columns),
                1 => self.tile::<F, L, G, 1>(group, t, columns),
                _ => {}
            }
        }
    }
}

/// All rows times all tokens; `TG` x `TT` is the tile of groups and tokens.
///
/// # Safety
/// The processor has the features of `L`, which include AVX2, FMA and F16C.
#[inline(always)]
unsafe fn all<F: Float, L: Wide, const TG: usize, const TT: usize>(call: Call<'_>, scratch: &mut Scratch) {
    let row_bytes = call.n * F::BYTES;
    let s = scratch;
    s.panel.resize(GROUPS * COLUMN_BLOCK, Eight([0.0; 8]));
    s.sums.resize(GROUPS * TOKENS, Sums([0.0; 8]));
    if F::EXACT {
        s.exact.resize(TOKENS * COLUMN_BLOCK, 0.0);
    } else {
        s.plain.resize(s.plain.len().max(TOKENS * COLUMN_BLOCK), 0.0);
    }
    let rows = call.w.chunks(8 * GROUPS * row_bytes).zip(call.out.chunks_mut(8 * GROUPS * call.tokens));
    for (w, out) in rows {
        let groups = (w.len() / row_bytes).div_ceil(8);
        for (first, acts) in (0..).step_by(TOKENS).zip(call.acts.chunks(TOKENS * row_bytes)) {
            let tokens = acts.len() / row_bytes;
            s.sums.fill(Sums([0.0; 8]));
            for k in (0..call.n).step_by(COLUMN_BLOCK) {
                let columns = COLUMN_BLOCK.min((call.n - k).next_multiple_of(8));
                // SAFETY: the caller has the features of `L`, which include AVX2, FMA and F16C.
                unsafe {
                    s.fill_panel::<F>(w, call.n, k, columns);
                    s.fill_acts::<F>(acts, call.n, k, columns);
                    let mut group = 0;
                    while group + TG <= groups {
                        s.tiles::<F, L, TG, TT>(group, tokens, columns);
                        group += TG;
                    }
                    while group < groups {
                        s.tiles::<F, L, 1, TT>(group, tokens, columns);
                        group += 1;
                    }
                }
            }
            for (r, out) in out.chunks_exact_mut(call.tokens).enumerate() {
                for (t, out) in out[first..][..tokens].iter_mut().enumerate() {
                    *out = s.sums[r / 8 * TOKENS + t].0[r % 8] as f32;
                }
            }
        }
    }
}

/// Few tokens: each row front to back, in any order of columns, with a test that the order did not matter.
///
/// An f64 sum of n terms p, in any order, is within `n * 2^-53 * sum |p|` of the exact sum (to first order),
/// so two orders differ by at most twice that. If the sum less and plus a bound above it round to the same f32,
/// that is the sum in order, rounded. If not (about one row in a thousand; every NaN or infinity), the
/// definition decides.
///
/// # Safety
/// The processor has the features of `L`, which include AVX2, FMA and F16C.
#[inline(always)]
unsafe fn by_row<F: Float, L: Wide>(call: Call<'_>, scratch: &mut Scratch) {
    let row_bytes = call.n * F::BYTES;
    let Some(dot) = F::TYPE.info().and_then(|info| info.dot_ref) else {
        unreachable!("float types have a dot product");
    };
    let columns = call.n.next_multiple_of(16);
    let x = &mut scratch.plain;
    x.resize(columns.max(x.len()), 0.0);
    // 2.5 covers the factor 2, the second-order terms and the f32 rounding of `magnitude`: n is below 2^17.
    let unit = if call.n < 1 << 17 { 2.5 * (call.n + 16) as f64 / (1u64 << 53) as f64 } else { f64::INFINITY };
    for (t, act) in call.acts.chunks_exact(row_bytes).enumerate() {
        // SAFETY: the caller has the features of `L`, which include AVX2, FMA and F16C.
        unsafe {
            for (i, x) in x[..columns].chunks_exact_mut(8).enumerate() {
                let v = if 8 * i < call.n { eight::<F>(act, 8 * i) } else { _mm256_setzero_ps() };
                super::chain::store8(x, v);
            }
            let rows = call.w.chunks_exact(row_bytes);
            for (row, out) in rows.zip(call.out[t..].iter_mut().step_by(call.tokens)) {
                let (sum, magnitude) = any_order::<F, L>(row, &x[..columns]);
                let bound = unit * f64::from(magnitude);
                let (low, high) = ((sum - bound) as f32, (sum + bound) as f32);
                *out = if low.to_bits() == high.to_bits() { low } else { dot(row, act) };
            }
        }
    }
}

/// The f64 sum of the f32 products and the f32 sum of their magnitudes, in an order of its own.
///
/// # Safety
/// The processor has the features of `L`, which include AVX2, FMA and F16C.
#[inline(always)]
unsafe fn any_order<F: Float, L: Wide>(row: &[u8], x: &[f32]) -> (f64, f32) {
    // SAFETY: the caller has the features of `L`, which include AVX2, FMA and F16C.
    unsafe {
        let mut sums = [L::zero(); 4];
        let mut magnitudes = [_mm256_setzero_ps(); 4];
        let sign = _mm256_set1_ps(-0.0);
        let whole = row.len() / (32 * F::BYTES) * 32;
        for (w, x) in row.chunks_exact(32 * F::BYTES).zip(x.chunks_exact(32)) {
            for i in 0..4 {
                let w = F::load(&w[i * 8 * F::BYTES..][..8 * F::BYTES]);
                let product = _mm256_mul_ps(w, load8(&x[8 * i..]));
                sums[i] = L::add(sums[i], L::widen(product));
                magnitudes[i] = _mm256_add_ps(magnitudes[i], _mm256_andnot_ps(sign, product));
            }
        }
        for k in (whole..row.len() / F::BYTES).step_by(8) {
            let product = _mm256_mul_ps(eight::<F>(row, k), load8(&x[k..]));
            sums[0] = L::add(sums[0], L::widen(product));
            magnitudes[0] = _mm256_add_ps(magnitudes[0], _mm256_andnot_ps(sign, product));
        }
        let total = L::add(L::add(sums[0], sums[1]), L::add(sums[2], sums[3]));
        let mut eight = Sums([0.0; 8]);
        L::store(&mut eight, total);
        let low = _mm256_add_ps(magnitudes[0], magnitudes[1]);
        let mut magnitude = [0.0; 8];
        super::chain::store8(&mut magnitude, _mm256_add_ps(low, _mm256_add_ps(magnitudes[2], magnitudes[3])));
        (eight.0.iter().sum(), magnitude.iter().sum())
    }
}

compiled_for_both!(Float; by_row_avx2 by_row_avx512 = by_row);
compiled_for_both!(Float; rows_avx2 rows_avx512 = all, [1 6] [2 12]);

pub(super) static ROW_KERNELS: &[RowKernel] = row_kernels![
    1 by_row_avx2 rows_avx2, 1 by_row_avx512 rows_avx512;
    F16 F16, BF16 Bf16, F32 F32
];
