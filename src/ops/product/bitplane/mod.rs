//! Any-precision matrices and the products of several of them in one region of the pool.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use trine_formats::anyprec::ApView;

use lines::{Lines, Tables};

use super::{SharedArena, prefetch};
use crate::kernels::Isa;
use crate::kernels::bitplane::packed::{self, PackedRows};
use crate::kernels::bitplane::sparse::{self, Entries};
use crate::kernels::bitplane::{Arrangement, NumberPath, PlaneRows, in_blocks, multiply, reads_packed};
use crate::pool::{self, Parts};

mod lines;
mod probed;
#[cfg(test)]
mod tests;

/// Name of the layout of packed codes.
pub const NAME: &str = "nibbles of bit planes";
/// Bytes of activations that a task reads again for every pair of rows: they stay in the second-level cache.
const ACTIVATIONS: usize = 1 << 19;
/// Bytes of weights that one task reads at least when there is one token: the hardware's prefetcher needs long runs,
/// and every plane is a run of its own.
const STREAM: usize = 1 << 20;
/// Multiplications a task has at least, or handing it out costs more than it saves.
const WORK: usize = 200_000;

/// A matrix at all widths that its file has, used where the file's bytes are or from packed codes.
#[derive(Clone)]
pub struct BitplaneMatrix {
    path: NumberPath,
    widths: Arc<[AtWidth]>,
    lines: Option<Arc<Lines>>,
}

struct AtWidth {
    view: ApView,
    /// Values of the sparse weights, once they were asked for.
    deltas: OnceLock<Vec<f32>>,
    /// For packed codes, once they were asked for.
    tables: OnceLock<Option<Tables>>,
}

impl BitplaneMatrix {
    /// From the matrix's views at several widths, at least one; their extents are the same, and all lengths are those
    /// of the extents, which [`trine_formats::anyprec::AnyPrec`] has checked.
    pub fn new(path: NumberPath, views: impl IntoIterator<Item = ApView>) -> BitplaneMatrix {
        let at_width = |view| AtWidth { view, deltas: OnceLock::new(), tables: OnceLock::new() };
        BitplaneMatrix { path, widths: views.into_iter().map(at_width).collect(), lines: None }
    }

    /// The same matrix, which packs its codes into `arena` when a product needs them and lets the file's bytes go;
    /// unchanged where no kernels read packed codes.
    pub fn packed(self, arena: &SharedArena, isa: Isa) -> BitplaneMatrix {
        let whole = |w: &AtWidth| {
            let v = &w.view;
            in_blocks(v.columns, v.groups)
        };
        if !reads_packed(isa) || !self.widths.iter().all(whole) {
            return self;
        }
        BitplaneMatrix { lines: Some(Arc::new(Lines::new(isa, arena.clone()))), ..self }
    }

    /// How products are added, and the matrix at all widths, ascending.
    pub fn views(&self) -> (NumberPath, Vec<&ApView>) {
        (self.path, self.widths.iter().map(|w| &w.view).collect())
    }

    /// True if codes are packed.
    pub fn is_packed(&self) -> bool {
        self.lines.is_some()
    }

    /// The rows `range` as a matrix of their own; `None` when they are not there.
    pub fn rows(&self, range: Range<usize>) -> Option<BitplaneMatrix> {
        let views: Option<Vec<ApView>> = self.widths.iter().map(|w| w.view.rows(range.clone())).collect();
        let lines = self.lines.as_ref();
        Some(BitplaneMatrix {
            lines: lines.map(|l| Arc::new(l.of_another())),
            ..BitplaneMatrix::new(self.path, views?)
        })
    }

    /// Decodes row `i` at the widest width; `false` when codes are packed.
    pub fn decode_row(&self, i: usize, out: &mut [f32]) -> bool {
        match self.widest().filter(|_| !self.is_packed()) {
            Some(view) => {
                out.copy_from_slice(&view.row(i));
                true
            }
            None => false,
        }
    }

