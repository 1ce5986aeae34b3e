//! A file on disk: its header, and stored floats as numbers.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::{Dtype, SafetensorsError, Tensor, header_len, parse};
use crate::types::TypeId;

/// The file at `path` and its tensors, in byte order of their names.
///
/// # Errors
/// What `io` and `bad` make of I/O and of a damaged header.
pub fn open<E>(
    path: &Path,
    io: impl Fn(io::Error) -> E,
    bad: impl Fn(SafetensorsError) -> E,
) -> Result<(File, Vec<Tensor>), E> {
    let mut file = File::open(path).map_err(&io)?;
    let len = file.metadata().map_err(&io)?.len();
    let mut start = Vec::new();
    let read = |file: &mut File, n: u64, start: &mut Vec<u8>| {
        Read::by_ref(file).take(n).read_to_end(start).map_err(&io)
    };
    read(&mut file, 8, &mut start)?;
    let header = header_len(&start, len).map_err(&bad)?;
    read(&mut file, header, &mut start)?;
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
