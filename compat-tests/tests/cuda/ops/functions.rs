//! Functions of single elements, and parts of rows, against trine's own operations.

use trine::math::EXP2_32;
use trine::ops::activation::{Activation, HeadGate};
use trine::{Isa, ops};
use trine_compat_tests::inputs::Rng;
use trine_compat_tests::ptx::Emulated;
use trine_cuda::program::{ProgramError, Recorder, Span};
use trine_cuda::ptx::{GATE, NORM, Text};

use super::{Case, rows, shows};
use crate::product::assert_same;

const COLUMNS: usize = 96;

/// Rows that hurt, floats of any bits, and floats of the sizes at which functions change.
fn inputs() -> Vec<f32> {
    let mut rng = Rng::new(16);
    let mut x = rows(COLUMNS, 3);
    x.extend((0..20 * COLUMNS).map(|i| match i % 4 {
        0 => f32::from_bits(rng.bits() as u32),
        1 => 100.0 * rng.unit() - 50.0,
        2 => 4.0 * rng.unit() - 2.0,
        _ => [-88.0, 22.0, -22.0, 7.0, -7.0, 1.0, -1.0, 0.3465736, -18.71, 1e-9, f32::MIN_POSITIVE, -0.0][i / 4 % 12],
    }));
    x
}

/// A function of a recorder, the same on the processor, and the kernel.
type Function<'f> = (
    &'f str,
    (Text, &'f str),
    &'f dyn Fn(&mut Recorder<'static>, Span) -> Result<Span, ProgramError>,
    &'f dyn Fn(&mut Vec<f32>),
);

/// The second value of functions of two: a multiple of the first.
fn beside(r: &mut Recorder<'static>, x: Span) -> Result<Span, ProgramError> {
    let y = r.repeat(x, COLUMNS, 1)?;
    r.scale(y, 0.75);
    Ok(y)
}

#[test]
fn functions_have_the_bits_of_the_processor_and_mistakes_are_found() {
    let isa = Isa::scalar();
    let scaled = |x: &[f32]| x.iter().map(|x| x * 0.75).collect::<Vec<f32>>();
    // The first columns of what stands beside are gates of heads of eight.
    let gates = |x: &[f32]| {
        let rows = x.chunks_exact(COLUMNS);
        rows.flat_map(|row| scaled(&row[..COLUMNS / 8])).collect::<Vec<f32>>()
    };
    let of_heads = |r: &mut Recorder<'static>, x: Span, itself: bool| {
        let y = beside(r, x)?;
        let parts = r.split(y, &[COLUMNS / 8, COLUMNS - COLUMNS / 8])?;
        r.head_gate(x, parts[0], itself, &EXP2_32).map(|()| x)
    };
    let xielu = [0.8, 1.25, 0.5, -1e-6];
    let functions: [Function<'_>; 8] = [
        (
            "multiply",
            (NORM, "multiply"),
            &|r, x| {
                let y = beside(r, x)?;
                r.multiply(x, y).map(|()| x)
            },
            &|x| {
                let y = scaled(x);
                ops::multiply(x, &y);
            },
        ),
        (
            "clamp",
            (NORM, "clamp"),
            &|r, x| {
                r.clamp(x, 7.0);
                Ok(x)
            },
            &|x| ops::clamp(x, 7.0),
        ),
        (
            "soft cap",
            (GATE, "soft_cap"),
            &|r, x| {
                r.soft_cap(x, 30.0);
                Ok(x)
            },
            &|x| ops::soft_cap(x, 30.0),
        ),
        (
            "sigmoid",
            (GATE, "sigmoid_alone"),
            &|r, x| {
                r.sigmoid(x, &EXP2_32);
                Ok(x)
            },
            &|x| ops::map(x, ops::activation::sigmoid),
        ),
        (
            "a gate of OpenAI's",
            (GATE, "clamped_silu"),
            &|r, x| {
                let y = beside(r, x)?;
                r.clamped_silu([x, y], [7.0, 1.702, 1.0], &EXP2_32).map(|()| x)
            },
            &|x| {
                let up = scaled(x);
                Activation::OpenAiSwiglu.gate(isa, x, &up);
            },
        ),
        (
            "xIELU",
            (GATE, "xielu_alone"),
            &|r, x| {
                r.xielu(x, xielu);
                Ok(x)
            },
            &|x| Activation::Xielu(xielu).apply(isa, x),
        ),
        ("gates of heads", (GATE, "head_gate"), &|r, x| of_heads(r, x, false), &|x| {
            let gates = gates(x);
            HeadGate::Sigmoid.apply(x, &gates);
        }),
        ("factors of heads", (GATE, "head_gate"), &|r, x| of_heads(r, x, true), &|x| {
            let gates = gates(x);
            HeadGate::Itself.apply(x, &gates);
        }),
    ];
    let x: &'static [f32] = inputs().leak();
    for (what, (text, kernel), record, of_processor) in functions {
        let mut expected = x.to_vec();
        of_processor(&mut expected);
        let case = Case::new(x, COLUMNS);
        assert_same(&case.run(record), &expected, what);
        let few = Case { rows: &x[14 * COLUMNS..18 * COLUMNS], ..case };
        let expected = &expected[14 * COLUMNS..18 * COLUMNS];
        let of = |change: &dyn Fn(&str) -> String| shows((text, kernel), change, &few, expected, record);
        assert!(!of(&|t| format!("{t} ")), "{what}: no mistake");
        assert!(of(&|t| t.replace("st.global.f32", "// ")), "{what}: nothing is written");
        let quotient = |t: &str| t.replace("div.rn.f32", "mul.rn.f32");
        match kernel {
            "clamp" => assert!(of(&|t| t.replace("setp.lt.f32", "setp.gt.f32")), "{what}: the other bound"),
            "sigmoid_alone" => assert!(of(&quotient), "{what}: a product"),
            _ => assert!(of(&|t| t.replace("mul.rn.f32", "add.rn.f32")), "{what}: sums"),
        }
    }
}

#[test]
fn parts_are_taken_apart_joined_and_repeated() {
    let x: &'static [f32] = inputs().leak();
    // Rows are two of these side by side.
    let widths = [5, 32, 11];
    let parts = ops::rows::split(x, &widths);
    let swapped: Vec<&[f32]> = [2, 0, 1].iter().map(|&i| &parts[i][..]).collect();
    let joined = ops::rows::join(&swapped, &[11, 5, 32]);
    let found = Case::new(x, COLUMNS).run(|r, x| {
        let parts = r.split(x, &widths)?;
        r.join(&[parts[2], parts[0], parts[1]], &[11, 5, 32])
    });
    assert_same(&found, &joined, "parts in another order");
    let repeated = ops::rows::repeat(x, 24, 3);
    let found = Case { results: 3 * COLUMNS, ..Case::new(x, COLUMNS) }.run(|r, x| r.repeat(x, 24, 3));
    assert_same(&found, &repeated, "every 24 elements three times");
    let refused = |record: &dyn Fn(&mut Recorder<'static>, Span) -> Result<Span, ProgramError>| {
        let done = Case::new(&x[..COLUMNS], COLUMNS).run_on(Emulated::new().expect("PTX"), record);
        done.expect_err("a refusal").to_string()
    };
    assert!(refused(&|r, x| r.split(x, &[5, 32]).map(|parts| parts[0])).contains("[5, 32] of 96 columns"));
    assert!(refused(&|r, x| r.repeat(x, 7, 2)).contains("7 of 96 columns"));
    assert!(refused(&|r, x| r.join(&[x, x], &[96, 48])).contains("[96, 48] side by side"));
}
