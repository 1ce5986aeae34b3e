//! The dense sibling of the bundled ternary models: a LLaMA of 21 million weights in BF16, from what is kept of it in
//! `testdata/dense`.
//!
//! A weight is a sign, an exponent and seven bits of fraction. Signs and the upper three bits are kept as they are, exponents
//! compressed; the lower four bits are drawn from a generator, so that half the file need not be kept, and still the weights
//! lie on no coarse grid that a small type could find again.

use std::path::Path;

use trine_formats::gguf::write::NewTensor;
use trine_formats::gguf::{Metadata, Value};
use trine_formats::types::TypeId;

use crate::{gguf, read, testdata, trilm};

const COLUMNS: u64 = 512;
const INNER: u64 = 1536;
const KEYS: u64 = 256;
const TOKENS: u64 = 4096;
const BLOCKS: usize = 6;

/// Names and shapes in the order in which the weights are kept.
fn shapes() -> Vec<(String, Vec<u64>)> {
    let mut all = vec![("token_embd.weight".to_owned(), vec![COLUMNS, TOKENS])];
    all.push(("output_norm.weight".to_owned(), vec![COLUMNS]));
    for block in 0..BLOCKS {
        let of_block: [(&str, &[u64]); 9] = [
            ("attn_norm", &[COLUMNS]),
            ("attn_q", &[COLUMNS, COLUMNS]),
            ("attn_k", &[COLUMNS, KEYS]),
            ("attn_v", &[COLUMNS, KEYS]),
            ("attn_output", &[COLUMNS, COLUMNS]),
            ("ffn_norm", &[COLUMNS]),
            ("ffn_gate", &[COLUMNS, INNER]),
            ("ffn_up", &[COLUMNS, INNER]),
            ("ffn_down", &[INNER, COLUMNS]),
        ];
        all.extend(of_block.map(|(name, shape)| (format!("blk.{block}.{name}.weight"), shape.to_vec())));
    }
    all
}

/// The lower four bits of weight number `i`: the upper bits of number `i` of SplitMix64 with seed 0.
fn drawn(i: u64) -> u16 {
    let z = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((z ^ (z >> 31)) >> 60) as u16
}

/// All weights, as the 16 bits of BF16.
fn weights() -> Vec<u16> {
    let exponents = read(&testdata("dense/exponents.gz"));
    let fractions = read(&testdata("dense/signs-and-fractions"));
    let weight = |(i, &exponent): (usize, &u8)| {
        let kept = u16::from(fractions[i / 2] >> (4 * (i % 2)) & 15);
        kept >> 3 << 15 | u16::from(exponent) << 7 | (kept & 7) << 4 | drawn(i as u64)
    };
    exponents.iter().enumerate().map(weight).collect()
}

/// The header of the ternary sibling, whose vocabulary this model has, with this one's sizes.
fn metadata() -> Metadata {
    let mut meta = gguf::open(&trilm()).meta().clone();
    for (key, text) in [
        ("general.name", "dense-wt-21m"),
        ("general.description", "dense sibling of trilm-wt-5.8m"),
        ("general.size_label", "21M"),
    ] {
        meta.put(key, Value::str(text));
    }
    for (key, number) in [
        ("llama.embedding_length", COLUMNS),
        ("llama.feed_forward_length", INNER),
        ("llama.attention.head_count", COLUMNS / 64),
        ("llama.attention.head_count_kv", KEYS / 64),
        // BF16
        ("general.file_type", 32),
    ] {
        meta.put(key, Value::U32(number as u32));
    }
    meta
}

/// Writes the model: 42 MB, matrices in BF16, norms in F32.
#[track_caller]
pub fn write(path: &Path) {
    let weights = weights();
    let mut rest = &weights[..];
    let tensor = |(name, shape): (String, Vec<u64>)| {
        let (own, others) = rest.split_at(shape.iter().product::<u64>() as usize);
        rest = others;
        let (ty, data): (TypeId, Vec<u8>) = match shape.len() {
            1 => (TypeId::F32, own.iter().flat_map(|&w| (u32::from(w) << 16).to_le_bytes()).collect()),
            _ => (TypeId::BF16, own.iter().flat_map(|w| w.to_le_bytes()).collect()),
        };
        (NewTensor::new(name, shape, ty), data)
    };
    let tensors: Vec<(NewTensor, Vec<u8>)> = shapes().into_iter().map(tensor).collect();
    assert!(rest.is_empty(), "{} weights too many", rest.len());
    gguf::write(path, &metadata(), &tensors);
}
