//! Errors of loading a model, and of choosing its width.

use std::path::PathBuf;

use trine_formats::anyprec::AnyPrecError;
use trine_formats::gguf::GgufError;
use trine_formats::pruned::PrunedError;
use trine_formats::widely::WidelyError;

use super::Problem;
use crate::arch::Missing;
use crate::exec::DeviceError;

/// Problems that a message spells out. One mistake, such as a wrong width, shows in every tensor of a
/// model, and a line of a thousand of them tells less than its start.
const SHOWN_PROBLEMS: usize = 8;

/// The first problems, and how many more there are.
fn listed(problems: &[Problem]) -> String {
    let shown = problems.iter().take(SHOWN_PROBLEMS).map(Problem::to_string);
    let shown: Vec<String> = shown.collect();
    match problems.len() - shown.len() {
        0 => shown.join("; "),
        more => format!("{}; and {more} more problems", shown.join("; ")),
    }
}

/// Why an architecture is none of trine's.
fn why(name: &str) -> String {
    match Missing::find(name) {
        Some(missing) => format!("it needs {}", missing.what),
        None => "neither trine nor llama.cpp knows it".to_owned(),
    }
}

/// Why a model cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// `general.architecture` is missing or not text.
    #[error("the file names no architecture (general.architecture): it is not a language model trine can run")]
    NoArchitecture,
    /// An architecture trine does not have.
    #[error("architecture '{0}' is not supported: {why}; docs/models.md lists those that are", why = why(.0))]
    UnknownArchitecture(String),
    /// Everything that is wrong with the metadata and the tensors, at once; the message stops after
    /// `SHOWN_PROBLEMS`.
    #[error("the model cannot run: {}", listed(.0))]
    Invalid(Vec<Problem>),
    /// A metadata value of the wrong type.
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// Widely linear matrices that are damaged.
    #[error(transparent)]
    Widely(#[from] WidelyError),
    /// Keys about pruned matrices that make no sense.
    #[error(transparent)]
    Pruned(#[from] PrunedError),
    /// The number path is for other models.
    #[error(
        "number path i8 is for models with widely linear matrices (architecture fairy2i), and this one is of architecture '{0}'"
    )]
    NumberPath(&'static str),
    /// The number path is for GPUs.
    #[error("number path fast is for layers on a GPU: --device cuda runs the model on one")]
    NoGpu,
    /// An any-precision file that is damaged, or ends before its first width.
    #[error(transparent)]
    AnyPrecision(#[from] AnyPrecError),
    /// The reference leaves most tensors of such models as they are, whatever an adapter says.
    #[error(
        "adapters are not applied to models with latent attention, and this one is of architecture '{0}'; merge the adapter into its weights"
    )]
    Latent(&'static str),
    /// A drafter that cannot draft for the model.
    #[error("the drafter cannot draft for this model: {0}")]
    Drafter(String),
    /// Adapters for a model that has some of its own.
    #[error("adapters are not added to models of architecture '{0}', whose files have adapters that tokens switch on")]
    Switched(&'static str),
    /// The reference adds no directions behind the blocks of such models.
    #[error("control vectors are not applied to models of architecture '{0}'; leave --control-vector out")]
    Unsteered(&'static str),
    /// A head for multi-token prediction that is not there, or that trine does not run.
    #[error("{0}; drafts can come from a second model, from fewer bits or from the text itself")]
    NoHead(String),
    /// Keys or values that cannot be kept in a type.
    #[error("{0}")]
    Cache(String),
    /// A part of the model that a GPU was to run and cannot.
    #[error("{0}; --device cpu needs no GPU, and -ngl leaves the first layers on the processor")]
    Offload(DeviceError),
    /// A file of low-rank weights or directions that is none, or none for this model.
    #[error("adapter {path}: {what}", path = .path.display())]
    Adapter {
        /// Its path.
        path: PathBuf,
        /// The problem.
        what: String,
    },
}

/// Why a model cannot run at a width.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WidthError {
    /// The file has others.
    #[error(transparent)]
    Other(#[from] AnyPrecError),
    /// The file has no widths to choose from.
    #[error("the model is no any-precision file, so it has no {0}-bit form; make one with rquantize")]
    Only(u8),
    /// The GPU has others of the file's.
    #[error("the GPU was given the weights for {} bits and not those for {width}", list(there))]
    NotOnGpu {
        /// The width that was asked for.
        width: u8,
        /// The widths that it has.
        there: Vec<u8>,
    },
}

/// Widths as errors name them.
fn list(widths: &[u8]) -> String {
    widths.iter().map(u8::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_of_problems_are_cut() {
        let problems = |n: usize| (0..n).map(|i| Problem::Contradiction(format!("p{i}"))).collect::<Vec<_>>();
        let text = |n| ModelError::Invalid(problems(n)).to_string();
        assert_eq!(text(2), "the model cannot run: p0; p1");
        assert!(text(8).ends_with("p6; p7"));
        assert!(text(500).ends_with("p6; p7; and 492 more problems"));
    }
}
