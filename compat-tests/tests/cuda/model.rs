//! Whole models on the emulated GPU: their logits are those of the CPU, bit for bit, wherever the layers are cut.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use trine::exec::Offload;
use trine::model::{LoadOptions, Weights};
use trine::pool::Pool;
use trine::step::{Engine, Segment, Session, SessionOptions, Sink, StepOptions};
use trine::{NumberPath, Recipe, Target};
use trine_compat_tests::models::{self, BITNET, TRILM};
use trine_compat_tests::ptx::{Emulated, Schedule};
use trine_cuda::program::Limits;
use trine_cuda::run::Shared;
use trine_formats::gguf::ModelFile;
use trine_formats::types::TypeId;
use trine_testkit::{is_long, sha256};

/// A bundled model in a file type.
pub fn file(name: &str, ty: &str) -> ModelFile {
    let source = models::bundled(name).expect("a bundled model");
    let folder = trine_testkit::folder();
    let made = folder.path().join("made.gguf");
    let path = if ty == "F16" { &source } else { &made };
    if ty != "F16" {
        let file = trine::open_file(&source, true).expect("a model");
        let target = Target::parse(ty).expect("a file type");
        trine::quantize(&file, &Recipe::new(target), &made).expect("a smaller file");
    }
    // In memory, so that the folder can go.
    trine_testkit::gguf::model(trine_testkit::read(path))
}

/// The model with its last `layers` layers on a GPU.
pub fn on_gpu(file: &ModelFile, device: Emulated, layers: usize) -> Weights {
    let offload = Offload::one(Arc::new(Shared::new(device)), layers);
    let options = LoadOptions { offload: Some(offload), ..LoadOptions::default() };
    Weights::load(file, &options).unwrap_or_else(|e| panic!("{e}"))
}

/// All layers.
pub const ALL: usize = usize::MAX;

pub fn on_cpu(file: &ModelFile) -> Weights {
    Weights::load(file, &LoadOptions::default()).expect("a model")
}

fn emulated() -> Emulated {
    Emulated::new().expect("PTX")
}

/// The hashes of the logits of every position, when passes have at most `n_ubatch` tokens.
pub fn hashes(model: &Weights, tokens: &[u32], n_ubatch: usize) -> Vec<String> {
    let options = SessionOptions { n_ctx: tokens.len().max(16), n_ubatch };
    let pool = Pool::new(1).expect("a thread");
    let mut session = Session::new(model, &pool, options);
    let mut all = Vec::new();
    let done = session.eval(tokens, 0, &mut |_, row| all.push(hash(row)));
    done.unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(session.n_past(), tokens.len());
    all
}

fn hash(row: &[f32]) -> String {
    let bytes: Vec<u8> = row.iter().flat_map(|x| x.to_le_bytes()).collect();
    sha256(&bytes)
}

pub fn limits(tokens: usize) -> Limits {
    Limits { tokens, wanted: tokens, context: 16, page: 16, pages: 2, slots: 2 }
}

const TOKENS: [u32; 3] = [1, 437, 2025];

#[test]
fn logits_are_those_of_the_cpu() {
    // Layers on the GPU: all, the logits alone, and some of the blocks. The models have four and more.
    for (name, ty, layers) in [
        (TRILM, "TQ2_0", &[ALL, 1][..]),
        (TRILM, "TQ1_0", &[2]),
        (TRILM, "Q8_0", &[ALL]),
        (TRILM, "Q4_0", &[4]),
        (TRILM, "F16", &[2]),
        (BITNET, "TQ2_0", &[3]),
        (BITNET, "I2_S", &[ALL]),
        (TRILM, "Q4_K_M", &[ALL]),
        (TRILM, "Q3_K_M", &[3]),
        (TRILM, "IQ4_XS", &[2]),
    ] {
        let file = file(name, ty);
        let expected = models::logits_sha256(&on_cpu(&file), &TOKENS).expect("logits");
        let layers = if is_long() { &[ALL, 0, 1, 2, 3, 4][..] } else { layers };
        for &layers in layers {
            let model = on_gpu(&file, emulated(), layers);
            assert_eq!(model.is_offloaded(), layers > 0);
            let found = hashes(&model, &TOKENS, 2);
            assert_eq!(found, expected, "{name} as {ty}, {layers} layers on the GPU");
        }
    }
}

/// Types of files that people have, of which the long form tries all.
#[test]
fn logits_of_files_of_many_types_are_those_of_the_cpu() {
    const TYPES: [&str; 11] =
        ["Q5_K_M", "IQ3_S", "Q5_1", "Q2_K", "Q1_0", "Q4_1", "Q5_0", "IQ4_NL", "Q6_K", "IQ4_KS", "IQ3_K"];
    for ty in if is_long() { &TYPES[..] } else { &TYPES[..5] } {
        let file = file(TRILM, ty);
        let expected = models::logits_sha256(&on_cpu(&file), &TOKENS[..2]).expect("logits");
        assert_eq!(hashes(&on_gpu(&file, emulated(), ALL), &TOKENS[..2], 2), expected, "{ty}");
    }
}

