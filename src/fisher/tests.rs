//! The gradients against differences of the loss, the loss against the engine's, and that nothing but
//! the weights and the text decides a bit.

use trine_formats::gguf::write::NewTensor;
use trine_formats::gguf::{ModelFile, PackingOptions, Value};
use trine_formats::types::TypeId;

use super::*;
use crate::exec::gradient::Real;
use crate::kernels::testing::isas;
use crate::math::{exp, log};
use crate::model::toy::{self, Extras, VOCAB, toy};
use crate::model::{LoadOptions, Weights};
use crate::pool::Pool;
use crate::step::{Session, SessionOptions};

const TOKENS: [u32; 11] = [3, 7, 7, 0, 22, 15, 1, 9, 3, 20, 4];

fn variants() -> Vec<(&'static str, ModelFile)> {
    let none = Extras::default();
    let all = Extras { biases: true, scales: true, output: true, ..none };
    // qwen3 applies those of the feed-forward network, qwen2 does not
    let factors = Extras { scales: true, ..none };
    let window = Extras { window: true, ..none };
    [
        ("llama", none),
        ("llama", all),
        ("llama", Extras { fused: true, biases: true, positions: true, ..none }),
        ("qwen2", all),
        ("qwen3", Extras { positions: true, ..none }),
        ("gemma3", Extras { softcap: true, ..window }),
        ("olmo2", Extras { output: true, ..window }),
        ("bitnet", Extras { scales: true, ..none }),
        ("bitnet-b1.58", none),
        ("qwen3", factors),
    ]
    .map(|(arch, extras)| (arch, toy(arch, extras)))
    .into()
}

fn pass<T: Real>(file: &ModelFile) -> Pass<T> {
    let options = LoadOptions { repack: false, ..LoadOptions::default() };
    Pass::of(&Weights::load(file, &options).expect("a model")).expect("gradients")
}

/// The weights of a target.
fn weights(pass: &mut Pass<f64>, index: usize) -> &mut [f64] {
    pass.gradient.weights_mut(index).expect("a target")
}

#[test]
fn gradients_are_the_differences_of_the_loss() {
    let text = long_text();
    for (i, (arch, file)) in variants().into_iter().enumerate() {
        // One that is longer than a block of queries.
        let tokens: &[u32] = if i == 1 { &text[..70] } else { &TOKENS };
        let mut pass = pass::<f64>(&file);
        let mut gradients = pass.gradient.zeros(|sum, g| sum + g);
        pass.add(tokens, &mut gradients).expect("a loss");
        let mut nowhere = pass.gradient.zeros(|sum, _| sum);
        for (index, sums) in gradients.sums.iter().enumerate() {
            let tensor = pass.gradient.targets()[index].tensor.clone();
            let largest = sums.iter().fold(0f64, |m, g| m.max(g.abs()));
            assert!(largest > 1e-6, "{arch} {tensor}");
            for at in (0..sums.len()).step_by(sums.len() / 5) {
                let kept = weights(&mut pass, index)[at];
                let mut loss = |step: f64| {
                    weights(&mut pass, index)[at] = kept + step;
                    pass.add(tokens, &mut nowhere).expect("a loss")
                };
                // Central differences of two widths: what is left is of the fourth order.
                let h = 1e-3;
                let near = loss(h) - loss(-h);
                let wide = loss(2.0 * h) - loss(-2.0 * h);
                let slope = (8.0 * near - wide) / (12.0 * h);
                loss(0.0);
                let error = (slope - sums[at]).abs();
                assert!(
                    error <= 1e-6 * sums[at].abs() + 1e-9 * largest,
                    "{arch} {tensor} {at}: {} by differences {slope}",
                    sums[at]
                );
            }
        }
    }
}

