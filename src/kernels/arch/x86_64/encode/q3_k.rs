//! Q3_K: 16 groups of 16, each with a signed 6-bit scale.

use std::arch::x86_64::*;

use trine_formats::types::TypeId;
use trine_formats::types::num::{f16_at, nearest_int, put_f16, signed_extreme};

use super::super::quantize::store32;
use super::k_block::{
    BLOCK, Blocks, gather, pack_2bit, round_symmetric, sums, sums_of_squares, weigh,
};
use super::search::{DescentFit, SymmetricFit, fit_descent, fit_symmetric};
use super::vector::{Eight, Sixteen, Vector, tile};

const GROUP: usize = 16;
const GROUPS: usize = BLOCK / GROUP;
const BYTES: usize = 110;
const QS: usize = 32;
const SCALES: usize = 96;
const D: usize = 108;
/// The code of zero.
const HALF: i32 = 4;
/// The code of scale zero.
const SCALE_HALF: i32 = 32;

/// Blocks whose groups are searched together without importance.
const PLAIN_BATCH: usize = 2;
/// Blocks whose scales are rounded together with importance.
const BATCH: usize = 8;

fn pack_scales(scales: &[u8; GROUPS], bytes: &mut [u8]) {
    bytes.fill(0);
    for (j, s) in scales.iter().enumerate() {
        bytes[j % 8] |= (s & 15) << (4 * (j / 8));
        bytes[8 + j % 4] |= (s >> 4) << (2 * (j / 4));
    }
}

/// The signed scales of the groups.
fn unpack_scales(bytes: &[u8]) -> [i32; GROUPS] {
    let mut scales = [0; GROUPS];
    for (j, s) in scales.iter_mut().enumerate() {
        let low = (bytes[j % 8] >> (4 * (j / 8))) & 15;
        let high = (bytes[8 + j % 4] >> (2 * (j / 4))) & 3;
        *s = i32::from(low | high << 4) - SCALE_HALF;
    }
    scales
}

/// What the search left behind, the groups of a block in one or two vectors: the codes of groups whose rounded
/// scale is zero come from here.
enum Search<'a> {
    Descent(&'a [DescentFit<GROUP>]),
    Fits(&'a [SymmetricFit]),
}

impl Search<'_> {
    fn code(&self, j: usize, i: usize, x: f32) -> u8 {
        match self {
            Search::Descent(fits) => {
                let lanes = GROUPS / fits.len();
                fits[j / lanes].codes[i][j % lanes] as u8
            }
            Search::Fits(fits) => {
                let lanes = GROUPS / fits.len();
                fits[j / lanes].code(j % lanes, x)
            }
        }
    }
}

/// Writes one block whose scales are there.
#[target_feature(enable = "avx2,fma,f16c")]
fn write_codes(block: Blocks<'_>, search: &Search<'_>) {
    let d = f16_at(block.out, D);
    if !d.is_finite() {
        return block.define(TypeId::Q3_K);
    }
    let scales = unpack_scales(&block.out[SCALES..D]);
    let mut codes = [_mm256_setzero_si256(); 8];
    let mut high = _mm256_setzero_si256();
    let one = _mm256_set1_epi8(1);
    for (k, x) in block.x.as_chunks::<32>().0.iter().enumerate().rev() {
        let steps = [d * scales[2 * k] as f32, d * scales[2 * k + 1] as f32];
        let mut c = round_symmetric(x, steps, HALF);
        if steps.contains(&0.0) {
            let mut own = [0; 32];
            store32(&mut own, c);
            for (i, (c, x)) in own.iter_mut().zip(x).enumerate() {
                if steps[i / GROUP] == 0.0 {
                    *c = search.code(2 * k + i / GROUP, i % GROUP, *x);
                }
            }
            c = gather(&own);
        }
        let bit = _mm256_and_si256(_mm256_srli_epi16::<2>(c), one);
        high = _mm256_or_si256(_mm256_add_epi8(high, high), bit);
        codes[k] = c;
    }
    store32(block.out, high);
    for (c, out) in codes
        .as_chunks::<4>()
        .0
        .iter()
        .zip(block.out[QS..SCALES].as_chunks_mut::<32>().0)
    {
        store32(out, pack_2bit(c));
    }
}

/// Writes the scales so that the one of largest magnitude gets code 0.
fn scales_plain(fits: &[DescentFit<GROUP>], block: &mut [u8]) {
    let lanes = GROUPS / fits.len();
    let mut scales = [0.0; GROUPS];
    for (fit, scales) in fits.iter().zip(scales.chunks_exact_mut(lanes)) {
        scales.copy_from_slice(&fit.scale[..lanes]);
    }
    let extreme = signed_extreme(&scales);
    if extreme == 0.0 {
        block[SCALES..].fill(0);
        return;
    }
    let inverse = -SCALE_HALF as f32 / extreme;
    let packed = scales.map(|s| {
        let l = i32::from(nearest_int(inverse * s) as i8);
        (l.clamp(-SCALE_HALF, SCALE_HALF - 1) + SCALE_HALF) as u8
    });
    pack_scales(&packed, &mut block[SCALES..D]);
    put_f16(block, D, 1.0 / inverse);
}

