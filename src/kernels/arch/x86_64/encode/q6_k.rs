//! Q6_K: 16 groups of 16, each with a signed 8-bit scale.

use std::arch::x86_64::*;

use trine_formats::types::TypeId;
use trine_formats::types::num::{f16_at, nearest_int, put_f16, signed_extreme};

use super::super::quantize::store32;
use super::k_block::{BLOCK, Blocks, gather, pack_2bit, pack_nibbles, round_symmetric};
use super::search::{GROUP_EPS, SymmetricFit, fit_symmetric};
use super::vector::{Eight, Sixteen, Vector, tile};

const GROUP: usize = 16;
const GROUPS: usize = BLOCK / GROUP;
const BYTES: usize = 210;
const QH: usize = 128;
const SCALES: usize = 192;
const D: usize = 208;
const HALF: i32 = 32;

/// Writes one block. `fits` has the groups in order, `per_fit` in each.
#[target_feature(enable = "avx2,fma,f16c")]
fn write(block: Blocks<'_>, fits: &[SymmetricFit], per_fit: usize) {
    let mut scales = [0.0; GROUPS];
    for (fit, scales) in fits.iter().zip(scales.chunks_exact_mut(per_fit)) {
        scales.copy_from_slice(&fit.scale[..per_fit]);
    }
    let extreme = signed_extreme(&scales);
    if extreme.abs() < GROUP_EPS {
        block.out.fill(0);
        return;
    }
    let inverse = -128.0 / extreme;
    for (field, s) in block.out[SCALES..D].iter_mut().zip(&scales) {
        *field = nearest_int(inverse * s).min(127) as u8;
    }
    put_f16(block.out, D, 1.0 / inverse);
    let d = f16_at(block.out, D);
    if !d.is_finite() {
        return block.define(TypeId::Q6_K);
    }
    let mut codes = [_mm256_setzero_si256(); 8];
    for (k, x) in block.x.as_chunks::<32>().0.iter().enumerate() {
        let step = |j: usize| d * f32::from(block.out[SCALES + j].cast_signed());
        let steps = [step(2 * k), step(2 * k + 1)];
        codes[k] = round_symmetric(x, steps, HALF);
        if steps.contains(&0.0) {
            let mut own = [0; 32];
            store32(&mut own, codes[k]);
            for (i, (c, x)) in own.iter_mut().zip(x).enumerate() {
                let j = 2 * k + i / GROUP;
                if steps[i / GROUP] == 0.0 {
                    *c = fits[j / per_fit].code(j % per_fit, *x);
                }
            }
            codes[k] = gather(&own);
        }
    }
    let (ql, qh) = block.out.split_at_mut(QH);
    for (h, c) in codes.as_chunks::<4>().0.iter().enumerate() {
        store32(&mut ql[64 * h..], pack_nibbles(c[0], c[2]));
        store32(&mut ql[64 * h + 32..], pack_nibbles(c[1], c[3]));
        let high = [
            _mm256_srli_epi16::<4>(c[0]),
            _mm256_srli_epi16::<4>(c[1]),
            _mm256_srli_epi16::<4>(c[2]),
            _mm256_srli_epi16::<4>(c[3]),
        ];
        store32(&mut qh[32 * h..], pack_2bit(&high));
    }
}

/// # Safety
/// The processor has the instruction set.
#[inline(always)]
unsafe fn encode<V: Vector>(x: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
    let mut row = Blocks {
        x,
        importance,
        out,
        bytes: BYTES,
    };
    while let Some(block) = row.take(1) {
        if !block.is_ordinary() {
            block.define(TypeId::Q6_K);
            continue;
        }
        let mut fits = [None; 2];
        // SAFETY: as the caller says.
        unsafe {
            for (k, x) in block.x.chunks_exact(GROUP * V::LANES).enumerate() {
                let x = tile::<V, GROUP>(x);
                let mut w = x;
                match block.importance {
                    None => {
                        for w in &mut w {
                            *w = V::mul(*w, *w);
                        }
                    }
                    Some(importance) => w = tile::<V, GROUP>(&importance[k * GROUP * V::LANES..]),
                }
                fits[k] = Some(fit_symmetric::<V, GROUP>(&x, &w, HALF as f32));
            }
            match fits {
                [Some(a), Some(b)] => write(block, &[a, b], V::LANES),
                [Some(a), None] => write(block, &[a], V::LANES),
                _ => block.define(TypeId::Q6_K),
            }
        }
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
pub(super) fn avx2(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    // SAFETY: the instruction set of this function.
    unsafe { encode::<Eight>(x, importance, row) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub(super) fn avx512(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    // SAFETY: as above.
    unsafe { encode::<Sixteen>(x, importance, row) }
}
