//! Every kernel against `dot_ref`, bit for bit, on encoder output and on raw random bytes.

use trine_formats::types::{REGISTRY, TypeId, TypeInfo};

use super::testing::{Random, isas, same};
use super::{mat_rows, quantize_act, scalar};
use crate::sizes::row_bytes;

fn types_with_dots() -> impl Iterator<Item = (&'static TypeInfo, &'static TypeInfo)> {
    REGISTRY.iter().filter_map(|info| Some((info.dot_ref.and(Some(info))?, info.act?.info()?)))
}

fn compare(info: &TypeInfo, w: &[u8], acts: &[u8], n: usize, tokens: usize, what: &str) {
    let w_row = row_bytes(info, n);
    let a_row = acts.len() / tokens;
    let dot = info.dot_ref.expect("listed types have a dot product");
    let rows = w.len() / w_row;
    let mut expected = vec![0.0; rows * tokens];
    for (i, out) in expected.iter_mut().enumerate() {
        *out = dot(&w[i / tokens * w_row..][..w_row], &acts[i % tokens * a_row..][..a_row]);
    }
    for isa in isas() {
        let mut out = vec![f32::from_bits(0x7FC1_2345); rows * tokens];
        mat_rows(info.id, isa).expect("listed types have kernels").multiply(w, acts, n, tokens, &mut out);
        for (i, (a, b)) in out.iter().zip(&expected).enumerate() {
            let (r, t) = (i / tokens, i % tokens);
            assert!(
                same(*a, *b),
                "{} {isa} {what}: n {n}, row {r} of {rows}, token {t} of {tokens}: {a:e} {:08x} is not {b:e} {:08x}",
                info.name,
                a.to_bits(),
                b.to_bits()
            );
        }
    }
}

pub(crate) fn encoded(info: &TypeInfo, rows: usize, n: usize, random: &mut Random) -> Vec<u8> {
    let row = row_bytes(info, n);
    let mut out = vec![0; rows * row];
    let encode = info.encode.expect("has an encoder");
    for out in out.chunks_exact_mut(row) {
        let x: Vec<f32> = (0..n).map(|_| random.float()).collect();
        encode(&x, None, out);
    }
    out
}

/// The shapes: every row and token tail, block counts around the groups of eight.
fn shapes(info: &TypeInfo) -> Vec<(usize, usize, usize)> {
    let step = info.block.max(32);
    let mut all = Vec::new();
    for rows in [1, 3, 8, 16, 17, 33] {
        for tokens in [1, 2, 3, 4, 5, 7, 8, 16] {
            all.push((rows, tokens, step));
            all.push((rows, tokens, 5 * step));
        }
    }
    for blocks in [2, 3, 7, 8, 9, 11] {
        all.extend([(1, 1, blocks * step), (9, 2, blocks * step), (19, 6, blocks * step)]);
    }
    if info.block == 1 {
        for n in [1, 2, 7, 8, 9, 15, 127, 129, 255, 1000] {
            all.extend([(1, 1, n), (9, 2, n), (40, 3, n), (35, 5, n), (65, 13, n), (10, 100, n)]);
        }
    }
    all.extend([(33, 7, 2560), (17, 1, 2560), (21, 37, 2 * step), (20, 70, step)]);
    all
}

#[test]
fn kernels_give_the_bits_of_dot_ref_on_encoder_output() {
    for (info, act) in types_with_dots() {
        let mut random = Random(0x9E37_79B9 + u64::from(info.id.0));
        for (rows, tokens, n) in shapes(info) {
            let w = if info.encode.is_some() {
                encoded(info, rows, n, &mut random)
            } else {
                random.bytes(rows * row_bytes(info, n))
            };
            let acts = encoded(act, tokens, n, &mut random);
            compare(info, &w, &acts, n, tokens, "encoded");
        }
    }
}

#[test]
fn kernels_give_the_bits_of_dot_ref_on_raw_bytes() {
    for (info, act) in types_with_dots() {
        let mut random = Random(0x1234_5678 + u64::from(info.id.0));
        for (rows, tokens, n) in shapes(info) {
            let w = random.bytes(rows * row_bytes(info, n));
            let acts = random.bytes(tokens * row_bytes(act, n));
            compare(info, &w, &acts, n, tokens, "raw");
        }
    }
}

/// Raw bytes give a NaN in most long sums; here every scale is finite and all else random.
#[test]
fn kernels_give_the_bits_of_dot_ref_on_raw_codes_with_finite_scales() {
    for (info, act) in types_with_dots() {
        let mut random = Random(0xABCD_EF01 + u64::from(info.id.0));
        for (rows, tokens, n) in [(33, 7, 8 * info.block.max(32)), (18, 8, 2560), (9, 1, 2560)] {
            let w = finite(info, rows, n, &mut random);
            let acts = finite(act, tokens, n, &mut random);
            compare(info, &w, &acts, n, tokens, "finite");
        }
    }
}

