//! The layouts of the codes of widely linear matrices.

use trine_formats::widely::{CHUNK, Scope, Shape, TILE};

use super::Path;
use crate::{Isa, Level};

/// Rows of a unit of [`CodeLayout::Rows16`] and of [`CodeLayout::Lanes`].
pub const ROWS: usize = 16;
/// Bytes of a chunk of one stream of such a unit.
pub(crate) const CHUNK_BYTES: usize = 4 * ROWS;
/// Chunks of a block of 8-bit activations.
pub(crate) const BLOCK_CHUNKS: usize = TILE / CHUNK;

/// Bytes of codes of such a block of one stream of a unit.
pub(crate) const BLOCK_BYTES: usize = BLOCK_CHUNKS * CHUNK_BYTES;

/// Layout of the codes of a unit of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CodeLayout {
    /// A row as the file has it: words of sixteen codes, `[chunk][stream]`.
    Words,
    /// Words of sixteen codes with their two bits apart: 16 bits say which columns are negative, the upper 16 which are
    /// on the imaginary axis.
    Planes,
    /// Sixteen rows, `[block of 64 columns][stream][chunk][row]`: in byte `b` of a row's four bytes bits `2f` and `2f +
    /// 1` are the code of column `4f + b`, so that four bytes side by side meet four activations side by side.
    Rows16,
    /// Sixteen rows, `[lane][stream][sixteen chunks][row]`: a word has the codes of one lane in sixteen chunks, that of
    /// chunk `16w + k` in bits `2k` and `2k + 1`, so that sixteen rows side by side meet one activation.
    Lanes,
}

impl CodeLayout {
    /// The layout that products of a path read fastest. Single precision reads the file's words where they need not be
    /// `packed`; tiles, which are four chunks wide, are too narrow for [`CodeLayout::Lanes`].
    pub fn of(isa: Isa, path: Path, packed: bool, shape: &Shape) -> CodeLayout {
        match path {
            Path::Int8 => CodeLayout::Rows16,
            Path::Exact if packed && isa.has(Level::Avx2) && shape.scope != Scope::Tile64 => CodeLayout::Lanes,
            Path::Exact if packed && isa.has(Level::Avx512) => CodeLayout::Planes,
            Path::Exact => CodeLayout::Words,
        }
    }

    /// The path whose products read it.
    pub fn path(self) -> Path {
        match self {
            CodeLayout::Words | CodeLayout::Planes | CodeLayout::Lanes => Path::Exact,
            CodeLayout::Rows16 => Path::Int8,
        }
    }

    /// Rows of a unit.
    pub fn rows(self) -> usize {
        match self {
            CodeLayout::Words | CodeLayout::Planes => 1,
            CodeLayout::Rows16 | CodeLayout::Lanes => ROWS,
        }
    }

    /// Bytes of a unit.
    pub fn unit_bytes(self, shape: &Shape) -> usize {
        match self {
            CodeLayout::Words | CodeLayout::Planes => 4 * shape.row_words(),
            CodeLayout::Rows16 => {
                let blocks = shape.columns.div_ceil(TILE);
                blocks * shape.streams() * BLOCK_CHUNKS * CHUNK_BYTES
            }
            CodeLayout::Lanes => CHUNK * shape.streams() * lane_words(shape) * 4 * ROWS,
        }
    }

