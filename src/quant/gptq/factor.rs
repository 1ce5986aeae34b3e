//! From the sums of an input to the triangle that errors are fed back with.
//!
//! With rows and columns in reverse order the Cholesky factor of `H` becomes an upper triangle `R` with `H = R R^T`,
//! and `U = R^-1` is the one with `H^-1 = U^T U`: the inverse of `H` itself is never formed.
//!
//! Columns are taken in falling order of the diagonal of `H`: those that matter most are rounded while all others can
//! still make up for their errors. Where two of four neighbours become zero, the four stay together and are taken in
//! falling order of their sum; so do the eight of a cell of a codebook, and the two of a pair. MARLIN's way takes columns in natural order; there the blocks of `R` on the diagonal say
//! what an error in a group costs once the columns behind it have made up for it as well as they can, which is what its
//! search for scales asks.

use rayon::prelude::*;
use trine_formats::types::cells::CELL;

use super::descent::Metric;
use super::fault::HessianFault;
use super::options::Options;
use super::prune::OF;
use super::source::HessianFile;
use crate::kernels::Isa;
use crate::linalg::{COLUMNS, cholesky, invert_lower, panel_count, triangle};

/// Most that is added to the diagonal, as a share of its mean.
const MOST_DAMP: f64 = 1.0;

/// The facts about one input that rounding the weights that read it needs.
pub struct Factor {
    columns: usize,
    /// The columns as they are rounded, from first to last.
    order: Vec<usize>,
    /// `U` in panels, its rows and columns in that order.
    upper: Vec<f64>,
    /// Columns that share a scale.
    group: usize,
    /// In natural order the block of `R` on the diagonal for every group, in panels that end with their last row that
    /// is not zero.
    roots: Vec<Vec<f64>>,
    /// Columns that no token of the text made use of.
    dead: Vec<bool>,
    /// The diagonal of `H`: the mean squares that an importance matrix holds, up to a factor.
    importance: Vec<f32>,
    /// The share of the mean of the diagonal that was added to it.
    damp: f64,
    /// The amount that was added.
    added: f64,
    /// The matrix that was factored, where rows are gone over again.
    metric: Option<Metric>,
    /// The triangle of each eight columns in order, where these are chosen together and gone over again.
    cells: Vec<[[f64; CELL]; CELL]>,
    /// The places in order of each eight neighbouring columns, where they are side by side.
    places: Vec<usize>,
}

impl Factor {
    /// Reads the sums of input number `input` and factors them, on the current rayon pool; with [`Factor::hessian`].
    ///
    /// # Errors
    /// Sums that no text can have.
    pub fn read_with_hessian(
        file: &HessianFile,
        input: usize,
        options: &Options,
        isa: Isa,
    ) -> Result<(Factor, Vec<f64>), HessianFault> {
        let sums = file.sums(input)?;
        let columns = file.header().inputs[input].columns as usize;
        let tokens = file.header().tokens_of(input);
        let factor = Factor::new(&sums, columns, tokens, options, isa)?;
        let hessian = factor.hessian(&sums, tokens);
        Ok((factor, hessian))
    }

    /// The matrix that was factored, in panels, its rows and columns in the order of the factor; but for columns that
    /// saw nothing but zeros, whose diagonal is what was added.
    pub fn hessian(&self, sums: &[f64], tokens: u64) -> Vec<f64> {
        let scale = 2.0 / tokens as f64;
        let n = self.columns;
        let mut panels = vec![0.0; panel_count(n) * n * COLUMNS];
        panels.par_chunks_mut((n * COLUMNS).max(1)).enumerate().for_each(|(p, panel)| {
            for (row, &i) in panel.as_chunks_mut::<COLUMNS>().0.iter_mut().zip(&self.order) {
                let columns = self.order.iter().skip(p * COLUMNS);
                for (to, &j) in row.iter_mut().zip(columns) {
                    let sum = scale * sums[triangle(i.max(j)) + i.min(j)];
                    *to = if i == j { sum + self.added } else { sum };
                }
            }
        });
        panels
    }

    /// Factors the lower triangle `sums` of `columns` columns over `tokens` tokens.
    ///
    /// # Errors
    /// Sums that no text can have.
    pub fn new(sums: &[f64], columns: usize, tokens: u64, options: &Options, isa: Isa) -> Result<Factor, HessianFault> {
        Factor::together(sums, columns, tokens, options, 1, isa)
    }

