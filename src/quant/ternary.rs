//! The proof that tensors which become TQ1_0 or TQ2_0 are ternary, and what is lost where they are not.
//!
//! A block of 256 weights is ternary when they are all `-a`, `0` or `+a`. The claim is proved from the
//! output: every encoded row is decoded again and compared. A ternary block keeps its digits; its scale
//! `a` may be rounded to f16. Any other block loses weights.

use std::fmt;

use thiserror::Error;
use trine_formats::types::TypeId;

use super::row::Row;
use crate::kernels::CompareRows;

/// Weights per block of both types.
const BLOCK: usize = 256;

/// The effect of encoding on a number of rows.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Loss {
    /// Weights looked at.
    pub weights: u64,
    /// Weights of blocks that are not ternary whose value is not the decoded one.
    pub changed: u64,
    /// Largest relative rounding of a ternary block's scale to f16.
    pub scale_error: f32,
    /// Sum of squares of the source.
    energy: f64,
    /// Sum of squares of source minus decoded.
    error: f64,
}

impl Loss {
    /// Compares a row of the source with what was decoded from the output, a ternary type.
    pub fn of_row(source: &[f32], decoded: &[f32], compare: CompareRows) -> Loss {
        let mut loss = Loss { weights: source.len() as u64, ..Loss::default() };
        for (s, d) in source.chunks(BLOCK).zip(decoded.chunks(BLOCK)) {
            match compare(s, d) {
                Some(nonzero) => loss.add_equal_block(s, nonzero),
                None => loss.add_block(s, d),
            }
        }
        loss
    }

    /// Nothing is lost where every weight came back, with a magnitude that all share.
    fn add_equal_block(&mut self, source: &[f32], nonzero: usize) {
        if let Some(&a) = source.iter().find(|&&x| x != 0.0) {
            self.energy += f64::from(a) * f64::from(a) * nonzero as f64;
        }
    }

    fn add_block(&mut self, source: &[f32], decoded: &[f32]) {
        let scale = source.iter().fold(0.0f32, |a, x| a.max(x.abs()));
        let stored = decoded.iter().fold(0.0f32, |a, x| a.max(x.abs()));
        // digits kept: every weight is one of the three, and comes back with its sign
        let digits = source.iter().zip(decoded).all(|(&s, &d)| {
            let ternary = s == 0.0 || s.abs() == scale;
            let sign = |x: f32| i8::from(x > 0.0) - i8::from(x < 0.0);
            ternary && sign(s) == sign(d) && (d == 0.0 || d.abs() == stored)
        });
        if digits {
            if scale > 0.0 {
                self.scale_error = self.scale_error.max((stored - scale).abs() / scale);
            }
        } else {
            self.changed += source.iter().zip(decoded).filter(|(s, d)| s != d).count() as u64;
        }
        for (&s, &d) in source.iter().zip(decoded) {
            let difference = f64::from(s) - f64::from(d);
            self.energy += f64::from(s) * f64::from(s);
            self.error += difference * difference;
        }
    }

    /// Adds the loss of other rows.
    pub fn add(&mut self, other: &Loss) {
        self.weights += other.weights;
        self.changed += other.changed;
        self.scale_error = self.scale_error.max(other.scale_error);
        self.energy += other.energy;
        self.error += other.error;
    }

    /// True if every digit is kept.
    pub fn is_lossless(&self) -> bool {
        self.changed == 0
    }

    /// Share of the weights that are changed, 0 to 1.
    pub fn share(&self) -> f64 {
        self.changed as f64 / self.weights.max(1) as f64
    }

    /// Root of the squared error relative to the source's.
    pub fn relative_error(&self) -> f64 {
        if self.energy > 0.0 { (self.error / self.energy).sqrt() } else { 0.0 }
    }
}

/// The loss of one tensor.
#[derive(Clone, PartialEq, Debug)]
pub struct TensorLoss {
    /// Name in the output.
    pub name: String,
    /// The type it became.
    pub ty: TypeId,
    /// Over all its rows.
    pub loss: Loss,
}

/// The report about all tensors that were made ternary.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct TernaryReport {
    /// One entry per tensor, in output order.
    pub tensors: Vec<TensorLoss>,
}

/// Tensors that were made ternary and were not.
#[derive(Error, Debug)]
#[error("{0}; use a model that was trained to be ternary, or accept the loss with --force")]
pub struct NotTernary(pub TernaryReport);

/// True if this type holds ternary digits, so that a report is due.
pub fn is_ternary_type(ty: TypeId) -> bool {
    let of_forks = [TypeId::PTQ1_0, TypeId::STQ1_0, TypeId::STQ1_0_CONTIGUOUS, TypeId::IQ1_BN, TypeId::IQ2_BN];
    matches!(ty, TypeId::TQ1_0 | TypeId::TQ2_0) || of_forks.contains(&ty)
}

