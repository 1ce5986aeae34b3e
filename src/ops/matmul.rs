//! Matrix times activations.

use std::io;
use std::sync::Arc;

use rayon::prelude::*;
use trine_formats::anyprec::ApView;
use trine_formats::gguf::Blob;
use trine_formats::types::TypeId;
use trine_formats::types::ternary::{TernaryData, TernaryError};
use trine_formats::widely::{Part, WidelyMatrix};

pub use super::activations::{Activations, Forms};
use super::product::SharedArena;
use super::product::bitplane::{self, BitplaneMatrix};
use super::product::density::Dense;
use super::product::packed::{self, PackedMatrix, PackedProduct};
use super::product::probe::Probed;
use super::product::widely::{self, WidelyLinear};
use crate::kernels::bitplane::NumberPath;
use crate::kernels::packed::{Encoding, layouts};
use crate::kernels::ternary::{self, Quantizer};
use crate::kernels::widely::Path;
use crate::kernels::{self, AlignedBytes, Floats, Isa, MatRows};
use crate::pool;

/// A weight matrix: `rows` rows of `cols` weights.
#[derive(Clone)]
pub struct Matrix {
    /// Tensor type.
    pub ty: TypeId,
    /// Weights per row.
    pub cols: usize,
    /// Number of rows.
    pub rows: usize,
    weights: Weights,
    /// Factor on every product, for the types with one scale per tensor.
    scale: Option<f32>,
}

/// Where the weights are and how they are multiplied.
#[derive(Clone)]
enum Weights {
    /// Rows of blocks as the file has them.
    Rows { data: Blob, row_bytes: usize, kernel: RowKernel },
    /// Interleaved rows in memory of their own.
    Packed(PackedMatrix),
    /// Bit planes of several widths as the file has them, or packed codes made of them.
    Planes(BitplaneMatrix),
    /// Codes of a widely linear matrix.
    Widely(WidelyLinear),
}

