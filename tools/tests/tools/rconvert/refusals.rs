//! Inputs that rconvert refuses, in one line and with nothing left behind.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;
use trine_formats::types::TypeId;

use super::archs;
use super::checkpoint::{Checkpoint, EMBD, llama3};
use super::{convert, read, recorded, refused, refused_folder};

fn llama(config: Value) -> Checkpoint {
    Checkpoint::llama(config)
}

#[track_caller]
fn says(error: &str, parts: &[&str]) {
    parts.iter().for_each(|p| assert!(error.contains(p), "no '{p}' in: {error}"));
}

#[test]
fn folders_that_are_none() {
    let dir = TempDir::new().unwrap();
    says(&refused_folder(&dir, &dir.path().join("absent"), &[]), &["cannot open", "absent"]);
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    says(&refused_folder(&dir, &empty, &[]), &["has no config.json"]);
    let file = empty.join("file");
    fs::write(&file, "x").unwrap();
    says(&refused_folder(&dir, &file, &[]), &["is not a folder"]);
    fs::write(empty.join("config.json"), "{\"architectures\": [").unwrap();
    says(&refused_folder(&dir, &empty, &[]), &["config.json' is not JSON"]);
    let bare = llama(json!({})).write(dir.path(), "bare");
    fs::remove_file(bare.join("model.safetensors")).unwrap();
    says(&refused_folder(&dir, &bare, &[]), &["has no model*.safetensors", "downloaded"]);
    fs::write(bare.join("pytorch_model.bin"), "x").unwrap();
    says(&refused_folder(&dir, &bare, &[]), &["PyTorch files"]);
}

#[test]
fn configurations() {
    for (config, parts) in [
        (
            json!({"architectures": ["GPTJForCausalLM"]}),
            &["'GPTJForCausalLM'", "LlamaForCausalLM", "Gemma3ForCausalLM"][..],
        ),
        (json!({"architectures": ["MixtralForCausalLM"]}), &["has no 'num_local_experts' or 'num_experts'"]),
        (json!({"num_local_experts": 8}), &["there are 8 experts", "'LlamaForCausalLM' have none"]),
        (json!({"architectures": null}), &["has no 'architectures'"]),
        (json!({"hidden_size": "64"}), &["'hidden_size' is \"64\""]),
        (json!({"num_attention_heads": 0}), &["'num_attention_heads' is 0"]),
        (json!({"num_key_value_heads": 3}), &["4 query heads cannot share 3"]),
        (json!({"hidden_act": "gelu"}), &["activation is 'gelu'", "'silu'"]),
        (
            json!({"rope_scaling": {"type": "longrope", "factor": 2.0}}),
            &["'longrope' is not supported", "linear, yarn"],
        ),
        (json!({"rope_scaling": {"rope_type": "yarn"}}), &["has no 'factor'"]),
        (json!({"quantization_config": {"quant_method": "exl3"}}), &["quantized by 'exl3'", "gptq, awq"]),
        (json!({"partial_rotary_factor": 0.5}), &["'partial_rotary_factor'"]),
    ] {
        says(&refused(&llama(config), &[]), parts);
    }
}

#[test]
fn tensors_are_reported_all_at_once() {
    let mut c = llama(json!({"tie_word_embeddings": false}));
    c.tensors.remove("model.norm.weight");
    c.tensors.remove("model.layers.1.mlp.up_proj.weight");
    c.add("model.layers.0.mlp.down_proj.weight", "BF16", &[96, 64]);
    c.add("model.layers.2.input_layernorm.weight", "BF16", &[64]);
    c.tensors.insert("model.layers.0.self_attn.q_proj.weight".into(), ("I64", vec![64, 64], vec![0; 8 * 64 * 64]));
    says(
        &refused(&c, &[]),
        &[
            "'model.norm.weight' is missing",
            "'model.layers.1.mlp.up_proj.weight' is missing",
            "'lm_head.weight' is missing",
            "has shape [96, 64], config.json makes it [64, 96]",
            "'model.layers.2.input_layernorm.weight' has no place",
            "of type I64",
        ],
    );
}

