//! States of recurrent layers on the emulated GPU: sequences side by side, forks, marks, cuts, and more of them than
//! there are slots.

use trine::model::Weights;
use trine::pool::Pool;
use trine::step::{Engine, Segment, StepOptions};
use trine_compat_tests::models;
use trine_compat_tests::ptx::Emulated;
use trine_testkit::{is_long, sha256};

use super::archs::made_as;
use super::devices::{ALL, MUCH, on_gpus};
use super::model::{hashes, on_gpu};
use super::rows::shared;
use trine::kv::Sequence;

/// The hashes of the logits of a conversation with an engine for so many sequences at a time.
fn conversation(model: &Weights, sequences: usize) -> Vec<String> {
    let pool = Pool::new(1).expect("a thread");
    let engine = Engine::new(model, &pool, 40 * model.page_layout().bytes()).with_sequences(sequences);
    let options = StepOptions { n_ctx: 64, n_ubatch: 4, ..StepOptions::default() };
    let mut heard = Vec::new();
    let mut step = |parts: &mut [(&mut Sequence, &[u32])]| {
        let segments = parts.iter_mut().map(|(seq, tokens)| Segment { seq, tokens, logits_from: 0 });
        let mut all: Vec<Vec<String>> = parts_of(segments.len());
        let segments = &mut segments.collect::<Vec<_>>();
        let done = engine.step(segments, &options, &mut |segment, _, logits| {
            let bytes: Vec<u8> = logits.iter().flat_map(|x| x.to_le_bytes()).collect();
            all[segment].push(sha256(&bytes));
        });
        done.unwrap_or_else(|e| panic!("{e}"));
        heard.extend(all.into_iter().flatten());
    };
    let [mut a, mut b] = [engine.sequence(), engine.sequence()];
    step(&mut [(&mut a, &[3, 60, 101]), (&mut b, &[7, 8])]);
    // A fork goes its own way, and so does what it comes from.
    let mut fork = a.fork(3);
    step(&mut [(&mut fork, &[9]), (&mut a, &[11]), (&mut b, &[12])]);
    // More sequences than slots; all of them go on.
    let mut others = [engine.sequence(), engine.sequence(), engine.sequence()];
    for (i, other) in others.iter_mut().enumerate() {
        step(&mut [(other, &[20 + i as u32, 5])]);
    }
    let [c, d, _] = &mut others;
    step(&mut [(c, &[1]), (&mut a, &[2]), (d, &[3]), (&mut fork, &[4])]);
    // Back to a mark, and on in another way.
    let mark = a.mark();
    step(&mut [(&mut a, &[30, 31])]);
    a.restore(mark);
    step(&mut [(&mut a, &[32])]);
    // A cut state is none.
    assert_eq!(b.truncate(1), 0);
    step(&mut [(&mut b, &[7])]);
    heard
}

fn parts_of(count: usize) -> Vec<Vec<String>> {
    vec![Vec::new(); count]
}

/// The conversation of a model, with so many sequences in a pass of a GPU, beside that of the processor.
fn states_are_kept_apart(name: &str, layers: usize, several: &[usize]) {
    let (model, file) = made_as(&format!("{name}.txt"), "F16").expect("a model");
    let expected = conversation(&model, 16);
    assert_eq!(expected.len(), 22);
    for &sequences in several {
        let found = conversation(&on_gpu(&file, Emulated::new().expect("PTX"), layers), sequences);
        assert_eq!(found, expected, "{name}, {sequences} sequences at a time");
    }
}

/// Sequences in a pass.
fn several() -> &'static [usize] {
    if is_long() { &[16, 1, 2] } else { &[16, 1] }
}

#[test]
fn sequences_keep_their_states_apart_wherever_they_lie() {
    // convolutions and scans alone
    states_are_kept_apart("mamba2-dense", usize::MAX, several());
}

#[test]
fn states_beside_attention_are_kept_apart() {
    states_are_kept_apart("granitehybrid-long", 2, several());
}

#[test]
fn what_n_grams_and_compressed_keys_need_is_kept_apart() {
    states_are_kept_apart("qwen4exp-long", usize::MAX, &[1]);
    states_are_kept_apart("deepseek4-long", usize::MAX, &[2]);
}

/// A state has a part on each GPU, and all parts are copied, wait and come back together.
fn states_lie_on_two_gpus(name: &str) {
    let (model, file) = made_as(&format!("{name}.txt"), "F16").expect("a model");
    let expected = conversation(&model, 16);
    // Blocks on both.
    let model = on_gpus(&file, &[MUCH; 2], &[1.0, 2.0], ALL).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(conversation(&model, 1), expected, "{name}");
    // Both have all states where they share rows of matrices.
    let model = shared(&file, &[1.0, 2.0], ALL);
    assert_eq!(conversation(&model, 1), expected, "{name}, rows");
}

#[test]
fn states_of_scans_lie_on_two_gpus() {
    states_lie_on_two_gpus("mamba2-dense");
}

#[test]
fn states_of_delta_rules_lie_on_two_gpus() {
    states_lie_on_two_gpus("qwen35-dense");
}

#[test]
fn states_on_a_gpu_are_not_saved() {
    let (model, file) = made_as("mamba2-dense.txt", "F16").expect("a model");
    let pool = Pool::new(1).expect("a thread");
    let saved = |model: &Weights| Engine::new(model, &pool, 1 << 20).sequence().write(&mut Vec::new());
    saved(&model).expect("bytes");
    let refused = saved(&on_gpu(&file, Emulated::new().expect("PTX"), usize::MAX)).expect_err("a refusal");
    assert!(refused.to_string().contains("--device cpu"), "{refused}");
}

/// A text that is longer than windows and blocks, in pieces.
#[test]
fn compressed_keys_of_a_long_text() {
    let (model, file) = made_as("deepseek4-long.txt", "F16").expect("a model");
    // One block of four positions behind the window, or one of 128 too.
    let tokens: Vec<u32> = (0..if is_long() { 141 } else { 39 }).map(|i| (i * 37 + 3) % 128).collect();
    let expected = models::logits_sha256(&model, &tokens).expect("logits");
    let found = hashes(&on_gpu(&file, Emulated::new().expect("PTX"), usize::MAX), &tokens, 7);
    assert_eq!(found, expected);
}

/// Adapters that tokens switch on, and what the processor hands over of them, with any layers on a GPU.
#[test]
fn adapters_are_switched_on_by_the_processor() {
    let (model, file) = made_as("graniteswitch-long.txt", "F16").expect("a model");
    // 18, 152 and 26 switch adapters on.
    let tokens = [3, 18, 60, 5, 152, 7, 8, 26, 9, 100, 18, 4];
    let expected = models::logits_sha256(&model, &tokens).expect("logits");
    for layers in [usize::MAX, 2] {
        let found = hashes(&on_gpu(&file, Emulated::new().expect("PTX"), layers), &tokens, 5);
        assert_eq!(found, expected, "{layers} layers");
    }
    let model = on_gpus(&file, &[MUCH; 2], &[1.0, 1.0], ALL).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(hashes(&model, &tokens, 5), expected, "two GPUs");
}
