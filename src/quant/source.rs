//! Cuts tensors into chunks and reads them: through the file rather than a map of it, because what is
//! read once need not stay in memory.

use std::io;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use thiserror::Error;
use trine_formats::gguf::file::{SharedFile, SourceFile};
use trine_formats::gguf::{Bytes, Shard};

use super::row::Row;
use crate::ops::apart::groups;

/// Input bytes of a chunk: what a core's own cache holds, with room for the output, so that a chunk is
/// still there when it is decoded, and again when its result is written.
const CHUNK_BYTES: u64 = 1 << 19;

/// A tensor could not be read.
#[derive(Error, Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// I/O, or a file that became shorter.
    #[error("cannot read tensor {tensor} from '{path}'")]
    Tensor {
        /// Tensor.
        tensor: String,
        /// File.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file is not what it was when it was opened.
    #[error("'{path}' changed")]
    Changed {
        /// File.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

/// A part of a tensor: what one thread reads, converts and writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chunk {
    /// Its first unit: a row where the type changes, a block where it stays.
    pub first: u64,
    /// Where it starts in the tensor of the input.
    pub from: u64,
    /// Its bytes there.
    pub from_bytes: usize,
    /// Where it starts in the tensor of the output.
    pub to: u64,
    /// Its bytes there.
    pub to_bytes: usize,
}

/// How a tensor is cut: into equal chunks of whole units, the last one shorter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cut {
    units: u64,
    /// Units of a chunk.
    step: u64,
    /// Bytes of a unit in the input and in the output.
    unit: (u64, u64),
}

impl Cut {
    /// The cut of a tensor that is not moved.
    pub fn of(row: &Row) -> Cut {
        let by_rows = row.from.info().is_some_and(|t| t.row_scale().is_some());
        let (units, unit) = if row.converts() || by_rows {
            let rows = row.shape.iter().skip(1).product::<u64>().max(1);
            (rows, (row.bytes_from / rows, row.bytes / rows))
        } else {
            let block = match row.from.info() {
                Some(info) if !info.is_per_tensor() => info.bytes as u64,
                _ => 1,
            };
            (row.bytes_from / block, (block, block))
        };
        Cut { units, step: (CHUNK_BYTES / unit.0.max(1)).max(1), unit }
    }

    /// Number of chunks.
    pub fn chunks(&self) -> u64 {
        if self.unit.0 == 0 { 0 } else { self.units.div_ceil(self.step) }
    }

    /// Chunk `i`.
    pub fn chunk(&self, i: u64) -> Chunk {
        let first = i * self.step;
        let units = self.step.min(self.units - first);
        Chunk {
            first,
            from: first * self.unit.0,
            from_bytes: (units * self.unit.0) as usize,
            to: first * self.unit.1,
            to_bytes: (units * self.unit.1) as usize,
        }
    }
}

/// One input file, read by any number of threads: through the descriptor that its header was read from, or where there
/// is none from memory.
#[derive(Clone)]
pub struct ShardReader {
    path: PathBuf,
    bytes: Bytes,
}

impl ShardReader {
    /// Reads what `shard` was opened from.
    pub fn new(shard: &Shard) -> ShardReader {
        ShardReader { path: shard.path.clone(), bytes: shard.bytes.clone() }
    }