    /// As [`Factor::new`], with every `together` columns from the first on side by side.
    ///
    /// # Errors
    /// Sums that no text can have.
    pub fn together(
        sums: &[f64],
        columns: usize,
        tokens: u64,
        options: &Options,
        together: usize,
        isa: Isa,
    ) -> Result<Factor, HessianFault> {
        check(sums, columns)?;
        let scale = 2.0 / tokens as f64;
        let diagonal: Vec<f64> = (0..columns).map(|j| scale * sums[triangle(j) + j]).collect();
        let dead: Vec<bool> = diagonal.iter().map(|&d| d == 0.0).collect();
        let alive = |j: usize| if dead[j] { 1.0 } else { diagonal[j] };
        let mean = (0..columns).fold(0.0, |sum, j| sum + alive(j)) / columns as f64;
        let Options { group, mut damp, compat, sparse } = *options;
        let mut order: Vec<usize> = (0..columns).collect();
        // Columns of which some become zero stay side by side too.
        let together = if sparse { OF } else { together };
        if !compat {
            let of = |j: usize| {
                let first = j / together * together;
                let own = &diagonal[first..columns.min(first + together)];
                own.iter().fold(0.0, |sum, d| sum + d)
            };
            // Stable, so that equal columns stay in natural order.
            order.sort_by(|&i, &j| of(j).total_cmp(&of(i)).then((i / together).cmp(&(j / together))));
        }
        let (lower, added) = loop {
            let add = damp * mean;
            let mut reversed = vec![0.0; columns * columns];
            reversed.par_chunks_mut(columns).enumerate().for_each(|(i, row)| {
                let column = order[columns - 1 - i];
                for (to, &other) in row[..i].iter_mut().zip(order.iter().rev()) {
                    *to = scale * sums[triangle(column.max(other)) + column.min(other)];
                }
                row[i] = alive(column) + add;
            });
            match cholesky(isa, columns, &mut reversed) {
                Ok(()) => break (reversed, add),
                Err(_) if 2.0 * damp <= MOST_DAMP => damp *= 2.0,
                Err(_) if damp < MOST_DAMP => damp = MOST_DAMP,
                Err(at) => return Err(HessianFault::Singular(order[columns - 1 - at])),
            }
        };
        let groups = (0..columns).step_by(group).take_while(|_| compat);
        let roots = groups.map(|first| root(&lower, columns, first, group.min(columns - first))).collect();
        let inverse = invert_lower(isa, columns, &lower);
        drop(lower);
        Ok(Factor {
            columns,
            order,
            upper: reversed_panels(&inverse, columns),
            group,
            roots,
            importance: diagonal.iter().map(|&d| d as f32).collect(),
            dead,
            damp,
            added,
            metric: None,
            cells: Vec::new(),
            places: Vec::new(),
        })
    }

    /// The same for rows that are gone over again: with `sums` in memory, those that were factored, and every `together`
    /// columns side by side.
    pub fn with_metric(mut self, sums: &[f64], tokens: u64, together: usize) -> Factor {
        let (n, scale) = (self.columns, 2.0 / tokens as f64);
        let mut rows = vec![0.0; n * n];
        rows.par_chunks_mut(n.max(1)).zip(&self.order).for_each(|(row, &i)| {
            for (to, &j) in row.iter_mut().zip(&self.order) {
                let sum = scale * sums[triangle(i.max(j)) + i.min(j)];
                let alive = if self.dead[i] && i == j { 1.0 } else { sum };
                *to = if i == j { alive + self.added } else { sum };
            }
        });
        let metric = Metric::new(n, rows);
        if together == CELL {
            self.cells = (0..n).into_par_iter().step_by(CELL).map(|i| metric.upper(i)).collect();
            self.places = vec![0; n / CELL];
            self.order
                .iter()
                .step_by(CELL)
                .enumerate()
                .for_each(|(at, &column)| self.places[column / CELL] = at * CELL);
        }
        self.metric = Some(metric);
        self
    }

    /// The matrix that was factored, where rows are gone over again.
    pub fn metric(&self) -> Option<&Metric> {
        self.metric.as_ref()
    }

