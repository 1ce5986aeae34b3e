//! Evaluates the texts of tasks, as many tasks at a time as their context has room for.

use std::ops::Range;

use super::TaskError;
use super::branches::{Branches, RowOf};
use super::log_prob::Row;
use crate::cancel::CancelToken;
use crate::kv::PagePool;
use crate::model::Weights;
use crate::pool::Pool;
use crate::step::{Engine, Segment, Sequence, StepOptions};
use crate::tokenizer::Tokenizer;

/// The model to measure.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The weights.
    pub weights: &'a Weights,
    /// Makes tokens of texts.
    pub tokenizer: &'a Tokenizer,
    /// The threads.
    pub pool: &'a Pool,
}

/// How texts are evaluated.
#[derive(Clone, Debug)]
pub struct TaskOptions {
    /// Cells of the context that the texts of a batch share: llama-perplexity's `-c` times its `-np`.
    pub n_ctx: usize,
    /// Texts that may stand in it together, `-np`.
    pub parallel: usize,
    /// Tokens that go through the model at once; the results are bit-identical.
    pub n_ubatch: usize,
    /// Bits of an any-precision model; `None` for its widest.
    pub bits: Option<u8>,
    /// Ends the run between two layers.
    pub cancel: Option<CancelToken>,
}

/// Hears the number of a task and the logarithms of its choices.
pub type Observe<'a> = &'a mut dyn FnMut(usize, &[f32]) -> Result<(), TaskError>;

/// Where the texts of a batch stand, which decides how sums over cells are grouped, and so the last digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cells {
    /// One behind the other in a context that they share, as in the reference program.
    Shared,
    /// Each from the first cell on, as if it were alone.
    Own,
}

/// Evaluates all tasks; `observe` hears the number of each and its logarithms, in the order they are wanted. At most
/// `texts` texts stand in the context together.
///
/// # Errors
/// A task that has no room, told before anything is computed; what the model says; what `observe` says.
pub fn run(
    subject: Subject<'_>,
    options: &TaskOptions,
    texts: usize,
    cells: Cells,
    tasks: &[Branches],
    observe: Observe<'_>,
) -> Result<(), TaskError> {
    if let Some(bits) = options.bits {
        subject.weights.check_width(bits)?;
    }
    let batches = batches(tasks, options, texts)?;
    let layout = subject.weights.page_layout();
    let needed = batches.iter().map(|batch| {
        let pages = |tokens: usize| tokens.div_ceil(layout.positions) + 1;
        let of_task = |task: &Branches| {
            let texts = task.texts.iter().map(|text| pages(text.len()));
            pages(task.shared) + texts.sum::<usize>()
        };
        tasks[batch.clone()].iter().map(of_task).sum::<usize>()
    });
    let needed = needed.max().unwrap_or(1);
    let pages = PagePool::new(layout, needed);
    let engine = Engine::with_pages(subject.weights, subject.pool, pages);
    let step = StepOptions {
        bits: options.bits,
        n_ctx: match cells {
            Cells::Shared => options.n_ctx,
            Cells::Own => options.n_ctx / options.parallel.max(1),
        },
        n_ubatch: options.n_ubatch,
        cancel: options.cancel.clone(),
        ..StepOptions::default()
    };
    for batch in batches {
        let results = evaluate(&engine, &step, cells, &tasks[batch.clone()])?;
        for (task, results) in batch.zip(&results) {
            observe(task, results)?;
        }
    }
    Ok(())
}

