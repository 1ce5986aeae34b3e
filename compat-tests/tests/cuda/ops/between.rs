//! Operations that few models have, against trine's own: rows of constants, other gates, several residual streams,
//! matrices of heads, attention in both directions.

use std::sync::LazyLock;

use trine::math::{EXP2_32, LOG_16};
use trine::ops::activation::{Activation, HeadGate, softplus};
use trine::ops::attention::{BothWays, Heads};
use trine::ops::norm::{Kind, Norm};
use trine::ops::streams::{self, Mixing};
use trine::{Isa, ops};
use trine_compat_tests::inputs::Rng;
use trine_compat_tests::ptx::Emulated;
use trine_cuda::program::{self as gpu, ProgramError, Recorder, Span};
use trine_cuda::ptx::{BETWEEN, WHOLE};

use super::{Case, dot, matrices, rows, shows};
use crate::product::assert_same;

const COLUMNS: usize = 88;

/// Rows that hurt, and floats of the sizes at which functions change.
static INPUTS: LazyLock<Vec<f32>> = LazyLock::new(|| {
    let mut rng = Rng::new(23);
    let mut x = rows(COLUMNS, 5);
    x.extend((0..10 * COLUMNS).map(|i| match i % 3 {
        0 => 60.0 * rng.unit() - 30.0,
        1 => 4.0 * rng.unit() - 2.0,
        _ => [20.0, 20.000002, -104.0, 88.5, 0.75, -0.75, 1e-9, -0.0][i / 3 % 8],
    }));
    x
});

/// A row of constants.
static ROW: LazyLock<Vec<f32>> = LazyLock::new(|| (0..COLUMNS / 2).map(|i| (i as f32 - 20.5) / 7.0).collect());

type Record<'f> = &'f dyn Fn(&mut Recorder<'static>, Span) -> Result<Span, ProgramError>;
/// A name, the kernel, the recorded operation, the same on the processor, and a word of the kernel's text with another
/// in its place.
type Function<'f> = (&'f str, &'f str, Record<'f>, &'f dyn Fn(&mut Vec<f32>), [&'f str; 2]);

/// The second value of functions of two: a multiple of the first.
fn beside(r: &mut Recorder<'static>, x: Span) -> Result<Span, ProgramError> {
    let y = r.copied(x)?;
    r.scale(y, 0.75);
    Ok(y)
}

fn scaled(x: &[f32]) -> Vec<f32> {
    x.iter().map(|x| x * 0.75).collect()
}

