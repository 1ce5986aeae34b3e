//! Activations in the forms that the kernels read.

use trine_formats::anyprec::{BLOCK, words};

use crate::Isa;
use crate::proof::compiled_for_avx2;

/// How products are computed; the two are different definitions and give different bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NumberPath {
    /// Single precision: the centroids as they are, fused multiply-adds in 64 lanes.
    F32,
    /// 16-bit centroids and 8-bit activations with exact integer sums, as other quantized types are run.
    #[default]
    I16,
}

/// True if every group of such rows is whole blocks.
pub fn in_blocks(columns: usize, groups: usize) -> bool {
    groups == 1 || columns.is_multiple_of(BLOCK * groups)
}

/// True if `isa` has the kernels of [`Arrangement::Bytes`]. They permute bytes and transpose bits, which came later
/// than the rest of [`Level::Avx512`].
///
/// [`Level::Avx512`]: crate::Level::Avx512
fn reads_bytes(isa: Isa) -> bool {
    isa.has_vbmi() && isa.has_gfni()
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
pub(super) const INT_BLOCK: usize = 128;

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

const MAX: f32 = 127.0;
/// 1.5 · 2^23.
const ROUND: f32 = 12_582_912.0;

/// [`Arrangement::arrange`], once lengths were checked. To be compiled for the instruction set of its caller.
#[inline(always)]
fn arrange_with(form: Arrangement, x: &[f32], out: &mut [u8]) {
    if form == Arrangement::Floats {
        let (row, padding) = out.split_at_mut(4 * x.len());
        for (out, x) in row.as_chunks_mut().0.iter_mut().zip(x) {
            *out = x.to_le_bytes();
        }
        for out in padding.as_chunks_mut().0 {
            *out = (-0.0f32).to_le_bytes();
        }
        return;
    }
    let blocks = x.len().div_ceil(BLOCK);
    let (ints, rest) = out.split_at_mut(blocks * INT_BLOCK);
    let (scales, padding) = rest.split_at_mut(4 * blocks);
    padding.fill(0);
    let outs = ints.as_chunks_mut::<INT_BLOCK>().0.iter_mut();
    let outs = outs.zip(scales.as_chunks_mut().0);
    let (whole, last) = x.as_chunks::<BLOCK>();
    let mut filled = [0f32; BLOCK];
    filled[..last.len()].copy_from_slice(last);
    let all = whole.iter().chain((!last.is_empty()).then_some(&filled));
    for ((out, scale), x) in outs.zip(all) {
        let (d, q) = quantize_block(x);
        *scale = d.to_le_bytes();
        match form {
            Arrangement::Bytes => bytes(&q, out),
            _ => pairs(&q, out),
        }
    }
}

/// The scale of a block and its quants. To be compiled for the instruction set of its caller.
#[inline(always)]
pub(crate) fn quantize_block(x: &[f32; BLOCK]) -> (f32, [i8; BLOCK]) {
    // magnitudes are ordered as their bits are, and bits can be compared in any order
    let largest = |max: u32, x: &f32| max.max(x.to_bits() & 0x7FFF_FFFF);
    let max = f32::from_bits(x.iter().fold(0, largest));
    if !max.is_finite() {
        return (f32::NAN, [0; BLOCK]);
    }
    let inverse = MAX / max;
    if !inverse.is_finite() {
        return (0.0, [0; BLOCK]);
    }
    // the sum's last bit is worth 1, so that adding rounds to an integer, ties to even; none is above 127
    let q = x.map(|x| (x * inverse + ROUND).to_bits().wrapping_sub(ROUND.to_bits()) as i8);
    (max / MAX, q)
}

#[inline(always)]
fn bytes(q: &[i8; BLOCK], out: &mut [u8; INT_BLOCK]) {
    let (values, sums) = out.split_at_mut(BLOCK);
    for (out, &q) in values.iter_mut().zip(q) {
        *out = q as u8;
    }
    let sums = sums.as_chunks_mut().0.iter_mut();
    for (out, q) in sums.zip(q.as_chunks::<4>().0) {
        let sum: i32 = q.iter().map(|&q| i32::from(q)).sum();
        *out = (-128 * sum).to_le_bytes();
    }
}

#[inline(always)]
fn pairs(q: &[i8; BLOCK], out: &mut [u8; INT_BLOCK]) {
    let (first, second) = out.split_at_mut(BLOCK);
    let halves = first.as_chunks_mut::<4>().0.iter_mut();
    let halves = halves.zip(second.as_chunks_mut::<4>().0);
    for ((first, second), &[a, b, c, d]) in halves.zip(q.as_chunks::<4>().0) {
        let pair = |a: i8, b: i8| {
            let (a, b) = (i16::from(a).to_le_bytes(), i16::from(b).to_le_bytes());
            [a[0], a[1], b[0], b[1]]
        };
        *first = pair(a, b);
        *second = pair(c, d);
    }
}
