//! Tensors as a safetensors file stores them, for the converter and for whoever else reads checkpoints.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use trine_formats::safetensors::{self, Dtype, SafetensorsError, Tensor};
use trine_formats::types::TypeId;

/// The file and its tensors.
///
/// # Errors
/// What `io` and `bad` make of I/O and of a damaged header.
pub(crate) fn open<E>(
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
    let header = safetensors::header_len(&start, len).map_err(&bad)?;
    read(&mut file, header, &mut start)?;
    let tensors = safetensors::parse(&start, len).map_err(&bad)?;
    Ok((file, tensors))
}

/// Stored floats as `out`, which has room for as many.
pub(crate) fn decode(dtype: Dtype, raw: &[u8], out: &mut [f32]) {
    let ty = match dtype {
        Dtype::F16 => TypeId::F16,
        Dtype::BF16 => TypeId::BF16,
        Dtype::F64 => {
            for (v, b) in out.iter_mut().zip(raw.as_chunks().0) {
                *v = f64::from_le_bytes(*b) as f32;
            }
            return;
        }
        _ => TypeId::F32,
    };
    if let Some(decode) = ty.info().and_then(|t| t.decode) {
        decode(raw, out);
    }
}

/// The row of the checkpoint that becomes row `r` where rows of heads of `head` are reordered: of a head,
/// `0, d/2, 1, d/2 + 1, …`.
pub(crate) fn source_row(head: Option<u64>, r: u64) -> u64 {
    let Some(d) = head else { return r };
    let (head, i) = (r / d, r % d);
    head * d + (i % 2) * (d / 2) + i / 2
}
