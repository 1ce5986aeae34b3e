//! A projection: a matrix with the scale and the bias that some models have.

use trine_cuda::program::{ProgramError, Span};

use super::lora::LowRank;
use super::recording::{Recording, refuse, stored};
use crate::kernels::Floats;
use crate::ops;
use crate::ops::matmul::{Activations, Matrix, matmul};

/// `y = W x`, with the per-tensor scale and the bias some models have.
pub struct Linear {
    /// The weight's name in the file; the later parts of a fused one have none, to be observed once.
    pub(super) tensor: Option<String>,
    pub(super) weight: Matrix,
    pub(super) scale: Option<f32>,
    pub(super) bias: Option<Vec<f32>>,
    /// What adapters add to the product.
    pub(super) low_rank: Vec<LowRank>,
}

impl Linear {
    /// `(W x) * scale + bias` for every row of `x`; what adapters add comes before the bias.
    pub fn apply(&self, x: &Activations<'_>) -> Floats {
        let [y] = Linear::apply_all([self], x);
        y
    }

    /// [`Linear::apply`] of several projections of the same rows.
    pub fn apply_all<const N: usize>(all: [&Linear; N], x: &Activations<'_>) -> [Floats; N] {
        let mut ys = Linear::products(all, x);
        for (l, y) in all.iter().zip(&mut ys) {
            l.multiply_scale(y);
            l.add_low_rank(x, y);
            l.add_bias(y);
        }
        ys
    }

    /// `(W x + bias) * scale`: the order of the feed-forward projections.
    pub fn apply_bias_first(&self, x: &Activations<'_>) -> Floats {
        let [y] = Linear::apply_all_bias_first([self], x);
        y
    }

    /// [`Linear::apply_bias_first`] of several projections of the same rows.
    pub fn apply_all_bias_first<const N: usize>(all: [&Linear; N], x: &Activations<'_>) -> [Floats; N] {
        let mut ys = Linear::products(all, x);
        for (l, y) in all.iter().zip(&mut ys) {
            l.add_low_rank(x, y);
            l.add_bias(y);
            l.multiply_scale(y);
        }
        ys
    }

    /// The matrix, where nothing is done to its product.
    pub(super) fn bare(&self) -> Option<&Matrix> {
        let bare = self.scale.is_none() && self.bias.is_none() && self.low_rank.is_empty();
        bare.then_some(&self.weight)
    }

    /// Records [`Linear::apply`].
    pub fn record<'a>(&'a self, x: Span, gpu: &mut Recording<'a>) -> Result<Span, ProgramError> {
        let y = self.record_product(x, gpu)?;
        self.record_scale(y, gpu);
        self.record_bias(y, gpu)?;
        Ok(y)
    }

    /// Records [`Linear::apply_bias_first`].
    pub fn record_bias_first<'a>(&'a self, x: Span, gpu: &mut Recording<'a>) -> Result<Span, ProgramError> {
        let y = self.record_product(x, gpu)?;
        self.record_bias(y, gpu)?;
        self.record_scale(y, gpu);
        Ok(y)
    }

    fn record_product<'a>(&'a self, x: Span, gpu: &mut Recording<'a>) -> Result<Span, ProgramError> {
        let Linear { tensor, weight, scale: _, bias: _, low_rank } = self;
        refuse(&[(!low_rank.is_empty(), "adapters")])?;
        // Only the later parts of a fused matrix have no name of their own.
        let name = tensor.as_deref().unwrap_or("a part of a fused matrix");
        gpu.recorder.product(stored(name, weight)?, x)
    }

    fn record_scale(&self, y: Span, gpu: &mut Recording<'_>) {
        if let Some(s) = self.scale {
            gpu.recorder.scale(y, s);
        }
    }

    fn record_bias<'a>(&'a self, y: Span, gpu: &mut Recording<'a>) -> Result<(), ProgramError> {
        match &self.bias {
            Some(b) => gpu.recorder.add_row(y, b),
            None => Ok(()),
        }
    }

    fn products<const N: usize>(all: [&Linear; N], x: &Activations<'_>) -> [Floats; N] {
        let tensors = all.iter().filter_map(|l| l.tensor.as_deref());
        tensors.for_each(|tensor| x.observe(tensor));
        matmul(all.map(|l| &l.weight), x)
    }

    fn multiply_scale(&self, y: &mut [f32]) {
        if let Some(s) = self.scale {
            ops::scale(y, s);
        }
    }

    fn add_low_rank(&self, x: &Activations<'_>, y: &mut [f32]) {
        for low_rank in &self.low_rank {
            low_rank.add(x, y);
        }
    }

    fn add_bias(&self, y: &mut [f32]) {
        if let Some(b) = &self.bias {
            ops::add_rows(y, b);
        }
    }
}