    /// Bytes of the codes and tables of the widest width, and of the sparse weights.
    pub fn bytes(&self) -> usize {
        let Some(view) = self.widest() else {
            return 0;
        };
        let planes = match &self.lines {
            Some(_) => Lines::bytes(view),
            None => view.planes.iter().map(|p| p.len()).sum(),
        };
        let sparse = view.sparse.as_ref();
        let sparse = sparse.map_or(0, |s| s.ptr.len() + s.col.len() + s.val.len());
        planes + view.lut.len() + sparse
    }

    /// The arrangement of activations for a product with `tokens` tokens.
    pub fn form(&self, isa: Isa, tokens: usize) -> Arrangement {
        let (columns, groups) = self.widths.first().map_or((1, 1), |w| {
            let v = &w.view;
            (v.columns, v.groups)
        });
        Arrangement::of(self.path, isa, tokens, self.is_packed(), columns, groups)
    }

    fn at(&self, width: u8) -> &AtWidth {
        let found = self.widths.iter().find(|w| w.view.width == width);
        found.unwrap_or_else(|| panic!("no width of {width} bits"))
    }

    fn widest(&self) -> Option<&ApView> {
        let views = self.widths.iter().map(|w| &w.view);
        views.max_by_key(|v| v.width)
    }

    /// All rows packed, where they are and the kernels of `isa` read them. What has to be packed first, is.
    fn packed_rows(&self, isa: Isa, width: u8) -> Option<PackedRows<'_>> {
        let lines = self.lines.as_ref().filter(|_| reads_packed(isa))?;
        let w = self.at(width);
        let tables = || lines.tables(self.path, &w.view);
        // without memory the file's bytes serve as well
        let Tables { bytes, scales } = w.tables.get_or_init(tables).as_ref()?;
        Some(PackedRows {
            shape: lines::shape(&w.view),
            width: width.into(),
            lines: lines.of(width, self.widest()?)?,
            tables: bytes,
            scales,
            ahead: prefetch::ahead(NAME),
        })
    }
}

impl AtWidth {
    fn deltas(&self) -> &[f32] {
        self.deltas.get_or_init(|| self.view.sparse_differences())
    }

    /// Bytes that a product reads for a row.
    fn row_bytes(&self) -> usize {
        let v = &self.view;
        usize::from(v.width) * 8 * v.words() + v.lut_bytes()
    }

    /// Some rows times some tokens, `[row][token]`.
    fn multiply(
        &self,
        isa: Isa,
        packed: Option<&PackedRows<'_>>,
        rows: &Range<usize>,
        (form, acts): (Arrangement, &[u8]),
        x: &[f32],
        out: &mut [f32],
    ) {
        let tokens = out.len() / rows.len();
        match packed {
            Some(packed) => packed::multiply(isa, &packed.part(rows), form, acts, tokens, out),
            None => self.multiply_planes(isa, rows, form, acts, out),
        }
        self.add_sparse(isa, rows, x, out);
    }

    fn multiply_planes(&self, isa: Isa, rows: &Range<usize>, form: Arrangement, acts: &[u8], out: &mut [f32]) {
        let v = &self.view;
        let (plane, lut) = (8 * v.words(), v.lut_bytes());
        let mut planes = [&[][..]; trine_formats::anyprec::MAX_BITS as usize];
        for (part, all) in planes.iter_mut().zip(&v.planes) {
            *part = &all[rows.start * plane..rows.end * plane];
        }
        let part = PlaneRows {
            columns: v.columns,
            groups: v.groups,
            planes: &planes[..v.planes.len()],
            lut: &v.lut[rows.start * lut..rows.end * lut],
        };
        multiply(isa, &part, form, acts, out.len() / rows.len(), out);
    }

    /// The weights of some rows that are stored as they are.
    fn add_sparse(&self, isa: Isa, rows: &Range<usize>, x: &[f32], out: &mut [f32]) {
        let (v, tokens) = (&self.view, out.len() / rows.len());
        let Some(sparse) = &v.sparse else {
            return;
        };
        let deltas = self.deltas();
        let ends = &sparse.ptr[4 * rows.start..4 * (rows.end + 1)];
        let ends = ends.as_chunks().0.iter().map(|&p| i32::from_le_bytes(p) as usize);
        // the rows of a part of a matrix are not the first that the deltas are of
        let first = sparse.ptr().next().map_or(0, |p| p as usize);
        for ((start, end), out) in ends.clone().zip(ends.skip(1)).zip(out.chunks_exact_mut(tokens)) {
            let entries =
                Entries { columns: &sparse.col[4 * start..4 * end], deltas: &deltas[start - first..end - first] };
            sparse::add(isa, &entries, x, v.columns, out);
        }
    }
}

