//! Proves, from the two files alone, that a model kept its weights.

use std::fmt;

use rayon::prelude::*;
use thiserror::Error;
use trine_formats::gguf::{GgufError, ModelFile, PackingOptions, TensorView, packing};
use trine_formats::types::TypeId;

use super::compare::{Comparison, compare};
use super::decode::Decoder;
use super::types::{is_packed, is_ternary};
use crate::ops::apart::apart;
use crate::quant::row::Row;

/// A tensor that cannot be looked at.
#[allow(missing_docs, reason = "the messages say what the fields are")]
#[derive(Error, Debug)]
#[non_exhaustive]
pub enum VerifyError {
    #[error("tensor {0} is missing in the output")]
    Missing(String),
    #[error("the output has {found} tensors, the plan {planned}")]
    Count { found: usize, planned: usize },
    #[error("tensor {tensor}: shape {found:?} and type {ty} in the output, planned were {planned:?} and {to}")]
    Table { tensor: String, found: Vec<u64>, ty: TypeId, planned: Vec<u64>, to: TypeId },
    #[error("tensor {tensor}: {what}")]
    Damaged { tensor: String, what: String },
    #[error(transparent)]
    Gguf(#[from] GgufError),
}

/// The findings about one tensor.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Verdict {
    /// Every byte is the same.
    Copied,
    /// Every weight is the same.
    Equal,
    /// The type rounds, as was asked for: the weights need not be the same.
    Rounded,
    /// The tensor should be the same and is not.
    Different,
    /// There is no decoder for one of the types, and the bytes are not the same.
    Unknown,
}

/// One tensor of the output.
#[derive(Clone, PartialEq, Debug)]
pub struct Checked {
    /// Name in the output.
    pub name: String,
    /// Type in the input.
    pub from: TypeId,
    /// Type in the output.
    pub to: TypeId,
    /// The verdict.
    pub verdict: Verdict,
    /// The numbers, where the tensor was decoded.
    pub comparison: Comparison,
}

/// The verdicts on all tensors, in output order.
#[derive(Clone, PartialEq, Debug)]
pub struct Verification {
    /// One entry per tensor.
    pub tensors: Vec<Checked>,
}

/// Compares every tensor of `out`, the file that a plan of these `rows` made of `source`, with its source, weight by
/// weight. Both are decoded anew; nothing that was found out while writing is relied on.
///
/// # Errors
/// Tensors that are missing or cannot be decoded: all problems.
pub fn verify(
    source: &ModelFile,
    source_packing: &PackingOptions,
    out: &ModelFile,
    out_packing: &PackingOptions,
    rows: &[Row],
) -> Result<Verification, Vec<VerifyError>> {
    let mut problems = Vec::new();
    if out.n_tensors() != rows.len() {
        let (found, planned) = (out.n_tensors(), rows.len());
        problems.push(VerifyError::Count { found, planned });
    }
    let checked: Vec<Result<Checked, VerifyError>> = rows
        .par_iter()
        .map(|row| {
            let missing = |name: &str| VerifyError::Missing(name.to_owned());
            let was = source.tensor(&row.source.name).ok_or_else(|| missing(&row.source.name))?;
            let is = out.tensor(&row.name).ok_or_else(|| missing(&row.name))?;
            if is.info.shape != row.shape || is.info.ty != row.to {
                return Err(VerifyError::Table {
                    tensor: row.name.clone(),
                    found: is.info.shape,
                    ty: is.info.ty,
                    planned: row.shape.clone(),
                    to: row.to,
                });
            }
            let damaged = |what| VerifyError::Damaged { tensor: row.source.name.clone(), what };
            let was = apart(was).map_err(damaged)?;
            let was = (source.meta(), source_packing, &was);
            check(row, was, (out.meta(), out_packing, &is))
        })
        .collect();
    let mut tensors = Vec::with_capacity(checked.len());
    for result in checked {
        match result {
            Ok(c) => tensors.push(c),
            Err(e) => problems.push(e),
        }
    }
    if problems.is_empty() { Ok(Verification { tensors }) } else { Err(problems) }
}

type Side<'a> = (&'a trine_formats::gguf::Metadata, &'a PackingOptions, &'a TensorView);

