//! A file on disk: its header, and stored floats as numbers.

use std::io;
use std::path::Path;

use super::{Dtype, SafetensorsError, Tensor, header_len, parse};
use crate::gguf::file::SourceFile;
use crate::limited::open_regular;
use crate::types::TypeId;

/// The file at `path` and its tensors, in byte order of their names.
///
/// # Errors
/// Errors made by `io` for I/O and for anything but a regular file, and by `bad` for a damaged header.
pub fn open<E>(
    path: &Path,
    io: impl Fn(io::Error) -> E,
    bad: impl Fn(SafetensorsError) -> E,
) -> Result<(SourceFile, Vec<Tensor>), E> {
    let file = open_regular(path).and_then(SourceFile::new).map_err(&io)?;
    let len = file.len();
    let mut start = Vec::new();
    let read = |end: u64, start: &mut Vec<u8>| {
        let have = start.len();
        start.resize(end.min(len) as usize, 0);
        file.file().read_exact_at(&mut start[have..], have as u64)
    };
    read(8, &mut start).map_err(&io)?;
    let header = header_len(&start, len).map_err(&bad)?;
    read(8 + header, &mut start).map_err(&io)?;
    let tensors = parse(&start, len).map_err(&bad)?;
    Ok((file, tensors))
}

/// Stored floats as `f32` in `out`, which has room for as many; those of F64 are rounded.
///
/// # Panics
/// `dtype` is none of F16, BF16, F32 and F64.
pub fn decode(dtype: Dtype, raw: &[u8], out: &mut [f32]) {
    let ty = match dtype {
        Dtype::F16 => TypeId::F16,
        Dtype::BF16 => TypeId::BF16,
        Dtype::F64 => {
            for (v, b) in out.iter_mut().zip(raw.as_chunks().0) {
                *v = f64::from_le_bytes(*b) as f32;
            }
            return;
        }
        Dtype::F32 => TypeId::F32,
        other => panic!("{} holds no floats", other.name()),
    };
    if let Some(decode) = ty.info().and_then(|t| t.decode) {
        decode(raw, out);
    }
}
