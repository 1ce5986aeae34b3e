//! Errors of sensitivities, wherever they come from.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use trine_formats::gguf::GgufError;
use trine_formats::safetensors::SafetensorsError;

use crate::quant::gptq::HessianFault;

/// Sensitivities that cannot be used.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Error, Debug)]
#[non_exhaustive]
pub enum SensitivityError {
    #[error("cannot read '{path}'")]
    Io { path: PathBuf, source: io::Error },
    #[error("'{path}'")]
    Safetensors { path: PathBuf, source: SafetensorsError },
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error(
        "the importance matrix has {found} weights for tensor {tensor} of {expected} columns; it is of another model"
    )]
    Columns { tensor: String, found: usize, expected: u64 },
    #[error("tensor {tensor}: the sensitivity {value} at index {index} is not a finite number of at least 0{hint}")]
    Value { tensor: String, index: u64, value: f32, hint: &'static str },
    #[error(
        "the sensitivities lack {count} of the model's {all} matrices, the first is {first} ('{wanted}' in a checkpoint)"
    )]
    Missing { count: usize, all: usize, first: String, wanted: String },
    #[error("the sensitivities are of another model: they have '{name}', which is no matrix of this one")]
    Extra { name: String },
    #[error("the Hessian of tensor {tensor} has {found} columns and not {expected}; it is of another model")]
    Hessian { tensor: String, found: u64, expected: u64 },
    #[error("tensor {tensor}: {fault}")]
    Fault { tensor: String, fault: HessianFault },
    #[error("none of the model's matrices has a Hessian in the file; was it made of another model?")]
    NoHessian,
    #[error("{0} cannot be had together with error feedback (--gptq); leave one of them out")]
    Unfit(&'static str),
    #[error("two files have sensitivities for tensor {tensor}")]
    Twice { tensor: String },
    #[error("sensitivities '{name}' have shape {found:?}, the weights {rows} rows of {columns} columns")]
    Shape { name: String, found: Vec<u64>, rows: u64, columns: u64 },
    #[error("sensitivities '{name}' are {dtype}, expected F32, F16, BF16 or F64")]
    Dtype { name: String, dtype: &'static str },
    #[error(
        "trine does not know how the rows of attn_q and attn_k were reordered for architecture '{0}'; name the sensitivities as the GGUF file names its tensors, in its order of rows"
    )]
    Architecture(String),
    #[error("key '{arch}.attention.{key}' does not divide the {rows} rows of tensor {tensor}")]
    Heads { arch: String, key: &'static str, rows: u64, tensor: String },
}

/// Refuses what is not a finite number of at least 0; `first` is the index of the first value.
pub(super) fn check_values(
    tensor: &str,
    first: u64,
    values: &[f32],
    hint: &'static str,
) -> Result<(), SensitivityError> {
    match values.iter().position(|s| !s.is_finite() || *s < 0.0) {
        None => Ok(()),
        Some(i) => {
            Err(SensitivityError::Value { tensor: tensor.to_owned(), index: first + i as u64, value: values[i], hint })
        }
    }
}