    /// Name for people; the file's own layout has none.
    pub fn name(self) -> Option<&'static str> {
        match self {
            CodeLayout::Words => None,
            CodeLayout::Planes => Some("planes of codes"),
            CodeLayout::Rows16 => Some("16 rows of codes"),
            CodeLayout::Lanes => Some("16 rows of codes by lanes"),
        }
    }

    /// True if GEMV kernels of this layout prefetch ([`super::Unit::ahead`]).
    pub fn prefetches(self, isa: Isa) -> bool {
        matches!(self, CodeLayout::Rows16 | CodeLayout::Lanes) && isa.has(Level::Avx2)
    }

    /// Packs up to a unit of rows of words.
    ///
    /// # Panics
    /// When a length does not fit the shape.
    pub fn pack(self, shape: &Shape, words: &[u8], out: &mut [u8]) {
        assert_eq!(out.len(), self.unit_bytes(shape), "unit");
        let row_bytes = 4 * shape.row_words();
        let rows = words.len() / row_bytes;
        assert!(words.len() == rows * row_bytes && 0 < rows && rows <= self.rows(), "rows of a unit");
        match self {
            CodeLayout::Words => out.copy_from_slice(words),
            CodeLayout::Planes => {
                let words = words.as_chunks().0.iter().map(|&w| u32::from_le_bytes(w));
                for (out, word) in out.as_chunks_mut().0.iter_mut().zip(words) {
                    *out = planes(word).to_le_bytes();
                }
            }
            CodeLayout::Rows16 => {
                // what is not there weighs activations that are 0
                out.fill(0);
                for (row, words) in words.chunks_exact(row_bytes).enumerate() {
                    interleave(shape, row, words, out);
                }
            }
            CodeLayout::Lanes => {
                out.fill(0);
                for (row, words) in words.chunks_exact(row_bytes).enumerate() {
                    by_lanes(shape, row, words, out, |word| word);
                }
            }
        }
    }
}

impl CodeLayout {
    /// Packs up to sixteen rows that stand in this form into a unit of [`CodeLayout::Lanes`].
    ///
    /// # Panics
    /// When a length does not fit the shape, or the form is that of sixteen rows.
    pub(crate) fn pack_lanes(self, shape: &Shape, rows: &[u8], out: &mut [u8]) {
        let word = match self {
            CodeLayout::Words => |word| word,
            CodeLayout::Planes => word_of_planes,
            CodeLayout::Rows16 | CodeLayout::Lanes => panic!("single rows, not {self:?}"),
        };
        out.fill(0);
        for (row, words) in rows.chunks_exact(4 * shape.row_words()).enumerate() {
            by_lanes(shape, row, words, out, word);
        }
    }
}

/// The word that [`planes`] are made of.
fn word_of_planes(planes: u32) -> u32 {
    let spread = |mut bits: u32| {
        for (distance, kept) in [(8, 0x00FF_00FF), (4, 0x0F0F_0F0F), (2, 0x3333_3333), (1, 0x5555_5555)] {
            bits = (bits | bits << distance) & kept;
        }
        bits
    };
    spread(!planes & 0xFFFF) | spread(planes >> CHUNK) << 1
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

/// Words that a lane of one row and stream has in [`CodeLayout::Lanes`].
pub(crate) fn lane_words(shape: &Shape) -> usize {
    shape.chunks().div_ceil(CHUNK)
}

/// Puts a row into a unit of [`CodeLayout::Lanes`]; `word` makes words of codes of what it stands in.
fn by_lanes(shape: &Shape, row: usize, words: &[u8], out: &mut [u8], word: impl Fn(u32) -> u32 + Copy) {
    let (streams, count) = (shape.streams(), lane_words(shape));
    let out = out.as_chunks_mut::<4>().0;
    for (w, words) in words.chunks(4 * streams * CHUNK).enumerate() {
        let words = words.as_chunks::<4>().0;
        for stream in 0..streams {
            let mut codes = [0u32; CHUNK];
            let of_stream = words[stream..].iter().step_by(streams);
            for (codes, &bytes) in codes.iter_mut().zip(of_stream) {
                *codes = word(u32::from_le_bytes(bytes));
            }
            transpose(&mut codes);
            for (lane, codes) in codes.into_iter().enumerate() {
                let at = ((lane * streams + stream) * count + w) * ROWS + row;
                out[at] = codes.to_le_bytes();
            }
        }
    }
}

/// Exchanges code `j` of word `i` with code `i` of word `j`: blocks of codes change places, from half the words down to
/// single ones.
fn transpose(words: &mut [u32; CHUNK]) {
    for (half, low) in [(8, 0x0000_FFFF), (4, 0x00FF_00FF), (2, 0x0F0F_0F0F), (1, 0x3333_3333)] {
        for i in (0..CHUNK).filter(|i| i & half == 0) {
            let differ = (words[i] >> (2 * half) ^ words[i + half]) & low;
            words[i + half] ^= differ;
            words[i] ^= differ << (2 * half);
        }
    }
}
