//! Gradients: those of a program run backwards are the differences of its loss, for operations of every kind.

use trine::Isa;
use trine::exec::gradient::{Gradient, Tape};
use trine::fisher::Fisher;
use trine::kv::CacheTypes;
use trine::math::{exp, log};
use trine::model::{LoadOptions, Weights};
use trine::ops::activation::Activation;
use trine::pool::Pool;
use trine::program::{Op, Program};
use trine::step::{Session, SessionOptions};
use trine_formats::gguf::{ModelFile, PackingOptions};
use trine_formats::types::TypeId;
use trine_testkit::gguf;

use crate::rotated::rotated;
use crate::{MODELS, NOT_YET, made};

/// Models of every kind of operation that has a derivative; the long form takes all.
const SHORT: &[&str] = &[
    "afmoe-moe",
    "apertus-long",
    "bitnet-b1.58-long",
    "bloom-dense",
    "chatglm-dense",
    "command-r-dense",
    "dbrx-moe",
    "deepseek2-moe",
    "gemma2-dense",
    "gemma3n-short",
    "gemma4-moe",
    "glm4moe-moe",
    "gpt2-dense",
    "gpt-oss-moe",
    "granitemoe-shared",
    "grok-moe",
    "grovemoe-moe",
    "hrm_text-dense",
    "hy_v4-moe",
    "llama4-moe",
    "minicpm3-dense",
    "minimax-m3-moe",
    "mpt-dense",
    "nemotron-dense",
    "phi2-dense",
    "qwen2moe-moe",
    "qwen3moe-moe",
    "smallthinker-moe",
    "stablelm-parallel",
];

/// Tokens of a model with windows, and of one without: the fewer there are, the larger is the step without a kink.
const TOKENS: [usize; 2] = [40, 10];

/// More tokens than a window of the model has positions.
fn tokens(program: &Program) -> Vec<u32> {
    let [many, few] = TOKENS;
    let short = |op: &Op| matches!(op, Op::Attend(attend) if attend.window.is_some_and(|w| w.size < many));
    let windows = program.operations().iter().any(|operation| short(&operation.op));
    (0..if windows { many } else { few }).map(|i| (i * i * 7 + i * 3 + 1) as u32 % 128).collect()
}

/// The greatest step along a direction, as a part of the weights' length; less of it where the slope is more than 1.
/// The error of what follows is of its fourth power: with 1e-3 the worst of flat losses was 4e-8 of the slope.
const STEP: f64 = 2e-4;

/// Steps that are tried, each a tenth of the one before.
const STEPS: usize = 5;

/// The change of a loss by rounding, as a part of it: 18 times 2^-52. The losses of a model differ by 1 to 3 times
/// that.
const ROUNDING: f64 = 4e-15;

/// The model, with keys and values as they are; those of latent attention are kept as half floats.
fn load(file: &ModelFile) -> Weights {
    let options = LoadOptions { repack: false, ..LoadOptions::default() };
    let cache = CacheTypes { keys: TypeId::F32, values: TypeId::F32 };
    let exact = Weights::load(file, &LoadOptions { cache, ..options.clone() });
    exact.unwrap_or_else(|_| Weights::load(file, &options).unwrap_or_else(|e| panic!("{e}")))
}

/// Mean cross-entropy of the tokens from the second on; the logits become their gradients.
fn score(logits: &mut [f64], targets: &[u32]) -> f64 {
    let n_vocab = logits.len() / targets.len();
    let mut loss = 0.0;
    for (row, &target) in logits.chunks_exact_mut(n_vocab).zip(targets) {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|v| exp(v - max)).sum();
        loss += log(sum) + max - row[target as usize];
        row.iter_mut().for_each(|v| *v = exp(*v - max) / sum / targets.len() as f64);
        row[target as usize] -= 1.0 / targets.len() as f64;
    }
    loss / targets.len() as f64
}

/// The loss, the decisions on which side of a kink each unit is and which experts are chosen, and the gradient at the
/// residual stream.
fn pass<'g>(gradient: &'g Gradient<f64>, tokens: &'g [u32]) -> (f64, Vec<usize>, Tape<'g, f64>, Vec<f64>) {
    let (tape, targets) = (gradient.forward(tokens), &tokens[1..]);
    let mut loss = 0.0;
    let mut stream = tape.head(0..targets.len(), |logits| loss = score(logits, targets));
    stream.resize(stream.len() / targets.len() * tokens.len(), 0.0);
    (loss, decisions(gradient, &tape), tape, stream)
}