    /// The file, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self) -> Option<&SharedFile> {
        self.bytes.file().map(SourceFile::file)
    }

    /// Makes sure, when all is read, that nobody wrote to the file meanwhile.
    ///
    /// # Errors
    /// Somebody did; I/O.
    pub fn unchanged(&self) -> Result<(), ReadError> {
        let unchanged = self.bytes.file().map_or(Ok(()), SourceFile::unchanged);
        unchanged.map_err(|source| ReadError::Changed { path: self.path.clone(), source })
    }

    /// Gives all bytes of the file to `each`, one part after the other, until it says `false`.
    ///
    /// # Errors
    /// I/O; a file that became shorter.
    pub fn read_all(&self, mut each: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
        let (Some(file), Some(source)) = (self.file(), self.bytes.file()) else {
            each((*self.bytes).as_ref());
            return Ok(());
        };
        let mut buffer = vec![0; 1 << 20];
        let mut at = 0;
        while at < source.len() {
            let n = (source.len() - at).min(buffer.len() as u64);
            let part = &mut buffer[..n as usize];
            file.read_exact_at(part, at)?;
            if !each(part) {
                break;
            }
            at += n;
        }
        Ok(())
    }

    /// `len` bytes of the tensor of `row` from `start` on, in `buffer` where they have to be read.
    ///
    /// # Errors
    /// I/O; a file that has become shorter than its header says.
    pub fn read_chunk<'a>(
        &'a self,
        row: &Row,
        start: u64,
        len: usize,
        buffer: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], ReadError> {
        let Some((interleaved, (from, to))) = row.source.groups(row.columns()) else {
            return self.read_at(&row.source.name, row.source.offset + start, len, buffer);
        };
        // the groups that the bytes lie in
        let first = start / to.max(1) as u64;
        let skipped = (start - first * to as u64) as usize;
        let groups = (skipped + len).div_ceil(to.max(1));
        let mut raw = Vec::new();
        let at = row.source.offset + first * from as u64;
        let raw = self.read_at(&row.source.name, at, groups * from, &mut raw)?;
        buffer.resize(buffer.len().max(groups * to), 0);
        for (group, out) in raw.chunks_exact(from.max(1)).zip(buffer.chunks_exact_mut(to.max(1))) {
            interleaved.take_apart(row.columns() as usize, group, out);
        }
        Ok(&buffer[skipped..skipped + len])
    }

    /// `len` bytes of the file from `start` on, in `buffer` where they have to be read. `tensor` is what they belong
    /// to.
    ///
    /// # Errors
    /// I/O; a file that has become shorter than its header says.
    pub fn read_at<'a>(
        &'a self,
        tensor: &str,
        start: u64,
        len: usize,
        buffer: &'a mut Vec<u8>,
    ) -> Result<&'a [u8], ReadError> {
        let bytes = match self.file() {
            Some(file) => {
                // A buffer keeps its length from chunk to chunk: its pages are cleared once.
                if buffer.len() < len {
                    buffer.resize(len, 0);
                }
                let buffer = &mut buffer[..len];
                file.read_exact_at(buffer, start).map(|()| &*buffer)
            }
            None => part(&self.bytes, start, len),
        };
        bytes.map_err(|source| self.failed(tensor, source))
    }

    /// The whole tensor of `row`, read by all threads of the current pool.
    ///
    /// # Errors
    /// I/O; a file that has become shorter than its header says; a tensor that memory cannot address.
    pub fn read_whole(&self, row: &Row) -> Result<Vec<u8>, ReadError> {
        let (offset, failed) = (row.source.offset, |e| self.failed(&row.source.name, e));
        let too_large = |_| failed(io::ErrorKind::OutOfMemory.into());
        let sizes = row.source.groups(row.columns());
        let len = match sizes {
            Some((_, (from, to))) => row.bytes_from / to.max(1) as u64 * from as u64,
            None => row.bytes_from,
        };
        let len = usize::try_from(len).map_err(too_large)?;
        let bytes = match self.file() {
            Some(file) => {
                let mut bytes = vec![0; len];
                let step = CHUNK_BYTES as usize;
                let chunks = bytes.par_chunks_mut(step).enumerate();
                chunks
                    .try_for_each(|(i, chunk)| file.read_exact_at(chunk, offset + (i * step) as u64))
                    .map_err(failed)?;
                bytes
            }
            None => part(&self.bytes, offset, len).map(<[u8]>::to_vec).map_err(failed)?,
        };
        Ok(match sizes {
            Some((interleaved, sizes)) => groups(interleaved, row.columns() as usize, sizes, &bytes),
            None => bytes,
        })
    }

    fn failed(&self, tensor: &str, source: io::Error) -> ReadError {
        ReadError::Tensor { tensor: tensor.to_owned(), path: self.path.clone(), source }
    }
}

fn part(bytes: &Bytes, start: u64, len: usize) -> io::Result<&[u8]> {
    let bytes: &[u8] = (**bytes).as_ref();
    usize::try_from(start)
        .ok()
        .and_then(|start| bytes.get(start..start.checked_add(len)?))
        .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_formats::gguf::TensorInfo;
    use trine_formats::types::TypeId;

    fn row(shape: &[u64], from: TypeId, to: TypeId) -> Row {
        let bytes = |ty: TypeId| {
            let rows = shape.iter().skip(1).product();
            ty.info().unwrap().tensor_bytes(shape[0], rows).unwrap()
        };
        let info = TensorInfo { name: String::new(), shape: shape.to_vec(), ty: from, offset: 0, bytes: bytes(from) };
        Row { to, bytes: bytes(to), ..Row::of(&info) }
    }

    #[test]
    fn chunks_cover_a_tensor_once() {
        let rows = [
            row(&[1536, 700, 2], TypeId::F16, TypeId::Q4_K),
            row(&[1 << 20, 3], TypeId::F32, TypeId::Q8_0),
            row(&[768], TypeId::F32, TypeId::F32),
            row(&[4096, 999], TypeId::Q6_K, TypeId::Q6_K),
            row(&[1280, 1000], TypeId::I2_S, TypeId::I2_S),
        ];
        for row in rows {
            let cut = Cut::of(&row);
            let (mut from, mut to, mut units) = (0, 0, 0);
            for i in 0..cut.chunks() {
                let chunk = cut.chunk(i);
                assert_eq!((chunk.first, chunk.from, chunk.to), (units, from, to));
                assert!(chunk.from_bytes > 0 && chunk.to_bytes > 0);
                units += chunk.from_bytes as u64 / cut.unit.0;
                from += chunk.from_bytes as u64;
                to += chunk.to_bytes as u64;
            }
            assert_eq!((from, to), (row.bytes_from, row.bytes), "{:?}", row.shape);
        }
        assert_eq!(Cut::of(&row(&[0, 4], TypeId::F32, TypeId::F16)).chunks(), 0);
    }
}
