//! Why a plan could not be carried out.

use thiserror::Error;
use trine_formats::types::TypeId;
use trine_formats::types::ternary::TernaryError;

use super::gptq::HessianFault;
use super::lossless::{CarryFault, MoveReport};
use super::method::RunError;
use super::plan::PlanError;
use super::row::Row;
use super::ternary::TernaryReport;

/// Why no file was written.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Error, Debug)]
#[non_exhaustive]
pub enum QuantError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(
        "general.alignment is {0}, and llama-quantize places tensors at multiples of 32 all the same, which makes a damaged file; add --override-kv general.alignment=int:32"
    )]
    Alignment(u64),
    #[error("{0}; use a model that was trained to be ternary, or accept the loss with --force")]
    NotTernary(TernaryReport),
    #[error("{0}; choose a type that can hold them, or accept the change with --force")]
    NotExact(MoveReport),
    #[error("tensor {tensor}: {fault}")]
    Ternary { tensor: String, fault: TernaryError },
    #[error("tensor {tensor}: its scale is {scale}; the model is damaged")]
    Scale { tensor: String, scale: f32 },
    #[error("tensor {tensor}: {ty} cannot be converted")]
    Codec { tensor: String, ty: TypeId },
    #[error("tensor {tensor}: {fault}")]
    Hessian { tensor: String, fault: HessianFault },
}

/// The error that names the tensor of a move.
pub(super) fn blame_move(row: &Row, fault: CarryFault) -> QuantError {
    let tensor = row.name.clone();
    match fault {
        CarryFault::Row(fault) => fault.of(row).into(),
        CarryFault::Ternary(fault) => QuantError::Ternary { tensor, fault },
        CarryFault::Scale(scale) => QuantError::Scale { tensor, scale },
        CarryFault::Codec(ty) => QuantError::Codec { tensor, ty },
    }
}