#[derive(Clone, Copy)]
enum RowKernel {
    /// A row type and the type its activations are encoded as.
    Blocks(MatRows, TypeId),
    /// Rows of [`kernels::ternary`].
    Ternary(Quantizer),
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
        let kernel = RowKernel::Blocks(kernels::mat_rows(ty, isa)?, info.act?);
        Some(Matrix { ty, cols, rows, weights: Weights::Rows { data, row_bytes, kernel }, scale: None })
    }

    /// A matrix of one of the types with a single scale (I2_S, TL1, TL2), its codes rearranged row by row.
    ///
    /// # Errors
    /// A code that stands for no weight, with its place.
    pub fn ternary(source: &TernaryData<'_>) -> Result<Matrix, TernaryError> {
        let (cols, rows) = (source.columns(), source.rows());
        let row_bytes = ternary::row_bytes(cols);
        let mut data = vec![0u8; rows * row_bytes];
        data.par_chunks_mut(row_bytes.max(1)).enumerate().try_for_each_init(
            || vec![0i8; cols],
            |codes, (row, out)| {
                source.unpack_rows(row..row + 1, codes)?;
                ternary::pack_row(codes, out);
                Ok(())
            },
        )?;
        let ty = source.packing().type_id();
        let rule = if ty == TypeId::I2_S { Quantizer::Floored } else { Quantizer::Exact };
        Ok(Matrix {
            ty,
            cols,
            rows,
            weights: Weights::Rows { data: Blob::from_vec(data), row_bytes, kernel: RowKernel::Ternary(rule) },
            scale: Some(source.scale()),
        })
    }

    /// A matrix in any-precision form, from its views at several widths; `None` when there are none.
    pub fn any_precision(path: NumberPath, views: Vec<ApView>) -> Option<Matrix> {
        let (cols, rows) = views.first().map(|v| (v.columns, v.rows))?;
        Some(Matrix {
            ty: TypeId::I8,
            cols,
            rows,
            weights: Weights::Planes(BitplaneMatrix::new(path, views)),
            scale: None,
        })
    }

    /// A widely linear matrix, whose real rows and columns are twice the complex ones.
    pub fn widely_linear(path: Path, matrix: WidelyMatrix, isa: Isa) -> Matrix {
        Matrix {
            ty: Part::Codes.ty(),
            cols: 2 * matrix.shape.columns,
            rows: 2 * matrix.shape.rows,
            weights: Weights::Widely(WidelyLinear::new(matrix, path, isa)),
            scale: None,
        }
    }

    /// A matrix of no rows, with which loading continues after a problem was noted.
    pub(crate) fn empty() -> Matrix {
        let never = kernels::mat_rows(TypeId::F32, Isa::scalar()).expect("floats have a product");
        Matrix {
            ty: TypeId::F32,
            cols: 0,
            rows: 0,
            weights: Weights::Rows {
                data: Blob::from_vec(Vec::new()),
                row_bytes: 0,
                kernel: RowKernel::Blocks(never, TypeId::F32),
            },
            scale: None,
        }
    }

    /// Rows `range` as a matrix of their own; `None` when they are not there, or the matrix is packed or
    /// widely linear.
    pub(crate) fn rows(&self, range: std::ops::Range<usize>) -> Option<Matrix> {
        let (count, weights) = (
            range.len(),
            match &self.weights {
                Weights::Rows { data, row_bytes, kernel } => Weights::Rows {
                    data: data.slice(range.start * row_bytes..range.end * row_bytes)?,
                    row_bytes: *row_bytes,
                    kernel: *kernel,
                },
                Weights::Packed(_) | Weights::Widely(_) => return None,
                Weights::Planes(p) => Weights::Planes(p.rows(range)?),
            },
        );
        Some(Matrix { rows: count, weights, ..self.clone() })
    }

    /// The same matrix in the best packed layout there is, its bytes in `arena`; unchanged where there is
    /// none or the weights do not fit it. `dense` chooses where there are two. Bit planes are packed by the first product at
    /// a width that needs them.
    ///
    /// # Errors
    /// The system has no memory.
    pub fn packed(self, arena: &SharedArena, isa: Isa, dense: Dense) -> io::Result<Matrix> {
        let data = match self.weights {
            Weights::Rows { ref data, .. } => data,
            Weights::Packed(_) => return Ok(self),
            Weights::Widely(widely) => {
                return Ok(Matrix { weights: Weights::Widely(widely.packed(arena, isa)?), ..self });
            }
            Weights::Planes(planes) => {
                return Ok(Matrix { weights: Weights::Planes(planes.packed(arena, isa)), ..self });
            }
        };
        // A group of mostly nothing would take more memory and time than the rows do.
        let mut layouts = layouts(self.ty, isa);
        layouts.retain(|layout| 2 * self.rows >= layout.rows);
        if let Some(smaller) = layouts.iter().position(|layout| layout.dense)
            && let Some(larger) = layouts.iter().find(|layout| !layout.dense)
            && !dense.prefers([layouts[smaller], *larger], self.cols, self.rows, data)?
        {
            layouts.remove(smaller);
        }
        for layout in layouts {
            let mut arena = arena.lock().unwrap_or_else(|e| e.into_inner());
            let done = PackedMatrix::pack(layout, self.cols, self.rows, data, &mut arena)?;
            if let Some(packed) = done {
                data.release();
                return Ok(Matrix { weights: Weights::Packed(packed), ..self });
            }
        }
        Ok(self)
    }

    /// Row `i`, encoded; empty when the matrix is packed, in planes or widely linear.
    pub fn row(&self, i: usize) -> &[u8] {
        match &self.weights {
            Weights::Rows { data, row_bytes, .. } => &data[i * row_bytes..][..*row_bytes],
            Weights::Packed(_) | Weights::Planes(_) | Weights::Widely(_) => &[],
        }
    }

    /// Decodes row `i`, of an any-precision matrix at its widest; `false` when the matrix is packed or widely linear.
    pub fn decode_row(&self, i: usize, out: &mut [f32]) -> bool {
        if let Weights::Planes(planes) = &self.weights {
            return planes.decode_row(i, out);
        }
        let Weights::Rows { kernel, .. } = &self.weights else {
            return false;
        };
        match (kernel, self.ty.info().and_then(|info| info.decode)) {
            (RowKernel::Ternary(_), _) => {
                let (mut codes, scale) = (vec![0i8; out.len()], self.scale.unwrap_or(1.0));
                ternary::unpack_row(self.row(i), &mut codes);
                out.iter_mut().zip(codes).for_each(|(v, code)| *v = f32::from(code) * scale);
            }
            (RowKernel::Blocks(..), Some(decode)) => decode(self.row(i), out),
            (RowKernel::Blocks(..), None) => return false,
        }
        true
    }

    /// All rows as the file has them, and the scale of the whole tensor, 1 without one; of types with one scale for the
    /// tensor the rows of [`crate::kernels::ternary`]. `None` when the matrix is packed, in planes or widely linear.
    pub fn stored(&self) -> Option<(&[u8], f32)> {
        match &self.weights {
            Weights::Rows { data, .. } => Some((data, self.scale.unwrap_or(1.0))),
            Weights::Packed(_) | Weights::Planes(_) | Weights::Widely(_) => None,
        }
    }

    /// Any-precision weights at all their widths, ascending, and how their products are added; `None` of others.
    pub fn planes(&self) -> Option<(NumberPath, Vec<&ApView>)> {
        match &self.weights {
            Weights::Planes(planes) => Some(planes.views()),
            Weights::Rows { .. } | Weights::Packed(_) | Weights::Widely(_) => None,
        }
    }

    /// The kind of weights that have a form of their own beside the file's types, in words; `None` of others.
    pub fn special(&self) -> Option<&'static str> {
        match &self.weights {
            Weights::Planes(_) => Some("any-precision"),
            Weights::Widely(_) => Some("widely linear"),
            Weights::Rows { .. } | Weights::Packed(_) => None,
        }
    }

    /// The packed form; `None` where there is none, or a scale of the whole tensor beside it.
    pub(super) fn as_packed(&self) -> Option<&PackedMatrix> {
        match &self.weights {
            Weights::Packed(packed) if self.scale.is_none() => Some(packed),
            _ => None,
        }
    }

    /// The matrix as one whose prefetch distance may be tuned.
    pub fn probed(&self, isa: Isa) -> Option<Box<dyn Probed>> {
        match &self.weights {
            Weights::Packed(packed) => Some(Box::new(packed.clone())),
            Weights::Planes(planes) => Some(Box::new(planes.clone().probed(isa))),
            Weights::Widely(widely) => Some(Box::new(widely.clone().probed(isa))),
            Weights::Rows { .. } => None,
        }
    }

    /// Name of the layout and the bytes it takes; rows as in the file have none.
    pub fn layout(&self) -> (Option<&'static str>, usize) {
        match &self.weights {
            Weights::Rows { data, .. } => (None, data.len()),
            Weights::Packed(p) => (Some(p.layout().name), p.bytes()),
            Weights::Planes(p) if p.is_packed() => (Some(bitplane::NAME), p.bytes()),
            Weights::Planes(p) => (Some("bit planes"), p.bytes()),
            Weights::Widely(w) => w.layout(),
        }
    }
}

