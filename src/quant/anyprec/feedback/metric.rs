//! The facts about the inputs of weights that error feedback needs.

use crate::kernels::Isa;
use crate::quant::gptq::{Factor, HessianFault, HessianFile, Options};

/// The facts about one input for the weights that read it.
pub struct Metric {
    pub(super) factor: Factor,
    /// `H` with what was added to its diagonal, in panels, rows and columns in the order of the factor.
    pub(super) hessian: Vec<f64>,
}

impl Metric {
    /// Reads the sums of input number `input` and factors them, on the current rayon pool.
    ///
    /// # Errors
    /// Sums that no text can have.
    pub fn read(file: &HessianFile, input: usize, options: &Options, isa: Isa) -> Result<Metric, HessianFault> {
        let (factor, hessian) = Factor::read_with_hessian(file, input, options, isa)?;
        Ok(Metric { factor, hessian })
    }

    #[cfg(test)]
    pub fn new(sums: &[f64], columns: usize, tokens: u64, isa: Isa) -> Metric {
        let factor = Factor::new(sums, columns, tokens, &Options::default(), isa);
        let factor = factor.expect("a positive definite matrix");
        let hessian = factor.hessian(sums, tokens);
        Metric { factor, hessian }
    }

    /// How much the columns matter by themselves.
    pub fn importance(&self) -> &[f32] {
        self.factor.importance()
    }

    /// The share of the mean of the diagonal that was added to it.
    pub fn damp(&self) -> f64 {
        self.factor.damp()
    }
}
