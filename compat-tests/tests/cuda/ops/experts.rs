//! Mixtures of experts: who is chosen, with which weight, and what comes of it.

use trine::math::{EXP2_32, expf};
use trine::ops::experts::{Choice, Choosing, Claim, Gating, combine};
use trine_compat_tests::inputs::Rng;
use trine_compat_tests::ptx::{Argument, Device, Fault, Module, Schedule};
use trine_cuda::program::{self, Matrix, ProgramError, Recorder, Span};
use trine_formats::types::TypeId;
use trine_testkit::is_long;

use super::{Case, bytes, launch};
use crate::product::{assert_same, module};

/// Where each split of the sort takes away two: it gives up and sorts the rest as a heap. Two are equal, so that the
/// sort runs.
pub const BAD_SPLITS: [u8; 64] = [
    18, 63, 11, 61, 3, 59, 13, 57, 7, 55, 15, 53, 1, 51, 17, 49, 9, 47, 19, 45, 5, 43, 40, 41, 2, 4, 6, 8, 10, 12, 14,
    16, 63, 62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 20, 23, 22, 25, 24, 27, 26, 29, 28, 31, 30, 33, 32, 35, 34, 37,
    36, 39, 38, 21,
];

/// Mixtral's rule.
pub fn rule(experts: usize, used: usize) -> Choosing {
    Choosing {
        experts,
        used,
        gating: Gating::SoftMax,
        claim: Claim::Probabilities,
        shared_by: 1,
        bias: None,
        groups: None,
        normalize: true,
        scale: None,
        table: None,
    }
}

/// Its gating, by the device's number.
fn gating(rule: &Choosing) -> program::Gating {
    match rule.gating {
        Gating::SoftMax => program::Gating::SoftMax,
        Gating::Sigmoid => program::Gating::Sigmoid,
        _ => program::Gating::SoftMaxOfChosen,
    }
}

/// The same for a program.
fn recorded(rule: &Choosing) -> program::Choosing<'static> {
    program::Choosing {
        used: rule.used,
        gating: gating(rule),
        claim: match rule.claim {
            Claim::Probabilities => program::Claim::Probabilities,
            Claim::Scores => program::Claim::Scores,
            _ => program::Claim::Sigmoids,
        },
        bias: rule.bias.clone().map(|bias| &*bias.leak()),
        groups: rule.groups,
        shared_by: rule.shared_by,
        normalize: rule.normalize,
        scale: rule.scale.unwrap_or(1.0),
        powers: &EXP2_32,
    }
}

/// Numbers and weights that the kernel chooses, in pairs as bits.
pub fn choose_in(
    module: &Module,
    rule: &Choosing,
    scores: &[f32],
    schedule: Schedule,
) -> Result<Vec<(u32, u32)>, Fault> {
    let tokens = scores.len() / rule.experts;
    let mut device = Device::new();
    let at = device.constant(bytes(scores));
    let bias = match &rule.bias {
        Some(bias) => device.constant(bytes(bias)),
        None => at,
    };
    let powers = EXP2_32.iter().flat_map(|x| x.to_le_bytes()).collect();
    let powers = device.constant(powers);
    let [chosen, weights] = [(); 2].map(|()| device.empty(4 * tokens * rule.used));
    let [groups, of_groups] = rule.groups.unwrap_or([1, 1]);
    let numbers = [
        rule.experts,
        rule.used,
        gating(rule) as usize,
        rule.claim as usize,
        rule.bias.is_some().into(),
        groups,
        of_groups,
        rule.shared_by,
        rule.normalize.into(),
    ];
    let mut arguments = [at, bias, powers, chosen, weights].map(Argument::Buffer).to_vec();
    arguments.extend(numbers.map(|n| Argument::U32(n as u32)));
    arguments.push(Argument::F32(rule.scale.unwrap_or(1.0)));
    let blocks = [tokens as u32, 1];
    launch(&mut device, (module, "choose"), blocks, (256, 0), &arguments, schedule)?;
    let bits = |buffer| device.floats(buffer).into_iter().map(f32::to_bits);
    Ok(bits(chosen).zip(bits(weights)).collect())
}

/// The processor's choice.
pub fn chosen(rule: &Choosing, scores: &[f32]) -> Vec<(u32, u32)> {
    let choices = rule.choose(&[], &mut scores.to_vec());
    let pair = |c: &Choice| (c.expert as u32, c.weight.to_bits());
    choices.iter().map(pair).collect()
}