/// `out[t][r] = dot(w row r, activation row t)` with the bits of the type's `dot_ref`, or of
/// [`trine_formats::types::ternary::tail`] for the types with one scale, or in the canonical order of any-precision
/// matrices at the width of the activations, or of [`trine_formats::widely`] on its path; for each of several matrices
/// of the same width, so that threads need not meet between them.
///
/// Every output is one independent dot product, so rows are split over threads freely.
pub fn matmul<const N: usize>(w: [&Matrix; N], acts: &Activations<'_>) -> [Floats; N] {
    let tokens = acts.tokens();
    let mut outs = w.map(|w| {
        assert_eq!(w.cols, acts.cols, "activation width");
        Floats::scratch(tokens * w.rows)
    });
    let forms: [Option<Arc<AlignedBytes>>; N] = w.map(|w| match &w.weights {
        Weights::Packed(p) => Some(acts.arranged(p.layout())),
        Weights::Planes(p) => Some(acts.for_planes(p.form(acts.isa, tokens))),
        Weights::Widely(w) => Some(acts.for_widely(w)),
        Weights::Rows { .. } => None,
    });
    let mut jobs = Vec::with_capacity(N);
    let (mut in_planes, mut widely_linear) = (Vec::new(), Vec::new());
    for ((w, out), form) in w.iter().zip(&mut outs).zip(&forms) {
        match (&w.weights, form) {
            (Weights::Packed(p), Some(acts)) => jobs.push(PackedProduct { w: p, acts, scale: w.scale, out }),
            (Weights::Planes(p), Some(arranged)) => in_planes.push(bitplane::BitplaneProduct {
                w: p,
                width: acts.width,
                form: p.form(acts.isa, tokens),
                acts: arranged,
                x: acts.x,
                out,
            }),
            (Weights::Widely(w), Some(acts)) => widely_linear.push(widely::WidelyProduct { w, acts, out }),
            _ => by_rows(w, acts, out),
        }
    }
    packed::multiply_all(&mut jobs, tokens);
    bitplane::multiply_all(acts.isa, &mut in_planes, tokens);
    widely::multiply_all(acts.isa, &mut widely_linear, tokens);
    outs
}

