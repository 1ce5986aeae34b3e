//! Rows that are multiplied with matrices, and the forms that kernels read them in.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard};

use super::observe::ActivationObserver;
use super::product::widely::WidelyLinear;
use crate::kernels::bitplane::Arrangement;
use crate::kernels::packed::{Arranged, Encoding, Packing};
use crate::kernels::widely::Path;
use crate::kernels::{self, AlignedBytes, Isa, ternary};
use crate::pool;

/// Layout of prepared activation rows.
#[derive(Clone, Copy, PartialEq)]
enum ActivationLayout {
    /// As encoded, one row after another.
    Encoded(Encoding),
    /// Arranged for the packed layouts that read this arrangement.
    Arranged(Arranged),
    /// Arranged for bit planes.
    Planes(Arrangement),
    /// Real and imaginary parts for widely linear matrices.
    Widely(Path),
}

/// Rows in a layout.
type Prepared = (ActivationLayout, Arc<AlignedBytes>);

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
    pub(super) x: &'a [f32],
    tokens: usize,
    pub(super) cols: usize,
    pub(super) isa: Isa,
    pub(super) width: u8,
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
        let prepared = Kept::Here(Forms(Mutex::new(vec![(ActivationLayout::Encoded(encoding), Arc::new(rows))])));
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

    pub(super) fn encoded(&self, encoding: Encoding) -> Arc<AlignedBytes> {
        let row_bytes = encoded_bytes(encoding, self.cols);
        self.prepare(ActivationLayout::Encoded(encoding), row_bytes, |x, out| encode(encoding, self.isa, x, out))
    }

    pub(super) fn arranged(&self, layout: Packing) -> Arc<AlignedBytes> {
        let row_bytes = (layout.act_bytes)(self.cols);
        let encoded_bytes = encoded_bytes(layout.encoding, self.cols);
        // Before the lock is taken to make what was asked for.
        let given = match self.x {
            [] => find(&self.lock(), ActivationLayout::Encoded(layout.encoding)),
            _ => None,
        };
        self.prepare_rows(ActivationLayout::Arranged(layout.acts), row_bytes, |t, out| match &given {
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

    pub(super) fn for_planes(&self, form: Arrangement) -> Arc<AlignedBytes> {
        let row_bytes = form.act_bytes(self.cols);
        self.prepare(ActivationLayout::Planes(form), row_bytes, |x, out| form.arrange(self.isa, x, out))
    }

    pub(super) fn for_widely(&self, w: &WidelyLinear) -> Arc<AlignedBytes> {
        let (path, shape) = (w.path(), w.shape());
        self.prepare(ActivationLayout::Widely(path), path.act_bytes(shape), |x, out| {
            path.arrange(self.isa, shape, x, out)
        })
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

    fn prepare(
        &self,
        form: ActivationLayout,
        row_bytes: usize,
        row: impl Fn(&[f32], &mut [u8]) + Sync,
    ) -> Arc<AlignedBytes> {
        self.prepare_rows(form, row_bytes, |t, out| row(self.row(t), out))
    }

    /// The rows in a form, made by `row` with their numbers where nobody has asked for it before.
    fn prepare_rows(
        &self,
        form: ActivationLayout,
        row_bytes: usize,
        row: impl Fn(usize, &mut [u8]) + Sync,
    ) -> Arc<AlignedBytes> {
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

fn find(prepared: &[Prepared], form: ActivationLayout) -> Option<Arc<AlignedBytes>> {
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
