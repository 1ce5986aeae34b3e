//! IQ1_M: eight weights as one of 2048 points of -1, 0 and 1, shifted by an eighth, and a 3-bit scale for each 16.
//!
//! ```text
//! byte   0          32         48             56
//!        | qs: 32 B | qh: 16 B | sc: 4 x u16  |
//! weights 8 l .. 8 l + 7: low 8 bits of the place in the codebook = qs[l];
//!                         of nibble l % 2 of qh[l / 2]: bits 0 .. 2 = high bits, bit 3: shifted down, not up
//! sc[k]  : 3-bit field j = s of weights 64 k + 16 j .. 64 k + 16 j + 15 (j < 4), bits 12 .. 15 = nibble k of d: f16
//! x      = d * (2 s + 1) * (point +- 1/8)
//! ```

use super::cells::{Book, Cell, CellStep, Cells, Signs};
use super::codebook::{self, Placed, Split, TernaryCodebook, ascending, scale_code, ternary_codebook};
use super::grid::{whole, whole_mut};
use super::integers::{Coding, IntegerForm, Sums};
use super::k_block::{self, BLOCK, SuperBlocks};
use super::lanes::{Portable, Simd};
use super::num::{f16_to_f32, f32_to_f16};
use super::{Field, Format, Part, TypeId, TypeInfo, q8_k};

const BYTES: usize = 56;
const SIZE: usize = 16;
const GROUPS: usize = BLOCK / SIZE;
const HIGH: usize = BLOCK / 8;
const SCALES: usize = HIGH + BLOCK / 16;
const _: () = assert!(SCALES + GROUPS / 2 == BYTES);

/// How far points are shifted.
const SHIFT: f32 = 0.125;
/// Groups whose largest magnitude is below this are zero.
const ZERO_BELOW: f32 = 1e-7;

/// The registry's entry.
pub const INFO: TypeInfo = TypeInfo {
    fields: &[
        Field::new(Part::Codes, Format::Bits, 0),
        Field::new(Part::HighBits, Format::Bits, HIGH),
        Field::new(Part::Scale, Format::F16Nibbles, SCALES),
    ],
    act: Some(TypeId::Q8_K),
    decode: Some(decode),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
    ..TypeInfo::sized(TypeId::IQ1_M, "iq1_m", BLOCK, BYTES)
};

fn scale_words(block: &[u8; BYTES]) -> [u16; 4] {
    std::array::from_fn(|k| u16::from_le_bytes([block[SCALES + 2 * k], block[SCALES + 2 * k + 1]]))
}

/// The block's scale.
fn scale(block: &[u8; BYTES]) -> f32 {
    let words = scale_words(block);
    f16_to_f32((0..4).fold(0, |all, k| all | (words[k] >> 12) << (4 * k)))
}

/// The scale of a group of 16, in steps.
fn steps(block: &[u8; BYTES], g: usize) -> i32 {
    2 * i32::from(scale_words(block)[g / 4] >> (3 * (g % 4)) & 7) + 1
}

/// The point of weights `8 l .. 8 l + 7`, and whether it is shifted down.
fn point(block: &[u8; BYTES], l: usize) -> (u16, bool) {
    let high = block[HIGH + l / 2] >> (4 * (l % 2)) & 15;
    (u16::from(block[l]) | u16::from(high & 7) << 8, high >> 3 == 1)
}

/// The values of weights under scales and shifts that are decided.
pub(super) const CELLS: Cells =
    Cells { book: Book::Eights(&codebook::IQ1), signs: Signs::None, scales: None, steps: cell_steps, place };

fn cell_steps(block: &[u8], to: &mut [CellStep]) {
    let block: &[u8; BYTES] = whole(block);
    let d = scale(block);
    for (l, to) in to.iter_mut().enumerate() {
        let (_, down) = point(block, l);
        *to = CellStep { scale: d * steps(block, l / 2) as f32, shift: if down { -SHIFT } else { SHIFT } };
    }
}

