//! Several tokens: a pair of rows that were looked up times a few rows of activations in the same arrangement.

#![allow(clippy::needless_range_loop, reason = "registers are indexed by part, half and token alike")]

use std::arch::x86_64::*;

use super::sums;

/// Rows that are looked up before the tokens run over them: a load of activations serves both.
pub(super) const PAIR: usize = 2;

/// Rows and tokens of one call.
pub(super) struct Call<'a> {
    /// One or two rows in the form of the activations.
    pub weights: &'a [u8],
    /// Their scales.
    pub scales: [f32; PAIR],
    /// Rows of activations.
    pub acts: &'a [u8],
    /// Blocks of a row.
    pub blocks: usize,
    /// Bytes of a row of either.
    pub act_bytes: usize,
    /// Number of activation rows.
    pub tokens: usize,
}

impl Call<'_> {
    /// # Safety
    /// The row is there.
    unsafe fn weights(&self, row: usize) -> *const u8 {
        // SAFETY: the caller says that the row is there, so it begins within the weights.
        unsafe { self.weights.as_ptr().add(row * self.act_bytes) }
    }

    /// # Safety
    /// The token is there.
    unsafe fn acts(&self, token: usize) -> *const u8 {
        // SAFETY: the caller says that the token is there, so it begins within the activations.
        unsafe { self.acts.as_ptr().add(token * self.act_bytes) }
    }
}

/// All tokens, as many at a time as the first of the numbers says, at the end fewer.
macro_rules! tiles {
    ($call:ident, $out:ident, $tile:ident, $($tokens:literal)*) => {{
        let rows = $call.weights.len() / $call.act_bytes;
        let mut t = 0;
        while t < $call.tokens {
            let left = $call.tokens - t;
            // SAFETY: the caller says that the processor has the instructions and the lengths fit; as many tokens are
            // left.
            unsafe {
                match (rows, left) {
                    $((2, $tokens..) => { $tile::<2, $tokens>($call, t, $out); t += $tokens; })*
                    $((_, $tokens..) => { $tile::<1, $tokens>($call, t, $out); t += $tokens; })*
                    _ => unreachable!("some tokens are left"),
                }
            }
        }
    }};
}

/// Integer products, 512 bits.
///
/// # Safety
/// AVX-512 with VNNI; the lengths fit each other, and all begins at multiples of 64.
pub(super) unsafe fn words512(call: &Call<'_>, out: &mut [f32]) {
    tiles!(call, out, words_tile512, 8 7 6 5 4 3 2 1);
}

/// # Safety
/// The processor has these features; the call has `R` rows and tokens `t0 .. t0 + T`, whose lengths fit each other, and
/// all begins at multiples of 64.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vnni")]
unsafe fn words_tile512<const R: usize, const T: usize>(c: &Call<'_>, t0: usize, out: &mut [f32]) {
    let mut lanes = [[_mm512_setzero_ps(); T]; R];
    // SAFETY: rows and tokens have two lines and a scale for each block.
    unsafe {
        let mut w = [std::ptr::null::<__m512i>(); R];
        for (r, w) in w.iter_mut().enumerate() {
            *w = c.weights(r).cast();
        }
        let (x, stride) = (c.acts(t0), c.act_bytes);
        for block in 0..c.blocks {
            let mut a = [_mm512_setzero_si512(); R];
            let mut b = a;
            for r in 0..R {
                a[r] = _mm512_load_si512(w[r].add(2 * block));
                b[r] = _mm512_load_si512(w[r].add(2 * block + 1));
            }
            for t in 0..T {
                let row = x.add(t * stride);
                let x = row.cast::<__m512i>().add(2 * block);
                let (xa, xb) = (_mm512_load_si512(x), _mm512_load_si512(x.add(1)));
                let scale = row.add(128 * c.blocks).cast::<f32>().add(block).read();
                for r in 0..R {
                    let sums = _mm512_madd_epi16(a[r], xa);
                    let sums = _mm512_dpwssd_epi32(sums, b[r], xb);
                    let sums = _mm512_cvtepi32_ps(sums);
                    lanes[r][t] = _mm512_fmadd_ps(sums, _mm512_set1_ps(scale), lanes[r][t]);
                }
            }
        }
    }
    finish512(c, t0, lanes, out);
}