impl TernaryReport {
    /// Adds the loss of some rows of a tensor.
    pub(super) fn add(&mut self, row: &Row, loss: Loss) {
        // It is the last one, or not far from it.
        match self.tensors.iter_mut().rev().find(|tensor| tensor.name == row.name) {
            Some(tensor) => tensor.loss.add(&loss),
            None => self.tensors.push(TensorLoss { name: row.name.clone(), ty: row.to, loss }),
        }
    }

    /// Over all tensors.
    pub fn total(&self) -> Loss {
        let mut total = Loss::default();
        self.tensors.iter().for_each(|t| total.add(&t.loss));
        total
    }

    /// Tensors that were not ternary.
    pub fn lossy(&self) -> impl Iterator<Item = &TensorLoss> {
        self.tensors.iter().filter(|t| !t.loss.is_lossless())
    }

    /// A line for each tensor that was not ternary.
    pub fn details(&self) -> Vec<String> {
        self.lossy().map(|t| format!("{}: {}", t.name, t.loss)).collect()
    }

    /// The tensor with the largest relative error.
    pub fn worst(&self) -> Option<&TensorLoss> {
        self.lossy().max_by(|a, b| a.loss.relative_error().total_cmp(&b.loss.relative_error()))
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (share, error) = (100.0 * self.share(), 100.0 * self.relative_error());
        write!(f, "{share:.2}% of weights changed, relative error {error:.2}%")
    }
}

impl fmt::Display for TernaryReport {
    /// One line: the proof when all digits are kept, otherwise the total and the worst.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        let n = self.tensors.len();
        let Some(worst) = self.worst() else {
            let scales = match total.scale_error {
                0.0 => "scales exact".to_owned(),
                e => format!("scales rounded to f16 by up to {e:.1e} of their value"),
            };
            return write!(
                f,
                "{n} ternary tensors, {} weights: digits lossless (decoded and compared), {scales}",
                total.weights
            );
        };
        write!(
            f,
            "{} of {n} tensors made ternary are not ternary: {total} over all; worst {}: {}",
            self.lossy().count(),
            worst.name,
            worst.loss
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{Isa, compare_rows};

    fn loss_of(source: &[f32], decoded: &[f32]) -> Loss {
        Loss::of_row(source, decoded, compare_rows(Isa::detect()))
    }

    fn block(values: &[f32]) -> Vec<f32> {
        values.iter().copied().cycle().take(BLOCK).collect()
    }

    #[test]
    fn ternary_blocks_are_lossless() {
        let source = block(&[0.5, -0.5, 0.0, -0.0]);
        let loss = loss_of(&source, &source);
        assert!(loss.is_lossless() && loss.scale_error == 0.0 && loss.relative_error() == 0.0);
        // a scale that f16 rounds
        let decoded = block(&[0.25, -0.25, 0.0]);
        let source = block(&[0.2501, -0.2501, 0.0]);
        let loss = loss_of(&source, &decoded);
        assert!(loss.is_lossless());
        assert_eq!(loss.scale_error, (0.2501f32 - 0.25).abs() / 0.2501);
    }

    #[test]
    fn anything_else_is_lossy() {
        // one weight off
        let mut source = block(&[0.5, -0.5, 0.0]);
        let decoded = source.clone();
        source[7] = 0.25;
        let loss = loss_of(&source, &decoded);
        assert_eq!((loss.changed, loss.weights), (1, 256));
        // a digit that comes back as another one
        let source = block(&[0.5, -0.5, 0.0]);
        let mut decoded = source.clone();
        decoded[0] = 0.0;
        assert_eq!(loss_of(&source, &decoded).changed, 1);
        decoded[0] = -0.5;
        assert_eq!(loss_of(&source, &decoded).changed, 1);
        // a scale that f16 loses
        let loss = loss_of(&block(&[1e-10, 0.0]), &block(&[0.0]));
        assert_eq!((loss.changed, loss.relative_error()), (128, 1.0));
        assert!(!loss.is_lossless());
        // values that are not numbers never count as ternary
        assert!(!loss_of(&block(&[f32::NAN]), &block(&[0.0])).is_lossless());
    }

    #[test]
    fn report_names_the_worst() {
        let one = |name: &str, source: &[f32]| TensorLoss {
            name: name.into(),
            ty: TypeId::TQ2_0,
            loss: loss_of(&block(source), &block(&[1.0, 0.0])),
        };
        let good = TernaryReport { tensors: vec![one("a", &[1.0, 0.0])] };
        assert!(good.to_string().contains("digits lossless"), "{good}");
        let tensors = vec![one("a", &[1.0, 0.0]), one("b", &[1.0, 0.5]), one("c", &[1.0, 0.1])];
        let bad = TernaryReport { tensors };
        assert_eq!(bad.worst().map(|t| t.name.as_str()), Some("b"));
        assert_eq!(bad.lossy().count(), 2);
        assert!(bad.to_string().starts_with("2 of 3 tensors"), "{bad}");
    }
}
