//! Checkpoints whose numbers are absurd and whose files are no files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use super::kit::*;

/// Half a gigabyte of address space above what the program itself needs, and a minute of a processor.
const LIMIT: &str = "ulimit -v 2000000; ulimit -t 60; exec \"$0\" \"$@\"";

fn config() -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 12, "rms_norm_eps": 1e-5,
        "max_position_embeddings": 256, "tie_word_embeddings": true, "hidden_act": "silu",
    })
}

fn tokenizer() -> Value {
    json!({
        "added_tokens": [{
            "id": 3, "content": "<s>", "special": true, "normalized": false, "single_word": false, "lstrip": false,
            "rstrip": false,
        }],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true, "trim_offsets": true},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
    })
}

fn write(dir: &Path, config: &Value, tokenizer: &Value) {
    fs::write(dir.join("config.json"), config.to_string()).unwrap();
    fs::write(dir.join("tokenizer.json"), tokenizer.to_string()).unwrap();
}

/// A run that is quick, small and orderly; the line where it is refused.
fn convert(dir: &Path, words: &[&str]) -> Option<String> {
    let output = run_behind(dir, LIMIT, RCONVERT, words);
    orderly(output.status, &format!("{words:?}: {}", String::from_utf8_lossy(&output.stderr)));
    (!output.status.success()).then(|| refused(&output))
}

#[test]
fn absurd_numbers_are_refused_before_memory_is_taken() {
    let dir = folder();
    fs::write(path(&dir, "model.safetensors"), [&2u64.to_le_bytes()[..], b"{}"].concat()).unwrap();
    let rope = json!({"rope_type": "llama3", "factor": 8.0});
    for (key, value) in [
        ("num_hidden_layers", 10_000_000u64),
        ("num_hidden_layers", u64::from(u32::MAX)),
        ("vocab_size", 1 << 31),
        ("vocab_size", 1 << 22),
        ("head_dim", 1 << 31),
        ("head_dim", 1 << 30),
        ("hidden_size", 1 << 31),
        ("intermediate_size", 1 << 31),
        ("num_attention_heads", 1 << 31),
        ("num_key_value_heads", 1 << 31),
        ("pretraining_model_parallel", 1 << 31),
    ] {
        let mut config = config();
        config[key] = value.into();
        config["rope_scaling"] = rope.clone();
        write(dir.path(), &config, &tokenizer());
        for words in [&[".", "out.gguf"][..], &[".", "out.gguf", "--vocab-only"], &[".", "--dry-run"]] {
            let error = convert(dir.path(), words);
            let vocabulary = words.contains(&"--vocab-only");
            assert!(error.is_some() || vocabulary, "{key} {value} {words:?}");
            assert_eq!(unfinished(dir.path()), [""; 0]);
        }
    }
}

#[test]
fn tokenizers_that_panic_or_grow_are_one_line() {
    let dir = folder();
    let replace = json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"});
    let mut all = Vec::new();
    for n in [4, 8, 12] {
        let mut bomb = tokenizer();
        bomb["normalizer"] = json!({"type": "Sequence", "normalizers": vec![replace.clone(); n]});
        all.push(bomb);
    }
    for (key, value) in [
        ("continuing_subword_prefix", json!("####")),
        ("continuing_subword_prefix", json!("é")),
        ("end_of_word_suffix", json!("</w>")),
        ("unk_token", json!("absent")),
        ("dropout", json!(1.5)),
        ("merges", json!(["a ab", "é b"])),
    ] {
        let mut odd = tokenizer();
        odd["model"][key] = value;
        all.push(odd);
    }
    let mut slow = tokenizer();
    slow["pre_tokenizer"] =
        json!({"type": "Split", "pattern": {"Regex": "(\\s*)*(a|aa)+$"}, "behavior": "Isolated", "invert": false});
    all.push(slow);
    for tokenizer in all {
        write(dir.path(), &config(), &tokenizer);
        for words in [&[".", "out.gguf", "--vocab-only"][..], &[".", "out.gguf", "--vocab-only", "--pre", "llama-bpe"]]
        {
            // Whether it is refused does not matter, how does.
            convert(dir.path(), words);
        }
    }
}

#[test]
fn what_is_no_file_is_not_read() {
    let dir = folder();
    for name in ["config.json", "tokenizer.json", "tokenizer_config.json", "README.md", "model.safetensors"] {
        write(dir.path(), &config(), &tokenizer());
        let file = path(&dir, name);
        let _ = fs::remove_file(&file);
        symlink("/dev/zero", &file).unwrap();
        assert!(convert(dir.path(), &[".", "out.gguf"]).is_some(), "{name}");
        fs::remove_file(&file).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&file).status();
        assert!(made.unwrap().success());
        assert!(convert(dir.path(), &[".", "out.gguf"]).is_some(), "{name}");
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn a_header_of_countless_tensors_takes_no_memory() {
    let dir = folder();
    write(dir.path(), &config(), &tokenizer());
    let entry = |i| format!("\"t{i}\":{{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}");
    let json = format!("{{{}}}", (0..1_300_000).map(entry).collect::<Vec<_>>().join(","));
    let file = [&(json.len() as u64).to_le_bytes()[..], json.as_bytes()].concat();
    fs::write(path(&dir, "model.safetensors"), file).unwrap();
    let error = convert(dir.path(), &[".", "out.gguf"]).expect("a refusal");
    assert!(error.contains("65536 tensors"), "{error}");
}

/// Whatever a checkpoint's folder holds is its owner's.
#[test]
fn no_file_of_the_folder_is_replaced() {
    let dir = folder();
    write(dir.path(), &config(), &tokenizer());
    let others = [
        "model.safetensors",
        "tokenizer_config.json",
        "README.md",
        "generation_config.json",
        "merges.txt",
        "vocab.json",
    ];
    for name in others {
        fs::write(path(&dir, name), "{}").unwrap();
    }
    symlink("model.safetensors", path(&dir, "link.gguf")).unwrap();
    for name in others.iter().chain(&["config.json", "tokenizer.json", "link.gguf"]) {
        let before = bytes(&dir, name);
        let error = convert(dir.path(), &["--vocab-only", ".", name]).expect("a refusal");
        assert!(error.contains("also the input"), "{name}: {error}");
        assert_eq!(bytes(&dir, name), before, "{name}");
    }
    for _ in 0..2 {
        assert_eq!(convert(dir.path(), &["--vocab-only", ".", "out.gguf", "--pre", "gpt-2"]), None);
    }
}
