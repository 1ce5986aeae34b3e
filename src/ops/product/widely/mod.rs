//! Widely linear matrices and the products of several of them in one region of the pool.

use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;
use trine_formats::gguf::Blob;
use trine_formats::widely::{Shape, WidelyMatrix};

use super::{SharedArena, prefetch};
use crate::kernels::widely::{CodeLayout, Path, Unit, batch, multiply, tables};
use crate::kernels::{Floats, Isa};
use crate::pool::{self, Parts};

/// Bytes of activations that a task reads again for every unit: they stay in the second-level cache.
const ACTIVATIONS: usize = 1 << 19;
/// Bytes of weights that one task reads at least when there is one token: the hardware's prefetcher needs long runs,
/// and what is made of the activations serves many rows.
const STREAM: usize = 1 << 20;
/// Rows that a task with many tokens has at least, where there are enough.
const BATCH_ROWS: usize = 8 * batch::ROWS;
/// Weights times tokens that a task has at least, or handing it out costs more than it saves.
const WORK: usize = 100_000;

/// A widely linear matrix and the layout of its codes.
#[derive(Clone)]
pub struct WidelyLinear {
    shape: Shape,
    path: Path,
    /// Layout in which the codes are read.
    form: CodeLayout,
    /// True if they are stored in that layout already, and not as the file's words.
    packed: bool,
    codes: Blob,
    scales: Arc<[f32]>,
}

impl WidelyLinear {
    /// A matrix whose codes are used where the file's bytes are, for products of a path.
    pub fn new(matrix: WidelyMatrix, path: Path, isa: Isa) -> WidelyLinear {
        WidelyLinear {
            shape: matrix.shape,
            path,
            form: CodeLayout::of(isa, path, false, &matrix.shape),
            packed: false,
            codes: matrix.codes,
            scales: matrix.scales,
        }
    }

    /// The same with the codes in the layout that products read fastest, in memory of `arena`; unchanged where that is
    /// the file's own.
    ///
    /// # Errors
    /// The system has no memory.
    pub fn packed(self, arena: &SharedArena, isa: Isa) -> io::Result<WidelyLinear> {
        let form = CodeLayout::of(isa, self.path, true, &self.shape);
        if self.packed || form.name().is_none() {
            return Ok(self);
        }
        let (unit, source) = (form.unit_bytes(&self.shape), self.unit_words(form));
        let units = self.shape.rows.div_ceil(form.rows());
        let mut arena = arena.lock().unwrap_or_else(|e| e.into_inner());
        let region = arena.region(units * unit, |out| {
            out.par_chunks_mut(unit).enumerate().for_each(|(i, out)| {
                let end = self.codes.len().min((i + 1) * source);
                form.pack(&self.shape, &self.codes[i * source..end], out);
            });
            true
        })?;
        let Some(codes) = region else {
            return Ok(self);
        };
        self.codes.release();
        Ok(WidelyLinear { form, packed: true, codes, ..self })
    }

    /// Bytes of the file's words of the rows of a unit.
    fn unit_words(&self, form: CodeLayout) -> usize {
        4 * self.shape.row_words() * form.rows()
    }

    /// The file's words of the rows of unit `i`.
    fn words(&self, i: usize) -> &[u8] {
        let unit = self.unit_words(self.form);
        &self.codes[i * unit..self.codes.len().min((i + 1) * unit)]
    }

    /// The matrix's shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Arithmetic of its products: exact, or with 8-bit activations.
    pub fn path(&self) -> Path {
        self.path
    }

    /// Name of the layout of the codes, and the bytes that they and the scales take; the file's own has none.
    pub fn layout(&self) -> (Option<&'static str>, usize) {
        let name = self.form.name().filter(|_| self.packed);
        (name, self.codes.len() + 4 * self.scales.len())
    }

    /// Prefetch distance of a GEMV, bytes; 0 for several tokens.
    fn ahead(&self, isa: Isa, tokens: usize) -> usize {
        let prefetches = tokens == 1 && self.packed && self.form.prefetches(isa);
        self.form.name().filter(|_| prefetches).map_or(0, prefetch::ahead)
    }

    /// True if a product with `tokens` tokens takes sixteen at once.
    fn in_batches(&self, isa: Isa, tokens: usize) -> bool {
        tokens >= batch::worthwhile(isa, self.path) && batch::serves(isa, self.form, &self.shape)
    }