/// Random rows whose scales are small and finite.
fn finite(info: &TypeInfo, rows: usize, n: usize, random: &mut Random) -> Vec<u8> {
    let mut all = random.bytes(rows * row_bytes(info, n));
    tame_rows(info, &mut all, n, random);
    all
}

/// Makes the scales of rows and blocks finite.
pub(crate) fn tame_rows(info: &TypeInfo, all: &mut [u8], n: usize, random: &mut Random) {
    for row in all.chunks_exact_mut(row_bytes(info, n)) {
        let (head, blocks) = row.split_at_mut(info.head);
        match head {
            [] => blocks.chunks_exact_mut(info.bytes).for_each(|block| tame(info, block, random)),
            [_, upper] => *upper = (*upper & 0x80) | (0x24 + random.below(0x14) as u8),
            [_, _, _, upper, ..] => *upper = (*upper & 0x80) | 0x3E,
            _ => {}
        }
    }
}

/// Makes the scales of a block finite: an f16 in (-1, 1) and not tiny, an f32 likewise, an exponent near 127.
fn tame(info: &TypeInfo, block: &mut [u8], random: &mut Random) {
    let mut f16 = |at: usize| block[at + 1] = (block[at + 1] & 0x80) | (0x24 + random.below(0x14) as u8);
    match info.id {
        TypeId::F32 | TypeId::FV5B => block[3] = (block[3] & 0x80) | 0x3E,
        TypeId::BF16 => block[1] = (block[1] & 0x80) | 0x3E,
        TypeId::F16
        | TypeId::Q4_0
        | TypeId::Q5_0
        | TypeId::Q8_0
        | TypeId::IQ1_S
        | TypeId::IQ2_XXS
        | TypeId::IQ2_XS
        | TypeId::IQ2_S
        | TypeId::IQ3_XXS
        | TypeId::IQ3_S
        | TypeId::IQ4_NL
        | TypeId::IQ4_XS
        | TypeId::Q1_0
        | TypeId::Q2_0
        | TypeId::Q2_0_G128
        | TypeId::Q2_0C
        | TypeId::Q6_0
        | TypeId::IQ2_K
        | TypeId::IQ3_K
        | TypeId::IQ4_K
        | TypeId::IQ5_K
        | TypeId::IQ6_K
        | TypeId::Q8_K_R1
        | TypeId::PQ2_0 => f16(0),
        TypeId::STQ1_0 | TypeId::STQ1_0_43 | TypeId::STQ1_0_CONTIGUOUS => f16(40),
        TypeId::G8_0 => [1, 3, 5, 7].into_iter().for_each(|at| block[at] = (block[at] & 0x80) | 0x3E),
        TypeId::FV5 => [3, 7].into_iter().for_each(|at| block[at] = (block[at] & 0x80) | 0x3E),
        TypeId::PTQ1_0 => f16(26),
        TypeId::Q4_1 | TypeId::Q5_1 | TypeId::Q8_1 | TypeId::Q4_K | TypeId::Q5_K => [0, 2].into_iter().for_each(f16),
        TypeId::Q2_K => [80, 82].into_iter().for_each(f16),
        TypeId::Q3_K => f16(108),
        TypeId::Q6_K => f16(208),
        TypeId::TQ1_0 => f16(52),
        TypeId::TQ2_0 => f16(64),
        // The upper nibble of an f16 that is in four pieces: sign and exponent.
        TypeId::IQ1_M => block[55] = (block[55] & 0x8F) | 0x20,
        TypeId::MXFP4 => block[0] = 120 + random.below(12) as u8,
        TypeId::Q8_K => block[3] = (block[3] & 0x80) | 0x3E,
        _ => {}
    }
}

/// All weight bytes equal, all quants equal: the largest sums there are, of either sign.
#[test]
fn kernels_give_the_bits_of_dot_ref_on_extreme_sums() {
    for (info, act) in types_with_dots().filter(|(info, _)| info.is_quantized()) {
        let mut random = Random(0x0BAD_CAFE + u64::from(info.id.0));
        for (rows, tokens, n) in [(9, 1, 512), (16, 4, 512)] {
            for fill in [0x00, 0xFF, 0x7F, 0x80, 0x55, 0xAA] {
                for quant in [0x80, 0x81, 0x7F] {
                    let mut w = vec![fill; rows * row_bytes(info, n)];
                    tame_rows(info, &mut w, n, &mut random);
                    let mut acts = vec![quant; tokens * row_bytes(act, n)];
                    tame_rows(act, &mut acts, n, &mut random);
                    compare(info, &w, &acts, n, tokens, "extreme");
                }
            }
        }
    }
}

