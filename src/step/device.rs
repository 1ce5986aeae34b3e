//! The part of a pass that a GPU runs.

use std::sync::{Arc, Mutex, MutexGuard};

use trine_cuda::program::Limits;
use trine_cuda::run::{Input, Part};

use crate::exec::{Offloaded, Start};
use crate::kv::{self, PagePool};
use crate::model::Model;

/// Rows of logits that are computed together, as on the processor.
const LOGITS_AT_ONCE: usize = 32;
/// The most rows of a pass: what is computed for them at the same time takes memory beside the weights.
const MOST_ROWS: usize = 2048;

/// The GPU part of an engine: keys and values in the engine's pages, and memory for passes. It is allocated at its
/// first use.
#[derive(Clone, Default)]
pub(super) struct OnDevice(Arc<Mutex<Option<Offloaded>>>);

/// The GPU of an engine while a step uses it.
pub(super) struct Running<'a>(MutexGuard<'a, Option<Offloaded>>);

/// A pass behind the blocks that the processor runs.
pub(super) struct Behind<'a> {
    pub tokens: &'a [u32],
    /// Residual stream behind those blocks, `[tokens][n_embd]`.
    pub rows: &'a [f32],
    pub n_ctx: usize,
}

impl OnDevice {
    /// The GPU of the engine of `model` and `pages`, with memory for passes of `rows` rows; `None` where nothing is
    /// offloaded.
    ///
    /// # Errors
    /// More memory than the GPU has, and what it says. One line.
    pub fn running(&self, model: &Model, pages: &PagePool, rows: usize) -> Result<Option<Running<'_>>, String> {
        let mut state = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if state.is_none() {
            let page = pages.layout().positions;
            let limits = Limits {
                tokens: rows.clamp(1, MOST_ROWS),
                wanted: LOGITS_AT_ONCE,
                context: pages.budget().saturating_mul(page),
                page,
                pages: pages.budget(),
            };
            *state = model.start(limits).transpose()?;
        }
        Ok(state.is_some().then_some(Running(state)))
    }
}

impl Running<'_> {
    fn offloaded(&mut self) -> &mut Offloaded {
        self.0.as_mut().expect("it was started")
    }

    /// The most rows of a pass.
    pub fn rows(&mut self) -> usize {
        self.offloaded().passes.limits().tokens
    }

    /// Runs the model's last blocks over the rows of `parts`. Keys and values are left in the pages of the sequences.
    ///
    /// # Errors
    /// The device's message, in one line.
    pub fn pass(&mut self, model: &Model, behind: &Behind<'_>, parts: &[kv::SequenceRows<'_>]) -> Result<(), String> {
        let Offloaded { passes, start, ropes } = self.offloaded();
        for part in parts {
            if let Some((from, to)) = part.seq.copied_page() {
                passes.copy_page(from, to).map_err(|e| e.to_string())?;
            }
        }
        let pages: Vec<Vec<u32>> = parts.iter().map(|p| p.seq.page_numbers()).collect();
        let pairs = parts.iter().zip(&pages);
        let parts: Vec<Part<'_>> =
            pairs.map(|(part, pages)| Part { pages, first: part.first(), tokens: part.rows.len() }).collect();
        let input = match start {
            Start::Tokens => Input::Tokens(behind.tokens),
            Start::Rows => Input::Rows(behind.rows),
        };
        let angles = |kind: usize, position: usize| match ropes.of(kind) {
            Some(kind) => model.angles(kind, behind.n_ctx, position),
            None => Vec::new(),
        };
        let done = passes.pass(input, &parts, &angles);
        done.map_err(|e| e.to_string())
    }

    /// Calls `sink` with the number and the logits of each row in `rows` of the last pass, in order.
    ///
    /// # Errors
    /// The device's message, in one line.
    pub fn logits(&mut self, model: &Model, rows: &[usize], sink: &mut dyn FnMut(usize, &[f32])) -> Result<(), String> {
        for (block, rows) in rows.chunks(LOGITS_AT_ONCE).enumerate() {
            let logits = self.offloaded().passes.logits(rows);
            let mut logits = logits.map_err(|e| e.to_string())?;
            model.bound(&mut logits);
            let each = logits.chunks_exact(logits.len() / rows.len());
            for (i, row) in each.enumerate() {
                sink(block * LOGITS_AT_ONCE + i, row);
            }
        }
        Ok(())
    }

    /// The rows that the last pass has left, which the logits are made of.
    ///
    /// # Errors
    /// The device's message, in one line.
    pub fn stream(&mut self) -> Result<Vec<f32>, String> {
        self.offloaded().passes.stream().map_err(|e| e.to_string())
    }
}
