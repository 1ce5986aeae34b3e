//! rconvert on small checkpoints that are built here.

mod archs;
pub mod checkpoint;
mod incomplete;
mod opt;
mod quantized;
mod recorded;
mod refusals;

use std::fs;
use std::path::Path;

use assert_cmd::Command;
use checkpoint::{Checkpoint, EMBD, HEAD, HEADS, KV_HEADS, Tensor, VOCAB, gemma3, llama3, qwen3};
use serde_json::{Value, json};
use tempfile::TempDir;
use trine_formats::gguf::{Gguf, Limits};
use trine_formats::types::TypeId;
use trine_testkit::sha256;

fn rconvert(args: &[&str], dir: &Path, out: &Path) -> assert_cmd::assert::Assert {
    Command::new(env!("CARGO_BIN_EXE_rconvert")).arg(dir).arg(out).args(args).assert()
}

/// Converts and returns the bytes of the file.
fn convert(checkpoint: &Checkpoint, name: &str, args: &[&str]) -> Vec<u8> {
    let dir = TempDir::new().unwrap();
    let folder = checkpoint.write(dir.path(), name);
    let out = dir.path().join("out.gguf");
    rconvert(args, &folder, &out).success();
    fs::read(out).unwrap()
}

/// Runs into an error, and returns its one line.
fn refused(checkpoint: &Checkpoint, args: &[&str]) -> String {
    let dir = TempDir::new().unwrap();
    let folder = checkpoint.write(dir.path(), "model");
    refused_folder(&dir, &folder, args)
}

fn refused_folder(dir: &TempDir, folder: &Path, args: &[&str]) -> String {
    let out = dir.path().join("out.gguf");
    let result = rconvert(args, folder, &out).code(1);
    let stderr = String::from_utf8(result.get_output().stderr.clone()).unwrap();
    let errors: Vec<&str> = stderr.lines().filter(|l| l.starts_with("rconvert: error: ")).collect();
    assert_eq!((errors.len(), stderr.lines().last()), (1, errors.first().copied()), "{stderr}");
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().path()).collect();
    assert!(left.iter().all(|p| p.is_dir()), "{left:?}");
    errors[0].to_owned()
}

