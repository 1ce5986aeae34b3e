//! Common parts of the K-quants: super-blocks of 256 weights, walked block by block, rounding to a decided scale, and
//! the eight-lane integer dot product.

use super::EncodeFn;
use super::lanes::{LANES, Simd, Vector};
use super::num::are_finite;

/// Weights in a super-block.
pub(super) const BLOCK: usize = 256;

/// Decodes a row block by block.
#[inline(always)]
pub(super) fn decode_blocks<const BYTES: usize>(
    row: &[u8],
    out: &mut [f32],
    decode: impl Fn(&[u8; BYTES], &mut [f32; BLOCK]),
) {
    for (block, y) in row.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
        decode(block, y);
    }
}

/// Super-blocks of a row that is encoded a few at a time: weights, their importance, and the room for the bytes.
///
/// Taken apart with a loop over [`SuperBlocks::suiting`], not with a closure, which would be compiled without the
/// instruction set of the function around it.
pub(super) struct SuperBlocks<'a, const BYTES: usize> {
    pub x: &'a [[f32; BLOCK]],
    pub importance: Option<&'a [[f32; BLOCK]]>,
    pub out: &'a mut [[u8; BYTES]],
}

impl<'a, const BYTES: usize> SuperBlocks<'a, BYTES> {
    /// Whole blocks of `x` for which `row` has room.
    ///
    /// # Panics
    /// Fewer columns have an importance than there are weights.
    #[inline(always)]
    pub fn new(x: &'a [f32], importance: Option<&'a [f32]>, row: &'a mut [u8]) -> Self {
        let (x, out) = (x.as_chunks().0, row.as_chunks_mut().0);
        let count = x.len().min(out.len());
        SuperBlocks {
            x: &x[..count],
            importance: importance.map(|w| &w.as_chunks().0[..count]),
            out: &mut out[..count],
        }
    }

    /// The next `count` blocks, or those that are left; `None` at the end.
    #[inline(always)]
    fn take(&mut self, count: usize) -> Option<SuperBlocks<'a, BYTES>> {
        let count = count.min(self.x.len());
        if count == 0 {
            return None;
        }
        let (x, x_rest) = self.x.split_at(count);
        let (out, out_rest) = std::mem::take(&mut self.out).split_at_mut(count);
        let importance = match self.importance {
            None => None,
            Some(w) => {
                let (now, rest) = w.split_at(count);
                self.importance = Some(rest);
                Some(now)
            }
        };
        (self.x, self.out) = (x_rest, out_rest);
        Some(SuperBlocks { x, importance, out })
    }

    /// The next `count` blocks for whose values an instruction set computes the bits of the definition: all of them
    /// finite, or the instruction set [total](Simd::IS_TOTAL). Blocks before those go to `definition`, the type's encoder.
    #[inline(always)]
    pub fn suiting<S: Simd>(&mut self, count: usize, definition: EncodeFn) -> Option<SuperBlocks<'a, BYTES>> {
        while let Some(batch) = self.take(count) {
            let suits = S::IS_TOTAL
                || are_finite(batch.x.as_flattened())
                    && match batch.importance {
                        None => true,
                        Some(w) => are_finite(w.as_flattened()),
                    };
            if suits {
                return Some(batch);
            }
            let importance = batch.importance.map(|w| w.as_flattened());
            definition(batch.x.as_flattened(), importance, batch.out.as_flattened_mut());
        }
        None
    }
}

/// Sum of squares of each of up to sixteen blocks, in element order.
#[inline(always)]
pub(super) fn sums_of_squares<S: Simd>(simd: S, x: &[[f32; BLOCK]]) -> [f32; LANES] {
    let mut sums = simd.splat(0.0);
    for at in (0..BLOCK).step_by(8) {
        let mut rows = [&[0.0; 8]; LANES];
        for (row, x) in rows.iter_mut().zip(x) {
            *row = &x[at..].as_chunks().0[0];
        }
        for v in simd.columns(rows) {
            sums = sums + v * v;
        }
    }
    sums.to_array()
}