/// The divergence from a model whose weights are a tenth smaller, against its differences; of a model from itself it is
/// nothing.
#[test]
fn gradients_of_divergences_are_their_differences() {
    let file = toy("llama", Extras { biases: true, output: true, ..Extras::default() });
    let (mut ours, mut reference) = (pass::<f64>(&file), pass::<f64>(&file));
    assert!(ours.divergence(&reference, &TOKENS).expect("a divergence").abs() < 1e-14);
    for index in 0..reference.gradient.targets().len() {
        weights(&mut reference, index).iter_mut().for_each(|w| *w *= 0.9);
    }
    let mut gradients = ours.gradient.zeros(|sum, g| sum + g);
    let found = ours.diverge(&reference, &TOKENS, &mut gradients).expect("a divergence");
    assert_eq!(found, ours.divergence(&reference, &TOKENS).expect("a divergence"));
    assert!(found > 1e-4, "{found}");
    for (index, sums) in gradients.sums.iter().enumerate() {
        let largest = sums.iter().fold(0f64, |m, g| m.max(g.abs()));
        for at in (0..sums.len()).step_by(sums.len() / 5) {
            let kept = weights(&mut ours, index)[at];
            let mut moved = |step: f64| {
                weights(&mut ours, index)[at] = kept + step;
                ours.divergence(&reference, &TOKENS).expect("a divergence")
            };
            let h = 1e-3;
            let slope = (8.0 * (moved(h) - moved(-h)) - (moved(2.0 * h) - moved(-2.0 * h))) / (12.0 * h);
            moved(0.0);
            let error = (slope - sums[at]).abs();
            assert!(error <= 1e-6 * sums[at].abs() + 1e-8 * largest, "{index} {at}: {} {slope}", sums[at]);
        }
    }
}

/// The loss by the engine's own forward pass, which rounds keys, values and probabilities to half.
fn engine_loss(file: &ModelFile, tokens: &[u32]) -> f64 {
    let model = Weights::load(file, &LoadOptions::default()).expect("a model");
    let options = SessionOptions { n_ctx: tokens.len(), n_ubatch: tokens.len() };
    let mut session = Session::new(&model, &Pool::new(1).expect("threads"), options);
    let mut total = 0.0;
    let mut score = |i: usize, logits: &[f32]| {
        if let Some(&next) = tokens.get(i + 1) {
            let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = logits.iter().map(|&l| exp((l - max).into())).sum();
            total += log(sum) - f64::from(logits[next as usize] - max);
        }
    };
    session.eval(tokens, 0, &mut score).expect("logits");
    total / (tokens.len() - 1) as f64
}

#[test]
fn the_loss_is_that_of_the_engine() {
    for (arch, file) in variants() {
        let ours = pass::<f32>(&file);
        let mut nowhere = ours.gradient.zeros(|sum, _| sum);
        let ours = ours.add(&TOKENS, &mut nowhere).expect("a loss");
        let theirs = engine_loss(&file, &TOKENS);
        assert!((ours / theirs - 1.0).abs() < 2e-3, "{arch}: {ours} {theirs}");
    }
}

fn long_text() -> Vec<u32> {
    (0..300).map(|i: u32| i * i * 7 % VOCAB as u32).collect()
}

#[test]
fn squares_of_sequences_are_added_in_single_precision() {
    let file = toy("llama", Extras::default());
    let wide = pass::<f64>(&file);
    let mut fisher = Fisher::load(&file, &PackingOptions::default(), Isa::detect()).expect("a model");
    let mut want = wide.gradient.zeros(|sum, g| sum + g * g);
    let text = long_text();
    for sequence in [&text[..150], &text[150..], &TOKENS] {
        let loss = fisher.add(sequence).expect("a loss");
        let exact = wide.add(sequence, &mut want).expect("a loss");
        assert!((loss / exact - 1.0).abs() < 1e-6, "{loss} {exact}");
    }
    for (sums, want) in fisher.sums().iter().zip(&want.sums) {
        let largest = want.iter().fold(0f64, |m, &s| m.max(s));
        for (&s, &w) in sums.iter().zip(want) {
            let error = (f64::from(s) - w).abs();
            assert!(error < 1e-4 * w + 1e-7 * largest, "{s} {w}");
        }
    }
    assert!(fisher.overflow().is_none());
    fisher.sums_mut()[3][1] = f32::INFINITY;
    assert_eq!(fisher.overflow().map(|t| t.tensor.as_str()), Some("blk.0.attn_output.weight"));
}

