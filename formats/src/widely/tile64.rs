//! Files of the Fairy2i fork of llama.cpp: what their keys and blocks mean.
//!
//! The fork stores the stages of `U` and `W` as four matrices `NAME.U.s0` … `NAME.W.s1` of complex rows and columns,
//! both multiples of 64, in blocks of 64 columns. The codes are [those of trine](super), two bits each, in another
//! order, and every row of a tile repeats the tile's scales:
//!
//! ```text
//! byte  0 … 15   byte l: columns l, l + 16, l + 32, l + 48 in bits 0-1, 2-3, 4-5, 6-7
//! byte 16, 17    f16 scale of the real axis
//! byte 18, 19    f16 scale of the imaginary axis
//! ```
//!
//! Its sizes of embeddings and feed-forward layers count complex columns. The token embedding stands as F32 tensor
//! whose elements are pairs of bfloat16: the real part in the lower half, the imaginary part in the upper half.
//!
//! Source: `docs/fairy2i/spec.md` and `gguf-py/fairy2i` of the fork.

use super::{BaseArch, CHUNK, TILE, WidelyError};
use crate::gguf::{FAIRY2I_SCHEMA as KEY_SCHEMA, Metadata, is_fairy2i_fork};
use crate::types::TypeId;
use crate::types::num::f16_to_f32;

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 20;

/// The matrices of a widely linear one, in the order of streams.
pub const STREAMS: [&str; 4] = ["U.s0", "U.s1", "W.s0", "W.s1"];

/// Keys that say how such a file stores its matrices, and how large they are in complex columns.
pub const KEYS: [&str; 9] = [
    KEY_SCHEMA,
    "fairy2i.quant.format",
    "fairy2i.quant.variant",
    "fairy2i.quant.residual_steps",
    "fairy2i.quant.codebook",
    "fairy2i.quant.tile_size",
    "fairy2i.quant.scale_stat",
    "fairy2i.attn.layout",
    "fairy2i.tokenizer.profile",
];

/// Keys whose value is half of what the real model has.
pub const COMPLEX_SIZES: [&str; 2] = ["fairy2i.embedding_length", "fairy2i.feed_forward_length"];

/// True if the file is one of the fork: of its architecture, with the key that all of its files have and trine's do
/// not.
pub fn is_in(meta: &Metadata) -> bool {
    is_fairy2i_fork(meta)
}

/// Reads the keys: whose graph the model has.
///
/// # Errors
/// A schema, a quantization or a layout that the fork's specification does not name.
pub fn read(meta: &Metadata) -> Result<BaseArch, WidelyError> {
    let number = |key: &'static str, expected: u32, words: &'static str| {
        let found = meta.get_u32(key)?.ok_or(WidelyError::MissingKey(key))?;
        match found == expected {
            true => Ok(()),
            false => Err(WidelyError::Key { key, found: found.to_string(), expected: words }),
        }
    };
    number(KEY_SCHEMA, 1, "1")?;
    number("fairy2i.quant.residual_steps", 2, "2")?;
    number("fairy2i.quant.tile_size", 64, "64")?;
    let text = |key: &'static str, expected: &'static str| {
        let found = meta.get_str(key)?.ok_or(WidelyError::MissingKey(key))?;
        match found == expected.trim_matches('\'') {
            true => Ok(()),
            false => Err(WidelyError::Key { key, found: found.to_owned(), expected }),
        }
    };
    text("fairy2i.quant.variant", "'tile64_v2'")?;
    text("fairy2i.quant.codebook", "'{+/-1,+/-i}'")?;
    text("fairy2i.quant.scale_stat", "'dominant_mean_abs'")?;
    let base = BaseArch::read(meta)?;
    let layout = match base {
        BaseArch::Llama => "'llama_real'",
        BaseArch::Qwen2 => "'qwen2_real'",
        BaseArch::Qwen3 => "'qwen3_real'",
    };
    text("fairy2i.attn.layout", layout)?;
    Ok(base)
}

/// The type of the four matrices.
pub fn ty() -> TypeId {
    TypeId::FAIRY2I_TILE64
}

