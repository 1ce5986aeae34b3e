//! Packed matrices and the products of several of them in one region of the pool.

use std::io;
use std::ops::Range;

use rayon::prelude::*;
use trine_formats::gguf::Blob;

use super::prefetch;
use super::probe::{Piece, Probed};
use crate::kernels::packed::{Arena, Packing, multiply_groups};
use crate::kernels::{AlignedBytes, Floats};
use crate::pool::{self, Parts};

/// Tokens that one task runs over a group of rows: their arranged rows stay in the second-level cache
/// while the groups pass by, and a group is unpacked often enough for that to cost nothing.
const TOKENS: usize = 256;
/// Packed bytes that one task reads at least when there is one token: the hardware's prefetcher needs
/// long runs. Two threads read 31 GB/s in turns of 96 KB and 47 in turns of 1 MB.
const STREAM: usize = 1 << 20;
/// Tokens from which on the outputs of a task are gathered before they are stored.
const MANY: usize = 64;
/// Rows of such a task, outputs of a token that are stored one after the other: each row of outputs is on a page of its
/// own.
const RUN: usize = 128;
/// Multiplications a task has at least, or handing it out costs more than it saves.
const WORK: usize = 200_000;

/// A matrix in a packed layout.
#[derive(Clone)]
pub struct PackedMatrix {
    layout: Packing,
    cols: usize,
    rows: usize,
    group_bytes: usize,
    data: Blob,
}

impl PackedMatrix {
    /// Packs `rows` file rows `w` of `cols` weights into `arena`, on all threads of the current rayon pool;
    /// `None` when the layout cannot hold these weights.
    ///
    /// # Errors
    /// The system has no memory.
    pub fn pack(
        layout: Packing,
        cols: usize,
        rows: usize,
        w: &[u8],
        arena: &mut Arena,
    ) -> io::Result<Option<PackedMatrix>> {
        let group_bytes = (layout.group_bytes)(cols);
        let groups = rows.div_ceil(layout.rows);
        let source = w.len().checked_div(rows).unwrap_or(0) * layout.rows;
        let data = arena.region(groups * group_bytes, |out| {
            out.par_chunks_mut(group_bytes.max(1))
                .zip(w.par_chunks(source.max(1)))
                .all(|(group, w)| layout.pack(w, cols, group))
        })?;
        Ok(data.map(|data| PackedMatrix { layout, cols, rows, group_bytes, data }))
    }

    /// The layout.
    pub fn layout(&self) -> Packing {
        self.layout
    }

    /// Weights of a row.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Bytes of some groups.
    fn groups(&self, groups: Range<usize>) -> &[u8] {
        &self.data[groups.start * self.group_bytes..groups.end * self.group_bytes]
    }

    /// All bytes.
    pub(super) fn data(&self) -> &[u8] {
        &self.data
    }

    /// The groups in at most so many shares of the same size.
    pub(super) fn shares(&self, most: usize) -> Vec<Range<usize>> {
        let groups = self.rows.div_ceil(self.layout.rows);
        let step = groups.div_ceil(most.max(1)).max(1);
        (0..groups).step_by(step).map(|first| first..groups.min(first + step)).collect()
    }

    /// Computes the products of some groups and an arranged activation row, and forgets them.
    pub(super) fn multiply_only(&self, groups: Range<usize>, act: &[u8], ahead: usize) {
        multiply_groups(self.layout, self.groups(groups), act, self.cols, 1, ahead, |_, _, _| {});
    }

    /// The products of some groups and rows of arranged activations, of as many tokens as there is room for:
    /// `values[token][row]`, the rows that there are.
    pub fn multiply_groups(&self, groups: Range<usize>, acts: &[u8], values: &mut [f32]) {
        let lanes = self.layout.rows;
        let width = self.rows.min(groups.end * lanes) - groups.start * lanes;
        let (tokens, ahead) = (values.len() / width, prefetch::ahead(self.layout.name));
        multiply_groups(self.layout, self.groups(groups), acts, self.cols, tokens, ahead, |g, t, tile| {
            let rows = values.chunks_exact_mut(width).skip(t);
            for (row, given) in rows.zip(tile.chunks_exact(lanes)) {
                let row = &mut row[g * lanes..];
                let len = row.len().min(lanes);
                row[..len].copy_from_slice(&given[..len]);
            }
        });
    }
}

impl Probed for PackedMatrix {
    fn name(&self) -> Option<&'static str> {
        Some(self.layout.name)
    }

    fn bytes(&self) -> usize {
        self.data.len()
    }

    fn pieces(&self, bytes: usize) -> Box<dyn Iterator<Item = Piece<'_>> + '_> {
        let groups = bytes.div_ceil(self.group_bytes.max(1));
        let all = self.data.len() / self.group_bytes.max(1);
        let pieces = (0..all / groups.max(1)).map(move |i| i * groups..(i + 1) * groups);
        Box::new(pieces.map(move |piece| {
            let act = AlignedBytes::new((self.layout.act_bytes)(self.cols));
            Piece {
                bytes: piece.len() * self.group_bytes,
                multiply: Box::new(move |ahead| self.multiply_only(piece, &act, ahead)),
            }
        }))
    }
}

