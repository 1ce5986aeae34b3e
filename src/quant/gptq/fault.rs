//! Faults of a Hessian.

/// Why a Hessian cannot be used.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum HessianFault {
    #[error("the file of Hessians became shorter")]
    CutShort,
    #[error(
        "its Hessian holds {value} for columns {row} and {column}; the file is damaged, make it anew with rimatrix --hessian"
    )]
    BadValue { row: usize, column: usize, value: f64 },
    #[error(
        "its Hessian is not positive definite at column {0}, with all of the mean of its diagonal added to it; the file is damaged, make it anew with rimatrix --hessian"
    )]
    Singular(usize),
    #[error("no token of the text went to any of its experts; make the Hessians anew with more text")]
    NoTokens,
    #[error("any-precision matrices are rounded by a file of Hessians (--gptq), not layer by layer")]
    Sequential,
}

/// Hessians of none of the tensors that would be rounded.
#[derive(Debug, thiserror::Error)]
#[error("--gptq: none of the tensors that are quantized has a Hessian in the file; was it made of another model?")]
pub struct NoHessian;
