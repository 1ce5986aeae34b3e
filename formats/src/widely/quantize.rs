//! From real weights to codes and scales: the split into `U` and `W`, PhaseQuant, and its recursion.
//!
//! A stage gives every complex element the fourth root of unity that is nearest in phase, and each axis the mean
//! magnitude of the elements on it as scale, at least [`FLOOR`]; the next stage does the same with what is left.
//!
//! Sums of magnitudes are in double precision, column by column within a row (or the row of a tile) and then row by
//! row, so that they depend on nothing but the weights.

use super::{Scope, Shape, TILE, axis_is_imaginary, is_positive, pack_row};
use crate::types::num::{bf16_to_f32, f32_to_bf16};

/// The least scale.
pub const FLOOR: f32 = 1e-6;

/// Rule for the code of an element whose real and imaginary parts are of equal magnitude.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TieRule {
    /// As the phase has it: the imaginary axis where the signs are equal, the real one where they differ; zero is +1.
    #[default]
    Phase,
    /// The imaginary axis; zero is +i.
    Tile64,
}

/// The numbers that the computation is rounded to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Profile {
    /// bfloat16 after every step, as the training script of Fairy2i computes.
    #[default]
    ScriptBf16,
    /// Single precision.
    F32,
}

/// How a matrix is quantized.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Stages of `U` and of `W`.
    pub stages: usize,
    /// The part that shares scales.
    pub scope: Scope,
    /// Precision of the computation.
    pub profile: Profile,
    /// Direction in which ties are rounded.
    pub tie: TieRule,
}

impl Profile {
    /// A result as the profile keeps it: rounded to nearest, ties to even.
    pub fn round(self, x: f32) -> f32 {
        match self {
            Profile::F32 => x,
            Profile::ScriptBf16 => bf16_to_f32(f32_to_bf16(x)),
        }
    }
}

impl TieRule {
    /// The code of `re + i im`.
    pub fn code(self, re: f32, im: f32) -> u8 {
        let (a, b) = (re.abs(), im.abs());
        let (imaginary, positive) = match self {
            TieRule::Phase => {
                let tie = a == b && a != 0.0 && (re > 0.0) == (im > 0.0);
                let imaginary = b > a || tie;
                (imaginary, if imaginary { im > 0.0 } else { re >= 0.0 })
            }
            TieRule::Tile64 if a > b => (false, re > 0.0),
            TieRule::Tile64 => (true, im >= 0.0),
        };
        u8::from(positive) | u8::from(imaginary) << 1
    }
}

/// A complex row: real and imaginary parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ComplexRow {
    /// Real parts.
    pub re: Vec<f32>,
    /// Imaginary parts, as many.
    pub im: Vec<f32>,
}

/// Row `r` of `U` and of `W` from rows `r` and `n + r` of the real matrix:
///
/// ```text
/// U_re = (A11 + A22) / 2   U_im = (A21 − A12) / 2
/// W_re = (A11 − A22) / 2   W_im = (A12 + A21) / 2
/// ```
///
/// # Panics
/// When the rows are not of one even length.
pub fn split(profile: Profile, top: &[f32], bottom: &[f32]) -> [ComplexRow; 2] {
    let m = top.len() / 2;
    assert_eq!((top.len(), bottom.len()), (2 * m, 2 * m), "rows");
    let round = |x| profile.round(x);
    let half = |sum: f32| round(round(sum) * 0.5);
    let mut parts: [ComplexRow; 2] = Default::default();
    let [u, w] = &mut parts;
    for j in 0..m {
        let [a11, a12] = [top[j], top[m + j]].map(round);
        let [a21, a22] = [bottom[j], bottom[m + j]].map(round);
        u.re.push(half(a11 + a22));
        u.im.push(half(a21 - a12));
        w.re.push(half(a11 - a22));
        w.im.push(half(a12 + a21));
    }
    parts
}

/// Magnitudes of the elements of a group, by axis.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// Sums of the magnitudes on the real and on the imaginary axis.
    pub total: [f64; 2],
    /// Number of the magnitudes on each axis.
    pub count: [u64; 2],
}

impl Sums {
    /// Adds the elements of a further row.
    pub fn add(&mut self, row: &Sums) {
        for axis in 0..2 {
            self.total[axis] += row.total[axis];
            self.count[axis] += row.count[axis];
        }
    }

    /// The scales of the two axes. An axis without elements has the least one.
    pub fn scales(&self, profile: Profile) -> [f32; 2] {
        [0, 1].map(|axis| {
            let mean = self.total[axis] / self.count[axis] as f64;
            profile.round((mean as f32).max(FLOOR)) // the largest of a NaN and a number is the number
        })
    }
}

impl ComplexRow {
    /// Codes of the elements, and their magnitudes.
    pub fn code(&self, tie: TieRule, codes: &mut [u8]) -> Sums {
        self.code_part(tie, 0, codes)
    }