/// The places where an activation has kinks: in its gate, and in what is gated.
fn kinks(f: Activation) -> [Vec<f32>; 2] {
    match f {
        Activation::Relu | Activation::SquaredRelu => [vec![0.0], vec![]],
        Activation::OpenAiSwiglu => [vec![7.0], vec![-7.0, 7.0]],
        Activation::ClampedSilu(limit) => [vec![limit], vec![-limit, limit]],
        // SiLU is the limit a little above it
        Activation::LimitedSilu(limit) => {
            let mut x = f64::from(limit);
            (0..100).for_each(|_| x = f64::from(limit) * (1.0 + exp(-x)));
            [vec![x as f32], vec![-limit, limit]]
        }
        Activation::Xielu([_, _, _, c]) => [vec![0.0, c], vec![]],
        _ => [vec![], vec![]],
    }
}

fn decisions(gradient: &Gradient<f64>, tape: &Tape<'_, f64>) -> Vec<usize> {
    let mut out = Vec::new();
    for operation in gradient.operations() {
        let places = match &operation.op {
            Op::Choose(_) => {
                out.extend_from_slice(tape.experts(operation.outputs[0]).expect("a choice"));
                continue;
            }
            Op::Cutoff(_) => {
                let above = tape.value(operation.outputs[0]).expect("a value that is kept");
                out.extend(above.iter().map(|above| usize::from(*above > 0.0)));
                continue;
            }
            Op::Activate(f) | Op::Gate(f) => kinks(*f),
            Op::Clamp(bound) => [vec![-bound, *bound], vec![]],
            _ => continue,
        };
        for (value, places) in operation.inputs.iter().zip(places).filter(|(_, places)| !places.is_empty()) {
            let side = |x: &f64| places.iter().filter(|&&place| *x > f64::from(place)).count();
            out.extend(tape.value(*value).expect("a value that is kept").iter().map(side));
        }
    }
    out
}

/// Numbers in -1..1 from a seed.
fn numbers(n: usize, seed: usize) -> Vec<f64> {
    let mut x = seed as u64 * 2 + 1;
    let mut next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (x >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..n).map(|_| next()).collect()
}

/// The slope of the loss along a direction of the weights of a target, and the step that it was taken with: the
/// greatest with which no unit comes to another side of its kink.
fn slope(
    gradient: &mut Gradient<f64>,
    tokens: &[u32],
    target: usize,
    (direction, expected): (&[f64], f64),
    here: &[usize],
) -> Option<(f64, f64)> {
    let kept = gradient.weights_mut(target).expect("a target").to_vec();
    let mut found = None;
    let steps = std::iter::successors(Some(STEP / expected.max(1.0)), |step| Some(step / 10.0));
    for step in steps.take(STEPS) {
        let mut same = true;
        let losses = [1.0, -1.0, 2.0, -2.0].map(|times| {
            let weights = gradient.weights_mut(target).expect("a target");
            let moved = weights.iter_mut().zip(&kept).zip(direction);
            moved.for_each(|((w, kept), d)| *w = kept + times * step * d);
            let (loss, decisions, ..) = pass(gradient, tokens);
            same &= decisions == here;
            loss
        });
        let [right, left, far_right, far_left] = losses;
        let slope = (8.0 * (right - left) - (far_right - far_left)) / (12.0 * step);
        if same {
            found = Some((slope, step));
            break;
        }
    }
    gradient.weights_mut(target).expect("a target").copy_from_slice(&kept);
    found
}

/// The greatest difference between the logits of the pass and the processor's, as a part of the greatest logit.
fn difference_of_logits(model: &Weights, tape: &Tape<'_, f64>, tokens: &[u32]) -> f64 {
    let pool = Pool::new(2).expect("threads");
    let mut session = Session::new(model, &pool, SessionOptions { n_ctx: tokens.len(), n_ubatch: 512 });
    let mut theirs = Vec::new();
    session.eval(tokens, 0, &mut |_, logits| theirs.extend_from_slice(logits)).expect("room for the tokens");
    let mut ours = Vec::new();
    tape.head(0..tokens.len(), |logits| ours = logits.to_vec());
    assert_eq!(ours.len(), theirs.len());
    let largest = ours.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
    let pairs = ours.iter().zip(&theirs);
    pairs.fold(0.0, |m: f64, (a, b)| m.max((a - f64::from(*b)).abs())) / largest
}

/// True if the processor rounds GELU beyond single precision: it is looked up by half floats, which have 11 bits.
fn looks_up(program: &Program) -> bool {
    let gelu = |op: &Op| match op {
        Op::Activate(f) | Op::Gate(f) | Op::GatedProducts(_, f) => *f == Activation::Gelu,
        _ => false,
    };
    program.operations().iter().any(|operation| gelu(&operation.op))
}