#[test]
fn neither_threads_nor_instruction_sets_change_a_bit() {
    let file = toy("gemma3", Extras { window: true, softcap: true, ..Extras::default() });
    let run = |isa: Isa, threads: usize| -> (u64, Vec<u32>) {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.expect("threads").install(|| {
            let mut fisher = Fisher::load(&file, &PackingOptions::default(), isa).expect("a model");
            let text = long_text();
            let loss = fisher.add(&text).expect("a loss");
            let sums = fisher.sums().iter().flatten();
            (loss.to_bits(), sums.map(|s| s.to_bits()).collect())
        })
    };
    let want = run(Isa::scalar(), 1);
    for (isa, threads) in isas().zip([4, 3, 2]) {
        assert!(run(isa, threads) == want, "{isa:?}, {threads} threads");
    }
}

#[test]
fn what_gives_no_gradient_is_named() {
    let file = toy("llama", Extras::default());
    let mut fisher = Fisher::load(&file, &PackingOptions::default(), Isa::detect()).expect("a model");
    let error = |e: SequenceError| e.to_string();
    assert_eq!(error(fisher.add(&[1]).unwrap_err()), "a sequence of 1 tokens predicts nothing; it needs at least 2");
    assert_eq!(error(fisher.add(&[1, 23]).unwrap_err()), "token 23 at index 1 is outside the vocabulary of 23");
}

/// The file of one architecture under the name of another, with more keys and one more tensor.
fn renamed(file: &ModelFile, from: &str, to: &str, keys: &[(&str, Value)], more: &[&str]) -> ModelFile {
    let mut meta = file.meta().clone();
    for (key, value) in file.meta().iter() {
        let key = key.replace(&format!("{from}."), &format!("{to}."));
        meta.set(&key, value.clone());
    }
    meta.set("general.architecture", Value::str(to));
    for (key, value) in keys {
        meta.set(&format!("{to}.{key}"), value.clone());
    }
    let tensors = file.tensors().map(|t| {
        let data = file.tensor_data(t).expect("data").to_vec();
        (t.into(), data)
    });
    let more = more.iter().map(|name| {
        let info = NewTensor::new(*name, [1], TypeId::F32);
        (info, 1f32.to_le_bytes().to_vec())
    });
    toy::assemble(&meta, tensors.chain(more).collect())
}

fn problems(file: &ModelFile) -> Vec<String> {
    match Fisher::load(file, &PackingOptions::default(), Isa::detect()) {
        Err(ModelError::Invalid(problems)) => problems.iter().map(ToString::to_string).collect(),
        other => panic!("{:?}", other.err()),
    }
}

#[test]
fn what_is_missing_or_left_over_is_named_at_once() {
    let file = toy("llama", Extras::default());
    let missing = problems(&renamed(&file, "llama", "gemma3", &[], &[]));
    assert_eq!(missing.len(), 8);
    assert!(missing.contains(&"tensor blk.1.post_ffw_norm.weight is missing".to_owned()));
    // what the reference ignores is ignored here too
    let ignored = ["blk.0.attn_q.input_scale", "blk.1.ffn_sub_norm.weight", "blk.0.attn_k.beta"];
    assert_eq!(
        problems(&renamed(&file, "llama", "llama", &[], &ignored)),
        ["the architecture has no place for blk.1.ffn_sub_norm.weight, blk.0.attn_k.beta"]
    );
    // a bias that the architecture's graph does not add
    let bitnet = toy("bitnet", Extras::default());
    assert_eq!(
        problems(&renamed(&bitnet, "bitnet", "bitnet", &[], &["blk.0.attn_output.bias"])),
        ["the architecture has no place for blk.0.attn_output.bias"]
    );
}
