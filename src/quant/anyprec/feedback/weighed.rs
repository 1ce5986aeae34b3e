//! The widths of a code, and how much the error of each counts.

use super::metric::Metric;
use crate::kernels::Isa;
use crate::quant::anyprec::cluster::Nesting;

/// How much more an error counts than the same at one bit less.
const SHARE: f64 = 3.0;
/// Error feedback for rows that read one input.
pub struct Feedback<'a> {
    pub(super) metric: &'a Metric,
    pub(super) isa: Isa,
    /// How much the error of each width counts; 0 of those without a table in the file.
    pub(super) shares: Vec<f64>,
}

impl<'a> Feedback<'a> {
    /// Feedback for codes of the widths of `nesting`; the widths in `bits` have tables.
    pub fn new(metric: &'a Metric, nesting: Nesting, bits: &[u8], isa: Isa) -> Feedback<'a> {
        Feedback { metric, isa, shares: shares(nesting, bits) }
    }
}

/// How much the error of each width counts; 0 of those that are not in `bits`.
pub fn shares(nesting: Nesting, bits: &[u8]) -> Vec<f64> {
    let share = |b: u8| match bits.contains(&b) {
        true => (nesting.seed_bits..b).fold(1.0, |share, _| share * SHARE),
        false => 0.0,
    };
    nesting.widths().map(share).collect()
}
