//! The report about the tensors that were moved.

use std::fmt;

use thiserror::Error;
use trine_formats::types::TypeId;

use super::compare::Comparison;

/// Why a matrix cannot be held exactly.
#[allow(missing_docs, reason = "the display says what the fields are")]
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Why {
    /// Weights that share a scale in the target have several; `reach` weights share one, or all.
    Scales { distinct: usize, smallest: f32, largest: f32, reach: Option<usize> },
    /// The target stores another number.
    Rounded { scale: f32, stored: f32 },
    /// The first weight that is neither 0 nor of the magnitude around it.
    NotTernary { row: usize, column: usize },
}

/// A tensor that cannot be held exactly, and how far off it would be.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Inexact {
    /// The reason.
    pub why: Why,
    /// The layouts of input and output.
    pub comparison: Comparison,
}

impl Inexact {
    /// Largest relative error of a scale; `None` where weights have none.
    pub fn scale_error(&self) -> Option<f64> {
        let off = |scale: f32, stored: f32| (f64::from(stored) - f64::from(scale)).abs() / f64::from(scale);
        match self.why {
            Why::Scales { smallest, largest, .. } => Some(off(smallest, largest)),
            Why::Rounded { scale, stored } => Some(off(scale, stored)),
            Why::NotTernary { .. } => None,
        }
    }
}

impl fmt::Display for Inexact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why {
            Why::Scales { distinct, smallest, largest, reach } => {
                write!(f, "{distinct} scales from {smallest:?} to {largest:?}, ")?;
                match reach {
                    Some(n) => write!(f, "the type has one per {n} weights")?,
                    None => f.write_str("the type has one")?,
                }
            }
            Why::Rounded { scale, stored } => {
                write!(f, "scale {scale:?} would become {stored:?}")?;
            }
            Why::NotTernary { row, column } => {
                write!(f, "not ternary, the first other magnitude is in row {row}, column {column}")?
            }
        }
        if let Some(error) = self.scale_error() {
            write!(f, "; scales off by up to {:.2e} of their value", error)?;
        }
        let c = &self.comparison;
        let share = 100.0 * c.different as f64 / c.weights.max(1) as f64;
        write!(f, "; {share:.2}% of weights changed, relative error {:.2e}", c.relative_error())
    }
}

/// The result for one tensor.
#[derive(Clone, PartialEq, Debug)]
pub struct Moved {
    /// Name in the output.
    pub name: String,
    /// Type in the input.
    pub from: TypeId,
    /// Type in the output.
    pub to: TypeId,
    /// Number of weights.
    pub weights: u64,
    /// Zeros that had a sign.
    pub zero_signs: u64,
    /// `None` when every weight is the same.
    pub inexact: Option<Inexact>,
}

/// All tensors that were moved, in output order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MoveReport {
    /// One entry per tensor.
    pub tensors: Vec<Moved>,
}

/// Tensors that cannot be held exactly.
#[derive(Error, Debug)]
#[error("{0}; choose a type that can hold them, or accept the change with --force")]
pub struct NotExact(pub MoveReport);

impl MoveReport {
    /// Names of the tensors that are not exact, and the reports about them.
    pub fn inexact(&self) -> impl Iterator<Item = (&str, &Inexact)> {
        let named = |t: &'_ Moved| t.inexact.is_some();
        self.tensors.iter().filter(move |t| named(t)).filter_map(|t| Some((t.name.as_str(), t.inexact.as_ref()?)))
    }

    /// A line for each that is not exact.
    pub fn details(&self) -> Vec<String> {
        self.inexact().map(|(name, inexact)| format!("{name}: {inexact}")).collect()
    }

    /// True if every weight is the same.
    pub fn is_exact(&self) -> bool {
        self.inexact().next().is_none()
    }
}

impl fmt::Display for MoveReport {
    /// One line: the proof, or how many tensors are not exact and the worst of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.tensors.len();
        let worst = self.inexact().max_by(|a, b| {
            let error = |i: &Inexact| i.comparison.relative_error();
            error(a.1).total_cmp(&error(b.1))
        });
        if let Some((name, worst)) = worst {
            let (bad, to) = (self.inexact().count(), self.tensors[0].to);
            let one = self.tensors.iter().all(|t| t.to == to);
            let to = if one { format!("as {to}") } else { "in their new types".to_owned() };
            return write!(f, "{bad} of {n} ternary matrices cannot be held exactly {to}; worst {name}: {worst}");
        }
        let weights: u64 = self.tensors.iter().map(|t| t.weights).sum();
        write!(f, "{n} matrices moved, {weights} weights: every one is the same (decoded and compared)")?;
        match self.tensors.iter().map(|t| t.zero_signs).sum::<u64>() {
            0 => Ok(()),
            signs => write!(f, ", {signs} zeros lost their minus sign"),
        }
    }
}