#[test]
fn neither_the_order_of_warps_nor_that_of_passes_changes_anything() {
    let file = file(TRILM, "TQ2_0");
    let expected = models::logits_sha256(&on_cpu(&file), &TOKENS[..2]).expect("logits");
    for (schedule, n_ubatch) in [(Schedule::Random(1), 2), (Schedule::Last(0), 1)] {
        let mut device = emulated();
        device.schedule = schedule;
        let found = hashes(&on_gpu(&file, device, ALL), &TOKENS[..2], n_ubatch);
        assert_eq!(found, expected, "{schedule:?}");
    }
}

/// The launches of a token of a LLaMA with six layers, which docs/cuda.md counts: beside these the norms of the layers and
/// of the logits, and the gates, would have a quantizer each.
#[test]
fn norms_and_gates_of_a_llama_are_launched_with_their_quantizers() {
    let file = file(TRILM, "TQ2_0");
    let device = emulated();
    let launched = device.launched.clone();
    hashes(&on_gpu(&file, device, ALL), &TOKENS[..1], 1);
    let launched = launched.lock().expect("launches");
    let of = |name: &str| launched.get(name).map_or(0, |work| work.launches);
    assert_eq!([of("norm_q8_k"), of("norm_q8_k_chains"), of("rms_norm"), of("add_rms_norm")], [12, 1, 0, 0]);
    assert_eq!(of("quantize_q8_k"), 6);
    assert_eq!([of("gate_q8_k"), of("silu")], [6, 0]);
    assert_eq!(launched.values().map(|work| work.launches).sum::<usize>(), 100, "{launched:?}");
}

#[test]
fn tokens_are_graphs_of_launches_with_the_same_bits() {
    let file = file(TRILM, "TQ2_0");
    let tokens: Vec<u32> = (0..6).map(|i| 100 * i + 7).collect();
    let expected = models::logits_sha256(&on_cpu(&file), &tokens).expect("logits");
    // Kernels that were started one by one, and graphs, when a pass has one token.
    let run = |records: bool| {
        let mut device = emulated();
        device.records = records;
        let started = device.started.clone();
        assert_eq!(hashes(&on_gpu(&file, device, ALL), &tokens, 1), expected);
        [0, 1].map(|i| started[i].load(Ordering::Relaxed))
    };
    let ([one_by_one, none], [first, graphs]) = (run(false), run(true));
    assert_eq!(none, 0);
    // Layers and logits of five tokens out of six.
    assert_eq!((graphs, 6 * first), (2 * 5, one_by_one));
}

/// Hears hidden states and logits of one segment each.
#[derive(Default)]
pub struct Heard {
    pub hidden: Vec<String>,
    pub logits: Vec<String>,
}

impl Sink for Heard {
    fn wants_hidden(&self, segment: usize) -> bool {
        segment == 1
    }

    fn logits(&mut self, _: usize, _: usize, logits: &[f32]) {
        self.logits.push(hash(logits));
    }

    fn hidden(&mut self, _: usize, _: usize, state: &[f32]) {
        self.hidden.push(hash(state));
    }
}

/// Two sequences in one pass, one of which wants hidden states; then forks that share a page that is not full, and go
/// on in different ways, one of them behind a place where the first was cut.
pub fn conversation(model: &Weights) -> Heard {
    let pool = Pool::new(1).expect("a thread");
    let engine = Engine::new(model, &pool, 8 * model.page_layout().bytes());
    let options = StepOptions { n_ctx: 64, n_ubatch: 8, ..StepOptions::default() };
    let mut heard = Heard::default();
    let (mut a, mut b) = (engine.sequence(), engine.sequence());
    let segments = &mut [(&mut a, &[5, 9, 300][..]), (&mut b, &[4000, 17])].map(|(seq, tokens)| Segment {
        seq,
        tokens,
        logits_from: 1,
    });
    engine.step_into(segments, &options, &mut heard).expect("a step");
    let one = |seq: &mut _, token: u32, heard: &mut Heard| {
        let segment = Segment { seq, tokens: &[token], logits_from: 0 };
        engine.step_into(&mut [segment], &options, heard).expect("a step");
    };
    let mut fork = a.fork(2);
    one(&mut fork, 77, &mut heard);
    one(&mut a, 2, &mut heard);
    a.truncate(1);
    one(&mut a, 9, &mut heard);
    let mut again = fork.fork(3);
    one(&mut again, 11, &mut heard);
    one(&mut fork, 12, &mut heard);
    heard
}

