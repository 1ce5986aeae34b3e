//! Small valid files to damage: vocabularies of each kind, a whole model, an importance matrix.

use std::sync::OnceLock;

use trine_formats::anyprec::{Header, MatrixExtents, Part, file_order};
use trine_formats::gguf::write::NewTensor;
use trine_formats::gguf::{Array, Metadata, StrArray, Value};
use trine_formats::types::TypeId;

use crate::files;
use crate::inputs::{Kind, Rng};

/// The samples: every value type, three vocabularies, a model, an importance matrix in both forms, an
/// any-precision file.
pub fn all() -> &'static [Vec<u8>] {
    static ALL: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    ALL.get_or_init(|| {
        let types = [TypeId::TQ2_0, TypeId::F32, TypeId(1000), TypeId::Q4_0];
        let mut every = files::one_of_each(&types);
        let unknown = NewTensor { bytes: Some(96), ..NewTensor::new("unknown", [5], TypeId(1000)) };
        every.push((unknown, vec![7; 96]));
        let planned = [
            (files::every_value(), every),
            (vocabulary("gpt2"), Vec::new()),
            (vocabulary("t5"), Vec::new()),
            model(),
            imatrix(),
        ];
        let mut all: Vec<Vec<u8>> = planned.iter().map(|(meta, tensors)| files::bytes(meta, tensors)).collect();
        all.push(legacy_imatrix());
        let (meta, tensors) = any_precision();
        all.push(files::bytes(&meta, &tensors));
        all
    })
}

/// The model among the samples.
pub fn model_file() -> &'static [u8] {
    static MODEL: OnceLock<Vec<u8>> = OnceLock::new();
    MODEL.get_or_init(|| {
        let (meta, tensors) = model();
        files::bytes(&meta, &tensors)
    })
}

fn strings<'a>(texts: impl IntoIterator<Item = &'a [u8]>) -> Value {
    let mut out = StrArray::default();
    for text in texts {
        out.push(text);
    }
    Value::Array(Array::Str(out))
}

/// Two matrices at 2 and 3 bits, one of them with two weights that are kept as they are.
fn any_precision() -> (Metadata, Vec<(NewTensor, Vec<u8>)>) {
    let matrix = |name: &str, rows, sparse| MatrixExtents {
        name: name.to_owned(),
        columns: 66,
        rows,
        groups: 1,
        tables: 0,
        sparse,
    };
    let matrices = [matrix("a", 2, 2), matrix("b", 1, 0)];
    let header = Header {
        seed_bits: 2,
        parent_bits: 3,
        bits: vec![2, 3],
        groups: 1,
        tensors: matrices.iter().map(|m| m.name.clone()).collect(),
        columns: matrices.iter().map(|m| m.columns).collect(),
        seed_method: "dp".to_owned(),
        sensitivity: "uniform".to_owned(),
        ..Header::default()
    };
    let mut meta = Metadata::default();
    meta.set("general.architecture", Value::str("llama"));
    header.write(&mut meta);
    let ints = |values: &[i32]| values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let mut tensors = Vec::new();
    for section in file_order(&matrices, &header.bits) {
        for (i, part) in section.parts {
            let tensor = matrices[i].tensor(part);
            let data = match part {
                Part::SparsePtr => ints(&[0, 1, 2]),
                Part::SparseCol => ints(&[65, 3]),
                _ => {
                    let bytes = part.ty().info().map_or(0, |t| t.bytes as u64);
                    vec![0x2a; (bytes * tensor.shape.iter().product::<u64>()) as usize]
                }
            };
            tensors.push((tensor, data));
        }
    }
    (meta, tensors)
}

