//! Why a plan could not be made, or not be carried out.

use thiserror::Error;
use trine_formats::gguf::GgufError;
use trine_formats::pruned::PrunedError;

use super::lossless::NotExact;
use super::mixture::MixtureError;
use super::plan::Fault;
use super::problem::Refusal;
use super::ternary::NotTernary;
use super::work::RunError;

/// A recipe that makes no sense for a model.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Error, Debug)]
#[non_exhaustive]
pub enum PlanError {
    #[error("the model has no tensors")]
    NoTensors,
    #[error(transparent)]
    Mixture(#[from] MixtureError),
    #[error("--prune-layers: the model has no layer {0}")]
    NoLayer(u32),
    #[error("--prune-layers leaves no tensor of shard {0}: without --keep-split one file is written")]
    EmptyShard(usize),
    #[error(transparent)]
    Pruned(Box<PrunedError>),
    #[error("--method {0} knows none of the types that the tensors get; rquantize --help names those that it knows")]
    NoneEncoded(&'static str),
    #[error("--gptq is for quantized types, which {0} is not made of")]
    NothingToRound(String),
    #[error("{0}")]
    Refused(Refusal),
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// The error of a method.
    #[error(transparent)]
    Method(#[from] Fault),
}

/// Why no file was written.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Error, Debug)]
#[non_exhaustive]
pub enum QuantError {
    #[error(transparent)]
    Plan(Box<PlanError>),
    #[error(transparent)]
    Run(Box<RunError>),
    #[error(
        "general.alignment is {0}, and llama-quantize places tensors at multiples of 32 all the same, which makes a damaged file; add --override-kv general.alignment=int:32"
    )]
    Alignment(u64),
    /// The error of a method.
    #[error(transparent)]
    Method(#[from] Fault),
}

// Boxed, because an error that is nearly never there should not make every result large.

impl From<PlanError> for QuantError {
    fn from(error: PlanError) -> QuantError {
        QuantError::Plan(Box::new(error))
    }
}

impl From<RunError> for QuantError {
    fn from(error: RunError) -> QuantError {
        QuantError::Run(Box::new(error))
    }
}

impl QuantError {
    /// The tensors that the message only counts, with what is wrong, one per entry.
    pub fn details(&self) -> Vec<String> {
        match self {
            QuantError::Plan(error) => match &**error {
                PlanError::Refused(refusal) => refusal.details().to_vec(),
                _ => Vec::new(),
            },
            QuantError::Method(fault) => {
                let ternary = fault.downcast_ref().map(|NotTernary(report)| report.details());
                let exact = || fault.downcast_ref().map(|NotExact(report)| report.details());
                ternary.or_else(exact).unwrap_or_default()
            }
            _ => Vec::new(),
        }
    }
}
