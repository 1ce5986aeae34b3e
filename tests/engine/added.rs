//! Adapters, control vectors and other types of keys and values: the logits are those of llama.cpp's portable build.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use trine::Isa;
use trine::kv::CacheTypes;
use trine::model::{Adapter, Control, LoadOptions, Weights};
use trine::pool::Pool;
use trine::step::{Engine, Segment, Session, SessionOptions, StepError, StepOptions};
use trine_formats::gguf::write::NewTensor;
use trine_formats::gguf::{Metadata, ModelFile, Value as Meta};
use trine_formats::types::TypeId;
use trine_kernels::testing::isas;
use trine_testkit::{gguf, golden, sha256, testdata};

use crate::common::{Run, evaluate, trilm};

fn file(name: &str) -> ModelFile {
    gguf::open(&testdata("adapters").join(name))
}

/// The files of a case with their factors.
fn adapters(list: &Value) -> Vec<Adapter> {
    let adapter = |pair: &Value| Adapter {
        file: Arc::new(file(pair[0].as_str().expect("a name"))),
        scale: pair[1].as_f64().expect("a factor") as f32,
    };
    let list = list.as_array().expect("a list");
    list.iter().map(adapter).collect()
}

fn hash(run: Run, options: &LoadOptions) -> String {
    let tokens = golden::logits("trilm-F16").tokens;
    let mut bytes = Vec::new();
    evaluate(&trilm(), &tokens, run, options, &mut |logits| {
        bytes.extend(logits.iter().flat_map(|v| v.to_le_bytes()));
    });
    sha256(&bytes)
}

/// Ways to run a model, none of which may change a bit.
fn runs() -> Vec<Run> {
    let usual = Run::default();
    let cut = Run { n_ubatch: 7, threads: 3, ..usual };
    let one_by_one = Run { per_call: 1, threads: 1, ..usual };
    let sets = isas().map(|isa| Run { isa, ..usual });
    sets.chain([cut, one_by_one]).collect()
}

#[test]
fn adapters_and_control_vectors_give_the_reference_s_logits() {
    let golden = golden::json("adapters/golden.json");
    let cases = golden["adapters"].as_array().expect("cases");
    let mut seen = std::collections::HashSet::new();
    for (no, case) in cases.iter().enumerate() {
        let block = |i: usize| case["blocks"][i].as_i64().expect("a number") as i32;
        let options = LoadOptions {
            adapters: adapters(&case["lora"]),
            control: Control { vectors: adapters(&case["control"]), blocks: (block(0), block(1)) },
            ..LoadOptions::default()
        };
        let every_way = no + 1 == cases.len();
        let runs = if every_way { runs() } else { vec![Run::default()] };
        for run in runs {
            let found = hash(run, &options);
            assert_eq!(found, case["sha256"], "{case} {run:?}");
            seen.insert(found);
        }
    }
    // one adapter is added 0 times, and two orders round to the same
    assert_eq!(seen.len(), cases.len() - 2);
}

/// A step's own factors are those of a model that was loaded with them.
#[test]
fn steps_with_factors_of_their_own_give_the_reference_s_logits() {
    let golden = golden::json("adapters/golden.json");
    let tokens = golden::logits("trilm-F16").tokens;
    let pool = Pool::new(2).expect("threads");
    let cases = golden["adapters"].as_array().expect("cases").iter();
    let of_adapters =
        |case: &&Value| case["control"].as_array().is_some_and(Vec::is_empty) && case["lora"][0].is_array();
    let mut tried = 0;
    for case in cases.filter(of_adapters) {
        let asked = adapters(&case["lora"]);
        let loaded = asked.iter().map(|one| Adapter { scale: -3.0, ..one.clone() }).collect();
        let options = LoadOptions { adapters: loaded, ..LoadOptions::default() };
        let engine = Engine::new(&Weights::load(&trilm(), &options).expect("a model"), &pool, 64 << 20);
        let scales: Vec<f32> = asked.iter().map(|one| one.scale).collect();
        let mut step = StepOptions { adapters: Some(scales.into()), ..StepOptions::default() };
        let mut bytes = Vec::new();
        let mut seq = engine.sequence();
        let segment = Segment { seq: &mut seq, tokens: &tokens, logits_from: 0 };
        let sink = &mut |_: usize, _: usize, row: &[f32]| bytes.extend(row.iter().flat_map(|v| v.to_le_bytes()));
        engine.step(&mut [segment], &step, sink).expect("a step");
        assert_eq!(sha256(&bytes), case["sha256"], "{case}");
        tried += 1;

        step.adapters = Some(vec![1.0; asked.len() + 1].into());
        let segment = Segment { seq: &mut seq, tokens: &tokens, logits_from: 0 };
        let refused = engine.step(&mut [segment], &step, &mut |_, _, _| {}).expect_err("too many factors");
        let (given, adapters) = (asked.len() + 1, asked.len());
        assert_eq!(refused, StepError::Adapters { given, adapters });
    }
    assert!(tried > 3, "{tried}");
}

