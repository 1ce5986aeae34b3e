//! IQ1_S: eight weights as one of 2048 points of -1, 0 and 1, shifted by an eighth, and a 3-bit scale for each 32.
//!
//! ```text
//! byte   0        2          34             50
//!        | d: f16 | qs: 32 B | qh: 8 x u16  |
//! weights 8 l .. 8 l + 7: low 8 bits of the place in the codebook = qs[l],
//!                         high 3 bits = 3-bit field l % 4 of qh[l / 4]
//! qh[g]  : bits 12 .. 14 = s of weights 32 g .. 32 g + 31, bit 15: shifted down, not up
//! x      = d * (2 s + 1) * (point +- 1/8)
//! ```

use super::cells::{Book, Cell, CellStep, Cells, Signs};
use super::codebook::{self, Placed, Split, TernaryCodebook, ascending, scale_code, ternary_codebook};
use super::grid::{whole, whole_mut};
use super::integers::{Coding, IntegerForm, Sums};
use super::k_block::{self, BLOCK, SuperBlocks};
use super::lanes::{Portable, Simd};
use super::num::{f16_at, put_f16};
use super::{Field, Format, Part, TypeId, TypeInfo, q8_k};

const BYTES: usize = 50;
const SIZE: usize = 32;
const GROUPS: usize = BLOCK / SIZE;
const CODES: usize = 2;
const HIGH: usize = CODES + BLOCK / 8;
const _: () = assert!(HIGH + 2 * GROUPS == BYTES);

/// How far points are shifted.
const SHIFT: f32 = 0.125;
/// Groups whose largest magnitude is below this are zero.
const ZERO_BELOW: f32 = 1e-12;

/// The registry's entry.
pub const INFO: TypeInfo = TypeInfo {
    fields: &[
        Field::new(Part::Scale, Format::F16, 0),
        Field::new(Part::Codes, Format::Bits, CODES),
        Field::new(Part::HighBits, Format::Bits, HIGH),
    ],
    act: Some(TypeId::Q8_K),
    decode: Some(decode),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
    ..TypeInfo::sized(TypeId::IQ1_S, "iq1_s", BLOCK, BYTES)
};

/// The values of weights under scales and shifts that are decided.
pub(super) const CELLS: Cells =
    Cells { book: Book::Eights(&codebook::IQ1), signs: Signs::None, scales: None, steps: cell_steps, place };

fn cell_steps(block: &[u8], steps: &mut [CellStep]) {
    let block: &[u8; BYTES] = whole(block);
    let d = f16_at(block, 0);
    for (g, to) in steps.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let (_, steps, down) = group(block, g);
        *to = [CellStep { scale: d * steps as f32, shift: if down { -SHIFT } else { SHIFT } }; 4];
    }
}

fn place(cells: &[Cell], block: &mut [u8]) {
    let block: &mut [u8; BYTES] = whole_mut(block);
    let (codes, high) = block[CODES..].split_at_mut(HIGH - CODES);
    for (code, cell) in codes.iter_mut().zip(cells) {
        *code = cell.points[0] as u8;
    }
    for (word, cells) in high.as_chunks_mut::<2>().0.iter_mut().zip(cells.as_chunks::<4>().0) {
        let mut bits = u16::from_le_bytes(*word) >> 12 << 12;
        for (l, cell) in cells.iter().enumerate() {
            bits |= cell.points[0] >> 8 << (3 * l);
        }
        *word = bits.to_le_bytes();
    }
}

