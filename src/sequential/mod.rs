//! Error feedback layer by layer: the inputs of each matrix are measured with all matrices before it rounded already.
//!
//! A [`Walk`] has the model and the text, the [quantizer](crate::quant::gptq) asks it for sums and gives it what it has
//! made of them. In memory are the residual streams of the text, the Hessians of one input, or of one layer's experts, and the
//! matrices of one block.

use std::sync::Arc;

use trine_formats::hessian::Reads;
use trine_formats::types::TypeId;

use crate::eval::hessian::Walk;
use crate::quant::gptq::{Calibration, Measure, Measured, Measurements};

/// The error of a run, whoever it is from.
type Fault = Box<dyn std::error::Error + Send + Sync>;

/// Hessians that are measured on this walk.
pub fn calibration(walk: Walk) -> Calibration {
    let header = walk.header().clone();
    Calibration::Sequential(Arc::new(Measurements::new(header, Box::new(walk))))
}

impl Measure for Walk {
    fn measure(&mut self, reads: Reads, news: &mut dyn FnMut(usize, usize) -> bool) -> Result<Measured, Fault> {
        let mut collected = Walk::measure(self, reads, news)?;
        let tokens = reads.inputs().map(|input| collected.header.tokens_of(input)).collect();
        let sums = reads.inputs().map(|input| std::mem::take(&mut collected.sums[input])).collect();
        Ok(Measured { tokens, sums })
    }

    fn rounded(&mut self, tensor: &str, ty: TypeId, data: Vec<u8>) -> Result<(), Fault> {
        Ok(self.replace(tensor, ty, data)?)
    }
}