#[test]
fn functions_of_few_models_have_the_bits_of_the_processor_and_mistakes_are_found() {
    let isa = Isa::scalar();
    let gates = |x: &[f32]| {
        let rows = x.chunks_exact(COLUMNS);
        rows.flat_map(|row| scaled(&row[..COLUMNS / 8])).collect::<Vec<f32>>()
    };
    let functions: [Function<'_>; 12] = [
        (
            "quotients",
            "divide_row",
            &|r, x| r.divide_row(x, &ROW).map(|()| x),
            &|x| ops::divide_rows(x, &ROW),
            ["div.rn.f32", "mul.rn.f32"],
        ),
        (
            "weighed sums",
            "multiply_add",
            &|r, x| {
                let y = beside(r, x)?;
                r.multiply_add(x, y, &ROW).map(|()| x)
            },
            &|x| {
                let y = scaled(x);
                ops::rows::multiply_add(x, &y, &ROW);
            },
            ["add.rn.f32", "sub.rn.f32"],
        ),
        (
            "the soft-plus of heads",
            "softplus_gate",
            &|r, x| {
                let y = beside(r, x)?;
                let parts = r.split(y, &[COLUMNS / 8, COLUMNS - COLUMNS / 8])?;
                r.softplus_gate(x, parts[0], [&EXP2_32, &LOG_16]).map(|()| x)
            },
            &|x| {
                let gates = gates(x);
                HeadGate::Softplus.apply(x, &gates);
            },
            ["add.rn.f64", "sub.rn.f64"],
        ),
        (
            "the root of the soft-plus",
            "root_of_softplus",
            &|r, x| {
                r.root_of_softplus(x, [&EXP2_32, &LOG_16]);
                Ok(x)
            },
            &|x| x.iter_mut().for_each(|x| *x = softplus(*x).sqrt()),
            ["sqrt.rn.f32", "neg.f32"],
        ),
        (
            "tanh",
            "tanh_alone",
            &|r, x| {
                r.tanh(x);
                Ok(x)
            },
            &|x| Activation::Tanh.apply(isa, x),
            ["div.rn.f32", "mul.rn.f32"],
        ),
        (
            "SiLU within limits",
            "limited_silu",
            &|r, x| {
                let y = beside(r, x)?;
                r.limited_silu([x, y], 0.75).map(|()| x)
            },
            &|x| {
                let up = scaled(x);
                Activation::LimitedSilu(0.75).gate(isa, x, &up);
            },
            ["setp.lt.f32", "setp.gt.f32"],
        ),
        (
            "SiLU of a bounded factor",
            "bounded_silu",
            &|r, x| {
                let y = beside(r, x)?;
                r.bounded_silu([x, y], [4.0, 0.0], &EXP2_32).map(|()| x)
            },
            &|x| {
                let up = scaled(x);
                Activation::Situ([4.0, 0.0]).gate(isa, x, &up);
            },
            ["mul.rn.f64", "add.rn.f64"],
        ),
        (
            "SiLU of a bounded factor within a bound",
            "bounded_silu",
            &|r, x| {
                let y = beside(r, x)?;
                r.bounded_silu([x, y], [4.0, 25.0], &EXP2_32).map(|()| x)
            },
            &|x| {
                let up = scaled(x);
                Activation::Situ([4.0, 25.0]).gate(isa, x, &up);
            },
            ["div.rn.f32", "mul.rn.f32"],
        ),
        (
            "SiLU of bounded arguments",
            "",
            &|r, x| {
                let y = beside(r, x)?;
                r.clamped_silu([x, y], [7.0, 1.0, -0.0], &EXP2_32).map(|()| x)
            },
            &|x| {
                let up = scaled(x);
                Activation::ClampedSilu(7.0).gate(isa, x, &up);
            },
            ["", ""],
        ),
        (
            "rows as long as others",
            "as_long",
            &|r, x| {
                let y = beside(r, x)?;
                let parts = r.split(y, &[COLUMNS / 4, 3 * (COLUMNS / 4)])?;
                r.as_long(x, parts[0], COLUMNS / 4).map(|()| x)
            },
            &|x| {
                let y: Vec<f32> = scaled(x).chunks_exact(COLUMNS).flat_map(|row| row[..COLUMNS / 4].to_vec()).collect();
                ops::rows::as_long(x, &y, COLUMNS / 4);
            },
            ["add.rn.f64", "sub.rn.f64"],
        ),
        (
            "the part above a bound",
            "cutoff",
            &|r, x| {
                r.cutoff(x, 0.25);
                Ok(x)
            },
            &|x| ops::rows::cutoff(x, COLUMNS, 0.25),
            ["sqrt.rn.f32", "neg.f32"],
        ),
        (
            "the same row for all",
            "fill",
            &|r, x| {
                let y = r.fill(x, &ROW)?;
                r.repeat(y, COLUMNS / 2, 2)
            },
            &|x| x.iter_mut().enumerate().for_each(|(i, x)| *x = ROW[i % (COLUMNS / 2)]),
            ["st.global.f32", "// "],
        ),
    ];
    let x: &'static [f32] = &INPUTS;
    for (what, kernel, record, of_processor, [word, other]) in functions {
        let mut expected = x.to_vec();
        of_processor(&mut expected);
        let case = Case::new(x, COLUMNS);
        assert_same(&case.run(record), &expected, what);
        if kernel.is_empty() {
            continue;
        }
        let few = 14 * COLUMNS..18 * COLUMNS;
        let case = Case { rows: &x[few.clone()], ..case };
        let of =
            |change: &dyn Fn(&str) -> String| shows((BETWEEN, kernel), change, &case, &expected[few.clone()], record);
        assert!(!of(&|t| format!("{t} ")), "{what}: no mistake");
        assert!(of(&|t| t.replace(word, other)), "{what}: {other} for {word}");
    }
}

