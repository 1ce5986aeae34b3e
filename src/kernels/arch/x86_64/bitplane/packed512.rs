//! Packed codes: how they are made from planes, and how they become codes again.

use std::arch::x86_64::*;

use super::super::packed::{NoPrefetch, PrefetchDistance};
use super::codes512::codes;
use super::lut::{Fixed, fixed, odd_group};
use super::rows512::{Sink, Tables, Walk, tables};
use crate::shared::bitplane::PlaneRows;
use crate::shared::bitplane::packed::{Kind, LINE, PAIR, PackedRows, Shape, entries};

/// A matrix of bits that gives a byte its bits in another order: bit `i` is the one that was at `from[i]`.
const fn order(from: [u8; 8]) -> i64 {
    let mut out = 0u64;
    let mut i = 0;
    while i < 8 {
        // row i of the matrix is byte 7 - i
        out |= 1 << from[i] << (8 * (7 - i));
        i += 1;
    }
    out.cast_signed()
}

/// Orders of blocks b, c and d of four, once all their bits are in one byte.
const ORDERS: [i64; 3] =
    [order([4, 5, 6, 7, 0, 1, 2, 3]), order([0, 1, 2, 3, 6, 7, 4, 5]), order([4, 5, 6, 7, 2, 3, 0, 1])];

/// Bits of `a` where `mask` has ones, else those of `b`.
#[inline]
#[target_feature(enable = "avx512f")]
fn select(mask: i8, a: __m512i, b: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<0xCA>(_mm512_set1_epi8(mask), a, b)
}

/// The codes of four blocks from two lines of nibbles and a line of each other kind that the width needs. What a code
/// has above its bits means nothing.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(super) fn four<const B: usize>(nibbles: [__m512i; 2], two_bits: [__m512i; 2]) -> [__m512i; 4] {
    let [u, v] = nibbles;
    if B <= 4 {
        return [u, _mm512_srli_epi16::<4>(u), v, _mm512_srli_epi16::<4>(v)];
    }
    let (m, n) = if B <= 6 {
        (two_bits[0], two_bits[0])
    } else {
        (select(0x33, two_bits[0], two_bits[1]), select(0x33, two_bits[1], two_bits[0]))
    };
    let order = |i: usize, x| _mm512_gf2p8affine_epi64_epi8::<0>(x, _mm512_set1_epi64(ORDERS[i]));
    [select(0x0F, u, m), order(0, select(0x0F, m, u)), order(1, select(0x0F, v, n)), order(2, select(0x0F, n, v))]
}

/// Where the lines of a group of a row are.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub(super) nibbles: *const u8,
    pub(super) two_bits: [*const u8; 2],
    /// 1 for the second row of a pair.
    second: usize,
    /// Whole fours of blocks.
    fours: usize,
}

impl Run {
    /// # Safety
    /// The row and the group are there.
    #[inline]
    pub(super) unsafe fn new<const B: usize>(rows: &PackedRows<'_>, row: usize, group: usize) -> Run {
        let at = |data: &[u8], lines: usize| {
            let run = row / PAIR * rows.shape.groups + group;
            // SAFETY: the caller says that the row and the group are there, whose first line this is.
            unsafe { data.as_ptr().add((run * lines * PAIR + row % PAIR) * LINE) }
        };
        let (nibbles, two_bits) = (rows.shape.nibble_lines(), rows.shape.two_bit_lines());
        let none = std::ptr::null();
        Run {
            second: row % PAIR,
            fours: rows.shape.blocks() / 4,
            nibbles: at(rows.lines[0], nibbles),
            two_bits: [
                if B > 4 { at(rows.lines[1], two_bits) } else { none },
                if B > 6 { at(rows.lines[2], two_bits) } else { none },
            ],
        }
    }

