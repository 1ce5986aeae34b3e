//! Every encoder and decoder against ggml's C code, on random blocks of many kinds and fixed seeds.
//!
//! Bytes must be equal for all inputs, NaN and infinities included, except where the C code's own
//! result is not defined; floats must be equal as bits, any NaN being equal to any NaN.

use trine_compat_tests::inputs::{self, Kind, Rng};
use trine_compat_tests::{files, is_long, or_skip, oracle, rounds};
use trine_formats::types::{TypeId, TypeInfo};

/// Weights per call: a multiple of every block.
const BATCH: usize = 1 << 15;

/// How often each check of a type draws a batch in the long form; small where ggml's own encoder is slow.
struct Work {
    encode: usize,
    importance: usize,
    decode: usize,
}

const FAST: Work = Work { encode: 600, importance: 100, decode: 400 };
const SEARCH: Work = Work { encode: 240, importance: 120, decode: 400 };

fn info(ty: TypeId) -> &'static TypeInfo {
    ty.info().expect("a registered type")
}

/// The first block in which two encodings differ, with the floats it came from.
#[track_caller]
fn assert_blocks(t: &TypeInfo, x: &[f32], ours: &[u8], ggml: &[u8], what: &str) {
    let blocks = ours.chunks(t.bytes).zip(ggml.chunks(t.bytes));
    for ((a, b), x) in blocks.zip(x.chunks(t.block)) {
        assert!(a == b, "{} {what}: trine\n{a:02x?}\nggml\n{b:02x?}\nfor\n{x:?}", t.name);
    }
}

fn encode(ty: TypeId, kinds: &[Kind], batches: usize) {
    let Some(oracle) = or_skip(oracle::get()) else {
        return;
    };
    let t = info(ty);
    let reference = oracle.encoder(t).expect("a reference encoder");
    // The reference encoder of IQ4_NL searches less than what llama-quantize calls, which is what trine has.
    let is_short = ty == TypeId::IQ4_NL;
    let ours = t.encode.expect("an encoder");
    let mut rng = Rng::named(&format!("encode {} {kinds:?}", t.name));
    let bytes = BATCH / t.block * t.bytes;
    for _ in 0..rounds(batches) {
        let x = inputs::rows(&mut rng, kinds, BATCH / 256, 256);
        // ggml leaves the block sums of an all-zero Q8_K block as they were: zeros here, as in trine.
        let mut want = vec![0; bytes];
        if is_short {
            oracle.quantize(t, &x, 256, None, &mut want);
        } else {
            reference.run(&x, &mut want);
        }
        let mut got = vec![0xa5; bytes];
        ours(&x, None, &mut got);
        assert_blocks(t, &x, &got, &want, "without importance");
    }
}

/// `batches` of `values` each are those of this run.
fn encode_with_importance(ty: TypeId, kinds: &[Kind], batches: usize, values: usize) {
    let Some(oracle) = or_skip(oracle::get()) else {
        return;
    };
    let t = info(ty);
    let ours = t.encode.expect("an encoder");
    let mut rng = Rng::named(&format!("importance {}", t.name));
    for batch in 0..batches {
        let columns = [256, 1024, 2048][rng.below(3)];
        let rows = values / columns;
        let x = inputs::rows(&mut rng, kinds, rows, columns);
        let importance = inputs::importance(&mut rng, columns);
        let plain = batch % 8 == 0 && !NEEDS_IMPORTANCE.contains(&ty);
        let importance = (!plain).then_some(&importance[..]);
        let mut want = vec![0; values / t.block * t.bytes];
        oracle.quantize(t, &x, columns, importance, &mut want);
        let mut got = vec![0xa5; want.len()];
        for (x, row) in x.chunks(columns).zip(got.chunks_mut(want.len() / rows)) {
            ours(x, importance, row);
        }
        assert_blocks(t, &x, &got, &want, "with importance");
    }
}

fn decode(ty: TypeId, batches: usize) {
    let Some(oracle) = or_skip(oracle::get()) else {
        return;
    };
    let t = info(ty);
    let reference = oracle.decoder(t).expect("a reference decoder");
    let ours = t.decode.expect("a decoder");
    let mut rng = Rng::named(&format!("decode {}", t.name));
    for batch in 0..rounds(batches) {
        let mut bytes = vec![0; BATCH / t.block * t.bytes];
        match t.encode {
            Some(encode) if batch % 4 == 0 => {
                let x = inputs::rows(&mut rng, &Kind::FINITE, BATCH / 256, 256);
                encode(&x, None, &mut bytes);
            }
            _ => rng.fill(&mut bytes),
        }
        let mut want = vec![0.0; BATCH];
        reference.run(&bytes, &mut want);
        let mut got = vec![f32::MAX; BATCH];
        ours(&bytes, &mut got);
        for (i, (g, w)) in got.iter().zip(&want).enumerate() {
            assert!(
                g.to_bits() == w.to_bits() || (g.is_nan() && w.is_nan()),
                "{}: weight {} of block {:02x?} is {g:e}, ggml has {w:e}",
                t.name,
                i % t.block,
                &bytes[i / t.block * t.bytes..][..t.bytes]
            );
        }
    }
}

