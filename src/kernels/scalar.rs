//! The portable kernels: each type's own `dot_ref` and `encode` in loops.

use trine_formats::types::{EncodeFn, TypeId};

use crate::sizes::{check, row_bytes};

/// `quantize(x, out)`: one activation row to the bytes of an activation type.
pub type QuantizeAct = fn(x: &[f32], out: &mut [u8]);

/// `compare_rows(a, b)`: how many values are not zero, when all of the two rows, which are as long, are equal;
/// `None` when one pair is not. A NaN equals nothing, and zeros are equal whatever their signs.
pub type CompareRows = fn(a: &[f32], b: &[f32]) -> Option<usize>;

/// The products of a type's rows by its `dot_ref`.
pub(super) fn multiply(ty: TypeId, w: &[u8], acts: &[u8], n: usize, tokens: usize, out: &mut [f32]) {
    let Some((info, dot, act)) = ty.info().and_then(|i| Some((i, i.dot_ref?, i.act?.info()?))) else {
        unreachable!("handed out only for types with a dot product");
    };
    let (w_row, a_row) = (row_bytes(info, n), row_bytes(act, n));
    let rows = check(w, acts, (w_row, a_row), tokens, out);
    for r in 0..rows {
        let w = &w[r * w_row..][..w_row];
        for t in 0..tokens {
            out[r * tokens + t] = dot(w, &acts[t * a_row..][..a_row]);
        }
    }
}

pub(super) fn quantize_act(act: TypeId) -> Option<QuantizeAct> {
    macro_rules! by_id {
        ($($id:ident)*) => {
            match act {
                $(TypeId::$id => encode::<{ TypeId::$id.0 }>,)*
                _ => return None,
            }
        };
    }
    Some(by_id!(F32 F16 BF16 Q8_0 Q8_1 Q8_K))
}

/// The type's own encoder, for blocks that a kernel does not take.
pub(super) fn definition(ty: TypeId) -> EncodeFn {
    match ty.info().and_then(|info| info.encode) {
        Some(encode) => encode,
        None => unreachable!("asked for by kernels of types that have encoders"),
    }
}

/// Checks that `out` is the blocks of `x`.
pub(super) fn check_lengths(act: TypeId, x: &[f32], out: &[u8]) {
    let bytes = act.info().map(|info| row_bytes(info, x.len()));
    assert_eq!(bytes, Some(out.len()), "{act}: bytes of {} values", x.len());
}

fn encode<const ID: u32>(x: &[f32], out: &mut [u8]) {
    let Some(encode) = TypeId(ID).info().and_then(|i| i.encode) else {
        unreachable!("handed out only for types with an encoder");
    };
    encode(x, None, out);
}

#[inline(always)]
pub(super) fn compare_rows(a: &[f32], b: &[f32]) -> Option<usize> {
    // Without a branch but for the last, so that it goes into vectors: most rows are equal.
    let (mut differ, mut nonzero) = (0u32, 0u32);
    for (a, b) in a.iter().zip(b) {
        differ |= u32::from(a != b);
        nonzero += u32::from(*a != 0.0);
    }
    (differ == 0).then_some(nonzero as usize)
}
