//! Matrix times activations.

use std::cell::RefCell;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use rayon::prelude::*;
use trine_formats::anyprec::ApView;
use trine_formats::gguf::Blob;
use trine_formats::types::TypeId;
use trine_formats::types::ternary::{TernaryData, TernaryError};
use trine_formats::widely::{Part, WidelyMatrix};

use super::observe::ActivationObserver;
use super::product::SharedArena;
use super::product::bitplane::{self, BitplaneMatrix};
use super::product::packed::{self, Job, PackedMatrix};
use super::product::probe::Probed;
use super::product::widely::{self, WidelyLinear};
use crate::kernels::bitplane::{Arrangement, NumberPath};
use crate::kernels::packed::{Arranged, Encoding, Packing, layouts};
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
    /// none or the weights do not fit it. `in_cache` says that the model as a whole stays in the cache. Bit planes are
    /// packed by the first product at a width that needs them.
    ///
    /// # Errors
    /// The system has no memory.
    pub fn packed(self, arena: &SharedArena, isa: Isa, in_cache: bool) -> io::Result<Matrix> {
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
        for layout in layouts(self.ty, isa) {
            // A group of mostly nothing would take more memory and time than the rows do.
            if 2 * self.rows < layout.rows || layout.dense && in_cache {
                continue;
            }
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

    /// All rows as the file has them, and the scale of the whole tensor, 1 without one; of types with one scale for the
    /// tensor the rows of [`crate::kernels::ternary`]. `None` when the matrix is packed, in planes or widely linear.
    pub fn stored(&self) -> Option<(&[u8], f32)> {
        match &self.weights {
            Weights::Rows { data, .. } => Some((data, self.scale.unwrap_or(1.0))),
            Weights::Packed(_) | Weights::Planes(_) | Weights::Widely(_) => None,
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

/// A form that activation rows are prepared in.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// As encoded, one row after another.
    Encoded(Encoding),
    /// Arranged for the packed layouts that read this arrangement.
    Arranged(Arranged),
    /// Arranged for bit planes.
    Planes(Arrangement),
    /// Real and imaginary parts for widely linear matrices.
    Widely(Path),
}

/// Rows in a form.
type Prepared = (Form, Arc<AlignedBytes>);

/// Prepared forms of some rows, each made once wherever their products stand in a program.
#[derive(Default)]
pub struct Forms(Mutex<Vec<Prepared>>);

/// Forms that live as long as the rows, or with their activations.
enum Kept<'a> {
    Here(Forms),
    There(&'a Forms),
}

/// Activation rows and their prepared forms, each made once however many matrices want it.
pub struct Activations<'a> {
    /// Empty where the rows came encoded.
    x: &'a [f32],
    tokens: usize,
    cols: usize,
    isa: Isa,
    width: u8,
    prepared: Kept<'a>,
    observer: Option<Arc<dyn ActivationObserver>>,
}

thread_local! {
    static ENCODED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl<'a> Activations<'a> {
    /// Rows of `cols` values.
    pub fn new(x: &'a [f32], cols: usize, isa: Isa) -> Activations<'a> {
        debug_assert!(x.len().is_multiple_of(cols));
        Activations {
            x,
            tokens: x.len() / cols,
            cols,
            isa,
            width: 0,
            prepared: Kept::Here(Forms::default()),
            observer: None,
        }
    }

    /// Rows of `cols` values that came encoded, for packed matrices whose activations are encoded so, and no others.
    pub(super) fn of_encoded(encoding: Encoding, rows: AlignedBytes, cols: usize, isa: Isa) -> Activations<'static> {
        let tokens = rows.len() / encoded_bytes(encoding, cols);
        let prepared = Kept::Here(Forms(Mutex::new(vec![(Form::Encoded(encoding), Arc::new(rows))])));
        Activations { tokens, prepared, ..Activations::new(&[], cols, isa) }
    }

    /// The same rows, whose prepared forms are kept in `forms`.
    pub fn sharing(self, forms: &'a Forms) -> Activations<'a> {
        Activations { prepared: Kept::There(forms), ..self }
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

    /// Shows the rows to the observer before the matrix of one expert is multiplied with them.
    pub fn observe_expert(&self, name: &str, expert: usize, experts: usize) {
        if let Some(observer) = &self.observer {
            observer.observe_expert(name, expert, experts, self.x, self.cols);
        }
    }

    /// The same rows, for products with any-precision matrices at `width` bits.
    pub fn at_width(self, width: u8) -> Activations<'a> {
        Activations { width, ..self }
    }

    /// Instruction set that they are multiplied with.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Number of rows.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// True if an observer reads the inputs.
    pub(super) fn is_observed(&self) -> bool {
        self.observer.is_some()
    }

    fn encoded(&self, encoding: Encoding) -> Arc<AlignedBytes> {
        let row_bytes = encoded_bytes(encoding, self.cols);
        self.prepare(Form::Encoded(encoding), row_bytes, |x, out| encode(encoding, self.isa, x, out))
    }

    pub(super) fn arranged(&self, layout: Packing) -> Arc<AlignedBytes> {
        let row_bytes = (layout.act_bytes)(self.cols);
        let encoded_bytes = encoded_bytes(layout.encoding, self.cols);
        // Before the lock is taken to make what was asked for.
        let given = match self.x {
            [] => find(&self.lock(), Form::Encoded(layout.encoding)),
            _ => None,
        };
        self.prepare_rows(Form::Arranged(layout.acts), row_bytes, |t, out| match &given {
            Some(rows) => {
                let row = &rows[t * encoded_bytes..][..encoded_bytes];
                layout.arrange(row, self.cols, out);
            }
            None => ENCODED.with_borrow_mut(|row| {
                row.resize(encoded_bytes, 0);
                encode(layout.encoding, self.isa, self.row(t), row);
                layout.arrange(row, self.cols, out);
            }),
        })
    }

    fn for_planes(&self, form: Arrangement) -> Arc<AlignedBytes> {
        let row_bytes = form.act_bytes(self.cols);
        self.prepare(Form::Planes(form), row_bytes, |x, out| form.arrange(self.isa, x, out))
    }

    fn for_widely(&self, w: &WidelyLinear) -> Arc<AlignedBytes> {
        let (path, shape) = (w.path(), w.shape());
        self.prepare(Form::Widely(path), path.act_bytes(shape), |x, out| path.arrange(self.isa, shape, x, out))
    }

    /// Row `t` of the values.
    fn row(&self, t: usize) -> &[f32] {
        &self.x[t * self.cols..][..self.cols]
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Prepared>> {
        let forms = match &self.prepared {
            Kept::Here(forms) => forms,
            Kept::There(forms) => *forms,
        };
        forms.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn prepare(&self, form: Form, row_bytes: usize, row: impl Fn(&[f32], &mut [u8]) + Sync) -> Arc<AlignedBytes> {
        self.prepare_rows(form, row_bytes, |t, out| row(self.row(t), out))
    }

    /// The rows in a form, made by `row` with their numbers where nobody has asked for it before.
    fn prepare_rows(&self, form: Form, row_bytes: usize, row: impl Fn(usize, &mut [u8]) + Sync) -> Arc<AlignedBytes> {
        // Held until the rows are made, so that they are made once.
        let mut prepared = self.lock();
        if let Some(bytes) = find(&prepared, form) {
            return bytes;
        }
        let mut bytes = AlignedBytes::scratch(row_bytes * self.tokens());
        pool::chunks_mut(&mut bytes, row_bytes, row);
        let bytes = Arc::new(bytes);
        prepared.push((form, bytes.clone()));
        bytes
    }
}

fn find(prepared: &[Prepared], form: Form) -> Option<Arc<AlignedBytes>> {
    let found = prepared.iter().find(|(f, _)| *f == form);
    found.map(|(_, bytes)| bytes.clone())
}

/// Bytes of a row of `cols` values, encoded.
pub(super) fn encoded_bytes(encoding: Encoding, cols: usize) -> usize {
    match encoding {
        Encoding::Int8(_) => ternary::act_bytes(cols),
        Encoding::Type(ty) => ty.info().map_or(0, |info| cols / info.block * info.bytes),
    }
}

/// Encodes values of a row: all of them, or whole blocks of them where the encoding has blocks.
pub(super) fn encode(encoding: Encoding, isa: Isa, x: &[f32], out: &mut [u8]) {
    match encoding {
        Encoding::Int8(rule) => ternary::quantize_act(rule, x, out),
        Encoding::Type(ty) => kernels::quantize_act(ty, isa)(x, out),
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
            (Weights::Packed(p), Some(acts)) => jobs.push(Job { w: p, acts, scale: w.scale, out }),
            (Weights::Planes(p), Some(arranged)) => in_planes.push(bitplane::Job {
                w: p,
                width: acts.width,
                form: p.form(acts.isa, tokens),
                acts: arranged,
                x: acts.x,
                out,
            }),
            (Weights::Widely(w), Some(acts)) => widely_linear.push(widely::Job { w, acts, out }),
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
