//! Sixteen tokens at once with 8-bit activations.
//!
//! Sums of integers have no order, so that columns may be added in groups. A code's factors on the two axes are
//! `a = (p + q) / 2` and `b = (p - q) / 2` with `p` and `q` of ±1: `p` is its sign, and `q` is `p` on the real axis and
//! `-p` on the imaginary one. Sums with `p` and with `q` instead of those with `a` and `b` are halved at the end, and
//! always even.
//!
//! Four columns have sixteen sums with factors of ±1. They are made once for all rows, and four codes of a row then ask
//! for one of them with `p` and for one with `q`: an addition of sixteen tokens for each, where single products take
//! four.

use trine_formats::types::lanes::{Simd, Vector};
use trine_formats::widely::{Shape, combine, int8};

use crate::shared::widely::act::{Block, INTS as TOKEN_INTS, block};
use crate::shared::widely::batch::{Outputs, TOKENS, WeightRows};
use crate::shared::widely::{BLOCK_CHUNKS, CHUNK_BYTES, CodeLayout, Path, ROWS, blocks_of};

/// Bytes of a block of activations: real and imaginary parts of 64 columns, each of all tokens.
pub(crate) const INTS: usize = TOKEN_INTS * TOKENS;
/// Scales of a block: of the real and of the imaginary parts of all tokens.
pub(crate) const SCALES: usize = 2 * TOKENS;
/// Groups of four columns of a block.
pub(crate) const GROUPS: usize = int8::BLOCK / 4;

/// Bytes of codes of a block of one stream of sixteen rows.
const CODES: usize = BLOCK_CHUNKS * CHUNK_BYTES;

/// `rr`, `ri`, `ir` and `ii` of one stream of a row.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub(crate) struct RowSums(pub [[f32; TOKENS]; 4]);

/// The sums of a group, of real and of imaginary parts: entry `n` has the factor +1 for column `f` where bit `f` is
/// set.
type Table = [[[i16; TOKENS]; 2]; 16];
/// The tables of all groups of a block.
#[repr(align(64))]
pub(crate) struct Tables(pub [Table; GROUPS]);

/// For each code of a stream of a block sixteen times the number of an entry, with `p` and with `q`.
pub(crate) type Entries = [[u8; CODES]; 2];

/// `add(tables, entries, scales, sums)`: adds up to sixteen rows of one stream of a block to their sums.
///
/// # Safety
/// There are sixteen sums at most, the entries are multiples of 16, and the processor has what the function is compiled
/// for.
pub(crate) type Add = unsafe fn(&Tables, &Entries, &[f32; SCALES], &mut [RowSums]);

/// Working memory of a thread.
pub(crate) struct Memory {
    tables: Box<Tables>,
    /// `[unit][stream][row]`.
    sums: Vec<RowSums>,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory { tables: Box::new(Tables([[[[0; TOKENS]; 2]; 16]; GROUPS])), sums: Vec::new() }
    }
}

/// Blocks of a row.
pub(crate) fn blocks(shape: &Shape) -> usize {
    shape.columns.div_ceil(int8::BLOCK)
}

/// Arranges integers `[block][real, imaginary][column][token]` and their scales `[block][real, imaginary][token]`.
pub(crate) fn arrange(shape: &Shape, acts: &[u8], ints: &mut [u8], scales: &mut [f32]) {
    ints.fill(0);
    scales.fill(0.0);
    let blocks = blocks(shape);
    let row = Path::Int8.act_bytes(shape);
    let outs = ints.chunks_exact_mut(INTS);
    for (b, (ints, scales)) in outs.zip(scales.chunks_exact_mut(SCALES)).enumerate() {
        for (t, acts) in acts.chunks_exact(row).enumerate() {
            let Block { ints: x, scales: of_token, .. } = block(acts, blocks, b);
            let columns = ints.chunks_exact_mut(TOKENS);
            columns.zip(x).for_each(|(out, &x)| out[t] = x);
            (scales[t], scales[TOKENS + t]) = (of_token[0], of_token[1]);
        }
    }
}

