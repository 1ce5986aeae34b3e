//! Kernels with one mistake each: the emulator finds it, or a bit differs.

use trine::Isa;
use trine::ops::norm::{Kind, Norm};
use trine_compat_tests::ptx::{Emulated, Module, Schedule};
use trine_cuda::program::{Matrix, ProgramError, Recorder, Span};
use trine_cuda::ptx::{ATTENTION, CHAINS, NORM, QUANTIZE, Text};
use trine_formats::types::TypeId;

use super::attention::Case as Attention;
use super::{Case, rows};
use crate::mistakes::with_mistake;

const SCHEDULES: [Schedule; 3] = [Schedule::InTurn, Schedule::Random(1), Schedule::Last(0)];

/// Whether outputs are others than those expected, all of which are numbers.
fn differ(found: &[f32], expected: &[f32]) -> bool {
    let mut pairs = found.iter().zip(expected);
    pairs.any(|(a, b)| a.to_bits() != b.to_bits())
}

/// Whether a mistake in a module shows when a program runs.
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
        let case = Case {
            results: expected.len() * columns / x.len(),
            schedule,
            ..Case::new(x, columns)
        };
        let done = case.run_on(device, &record);
        done.map_or(true, |found| differ(&found, expected))
    })
}

#[test]
fn in_norms() {
    let columns = 320;
    let x = rows(columns, 2)[..2 * columns].to_vec();
    let gains: &[f32] = vec![0.5; columns].leak();
    let norm = Norm {
        kind: Kind::Rms,
        eps: 1e-5,
        row: columns,
        gains: gains.to_vec(),
        bias: None,
    };
    let expected = norm.apply(Isa::scalar(), &x);
    let of = |change: &dyn Fn(&str) -> String| {
        let kernel = (NORM, "rms_norm");
        shows(kernel, change, (&x, columns), &expected, |r, x| {
            r.norm(x, gains, columns, 1e-5)
        })
    };
    assert!(!of(&|t| format!("{t} ")), "no mistake");
    assert!(of(&|t| t.replacen("bar.sync", "// ", 2)), "no barriers");
    assert!(
        of(&|t| t.replace("bar.sync", "bar.warp.sync -1; // ")),
        "barriers of a warp"
    );
    assert!(of(&|t| t.replacen("sqrt.rn.f32", "neg.f32", 1)), "no root");
    assert!(
        of(&|t| t.replacen("mul.rn.f32", "add.rn.f32", 1)),
        "no squares"
    );
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
    let matrix = Matrix {
        name: "a matrix",
        ty: TypeId::Q6_K,
        rows: 9,
        columns,
        data,
        scale: 1.0,
    };
    let of = |kernel, change: &dyn Fn(&str) -> String| {
        shows(kernel, change, (&x, columns), &expected, |r, x| {
            r.product(matrix, x)
        })
    };
    let quantizer = (QUANTIZE, "quantize_q8_k");
    assert!(!of(quantizer, &|t| format!("{t} ")), "no mistake");
    assert!(
        of(quantizer, &|t| t.replace("setp.lt.f32", "setp.gt.f32")),
        "the least magnitude"
    );
    assert!(
        of(quantizer, &|t| t.replace("setp.eq.f32", "setp.lt.f32")),
        "the last of equals"
    );
    assert!(
        of(quantizer, &|t| t.replacen("0f4B400000", "0f4B000000", 1)),
        "another rounding"
    );
    assert!(
        of(quantizer, &|t| t.replacen("div.rn.f32", "mul.rn.f32", 1)),
        "no inverse"
    );
    assert!(
        of(quantizer, &|t| t.replacen(
            "shfl.sync.bfly",
            "shfl.sync.down",
            1
        )),
        "half of the lanes"
    );
    let product = (CHAINS, "q6_k_product");
    assert!(
        of(product, &|t| t.replacen("add.rn.f32", "sub.rn.f32", 1)),
        "a difference"
    );
    assert!(
        of(product, &|t| t.replacen("shfl.sync.idx", "shfl.sync.up", 2)),
        "chains of other lanes"
    );
}

#[test]
fn in_attention() {
    let case = Attention::new(21, (2, 2), (32, 32), &[(300, 3)], None);
    let expected = case.expected();
    let in_module = |module: &Module| {
        SCHEDULES.into_iter().any(|schedule| {
            let done = case.run_in(module, schedule);
            done.map_or(true, |found| differ(&found, &expected))
        })
    };
    let of =
        |change: &dyn Fn(&str) -> String| in_module(&with_mistake(ATTENTION, "attend", change));
    assert!(!of(&|t| format!("{t} ")), "no mistake");
    // Each barrier by itself orders something.
    let text = ATTENTION.text;
    let kernel = &text[text.find(".entry attend(").expect("the kernel")..];
    let barriers = kernel[..kernel.find("\n}").expect("its end")]
        .matches("bar.sync")
        .count();
    assert!(barriers > 5);
    assert!(
        of(&|t| t.replacen("bar.sync", "// ", 1)),
        "queries that are not there yet"
    );
    assert!(
        of(&|t| t.replace("bar.sync", "bar.warp.sync -1; // ")),
        "barriers of a warp"
    );
    assert!(
        of(&|t| t.replacen("add.rn.f64", "sub.rn.f64", 1)),
        "a difference of products"
    );
    assert!(
        of(&|t| t.replace("0f3E2AAF33", "0f3F2AAF33")),
        "another exponential"
    );
    assert!(
        of(&|t| t.replacen("cvt.rn.f16.f32", "cvt.u16.u32", 1)),
        "queries that are not rounded"
    );
}
