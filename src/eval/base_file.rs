//! The file of a base model's log-probabilities, as `llama-perplexity --kl-divergence-base` writes it.
//!
//! ```text
//! "_logits_"            8 bytes
//! n_ctx                 u32
//! n_vocab, n_chunk      i32, i32
//! tokens                n_chunk * n_ctx i32, as the text has them (no BOS put in)
//! n_chunk * scored rows:
//!     scale             f32
//!     min_log_prob      f32
//!     codes             n_vocab u16, one more zero where n_vocab is odd
//! ```
//! log p(token) = scale * code + min_log_prob, down to 16 nats below the most likely token. All little
//! endian.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;

pub use super::error::BaseError;
use super::score::max_and_sum;
use super::{Chunks, EvalError};
use crate::math::log;

const MAGIC: &[u8; 8] = b"_logits_";

/// The log-probabilities of one position as the file holds them.
pub struct QuantizedRow {
    scale: f32,
    min: f32,
    codes: Vec<u16>,
    /// Negative log-likelihood of the token that follows, in `f32` steps.
    pub nll: f64,
}

impl QuantizedRow {
    /// Quantizes a row of finite logits; `next` is the token that follows.
    pub fn new(logits: &[f32], next: u32) -> QuantizedRow {
        /// Adding it leaves the nearest integer in the low bits, ties to even.
        const ROUND: f32 = 12_582_912.0;
        let (max, sum) = max_and_sum(logits);
        let low = logits.iter().fold(f32::INFINITY, |m, &l| m.min(l)).max(max - 16.0);
        let log_sum = log(sum) as f32;
        let scale = (max - low) / 65535.0;
        let inverse = 1.0 / scale;
        let code = |&l: &f32| {
            if scale != 0.0 && l > low { (inverse * (l - low) + ROUND).to_bits() as u16 } else { 0 }
        };
        QuantizedRow {
            scale,
            min: low - max - log_sum,
            codes: logits.iter().map(code).collect(),
            nll: f64::from(max + log_sum - logits[next as usize]),
        }
    }
}

/// Writes a base file.
pub struct BaseWriter<W: Write> {
    out: W,
    bytes: Vec<u8>,
}

impl<W: Write> BaseWriter<W> {
    /// Writes the header and the tokens.
    ///
    /// # Errors
    /// Errors of `out`.
    pub fn new(mut out: W, chunks: &Chunks, n_vocab: usize) -> io::Result<BaseWriter<W>> {
        let int = |v: usize| i32::try_from(v).map_err(io::Error::other);
        out.write_all(MAGIC)?;
        out.write_all(&int(chunks.n_ctx())?.to_le_bytes())?;
        out.write_all(&int(n_vocab)?.to_le_bytes())?;
        out.write_all(&int(chunks.count())?.to_le_bytes())?;
        for token in chunks.tokens() {
            out.write_all(&token.to_le_bytes())?;
        }
        Ok(BaseWriter { out, bytes: Vec::new() })
    }

    /// Writes one position; they come in order.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn row(&mut self, row: &QuantizedRow) -> io::Result<()> {
        self.bytes.clear();
        self.bytes.extend_from_slice(&row.scale.to_le_bytes());
        self.bytes.extend_from_slice(&row.min.to_le_bytes());
        for code in &row.codes {
            self.bytes.extend_from_slice(&code.to_le_bytes());
        }
        if row.codes.len() % 2 == 1 {
            self.bytes.extend_from_slice(&[0; 2]);
        }
        self.out.write_all(&self.bytes)
    }

    /// Flushes and gives the output back.
    ///
    /// # Errors
    /// Errors of the output.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.flush()?;
        Ok(self.out)
    }
}

/// One position read back.
pub(super) struct BaseRow<'a> {
    bytes: &'a [u8],
}

impl BaseRow<'_> {
    fn float(&self, at: usize) -> f32 {
        f32::from_le_bytes([0, 1, 2, 3].map(|i| self.bytes[at + i]))
    }

    /// log p of one token, as [`BaseRow::log_probs`] has it.
    pub fn log_prob(&self, token: usize) -> f32 {
        let code = &self.bytes[8 + 2 * token..];
        self.float(0) * f32::from(u16::from_le_bytes([code[0], code[1]])) + self.float(4)
    }

    /// log p of every token.
    pub fn log_probs(&self, n_vocab: usize) -> Vec<f32> {
        let (scale, min) = (self.float(0), self.float(4));
        let codes = self.bytes[8..].chunks_exact(2).take(n_vocab);
        codes.map(|c| scale * f32::from(u16::from_le_bytes([c[0], c[1]])) + min).collect()
    }
}

/// Bytes of one position's row.
fn row_bytes(n_vocab: usize) -> usize {
    8 + 2 * (n_vocab + n_vocab % 2)
}