    /// The triangle `U` of the eight columns from number `i` in order on, with which these alone would be inverted.
    pub fn upper_of_cell(&self, i: usize) -> &[[f64; CELL]; CELL] {
        &self.cells[i / CELL]
    }

    /// The place in order of the first of eight neighbouring columns.
    pub fn place(&self, cell: usize) -> usize {
        self.places[cell]
    }

    /// Width of the input.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The columns as they are rounded, from first to last.
    pub fn order(&self) -> &[usize] {
        &self.order
    }

    /// The share of the mean of the diagonal that was added to it.
    pub fn damp(&self) -> f64 {
        self.damp
    }

    /// True if a column saw nothing but zeros.
    pub fn is_dead(&self, column: usize) -> bool {
        self.dead[column]
    }

    /// How much the columns matter by themselves.
    pub fn importance(&self) -> &[f32] {
        &self.importance
    }

    /// `U_ij`, for the columns that are number `i` and `j` in order.
    pub fn upper(&self, i: usize, j: usize) -> f64 {
        self.upper[(j / COLUMNS * self.columns + i) * COLUMNS + j % COLUMNS]
    }

    /// `U_jj` of a column, by its number in order.
    pub fn pivot(&self, i: usize) -> f64 {
        self.upper(i, i)
    }

    /// The part of `U` on the diagonal for columns number `first` to `last` in order, row after row.
    pub fn copy_triangle(&self, first: usize, last: usize, triangle: &mut Vec<f64>) {
        triangle.clear();
        for i in first..last {
            triangle.extend((first..last).map(|j| self.upper(i, j)));
        }
    }

    /// Rows `rows` of panel number `p` of `U`.
    pub fn panel(&self, p: usize, rows: std::ops::Range<usize>) -> &[f64] {
        let start = p * self.columns;
        &self.upper[(start + rows.start) * COLUMNS..(start + rows.end) * COLUMNS]
    }

    /// In natural order the panels of the block of `R` of the group that starts at column `first`: panel `p` has `16 (p
    /// + 1)` rows.
    pub fn root(&self, first: usize) -> impl Iterator<Item = &[f64]> {
        let mut rest = &self.roots[first / self.group][..];
        (1..).map_while(move |p| {
            let elements = (p * COLUMNS * COLUMNS).min(rest.len());
            let (panel, after) = rest.split_at(elements);
            rest = after;
            (elements > 0).then_some(panel)
        })
    }
}

/// Finds sums that cannot be sums of products of finite numbers.
fn check(sums: &[f64], columns: usize) -> Result<(), HessianFault> {
    for row in 0..columns {
        let values = &sums[triangle(row)..triangle(row + 1)];
        let bad = |(column, &v): (usize, &f64)| !v.is_finite() || column == row && v < 0.0;
        if let Some((column, &value)) = values.iter().enumerate().find(|&at| bad(at)) {
            return Err(HessianFault::BadValue { row, column, value });
        }
    }
    Ok(())
}

/// The block of `R` on the diagonal for `width` columns from `first` on.
fn root(lower: &[f64], columns: usize, first: usize, width: usize) -> Vec<f64> {
    let last = columns - 1 - first;
    let element = |i: usize, j: usize| match j {
        j if j < i || j >= width => 0.0,
        j => lower[(last - i) * columns + last - j],
    };
    let mut panels = Vec::new();
    for p in 0..panel_count(width) {
        for i in 0..COLUMNS * (p + 1) {
            panels.extend((0..COLUMNS).map(|j| element(i, p * COLUMNS + j)));
        }
    }
    panels
}

/// Panels of a lower triangle to panels of the upper one that has its rows and columns in reverse order.
fn reversed_panels(lower: &[f64], n: usize) -> Vec<f64> {
    let mut upper = vec![0.0; panel_count(n) * n * COLUMNS];
    upper.par_chunks_mut((n * COLUMNS).max(1)).enumerate().for_each(|(p, panel)| {
        for (i, row) in panel.as_chunks_mut::<COLUMNS>().0.iter_mut().enumerate() {
            for (j, to) in row.iter_mut().enumerate() {
                let column = p * COLUMNS + j;
                if column >= i && column < n {
                    let (i, j) = (n - 1 - i, n - 1 - column);
                    *to = lower[(j / COLUMNS * n + i) * COLUMNS + j % COLUMNS];
                }
            }
        }
    });
    upper
}
