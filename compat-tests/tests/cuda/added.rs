//! Adapters, control vectors, and types of keys and values of whole models: on the emulated GPU logits are those of the CPU.

use std::path::Path;
use std::sync::Arc;

use trine::exec::Offload;
use trine::kv::{CacheTypes, Sequence};
use trine::model::{Adapter, Control, LoadOptions, Weights};
use trine::pool::Pool;
use trine::step::{Engine, Segment, StepOptions};
use trine_compat_tests::inputs::Rng;
use trine_compat_tests::models::TRILM;
use trine_compat_tests::ptx::{Emulated, Schedule};
use trine_cuda::ptx::BETWEEN;
use trine_cuda::run::Shared;
use trine_formats::gguf::write::NewTensor;
use trine_formats::gguf::{Metadata, ModelFile, Value};
use trine_formats::types::TypeId;
use trine_testkit::{gguf, is_long, testdata};

use super::archs::made_as;
use super::mistakes::with_mistake;
use super::model::{ALL, Heard, conversation, file, hashes};

/// The model with some of its last layers on a GPU; none: on the processor.
fn loaded(file: &ModelFile, options: &LoadOptions, gpu: Option<(Emulated, usize)>) -> Weights {
    let offload = gpu.map(|(device, layers)| Offload::one(Arc::new(Shared::new(device)), layers));
    let options = LoadOptions { offload, ..options.clone() };
    Weights::load(file, &options).unwrap_or_else(|e| panic!("{e}"))
}

fn emulated(schedule: Schedule) -> Emulated {
    let mut device = Emulated::new().expect("PTX");
    device.schedule = schedule;
    device
}

fn cached(keys: TypeId, values: TypeId) -> LoadOptions {
    LoadOptions { cache: CacheTypes { keys, values }, ..LoadOptions::default() }
}

#[test]
fn keys_and_values_of_all_types_have_the_bits_of_the_cpu() {
    let file = file(TRILM, "TQ2_0");
    let tokens = [1, 437, 2025];
    let usual = hashes(&loaded(&file, &LoadOptions::default(), None), &tokens, 3);
    for (i, (keys, values)) in [
        (TypeId::Q8_0, TypeId::Q8_0),
        (TypeId::F32, TypeId::Q4_0),
        (TypeId::Q5_1, TypeId::BF16),
        (TypeId::Q4_1, TypeId::F32),
    ]
    .into_iter()
    .enumerate()
    {
        let options = cached(keys, values);
        let expected = hashes(&loaded(&file, &options, None), &tokens, 3);
        assert_ne!(expected, usual);
        let (layers, schedule) = [(ALL, Schedule::InTurn), (3, Schedule::Random(2))][i % 2];
        let found = hashes(&loaded(&file, &options, Some((emulated(schedule), layers))), &tokens, 2);
        assert_eq!(found, expected, "{keys} and {values}");
    }
}

#[test]
fn sequences_share_and_copy_pages_of_any_types() {
    let file = file(TRILM, "TQ2_0");
    for (keys, values) in [(TypeId::Q5_0, TypeId::Q4_1), (TypeId::Q4_0, TypeId::F16)] {
        let options = cached(keys, values);
        let expected = conversation(&loaded(&file, &options, None));
        let found = conversation(&loaded(&file, &options, Some((emulated(Schedule::Last(0)), 3))));
        assert_eq!(found.logits, expected.logits, "{keys} and {values}");
        assert_eq!(found.hidden, expected.hidden);
    }
}

#[test]
fn windows_sinks_slopes_and_caps_go_with_the_types_that_models_take() {
    let (q8_0, q4_1) = (TypeId::Q8_0, TypeId::Q4_1);
    for (name, keys, values) in [
        ("gpt-oss-moe", q8_0, TypeId::Q5_0),
        ("bloom-dense", q4_1, q8_0),
        ("gemma2-dense", q8_0, TypeId::BF16),
        ("gemma3-dense", TypeId::BF16, q4_1),
    ] {
        let (_, file) = made_as(&format!("{name}.txt"), "F16").expect("a model");
        // More than a window of 32 where there is one.
        let tokens: Vec<u32> = (0..36).map(|i| (i * 37 + 3) % 120).collect();
        let tokens = if is_long() || name == "gemma3-dense" { &tokens[..] } else { &tokens[..4] };
        let options = LoadOptions { repack: false, ..cached(keys, values) };
        let expected = hashes(&loaded(&file, &options, None), tokens, 36);
        let found = hashes(&loaded(&file, &options, Some((emulated(Schedule::Random(3)), ALL))), tokens, 36);
        assert_eq!(found, expected, "{name}, {keys} and {values}");
    }
}

