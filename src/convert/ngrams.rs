//! Embeddings of n-grams in a checkpoint: a table that stands in pieces, and the numbers of the hashes, which are tensors
//! there and keys in the file (`Qwen4ExpTextModel` of the reference).

use serde_json::Value as JsonValue;
use trine_formats::gguf::{Array, Value};
use trine_formats::safetensors::Dtype;

use super::error::ConvertError;
use super::folder::Folder;
use super::hparams::HParams;
use crate::arch::Step;

/// The table's name in the file.
pub(super) const TABLE: &str = "per_layer_token_embd.weight";
/// Steps of its pieces.
pub(super) const PIECES: &[Step] = &[Step::Pieces("split_ngram_parts")];
/// The name of a piece, up to its number.
const PIECE: &str = ".ngram_embedding.shard_";
/// Ends of the names of tensors whose numbers are keys.
const NUMBERS: [&str; 3] =
    ["ple_embedding.layer_multipliers", "ple_embedding.ngram_heads_offsets", "ple_embedding.ngram_heads_vocab_sizes"];
/// Most numbers of such a tensor.
const MOST: u64 = 1 << 16;

/// True if a tensor's numbers are a key.
pub(super) fn is_number(name: &str) -> bool {
    NUMBERS.iter().any(|end| name.ends_with(end))
}

/// The number of a piece of the table.
pub(super) fn piece(name: &str) -> Option<u64> {
    let (_, rest) = name.rsplit_once(PIECE)?;
    rest.split('.').next()?.parse().ok()
}

/// Numbers that tensors say.
#[derive(Debug)]
pub(super) struct Ngrams {
    /// Elements of a row of the table.
    size: Option<u64>,
    /// Multipliers of the hashes, and the first row and the rows of every head.
    numbers: [Option<Vec<u64>>; 3],
}

impl Ngrams {
    /// Reads the numbers of a folder that has any.
    pub fn read(folder: &Folder) -> Result<Option<Ngrams>, ConvertError> {
        let mut pieces = folder.tensors.iter().filter(|s| piece(&s.tensor.name).is_some());
        let size = pieces.next_back().and_then(|s| s.tensor.shape.last().copied());
        let mut numbers = [None, None, None];
        for (end, found) in NUMBERS.iter().zip(&mut numbers) {
            if let Some(n) = folder.tensors.iter().position(|s| s.tensor.name.ends_with(end)) {
                *found = Some(longs(folder, n)?);
            }
        }
        let any = size.is_some() || numbers.iter().any(Option::is_some);
        Ok(any.then_some(Ngrams { size, numbers }))
    }
}

/// Whole numbers of 64 bits.
fn longs(folder: &Folder, n: usize) -> Result<Vec<u64>, ConvertError> {
    let source = &folder.tensors[n];
    let t = &source.tensor;
    let count: u64 = t.shape.iter().product();
    if t.dtype != Dtype::I64 || count == 0 || count > MOST {
        return Err(ConvertError::Config(format!(
            "describes embeddings of n-grams, and '{}' is of shape {:?} and type {}, expected I64",
            t.name,
            t.shape,
            t.dtype.name()
        )));
    }
    let mut bytes = vec![0; count as usize * 8];
    folder.shards.read(source.shard, t.offset, &mut bytes)?;
    Ok(bytes.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap_or_default())).collect())
}

/// The keys of a model of so many blocks, in the reference's order; none where no block adds such embeddings.
pub(super) fn keys(
    h: &HParams,
    found: Option<&Ngrams>,
    layers: u32,
) -> Result<Vec<(&'static str, Value)>, ConvertError> {
    let wrong = |what: String| Err(ConvertError::Config(what));
    let stated = h.get("ple_layer_ids").and_then(JsonValue::as_array).map_or(&[][..], Vec::as_slice);
    let mut blocks = Vec::new();
    for id in stated {
        match id.as_u64().filter(|n| (1..=u64::from(layers)).contains(n)) {
            Some(n) => blocks.push(n as i32 - 1),
            None => return wrong(format!("'ple_layer_ids' has {id}, and there are {layers} layers, counted from 1")),
        }
    }
    if blocks.is_empty() {
        return Ok(Vec::new());
    }
    let end = match h.get("eos_token_id") {
        Some(JsonValue::Array(all)) => all.last().and_then(JsonValue::as_u64),
        other => other.and_then(JsonValue::as_u64),
    };
    let Some(end) = end.and_then(|id| u32::try_from(id).ok()) else {
        return wrong("has no 'eos_token_id', at which n-grams end".into());
    };
    let mut keys = vec![
        ("ple.layers", Value::Array(Array::I32(blocks))),
        ("ple.ngram_size", Value::U32(h.need("ngram_size")?)),
        ("ple.heads_per_ngram", Value::U32(h.need("heads_per_ngram")?)),
        ("ple.conv_kernel", Value::U32(h.need("ple_conv_kernel_size")?)),
        ("ple.eos_token_id", Value::U32(end)),
    ];
    if let Some(id) = h.u32("image_token_id")? {
        keys.push(("ple.image_token_id", Value::U32(id)));
    }
    // without tensors the header alone is written
    let Some(found) = found else { return Ok(keys) };
    if let Some(size) = found.size {
        keys.push(("embedding_length_per_layer_input", Value::U32(size as u32)));
    }
    let names = ["ple.layer_multipliers", "ple.head_offsets", "ple.head_vocab_sizes"];
    for ((key, numbers), end) in names.into_iter().zip(&found.numbers).zip(NUMBERS) {
        match numbers {
            Some(all) => keys.push((key, Value::Array(Array::U64(all.clone())))),
            None => return wrong(format!("describes embeddings of n-grams, and there is no tensor '…{end}'")),
        }
    }
    Ok(keys)
}
