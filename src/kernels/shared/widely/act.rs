//! Activations in the forms that the kernels read.

use trine_formats::widely::{CHUNK, Shape, int8};

/// Bytes of the integers of a block: 64 real and 64 imaginary parts.
pub(crate) const INTS: usize = 2 * int8::BLOCK;
/// Bytes of what belongs to a block besides: the scales of both parts as f32, and the sums of their integers as i32.
pub(crate) const HEAD: usize = 16;

/// Bytes of a row of 8-bit activations: the integers of all blocks, then what belongs to each.
pub(super) fn int8_bytes(shape: &Shape) -> usize {
    let blocks = shape.columns.div_ceil(int8::BLOCK);
    (blocks * (INTS + HEAD)).next_multiple_of(64)
}

/// Real parts and imaginary parts, each filled with +0 to whole chunks. To be compiled for the instruction set of its
/// caller.
#[inline(always)]
pub(crate) fn arrange_floats(shape: &Shape, x: &[f32], out: &mut [u8]) {
    let parts = x.chunks_exact(shape.columns);
    let outs = out.chunks_exact_mut(4 * CHUNK * shape.chunks());
    for (x, out) in parts.zip(outs) {
        let (row, padding) = out.split_at_mut(4 * x.len());
        for (out, x) in row.as_chunks_mut().0.iter_mut().zip(x) {
            *out = x.to_le_bytes();
        }
        padding.fill(0);
    }
}

/// Blocks of 8-bit integers as [`int8::quantize`] has them. To be compiled for the instruction set of its caller.
#[inline(always)]
pub(crate) fn arrange_bytes(shape: &Shape, x: &[f32], out: &mut [u8]) {
    let blocks = shape.columns.div_ceil(int8::BLOCK);
    let (ints, heads) = out.split_at_mut(blocks * INTS);
    let (re, im) = x.split_at(shape.columns);
    let xs = re.chunks(int8::BLOCK).zip(im.chunks(int8::BLOCK));
    let outs = ints.chunks_exact_mut(INTS).zip(heads.chunks_exact_mut(HEAD));
    for ((re, im), (ints, head)) in xs.zip(outs) {
        for (part, x) in [re, im].into_iter().enumerate() {
            let mut block = [0.0; int8::BLOCK];
            block[..x.len()].copy_from_slice(x);
            let (scale, q) = crate::shared::bitplane::quantize_block(&block);
            let sum: i32 = q.iter().map(|&q| i32::from(q)).sum();
            let ints = &mut ints[part * int8::BLOCK..][..int8::BLOCK];
            ints.iter_mut().zip(q).for_each(|(out, q)| *out = q as u8);
            head[4 * part..][..4].copy_from_slice(&scale.to_le_bytes());
            head[8 + 4 * part..][..4].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

/// A block of 8-bit activations.
pub(crate) struct Block<'a> {
    /// 64 real and 64 imaginary parts.
    pub ints: &'a [u8; INTS],
    /// Scales of the real and of the imaginary parts.
    pub scales: [f32; 2],
    /// Sums of the integers of both.
    #[cfg(target_arch = "x86_64")]
    pub sums: [i32; 2],
}

/// Block number `block` of a row that has `blocks`.
#[inline(always)]
pub(crate) fn block(acts: &[u8], blocks: usize, block: usize) -> Block<'_> {
    let (ints, heads) = acts.split_at(blocks * INTS);
    let head = heads.as_chunks::<HEAD>().0[block];
    let field = |at: usize| [head[at], head[at + 1], head[at + 2], head[at + 3]];
    Block {
        ints: &ints.as_chunks().0[block],
        scales: [0, 4].map(|at| f32::from_le_bytes(field(at))),
        #[cfg(target_arch = "x86_64")]
        sums: [8, 12].map(|at| i32::from_le_bytes(field(at))),
    }
}
