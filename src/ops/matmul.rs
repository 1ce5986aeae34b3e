//! Matrix times activations.

use std::sync::{Arc, Mutex};

use rayon::prelude::*;
use trine_formats::gguf::Blob;
use trine_formats::types::TypeId;
use trine_formats::types::ternary::{TernaryData, TernaryError};

use super::observe::ActivationObserver;
use crate::kernels::ternary::{self, Quantizer};
use crate::kernels::{self, Isa, MatRows};

/// A weight matrix: `rows` rows of `cols` weights.
#[derive(Clone)]
pub struct Matrix {
    /// Tensor type.
    pub ty: TypeId,
    /// Weights per row.
    pub cols: usize,
    /// Number of rows.
    pub rows: usize,
    /// All rows, contiguous.
    data: Blob,
    row_bytes: usize,
    product: Product,
}

/// How rows are multiplied.
#[derive(Clone, Copy)]
enum Product {
    /// A row type and the type its activations are encoded as.
    Blocks(MatRows, TypeId),
    /// Ternary rows of [`kernels::ternary`] with one scale for the tensor.
    Ternary(Quantizer, f32),
}

impl Product {
    fn form(self) -> Form {
        match self {
            Product::Blocks(_, ty) => Form::Type(ty),
            Product::Ternary(rule, _) => Form::Int8(rule),
        }
    }
}

/// A form that activation rows are encoded in.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Type(TypeId),
    Int8(Quantizer),
}

impl Matrix {
    /// A matrix over `data`, which holds exactly `rows` rows of blocks; `None` when trine cannot multiply
    /// by the type or the sizes disagree.
    pub fn new(ty: TypeId, cols: usize, rows: usize, data: Blob, isa: Isa) -> Option<Matrix> {
        let info = ty.info()?;
        let row_bytes = usize::try_from(info.row_bytes(cols as u64)?).ok()?;
        if rows.checked_mul(row_bytes)? != data.len() {
            return None;
        }
        let product = Product::Blocks(kernels::mat_rows(ty, isa)?, info.act?);
        Some(Matrix {
            ty,
            cols,
            rows,
            data,
            row_bytes,
            product,
        })
    }

    /// A matrix of one of the types with a single scale (I2_S, TL1, TL2), its codes repacked row by row.
    ///
    /// # Errors
    /// A code that stands for no weight, with its place.
    pub fn ternary(source: &TernaryData<'_>) -> Result<Matrix, TernaryError> {
        let (cols, rows) = (source.columns(), source.rows());
        let row_bytes = ternary::row_bytes(cols);
        let mut data = vec![0u8; rows * row_bytes];
        data.par_chunks_mut(row_bytes.max(1))
            .enumerate()
            .try_for_each_init(
                || vec![0i8; cols],
                |codes, (row, out)| {
                    source.unpack_rows(row..row + 1, codes)?;
                    ternary::pack_row(codes, out);
                    Ok(())
                },
            )?;
        let ty = source.packing().type_id();
        let rule = if ty == TypeId::I2_S {
            Quantizer::Floored
        } else {
            Quantizer::Exact
        };
        let product = Product::Ternary(rule, source.scale());
        Ok(Matrix {
            ty,
            cols,
            rows,
            data: Blob::from_vec(data),
            row_bytes,
            product,
        })
    }

    /// A matrix of no rows, for loading to go on with after a problem was noted.
    pub(crate) fn empty() -> Matrix {
        let never: MatRows = |_, _, _, _, _| ();
        let product = Product::Blocks(never, TypeId::F32);
        Matrix {
            ty: TypeId::F32,
            cols: 0,
            rows: 0,
            data: Blob::from_vec(Vec::new()),
            row_bytes: 0,
            product,
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
    encoded: Mutex<Vec<(Form, Arc<Vec<u8>>)>>,
    observer: Option<Arc<dyn ActivationObserver>>,
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
            observer: None,
        }
    }

    /// The same, watched by `observer`.
    pub fn observed_by(self, observer: Option<Arc<dyn ActivationObserver>>) -> Activations<'a> {
        Activations { observer, ..self }
    }

    /// Shows the rows to the observer before the matrix `name` is multiplied with them.
    pub fn observe(&self, name: &str) {
        if let Some(observer) = &self.observer {
            observer.observe(name, self.x, self.cols);
        }
    }

    /// Number of rows.
    pub fn tokens(&self) -> usize {
        self.x.len() / self.cols
    }

    fn encoded(&self, form: Form) -> Arc<Vec<u8>> {
        let mut forms = self.encoded.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((_, bytes)) = forms.iter().find(|(f, _)| *f == form) {
            return bytes.clone();
        }
        let bytes = Arc::new(match form {
            Form::Type(ty) => {
                let info = ty
                    .info()
                    .expect("a type that is an activation form is in the registry");
                let encode = kernels::quantize_act(ty, self.isa);
                self.encode_rows(self.cols / info.block * info.bytes, encode)
            }
            Form::Int8(rule) => self.encode_rows(ternary::act_bytes(self.cols), |x, out| {
                ternary::quantize_act(rule, x, out)
            }),
        });
        forms.push((form, bytes.clone()));
        bytes
    }

    fn encode_rows(&self, row_bytes: usize, encode: impl Fn(&[f32], &mut [u8]) + Sync) -> Vec<u8> {
        let mut bytes = vec![0u8; row_bytes * self.tokens()];
        let rows = bytes
            .par_chunks_mut(row_bytes)
            .zip(self.x.par_chunks(self.cols));
        rows.for_each(|(row, x)| encode(x, row));
        bytes
    }
}

/// `out[t][r] = dot(w row r, activation row t)` with the bits of the type's `dot_ref`, or of
/// [`trine_formats::types::ternary::tail`] for the types with one scale.
///
/// Every output is one independent dot product, so rows are split over threads freely.
pub fn matmul(w: &Matrix, acts: &Activations<'_>, out: &mut [f32]) {
    let tokens = acts.tokens();
    assert_eq!(w.cols, acts.cols, "activation width");
    assert_eq!(out.len(), tokens * w.rows, "output size");
    let encoded = acts.encoded(w.product.form());
    if tokens == 1 {
        multiply(w, &encoded, acts.isa, 1, out);
        return;
    }
    // The kernels write all tokens of a row side by side, so that threads own disjoint pieces.
    let mut by_row = vec![0f32; out.len()];
    multiply(w, &encoded, acts.isa, tokens, &mut by_row);
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
    // With several tokens the kernels first rearrange the activations, which pays from 64 rows on.
    even.max(worthwhile).max(if tokens > 1 { 64 } else { 16 })
}

fn multiply(w: &Matrix, acts: &[u8], isa: Isa, tokens: usize, out: &mut [f32]) {
    let rows = rows_per_task(w, tokens);
    let data: &[u8] = &w.data;
    let chunks = out
        .par_chunks_mut(rows * tokens)
        .zip(data.par_chunks(rows * w.row_bytes));
    match w.product {
        Product::Blocks(kernel, _) => {
            chunks.for_each(|(out, rows)| kernel(rows, acts, w.cols, tokens, out));
        }
        Product::Ternary(_, scale) => chunks.for_each(|(out, rows)| {
            ternary::mat_rows(isa, rows, acts, w.cols, tokens, out);
            super::scale(out, scale);
        }),
    }
}
