//! Requests that cannot be honoured for some tensors, and how they are told: grouped, every tensor
//! named, with what can be done.

use std::fmt;

use trine_formats::types::TypeId;

use super::row::Row;

/// One tensor for which the request cannot be honoured.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Clone, PartialEq, Debug)]
pub enum Problem {
    /// Rows are not whole blocks of the type.
    Misfit { tensor: String, columns: u64, wanted: TypeId, block: u64, instead: Option<TypeId> },
    /// The input is quantized already.
    Requantize { tensor: String, from: TypeId, to: TypeId },
    /// The type is useless without an importance matrix.
    NoImportance { tensor: String, ty: TypeId },
    /// The importance matrix is of another model.
    WrongImportance { tensor: String, found: u64, expected: u64 },
    /// No decoder.
    Unreadable { tensor: String, ty: TypeId },
    /// No encoder, or a type that files do not hold.
    Unwritable { tensor: String, ty: TypeId },
    /// The type has no layout for the shape.
    Unpackable { tensor: String, wanted: TypeId, why: String, instead: Option<TypeId> },
    /// The layout in the input is not known.
    Layout { tensor: String, why: String },
    /// llama.cpp quantizes matrices and stacks of them only.
    FourDimensions { tensor: String },
    /// The type has no grid that errors are fed back with.
    NoFeedback { tensor: String, ty: TypeId },
    /// Sparse kernels do not take the type.
    NotPruned { tensor: String, ty: TypeId },
    /// The Hessian is of another model.
    WrongHessian { tensor: String, found: u64, expected: u64, of: &'static str },
}

impl Problem {
    pub(super) fn misfit(row: &Row, block: u64, instead: Option<TypeId>) -> Problem {
        let (tensor, columns, wanted) = (row.name.clone(), row.columns(), row.to);
        Problem::Misfit { tensor, columns, wanted, block, instead }
    }

    /// Problems of one kind are told together, in this order.
    fn kind(&self) -> usize {
        match self {
            Problem::Unwritable { .. } => 0,
            Problem::Unreadable { .. } => 1,
            Problem::FourDimensions { .. } => 2,
            Problem::Requantize { .. } => 3,
            Problem::Misfit { instead: Some(_), .. } => 4,
            Problem::Misfit { instead: None, .. } => 5,
            Problem::NoImportance { .. } => 6,
            Problem::WrongImportance { .. } => 7,
            Problem::Unpackable { .. } => 8,
            Problem::Layout { .. } => 9,
            Problem::NoFeedback { .. } => 10,
            Problem::WrongHessian { .. } => 11,
            Problem::NotPruned { .. } => 12,
        }
    }

    /// The fault, without the tensor's name, and what to do about it.
    fn heading(&self) -> (&'static str, &'static str) {
        match self {
            Problem::Unwritable { .. } => (
                "of a type that trine does not write",
                "choose another file type, or another type for these with --tensor-type",
            ),
            Problem::Unreadable { .. } => ("of a type that trine cannot decode", "start from an F16, BF16 or F32 file"),
            Problem::FourDimensions { .. } => {
                ("of four dimensions, which cannot be quantized", "this model cannot be quantized; COPY works")
            }
            Problem::Requantize { .. } => (
                "quantized already, and quantizing twice costs quality",
                "start from an F16, BF16 or F32 file, or accept the loss with --allow-requantize",
            ),
            Problem::Misfit { instead: Some(_), .. } => (
                "whose rows are not whole blocks of the type",
                "--fallback takes llama.cpp's replacements, --tensor-type PATTERN=TYPE your own",
            ),
            Problem::Misfit { instead: None, .. } => (
                "whose rows are not whole blocks of the type, without a replacement in llama.cpp",
                "choose a type with a smaller block for them with --tensor-type (or the option that named them)",
            ),
            Problem::Unpackable { .. } => (
                "of a shape that the type cannot hold",
                "--fallback makes them i2_s where that fits, --tensor-type PATTERN=TYPE what you say",
            ),
            Problem::Layout { .. } => {
                ("whose layout in the input is not clear", "say what it is with --input-tl-tiles")
            }
            Problem::NoImportance { .. } => {
                ("of a type that needs importance weights", "give a matrix that has them with --imatrix")
            }
            Problem::NoFeedback { .. } => (
                "of a type that --gptq does not round to",
                "it knows the Q, IQ and TQ types, MXFP4 and NVFP4: choose one of these, with --tensor-type where the mixture takes another",
            ),
            Problem::NotPruned { .. } => (
                "of a type that --sparse does not prune to",
                "it knows Q4_0: choose that, with --pure or --tensor-type where the mixture takes another",
            ),
            Problem::WrongHessian { .. } => (
                "whose Hessian is of another size",
                "the Hessians are of another model; make them of this one with rimatrix --hessian",
            ),
            Problem::WrongImportance { .. } => (
                "with importance weights of another size",
                "the matrix is of another model; leave these out with --exclude-weights or make a new one",
            ),
        }
    }