/// Tasks that stand in the context together: as many as follow each other and have room.
pub(super) fn batches(tasks: &[Branches], options: &TaskOptions, texts: usize) -> Result<Vec<Range<usize>>, TaskError> {
    let mut batches: Vec<Range<usize>> = Vec::new();
    let (mut cells, mut used) = (usize::MAX, usize::MAX);
    for (i, task) in tasks.iter().enumerate() {
        let place = || task.place.clone();
        if task.texts.len() > texts {
            return Err(TaskError::TooManyChoices { place: place(), choices: task.texts.len() });
        }
        if task.cells() > options.n_ctx {
            return Err(TaskError::TooLong {
                place: place(),
                needed: task.cells(),
                n_ctx: options.n_ctx,
                parallel: options.parallel,
            });
        }
        let (more_cells, more_texts) = (cells.saturating_add(task.cells()), used.saturating_add(task.texts.len()));
        match batches.last_mut() {
            Some(batch) if more_cells <= options.n_ctx && more_texts <= texts => {
                batch.end = i + 1;
                (cells, used) = (more_cells, more_texts);
            }
            _ => {
                batches.push(i..i + 1);
                (cells, used) = (task.cells(), task.texts.len());
            }
        }
    }
    Ok(batches)
}

/// The wanted logarithms of each task of a batch.
fn evaluate(engine: &Engine, step: &StepOptions, cells: Cells, tasks: &[Branches]) -> Result<Vec<Vec<f32>>, TaskError> {
    let mut results: Vec<Vec<f32>> = tasks.iter().map(|t| vec![0.0; t.wanted.len()]).collect();
    let mut broken = None;
    let mut take = |task: usize, row: RowOf, logits: &[f32]| {
        let wanted = tasks[task].wanted.iter().zip(&mut results[task]);
        let mut wanted = wanted.filter(|(w, _)| w.row == row).peekable();
        if wanted.peek().is_some() && !logits.iter().all(|l| l.is_finite()) {
            broken.get_or_insert(task);
            return;
        }
        let logits = Row::new(logits);
        wanted.for_each(|(w, result)| *result = logits.log_prob(w.token, w.score));
    };

    // What the texts of a task share, one sequence for each task.
    let mut cell = 0;
    let mut stems: Vec<Sequence> = Vec::with_capacity(tasks.len());
    for task in tasks {
        let mut stem = engine.sequence();
        if cells == Cells::Shared {
            stem.continue_at_cell(cell);
        }
        cell += task.cells();
        stems.push(stem);
    }
    let pairs = stems.iter_mut().zip(tasks);
    let mut segments: Vec<Segment<'_>> = pairs
        .map(|(seq, task)| Segment { seq, tokens: &task.texts[0][..task.shared], logits_from: task.shared - 1 })
        .collect();
    engine.step(&mut segments, step, &mut |task, _, logits| {
        take(task, RowOf::Shared, logits);
    })?;

    // Continuation of each, up to the last row whose logits are needed.
    let mut branches: Vec<(usize, usize, Sequence)> = Vec::new();
    let mut cell = 0;
    for (no, (task, stem)) in tasks.iter().zip(&stems).enumerate() {
        cell += task.shared;
        for (text, tokens) in task.texts.iter().enumerate() {
            let mut branch = stem.fork(task.shared);
            if cells == Cells::Shared {
                branch.continue_at_cell(cell);
            }
            cell += tokens.len() - task.shared;
            branches.push((no, text, branch));
        }
    }
    let mut of_segment: Vec<(usize, usize)> = Vec::new();
    let mut segments: Vec<Segment<'_>> = Vec::new();
    for (no, text, seq) in &mut branches {
        let task = &tasks[*no];
        let rows = task.wanted.iter().filter_map(|w| match w.row {
            RowOf::Text { text: t, position } if t == *text => Some(position + 1),
            _ => None,
        });
        if let Some(end) = rows.max() {
            of_segment.push((*no, *text));
            segments.push(Segment { seq, tokens: &task.texts[*text][task.shared..end], logits_from: 0 });
        }
    }
    engine.step(&mut segments, step, &mut |segment, i, logits| {
        let (task, text) = of_segment[segment];
        let position = tasks[task].shared + i;
        take(task, RowOf::Text { text, position }, logits);
    })?;
    match broken {
        Some(task) => Err(TaskError::NonFinite(tasks[task].place.clone())),
        None => Ok(results),
    }
}
