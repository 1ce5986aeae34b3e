//! Every tensor type of the registry against bytes and floats recorded from ggml's portable C code
//! (testdata/kernels). Compared as bits; any NaN equals any NaN.

use trine_formats::types::{REGISTRY, TypeId, TypeInfo};
use trine_testkit::golden::Kernels;

/// Types that ggml lacks, and whose forks' programs were not at hand to record.
fn is_of_fork(ty: TypeId) -> bool {
    ty.0 != ty.file_id()
}

fn same(a: f32, b: f32) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

fn assert_floats(got: &[f32], want: &[f32], what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        assert!(same(*g, *w), "{what}: element {i} is {g:e} ({:#x}), ggml has {w:e} ({:#x})", g.to_bits(), w.to_bits());
    }
}

fn assert_rows(t: &TypeInfo, got: &[u8], want: &[u8], what: &str) {
    let differs = got.chunks(t.bytes).zip(want.chunks(t.bytes)).position(|(g, w)| g != w);
    if let Some(b) = differs {
        let at = b * t.bytes..(b + 1) * t.bytes;
        panic!("{what}: block {b} is\n{:02x?}, ggml has\n{:02x?}", &got[at.clone()], &want[at]);
    }
    assert_eq!(got.len(), want.len(), "{what}");
}

fn check_encoder(g: &Kernels, t: &TypeInfo, array: &str, input: &str, importance: Option<&[f32]>) {
    let (Some(encode), Some(want)) = (t.encode, g.get(array)) else {
        return;
    };
    for r in 0..want.rows {
        let x = g.array(input).row_floats(r);
        // A dirty buffer: every byte of a row must be written.
        let mut got = vec![0xA5; want.row(r).len()];
        encode(&x, importance, &mut got);
        assert_rows(t, &got, want.row(r), &format!("{array} row {r}"));
    }
}

fn check_decoder(g: &Kernels, t: &TypeInfo, rows: &str, array: &str) {
    let (Some(decode), Some(want)) = (t.decode, g.get(array)) else {
        return;
    };
    let want = want.row_floats(0);
    let mut got = vec![f32::MAX; want.len()];
    decode(g.array(rows).row(6), &mut got);
    assert_floats(&got, &want, array);
}

fn check_dot(g: &Kernels, t: &TypeInfo, rows: &str, array: &str) {
    let (Some(dot), Some(act), Some(want)) = (t.dot_ref, t.act, g.get(array)) else {
        return;
    };
    let acts = g.array(&format!("act_{act}"));
    let rows = g.array(rows);
    let got: Vec<f32> = (0..rows.rows).map(|r| dot(rows.row(r), acts.row(r))).collect();
    assert_floats(&got, &want.row_floats(0), array);
}

/// Checks whatever the registry has of a type; returns whether it has anything recorded.
fn check_type(g: &Kernels, t: &TypeInfo) -> bool {
    let name = |suffix: &str| format!("{}_{suffix}", t.name);
    let importance = g.array("importance_f32").row_floats(0);
    check_encoder(g, t, &name("enc_plain"), "weights_f32", None);
    check_encoder(g, t, &name("enc_imp"), "weights_f32", Some(&importance));
    check_encoder(g, t, &format!("act_{}", t.name), "activations_f32", None);
    let encoded = if g.get(&name("enc_plain")).is_some() { name("enc_plain") } else { name("enc_imp") };
    check_decoder(g, t, &encoded, &name("deq_enc6"));
    check_decoder(g, t, &name("raw"), &name("deq_raw6"));
    check_dot(g, t, &encoded, &name("dot_enc"));
    check_dot(g, t, &name("raw"), &name("dot_raw"));
    g.get(&encoded).is_some() || g.get(&format!("act_{}", t.name)).is_some()
}

fn check_part(part: &str) {
    let golden = Kernels::load(part);
    let mut failures = Vec::new();
    for t in REGISTRY.iter().filter(|t| t.encode.is_some() || t.decode.is_some()) {
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check_type(&golden, t)));
        match checked {
            Err(_) => failures.push(t.name),
            Ok(recorded) => {
                assert!(recorded || !t.is_quantized() || is_of_fork(t.id), "{}: nothing recorded", t.name)
            }
        }
    }
    assert!(failures.is_empty(), "types that differ from ggml: {failures:?}");
}

#[test]
fn long_rows_match_ggml() {
    check_part("a");
}

#[test]
fn short_rows_match_ggml() {
    check_part("b");
}

/// The tests above pass over what is missing; this names what must not be.
#[test]
fn types_are_complete() {
    let weights = [
        TypeId::F32,
        TypeId::F16,
        TypeId::BF16,
        TypeId::Q4_0,
        TypeId::Q4_1,
        TypeId::Q5_0,
        TypeId::Q5_1,
        TypeId::Q8_0,
        TypeId::Q2_K,
        TypeId::Q3_K,
        TypeId::Q4_K,
        TypeId::Q5_K,
        TypeId::Q6_K,
        TypeId::TQ1_0,
        TypeId::TQ2_0,
        TypeId::Q1_0,
        TypeId::Q2_0,
        TypeId::IQ1_S,
        TypeId::IQ1_M,
        TypeId::IQ2_XXS,
        TypeId::IQ2_XS,
        TypeId::IQ2_S,
        TypeId::IQ3_XXS,
        TypeId::IQ3_S,
        TypeId::IQ4_NL,
        TypeId::IQ4_XS,
        TypeId::MXFP4,
        TypeId::NVFP4,
    ];
    for id in weights {
        let t = id.info().unwrap();
        assert!(t.decode.is_some() && t.encode.is_some() && t.dot_ref.is_some() && t.act.is_some(), "{id}");
    }
    for id in [TypeId::Q8_0, TypeId::Q8_1, TypeId::Q8_K] {
        assert!(id.info().unwrap().encode.is_some(), "{id}");
    }
}