/// Adds the lanes, multiplies by the scales of the rows and puts the products where they belong.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn finish512<const R: usize, const T: usize>(c: &Call<'_>, t0: usize, lanes: [[__m512; T]; R], out: &mut [f32]) {
    if R * T != 16 {
        for (r, lanes) in lanes.into_iter().enumerate() {
            for (t, lanes) in lanes.into_iter().enumerate() {
                out[r * c.tokens + t0 + t] = c.scales[r] * sums::lanes(lanes);
            }
        }
        return;
    }
    let mut all = [_mm512_setzero_ps(); 16];
    let mut products = [0.0; 16];
    for (i, all) in all.iter_mut().enumerate() {
        *all = lanes[i / T][i % T];
    }
    // SAFETY: room for sixteen.
    unsafe { _mm512_storeu_ps(products.as_mut_ptr(), sums::sixteen(all)) };
    for (r, products) in products.chunks_exact(T).enumerate() {
        let out = &mut out[r * c.tokens + t0..][..T];
        for (out, p) in out.iter_mut().zip(products) {
            *out = c.scales[r] * p;
        }
    }
}

/// Single precision, 512 bits.
///
/// # Safety
/// As [`words512`].
pub(super) unsafe fn floats512(call: &Call<'_>, out: &mut [f32]) {
    tiles!(call, out, floats_tile512, 8 4 2 1);
}

/// Sixteen of the 64 lanes after the other.
///
/// # Safety
/// The processor has these features; the call has `R` rows and tokens `t0 .. t0 + T`, whose lengths fit each other, and
/// all begins at multiples of 64.
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn floats_tile512<const R: usize, const T: usize>(c: &Call<'_>, t0: usize, out: &mut [f32]) {
    let mut all = [[[_mm512_setzero_ps(); 4]; T]; R];
    for part in 0..4 {
        let mut lanes = [[_mm512_setzero_ps(); T]; R];
        // SAFETY: rows and tokens have four lines for each block.
        unsafe {
            let (w, x, stride) = (c.weights(0), c.acts(t0), c.act_bytes);
            for block in 0..c.blocks {
                let at = 256 * block + 64 * part;
                let mut weights = [_mm512_setzero_ps(); R];
                for (r, weights) in weights.iter_mut().enumerate() {
                    *weights = _mm512_load_ps(w.add(r * stride + at).cast());
                }
                for t in 0..T {
                    let x = _mm512_load_ps(x.add(t * stride + at).cast());
                    for r in 0..R {
                        lanes[r][t] = _mm512_fmadd_ps(weights[r], x, lanes[r][t]);
                    }
                }
            }
        }
        for r in 0..R {
            for t in 0..T {
                all[r][t][part] = lanes[r][t];
            }
        }
    }
    let mut lanes = [[_mm512_setzero_ps(); T]; R];
    for (lanes, all) in lanes.iter_mut().zip(all) {
        for (lanes, all) in lanes.iter_mut().zip(all) {
            *lanes = sums::quarters(all);
        }
    }
    finish512(c, t0, lanes, out);
}

/// Integer products, 256 bits.
///
/// # Safety
/// AVX2 and FMA; the lengths fit each other.
pub(super) unsafe fn words256(call: &Call<'_>, out: &mut [f32]) {
    tiles!(call, out, words_tile256, 2 1);
}

