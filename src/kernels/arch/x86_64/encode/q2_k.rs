//! Q2_K: 16 groups of 16, each with a 4-bit scale and a 4-bit minimum.

use std::arch::x86_64::*;

use trine_formats::types::TypeId;
use trine_formats::types::num::{f16_at, nearest_int, put_f16};

use super::super::quantize::store32;
use super::k_block::{
    BLOCK, Blocks, gather, pack_2bit, round_affine, sums, sums_of_squares, weigh,
};
use super::search::{AffineFit, Grid, fit_affine, fit_unsigned};
use super::vector::{Eight, MAX_LANES, Sixteen, Vector, lanes, tile};

const GROUP: usize = 16;
const GROUPS: usize = BLOCK / GROUP;
const BYTES: usize = 84;
const QS: usize = 16;
const D: usize = 80;
const DMIN: usize = 82;
const SCALE_TOP: f32 = 15.0;

const PLAIN: Grid = Grid {
    top: 3.0,
    from: -0.5,
    step: 0.1,
    last: 15,
};
const IMPORTANT: Grid = Grid {
    top: 3.0,
    from: -0.9,
    step: 0.05,
    last: 36,
};

/// Blocks whose scales are rounded together: one lane for the scales of each, one for the minima.
const BATCH: usize = MAX_LANES / 2;

/// A block's groups.
#[derive(Clone, Copy)]
struct Fitted {
    /// Scales, then minima.
    values: [[f32; GROUPS]; 2],
    /// Sums of the error weights.
    weights: [f32; GROUPS],
    fits: [Option<AffineFit>; 2],
}

impl Fitted {
    const NONE: Fitted = Fitted {
        values: [[0.0; GROUPS]; 2],
        weights: [0.0; GROUPS],
        fits: [None; 2],
    };

    fn is_complete<V: Vector>(&self) -> bool {
        self.fits[..GROUPS / V::LANES].iter().all(Option::is_some)
    }

    fn code<V: Vector>(&self, j: usize, x: f32) -> u8 {
        self.fits[j / V::LANES].map_or(0, |fit| fit.code(j % V::LANES, x))
    }
}

/// Fits the groups of a block, which are `VECTORS` vectors.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn fit<V: Vector, const VECTORS: usize>(block: &Blocks<'_>, sigma2: f32) -> Fitted {
    const { assert!(VECTORS * V::LANES == GROUPS) };
    let mut fitted = Fitted::NONE;
    // SAFETY: as the caller says.
    unsafe {
        let mut x = [[V::splat(0.0); GROUP]; VECTORS];
        let mut w = x;
        for k in 0..VECTORS {
            let at = k * V::LANES * GROUP;
            x[k] = tile::<V, GROUP>(&block.x[at..]);
            if let Some(importance) = block.importance {
                let importance = tile::<V, GROUP>(&importance[at..]);
                w[k] = weigh::<V, GROUP>(&x[k], &importance, V::splat(sigma2));
            } else {
                for (w, &x) in w[k].iter_mut().zip(&x[k]) {
                    *w = V::abs(x);
                }
            }
        }
        let fits = if block.importance.is_some() {
            fit_affine::<V, GROUP, VECTORS, false>(&x, &w, IMPORTANT)
        } else {
            fit_affine::<V, GROUP, VECTORS, true>(&x, &w, PLAIN)
        };
        for k in 0..VECTORS {
            let groups = k * V::LANES..(k + 1) * V::LANES;
            let weights = sums::<V, GROUP>(&w[k]);
            fitted.weights[groups.clone()].copy_from_slice(&weights[..V::LANES]);
            if let Some(fit) = fits[k] {
                fitted.values[0][groups.clone()].copy_from_slice(&fit.scale[..V::LANES]);
                fitted.values[1][groups].copy_from_slice(&fit.neg_min[..V::LANES]);
                fitted.fits[k] = Some(fit);
            }
        }
    }
    fitted
}

/// A scale for fields and the fields: the largest value gets 15. The fields may wrap.
fn round_plain(values: &[f32; GROUPS]) -> (f32, [u32; GROUPS]) {
    let max = values.iter().fold(0.0, |m, v| if *v > m { *v } else { m });
    let mut fields = [0; GROUPS];
    if max > 0.0 {
        let inverse = SCALE_TOP / max;
        for (field, v) in fields.iter_mut().zip(values) {
            *field = nearest_int(inverse * v).cast_unsigned();
        }
        return (max / SCALE_TOP, fields);
    }
    (0.0, fields)
}

type Rounded = [(f32, [u32; GROUPS]); 2];

