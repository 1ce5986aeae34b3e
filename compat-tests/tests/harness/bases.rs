//! Sound files to begin with: models of every type, vocabularies, matrices, base files and checkpoints, all below 1 MB.

use std::fs;
use std::path::Path;
use std::process::Command;

use trine_compat_tests::inputs::Rng;
use trine_compat_tests::programs::path_of;
use trine_compat_tests::samples;
use trine_formats::gguf::Value;
use trine_formats::gguf::write::NewTensor;
use trine_formats::types::TypeId;
use trine_testkit::{TempDir, gguf};

/// A file, and what it is.
#[derive(Clone)]
pub struct Base {
    pub name: String,
    pub bytes: Vec<u8>,
}

pub struct Bases {
    /// GGUF files, of which most are models that run.
    pub gguf: Vec<Base>,
    /// Importance matrices of both forms.
    pub matrices: Vec<Base>,
    /// The log-probabilities of a model.
    pub base_file: Base,
    /// Squared gradients.
    pub gradients: Base,
    /// A checkpoint's files by name.
    pub checkpoints: Vec<Vec<Base>>,
    /// A model that runs, and a text for it.
    pub model: Base,
    pub text: String,
}

const COLUMNS: u64 = 256;
const FEED_FORWARD: u64 = 512;

/// Types that a model is quantized to.
const TYPES: &[&str] = &[
    "F32", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "IQ3_S",
    "IQ4_NL", "IQ4_XS", "TQ1_0", "TQ2_0", "I2_S", "TL1", "TL2", "AP2-3", "AP3-8", "SQ3",
];

impl Bases {
    pub fn new() -> Bases {
        let dir = trine_testkit::folder();
        let model = model(16);
        write(&dir, "m.gguf", &model);
        let text = "a abc é! ".repeat(60);
        write(&dir, "t.txt", text.as_bytes());
        let mut all = vec![base("F16", model.clone())];
        for ty in TYPES {
            let out = format!("{ty}.gguf");
            // Any-precision targets have no use for these.
            let usual = ["--fallback", "--force"].into_iter();
            let usual = usual.filter(|_| !ty.starts_with("AP") && !ty.starts_with("SQ"));
            let words: Vec<&str> = usual.chain(["m.gguf", &out, ty]).collect();
            run(&dir, "rquantize", &words);
            all.push(read(&dir, &out, ty));
        }
        let samples = samples::all();
        let kinds = ["values", "gpt2", "t5", "small", "matrix", "legacy", "anyprec"];
        for (sample, kind) in samples.iter().zip(kinds) {
            if kind != "legacy" {
                all.push(base(kind, sample.clone()));
            }
        }
        run(&dir, "rimatrix", &["-m", "m.gguf", "-f", "t.txt", "-c", "32", "-o", "i.gguf"]);
        run(&dir, "rimatrix", &["--in-file", "i.gguf", "-o", "i.dat", "--output-format", "dat"]);
        let words =
            ["--fisher", "-m", "m.gguf", "-f", "t.txt", "--samples", "1", "--seq-len", "8", "-o", "f.safetensors"];
        run(&dir, "rimatrix", &words);
        let words = ["-m", "m.gguf", "-f", "t.txt", "-c", "32", "--chunks", "2", "--kl-divergence-base", "b.kld"];
        run(&dir, "rperplexity", &words);
        Bases {
            gguf: all,
            matrices: vec![read(&dir, "i.gguf", "i.gguf"), read(&dir, "i.dat", "i.dat")],
            base_file: read(&dir, "b.kld", "b.kld"),
            gradients: read(&dir, "f.safetensors", "f.safetensors"),
            checkpoints: vec![checkpoint(true), checkpoint(false)],
            model: base("m.gguf", model),
            text,
        }
    }
}

fn base(name: &str, bytes: Vec<u8>) -> Base {
    Base { name: name.to_owned(), bytes }
}

fn write(dir: &TempDir, name: &str, bytes: &[u8]) {
    fs::write(dir.path().join(name), bytes).expect("a file");
}

fn read(dir: &TempDir, file: &str, name: &str) -> Base {
    base(name, fs::read(dir.path().join(file)).expect("a file"))
}

