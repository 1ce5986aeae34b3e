//! Kernels with one mistake each: the emulator finds it, or a bit differs.

use trine::Isa;
use trine::ops::norm::{Kind, Norm};
use trine_compat_tests::ptx::{Emulated, Module, Schedule};
use trine_cuda::program::{Matrix, ProgramError, Recorder, Span};
use trine_cuda::ptx::{ATTENTION, CHOSEN, EXPERTS, FLOATS, INTEGERS, NORM, QUANTIZE, Text};
use trine_formats::types::TypeId;

use super::attention::{Case as Attention, order_shows};
use super::experts::{BAD_SPLITS, Layer, choose_in, chosen, rule, tokens};
use super::{Case, rows};
use crate::mistakes::with_mistake;

const SCHEDULES: [Schedule; 3] = [Schedule::InTurn, Schedule::Random(1), Schedule::Last(0)];

/// True if outputs are others than those expected, all of which are numbers.
fn differ(found: &[f32], expected: &[f32]) -> bool {
    let mut pairs = found.iter().zip(expected);
    pairs.any(|(a, b)| a.to_bits() != b.to_bits())
}

/// True if a mistake in a module shows when a program runs.
fn shows<'a>(
    (text, kernel): (Text, &str),
    change: &dyn Fn(&str) -> String,
    (x, columns): (&'a [f32], usize),
    expected: &[f32],
    record: impl Fn(&mut Recorder<'a>, Span) -> Result<Span, ProgramError>,
) -> bool {
    SCHEDULES.into_iter().any(|schedule| {
        let mut device = Emulated::new().expect("PTX");
        device.replace(text.name, with_mistake(text, kernel, change));
        let case = Case { results: expected.len() * columns / x.len(), schedule, ..Case::new(x, columns) };
        let done = case.run_on(device, &record);
        done.map_or(true, |found| differ(&found, expected))
    })
}

#[test]
fn in_norms() {
    let columns = 320;
    let x = rows(columns, 2)[..2 * columns].to_vec();
    let gains: &[f32] = vec![0.5; columns].leak();
    let norm = Norm { kind: Kind::Rms, eps: 1e-5, row: columns, gains: gains.to_vec(), bias: None };
    let expected = norm.apply(Isa::scalar(), &x);
    let of = |change: &dyn Fn(&str) -> String| {
        let kernel = (NORM, "rms_norm");
        shows(kernel, change, (&x, columns), &expected, |r, x| r.norm(x, gains, columns, 1e-5))
    };
    assert!(!of(&|t| format!("{t} ")), "no mistake");
    assert!(of(&|t| t.replacen("bar.sync", "// ", 2)), "no barriers");
    assert!(of(&|t| t.replace("bar.sync", "bar.warp.sync -1; // ")), "barriers of a warp");
    assert!(of(&|t| t.replacen("sqrt.rn.f32", "neg.f32", 1)), "no root");
    assert!(of(&|t| t.replacen("mul.rn.f32", "add.rn.f32", 1)), "no squares");
}

#[test]
fn in_quantizers_and_products() {
    // One block, and another one whose greatest magnitude stands in it twice, with both signs.
    let columns = 256;
    let all = rows(columns, 2);
    let x = [&all[..columns], &all[12 * columns..13 * columns]].concat();
    let info = TypeId::Q6_K.info().expect("a type");
    let act = TypeId::Q8_K.info().expect("a type");
    let mut data = vec![0; 9 * info.bytes];
    let weights: Vec<f32> = (0..9 * columns).map(|i| (i % 83) as f32 - 40.0).collect();
    info.encode.expect("an encoder")(&weights, None, &mut data);
    let data: &[u8] = data.leak();
    let mut expected = Vec::new();
    for x in x.chunks_exact(columns) {
        let mut row = vec![0; act.bytes];
        act.encode.expect("an encoder")(x, None, &mut row);
        let dot = info.dot_ref.expect("a definition");
        expected.extend(data.chunks_exact(info.bytes).map(|w| dot(w, &row)));
    }
    let matrix = Matrix { name: "a matrix", ty: TypeId::Q6_K, rows: 9, columns, data, scale: 1.0 };
    let of = |kernel, change: &dyn Fn(&str) -> String| {
        shows(kernel, change, (&x, columns), &expected, |r, x| r.product(matrix, x))
    };
    let quantizer = (QUANTIZE, "quantize_q8_k_chains");
    assert!(!of(quantizer, &|t| format!("{t} ")), "no mistake");
    assert!(of(quantizer, &|t| t.replace("setp.lt.f32", "setp.gt.f32")), "the least magnitude");
    assert!(of(quantizer, &|t| t.replace("setp.eq.f32", "setp.lt.f32")), "the last of equals");
    assert!(of(quantizer, &|t| t.replacen("0f4B400000", "0f4B000000", 1)), "another rounding");
    assert!(of(quantizer, &|t| t.replacen("div.rn.f32", "mul.rn.f32", 1)), "no inverse");
    assert!(of(quantizer, &|t| t.replacen("shfl.sync.bfly", "shfl.sync.down", 1)), "half of the lanes");
    let product = (INTEGERS, "few_chains_6");
    assert!(of(product, &|t| t.replace("mul.rn.f32", "add.rn.f32")), "scales added");
    assert!(of(product, &|t| t.replacen("mma.sync", "// mma.sync", 1)), "one chain without its upper parts");
}

#[test]
fn in_the_choice_of_experts() {
    // Soft-max of a number that is no multiple of four, so that both exponentials are taken; and scores that the sort
    // has to order.
    let uneven = rule(30, 4);
    let scores: Vec<f32> = tokens(1, 30).iter().map(|x| 4.0 * x).collect();
    let sorted = trine::ops::experts::Choosing { gating: trine::ops::experts::Gating::SoftMaxOfChosen, ..rule(64, 60) };
    let equal: Vec<f32> = BAD_SPLITS.iter().map(|&x| f32::from(x)).collect();
    for (rule, scores) in [(uneven, scores), (sorted, equal)] {
        let expected = chosen(&rule, &scores);
        let of = |change: &dyn Fn(&str) -> String| {
            let module = with_mistake(EXPERTS, "choose", change);
            SCHEDULES.into_iter().any(|schedule| {
                let done = choose_in(&module, &rule, &scores, schedule);
                done.map_or(true, |found| found != expected)
            })
        };
        assert!(!of(&|t| format!("{t} ")), "no mistake");
        assert!(of(&|t| t.replace("bar.sync", "bar.warp.sync -1; // ")), "barriers of a warp");
        assert!(of(&|t| t.replace("add.rn.f64", "sub.rn.f64")), "differences");
        assert!(of(&|t| t.replace("0f3E2AAF33", "0f3F2AAF33")), "a polynomial");
        assert!(of(&|t| t.replace("setp.gt.f32", "setp.lt.f32")), "the least");
        assert!(of(&|t| t.replace("div.rn.f32", "mul.rn.f32")), "a product");
    }
}

#[test]
fn in_products_of_chosen_experts() {
    let sum: &dyn Fn(&str) -> String = &|t| t.replace("add.rn.f32", "mul.rn.f32");
    let double: &dyn Fn(&str) -> String = &|t| t.replace("add.rn.f64", "mul.rn.f64");
    // The row of a place is that of another token.
    let quotient: &dyn Fn(&str) -> String = &|t| t.replacen("div.", "rem.", 1);
    let barrier: &dyn Fn(&str) -> String = &|t| t.replace("bar.sync", "// ");
    let factor: &dyn Fn(&str) -> String = &|t| t.replace("mul.rn.f32", "add.rn.f32");
    let rounding: &dyn Fn(&str) -> String = &|t| t.replace("add.s32", "sub.s32");
    type Mistakes<'a> = &'a [&'a dyn Fn(&str) -> String];
    let cases: [(TypeId, usize, Text, &str, Mistakes<'_>); 13] = [
        (TypeId::TQ2_0, 256, CHOSEN, "tq2_0_chosen", &[sum, quotient]),
        (TypeId::Q8_0, 160, CHOSEN, "q8_0_chosen", &[sum, quotient, barrier]),
        (TypeId::Q4_0, 160, CHOSEN, "q4_0_chosen", &[sum, quotient, barrier]),
        (TypeId::Q4_K, 256, INTEGERS, "few_chains_4", &[sum, quotient, barrier]),
        (TypeId::Q6_K, 256, INTEGERS, "few_chains_6", &[sum, quotient, barrier]),
        (TypeId::F16, 33, FLOATS, "f16_chosen", &[double, quotient]),
        (TypeId::F32, 33, FLOATS, "f32_chosen", &[double, quotient]),
        (TypeId::F32, 33, FLOATS, "f32_product_8", &[double, factor]),
        (TypeId::Q8_0, 64, EXPERTS, "list_chosen", &[barrier, rounding]),
        (TypeId::F16, 33, EXPERTS, "weigh", &[factor]),
        (TypeId::F16, 33, EXPERTS, "combine", &[sum]),
        (TypeId::F16, 33, EXPERTS, "scale_chosen", &[factor]),
        (TypeId::F16, 33, EXPERTS, "add_chosen", &[sum]),
    ];
    for (ty, width, text, kernel, mistakes) in cases {
        let mut layer = Layer::new(ty, rule(5, 3), width);
        layer.weigh_inputs = kernel == "weigh";
        layer.finish = kernel.ends_with("_chosen") && text == EXPERTS;
        let x = tokens(4, width);
        let expected = layer.expected(x);
        let of = |change: &dyn Fn(&str) -> String| {
            shows((text, kernel), change, (x, width), &expected, |r, x| layer.record(r, x))
        };
        assert!(!of(&|t| format!("{t} ")), "{kernel}: no mistake");
        for (i, mistake) in mistakes.iter().enumerate() {
            assert!(of(mistake), "{kernel}: mistake {i}");
        }
    }
}

#[test]
fn in_attention() {
    let case = Attention::new(21, (2, 2), (32, 32), &[(300, 3)], None);
    let expected = case.expected();
    let in_module = |module: &Module| {
        SCHEDULES.into_iter().any(|schedule| {
            let done = case.run_in(module, 1, schedule);
            done.map_or(true, |found| differ(&found, &expected))
        })
    };
    let of = |change: &dyn Fn(&str) -> String| in_module(&with_mistake(ATTENTION, "attend", change));
    assert!(!of(&|t| format!("{t} ")), "no mistake");
    // Each barrier by itself orders something.
    let text = ATTENTION.text();
    let kernel = &text[text.find(".entry attend(").expect("the kernel")..];
    let barriers = kernel[..kernel.find("\n}").expect("its end")].matches("bar.sync").count();
    assert!(barriers > 5);
    assert!(of(&|t| t.replacen("bar.sync", "// ", 1)), "queries that are not there yet");
    assert!(of(&|t| t.replace("bar.sync", "bar.warp.sync -1; // ")), "barriers of a warp");
    assert!(of(&|t| t.replacen("add.rn.f64", "sub.rn.f64", 1)), "a difference of products");
    assert!(of(&|t| t.replace("0f3E2AAF33", "0f3F2AAF33")), "another exponential");
    assert!(of(&|t| t.replacen("cvt.rn.f16.f32", "cvt.u16.u32", 1)), "queries that are not rounded");
}

#[test]
fn in_attention_over_parts() {
    let (usual, ordered) = (Attention::new(21, (2, 2), (32, 32), &[(300, 3)], None), order_shows());
    let shows = |case: &Attention, kernel, change: &dyn Fn(&str) -> String| {
        let (module, expected) = (with_mistake(ATTENTION, kernel, change), case.expected());
        SCHEDULES.into_iter().any(|schedule| {
            let done = case.run_in(&module, 3, schedule);
            done.map_or(true, |found| differ(&found, &expected))
        })
    };
    for kernel in ["attend_scores", "attend_exponentials", "attend_values"] {
        assert!(!shows(&usual, kernel, &|t| format!("{t} ")), "no mistake");
        assert!(!shows(&ordered, kernel, &|t| format!("{t} ")), "no mistake");
        assert!(shows(&usual, kernel, &|t| t.replace("bar.sync", "bar.warp.sync -1; // ")), "barriers of a warp");
    }
    for kernel in ["attend_exponentials", "attend_values"] {
        assert!(shows(&usual, kernel, &|t| t.replacen("fence.acq_rel.gpu;", "", 1)), "{kernel}: no fence before");
        let behind = |t: &str| {
            let (before, after) = t.split_once("fence.acq_rel.gpu;").expect("a fence");
            format!("{before}fence.acq_rel.gpu;{}", after.replacen("fence.acq_rel.gpu;", "", 1))
        };
        assert!(shows(&usual, kernel, &behind), "{kernel}: no fence behind");
    }
    assert!(shows(&usual, "attend_scores", &|t| t.replacen("add.rn.f64", "sub.rn.f64", 1)), "a difference of products");
    assert!(shows(&usual, "attend_exponentials", &|t| t.replace("0f3E2AAF33", "0f3F2AAF33")), "another exponential");
    assert!(shows(&usual, "attend_values", &|t| t.replacen("cvt.rn.f16.f32", "cvt.u16.u32", 1)), "not rounded");
    // Every order for values that are too large for that: 2^16 in the place of 16.
    assert!(shows(&ordered, "attend_values", &|t| t.replace("0d4030000000000000", "0d40F0000000000000")), "no bound");
    // No room for the rounding errors of both orders.
    assert!(shows(&ordered, "attend_values", &|t| t.replace("0d3CC0000000000000", "0d0000000000000000")), "no error");
}