/// The words of a row, `[chunk][stream]`, from its blocks in the four matrices.
///
/// # Panics
/// When a length does not fit: `words` are four times four for each block.
pub fn words(rows: [&[u8]; 4], words: &mut [u32]) {
    let chunks_of_block = TILE / CHUNK;
    for (stream, row) in rows.into_iter().enumerate() {
        let blocks = row.as_chunks::<BLOCK_BYTES>().0;
        assert_eq!(words.len(), 4 * chunks_of_block * blocks.len(), "words");
        for (b, block) in blocks.iter().enumerate() {
            for chunk in 0..chunks_of_block {
                let codes = block[..CHUNK].iter().map(|&byte| byte >> (2 * chunk) & 3);
                let bits = codes.enumerate();
                let word = bits.fold(0, |word, (j, code)| word | u32::from(code) << (2 * j));
                words[4 * (chunks_of_block * b + chunk) + stream] = word;
            }
        }
    }
}

/// The bytes of the scales of a block.
pub fn scale_bytes(block: &[u8; BLOCK_BYTES]) -> [u8; 4] {
    [block[16], block[17], block[18], block[19]]
}

/// The scales of a block as trine stores them; `None` where one is negative or no number. An axis on which a tile has
/// no elements, or none but zeros, has a scale of 0, which becomes the least one that a file can have.
pub fn scales(block: &[u8; BLOCK_BYTES]) -> Option<[f32; 2]> {
    let [a, b, c, d] = scale_bytes(block);
    let both = [[a, b], [c, d]].map(|bytes| f16_to_f32(u16::from_le_bytes(bytes)));
    let valid = both.iter().all(|s| s.is_finite() && *s >= 0.0);
    valid.then(|| both.map(|s| s.max(f32::MIN_POSITIVE)))
}

/// A row of the token embedding as BF16: the real parts and then the imaginary ones.
///
/// # Panics
/// When a length does not fit.
pub fn embedding(row: &[u8], out: &mut [u8]) {
    assert_eq!(row.len(), out.len(), "row");
    let (re, im) = out.split_at_mut(row.len() / 2);
    let outs = re.as_chunks_mut::<2>().0.iter_mut().zip(im.as_chunks_mut::<2>().0);
    for ([a, b, c, d], (re, im)) in row.as_chunks::<4>().0.iter().zip(outs) {
        (*re, *im) = ([*a, *b], [*c, *d]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::num::f32_to_f16;

    #[test]
    fn codes_stand_where_their_columns_are_and_scales_are_halves() {
        let code = |stream: usize, column: usize| (column * column + 3 * stream) as u8 & 3;
        let rows: Vec<Vec<u8>> = (0..4)
            .map(|stream| {
                let block = |b: usize| {
                    let byte = move |l: usize| {
                        let codes = (0..4).map(|i| code(stream, 64 * b + 16 * i + l) << (2 * i));
                        codes.fold(0, |byte, bits| byte | bits)
                    };
                    (0..16).map(byte).chain([0, 0x3C, 0, 0])
                };
                (0..2).flat_map(block).collect()
            })
            .collect();
        let mut out = vec![0; 32];
        words(std::array::from_fn(|s| &rows[s][..]), &mut out);
        for column in 0..128 {
            for stream in 0..4 {
                let word = out[4 * (column / 16) + stream] >> (2 * (column % 16));
                assert_eq!((word & 3) as u8, code(stream, column), "{column} {stream}");
            }
        }
        let mut block = [0; BLOCK_BYTES];
        block.copy_from_slice(&rows[0][..20]);
        assert_eq!(scales(&block), Some([1.0, f32::MIN_POSITIVE]));
        for bad in [f32::NAN, f32::INFINITY, -1.0] {
            block[18..].copy_from_slice(&f32_to_f16(bad).to_le_bytes());
            assert_eq!(scales(&block), None, "{bad}");
        }
    }

    #[test]
    fn an_embedding_is_taken_apart_into_halves() {
        let mut out = [0; 8];
        embedding(&[1, 2, 3, 4, 5, 6, 7, 8], &mut out);
        assert_eq!(out, [1, 2, 5, 6, 3, 4, 7, 8]);
    }
}