fn check(row: &Row, was: Side<'_>, is: Side<'_>) -> Result<Checked, VerifyError> {
    let checked =
        |verdict, comparison| Checked { name: row.name.clone(), from: row.from, to: row.to, verdict, comparison };
    let copied = row.moves.is_none() && *was.2.data == *is.2.data && row.from == row.to;
    let (a, b) = (decoder(was)?, decoder(is)?);
    let (Some(a), Some(b)) = (a, b) else {
        let verdict = if copied { Verdict::Copied } else { Verdict::Unknown };
        let comparison = Comparison { weights: row.weights(), ..Comparison::default() };
        return Ok(checked(verdict, comparison));
    };
    let comparison = compare(&a, &b).map_err(|e| {
        // the damage is in one of the two; only the one of these types can have it
        let side = if is_packed(is.2.info.ty) { is.2 } else { was.2 };
        side.ternary_error(e)
    })?;
    let verdict = match comparison.is_equal() {
        true if copied => Verdict::Copied,
        true => Verdict::Equal,
        false if row.from == row.to || row.moves.is_some() || is_ternary(row.to) => Verdict::Different,
        false => Verdict::Rounded,
    };
    Ok(checked(verdict, comparison))
}

fn decoder<'a>((meta, options, view): Side<'a>) -> Result<Option<Decoder<'a>>, GgufError> {
    let info = &view.info;
    let layout = is_packed(info.ty).then(|| packing(info, meta, options));
    let size = |n| usize::try_from(n).unwrap_or(usize::MAX);
    let (columns, rows) = (size(info.columns()), size(info.rows()));
    Decoder::new(info.ty, layout.transpose()?, columns, rows, &view.data).map_err(|e| view.ternary_error(e))
}

impl Verification {
    fn with(&self, verdict: Verdict) -> impl Iterator<Item = &Checked> {
        self.tensors.iter().filter(move |t| t.verdict == verdict)
    }

    /// Tensors that should be the same and are not, or that nobody can compare.
    pub fn problems(&self) -> impl Iterator<Item = &Checked> {
        let bad = |t: &&Checked| matches!(t.verdict, Verdict::Different | Verdict::Unknown);
        self.tensors.iter().filter(bad)
    }

    /// Tensors whose type rounds.
    pub fn rounded(&self) -> impl Iterator<Item = &Checked> {
        self.with(Verdict::Rounded)
    }
}

impl fmt::Display for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (c, from, to) = (&self.comparison, self.from, self.to);
        write!(f, "{}: {from} to {to}: ", self.name)?;
        let Some(first) = c.first else {
            return match self.verdict {
                Verdict::Unknown => f.write_str("cannot be decoded, so not compared"),
                _ => f.write_str("the same"),
            };
        };
        write!(
            f,
            "{} of {} weights differ, relative error {:.2e}, the first in row {}, column {}: {:?} became {:?}",
            c.different,
            c.weights,
            c.relative_error(),
            first.row,
            first.column,
            first.was,
            first.is
        )
    }
}

impl fmt::Display for Verification {
    /// One line: the proof, as far as it goes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sum = |verdict| {
            let n = self.with(verdict).count();
            let weights: u64 = self.with(verdict).map(|t| t.comparison.weights).sum();
            (n, weights)
        };
        let (copied, equal) = (sum(Verdict::Copied), sum(Verdict::Equal));
        let problems = self.problems().count();
        if problems > 0 {
            let n = self.tensors.len();
            write!(f, "{problems} of {n} tensors are not the same as in the input; ")?;
        }
        if equal.0 > 0 {
            write!(f, "{} tensors converted with every one of {} weights the same, ", equal.0, equal.1)?;
        }
        write!(f, "{} copied byte for byte", copied.0)?;
        let rounded = self.rounded().count();
        if let Some(worst) = self.rounded().max_by(|a, b| {
            let error = |c: &Checked| c.comparison.relative_error();
            error(a).total_cmp(&error(b))
        }) {
            let error = worst.comparison.relative_error();
            write!(
                f,
                ", {rounded} rounded by their type (worst {} as {}: relative error {error:.2e})",
                worst.name, worst.to
            )?;
        }
        match self.tensors.iter().map(|t| t.comparison.zero_signs).sum::<u64>() {
            0 => Ok(()),
            signs => write!(f, "; {signs} zeros differ in sign"),
        }
    }
}