/// The same by a weighted fit, of several blocks at once.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn round_important<V: Vector>(fitted: &[Fitted; BATCH], rounded: &mut [Rounded; BATCH]) {
    let blocks = V::LANES / 2;
    let (mut x, mut w) = ([[0.0; GROUPS]; MAX_LANES], [[0.0; GROUPS]; MAX_LANES]);
    for i in 0..2 {
        for (b, fitted) in fitted[..blocks].iter().enumerate() {
            x[i * blocks + b] = fitted.values[i];
            w[i * blocks + b] = fitted.weights;
        }
    }
    // SAFETY: as the caller says.
    unsafe {
        let x = tile::<V, GROUPS>(x.as_flattened());
        let w = tile::<V, GROUPS>(w.as_flattened());
        let (scale, codes) = fit_unsigned::<V, GROUPS>(&x, &w, SCALE_TOP);
        let scale = lanes::<V>(scale);
        for (j, &codes) in codes.iter().enumerate() {
            let codes = lanes::<V>(codes);
            for i in 0..2 {
                for (b, rounded) in rounded[..blocks].iter_mut().enumerate() {
                    rounded[i].0 = scale[i * blocks + b];
                    rounded[i].1[j] = codes[i * blocks + b] as u32;
                }
            }
        }
    }
}

/// Writes one block.
///
/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn write<V: Vector>(block: Blocks<'_>, fitted: &Fitted, rounded: &Rounded) {
    let [(d, scales), (dmin, mins)] = rounded;
    for (field, (s, m)) in block.out.iter_mut().zip(scales.iter().zip(mins)) {
        *field = (s | m << 4) as u8;
    }
    put_f16(block.out, D, *d);
    put_f16(block.out, DMIN, *dmin);
    let (d, dmin) = (f16_at(block.out, D), f16_at(block.out, DMIN));
    if !(d.is_finite() && dmin.is_finite()) {
        return block.define(TypeId::Q2_K);
    }
    let mut codes = [_mm256_setzero_si256(); 8];
    for (k, x) in block.x.as_chunks::<32>().0.iter().enumerate() {
        let fields = [block.out[2 * k], block.out[2 * k + 1]];
        let steps = fields.map(|f| d * f32::from(f & 15));
        let minima = fields.map(|f| dmin * f32::from(f >> 4));
        codes[k] = round_affine(x, steps, minima, PLAIN.top as i32);
        if steps.contains(&0.0) {
            let mut own = [0; 32];
            store32(&mut own, codes[k]);
            for (i, (c, x)) in own.iter_mut().zip(x).enumerate() {
                if steps[i / GROUP] == 0.0 {
                    *c = fitted.code::<V>(2 * k + i / GROUP, *x);
                }
            }
            codes[k] = gather(&own);
        }
    }
    for (c, out) in codes
        .as_chunks::<4>()
        .0
        .iter()
        .zip(block.out[QS..].as_chunks_mut::<32>().0)
    {
        store32(out, pack_2bit(c));
    }
}

/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn encode<V: Vector, const VECTORS: usize>(
    x: &[f32],
    importance: Option<&[f32]>,
    out: &mut [u8],
) {
    let mut row = Blocks {
        x,
        importance,
        out,
        bytes: BYTES,
    };
    while let Some(mut batch) = row.take(V::LANES / 2) {
        if !batch.is_ordinary() {
            batch.define(TypeId::Q2_K);
            continue;
        }
        let important = batch.importance.is_some();
        let mut fitted = [Fitted::NONE; BATCH];
        let mut rounded = [[(0.0, [0; GROUPS]); 2]; BATCH];
        // SAFETY: as the caller says.
        unsafe {
            let mut sigma2 = [0.0; BATCH];
            if important {
                sigma2 = sums_of_squares(batch.x);
                for s in &mut sigma2 {
                    *s /= BLOCK as f32;
                }
            }
            let mut blocks = batch.again();
            let mut b = 0;
            while let Some(block) = blocks.take(1) {
                fitted[b] = fit::<V, VECTORS>(&block, sigma2[b]);
                b += 1;
            }
            if important {
                round_important::<V>(&fitted, &mut rounded);
            } else {
                for (rounded, fitted) in rounded.iter_mut().zip(&fitted) {
                    let [scales, mins] = &fitted.values;
                    *rounded = [round_plain(scales), round_plain(mins)];
                }
            }
            let mut b = 0;
            while let Some(block) = batch.take(1) {
                if fitted[b].is_complete::<V>() {
                    write::<V>(block, &fitted[b], &rounded[b]);
                } else {
                    block.define(TypeId::Q2_K);
                }
                b += 1;
            }
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn avx2(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    // SAFETY: the instruction set of this function.
    unsafe { encode::<Eight, 2>(x, importance, row) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn avx512(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    // SAFETY: as above.
    unsafe { encode::<Sixteen, 1>(x, importance, row) }
}
