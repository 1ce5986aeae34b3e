//! Why no any-precision file was written.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use trine_formats::anyprec::AnyPrecError;
use trine_formats::types::TypeId;

use super::cluster::ClusterError;
use super::sensitivity_error::SensitivityError;
use crate::quant::row::Row;
use crate::quant::validate::first_bad;
use crate::quant::work::RunError;

/// A plan that cannot be made, or carried out.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Error, Debug)]
#[non_exhaustive]
pub enum ApError {
    #[error("the model has no block matrices (blk.N.attn_q … blk.N.ffn_down) that could be quantized")]
    NoMatrices,
    #[error(
        "the model is any-precision already: take one of its widths with --width, or start from the model it was made from"
    )]
    Already,
    #[error("the model is not any-precision: --width takes one width out of a file that has several")]
    NotAnyPrecision,
    #[error("{seed} to {parent} bits: the seed's bits are 1 to 8, the parent's as many or more up to 8")]
    Range { seed: u8, parent: u8 },
    #[error("--widths: {widths:?} are not ascending widths of {seed} to {parent}")]
    Widths { widths: Vec<u8>, seed: u8, parent: u8 },
    #[error("--best-at: {best} is not one of the widths {seed} to {parent}")]
    BestAt { best: u8, seed: u8, parent: u8 },
    #[error("--row-groups: {groups} groups do not divide the {columns} columns of {tensor}")]
    Groups { groups: u32, columns: u64, tensor: String },
    #[error("--tables: {tables} tables cannot be shared, 1 to 256 can")]
    Tables { tables: u32 },
    #[error("--tables: shared tables cannot be had with {option}")]
    TablesWith { option: &'static str },
    #[error("{option}: {percent} is no share in percent, 0 to 50 is")]
    Share { option: &'static str, percent: f64 },
    #[error(
        "{count} tensors are quantized already (the first is {first}, {ty}), and quantizing twice costs quality; start from an F16, BF16 or F32 file, or accept the loss with --allow-requantize"
    )]
    Requantize { count: usize, first: String, ty: TypeId },
    #[error("tensor {tensor} is of type {ty}, whose rows trine cannot decode; start from an F16, BF16 or F32 file")]
    Unreadable { tensor: String, ty: TypeId },
    #[error("{option}: tensor {tensor} cannot be of type {ty}: {why}; q8_0 and f16 fit most models")]
    TensorType { option: &'static str, tensor: String, ty: TypeId, why: String },
    #[error("tensor {tensor} has {columns} columns, more than an any-precision file holds")]
    TooWide { tensor: String, columns: u64 },
    #[error("tensor {tensor}: {count} weights to be kept as they are, more than an any-precision file holds")]
    TooManySparse { tensor: String, count: usize },
    #[error("tensor {tensor}: {source}")]
    Cluster { tensor: String, source: ClusterError },
    #[error(transparent)]
    Sensitivity(Box<SensitivityError>),
    #[error("--sensitivity")]
    Files(#[source] Box<SensitivityError>),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    AnyPrec(Box<AnyPrecError>),
    #[error("cannot read '{path}'")]
    Hash { path: PathBuf, source: io::Error },
}

impl From<SensitivityError> for ApError {
    fn from(error: SensitivityError) -> ApError {
        ApError::Sensitivity(Box::new(error))
    }
}

impl From<AnyPrecError> for ApError {
    fn from(error: AnyPrecError) -> ApError {
        ApError::AnyPrec(Box::new(error))
    }
}

/// Refuses values that are not finite, in rows from `first_row` on.
pub(super) fn check_finite(row: &Row, first_row: u64, data: &[u8]) -> Result<(), RunError> {
    let Some((block, what)) = first_bad(row.from, row.columns() as usize, data) else {
        return Ok(());
    };
    let size = row.from.info().map_or(1, |t| t.block as u64);
    Err(RunError::BadInput {
        tensor: row.name.clone(),
        ty: row.from,
        block: first_row * (row.columns() / size) + block as u64,
        what,
    })
}
