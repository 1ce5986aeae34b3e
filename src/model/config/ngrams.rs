//! Embeddings of n-grams, as the metadata states them.

use trine_formats::gguf::{Array, Value};

use super::header::Header;
use super::keys::Keys;
use crate::arch::Arch;
use crate::ops::ngrams::Ngrams as Rule;

/// Largest number in the metadata.
const MOST: u32 = 1 << 20;
/// Most tokens of an n-gram, and most heads, that llama.cpp accepts.
const MOST_TOKENS: u32 = 8;
const MOST_HEADS: usize = 64;
/// The table's tensor.
const TABLE: &str = "per_layer_token_embd.weight";

/// Embeddings of n-grams, which one block adds to the residual streams.
#[derive(Clone, Debug)]
pub struct Ngrams {
    /// The block.
    pub layer: usize,
    /// Their hashes.
    pub rule: Rule,
    /// Elements of a row of the table.
    pub size: usize,
    /// Rows of the table.
    pub rows: usize,
    /// Positions that the convolution sees; they are as far apart as an n-gram is long.
    pub kernel: usize,
}

impl Ngrams {
    /// Read from the keys of a model with residual streams of `n_embd` elements, where it has such embeddings.
    pub fn read(k: &mut Keys<'_>, arch: &Arch, file: &dyn Header, [n_layer, n_embd]: [usize; 2]) -> Option<Ngrams> {
        const LAYERS: &str = "ple.layers";
        const TOKENS: &str = "ple.ngram_size";
        const SIZE: &str = "embedding_length_per_layer_input";
        if !arch.ngrams {
            return None;
        }
        let layers = k.u32s(LAYERS).unwrap_or_default();
        let &[layer] = &layers[..] else {
            if !layers.is_empty() {
                k.wrong(LAYERS, format!("has {} layers; the reference knows one", layers.len()));
            }
            return None;
        };
        if layer as usize >= n_layer {
            k.wrong(LAYERS, format!("is {layer}, of {n_layer} layers"));
        }
        let tokens = k.count(TOKENS, MOST_TOKENS).max(2);
        if k.u32(TOKENS) == Some(1) {
            k.wrong(TOKENS, format!("is 1, it must be 2 to {MOST_TOKENS}"));
        }
        let heads = (tokens - 1) * k.count("ple.heads_per_ngram", MOST);
        let size = k.count(SIZE, MOST);
        if heads > MOST_HEADS || heads * size != n_embd {
            k.wrong(
                SIZE,
                format!("is {size}: {heads} heads of n-grams, at most {MOST_HEADS}, make up {n_embd} elements"),
            );
        }
        let multipliers = numbers(k, "ple.layer_multipliers", tokens);
        let [offsets, sizes] = ["ple.head_offsets", "ple.head_vocab_sizes"].map(|key| numbers(k, key, heads));
        let rows = file.rows(TABLE).unwrap_or(0);
        for (&offset, &size) in offsets.iter().zip(&sizes) {
            if size == 0 || offset.checked_add(size).is_none_or(|end| end > rows) {
                k.wrong("ple.head_vocab_sizes", format!("has {size} rows behind {offset}, and {TABLE} has {rows}"));
            }
        }
        let end = k.u32("ple.eos_token_id");
        if end.is_none() {
            k.missing("ple.eos_token_id");
        }
        Some(Ngrams {
            layer: layer as usize,
            rule: Rule {
                multipliers,
                heads: offsets.into_iter().zip(sizes).map(|(offset, size)| [offset, size]).collect(),
                end: end.unwrap_or(0),
            },
            size,
            rows: rows as usize,
            kernel: k.count("ple.conv_kernel", MOST),
        })
    }

    /// Numbers that the convolution of `channels` remembers.
    pub fn remembered(&self, channels: usize) -> usize {
        (self.kernel - 1).saturating_mul(self.rule.multipliers.len()).saturating_mul(channels)
    }
}

/// At least `count` numbers, of which the first ones are taken; ones after a problem.
fn numbers(k: &mut Keys<'_>, key: &str, count: usize) -> Vec<u64> {
    let all = match k.meta.get(&k.name(key)) {
        Some(Value::Array(Array::U64(all))) => all.clone(),
        Some(Value::Array(Array::U32(all))) => all.iter().map(|&n| n.into()).collect(),
        _ => Vec::new(),
    };
    if all.len() < count {
        k.wrong(key, format!("has {} numbers, and {count} are needed", all.len()));
        return vec![1; count];
    }
    all[..count].to_vec()
}
