//! Models whose matrices several emulated GPUs share by their rows: their logits are those of the CPU for any shares.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use trine::NumberPath;
use trine::exec::{Gpu, Offload, Sharing};
use trine::model::{LoadOptions, Weights};
use trine::pool::Pool;
use trine::quant::anyprec::outliers::{Rule, Shares};
use trine::step::{Session, SessionOptions};
use trine_compat_tests::models::{self, TRILM};
use trine_compat_tests::ptx::Emulated;
use trine_cuda::run::Shared;
use trine_formats::gguf::ModelFile;
use trine_testkit::is_long;

use super::anyprec;
use super::archs::{made_as, made_with};
use super::devices::{ALL, MUCH};
use super::model::{conversation, file, hashes, on_cpu};

/// How a model is loaded on GPUs that share rows.
fn options(gpus: Vec<Emulated>, shares: &[f32], layers: usize) -> LoadOptions {
    let gpus = gpus.into_iter().enumerate();
    let gpu = |(number, device)| Gpu { name: format!("cuda:{number}"), host: Arc::new(Shared::new(device)) };
    let offload = Offload::among(gpus.map(gpu).collect(), shares, layers).expect("shares");
    LoadOptions { offload: Some(Offload { sharing: Sharing::Rows, ..offload }), ..LoadOptions::default() }
}

fn emulated(count: usize) -> Vec<Emulated> {
    (0..count).map(|_| Emulated::new().expect("PTX")).collect()
}