/// The product with rows as they are in the file.
fn by_rows(w: &Matrix, acts: &Activations<'_>, out: &mut [f32]) {
    let Weights::Rows { data, row_bytes, kernel } = &w.weights else {
        return;
    };
    let encoding = match *kernel {
        RowKernel::Blocks(_, ty) => Encoding::Type(ty),
        RowKernel::Ternary(rule) => Encoding::Int8(rule),
    };
    let (encoded, tokens) = (acts.encoded(encoding), acts.tokens());
    let data: &[u8] = data;
    let rows_at_once = rows_per_task(w, tokens);
    pool::tiles_mut(out, w.rows, (tokens, rows_at_once), |mut tile| {
        let rows = tile.cols.clone();
        let part = &data[rows.start * row_bytes..rows.end * row_bytes];
        // The kernels write all tokens of a row side by side.
        let mut by_row = Floats::scratch(rows.len() * tokens);
        match kernel {
            RowKernel::Blocks(kernel, _) => kernel.multiply(part, &encoded, w.cols, tokens, &mut by_row),
            RowKernel::Ternary(_) => {
                ternary::mat_rows(acts.isa, part, &encoded, w.cols, tokens, &mut by_row);
            }
        }
        if let Some(s) = w.scale {
            super::scale(&mut by_row, s);
        }
        for t in 0..tokens {
            for (r, v) in tile.row(t).iter_mut().enumerate() {
                *v = by_row[r * tokens + t];
            }
        }
    });
}

/// Rows in the unit of work of one thread; the kernels like multiples of 16.
fn rows_per_task(w: &Matrix, tokens: usize) -> usize {
    let tasks = pool::threads() * 8;
    let even = w.rows.div_ceil(tasks).next_multiple_of(16);
    // At least about 64K multiplications, or handing it out costs more than doing it.
    let worthwhile = (65_536 / (w.cols * tokens).max(1)).next_multiple_of(16);
    // With several tokens the kernels first rearrange the activations, which pays from 64 rows on.
    even.max(worthwhile).max(if tokens > 1 { 64 } else { 16 })
}