/// Elements of a stream, and streams.
const WIDTH: usize = 16;
const STREAMS: usize = 4;

#[test]
fn streams_are_read_written_and_summed_as_on_the_processor() {
    static SCALES: [f32; 3] = [0.75, -0.5, 1.25];
    static BASES: LazyLock<Vec<f32>> = LazyLock::new(|| (0..24).map(|i| (i as f32 - 11.0) / 9.0).collect());
    let x: &'static [f32] = &INPUTS;
    for (mixed, coefficients) in [(true, 24), (false, 8), (false, 4)] {
        let widths = [STREAMS * WIDTH, coefficients, 24 - coefficients];
        let mixing = mixed.then_some(Mixing { rounds: 3, eps: 1e-6 });
        let bases = &BASES[..coefficients];
        let rule = streams::Streams {
            count: STREAMS,
            eps: 1e-3,
            magnitude: 2.0,
            offset: 0.5,
            mixing,
            scales: SCALES.to_vec(),
            bases: bases.to_vec(),
        };
        let gpu_rule = gpu::Streams {
            count: STREAMS,
            eps: 1e-3,
            magnitude: 2.0,
            offset: 0.5,
            mixing: mixing.map(|m| (m.rounds, m.eps)),
            scales: &SCALES,
            bases,
            powers: &EXP2_32,
        };
        let parts = ops::rows::split(x, &widths);
        let [read, written] = rule.read(&parts[0], &parts[1]);
        let what = format!("{coefficients} coefficients");
        let some: Vec<usize> = widths.into_iter().filter(|n| *n > 0).collect();
        let record: Record<'_> = &|r, x| {
            let parts = r.split(x, &some)?;
            r.read_streams(parts[0], parts[1], &gpu_rule).map(|(read, _)| read)
        };
        let case = Case { results: WIDTH, ..Case::new(x, COLUMNS) };
        assert_same(&case.run(record), &read, &what);
        let few = 14..18;
        let few_case = Case { rows: &x[few.start * COLUMNS..few.end * COLUMNS], ..case };
        let of = |kernel, [word, other]: [&str; 2]| {
            let expected = &read[few.start * WIDTH..few.end * WIDTH];
            shows((BETWEEN, kernel), &|t| t.replace(word, other), &few_case, expected, record)
        };
        assert!(of("read_streams", ["mul.rn.f32", "add.rn.f32"]), "{what}: sums for products");
        assert!(of("stream_coefficients", ["mul.rn.f64", "add.rn.f64"]), "{what}: another exponential");
        if coefficients == STREAMS {
            continue;
        }
        let mut expected = parts[0].to_vec();
        streams::write(&mut expected, &read, &written, STREAMS, mixed);
        let record: Record<'_> = &|r, x| {
            let parts = r.split(x, &some)?;
            let (read, written) = r.read_streams(parts[0], parts[1], &gpu_rule)?;
            let written = written.expect("coefficients");
            r.write_streams(parts[0], [read, written], STREAMS, mixed).map(|()| parts[0])
        };
        let case = Case { results: STREAMS * WIDTH, ..Case::new(x, COLUMNS) };
        assert_same(&case.run(record), &expected, &format!("{what}, written"));
        let few_case = Case { rows: &x[few.start * COLUMNS..few.end * COLUMNS], ..case };
        let expected = &expected[few.start * STREAMS * WIDTH..few.end * STREAMS * WIDTH];
        let change = |t: &str| t.replace("add.rn.f32", "sub.rn.f32");
        assert!(shows((BETWEEN, "write_streams"), &change, &few_case, expected, record), "{what}: differences");
    }
    let widths = [STREAMS * WIDTH, STREAMS * STREAMS, 8];
    let parts = ops::rows::split(x, &widths);
    let expected = streams::sum(&parts[0], &parts[1], STREAMS);
    let record: Record<'_> = &|r, x| {
        let parts = r.split(x, &widths)?;
        r.sum_streams(parts[0], parts[1], STREAMS)
    };
    let case = Case { results: STREAMS * WIDTH, ..Case::new(x, COLUMNS) };
    assert_same(&case.run(record), &expected, "sums of streams");
    let few_case = Case { rows: &x[14 * COLUMNS..18 * COLUMNS], ..case };
    let expected = &expected[14 * STREAMS * WIDTH..18 * STREAMS * WIDTH];
    let single = |t: &str| t.replace("add.rn.f64", "sub.rn.f64");
    assert!(shows((BETWEEN, "sum_streams"), &single, &few_case, expected, record), "differences of streams");
}

