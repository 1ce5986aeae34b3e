//! Q4_K and Q5_K: 8 groups of 32, each with a 6-bit scale and a 6-bit minimum.

use std::arch::x86_64::*;

use trine_formats::types::TypeId;
use trine_formats::types::num::{f16_at, nearest_int, put_f16};

use super::super::quantize::store32;
use super::k_block::{
    BLOCK, Blocks, gather, pack_nibbles, round_affine, sums, sums_of_squares, weigh,
};
use super::search::{AffineFit, Grid, fit_affine, fit_unsigned};
use super::vector::{Eight, MAX_LANES, Sixteen, Vector, lanes, tile};

const GROUP: usize = 32;
const GROUPS: usize = BLOCK / GROUP;
const HEADER: usize = 16;
const SCALE_TOP: u8 = 63;

/// Vectors of groups that are fitted before their scales are rounded together.
const FITS: usize = 4;
/// Blocks that these vectors have at most.
const BATCH: usize = FITS * MAX_LANES / GROUPS;

/// How a type searches, and how large it is.
struct Kind {
    ty: TypeId,
    bytes: usize,
    top: f32,
    /// `from`, `step` and `last` of the grid without importance.
    plain: (f32, f32, u8),
    /// Whether 6-bit fields that wrapped below zero are cut to 63 when importance is given.
    cut_wrapped: bool,
}

const Q4_K: Kind = Kind {
    ty: TypeId::Q4_K,
    bytes: 144,
    top: 15.0,
    plain: (-1.0, 0.1, 20),
    cut_wrapped: false,
};

const Q5_K: Kind = Kind {
    ty: TypeId::Q5_K,
    bytes: 176,
    top: 31.0,
    plain: (-0.5, 0.1, 15),
    cut_wrapped: true,
};

/// The same for both types.
const IMPORTANT: (f32, f32, u8) = (-0.9, 0.05, 36);

type Fields = [u8; GROUPS];

fn pack_scales(scales: &Fields, mins: &Fields, bytes: &mut [u8]) {
    for j in 0..4 {
        bytes[j] = scales[j] | scales[j + 4] >> 4 << 6;
        bytes[j + 4] = mins[j] | mins[j + 4] >> 4 << 6;
        bytes[j + 8] = scales[j + 4] & 15 | mins[j + 4] << 4;
    }
}

fn unpack_scales(bytes: &[u8]) -> (Fields, Fields) {
    let (mut scales, mut mins) = ([0; GROUPS], [0; GROUPS]);
    for j in 0..4 {
        scales[j] = bytes[j] & 63;
        mins[j] = bytes[j + 4] & 63;
        scales[j + 4] = bytes[j + 8] & 15 | bytes[j] >> 6 << 4;
        mins[j + 4] = bytes[j + 8] >> 4 | bytes[j + 4] >> 6 << 4;
    }
    (scales, mins)
}

/// A scale for fields and the fields: the largest value gets 63.
fn round_plain(values: &[f32]) -> (f32, Fields) {
    let max = values.iter().fold(0.0, |m, v| if *v > m { *v } else { m });
    let inverse = if max > 0.0 {
        f32::from(SCALE_TOP) / max
    } else {
        0.0
    };
    let field = |v: &f32| (nearest_int(inverse * v) as u8).min(SCALE_TOP);
    let mut fields = [0; GROUPS];
    for (field_at, v) in fields.iter_mut().zip(values) {
        *field_at = field(v);
    }
    (max / f32::from(SCALE_TOP), fields)
}

/// The groups of some blocks, fitted.
struct Fitted {
    /// Scales, then minima, of each block.
    values: [[[f32; GROUPS]; BATCH]; 2],
    /// Sums of the error weights.
    weights: [[f32; GROUPS]; BATCH],
    /// Of each vector of groups; `None` where that is left to the definition.
    fits: [Option<AffineFit>; FITS],
}