/// The metadata of a small vocabulary: `gpt2` (BPE), `llama` (SPM) or `t5` (unigram).
pub fn vocabulary(model: &str) -> Metadata {
    let mut tokens: Vec<Vec<u8>> = ["<unk>", "<s>", "</s>"].map(Into::into).to_vec();
    let mut types = vec![2, 3, 3];
    if model == "llama" {
        tokens.extend((0..=255).map(|b| format!("<0x{b:02X}>").into_bytes()));
        types.resize(tokens.len(), 6);
    }
    let words = ["a", "b", "ab", "c", "abc", "▁", "▁a", "Ġ", "Ġa", "é", "!"];
    tokens.extend(words.map(Into::into));
    types.resize(tokens.len(), 1);
    let scores = (0..tokens.len()).map(|i| -(i as f32)).collect();
    let mut meta = Metadata::default();
    meta.set("general.architecture", Value::str("llama"));
    meta.set("tokenizer.ggml.model", Value::str(model));
    if model == "gpt2" {
        meta.set("tokenizer.ggml.pre", Value::str("gpt-2"));
        meta.set("tokenizer.ggml.merges", strings([&b"a b"[..], b"ab c"]));
    }
    meta.set("tokenizer.ggml.tokens", strings(tokens.iter().map(Vec::as_slice)));
    meta.set("tokenizer.ggml.scores", Value::Array(Array::F32(scores)));
    meta.set("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
    for (key, id) in [("unknown", 0), ("bos", 1), ("eos", 2)] {
        meta.set(&format!("tokenizer.ggml.{key}_token_id"), Value::U32(id));
    }
    let template = "{% for m in messages %}<s>{{ m.role }}: {{ m.content | trim }}</s>{% endfor %}";
    meta.set("tokenizer.chat_template", Value::str(template));
    meta
}

/// A `llama` of one layer and 32 columns with an SPM vocabulary.
fn model() -> (Metadata, Vec<(NewTensor, Vec<u8>)>) {
    let mut meta = vocabulary("llama");
    let n_vocab = match meta.get("tokenizer.ggml.tokens") {
        Some(Value::Array(a)) => a.len() as u64,
        _ => 0,
    };
    for (key, value) in [
        ("block_count", 1),
        ("context_length", 16),
        ("embedding_length", 32),
        ("feed_forward_length", 64),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
        ("rope.dimension_count", 16),
        ("vocab_size", n_vocab as u32),
    ] {
        meta.set(&format!("llama.{key}"), Value::U32(value));
    }
    meta.set("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5));
    meta.set("llama.rope.freq_base", Value::F32(10000.0));
    let shapes: [(&str, &[u64], TypeId); 11] = [
        ("token_embd", &[32, n_vocab], TypeId::Q8_0),
        ("output_norm", &[32], TypeId::F32),
        ("blk.0.attn_norm", &[32], TypeId::F32),
        ("blk.0.attn_q", &[32, 32], TypeId::Q4_0),
        ("blk.0.attn_k", &[32, 16], TypeId::F16),
        ("blk.0.attn_v", &[32, 16], TypeId::Q8_0),
        ("blk.0.attn_output", &[32, 32], TypeId::F32),
        ("blk.0.ffn_norm", &[32], TypeId::F32),
        ("blk.0.ffn_gate", &[32, 64], TypeId::Q5_1),
        ("blk.0.ffn_up", &[32, 64], TypeId::IQ4_NL),
        ("blk.0.ffn_down", &[64, 32], TypeId::BF16),
    ];
    let mut rng = Rng::named("model");
    let mut tensors = Vec::new();
    for (name, shape, ty) in shapes {
        let n: u64 = shape.iter().product();
        let mut x = vec![0.0; n as usize];
        Kind::Normal.fill(&mut rng, &mut x);
        if let Some(info) = ty.info()
            && let (Some(encode), Some(bytes)) = (info.encode, info.row_bytes(n))
        {
            let mut data = vec![0; bytes as usize];
            encode(&x, None, &mut data);
            tensors.push((NewTensor::new(format!("{name}.weight"), shape, ty), data));
        }
    }
    (meta, tensors)
}

fn imatrix() -> (Metadata, Vec<(NewTensor, Vec<u8>)>) {
    let mut meta = Metadata::default();
    meta.set("general.type", Value::str("imatrix"));
    meta.set("imatrix.datasets", strings([&b"text"[..]]));
    meta.set("imatrix.chunk_count", Value::U32(8));
    meta.set("imatrix.chunk_size", Value::U32(512));
    let sums = NewTensor::new("blk.0.attn_q.weight.in_sum2", [8, 2], TypeId::F32);
    let counts = NewTensor::new("blk.0.attn_q.weight.counts", [1, 2], TypeId::F32);
    let floats = |v: &[f32]| v.iter().flat_map(|v| v.to_le_bytes()).collect();
    (meta, vec![(sums, floats(&[0.5; 16])), (counts, floats(&[4.0, 0.0]))])
}

fn legacy_imatrix() -> Vec<u8> {
    let mut out = 1i32.to_le_bytes().to_vec();
    out.extend(6i32.to_le_bytes());
    out.extend(b"output");
    for v in [3i32, 2] {
        out.extend(v.to_le_bytes());
    }
    for v in [1.5f32, 2.5] {
        out.extend(v.to_le_bytes());
    }
    out.extend(8i32.to_le_bytes());
    out.extend(4i32.to_le_bytes());
    out.extend(b"text");
    out
}
