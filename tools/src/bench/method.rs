//! Names of the methods by which kernels compute products.

use clap::ValueEnum;
use trine_kernels::packed::Method;

/// How products are computed, by the name on the command line.
#[allow(missing_docs, reason = "the names are those of the methods")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MethodArg {
    Mad,
    Lut,
    Bit,
}

impl From<MethodArg> for Method {
    fn from(method: MethodArg) -> Method {
        match method {
            MethodArg::Mad => Method::MultiplyAdd,
            MethodArg::Lut => Method::Lookup,
            MethodArg::Bit => Method::Bitwise,
        }
    }
}
