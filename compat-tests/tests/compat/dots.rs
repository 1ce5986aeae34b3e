//! Dot products: ggml's scalar C code, trine's definition and every SIMD kernel, bit for bit.
//!
//! Rows come from the encoders and as raw random bytes, invalid codes and NaN scales included; any NaN
//! equals any NaN. Where the wheel's compiler fused multiplications with additions, the scales are powers
//! of two, so that fusing changes nothing (see `oracle::DOTS`).

use trine_compat_tests::golden::Kernels;
use trine_compat_tests::inputs::{self, Kind, Rng};
use trine_compat_tests::oracle::{self, DOTS, Rounding};
use trine_compat_tests::{files, or_skip, rounds};
use trine_formats::types::{TypeId, TypeInfo};
use trine_kernels::testing::isas;
use trine_kernels::{mat_rows, quantize_act};

fn info(ty: TypeId) -> &'static TypeInfo {
    ty.info().expect("a registered type")
}

fn row_bytes(t: &TypeInfo, n: usize) -> usize {
    n / t.block * t.bytes
}

#[track_caller]
fn assert_floats(got: &[f32], want: &[f32], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!(
            g.to_bits() == w.to_bits() || (g.is_nan() && w.is_nan()),
            "{what}: product {i} is {g:e} ({:#010x}), ggml has {w:e} ({:#010x})",
            g.to_bits(),
            w.to_bits()
        );
    }
}

/// Every product of trine's definition and kernels must be `want[r * tokens + t]`.
#[track_caller]
fn assert_dots(t: &TypeInfo, w: &[u8], acts: &[u8], n: usize, want: &[f32]) {
    let (dot, act) = (t.dot_ref.expect("a dot"), info(t.act.expect("an activation")));
    let (w_row, act_row) = (row_bytes(t, n), row_bytes(act, n));
    let tokens = acts.len() / act_row;
    let got: Vec<f32> = w.chunks(w_row).flat_map(|w| acts.chunks(act_row).map(move |a| dot(w, a))).collect();
    assert_floats(&got, want, &format!("{} definition, n = {n}", t.name));
    for isa in isas() {
        let mut got = vec![f32::MAX; want.len()];
        mat_rows(t.id, isa).expect("a kernel").multiply(w, acts, n, tokens, &mut got);
        assert_floats(&got, want, &format!("{} {isa}, n = {n}, {tokens} tokens", t.name));
    }
}

/// Weight rows: encoded floats of many kinds, or raw bytes.
fn weights(rng: &mut Rng, t: &TypeInfo, rows: usize, n: usize, is_raw: bool) -> Vec<u8> {
    let mut out = vec![0; rows * row_bytes(t, n)];
    if is_raw {
        rng.fill(&mut out);
        return out;
    }
    let x = inputs::rows(rng, &Kind::FINITE, rows, n);
    for (x, row) in x.chunks(n).zip(out.chunks_mut(row_bytes(t, n))) {
        t.encode.expect("an encoder")(x, None, row);
    }
    out
}

/// Where the scales of a block lie: offsets of half floats, offsets of floats.
fn scales(ty: TypeId) -> (&'static [usize], &'static [usize]) {
    match ty {
        TypeId::Q4_1 | TypeId::Q5_1 | TypeId::Q8_1 | TypeId::Q4_K | TypeId::Q5_K => (&[0, 2], &[]),
        TypeId::Q2_K => (&[80, 82], &[]),
        TypeId::IQ1_S | TypeId::Q8_0 => (&[0], &[]),
        // Their scales are no half floats: see `round_scales`.
        TypeId::IQ1_M | TypeId::NVFP4 => (&[], &[]),
        TypeId::Q8_K => (&[], &[0]),
        _ => panic!("no scales listed for {ty}"),
    }
}