    /// Outputs of some units for some tokens, sixteen of them at once: `put` is told the row, the first token and the
    /// outputs.
    fn multiply_batches(
        &self,
        isa: Isa,
        units: &Range<usize>,
        acts: &[u8],
        mut put: impl FnMut(usize, usize, &batch::Outputs),
    ) {
        let (shape, form) = (&self.shape, self.form);
        let size = form.unit_bytes(shape);
        let mut unpacked = Vec::new();
        let sixteen = batch::TOKENS * self.path.act_bytes(shape);
        for (group, acts) in acts.chunks(sixteen).enumerate() {
            let x = batch::Acts::arrange(isa, self.path, shape, acts);
            for start in units.clone().step_by(batch::ROWS / form.rows()) {
                let units = start..units.end.min(start + batch::ROWS / form.rows());
                let first = start * form.rows();
                let end = shape.rows.min(units.end * form.rows());
                let weights = if self.packed || form.name().is_none() {
                    &self.codes[units.start * size..units.end * size]
                } else {
                    unpacked.resize(units.len() * size, 0);
                    for (i, out) in units.zip(unpacked.chunks_exact_mut(size)) {
                        form.pack(shape, self.words(i), out);
                    }
                    &unpacked
                };
                let rows = batch::WeightRows { shape, first, form, weights, scales: &self.scales };
                let mut out = [batch::Outputs::default(); batch::ROWS];
                let out = &mut out[..end - first];
                batch::multiply(isa, &rows, &x, out);
                for (row, out) in (first..end).zip(out) {
                    put(row, batch::TOKENS * group, out);
                }
            }
        }
    }

    /// Outputs of some units for some tokens, one after the other, by tables: `put` is told the first row, the token
    /// and the outputs of as many rows as there are.
    fn multiply_tables(
        &self,
        isa: Isa,
        ahead: usize,
        units: &Range<usize>,
        acts: &[u8],
        mut put: impl FnMut(usize, usize, [&[f32]; 2]),
    ) {
        let (shape, form) = (&self.shape, self.form);
        let size = form.unit_bytes(shape);
        let mut x = Floats::scratch(tables::floats(shape));
        for (token, acts) in acts.chunks(self.path.act_bytes(shape)).enumerate() {
            tables::arrange(isa, shape, acts, &mut x);
            for i in units.clone() {
                let first = i * form.rows();
                let unit = Unit {
                    shape,
                    first,
                    rows: form.rows().min(shape.rows - first),
                    form,
                    weights: &self.codes[i * size..(i + 1) * size],
                    scales: &self.scales,
                    ahead,
                };
                let mut out = tables::Outputs::default();
                tables::multiply(isa, &unit, &x, &mut out);
                put(first, token, out.each_ref().map(|part| &part[..unit.rows]));
            }
        }
    }

    /// Outputs of unit `i` for some tokens, `[row][real, imaginary][token]`; the unit's rows.
    fn multiply(&self, (isa, ahead): (Isa, usize), i: usize, acts: &[u8], tokens: usize, tile: &mut Tile) -> usize {
        let form = self.form;
        let first = i * form.rows();
        let rows = form.rows().min(self.shape.rows - first);
        let size = form.unit_bytes(&self.shape);
        let weights = if self.packed {
            &self.codes[i * size..(i + 1) * size]
        } else {
            let words = self.words(i);
            if form.name().is_some() {
                tile.unit.resize(size, 0);
                form.pack(&self.shape, words, &mut tile.unit);
                &tile.unit
            } else {
                words
            }
        };
        tile.out.resize(2 * rows * tokens, 0.0);
        let unit = Unit { shape: &self.shape, first, rows, form, weights, scales: &self.scales, ahead };
        multiply(isa, &unit, acts, tokens, &mut tile.out);
        rows
    }
}

/// A product to compute.
pub struct WidelyProduct<'a> {
    /// The weights.
    pub w: &'a WidelyLinear,
    /// Activation rows as the matrix's path has them.
    pub acts: &'a [u8],
    /// `[tokens][rows]`, in real rows.
    pub out: &'a mut [f32],
}

/// A task: some units of a job's matrix times some of its tokens.
struct Task {
    job: usize,
    units: Range<usize>,
    tokens: Range<usize>,
}

