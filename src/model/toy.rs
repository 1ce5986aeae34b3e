//! Small random models of every architecture.

use std::path::PathBuf;
use std::sync::Arc;

use trine_formats::gguf::write::{Layout, NewTensor};
use trine_formats::gguf::{Bytes, Gguf, Limits, Metadata, ModelFile, Shard, Value};
use trine_formats::types::TypeId;

use crate::sample::rng::Mt19937;

/// Choices of a toy beyond its architecture.
#[derive(Clone, Copy, Default)]
pub struct Extras {
    pub biases: bool,
    pub scales: bool,
    pub fused: bool,
    /// A matrix for the output instead of the embedding.
    pub output: bool,
    pub window: bool,
    pub softcap: bool,
    /// RoPE divisors and YaRN.
    pub positions: bool,
}

/// Two layers of 16 with 4 heads of 6 over 2, feed-forward 20, vocabulary 23.
pub const EMBD: usize = 16;
pub const HEADS: usize = 4;
pub const KV: usize = 2;
pub const DIM: usize = 6;
pub const FF: usize = 20;
pub const VOCAB: usize = 23;

struct Builder {
    rng: Mt19937,
    tensors: Vec<(NewTensor, Vec<u8>)>,
}

impl Builder {
    fn add(&mut self, name: &str, shape: &[usize], mean: f64, spread: f64) {
        let n: usize = shape.iter().product();
        let values = (0..n).map(|_| (mean + spread * (2.0 * self.rng.next_f64() - 1.0)) as f32);
        let data = values.flat_map(f32::to_le_bytes).collect();
        let shape: Vec<u64> = shape.iter().map(|&d| d as u64).collect();
        self.tensors.push((NewTensor::new(name, shape, TypeId::F32), data));
    }

    fn linear(&mut self, name: &str, columns: usize, rows: usize, extras: Extras) {
        self.add(&format!("{name}.weight"), &[columns, rows], 0.0, 0.5);
        if extras.biases {
            self.add(&format!("{name}.bias"), &[rows], 0.0, 0.4);
        }
        if extras.scales {
            self.add(&format!("{name}.scale"), &[1], 1.0, 0.5);
        }
    }

    fn norm(&mut self, name: &str, n: usize) {
        self.add(&format!("{name}.weight"), &[n], 1.0, 0.4);
    }
}

/// A model of random weights.
pub fn toy(arch: &str, extras: Extras) -> ModelFile {
    let mut meta = Metadata::default();
    let mut key = |name: &str, value: Value| meta.set(&format!("{arch}.{name}"), value);
    for (name, n) in [
        ("block_count", 2),
        ("context_length", 64),
        ("embedding_length", EMBD),
        ("feed_forward_length", FF),
        ("attention.head_count", HEADS),
        ("attention.head_count_kv", KV),
        ("attention.key_length", DIM),
        ("attention.value_length", DIM),
        ("rope.dimension_count", DIM),
        ("vocab_size", VOCAB),
    ] {
        key(name, Value::U32(n as u32));
    }
    key("attention.layer_norm_rms_epsilon", Value::F32(1e-3));
    key("rope.freq_base", Value::F32(50.0));
    if extras.window {
        key("attention.sliding_window", Value::U32(3));
        key("attention.sliding_window_pattern", Value::U32(2));
    }
    if extras.softcap {
        key("final_logit_softcapping", Value::F32(2.0));
    }
    if extras.positions {
        key("rope.scaling.type", Value::str("yarn"));
        key("rope.scaling.factor", Value::F32(2.0));
        key("rope.scaling.original_context_length", Value::U32(16));
    }
    meta.set("general.architecture", Value::str(arch));
    let mut b = Builder { rng: Mt19937::new(5), tensors: Vec::new() };
    b.add("token_embd.weight", &[EMBD, VOCAB], 0.0, 1.0);
    b.norm("output_norm", EMBD);
    if extras.output {
        b.add("output.weight", &[EMBD, VOCAB], 0.0, 1.0);
    }
    if extras.positions && arch == "llama" {
        b.add("rope_freqs.weight", &[DIM / 2], 2.0, 0.9);
    }
    for i in 0..2 {
        block(&mut b, arch, &format!("blk.{i}."), extras);
    }
    assemble(&meta, b.tensors)
}

fn block(b: &mut Builder, arch: &str, prefix: &str, extras: Extras) {
    let name = |part: &str| format!("{prefix}{part}");
    let is_bitnet = arch.starts_with("bitnet");
    // Of the biases, Qwen 2 has those of queries, keys and values.
    let attn = extras;
    let plain = Extras { biases: extras.biases && arch == "llama", ..extras };
    let (q, kv) = (HEADS * DIM, KV * DIM);
    if extras.fused {
        b.linear(&name("attn_qkv"), EMBD, q + 2 * kv, Extras::default());
        if extras.biases {
            b.add(&name("attn_q.bias"), &[q], 0.0, 0.4);
            b.add(&name("attn_v.bias"), &[kv], 0.0, 0.4);
        }
    } else {
        for (part, rows) in [("attn_q", q), ("attn_k", kv), ("attn_v", kv)] {
            b.linear(&name(part), EMBD, rows, attn);
        }
    }
    b.linear(&name("attn_output"), q, EMBD, plain);
    b.linear(&name("ffn_gate"), EMBD, FF, plain);
    b.linear(&name("ffn_up"), EMBD, FF, plain);
    b.linear(&name("ffn_down"), FF, EMBD, plain);
    if arch != "olmo2" {
        b.norm(&name("attn_norm"), EMBD);
        b.norm(&name("ffn_norm"), EMBD);
    }
    if matches!(arch, "olmo2" | "gemma3") {
        b.norm(&name("post_attention_norm"), EMBD);
        b.norm(&name("post_ffw_norm"), EMBD);
    }
    if matches!(arch, "qwen3" | "gemma3") {
        b.norm(&name("attn_q_norm"), DIM);
        b.norm(&name("attn_k_norm"), DIM);
    }
    if arch == "olmo2" {
        b.norm(&name("attn_q_norm"), q);
        b.norm(&name("attn_k_norm"), kv);
    }
    if is_bitnet {
        b.norm(&name("attn_sub_norm"), q);
        b.norm(&name("ffn_sub_norm"), FF);
    }
}

/// A file in memory.
pub fn assemble(meta: &Metadata, tensors: Vec<(NewTensor, Vec<u8>)>) -> ModelFile {
    let (infos, data): (Vec<_>, Vec<_>) = tensors.into_iter().unzip();
    let layout = Layout::new(meta, &infos).expect("a layout");
    let mut bytes = layout.header().to_vec();
    for data in data {
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(32), 0);
    }
    let gguf = Gguf::parse(&bytes, &Limits::default()).expect("a file");
    let bytes: Bytes = Arc::new(bytes);
    let path = PathBuf::new();
    ModelFile::new(vec![Shard { path, gguf, bytes }]).expect("a model")
}