#[test]
fn sequences_share_pages_and_part() {
    let file = file(TRILM, "TQ2_0");
    let expected = conversation(&on_cpu(&file));
    assert_eq!((expected.hidden.len(), expected.logits.len()), (1, 7));
    // The cells of some layers are here, those of others there.
    let found = conversation(&on_gpu(&file, emulated(), 3));
    assert_eq!(found.logits, expected.logits);
    assert_eq!(found.hidden, expected.hidden);
}

#[test]
fn a_model_larger_than_the_memory_is_refused_before_anything_is_allocated() {
    let file = file(TRILM, "TQ2_0");
    let started = |free: u64| {
        let mut device = emulated();
        device.free = free;
        let model = on_gpu(&file, device, ALL);
        let pool = Pool::new(1).expect("a thread");
        let options = SessionOptions { n_ctx: 32, n_ubatch: 4 };
        let done = Session::new(&model, &pool, options).prepare();
        done.map_err(|e| e.to_string())
    };
    let text = started(1000).expect_err("a refusal");
    assert!(text.contains("(weights ") && !text.contains('\n'), "{text}");
    assert!(text.contains(", and 1000 are free; lower the context (-c)"), "{text}");
    let needed = text.split_whitespace().find_map(|word| word.parse().ok());
    let needed: u64 = needed.expect("a number of bytes");
    // With just enough memory it runs; the device itself counts its allocations.
    assert!(started(needed - 1).is_err_and(|e| e.contains(&format!("needs {needed} bytes"))));
    started(needed).expect("room");
}

/// Logits of some tokens in passes of `n_ubatch`, with a number path.
fn logits(file: &ModelFile, number_path: NumberPath, n_ubatch: usize) -> Vec<f32> {
    let gpu = Offload::one(Arc::new(Shared::new(emulated())), 4);
    let options = LoadOptions { offload: Some(gpu), number_path, ..LoadOptions::default() };
    let model = Weights::load(file, &options).unwrap_or_else(|e| panic!("{e}"));
    let options = SessionOptions { n_ctx: 16, n_ubatch };
    let pool = Pool::new(1).expect("a thread");
    let mut all = Vec::new();
    let mut session = Session::new(&model, &pool, options);
    let done = session.eval(&TOKENS, 0, &mut |_, row| all.extend_from_slice(row));
    done.unwrap_or_else(|e| panic!("{e}"));
    all
}

#[test]
fn activations_in_half_precision_are_near_and_no_batch_changes_their_bits() {
    let types = if is_long() { &["TQ2_0", "Q4_0", "I2_S", "TL1", "TL2"][..] } else { &["Q4_0", "I2_S"] };
    for ty in types {
        let file = file(TRILM, ty);
        let exact = logits(&file, NumberPath::default(), 3);
        let fast = logits(&file, NumberPath::Fast, 3);
        let size = |x: &[f32]| x.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>();
        let difference: Vec<f32> = exact.iter().zip(&fast).map(|(a, b)| a - b).collect();
        // Activations keep eleven bits there, and eight here.
        let error = (size(&difference) / size(&exact)).sqrt();
        assert!(error > 0.0 && error < 0.05, "{ty}: {error}");
        let one = logits(&file, NumberPath::Fast, 1);
        assert!(one.iter().zip(&fast).all(|(a, b)| a.to_bits() == b.to_bits()), "{ty}");
    }
    let without = LoadOptions { number_path: NumberPath::Fast, ..LoadOptions::default() };
    let refused = Weights::load(&file(TRILM, "TQ2_0"), &without).err();
    let text = refused.expect("a refusal").to_string();
    assert!(text.contains("--device cuda"), "{text}");
}

#[test]
fn what_has_no_kernel_is_refused_by_name() {
    // Weights in the layouts of the CPU, of a model that was not loaded for a GPU.
    let packed = on_cpu(&file(TRILM, "TQ2_0"));
    let refused = packed.check_on_device(limits(1), 0).err();
    // A processor without packed layouts leaves them as they are.
    if let Some(refused) = refused {
        let text = refused.to_string();
        assert!(text.contains("load the model without packing"), "{text}");
    }
    let mut other = file(TRILM, "Q8_0");
    let info = TypeId::G8_0.info().expect("a type");
    let bytes = info.tensor_bytes(256, 768).expect("whole blocks") as usize;
    other.replace("blk.0.ffn_up.weight", TypeId::G8_0, vec![0; bytes]).expect("a tensor");
    let offload = |layers| {
        let options = LoadOptions {
            offload: Some(Offload::one(Arc::new(Shared::new(emulated())), layers)),
            ..LoadOptions::default()
        };
        let loaded = Weights::load(&other, &options);
        loaded.map(drop).map_err(|refused| refused.to_string())
    };
    let text = offload(ALL).expect_err("a refusal");
    assert!(text.contains("g8_0") && text.contains("blk.0."), "{text}");
    assert!(text.contains("--device cpu") && !text.contains('\n'), "{text}");
    offload(0).expect("a model of the processor");
}