fn place(cells: &[Cell], block: &mut [u8]) {
    let block: &mut [u8; BYTES] = whole_mut(block);
    for (l, cell) in cells.iter().enumerate() {
        let (point, at) = (cell.points[0], 4 * (l % 2));
        block[l] = point as u8;
        let nibbles = &mut block[HIGH + l / 2];
        *nibbles = *nibbles & !(7 << at) | ((point >> 8) as u8) << at;
    }
}

/// Points in eighths, moved by one.
pub(super) const INTEGERS: IntegerForm = IntegerForm::new(
    SIZE,
    Coding::Table(&codebook::EIGHTHS),
    Sums::Whole { unit: SHIFT, last: 1.0 },
    |_, block, to| {
        let block: &[u8; BYTES] = whole(block);
        for (l, levels) in to.levels.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let (point, down) = point(block, l);
            *levels = codebook::IQ1[usize::from(point)].map(|p| 8 * p + if down { -1 } else { 1 });
        }
        to.scales = std::array::from_fn(|g| steps(block, g) as i8);
        to.d = [scale(block); 4];
    },
);

fn decode(row: &[u8], out: &mut [f32]) {
    k_block::decode_blocks(row, out, |block: &[u8; BYTES], y| {
        let d = scale(block);
        for (l, y) in y.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let scale = d * steps(block, l / 2) as f32;
            let (point, down) = point(block, l);
            let shift = if down { -SHIFT } else { SHIFT };
            for (y, value) in y.iter_mut().zip(&codebook::IQ1[usize::from(point)]) {
                *y = scale * (f32::from(*value) + shift);
            }
        }
    });
}

/// Per block `acc += (dw * dx) * (sum + 1/8 * shifts)`, with `sum` of the points and `shifts` of the activations that
/// are added or, where the shift is down, taken away, each times the group's steps.
fn dot_ref(w: &[u8], act: &[u8]) -> f32 {
    let mut acc = 0.0f32;
    for (x, y) in q8_k::block_pairs::<BYTES>(w, act) {
        let (mut sum, mut shifts) = (0, 0);
        for (l, q) in q8_k::quants(y).as_chunks::<8>().0.iter().enumerate() {
            let (point, down) = point(x, l);
            let steps = steps(x, l / 2);
            let products = codebook::IQ1[usize::from(point)].iter().zip(q);
            sum += steps * products.map(|(p, q)| i32::from(*p) * i32::from(*q as i8)).sum::<i32>();
            let quants: i32 = q.iter().map(|q| i32::from(*q as i8)).sum();
            shifts += if down { -steps } else { steps } * quants;
        }
        acc += scale(x) * q8_k::scale(y) * (sum as f32 + SHIFT * shifts as f32);
    }
    acc
}

fn encode(x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    encode_on(Portable, x, importance, row);
}

/// `INFO`'s `encode` on an instruction set.
#[inline(always)]
pub fn encode_on<S: Simd>(simd: S, x: &[f32], importance: Option<&[f32]>, row: &mut [u8]) {
    let book = ternary_codebook();
    let mut rows = SuperBlocks::<BYTES>::new(x, importance, row);
    while let Some(batch) = rows.suiting::<S>(1, encode) {
        for (b, (x, block)) in batch.x.iter().zip(batch.out).enumerate() {
            let importance = batch.importance.map(|importance| &importance[b]);
            let weight = codebook::error_weights(x, importance, 2.0, |x, _| x * x);
            let mut placed = [Placed::default(); GROUPS];
            let groups = x.as_chunks::<SIZE>().0.iter().zip(weight.as_chunks::<SIZE>().0);
            for (placed, (x, weight)) in placed.iter_mut().zip(groups) {
                *placed = fit_group(simd, book, x, weight);
            }
            write(book, &placed, x, &weight, block);
        }
    }
}