/// Working memory of a thread.
#[derive(Default)]
struct Tile {
    out: Vec<f32>,
    unit: Vec<u8>,
}

thread_local! {
    static TILE: RefCell<Tile> = RefCell::default();
}

/// Computes all jobs over the same `tokens`, in one region of the current pool.
///
/// # Panics
/// When lengths do not fit.
pub fn multiply_all(isa: Isa, jobs: &mut [WidelyProduct<'_>], tokens: usize) {
    let mut tasks = Vec::new();
    let mut parts = Vec::with_capacity(jobs.len());
    for (i, job) in jobs.iter_mut().enumerate() {
        let rows = job.w.shape.rows;
        assert_eq!(job.out.len(), tokens * 2 * rows, "output size");
        split(isa, i, job.w, tokens, &mut tasks);
        parts.push((job.w, job.acts, Parts::new(&mut *job.out)));
    }
    pool::for_each(tasks.len(), |i| {
        let Task { job, units, tokens } = &tasks[i];
        let (w, acts, out) = &parts[*job];
        let (act_bytes, all) = (w.path.act_bytes(&w.shape), w.shape.rows);
        let acts = &acts[tokens.start * act_bytes..tokens.end * act_bytes];
        if w.in_batches(isa, tokens.len()) {
            return w.multiply_batches(isa, units, acts, |row, first, y| {
                for (i, t) in tokens.clone().skip(first).take(batch::TOKENS).enumerate() {
                    for (part, y) in y.iter().enumerate() {
                        let at = t * 2 * all + part * all + row;
                        // SAFETY: tasks of a job differ in their units or their tokens, and each visits a pair of row
                        // and token once.
                        let out = unsafe { out.part(at..at + 1) };
                        out[0] = y[i];
                    }
                }
            });
        }
        let ahead = w.ahead(isa, tokens.len());
        if w.form == CodeLayout::Lanes {
            return w.multiply_tables(isa, ahead, units, acts, |row, token, y| {
                for (part, y) in y.into_iter().enumerate() {
                    let at = (tokens.start + token) * 2 * all + part * all + row;
                    // SAFETY: tasks of a job differ in their units or their tokens, and units in their rows.
                    let out = unsafe { out.part(at..at + y.len()) };
                    out.copy_from_slice(y);
                }
            });
        }
        TILE.with_borrow_mut(|tile| {
            for unit in units.clone() {
                let rows = w.multiply((isa, ahead), unit, acts, tokens.len(), tile);
                let first = unit * w.form.rows();
                for (i, t) in tokens.clone().enumerate() {
                    for part in 0..2 {
                        let at = t * 2 * all + part * all + first;
                        // SAFETY: tasks of a job differ in their units or their tokens, and units in their rows.
                        let out = unsafe { out.part(at..at + rows) };
                        for (r, out) in out.iter_mut().enumerate() {
                            *out = tile.out[(2 * r + part) * tokens.len() + i];
                        }
                    }
                }
            }
        });
    });
}

fn split(isa: Isa, job: usize, w: &WidelyLinear, tokens: usize, tasks: &mut Vec<Task>) {
    let units = w.shape.rows.div_ceil(w.form.rows());
    if units == 0 || tokens == 0 {
        return;
    }
    let at_once = if w.in_batches(isa, tokens) {
        batch::TOKENS.min(tokens)
    } else {
        let fitting = ACTIVATIONS / w.path.act_bytes(&w.shape);
        fitting.clamp(8, 128).min(tokens)
    };
    let worthwhile = WORK.div_ceil(w.shape.row_words() * 16 * w.form.rows() * at_once);
    // never more than leaves every thread a task
    let fair = units.div_ceil(pool::threads() * 4);
    let stream = if tokens == 1 { STREAM } else { 0 };
    // what is arranged for a batch is used by many rows
    let rows = if w.in_batches(isa, at_once) { BATCH_ROWS / w.form.rows() } else { 1 };
    let stream = stream.div_ceil(w.form.unit_bytes(&w.shape)).max(rows);
    let step = worthwhile.max(stream.min(fair));
    for t in (0..tokens).step_by(at_once) {
        for u in (0..units).step_by(step) {
            tasks.push(Task { job, units: u..units.min(u + step), tokens: t..tokens.min(t + at_once) });
        }
    }
}

mod probed;
#[cfg(test)]
mod tests;
