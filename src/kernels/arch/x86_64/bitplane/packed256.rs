//! Packed codes with AVX2: how they are made from planes, and how rows of them are looked up.

use std::arch::x86_64::*;
use std::ops::Range;

use super::PAIR;
use super::codes256::codes;
use super::lut::{Fixed, fixed, odd_group};
use super::packed512::{FLIP, Run, prefetch_tables};
use super::rows256::{Floats, Sink, Tables, Words, fixed_point, halves};
use crate::shared::bitplane::packed::{Kind, LINE, PackedRows, Shape, entries};
use crate::shared::bitplane::{Arrangement, PlaneRows};

/// Where blocks have their bits in the bytes of a line, from the first to the last block of it.
const fn places(kind: Kind) -> &'static [i32] {
    match kind {
        Kind::Nibbles => &[0, 4],
        Kind::Planes45 => &[4, 0, 6, 2],
        Kind::Planes67 => &[6, 2, 4, 0],
    }
}

/// As [`super::packed512::pack`] does.
#[target_feature(enable = "avx2")]
pub(crate) fn pack(kind: Kind, shape: Shape, planes: &[&[u8]], rows: usize, out: &mut [u8]) {
    let (lines, blocks, places) = (shape.lines(kind), shape.blocks(), places(kind));
    let mask = match kind {
        Kind::Nibbles => _mm256_set1_epi8(15),
        _ => _mm256_set1_epi8(3),
    };
    if rows % PAIR == 1 {
        let whole = rows / PAIR * PAIR * shape.groups * lines * LINE;
        out[whole..].fill(0);
    }
    for row in 0..rows {
        for group in 0..shape.groups {
            let run = row / PAIR * shape.groups + group;
            let out = &mut out[(run * lines * PAIR + row % PAIR) * LINE..];
            let first = (row * shape.groups + group) * blocks;
            for (i, out) in out.chunks_mut(PAIR * LINE).take(lines).enumerate() {
                let mut line = [_mm256_setzero_si256(); 2];
                let here = places.len() * i..blocks.min(places.len() * (i + 1));
                for (block, place) in here.zip(places) {
                    let mut words = [_mm256_setzero_si256(); 4];
                    for (word, plane) in words.iter_mut().zip(planes) {
                        let bytes = plane.as_chunks().0[first + block];
                        *word = _mm256_set1_epi64x(i64::from_le_bytes(bytes));
                    }
                    // The first plane is bit 0 here.
                    let [p, q, r, s] = words;
                    let bits = match kind {
                        Kind::Nibbles => codes::<4, false>([s, r, q, p]),
                        _ => codes::<2, false>([q, p]),
                    };
                    for (line, bits) in line.iter_mut().zip(bits) {
                        let bits = _mm256_and_si256(bits, mask);
                        let bits = _mm256_sll_epi16(bits, _mm_cvtsi32_si128(*place));
                        *line = _mm256_or_si256(*line, bits);
                    }
                }
                for (line, out) in line.into_iter().zip(out[..LINE].chunks_exact_mut(32)) {
                    // SAFETY: 32 bytes.
                    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), line) };
                }
            }
        }
    }
}

/// As [`super::packed512::pack_tables`] does.
#[target_feature(enable = "avx2,f16c")]
pub(crate) fn pack_tables(rows: &PlaneRows<'_>, in_fixed_point: bool, out: &mut [u8], scales: &mut [f32]) {
    let width = rows.width();
    let n = entries(width);
    let row_bytes = rows.groups * 2 * n;
    out[scales.len() * row_bytes..].fill(0);
    for ((row, out), scale) in out.chunks_mut(row_bytes).enumerate().zip(scales) {
        let of_row = in_fixed_point.then(|| fixed(rows, row));
        *scale = of_row.map_or(1.0, |of_row| of_row.scale);
        let luts = rows.row(row).1.chunks_exact(2 << width);
        for ((group, lut), out) in luts.enumerate().zip(out.chunks_mut(2 * n)) {
            let (table, flip) = match of_row {
                None => (halves(lut), 0),
                Some(Fixed { factor, .. }) => match factor {
                    Some(factor) => (fixed_point(lut, factor), FLIP),
                    None => (odd_group(rows, row, group), FLIP),
                },
            };
            let (lower, upper) = out.split_at_mut(n);
            for (i, (lower, upper)) in lower.iter_mut().zip(upper).enumerate() {
                // The first plane is bit 0 of a packed code and the leading bit of the file's.
                let code = (i as u8).reverse_bits() >> (8 - width);
                let [a, b] = table[usize::from(code)].to_le_bytes();
                (*lower, *upper) = (a, b ^ flip);
            }
        }
    }
}

