//! Products with any-precision rows: the kernels of [`trine_formats::anyprec`]'s definition.
//!
//! A row at `b` bits is `b` bit planes and a table of `2^b` centroids. A product reads these planes and no other,
//! puts the bits of 64 weights together, looks them up, and follows one of the two canonical orders, so that every
//! instruction set and every number of tokens gives the same bits:
//!
//! - with one token, codes become products while they are in registers;
//! - with more, a row is looked up once into memory that stays in the cache, and all tokens run over it.
//!
//! Activations are arranged once for all matrices of the same width that share them: [`Arrangement`].

use trine_formats::anyprec::{BLOCK, MAX_BITS, words};

use crate::Isa;
#[cfg(target_arch = "x86_64")]
use crate::Level;
#[cfg(any(test, target_arch = "x86_64"))]
use crate::aligned::AlignedBytes;
#[cfg(target_arch = "x86_64")]
use crate::arch::x86_64::bitplane as x86_64;
use crate::proof::compiled_for_avx2;
use crate::sizes::{MAX_COLUMNS, size};

mod act;
pub mod packed;
mod scalar;
pub mod sparse;
#[cfg(test)]
mod tests;

use act::arrange_with;
pub(crate) use act::quantize_block;

/// How products are computed; the two are different definitions and give different bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NumberPath {
    /// Single precision: the centroids as they are, fused multiply-adds in 64 lanes.
    F32,
    /// 16-bit centroids and 8-bit activations with exact integer sums, as other quantized types are run.
    #[default]
    I16,
}

/// Consecutive rows of a matrix at one width.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// Weights per row, at least one.
    pub columns: usize,
    /// Groups of columns with tables of their own; divides `columns`.
    pub groups: usize,
    /// One plane per bit of a code, the leading bit first: rows of [`words`] words of 64 bits.
    pub planes: &'a [&'a [u8]],
    /// The centroids in half precision, little-endian: `2^width` of each group of each row.
    pub lut: &'a [u8],
}

impl<'a> Rows<'a> {
    /// Bits of a code.
    pub fn width(&self) -> usize {
        self.planes.len()
    }

    /// Blocks of 64 weights in a row, the last of which may be shorter.
    pub fn blocks(&self) -> usize {
        words(self.columns)
    }

    /// Bytes of the tables of a row.
    fn lut_bytes(&self) -> usize {
        (2 * self.groups) << self.width()
    }

    /// The bytes of row `i` of every plane, the leading bits first, and its tables.
    pub(crate) fn row(&self, i: usize) -> (impl Iterator<Item = &'a [u8]>, &'a [u8]) {
        let (bytes, lut) = (8 * self.blocks(), self.lut_bytes());
        let planes = self.planes.iter();
        (planes.map(move |p| &p[i * bytes..][..bytes]), &self.lut[i * lut..][..lut])
    }

    /// True if every group is whole blocks, which the vector kernels ask for.
    #[cfg(any(test, target_arch = "x86_64"))]
    pub(crate) fn in_blocks(&self) -> bool {
        in_blocks(self.columns, self.groups)
    }

    /// The number of rows, once all lengths are known to fit each other.
    ///
    /// # Panics
    /// They do not.
    pub(crate) fn check(&self, form: Arrangement, acts: &[u8], tokens: usize, out: &[f32]) -> usize {
        let rows = out.len().checked_div(tokens).unwrap_or(0);
        assert_eq!(out.len(), rows * tokens, "whole rows of {tokens} tokens");
        assert!(self.columns > 0 && self.groups > 0, "an empty row");
        assert!(self.columns <= MAX_COLUMNS, "{} columns", self.columns);
        assert!(self.columns.is_multiple_of(self.groups), "groups");
        let width = self.width();
        assert!(0 < width && width <= usize::from(MAX_BITS), "width {width}");
        for plane in self.planes {
            assert_eq!(plane.len(), size([rows, 8, self.blocks()]), "plane");
        }
        assert_eq!(self.lut.len(), size([rows, self.lut_bytes()]), "tables");
        assert_eq!(acts.len(), size([tokens, form.act_bytes(self.columns)]), "activations");
        assert!(acts.as_ptr().addr().is_multiple_of(64), "alignment");
        rows
    }
}

/// True if every group of such rows is whole blocks.
pub fn in_blocks(columns: usize, groups: usize) -> bool {
    groups == 1 || columns.is_multiple_of(BLOCK * groups)
}

/// An arrangement of a row of activations in blocks of 64, the last one filled with zeros.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrangement {
    /// The activations themselves. What fills the last block is −0: times weights of 0 it changes no sum, not even one
    /// that is −0.
    Floats,
    /// Per block 64 int8 and, for each four of them, −128 times their sum as an i32; then the f32 scales of all
    /// blocks. For one token, or a few.
    Bytes,
    /// Per block 16 pairs of i16, the first two of each four, and 16 pairs of the other two; then the f32 scales
    /// of all blocks.
    Words,
}

