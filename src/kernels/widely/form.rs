//! The forms that weights stand in.

use trine_formats::widely::{CHUNK, Shape, TILE};

use super::Path;
use crate::{Isa, Level};

/// Rows of a unit of [`Form::Rows16`].
pub const ROWS: usize = 16;
/// Bytes of a chunk of one stream of such a unit.
pub(crate) const CHUNK_BYTES: usize = 4 * ROWS;
/// Chunks of a block of 8-bit activations.
pub(crate) const BLOCK_CHUNKS: usize = TILE / CHUNK;

/// How weights are arranged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// A row as the file has it: words of sixteen codes, `[chunk][stream]`.
    Words,
    /// The same with the two bits of the codes apart: 16 bits say which columns are negative, the upper 16 which are on
    /// the imaginary axis.
    Planes,
    /// Sixteen rows, `[block of 64 columns][stream][chunk][row]`: in byte `b` of a row's four bytes bits `2f` and `2f + 1`
    /// are the code of column `4f + b`, so that four bytes side by side meet four activations side by side.
    Rows16,
}

impl Form {
    /// The form that products of a path read fastest; single precision reads the file's words where they need not be
    /// `packed`.
    pub fn of(isa: Isa, path: Path, packed: bool) -> Form {
        match path {
            Path::Int8 => Form::Rows16,
            Path::Exact if packed && isa.has(Level::Avx512) => Form::Planes,
            Path::Exact => Form::Words,
        }
    }

    /// The path whose products read it.
    pub fn path(self) -> Path {
        match self {
            Form::Words | Form::Planes => Path::Exact,
            Form::Rows16 => Path::Int8,
        }
    }

    /// Rows of a unit.
    pub fn rows(self) -> usize {
        match self {
            Form::Words | Form::Planes => 1,
            Form::Rows16 => ROWS,
        }
    }

    /// Bytes of a unit.
    pub fn unit_bytes(self, shape: &Shape) -> usize {
        match self {
            Form::Words | Form::Planes => 4 * shape.row_words(),
            Form::Rows16 => {
                let blocks = shape.columns.div_ceil(TILE);
                blocks * shape.streams() * BLOCK_CHUNKS * CHUNK_BYTES
            }
        }
    }

    /// Name for people; the file's own form has none.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Form::Words => None,
            Form::Planes => Some("planes of codes"),
            Form::Rows16 => Some("16 rows of codes"),
        }
    }

    /// Packs up to a unit of rows of words.
    ///
    /// # Panics
    /// When a length does not fit the shape.
    pub fn pack(self, shape: &Shape, words: &[u8], out: &mut [u8]) {
        assert_eq!(out.len(), self.unit_bytes(shape), "unit");
        let row_bytes = 4 * shape.row_words();
        let rows = words.len() / row_bytes;
        assert!(
            words.len() == rows * row_bytes && 0 < rows && rows <= self.rows(),
            "rows of a unit"
        );
        match self {
            Form::Words => out.copy_from_slice(words),
            Form::Planes => {
                let words = words.as_chunks().0.iter().map(|&w| u32::from_le_bytes(w));
                for (out, word) in out.as_chunks_mut().0.iter_mut().zip(words) {
                    *out = planes(word).to_le_bytes();
                }
            }
            Form::Rows16 => {
                // what is not there weighs activations that are 0
                out.fill(0);
                for (row, words) in words.chunks_exact(row_bytes).enumerate() {
                    interleave(shape, row, words, out);
                }
            }
        }
    }
}

/// The even bits of a word, inverted, in the lower half, the odd ones in the upper half.
fn planes(word: u32) -> u32 {
    let gather = |bits: u32| (0..CHUNK).fold(0, |all, j| all | (bits >> (2 * j) & 1) << j);
    gather(!word) | gather(word >> 1) << CHUNK
}

/// Puts a row into a unit of sixteen.
fn interleave(shape: &Shape, row: usize, words: &[u8], out: &mut [u8]) {
    let streams = shape.streams();
    for (chunk, words) in words.chunks_exact(4 * streams).enumerate() {
        let (block, chunk) = (chunk / BLOCK_CHUNKS, chunk % BLOCK_CHUNKS);
        for (stream, word) in words.as_chunks().0.iter().enumerate() {
            let word = u32::from_le_bytes(*word);
            let at = ((block * streams + stream) * BLOCK_CHUNKS + chunk) * CHUNK_BYTES + 4 * row;
            for (b, byte) in out[at..at + 4].iter_mut().enumerate() {
                let fields = word >> (2 * b) & 0x0303_0303;
                *byte = (fields | fields >> 6 | fields >> 12 | fields >> 18) as u8;
            }
        }
    }
}
