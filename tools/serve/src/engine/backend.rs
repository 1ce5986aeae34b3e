//! Evaluation of the tokens of sequences: the engine, or in tests something that watches it.

use trine::step::{PagePool, Segment, Setting, Sink, StepError, StepOptions};
use trine::{Engine, Model};

use super::options::Options;

/// Evaluates the tokens of sequences.
pub(super) trait Backend {
    /// The pages of all sequences.
    fn pages(&self) -> &PagePool;

    /// [`Engine::step_into`] with a setting.
    fn step(&self, setting: &Setting, segments: &mut [Segment<'_>], sink: &mut dyn Sink) -> Result<(), StepError>;
}

/// The engine, for contexts of one size.
pub(super) struct Steps {
    engine: Engine,
    /// Tokens of a context. Models with two sets of RoPE factors choose by it, so that a text is the one that other
    /// programs write with a context of that size, however long the text is.
    n_ctx: usize,
}

impl Steps {
    /// The engine of a model, by options that were resolved.
    ///
    /// # Errors
    /// A GPU that runs some of the model has no room for it.
    pub fn new(model: &Model, options: &Options) -> Result<Steps, StepError> {
        let layout = model.weights().page_layout();
        let engine = model.engine(options.pages(&layout) * layout.bytes());
        engine.prepare(StepOptions::default().n_ubatch)?;
        Ok(Steps { engine, n_ctx: options.n_ctx() })
    }

    /// Layout of the KV cache in words.
    pub fn form(&self) -> String {
        self.engine.form(self.n_ctx)
    }
}

impl Backend for Steps {
    fn pages(&self) -> &PagePool {
        self.engine.pages()
    }

    fn step(&self, setting: &Setting, segments: &mut [Segment<'_>], sink: &mut dyn Sink) -> Result<(), StepError> {
        let adapters = setting.adapters.clone();
        let mut options = StepOptions { bits: setting.width(), adapters, n_ctx: self.n_ctx, ..StepOptions::default() };
        if self.engine.model().attends_both_ways() {
            options.n_ubatch = segments.iter().map(|s| s.tokens.len()).sum();
        }
        self.engine.step_into(segments, &options, sink)
    }
}