/// Codes `0..=top` of `(x + dm) / d`. A NaN element gives the code of its own payload, also where `dm` is
/// NaN (0 times an infinite `dmin`): there the reference's answer changes with the position, because its
/// compiler swaps the operands in the tail of the loop.
#[inline(always)]
pub(super) fn round_affine<S: Simd, const N: usize>(simd: S, x: &[f32; N], d: f32, dm: f32, top: f32) -> [u8; N] {
    let (d, dm) = (simd.splat(d), simd.splat(dm));
    let (top, zero) = (simd.splat(top), simd.splat(0.0));
    let mut codes = [0; N];
    for (to, x) in codes.as_chunks_mut().0.iter_mut().zip(x.as_chunks().0) {
        let x = simd.load(x);
        let lifted = S::F::select(x.ne(x), x, x + dm);
        let l = (lifted / d).nearest().or_below(top).or_above(zero);
        *to = l.to_codes();
    }
    codes
}

/// Codes `0..2 * half` of `x / d`, zero being `half`.
#[inline(always)]
pub(super) fn round_symmetric<S: Simd, const N: usize>(simd: S, x: &[f32; N], d: f32, half: f32) -> [u8; N] {
    let (d, half) = (simd.splat(d), simd.splat(half));
    let highest = half - simd.splat(1.0);
    let mut codes = [0; N];
    for (to, x) in codes.as_chunks_mut().0.iter_mut().zip(x.as_chunks().0) {
        let l = (simd.load(x) / d).nearest().or_below(highest).or_above(-half);
        *to = (l + half).to_codes();
    }
    codes
}

/// Four 2-bit codes to a byte: byte `32 * h + l` holds elements `128 * h + l + {0, 32, 64, 96}`, the
/// first in the low bits. Only the low two bits of a code are taken.
#[inline(always)]
pub(super) fn pack_2bit(codes: &[u8; BLOCK], qs: &mut [u8]) {
    for (half, q) in codes.as_chunks::<128>().0.iter().zip(qs.as_chunks_mut::<32>().0) {
        for l in 0..32 {
            q[l] = (half[l] & 3) | (half[l + 32] & 3) << 2 | (half[l + 64] & 3) << 4 | half[l + 96] << 6;
        }
    }
}

/// The inverse of [`pack_2bit`].
#[inline]
pub(super) fn unpack_2bit(qs: &[u8]) -> [u8; BLOCK] {
    let mut codes = [0; BLOCK];
    for (half, q) in codes.as_chunks_mut::<128>().0.iter_mut().zip(qs.as_chunks::<32>().0) {
        for l in 0..32 {
            half[l] = q[l] & 3;
            half[l + 32] = (q[l] >> 2) & 3;
            half[l + 64] = (q[l] >> 4) & 3;
            half[l + 96] = q[l] >> 6;
        }
    }
    codes
}

/// `sum(scale * code * q8)` over the elements whose index is `l` modulo 8, for `l = 0..8`; `scales` has
/// one entry for each `BLOCK / scales.len()` elements. Exact: no sum leaves 32 bits.
#[inline]
pub(super) fn lane_sums<const S: usize>(codes: &[i8; BLOCK], q8: &[u8; BLOCK], scales: &[i32; S]) -> [i32; 8] {
    let mut lanes = [0; 8];
    let group = BLOCK / S;
    for (s, (c, q)) in scales.iter().zip(codes.chunks_exact(group).zip(q8.chunks_exact(group))) {
        let mut products = [0i32; 8];
        for (c, q) in c.as_chunks::<8>().0.iter().zip(q.as_chunks::<8>().0) {
            for l in 0..8 {
                products[l] += i32::from(c[l]) * i32::from(q[l] as i8);
            }
        }
        for l in 0..8 {
            lanes[l] += s * products[l];
        }
    }
    lanes
}