#[test]
fn types_of_keys_and_values_give_the_reference_s_logits() {
    let golden = golden::json("adapters/golden.json");
    for case in golden["cache_types"].as_array().expect("cases") {
        let ty = |what: &str| TypeId::from_name(case[what].as_str().expect("a name")).expect("a type");
        let options =
            LoadOptions { cache: CacheTypes { keys: ty("keys"), values: ty("values") }, ..LoadOptions::default() };
        let every_way = options.cache.keys == TypeId::Q8_0 || options.cache.keys == TypeId::F32;
        let runs = if every_way { runs() } else { vec![Run::default()] };
        for run in runs {
            assert_eq!(hash(run, &options), case["sha256"], "{case} {run:?}");
        }
    }
}

/// The logits of `tokens` by themselves, as bits.
fn alone(model: &Weights, pool: &Pool, tokens: &[u32]) -> Vec<Vec<u32>> {
    let (n_ctx, n_ubatch) = (512, 512);
    let mut session = Session::new(model, pool, SessionOptions { n_ctx, n_ubatch });
    let mut out = Vec::new();
    session.eval(tokens, 0, &mut |_, logits| out.push(bits(logits))).expect("room for the tokens");
    out
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn step_mates_and_copied_pages_change_no_bit_whatever_the_types() {
    let first: Vec<u32> = (0..300).map(|i| (i * 37 + 11) % 4096).collect();
    let mut second = first[..150].to_vec();
    second.extend((150..300).map(|i| (i * 91 + 5) % 4096));
    let pool = Pool::new(2).expect("threads");
    for (keys, values) in [(TypeId::Q8_0, TypeId::Q8_0), (TypeId::F32, TypeId::BF16)] {
        let options = LoadOptions { cache: CacheTypes { keys, values }, ..LoadOptions::default() };
        let model = Weights::load(&trilm(), &options).expect("a model");
        let engine = Engine::new(&model, &pool, 64 << 20);
        let options = StepOptions { n_ctx: 512, n_ubatch: 33, ..StepOptions::default() };
        let mut found = [Vec::new(), Vec::new()];
        let mut one = engine.sequence();
        let mut beginning = [Segment { seq: &mut one, tokens: &first[..150], logits_from: 0 }];
        let sink = &mut |_: usize, _: usize, logits: &[f32]| found[0].push(bits(logits));
        engine.step(&mut beginning, &options, sink).expect("a step");
        // the page with position 150 is not full, so that whoever goes on first copies it
        let mut other = one.fork(150);
        found[1] = found[0].clone();
        for (a, b) in first[150..].chunks(10).zip(second[150..].chunks(10)) {
            let segment = |seq, tokens| Segment { seq, tokens, logits_from: 0 };
            let mut both = [segment(&mut one, a), segment(&mut other, b)];
            let sink = &mut |no: usize, _: usize, logits: &[f32]| found[no].push(bits(logits));
            engine.step(&mut both, &options, sink).expect("a step");
        }
        assert!(found[0] == alone(&model, &pool, &first), "{keys} {values}");
        assert!(found[1] == alone(&model, &pool, &second), "{keys} {values}");
    }
}

#[test]
fn pages_count_the_bytes_of_their_types() {
    let page = |keys, values| {
        let options = LoadOptions { cache: CacheTypes { keys, values }, ..LoadOptions::default() };
        let model = Weights::load(&trilm(), &options).expect("a model");
        let layout = model.page_layout();
        assert_eq!(layout.positions, 128);
        layout.bytes()
    };
    // 6 layers, 2 heads of 64 elements, 128 positions
    let elements = 6 * 2 * 64 * 128;
    assert_eq!(page(TypeId::F16, TypeId::F16), elements * 4);
    assert_eq!(page(TypeId::F32, TypeId::BF16), elements * 6);
    assert_eq!(page(TypeId::Q8_0, TypeId::Q8_0), elements / 32 * 68);
    assert_eq!(page(TypeId::Q8_0, TypeId::F16), elements / 32 * (34 + 64));
    // one pass over quantized values takes keys as half floats, so they are kept as such
    assert_eq!(page(TypeId::F32, TypeId::Q8_0), elements / 32 * (64 + 34));
}

/// Names of tensors and their shapes.
type Shapes<'a> = &'a [(&'a str, &'a [u64])];

/// A file of floats with these keys.
fn made(meta: &[(&str, Meta)], tensors: &[(&str, &[u64])]) -> Adapter {
    let mut all = Metadata::default();
    meta.iter().for_each(|(key, value)| all.set(key, value.clone()));
    let tensor = |(name, shape): &(&str, &[u64])| {
        let bytes = 4 * shape.iter().product::<u64>() as usize;
        (NewTensor::new(*name, *shape, TypeId::F32), vec![0; bytes])
    };
    let tensors: Vec<_> = tensors.iter().map(tensor).collect();
    let bytes = gguf::bytes(&all, &tensors);
    let path = Path::new("made.gguf").to_owned();
    Adapter { file: Arc::new(gguf::model_at(path, bytes, &Default::default())), scale: 1.0 }
}

fn refusal(options: LoadOptions) -> String {
    let options = LoadOptions { isa: Isa::detect(), ..options };
    let error = Weights::load(&trilm(), &options).err().expect("a refusal");
    let line = error.to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

#[test]
fn adapters_that_do_not_fit_are_refused() {
    let refused = |architecture: &str, tensors: &[(&str, &[u64])]| {
        let meta = [
            ("general.type", Meta::str("adapter")),
            ("general.architecture", Meta::str(architecture)),
            ("adapter.type", Meta::str("lora")),
        ];
        refusal(LoadOptions { adapters: vec![made(&meta, tensors)], ..LoadOptions::default() })
    };
    let cases: [(&str, Shapes<'_>, &str); 7] = [
        ("qwen2", &[], "made.gguf: it is for models of architecture 'qwen2'"),
        ("llama", &[("blk.0.attn_q.weight.lora_a", &[256, 2])], "tensor blk.0.attn_q.weight.lora_b is missing"),
        (
            "llama",
            &[("blk.0.attn_q.weight.lora_a", &[256, 2]), ("blk.0.attn_q.weight.lora_b", &[2, 128])],
            "blk.0.attn_q.weight has adapters of shapes [256, 2] and [2, 128], expected [256, 2, 1] and [2, 256, 1]",
        ),
        (
            "llama",
            &[("blk.9.x.weight.lora_a", &[4, 2]), ("blk.9.x.weight.lora_b", &[2, 4])],
            "the model has no tensor blk.9.x.weight",
        ),
        ("llama", &[("blk.0.attn_q.weight", &[4, 2])], "is no part of an adapter"),
        (
            "llama",
            &[("token_embd.weight.lora_a", &[2, 4096]), ("token_embd.weight.lora_b", &[2, 256])],
            "token_embd.weight: an adapter changes it, the logits are made with it too",
        ),
        (
            "llama",
            &[("output_norm.weight.lora_a", &[256, 2]), ("output_norm.weight.lora_b", &[2, 1])],
            "it changes tensor output_norm.weight, to which adapters are not applied",
        ),
    ];
    for (architecture, tensors, why) in cases {
        let line = refused(architecture, tensors);
        assert!(line.contains(why), "{line}");
    }
    let model = Adapter { file: Arc::new(trilm()), scale: 1.0 };
    let line = refusal(LoadOptions { adapters: vec![model], ..LoadOptions::default() });
    assert!(line.contains("general.type is"), "{line}");
}

#[test]
fn control_vectors_that_do_not_fit_are_refused() {
    let cases: [(Shapes<'_>, &str); 4] = [
        (&[], "it has no tensor"),
        (&[("direction.0", &[256])], "block 0 has no direction"),
        (&[("blk.0.attn_q.weight", &[256])], "is no direction"),
        (&[("direction.1", &[128])], "has shape [128], expected [256]"),
    ];
    for (tensors, why) in cases {
        let line = refusal(LoadOptions {
            control: Control { vectors: vec![made(&[], tensors)], blocks: (0, 0) },
            ..LoadOptions::default()
        });
        assert!(line.contains("made.gguf: ") && line.contains(why), "{line}");
    }
}

#[test]
fn types_that_no_cache_has_are_refused() {
    let line = refusal(LoadOptions {
        cache: CacheTypes { keys: TypeId::Q4_K, values: TypeId::F16 },
        ..LoadOptions::default()
    });
    assert!(line.contains("keys cannot be kept as"), "{line}");
}