/// A product to compute.
pub struct BitplaneProduct<'a> {
    /// The weights.
    pub w: &'a BitplaneMatrix,
    /// The width to use, one of the matrix's.
    pub width: u8,
    /// Arrangement of `acts`: the matrix's for the number of tokens.
    pub form: Arrangement,
    /// Activation rows in that form.
    pub acts: &'a [u8],
    /// The activations themselves, `[tokens][columns]`.
    pub x: &'a [f32],
    /// `[tokens][rows]`.
    pub out: &'a mut [f32],
}

/// A task: some rows of a job's matrix times some of its tokens.
struct Task {
    job: usize,
    rows: Range<usize>,
    tokens: Range<usize>,
}

thread_local! {
    static TILE: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// Computes all jobs over the same `tokens`, in one region of the current pool.
///
/// # Panics
/// When lengths do not fit, or a matrix does not have the width.
pub fn multiply_all(isa: Isa, jobs: &mut [BitplaneProduct<'_>], tokens: usize) {
    let mut tasks = Vec::new();
    let mut parts = Vec::with_capacity(jobs.len());
    for (i, job) in jobs.iter_mut().enumerate() {
        let w = job.w.at(job.width);
        let (columns, rows) = (w.view.columns, w.view.rows);
        let act_bytes = job.form.act_bytes(columns);
        assert_eq!(job.out.len(), tokens * rows, "output size");
        assert_eq!(job.acts.len(), tokens * act_bytes, "activation size");
        assert_eq!(job.x.len(), tokens * columns, "activation size");
        split(i, w, act_bytes, tokens, &mut tasks);
        // now rather than in all threads at once, and while the planes are at hand
        w.deltas();
        let packed = job.w.packed_rows(isa, job.width);
        let acts = (job.form, job.acts);
        parts.push((w, packed, acts, job.x, Parts::new(&mut *job.out)));
    }
    pool::for_each(tasks.len(), |i| {
        let Task { job, rows, tokens } = &tasks[i];
        let (w, packed, (form, acts), x, out) = &parts[*job];
        let (columns, all) = (w.view.columns, w.view.rows);
        let act_bytes = form.act_bytes(columns);
        let acts = &acts[tokens.start * act_bytes..tokens.end * act_bytes];
        let x = &x[tokens.start * columns..tokens.end * columns];
        TILE.with_borrow_mut(|tile| {
            tile.resize(rows.len() * tokens.len(), 0.0);
            w.multiply(isa, packed.as_ref(), rows, (*form, acts), x, tile);
            for (i, t) in tokens.clone().enumerate() {
                // SAFETY: tasks of a job differ in their rows or their tokens.
                let out = unsafe { out.part(t * all + rows.start..t * all + rows.end) };
                for (out, row) in out.iter_mut().zip(tile.chunks_exact(tokens.len())) {
                    *out = row[i];
                }
            }
        });
    });
}

fn split(job: usize, w: &AtWidth, act_bytes: usize, tokens: usize, tasks: &mut Vec<Task>) {
    let rows = w.view.rows;
    if rows == 0 || tokens == 0 {
        return;
    }
    let at_once = (ACTIVATIONS / act_bytes).clamp(8, 128).min(tokens);
    let worthwhile = WORK.div_ceil(w.view.columns * at_once);
    // never more than leaves every thread a task
    let fair = rows.div_ceil(pool::threads() * 2);
    let stream = if tokens == 1 { STREAM } else { 0 };
    let step = worthwhile.max(stream.div_ceil(w.row_bytes()).min(fair));
    let step = step.next_multiple_of(packed::PAIR);
    for t in (0..tokens).step_by(at_once) {
        for r in (0..rows).step_by(step) {
            tasks.push(Task { job, rows: r..rows.min(r + step), tokens: t..tokens.min(t + at_once) });
        }
    }
}