/// Fits `VECTORS` vectors of groups, from vector `first` of the batch on.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn fit<V: Vector, const VECTORS: usize>(
    kind: &Kind,
    batch: &Blocks<'_>,
    sigma2: &[f32; BATCH],
    first: usize,
    fitted: &mut Fitted,
) {
    let per_fit = V::LANES / GROUPS;
    // SAFETY: as the caller says.
    unsafe {
        let mut x = [[V::splat(0.0); GROUP]; VECTORS];
        let mut w = x;
        for v in 0..VECTORS {
            let block = (first + v) * per_fit;
            x[v] = tile::<V, GROUP>(&batch.x[block * BLOCK..]);
            if let Some(importance) = batch.importance {
                let mut per_lane = [0.0; MAX_LANES];
                for (lanes, s) in per_lane.chunks_mut(GROUPS).zip(&sigma2[block..]) {
                    lanes.fill(*s);
                }
                let importance = tile::<V, GROUP>(&importance[block * BLOCK..]);
                w[v] = weigh::<V, GROUP>(&x[v], &importance, V::load(per_lane.as_ptr()));
            } else {
                let mut squares = V::splat(0.0);
                for &x in &x[v] {
                    squares = V::add(squares, V::mul(x, x));
                }
                let rms = V::sqrt(V::div(squares, V::splat(GROUP as f32)));
                for (w, &x) in w[v].iter_mut().zip(&x[v]) {
                    *w = V::add(rms, V::abs(x));
                }
            }
        }
        let (from, step, last) = if batch.importance.is_some() {
            IMPORTANT
        } else {
            kind.plain
        };
        let grid = Grid {
            top: kind.top,
            from,
            step,
            last,
        };
        let fits = fit_affine::<V, GROUP, VECTORS, false>(&x, &w, grid);
        for v in 0..VECTORS {
            fitted.fits[first + v] = fits[v];
            let weights = sums::<V, GROUP>(&w[v]);
            let Some(fit) = &fits[v] else {
                continue;
            };
            for b in 0..per_fit {
                let (block, lanes) = ((first + v) * per_fit + b, GROUPS * b..GROUPS * (b + 1));
                fitted.values[0][block].copy_from_slice(&fit.scale[lanes.clone()]);
                fitted.values[1][block].copy_from_slice(&fit.neg_min[lanes.clone()]);
                fitted.weights[block].copy_from_slice(&weights[lanes]);
            }
        }
    }
}

/// Writes one block whose header is there, but for its scales.
///
/// # Safety
/// The processor has AVX2.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn write_codes(kind: &Kind, block: Blocks<'_>, fit: &AffineFit, first_group: usize) {
    let (d, dmin) = (f16_at(block.out, 0), f16_at(block.out, 2));
    if !(d.is_finite() && dmin.is_finite()) {
        return block.define(kind.ty);
    }
    let (scales, mins) = unpack_scales(&block.out[4..HEADER]);
    let mut codes = [_mm256_setzero_si256(); GROUPS];
    for (j, x) in block.x.as_chunks::<GROUP>().0.iter().enumerate() {
        let dl = d * f32::from(scales[j]);
        codes[j] = if dl == 0.0 {
            let mut own = [0; GROUP];
            for (c, x) in own.iter_mut().zip(x) {
                *c = fit.code(first_group + j, *x);
            }
            gather(&own)
        } else {
            let dm = dmin * f32::from(mins[j]);
            round_affine(x, [dl; 2], [dm; 2], kind.top as i32)
        };
    }
    let mut qs = HEADER;
    if kind.top > 15.0 {
        let one = _mm256_set1_epi8(1);
        let mut high = _mm256_setzero_si256();
        for c in codes.iter().rev() {
            let bit = _mm256_and_si256(_mm256_srli_epi16::<4>(*c), one);
            high = _mm256_or_si256(_mm256_add_epi8(high, high), bit);
        }
        store32(&mut block.out[qs..], high);
        qs += 32;
    }
    for (c, out) in codes
        .as_chunks::<2>()
        .0
        .iter()
        .zip(block.out[qs..].as_chunks_mut::<32>().0)
    {
        store32(out, pack_nibbles(c[0], c[1]));
    }
}