    /// The codes of blocks `4 i` to `4 i + 3`; those of the last two are nothing unless `whole`.
    ///
    /// # Safety
    /// The blocks are there.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    pub(super) unsafe fn four<const B: usize>(&self, i: usize, whole: bool) -> [__m512i; 4] {
        let zero = _mm512_setzero_si512();
        let line = |data: *const u8, i: usize| {
            // SAFETY: the caller says that the blocks are there, whose line this is; lines are aligned to as many bytes
            // as they have.
            unsafe { _mm512_load_si512(data.add(i * PAIR * LINE).cast()) }
        };
        let nibbles = [line(self.nibbles, 2 * i), if whole { line(self.nibbles, 2 * i + 1) } else { zero }];
        let two_bits = [
            if B > 4 { line(self.two_bits[0], i) } else { zero },
            if B > 6 { line(self.two_bits[1], i) } else { zero },
        ];
        four::<B>(nibbles, two_bits)
    }

    /// Prefetches share `k` of four of the lines at distance `ahead` behind blocks `4 i` to `4 i + 3` of a pair of
    /// rows, whose first one this is, where `R` is 2. Where `R` is 1, the first row prefetches the first half of the
    /// lines of the pair in order, and the second row the other half: where each row prefetched its own, every other
    /// line, codes of 8 bits came at 9.8 instead of 14.0 billions per second. All but `i` should be known when it is
    /// compiled.
    #[inline(always)]
    pub(super) fn prefetch<const B: usize, const R: usize>(&self, i: usize, k: usize, ahead: impl PrefetchDistance) {
        let line = |data: *const u8, per_row: usize, j: usize| {
            let line = if R == PAIR { i * PAIR * per_row + j } else { (self.second * self.fours + i) * per_row + j };
            let pair = data.wrapping_sub(self.second * LINE);
            ahead.line(pair.wrapping_add(line * LINE));
        };
        let (j, odd) = (k / 2, k % 2 == 1);
        if R == PAIR {
            line(self.nibbles, 2, k);
            if B > 4 && !odd {
                line(self.two_bits[0], 1, j);
            }
            if B > 6 && odd {
                line(self.two_bits[1], 1, j);
            }
        } else if !odd {
            line(self.nibbles, 2, j);
        } else if B > 4 && j == 0 {
            line(self.two_bits[0], 1, 0);
        } else if B > 6 && j == 1 {
            line(self.two_bits[1], 1, 0);
        }
    }
}

/// Prefetches line `i` at distance `ahead` behind the tables of a group of `R` rows, if the tables have as many lines.
#[inline(always)]
pub(super) fn prefetch_tables<const B: usize, const R: usize>(
    rows: &PackedRows<'_>,
    (row, group): (usize, usize),
    i: usize,
    ahead: impl PrefetchDistance,
) {
    let per_row = (2 * entries(B)).div_ceil(LINE);
    if i < R * per_row {
        let table = ((row + i / per_row) * rows.shape.groups + group) * 2 * entries(B);
        ahead.line(rows.tables.as_ptr().wrapping_add(table + i % per_row * LINE));
    }
}

/// The table of a group of a row.
///
/// # Safety
/// The row has the table: `row` and `group` are in range.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn table<const B: usize>(rows: &PackedRows<'_>, row: usize, group: usize) -> Tables {
    let n = entries(B);
    // SAFETY: the caller says that the tables have this group of this row.
    let at = unsafe { rows.tables.as_ptr().add((row * rows.shape.groups + group) * 2 * n) };
    let half = |at: *const u8| {
        let mut out = [_mm512_setzero_si512(); 4];
        // SAFETY: a table has n entries of two bytes.
        unsafe {
            match n {
                16 => out[0] = _mm512_broadcast_i32x4(_mm_load_si128(at.cast())),
                32 => out[0] = _mm512_broadcast_i64x4(_mm256_load_si256(at.cast())),
                _ => {
                    for (j, out) in out.iter_mut().enumerate().take(n / 64) {
                        *out = _mm512_load_si512(at.add(64 * j).cast());
                    }
                }
            }
        }
        out
    };
    // SAFETY: the table of the group has n entries of two bytes, all lower ones before all upper ones.
    let upper = unsafe { at.add(n) };
    Tables { lower: half(at), upper: half(upper) }
}