macro_rules! weight_types {
    ($($module:ident: $ty:ident, $work:ident, $wild:expr;)*) => {
        $(mod $module {
            use super::*;
            #[test]
            fn encode_finite() {
                encode(TypeId::$ty, &Kind::FINITE, $work.encode);
            }
            #[test]
            fn encode_nan_and_infinity() {
                encode(TypeId::$ty, $wild, $work.encode / 4);
            }
            #[test]
            fn encode_with_importance() {
                let batches = rounds($work.importance);
                super::encode_with_importance(TypeId::$ty, &Kind::FINITE, batches, BATCH);
            }
            #[test]
            fn decode() {
                super::decode(TypeId::$ty, $work.decode);
            }
        })*
        const WEIGHTS: &[TypeId] = &[$(TypeId::$ty),*];
    };
}

weight_types! {
    f16: F16, FAST, &Kind::WILD;
    bf16: BF16, FAST, &Kind::WILD;
    q4_0: Q4_0, FAST, &Kind::WILD;
    q4_1: Q4_1, FAST, &Kind::WILD;
    q5_0: Q5_0, FAST, &Kind::WILD;
    q5_1: Q5_1, FAST, &Kind::WILD;
    q8_0: Q8_0, FAST, &Kind::WILD;
    q2_k: Q2_K, SEARCH, &Kind::PLAIN_NAN;
    q3_k: Q3_K, SEARCH, &Kind::PLAIN_NAN;
    q4_k: Q4_K, SEARCH, &Kind::PLAIN_NAN;
    q5_k: Q5_K, SEARCH, &Kind::PLAIN_NAN;
    q6_k: Q6_K, SEARCH, &Kind::PLAIN_NAN;
    iq4_nl: IQ4_NL, SEARCH, &Kind::WILD;
    iq4_xs: IQ4_XS, SEARCH, &Kind::PLAIN_NAN;
    tq1_0: TQ1_0, FAST, &Kind::WILD;
    tq2_0: TQ2_0, FAST, &Kind::WILD;
    mxfp4: MXFP4, FAST, &Kind::WILD;
    nvfp4: NVFP4, FAST, &Kind::WILD;
    q1_0: Q1_0, FAST, &Kind::WILD;
    q2_0: Q2_0, FAST, &Kind::WILD;
}

/// Types whose encoders ggml does not run without importance.
const NEEDS_IMPORTANCE: &[TypeId] = &[TypeId::IQ1_S, TypeId::IQ2_XXS, TypeId::IQ2_XS];

/// Inputs on which the encoders that search codebooks of points are compared. They end the program where sums of
/// squares overflow, because no point is nearest then, and where there is a NaN.
const SEARCHED: [Kind; 10] = [
    Kind::Normal,
    Kind::Shifted,
    Kind::HeavyTails,
    Kind::Ties,
    Kind::Constant,
    Kind::Zeros,
    Kind::Ternary,
    Kind::Denormals,
    Kind::Spikes,
    Kind::Tiny,
];

/// The encoder of IQ1_M is not compared here: the wheel's adds up in another order than that of the reference version,
/// whose bytes are in `testdata/kernels` and whose files in `testdata/golden`.
mod iq1_m {
    use super::*;
    #[test]
    fn decode() {
        super::decode(TypeId::IQ1_M, SEARCH.decode);
    }
}

/// Every eighth batch is without importance, where ggml has that.
macro_rules! point_types {
    ($($module:ident: $ty:ident, $batches:literal;)*) => {
        $(mod $module {
            use super::*;
            #[test]
            fn encode() {
                // The reference's searches take most of the time.
                let (batches, values) = if is_long() { ($batches, BATCH) } else { (2, BATCH / 4) };
                encode_with_importance(TypeId::$ty, &SEARCHED, batches, values);
            }
            #[test]
            fn decode() {
                super::decode(TypeId::$ty, SEARCH.decode);
            }
        })*
        const POINTS: &[TypeId] = &[$(TypeId::$ty),*];
    };
}

point_types! {
    iq1_s: IQ1_S, 6;
    iq2_xxs: IQ2_XXS, 40;
    iq2_xs: IQ2_XS, 40;
    iq2_s: IQ2_S, 40;
    iq3_xxs: IQ3_XXS, 40;
    iq3_s: IQ3_S, 40;
}

/// Types that only activations take: ggml has no importance for them, and Q8_1 no decoder.
const ACTIVATIONS: &[TypeId] = &[TypeId::Q8_1, TypeId::Q8_K];

mod activations {
    use super::*;
    #[test]
    fn q8_1_encode() {
        encode(TypeId::Q8_1, &Kind::FINITE, FAST.encode);
        encode(TypeId::Q8_1, &Kind::WILD, FAST.encode / 4);
    }
    #[test]
    fn q8_k_encode() {
        encode(TypeId::Q8_K, &Kind::FINITE, FAST.encode);
        encode(TypeId::Q8_K, &Kind::WILD, FAST.encode / 4);
    }
    #[test]
    fn q8_k_decode() {
        if info(TypeId::Q8_K).decode.is_some() {
            decode(TypeId::Q8_K, FAST.decode);
        }
    }
}

/// A new type must be listed above. F32 is what everything else is made from.
#[test]
fn every_codec_is_compared() {
    for t in files::ggml_types().filter(|t| t.encode.is_some() || t.decode.is_some()) {
        let lists = [WEIGHTS, POINTS, ACTIVATIONS, &[TypeId::IQ1_M, TypeId::F32]];
        let listed = lists.iter().any(|list| list.contains(&t.id));
        assert!(listed, "{} is compared with nothing", t.name);
    }
}