/// The adapters and control vectors of the bundled model of three values.
fn added(name: &str, scale: f32) -> Adapter {
    Adapter { file: Arc::new(gguf::open(&testdata("adapters").join(name))), scale }
}

#[test]
fn adapters_and_control_vectors_have_the_bits_of_the_cpu() {
    let tokens = [1, 437];
    let adapters = vec![added("lora-f32.gguf", 0.75), added("lora-second.gguf", -1.5), added("lora-mixed.gguf", 0.5)];
    let control = Control { vectors: vec![added("control.gguf", 0.5)], blocks: (0, 0) };
    let both = LoadOptions { adapters, control, ..LoadOptions::default() };
    for (ty, options, layers) in [
        ("F16", both.clone(), ALL),
        ("TQ2_0", LoadOptions { control: Control::default(), ..both.clone() }, 3),
        ("TQ2_0", LoadOptions { adapters: Vec::new(), ..both }, ALL),
    ] {
        let file = file(TRILM, ty);
        let usual = hashes(&loaded(&file, &LoadOptions::default(), None), &tokens, 2);
        let expected = hashes(&loaded(&file, &options, None), &tokens, 2);
        assert_ne!(expected, usual);
        let found = hashes(&loaded(&file, &options, Some((emulated(Schedule::Random(1)), layers))), &tokens, 2);
        assert_eq!(found, expected, "{ty}, {layers} layers");
    }
}

/// Logits of steps with other factors of adapters, which share the memory of one GPU.
fn with_factors(model: &Weights, all: &[Option<Vec<f32>>]) -> Vec<Vec<u32>> {
    let pool = Pool::new(1).expect("a thread");
    let engine = Engine::new(model, &pool, 8 * model.page_layout().bytes());
    let mut logits = Vec::new();
    for scales in all {
        let adapters = scales.clone().map(Into::into);
        let options = StepOptions { n_ctx: 64, n_ubatch: 8, adapters, ..StepOptions::default() };
        let mut seq = engine.sequence();
        let segment = Segment { seq: &mut seq, tokens: &[5], logits_from: 0 };
        let sink = &mut |_: usize, _: usize, row: &[f32]| logits.push(row.iter().map(|x| x.to_bits()).collect());
        engine.step(&mut [segment], &options, sink).expect("a step");
    }
    logits
}

#[test]
fn steps_have_factors_of_their_own() {
    let file = file(TRILM, "TQ2_0");
    let adapters = vec![added("lora-f32.gguf", 1.0), added("lora-second.gguf", 1.0)];
    let options = LoadOptions { adapters, ..LoadOptions::default() };
    // Those of the model, others, one that is left out, and twice the same.
    let all = [None, Some(vec![0.5, -2.0]), Some(vec![0.0, 3.0]), Some(vec![0.0, 3.0]), Some(vec![0.0, 0.0])];
    let expected = with_factors(&loaded(&file, &options, None), &all);
    assert_eq!(expected[2], expected[3]);
    for (a, b) in [(0, 1), (1, 2), (3, 4)] {
        assert_ne!(expected[a], expected[b]);
    }
    let found = with_factors(&loaded(&file, &options, Some((emulated(Schedule::InTurn), ALL))), &all);
    assert!(found == expected);
    // A factor that is not looked at, and one that is there where none is.
    for (what, change) in [
        ("mul.rn.f32", (&|t: &str| t.replacen("mul.rn.f32", "add.rn.f32", 1)) as &dyn Fn(&str) -> String),
        ("setp", &|t| t.replacen("setp.eq.s32", "setp.ne.s32", 1)),
    ] {
        let mut device = emulated(Schedule::InTurn);
        device.replace(BETWEEN.name, with_mistake(BETWEEN, "add_times", change));
        let found = with_factors(&loaded(&file, &options, Some((device, ALL))), &all);
        assert!(found != expected, "{what}");
    }
}

/// An adapter of rank 4 for matrices of all experts, `[columns, rows]` each, and for dense ones.
fn of_experts(architecture: &str, experts: u64, matrices: &[(&str, [u64; 2])]) -> Adapter {
    let mut meta = Metadata::default();
    for (key, value) in [("general.type", "adapter"), ("general.architecture", architecture), ("adapter.type", "lora")]
    {
        meta.set(key, Value::str(value));
    }
    let mut rng = Rng::new(9);
    let mut tensors = Vec::new();
    for (name, [columns, rows]) in matrices {
        let count = if name.contains("exps") { experts } else { 1 };
        for (half, shape) in [("lora_a", [*columns, 4, count]), ("lora_b", [4, *rows, count])] {
            let n: u64 = shape.iter().product();
            let bytes = (0..n).flat_map(|_| (0.4 * rng.unit() - 0.2).to_le_bytes()).collect();
            let shape = if count == 1 { &shape[..2] } else { &shape[..] };
            tensors.push((NewTensor::new(format!("{name}.{half}"), shape, TypeId::F32), bytes));
        }
    }
    let path = Path::new("made.gguf").to_owned();
    let file = gguf::model_at(path, gguf::bytes(&meta, &tensors), &Default::default());
    Adapter { file: Arc::new(file), scale: 1.5 }
}