#[test]
fn streams_are_blended_by_their_scores_as_on_the_processor() {
    static GAINS: LazyLock<Vec<f32>> = LazyLock::new(|| (0..WIDTH).map(|i| (i as f32 - 5.5) / 6.0).collect());
    let x: &'static [f32] = &INPUTS;
    let norm = Norm { kind: Kind::Rms, eps: 1e-5, row: WIDTH, gains: GAINS.clone(), bias: None };
    // One stream, less than a group of four scores, one group, and one with a rest.
    for count in [1, 3, 4, 5] {
        let mut widths = vec![WIDTH; count];
        widths.push(COLUMNS - count * WIDTH);
        let parts = ops::rows::split(x, &widths);
        let streams: Vec<&[f32]> = parts[..count].iter().map(|part| &part[..]).collect();
        let expected = streams::blend(Isa::scalar(), &norm, &streams);
        let record: Record<'_> = &|r, x| {
            let parts = r.split(x, &widths)?;
            let weights = r.sums_beside(parts[0], count)?;
            for (i, &part) in parts[..count].iter().enumerate() {
                let normed = r.norm(part, &GAINS, WIDTH, 1e-5)?;
                r.sum_row(normed, weights, i)?;
            }
            r.soft_max(weights, &EXP2_32);
            r.blend(&parts[..count], weights)
        };
        let case = Case { results: WIDTH, ..Case::new(x, COLUMNS) };
        assert_same(&case.run(record), &expected, &format!("{count} streams"));
        if count == 1 {
            continue;
        }
        let case = Case { rows: &x[14 * COLUMNS..18 * COLUMNS], ..case };
        let expected = &expected[14 * WIDTH..18 * WIDTH];
        let of = |kernel, [word, other]: [&str; 2]| {
            shows((BETWEEN, kernel), &|t| t.replace(word, other), &case, expected, record)
        };
        let same: &dyn Fn(&str) -> String = &|t| format!("{t} ");
        assert!(!shows((BETWEEN, "blend"), same, &case, expected, record), "{count}: no mistake");
        assert!(of("sum_row", ["add.rn.f64", "sub.rn.f64"]), "{count}: differences");
        assert!(of("soft_max_rows", ["add.rn.f64", "sub.rn.f64"]), "{count}: another total");
        assert!(of("blend", ["add.rn.f32", "sub.rn.f32"]), "{count}: differences of streams");
    }
    let refused = Case::new(&x[..COLUMNS], COLUMNS).run_on(Emulated::new().expect("PTX"), |r, x| {
        let parts = r.split(x, &[WIDTH, WIDTH, COLUMNS - 2 * WIDTH])?;
        let weights = r.sums_beside(x, 2)?;
        r.blend(&parts, weights)
    });
    assert!(refused.expect_err("a refusal").to_string().contains("a blend of 3 streams"));
}

#[test]
fn roots_of_dot_products_have_the_bits_of_the_processor_and_mistakes_are_found() {
    const PART: usize = 10;
    let x: &'static [f32] = &INPUTS;
    let widths = [4 * PART, 4 * PART, COLUMNS - 8 * PART];
    let parts = ops::rows::split(x, &widths);
    let expected = ops::rows::rooted_dots(&parts[0], &parts[1], PART);
    let record: Record<'_> = &|r, x| {
        let parts = r.split(x, &widths)?;
        r.rooted_dots(parts[0], parts[1], PART)
    };
    let case = Case { results: 4, ..Case::new(x, COLUMNS) };
    assert_same(&case.run(record), &expected, "roots of dot products");
    let case = Case { rows: &x[14 * COLUMNS..18 * COLUMNS], ..case };
    let expected = &expected[14 * 4..18 * 4];
    let of = |change: &dyn Fn(&str) -> String| shows((BETWEEN, "rooted_dots"), change, &case, expected, record);
    assert!(!of(&|t| format!("{t} ")), "no mistake");
    assert!(of(&|t| t.replace("add.rn.f64", "sub.rn.f64")), "differences");
    assert!(of(&|t| t.replace("sqrt.rn.f32", "neg.f32")), "no root");
}

