//! Models whose layers are cut over several emulated GPUs: their logits are those of the CPU at any cut.

use std::sync::Arc;

use trine::exec::{Gpu, Offload};
use trine::model::{LoadOptions, Weights};
use trine::pool::Pool;
use trine::step::{Engine, Segment, Session, SessionOptions, StepOptions};
use trine_compat_tests::models::{self, TRILM};
use trine_compat_tests::ptx::Emulated;
use trine_cuda::run::Shared;
use trine_formats::gguf::ModelFile;
use trine_testkit::is_long;

use super::archs::made_as;
use super::model::{conversation, file, hashes, on_cpu};

/// The model with its last `layers` layers on as many GPUs as there are bytes of free memory.
pub fn on_gpus(file: &ModelFile, free: &[u64], shares: &[f32], layers: usize) -> Result<Weights, String> {
    let gpu = |(number, free): (usize, &u64)| {
        let mut device = Emulated::new().expect("PTX");
        device.free = *free;
        Gpu { name: format!("cuda:{number}"), host: Arc::new(Shared::new(device)) }
    };
    let gpus = free.iter().enumerate().map(gpu).collect();
    let offload = Offload::among(gpus, shares, layers).map_err(|e| e.to_string())?;
    let options = LoadOptions { offload: Some(offload), ..LoadOptions::default() };
    Weights::load(file, &options).map_err(|e| e.to_string())
}

pub const ALL: usize = usize::MAX;
/// Free memory of a GPU with much of it.
pub const MUCH: u64 = 1 << 40;

#[test]
fn no_cut_over_devices_changes_a_bit() {
    let tokens = [1, 437, 2025];
    let file = file(TRILM, "TQ2_0");
    let expected = models::logits_sha256(&on_cpu(&file), &tokens).expect("logits");
    let cuts: &[(usize, &[f32], usize)] = &[
        (2, &[], ALL),
        (2, &[3.0, 1.0], ALL),
        (3, &[1.0, 1.0, 1.0], ALL),
        // The logits alone on the second, and layers before the first on the processor.
        (2, &[1.0, 1.0], 2),
        (3, &[1.0, 0.0, 2.0], 4),
    ];
    let cuts = if is_long() { cuts } else { &cuts[1..4] };
    for &(devices, shares, layers) in cuts {
        let model = on_gpus(&file, &vec![MUCH; devices], shares, layers).expect("a model");
        assert_eq!(hashes(&model, &tokens, 2), expected, "{devices} devices, shares {shares:?}, {layers} layers");
    }
}

#[test]
fn sequences_share_pages_on_every_device() {
    let file = file(TRILM, "TQ2_0");
    let expected = conversation(&on_cpu(&file));
    let found = conversation(&on_gpus(&file, &[MUCH; 2], &[1.0, 2.0], 4).expect("a model"));
    assert_eq!(found.logits, expected.logits);
    assert_eq!(found.hidden, expected.hidden);
}

#[test]
fn values_that_several_blocks_read_go_from_device_to_device() {
    let tokens = [3, 60, 101];
    // Several streams, and streams beside which embeddings go on.
    for name in ["hy_v4-moe", "hrm_text-dense"] {
        let (model, file) = made_as(&format!("{name}.txt"), "F16").expect("a model");
        let expected = models::logits_sha256(&model, &tokens).expect("logits");
        for (shares, layers) in [(&[2.0, 1.0][..], ALL), (&[1.0, 1.0], 2)] {
            let model = on_gpus(&file, &[MUCH; 2], shares, layers).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(hashes(&model, &tokens, 2), expected, "{name}, shares {shares:?}, {layers} layers");
        }
    }
}

#[test]
fn layers_that_share_keys_stay_together() {
    let tokens = [3, 60, 101];
    // Its last layers attend to the keys of an earlier one, and every block reads a vector of the token.
    let (model, file) = made_as("gemma4-small.txt", "F16").expect("a model");
    let refused = on_gpus(&file, &[MUCH; 2], &[2.0, 1.0], ALL).err().expect("a refusal");
    assert!(refused.contains("keys and values of layers that it does not run"), "{refused}");
    let expected = models::logits_sha256(&model, &tokens).expect("logits");
    let model = on_gpus(&file, &[MUCH; 2], &[100.0, 1.0], ALL).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(hashes(&model, &tokens, 2), expected);
}

#[test]
fn memory_is_counted_for_each_device_before_any_is_allocated() {
    let file = file(TRILM, "TQ2_0");
    let started = |free: &[u64], shares: &[f32]| {
        let model = on_gpus(&file, free, shares, ALL).expect("a model");
        let pool = Pool::new(1).expect("a thread");
        let options = SessionOptions { n_ctx: 32, n_ubatch: 4 };
        Session::new(&model, &pool, options).prepare().map_err(|e| e.to_string())
    };
    let text = started(&[MUCH, 1000], &[1.0, 1.0]).expect_err("a refusal");
    assert!(text.starts_with("cuda:1: the model needs ") && !text.contains('\n'), "{text}");
    assert!(text.contains("(weights ") && text.contains(", and 1000 are free;"), "{text}");
    // Whoever has no share needs no memory, and without shares a device has layers by its memory.
    started(&[MUCH, 1000], &[1.0]).expect("room");
    started(&[MUCH, 1000], &[]).expect("room");
}

#[test]
fn sequences_that_are_read_in_both_directions_share_a_pass() {
    let (model, file) = made_as("dream-dense.txt", "F16").expect("a model");
    let logits = |model: &Weights| {
        let pool = Pool::new(1).expect("a thread");
        let engine = Engine::new(model, &pool, 8 * model.page_layout().bytes().max(1 << 16));
        let (mut a, mut b) = (engine.sequence(), engine.sequence());
        let tokens: [&[u32]; 2] = [&[5, 9, 30, 77, 12], &[40, 17, 3]];
        let pairs = [&mut a, &mut b].into_iter().zip(tokens);
        let mut segments: Vec<_> = pairs.map(|(seq, tokens)| Segment { seq, tokens, logits_from: 0 }).collect();
        let options = StepOptions { n_ctx: 64, n_ubatch: 8, ..StepOptions::default() };
        let mut all = Vec::new();
        let mut sink = |segment: usize, i: usize, x: &[f32]| {
            all.push((segment, i, x.iter().map(|x| x.to_bits()).collect::<Vec<_>>()))
        };
        engine.step(&mut segments, &options, &mut sink).expect("a step");
        all
    };
    let expected = logits(&model);
    assert_eq!(expected.len(), 8);
    let found = logits(&on_gpus(&file, &[MUCH; 2], &[1.0, 1.0], ALL).expect("a model"));
    assert!(found == expected);
}