#[track_caller]
fn check(rule: &Choosing, scores: &[f32], schedule: Schedule) {
    let found = choose_in(module("experts"), rule, scores, schedule);
    let found = found.unwrap_or_else(|e| panic!("{e}"));
    let expected = chosen(rule, scores);
    let nan = |bits: u32| f32::from_bits(bits).is_nan();
    let same = found.len() == expected.len()
        && found.iter().zip(&expected).all(|(f, e)| f.0 == e.0 && (f.1 == e.1 || nan(f.1) && nan(e.1)));
    assert!(same, "{rule:?}\n{scores:?}\n{found:?}\n{expected:?}");
}

/// Scores of some tokens: of any kind, near each other, of few values, all the same, and far apart.
fn scores(experts: usize, seed: u64) -> Vec<f32> {
    let mut rng = Rng::new(seed);
    let mut row =
        |f: &dyn Fn(usize, f32) -> f32| -> Vec<f32> { (0..experts).map(|i| f(i, 2.0 * rng.unit() - 1.0)).collect() };
    [
        row(&|_, x| 4.0 * x),
        row(&|_, x| (3.0 * x).round()),
        row(&|i, x| if i % 5 == 2 { 1.0 } else { x }),
        row(&|_, _| 0.5),
        row(&|_, x| 120.0 * x),
        row(&|i, x| if i % 3 == 0 { -0.0 } else { x.max(0.0) }),
    ]
    .concat()
}

#[test]
fn the_experts_and_weights_are_those_of_the_processor() {
    let sizes: &[(usize, usize)] = if is_long() {
        &[(1, 1), (2, 2), (8, 2), (16, 5), (17, 4), (60, 4), (64, 8), (128, 8), (130, 128), (257, 9), (1024, 10)]
    } else {
        &[(1, 1), (8, 2), (17, 4), (66, 6), (128, 40)]
    };
    for &(experts, used) in sizes {
        let scores = scores(experts, experts as u64);
        for gating in [Gating::SoftMax, Gating::Sigmoid, Gating::SoftMaxOfChosen] {
            let plain = Choosing { gating, ..rule(experts, used) };
            check(&plain, &scores, Schedule::Random(experts as u64));
            let other = Choosing {
                normalize: false,
                scale: Some(2.5),
                bias: Some((0..experts).map(|i| (i % 7) as f32 * 0.125).collect()),
                claim: match gating {
                    Gating::SoftMax => Claim::Scores,
                    Gating::Sigmoid => Claim::Sigmoids,
                    _ => Claim::Probabilities,
                },
                ..plain
            };
            check(&other, &scores, Schedule::Last(0));
        }
    }
}

#[test]
fn experts_of_the_best_groups_alone_are_chosen() {
    for (experts, used, groups) in
        [(8, 2, [2, 1]), (64, 6, [8, 3]), (60, 4, [5, 4]), (102, 8, [17, 4]), (256, 8, [128, 40])]
    {
        let grouped = Choosing {
            gating: Gating::Sigmoid,
            groups: Some(groups),
            bias: Some((0..experts).map(|i| (i % 3) as f32 * 0.25).collect()),
            scale: Some(0.5),
            ..rule(experts, used)
        };
        check(&grouped, &scores(experts, 9), Schedule::Random(3));
    }
}

#[test]
fn experts_that_share_one_are_numbered_by_it() {
    for (experts, used, shared_by) in [(6, 2, 3), (66, 11, 6), (128, 8, 8)] {
        let shared = Choosing { gating: Gating::Sigmoid, shared_by, ..rule(experts, used) };
        check(&shared, &scores(experts, 2), Schedule::InTurn);
    }
}

#[test]
fn equal_scores_have_the_order_of_the_sort() {
    let plain = |values: &[u8], f: &dyn Fn(u8) -> u8| -> Vec<f32> { values.iter().map(|&v| f32::from(f(v))).collect() };
    for f in [&(|v| v) as &dyn Fn(u8) -> u8, &|v| v.div_ceil(2), &|v| v / 16] {
        let scores = plain(&BAD_SPLITS, f);
        let by = Choosing { gating: Gating::SoftMaxOfChosen, ..rule(64, 60) };
        check(&by, &scores, Schedule::InTurn);
    }
    for experts in [33usize, 200, 1024] {
        let mut rng = Rng::new(experts as u64);
        let scores: Vec<f32> = (0..experts).map(|_| (rng.bits() % 3) as f32).collect();
        let by = Choosing { gating: Gating::Sigmoid, ..rule(experts, 20) };
        check(&by, &scores, Schedule::InTurn);
    }
}