/// Makes every scale of these blocks a signed power of two near 1.
fn round_scales(rng: &mut Rng, t: &TypeInfo, rows: &mut [u8]) {
    let (halves, floats) = scales(t.id);
    for block in rows.chunks_mut(t.bytes) {
        for &at in halves {
            let half = ((rng.below(2) as u16) << 15) | ((15 - 4 + rng.below(8) as u16) << 10);
            block[at..at + 2].copy_from_slice(&half.to_le_bytes());
        }
        if t.id == TypeId::IQ1_M {
            // An f16 of which the upper halves of four odd bytes have a nibble each: the mantissa is zero.
            for at in [49, 51, 53] {
                block[at] &= 0x0f;
            }
            block[55] = block[55] & 0x8f | 0x30;
        }
        if t.id == TypeId::NVFP4 {
            // Three bits of mantissa below four of exponent.
            for scale in &mut block[..4] {
                *scale = (1 + rng.below(15) as u8) << 3;
            }
        }
        for &at in floats {
            let float = rng.power_of_two(-6, 6) * [1.0, -1.0][rng.below(2)];
            block[at..at + 4].copy_from_slice(&float.to_le_bytes());
        }
    }
}

fn compare(ty: TypeId) {
    let Some(oracle) = or_skip(oracle::get()) else {
        return;
    };
    let t = info(ty);
    let act = info(t.act.expect("an activation type"));
    let reference = oracle.dot(t).expect("a reference dot");
    let is_fused = reference.rounding == Rounding::Fused;
    let mut rng = Rng::named(&format!("dot {}", t.name));
    for round in 0..rounds(1500) {
        // Lengths of one block and of odd numbers of blocks, row and token counts off every tile.
        let unit = t.block.max(act.block).max(64);
        let n = unit * [1, 2, 3, 5, 8][rng.below(5)];
        let (rows, tokens) = ([1, 7, 16, 37][rng.below(4)], [1, 2, 5, 19][rng.below(4)]);
        let (raw_w, raw_act) = (round % 3 == 1, round % 5 == 2);
        let mut w = weights(&mut rng, t, rows, n, raw_w);
        let mut acts = weights(&mut rng, act, tokens, n, raw_act && !is_fused);
        if is_fused {
            round_scales(&mut rng, t, &mut w);
            round_scales(&mut rng, act, &mut acts);
        }
        let mut want = vec![0.0; rows * tokens];
        reference.run(&w, &acts, n, &mut want);
        assert_dots(t, &w, &acts, n, &want);
    }
}

macro_rules! dots {
    ($($name:ident: $ty:ident;)*) => {
        mod ggml {
            use super::*;
            $(#[test]
            fn $name() {
                compare(TypeId::$ty);
            })*
        }
        const COMPARED: &[TypeId] = &[$(TypeId::$ty),*];
    };
}

dots! {
    q4_0: Q4_0;
    q4_1: Q4_1;
    q5_0: Q5_0;
    q5_1: Q5_1;
    q8_0: Q8_0;
    q2_k: Q2_K;
    q3_k: Q3_K;
    q4_k: Q4_K;
    q5_k: Q5_K;
    q6_k: Q6_K;
    iq1_s: IQ1_S;
    iq1_m: IQ1_M;
    iq2_xxs: IQ2_XXS;
    iq2_xs: IQ2_XS;
    iq2_s: IQ2_S;
    iq3_xxs: IQ3_XXS;
    iq3_s: IQ3_S;
    iq4_nl: IQ4_NL;
    iq4_xs: IQ4_XS;
    tq1_0: TQ1_0;
    tq2_0: TQ2_0;
    mxfp4: MXFP4;
    nvfp4: NVFP4;
    q1_0: Q1_0;
    q2_0: Q2_0;
}