    /// The same of as many elements as there are codes, from `first` on.
    fn code_part(&self, tie: TieRule, first: usize, codes: &mut [u8]) -> Sums {
        let mut sums = Sums::default();
        let parts = self.re[first..].iter().zip(&self.im[first..]);
        for (code, (&re, &im)) in codes.iter_mut().zip(parts) {
            *code = tie.code(re, im);
            let axis = usize::from(axis_is_imaginary(*code));
            sums.total[axis] += f64::from([re, im][axis].abs());
            sums.count[axis] += 1;
        }
        sums
    }

    /// Takes what the codes stand for from the elements from `first` on.
    pub fn subtract(&mut self, profile: Profile, first: usize, codes: &[u8], scales: [f32; 2]) {
        let parts = self.re[first..].iter_mut().zip(&mut self.im[first..]);
        for (&code, (re, im)) in codes.iter().zip(parts) {
            let axis = usize::from(axis_is_imaginary(code));
            let part = [re, im].into_iter().nth(axis);
            if let Some(part) = part {
                let value = scales[axis];
                let value = if is_positive(code) { value } else { -value };
                *part = profile.round(*part - value);
            }
        }
    }

    /// The codes and magnitudes of stage `scales.len()`, where the scales of the stages before are known and hold for
    /// the whole row; `keep` sees the codes of every stage.
    pub fn stage(&mut self, rule: &Rule, scales: &[[f32; 2]], mut keep: impl FnMut(usize, &[u8])) -> Sums {
        let mut codes = vec![0; self.re.len()];
        for (t, &scales) in scales.iter().enumerate() {
            self.code(rule.tie, &mut codes);
            keep(t, &codes);
            self.subtract(rule.profile, 0, &codes, scales);
        }
        let sums = self.code(rule.tie, &mut codes);
        keep(scales.len(), &codes);
        sums
    }
}

/// All stages of rows that share their scales among themselves alone: one row, or up to 64 rows in tiles. `rows` are
/// rows of `U` or of `W` and `tile` the number of columns with scales of their own; `keep` sees row, stage and codes,
/// `scale` tile, stage and scales.
pub fn stages_of_tiles(
    rule: &Rule,
    rows: &mut [ComplexRow],
    tile: usize,
    mut keep: impl FnMut(usize, usize, &[u8]),
    mut scale: impl FnMut(usize, usize, [f32; 2]),
) {
    let columns = rows.first().map_or(0, |r| r.re.len());
    let mut codes = vec![vec![0; columns]; rows.len()];
    for stage in 0..rule.stages {
        for (t, first) in (0..columns).step_by(tile.max(1)).enumerate() {
            let range = first..columns.min(first + tile);
            let mut sums = Sums::default();
            for (row, codes) in rows.iter().zip(&mut codes) {
                sums.add(&row.code_part(rule.tie, first, &mut codes[range.clone()]));
            }
            let scales = sums.scales(rule.profile);
            scale(t, stage, scales);
            for (row, codes) in rows.iter_mut().zip(&codes) {
                row.subtract(rule.profile, first, &codes[range.clone()], scales);
            }
        }
        for (r, codes) in codes.iter().enumerate() {
            keep(r, stage, codes);
        }
    }
}

impl Rule {
    /// The extents of a real matrix under this rule; `None` where a side is odd or empty.
    pub fn shape(&self, rows: usize, columns: usize) -> Option<Shape> {
        Shape::of_real(rows, columns, self.stages, self.scope)
    }
}

/// The words of all rows, `[row][chunk][stream]`, and the scales of all groups of a real matrix: the definition that
/// converters follow, which read a matrix in parts. `None` where a side is odd or empty.
pub fn quantize(rule: &Rule, rows: usize, columns: usize, weights: &[f32]) -> Option<(Vec<u32>, Vec<f32>)> {
    let shape = rule.shape(rows, columns)?;
    let (top, bottom) = weights.split_at(weights.len() / 2);
    let pairs = top.chunks(columns).zip(bottom.chunks(columns));
    let (mut u, mut w) = (Vec::new(), Vec::new());
    for (top, bottom) in pairs {
        let [u_row, w_row] = split(rule.profile, top, bottom);
        u.push(u_row);
        w.push(w_row);
    }
    let mut words = vec![0; shape.rows * shape.row_words()];
    let mut scales = vec![0.0; shape.groups() * shape.group_scales()];
    // rows and columns of a group
    let (height, width) = match rule.scope {
        Scope::Tensor => (shape.rows, shape.columns),
        Scope::Row => (1, shape.columns),
        Scope::Tile64 => (TILE, TILE),
    };
    for (half, all) in [&mut u, &mut w].into_iter().enumerate() {
        for (band, rows) in all.chunks_mut(height).enumerate() {
            let words = &mut words[band * height * shape.row_words()..];
            let scales = &mut scales[band * shape.tiles() * shape.group_scales()..];
            let stream = |stage| half * rule.stages + stage;
            stages_of_tiles(
                rule,
                rows,
                width,
                |row, stage, codes| {
                    let row = &mut words[row * shape.row_words()..][..shape.row_words()];
                    pack_row(&shape, stream(stage), codes, row);
                },
                |tile, stage, both| {
                    let at = tile * shape.group_scales() + 2 * stream(stage);
                    scales[at..at + 2].copy_from_slice(&both);
                },
            );
        }
    }
    Some((words, scales))
}