#[test]
fn configurations_of_other_architectures() {
    let with = |mut c: Checkpoint, more: Value| {
        for (key, value) in more.as_object().unwrap() {
            c.config[key] = value.clone();
        }
        c
    };
    for (checkpoint, more, parts) in [
        (archs::mixtral(), json!({"num_local_experts": 0}), &["'num_local_experts' is 0"][..]),
        (archs::mixtral(), json!({"num_local_experts": 70000}), &["'num_local_experts' is 70000, more than the 16384"]),
        (archs::mixtral(), json!({"num_experts_per_tok": 5}), &["'num_experts_per_tok' is 5, and there are 4"]),
        (archs::gemma1(), json!({"hidden_activation": "relu"}), &["activation is 'relu'", "'gelu_pytorch_tanh'"]),
        (
            archs::phi3(),
            json!({"rope_scaling": {"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}}),
            &["'long_factor' has 1 numbers, and RoPE turns 8 pairs"],
        ),
        (archs::phi3(), json!({"rope_scaling": {"type": "longrope"}}), &["has no list 'long_factor'"]),
        (
            archs::phi3(),
            json!({"rope_scaling": {"type": "linear", "factor": 2.0}}),
            &["type 'linear' is not supported for architecture 'phi3'"],
        ),
        (archs::gptneox(), json!({"rotary_pct": 0.01}), &["RoPE turn 0 of the 16"]),
        (
            archs::gptneox(),
            json!({"rotary_emb_base": 20000}),
            &["'rotary_emb_base' is 20000", "'gptneox' runs as if it were 10000"],
        ),
        (archs::falcon_7b(), json!({"alibi": true}), &["'alibi' is true", "'falcon' runs as if it were not there"]),
        (archs::gpt2(), json!({"n_embd": null}), &["has no 'hidden_size' or 'n_embd'"]),
        (
            recorded::checkpoint("gemma4-moe"),
            json!({"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}}),
            &["of full_attention are of type 'default', expected proportional"],
        ),
        (recorded::checkpoint("gemma4-moe"), json!({"global_head_dim": null}), &["has no 'global_head_dim'"]),
        (recorded::checkpoint("gemma4-moe"), json!({"global_head_dim": 3_000_000_000u32}), &["more than the 1048576"]),
        (recorded::checkpoint("gemma4-moe"), json!({"vocab_size": 27}), &["has no token 26", "says vocab_size 27"]),
        (recorded::checkpoint("gemma4-moe"), json!({"layer_types": null}), &["has no list 'layer_types'"]),
        (
            recorded::checkpoint("gemma4-moe"),
            json!({"num_global_key_value_heads": 2}),
            &["layers.2.self_attn.k_proj.weight' has shape [32, 64], config.json makes it [64, 64]"],
        ),
        (
            recorded::checkpoint("step35"),
            json!({"partial_rotary_factors": [0.5, 0.5, 1.0]}),
            &["'partial_rotary_factors' is 0.5 for layer 1"],
        ),
        (
            recorded::checkpoint("step35"),
            json!({"num_attention_heads": 6}),
            &["layers.0.self_attn.q_proj.weight' has shape [64, 64], config.json makes it [96, 64]"],
        ),
    ] {
        says(&refused(&with(checkpoint, more), &[]), parts);
    }
}

#[test]
fn experts_that_do_not_add_up() {
    let expert = |n, part| format!("model.layers.1.block_sparse_moe.experts.{n}.{part}.weight");
    let mut c = archs::mixtral();
    c.tensors.remove(&expert(2, "w3"));
    says(&refused(&c, &[]), &[&format!("fit config.json: '{}' is missing", expert(2, "w3"))]);
    c = archs::mixtral();
    c.add(&expert(1, "w2"), "BF16", &[48, 64]);
    c.add(&expert(4, "w1"), "BF16", &[48, 64]);
    c.add("model.layers.1.block_sparse_moe.gate.weight", "BF16", &[5, 64]);
    says(
        &refused(&c, &[]),
        &[
            &format!("'{}' has shape [48, 64], config.json makes it [64, 48]", expert(1, "w2")),
            &format!("'{}' has number 4, and config.json says there are 4", expert(4, "w1")),
            "gate.weight' has shape [5, 64], config.json makes it [4, 64]",
        ],
    );
    assert!(!refused(&c, &[]).contains("missing"));
    c = archs::mixtral();
    c.add(&expert(3, "w1"), "F32", &[48, 64]);
    says(&refused(&c, &[]), &[&expert(3, "w1"), "others of its stack"]);
    // a value that is none is looked for in the expert's own tensor
    c = archs::mixtral();
    let mut values = vec![0.5; 64 * 48];
    values[5 * 48 + 7] = f32::NAN;
    c.put(&expert(2, "w2"), "BF16", &[64, 48], &values);
    says(&refused(&c, &[]), &[&expert(2, "w2"), "NaN in row 5, column 7"]);
    says(&refused(&archs::mixtral(), &["--ternary", "bitnet"]), &["is ternary or to be made so"]);
    says(&refused(&archs::mixtral(), &["--fairy2i"]), &["models with experts cannot be made widely linear"]);
}

/// A place in a matrix that is turned around or regrouped is named as the checkpoint has it.
#[test]
fn values_that_are_none_in_matrices_whose_rows_change_places() {
    let spoil = |mut c: Checkpoint, name: &str, shape: [u64; 2]| {
        let mut values = vec![0.25; (shape[0] * shape[1]) as usize];
        values[(5 * shape[1] + 7) as usize] = f32::INFINITY;
        c.put(name, "BF16", &shape, &values);
        refused(&c, &[])
    };
    let name = "h.1.mlp.c_fc.weight";
    says(&spoil(archs::gpt2(), name, [64, 256]), &[name, "inf in row 5, column 7"]);
    let name = "gpt_neox.layers.0.attention.query_key_value.weight";
    says(&spoil(archs::gptneox(), name, [192, 64]), &[name, "inf in row 5, column 7"]);
    let mut c = archs::gptneox();
    c.tensors.remove("gpt_neox.layers.1.attention.query_key_value.weight");
    c.tensors.remove("embed_out.weight");
    says(
        &refused(&c, &[]),
        &["'embed_out.weight' is missing", "'gpt_neox.layers.1.attention.query_key_value.weight' is missing"],
    );
}

#[test]
fn shards_that_are_cut_off_or_lead_elsewhere() {
    let dir = TempDir::new().unwrap();
    let folder = llama3().write(dir.path(), "m");
    let shard = folder.join("model-00002-of-00003.safetensors");
    let bytes = fs::read(&shard).unwrap();
    fs::write(&shard, &bytes[..bytes.len() - 1]).unwrap();
    says(&refused_folder(&dir, &folder, &[]), &["00002-of-00003", "cut off"]);
    fs::remove_file(&shard).unwrap();
    says(&refused_folder(&dir, &folder, &[]), &["there is no file 'model-00002-of-00003.safetensors'"]);
    fs::write(&shard, &bytes).unwrap();
    let index = folder.join("model.safetensors.index.json");
    let mut map: Value = serde_json::from_slice(&fs::read(&index).unwrap()).unwrap();
    map["weight_map"]["extra"] = json!("model-00001-of-00003.safetensors");
    fs::write(&index, map.to_string()).unwrap();
    says(&refused_folder(&dir, &folder, &[]), &["tensor 'extra' is not in"]);
    map["weight_map"]["extra"] = json!("../x.safetensors");
    fs::write(&index, map.to_string()).unwrap();
    says(&refused_folder(&dir, &folder, &[]), &["'../x.safetensors', which is not a plain file name"]);
}

#[test]
fn weights_that_are_no_numbers() {
    let mut c = llama(json!({}));
    let mut values = vec![0.5; 64 * 96];
    values[3 * 96 + 7] = f32::NAN;
    c.put("model.layers.1.mlp.down_proj.weight", "F32", &[64, 96], &values);
    for args in [&[][..], &["--ternary", "trilm"]] {
        says(&refused(&c, args), &["layers.1.mlp.down_proj", "NaN in row 3, column 7"]);
    }
    values[3 * 96 + 7] = 70000.0;
    c.put("model.layers.1.mlp.down_proj.weight", "F32", &[64, 96], &values);
    says(&refused(&c, &["--outtype", "f16"]), &["7e4 in row 3 is too large for f16"]);
    convert(&c, "m", &["--outtype", "bf16"]);
}

#[test]
fn tokenizers() {
    let mut c = llama(json!({"vocab_size": 7}));
    says(&refused(&c, &[]), &["token '<tool>' has id 7", "vocab_size 7"]);
    c = llama(json!({}));
    c.files.remove("tokenizer.json");
    says(&refused(&c, &[]), &["has no tokenizer.json nor tokenizer.model"]);
    c.files.insert("tokenizer.model", b"\xff\xff".to_vec());
    says(&refused(&c, &[]), &["tokenizer.model"]);
    let mut t = super::checkpoint::tokenizer();
    t["pre_tokenizer"] = json!({"type": "Whitespace"});
    c = llama(json!({}));
    c.files.insert("tokenizer.json", t.to_string().into_bytes());
    says(&refused(&c, &[]), &["Whitespace", "--pre NAME"]);
    convert(&c, "m", &["--pre", "olmo"]);
    t["model"]["type"] = json!("Unigram");
    c.files.insert("tokenizer.json", t.to_string().into_bytes());
    says(&refused(&c, &[]), &["type Unigram"]);
}

#[test]
fn ternary_types_for_what_is_not_ternary() {
    // 64 columns are no block of 256
    let c = llama(json!({}));
    says(&refused(&c, &["--outtype", "tq2_0", "--ternary", "bitnet"]), &["TQ2_0", "rows of 64", "--fallback"]);
    let config = json!({"hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 1, "head_dim": 64});
    let mut c = Checkpoint::new("LlamaForCausalLM", config);
    c.add("model.embed_tokens.weight", "BF16", &[12, 256]);
    c.add("model.norm.weight", "BF16", &[256]);
    for (name, rows) in [
        ("self_attn.q", 256),
        ("self_attn.k", 128),
        ("self_attn.v", 128),
        ("self_attn.o", 256),
        ("mlp.gate", 256),
        ("mlp.up", 256),
        ("mlp.down", 256),
    ] {
        let digits: Vec<f32> = c.values(rows * 256).iter().map(|v| (v * 2.9).round() * 0.25).collect();
        c.put(&format!("model.layers.0.{name}_proj.weight"), "BF16", &[rows, 256], &digits);
    }
    c.add("model.layers.0.input_layernorm.weight", "BF16", &[256]);
    c.add("model.layers.0.post_attention_layernorm.weight", "BF16", &[256]);
    for outtype in ["tq1_0", "tq2_0"] {
        let (ty, values) = read(&convert(&c, "m", &["--outtype", outtype]), "blk.0.ffn_up.weight");
        assert_eq!(ty, TypeId::from_name(outtype).unwrap());
        assert_eq!(values, super::floats(c.tensor("model.layers.0.mlp.up_proj.weight")));
    }
    c.add("model.layers.0.mlp.up_proj.weight", "BF16", &[256, 256]);
    says(
        &refused(&c, &["--outtype", "tq2_0"]),
        &["'model.layers.0.mlp.up_proj.weight' is not ternary in row 0 from column 0"],
    );
    let file = convert(&c, "m", &["--outtype", "tq2_0", "--fallback"]);
    assert_eq!(read(&file, "blk.0.ffn_up.weight").0, TypeId::F16);
    assert_eq!(read(&file, "blk.0.ffn_gate.weight").0, TypeId::TQ2_0);
    assert_eq!(read(&file, "token_embd.weight").0, TypeId::F16);
}

#[test]
fn a_failure_leaves_the_old_file() {
    let dir = TempDir::new().unwrap();
    let mut c = llama(json!({}));
    let mut values = vec![1.0; EMBD as usize];
    values[5] = f32::INFINITY;
    c.put("model.norm.weight", "F32", &[EMBD], &values);
    let folder = c.write(dir.path(), "m");
    let out = dir.path().join("out.gguf");
    fs::write(&out, "old").unwrap();
    super::rconvert(&[], &folder, &out).code(1);
    assert_eq!(fs::read(&out).unwrap(), b"old");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    let input = folder.join("model.safetensors");
    super::rconvert(&[], &folder, &input).code(1);
    assert!(fs::read(&input).unwrap().len() > 1000);
}