#[test]
fn scores_that_are_no_numbers_choose_something() {
    for experts in [8, 40] {
        // With nothing but such scores experts are taken by number, here and there.
        check(&rule(experts, 3), &vec![f32::NAN; experts], Schedule::InTurn);
        let mut some = scores(experts, 5)[..experts].to_vec();
        (some[0], some[experts - 1]) = (f32::NAN, f32::INFINITY);
        let by = Choosing { gating: Gating::Sigmoid, ..rule(experts, 3) };
        let found = choose_in(module("experts"), &by, &some, Schedule::InTurn);
        let found = found.unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(found[0].0 as usize, experts - 1);
        assert!(found.iter().all(|f| f.0 > 0 && (f.0 as usize) < experts));
    }
}

/// A layer of experts with matrices of one type: `up` to as many rows as there are columns, and `down`.
pub struct Layer {
    pub rule: Choosing,
    pub width: usize,
    router: Vec<u8>,
    up: Vec<Vec<u8>>,
    down: Vec<Vec<u8>>,
    ty: TypeId,
    pub weigh_inputs: bool,
    /// Factors and biases of the first matrices' output.
    pub finish: bool,
}

impl Layer {
    pub fn new(ty: TypeId, rule: Choosing, width: usize) -> Layer {
        let mut rng = Rng::new(width as u64 + rule.experts as u64);
        let mut encoded = |ty: TypeId| -> Vec<u8> {
            let info = ty.info().expect("a type");
            let of_row = info.row_bytes(width as u64).expect("whole blocks") as usize;
            let mut data = vec![0; width * of_row];
            for row in data.chunks_exact_mut(of_row) {
                let x: Vec<f32> = (0..width).map(|_| 0.2 * rng.unit() - 0.1).collect();
                info.encode.expect("an encoder")(&x, None, row);
            }
            data
        };
        let router = encoded(TypeId::F32)[..4 * width * rule.experts].to_vec();
        let mut stack = || (0..rule.experts).map(|_| encoded(ty)).collect();
        Layer { router, up: stack(), down: stack(), ty, width, rule, weigh_inputs: false, finish: false }
    }

    fn factors(&self) -> Vec<f32> {
        (0..self.rule.experts).map(|i| 0.3 + i as f32).collect()
    }

    fn biases(&self) -> Vec<f32> {
        let count = self.rule.experts * self.width;
        (0..count).map(|i| (i % 19) as f32 * 0.1).collect()
    }

    fn matrix(&self, data: &[u8], ty: TypeId, rows: usize) -> Matrix<'static> {
        Matrix { name: "experts", ty, rows, columns: self.width, data: data.to_vec().leak(), scale: 1.0 }
    }

    /// Records the program.
    pub fn record(&self, r: &mut Recorder<'static>, x: Span) -> Result<Span, ProgramError> {
        let router = self.matrix(&self.router, TypeId::F32, self.rule.experts);
        let scores = r.product(router, x)?;
        let chosen = r.choose(scores, &recorded(&self.rule))?;
        let input = match self.weigh_inputs {
            true => r.weigh(x, &chosen)?,
            false => x,
        };
        let stack = |stack: &[Vec<u8>]| -> Vec<Matrix<'static>> {
            let each = stack.iter().map(|m| self.matrix(m, self.ty, self.width));
            each.collect()
        };
        let y = r.product_of_chosen(&stack(&self.up), input, &chosen)?;
        if self.finish {
            r.scale_chosen(y, self.factors().leak(), &chosen)?;
            r.add_chosen(y, self.biases().leak(), &chosen)?;
        }
        let y = r.product_of_chosen(&stack(&self.down), y, &chosen)?;
        r.combine(y, &chosen, !self.weigh_inputs)
    }

    /// `matrix` times a row.
    fn product(&self, matrix: &[u8], ty: TypeId, x: &[f32]) -> Vec<f32> {
        let info = ty.info().expect("a type");
        let act = info.act.and_then(|act| act.info()).expect("a type");
        let mut row = vec![0; act.row_bytes(x.len() as u64).expect("whole blocks") as usize];
        act.encode.expect("an encoder")(x, None, &mut row);
        let of_row = info.row_bytes(x.len() as u64).expect("whole blocks") as usize;
        let dot = info.dot_ref.expect("a definition");
        matrix.chunks_exact(of_row).map(|w| dot(w, &row)).collect()
    }

    /// Outputs by the definitions.
    pub fn expected(&self, x: &[f32]) -> Vec<f32> {
        let mut all = Vec::new();
        for x in x.chunks_exact(self.width) {
            let mut scores = self.product(&self.router, TypeId::F32, x);
            let mut choices = self.rule.choose(&[], &mut scores);
            let mut given = Vec::new();
            for choice in &mut choices {
                let mut x = x.to_vec();
                if self.weigh_inputs {
                    trine::ops::scale(&mut x, choice.weight);
                    choice.weight = 1.0;
                }
                let mut y = self.product(&self.up[choice.expert], self.ty, &x);
                if self.finish {
                    trine::ops::scale(&mut y, self.factors()[choice.expert]);
                    let biases = self.biases();
                    trine::ops::add(&mut y, &biases[choice.expert * self.width..][..self.width]);
                }
                given.extend(self.product(&self.down[choice.expert], self.ty, &y));
            }
            all.extend_from_slice(&combine(&given, &choices, self.rule.used, self.width));
        }
        all
    }
}