/// # Safety
/// The processor has these features; the call has `R` rows and tokens `t0 .. t0 + T`, whose lengths fit each other, and
/// all begins at multiples of 64.
#[target_feature(enable = "avx2,fma")]
unsafe fn words_tile256<const R: usize, const T: usize>(c: &Call<'_>, t0: usize, out: &mut [f32]) {
    let mut lanes = [[[_mm256_setzero_ps(); 2]; T]; R];
    // SAFETY: rows and tokens have 128 bytes and a scale for each block.
    unsafe {
        let (w, x, stride) = (c.weights(0), c.acts(t0), c.act_bytes);
        for block in 0..c.blocks {
            for half in 0..2 {
                let at = 128 * block + 32 * half;
                let load = |p: *const u8| _mm256_loadu_si256(p.cast());
                let mut weights = [[_mm256_setzero_si256(); 2]; R];
                for (r, weights) in weights.iter_mut().enumerate() {
                    let w = w.add(r * stride + at);
                    *weights = [load(w), load(w.add(64))];
                }
                for t in 0..T {
                    let row = x.add(t * stride);
                    let x = [load(row.add(at)), load(row.add(at + 64))];
                    let scale = row.add(128 * c.blocks).cast::<f32>().add(block).read();
                    for r in 0..R {
                        let sums = _mm256_add_epi32(
                            _mm256_madd_epi16(weights[r][0], x[0]),
                            _mm256_madd_epi16(weights[r][1], x[1]),
                        );
                        let sums = _mm256_cvtepi32_ps(sums);
                        let scale = _mm256_set1_ps(scale);
                        lanes[r][t][half] = _mm256_fmadd_ps(sums, scale, lanes[r][t][half]);
                    }
                }
            }
        }
    }
    for (r, lanes) in lanes.into_iter().enumerate() {
        for (t, [lower, upper]) in lanes.into_iter().enumerate() {
            let eight = _mm256_add_ps(lower, upper);
            out[r * c.tokens + t0 + t] = c.scales[r] * sums::eight(eight);
        }
    }
}

/// Single precision, 256 bits.
///
/// # Safety
/// As [`words256`].
pub(super) unsafe fn floats256(call: &Call<'_>, out: &mut [f32]) {
    tiles!(call, out, floats_tile256, 4 2 1);
}

/// Eight of the 64 lanes after the other.
///
/// # Safety
/// The processor has these features; the call has `R` rows and tokens `t0 .. t0 + T`, whose lengths fit each other, and
/// all begins at multiples of 64.
#[target_feature(enable = "avx2,fma")]
unsafe fn floats_tile256<const R: usize, const T: usize>(c: &Call<'_>, t0: usize, out: &mut [f32]) {
    let mut all = [[[_mm256_setzero_ps(); 8]; T]; R];
    for part in 0..8 {
        let mut lanes = [[_mm256_setzero_ps(); T]; R];
        // SAFETY: rows and tokens have 256 bytes for each block.
        unsafe {
            let (w, x, stride) = (c.weights(0), c.acts(t0), c.act_bytes);
            for block in 0..c.blocks {
                let at = 256 * block + 32 * part;
                let mut weights = [_mm256_setzero_ps(); R];
                for (r, weights) in weights.iter_mut().enumerate() {
                    *weights = _mm256_loadu_ps(w.add(r * stride + at).cast());
                }
                for t in 0..T {
                    let x = _mm256_loadu_ps(x.add(t * stride + at).cast());
                    for r in 0..R {
                        lanes[r][t] = _mm256_fmadd_ps(weights[r], x, lanes[r][t]);
                    }
                }
            }
        }
        for r in 0..R {
            for t in 0..T {
                all[r][t][part] = lanes[r][t];
            }
        }
    }
    for (r, all) in all.into_iter().enumerate() {
        for (t, mut lanes) in all.into_iter().enumerate() {
            for half in [4, 2, 1] {
                for i in 0..half {
                    lanes[i] = _mm256_add_ps(lanes[i], lanes[i + half]);
                }
            }
            out[r * c.tokens + t0 + t] = sums::eight(lanes[0]);
        }
    }
}
