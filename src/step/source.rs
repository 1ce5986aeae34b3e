//! Texts that an encoder reads, for sequences to attend to.

use std::sync::Arc;

use super::engine::{Engine, Segment, StepError, StepOptions};
use super::sink::Sink;
use crate::kv::{PagePool, Sequence, Source};

/// The keys and values of an encoder's text, position by position.
struct Rows(Vec<f32>);

impl Sink for Rows {
    fn wants_hidden(&self, _: usize) -> bool {
        true
    }

    fn logits(&mut self, _: usize, _: usize, _: &[f32]) {}

    fn hidden(&mut self, _: usize, _: usize, row: &[f32]) {
        self.0.extend_from_slice(row);
    }
}

impl Engine {
    /// The model's encoder reads `tokens`: from now on `seq`, which becomes empty, attends to them beside its own
    /// positions. They go through the encoder in one pass, of as many rows as there are tokens.
    ///
    /// # Errors
    /// A model without an encoder; no tokens, or some that it does not have; the step was cancelled. The sequence is as it
    /// was then.
    pub fn read_source(&self, seq: &mut Sequence, tokens: &[u32], options: &StepOptions) -> Result<(), StepError> {
        let encoder = self.model().encoder().ok_or(StepError::NoEncoder)?;
        if tokens.is_empty() {
            return Err(StepError::NoSource);
        }
        let layout = encoder.page_layout();
        let pages = tokens.len().div_ceil(layout.positions);
        let engine = Engine::with_pages(encoder, self.pool(), PagePool::new(layout, pages));
        let options = StepOptions { n_ubatch: tokens.len(), profile: None, ..options.clone() };
        let mut read = engine.sequence();
        let segment = Segment { seq: &mut read, tokens, logits_from: 0 };
        let mut rows = Rows(Vec::new());
        engine.step_into(&mut [segment], &options, &mut rows)?;
        seq.set_source(Some(Arc::new(Source::new(&rows.0, &self.model().source_widths()))));
        Ok(())
    }
}