fn length(x: &[f64]) -> f64 {
    x.iter().map(|v| v * v).sum::<f64>().sqrt()
}

/// The slopes at every matrix, along a direction that is half random and half the gradient's own: a random one alone is
/// nearly across the gradient, and rounding would hide the slope.
fn check(name: &str, file: &ModelFile, problems: &mut Vec<String>) {
    let model = load(file);
    let mut gradient = model.gradient::<f64>().unwrap_or_else(|e| panic!("{name}: {e}"));
    let tokens = tokens(model.program());
    let mut sums = gradient.zeros(|sum, g| sum + g);
    let (loss, here, tape, stream) = pass(&gradient, &tokens);
    let difference = difference_of_logits(&model, &tape, &tokens);
    let bound = if looks_up(model.program()) || model.config().latent.is_some() { 1e-3 } else { 2e-6 };
    eprintln!("{name}: logits differ by {difference:e}");
    if difference > bound {
        problems.push(format!("{name}: logits differ by {difference}"));
    }
    tape.backward(stream, &mut sums);
    let targets = gradient.targets().to_vec();
    for (i, (target, sums)) in targets.iter().zip(&sums.sums).enumerate() {
        // a file may leave out that there is one expert
        let shape = file.tensor_info(&target.tensor).expect("a tensor").shape.iter().rev().map(|&n| n as usize);
        let several = |shape: Vec<usize>| shape.into_iter().skip_while(|&n| n == 1).collect::<Vec<_>>();
        assert_eq!(several(target.shape()), several(shape.collect()), "{name}: {target:?}");
        let length = length(gradient.weights_mut(i).expect("a target"));
        let random = numbers(sums.len(), i + 1);
        let [of_random, of_slope] = [&random, sums].map(|x| length / self::length(x));
        let direction: Vec<f64> = random.iter().zip(sums).map(|(r, g)| r * of_random + g * of_slope).collect();
        let exact: f64 = sums.iter().zip(&direction).map(|(g, d)| g * d).sum();
        let found = slope(&mut gradient, &tokens, i, (&direction, exact), &here);
        let tensor = &target.tensor;
        let Some((slope, step)) = found else {
            problems.push(format!("{name} {tensor}: no step without a kink"));
            continue;
        };
        let error = (slope - exact).abs();
        let rounding = ROUNDING * loss / step;
        eprintln!("{name} {tensor}: {exact:e} error {error:e} rounding {rounding:e} step {step:e}");
        if error > 1e-8 * exact.abs() + rounding {
            problems.push(format!("{name} {tensor}: {exact} by differences {slope}, step {step}"));
        }
        if exact < 100.0 * rounding {
            problems.push(format!("{name} {tensor}: {exact} says nothing"));
        }
    }
}

#[test]
fn gradients_are_differences_of_the_loss() {
    let pool = Pool::new(2).expect("threads");
    let mut problems = Vec::new();
    pool.install(|| {
        check("llama-dense rotated", &rotated("llama-dense"), &mut problems);
        for name in
            MODELS.iter().filter(|name| SHORT.contains(name) || trine_testkit::is_long() && !NOT_YET.contains(name))
        {
            let file = gguf::model(made(name));
            match load(&file).check_gradient() {
                Ok(()) => check(name, &file, &mut problems),
                Err(e) if SHORT.contains(name) => problems.push(format!("{name}: {e}")),
                Err(_) => {}
            }
        }
    });
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn operations_without_a_derivative_are_named() {
    for (name, what) in [
        ("mamba-dense", "architecture mamba are not supported: there is no derivative of convolve, scan"),
        ("qwen3next-moe", "architecture qwen3next are not supported: there is no derivative of convolve, decay, delta"),
        ("lfm2-dense", "architecture lfm2 are not supported: there is no derivative of convolve"),
        ("llada-dense", "architecture llada are not supported: there is no derivative of attention in both directions"),
    ] {
        let error = load(&gguf::model(made(name))).gradient::<f32>().map(|_| ()).expect_err(name).to_string();
        assert_eq!(error, format!("the model cannot run: gradients of {what}"));
    }
}

#[test]
fn sequences_longer_than_the_positions_are_refused() {
    let file = gguf::model(made("gpt2-dense"));
    let mut fisher = Fisher::load(&file, &PackingOptions::default(), Isa::detect()).expect("a model");
    let error = fisher.add(&[1; 257]).expect_err("256 positions");
    assert_eq!(error.to_string(), "a sequence of 257 tokens is too long: the model's end at 256");
}