/// A group of 32: its points, its scale in steps, and whether it is shifted down.
fn group(block: &[u8; BYTES], g: usize) -> ([&'static [i8; 8]; 4], i32, bool) {
    let high = u16::from_le_bytes([block[HIGH + 2 * g], block[HIGH + 2 * g + 1]]);
    let points = std::array::from_fn(|l| {
        let upper = usize::from(high >> (3 * l) & 7) << 8;
        &codebook::IQ1[usize::from(block[CODES + 4 * g + l]) | upper]
    });
    (points, 2 * i32::from(high >> 12 & 7) + 1, high >> 15 == 1)
}

/// Points in eighths, moved by one.
pub(super) const INTEGERS: IntegerForm = IntegerForm::new(
    SIZE,
    Coding::Table(&codebook::EIGHTHS),
    Sums::Whole { unit: SHIFT, last: 1.0 },
    |_, block, to| {
        let block: &[u8; BYTES] = whole(block);
        for (g, levels) in to.levels.as_chunks_mut::<SIZE>().0.iter_mut().enumerate() {
            let (points, steps, down) = group(block, g);
            for (level, point) in levels.iter_mut().zip(points.into_iter().flatten()) {
                *level = 8 * point + if down { -1 } else { 1 };
            }
            to.scales[g] = steps as i8;
        }
        to.d = [f16_at(block, 0); 4];
    },
);

fn decode(row: &[u8], out: &mut [f32]) {
    k_block::decode_blocks(row, out, |block: &[u8; BYTES], y| {
        let d = f16_at(block, 0);
        for (g, y) in y.as_chunks_mut::<SIZE>().0.iter_mut().enumerate() {
            let (points, steps, down) = group(block, g);
            let (scale, shift) = (d * steps as f32, if down { -SHIFT } else { SHIFT });
            for (y, value) in y.iter_mut().zip(points.into_iter().flatten()) {
                *y = scale * (f32::from(*value) + shift);
            }
        }
    });
}

/// Per block `acc += (dw * dx) * (sum + 1/8 * shifts)`, with `sum` of the points and `shifts` of the stored sums of the
/// activations, each times the group's steps.
fn dot_ref(w: &[u8], act: &[u8]) -> f32 {
    let mut acc = 0.0f32;
    for (x, y) in q8_k::block_pairs::<BYTES>(w, act) {
        let (mut sum, mut shifts) = (0, 0);
        for (g, q) in q8_k::quants(y).as_chunks::<SIZE>().0.iter().enumerate() {
            let (points, steps, down) = group(x, g);
            let products = points.into_iter().flatten().zip(q);
            sum += steps * products.map(|(p, q)| i32::from(*p) * i32::from(*q as i8)).sum::<i32>();
            let quants = q8_k::bsum(y, 2 * g) + q8_k::bsum(y, 2 * g + 1);
            shifts += if down { -steps } else { steps } * quants;
        }
        acc += f16_at(x, 0) * q8_k::scale(y) * (sum as f32 + SHIFT * shifts as f32);
    }
    acc
}

fn encode(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    encode_on(Portable, x, importance, row);
}

/// `INFO`'s `encode` on an instruction set.
///
/// ggml does not encode without importance; here all columns matter as much then.
#[inline(always)]
pub fn encode_on<S: Simd>(simd: S, x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    let book = ternary_codebook();
    let mut rows = SuperBlocks::<BYTES>::new(x, importance, row);
    while let Some(batch) = rows.suiting::<S>(1, encode) {
        for (b, (x, block)) in batch.x.iter().zip(batch.out).enumerate() {
            let importance = batch.importance.map(|importance| &importance[b]);
            let weight = codebook::error_weights(x, importance, 2.0, |x, sigma2| (sigma2 + x * x).sqrt());
            let mut placed = [Placed::default(); GROUPS];
            let groups = x.as_chunks::<SIZE>().0.iter().zip(weight.as_chunks::<SIZE>().0);
            for (placed, (x, weight)) in placed.iter_mut().zip(groups) {
                *placed = fit_group(simd, book, x, weight);
            }
            write(&placed, block);
        }
    }
}

/// The best split of a group, as points. A group of zeros has scale zero.
#[inline(always)]
fn fit_group<S: Simd>(simd: S, book: &TernaryCodebook, x: &[f32; SIZE], weight: &[f32; SIZE]) -> Placed {
    let largest = x.iter().fold(x[0].abs(), |m, v| if m > v.abs() { m } else { v.abs() });
    if largest < ZERO_BELOW {
        return Placed::default();
    }
    let order = ascending(x);
    let (mut sum_x, mut sum_w) = ([0.0f32; SIZE + 1], [0.0f32; SIZE + 1]);
    for (rank, &i) in order.iter().enumerate() {
        let i = usize::from(i);
        sum_x[rank + 1] = sum_x[rank] + weight[i] * x[i];
        sum_w[rank + 1] = sum_w[rank] + weight[i];
    }
    let mut best = Split::none();
    for i1 in 0..=SIZE {
        for i2 in i1..=SIZE {
            let x = [sum_x[i1] - sum_x[0], sum_x[i2] - sum_x[i1], sum_x[SIZE] - sum_x[i2]];
            let w = [sum_w[i1] - sum_w[0], sum_w[i2] - sum_w[i1], sum_w[SIZE] - sum_w[i2]];
            for (down, shift) in [(false, SHIFT), (true, -SHIFT)] {
                let q = [shift - 1.0, shift, shift + 1.0];
                let sum_qx = x[0] * q[0] + x[1] * q[1] + x[2] * q[2];
                let sum_q2 = w[0] * q[0] * q[0] + w[1] * q[1] * q[1] + w[2] * q[2] * q[2];
                best.offer(sum_qx, sum_q2, (i1, i2), [down; 2]);
            }
        }
    }
    if !best.is_some() {
        return Placed::default();
    }
    best.place(simd, book, (x, weight), &order)
}

/// Points are written also where all scales are zero, as the reference does.
fn write(placed: &[Placed; GROUPS], block: &mut [u8; BYTES]) {
    let largest = placed.iter().fold(0.0, |m, p| if m > p.scale { m } else { p.scale });
    let d = largest / 15.0;
    // The factor is ggml's: points are found with scales that are too small.
    put_f16(block, 0, if largest == 0.0 { 0.0 } else { d * 1.125 });
    let inverse = 1.0 / d;
    for (g, placed) in placed.iter().enumerate() {
        let mut high = 0;
        for (l, point) in placed.points.iter().enumerate() {
            block[CODES + 4 * g + l] = *point as u8;
            high |= (point >> 8) << (3 * l);
        }
        if largest != 0.0 {
            high |= u16::from(scale_code(inverse, placed.scale, 7)) << 12;
            high |= u16::from(placed.down[0]) << 15;
        }
        block[HIGH + 2 * g..][..2].copy_from_slice(&high.to_le_bytes());
    }
}