    /// The type that the problem is about.
    fn ty(&self) -> Option<String> {
        match self {
            Problem::Misfit { wanted: ty, .. }
            | Problem::Requantize { from: ty, .. }
            | Problem::NoImportance { ty, .. }
            | Problem::NoFeedback { ty, .. }
            | Problem::NotPruned { ty, .. }
            | Problem::Unreadable { ty, .. }
            | Problem::Unwritable { ty, .. }
            | Problem::Unpackable { wanted: ty, .. } => Some(ty.to_string()),
            Problem::WrongImportance { .. }
            | Problem::WrongHessian { .. }
            | Problem::FourDimensions { .. }
            | Problem::Layout { .. } => None,
        }
    }

    fn line(&self) -> String {
        match self {
            Problem::Misfit { tensor, columns, wanted, block, instead } => {
                let instead = instead.map_or(String::new(), |ty| format!(" (replacement: {ty})"));
                format!("{tensor}: {columns} columns, {wanted} needs a multiple of {block}{instead}")
            }
            Problem::Requantize { tensor, from, to } => format!("{tensor}: {from} to {to}"),
            Problem::NoImportance { tensor, ty }
            | Problem::NoFeedback { tensor, ty }
            | Problem::NotPruned { tensor, ty }
            | Problem::Unreadable { tensor, ty }
            | Problem::Unwritable { tensor, ty } => format!("{tensor}: {ty}"),
            Problem::Unpackable { tensor, why, instead, .. } => {
                let instead = instead.map_or(String::new(), |ty| format!(" (replacement: {ty})"));
                format!("{tensor}: {why}{instead}")
            }
            // a message about a tensor names it
            Problem::Layout { why, .. } => why.clone(),
            Problem::WrongImportance { tensor, found, expected } => {
                format!("{tensor}: {found} weights, {expected} needed")
            }
            Problem::WrongHessian { tensor, found, expected, of } => {
                format!("{tensor}: {found} {of}, {expected} needed")
            }
            Problem::FourDimensions { tensor } => tensor.clone(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line())
    }
}

/// All problems of a plan. Displayed it is one line that counts them by kind and says what to do.
#[derive(Debug, PartialEq)]
pub struct Refusal {
    summary: String,
    details: Vec<String>,
}

impl Refusal {
    /// `None` when there are no problems.
    pub fn new(problems: &[Problem]) -> Option<Refusal> {
        let mut sorted: Vec<&Problem> = problems.iter().collect();
        sorted.sort_by_key(|p| p.kind());
        let mut kinds = Vec::new();
        let mut details = Vec::new();
        for group in sorted.chunk_by(|a, b| a.kind() == b.kind()) {
            let (what, help) = group[0].heading();
            if let [only] = group {
                kinds.push(format!("tensor {what}: {}; {help}", only.line()));
            } else {
                let mut types: Vec<String> = group.iter().filter_map(|p| p.ty()).collect();
                types.sort();
                types.dedup();
                let types = match types.join(" ") {
                    types if types.is_empty() => types,
                    types => format!(" ({types})"),
                };
                kinds.push(format!("{} tensors {what}{types}; {help}", group.len()));
                details.extend(group.iter().map(|p| p.line()));
            }
        }
        let summary = kinds.join(". Also ");
        (!problems.is_empty()).then_some(Refusal { summary, details })
    }

    /// The tensors that the line only counts: name and what is wrong, one per entry.
    pub fn details(&self) -> &[String] {
        &self.details
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)
    }
}