/// Rows of tokens.
pub fn tokens(count: usize, width: usize) -> &'static [f32] {
    let mut rng = Rng::new(7);
    let x = (0..count * width).map(|_| 2.0 * rng.unit() - 1.0);
    x.collect::<Vec<f32>>().leak()
}

#[test]
fn products_of_chosen_experts() {
    for (ty, width, count) in [
        (TypeId::TQ2_0, 256, 11),
        (TypeId::TQ1_0, 512, 2),
        (TypeId::Q8_0, 96, 20),
        (TypeId::Q8_0, 288, 1),
        (TypeId::Q4_0, 160, 20),
        (TypeId::Q4_0, 544, 3),
        (TypeId::Q4_K, 256, 5),
        (TypeId::Q6_K, 256, 5),
        (TypeId::F16, 33, 9),
        (TypeId::BF16, 48, 9),
        (TypeId::F32, 40, 9),
    ] {
        // One token's experts have a place each; of many tokens some have eight and more, and some none.
        let experts = if count == 1 { 9 } else { 5 };
        let x = tokens(count, width);
        for weigh_inputs in [false, true] {
            let layer = Layer { weigh_inputs, finish: weigh_inputs, ..Layer::new(ty, rule(experts, 3), width) };
            let case = Case::new(x, width);
            let found = case.run(|r, x| layer.record(r, x));
            let what = format!("{ty} {width} of {count} tokens, {weigh_inputs}");
            assert_same(&found, &layer.expected(x), &what);
        }
    }
}

#[test]
fn rows_times_the_sigmoid_of_their_gates() {
    let columns = 300;
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        50.0,
        -50.0,
        88.7,
        -88.7,
        89.0,
        -104.5,
        1e-40,
        3e38,
        -3e38,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    let mut rng = Rng::new(3);
    let mut gates = special.to_vec();
    gates.extend((0..400).map(|_| 40.0 * rng.unit() - 20.0));
    let x: Vec<f32> = (0..columns * gates.len()).map(|_| rng.unit() - 0.5).collect();
    for plain in [false, true] {
        let mut expected = x.clone();
        for (row, &g) in expected.chunks_exact_mut(columns).zip(&gates) {
            let factor = match plain {
                true => 1.0 / (1.0 + expf(-g)),
                false => g / (1.0 + expf(-g)) / g,
            };
            trine::ops::scale(row, factor);
        }
        let mut device = Device::new();
        let powers = EXP2_32.iter().flat_map(|x| x.to_le_bytes()).collect();
        let (at, gate) = (device.variable(bytes(&x)), device.constant(bytes(&gates)));
        let powers = device.constant(powers);
        let mut arguments = [at, gate, powers].map(Argument::Buffer).to_vec();
        arguments.extend([columns as u32, plain.into()].map(Argument::U32));
        let blocks = [gates.len() as u32, 1];
        launch(&mut device, (module("experts"), "scale_by_gate"), blocks, (256, 0), &arguments, Schedule::Random(4))
            .unwrap_or_else(|e| panic!("{e}"));
        assert_same(&device.floats(at), &expected, "gates");
    }
}

#[test]
fn mixtures_that_do_not_fit_are_refused() {
    let x = tokens(2, 32);
    let of = |rule: Choosing| {
        let layer = Layer::new(TypeId::Q8_0, rule, 32);
        let device = trine_compat_tests::ptx::Emulated::new().expect("PTX");
        let done = Case::new(x, 32).run_on(device, |r, x| layer.record(r, x));
        done.map(drop).map_err(|e| e.to_string())
    };
    assert_eq!(of(rule(4, 2)), Ok(()));
    for wrong in [
        rule(4, 5),
        Choosing { bias: Some(vec![0.0; 3]), ..rule(4, 2) },
        Choosing { groups: Some([4, 2]), ..rule(4, 2) },
        Choosing { groups: Some([2, 2]), ..rule(4, 2) },
        Choosing { shared_by: 3, ..rule(4, 2) },
    ] {
        let text = of(wrong).expect_err("a refusal");
        assert!(text.contains("of 4 experts"), "{text}");
    }
}
