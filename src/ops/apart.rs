//! Matrices whose rows lie interleaved, as ik_llama.cpp writes them: taken apart into rows of an ordinary type.

use rayon::prelude::*;
use trine_formats::gguf::{Blob, TensorInfo, TensorView};
use trine_formats::types::TypeId;
use trine_formats::types::ik::apart::Interleaved;

/// The reason why a type cannot be read at all, where there is one.
pub fn unreadable(ty: TypeId) -> Option<&'static str> {
    (ty == TypeId::Q8_K_R16).then_some(
        "the bytes of this type depend on the machine that made them, which the file does not name: make it anew as q8_0",
    )
}

/// A tensor as one of an ordinary type: itself, or its rows taken apart.
///
/// # Errors
/// The reason: rows that are no whole groups, or a type that cannot be read.
pub fn apart(view: TensorView) -> Result<TensorView, String> {
    let TensorView { info, data } = view;
    if let Some(why) = unreadable(info.ty) {
        return Err(format!("{}: {why}", info.ty));
    }
    let Some(interleaved) = Interleaved::of(info.ty) else {
        return Ok(TensorView { info, data });
    };
    let columns = usize::try_from(info.columns()).ok();
    let rows = info.shape.get(1).copied().unwrap_or(1);
    let sizes =
        columns.and_then(|n| interleaved.group_bytes(n)).filter(|_| rows.is_multiple_of(interleaved.rows as u64));
    let Some((from, to)) = sizes.filter(|(from, _)| *from > 0 && data.len().is_multiple_of(*from)) else {
        let (ty, group) = (info.ty, interleaved.rows);
        return Err(format!("{ty} with {rows} rows, which are no whole groups of {group}"));
    };
    let out = groups(interleaved, info.columns() as usize, (from, to), &data);
    data.release();
    let info = TensorInfo { ty: interleaved.base, bytes: out.len() as u64, ..info };
    Ok(TensorView { info, data: Blob::from_vec(out) })
}

/// The rows of whole groups, each of which has `from` bytes interleaved and `to` bytes as rows.
pub fn groups(interleaved: &Interleaved, columns: usize, (from, to): (usize, usize), data: &[u8]) -> Vec<u8> {
    let mut out = vec![0; data.len() / from.max(1) * to];
    let groups = data.par_chunks_exact(from.max(1)).zip(out.par_chunks_exact_mut(to.max(1)));
    groups.for_each(|(group, out)| interleaved.take_apart(columns, group, out));
    out
}
