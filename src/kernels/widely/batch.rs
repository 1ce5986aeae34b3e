//! Products of sixteen tokens at once in single precision: lanes are tokens.
//!
//! Of the two accumulators of a lane of the definition, that of the real axis and that of the imaginary one, a weight
//! changes one. With a token in every lane the weight is the same for all lanes, so nothing has to be masked: the columns
//! of a lane are sorted by their axis first, in their order, and each axis adds its own columns, half as many additions as
//! masks ask for. Activations stand beside what they are with the other sign, so that nothing but additions is left.

use trine_formats::widely::{CHUNK, Scope, Shape};

use super::Form;
#[cfg(target_arch = "x86_64")]
use crate::arch::x86_64::widely as x86_64;
use crate::{Isa, size};

/// Tokens of a call.
pub const TOKENS: usize = 16;
/// Rows of a call, whose sums stay in the second-level cache.
pub const ROWS: usize = 8;
/// From so many tokens on it is faster than one token after the other.
pub const WORTHWHILE: usize = 13;

/// Floats of one column: real and imaginary parts of all tokens, with their own sign and with the other one.
pub(crate) const COLUMN: usize = 4 * TOKENS;

/// Real and imaginary parts of the outputs of a row for all tokens.
pub type Outputs = [[f32; TOKENS]; 2];

/// Some rows of a matrix.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// Of the whole matrix.
    pub shape: &'a Shape,
    /// Number of the first row in the matrix.
    pub first: usize,
    /// [`Form::Words`], [`Form::Planes`] or [`Form::Lanes`].
    pub form: Form,
    /// The units that they stand in; all of them in one, where a unit has more than one row.
    pub weights: &'a [u8],
    /// The scales of the whole matrix.
    pub scales: &'a [f32],
}

/// Whether such products exist for the instruction set, the form and the shape. Tiles are too narrow to be sorted.
pub fn serves(isa: Isa, form: Form, shape: &Shape) -> bool {
    let sorts = form != Form::Rows16 && shape.scope != Scope::Tile64;
    #[cfg(target_arch = "x86_64")]
    return sorts && isa.has(crate::Level::Avx2);
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (sorts, isa);
        false
    }
}

/// Floats of the arranged activations.
pub fn act_floats(shape: &Shape) -> usize {
    shape.chunks() * CHUNK * COLUMN
}

/// Arranges up to sixteen rows of activations that [`Path::arrange`](super::Path::arrange) has made for
/// [`Path::Exact`](super::Path::Exact): `[lane][chunk][sign][real, imaginary][token]`, zeros for tokens that are missing.
///
/// # Panics
/// When lengths do not fit.
pub fn arrange(shape: &Shape, acts: &[u8], out: &mut [f32]) {
    let row = super::Path::Exact.act_bytes(shape);
    let tokens = acts.len() / row;
    assert!(acts.len() == tokens * row && tokens <= TOKENS, "tokens");
    assert_eq!(out.len(), act_floats(shape), "arranged activations");
    let (chunks, half) = (shape.chunks(), row / 2);
    for (i, out) in out.chunks_exact_mut(COLUMN).enumerate() {
        let (lane, chunk) = (i / chunks, i % chunks);
        let at = 4 * (CHUNK * chunk + lane);
        let (plus, minus) = out.split_at_mut(COLUMN / 2);
        plus.fill(0.0);
        for (part, plus) in plus.chunks_exact_mut(TOKENS).enumerate() {
            let acts = acts[part * half + at..].chunks(row);
            for (plus, x) in plus.iter_mut().zip(acts) {
                *plus = f32::from_le_bytes([x[0], x[1], x[2], x[3]]);
            }
        }
        minus.iter_mut().zip(plus).for_each(|(m, p)| *m = -*p);
    }
}

/// The products of up to [`ROWS`] rows and sixteen tokens that [`arrange`] has arranged.
///
/// # Panics
/// When lengths do not fit, or such products do not exist ([`serves`]).
pub fn multiply(isa: Isa, rows: &Rows<'_>, acts: &[f32], out: &mut [Outputs]) {
    let shape = rows.shape;
    assert!(serves(isa, rows.form, shape), "batches of {isa}");
    assert!(
        out.len() <= ROWS && rows.first + out.len() <= shape.rows,
        "rows"
    );
    let unit = rows.form.rows();
    let units = (rows.first + out.len()).div_ceil(unit) - rows.first / unit;
    assert!(unit == 1 || units <= 1, "rows of one unit");
    let weights = size([units, rows.form.unit_bytes(shape)]);
    assert_eq!(rows.weights.len(), weights, "weights");
    let scales = size([shape.groups(), shape.group_scales()]);
    assert_eq!(rows.scales.len(), scales, "scales");
    assert_eq!(acts.len(), act_floats(shape), "activations");
    #[cfg(target_arch = "x86_64")]
    x86_64::batch(isa, rows, acts, out);
}
