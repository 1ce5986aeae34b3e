//! Activations in the forms that the kernels read.

use trine_formats::anyprec::BLOCK;

use super::{Arrangement, INT_BLOCK};

const MAX: f32 = 127.0;
/// 1.5 · 2^23.
const ROUND: f32 = 12_582_912.0;

/// [`Arrangement::arrange`], once lengths were checked. To be compiled for the instruction set of its caller.
#[inline(always)]
pub(super) fn arrange_with(form: Arrangement, x: &[f32], out: &mut [u8]) {
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
