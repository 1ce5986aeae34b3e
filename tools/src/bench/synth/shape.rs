//! Shapes of made-up models: hyper-parameters by size, and from them metadata and tensor names.

use trine_formats::gguf::write::NewTensor;
use trine_formats::gguf::{Array, Metadata, StrArray, Value};
use trine_formats::types::TypeId;

/// Architectures that can be made up. The rest share these matrices and differ in norms and biases.
pub const ARCHS: [&str; 5] = ["llama", "qwen3", "bitnet", "bitnet-25", "bitnet-b1.58"];

/// Hyper-parameters of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// The name on the command line.
    pub name: &'static str,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Width of the feed-forward block.
    pub ffn: u64,
    /// Transformer blocks.
    pub layers: u64,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Elements per head.
    pub head_dim: u64,
    /// Tokens.
    pub vocab: u64,
    /// Context length.
    pub context: u64,
    /// Whether embeddings are the output projection too; BitNet models always do this.
    pub tied: bool,
}

#[rustfmt::skip]
const fn size(
    name: &'static str, [hidden, ffn, layers]: [u64; 3], [heads, kv_heads, head_dim]: [u64; 3], vocab: u64,
    context: u64, tied: bool,
) -> Size {
    Size { name, hidden, ffn, layers, heads, kv_heads, head_dim, vocab, context, tied }
}

/// All sizes: one for tests, b1.58's and Llama 3's.
pub const SIZES: [Size; 6] = [
    size("tiny", [256, 512, 2], [4, 2, 64], 512, 512, false),
    size("700m", [1536, 4096, 24], [16, 16, 96], 32_000, 2048, false),
    size("1b", [2048, 8192, 16], [32, 8, 64], 128_256, 4096, true),
    size("2b", [2560, 6912, 30], [20, 5, 128], 128_256, 4096, true),
    size("3b", [3072, 8192, 28], [24, 8, 128], 128_256, 4096, true),
    size("8b", [4096, 14336, 32], [32, 8, 128], 128_256, 4096, false),
];

/// An architecture at a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// `general.architecture`.
    pub arch: &'static str,
    /// Its numbers.
    pub size: Size,
}

impl Shape {
    fn is_bitnet(&self) -> bool {
        self.arch.starts_with("bitnet")
    }

    /// All tensors, matrices as F16 and norms as F32, in the order of the graph.
    pub fn tensors(&self) -> Vec<NewTensor> {
        let s = &self.size;
        let (q, kv) = (s.heads * s.head_dim, s.kv_heads * s.head_dim);
        let mut list = Vec::new();
        let mut matrix = |name: &str, cols: u64, rows: u64| {
            let name = format!("{name}.weight");
            list.push(NewTensor::new(name, [cols, rows], TypeId::F16));
        };
        matrix("token_embd", s.hidden, s.vocab);
        if !(s.tied || self.is_bitnet()) {
            matrix("output", s.hidden, s.vocab);
        }
        for layer in 0..s.layers {
            let mut part =
                |name: &str, cols, rows| matrix(&format!("blk.{layer}.{name}"), cols, rows);
            part("attn_q", s.hidden, q);
            part("attn_k", s.hidden, kv);
            part("attn_v", s.hidden, kv);
            part("attn_output", q, s.hidden);
            part("ffn_gate", s.hidden, s.ffn);
            part("ffn_up", s.hidden, s.ffn);
            part("ffn_down", s.ffn, s.hidden);
        }
        let mut norm = |name: String, width: u64| {
            list.push(NewTensor::new(
                format!("{name}.weight"),
                [width],
                TypeId::F32,
            ));
        };
        norm("output_norm".to_owned(), s.hidden);
        for layer in 0..s.layers {
            let mut part = |name: &str, width| norm(format!("blk.{layer}.{name}"), width);
            part("attn_norm", s.hidden);
            part("ffn_norm", s.hidden);
            if self.is_bitnet() {
                part("attn_sub_norm", q);
                part("ffn_sub_norm", s.ffn);
            }
            if self.arch == "qwen3" {
                part("attn_q_norm", s.head_dim);
                part("attn_k_norm", s.head_dim);
            }
        }
        list
    }

    /// The keys a loader asks for, with a vocabulary of invented words.
    pub fn metadata(&self) -> Metadata {
        let s = &self.size;
        let mut meta = Metadata::default();
        meta.set("general.architecture", Value::str(self.arch));
        let name = format!("synthetic {} {}", self.arch, s.name);
        meta.set("general.name", Value::str(&name));
        let numbers = [
            ("block_count", s.layers),
            ("context_length", s.context),
            ("embedding_length", s.hidden),
            ("feed_forward_length", s.ffn),
            ("attention.head_count", s.heads),
            ("attention.head_count_kv", s.kv_heads),
            ("attention.key_length", s.head_dim),
            ("attention.value_length", s.head_dim),
            ("rope.dimension_count", s.head_dim),
            ("vocab_size", s.vocab),
        ];
        for (key, value) in numbers {
            meta.set(&format!("{}.{key}", self.arch), Value::U32(value as u32));
        }
        let eps = format!("{}.attention.layer_norm_rms_epsilon", self.arch);
        meta.set(&eps, Value::F32(1e-5));
        meta.set(
            &format!("{}.rope.freq_base", self.arch),
            Value::F32(10_000.0),
        );
        vocabulary(&mut meta, s.vocab as usize);
        meta
    }
}

/// A SentencePiece vocabulary: three special tokens, all bytes, then words nobody wrote.
fn vocabulary(meta: &mut Metadata, n: usize) {
    const NORMAL: i32 = 1;
    const UNKNOWN: i32 = 2;
    const CONTROL: i32 = 3;
    const BYTE: i32 = 6;
    let mut texts = StrArray::with_capacity(n, 12 * n);
    let mut types = Vec::with_capacity(n);
    for id in 0..n {
        let (text, ty) = match id {
            0 => ("<unk>".to_owned(), UNKNOWN),
            1 => ("<s>".to_owned(), CONTROL),
            2 => ("</s>".to_owned(), CONTROL),
            3..=258 => (format!("<0x{:02X}>", id - 3), BYTE),
            _ => (format!("\u{2581}w{id}"), NORMAL),
        };
        texts.push(text.as_bytes());
        types.push(ty);
    }
    let scores = (0..n).map(|id| -(id as f32)).collect();
    meta.set("tokenizer.ggml.model", Value::str("llama"));
    meta.set("tokenizer.ggml.tokens", Value::Array(Array::Str(texts)));
    meta.set("tokenizer.ggml.scores", Value::Array(Array::F32(scores)));
    meta.set("tokenizer.ggml.token_type", Value::Array(Array::I32(types)));
    meta.set("tokenizer.ggml.bos_token_id", Value::U32(1));
    meta.set("tokenizer.ggml.eos_token_id", Value::U32(2));
    meta.set("tokenizer.ggml.unknown_token_id", Value::U32(0));
}
