//! Matrix times activations.

use std::sync::Mutex;

use rayon::prelude::*;
use trine_formats::gguf::Blob;
use trine_formats::types::TypeId;

use crate::kernels::{self, Isa, MatRows};

/// A weight matrix as the file holds it: `rows` rows of `cols` weights.
#[derive(Clone)]
pub struct Matrix {
    /// Tensor type.
    pub ty: TypeId,
    /// Weights per row.
    pub cols: usize,
    /// Number of rows.
    pub rows: usize,
    /// All rows, contiguous.
    pub data: Blob,
    /// Bytes per row.
    pub row_bytes: usize,
    kernel: MatRows,
    /// The form the activations take.
    act: TypeId,
}

impl Matrix {
    /// A matrix over `data`, which holds exactly `rows` rows; `None` when trine cannot multiply by the
    /// type or the sizes disagree.
    pub fn new(ty: TypeId, cols: usize, rows: usize, data: Blob, isa: Isa) -> Option<Matrix> {
        let info = ty.info()?;
        let row_bytes = usize::try_from(info.row_bytes(cols as u64)?).ok()?;
        if rows.checked_mul(row_bytes)? != data.len() {
            return None;
        }
        Some(Matrix {
            ty,
            cols,
            rows,
            data,
            row_bytes,
            kernel: kernels::mat_rows(ty, isa)?,
            act: info.act?,
        })
    }

    /// A matrix of no rows, for loading to go on with after a problem was noted.
    pub(crate) fn empty() -> Matrix {
        let never: MatRows = |_, _, _, _, _| ();
        Matrix {
            ty: TypeId::F32,
            cols: 0,
            rows: 0,
            data: Blob::from_vec(Vec::new()),
            row_bytes: 0,
            kernel: never,
            act: TypeId::F32,
        }
    }

    /// Rows `range` as a matrix of their own.
    pub(crate) fn rows(&self, range: std::ops::Range<usize>) -> Option<Matrix> {
        let bytes = range.start * self.row_bytes..range.end * self.row_bytes;
        Some(Matrix {
            rows: range.len(),
            data: self.data.slice(bytes)?,
            ..self.clone()
        })
    }

    /// Row `i`, encoded.
    pub fn row(&self, i: usize) -> &[u8] {
        &self.data[i * self.row_bytes..][..self.row_bytes]
    }
}

/// Activation rows and their encoded forms, each made once however many matrices want it.
pub struct Activations<'a> {
    x: &'a [f32],
    cols: usize,
    isa: Isa,
    encoded: Mutex<Vec<(TypeId, std::sync::Arc<Vec<u8>>)>>,
}

impl<'a> Activations<'a> {
    /// Rows of `cols` values.
    pub fn new(x: &'a [f32], cols: usize, isa: Isa) -> Activations<'a> {
        debug_assert!(x.len().is_multiple_of(cols));
        Activations {
            x,
            cols,
            isa,
            encoded: Mutex::new(Vec::new()),
        }
    }

    /// Number of rows.
    pub fn tokens(&self) -> usize {
        self.x.len() / self.cols
    }

    fn encoded(&self, ty: TypeId) -> std::sync::Arc<Vec<u8>> {
        let mut forms = self.encoded.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((_, bytes)) = forms.iter().find(|(t, _)| *t == ty) {
            return bytes.clone();
        }
        let info = ty
            .info()
            .expect("a type that is an activation form is in the registry");
        let row_bytes = self.cols / info.block * info.bytes;
        let encode = kernels::quantize_act(ty, self.isa);
        let mut bytes = vec![0u8; row_bytes * self.tokens()];
        bytes
            .par_chunks_mut(row_bytes)
            .zip(self.x.par_chunks(self.cols))
            .for_each(|(row, x)| encode(x, row));
        let bytes = std::sync::Arc::new(bytes);
        forms.push((ty, bytes.clone()));
        bytes
    }
}

/// `out[t][r] = dot(w row r, activation row t)` with the bits of the type's `dot_ref`.
///
/// Every output is one independent dot product, so rows are split over threads freely.
pub fn matmul(w: &Matrix, acts: &Activations<'_>, out: &mut [f32]) {
    let tokens = acts.tokens();
    assert_eq!(w.cols, acts.cols, "activation width");
    assert_eq!(out.len(), tokens * w.rows, "output size");
    let encoded = acts.encoded(w.act);
    if tokens == 1 {
        multiply(w, &encoded, 1, out);
        return;
    }
    // The kernels write all tokens of a row side by side, so that threads own disjoint pieces.
    let mut by_row = vec![0f32; out.len()];
    multiply(w, &encoded, tokens, &mut by_row);
    out.par_chunks_mut(w.rows).enumerate().for_each(|(t, row)| {
        for (r, v) in row.iter_mut().enumerate() {
            *v = by_row[r * tokens + t];
        }
    });
}

/// Rows in the unit of work of one thread; the kernels like multiples of 16.
fn rows_per_task(w: &Matrix, tokens: usize) -> usize {
    let pieces = rayon::current_num_threads() * 8;
    let even = w.rows.div_ceil(pieces).next_multiple_of(16);
    // At least about 64K multiplications, or handing it out costs more than doing it.
    let worthwhile = (65_536 / (w.cols * tokens).max(1)).next_multiple_of(16);
    even.max(worthwhile)
}

fn multiply(w: &Matrix, acts: &[u8], tokens: usize, out: &mut [f32]) {
    let rows = rows_per_task(w, tokens);
    let data: &[u8] = &w.data;
    out.par_chunks_mut(rows * tokens)
        .zip(data.par_chunks(rows * w.row_bytes))
        .for_each(|(out, rows)| (w.kernel)(rows, acts, w.cols, tokens, out));
}
