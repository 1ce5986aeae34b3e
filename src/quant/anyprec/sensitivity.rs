//! Where sensitivities of weights come from: how much each matters, what its error is weighed with.

use std::path::PathBuf;

use trine_formats::anyprec::Calibration;

use crate::quant::gptq::Gptq;
use crate::quant::imatrix::Importance;

/// Source of the sensitivities.
#[derive(Clone, Debug)]
pub enum Sensitivity {
    /// All weights matter alike.
    Uniform,
    /// One per column.
    Columns(Importance, Calibration),
    /// One per weight, in safetensors files: squared gradients, or gradients that are to be squared.
    Weights {
        /// The files.
        files: Vec<PathBuf>,
        /// True if the files hold gradients.
        square: bool,
    },
    /// Hessians, for error feedback with the damping of its options, which mean nothing else here.
    Hessians(Gptq),
}

impl Sensitivity {
    /// The name of the source in the output's keys.
    pub fn name(&self) -> &'static str {
        match self {
            Sensitivity::Uniform => "uniform",
            Sensitivity::Columns(..) => "imatrix",
            Sensitivity::Weights { .. } => "file",
            Sensitivity::Hessians(_) => "hessian",
        }
    }

    /// On what they were computed, as far as it is known.
    pub fn calibration(&self) -> Calibration {
        match self {
            Sensitivity::Columns(_, calibration) => calibration.clone(),
            Sensitivity::Hessians(Gptq { hessians, .. }) => {
                let header = hessians.header();
                Calibration {
                    dataset: Some(header.origin.dataset.clone()),
                    samples: Some(header.chunks),
                    seq_len: Some(header.origin.chunk_size),
                    sha256: Some(header.origin.dataset_sha256.clone()),
                }
            }
            _ => Calibration::default(),
        }
    }
}
