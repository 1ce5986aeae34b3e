//! Who hears what a step computes.

/// Hears what a step computes of the positions that are wanted.
pub trait Sink: Send {
    /// True if the hidden states of a segment are needed instead of its logits. Its rows are then not multiplied by the
    /// output matrix.
    fn wants_hidden(&self, segment: usize) -> bool;

    /// True if the hidden states of all tokens of a segment are needed beside the logits that are wanted. Of a model that
    /// was loaded with a drafter these are the inputs of blocks that it reads, side by side.
    fn hears_hidden(&self, _segment: usize) -> bool {
        false
    }

    /// The logits after the token `index` of a segment.
    fn logits(&mut self, segment: usize, index: usize, logits: &[f32]);

    /// The hidden state of the token `index` of a segment: the numbers that logits are made of, behind the last norm.
    fn hidden(&mut self, segment: usize, index: usize, state: &[f32]);
}

/// A function that hears the logits of all segments.
pub(super) struct Logits<'a>(pub &'a mut (dyn FnMut(usize, usize, &[f32]) + Send));

impl Sink for Logits<'_> {
    fn wants_hidden(&self, _: usize) -> bool {
        false
    }

    fn logits(&mut self, segment: usize, index: usize, logits: &[f32]) {
        (self.0)(segment, index, logits);
    }

    fn hidden(&mut self, _: usize, _: usize, _: &[f32]) {}
}