fn run(dir: &TempDir, name: &str, words: &[&str]) {
    let output = Command::new(path_of(name)).current_dir(dir.path()).args(words).output();
    let output = output.expect("a process");
    assert!(output.status.success(), "{name} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A `llama` of one layer with ternary weights, so that every type can hold them.
fn model(context: u32) -> Vec<u8> {
    let mut meta = samples::vocabulary("llama");
    let n_vocab = match meta.get("tokenizer.ggml.tokens") {
        Some(Value::Array(a)) => a.len() as u64,
        _ => 0,
    };
    for (key, value) in [
        ("block_count", 1),
        ("context_length", context * 4),
        ("embedding_length", COLUMNS as u32),
        ("feed_forward_length", FEED_FORWARD as u32),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
    ] {
        meta.set(&format!("llama.{key}"), Value::U32(value));
    }
    meta.set("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5));
    gguf::bytes(&meta, &tensors(n_vocab))
}

fn tensors(n_vocab: u64) -> Vec<(NewTensor, Vec<u8>)> {
    let mut rng = Rng::named("harness");
    let mut all = Vec::new();
    let mut matrix = |name: &str, columns: u64, rows: u64| {
        let values = (0..columns * rows).flat_map(|_| {
            // 0 and ±1 in half precision
            [[0, 0], [0, 0x3c], [0, 0xbc]][rng.below(3)]
        });
        let bytes: Vec<u8> = values.collect();
        all.push((NewTensor::new(name, [columns, rows], TypeId::F16), bytes));
    };
    matrix("token_embd.weight", COLUMNS, n_vocab);
    for (name, columns, rows) in [
        ("attn_q", COLUMNS, COLUMNS),
        ("attn_k", COLUMNS, COLUMNS / 2),
        ("attn_v", COLUMNS, COLUMNS / 2),
        ("attn_output", COLUMNS, COLUMNS),
        ("ffn_gate", COLUMNS, FEED_FORWARD),
        ("ffn_up", COLUMNS, FEED_FORWARD),
        ("ffn_down", FEED_FORWARD, COLUMNS),
    ] {
        matrix(&format!("blk.0.{name}.weight"), columns, rows);
    }
    for name in ["blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"] {
        let ones = (0..COLUMNS).flat_map(|_| 1f32.to_le_bytes()).collect();
        all.push((NewTensor::new(name, [COLUMNS], TypeId::F32), ones));
    }
    all
}

/// The files of a checkpoint of two blocks, with a `tokenizer.json` or a `tokenizer.model`.
fn checkpoint(json: bool) -> Vec<Base> {
    let config = r#"{"architectures":["LlamaForCausalLM"],"hidden_size":64,"intermediate_size":96,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":12,"rms_norm_eps":1e-5,"max_position_embeddings":256,"tie_word_embeddings":true,"hidden_act":"silu","torch_dtype":"bfloat16","rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":128}}"#;
    let tokenizer = r#"{"version":"1.0","added_tokens":[{"id":3,"content":"<s>","special":true,"normalized":false,"single_word":false,"lstrip":false,"rstrip":false}],"normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"}]},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true,"trim_offsets":true},"decoder":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},"model":{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":"","end_of_word_suffix":"","ignore_merges":false,"vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}"#;
    let mut files = vec![
        base("config.json", config.into()),
        base(
            "tokenizer_config.json",
            br#"{"bos_token":"<s>","add_bos_token":true,"chat_template":"{{ messages }}"}"#.to_vec(),
        ),
        base("generation_config.json", br#"{"bos_token_id":3,"temperature":0.6}"#.to_vec()),
        base("model.safetensors", weights()),
    ];
    if json {
        files.push(base("tokenizer.json", tokenizer.into()));
    } else {
        files.push(base("tokenizer.model", pieces()));
    }
    files
}

fn weights() -> Vec<u8> {
    let mut shapes: Vec<(String, Vec<u64>)> =
        vec![("model.embed_tokens.weight".into(), vec![12, 64]), ("model.norm.weight".into(), vec![64])];
    for n in 0..2 {
        for (name, shape) in [
            ("self_attn.q_proj", vec![64, 64]),
            ("self_attn.k_proj", vec![32, 64]),
            ("self_attn.v_proj", vec![32, 64]),
            ("self_attn.o_proj", vec![64, 64]),
            ("mlp.gate_proj", vec![96, 64]),
            ("mlp.up_proj", vec![96, 64]),
            ("mlp.down_proj", vec![64, 96]),
            ("input_layernorm", vec![64]),
            ("post_attention_layernorm", vec![64]),
        ] {
            shapes.push((format!("model.layers.{n}.{name}.weight"), shape));
        }
    }
    let (mut entries, mut at) = (Vec::new(), 0);
    for (name, shape) in &shapes {
        let end = at + 2 * shape.iter().product::<u64>();
        entries.push(format!(r#""{name}":{{"dtype":"BF16","shape":{shape:?},"data_offsets":[{at},{end}]}}"#));
        at = end;
    }
    let json = format!("{{{}}}", entries.join(","));
    let mut out = (json.len() as u64).to_le_bytes().to_vec();
    out.extend_from_slice(json.as_bytes());
    out.extend((0..at).map(|i| if i % 2 == 0 { 0 } else { 0x3e }));
    out
}

/// A SentencePiece model of twelve pieces.
fn pieces() -> Vec<u8> {
    let mut out = Vec::new();
    let texts = ["<unk>", "<s>", "</s>", "a", "b", "ab", "\u{2581}", "\u{2581}a", "c", "d", "e", "f"];
    for (i, text) in texts.iter().enumerate() {
        let mut piece = vec![0x0a, text.len() as u8];
        piece.extend_from_slice(text.as_bytes());
        piece.push(0x15);
        piece.extend((-(i as f32)).to_le_bytes());
        piece.extend([
            0x18,
            if i == 0 {
                2
            } else if i < 3 {
                3
            } else {
                1
            },
        ]);
        out.extend([0x0a, piece.len() as u8]);
        out.append(&mut piece);
    }
    // trainer_spec { model_type: BPE }
    out.extend([0x12, 2, 0x18, 2]);
    out
}

/// Puts files into a folder.
pub fn put(dir: &Path, files: &[Base]) {
    for file in files {
        fs::write(dir.join(&file.name), &file.bytes).expect("a file");
    }
}