/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn encode<V: Vector>(kind: &Kind, x: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let per_fit = V::LANES / GROUPS;
    let bytes = kind.bytes;
    let mut row = Blocks {
        x,
        importance,
        out,
        bytes,
    };
    while let Some(mut batch) = row.take(FITS * V::LANES / GROUPS) {
        if !batch.is_ordinary() {
            batch.define(kind.ty);
            continue;
        }
        // Of each block: the scale of its fields and the fields, for scales and for minima.
        let mut rounded = [[(0.0, [0; GROUPS]); 2]; BATCH];
        let mut fitted = Fitted {
            values: [[[0.0; GROUPS]; BATCH]; 2],
            weights: [[0.0; GROUPS]; BATCH],
            fits: [None; FITS],
        };
        // SAFETY: as the caller says.
        unsafe {
            let mut sigma2 = [0.0; BATCH];
            if batch.importance.is_some() {
                sigma2 = sums_of_squares(batch.x);
                for s in &mut sigma2 {
                    *s = 2.0 * *s / BLOCK as f32;
                }
            }
            let vectors = (batch.x.len() / BLOCK).div_ceil(per_fit);
            for first in (0..vectors / 2 * 2).step_by(2) {
                fit::<V, 2>(kind, &batch, &sigma2, first, &mut fitted);
            }
            if vectors % 2 == 1 {
                fit::<V, 1>(kind, &batch, &sigma2, vectors - 1, &mut fitted);
            }
            if batch.importance.is_some() {
                round_important::<V>(kind, &fitted, &mut rounded);
            } else {
                let [scales, mins] = &fitted.values;
                for (rounded, (s, m)) in rounded.iter_mut().zip(scales.iter().zip(mins)) {
                    *rounded = [round_plain(s), round_plain(m)];
                }
            }
        }
        let mut b = 0;
        while let Some(block) = batch.take(1) {
            match &fitted.fits[b / per_fit] {
                None => block.define(kind.ty),
                Some(fit) => {
                    let [(d, scales), (dmin, mins)] = &rounded[b];
                    put_f16(block.out, 0, *d);
                    put_f16(block.out, 2, *dmin);
                    pack_scales(scales, mins, &mut block.out[4..HEADER]);
                    // SAFETY: every instruction set here includes AVX2.
                    unsafe { write_codes(kind, block, fit, b % per_fit * GROUPS) };
                }
            }
            b += 1;
        }
    }
}

/// Rounds the scales and minima of several blocks by a weighted fit, one lane for each.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn round_important<V: Vector>(
    kind: &Kind,
    fitted: &Fitted,
    rounded: &mut [[(f32, Fields); 2]; BATCH],
) {
    let blocks = V::LANES / 2;
    let (mut x, mut w) = ([[0.0; GROUPS]; MAX_LANES], [[0.0; GROUPS]; MAX_LANES]);
    for (i, values) in fitted.values.iter().enumerate() {
        x[i * blocks..][..blocks].copy_from_slice(&values[..blocks]);
        w[i * blocks..][..blocks].copy_from_slice(&fitted.weights[..blocks]);
    }
    // SAFETY: as the caller says.
    unsafe {
        let x = tile::<V, GROUPS>(x.as_flattened());
        let w = tile::<V, GROUPS>(w.as_flattened());
        let (scale, codes) = fit_unsigned::<V, GROUPS>(&x, &w, f32::from(SCALE_TOP));
        let scale = lanes::<V>(scale);
        for (j, &codes) in codes.iter().enumerate() {
            let codes = lanes::<V>(codes);
            for i in 0..2 {
                for b in 0..blocks {
                    let (d, fields) = &mut rounded[b][i];
                    *d = scale[i * blocks + b];
                    let code = codes[i * blocks + b] as u8;
                    fields[j] = if kind.cut_wrapped {
                        code.min(SCALE_TOP)
                    } else {
                        code
                    };
                }
            }
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn q4_k_avx2(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    // SAFETY: the instruction set of this function.
    unsafe { encode::<Eight>(&Q4_K, x, importance, row) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn q4_k_avx512(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    // SAFETY: as above.
    unsafe { encode::<Sixteen>(&Q4_K, x, importance, row) }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn q5_k_avx2(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    // SAFETY: as above.
    unsafe { encode::<Eight>(&Q5_K, x, importance, row) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn q5_k_avx512(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    // SAFETY: as above.
    unsafe { encode::<Sixteen>(&Q5_K, x, importance, row) }
}