/// A product to compute.
pub struct PackedProduct<'a> {
    /// The weights.
    pub w: &'a PackedMatrix,
    /// Arranged activation rows of the matrix's layout.
    pub acts: &'a [u8],
    /// Factor on every output, rounded by itself.
    pub scale: Option<f32>,
    /// `[tokens][rows]`.
    pub out: &'a mut [f32],
}

/// A task: some groups of a job's matrix times some of its tokens.
struct Task {
    job: usize,
    groups: Range<usize>,
    tokens: Range<usize>,
}

/// Computes all jobs over the same `tokens`, in one region of the current pool.
///
/// # Panics
/// When lengths do not fit.
pub fn multiply_all(jobs: &mut [PackedProduct<'_>], tokens: usize) {
    let mut tasks = Vec::new();
    for (job, j) in jobs.iter().enumerate() {
        assert_eq!(j.out.len(), tokens * j.w.rows, "output size");
        assert_eq!(j.acts.len(), tokens * (j.w.layout.act_bytes)(j.w.cols), "activation size");
        split(job, j.w, tokens, &mut tasks);
    }
    let outs: Vec<_> = jobs
        .iter_mut()
        .map(|j| {
            let ahead = prefetch::ahead(j.w.layout.name);
            (j.w, j.acts, j.scale, ahead, Parts::new(&mut *j.out))
        })
        .collect();
    pool::for_each(tasks.len(), |i| {
        let Task { job, groups, tokens } = &tasks[i];
        let (w, acts, scale, ahead, out) = &outs[*job];
        let (lanes, act_bytes) = (w.layout.rows, (w.layout.act_bytes)(w.cols));
        let acts = &acts[tokens.start * act_bytes..tokens.end * act_bytes];
        let rows = groups.start * lanes..w.rows.min(groups.end * lanes);
        if groups.len() > 1 && tokens.len() > 1 {
            let mut values = Floats::scratch(tokens.len() * rows.len());
            w.multiply_groups(groups.clone(), acts, &mut values);
            for (t, values) in tokens.clone().zip(values.chunks_exact(rows.len())) {
                let at = t * w.rows;
                // SAFETY: tasks of a job differ in their groups or their tokens, and each visits a token once.
                let out = unsafe { out.part(at + rows.start..at + rows.end) };
                match scale {
                    Some(s) => out.iter_mut().zip(values).for_each(|(o, v)| *o = v * s),
                    None => out.copy_from_slice(values),
                }
            }
            return;
        }
        multiply_groups(w.layout, w.groups(groups.clone()), acts, w.cols, tokens.len(), *ahead, |g, first, tile| {
            let row = rows.start + g * lanes;
            let end = rows.end.min(row + lanes);
            for (t, tile) in (tokens.start + first..).zip(tile.chunks_exact(lanes)) {
                let at = t * w.rows;
                // SAFETY: tasks of a job differ in their groups or their tokens, and each visits a
                // pair of group and token once.
                let out = unsafe { out.part(at + row..at + end) };
                match scale {
                    Some(s) => out.iter_mut().zip(tile).for_each(|(o, v)| *o = v * s),
                    None if out.len() == lanes => {
                        // Lines of a size that the type knows, or each would be a call of memcpy.
                        let lines = out.as_chunks_mut::<16>().0.iter_mut();
                        lines.zip(tile.as_chunks().0).for_each(|(o, v)| *o = *v);
                    }
                    None => out.copy_from_slice(&tile[..out.len()]),
                }
            }
        });
    });
}

fn split(job: usize, w: &PackedMatrix, tokens: usize, tasks: &mut Vec<Task>) {
    let groups = w.rows.div_ceil(w.layout.rows);
    if groups == 0 || tokens == 0 {
        return;
    }
    let per_group = w.layout.rows * w.cols * tokens.min(TOKENS);
    let worthwhile = WORK.div_ceil(per_group.max(1));
    let sequential = STREAM.div_ceil(w.group_bytes.max(1));
    // Never more than leaves every thread a task.
    let fair = groups.div_ceil(pool::threads() * 2);
    let preferred = match tokens {
        1 => sequential.min(fair),
        MANY.. => (RUN / w.layout.rows).min(fair / 2).max(1),
        _ => 1,
    };
    let step = worthwhile.max(preferred);
    for t in (0..tokens).step_by(TOKENS) {
        for g in (0..groups).step_by(step) {
            tasks.push(Task { job, groups: g..groups.min(g + step), tokens: t..tokens.min(t + TOKENS) });
        }
    }
}