#[test]
fn adapters_of_experts_have_the_bits_of_the_cpu() {
    let (_, file) = made_as("llama-8x2.txt", "Q8_0").expect("a model");
    let shape = |name: &str| {
        let tensor = file.tensors().find(|tensor| tensor.name == name).expect("a tensor");
        [tensor.shape[0], tensor.shape[1]]
    };
    let names = ["ffn_gate_exps", "ffn_down_exps", "attn_v"].map(|name| format!("blk.1.{name}.weight"));
    let matrices: Vec<(&str, [u64; 2])> = names.iter().map(|name| (&name[..], shape(name))).collect();
    let adapters = vec![of_experts("llama", 8, &matrices)];
    let tokens: Vec<u32> = (0..5).map(|i| (i * 37 + 3) % 120).collect();
    let options = LoadOptions { adapters, repack: false, ..LoadOptions::default() };
    let plain = LoadOptions { repack: false, ..LoadOptions::default() };
    let expected = hashes(&loaded(&file, &options, None), &tokens, 5);
    assert_ne!(expected, hashes(&loaded(&file, &plain, None), &tokens, 5));
    for (n_ubatch, schedule) in [(5, Schedule::Random(4)), (1, Schedule::Last(0))] {
        let found = hashes(&loaded(&file, &options, Some((emulated(schedule), ALL))), &tokens, n_ubatch);
        assert_eq!(found, expected, "{n_ubatch} tokens at a time");
    }
}

/// The bytes of a sequence of some tokens, and the logits of a sequence that was read from them and goes on.
fn saved_and_continued(model: &Weights, written: Option<&[u8]>) -> (Vec<u8>, Vec<String>) {
    let pool = Pool::new(1).expect("a thread");
    let engine = Engine::new(model, &pool, 8 * model.page_layout().bytes());
    let options = StepOptions { n_ctx: 64, n_ubatch: 8, ..StepOptions::default() };
    engine.prepare(8).expect("room");
    let mut heard = Heard::default();
    let step = |seq: &mut Sequence, tokens: &[u32], heard: &mut Heard| {
        let segment = Segment { seq, tokens, logits_from: 0 };
        engine.step_into(&mut [segment], &options, heard).expect("a step");
    };
    let mut first = engine.sequence();
    step(&mut first, &[5, 9, 30, 77], &mut Heard::default());
    // A copy of a page that no device has made yet.
    let mut fork = first.fork(3);
    fork.reserve(1).expect("a page");
    fork.release_reserved();
    let mut bytes = Vec::new();
    fork.write(&mut bytes).expect("a vector");
    let from = written.unwrap_or(&bytes);
    let mut read = engine.pages().read_sequence(3, &mut &from[..]).expect("a sequence");
    step(&mut read, &[12, 100], &mut heard);
    (bytes, heard.logits)
}

#[test]
fn files_of_keys_and_values_are_those_of_the_cpu() {
    let f16 = TypeId::F16;
    for (name, layers, keys, values) in [("llama-dense", ALL, f16, f16), ("gemma3-dense", 2, TypeId::Q8_0, TypeId::F32)]
    {
        let (_, file) = made_as(&format!("{name}.txt"), "F16").expect("a model");
        let options = LoadOptions { repack: false, ..cached(keys, values) };
        let (expected, logits) = saved_and_continued(&loaded(&file, &options, None), None);
        let gpu = loaded(&file, &options, Some((emulated(Schedule::InTurn), layers)));
        let (found, continued) = saved_and_continued(&gpu, None);
        assert_eq!(continued, logits, "{name}");
        // Tiles are written whole: behind the positions they hold what was there.
        assert_eq!(found.len(), expected.len(), "{name}");
        // What the one has written the other goes on from.
        assert_eq!(saved_and_continued(&gpu, Some(&expected)).1, logits, "{name}: written by the CPU");
        assert_eq!(saved_and_continued(&loaded(&file, &options, None), Some(&found)).1, logits, "{name}");
        let mut other = expected.clone();
        let at = other.len() / 3 / 4 * 4 + 1;
        other[at..at + 64].fill(0x15);
        other[..64].fill(0x15);
        assert_ne!(saved_and_continued(&gpu, Some(&other)).1, logits, "{name}: other bytes");
    }
}