#[test]
fn every_head_has_its_own_matrix() {
    const HEADS: usize = 4;
    const ROWS: usize = 7;
    let width = COLUMNS / HEADS;
    let mut rng = Rng::new(7);
    let weights: Vec<f32> = (0..HEADS * ROWS * width).map(|_| 2.0 * rng.unit() - 1.0).collect();
    let matrices = matrices("heads", [ROWS, width], &weights);
    let x: &'static [f32] = &INPUTS[14 * COLUMNS..];
    let token = |x: &[f32]| -> Vec<f32> {
        let heads = x.chunks_exact(width).zip(weights.chunks_exact(ROWS * width));
        heads.flat_map(|(x, w)| w.chunks_exact(width).map(|w| dot(w, x)).collect::<Vec<f32>>()).collect()
    };
    let expected: Vec<f32> = x.chunks_exact(COLUMNS).flat_map(token).collect();
    let record: Record<'_> = &|r, x| r.product_by_head(&matrices, x);
    let case = Case { results: HEADS * ROWS, ..Case::new(x, COLUMNS) };
    assert_same(&case.run(record), &expected, "products by head");
    let change = |t: &str| t.replace("st.global.u32", "// ");
    assert!(shows((BETWEEN, "number_heads"), &change, &case, &expected, record), "heads without numbers");
    let refused = Case { rows: &x[..COLUMNS], ..case }
        .run_on(Emulated::new().expect("PTX"), |r, x| r.product_by_head(&matrices[..3], x));
    assert!(refused.expect_err("a refusal").to_string().contains("matrices of 3 heads for rows of 88"));
}

#[test]
fn attention_in_both_directions_has_the_bits_of_the_processor_and_mistakes_are_found() {
    const HEADS: Heads = Heads { queries: 4, keys: 2, size: 8 };
    static SLOPES: [f32; 4] = [0.5, 0.25, 0.125, 0.0];
    let widths = [32, 16, 16];
    let heads = gpu::Heads { queries: 4, keys: 2, key_size: 8, value_size: 8 };
    let mut rng = Rng::new(3);
    // Whole groups of four cells, and what is left of them; some far apart, so that exponentials end.
    for (tokens, size) in [(1, 1.0f32), (8, 2.0), (13, 3.0), (30, 9.0)] {
        let x: &'static [f32] = (0..tokens * 64).map(|_| size * (2.0 * rng.unit() - 1.0)).collect::<Vec<f32>>().leak();
        let parts = ops::rows::split(x, &widths);
        for (reach, slopes) in [(None, &SLOPES[..0]), (Some(3), &SLOPES[..0]), (None, &SLOPES[..])] {
            let both_ways = BothWays { heads: HEADS, scale: 0.35, reach, slopes, relative: None };
            let expected = both_ways.run(std::slice::from_ref(&(0..tokens)), [&parts[0], &parts[1], &parts[2]]);
            let record: Record<'_> = &|r, x| {
                let parts = r.split(x, &widths)?;
                r.attend_whole([parts[0], parts[1], parts[2]], heads, (0.35, reach), slopes, &EXP2_32)
            };
            let case = Case { results: 32, ..Case::new(x, 64) };
            let what = format!("{tokens} tokens, reach {reach:?}, {} slopes", slopes.len());
            assert_same(&case.run(record), &expected, &what);
            if tokens != 13 {
                continue;
            }
            let of = |change: &dyn Fn(&str) -> String| shows((WHOLE, "attend_whole"), change, &case, &expected, record);
            assert!(!of(&|t| format!("{t} ")), "{what}: no mistake");
            assert!(of(&|t| t.replace("bar.sync", "// ")), "{what}: no barriers");
            assert!(of(&|t| t.replace("add.rn.f64", "sub.rn.f64")), "{what}: differences");
            assert!(of(&|t| t.replace("mul.rn.f64", "add.rn.f64")), "{what}: another exponential of the rest");
        }
    }
}