/// Tokens that share the codes of a row at most: more are faster over rows that were looked up into memory.
const TOKENS_SHARING_CODES: usize = 16;

/// Bytes of a block in both integer forms.
const INT_BLOCK: usize = 128;

impl Arrangement {
    /// Returns the arrangement for the kernel of a number path and rows of such groups; with `packed` codes a few
    /// tokens share those that are in registers.
    pub fn of(path: NumberPath, isa: Isa, tokens: usize, packed: bool, columns: usize, groups: usize) -> Arrangement {
        let shared = tokens <= if packed { TOKENS_SHARING_CODES } else { 1 };
        match path {
            NumberPath::F32 => Arrangement::Floats,
            NumberPath::I16 if shared && in_blocks(columns, groups) && reads_bytes(isa) => Arrangement::Bytes,
            NumberPath::I16 => Arrangement::Words,
        }
    }

    /// Bytes of a row of `columns` activations, a multiple of 64.
    pub fn act_bytes(self, columns: usize) -> usize {
        let blocks = words(columns);
        match self {
            Arrangement::Floats => 4 * BLOCK * blocks,
            Arrangement::Bytes | Arrangement::Words => (blocks * (INT_BLOCK + 4)).next_multiple_of(64),
        }
    }

    /// Arranges a row. Quantized as [`trine_formats::anyprec::quantize_activations`] does.
    ///
    /// # Panics
    /// When `out` is not [`Arrangement::act_bytes`] long.
    pub fn arrange(self, isa: Isa, x: &[f32], out: &mut [u8]) {
        assert_eq!(out.len(), self.act_bytes(x.len()), "activation row");
        let form = self;
        compiled_for_avx2!(fma, isa, arrange_with(form: Arrangement, x: &[f32], out: &mut [u8]), arrange_with);
    }
}

/// True if `isa` has the kernels of [`packed`] rows.
pub fn reads_packed(isa: Isa) -> bool {
    #[cfg(target_arch = "x86_64")]
    return isa.has(Level::Avx2);
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = isa;
        false
    }
}

/// True if `isa` has the kernels of [`Arrangement::Bytes`]. They permute bytes and transpose bits, which came later
/// than the rest of [`Level::Avx512`].
///
/// [`Level::Avx512`]: crate::Level::Avx512
fn reads_bytes(isa: Isa) -> bool {
    isa.has_vbmi() && isa.has_gfni()
}

/// `out[r * tokens + t]` = the product of row `r` and activation row `t`, without sparse weights. `acts` are
/// `tokens` rows of `form`, which is what [`Arrangement::of`] says for these rows.
///
/// # Panics
/// When lengths do not fit, or `acts` are not aligned to 64 bytes.
pub fn multiply(isa: Isa, rows: &Rows<'_>, form: Arrangement, acts: &[u8], tokens: usize, out: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if isa.has(Level::Avx2) {
        return x86_64::multiply(isa, rows, form, acts, tokens, out);
    }
    let _ = isa;
    if rows.check(form, acts, tokens, out) > 0 {
        scalar::multiply(rows, form, acts, tokens, out);
    }
}

/// The weights of a row, looked up one by one: single precision, or 16-bit with the scale of the row.
pub(crate) struct Looked<'a> {
    codes: &'a [u8],
    group: usize,
    width: usize,
}

impl Looked<'_> {
    /// Where in the tables of its row each weight is.
    pub fn entries(&self) -> impl Iterator<Item = usize> {
        let codes = self.codes.chunks(self.group).enumerate();
        codes.flat_map(|(g, codes)| {
            let table = g << self.width;
            codes.iter().map(move |&c| table + usize::from(c))
        })
    }
}

impl Rows<'_> {
    /// The codes of row `i`, put into `codes`, which has room for one per column.
    pub(crate) fn look_up<'c>(&self, i: usize, codes: &'c mut [u8]) -> Looked<'c> {
        let planes: Vec<&[u8]> = self.row(i).0.collect();
        trine_formats::anyprec::unpack_row(&planes, codes);
        Looked { codes, group: self.columns / self.groups, width: self.width() }
    }

    /// The centroids of row `i` in half precision.
    pub(crate) fn centroids(&self, i: usize) -> impl ExactSizeIterator<Item = u16> + Clone {
        let lut = self.row(i).1.as_chunks().0;
        lut.iter().map(|&c| u16::from_le_bytes(c))
    }
}

/// Memory for rows that were looked up, aligned to 64.
#[cfg(target_arch = "x86_64")]
pub(crate) type RowMemory = AlignedBytes;