/// The products of all rows, block after block, whose tables serve them all. To be compiled for the instruction set of
/// its caller.
///
/// # Safety
/// The processor has what `add` is compiled for.
#[inline(always)]
pub(crate) unsafe fn multiply<S: Simd>(
    s: S,
    add: Add,
    rows: &WeightRows<'_>,
    (ints, scales): (&[u8], &[f32]),
    memory: &mut Memory,
    out: &mut [Outputs],
) {
    let shape = rows.shape;
    let streams = shape.streams();
    let (of_tile, _) = blocks_of(shape);
    let unit = CodeLayout::Rows16.unit_bytes(shape);
    let Memory { tables, sums } = memory;
    let mut which = [[0; CODES]; 2];
    out.fill(Outputs::default());
    let acts = ints.chunks_exact(INTS).zip(scales.as_chunks().0);
    for (b, (ints, of_block)) in acts.enumerate() {
        if b.is_multiple_of(of_tile) {
            sums.clear();
            sums.resize(out.len().div_ceil(ROWS) * streams * ROWS, RowSums::default());
        }
        fill(ints, tables);
        let units = rows.weights.chunks_exact(unit);
        for (weights, sums) in units.zip(sums.chunks_exact_mut(streams * ROWS)) {
            for (stream, sums) in sums.chunks_exact_mut(ROWS).enumerate() {
                let codes = &weights[(b * streams + stream) * CODES..][..CODES];
                entries(codes, &mut which);
                // SAFETY: the caller says that the processor has the instructions.
                unsafe { add(tables, &which, of_block, sums) };
            }
        }
        if (b + 1).is_multiple_of(of_tile) {
            for (r, out) in out.iter_mut().enumerate() {
                let of_row = sums[r / ROWS * streams * ROWS + r % ROWS..].iter().step_by(ROWS);
                let mut all = [[s.splat(0.0); 4]; 8];
                for (all, RowSums(sums)) in all[..streams].iter_mut().zip(of_row) {
                    *all = sums.each_ref().map(|v| s.load(v));
                }
                let scales = shape.scales_of(rows.scales, rows.first + r, b / of_tile);
                let mut y = (s.load(&out[0]), s.load(&out[1]));
                combine(&mut y, &all[..streams], |i| s.splat(scales[i]));
                *out = [y.0.to_array(), y.1.to_array()];
            }
        }
    }
}

/// Makes the tables of a block.
#[inline(always)]
fn fill(ints: &[u8], Tables(tables): &mut Tables) {
    let columns = ints.as_chunks::<TOKENS>().0;
    for (part, columns) in columns.chunks_exact(int8::BLOCK).enumerate() {
        for (g, table) in tables.iter_mut().enumerate() {
            // byte `b` of a row's four bytes of a chunk has the codes of columns `b`, `4 + b`, `8 + b` and `12 + b`
            let (chunk, b) = (g / 4, g % 4);
            let x: [[i16; TOKENS]; 4] =
                std::array::from_fn(|f| columns[16 * chunk + 4 * f + b].map(|x| i16::from(x as i8)));
            table[0][part] = std::array::from_fn(|t| -(x[0][t] + x[1][t] + x[2][t] + x[3][t]));
            for n in 1..16usize {
                let (rest, last) = (table[n & (n - 1)][part], x[n.trailing_zeros() as usize]);
                table[n][part] = std::array::from_fn(|t| rest[t] + 2 * last[t]);
            }
        }
    }
}

/// Which entries the codes of a stream of a block ask for, in their order.
#[inline(always)]
fn entries(codes: &[u8], out: &mut Entries) {
    // the lower bits of four codes side by side, in the upper half of the byte
    let gather = |bits: u8| {
        let bits = bits & 0x55;
        let bits = (bits | bits >> 1) & 0x33;
        (bits | bits >> 2) << 4
    };
    let [p, q] = out;
    for ((p, q), &codes) in p.iter_mut().zip(q).zip(codes) {
        *p = gather(codes);
        *q = gather(codes ^ codes >> 1);
    }
}
