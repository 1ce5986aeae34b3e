//! TQ2_0: ternary weights, four 2-bit codes to a byte.
//!
//! ```text
//! byte  0                 31 32                63 64   65
//!       +-------------------+--------------------+-------+
//!       | weights 0..128    | weights 128..256   |   d   |
//!       | 32 bytes of codes | 32 bytes of codes  |  f16  |
//!       +-------------------+--------------------+-------+
//!
//! bits of byte m of a half:   7 6     5 4     3 2     1 0
//!                           m + 96  m + 64  m + 32     m       code 0, 1, 2 = -1, 0, +1 times d
//! ```
//!
//! Code 3 is never written; it decodes to `2 * d`, here as in every ggml kernel.

use super::grid::{Grid, Levels, scale_last, whole};
use super::integers::{Coding, IntegerForm, Sums};
use super::num::{amax, f16_at, inverse, lround_low32, put_f16};
use super::{Field, Format, Part, TypeId, TypeInfo, q8_k};

const BLOCK: usize = 256;
pub(super) const BYTES: usize = 66;
/// Bytes of codes, before the scale.
pub(super) const CODES: usize = 64;
/// Bytes of one half of the codes, and the distance of weights that share a byte.
pub(super) const PLANE: usize = 32;
const _: () = assert!(BYTES == CODES + size_of::<u16>() && CODES * 4 == BLOCK && PLANE * 2 == CODES);

/// TQ2_0 in the registry.
pub const INFO: TypeInfo = TypeInfo {
    fields: &[Field::new(Part::Codes, Format::Bits, 0), Field::new(Part::Scale, Format::F16, CODES)],
    act: Some(TypeId::Q8_K),
    decode: Some(decode),
    encode: Some(encode),
    dot_ref: Some(dot_ref),
    ..TypeInfo::sized(TypeId::TQ2_0, "tq2_0", BLOCK, BYTES)
};

/// Codes under a scale that is decided.
pub(super) const GRID: Grid = Grid {
    group: BLOCK,
    levels: Levels::Even { lowest: -1, count: 3 },
    steps: scale_last,
    place: |codes, block| pack(whole(codes), block),
};

/// Codes around one.
pub(super) const INTEGERS: IntegerForm =
    IntegerForm::new(BLOCK, Coding::Even { lowest: -1, count: 4 }, Sums::WHOLE, |_, block, to| {
        for (e, level) in to.levels.iter_mut().enumerate() {
            *level = (block[PLANE * (e / 128) + e % PLANE] >> (2 * (e / PLANE % 4)) & 3) as i8 - 1;
        }
        to.d = [f16_at(block, CODES); 4];
    });

fn decode(row: &[u8], out: &mut [f32]) {
    for (b, y) in row.as_chunks::<BYTES>().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
        let d = f16_at(b, CODES);
        for (qs, y) in b[..CODES].as_chunks::<PLANE>().0.iter().zip(y.as_chunks_mut::<128>().0) {
            for (n, y) in y.as_chunks_mut::<PLANE>().0.iter_mut().enumerate() {
                for (y, q) in y.iter_mut().zip(qs) {
                    let code = (q >> (2 * n)) & 3;
                    *y = (i32::from(code) - 1) as f32 * d;
                }
            }
        }
    }
}

/// The ternary code of each weight: `lroundf(x / d) + 1` with `d` the largest magnitude, unclamped;
/// only the low 8 bits, which is more than any caller keeps. Returns `d`.
///
/// `d` is the largest of all magnitudes unless the block holds a NaN (see [`amax`]).
pub(super) fn codes<const BLOCK: usize>(x: &[f32; BLOCK], code: &mut [u8; BLOCK]) -> f32 {
    let (d, is_max) = amax(x);
    let id = inverse(d);
    // With a true maximum no product reaches 1.5 and rounding is two comparisons, both false for the
    // NaN that infinity times 0 gives.
    if is_max && id.is_finite() {
        for (c, &v) in code.iter_mut().zip(x) {
            let v = v * id;
            *c = 1 + u8::from(v >= 0.5) - u8::from(v <= -0.5);
        }
    } else {
        for (c, &v) in code.iter_mut().zip(x) {
            *c = lround_low32(v * id).wrapping_add(1) as u8;
        }
    }
    d
}

fn encode(x: &[f32], _importance: Option<&[f32]>, row: &mut [u8]) {
    let mut code = [0; BLOCK];
    for (x, b) in x.as_chunks::<BLOCK>().0.iter().zip(row.as_chunks_mut::<BYTES>().0) {
        let d = codes(x, &mut code);
        put_f16(b, CODES, d);
        pack(&code, b);
    }
}

/// Writes codes, of which the low two bits are taken, before the scale of a block.
#[inline(always)]
fn pack(code: &[u8; BLOCK], block: &mut [u8]) {
    for (qs, c) in block[..CODES].as_chunks_mut::<PLANE>().0.iter_mut().zip(code.as_chunks::<128>().0) {
        for (m, q) in qs.iter_mut().enumerate() {
            *q = (c[m] & 3) | (c[m + 32] & 3) << 2 | (c[m + 64] & 3) << 4 | (c[m + 96] & 3) << 6;
        }
    }
}

/// Per block `acc += isum * (dw * dx)`, `isum = sum of (code - 1) * q8`.
fn dot_ref(w: &[u8], x: &[u8]) -> f32 {
    let mut acc = 0.0f32;
    for (w, x) in w.as_chunks::<BYTES>().0.iter().zip(x.as_chunks::<{ q8_k::BYTES }>().0) {
        let (dx, q8) = (q8_k::scale(x), q8_k::quants(x));
        let mut isum = 0;
        for (qs, q8) in w[..CODES].as_chunks::<PLANE>().0.iter().zip(q8.as_chunks::<128>().0) {
            for (n, q8) in q8.as_chunks::<PLANE>().0.iter().enumerate() {
                for (q, &q8) in qs.iter().zip(q8) {
                    isum += (i32::from((q >> (2 * n)) & 3) - 1) * i32::from(q8 as i8);
                }
            }
        }
        acc += isum as f32 * (f16_at(w, CODES) * dx);
    }
    acc
}
