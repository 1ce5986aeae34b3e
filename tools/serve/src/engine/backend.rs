//! Evaluation of the tokens of sequences: the engine, or in tests something that watches it.

use trine::step::{PagePool, Segment, Sequence, Setting, Sink, StepError, StepOptions};
use trine::{CancelToken, Engine, Model};

use super::options::Options;

/// Evaluates the tokens of sequences.
pub(super) trait Backend {
    /// The engine that it evaluates with.
    fn steps(&self) -> &Steps;

    /// The pages of all sequences.
    fn pages(&self) -> &PagePool {
        self.steps().engine.pages()
    }

    /// [`Engine::step_into`] with a setting.
    fn step(&self, setting: &Setting, segments: &mut [Segment<'_>], sink: &mut dyn Sink) -> Result<(), StepError>;

    /// [`Engine::read_source`] with a setting, until it is cancelled.
    fn read_source(
        &self,
        setting: &Setting,
        seq: &mut Sequence,
        tokens: &[u32],
        cancel: &CancelToken,
    ) -> Result<(), StepError> {
        let steps = self.steps();
        let options = StepOptions { cancel: Some(cancel.clone()), ..steps.options(setting) };
        steps.engine.read_source(seq, tokens, &options)
    }
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

    /// The options of a step with a setting.
    fn options(&self, setting: &Setting) -> StepOptions {
        let adapters = setting.adapters.clone();
        StepOptions { bits: setting.width(), adapters, n_ctx: self.n_ctx, ..StepOptions::default() }
    }
}

impl Backend for Steps {
    fn steps(&self) -> &Steps {
        self
    }

    fn step(&self, setting: &Setting, segments: &mut [Segment<'_>], sink: &mut dyn Sink) -> Result<(), StepError> {
        let mut options = self.options(setting);
        if self.engine.model().attends_both_ways() {
            options.n_ubatch = segments.iter().map(|s| s.tokens.len()).sum();
        }
        self.engine.step_into(segments, &options, sink)
    }
}