/// The codes of half of each of four blocks, from lines of nibbles `u`, `v` and of two bits `m`, `n`. What a code has
/// above its bits means nothing; of four planes or less it is below 16.
#[inline]
#[target_feature(enable = "avx2")]
fn four<const B: usize>([u, v]: [__m256i; 2], [m, n]: [__m256i; 2]) -> [__m256i; 4] {
    let low = _mm256_set1_epi8(15);
    let nibbles = [
        _mm256_and_si256(u, low),
        _mm256_and_si256(_mm256_srli_epi16::<4>(u), low),
        _mm256_and_si256(v, low),
        _mm256_and_si256(_mm256_srli_epi16::<4>(v), low),
    ];
    if B <= 4 {
        return nibbles;
    }
    // Bits 4, 5 and 6, 7 of the code, where they are in their lines.
    let bits = |of_m: u8, of_n: u8| {
        let of_m = _mm256_and_si256(m, _mm256_set1_epi8(of_m.cast_signed()));
        match B {
            ..=6 => of_m,
            _ => {
                let of_n = _mm256_and_si256(n, _mm256_set1_epi8(of_n.cast_signed()));
                _mm256_or_si256(of_m, of_n)
            }
        }
    };
    let mut upper = [
        bits(0x30, 0xC0),
        _mm256_slli_epi16::<4>(bits(0x03, 0x0C)),
        _mm256_srli_epi16::<2>(bits(0xC0, 0)),
        _mm256_slli_epi16::<2>(bits(0x0C, 0)),
    ];
    if B > 6 {
        let of_n = |mask: u8| _mm256_and_si256(n, _mm256_set1_epi8(mask.cast_signed()));
        upper[2] = _mm256_or_si256(upper[2], _mm256_slli_epi16::<2>(of_n(0x30)));
        upper[3] = _mm256_or_si256(upper[3], _mm256_slli_epi16::<6>(of_n(0x03)));
    }
    let mut codes = nibbles;
    for (codes, upper) in codes.iter_mut().zip(upper) {
        *codes = _mm256_or_si256(*codes, upper);
    }
    codes
}

/// The table of a group of a row.
#[inline]
#[target_feature(enable = "avx2")]
fn table<const B: usize, S: Sink>(rows: &PackedRows<'_>, row: usize, group: usize) -> Tables {
    let n = entries(B);
    let at = (row * rows.shape.groups + group) * 2 * n;
    let (lower, upper) = rows.tables[at..at + 2 * n].split_at(n);
    let mut tables = Tables { lower: [0; 256], upper: [0; 256] };
    tables.lower[..n].copy_from_slice(lower);
    let flip = if S::HALVES { 0 } else { FLIP };
    for (to, byte) in tables.upper[..n].iter_mut().zip(upper) {
        *to = byte ^ flip;
    }
    tables
}

/// Hands the blocks of row `row` to `sink`, and prefetches at the distance `ahead` behind them.
///
/// # Safety
/// The processor has AVX2, FMA and F16C. The rows have this one, of width `B`, and the sink has room for its blocks.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn walk<const B: usize, S: Sink>(rows: &PackedRows<'_>, row: usize, sink: &mut S) {
    let blocks = rows.shape.blocks();
    let zero = _mm256_setzero_si256();
    for group in 0..rows.shape.groups {
        // SAFETY: the caller says that the rows have this one, and so the lines and tables of its groups are there.
        unsafe {
            let run = Run::new::<B>(rows, row, group);
            let table = table::<B, S>(rows, row, group);
            for first in (0..blocks).step_by(4) {
                prefetch_tables::<B, 1>(rows, (row, group), first / 4, rows.ahead);
                let here = (blocks - first).min(4);
                let [lower, upper] = [0, 32].map(|half| {
                    let line = |data: *const u8, i: usize| _mm256_loadu_si256(data.add(i * PAIR * LINE + half).cast());
                    let (i, last) = (first / 4, if here > 2 { 1 } else { 0 });
                    // What is not there is not looked at.
                    let nibbles = [line(run.nibbles, 2 * i), line(run.nibbles, 2 * i + last)];
                    let [m, n] = run.two_bits;
                    let m = if B > 4 { line(m, i) } else { zero };
                    let n = if B > 6 { line(n, i) } else { zero };
                    four::<B>(nibbles, [m, n])
                });
                let codes = lower.into_iter().zip(upper).take(here).enumerate();
                for (k, (lower, upper)) in codes {
                    run.prefetch::<B, 1>(first / 4, k, rows.ahead);
                    sink.block::<B>(&table, group * blocks + first + k, [lower, upper]);
                }
            }
        }
    }
}

/// [`walk`] at the width of the rows.
///
/// # Safety
/// As there.
unsafe fn walk_any<S: Sink>(rows: &PackedRows<'_>, row: usize, sink: &mut S) {
    // SAFETY: the caller says that the processor has the instructions and the row is there.
    unsafe { by_width!(rows.width, B => walk::<B, S>(rows, row, sink)) }
}

/// Looks up rows for [`Arrangement::Words`].
///
/// # Safety
/// AVX2, FMA and F16C. The rows are there, and `memory` has room for them.
pub(super) unsafe fn words(rows: &PackedRows<'_>, range: Range<usize>, memory: &mut [u8]) -> [f32; PAIR] {
    let row_bytes = Arrangement::Words.act_bytes(rows.shape.columns);
    let mut scales = [0.0; PAIR];
    let memory = memory.chunks_exact_mut(row_bytes);
    for ((i, memory), scale) in range.zip(memory).zip(&mut scales) {
        let mut sink = Words(memory.as_mut_ptr().cast());
        // SAFETY: as the caller says; `memory` is as long as the row.
        unsafe { walk_any(rows, i, &mut sink) };
        *scale = rows.scales[i];
    }
    scales
}

/// Looks up rows for [`Arrangement::Floats`].
///
/// # Safety
/// As [`words`].
pub(super) unsafe fn floats(rows: &PackedRows<'_>, range: Range<usize>, memory: &mut [u8]) -> [f32; PAIR] {
    let row_bytes = Arrangement::Floats.act_bytes(rows.shape.columns);
    for (i, memory) in range.zip(memory.chunks_exact_mut(row_bytes)) {
        let mut sink = Floats(memory.as_mut_ptr().cast());
        // SAFETY: as the caller says; `memory` is as long as the row.
        unsafe { walk_any(rows, i, &mut sink) };
        memory[4 * rows.shape.columns..].fill(0);
    }
    [1.0; PAIR]
}
