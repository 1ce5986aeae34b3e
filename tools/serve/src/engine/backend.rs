//! What evaluates the tokens of sequences: the engine, or in tests something that only pretends to.

use trine::Engine;
use trine::step::{PagePool, Segment, StepError, StepOptions};

/// What evaluates the tokens of sequences.
pub(super) trait Backend {
    /// The pages of all sequences.
    fn pages(&self) -> &PagePool;

    /// [`Engine::step`] at a width; 0 where the model has one.
    fn step(
        &self,
        bits: u8,
        segments: &mut [Segment<'_>],
        sink: &mut (dyn FnMut(usize, usize, &[f32]) + Send),
    ) -> Result<(), StepError>;
}

impl Backend for Engine {
    fn pages(&self) -> &PagePool {
        self.pages()
    }

    fn step(
        &self,
        bits: u8,
        segments: &mut [Segment<'_>],
        sink: &mut (dyn FnMut(usize, usize, &[f32]) + Send),
    ) -> Result<(), StepError> {
        let options = StepOptions {
            bits: (bits > 0).then_some(bits),
            ..StepOptions::default()
        };
        self.step(segments, &options, sink)
    }
}
