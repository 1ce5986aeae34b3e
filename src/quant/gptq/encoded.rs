//! Types whose scales an encoder finds: as it does without error feedback, with the diagonal of the Hessian as importance.

use trine_formats::types::grid::{Grid, Step};
use trine_formats::types::{EncodeFn, TypeInfo};

use super::factor::Factor;
use super::rounding::Rounding;

/// Spans are the blocks of the type.
pub struct Encoded<'a> {
    grid: &'static Grid,
    encode: EncodeFn,
    importance: &'a [f32],
    weights: Vec<f32>,
    block: Vec<u8>,
    steps: Vec<Step>,
    codes: Vec<u8>,
}

impl<'a> Encoded<'a> {
    /// Blocks of a type with its encoder.
    pub fn new(
        info: &TypeInfo,
        grid: &'static Grid,
        encode: EncodeFn,
        factor: &'a Factor,
    ) -> Encoded<'a> {
        Encoded {
            grid,
            encode,
            importance: factor.importance(),
            weights: vec![0.0; info.block],
            block: vec![0; info.bytes],
            steps: vec![Step::default(); info.block / grid.group],
            codes: vec![0; info.block],
        }
    }
}

impl Rounding for Encoded<'_> {
    fn span(&self) -> usize {
        self.codes.len()
    }

    fn begin(&mut self, first: usize, weights: &[f64]) {
        for (to, &w) in self.weights.iter_mut().zip(weights) {
            *to = w as f32;
        }
        let importance = &self.importance[first..][..weights.len()];
        (self.encode)(&self.weights, Some(importance), &mut self.block);
        self.grid.steps(&self.block, &mut self.steps);
    }

    fn round(&mut self, i: usize, weight: f64) -> f64 {
        let step = self.steps[i / self.grid.group];
        let code = self.grid.nearest(step, weight);
        self.codes[i] = code;
        self.grid.value(step, code).into()
    }

    fn finish(&mut self, out: &mut [u8]) {
        self.grid.place(&self.codes, &mut self.block);
        out.copy_from_slice(&self.block);
    }
}