/// A tensor of a GGUF file: type and decoded values.
fn read(file: &[u8], name: &str) -> (TypeId, Vec<f32>) {
    let gguf = Gguf::parse(file, &Limits::default()).unwrap();
    let t = gguf.tensors.iter().find(|t| t.name == name).unwrap_or_else(|| panic!("no {name}"));
    let start = (gguf.data_offset + t.offset) as usize;
    let mut values = vec![0.0; t.elements() as usize];
    t.ty.info().unwrap().decode.unwrap()(&file[start..start + t.bytes as usize], &mut values);
    (t.ty, values)
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    match tensor.0 {
        "BF16" => tensor.2.chunks(2).map(|b| f32::from_le_bytes([0, 0, b[0], b[1]])).collect(),
        _ => tensor.2.chunks(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
    }
}

/// The output is that of rquantize for the dense file: the same matrices, in the order of the checkpoint. The dense
/// file has to hold the masters unrounded, in the type of the checkpoint: without `--outtype` rconvert keeps BF16 and
/// makes F16 of F32, and the type also decides the numeric profile where no option does.
#[test]
fn widely_linear_matrices_are_those_of_rquantize() {
    for (checkpoint, outtype, options) in [
        (Checkpoint::llama(json!({})), "bf16", &[][..]),
        (llama3(), "bf16", &["--wl-stages", "1", "--wl-scope", "tile64", "--wl-tie", "tile64"]),
        (qwen3(), "f32", &["--wl-stages", "3", "--wl-scope", "row", "--wl-profile", "f32"]),
    ] {
        let dir = TempDir::new().unwrap();
        let folder = checkpoint.write(dir.path(), "model");
        let [dense, direct, both] = ["dense", "direct", "both"].map(|n| dir.path().join(n));
        let masters = &["--pre", "gpt-2", "--outtype", outtype][..];
        rconvert(masters, &folder, &dense).success();
        let args = [masters, &["--fairy2i"], options].concat();
        rconvert(&args, &folder, &direct).success();
        Command::new(env!("CARGO_BIN_EXE_rquantize"))
            .args([&dense, &both])
            .arg("FAIRY2I")
            .args(options)
            .assert()
            .success();
        let [direct, both] = [direct, both].map(|path| trine_testkit::gguf::open(&path));
        assert_eq!(direct.n_tensors(), both.n_tensors());
        for t in direct.tensors() {
            let [a, b] = [&direct, &both].map(|file| file.tensor(&t.name).unwrap().data.to_vec());
            assert!(a == b, "{} {options:?}", t.name);
        }
        for (key, value) in direct.meta().iter().filter(|(key, _)| key.starts_with("fairy2i.")) {
            assert_eq!(both.meta().get(key), Some(value), "{key}");
        }
    }
    let dir = TempDir::new().unwrap();
    let folder = gemma3().write(dir.path(), "model");
    let error = refused_folder(&dir, &folder, &["--pre", "gpt-2", "--fairy2i"]);
    assert!(error.contains("'gemma3' cannot be made widely linear"), "{error}");
}

/// Hashes of the files that llama.cpp's convert_hf_to_gguf.py writes for these folders (its table of
/// hashes, which cannot know a tokenizer of 12 tokens, told that the pre-tokenizer is gpt-2).
#[test]
fn files_are_those_of_the_reference_converter() {
    for (checkpoint, name, outtype, expected) in [
        (llama3(), "Tiny-Llama-3-1M-chat", "auto", "95a13dc167459da4305020cb21d78d04eb6edf84881b63aa9706d582c348bf7f"),
        (llama3(), "Tiny-Llama-3-1M-chat", "f16", "e3379c6c0e40618acc3edf30b521bc5270dcb2563d66dd505287c996f20c984c"),
        (qwen3(), "Qwen3-0.1B", "f32", "357d5a5843abf82bea237a402c75436a9311df2331805c4ba5734fa729cd4d9b"),
        (gemma3(), "gemma-3-tiny-it", "f16", "34b8bcbf40f489a1914e9d40949bfe9f3fe4c43476bc4c0da0fd7505eb7d795b"),
    ] {
        let file = convert(&checkpoint, name, &["--outtype", outtype]);
        assert_eq!(sha256(&file), expected, "{name} {outtype}");
    }
}

#[test]
fn halves_of_heads_become_neighbours_in_llama_and_nowhere_else() {
    let c = Checkpoint::llama(json!({}));
    let file = convert(&c, "m", &["--outtype", "f32"]);
    for (source, name, heads) in [("q_proj", "attn_q", HEADS), ("k_proj", "attn_k", KV_HEADS)] {
        let stored = floats(c.tensor(&format!("model.layers.1.self_attn.{source}.weight")));
        let (_, out) = read(&file, &format!("blk.1.{name}.weight"));
        for head in 0..heads {
            for pair in 0..HEAD / 2 {
                for half in 0..2 {
                    let from = (head * HEAD + half * (HEAD / 2) + pair) * EMBD;
                    let to = (head * HEAD + 2 * pair + half) * EMBD;
                    let (from, to, n) = (from as usize, to as usize, EMBD as usize);
                    assert_eq!(stored[from..from + n], out[to..to + n]);
                }
            }
        }
    }
    let c = qwen3();
    let (_, out) = read(&convert(&c, "m", &["--outtype", "f32"]), "blk.1.attn_q.weight");
    assert_eq!(out, floats(c.tensor("model.layers.1.self_attn.q_proj.weight")));
}

/// Digits of packed matrices, by a rule that is no code of ours: row r of M lies in bits 2i of row j,
/// where r = i·M/4 + j.
fn packed(config: Value) -> (Checkpoint, Vec<i8>) {
    let mut c = Checkpoint::llama(config);
    let names: Vec<String> = c.tensors.keys().filter(|n| n.ends_with("_proj.weight")).cloned().collect();
    let mut gate = Vec::new();
    for name in names {
        let shape = c.tensor(&name).1.clone();
        let (rows, columns) = (shape[0] as usize, shape[1] as usize);
        let draws = c.values(shape[0] * shape[1]);
        let digits: Vec<i8> = draws.iter().map(|v| if *v < -0.2 { -1 } else { i8::from(*v > 0.2) }).collect();
        let mut bytes = vec![0u8; rows / 4 * columns];
        for r in 0..rows {
            let (i, j) = (r / (rows / 4), r % (rows / 4));
            for k in 0..columns {
                bytes[j * columns + k] |= ((digits[r * columns + k] + 1) as u8) << (2 * i);
            }
        }
        if name == "model.layers.0.mlp.gate_proj.weight" {
            gate = digits;
        }
        c.put(&format!("{name}_scale"), "BF16", &[1], &[2.5]);
        c.tensors.insert(name, ("U8", vec![shape[0] / 4, shape[1]], bytes));
    }
    (c, gate)
}

#[test]
fn packed_digits_are_multiplied_or_divided() {
    let linear = |class: &str| json!({"quantization_config": {"quant_method": "bitnet", "linear_class": class, "quantization_mode": "offline"}});
    for (class, args, unit) in [
        ("autobitlinear", &[][..], 2.5),
        ("bitlinear", &[], 0.4),
        ("autobitlinear", &["--packed-scale", "divide"], 0.4),
        ("bitlinear", &["--packed-scale", "multiply"], 2.5),
    ] {
        let (c, digits) = packed(linear(class));
        let args = [&["--outtype", "f32"], args].concat();
        let (_, values) = read(&convert(&c, "m", &args), "blk.0.ffn_gate.weight");
        let expected: Vec<f32> = digits.iter().map(|d| f32::from(*d) * unit).collect();
        assert_eq!(values, expected, "{class} {args:?}");
    }
}

#[test]
fn a_packed_code_that_is_no_digit_is_named() {
    let (mut c, _) = packed(json!({"quantization_config": {"quant_method": "bitnet"}}));
    let name = "model.layers.1.mlp.up_proj.weight";
    let mut tensor = c.tensor(name).clone();
    tensor.2[3 * 64 + 5] = 0b0111_0000;
    c.tensors.insert(name.into(), tensor);
    let e = refused(&c, &[]);
    assert!(e.contains(name) && e.contains("row 51, column 5"), "{e}");
}

#[test]
fn a_trilm_has_a_scale_per_rank() {
    let mut c = Checkpoint::llama(json!({"pretraining_model_parallel": 2}));
    // the halves of a matrix differ in size, so that their scales do
    let by_rows = "model.layers.0.self_attn.v_proj.weight";
    let values: Vec<f32> = (0..32 * 64).map(|i| if i < 16 * 64 { 0.5 } else { 4.0 }).collect();
    c.put(by_rows, "F32", &[32, 64], &values);
    let by_columns = "model.layers.0.mlp.down_proj.weight";
    let values: Vec<f32> = (0..64 * 96).map(|i| if i % 96 < 48 { -0.25 } else { 2.0 }).collect();
    c.put(by_columns, "F32", &[64, 96], &values);
    let file = convert(&c, "m", &["--ternary", "trilm", "--outtype", "f32"]);
    // |W| is the same everywhere in a part: its scale is 1e-5 more, and every digit is 1
    let scale = |mean: f32| 1e-5 + mean;
    let (_, v) = read(&file, "blk.0.attn_v.weight");
    assert!(v[..16 * 64].iter().all(|x| *x == scale(0.5)) && v[16 * 64..].iter().all(|x| *x == scale(4.0)));
    let (_, d) = read(&file, "blk.0.ffn_down.weight");
    assert!(d.chunks(48).enumerate().all(|(i, c)| {
        let expected = if i % 2 == 0 { -scale(0.25) } else { scale(2.0) };
        c.iter().all(|x| *x == expected)
    }));
    let e = refused(&c, &["--ternary", "trilm", "--trilm-parts", "5"]);
    assert!(e.contains("q_proj") && e.contains("5 parts"), "{e}");
    let one = convert(&c, "m", &["--ternary", "trilm", "--trilm-parts", "1", "--outtype", "f32"]);
    let (_, v) = read(&one, "blk.0.attn_v.weight");
    assert_eq!(v[0], 0.0, "one scale for both halves makes the small ones 0");
}

#[test]
fn the_first_bitnets_have_other_names_for_their_norms() {
    let vectors = |attn, ffn| {
        [("input_layernorm.weight", EMBD), ("post_attention_layernorm.weight", EMBD), (attn, EMBD), (ffn, 96)]
    };
    let make = |class, attn, ffn| {
        let c = Checkpoint::new(class, json!({})).blocks("BF16", HEAD, &vectors(attn, ffn));
        convert(&c, "m", &[])
    };
    let old = make("BitnetForCausalLM", "self_attn.inner_attn_ln.weight", "mlp.ffn_layernorm.weight");
    let new = make("BitNetForCausalLM", "self_attn.attn_sub_norm.weight", "mlp.ffn_sub_norm.weight");
    assert_eq!(read(&old, "blk.1.attn_sub_norm.weight"), read(&new, "blk.1.attn_sub_norm.weight"));
    assert_eq!(read(&old, "blk.0.ffn_sub_norm.weight").1.len(), 96);
    // latent weights are made ternary without being told: three values a matrix
    let (_, mut v) = read(&new, "blk.0.ffn_up.weight");
    v.sort_by(f32::total_cmp);
    v.dedup();
    assert!(v.len() == 3 && v[0] == -v[2] && v[1].to_bits() == 0, "{v:?}");
    let relu2 = Checkpoint::new("BitNetForCausalLM", json!({"hidden_act": "relu2"})).blocks(
        "BF16",
        HEAD,
        &vectors("self_attn.attn_sub_norm.weight", "mlp.ffn_sub_norm.weight"),
    );
    let gguf = Gguf::parse(&convert(&relu2, "m", &[]), &Limits::default()).unwrap();
    assert_eq!(gguf.meta.get_str("general.architecture").unwrap(), Some("bitnet-b1.58"));
}

#[test]
fn multipliers_of_granite_become_factors() {
    let vectors = [("input_layernorm.weight", EMBD), ("post_attention_layernorm.weight", EMBD)];
    let config = json!({"attention_multiplier": 0.015625, "embedding_multiplier": 12.0, "residual_multiplier": 0.22});
    let c = Checkpoint::new("GraniteForCausalLM", config).blocks("BF16", HEAD, &vectors);
    let file = convert(&c, "m", &[]);
    let meta = Gguf::parse(&file, &Limits::default()).unwrap().meta;
    let stated = [
        ("attention.scale", 0.015625),
        ("embedding_scale", 12.0),
        ("residual_scale", 0.22),
        // what the class assumes; the loader asks for it
        ("logit_scale", 1.0),
    ];
    for (key, value) in stated {
        let found = meta.get_f32(&format!("granite.{key}")).unwrap();
        assert_eq!(found, Some(value), "{key}");
    }
    // its heads are turned as LLaMA's are, and their size follows from the others
    let llama = convert(&Checkpoint::llama(json!({})), "m", &[]);
    let name = "blk.1.attn_q.weight";
    assert_eq!(read(&file, name), read(&llama, name));
    assert!(meta.get("granite.attention.key_length").is_none());
}

#[test]
fn gains_of_gemma_are_one_more_and_its_padding_is_cut() {
    let mut c = gemma3();
    c.add("model.embed_tokens.weight", "BF16", &[VOCAB + 4, EMBD]);
    let file = convert(&c, "m", &[]);
    let (ty, gains) = read(&file, "blk.0.attn_q_norm.weight");
    let stored = floats(c.tensor("model.layers.0.self_attn.q_norm.weight"));
    assert_eq!((ty, gains), (TypeId::F32, stored.iter().map(|g| g + 1.0).collect()));
    let (_, rows) = read(&file, "token_embd.weight");
    assert_eq!(rows, floats(c.tensor("model.embed_tokens.weight"))[..(VOCAB * EMBD) as usize]);
}

#[test]
fn a_dry_run_says_what_would_be_written() {
    let dir = TempDir::new().unwrap();
    let folder = llama3().write(dir.path(), "m");
    let mut cmd = Command::new(env!("CARGO_BIN_EXE_rconvert"));
    let result = cmd.arg(&folder).args(["--dry-run", "--json"]).assert().success();
    let report: Value = serde_json::from_slice(&result.get_output().stdout).unwrap();
    assert_eq!(report["file"], Value::Null);
    assert_eq!(report["tensors"].as_array().map(Vec::len), Some(30));
    assert_eq!(report["bytes"], convert(&llama3(), "m", &[]).len());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    // Without a name the file is where the documents of llama.cpp and bitnet.cpp have it.
    let mut cmd = Command::new(env!("CARGO_BIN_EXE_rconvert"));
    cmd.arg(&folder).assert().success();
    let written = fs::read(folder.join("ggml-model-bf16.gguf")).unwrap();
    assert!(written == convert(&llama3(), "m", &[]));
}

#[test]
fn a_vocabulary_alone_needs_no_weights() {
    let mut c = llama3();
    c.tensors.clear();
    c.shards = 1;
    let file = convert(&c, "m", &["--vocab-only", "--model-name", "Some Name"]);
    let gguf = Gguf::parse(&file, &Limits::default()).unwrap();
    assert!(gguf.tensors.is_empty());
    assert_eq!(gguf.meta.get_str("general.name").unwrap(), Some("Some Name"));
    assert_eq!(gguf.meta.get_strs("tokenizer.ggml.tokens").unwrap().map(|t| t.len()), Some(12));
}

#[test]
fn merges_of_a_sentencepiece_vocabulary_become_scores() {
    let mut c = Checkpoint::llama(json!({}));
    let mut t = checkpoint::tokenizer();
    t["model"] = json!({"type": "BPE", "byte_fallback": true, "unk_token": "u", "vocab":
        {"u": 0, "a": 1, "b": 2, "ab": 3, "<0x0A>": 4, "\u{2581}": 5, "\u{2581}ab": 8}, "merges": ["a b", ["\u{2581}", "ab"]]});
    c.files.insert("tokenizer.json", t.to_string().into_bytes());
    let gguf = Gguf::parse(&convert(&c, "m", &[]), &Limits::default()).unwrap();
    let m = &gguf.meta;
    assert_eq!(m.get_str("tokenizer.ggml.model").unwrap(), Some("llama"));
    let scores = m.get_f32s("tokenizer.ggml.scores").unwrap().unwrap();
    assert_eq!((scores[3], scores[8], scores[1]), (0.0, -1.0, -1000.0));
    let kinds = m.get_i32s("tokenizer.ggml.token_type").unwrap().unwrap();
    assert_eq!(kinds[..], [2, 1, 1, 1, 6, 1, 3, 4, 1, 5, 5, 5]);
    assert_eq!(m.get_bool("tokenizer.ggml.add_space_prefix").unwrap(), Some(false));
}
