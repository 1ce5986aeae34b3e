//! Reads tensors in chunks of whole rows, through the file rather than a map of it: what is read once
//! need not stay in memory.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

use thiserror::Error;
use trine_formats::gguf::{Bytes, Shard};

use super::plan::Row;

/// Weights in a chunk: 8 MiB of f32, enough work for a pool and little enough to hold a few of.
const CHUNK_WEIGHTS: u64 = 1 << 21;

/// A tensor could not be read.
#[derive(Error, Debug)]
pub enum ReadError {
    /// I/O, or a file that became shorter.
    #[error("cannot read tensor {tensor} from '{path}': {source}")]
    Tensor {
        /// Tensor.
        tensor: String,
        /// File.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file cannot be opened again.
    #[error("cannot open '{path}': {source}")]
    Open {
        /// File.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

/// Rows of one tensor.
#[derive(Debug, PartialEq)]
pub struct Chunk {
    /// The first row, counted through all matrices of the tensor.
    pub first_row: u64,
    /// Number of rows.
    pub rows: u64,
    /// Their bytes; empty until read.
    pub data: Vec<u8>,
}

impl Chunk {
    /// The chunks of a tensor, in order and yet to be read.
    pub fn split(row: &Row) -> impl Iterator<Item = Chunk> + use<> {
        let rows: u64 = row.shape.iter().skip(1).product();
        let step = (CHUNK_WEIGHTS / row.columns().max(1)).max(1);
        let empty = row.bytes_from == 0;
        (0..if empty { 0 } else { rows.div_ceil(step) }).map(move |i| {
            let first_row = i * step;
            Chunk { first_row, rows: step.min(rows - first_row), data: Vec::new() }
        })
    }
}

/// One input file.
pub struct ShardReader {
    path: PathBuf,
    bytes: From,
}

enum From {
    File(File),
    /// A model that did not come from a file.
    Memory(Bytes),
}

impl ShardReader {
    /// Opens the file of a shard again, when it has one.
    ///
    /// # Errors
    /// The file is there and cannot be opened.
    pub fn open(shard: &Shard) -> Result<ShardReader, ReadError> {
        let path = shard.path.clone();
        let bytes = match File::open(&path) {
            Ok(file) => From::File(file),
            Err(e) if e.kind() == io::ErrorKind::NotFound => From::Memory(shard.bytes.clone()),
            Err(source) => return Err(ReadError::Open { path, source }),
        };
        Ok(ShardReader { path, bytes })
    }

    /// Fills in the data of a chunk of `row`.
    ///
    /// # Errors
    /// I/O; a file that has become shorter than its header says.
    pub fn read(&mut self, row: &Row, chunk: &mut Chunk) -> Result<(), ReadError> {
        let rows: u64 = row.shape.iter().skip(1).product();
        let row_bytes = row.bytes_from / rows.max(1);
        let start = row.source.offset + chunk.first_row * row_bytes;
        self.read_at(start, chunk.rows * row_bytes, &mut chunk.data).map_err(|source| {
            ReadError::Tensor { tensor: row.source.name.clone(), path: self.path.clone(), source }
        })
    }

    fn read_at(&mut self, start: u64, len: u64, out: &mut Vec<u8>) -> io::Result<()> {
        let short = || io::Error::from(io::ErrorKind::UnexpectedEof);
        match &mut self.bytes {
            From::File(file) => {
                file.seek(SeekFrom::Start(start))?;
                out.reserve_exact(usize::try_from(len).map_err(|_| short())?);
                let got = file.take(len).read_to_end(out)?;
                if got as u64 == len { Ok(()) } else { Err(short()) }
            }
            From::Memory(bytes) => {
                let range = usize::try_from(start).ok().zip(usize::try_from(start + len).ok());
                let bytes: &[u8] = (**bytes).as_ref();
                let part = range.and_then(|(from, to)| bytes.get(from..to)).ok_or_else(short)?;
                out.extend_from_slice(part);
                Ok(())
            }
        }
    }
}
