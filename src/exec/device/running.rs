//! The part of a pass that a GPU runs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use trine_cuda::run::{Input, Part};

use super::offload::{DeviceError, Limits, Offloaded, Start};
use crate::exec::behind::Behind;
use crate::kv::{PagePool, SequenceRows};

/// Rows of logits that are computed together, as on the processor.
const LOGITS_AT_ONCE: usize = 32;
/// The most rows of a pass: what is computed for them at the same time takes memory beside the weights.
const MOST_ROWS: usize = 2048;

/// The GPU part of an engine: keys and values in the engine's pages, and memory for passes. It is allocated at its
/// first use.
#[derive(Clone, Default)]
pub struct OnDevice(Arc<Mutex<Option<Offloaded>>>);

/// The GPU of an engine while a step uses it.
pub struct Running<'a>(MutexGuard<'a, Option<Offloaded>>);

impl OnDevice {
    /// The GPU of an engine with `pages`, with memory for passes of `rows` rows; `None` where `start` says that it runs
    /// nothing.
    ///
    /// # Errors
    /// More memory than the GPU has, and what it says.
    pub fn running(
        &self,
        pages: &PagePool,
        rows: usize,
        start: impl FnOnce(Limits) -> Option<Result<Offloaded, DeviceError>>,
    ) -> Result<Option<Running<'_>>, DeviceError> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_none() {
            let page = pages.layout().positions;
            let limits = Limits {
                tokens: rows.clamp(1, MOST_ROWS),
                wanted: LOGITS_AT_ONCE,
                context: pages.budget().saturating_mul(page),
                page,
                pages: pages.budget(),
            };
            *state = start(limits).transpose()?;
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
    /// The device's error.
    pub fn pass(&mut self, behind: &Behind<'_>, parts: &[SequenceRows<'_>]) -> Result<(), DeviceError> {
        let Offloaded { passes, start, ropes } = self.offloaded();
        for part in parts {
            if let Some((from, to)) = part.seq.copied_page() {
                passes.copy_page(from, to)?;
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
        let angles = |kind: usize, position: usize| ropes.at(kind, position, behind.angles);
        Ok(passes.pass(input, &parts, behind.bits, &angles)?)
    }

    /// Calls `sink` with the number and the logits of each row in `rows` of the last pass, in order.
    ///
    /// # Errors
    /// The device's error.
    pub fn logits(&mut self, rows: &[usize], sink: &mut dyn FnMut(usize, &mut [f32])) -> Result<(), DeviceError> {
        for (block, rows) in rows.chunks(LOGITS_AT_ONCE).enumerate() {
            let mut logits = self.offloaded().passes.logits(rows)?;
            let columns = logits.len() / rows.len();
            for (i, row) in logits.chunks_exact_mut(columns).enumerate() {
                sink(block * LOGITS_AT_ONCE + i, row);
            }
        }
        Ok(())
    }

    /// The rows that the last pass has left, which the logits are made of.
    ///
    /// # Errors
    /// The device's error.
    pub fn stream(&mut self) -> Result<Vec<f32>, DeviceError> {
        Ok(self.offloaded().passes.stream()?)
    }
}