/// The best split of a group, as points; its halves may be shifted apart. A group of zeros has scale zero.
#[inline(always)]
fn fit_group<S: Simd>(simd: S, book: &TernaryCodebook, x: &[f32; SIZE], weight: &[f32; SIZE]) -> Placed {
    let largest = x.iter().fold(x[0].abs(), |m, v| if m > v.abs() { m } else { v.abs() });
    if largest < ZERO_BELOW {
        return Placed::default();
    }
    let order = ascending(x);
    // Per half the sums over its weights before a boundary.
    let (mut sum_x, mut sum_w) = ([[0.0f32; SIZE + 1]; 2], [[0.0f32; SIZE + 1]; 2]);
    for (rank, &i) in order.iter().enumerate() {
        let i = usize::from(i);
        for half in 0..2 {
            let (wx, w) = if i / (SIZE / 2) == half { (weight[i] * x[i], weight[i]) } else { (0.0, 0.0) };
            sum_x[half][rank + 1] = sum_x[half][rank] + wx;
            sum_w[half][rank + 1] = sum_w[half][rank] + w;
        }
    }
    let mut best = Split::none();
    for i1 in 0..=SIZE {
        for i2 in i1..=SIZE {
            // `[half][down]`: all of a half has the upper value, but for one step less for each boundary behind it.
            let (mut qx, mut q2) = ([[0.0; 2]; 2], [[0.0; 2]; 2]);
            for half in 0..2 {
                let (sum_x, sum_w) = (&sum_x[half], &sum_w[half]);
                let steps = sum_x[i1] + sum_x[i2];
                for (down, shift) in [SHIFT, -SHIFT].into_iter().enumerate() {
                    let q = [shift - 1.0, shift, shift + 1.0];
                    let squares = q.map(|q| q * q);
                    qx[half][down] = sum_x[SIZE] * q[2] - steps;
                    q2[half][down] = sum_w[SIZE] * q[2] * q[2]
                        + sum_w[i1] * (squares[0] - squares[1])
                        + sum_w[i2] * (squares[1] - squares[2]);
                }
            }
            for down in [[0, 0], [0, 1], [1, 0], [1, 1]] {
                let sum = |of: &[[f32; 2]; 2]| of[0][down[0]] + of[1][down[1]];
                best.offer(sum(&qx), sum(&q2), (i1, i2), down.map(|down| down == 1));
            }
        }
    }
    if !best.is_some() {
        return Placed::default();
    }
    best.place(simd, book, (x, weight), &order)
}

/// Writes a block; its scale is fitted once more to what the groups have become. Points are written also where all
/// scales are zero, as the reference does.
fn write(
    book: &TernaryCodebook,
    placed: &[Placed; GROUPS],
    x: &[f32; BLOCK],
    weight: &[f32; BLOCK],
    block: &mut [u8; BYTES],
) {
    block.fill(0);
    let largest = placed.iter().fold(0.0, |m, p| if m > p.scale { m } else { p.scale });
    for (l, low) in block[..HIGH].iter_mut().enumerate() {
        *low = placed[l / 2].points[l % 2] as u8;
    }
    for (g, high) in block[HIGH..SCALES].iter_mut().enumerate() {
        let [first, second, ..] = placed[g].points;
        *high = (first >> 8 | second >> 8 << 4) as u8;
        if largest != 0.0 {
            let [first, second] = placed[g].down.map(u8::from);
            *high |= first << 3 | second << 7;
        }
    }
    if largest == 0.0 {
        return;
    }
    let d = largest / 15.0;
    let inverse = 1.0 / d;
    let mut words = [0; 4];
    let (mut sum_qx, mut sum_q2) = (0.0f32, 0.0f32);
    for (g, placed) in placed.iter().enumerate() {
        let s = scale_code(inverse, placed.scale, 7);
        words[g / 4] |= u16::from(s) << (3 * (g % 4));
        for k in 0..2 {
            let at = SIZE * g + 8 * k;
            let values = book.values(placed.points[k], placed.down[k]);
            for (i, value) in values.iter().enumerate() {
                let (w, q) = (weight[at + i], value * f32::from(2 * s + 1));
                sum_qx += w * q * x[at + i];
                sum_q2 += w * q * q;
            }
        }
    }
    let fitted = if sum_q2 > 0.0 { sum_qx / sum_q2 } else { d };
    // The factor is ggml's: points are found with scales that are too small.
    let d = f32_to_f16(fitted * 1.1125);
    for (k, word) in words.into_iter().enumerate() {
        let word = word | (d >> (4 * k) & 15) << 12;
        block[SCALES + 2 * k..][..2].copy_from_slice(&word.to_le_bytes());
    }
}