/// The model with its last `layers` layers on as many GPUs as there are shares.
pub fn shared(file: &ModelFile, shares: &[f32], layers: usize) -> Weights {
    let options = options(emulated(shares.len()), shares, layers);
    Weights::load(file, &options).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn no_share_of_rows_changes_a_bit() {
    let tokens = [1, 437, 2025];
    let cuts: &[(&str, &[f32], usize, usize)] = &[
        ("TQ2_0", &[3.0, 1.0], ALL, 2),
        ("TQ2_0", &[1.0, 0.0, 2.0, 2.0], 3, 1),
        ("Q8_0", &[1.0, 2.0, 1.5], ALL, 2),
        // More, where there is time.
        ("Q4_0", &[1.0, 1.0], ALL, 1),
        ("TQ1_0", &[1.0, 1.0], 2, 3),
        ("I2_S", &[1.0, 3.0, 1.0], ALL, 3),
        ("F16", &[1.0, 1.0], ALL, 2),
        ("TQ2_0", &[1.0, 0.0], ALL, 2),
    ];
    for &(ty, shares, layers, n_ubatch) in if is_long() { cuts } else { &cuts[..3] } {
        let file = file(TRILM, ty);
        let expected = models::logits_sha256(&on_cpu(&file), &tokens).expect("logits");
        let found = hashes(&shared(&file, shares, layers), &tokens, n_ubatch);
        assert_eq!(found, expected, "{ty}, shares {shares:?}, {layers} layers");
    }
}

#[test]
fn rows_of_experts_heads_and_recurrent_layers_are_shared() {
    let cases: &[(&str, &str, &[f32])] = &[
        ("llama-8x2", "Q8_0", &[2.0, 1.0]),
        ("olmoe-moe", "F16", &[1.0, 1.0, 1.0]),
        ("deepseek2-long", "Q8_0", &[1.0, 1.0]),
        ("mamba2-dense", "Q8_0", &[1.0, 2.0]),
        ("qwen3next-moe", "Q4_0", &[1.0, 1.0]),
        ("hy_v4-moe", "F16", &[1.0, 2.0]),
    ];
    for &(name, ty, shares) in cases {
        let tokens = [3, 60, 101, 7, 9];
        let (model, file) = made_as(&format!("{name}.txt"), ty).expect("a model");
        let expected = models::logits_sha256(&model, &tokens).expect("logits");
        for n_ubatch in [1, 3] {
            let found = hashes(&shared(&file, shares, ALL), &tokens, n_ubatch);
            assert_eq!(found, expected, "{name} as {ty}, shares {shares:?}, {n_ubatch} tokens at a time");
        }
    }
}

#[test]
fn rows_of_any_precision_weights_are_shared_at_every_width() {
    let check = |file: &ModelFile, number_path: NumberPath, shares: &[f32], widths: &[u8]| {
        let tokens = anyprec::tokens(3);
        let plain = LoadOptions { number_path, ..LoadOptions::default() };
        let expected = anyprec::hashes(&Weights::load(file, &plain).expect("a model"), &tokens, widths);
        let options = LoadOptions { number_path, ..options(emulated(shares.len()), shares, ALL) };
        let model = Weights::load(file, &options).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(anyprec::hashes(&model, &tokens, widths), expected, "{number_path:?}, shares {shares:?}");
    };
    let (_, file) = made_as("llama-dense.txt", "AP3-8").expect("a model");
    check(&file, NumberPath::I16, &[2.0, 1.0, 1.0], &[3, 8, 4]);
    check(&file, NumberPath::F32, &[1.0, 1.0], &[5]);
    // Weights that are stored as they are belong to rows too.
    let mut recipe = trine::Recipe::new(trine::Target::parse("SQ4").expect("a type"));
    recipe.anyprec.outliers = Some(Shares::default_of(Rule::SqueezeLlm));
    check(&made_with("qwen2-dense.txt", &recipe), NumberPath::I16, &[1.0, 2.0], &[4]);
}

#[test]
fn sequences_share_pages_and_states_on_every_device() {
    let file = file(TRILM, "TQ2_0");
    let expected = conversation(&on_cpu(&file));
    let found = conversation(&shared(&file, &[1.0, 2.0], 4));
    assert_eq!(found.logits, expected.logits);
    assert_eq!(found.hidden, expected.hidden);
}

/// A LLaMA exchanges four times in a layer, with two devices: queries with keys and values, outputs of attention, gated
/// values, and outputs of the layer. Stretches between exchanges are graphs when a shape comes again.
#[test]
fn products_of_the_same_rows_are_exchanged_together() {
    let file = file(TRILM, "TQ2_0");
    let gpus = emulated(2);
    let counts: Vec<_> = gpus.iter().map(|gpu| (gpu.sent.clone(), gpu.started.clone())).collect();
    let model = Weights::load(&file, &options(gpus, &[1.0, 1.0], ALL)).expect("a model");
    let tokens = [1, 437, 2025];
    assert_eq!(hashes(&model, &tokens, 1), models::logits_sha256(&on_cpu(&file), &tokens).expect("logits"));
    for (sent, started) in counts {
        // Seven matrices of each of six layers, of which one multiplies gates where it is, and that of the logits, for three
        // tokens.
        assert_eq!(sent.load(Ordering::Relaxed), 3 * (6 * 6 + 1));
        // Four exchanges of each layer end a stretch, and so do the pass and the logits; the exchange of these is the last.
        assert_eq!(started[1].load(Ordering::Relaxed), 2 * (4 * 6 + 1 + 1));
    }
}

#[test]
fn a_copy_that_is_left_out_is_found() {
    let file = file(TRILM, "TQ2_0");
    let tokens = [1, 437, 2025];
    let expected = models::logits_sha256(&on_cpu(&file), &tokens).expect("logits");
    // In the first pass nobody has written what does not arrive; later it is what arrived before.
    for left_out in [0, 37 + 11, 2 * 37 + 36] {
        let mut gpus = emulated(2);
        gpus[1].left_out = Some(left_out);
        let model = Weights::load(&file, &options(gpus, &[1.0, 1.0], ALL)).expect("a model");
        let found = std::panic::catch_unwind(AssertUnwindSafe(|| hashes(&model, &tokens, 1)));
        assert!(found.is_err() || found.is_ok_and(|found| found != expected), "copy {left_out}");
    }
}

#[test]
fn weights_are_where_their_rows_are() {
    let file = file(TRILM, "Q8_0");
    let refused = |free: [u64; 2], shares: &[f32]| {
        let mut gpus = emulated(2);
        gpus.iter_mut().zip(free).for_each(|(gpu, free)| gpu.free = free);
        let model = Weights::load(&file, &options(gpus, shares, ALL)).expect("a model");
        let pool = Pool::new(1).expect("a thread");
        let options = SessionOptions { n_ctx: 32, n_ubatch: 4 };
        let done = Session::new(&model, &pool, options).prepare();
        done.map_err(|e| e.to_string()).expect_err("a refusal")
    };
    // Mebibytes of weights by the table.
    let weights = |text: &str| -> f64 {
        let (_, rest) = text.split_once("(weights ").expect("a table");
        rest.split_once(' ').expect("a number").0.parse().expect("a number")
    };
    let text = refused([MUCH, 1000], &[3.0, 1.0]);
    assert!(text.starts_with("cuda:1: the model needs ") && !text.contains('\n'), "{text}");
    let (all, most) = (weights(&refused([1000, MUCH], &[1.0, 0.0])), weights(&refused([1000, MUCH], &[3.0, 1.0])));
    let least = weights(&text);
    // Both have the table of embeddings; of everything else one has three times as much as the other.
    let table = most + least - all;
    assert!(0.0 < table && table < least && least < most && most < all, "{least} {most} {all}");
    let ratio = (most - table) / (least - table);
    assert!((2.5..3.5).contains(&ratio), "{least} {most} {all}");
}

#[test]
fn activations_in_half_precision_are_refused() {
    let file = file(TRILM, "TQ2_0");
    let options = LoadOptions { number_path: NumberPath::Fast, ..options(emulated(2), &[1.0, 1.0], ALL) };
    let text = Weights::load(&file, &options).err().expect("a refusal").to_string();
    assert!(text.contains("half precision") && !text.contains('\n'), "{text}");
}
