//! Hearers of what a head computes.

use crate::step::Sink;

/// The last of some rows of a head.
#[derive(Default)]
pub(super) struct Last {
    pub logits: Vec<f32>,
    pub state: Vec<f32>,
}

/// Hears nothing.
pub(super) struct Nothing;

impl Sink for Nothing {
    fn wants_hidden(&self, _: usize) -> bool {
        false
    }

    fn logits(&mut self, _: usize, _: usize, _: &[f32]) {}

    fn hidden(&mut self, _: usize, _: usize, _: &[f32]) {}
}

impl Sink for Last {
    fn wants_hidden(&self, _: usize) -> bool {
        false
    }

    fn hears_hidden(&self, _: usize) -> bool {
        true
    }

    fn logits(&mut self, _: usize, _: usize, logits: &[f32]) {
        self.logits = logits.to_vec();
    }

    fn hidden(&mut self, _: usize, _: usize, state: &[f32]) {
        self.state = state.to_vec();
    }
}