/// `VECTORS` vectors hold the groups of `PLAIN_BATCH` blocks.
///
/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn encode_plain<V: Vector, const VECTORS: usize>(mut row: Blocks<'_>) {
    const { assert!(VECTORS * V::LANES == PLAIN_BATCH * GROUPS) };
    while let Some(mut batch) = row.take(PLAIN_BATCH) {
        if !batch.is_ordinary() {
            batch.define(TypeId::Q3_K);
            continue;
        }
        // SAFETY: as the caller says.
        unsafe {
            let mut x = [[V::splat(0.0); GROUP]; VECTORS];
            for (k, x) in x.iter_mut().enumerate() {
                let at = (k * V::LANES * GROUP).min(batch.x.len());
                *x = tile::<V, GROUP>(&batch.x[at..]);
            }
            let fits = fit_descent::<V, GROUP, VECTORS>(&x, HALF as f32);
            let mut fits = fits.chunks_exact(VECTORS / PLAIN_BATCH);
            while let (Some(block), Some(fits)) = (batch.take(1), fits.next()) {
                scales_plain(fits, block.out);
                write_codes(block, &Search::Descent(fits));
            }
        }
    }
}

/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn encode_important<V: Vector>(mut row: Blocks<'_>) {
    while let Some(mut batch) = row.take(BATCH) {
        if !batch.is_ordinary() {
            batch.define(TypeId::Q3_K);
            continue;
        }
        let per_block = GROUPS / V::LANES;
        let mut fits = [None; 2 * BATCH];
        let (mut scales, mut weights) = ([0.0; 16 * GROUPS], [0.0; 16 * GROUPS]);
        // SAFETY: as the caller says.
        unsafe {
            let sigma2 = sums_of_squares(batch.x).map(|sum| 2.0 * sum / BLOCK as f32);
            let importance = batch.importance.unwrap_or_default();
            let step = V::LANES * GROUP;
            let vectors = batch
                .x
                .chunks_exact(step)
                .zip(importance.chunks_exact(step));
            for (k, (x, importance)) in vectors.enumerate() {
                let x = tile::<V, GROUP>(x);
                let sigma2 = V::splat(sigma2[k / per_block]);
                let w = weigh::<V, GROUP>(&x, &tile::<V, GROUP>(importance), sigma2);
                let fit = fit_symmetric::<V, GROUP>(&x, &w, HALF as f32);
                let groups = k * V::LANES..(k + 1) * V::LANES;
                scales[groups.clone()].copy_from_slice(&fit.scale[..V::LANES]);
                weights[groups].copy_from_slice(&sums::<V, GROUP>(&w)[..V::LANES]);
                fits[k] = Some(fit);
            }
            let of_scales = fit_symmetric::<V, GROUPS>(
                &tile::<V, GROUPS>(&scales),
                &tile::<V, GROUPS>(&weights),
                SCALE_HALF as f32,
            );
            let mut b = 0;
            while let Some(block) = batch.take(1) {
                let scales = &scales[b * GROUPS..(b + 1) * GROUPS];
                let mut codes = [0; GROUPS];
                for (code, s) in codes.iter_mut().zip(scales) {
                    *code = of_scales.code(b, *s);
                }
                pack_scales(&codes, &mut block.out[SCALES..D]);
                put_f16(block.out, D, of_scales.scale[b]);
                match &fits[b * per_block..(b + 1) * per_block] {
                    [Some(a), Some(b)] => write_codes(block, &Search::Fits(&[*a, *b])),
                    [Some(a)] => write_codes(block, &Search::Fits(&[*a])),
                    _ => block.define(TypeId::Q3_K),
                }
                b += 1;
            }
        }
    }
}

/// # Safety
/// The instruction set of `V`.
#[inline(always)]
unsafe fn encode<V: Vector, const VECTORS: usize>(
    x: &[f32],
    importance: Option<&[f32]>,
    out: &mut [u8],
) {
    let row = Blocks {
        x,
        importance,
        out,
        bytes: BYTES,
    };
    // SAFETY: as the caller promises.
    unsafe {
        match importance {
            None => encode_plain::<V, VECTORS>(row),
            Some(_) => encode_important::<V>(row),
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn avx2(x: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    // SAFETY: the instruction set of this function.
    unsafe { encode::<Eight, 4>(x, importance, out) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn avx512(x: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    // SAFETY: as above.
    unsafe { encode::<Sixteen, 2>(x, importance, out) }
}