/// Bits by which the upper bytes of fixed point differ in memory.
pub(super) const FLIP: u8 = 0x80;

/// Hands the blocks of row `row` to `sink`, and prefetches at the distance `ahead` behind them.
///
/// # Safety
/// AVX-512 with VNNI, VBMI and GFNI. The rows have this one, of width `B`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,gfni,avx2,fma,f16c")]
pub(super) unsafe fn walk<const B: usize, S: Sink, A: PrefetchDistance>(
    rows: &PackedRows<'_>,
    row: usize,
    sink: &mut S,
    ahead: A,
) {
    let blocks = rows.shape.blocks();
    for group in 0..rows.shape.groups {
        // SAFETY: the caller says that the rows have this one, and so the lines and tables of its groups are there.
        unsafe {
            let (run, table) = (Run::new::<B>(rows, row, group), flipped::<S>(table::<B>(rows, row, group)));
            let first = group * blocks;
            for i in 0..blocks / 4 {
                prefetch_tables::<B, 1>(rows, (row, group), i, ahead);
                for (k, codes) in run.four::<B>(i, true).into_iter().enumerate() {
                    run.prefetch::<B, 1>(i, k, ahead);
                    sink.block::<B>(&table, first + 4 * i + k, codes);
                }
            }
            let rest = blocks % 4;
            if rest > 0 {
                let i = blocks / 4;
                let codes = run.four::<B>(i, rest > 2);
                for (k, codes) in codes.into_iter().enumerate().take(rest) {
                    sink.block::<B>(&table, first + 4 * i + k, codes);
                }
            }
        }
    }
}

/// The table as the sink wants it.
#[inline]
#[target_feature(enable = "avx512f")]
fn flipped<S: Sink>(mut table: Tables) -> Tables {
    if !S::HALVES && S::FLIP != FLIP {
        let flip = _mm512_set1_epi8((S::FLIP ^ FLIP).cast_signed());
        table.upper = table.upper.map(|t| _mm512_xor_si512(t, flip));
    }
    table
}

impl Walk for PackedRows<'_> {
    fn columns(&self) -> usize {
        self.shape.columns
    }

    fn odd(&self) -> Option<&PlaneRows<'_>> {
        None
    }

    unsafe fn walk<S: Sink>(&self, row: usize, sink: &mut S) -> f32 {
        // SAFETY: `Walk::walk` asks that the processor has the instructions and that the row is there.
        unsafe { by_width!(self.width, B => walk::<B, S, _>(self, row, sink, NoPrefetch)) }
        self.scales[row]
    }
}

