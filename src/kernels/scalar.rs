//! The portable kernels: each type's own `dot_ref` and `encode` in loops.

use trine_formats::types::{EncodeFn, TypeId};

use super::{MatRows, QuantizeAct};

/// Dispatch from a type id to a function that knows the id at compile time: a `MatRows` carries no state.
macro_rules! by_id {
    ($ty:expr, $f:ident: $($id:ident)*) => {
        match $ty {
            $(TypeId::$id => $f::<{ TypeId::$id.0 }>,)*
            _ => return None,
        }
    };
}

pub(super) fn mat_rows(ty: TypeId) -> Option<MatRows> {
    ty.info()?.dot_ref?;
    Some(trine_formats::with_type_names!(by_id, ty, rows:))
}

pub(super) fn quantize_act(act: TypeId) -> Option<QuantizeAct> {
    act.info()?.encode?;
    Some(by_id!(act, encode: F32 F16 BF16 Q8_0 Q8_1 Q8_K))
}

fn rows<const ID: u32>(w: &[u8], acts: &[u8], n: usize, tokens: usize, out: &mut [f32]) {
    let Some((info, dot, act)) = TypeId(ID).info().and_then(|i| Some((i, i.dot_ref?, i.act?.info()?))) else {
        unreachable!("handed out only for types with a dot product");
    };
    let w_row = super::row_bytes(info, n);
    let a_row = super::row_bytes(act, n);
    let rows = super::check(w, acts, (w_row, a_row), tokens, out);
    for r in 0..rows {
        let w = &w[r * w_row..][..w_row];
        for t in 0..tokens {
            out[r * tokens + t] = dot(w, &acts[t * a_row..][..a_row]);
        }
    }
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
    let bytes = act.info().map(|info| super::row_bytes(info, x.len()));
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