/// Against the vectors recorded from the portable build: every type, fused or not, and the SIMD kernels.
fn recorded(part: &str) {
    let golden = Kernels::load(part);
    let mut compared = 0;
    for t in files::ggml_types().filter(|t| t.dot_ref.is_some()) {
        let act = info(t.act.expect("an activation type"));
        let encoded = [format!("{}_enc_plain", t.name), format!("{}_enc_imp", t.name)];
        let encoded = encoded.iter().find(|n| golden.get(n).is_some());
        let pairs = [
            (encoded.cloned(), format!("{}_dot_enc", t.name)),
            (Some(format!("{}_raw", t.name)), format!("{}_dot_raw", t.name)),
        ];
        for (rows, dots) in pairs {
            let rows = rows.and_then(|name| golden.get(&name));
            let acts = golden.get(&format!("act_{}", act.name));
            let (Some(w), Some(acts), Some(want)) = (rows, acts, golden.get(&dots)) else {
                continue;
            };
            let want = want.floats();
            let w_row = w.bytes.len() / w.rows;
            let n = w_row / t.bytes * t.block;
            let act_row = row_bytes(act, n);
            for isa in isas() {
                let kernel = mat_rows(t.id, isa).expect("a kernel");
                // The recording pairs row r with activation r; the kernel gives all pairs.
                let mut got = vec![0.0; w.rows * w.rows];
                kernel.multiply(&w.bytes, &acts.bytes[..w.rows * act_row], n, w.rows, &mut got);
                let diagonal: Vec<f32> = (0..w.rows).map(|r| got[r * w.rows + r]).collect();
                assert_floats(&diagonal, &want, &format!("{dots} {isa}"));
                for r in 0..w.rows {
                    let (w, a) = (&w.bytes[r * w_row..][..w_row], &acts.bytes[r * act_row..][..act_row]);
                    let mut one = [0.0];
                    kernel.multiply(w, a, n, 1, &mut one);
                    assert_floats(&one, &want[r..=r], &format!("{dots} {isa}, one token"));
                }
            }
            compared += 1;
        }
    }
    // Two per type, but no random rows of IQ types.
    let named_iq = |ty: &&TypeId| ty.to_string().starts_with("iq");
    let iq = COMPARED.iter().filter(named_iq).count();
    assert_eq!(compared, 2 * COMPARED.len() - iq, "recordings");
}

#[test]
fn kernels_equal_the_recorded_long_rows() {
    recorded("a");
}

#[test]
fn kernels_equal_the_recorded_short_rows() {
    recorded("b");
}

/// The activation encoders of every instruction set against ggml's.
fn activations(ty: TypeId) {
    let Some(oracle) = or_skip(oracle::get()) else {
        return;
    };
    let t = info(ty);
    let reference = oracle.encoder(t).expect("a reference encoder");
    let mut rng = Rng::named(&format!("activations {}", t.name));
    let kinds: Vec<Kind> = Kind::FINITE.into_iter().chain(Kind::WILD).collect();
    for _ in 0..rounds(4000) {
        let n = 256 * (1 + rng.below(9));
        let x = inputs::rows(&mut rng, &kinds, 1, n);
        let mut want = vec![0; row_bytes(t, n)];
        reference.run(&x, &mut want);
        for isa in isas() {
            let mut got = vec![0xa5; want.len()];
            quantize_act(ty, isa)(&x, &mut got);
            let blocks = got.chunks(t.bytes).zip(want.chunks(t.bytes));
            for ((g, w), x) in blocks.zip(x.chunks(t.block)) {
                assert!(g == w, "{} {isa}: {g:02x?}\nggml {w:02x?}\nfor {x:?}", t.name);
            }
        }
    }
}

#[test]
fn f16_activations() {
    activations(TypeId::F16);
}

#[test]
fn bf16_activations() {
    activations(TypeId::BF16);
}

#[test]
fn q8_0_activations() {
    activations(TypeId::Q8_0);
}

#[test]
fn q8_1_activations() {
    activations(TypeId::Q8_1);
}

#[test]
fn q8_k_activations() {
    activations(TypeId::Q8_K);
}

/// Every type with a dot product is compared above, or is one of the plain floats.
#[test]
fn every_dot_is_compared() {
    let floats = [TypeId::F32, TypeId::F16, TypeId::BF16];
    for t in files::ggml_types().filter(|t| t.dot_ref.is_some()) {
        let listed = COMPARED.contains(&t.id) && DOTS.iter().any(|(id, ..)| *id == t.id);
        assert!(listed || floats.contains(&t.id), "{} is compared with nothing", t.name);
    }
}
