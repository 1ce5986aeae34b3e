//! Importance matrices of a small mixture of experts.

use std::fs;
use std::path::Path;

use trine_formats::gguf::write::{Layout, NewTensor};
use trine_formats::gguf::{Gguf, Limits, Value};
use trine_formats::imatrix::Imatrix;
use trine_formats::types::TypeId;

use super::{command, folder, sha256, stdout, trilm, written};

const EMBD: u64 = 32;
const FF: u64 = 64;
const EXPERTS: u64 = 24;
const LAYERS: u32 = 2;

/// A `qwen3moe` of 24 experts, 3 of which a token goes to, with random weights and TriLM's vocabulary.
pub fn mixture() -> Vec<u8> {
    let file = fs::read(trilm()).unwrap();
    let vocabulary = Gguf::parse(&file, &Limits::default()).unwrap();
    let mut meta = vocabulary.meta.clone();
    let n_vocab = meta.get_strs("tokenizer.ggml.tokens").unwrap().unwrap().len() as u64;
    meta.set("general.architecture", Value::str("qwen3moe"));
    meta.set("general.file_type", Value::U32(0));
    for (key, value) in [
        ("block_count", LAYERS),
        ("context_length", 512),
        ("embedding_length", EMBD as u32),
        ("feed_forward_length", FF as u32),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
        ("attention.key_length", 32),
        ("attention.value_length", 32),
        ("rope.dimension_count", 32),
        ("vocab_size", n_vocab as u32),
        ("expert_count", EXPERTS as u32),
        ("expert_used_count", 3),
        ("expert_feed_forward_length", FF as u32),
    ] {
        meta.set(&format!("qwen3moe.{key}"), Value::U32(value));
    }
    for (key, value) in [("attention.layer_norm_rms_epsilon", 1e-6), ("rope.freq_base", 10_000.0)] {
        meta.set(&format!("qwen3moe.{key}"), Value::F32(value));
    }
    let mut shapes = vec![
        ("token_embd".to_owned(), vec![EMBD, n_vocab]),
        ("output".to_owned(), vec![EMBD, n_vocab]),
        ("output_norm".to_owned(), vec![EMBD]),
    ];
    for layer in 0..LAYERS {
        for (name, shape) in [
            ("attn_norm", vec![EMBD]),
            ("attn_q", vec![EMBD, 64]),
            ("attn_k", vec![EMBD, 32]),
            ("attn_v", vec![EMBD, 32]),
            ("attn_q_norm", vec![32]),
            ("attn_k_norm", vec![32]),
            ("attn_output", vec![64, EMBD]),
            ("ffn_norm", vec![EMBD]),
            ("ffn_gate_inp", vec![EMBD, EXPERTS]),
            ("ffn_gate_exps", vec![EMBD, FF, EXPERTS]),
            ("ffn_up_exps", vec![EMBD, FF, EXPERTS]),
            ("ffn_down_exps", vec![FF, EMBD, EXPERTS]),
        ] {
            shapes.push((format!("blk.{layer}.{name}"), shape));
        }
    }
    let tensors: Vec<NewTensor> =
        shapes.into_iter().map(|(name, shape)| NewTensor::new(format!("{name}.weight"), shape, TypeId::F32)).collect();
    let mut out = Layout::new(&meta, &tensors).unwrap().header().to_vec();
    let mut state = 1u32;
    for tensor in &tensors {
        // Weights are multiples of 2^-9 between -1/4 and 1/4; those of norms lie around 1.
        let middle = if tensor.name.ends_with("norm.weight") { 1.0 } else { 0.0 };
        for _ in 0..tensor.shape.iter().product::<u64>() {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let weight = ((state >> 24) as f32 - 128.0) / 512.0;
            out.extend_from_slice(&(middle + weight).to_le_bytes());
        }
        out.resize(out.len().next_multiple_of(32), 0);
    }
    out
}

fn write_mixture(dir: &Path) {
    fs::write(dir.join("moe.gguf"), mixture()).unwrap();
}

/// SHA-256 of what llama-imatrix writes with these options for this model and text.
#[test]
fn every_expert_has_the_sums_and_the_count_of_the_reference() {
    let dir = folder();
    write_mixture(dir.path());
    for (words, expected) in [
        ("-c 128 --chunks 6", "e89a5cce64e5318b332f595a3f7cd93da16285c793f88d349a532dbb54fa8808"),
        (
            "-c 24 -b 96 -ub 40 --chunks 5 --process-output",
            "1147c931ded43f668766c8a1a19b967bbe03ec10c47e85ce8462fb5150f18afb",
        ),
        // micro-batches of 8 count for the experts, not for the other matrices
        ("-c 24 -b 24 -ub 16 --chunks 3", "fb82220a3b7bad5bbd0da62df038e6f9e914bb23ee0a49648091ab9cdcdf2fa9"),
        (
            "-c 24 -b 24 --chunks 2 --output-format dat",
            "45ca2045e396ac28dac5e6e28cda67ce53f48f2a9079df63060a76040ee83020",
        ),
        (
            "-c 16 -b 16 --chunks 3 --in-file first.gguf",
            "d7aaa43c7130cad694bfd096205d709d98c7e72d50c4b9ee50c822e7dc686f74",
        ),
    ] {
        let words = format!("-m moe.gguf -f im/calib.txt -o out {words}");
        let file = written(&dir, command(&dir, &words), "out");
        assert_eq!(sha256(&file), expected, "{words}");
        if words.contains("-c 128") {
            fs::write(dir.path().join("first.gguf"), &file).unwrap();
        }
    }
}

#[test]
fn experts_without_a_token_are_told() {
    let dir = folder();
    write_mixture(dir.path());
    let words = "-m moe.gguf -f im/calib.txt -c 8 -b 16 --chunks 2 -o few";
    let output = command(&dir, words).output().unwrap();
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    stdout(output);
    assert!(stderr.contains("matrices have experts that saw no token"), "{stderr}");
    let matrix = Imatrix::parse(&fs::read(dir.path().join("few")).unwrap()).unwrap();
    let counts = &matrix.entries["blk.1.ffn_down_exps.weight"].counts;
    assert_eq!(counts.len(), EXPERTS as usize);
    assert_eq!(counts.iter().sum::<i64>(), 16 * 3);
    assert_eq!(matrix.entries["blk.1.attn_q.weight"].counts, [16]);
}

#[test]
fn a_resumed_run_of_a_mixture_ends_as_one_that_was_not_interrupted() {
    let dir = folder();
    write_mixture(dir.path());
    let run = |words: &str| {
        let words = format!("-m moe.gguf -f im/calib.txt -c 32 -b 64 --no-ppl -o {words}");
        command(&dir, &words)
    };
    let whole = written(&dir, run("whole --chunks 8"), "whole");
    written(&dir, run("part --chunks 4"), "part");
    let resumed = written(&dir, run("part --chunks 8 --resume"), "part");
    assert!(resumed == whole);
}