/// Products of very different size that cancel: what is left is the rounding of the sum in column order.
#[test]
fn float_sums_are_rounded_in_column_order() {
    for ty in [TypeId::F32, TypeId::F16, TypeId::BF16] {
        let info = ty.info().expect("registered");
        let encode = info.encode.expect("floats have encoders");
        let mut random = Random(5);
        for tokens in [1, 2, 3, 5, 13] {
            let (rows, n) = (19, 520);
            let mut wide = |_| random.float() * f32::from_bits((112 + random.below(28) as u32) << 23);
            let x: Vec<f32> = (0..n / 2).map(&mut wide).collect();
            let mut acts = Vec::new();
            let mirrored: Vec<f32> = x.iter().chain(x.iter().rev()).copied().collect();
            let mut row = vec![0; n * info.bytes];
            encode(&mirrored, None, &mut row);
            (0..tokens).for_each(|_| acts.extend_from_slice(&row));
            let mut w = Vec::new();
            for _ in 0..rows {
                let half: Vec<f32> = (0..n / 2).map(&mut wide).collect();
                let cancelling: Vec<f32> = half.iter().copied().chain(half.iter().rev().map(|v| -v)).collect();
                encode(&cancelling, None, &mut row);
                w.extend_from_slice(&row);
            }
            compare(info, &w, &acts, n, tokens, "cancelling");
        }
    }
}

#[test]
fn rows_without_columns_and_calls_without_rows_or_tokens_are_empty_sums() {
    for (info, _) in types_with_dots() {
        for isa in isas() {
            let f = mat_rows(info.id, isa).expect("listed types have kernels");
            f.multiply(&[], &[], 0, 0, &mut []);
            let mut out = [1.0; 6];
            f.multiply(&vec![0; 3 * info.head], &[], 0, 2, &mut out);
            assert_eq!(out.map(f32::to_bits), [0; 6], "{} {isa}", info.name);
        }
    }
}

const ACTS: [TypeId; 6] = [TypeId::F32, TypeId::F16, TypeId::BF16, TypeId::Q8_0, TypeId::Q8_1, TypeId::Q8_K];

fn compare_quantized(act: TypeId, x: &[f32], what: &str) {
    let info = act.info().expect("registered");
    let mut expected = vec![0xA5; x.len() / info.block * info.bytes];
    scalar::quantize_act(act).expect("an activation type")(x, &mut expected);
    for isa in isas() {
        let mut out = vec![0x5A; expected.len()];
        quantize_act(act, isa)(x, &mut out);
        if let Some(i) = out.iter().zip(&expected).position(|(a, b)| a != b) {
            let b = i / info.bytes;
            let x = &x[b * info.block..][..info.block];
            panic!(
                "{act} {isa} {what}: byte {} of block {b}: {} is not {}: {x:?}",
                i % info.bytes,
                out[i],
                expected[i]
            );
        }
    }
}

#[test]
fn quantizers_give_the_bytes_of_the_encoders() {
    let mut random = Random(7);
    for act in ACTS {
        for n in [256, 512, 2560] {
            for _ in 0..200 {
                let scale = f32::from_bits((random.below(254) as u32 + 1) << 23);
                let x: Vec<f32> = (0..n).map(|_| random.float() * scale).collect();
                compare_quantized(act, &x, "random");
            }
        }
        for _ in 0..2000 {
            let x: Vec<f32> = (0..256).map(|_| f32::from_bits(random.bits() as u32)).collect();
            compare_quantized(act, &x, "any bits");
        }
    }
}

/// Multiples of a half under a power-of-two scale are ties; single odd values sit in otherwise plain blocks.
#[test]
fn quantizers_agree_on_ties_and_special_values() {
    let mut random = Random(11);
    let special = [
        0.0,
        -0.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        -f32::NAN,
        f32::MIN_POSITIVE,
        f32::from_bits(1),
        f32::MAX,
        f32::MIN,
        1e-40,
        -1e-40,
        65504.0,
        65520.0,
        1e30,
        127.0,
        -127.0,
        2.0f32.recip(),
    ];
    for act in ACTS {
        for limit in [127, 128, 254, 255] {
            for _ in 0..200 {
                let mut x: Vec<f32> =
                    (0..256).map(|_| (random.below(2 * limit + 1) as f32 - limit as f32) / 2.0).collect();
                let extreme = random.below(256);
                x[extreme] = if random.below(2) == 0 { 127.0 } else { -127.0 };
                compare_quantized(act, &x, "ties");
                // One step below: adding a half itself would carry.
                let below: Vec<f32> = x.iter().map(|v| if v.fract() == 0.0 { *v } else { v.next_down() }).collect();
                compare_quantized(act, &below, "just below ties");
                let below: Vec<f32> = below.iter().map(|v| -v).collect();
                compare_quantized(act, &below, "just beside ties");
            }
        }
        for a in special {
            compare_quantized(act, &[a; 256], "all special");
            for b in special {
                for _ in 0..4 {
                    let mut x: Vec<f32> = (0..256).map(|_| random.float()).collect();
                    x[random.below(256)] = a;
                    x[random.below(256)] = b;
                    compare_quantized(act, &x, "special");
                    let mut x = [0.0; 256];
                    x[random.below(256)] = a;
                    x[random.below(256)] = b;
                    compare_quantized(act, &x, "special in zeros");
                }
            }
        }
    }
}