/// Packs row after row: `planes` are the planes of the kind, as many as there are; `out` is whole pairs of rows.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
pub(crate) fn pack(kind: Kind, shape: Shape, planes: &[&[u8]], rows: usize, out: &mut [u8]) {
    let (lines, blocks) = (shape.lines(kind), shape.blocks());
    if rows % PAIR == 1 {
        let whole = rows / PAIR * PAIR * shape.groups * lines * LINE;
        out[whole..].fill(0);
    }
    for row in 0..rows {
        for group in 0..shape.groups {
            let run = row / PAIR * shape.groups + group;
            let out = &mut out[(run * lines * PAIR + row % PAIR) * LINE..];
            let first = (row * shape.groups + group) * blocks;
            let mut outs = out.chunks_mut(PAIR * LINE).take(lines);
            for at in (0..blocks).step_by(8) {
                let there = ((1u32 << (blocks - at).min(8)) - 1) as u8;
                let mut words = [_mm512_setzero_si512(); 4];
                for (word, plane) in words.iter_mut().zip(planes) {
                    let plane = &plane[8 * (first + at)..8 * (first + blocks)];
                    // SAFETY: as many words as the mask has bits.
                    *word = unsafe { _mm512_maskz_loadu_epi64(there, plane.as_ptr().cast()) };
                }
                let [p, q, r, s] = words;
                let mut put = |line: __m512i| {
                    if let Some(out) = outs.next() {
                        assert!(out.len() >= LINE, "room for the line");
                        // SAFETY: just checked.
                        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), line) };
                    }
                };
                match kind {
                    Kind::Nibbles => {
                        let c = codes::<4>([s, r, q, p]);
                        for two in c.as_chunks::<2>().0 {
                            let upper = _mm512_slli_epi16::<4>(two[1]);
                            put(select(0x0F, two[0], upper));
                        }
                    }
                    _ => {
                        let last = kind == Kind::Planes67;
                        for four in codes::<2>([q, p]).as_chunks::<4>().0 {
                            let [a, b, c, d] = *four;
                            // in the order of the places
                            let [w, x, y, z] = if last { [d, b, c, a] } else { [b, d, a, c] };
                            let lower = select(0x03, w, _mm512_slli_epi16::<2>(x));
                            let y = _mm512_slli_epi16::<4>(y);
                            let upper = select(0x30, y, _mm512_slli_epi16::<6>(z));
                            put(select(0x0F, lower, upper));
                        }
                    }
                }
            }
        }
    }
}

/// The tables of all rows, as [`PackedRows`] has them, and their scales. `fixed_point`: what entries are, or else
/// the half floats of the file. Planes are not looked at.
///
/// # Safety
/// AVX-512 with VNNI, VBMI and GFNI.
pub(crate) unsafe fn pack_tables(rows: &PlaneRows<'_>, fixed_point: bool, out: &mut [u8], scales: &mut [f32]) {
    // SAFETY: the caller says that the processor has the instructions.
    unsafe { by_width!(rows.width(), B => tables_of::<B>(rows, fixed_point, out, scales)) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,gfni,avx2,fma,f16c")]
fn tables_of<const B: usize>(rows: &PlaneRows<'_>, fixed_point: bool, out: &mut [u8], scales: &mut [f32]) {
    let n = entries(B);
    // the codes of the entries in their new order, from the order of the file
    let mut codes = [_mm512_setzero_si512(); 4];
    for (j, codes) in codes.iter_mut().enumerate() {
        let mut bytes = [0u8; LINE];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = ((LINE * j + i) as u8).reverse_bits() >> (8 - B);
        }
        // SAFETY: 64 bytes.
        *codes = unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
    }
    let row_bytes = rows.groups * 2 * n;
    out[scales.len() * row_bytes..].fill(0);
    for ((row, out), scale) in out.chunks_mut(row_bytes).enumerate().zip(scales) {
        let lut = rows.row(row).1;
        let (factor, flip) = if fixed_point {
            let Fixed { scale: s, factor } = fixed(rows, row);
            *scale = s;
            (Some(factor), FLIP)
        } else {
            *scale = 1.0;
            (None, 0)
        };
        for ((group, lut), out) in lut.chunks_exact(2 << B).enumerate().zip(out.chunks_mut(2 * n)) {
            // SAFETY: a group of `lut` has 2^B entries of two bytes, and this function has the features that `tables`
            // asks for.
            let t = unsafe { tables::<B>(lut, factor, flip, || odd_group(rows, row, group)) };
            let (lower, upper) = out.split_at_mut(n);
            for (half, out) in [lower, upper].into_iter().enumerate() {
                for (out, codes) in out.chunks_mut(LINE).zip(codes) {
                    let bytes = if half == 0 { t.lower::<B>(codes) } else { t.upper::<B>(codes) };
                    let there = u64::MAX >> (64 - out.len());
                    // SAFETY: as many bytes as the mask has bits.
                    unsafe { _mm512_mask_storeu_epi8(out.as_mut_ptr().cast(), there, bytes) };
                }
            }
        }
    }
}