/// Bytes of a whole file; no overflow, because every count is below 2^32.
fn file_bytes(n_ctx: usize, n_vocab: usize, n_chunk: usize) -> u128 {
    let scored = n_ctx - 1 - n_ctx / 2;
    let per_chunk = n_ctx as u128 * 4 + scored as u128 * row_bytes(n_vocab) as u128;
    20 + n_chunk as u128 * per_chunk
}

/// Bytes that the base file of `chunks` takes.
pub fn size(chunks: &Chunks, n_vocab: usize) -> u128 {
    file_bytes(chunks.n_ctx(), n_vocab, chunks.count())
}

/// Reads a base file, chunk by chunk.
pub struct BaseReader<R: Read> {
    input: R,
    chunks: Chunks,
    n_vocab: usize,
    /// Place of the first row in the file.
    rows_at: u64,
    rows: Vec<u8>,
}

impl<R: Read> BaseReader<R> {
    /// Reads header and tokens of a file of `length` bytes. `bos` and `limit` as in [`Chunks::new`].
    ///
    /// # Errors
    /// Not such a file, damaged, cut off, or made by a model with another vocabulary.
    pub fn new(
        mut input: R,
        length: u64,
        n_vocab: usize,
        bos: Option<u32>,
        limit: Option<usize>,
    ) -> Result<BaseReader<R>, EvalError> {
        let mut head = [0u8; 20];
        let read = |e| BaseError::Read { what: "header", source: e };
        input.read_exact(&mut head[..8]).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => BaseError::Magic,
            _ => read(e),
        })?;
        if head[..8] != MAGIC[..] {
            return Err(BaseError::Magic.into());
        }
        input.read_exact(&mut head[8..]).map_err(read)?;
        let word = |at: usize| [0, 1, 2, 3].map(|i| head[at + i]);
        let n_ctx = u32::from_le_bytes(word(8));
        let file_vocab = i32::from_le_bytes(word(12));
        let n_chunk = i32::from_le_bytes(word(16));
        if !(3..=i32::MAX as u32).contains(&n_ctx) || file_vocab < 1 || n_chunk < 1 {
            return Err(BaseError::Header { n_ctx, n_vocab: file_vocab, n_chunk }.into());
        }
        if file_vocab as usize != n_vocab {
            return Err(BaseError::Vocabulary { file: file_vocab as usize, model: n_vocab }.into());
        }
        let expected = file_bytes(n_ctx as usize, n_vocab, n_chunk as usize);
        if u128::from(length) != expected {
            return Err(BaseError::Length { found: length, expected, n_ctx, n_vocab: file_vocab, n_chunk }.into());
        }
        let mut bytes = vec![0u8; n_ctx as usize * n_chunk as usize * 4];
        input.read_exact(&mut bytes).map_err(|e| BaseError::Read { what: "tokens", source: e })?;
        let ids = bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        let mut tokens = Vec::with_capacity(bytes.len() / 4);
        for (index, id) in ids.enumerate() {
            match u32::try_from(id) {
                Ok(token) if (token as usize) < n_vocab => tokens.push(token),
                _ => return Err(BaseError::Token { index, id, n_vocab }.into()),
            }
        }
        Ok(BaseReader {
            input,
            chunks: Chunks::unchecked(tokens, n_ctx as usize, bos, limit)?,
            n_vocab,
            rows_at: (head.len() + bytes.len()) as u64,
            rows: Vec::new(),
        })
    }

    /// The text of the file.
    pub fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    /// Goes to the first of these chunks; they alone are read from then on.
    ///
    /// # Errors
    /// There are no such chunks; errors of the input.
    pub fn part(&mut self, all: &Chunks, part: Range<usize>) -> Result<(), EvalError>
    where
        R: Seek,
    {
        self.chunks = all.part(part)?;
        let before = self.chunks.skipped * self.chunks.scored() * row_bytes(self.n_vocab);
        let seek = self.input.seek(SeekFrom::Start(self.rows_at + before as u64));
        seek.map_err(|e| BaseError::Read { what: "positions", source: e })?;
        Ok(())
    }

    /// Reads the rows of the next chunk.
    pub(super) fn next_chunk(&mut self) -> Result<(), EvalError> {
        self.rows.resize(self.chunks.scored() * row_bytes(self.n_vocab), 0);
        self.input.read_exact(&mut self.rows).map_err(|e| BaseError::Read { what: "positions", source: e })?;
        Ok(())
    }

    /// Row `i` of the chunk read last.
    pub(super) fn row(&self, i: usize) -> BaseRow<'_> {
        let size = row_bytes(self.n_vocab);
        BaseRow { bytes: &self.rows[i * size..][..size] }
    }
}
